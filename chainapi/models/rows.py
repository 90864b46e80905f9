"""Decoder of the rows of a model; records keep the fields that they do not name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from chainapi.errors import DecodeError
from chainapi.models.convert import row_type
from chainapi.models.decode_errors import DECODING_ERRORS, UNKNOWN_FIELD, to_decode_error
from chainapi.models.records import keep
from chainapi.models.row_type import decoder_of

__all__ = ["RowDecoder"]


class RowDecoder:
    """Decoder of the rows of a model, or of JSON values without one.

    Our records keep the JSON of fields that they do not name.

    Raises:
        ConfigurationError: the model cannot be made from JSON; the message names what is missing.

    """

    def __init__(self, model: Any) -> None:
        self.strict = row_type(model, strict=True)
        self._model = model

    def one(self, raw: bytes | msgspec.Raw) -> Any:
        """Decode one row.

        Raises:
            DecodeError: it does not fit the model.

        """
        try:
            return decoder_of(self.strict).one(raw)
        except DecodeError as fault:
            if not fault.reason.startswith(UNKNOWN_FIELD):
                raise
        return _kept([decoder_of(row_type(self._model)).one(raw)], [raw])[0]

    def several(self, raws: Sequence[bytes | msgspec.Raw], *, unnamed: bool = False) -> list[Any]:
        """Decode rows; with `unnamed`, some have fields that no record names.

        Raises:
            DecodeError: one of them does not fit the model; the path begins with its number.

        """
        try:
            if not unnamed:
                return decoder_of(self.strict).several(raws)
        except DecodeError as fault:
            if not fault.reason.startswith(UNKNOWN_FIELD):
                raise
        return _kept(decoder_of(row_type(self._model)).several(raws), raws)


def _kept(rows: list[Any], raws: Sequence[bytes | msgspec.Raw]) -> list[Any]:
    """Return new rows, after they have kept their JSON."""
    try:
        for row, raw in zip(rows, raws, strict=True):
            keep(row, raw)
    except DECODING_ERRORS as error:  # nested deeper than the stack that is left
        raise to_decode_error(error) from None
    return rows

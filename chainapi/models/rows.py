"""Rows of a model, made of their JSON; our records keep the fields that they do not name."""

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
    """Makes rows of a model, or plain values, of JSON.

    Our records keep the fields that they do not name.

    Raises:
        ConfigurationError: nothing can make rows of the model; the reason says what is missing.

    """

    def __init__(self, model: Any) -> None:
        self.strict = row_type(model, strict=True)
        self._model = model

    def one(self, raw: bytes | msgspec.Raw) -> Any:
        """Make one row.

        Raises:
            DecodeError: it is not of its model's shape.

        """
        try:
            return decoder_of(self.strict).one(raw)
        except DecodeError as fault:
            if not fault.reason.startswith(UNKNOWN_FIELD):
                raise
        row = decoder_of(row_type(self._model)).one(raw)
        _kept([row], [raw])
        return row

    def several(self, raws: Sequence[bytes | msgspec.Raw], *, unnamed: bool = False) -> list[Any]:
        """Make rows; `unnamed` says that some have fields that no record names.

        Raises:
            DecodeError: one of them is not of its model's shape; the path begins with its number.

        """
        try:
            if not unnamed:
                return decoder_of(self.strict).several(raws)
        except DecodeError as fault:
            if not fault.reason.startswith(UNKNOWN_FIELD):
                raise
        rows = decoder_of(row_type(self._model)).several(raws)
        _kept(rows, raws)
        return rows


def _kept(rows: Sequence[Any], raws: Sequence[bytes | msgspec.Raw]) -> None:
    """Let rows keep their JSON."""
    try:
        keep(rows, raws)
    except DECODING_ERRORS as error:  # deeper than the stack goes from here
        raise to_decode_error(error) from None

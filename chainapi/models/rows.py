"""Rows of a model, made of their JSON; our records keep the fields that they do not name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from chainapi.errors import DecodeError
from chainapi.models.convert import row_type
from chainapi.models.records import keep
from chainapi.models.refusals import REFUSED, UNKNOWN_FIELD, refusal
from chainapi.models.row_type import way

__all__ = ["Maker"]


class Maker:
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
            return way(self.strict).one(raw)
        except DecodeError as fault:
            if not fault.reason.startswith(UNKNOWN_FIELD):
                raise
        row = way(row_type(self._model)).one(raw)
        _kept([row], [raw])
        return row

    def several(self, raws: Sequence[bytes | msgspec.Raw], *, unnamed: bool = False) -> list[Any]:
        """Make rows; `unnamed` says that some have fields that no record names.

        Raises:
            DecodeError: one of them is not of its model's shape; the path begins with its number.

        """
        try:
            if not unnamed:
                return way(self.strict).several(raws)
        except DecodeError as fault:
            if not fault.reason.startswith(UNKNOWN_FIELD):
                raise
        rows = way(row_type(self._model)).several(raws)
        _kept(rows, raws)
        return rows


def _kept(rows: Sequence[Any], raws: Sequence[bytes | msgspec.Raw]) -> None:
    """Let rows keep their JSON."""
    try:
        keep(rows, raws)
    except REFUSED as error:  # deeper than the stack goes from here
        raise refusal(error) from None

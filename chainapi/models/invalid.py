"""Rows that are not of the shape that their route promises."""

from __future__ import annotations

from typing import Any

from attrs import field, frozen

from chainapi.errors import DecodeError
from chainapi.models.unions import raw_field

__all__ = ["Invalid"]


@frozen
class Invalid:
    """A row that could not be made, in its place among the others.

    Lists give it where they are called with ``on_invalid="raw"``. Each field of it can also be read as an
    attribute, named as Python names it.

    Attributes:
        raw: the row as plain JSON, usually a dict; its text where it cannot be read.
        error: what is wrong with it, with the JSON path.

    """

    raw: Any
    error: DecodeError = field(eq=False)

    def __getattr__(self, name: str) -> Any:
        return raw_field(self, name)

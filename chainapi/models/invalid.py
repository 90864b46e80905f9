"""Rows that do not fit the model of their route."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from attrs import field, frozen

from chainapi.errors import DecodeError
from chainapi.models.unions import Unknown, raw_dict, raw_field

if TYPE_CHECKING:
    from pydantic_core.core_schema import CoreSchema

__all__ = ["Invalid", "is_raw"]


@frozen
class Invalid:
    """Row that does not fit its model, in its place among the others.

    Lists return it if they are called with ``on_invalid="raw"``. Each of its fields is an attribute too, by
    its name in Python.

    Attributes:
        raw: the row as a JSON value, usually a dict; its text if it is not JSON.
        error: the fault, with its JSON path.

    """

    raw: Any
    error: DecodeError = field(eq=False)

    def to_dict(self) -> Any:
        """Return the fields by their names in Python; a row that is no object as it is."""
        return raw_dict(self)

    def to_wire(self) -> Any:
        """Return the row as the service sent it."""
        return self.raw

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: object) -> CoreSchema:
        from chainapi.models.pydantic_row import raw_schema

        return raw_schema(cls, None)

    def __getattr__(self, name: str) -> Any:
        return raw_field(self, name)


def is_raw(row: object) -> bool:
    """Check for a row that is no record: its fields are in `raw`."""
    return isinstance(row, Unknown | Invalid)

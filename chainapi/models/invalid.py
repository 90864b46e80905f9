"""Rows that do not fit the model of their route."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from attrs import field, frozen

from chainapi.errors import DecodeError
from chainapi.models.unions import RawRow

if TYPE_CHECKING:
    from pydantic_core.core_schema import CoreSchema

__all__ = ["Invalid"]


@frozen
class Invalid(RawRow):
    """Row that does not fit its model, in its place among the others.

    Lists return it if they are called with ``on_invalid="raw"``. Each of its fields is an attribute too, by
    its name in Python.

    Attributes:
        raw: the row as a JSON value, usually a dict; its text if it is not JSON.
        error: the fault, with its JSON path.

    """

    error: DecodeError = field(eq=False)

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: object) -> CoreSchema:
        from chainapi.models.pydantic_row import raw_schema

        return raw_schema(cls, None)

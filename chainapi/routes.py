"""A route as data: what a session needs to know to walk a list of a service."""

from __future__ import annotations

import re
from typing import Any

from attrs import frozen

__all__ = ["Route", "route_name"]


@frozen
class Route:
    """One list route.

    Attributes:
        path: below the base address, with its parameters in braces.
        items: name of the list field; None where the first page decides.
        model: class of the rows; None for plain JSON values.
        newest_first: name of the row attribute that is a whole number and falls strictly from row to row.
        others: further fields of the envelope, by their Python names.
        until: name of the query parameter that bounds the `newest_first` number from above.

    """

    path: str
    items: str | None = None
    model: Any = None
    newest_first: str | None = None
    others: tuple[tuple[str, Any], ...] = ()
    until: str | None = None


def route_name(service: str, path: str) -> str:
    """Name the requests that are taken to cost alike: those whose paths differ in identifiers only."""
    shape = re.sub(r"(?<=/)(?!v\d+(?:/|$))[^/:]*\d[^/:]*", "*", path)
    return f"{service}:{shape}"

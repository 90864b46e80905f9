"""What is found at a path: a list, the part of it that a query asks for, or a refusal."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

from attrs import Factory, define, field, frozen

from chainapi.simulator.rows import Row, RowSource

if TYPE_CHECKING:
    from chainapi.simulator.injection import Alterations

__all__ = [
    "DEFAULT_PAGE_SIZE",
    "Listing",
    "Place",
    "Refusal",
    "View",
    "known_chain",
    "page_size",
    "whole_number",
]

Place: TypeAlias = tuple[str, ...]  # the service, and the segments of a path, decoded

DEFAULT_PAGE_SIZE = 10
MAX_PAGE_SIZE = 100


class Refusal(Exception):  # noqa: N818 - an answer like any other here, not an error of the program
    """An answer that says no: its status, and why."""

    def __init__(self, status: int, *messages: str) -> None:
        self.status = status
        self.messages = messages


@frozen
class View:
    """The part of a list that a query asks for: rows `low` to `high - 1`, where there are as many."""

    source: RowSource
    low: int = 0
    high: int | None = None
    ascending: bool = False


@define(eq=False)
class Listing:
    """One list: where its rows come from, and how its pages look.

    `grows` says that rows can be added at the head, `fixed` that the page size is not the caller's choice,
    `sizes` the least and the greatest one; `fields` gives what a page holds besides its rows, from the source
    of them and how many were added; `view` reads a query, and may refuse it; `alterations` are its anomalies.
    """

    name: str
    source: RowSource
    page_size: int | None = DEFAULT_PAGE_SIZE
    grows: bool = True
    fixed: bool = False
    sizes: tuple[int, int] = (1, MAX_PAGE_SIZE)
    fields: Callable[[RowSource, int], Row] = lambda source, added: {}
    view: Callable[[Mapping[str, str]], View] | None = None
    inserted: int = 0
    alterations: Alterations | None = None
    _whole: View = field(init=False, default=Factory(lambda self: View(self.source), takes_self=True))

    def asked(self, query: Mapping[str, str]) -> View:
        """Return the part that a query asks for. Raises Refusal where it cannot be asked for."""
        return self._whole if self.view is None else self.view(query)


def whole_number(name: str, text: str, least: float, most: float | None) -> int:
    """Return the whole number that a parameter gives. Raises Refusal where it is none, or out of bounds."""
    if not re.fullmatch("-?[0-9]{1,18}", text):
        raise Refusal(400, f"{name} must be an integer number")
    if int(text) < least:
        raise Refusal(400, f"{name} must not be less than {least:g}")
    if most is not None and int(text) > most:
        raise Refusal(400, f"{name} must not be greater than {most:g}")
    return int(text)


def known_chain(text: str, chains: Sequence[int]) -> int:
    """Return the chain that a path names. Raises Refusal where there is none of that id."""
    if not re.fullmatch("[0-9]{1,18}", text):
        raise Refusal(400, "chainId must be a number string")
    chain = int(text)
    if chain not in chains or str(chain) != text:
        raise Refusal(404, f"chain {text} does not exist")
    return chain


def page_size(listing: Listing, query: Mapping[str, str]) -> int:
    """Return how many rows a page has at most. Raises Refusal where the query asks for too many."""
    text = query.get("pageSize")
    default = listing.page_size or max(listing.source.size + listing.inserted, 1)
    if text is None or listing.fixed:
        return default
    return whole_number("pageSize", text, *listing.sizes) or default

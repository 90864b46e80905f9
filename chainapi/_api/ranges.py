"""Ranges of a list query: its ends, its parts, and the rows of a part."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from chainapi._api.identity import number_reader
from chainapi._http.query import Query
from chainapi._paging.checkpoint import Checkpoint
from chainapi._paging.ranges import Interval, Ranged
from chainapi._paging.walk import Walk
from chainapi.errors import ChainAPIError, CheckpointError, PagingError
from chainapi.models.codec import DecodedPage

__all__ = ["ListRanges", "Part", "can_be_split"]


class ListRanges(Struct, frozen=True, eq=False):
    """Ranges of a list query, each between two numbers of its rows.

    Attributes:
        ranged: the range parameters of the list.
        query: path and parameters of the whole list.
        within: the interval of a range; open at both ends for the whole list.
        beginning: position before the first page of the whole list.
        parameters: names of the query parameters that the route has.
        open: opens a query at a checkpoint.

    """

    ranged: Ranged
    query: Query
    within: Interval
    beginning: Checkpoint
    parameters: Collection[str]
    open: Callable[[Query, Checkpoint | None], tuple[Walk, Any]]

    @property
    def ends(self) -> Interval:
        """Ends of the list: of its range, else as the caller passed them."""
        within, ranged, query = self.within, self.ranged, self.query
        return Interval(
            query.whole(ranged.start) if within.start is None else within.start,
            query.whole(ranged.end) if within.end is None else within.end,
        )

    @property
    def ascending(self) -> bool:
        """Whether the caller asked for the oldest rows first."""
        return ("sortOrder", "asc") in self.query.params

    @property
    def has_order(self) -> bool:
        """Whether the list has an order to choose: the oldest row can be asked for."""
        return "sortOrder" in self.parameters

    def part(self, within: Interval) -> tuple[Walk, Any]:
        """Return the walk of a range of the list, and the source of its pages."""
        return self.open(self.query, replace(self.beginning, range=within))

    async def outermost(self, *, newest: bool) -> int | None:
        """Return the number of the newest or oldest row, by one request.

        Without a parameter for the order the first row counts as the newest, and the number of the oldest is
        None. So is the number of an empty list.

        Raises:
            ChainAPIError: any of chainapi's errors.

        """
        if not newest and not self.has_order:
            return None
        query = self.query
        for name, value in {"pageSize": 1, "sortOrder": "desc" if newest else "asc"}.items():
            query = query.replaced(name, value) if name in self.parameters else query
        walk, source = self.open(query, None)
        answer = await source.fetch(walk.fetch(None))
        if isinstance(answer, ChainAPIError):
            raise answer
        rows = () if answer is None else answer.page.rows[:1]
        return next(map(number_reader(self.ranged.number), rows), None)


class Part:
    """One range of a list query: the rows of an interval.

    Args:
        query: path and parameters of the whole list.
        ranged: the range parameters of the list; None for a list without.
        within: the interval.

    Raises:
        CheckpointError: the list has no range parameters.

    """

    def __init__(self, query: Query, ranged: Ranged | None, within: Interval) -> None:
        if ranged is None:
            raise CheckpointError(
                f"the checkpoint is of one range of {query.where}, which this method cannot bound: resume it"
                " with the method that it came from"
            )
        self._within = within
        self._grid = ranged.grid
        self._number = number_reader(ranged.number)
        self.query: Query = _bounded(query, ranged, within)

    def own_rows(self, page: DecodedPage) -> DecodedPage:
        """Return a page without the rows of neighboring ranges.

        Raises:
            PagingError: a row lies so far beyond the range that the service bounds another number, or none.

        """
        within, numbers = self._within, [self._number(row) for row in page.rows]
        kept = [place for place, number in enumerate(numbers) if number is None or within.owns(number)]
        if len(kept) == len(numbers):
            return page
        for number in numbers:
            if number is not None and not within.owns(number):
                self._check_border(number)
        return page.keep(kept)

    def _check_border(self, number: Any) -> None:
        within = self._within
        if not within.borders_on(number, self._grid):
            raise PagingError(
                f"{self.query.where}: a row has the number {number}, far beyond the range from"
                f" {within.start} to {within.end} that was asked for: the service does not bound this list by"
                " that number. Walk the list without split(), or export it to another target without ranges="
            )


def can_be_split(query: Query) -> bool:
    """Check whether a list can be split into ranges.

    It cannot if each row is a sum over a week or a month: a range would begin in the middle of one.
    """
    return dict(query.params).get("timeInterval") not in ("week", "month")


def _bounded(query: Query, ranged: Ranged, within: Interval) -> Query:
    """Return a query for the rows of an interval, and some beyond it.

    Both ends are sent so that it does not matter whether the service counts them in or out. An open end stays
    as the query has it.
    """
    if within.start is not None:
        query = query.replaced(ranged.start, max(0, within.start - 1))
    return query if within.end is None else query.replaced(ranged.end, within.end)

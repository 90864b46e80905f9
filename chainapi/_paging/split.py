"""Split: the ranges of one list, each a stream of its own."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from typing import Any, Generic, TypeVar

from chainapi._api.ranges import ListRanges
from chainapi._api.source import ListSource
from chainapi._paging.ranges import MAX_RANGES, Interval, Ranged, borders, borders_at_multiples, intervals
from chainapi._paging.walk import Walk
from chainapi._text import quoted
from chainapi.core.arguments import whole_number
from chainapi.core.numbers import is_number
from chainapi.errors import ArgumentError, ConfigurationError

__all__ = ["Split", "Widths"]

P = TypeVar("P")

_DAY = 86_400  # seconds


class Widths:
    """Number of ranges, or the width of each, as the caller gave them.

    Raises:
        ConfigurationError: not exactly one of them is given, or it cannot be used.

    """

    def __init__(self, ranges: int | None, blocks: int | None, days: float | None) -> None:
        given = [one for one in (ranges, blocks, days) if one is not None]
        if len(given) != 1:
            raise ConfigurationError("split() takes one of ranges=, blocks= and days=")
        self.count: int | None = None if ranges is None else whole_number("ranges", ranges, 1, MAX_RANGES)
        self.blocks: int | None = None if blocks is None else whole_number("blocks", blocks)
        self.seconds: int | None = None if days is None else _seconds(days)

    def step(self, ranged: Ranged) -> int | None:
        """Return the width of a range, in the unit of the list.

        It is None if the caller gave a number of ranges.

        Raises:
            ConfigurationError: the list has another unit.

        """
        by_blocks = ranged.unit == "blocks"
        if (self.seconds if by_blocks else self.blocks) is not None:
            wrong, right = ("days", "blocks") if by_blocks else ("blocks", "days")
            raise ConfigurationError(
                f"{wrong} do not fit a list by {right[:-1]}: split it by {right}, or into a number of ranges"
            )
        step = self.blocks if by_blocks else self.seconds
        if step is not None and step % ranged.grid:
            raise ArgumentError("the days must be a whole number for this list: its rows are sums over a day")
        return step

    def cuts(self, ranged: Ranged, oldest: int, newest: int) -> Sequence[int]:
        """Return the borders between the ranges, from old to new.

        The numbers of the rows lie between `oldest` and `newest`.
        """
        step = self.step(ranged)
        if step is None:
            return borders(oldest, newest, self.count or 1, ranged.grid)
        count = newest // step - oldest // step + 1  # a range of 2^63 numbers or more has no len()
        if count > MAX_RANGES:
            raise ConfigurationError(f"these are {count} ranges, more than {MAX_RANGES}: use wider ones")
        return borders_at_multiples(oldest, newest, step)


class Split(Generic[P]):
    """Ranges of one list, each a stream of its own.

    Await it for a list of streams, or iterate it with ``async for``, as `merge` does. They are in the order
    of the list: the newest range first, or the oldest with ``sort_order="asc"``.
    """

    def __init__(
        self, stream: Callable[[Walk, ListSource], P], ranges: ListRanges | None, widths: Widths
    ) -> None:
        if ranges is None:
            raise ConfigurationError(
                "this list cannot be split into ranges: only those can that take start_block= and end_block=,"
                " such as data.evm.erc20_transactions, or start_timestamp= and end_timestamp=, such as"
                " metrics.chains.metric, where each row has that number and is no sum over a week or a month;"
                " data.primary_network.transactions takes times with addresses= only"
            )
        widths.step(ranges.ranged)
        _check_start(ranges)
        self._stream = stream
        self._ranges = ranges
        self._widths = widths

    def __repr__(self) -> str:
        return f"<Split by {self._ranges.ranged.unit}>"

    def __await__(self) -> Generator[Any, None, list[P]]:
        """Return the streams of all ranges.

        Raises:
            ChainAPIError: the newest or the oldest row could not be asked for.

        """
        return self._streams().__await__()

    async def __aiter__(self) -> AsyncGenerator[P, None]:
        """Yield the stream of each range."""
        for within in await self.intervals():
            yield self._stream(*self._ranges.part(within))

    async def intervals(self) -> list[Interval]:
        """Return the intervals of all ranges.

        The numbers asked for only place the borders: they decide about no row.

        Raises:
            ConfigurationError: there are too many ranges.
            ChainAPIError: the newest or the oldest row could not be asked for.

        """
        ranges, ends = self._ranges, self._ranges.ends
        newest = await ranges.outermost(newest=True) if ends.end is None else ends.end
        if newest is None:  # an empty list
            return [ranges.within]
        oldest = await self._oldest() if ends.start is None else ends.start
        if oldest is None:  # the list has lost its rows meanwhile
            return [ranges.within]
        cuts = self._widths.cuts(ranges.ranged, oldest, newest)
        found = intervals(cuts, ranges.within)
        return found if ranges.ascending else found[::-1]

    async def _streams(self) -> list[P]:
        return [self._stream(*self._ranges.part(within)) for within in await self.intervals()]

    async def _oldest(self) -> int | None:
        """Return the number at which a list without a start begins; None if empty."""
        oldest = await self._ranges.outermost(newest=False)
        return 0 if oldest is None and self._ranges.ranged.unit == "blocks" else oldest


def _check_start(ranges: ListRanges) -> None:
    """Refuse a list by time with an open start whose oldest row cannot be asked for."""
    if ranges.ends.start is None and ranges.ranged.unit != "blocks" and not ranges.has_order:
        raise ConfigurationError(
            "this list can be split only with its start: pass start_timestamp=, because the time of its"
            " oldest row is not known"
        )


def _seconds(days: object) -> int:
    if not is_number(days) or not 1 <= days * _DAY < 2**53:
        raise ArgumentError(f"days={quoted(days)} must be a number of days, a second or more")
    return int(days * _DAY)

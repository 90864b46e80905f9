"""Positions of sources: what the target has of each, and where its walk goes on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self

from attrs import NOTHING, define, evolve, field, fields, frozen

from chainapi._paging.checkpoint import Checkpoint
from chainapi._paging.cursor import Trend
from chainapi.errors import ColumnValueError
from chainapi.export.window import Window

__all__ = ["Source", "SourcePosition"]


@frozen
class SourcePosition:
    """Position of a source, or of one of its ranges, after a page.

    Attributes:
        walk: position of its walk; None before the first page.
        taken: rows that were stored before the source ended for the first time; a limit counts these.
        newest: greatest number among its rows, if the route has a descending number or a cursor.
        newest_ties: marks of its rows that have the number `newest`.
        exported: greatest number among the rows that earlier walks brought into the target.
        exported_ties: marks of the target's rows that have the number `exported`.
        met_ties: the marks of `exported_ties` that the pass under way has met.
        met: whether the pass under way has had a row that the target has.
        trend: order of the numbers of a cursor, over all pages.
        last: number of the last row of the pass under way, as the cursor reads it.
        oldest: least number among its rows.
        done: whether its walk has ended.

    """

    walk: Checkpoint | None = None
    taken: int = 0
    newest: int | None = None
    newest_ties: tuple[str, ...] = ()
    exported: int | None = None
    exported_ties: tuple[str, ...] = ()
    met_ties: tuple[str, ...] = ()
    met: bool = False
    trend: Trend = Trend.LEVEL
    last: int | None = None
    oldest: int | None = None
    done: bool = False

    @classmethod
    def load(cls, stored: Mapping[str, Any]) -> Self:
        """Read what `dump` returned.

        Raises:
            ValueError, TypeError, LookupError: it has another form.

        """
        found = {name: stored[name] for name in _DEFAULTS.keys() & stored.keys()}
        for name in _TUPLES & found.keys():
            found[name] = tuple(found[name])
        for name in _NUMBERS & found.keys():
            found[name] = int(found[name])
        if "trend" in stored:
            found["trend"] = Trend(stored["trend"])
        if "checkpoint" in stored:
            found["walk"] = Checkpoint.loads(stored["checkpoint"])
        return cls(**found)

    def dump(self) -> dict[str, Any]:
        """Return the position as JSON values; large numbers are strings.

        Fields with their default values are left out.
        """
        found: dict[str, Any] = {}
        for name, default in _DEFAULTS.items():
            if (value := getattr(self, name)) != default:
                found[name] = str(value) if name in _NUMBERS else [*value] if name in _TUPLES else value
        if self.trend is not Trend.LEVEL:
            found["trend"] = self.trend.value
        if self.walk is not None:
            found["checkpoint"] = self.walk.dumps()
        return found

    def window_start(self, size: int, *, limited: bool) -> int | None:
        """Return the least number of a window of a finished source.

        None for an empty window. After an export with a limit, it does not reach below the rows of the
        target: the row with the least number may share it with rows past the limit.

        Args:
            size: how far below its newest row the source is fetched again.
            limited: whether its first run had a limit.

        """
        if self.exported is None:
            return None
        start = max(0, self.exported - size)
        if limited and self.oldest is not None:
            start = max(start, self.oldest + 1)
        return start if start <= self.exported else None

    def joined(self, ended: SourcePosition) -> SourcePosition:
        """Return the position of a source with the rows of a range that has ended.

        It is as if one walk had brought the rows of both.
        """
        checkpoint = ended.walk
        assert checkpoint is not None  # noqa: S101 - for the type checker
        unordered = checkpoint.unordered or (self.walk is not None and self.walk.unordered)
        newest, ties = self.newest, self.newest_ties
        if unordered:
            newest, ties = None, ()
        elif ended.newest is not None and (newest is None or ended.newest > newest):
            newest, ties = ended.newest, ended.newest_ties
        elif ended.newest == newest:
            ties += ended.newest_ties
        return evolve(
            self,
            walk=Checkpoint(checkpoint.query, checkpoint.path, unordered=unordered, done=True),
            taken=self.taken + ended.taken,
            newest=newest,
            newest_ties=ties,
            exported=newest,
            exported_ties=ties,
            trend=self.trend.joined(ended.trend),
        )


@define(eq=False)
class Source:
    """Source of an export.

    Attributes:
        label: name of the source, such as ``43114``; no other one has it.
        query: fingerprint of its query, whatever the page size.
        position: position of the source; of one in ranges, of the ranges that have ended.
        ranges: positions of its unfinished ranges by their numbers, which count from 1 in the order of the
            list; empty if one walk fetches it.
        invalid: digests of the invalid rows that were written: a window may bring them again.
        window: rows that the walk fetches again: once it has ended, they replace rows of the target. None if
            no row is fetched again.
        failures: errors of pages with a value that no column holds, by the number of the range: no later page
            of it is stored in this run.

    """

    label: str
    query: str
    position: SourcePosition = field(factory=SourcePosition)
    ranges: dict[int, SourcePosition] = field(factory=dict[int, SourcePosition])
    invalid: tuple[str, ...] = ()
    window: Window | None = field(default=None, init=False)
    failures: dict[int, ColumnValueError] = field(factory=dict[int, ColumnValueError], init=False)

    @classmethod
    def load(cls, label: str, stored: Mapping[str, Any]) -> Self:
        """Read what `dump` returned.

        Raises:
            ValueError, TypeError, LookupError: it has another form.

        """
        ranges = {one["place"]: SourcePosition.load(one) for one in stored.get("ranges", ())}
        invalid = tuple(stored.get("invalid", ()))
        return cls(label, stored["query"], SourcePosition.load(stored), ranges, invalid)

    def dump(self) -> dict[str, Any]:
        """Return the source as JSON values."""
        found = {"query": self.query, **self.position.dump()}
        if self.invalid:
            found["invalid"] = [*self.invalid]
        if self.ranges:
            found["ranges"] = [{"place": place, **one.dump()} for place, one in self.ranges.items()]
        return found

    def at(self, place: int) -> SourcePosition:
        """Return the position of a range by its number, or of the whole source for 0."""
        return self.ranges[place] if place else self.position

    def split(self, starts: Sequence[Checkpoint]) -> None:
        """Let a source be fetched in ranges, which begin at these checkpoints."""
        self.ranges = {place: SourcePosition(start) for place, start in enumerate(starts, 1)}

    def open_window(self, window: Window) -> None:
        """Let another walk fetch the rows of a window again.

        Until it has ended, the target counts as one without them.
        """
        self.window, start = window, window.start
        self.position = evolve(
            self.position,
            walk=None,
            newest=start,
            newest_ties=(),
            exported=start,
            exported_ties=(),
            met_ties=(),
            done=False,
        )

    def move(self, place: int, position: SourcePosition) -> None:
        """Take the position after a page; join a range that has ended to the source."""
        if not place:
            self.position = position
        elif not position.done:
            self.ranges[place] = position
        else:
            del self.ranges[place]
            self.position = evolve(self.position.joined(position), done=not self.ranges)


_NUMBERS = frozenset({"newest", "exported", "last", "oldest"})  # of any size
_TUPLES = frozenset({"exported_ties", "newest_ties", "met_ties"})
_DEFAULTS: Mapping[str, Any] = {
    one.name: one.default
    for one in fields(SourcePosition)
    if one.default is not NOTHING and one.name not in ("walk", "trend")
}

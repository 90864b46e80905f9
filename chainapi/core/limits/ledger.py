"""Ledger of spent units in the order of their return, with running totals."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from math import ceil

from attrs import define, field

__all__ = ["EPSILON", "Ledger"]

GRAINS = 1024  # entries per window at most; they bound the memory, however many requests there are
EPSILON = 1e-6  # units: below it a difference is the rounding of floats


@define(eq=False, repr=False)
class _Entry:
    """Units spent from `sent` on, back by `back`; `total` includes all before."""

    sent: float
    back: float
    total: float


def _total(entry: _Entry) -> float:
    return entry.total


@define(eq=False, repr=False)
class Ledger:
    """Spent units; adding units and finding the time of return are logarithmic.

    Units sent within a thousandth of a window are one entry, which returns with its last request.
    """

    _entries: list[_Entry] = field(factory=list[_Entry])
    _first: int = 0
    _total: float = 0.0
    _gone: float = 0.0

    def __bool__(self) -> bool:
        return self._first < len(self._entries)

    @property
    def outstanding(self) -> float:
        """Return the units that are not back."""
        return self._total - self._gone

    @property
    def first_back(self) -> float:
        """Return when the oldest units are back."""
        return self._entries[self._first].back

    @property
    def last_back(self) -> float:
        """Return when all units are back."""
        return self._entries[-1].back

    def add(self, sent: float, now: float, window: float, cost: float) -> None:
        """Add `cost` units whose response arrived at `now`.

        They return after all others, also if the window became shorter.
        """
        self._total += cost
        last = self._entries[-1] if self._entries else None
        back = now + window if last is None else max(now + window, last.back)
        if last is not None and now + window - last.sent < window * (1 + 1 / GRAINS):
            last.back, last.total = back, self._total
        else:
            self._entries.append(_Entry(sent, back, self._total))

    def collect(self, now: float) -> float:
        """Remove the units back by `now`, and return their number."""
        entries, first = self._entries, self._first
        if first >= len(entries) or entries[first].back > now:
            return 0.0
        return self._drop_while(lambda one: one.back <= now)

    def forget(self, before: float) -> float:
        """Remove the units sent by `before`, and return their number."""
        entries, first = self._entries, self._first
        if first >= len(entries) or entries[first].sent > before:
            return 0.0
        return self._drop_while(lambda one: one.sent <= before)

    def shrink(self, units: float) -> None:
        """Remove the oldest units until at most `units` are left."""
        excess = self._total - self._gone - units
        if excess > EPSILON:
            self._gone += excess
            entries = self._entries
            while self._first < len(entries) and entries[self._first].total <= self._gone + EPSILON:
                self._first += 1
            self._tidy()

    def postpone(self, now: float, window: float) -> None:
        """Postpone the return of all units to one window from now.

        The window proved longer than assumed.
        """
        outstanding = self.outstanding
        self.clear()
        if outstanding > EPSILON:
            self.add(now, now, window, outstanding)

    def hasten(self, latest: float) -> None:
        """Let all units return by a time: the window proved shorter than assumed."""
        for one in self._entries:
            one.back = min(one.back, latest)

    def back_at(self, units: float) -> float | None:
        """Return when the oldest `units` are back; None if the ledger has fewer."""
        at = bisect_left(self._entries, self._gone + units - EPSILON, lo=self._first, key=_total)
        return self._entries[at].back if at < len(self._entries) else None

    def back_by(self, time: float) -> float:
        """Return the units that are surely back at a time."""
        return self._sum([one for one in self._entries[self._first :] if one.back <= time])

    def sent_by(self, time: float) -> float:
        """Return the units that were sent up to a time."""
        return self._sum([one for one in self._entries[self._first :] if one.sent <= time])

    def entries(self, most: int) -> list[tuple[float, float, float]]:
        """Return the units as at most `most` tuples (sent, back, units), late if at all.

        The oldest units keep their time, because a fixed window ends with them.
        """
        entries, before = self._entries[self._first :], self._gone
        size = max(1, ceil((len(entries) - 1) / max(1, most - 1)))
        condensed = list[tuple[float, float, float]]()
        for end in [0, *range(size, len(entries) + size - 1, size)] if entries else []:
            first, last = entries[max(0, end - size + 1)], entries[min(end, len(entries) - 1)]
            condensed.append((first.sent, last.back, max(0.0, last.total - before)))
            before = last.total
        return condensed

    def restore(self, entries: list[tuple[float, float, float]]) -> None:
        """Replace everything by the tuples of `entries`."""
        self.clear()
        for sent, back, units in entries:
            self._total += units
            self._entries.append(_Entry(sent, back, self._total))

    def clear(self) -> None:
        """Forget everything."""
        self._entries.clear()
        self._first, self._total, self._gone = 0, 0.0, 0.0

    def _sum(self, entries: list[_Entry]) -> float:
        return max((one.total for one in entries), default=self._gone) - self._gone

    def _drop_while(self, gone_by: Callable[[_Entry], bool]) -> float:
        gone = self._gone
        while self and gone_by(self._entries[self._first]):
            self._gone = max(self._gone, self._entries[self._first].total)
            self._first += 1
        dropped = self._gone - gone
        self._tidy()
        return dropped

    def _tidy(self) -> None:
        if self._first >= len(self._entries):
            self.clear()
        elif self._first > GRAINS:
            del self._entries[: self._first]
            self._first = 0

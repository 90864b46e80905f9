"""Oracle of a walk: rows that may be missing or repeated.

A row that was in the list all the time is given; a row is given as often as the list ever held it. Equal
rows count: the oracle is a multiset. Whatever this promise does not cover is an allowance, and all of
them are here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from attrs import define, evolve, field

from tests.paging.service import Label, Manners, Service

__all__ = ["Walked"]


@define
class Walked:
    """Record of the rows and events that a reader has by now.

    Attributes:
        whole: serials of the rows that were there when it began, or began again; those still there when it
            ends must be given.
        given: how often each name and version was given.
        names: how often each name was given.
        total: how many rows were given in all.
        last: place in the list of the row given last in this pass, where that is known.
        number: number of the row given last; None before the first one.
        newest: the highest number given.
        restarts: how often the walk began again.
        resumed: it was resumed.
        inside: it was resumed inside a page.
        paged: pages were read as they are.
        inexact: a restart after which rows may come again was reported.
        broken: OrderBroken was reported.
        keyless: KeyNotUnique was reported.
        doubted: a restart lay before one of these two, or a restart or a resume behind it.
        blind: names of the rows that came before KeyNotUnique was reported; some of them may have been
            taken for others. None if it was not reported.
        ends: numbers at which a pass, or what was read before a resume, ended or began; None for any.

    """

    whole: frozenset[int]
    given: Counter[Label] = field(factory=Counter[Label])
    names: Counter[int] = field(factory=Counter[int])
    total: int = 0
    last: float | None = None
    number: int | None = None
    newest: int | None = None
    restarts: int = 0
    resumed: bool = False
    inside: bool = False
    paged: bool = False
    inexact: bool = False
    broken: bool = False
    keyless: bool = False
    doubted: bool = False
    blind: frozenset[int] | None = None
    ends: frozenset[int] | None = frozenset()

    def copy(self) -> Walked:
        """Return a copy that changes by itself."""
        return evolve(self, given=Counter(self.given), names=Counter(self.names))

    def take(self, label: Label, number: int, service: Service) -> None:
        """Record a row that was given, and check it."""
        name = label[0]
        self.number = number
        self.newest = number if self.newest is None else max(self.newest, number)
        assert service.held[label], f"row {label} never was"
        self.given[label] += 1
        self.names[name] += 1
        self.total += 1
        if self._changes_are_rows(number, service):
            surplus = self.given[label] - service.held[label]
        else:
            surplus = self.names[name] - service.named[name]
        assert surplus <= 0 or self.may_repeat(name, number, service), (
            f"row {label} was given {surplus} times too often"
        )

    def _changes_are_rows(self, number: int, service: Service) -> bool:
        """Check whether a changed row is another one: without a key, content decides.

        Inside a span of numbers a row is not looked at again, so a change does not matter there.
        """
        manners = service.manners
        if manners.keyed and not self.keyless:
            return False
        if not manners.ordered or self.broken or self.keyless:
            return True
        return self.ends is None or number in self.ends

    def may_repeat(self, name: int, number: int, service: Service) -> str:
        """Return why a row may be repeated; an empty text where it may not.

        It is repeated if it is given more often than the list held it.
        """
        manners = service.manners
        if self.inexact:
            return "the walk said that rows given before may come again"
        if self.doubted and self.resumed:
            return "what distinguished the rows was refuted, and rows before a resume are in no checkpoint"
        if self.doubted and self.broken and self.paged:
            return "behind a break, rows are not counted for a reader of pages"
        if self.doubted and self.broken and manners.small:
            return "the numbers before the break took more runs than are kept"
        if self.doubted and self.keyless and (self.broken or not manners.ordered):
            return "rows were counted under a key in an earlier pass, and it was given up in a later one"
        if self.doubted and self.keyless and any(service.shared[key] > 1 for key in service.keys[name]):
            return "rows before KeyNotUnique are known by their keys alone, and another row has this key"
        if self.doubted and self.keyless and (self.ends is None or number in self.ends):
            return "where a pass ended, only its key distinguished the row from others with its number"
        if self.doubted and self.broken and service.numbers[number] > 1:
            return "rows before a break are known by their numbers alone, and another row has this number"
        return self._may_repeat_in_a_pass(manners)

    def _may_repeat_in_a_pass(self, manners: Manners) -> str:
        """Return why a service may have repeated a row that nothing identifies."""
        if manners.shifts or manners.circles:
            if not manners.keyed or self.keyless:
                return "the service gave the row again, and nothing tells it from an equal one"
            if self.resumed:
                return "the rows of the pages before a resume are in no checkpoint"
            if manners.small:
                return "the row came again behind more rows than are compared"
        if self.inside and manners.small:
            return "the list grew, before a resume, by more rows than are compared with the marks"
        return ""

    def missing(self, service: Service) -> Counter[int]:
        """Return the names of rows that are lost, with their numbers."""
        stayed = Counter(row.name for row in service.rows if row.serial in self.whole)
        lost = stayed - self.names
        return Counter({name: count for name, count in lost.items() if not self.may_miss(name, service)})

    def may_miss(self, name: int, service: Service) -> str:
        """Return why a row that was always there may be missing; empty if it may not."""
        manners = service.manners
        again = self.restarts > 0 or self.resumed
        shares = manners.keyed and any(service.shared[key] > 1 for key in service.keys[name])
        # A number that is the key is compared together with all that the row holds, in one pass.
        compared = manners.numbered and service.named[name] == 1 and not (again or manners.small)
        if shares and not compared and (self.blind is None or name in self.blind):
            return "another row had its key, and no page had shown both: a key is believed until then"
        if manners.ordered and service.disordered and again:
            if service.deleted:
                return "the row that would have shown the disorder was deleted"
            if manners.until:
                return "a bound below the row was requested for, so no page could show the disorder"
        return ""

    def refute_key(self, before: Iterable[int]) -> None:
        """Record a KeyNotUnique event, and the names of the rows before it."""
        self.keyless = True
        self.blind = frozenset(before) if self.blind is None else self.blind
        self.doubted |= self.restarts > 0

    def refute_order(self) -> None:
        """Record an OrderBroken event."""
        self.broken = True
        self.doubted |= self.restarts > 0

    def begin_pass(self, service: Service) -> None:
        """Begin a pass over the whole list: it meets the rows that are there now."""
        manners = service.manners
        if manners.until:  # its restarts begin at the last row given
            return
        by_order = self.resumed or manners.small or (self.paged and not manners.keyed)
        late = (
            service.late if manners.ordered and by_order else ()
        )  # what comes into a span is not looked for
        self.whole |= {row.serial for row in service.rows if row.serial not in late}

    def begin_again(self, *, known: bool = True) -> None:
        """Record a restart or a resume.

        `known` where the rows before it were recorded already.
        """
        self.doubted |= self.broken or self.keyless
        ends = {number for number in (self.number, self.newest) if number is not None}
        self.ends = self.ends | ends if known and self.ends is not None else None

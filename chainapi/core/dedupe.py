"""Deduplication: which rows of a page a reader has had before.

Three kinds of evidence, and nothing else, make a row a repeated one:

* Within one pass, a *key*: attributes that identify a row by the service's definition. A row whose key was
  on a neighbouring page is that row again, because the list shifted. Without a key nothing is dropped: equal
  rows are rows. A key that two rows of one page share is no key, and is given up.
* After a restart, *counts*: each row is left out as often as it was given before. A row is counted under its
  key, else under its content as the service sent it.
* After a restart of a list in descending order, the *spans* of numbers given (see `order`), as long as the
  order holds. Where it breaks, rows are counted from there on.
"""

from __future__ import annotations

import hashlib
from collections import Counter, deque
from collections.abc import Callable, Collection, Hashable, Sequence
from enum import Enum
from functools import cached_property
from typing import Any, Protocol

from attrs import frozen

from chainapi.core.digests import DIGEST_SIZE, DigestCounter
from chainapi.core.order import MAX_TIES, Order, Rows, Runs, Watermark, rising

__all__ = ["Deduplicator", "Doubt", "Identity", "RowsOfPage", "Taken", "Watermark"]

NEIGHBOURS = 128  # rows, in whole pages, among which a key that comes again is a repeated row


class Doubt(Enum):
    """An assumption about a list that one of its pages refuted."""

    KEY = "two rows of one page share a key"
    ORDER = "a row rises above the one before it"
    TIES = "too many rows share one number"


class RowsOfPage(Protocol):
    """The rows of a page, and the content of each as the service sent it."""

    @property
    def rows(self) -> Sequence[Any]:
        """The rows."""
        ...

    @property
    def digest(self) -> int:
        """A hash of the rows."""
        ...

    def contents(self) -> Sequence[bytes]:
        """Return the canonical JSON of each row."""
        ...


@frozen(eq=False)
class Identity:
    """The means of telling the rows of a list apart.

    Attributes:
        key: returns the key of a row, or None for a row that lacks one; None for a list without a key.
        number: returns the number that never rises from row to row, or None for a row that lacks one.
        unique: the number is the key.
        stable: returns what never changes of a row without a key, or None; several rows may share it. None
            where rows are counted by all that they hold.
        frozen: rows cannot be changed by their reader.

    """

    key: Callable[[Any], Hashable] | None = None
    number: Callable[[Any], int | None] | None = None
    unique: bool = False
    stable: Callable[[Any], Hashable] | None = None
    frozen: bool = False


@frozen(eq=False)
class Taken:
    """The verdict on the rows of a page.

    Attributes:
        repeated: indices of rows that a neighbouring page of this pass had.
        stale: indices of all rows that were given before, those among them.
        fresh: whether a row came that never came before; None where rows are not counted.
        signature: a hash of the rows: of their keys where those identify them, else of their content.
        doubts: assumptions that this page refuted.

    """

    repeated: Collection[int] = ()
    stale: Collection[int] = ()
    fresh: bool | None = None
    signature: int = 0
    doubts: tuple[Doubt, ...] = ()


class _Page:
    """The rows of one page, as they were when it came: a reader may change them later."""

    def __init__(self, page: RowsOfPage, identity: Identity, *, keyed: bool) -> None:
        self.rows = page.rows
        self.size = len(page.rows)
        self.keyed = keyed  # the key, where there is one, identifies rows
        self._identity = identity
        self._contents = page.contents
        self._digest = page.digest
        number = identity.number
        self.numbers = None if number is None else list(map(number, page.rows))
        self.repeated: set[int] = set()
        self.ordered = Rows()  # those that keep the order of the list
        if not identity.frozen:
            _ = self.keys, self.stable

    @cached_property
    def keys(self) -> Sequence[Hashable]:
        """The key of each row; None for a row that lacks one."""
        identity = self._identity
        if identity.unique and self.numbers is not None:
            return self.numbers
        return [None] * self.size if identity.key is None else list(map(identity.key, self.rows))

    @cached_property
    def stable(self) -> Sequence[Hashable]:
        """What never changes of each row; empty where rows are counted by all that they hold."""
        stable = self._identity.stable
        return () if stable is None else list(map(stable, self.rows))

    @property
    def signature(self) -> int:
        """A hash of the keys where those identify rows, else of what the rows hold."""
        return hash(tuple(self.keys)) if self.keyed and None not in self.keys else self._digest

    def last_keys(self) -> Sequence[Hashable]:
        """Return the keys of the last rows, as many as are compared with the next page."""
        if not self.keyed or self._identity.key is None:
            return ()
        if "keys" in vars(self) or self._identity.unique:
            return self.keys[-NEIGHBOURS:]
        return list(map(self._identity.key, self.rows[-NEIGHBOURS:]))

    @cached_property
    def contents(self) -> Sequence[bytes]:
        """Canonical JSON of each row."""
        return self._contents()

    def digest(self, index: int) -> bytes:
        """Return the digest under which a row is counted: of its key, else of its content."""
        if self.keyed and (key := self.keys[index]) is not None:
            return key_digest(key)
        if self.stable and (part := self.stable[index]) is not None:
            return _digest(b"s", repr(part).encode("utf-8", "surrogatepass"))
        return self.content_digest(index)

    def content_digest(self, index: int) -> bytes:
        """Return the digest of a row's content."""
        return _digest(b"c", self.contents[index])

    def names(self, index: int, *, number: bool) -> list[bytes]:
        """Return the digests under which a row may have been counted, from the surest on."""
        names = [self.digest(index)]
        if not self.keyed and self.keys[index] is not None:  # counted by its key before that was given up
            names.append(key_digest(self.keys[index]))
        if number and self.numbers is not None and self.numbers[index] is not None:
            names.append(_number_digest(self.numbers[index]))
        return names

    def mark(self, index: int) -> str:
        """Return half a digest in hexadecimal: enough to tell rows of neighbouring pages apart."""
        return self.digest(index)[:8].hex()

    def marks(self, index: int) -> str:
        """Return the mark of a row's content, and that of its key behind it where it is counted by that."""
        content, mark = self.content_digest(index)[:8].hex(), self.mark(index)
        return content if mark == content else content + mark


class _NoRows:
    """A page without rows: what there was before the first one."""

    rows: Sequence[Any] = ()
    digest = 0

    def contents(self) -> Sequence[bytes]:
        """Return nothing."""
        return ()


class Deduplicator:
    """What was given so far of one list, in all passes of its walk.

    Args:
        identity: the means of telling rows apart.
        watermark: the numbers given before a resume.
        unordered: the order broke before the resume, or nobody looked at it.
        keyless: the key was given up before the resume.
        resumed: rows were given before the resume.

    """

    def __init__(
        self,
        identity: Identity,
        *,
        watermark: Watermark | None = None,
        unordered: bool = False,
        keyless: bool = False,
        resumed: bool = False,
    ) -> None:
        self._identity = identity
        self._keyed = identity.key is not None and not keyless
        self._order: Order | None = None
        if identity.number is not None and not unordered:
            self._order = Order(unique=identity.unique and not keyless, watermark=watermark)
        self._resumed = resumed
        self._complete = self._order is not None or not resumed
        self._runs = Runs()
        self._numbered = False  # the counter has rows that only their numbers identify
        self._counter: DigestCounter | None = None
        self._neighbours: deque[Hashable] = deque(maxlen=NEIGHBOURS)
        self._head: Counter[str] = Counter()
        self._head_reach = 0  # rows until the marks that are left are dropped
        self._page = _Page(_NoRows(), identity, keyed=False)

    @property
    def ordered(self) -> bool:
        """Whether the list has a descending number, and no page has refuted it."""
        return self._order is not None

    @property
    def broken(self) -> bool:
        """Whether the list has a descending number, and a page broke its order."""
        return self._identity.number is not None and self._order is None

    @property
    def keyless(self) -> bool:
        """Whether the list has a key, and a page refuted it."""
        return self._identity.key is not None and not self._keyed

    @property
    def complete(self) -> bool:
        """Whether after a restart each row would be left out that was given."""
        return self._complete

    @property
    def head(self) -> tuple[str, ...]:
        """Marks of rows given before a resume that have not come again yet."""
        return tuple(self._head.elements())

    def count(self) -> None:
        """Count rows from now on: somebody reads rows."""
        if self._counter is None:
            self._counter = DigestCounter()

    def expect(self, head: Collection[str]) -> None:
        """Leave out the rows with these marks: they were given of the page to come."""
        self._head = Counter(head)
        self._head_reach = NEIGHBOURS

    def restart(self) -> None:
        """Begin another pass over the list."""
        self._neighbours.clear()
        self._head.clear()
        if self._order is not None:
            self._order.restart()
        elif self._counter is not None:
            for number in self._runs:
                self._counter.give(_number_digest(number))
                self._numbered = True
            self._runs = Runs()
        if self._counter is not None:
            self._counter.restart()

    def take(self, page: RowsOfPage) -> Taken:
        """Count the rows of the next page as given, and return the verdict on them.

        Raises:
            DecodeError: a row lacks the field that a caller named; nothing was counted.

        """
        doubts: list[Doubt] = []
        before, rows = self._page, _Page(page, self._identity, keyed=self._keyed)
        self._page = rows
        usual = self._is_usual(rows)
        if self._keyed and not usual:
            rows.repeated = self._among_neighbours(rows.keys)
            if _repeats(rows.keys) or self._differ(rows, before):
                self._give_up_key(rows)
                doubts.append(Doubt.KEY)
        if self._keyed:
            self._neighbours.extend(rows.last_keys())
        stale = rows.repeated | self._given_before_resume(rows)
        fresh: bool | None = False
        counted: Sequence[int] = () if usual else [index for index in range(rows.size) if index not in stale]
        if self._order is not None:
            counted, known, doubt = self._take_ordered(self._order, rows, stale)
            stale |= known
            fresh = len(known) < len(rows.ordered)
            doubts += doubt
        if counted:
            known, news = self._take_counted(rows, counted)
            stale |= known
            fresh = fresh or news
        return Taken(rows.repeated, stale, fresh, rows.signature, tuple(doubts))

    def signature(self, page: RowsOfPage) -> int:
        """Return the signature of a page that is not taken (see `Taken`)."""
        return _Page(page, self._identity, keyed=self._keyed).signature

    def _is_usual(self, page: _Page) -> bool:
        """Check whether all rows lie below those of this pass, in strict order: none is repeated."""
        numbers = page.numbers
        if self._order is None or self._head or not numbers or rising(numbers, self._order.last) is not None:
            return False
        return numbers[0] != self._order.last and len(set(numbers)) == len(numbers)

    def watermark(self, given: int | None = None) -> Watermark | None:
        """Return the numbers given; with `given`, when only so many rows of the last page were."""
        page, order = self._page, self._order
        if order is None:
            return None
        return order.watermark() if given is None else order.watermark(page.ordered.before(given), page.mark)

    def marks_given(self, given: int, stale: Collection[int]) -> tuple[str, ...]:
        """Return marks of the rows of the last page that a resume inside of it leaves out."""
        page = self._page
        return tuple(page.marks(index) for index in range(page.size) if index < given or index in stale)

    def names(self, index: int) -> Sequence[bytes]:
        """Return the digests under which a row of the last page may be counted, from the surest on."""
        return self._page.names(index, number=False)

    def mark(self, index: int) -> str:
        """Return the mark of a row of the last page, as a watermark has it."""
        return self._page.mark(index)

    def number(self, index: int) -> int | None:
        """Return the descending number of a row of the last page; None where it has none."""
        numbers = self._page.numbers
        return None if numbers is None else numbers[index]

    def _give_up_key(self, page: _Page) -> None:
        self._keyed = page.keyed = False
        page.repeated = set()
        self._neighbours.clear()
        if self._order is not None:
            self._order.share_numbers()

    def _among_neighbours(self, keys: Sequence[Hashable]) -> set[int]:
        """Return the indices of the keys that came on a neighbouring page of this pass."""
        known = set(self._neighbours)
        return {index for index, key in enumerate(keys) if key is not None and key in known}

    def _differ(self, page: _Page, before: _Page) -> bool:
        """Check whether a row that is numbered like one of the page before is another row.

        Only where the number is the key: the other fields of a row may change, but those of a row that
        nothing but its number identifies are what it consists of.
        """
        if not self._identity.unique:
            return False
        places = {number: place for place, number in enumerate(before.numbers or ())}
        numbers = page.numbers or ()
        return any(
            page.content_digest(index) != before.content_digest(places[number])
            for index in page.repeated
            if (number := numbers[index]) in places
        )

    def _given_before_resume(self, page: _Page) -> set[int]:
        """Return the indices of rows that were given before the resume: as many as there are marks."""
        if not self._head or self._order is not None:  # spans of numbers are surer than marks
            return set()
        found: set[int] = set()
        for index in range(page.size):
            own = page.marks(index)
            mark = next((mark for mark in self._head if _same(mark, own)), None)
            if mark is not None:
                found.add(index)
                self._head -= Counter((mark,))
        self._head_reach -= page.size
        if self._head_reach <= 0 and not self._keyed:
            self._head.clear()  # a row that is equal to one of them may be another one by now
        return found

    def _take_ordered(
        self, order: Order, page: _Page, known: Collection[int]
    ) -> tuple[Sequence[int], set[int], list[Doubt]]:
        """Count the rows that keep the order; return the indices of the others, and the stale ones."""
        doubts: list[Doubt] = []
        indices: Sequence[int] = range(page.size)
        numbers: Sequence[int | None] = page.numbers or ()
        if known:
            indices = [index for index in indices if index not in known]
            numbers = [numbers[index] for index in indices]
        cut = rising(numbers, order.last)
        if cut is not None:
            doubts.append(Doubt.ORDER)
        elif order.tied > MAX_TIES and order.last in numbers[:1]:
            cut = 0
            doubts.append(Doubt.TIES)
        kept = [number for number in numbers[:cut] if number is not None]
        page.ordered = Rows(indices[:cut], kept)
        stale = order.take(page.ordered, page.mark)
        self._runs.extend(page.ordered.without(stale))
        if cut is None:
            return (), stale, doubts
        self._order = None
        self._complete = not (self._resumed or self._runs.overflowed)
        return indices[cut:], stale, doubts

    def _take_counted(self, page: _Page, indices: Sequence[int]) -> tuple[set[int], bool | None]:
        """Count rows one by one; return the stale ones, and whether any never came before."""
        counter = self._counter
        if counter is None:
            self._complete = False  # a reader of pages: nothing is kept that tells these rows again
            return set(), None
        stale: set[int] = set()
        fresh = False
        for index in indices:
            names = page.names(index, number=self._numbered)
            fresh = fresh or not any(name in counter for name in names)
            if any(counter.meet(name) for name in names):
                stale.add(index)
            else:
                counter.give(names[0])
        return stale, fresh


def key_digest(key: Hashable) -> bytes:
    """Return the digest of a key."""
    return _digest(b"k", repr(key).encode("utf-8", "surrogatepass"))


def _number_digest(number: int | None) -> bytes:
    return _digest(b"n", str(number).encode())


def _digest(kind: bytes, content: bytes) -> bytes:
    return hashlib.blake2b(content, digest_size=DIGEST_SIZE, person=kind).digest()


def _repeats(keys: Sequence[Hashable]) -> bool:
    """Check whether two rows share a key; a row without a key shares none."""
    given = [key for key in keys if key is not None]
    return len(set(given)) < len(given)


def _same(mark: str, own: str) -> bool:
    """Compare the marks of a row: its key decides where both have one, else its content."""
    if len(mark) > 16 and len(own) > 16:
        return mark[16:] == own[16:]
    return mark[:16] == own[:16]

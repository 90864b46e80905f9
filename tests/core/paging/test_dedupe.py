"""Deduplication: no row is ever lost, and none is repeated against the promise."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Collection, Hashable, Sequence
from hashlib import sha256
from itertools import accumulate
from types import SimpleNamespace
from typing import Any, Literal

import pytest
from attrs import define, evolve, field, frozen
from hypothesis import example, given, settings
from hypothesis import strategies as st

from chainapi import Checkpoint
from chainapi.api.routes import Route
from chainapi.core.numbers import whole_of
from chainapi.core.paging.dedupe import Assumption, Comparison, Deduplicator
from chainapi.core.paging.digests import DIGEST_SIZE
from chainapi.core.paging.keys import NEIGHBOURS
from chainapi.core.paging.order import MAX_TIES, Watermark
from chainapi.core.paging.rows import HASH, MANY, Identity, PageRows, column_of, hash_digests, key_digest
from chainapi.models.codec import DecodedPage

Row = dict[str, Any]
Happening = tuple[str, Any]


@frozen
class SentAt:
    """Page as a service sent it; a reader may change its rows."""

    rows: list[Row]
    body: tuple[bytes, ...]

    @classmethod
    def of(cls, rows: Sequence[Row]) -> SentAt:
        """Send rows without the attributes that begin with an underscore."""
        shown = [{name: part for name, part in row.items() if name[0] != "_"} for row in rows]
        return cls(shown, tuple(json.dumps(row, sort_keys=True).encode() for row in shown))

    @property
    def key_rows(self) -> list[Row]:
        """The rows."""
        return self.rows

    @property
    def digest(self) -> int:
        """A hash of the rows."""
        return hash(self.body)

    @property
    def content(self) -> SentAt:
        """Return the page itself."""
        return self

    def canonical_rows(self) -> Sequence[bytes]:
        """Return the content of each row."""
        return self.body


def key_of(row: Row) -> Hashable:
    """Return the key of a row."""
    return row["key"]  # type: ignore[no-any-return]


def number_of(row: Row) -> int | None:
    """Return the number of a row."""
    return row["n"]  # type: ignore[no-any-return]


PLAIN = Identity()
KEYED = Identity(key=key_of)
ORDERED = Identity(number=number_of)
BOTH = Identity(key=key_of, number=number_of)
UNIQUE = Identity(key=number_of, number=number_of, unique=True)


def hash_of(row: Row) -> Hashable:
    """Return a hash as the key of a row."""
    return "0x" + sha256(str(row["key"]).encode()).hexdigest()


HASHED = Identity(key=hash_of, hashed=True)
HASHED_BOTH = Identity(key=hash_of, number=number_of, hashed=True)


@define
class Walker:
    """Miniature walk over a list that changes, checked by a memory of all rows.

    Every row has a serial, `_id`, that nobody but the oracle sees.
    """

    rows: list[Row]
    identity: Identity
    tokens: Literal["rows", "positions"] = "rows"
    counting: bool = True
    deduplicator: Deduplicator = field(init=False)
    token: int | None = None
    at_head: bool = True
    done: bool = False
    passes: int = 1
    loose: bool = False  # rows may come twice, and an event reported that
    grown: bool = False
    resumed: bool = False
    given: Counter[int] = field(factory=Counter[int])
    dropped: set[int] = field(factory=set[int])  # in a pass, for their key
    refuted: list[Assumption] = field(factory=list[Assumption])

    def __attrs_post_init__(self) -> None:
        self.deduplicator = Deduplicator(self.identity)
        if self.counting:
            self.deduplicator.start_counting()

    # What a reader does

    def read(self, size: int) -> None:
        """Take a page whole."""
        if not self.done:
            rows, token = self._page(size)
            self._give(rows, self._take(rows).stale, size)
            self.at_head, self.token, self.done = False, token, token is None

    def inside(self, size: int, part: int, swap: int = 0) -> None:
        """Take some rows of a page, and resume from the checkpoint behind them.

        The resume is in another process. Meanwhile the row at the place `swap` of the page changes places
        with the one before it.
        """
        if self.done:
            return
        rows, _ = self._page(size)
        part = min(part, len(rows) - 1)
        stale = self._take(rows).stale
        self._give(rows, stale, part)
        had = self.deduplicator
        self._resume(had.watermark(part), (*had.head, *had.marks_given(part, stale)))
        if 1 < swap < len(rows):  # the first row is where the page begins
            self._swap(self.rows.index(rows[swap]))

    def between(self) -> None:
        """Resume in another process from a checkpoint between two pages."""
        self._resume(self.deduplicator.watermark(), self.deduplicator.head)

    def restart(self) -> None:
        """Begin again at the first page, as after the death of a token."""
        self.loose |= not self.deduplicator.complete
        self.deduplicator.restart()
        self.token, self.at_head, self.done = None, True, False
        self.passes += 1

    def shuffle(self, place: int) -> None:
        """Begin again after two rows have changed places."""
        if self.rows:
            self._swap(place % len(self.rows))
        self.restart()

    def finish(self) -> None:
        """Read to the end, and once more for new rows at the head; check both."""
        while not self.done:
            self.read(4)
        self.check(whole=False)
        for _ in range(2):
            self.restart()
            while not self.done:
                self.read(4)
            self.check()

    # What happens to the list

    def grow(self, rows: Sequence[Row]) -> None:
        """Put rows at the head."""
        self.rows[:0] = rows
        self.grown = True

    def change(self, place: int) -> None:
        """Change a row where its key allows it."""
        if self.rows:
            place %= len(self.rows)
            self.rows[place] = {**self.rows[place], "v": self.rows[place]["v"] + 100}

    # The oracle

    def check(self, *, whole: bool = True) -> None:
        """Compare the rows given with those that the list holds.

        These are all its rows if it was read whole.
        """
        lists, given = Counter(map(self._shown, self.rows)), Counter[Hashable]()
        for serial, count in self.given.items():
            given[self._shown(next(row for row in self.rows if row["_id"] == serial))] += count
        lost = lists - given
        if whole:
            assert set(lost) <= self._may_miss(), f"rows are lost: {lost}"
        if not self.loose and not self._shifts():
            assert not given - lists, f"rows came twice: {given - lists}"

    def _shown(self, row: Row) -> Hashable:
        """Return the visible part of a row; equal rows count as one another."""
        if self.identity.key is not None or row.get("_changed"):
            return row["_id"]  # type: ignore[no-any-return]
        return SentAt.of([row]).body[0]

    def _may_miss(self) -> set[Hashable]:
        """Return rows that may be missing: those taken for another one with their key.

        Where the number is the key, neighbours are compared with it, which a resume has in no checkpoint.
        """
        if not self.identity.unique:
            return {self._shown(row) for row in self.rows if row["_id"] in self.dropped}
        numbers = Counter(row["n"] for row in self.rows)
        return {self._shown(row) for row in self.rows if self.resumed and numbers[row["n"]] > 1}

    def _shifts(self) -> bool:
        """Check whether rows may have been repeated by a shift that nothing showed."""
        if self.tokens == "rows" or not self.grown:
            return False
        return self.identity.key is None or self.deduplicator.keyless or self.resumed

    # How it does so

    def _page(self, size: int) -> tuple[list[Row], int | None]:
        begin = 0
        if self.token is not None:
            serials = [row["_id"] for row in self.rows]
            begin = serials.index(self.token) if self.tokens == "rows" else self.token
        behind = begin + size
        if behind >= len(self.rows):
            return self.rows[begin:], None
        return self.rows[begin:behind], self.rows[behind]["_id"] if self.tokens == "rows" else behind

    def _take(self, rows: Sequence[Row]) -> Comparison:
        sent = SentAt.of(rows)
        taken = self.deduplicator.add(sent)
        assert set(taken.repeated) <= set(taken.stale)
        assert not taken.repeated or Assumption.KEY not in taken.refuted
        self.dropped |= {rows[index]["_id"] for index in taken.repeated}
        self.refuted += taken.refuted
        # An event has reported that: what was given in earlier passes is known by what was refuted now.
        unknown = self.resumed or not self.counting
        refuted = Assumption.KEY in taken.refuted or (unknown and Assumption.ORDER in taken.refuted)
        self.loose |= self.passes > 1 and refuted
        for row in sent.rows:
            row.clear()  # by its reader
        sent.rows.clear()
        return taken

    def _swap(self, place: int) -> None:
        """Let a row change places with the one before it.

        A row that nobody has seen may not move to a place where, by the order of a list, all were given.
        """
        two = self.rows[max(place - 1, 0) : place + 1]
        if len(two) == 2 and (not self.deduplicator.ordered or all(self.given[row["_id"]] for row in two)):
            self.rows[place - 1 : place + 1] = reversed(two)

    def _give(self, rows: Sequence[Row], stale: Collection[int], part: int) -> None:
        self.given.update(row["_id"] for index, row in enumerate(rows[:part]) if index not in stale)

    def _resume(self, watermark: Watermark | None, head: tuple[str, ...]) -> None:
        had = self.deduplicator
        text = Checkpoint(
            "q", watermark=watermark, unordered=had.broken, keyless=had.keyless, head=head
        ).dumps()
        read = Checkpoint.loads(text)
        resumed = bool(self.given)
        # As in the session: without an order, the memory of earlier passes is gone; an event reports it.
        self.loose |= self.passes > 1 and not had.ordered
        self.deduplicator = Deduplicator(
            self.identity,
            watermark=read.watermark,
            unordered=read.unordered or (resumed and read.watermark is None),
            keyless=read.keyless,
            resumed=resumed,
        )
        self.deduplicator.resume_inside(read.head)
        if self.counting:
            self.deduplicator.start_counting()
        self.resumed = True


# Lists, and what may happen to a walk over them


def rows_of(parts: Sequence[tuple[int | None, Hashable, int]], serial: int = 0) -> list[Row]:
    """Return rows with a number, a key (by default their serial) and a content."""
    return [
        {
            "_id": one,
            "n": number,
            "key": f"k{one}" if key is None else key,
            "v": value,
        }
        for one, (number, key, value) in enumerate(parts, serial)
    ]


HAPPENINGS = st.lists(
    st.one_of(
        st.tuples(st.just("read"), st.integers(1, 6)),
        st.tuples(st.just("read"), st.integers(1, 6)),
        st.tuples(st.just("grow"), st.lists(st.tuples(st.integers(0, 2), st.integers(0, 1)), max_size=5)),
        st.tuples(st.just("restart"), st.none()),
        st.tuples(st.just("inside"), st.tuples(st.integers(1, 6), st.integers(0, 5), st.integers(0, 5))),
        st.tuples(st.just("between"), st.none()),
        st.tuples(st.just("shuffle"), st.integers(0, 20)),
        st.tuples(st.just("change"), st.integers(0, 20)),
    ),
    max_size=16,
)


def numbers_of(steps: Sequence[int]) -> list[int]:
    """Return numbers that fall by steps down to 0."""
    return list(accumulate(reversed(steps), initial=0))[:0:-1]


def drive(
    walker: Walker,
    happens: Sequence[Happening],
    *,
    key: Hashable = None,
    changing: bool = False,
    moving: bool = False,
    lowest: int = 0,
) -> None:
    """Apply events to a walk, read the list to its end, and check it.

    New rows lie at least `lowest` above the greatest number of the list, and have this key, or one of their
    own. Rows may be changing, or moving to other places, between requests.
    """
    serial = len(walker.rows)
    for name, what in happens:
        if name == "grow":
            newest = max((row["n"] for row in walker.rows if row["n"] is not None), default=0)
            for step, value in what:
                newest += max(step, lowest)
                walker.grow(rows_of([(newest, key, value)], serial))
                serial += 1
        elif name == "change":
            if changing:
                walker.change(what)
        elif name == "read":
            walker.read(what)
        elif name == "inside":
            walker.inside(*(what if moving else what[:2]))
        elif name == "shuffle" and moving:
            walker.shuffle(what)
        elif name == "between":
            walker.between()
        else:
            walker.restart()
    walker.finish()


TOKENS = st.sampled_from(["rows", "rows", "positions"])
VALUES = st.lists(st.integers(0, 2), max_size=16)
STEPS = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 1)), max_size=16)
Tokens = Literal["rows", "positions"]


@settings(max_examples=400)
@given(values=VALUES, tokens=TOKENS, counting=st.booleans(), happens=HAPPENINGS)
def test_plain_lists(values: list[int], tokens: Tokens, counting: bool, happens: list[Happening]) -> None:
    """Rows of a plain list are given as often as the list holds them.

    Equal rows are too; none is ever lost.
    """
    walker = Walker(rows_of([(0, "", value) for value in values]), PLAIN, tokens, counting)
    happens = [(name, [(0, 0) for _ in what] if name == "grow" else what) for name, what in happens]
    drive(walker, happens, key="", moving=True)
    assert not walker.refuted
    assert not walker.dropped


@settings(max_examples=400)
@given(
    values=VALUES,
    identity=st.sampled_from([KEYED, HASHED]),
    tokens=TOKENS,
    counting=st.booleans(),
    happens=HAPPENINGS,
)
def test_keyed_lists(
    values: list[int], identity: Identity, tokens: Tokens, counting: bool, happens: list[Happening]
) -> None:
    """Rows with a key are given once, however they change or the list shifts."""
    walker = Walker(rows_of([(0, None, value) for value in values]), identity, tokens, counting)
    drive(walker, happens, changing=True, moving=True)
    assert not walker.refuted


@settings(max_examples=400)
@given(steps=STEPS, counting=st.booleans(), keyed=st.booleans(), happens=HAPPENINGS)
def test_ordered_lists(
    steps: list[tuple[int, int]], counting: bool, keyed: bool, happens: list[Happening]
) -> None:
    """Rows in descending order are given once, past any restart and resume.

    There are ties and equal rows.
    """
    numbers = numbers_of([step for step, _ in steps])
    key = None if keyed else ""
    rows = rows_of([(number, key, value) for number, (_, value) in zip(numbers, steps, strict=True)])
    walker = Walker(rows, BOTH if keyed else ORDERED, counting=counting)
    drive(walker, happens, key=key, changing=keyed)
    assert not walker.refuted
    assert walker.deduplicator.complete
    assert not walker.loose


@settings(max_examples=300)
@given(count=st.integers(0, 16), tokens=TOKENS, counting=st.booleans(), happens=HAPPENINGS)
def test_lists_whose_number_is_the_key(
    count: int, tokens: Tokens, counting: bool, happens: list[Happening]
) -> None:
    """Rows whose number is their key are given once.

    A shifted row that has changed is given again.
    """
    walker = Walker(rows_of([(number, None, 0) for number in range(count, 0, -1)]), UNIQUE, tokens, counting)
    changing = tokens == "rows"
    drive(walker, happens, changing=changing, lowest=1)
    assert Assumption.KEY not in walker.refuted


DISORDER = st.sampled_from(["none yet", "none yet", "swapped", "shuffled", "ascending", "unnumbered"])


@st.composite
def disordered(draw: st.DrawFn) -> list[tuple[int | None, int]]:
    """Numbers and values that do not fall, or fall until rows move."""
    steps = draw(STEPS.filter(bool))
    parts: list[tuple[int | None, int]] = [
        (number, value)
        for number, (_, value) in zip(numbers_of([step for step, _ in steps]), steps, strict=True)
    ]
    match draw(DISORDER):
        case "none yet":
            return parts
        case "swapped":
            for place in draw(st.lists(st.integers(0, len(parts) - 1), min_size=1, max_size=3)):
                parts[place - 1 : place + 1] = reversed(parts[place - 1 : place + 1])
            return list(parts)
        case "shuffled":
            return list(draw(st.permutations(parts)))
        case "ascending":
            return parts[::-1]
        case _:
            missing = draw(st.sets(st.integers(0, len(parts) - 1), max_size=3))
            return [(None if place in missing else n, v) for place, (n, v) in enumerate(parts)]


@pytest.mark.untraced
@settings(max_examples=600)
@given(
    parts=disordered(),
    tokens=TOKENS,
    counting=st.booleans(),
    identity=st.sampled_from([ORDERED, BOTH, HASHED_BOTH]),
    happens=HAPPENINGS,
)
def test_lists_out_of_order(
    parts: list[tuple[int | None, int]],
    tokens: Tokens,
    counting: bool,
    identity: Identity,
    happens: list[Happening],
) -> None:
    """Lists out of order lose no row, and restart as exactly as promised.

    The order differs from the one that was declared.
    """
    key = "" if identity is ORDERED else None
    rows = rows_of([(number, key, value) for number, value in parts])
    walker = Walker(rows, identity, tokens, counting)
    drive(walker, happens, key=key, moving=True)
    assert Assumption.KEY not in walker.refuted
    assert walker.refuted.count(Assumption.ORDER) <= 1 or walker.resumed


@pytest.mark.untraced
@settings(max_examples=400)
@given(steps=STEPS, tokens=TOKENS, counting=st.booleans(), happens=HAPPENINGS)
def test_a_number_that_is_no_key(
    steps: list[tuple[int, int]], tokens: Tokens, counting: bool, happens: list[Happening]
) -> None:
    """A number that is no key loses no differing row in one pass.

    Several rows share the number that was declared their key.
    """
    numbers = numbers_of([step for step, _ in steps])
    rows = rows_of([(number, None, value) for number, (_, value) in zip(numbers, steps, strict=True)])
    walker = Walker(rows, UNIQUE, tokens, counting)
    drive(walker, happens)


@pytest.mark.untraced
@settings(max_examples=400)
@given(
    keys=st.lists(st.integers(0, 5), max_size=16),
    steps=st.lists(st.integers(0, 2), min_size=16, max_size=16),
    ordered=st.booleans(),
    tokens=TOKENS,
    counting=st.booleans(),
    happens=HAPPENINGS,
)
def test_a_key_that_is_none(
    keys: list[int],
    steps: list[int],
    ordered: bool,
    tokens: Tokens,
    counting: bool,
    happens: list[Happening],
) -> None:
    """A key that rows share loses no row but beside an equal key and number.

    The number matters only if there are numbers.
    """
    numbers = numbers_of(steps)
    rows = rows_of([(number, key, 0) for number, key in zip(numbers, keys, strict=False)])
    walker = Walker(rows, BOTH if ordered else KEYED, tokens, counting)
    drive(walker, happens)
    if ordered:
        likes = Counter((row["n"], row["key"]) for row in walker.rows)
        by_serial = {row["_id"]: row for row in walker.rows}
        dropped = [by_serial[serial] for serial in walker.dropped]
        assert all(likes[row["n"], row["key"]] > 1 or walker.grown for row in dropped)


# Cases


def sent(*parts: tuple[int | None, Hashable, int]) -> SentAt:
    """Return a page of rows with these numbers, keys and contents."""
    return SentAt.of(rows_of(parts))


def counting(identity: Identity, **before: Any) -> Deduplicator:
    """Return a deduplicator of a reader of rows."""
    deduplicator = Deduplicator(identity, **before)
    deduplicator.start_counting()
    return deduplicator


def test_a_row_among_old_ones_in_a_pass_that_breaks_the_order() -> None:
    """A row behind a break in a later pass is given despite a known number.

    This pass has had a row with that number already.
    """
    seen = counting(ORDERED)
    seen.add(sent(*((number, "", 0) for number in range(9, 0, -1))))
    seen.restart()
    assert seen.add(sent((9, "", 0), (8, "", 0), (7, "", 0))).stale == {0, 1, 2}
    taken = seen.add(sent((9, "", 7), (8, "", 7), (6, "", 0)))
    assert taken.refuted == (Assumption.ORDER,)
    assert taken.stale == {2}
    assert seen.add(sent((5, "", 0), (7, "", 7), (7, "", 0))).stale == {0}


def test_a_row_of_the_page_that_breaks_the_order_is_met() -> None:
    """Rows that keep the order on the page that breaks it are met.

    They were given before; their equals are given.
    """
    seen = counting(ORDERED)
    seen.add(sent(*((number, "", 0) for number in range(9, 0, -1))))
    seen.restart()
    taken = seen.add(sent((9, "", 0), (8, "", 0), (7, "", 0), (8, "", 7), (6, "", 0), (9, "", 0)))
    assert taken.stale == {0, 1, 2, 4}


def test_a_begun_page_that_breaks_the_order() -> None:
    """Marks find the rows given of a begun page that breaks the order.

    Rows that the order found need no mark.
    """
    seen = counting(ORDERED)
    seen.add(sent((9, "", 0), (8, "", 0), (7, "", 0), (6, "", 0)))
    watermark, head = seen.watermark(3), seen.marks_given(3, ())
    seen = counting(ORDERED, watermark=watermark, resumed=True)
    seen.resume_inside(head)
    taken = seen.add(sent((9, "", 0), (7, "", 0), (8, "", 0), (9, "", 0), (6, "", 0), (8, "", 0)))
    assert taken.stale == {0, 1, 2}
    assert seen.head == ()


def test_numbers_of_no_pattern_drop_no_row_in_a_later_pass() -> None:
    """Numbers without a pattern lose no row; rows behind a break are repeated.

    The numbers given took too much memory.
    """
    seen = counting(ORDERED)
    squares = [number * number for number in range(3_000, 0, -1)]
    for at in range(0, 3_000, 100):
        seen.add(sent(*((number, "", 0) for number in squares[at : at + 100])))
    seen.restart()
    assert seen.complete
    assert seen.add(sent(*((number, "", 0) for number in squares[:3]))).stale == {0, 1, 2}
    assert seen.add(sent((squares[0], "", 1), (squares[3], "", 0))).stale == set()
    assert not seen.complete


def test_too_many_rows_on_one_number() -> None:
    """A number with more than 1,000 rows ends the order between two pages.

    It does not end inside a page.
    """
    seen = counting(ORDERED)
    many = [(5, "", value) for value in range(MAX_TIES + 1)]
    assert seen.add(sent(*many)).refuted == ()
    assert seen.add(sent((5, "", -1), (4, "", 0))).refuted == (Assumption.TIES,)
    assert (seen.ordered, seen.broken, seen.watermark()) == (False, True, None)
    seen.restart()
    assert seen.add(sent(*many, (5, "", -2))).stale == set(range(MAX_TIES + 1))
    seen = counting(ORDERED)
    seen.add(sent(*many))
    assert seen.add(sent((4, "", 0))).refuted == (), "no more rows of that number came"


def test_what_is_fresh() -> None:
    """A page is fresh with a row never given, or where numbers fall.

    For a reader of pages it stays unknown, and for a page without rows.
    """
    seen = counting(PLAIN)
    assert [seen.add(sent(*rows)).fresh for rows in ([(0, "", 1)], [(0, "", 1)], [])] == [True, False, None]
    seen.restart()
    assert [seen.add(sent((0, "", value))).fresh for value in (1, 2)] == [False, True]
    assert Deduplicator(PLAIN).add(sent((0, "", 1))).fresh is None
    assert Deduplicator(PLAIN).add(sent()).fresh is None
    seen = Deduplicator(ORDERED, watermark=Watermark(9, 1, at=None), resumed=True)
    assert [seen.add(sent((number, "", 0))).fresh for number in (9, 8, 8, 5, 5)] == [
        True,
        True,
        False,
        True,
        False,
    ]
    seen = counting(KEYED)
    assert [seen.add(sent((0, "a", 0))).fresh for _ in range(2)] == [True, False]


def test_signatures() -> None:
    """A signature is made of the keys where all rows have one, else of the contents."""
    one, changed, other = sent((5, "a", 0)), sent((5, "a", 1)), sent((5, "b", 0))
    for identity, same in ((KEYED, True), (BOTH, True), (UNIQUE, True), (PLAIN, False), (ORDERED, False)):
        seen = counting(identity)
        taken = seen.add(one)
        assert taken.signature == seen.signature(one)
        assert (seen.signature(changed) == taken.signature) == same
        assert (seen.signature(other) == taken.signature) == identity.unique
        assert seen.add(one).signature == taken.signature
    seen = Deduplicator(Identity(key=lambda _: None))
    assert seen.signature(one) != seen.signature(other), "rows without a key are told apart by their contents"


def test_a_part_that_never_changes_counts_rows() -> None:
    """Rows are counted by their immutable part; several may share it."""
    identity = evolve(PLAIN, stable=lambda row: row["key"])
    seen = counting(identity)
    assert seen.add(sent((0, "a", 1), (0, "a", 2), (0, "b", 1), (0, None, 1))).stale == set()
    head = seen.marks_given(2, ())
    seen.restart()
    assert seen.add(sent((0, "b", 9), (0, "a", 9), (0, "a", 8), (0, "a", 7))).stale == {0, 1, 2}
    seen = counting(identity, resumed=True)
    seen.resume_inside(head)
    assert seen.add(sent((0, "a", 9), (0, "a", 8), (0, "a", 7))).stale == {0, 1}


def test_a_part_that_is_missing_counts_nothing() -> None:
    """A row without its immutable part is counted by its content.

    Its kind is unknown.
    """
    seen = counting(evolve(PLAIN, stable=lambda row: row["n"]))
    seen.add(sent((None, "a", 1), (None, "b", 1)))
    seen.restart()
    assert seen.add(sent((None, "b", 1), (None, "c", 1))).stale == {0}


@pytest.mark.parametrize(("grown", "gone"), [(0, 0), (500, 0), (500, 3), (0, 3), (95, 0)])
def test_marks_wait_for_rows_that_the_list_pushed_down(grown: int, gone: int) -> None:
    """Marks of a begun page leave rows out where they reappear, then no more."""
    given = [(0, "", value) for value in range(10)]
    seen = counting(PLAIN)
    seen.add(sent(*given, *((0, "", value) for value in range(10, 100))))
    head = seen.marks_given(10, ())
    seen = counting(PLAIN, resumed=True)
    seen.resume_inside(head)
    rows = [(0, "new", value) for value in range(grown)] + given[gone:]
    rows += [(0, "", value) for value in range(10, 400)]
    again: list[int] = []
    for at in range(0, len(rows), 100):
        again += [at + index for index in sorted(seen.add(sent(*rows[at : at + 100])).stale)]
    assert again == list(range(grown, grown + 10 - gone))
    assert seen.head == ()
    assert seen.add(sent(given[0])).stale == set(), "an equal row is another one by now"


def test_marks_of_withdrawn_rows_are_dropped_in_order_too() -> None:
    """Marks of rows that the list withdrew are dropped behind the begun page, though lower pages are new."""
    rows = [(number, "", 0) for number in range(400, 0, -1)]
    seen = counting(UNIQUE)
    seen.add(sent(*rows[:100]))
    watermark, head = seen.watermark(10), seen.marks_given(10, ())
    seen = counting(UNIQUE, watermark=watermark, resumed=True)
    seen.resume_inside(head)
    taken = [(len(seen.add(sent(*rows[at : at + 100])).stale), len(seen.head)) for at in (3, 103, 203)]
    assert taken == [(7, 3), (0, 0), (0, 0)]


def test_marks_of_keys_and_of_contents() -> None:
    """Marks are compared by the key where both have one, else by the content."""
    seen = counting(KEYED)
    seen.add(sent((0, "a", 1), (0, "b", 1), (0, None, 1)))
    head = seen.marks_given(2, ())
    assert [len(mark) for mark in head] == [32, 32]
    for keyless, row, stale in (
        (False, (0, "a", 9), {0}),
        (False, (0, "c", 1), set[int]()),
        (True, (0, "a", 1), {0}),
        (True, (0, "a", 9), set[int]()),
    ):
        seen = counting(KEYED, resumed=True, keyless=keyless)
        seen.resume_inside(head)
        assert seen.add(sent(row)).stale == stale
        assert len(seen.head) == 2 - len(stale)
    seen = counting(KEYED, resumed=True)
    seen.resume_inside([mark[:16] for mark in head])  # taken when there was no key
    assert seen.add(sent((0, "b", 1), (0, "a", 2))).stale == {0}


def test_neighbours_are_bounded() -> None:
    """Neighbours are only the pages with the last 128 rows, however many there are."""
    seen = counting(KEYED)
    for page in range(300):
        seen.add(sent(*((0, f"{page}-{index}", 0) for index in range(page % 4))))
        assert sum(len(page.keys) for page in seen._keys._neighbours) < NEIGHBOURS + 4
        assert all(page.keys for page in seen._keys._neighbours)
        assert all(page.content is None for page in seen._keys._neighbours), "their keys alone"
    seen.add(sent(*((0, f"x{index}", 0) for index in range(1_000))))
    assert len(seen._keys._neighbours) == 1
    assert seen.add(sent((0, "x872", 0), (0, "x871", 0))).repeated == {0}


@pytest.mark.parametrize("frozen", [False, True])
def test_rows_that_a_reader_takes_out_of_a_page(frozen: bool) -> None:
    """Rows that a reader removes from a page change nothing; counting begins once."""
    seen = counting(evolve(KEYED, frozen=frozen))
    first = sent((0, "a", 0), (0, "b", 0))
    seen.add(first)
    first.rows.clear()
    seen.start_counting()
    assert [len(mark) for mark in seen.marks_given(2, ())] == [32, 32]
    assert seen.add(sent((0, "b", 1), (0, "c", 0))).repeated == {0}
    seen.restart()
    assert seen.add(sent((0, "a", 1), (0, "d", 0))).stale == {0}


def test_before_the_first_page() -> None:
    """Before the first page there are no rows, and so no contents."""
    assert list(counting(PLAIN)._page.contents) == []


def test_a_walk_without_rows_has_no_watermark() -> None:
    """A walk without rows, or without order, has no watermark."""
    for identity in (PLAIN, ORDERED):
        seen = counting(identity)
        seen.add(sent())
        assert seen.watermark() is None
        assert seen.watermark(0) is None
        assert seen.marks_given(0, ()) == ()
    seen.add(sent((5, "", 0)))
    assert seen.number(0) == 5
    mark = seen.digests([0])[0][:8].hex()
    assert seen.watermark() == Watermark(5, 5, at=5, ties=((5, (mark,)),), met=(mark,))
    plain = counting(PLAIN)
    plain.add(sent((5, "", 0)))
    assert (plain.number(0), plain.watermark(1)) == (None, None)


PARTS: st.SearchStrategy[Any] = st.one_of(
    st.integers(0, 3),
    st.none(),
    st.text(max_size=1),
    st.just(True),
    st.just([1]),
    st.tuples(st.none()),
    st.floats(),
)
ATTRIBUTES = st.dictionaries(st.sampled_from(["a", "b"]), PARTS, max_size=2) | st.fixed_dictionaries(
    {"a": st.integers(0, 3), "b": st.text(max_size=1)}
)


def test_the_late_mark_of_a_key_is_its_mark() -> None:
    """The mark of a key that is made when it is read is the one that is made at once."""
    rows = [SimpleNamespace(a=number) for number in (7, 9)]
    page = PageRows(DecodedPage(rows, None), Identity(key=lambda row: row.a), keyed=True)
    late = page.late_mark(1)
    assert (dict(late), len(late), late[page.mark(1)]) == ({page.mark(1): 1}, 1, 1)
    with pytest.raises(KeyError):
        late[page.mark(0)]


HASHES = st.binary(min_size=32, max_size=32).map(lambda content: "0x" + content.hex())
SPACED = HASHES.map(lambda text: f"{text[:-2]}  ")  # readers of hexadecimal digits skip white space


@example([f"0x{number:064x}" for number in range(MANY + 1)])
@given(st.lists(HASHES | SPACED | PARTS.filter(lambda part: part != [1]) | st.text(min_size=66, max_size=66)))
def test_the_digest_of_a_key_depends_on_nothing_else(keys: list[Hashable]) -> None:
    """A hash has its last bytes as its digest, whatever else is on the page; marks are of the text."""
    digests = hash_digests(keys)
    assert digests == [hash_digests((key,))[0] for key in keys]
    page = PageRows(DecodedPage(keys, None), Identity(key=lambda key: key, hashed=True), keyed=True)
    for index, (key, digest) in enumerate(zip(keys, digests, strict=True)):
        if isinstance(key, str) and re.fullmatch("0x[0-9a-f]{64}", key):
            assert digest == bytes.fromhex(key[2:])[-DIGEST_SIZE:]
        elif key is not None and not (isinstance(key, str) and len(key) == HASH and " " not in key):
            assert digest == key_digest(key)
        if key is not None:
            assert (page.digest(index), page.mark(index)) == (digest, key_digest(key)[:8].hex())


@given(st.lists(ATTRIBUTES, max_size=4), st.sampled_from([("a",), ("timestamp",), ("a", "b")]))
def test_a_page_is_read_as_its_rows_are(rows: list[dict[str, Any]], names: tuple[str, ...]) -> None:
    """Keys and numbers of a page read at once are those read row by row, with all checks."""
    times = [{"timestamp": row["a"]} if "a" in row else {} for row in rows]
    objects = [SimpleNamespace(**row, **time) for row, time in zip(rows, times, strict=True)]
    key = Route("/v1/rows", key=names).key_reader()
    identity = Identity(key=key, number=lambda row: whole_of(getattr(row, "a", None)))
    plain = evolve(identity, plain_key=column_of(*names), plain_number=column_of(names[0]))
    (keys, distinct), (checked_keys, same_keys) = plain.keys_of(objects), identity.keys_of(objects)
    assert list(map(repr, keys)) == list(map(repr, checked_keys))
    assert distinct == same_keys
    (numbers, run), (checked, same) = plain.numbers_of(objects), identity.numbers_of(objects)
    assert list(map(repr, numbers or ())) == list(map(repr, checked or ()))
    assert run == same

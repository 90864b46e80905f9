"""Which rows come once: no row of any list is ever lost, and none comes twice where that is promised."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Hashable, Sequence
from itertools import accumulate
from typing import Any, Literal

from attrs import define, field, frozen
from hypothesis import given, settings
from hypothesis import strategies as st

from chainapi.core.checkpoint import Checkpoint
from chainapi.core.dedupe import Deduplicator, Doubt, Identity, Taken
from chainapi.core.order import Watermark

Row = dict[str, Any]
Happening = tuple[str, Any]


@frozen
class Sent:
    """A page as a service sent it; its rows may be changed by whoever reads them."""

    rows: list[Row]
    body: tuple[bytes, ...]

    @classmethod
    def of(cls, rows: Sequence[Row]) -> Sent:
        """Send rows; what begins with an underscore stays behind."""
        shown = [{name: part for name, part in row.items() if name[0] != "_"} for row in rows]
        return cls(shown, tuple(json.dumps(row, sort_keys=True).encode() for row in shown))

    @property
    def digest(self) -> int:
        """A hash of the rows."""
        return hash(self.body)

    def contents(self) -> Sequence[bytes]:
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


@define
class Walker:
    """A walk in miniature over a list that changes; a naive memory of all rows judges what it gives.

    Every row has a serial, `_id`, that nobody but the judge sees.
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
    loose: bool = False  # rows may come twice, and somebody was told
    grown: bool = False
    resumed: bool = False
    given: Counter[int] = field(factory=Counter[int])
    dropped: set[int] = field(factory=set[int])  # in a pass, for their key
    doubts: list[Doubt] = field(factory=list[Doubt])

    def __attrs_post_init__(self) -> None:
        self.deduplicator = Deduplicator(self.identity)
        if self.counting:
            self.deduplicator.count()

    # What a reader does

    def read(self, size: int) -> None:
        """Take a page whole."""
        if not self.done:
            rows, token = self._page(size)
            self._give(rows, self._take(rows).stale, size)
            self.at_head, self.token, self.done = False, token, token is None

    def inside(self, size: int, part: int, swap: int = 0) -> None:
        """Take some rows of a page, and resume in another process from the checkpoint behind them.

        Meanwhile the row at the place `swap` of the page changes places with the one before it.
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
        """Read to the end, and once more for what came at the head meanwhile; judge both."""
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

    # The judge

    def check(self, *, whole: bool = True) -> None:
        """Compare what was given with what the list holds, that is with all of it if it was read whole."""
        lists, given = Counter(map(self._shown, self.rows)), Counter[Hashable]()
        for serial, count in self.given.items():
            given[self._shown(next(row for row in self.rows if row["_id"] == serial))] += count
        lost = lists - given
        by_key = {self._shown(row) for row in self.rows if row["_id"] in self.dropped}
        if whole:
            assert set(lost) <= (set() if self.identity.unique else by_key), f"rows are lost: {lost}"
        if not self.loose and not self._shifts():
            assert not given - lists, f"rows came twice: {given - lists}"

    def _shown(self, row: Row) -> Hashable:
        """Return what tells a row from others for those who see it: equal rows are one another's like."""
        if self.identity.key is not None or row.get("_changed"):
            return row["_id"]  # type: ignore[no-any-return]
        return Sent.of([row]).body[0]

    def _shifts(self) -> bool:
        """Check whether rows may have come again because the list shifted, and nothing showed it."""
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

    def _take(self, rows: Sequence[Row]) -> Taken:
        sent = Sent.of(rows)
        taken = self.deduplicator.take(sent)
        assert set(taken.repeated) <= set(taken.stale)
        assert not taken.repeated or Doubt.KEY not in taken.doubts
        self.dropped |= {rows[index]["_id"] for index in taken.repeated}
        self.doubts += taken.doubts
        # An event has said so: what was given in earlier passes is known by what was refuted now.
        unknown = self.resumed or not self.counting
        refuted = Doubt.KEY in taken.doubts or (unknown and Doubt.ORDER in taken.doubts)
        self.loose |= self.passes > 1 and refuted
        for row in sent.rows:
            row.clear()  # by its reader
        sent.rows.clear()
        return taken

    def _swap(self, place: int) -> None:
        if place:
            self.rows[place - 1 : place + 1] = reversed(self.rows[place - 1 : place + 1])

    def _give(self, rows: Sequence[Row], stale: Collection[int], part: int) -> None:
        self.given.update(row["_id"] for index, row in enumerate(rows[:part]) if index not in stale)

    def _resume(self, watermark: Watermark | None, head: tuple[str, ...]) -> None:
        had = self.deduplicator
        text = Checkpoint(
            "q", watermark=watermark, unordered=had.broken, keyless=had.keyless, head=head
        ).dumps()
        read = Checkpoint.loads(text)
        resumed = bool(self.given)
        # As in the session: without an order, the memory of earlier passes is gone, and an event says so.
        self.loose |= self.passes > 1 and not had.ordered
        self.deduplicator = Deduplicator(
            self.identity,
            watermark=read.watermark,
            unordered=read.unordered or (resumed and read.watermark is None),
            keyless=read.keyless,
            resumed=resumed,
        )
        self.deduplicator.expect(read.head)
        if self.counting:
            self.deduplicator.count()
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
    """Let things happen to a walk, read the list to its end, and judge.

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
    """Rows of a plain list come as often as the list holds them, equal ones too; none is ever lost."""
    walker = Walker(rows_of([(0, "", value) for value in values]), PLAIN, tokens, counting)
    happens = [(name, [(0, 0) for _ in what] if name == "grow" else what) for name, what in happens]
    drive(walker, happens, key="", moving=True)
    assert not walker.doubts
    assert not walker.dropped


@settings(max_examples=400)
@given(values=VALUES, tokens=TOKENS, counting=st.booleans(), happens=HAPPENINGS)
def test_keyed_lists(values: list[int], tokens: Tokens, counting: bool, happens: list[Happening]) -> None:
    """Rows with a key come once, whatever else of them changes, and however the list shifts."""
    walker = Walker(rows_of([(0, None, value) for value in values]), KEYED, tokens, counting)
    drive(walker, happens, changing=True, moving=True)
    assert not walker.doubts


@settings(max_examples=400)
@given(steps=STEPS, counting=st.booleans(), keyed=st.booleans(), happens=HAPPENINGS)
def test_ordered_lists(
    steps: list[tuple[int, int]], counting: bool, keyed: bool, happens: list[Happening]
) -> None:
    """Rows in descending order come once, past any restart and resume, ties and equal rows among them."""
    numbers = numbers_of([step for step, _ in steps])
    key = None if keyed else ""
    rows = rows_of([(number, key, value) for number, (_, value) in zip(numbers, steps, strict=True)])
    walker = Walker(rows, BOTH if keyed else ORDERED, counting=counting)
    drive(walker, happens, key=key, changing=keyed)
    assert not walker.doubts
    assert walker.deduplicator.complete
    assert not walker.loose


@settings(max_examples=300)
@given(count=st.integers(0, 16), tokens=TOKENS, counting=st.booleans(), happens=HAPPENINGS)
def test_lists_whose_number_is_the_key(
    count: int, tokens: Tokens, counting: bool, happens: list[Happening]
) -> None:
    """Rows whose number is their key come once; where a shifted row has changed, it comes again."""
    walker = Walker(rows_of([(number, None, 0) for number in range(count, 0, -1)]), UNIQUE, tokens, counting)
    changing = tokens == "rows"
    drive(walker, happens, changing=changing, lowest=1)
    assert Doubt.KEY not in walker.doubts


DISORDER = st.sampled_from(["swapped", "shuffled", "ascending", "unnumbered"])


@st.composite
def disordered(draw: st.DrawFn) -> list[tuple[int | None, int]]:
    """Numbers and values that do not fall."""
    steps = draw(STEPS.filter(bool))
    parts = [
        (number, value)
        for number, (_, value) in zip(numbers_of([step for step, _ in steps]), steps, strict=True)
    ]
    match draw(DISORDER):
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


@settings(max_examples=1_500)
@given(
    parts=disordered(),
    tokens=TOKENS,
    counting=st.booleans(),
    keyed=st.booleans(),
    happens=HAPPENINGS,
)
def test_lists_out_of_order(
    parts: list[tuple[int | None, int]],
    tokens: Tokens,
    counting: bool,
    keyed: bool,
    happens: list[Happening],
) -> None:
    """Where the order is not what it was said to be, no row is lost, and a restart is as exact as it says."""
    key = None if keyed else ""
    rows = rows_of([(number, key, value) for number, value in parts])
    walker = Walker(rows, BOTH if keyed else ORDERED, tokens, counting)
    drive(walker, happens, key=key, moving=True)
    assert Doubt.KEY not in walker.doubts
    assert walker.doubts.count(Doubt.ORDER) <= 1 or walker.resumed


@settings(max_examples=800)
@given(steps=STEPS, tokens=TOKENS, counting=st.booleans(), happens=HAPPENINGS)
def test_a_number_that_is_no_key(
    steps: list[tuple[int, int]], tokens: Tokens, counting: bool, happens: list[Happening]
) -> None:
    """Where several rows share the number that was said to be their key, none is lost that differs."""
    numbers = numbers_of([step for step, _ in steps])
    rows = rows_of([(number, None, value) for number, (_, value) in zip(numbers, steps, strict=True)])
    walker = Walker(rows, UNIQUE, tokens, counting)
    drive(walker, happens)


@settings(max_examples=800)
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
    """Where rows share a key, none is lost but next to its like, and of one number if there are numbers."""
    numbers = numbers_of(steps)
    rows = rows_of([(number, key, 0) for number, key in zip(numbers, keys, strict=False)])
    walker = Walker(rows, BOTH if ordered else KEYED, tokens, counting)
    drive(walker, happens)
    if ordered:
        likes = Counter((row["n"], row["key"]) for row in walker.rows)
        by_serial = {row["_id"]: row for row in walker.rows}
        dropped = [by_serial[serial] for serial in walker.dropped]
        assert all(likes[row["n"], row["key"]] > 1 or walker.grown for row in dropped)

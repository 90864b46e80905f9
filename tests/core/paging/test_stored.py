"""Rows that a reader has stored: which of them a page after a resume has again."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import pytest
from attrs import define, field

from chainapi import Checkpoint
from chainapi.core.paging.dedupe import Assumption, Comparison, Deduplicator
from chainapi.core.paging.digests import DigestCounter
from chainapi.core.paging.order import Watermark
from chainapi.core.paging.rows import Identity, PageRows
from chainapi.core.paging.stored import StoredRows
from tests.core.paging.test_dedupe import SentAt

Row = dict[str, Any]
KEYED = Identity(key=lambda row: row["key"])
ORDERED = Identity(number=lambda row: row["number"], number_field="number")
BOTH = Identity(KEYED.key, ORDERED.number, "number")
GIVEN = [{"key": f"k{number}", "number": number} for number in (9, 8, 7, 6, 5)]


@define
class Store:
    """Store of the digests of rows; it counts how often it is asked, and fails on request."""

    digests: Sequence[bytes]
    asked: list[tuple[int, bool]] = field(factory=list[tuple[int, bool]])
    fails: bool = False

    def since(self, digests: Collection[bytes], whole: bool) -> DigestCounter | None:
        """Count digests from the first one on that is among some."""
        self.asked.append((len(digests), whole))
        if self.fails:
            raise OSError("the disk is gone")
        first = next((at for at, one in enumerate(self.digests) if one in {*digests}), None)
        if first is None and not whole:
            return None
        given = DigestCounter()
        given.give_new(self.digests[first or 0 :])
        given.restart()
        return given


def resumed(identity: Identity, given: Sequence[Row] = GIVEN, **options: Any) -> tuple[Deduplicator, Store]:
    """Return a deduplicator that was resumed behind some rows, and the store of these rows."""
    numbers = [row["number"] for row in given]
    mark = Watermark(max(numbers), min(numbers), at=numbers[-1], number_field="number")
    start = Checkpoint("q", watermark=None if identity.number is None else mark)
    dedupe = Deduplicator(identity, watermark=start.watermark, resumed=True)
    page = PageRows(SentAt.of(given), identity, keyed=identity.key is not None)
    store = Store(page.digests(range(len(given))))
    dedupe.leave_out(StoredRows(store.since, **options))
    return dedupe, store


def added(dedupe: Deduplicator, *rows: tuple[str, int | None]) -> Comparison:
    """Add a page of rows with these keys and numbers."""
    return dedupe.add(SentAt.of([{"key": key, "number": number} for key, number in rows]))


@pytest.mark.parametrize("identity", [ORDERED, BOTH])
def test_a_page_below_the_last_row_needs_no_store(identity: Identity) -> None:
    """The order of a list proves that it did not shift: nothing is read, then and later."""
    dedupe, store = resumed(identity)
    assert not added(dedupe, ("k4", 4), ("k3", 3)).stale
    assert not dedupe.reads_stored
    assert store.asked == []


def test_a_row_level_with_the_last_one_is_looked_up() -> None:
    """The store is asked once for rows with the last number, and all of its rows are never read."""
    dedupe, store = resumed(BOTH)
    assert not added(dedupe, ("other", 5), ("k4", 4)).repeated
    assert store.asked == [(1, False)]
    assert not dedupe.reads_stored
    dedupe, store = resumed(BOTH)
    assert added(dedupe, ("k5", 5), ("k4", 4)).repeated == {0}
    assert store.asked == [(1, False)]


def test_a_page_level_with_the_last_row_decides_nothing() -> None:
    """A list may gain a page of rows with its newest number: rows that come again may be below them."""
    dedupe, store = resumed(BOTH, [{"key": f"k{one}", "number": 5} for one in range(4)])
    assert not added(dedupe, ("a", 5), ("b", 5)).repeated
    assert added(dedupe, ("c", 5), ("k0", 5), ("k1", 5)).repeated == {1, 2}
    assert added(dedupe, ("k2", 5), ("k3", 5)).repeated == {0, 1}
    assert not added(dedupe, ("d", 5), ("e", 4)).repeated
    assert not dedupe.reads_stored
    assert store.asked == [(2, False), (3, False)]


def test_empty_pages_decide_nothing() -> None:
    """An empty page between two others is neither a proof nor asked for."""
    dedupe, store = resumed(BOTH)
    added(dedupe)
    assert store.asked == []
    assert added(dedupe, ("k6", 6), ("k5", 5), ("k4", 4)).repeated == {0, 1}
    assert dedupe.ordered


def test_a_store_that_fails_changes_nothing() -> None:
    """If the store cannot be read, the page is added again as if it had not come."""
    dedupe, store = resumed(BOTH)
    store.fails = True
    for _ in range(2):
        with pytest.raises(OSError, match="gone"):
            added(dedupe, ("k6", 6), ("k4", 4))
    store.fails = False
    assert added(dedupe, ("k6", 6), ("k4", 4)).repeated == {0}


def test_rows_above_the_newest_one_are_left_to_a_later_walk() -> None:
    """Pages of rows above the newest one given count as progress, and end at the rows that come again."""
    dedupe, store = resumed(BOTH)
    first = added(dedupe, ("k12", 12), ("k11", 11))
    assert (first.repeated, first.fresh) == ({0, 1}, True)
    assert added(dedupe, ("k10", 10), ("k9", 9), ("k8", 8)).repeated == {0, 1, 2}
    assert added(dedupe, ("k7", 7), ("k6", 6), ("k5", 5), ("k4", 4)).repeated == {0, 1, 2}
    assert not added(dedupe, ("k3", 3)).repeated
    assert dedupe.ordered
    assert store.asked == [(2, True)]


def test_a_reader_that_leaves_out_newer_rows() -> None:
    """Among rows above its own ones, a reader has no row, and those that rise do not break the order."""
    dedupe, _ = resumed(BOTH, newest=3)
    assert added(dedupe, ("a", 12), ("b", 7), ("k5", 5), ("k4", 4)).repeated == {0, 1, 2}
    assert dedupe.ordered


@pytest.mark.parametrize("rows", [[("a", 12), ("b", 4)], [("k9", 9), ("a", 12)], [("a", 7), ("b", 4)]])
def test_a_row_against_the_order_is_kept(rows: list[tuple[str, int | None]]) -> None:
    """A row that rises without a row behind it that comes again is a row, and the list has no order."""
    dedupe, _ = resumed(BOTH)
    compared = added(dedupe, *rows)
    assert compared.refuted == (Assumption.ORDER,)
    assert {place for place, (key, _) in enumerate(rows) if key in "ab"}.isdisjoint(compared.stale)


def test_equal_rows_are_counted() -> None:
    """Without a key a row comes again as often as it was given, and only behind one that rises."""
    rows = [{"key": key, "number": number} for key, number in (("x", 7), ("x", 7), ("y", 5), ("y", 5))]
    dedupe, _ = resumed(ORDERED, rows)
    assert added(dedupe, ("x", 7), ("y", 5), ("y", 5), ("y", 5), ("z", 4)).repeated == {0, 1, 2}
    dedupe, _ = resumed(ORDERED, rows)
    assert not added(dedupe, ("y", 5), ("y", 5), ("z", 4)).repeated


def test_a_key_is_known_on_all_pages_without_numbers() -> None:
    """Without numbers nothing proves where the rows that come again end, so each page is matched."""
    dedupe, store = resumed(KEYED)
    assert not added(dedupe, ("new", 1)).repeated
    assert not dedupe.reads_stored
    assert added(dedupe, ("k8", 8), ("k7", 7)).repeated == {0, 1}
    assert not added(dedupe, ("newer", 1)).repeated
    assert added(dedupe, ("k9", 9), ("k5", 5)).repeated == {0, 1}
    assert store.asked == [(0, True)]


def test_numbers_of_a_cursor_prove_a_shift() -> None:
    """Numbers that have fallen so far prove a shift for rows without a key, but leave no new row out."""
    plain = Identity()
    dedupe, store = resumed(plain, last=5, number=lambda row: row["number"])
    assert not added(dedupe, ("k12", 12), ("k11", 11)).repeated
    assert added(dedupe, ("k10", 10), ("k9", 9), ("k8", 8)).repeated == {1, 2}
    assert added(dedupe, ("k5", 5), ("k4", 4)).repeated == {0}
    assert not added(dedupe, ("k4", 4), ("k3", 3)).repeated
    assert store.asked == [(2, True)]
    dedupe, store = resumed(plain)
    assert not added(dedupe, ("k6", 6), ("k5", 5)).repeated
    assert store.asked == []


def test_a_restart_ends_it() -> None:
    """Another pass meets all rows, and is matched by others."""
    dedupe, store = resumed(KEYED)
    dedupe.restart()
    assert not added(dedupe, ("k9", 9), ("k8", 8)).repeated
    assert store.asked == []

"""Counts of digests equal those of a dict, and take little memory."""

from __future__ import annotations

import hashlib
import sys
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chainapi.core.paging import digests
from chainapi.core.paging.digests import CELL, DIGEST_SIZE, DigestCounter

pytestmark = pytest.mark.rule


def digest(number: int) -> bytes:
    """Return a digest."""
    return hashlib.blake2b(number.to_bytes(8, "little"), digest_size=DIGEST_SIZE).digest()


class Naive:
    """Naive counter: the same counts in dicts."""

    def __init__(self) -> None:
        self.given = Counter[bytes]()
        self.met = Counter[bytes]()

    def meet(self, one: bytes) -> bool:
        """Count a meeting with a digest that was given more often than met."""
        if self.met[one] >= self.given[one]:
            return False
        self.met[one] += 1
        return True

    def give(self, one: bytes) -> None:
        """Count a digest as given, and as met."""
        self.given[one] += 1
        self.met[one] += 1

    def restart(self) -> None:
        """Forget the digests met."""
        self.met.clear()


STEPS = st.lists(st.one_of(st.none(), st.tuples(st.booleans(), st.integers(0, 40))), max_size=200)


def compare(ones: list[bytes], steps: list[tuple[bool, int] | None]) -> None:
    """Apply steps to both counters and compare.

    None is a restart; a pair is True to give or False to meet, and the index of a digest.
    """
    ours, theirs = DigestCounter(), Naive()
    for step in steps:
        if step is None:
            ours.restart()
            theirs.restart()
            continue
        gives, one = step[0], ones[step[1]]
        if gives:
            assert not ours.first_pass or ours.give_new([one, one]) == (not theirs.given[one])
            for _ in range(2 if ours.first_pass else 0):
                theirs.give(one)
            ours.give(one)
            theirs.give(one)
        else:
            assert ours.meet(one) == theirs.meet(one)
        assert one in ours or not theirs.given[one]
    assert [one in ours for one in ones] == [theirs.given[one] > 0 for one in ones]
    ours.restart()
    theirs.restart()
    for one in ones:
        met = theirs.given[one]
        assert [ours.meet(one) for _ in range(met + 1)] == [True] * met + [False]
    assert sum(ours._used) == sum(count > 0 for count in theirs.given.values())


@settings(max_examples=40)
@given(
    st.lists(st.binary(min_size=DIGEST_SIZE, max_size=DIGEST_SIZE), min_size=41, max_size=41, unique=True),
    STEPS,
)
def test_any_digests(ones: list[bytes], steps: list[tuple[bool, int] | None]) -> None:
    """A digest is met as often in each pass as it was given, also where digests crowd, or are zero."""
    compare([digest(number) for number in range(41)], steps)
    crowded = [b"\x40" + one[1:4] + b"\xff" * 6 + one[10:] for one in ones]
    if len(set(crowded)) == len(crowded):
        compare(crowded, steps)
    compare([*ones[1:], bytes(DIGEST_SIZE)], steps)


@pytest.mark.parametrize(("largest", "count"), [(9, count) for count in (8, 9, 10, 60)])
def test_large_counts(monkeypatch: pytest.MonkeyPatch, largest: int, count: int) -> None:
    """A row repeated more often than a cell can count is counted over two restarts."""
    monkeypatch.setattr(digests, "LARGEST", largest)
    ours, one, other = DigestCounter(), digest(1), digest(2)
    for _ in range(count):
        ours.give(one)
    ours.give(other)
    for _ in range(2):
        assert not ours.meet(one)
        ours.restart()
        assert sum(ours.meet(one) for _ in range(count + 5)) == count
        assert ours.meet(other)
        assert not ours.meet(other)
    ours.give(one)
    ours.restart()
    assert sum(ours.meet(one) for _ in range(count + 5)) == count + 1
    assert sum(ours._used) in (1, 2)  # a count that is too large for a cell may have none


@pytest.mark.proof
def test_memory() -> None:
    """A digest takes at most 18 bytes in the first pass, less than 43 in later ones, 28 in full tables."""
    ours = DigestCounter()
    ours.give_new([digest(number) for number in range(100_000)])
    assert sum(sys.getsizeof(bucket) for shard in ours._log._shards for bucket in shard) <= 18 * 100_000
    ours = DigestCounter()
    ours.restart()
    sizes: list[float] = []
    for number in range(100_000):
        ours.give(digest(number))
        if number >= 50_000 and number % 1_000 == 0:
            sizes.append(sum(len(table or b"") for table in ours._tables) / (number + 1))
    assert max(sizes) <= CELL / 0.375
    assert min(sizes) <= 28
    assert sum(ours._used) == 100_000
    ours.restart()
    assert all(ours.meet(digest(number)) for number in range(0, 100_000, 997))
    assert not any(ours.meet(digest(number)) for number in range(0, 100_000, 997))


def test_many_digests() -> None:
    """Tables that grow keep each digest: it is met once in each later pass."""
    ours, ones = DigestCounter(), [digest(number) for number in range(6_000)]
    ours.restart()
    for one in ones:
        ours.give(one)
    for _ in range(2):
        ours.restart()
        assert all(ours.meet(one) for one in ones)
        assert not any(ours.meet(one) for one in ones)

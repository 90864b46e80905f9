"""The compact set of digests behaves as Python's own, and takes little memory."""

from __future__ import annotations

import hashlib

from hypothesis import given
from hypothesis import strategies as st

from chainapi.core.digests import DigestSet


def digest(number: int) -> bytes:
    """Return a digest."""
    return hashlib.blake2b(number.to_bytes(8, "little"), digest_size=16).digest()


@given(st.lists(st.integers(0, 300)))
def test_like_a_set(numbers: list[int]) -> None:
    """Adding says "new" exactly when a set would, whatever comes in whatever order."""
    ours, theirs = DigestSet(), set[bytes]()
    for number in numbers:
        assert ours.add(digest(number)) == (digest(number) not in theirs)
        theirs.add(digest(number))
    assert len(ours) == len(theirs)


@given(st.lists(st.binary(min_size=16, max_size=16).filter(any), max_size=60))
def test_any_digests(digests: list[bytes]) -> None:
    """Digests that crowd into one table, or probe past its end, are told apart as well."""
    crowded = [b"\x40" + one[1:8] + b"\xff" * 6 + one[14:] for one in digests]
    ours = DigestSet()
    assert sum(ours.add(one) for one in crowded) == len(set(crowded)) == len(ours)


def test_memory() -> None:
    """100,000 digests take less than 48 bytes each."""
    ours = DigestSet()
    for number in range(100_000):
        assert ours.add(digest(number))
    assert sum(len(table) for table in ours._tables) <= 48 * 100_000
    assert not any(ours.add(digest(number)) for number in range(0, 100_000, 997))

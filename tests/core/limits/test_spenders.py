"""Spenders of a quota: accounts, and snapshots as JSON."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chainapi.core.limits.snapshot import QuotaSnapshot
from chainapi.core.limits.spenders import MOST_SPENDERS, OTHER, Spender, Spenders

amounts = st.floats(0, 1e12)
times = st.none() | amounts
texts = st.text(max_size=10)
numbers = st.integers(0, 1_000_000)
snapshots = st.builds(
    QuotaSnapshot,
    st.just(0.0),
    times,
    times,
    times,
    st.none() | st.floats(1, 1e6),
    times,
    st.dictionaries(texts, amounts, max_size=3),
    numbers,
    numbers,
    st.none(),
    st.lists(st.builds(Spender, texts, texts, numbers, amounts, numbers, numbers, numbers), max_size=3).map(
        tuple
    ),
)


def test_accounts_count_requests_units_and_refusals() -> None:
    """An account is that of its process and tag; those with the most units come first."""
    spenders = Spenders()
    small, big = spenders.account("a", "small"), spenders.account("b", "big")
    small.requests, small.units, small.refusals = 2, 1.0, 1
    big.requests, big.units = 1, 20.0
    big.in_flight, big.waiting = 2, 3
    assert spenders.account("a", "small") is small
    assert spenders.shown() == (Spender("b", "big", 1, 20.0, 0, 2, 3), Spender("a", "small", 2, 1.0, 1))


def test_spenders_used_least_recently_are_added_up() -> None:
    """However many tags there are, the accounts are bounded, and their sums stay."""
    spenders = Spenders()
    busy = spenders.account("", "busy")
    busy.in_flight = 1
    for number in range(2000):
        account = spenders.account("", str(number))
        account.used = number
        account.requests, account.units = 1, 2.0
        account.refusals = number % 10 == 0
        assert len(spenders.shown()) <= MOST_SPENDERS
    shown = {one.tag: one for one in spenders.shown()}
    assert {"busy", OTHER, "1999", "1900"} <= shown.keys()
    assert "0" not in shown
    assert not busy.closed
    assert shown[OTHER].units == max(one.units for one in shown.values())
    assert sum(one.requests for one in shown.values()) == 2000
    assert sum(one.units for one in shown.values()) == 4000.0
    assert sum(one.refusals for one in shown.values()) == 200


def test_new_spenders_share_an_account_while_all_are_in_use() -> None:
    """Spenders with requests under way are not added up: a new one is counted with the others."""
    spenders = Spenders()
    for number in range(MOST_SPENDERS + 50):
        spenders.account("p", str(number)).waiting += 1
    shown = spenders.shown()
    assert len(shown) == MOST_SPENDERS
    assert {one.tag: one.waiting for one in shown}[OTHER] == 51


@given(snapshots, amounts)
def test_snapshot_survives_json(snapshot: QuotaSnapshot, now: float) -> None:
    """Another process reads the same snapshot, with times of its own clock."""
    read = QuotaSnapshot.from_json(snapshot.to_json(), 0.0)
    assert read == snapshot
    later = QuotaSnapshot.from_json(snapshot.to_json(), now, 5.0)
    assert (later.time, later.unix_time) == (now, 5.0)
    assert later.stopped_for == pytest.approx(snapshot.stopped_for, abs=1e-3)
    assert later.reset_in == (
        None if snapshot.reset_in is None else pytest.approx(snapshot.reset_in, abs=1e-3)
    )


@pytest.mark.parametrize("text", [b"", b"[]", b'{"limit": -1}', b'{"spenders": [{"process": 1}]}', b"\xff"])
def test_malformed_snapshots_are_refused(text: bytes) -> None:
    """Bytes that are no snapshot raise ValueError."""
    with pytest.raises(ValueError, match="malformed snapshot of a quota"):
        QuotaSnapshot.from_json(text, 0.0)

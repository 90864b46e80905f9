"""Rules of a quota that hold whatever a service answers, in any order."""

from __future__ import annotations

import random
from collections.abc import Iterator

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chainapi import Limit
from chainapi._limits.costs import Costs
from chainapi._limits.headers import PolicyField, RateLimitInfo
from chainapi._limits.policy import Policy
from chainapi._limits.quota import Quota, Reservation
from chainapi._limits.view import QuotaSnapshot

pytestmark = pytest.mark.rule

ENDS = ["ok"] * 6 + ["refuse", "refuse route", "lose", "unsend", "error"]
ROUTES = {"": 1.0, "/a": 3.0, "/b": 20.0}


def reported(remaining: float, retry_after: float | None = None) -> RateLimitInfo:
    """Return the limit headers of a service with 100 units a minute."""
    return RateLimitInfo(100.0, remaining, None, retry_after, (PolicyField(100.0, 60.0),))


def end(quota: Quota, reservation: Reservation, now: float, what: str, number: int) -> None:
    """End a request."""
    if what == "ok":
        quota.answered(reservation, now, 200, reported(float(number)), 0.5)
    elif what == "refuse":
        quota.answered(reservation, now, 429, reported(0.0, retry_after=float(number)), 0.5)
    elif what == "refuse route":
        quota.answered(reservation, now, 429, reported(90.0), 0.5)
    elif what == "error":
        quota.answered(reservation, now, 500, RateLimitInfo(), 0.5)
    elif what == "lose":
        quota.lost(reservation, now)
    else:
        quota.unsent(reservation)


def walk(quota: Quota, seed: int, steps: int) -> Iterator[tuple[float, list[Reservation]]]:
    """Send requests and end them at random; yield the time and the requests in flight after each step."""
    rng, flying, now = random.Random(seed), list[Reservation](), 0.0
    for _ in range(steps):
        now += rng.choice([0.0, 0.0, 0.1, 1.0, 30.0])
        route = rng.choice([*ROUTES])
        decision = quota.decide(now, ROUTES[route], route)
        if rng.random() < 0.5:
            quota.wait(decision)
            if decision.when <= now:
                assert now >= quota.stopped_until, "sent in a stop"
                flying.append(quota.send(decision, now, route, ROUTES[route]))
        elif flying:
            ended = flying.pop(rng.randrange(len(flying)))
            end(quota, ended, now, rng.choice(ENDS), rng.choice([0, 1, 2, 90]))
        yield now, flying


def some_quota(seed: int) -> Quota:
    """Return a quota with random settings."""
    quota = Quota(max_in_flight=20, probe=seed % 3 > 0)
    quota.add_limits((Limit(30.0, 20.0),) if seed % 2 else ())
    return quota


@pytest.mark.parametrize("seed", range(6))
def test_no_permit_is_lost_and_a_stop_moves_only_later(seed: int) -> None:
    """Each request in flight counts until it ends, no stop becomes shorter, and a request leaves at last."""
    quota, stop, now, flying = some_quota(seed), 0.0, 0.0, list[Reservation]()
    for now, flying in walk(quota, seed, 400):
        assert quota.in_flight == len(flying)
        assert quota.units == pytest.approx(sum(one.cost for one in flying))
        assert quota.stopped_until >= stop or quota.stopped_until <= now
        stop = quota.stopped_until
    for reservation in flying:
        quota.lost(reservation, now)
    assert (quota.in_flight, quota.units) == (0, 0.0)
    for _ in range(100):
        decision = quota.decide(now, 1.0)
        if decision.when <= now:
            return
        quota.wait(decision)
        now = decision.when
    raise AssertionError("no request leaves any more")


@pytest.mark.parametrize("seed", range(3))
def test_decisions_change_nothing(seed: int) -> None:
    """To decide about a request leaves each field of a quota as it was."""
    quota = some_quota(seed)
    for now, _ in walk(quota, seed, 150):
        quota.forecast(now, 1.0)  # counts what came back by now
        before = msgspec.to_builtins(quota)
        for cost in (0.0, 1.0, 200.0):
            quota.decide(now, cost)
            quota.room(now)
        assert msgspec.to_builtins(quota) == before


RESPONSES = st.lists(st.sampled_from(["reported", "torn", "uncounted"]), max_size=9)


def fly(policy: Policy, left: int, now: float, flight: list[str], order: random.Random) -> int:
    """Send requests at one time, answered in any order; return the units left at the server."""
    responses: list[int | None] = []
    for kind in flight:
        left -= kind != "uncounted"
        responses.append(left if kind == "reported" else None)
    order.shuffle(responses)
    for remaining in responses:
        if remaining is None:
            policy.spend(now, now + 0.5, 1.0)
        else:
            policy.record(now, now + 0.5, remaining, 1.0, now, careful=False)
    return left


@given(st.lists(RESPONSES, max_size=6), st.randoms(use_true_random=False))
def test_responses_in_any_order_never_show_more_than_is_left(
    flights: list[list[str]], order: random.Random
) -> None:
    """As many units seem to be left as are, or fewer by the silent responses of the last round trip."""
    policy, left = Policy(100.0, 60.0, announced=True), 100
    for now, flight in enumerate(flights):
        left = fly(policy, left, now, [*flight, "reported"], order)
        assert left - len(flight) + flight.count("reported") <= policy.room(now + 0.5, 0.0) <= left


@given(st.permutations(range(20)), st.sampled_from([1, 5, 50]))
def test_prices_are_learned_whatever_the_order_of_responses(order: list[int], price: int) -> None:
    """The bounds hold the price after each response, and meet once all of a burst are answered."""
    costs = Costs(limit=1_000.0)
    costs.begin(0.0, 0.0, 1_000.0, quiet=True)
    least = 1_000.0
    for number, place in enumerate(order, start=1):
        least = min(least, 1_000.0 - price * (place + 1))
        others = ["/a"] * max(0, max(order[:number]) + 1 - number)
        alone = number == len(order)
        costs.report("/a", None, 1.0, 2.0, least, 0.0, others, alone=alone, drips=False)
        assert costs.prices["/a"].low <= price <= costs.prices["/a"].high
    assert costs.price("/a", None) == price


# --- what another process reads -----------------------------------------------------------------


def learned(seed: int) -> tuple[Quota, float]:
    """Return a quota after a random walk, and the time."""
    quota, now = some_quota(seed), 0.0
    for now, _ in walk(quota, seed, 200):
        if seed % 2:
            assert Quota().restore(quota.encode(now), now, 0.0) is not None
    return quota, now


@pytest.mark.parametrize("seed", range(4))
def test_a_state_survives_a_round_trip(seed: int) -> None:
    """A quota that continues from a state has the same limits, prices and routes, on the same clock."""
    quota, now = learned(seed)
    state, other = quota.encode(now), Quota(max_in_flight=20)
    for route in quota.routes.known.values():
        route.in_flight = 0  # the next host has none in flight
    for policy in quota.announced.policies:
        if policy.bucket is not None:
            policy.bucket.sent.clear()
    assert other.restore(state, 7.0, 5.0) == now + 5.0
    for part in ("announced", "given", "hidden", "costs", "routes", "in_a_row", "stopped_until"):
        one, two = (msgspec.to_builtins(getattr(each, part)) for each in (quota, other))
        if part == "given":  # without reports, more may have been spent since
            one, two = ([limit["limit"] for limit in each] for each in (one, two))
        assert one == two, part
    assert other.doubtful == (quota.units + quota.doubtful[0], len(quota.flying) + quota.doubtful[1])
    assert len(state) < 16_384


@given(st.integers(0, 3), st.randoms(use_true_random=False))
def test_a_damaged_state_does_not_stop_a_quota(seed: int, rng: random.Random) -> None:
    """After flipped bits a state is ignored, or it is one of the right shape."""
    quota, now = learned(2 * seed)
    state = bytearray(quota.encode(now))
    for _ in range(rng.randint(1, 3)):
        state[rng.randrange(len(state))] ^= 1 << rng.randrange(8)
    other = Quota(max_in_flight=20)
    if other.restore(bytes(state), 0.0, rng.choice([0.0, 100.0])) is None:
        for time, _ in walk(other, seed, 40):
            other.snapshot(time, 0)
    assert other.encode(0.0)


def test_bytes_that_are_no_state_change_nothing() -> None:
    """Bytes that are no state, states of another version and too old ones are ignored."""
    state = Quota().encode(0.0)
    other_version = msgspec.msgpack.encode({**msgspec.msgpack.decode(state), "version": 0})
    for other in (
        b"",
        b"\xc0",
        b"\x90",
        b"no state",
        bytes(100_000),
        bytes(1 << 20),
        state[:-1],
        other_version,
    ):
        assert Quota().restore(other, 5.0, 0.0) is None
    assert Quota().restore(state, 0.0, 1e9) is None
    assert Quota().restore(state, 0.0, 0.0) == 0.0


def test_snapshots_survive_json_and_malformed_ones_are_refused() -> None:
    """Another process reads the same snapshot; bytes that are none raise ValueError."""
    for seed in range(4):
        quota, now = learned(seed)
        snapshot = quota.snapshot(now, 3)
        read = QuotaSnapshot.from_json(snapshot.to_json(), now + 7.0, 5.0)
        assert (read.time, read.unix_time) == (now + 7.0, 5.0)
        assert (read.limit, read.remaining, read.waiting) == (snapshot.limit, snapshot.remaining, 3)
        assert read.stopped_for == pytest.approx(snapshot.stopped_for, abs=1e-3)
        later = read.at(now + 7.5, 5.5)
        assert (later.time, later.unix_time) == (now + 7.5, 5.5)
        assert later.stopped_for == pytest.approx(max(0.0, read.stopped_for - 0.5))
    for text in (b"", b"[]", b'{"limit": -1}', b'{"spenders": [{"process": 1}]}', b"\xff"):
        with pytest.raises(ValueError, match="malformed snapshot of a quota"):
            QuotaSnapshot.from_json(text, 0.0)

"""Quota, the pure part of the gate: recorded responses and permitted requests."""

from __future__ import annotations

import pickle
import random
from collections.abc import Iterator
from math import inf

import pytest
from attrs import define, field
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from chainapi import Limit
from chainapi.core.limits.balance import Balance
from chainapi.core.limits.costs import Costs
from chainapi.core.limits.discovery import Discovery, Trial
from chainapi.core.limits.drip import Drip
from chainapi.core.limits.info import PolicyField, RateLimitInfo
from chainapi.core.limits.memory import read
from chainapi.core.limits.policy import Policy
from chainapi.core.limits.quota import Quota
from chainapi.core.limits.reservation import Reservation
from chainapi.core.limits.returns import FixedWindow, Kind, Returns, SlidingLog, TokenBucket
from chainapi.core.limits.verdict import Verdict
from tests.limits.servers import SlidingLog as SlidingServer

MINUTE = (PolicyField(100.0, 60.0),)


def reported(remaining: float, retry_after: float | None = None, reset: float | None = None) -> RateLimitInfo:
    """Return the limit headers of a service with 100 units a minute."""
    return RateLimitInfo(100.0, remaining, reset, retry_after, MINUTE)


def started(remaining: float = 99.0, **options: bool) -> Quota:
    """Return a quota with requests of 1 unit, the first sent at 0 and answered at 1."""
    quota = Quota(**options)  # type: ignore[arg-type]
    quota.costs.learned[""] = 1.0
    quota.answered(go(quota, 0.0), 1.0, 200, reported(remaining), 0.5)
    return quota


def go(quota: Quota, now: float, cost: float = 1.0, route: str = "") -> Reservation:
    """Send a request that must be free to go."""
    decision = quota.decide(now, cost)
    assert decision.when <= now
    return quota.send(decision, now, route, cost)


def opens_at(quota: Quota, now: float, cost: float) -> float:
    """Return when a request may leave, for which the caller waits until then."""
    decision = quota.decide(now, cost)
    quota.wait(decision)
    return decision.when


def test_probe_is_sent_alone() -> None:
    """No request follows the first one until its response, then as many as remain."""
    quota = Quota()
    quota.costs.learned[""] = 1.0
    first = go(quota, 0.0)
    assert opens_at(quota, 0.5, 1.0) > 0.5
    quota.answered(first, 0.9, 200, reported(2.0), 0.5)
    go(quota, 1.0)
    go(quota, 1.0)
    assert opens_at(quota, 1.0, 1.0) > 1.0


def test_answers_that_overtake_each_other_never_raise_the_budget() -> None:
    """An older response with more remaining changes nothing."""
    quota = started(10.0)
    slow, fast = go(quota, 1.0), go(quota, 1.0)
    quota.answered(fast, 2.0, 200, reported(3.0), 0.5)
    quota.answered(slow, 3.0, 200, reported(9.0), 0.5)
    assert quota.snapshot(3.0, 0).remaining == 3.0
    quota.answered(go(quota, 3.0), 4.0, 200, reported(8.0), 0.5)
    assert quota.snapshot(4.0, 0).remaining == 8.0


def test_stop_only_moves_later() -> None:
    """A second refusal with a shorter wait does not shorten the stop."""
    quota = started()
    one, two = go(quota, 1.0), go(quota, 1.0)
    quota.answered(one, 2.0, 429, reported(0.0, retry_after=30.0), 0.5)
    quota.answered(two, 3.0, 429, reported(0.0, retry_after=5.0), 0.5)
    assert quota.stopped_until == 32.0
    assert opens_at(quota, 3.0, 1.0) == 32.0
    assert quota.snapshot(3.0, 0).stopped_for == 29.0
    assert quota.snapshot(40.0, 0).stopped_for == 0.0


def test_retry_after_wins_over_reset() -> None:
    """With a retry-after of 20 and a reset of 40, the stop is 20 seconds."""
    quota = started()
    quota.answered(go(quota, 1.0), 2.0, 429, reported(15.0, retry_after=20.0, reset=40.0), 0.5)
    assert quota.stopped_until == 22.0


def test_refused_probes_back_off_whatever_the_service_announces() -> None:
    """A retry-after of 0 for ever does not make a storm: the own backoff grows."""
    quota = started()
    now, waits = 1.0, []
    for _ in range(12):
        quota.answered(go(quota, now), now, 429, reported(0.0, retry_after=0.0), 1.0)
        waits.append(quota.stopped_until - now)
        now = max(now, quota.stopped_until)
    assert waits == sorted(waits)
    assert waits[-1] == 60.0


def test_backoff_is_jittered_where_headers_are_known_but_silent() -> None:
    """A 429 without fields waits between half and all of an exponential backoff."""
    quota = started()
    quota.answered(go(quota, 1.0), 1.0, 429, RateLimitInfo(), 0.25)
    assert quota.stopped_until == 1.625


def test_server_error_without_headers_changes_nothing() -> None:
    """A 502 from before the limiter spends no units and ends no probe."""
    quota = Quota()
    quota.answered(go(quota, 0.0), 1.0, 502, RateLimitInfo(), 0.5)
    probe = go(quota, 1.0)
    assert probe.probe
    quota.answered(probe, 2.0, 200, reported(5.0), 0.5)
    quota.answered(go(quota, 2.0), 3.0, 503, RateLimitInfo(), 0.5)
    assert quota.snapshot(3.0, 0).remaining == 5.0


def test_lost_request_is_held_back_until_a_later_answer() -> None:
    """Possibly counted units are held back until a later response includes them."""
    quota = started(3.0)
    quota.lost(go(quota, 1.0), 2.0)
    go(quota, 2.0)
    last = go(quota, 2.0)
    assert opens_at(quota, 2.0, 1.0) > 2.0
    quota.answered(last, 3.0, 200, reported(5.0), 0.5)
    for _ in range(4):
        go(quota, 3.0)
    assert opens_at(quota, 3.0, 1.0) > 3.0


def test_lost_requests_do_not_hold_back_all_that_is_left() -> None:
    """One request leaves even if all remaining units may have been counted already."""
    quota = started(2.0)
    one, two = go(quota, 1.0), go(quota, 1.0)
    quota.lost(one, 2.0)
    quota.lost(two, 2.0)
    go(quota, 2.0)
    assert opens_at(quota, 2.0, 1.0) > 2.0


def test_lost_probe_and_unsent_probe_are_replaced() -> None:
    """The next request is the probe after a lost one."""
    quota = Quota()
    quota.lost(go(quota, 0.0), 1.0)
    second = go(quota, 1.0)
    assert second.probe
    quota.unsent(second)
    assert go(quota, 1.0).probe


def test_granted_request_does_not_hold_through_a_stop() -> None:
    """A grant from before a stop is void, also after the stop's end."""
    quota = started()
    reservation, other = go(quota, 1.0), go(quota, 1.0)
    assert quota.holds(reservation, 1.0)
    quota.answered(other, 2.0, 429, reported(0.0, retry_after=1.0), 0.5)
    assert not quota.holds(reservation, 2.0)
    assert not quota.holds(reservation, 4.0)


def test_one_probe_shows_a_drip() -> None:
    """One request before the return by the ledger shows a drip if little is left."""
    quota = started(0.0)
    probes_at = opens_at(quota, 1.0, 1.0)
    assert probes_at == pytest.approx(1.0 + 2 * 60 / 100)
    quota.answered(go(quota, probes_at), probes_at + 0.1, 200, reported(1.0), 0.5)
    quota.answered(go(quota, probes_at + 0.1), probes_at + 0.2, 200, reported(0.0), 0.5)
    assert probes_at + 0.2 < opens_at(quota, probes_at + 0.2, 1.0) < probes_at + 0.2 + 2.0


def test_an_early_probe_that_was_not_sent_is_replaced() -> None:
    """A request that should show early when units come back leaves this to the next one if it is not sent."""
    quota = started(0.0)
    probes_at = opens_at(quota, 1.0, 1.0)
    quota.unsent(go(quota, probes_at))
    quota.lost(go(quota, probes_at), probes_at + 1.0)
    assert opens_at(quota, probes_at + 1.0, 1.0) == pytest.approx(61.0)  # one is enough


def test_one_guess_leaves_first_however_many_requests_passed_before() -> None:
    """Behind a request in flight, units that should be back are tried by one request, then by ever more."""
    quota = started()
    slow = go(quota, 1.0)
    for left in (98.0, 50.0, 20.0, 0.0):
        quota.answered(go(quota, 1.0), 2.0, 200, reported(left), 0.5)
    first = go(quota, 65.0)
    assert (first.guess, opens_at(quota, 65.0, 1.0)) == (True, inf)
    quota.answered(first, 66.0, 200, reported(0.0), 0.5)
    both = [go(quota, 130.0) for _ in range(2)]
    assert opens_at(quota, 130.0, 1.0) == inf
    for one in (slow, *both):
        quota.answered(one, 131.0, 200, reported(0.0), 0.5)
    probe = go(quota, 135.0)  # while the units are used up: guesses begin with one again
    assert (probe.probe, probe.guess) == (True, True)
    quota.answered(probe, 136.0, 200, reported(0.0), 0.5)
    for _ in range(2):
        go(quota, 200.0)
    assert opens_at(quota, 200.0, 1.0) == inf


def test_without_probes_the_ledger_decides() -> None:
    """No request leaves with probe=False before spent units are back."""
    quota = started(0.0, probe=False)
    assert opens_at(quota, 1.0, 1.0) == pytest.approx(61.0)
    assert quota.snapshot(1.0, 0).reset_in == pytest.approx(60.0)


def test_window_on_the_clock_is_learned() -> None:
    """An early return of all units predicts the same time in the next window."""
    quota = started(0.0)
    probes_at = opens_at(quota, 1.0, 1.0)
    quota.answered(go(quota, probes_at), probes_at, 429, reported(0.0, retry_after=20.0), 0.5)
    begin = quota.stopped_until
    quota.answered(go(quota, begin), begin, 200, reported(99.0), 0.5)
    late = begin + 40.0
    quota.answered(go(quota, late, cost=99.0), late, 200, reported(0.0), 0.5)
    assert opens_at(quota, late, 1.0) == pytest.approx(begin + 60.0)
    later = begin + 160.0  # after an idle window: the next one begins by the clock, not by the request
    quota.answered(go(quota, later, cost=100.0), later, 200, reported(0.0), 0.5)
    assert opens_at(quota, later, 1.0) == pytest.approx(begin + 180.0)


def test_announced_reset_needs_no_probe() -> None:
    """Requests wait for an announced reset without a probe."""
    quota = Quota()
    quota.answered(go(quota, 0.0), 1.0, 200, reported(0.0, reset=7.0), 0.5)
    assert opens_at(quota, 1.0, 1.0) == 8.0


def test_policy_without_window_is_learned_from_refusals() -> None:
    """The wait of the first refusal is the window of a limit without one."""
    quota = Quota()
    bare = RateLimitInfo(limit=2.0, remaining=1.0)
    quota.answered(go(quota, 0.0), 0.0, 200, bare, 0.5)
    quota.answered(go(quota, 0.0), 0.0, 200, RateLimitInfo(limit=2.0, remaining=0.0), 0.5)
    quota.answered(go(quota, 0.0), 0.0, 429, RateLimitInfo(limit=2.0, remaining=0.0, retry_after=10.0), 0.5)
    quota.answered(go(quota, 10.0), 10.0, 200, bare, 0.5)
    quota.answered(go(quota, 10.0), 10.0, 200, RateLimitInfo(limit=2.0, remaining=0.0), 0.5)
    assert opens_at(quota, 10.0, 1.0) == pytest.approx(20.0)


def test_refusal_without_a_wait_shows_no_window() -> None:
    """A limit without a window has none after a refusal that names a wait of 0."""
    quota, bare = Quota(), RateLimitInfo(limit=2.0, remaining=1.0)
    quota.answered(go(quota, 0.0), 0.0, 200, bare, 0.5)
    quota.answered(go(quota, 0.0), 0.0, 429, replace(bare, remaining=0.0, retry_after=0.0), 0.0)
    assert quota.snapshot(0.0, 0).window is None
    assert read(quota.memory(0.0)) is not None


def test_window_of_a_refusal_counts_from_the_last_return_of_units() -> None:
    """Of a limit without a window, a refusal shows only the time since the units last came back."""
    quota = Quota()
    for now, left in ((0.0, 1.0), (5.0, 0.0), (65.0, 1.0)):
        quota.answered(go(quota, now), now, 200, RateLimitInfo(limit=2.0, remaining=left), 0.5)
    info = RateLimitInfo(limit=2.0, remaining=0.0, retry_after=8.0)
    quota.answered(go(quota, 66.0), 67.0, 429, info, 0.5)
    assert quota.snapshot(67.0, 0).window == 10.0


def test_units_spent_before_a_refusal_do_not_come_back_after_it() -> None:
    """A limit whose remainder no response reports begins again with the first success after a refusal."""
    quota, silent = Quota(), RateLimitInfo(limit=2.0, policies=(PolicyField(2.0, 60.0),))
    for _ in range(2):
        quota.answered(go(quota, 0.0), 0.0, 200, silent, 0.5)
    quota.answered(go(quota, 1.0), 1.0, 429, replace(silent, retry_after=5.0), 0.5)
    for _ in range(2):
        quota.answered(go(quota, 6.0), 6.0, 200, silent, 0.5)
    assert opens_at(quota, 7.0, 1.0) == 66.0


def test_request_that_costs_more_than_known_shows_no_drip() -> None:
    """A probe that takes a whole window by itself, of a route without a price, is no sign of a drip."""
    quota = started(99.0, probe=False)
    quota.answered(go(quota, 1.0, 99.0), 2.0, 200, reported(0.0), 0.5)
    quota.answered(go(quota, 62.0, 5.0, "/new"), 63.0, 200, reported(0.0), 0.5)
    assert opens_at(quota, 63.0, 1.0) == 123.0


@pytest.mark.parametrize(("spoiled", "most"), [("lost", 60.0), ("others", 120.0), ("idle", 120.0)])
def test_window_without_a_name_stays_near_the_one_that_a_wait_showed(spoiled: str, most: float) -> None:
    """Lost requests and units of others, also after idle hours, do not lengthen a window for ever."""
    server, quota, now = SlidingServer(1.0, 60.0), Quota(), 0.0
    quota.costs.learned[""] = 1.0
    for number in range(100):
        spoils = number % 10 == 5
        now = max(now, opens_at(quota, now, 1.0)) + (3600.0 if spoils and spoiled == "idle" else 0.0)
        reservation = go(quota, now)
        if spoils and server.answer(now, 1.0).status == 200 and spoiled == "lost":
            quota.lost(reservation, now)
            continue
        response = server.answer(now, 1.0)
        quota.answered(reservation, now, response.status, replace(response.info, policies=()), 0.5)
    assert quota.snapshot(now, 0).window == most


def test_window_that_a_later_response_names_counts() -> None:
    """A limit that began without a window has the one that a list of policies names."""
    quota = Quota()
    quota.answered(go(quota, 0.0), 0.0, 200, RateLimitInfo(limit=100.0, remaining=99.0), 0.5)
    assert quota.snapshot(0.0, 0).window is None
    quota.answered(go(quota, 1.0), 1.0, 200, reported(98.0), 0.5)
    assert quota.snapshot(1.0, 0).window == 60.0


def test_units_return_by_the_end_of_a_window_that_a_later_response_names() -> None:
    """After the window is named, no request waits for one that was taken to be longer."""
    quota, bare = Quota(), RateLimitInfo(limit=3.0, remaining=2.0, reset=300.0)
    for left in (2.0, 1.0):
        quota.answered(go(quota, 0.0), 0.0, 200, replace(bare, remaining=left), 0.5)
    assert quota.snapshot(0.0, 0).window == 300.0
    named = RateLimitInfo(limit=3.0, remaining=0.0, policies=(PolicyField(3.0, 10.0),))
    quota.answered(go(quota, 1.0), 1.0, 200, named, 0.5)
    assert opens_at(quota, 1.0, 1.0) == 11.0
    assert read(quota.memory(1.0)) is not None


def test_second_policy_known_only_from_refusals_is_kept() -> None:
    """A stacked limit named only by its 429s still holds after other responses."""
    quota = started()
    reservation = go(quota, 1.0)
    info = RateLimitInfo(limit=3.0, remaining=0.0, retry_after=2.0, policies=(PolicyField(3.0, 2.0),))
    quota.answered(reservation, 2.0, 429, info, 0.5)
    for _ in range(3):
        quota.answered(go(quota, 4.0), 4.0, 200, reported(90.0), 0.5)
    assert opens_at(quota, 4.0, 1.0) > 4.0


def test_new_policy_replaces_the_old() -> None:
    """The newest policy counts after a change of plan."""
    quota = started()
    info = RateLimitInfo(limit=500.0, remaining=499.0, policies=(PolicyField(500.0, 60.0),))
    quota.answered(go(quota, 1.0), 2.0, 200, info, 0.5)
    assert quota.snapshot(2.0, 0).limit == 500.0


def test_first_request_of_a_route_under_a_new_policy() -> None:
    """The price of a route is not the difference between units of two policies."""
    other = RateLimitInfo(limit=500.0, remaining=45.0, policies=(PolicyField(500.0, 3600.0),))
    for remaining in (45.0, 499.0):
        quota = started(50.0)
        reservation = go(quota, 1.0, route="/new")
        quota.answered(reservation, 2.0, 200, replace(other, remaining=remaining), 0.5)
        assert quota.costs.price("/new", None) == 1.0


@pytest.mark.parametrize(
    "info", [RateLimitInfo(limit=0.0, remaining=0.0), RateLimitInfo(policies=(PolicyField(0.0, 0.0),))]
)
def test_nonsense_policies_are_survived(info: RateLimitInfo) -> None:
    """A limit or window of zero divides nothing by zero and blocks nobody for ever."""
    quota = Quota()
    now = 0.0
    for _ in range(5):
        when = opens_at(quota, now, 1.0)
        assert when < inf
        now = max(now, when)
        quota.answered(go(quota, now), now, 200, info, 0.5)


def test_limits_of_the_user_are_kept_by_counting() -> None:
    """Never more than `amount` in any `per` seconds, without a header."""
    quota = Quota(limits=(Limit(3, 10),))
    quota.answered(go(quota, 0.0), 0.0, 200, RateLimitInfo(), 0.5)
    quota.answered(go(quota, 1.0), 1.0, 200, RateLimitInfo(), 0.5)
    quota.answered(go(quota, 1.0), 1.0, 200, RateLimitInfo(), 0.5)
    assert opens_at(quota, 1.0, 1.0) == 10.0
    go(quota, 10.0)
    assert opens_at(quota, 10.0, 1.0) == 11.0


def test_limit_of_the_user_is_used_at_once() -> None:
    """With a limit of the user, requests do not leave ever more at once in search of another one."""
    quota = Quota(limits=(Limit(50, 10),))
    quota.answered(go(quota, 0.0), 0.0, 200, RateLimitInfo(), 0.5)
    for _ in range(49):
        go(quota, 0.0)
    assert opens_at(quota, 0.0, 1.0) > 0.0


def test_lost_request_counts_against_a_limit_of_the_user() -> None:
    """A request without an answer is counted as sent."""
    quota = Quota(limits=(Limit(1, 10),))
    quota.lost(go(quota, 0.0), 0.0)
    assert opens_at(quota, 0.0, 1.0) > 0.0


def test_request_above_the_limit_needs_all_of_it() -> None:
    """A cost above the limit does not wait for ever."""
    quota = started(100.0)
    go(quota, 1.0, cost=1000.0)
    one = Policy(Balance(60.0, 60.0, reported=True), returns=Returns(TokenBucket()))
    one.balance.remaining, one.balance.recorded_at = 0.0, 0.0
    assert one.opens_at(0.0, 1000.0, 0.0) == one.opens_at(0.0, 60.0, 0.0)


@pytest.mark.parametrize("gain", [9.5, 9.75, 10.0, 11.0])
def test_drip_is_never_faster_than_announced(gain: float) -> None:
    """A response that shows nearly the whole drip does not make its pace faster than announced."""
    bucket, balance = TokenBucket(), Balance(100.0, 60.0, reported=True)
    balance.highest = 100.0
    bucket.measure(balance, gain, 10.0, 50.0)
    assert bucket.slowness == 1.0


def test_forecast_counts_what_is_ahead() -> None:
    """Behind 250 units with 100 a minute, the wait is two openings long."""
    quota = started(0.0, probe=False)
    assert quota.forecast(1.0, 251.0) == pytest.approx(60.0 + 2 * 60.0)
    assert quota.forecast(1.0, 1.0) == pytest.approx(60.0)
    assert started(50.0).forecast(1.0, 11.0) == 0.0


def test_forecast_includes_a_drip() -> None:
    """A forecast for a drip follows its pace."""
    one = Policy(Balance(60.0, 60.0, reported=True), returns=Returns(TokenBucket()))
    one.balance.remaining, one.balance.recorded_at = 0.0, 0.0
    assert one.wait_for(0.0, 30.0) == pytest.approx(30.0)
    bare = Policy(Balance(60.0))
    bare.balance.remaining, bare.balance.recorded_at, bare.reset.at = 0.0, 0.0, 5.0
    assert bare.wait_for(0.0, 1.0) == 5.0


def test_forecast_after_a_refusal_that_reports_nothing_left_and_no_limit() -> None:
    """The forecast is the wait of the refusal while the size of the limit is unknown."""
    quota = Quota()
    info = RateLimitInfo(remaining=0.0, retry_after=9.0)
    assert quota.answered(go(quota, 0.0), 1.0, 429, info, 0.5) is Verdict.QUOTA
    assert quota.forecast(1.0, 50.0) == quota.forecast(1.0, 50.0, least=True) == 9.0


def drained(kind: Kind, info: RateLimitInfo = RateLimitInfo()) -> Quota:  # noqa: B008 - frozen
    """Return a quota after costs of 1, 40 and 59 units, with responses at 1, 2 and 20."""
    quota = started(99.0)
    quota.answered(go(quota, 1.5, 40.0), 2.0, 200, reported(59.0), 0.5)
    quota.answered(go(quota, 19.0, 59.0), 20.0, 200, replace(reported(0.0), reset=info.reset), 0.5)
    quota._in_force.announced.known[0].returns.kind = kind
    return quota


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (SlidingLog(), {20.0: 0.0, 60.9: 0.0, 61.0: 1.0, 79.9: 41.0, 80.0: 100.0, 500.0: 100.0}),
        (FixedWindow(), {20.0: 0.0, 60.9: 0.0, 61.0: 100.0, 80.0: 100.0, 500.0: 100.0}),
        (TokenBucket(), {20.0: 0.0, 20.5: 0.0, 21.0: 1.0, 50.0: 50.0, 80.0: 100.0, 500.0: 100.0}),
    ],
)
def test_snapshot_counts_units_that_are_back(kind: Kind, expected: dict[float, float]) -> None:
    """While nothing is sent, a snapshot has the units back by then, as they return; at last the limit."""
    quota = drained(kind)
    assert {now: quota.snapshot(now, 0).remaining for now in expected} == expected
    assert quota.snapshot(500.0, 0).reset_at is None


def test_snapshot_follows_an_announced_reset() -> None:
    """All units are left at the time that a success announced, and none before."""
    quota = drained(SlidingLog(), RateLimitInfo(reset=10.0))
    assert [quota.snapshot(now, 0).remaining for now in (29.9, 30.0)] == [0.0, 100.0]
    assert quota.snapshot(29.0, 0).reset_at == 30.0


def test_snapshot_after_a_stop_has_no_more_units_than_are_back() -> None:
    """The wait of a refusal ends when the first unit is back: the others are not left yet."""
    quota = drained(SlidingLog())
    quota.answered(go(quota, 61.0), 61.5, 429, reported(0.0, retry_after=5.0), 0.5)
    assert quota.snapshot(70.0, 0).remaining == 0.0
    assert quota.snapshot(122.0, 0).remaining == 100.0


def test_snapshot_of_a_limit_of_the_user_shows_it_while_it_is_used_up() -> None:
    """A limit that is kept by counting alone is shown while it is used up, and no longer."""
    quota = Quota(limits=[Limit(2, per=10.0)])
    for _ in range(2):
        quota.answered(go(quota, 0.0), 1.0, 200, RateLimitInfo(), 0.5)
    assert (quota.snapshot(5.0, 0).remaining, quota.snapshot(5.0, 0).reset_at) == (0.0, 11.0)
    assert (quota.snapshot(12.0, 0).remaining, quota.snapshot(12.0, 0).reset_at) == (None, None)


def test_refused_request_costs_more_than_was_left() -> None:
    """A request that was refused alone costs a unit more than its refusal reports as left."""
    quota = started(50.0)
    quota.answered(go(quota, 1.0, route="/new"), 2.0, 429, reported(3.0, retry_after=5.0), 0.5)
    assert (quota.costs.price("/new", None), quota.costs.price("", None)) == (4.0, 1.0)


def test_price_that_no_response_shows_does_not_grow_with_the_uptime() -> None:
    """A price that no response shows is held as a thirtieth of the limit, however long that lasts."""
    quota, silent = Quota(), RateLimitInfo(limit=60.0, policies=(PolicyField(60.0, 60.0),))
    for now in range(1_000, 1_100, 10):
        quota.answered(go(quota, now), now + 1.0, 200, silent, 0.5)
    assert quota.costs.known("")
    assert quota.costs.price("", None) == pytest.approx(2.0)


def fly(policy: Policy, left: int, now: float, flight: list[str], order: random.Random) -> int:
    """Send requests at one time, answered in any order; return the units left at the server."""
    responses: list[int | None] = []
    for kind in flight:
        left -= kind != "uncounted"
        responses.append(left if kind == "reported" else None)
    order.shuffle(responses)
    for remaining in responses:
        if remaining is None:
            policy.spend(now, now + 0.5, 1.0, counted=order.random() < 0.5)
        else:
            policy.record(now, now + 0.5, remaining, 1.0, classify=False)
    return left


RESPONSES = st.lists(st.sampled_from(["reported", "torn", "uncounted"]), max_size=9)


@given(st.lists(RESPONSES, max_size=6), st.randoms(use_true_random=False))
def test_responses_without_a_remainder_count_until_one_reports_them(
    flights: list[list[str]], order: random.Random
) -> None:
    """As many units seem to be left as are, or fewer by those of silent responses of the last round trip."""
    policy, left = Policy(Balance(100.0, 60.0), sized=True), 100
    for now, flight in enumerate(flights):
        left = fly(policy, left, now, [*flight, "reported"], order)
        assert left - len(flight) + flight.count("reported") <= policy.balance.room(0.0) <= left


@given(st.permutations(range(20)), st.sampled_from([1, 5, 50]))
def test_costs_are_learned_whatever_the_order_of_answers(order: list[int], cost: int) -> None:
    """The gap to the next higher remainder is the price, in any order of responses."""
    costs = Costs()
    source = object()
    for place in order:
        costs.sample(source, "/a", 1000.0 - cost * place, 0.0, 1.0, fresh=False)
    costs.tally()
    assert costs.price("/a", None) == cost


def test_unknown_route_is_taken_for_expensive() -> None:
    """An unknown route costs as much as the most expensive one, or a given cost."""
    costs = Costs()
    assert costs.price("/new", None) == 1.0
    for level in range(100, 0, -10):
        costs.sample(costs, "/expensive", float(level), 0.0, 1.0, fresh=False)
    costs.tally()
    assert costs.price("/new", None) == 10.0
    assert costs.price("/new", 3.0) == 3.0
    assert costs.price("/expensive", 9.0) == 9.0
    assert costs.price("/expensive", 1.0) == 10.0


def test_new_price_is_learned() -> None:
    """A route that becomes more expensive is known to be so after some answers."""
    costs = Costs()
    level = 10_000.0
    for price in (1.0, 2.0):
        for _ in range(300):
            level -= price
            costs.sample(costs, "/a", level, 0.0, 1.0, fresh=False)
    costs.tally()
    assert costs.price("/a", None) == 2.0


def test_returned_units_do_not_blur_prices() -> None:
    """Responses before and after a return of units are not compared."""
    costs = Costs()
    now = 0.0
    for level in [9.0, 8.0, 7.0, 6.0, 600.0, 599.0, 598.0, 10.0, 9.0, 8.0]:
        costs.sample(costs, "/a", level, now, now + 1.0, fresh=level == 10.0)
        now += 1.0
    costs.sample("another", "/a", 5.0, now, now + 1.0, fresh=False)
    assert costs.price("/a", None) == 1.0


def passing(discovery: Discovery, at: float, number: int, cost: float = 1.0) -> None:
    """Let requests pass, one after the other."""
    for _ in range(number):
        discovery.send(at, cost)
        discovery.passed(at, at + 0.1, cost)


def refused(discovery: Discovery, at: float, opens: float) -> list[float]:
    """Refuse all tries from `at` until the limit opens; return when they were made."""
    tries, now = [at], at
    discovery.refused(now, now, 0.0, None)
    while (now := discovery.tries_at(now, 0.5)) < opens:
        tries.append(now)
        discovery.refused(now, now, 0.0, None)
    return [*tries, now]


def test_hidden_window_is_learned_from_two_refusals() -> None:
    """Two refusals after 100 requests each show 100 in 60 seconds, with few retries."""
    discovery = Discovery()
    passing(discovery, 0.0, 100)
    tries = refused(discovery, 0.2, 60.0)
    assert len(tries) <= 8
    assert tries[-1] == pytest.approx(60.1)
    passing(discovery, 60.0, 100)
    assert discovery.learned is None
    assert refused(discovery, 60.2, 120.0) == [60.2, pytest.approx(120.1)]
    passing(discovery, 120.0, 1)
    assert discovery.learned is not None
    assert (discovery.learned.limit, discovery.learned.window) == (100.0, 60.0)
    quota = Quota()
    quota._in_force.discovery = discovery
    assert (quota.snapshot(120.1, 0).limit, quota.snapshot(120.1, 0).window) == (100.0, 60.0)


def test_hidden_window_that_others_had_used_is_learned_whole() -> None:
    """The count before the first refusal is not the limit: others may have used it."""
    discovery = Discovery()
    passing(discovery, 0.0, 10)
    refused(discovery, 0.2, 10.0)
    passing(discovery, 10.0, 100)
    refused(discovery, 10.2, 20.0)
    passing(discovery, 20.0, 1)
    assert discovery.learned is not None
    assert (discovery.learned.limit, discovery.learned.window) == (100.0, 10.0)


@pytest.mark.parametrize("window", [1.0, 2.0, 5.0, 10.0])
def test_short_window_without_headers_is_no_drip(window: float) -> None:
    """A window of seconds is learned as one, and nothing is paced."""
    discovery = Discovery()
    passing(discovery, 0.0, 20)
    refused(discovery, 0.2, window)
    passing(discovery, window, 20)
    refused(discovery, window + 0.2, 2 * window)
    passing(discovery, 2 * window, 1)
    assert discovery.drip is None
    assert discovery.learned is not None
    assert (discovery.learned.limit, discovery.learned.window) == (20.0, window)


def test_learned_limit_grows_while_nothing_is_refused() -> None:
    """A limit that was learned too low is tried out, in growing steps."""
    limit = Balance(10.0, 10.0)
    trial = Trial(limit)
    now = 0.0
    for _ in range(20):
        now += 10.5
        limit.collect(now)
        while limit.backed(1.0, 0.0):
            limit.spend(now, now, 1.0)
            trial.passed(now)
    assert limit.limit >= 60.0


def test_refused_trial_is_taken_back_and_made_less_often() -> None:
    """A refused trial restores limit and window, and doubles the time to the next one."""
    limit = Balance(10.0, 10.0)
    trial = Trial(limit)
    now, trials = 0.0, []
    for number in range(60):
        now += 10.5
        limit.collect(now)
        while limit.backed(1.0, 0.0):
            limit.spend(now, now, 1.0)
            trial.passed(now)
            if limit.limit > 10.0 or (limit.window or 0.0) < 10.0:
                trials.append(number)
                trial.refused(now, 0.0)
        assert (limit.limit, limit.window) == (10.0, 10.0)
    assert 3 <= len(trials) <= 6


def test_hidden_drip_is_measured() -> None:
    """Much less between two refusals than before the first shows a drip, and its rate."""
    discovery = Discovery()
    passing(discovery, 0.0, 100)
    discovery.refused(0.0, 0.0, 0.0, None)
    passing(discovery, 0.6, 10)
    discovery.refused(1.0, 1.0, 0.0, None)
    assert discovery.drip is not None
    assert discovery.drip.rate == pytest.approx(9.5)
    passing(discovery, 1.6, 1)
    for _ in range(3):
        discovery.send(1.7, 1.0)
    assert discovery.opens_at(1.7, 1) > 1.7
    assert 1.0 < discovery.wait_for(1.7, 20.0) < 2.2
    assert discovery.wait_for(1.7, 20.0, least=True) < 0.3
    too_fast = discovery.drip.pace()
    discovery.refused(2.0, 2.0, 0.0, None)
    assert discovery.drip.pace() < too_fast
    assert discovery.wait_for(2.0, 20.0, least=True) < discovery.wait_for(2.0, 20.0)
    other = Drip.restored(discovery.drip.memory(2.0), 3.0)
    assert other.wait_for(3.0, 20.0, least=True) == discovery.wait_for(2.0, 20.0, least=True)


@pytest.mark.parametrize("rate", [0.5, 10.0, 200.0])
@pytest.mark.parametrize("burst", [1.0, 5.0, 40.0])
def test_drip_comes_near_to_the_rate(rate: float, burst: float) -> None:
    """Twelve refusals find a pace within 10 % of a bucket's rate, with any burst."""
    now, level, passed, refused_at = 0.0, 0.0, 1.0, -1.0
    drip = Drip(min(1.0, rate), now)
    for _ in range(12):
        while True:
            now, before = max(now, drip.next), now
            level = min(burst, level + (now - before) * rate)
            drip.send(now, 1.0)
            if level < 1.0:
                break
            level, passed = level - 1.0, passed + 1.0
        drip.refused(passed / (now - refused_at), passed)
        refused_at, now, passed = now, now + max(1.0, 1.0 / rate), 1.0
        level = min(burst, level + (now - refused_at) * rate) - 1.0
        drip.reopened(now)
    assert drip.pace() == pytest.approx(rate, rel=0.1)


def test_drip_that_nothing_refuses_is_disproved() -> None:
    """Requests at its pace make a drip faster, until it is disproved."""
    drip = Drip(10.0, 0.0)
    drip.refused(12.0, 100.0)
    for _ in range(100):
        drip.send(0.0, 1.0)
    assert not drip.disproved()
    for _ in range(2000):
        drip.send(0.0, 1.0)
    assert drip.disproved()


def test_drip_that_stops_for_long_begins_again() -> None:
    """A return of units only after many seconds ends a drip."""
    discovery = Discovery()
    passing(discovery, 0.0, 100)
    refused(discovery, 0.0, 1.0)
    passing(discovery, 1.0, 10)
    discovery.refused(1.5, 1.5, 0.0, None)
    assert discovery.drip is not None
    refused(discovery, 1.6, 100.0)
    passing(discovery, 130.0, 1)
    assert discovery.drip is None


def test_hidden_service_without_a_limit_is_used_ever_more() -> None:
    """More and more requests may be in flight without refusals, in bounded memory."""
    discovery = Discovery()
    for number in range(5000):
        discovery.send(float(number), 1.0)
        discovery.passed(float(number), number + 0.1, 1.0)
    assert discovery.most > 20


def test_answers_that_may_have_met_no_limiter_let_few_follow() -> None:
    """Errors of the client without any field are no reason to send many at once."""
    discovery = Discovery()
    for number in range(50):
        discovery.send(float(number), 1.0)
        discovery.passed(float(number), number + 0.1, 1.0, answered=False)
    assert discovery.most == 3.0


operations = st.lists(
    st.tuples(
        st.sampled_from(["send"] * 6 + ["ok", "refuse", "lose", "lose", "unsend", "error", "error"]),
        st.sampled_from([0.0, 0.0, 0.0, 0.3, 1.0]) | st.floats(0.0, 30.0),
        st.integers(0, 100),
    ),
    min_size=20,
    max_size=40,
)


@define
class Bound:
    """Most probes that may be in flight at once: 1, and 2, 4, 8 ... without a response."""

    most: int = 1
    sent: float = -inf  # the last one
    _in_flight: set[Reservation] = field(factory=set[Reservation])

    def send(self, reservation: Reservation, now: float) -> None:
        """Check a request that leaves, and count it if it is a probe."""
        number = len(self._in_flight)
        late = now >= self.sent + self.most  # a second at least for each, before another one follows
        assert not number or (reservation.probe and (number < self.most or late))
        if reservation.probe:
            self.most *= 1 if number < self.most else 2
            self.sent = now
            self._in_flight.add(reservation)

    def end(self, reservation: Reservation, what: str) -> None:
        """Allow twice as many after a lost probe, three at most after errors, one after a response.

        The response to a probe ends probing, whatever the others of them do.
        """
        probe = reservation in self._in_flight
        self._in_flight.discard(reservation)
        if what in ("ok", "refuse"):
            self.most = 1
            if probe:
                self._in_flight.clear()
        elif what == "lose" and reservation.required_probe:
            self.most *= 2
        elif what == "error" and reservation.required_probe:
            self.most = min(3, self.most + 1)


@given(operations, st.booleans())
def test_nothing_is_sent_in_a_stop_or_beside_a_probe(
    steps: list[tuple[str, float, int]], probe: bool
) -> None:
    """No grant in a stop; beside probes, as many more as were lost or are late; no dead end."""
    quota = Quota(20, (), probe)
    quota.costs.learned[""] = 1.0
    bound = Bound()
    flying: list[Reservation] = []
    now = 0.0
    for what, pause, number in steps:
        now += pause
        if what == "send":
            when = opens_at(quota, now, 1.0)
            assert when >= quota.stopped_until or when == inf
            if when <= now:
                flying.append(go(quota, now))
                bound.send(flying[-1], now)
        elif flying:
            reservation = flying.pop(number % len(flying))
            bound.end(reservation, what)
            end(quota, reservation, now, what, number)
        assert quota.in_flight == len(flying)
    for reservation in flying:
        quota.lost(reservation, now)
    assert opens_at(quota, now, 1.0) < inf


@pytest.mark.parametrize(("what", "numbers"), [("lose", [1, 2, 4, 8, 16]), ("error", [1, 2, 3, 3, 3])])
def test_probes_at_once_after_each_one_that_failed(what: str, numbers: list[int]) -> None:
    """After each lost probe twice as many leave at once; after errors of the service, three at most."""
    quota = Quota()
    for number in numbers:
        probes = list[Reservation]()
        while opens_at(quota, 0.0, 1.0) <= 0.0:
            probes.append(go(quota, 0.0))
        assert len(probes) == number
        end(quota, probes.pop(), 0.0, what, 0)
        for probe in probes:
            quota.unsent(probe)


def test_requests_leave_after_thousands_that_were_lost() -> None:
    """A request leaves at once however many were lost before it, and a response ends the doubling."""
    quota = Quota()
    for _ in range(3_000):
        quota.lost(go(quota, 0.0), 0.0)
    end(quota, go(quota, 0.0), 0.0, "ok", 90)
    assert opens_at(quota, 0.0, 1.0) == 0.0


def walk(quota: Quota, seed: int, steps: int = 1500) -> Iterator[float]:
    """Send requests and end them at random; yield the time before each step."""
    rng = random.Random(seed)
    flying = list[Reservation]()
    now = 0.0
    for _ in range(steps):
        now += rng.choice([0.0, 0.0, 0.1, 1.0, 30.0])
        yield now
        what = rng.choice(["send"] * 6 + ["ok"] * 6 + ["refuse", "refuse route", "lose", "unsend", "error"])
        step(quota, flying, now, what, rng.choice([0, 0, 1, 2, 90]))


@pytest.mark.parametrize("seed", range(6))
def test_decisions_change_nothing(seed: int) -> None:
    """Deciding about requests leaves each field of a quota as it was."""
    quota = Quota(20, (Limit(30.0, 20.0),) if seed % 2 else (), probe=seed % 3 > 0)
    for now in walk(quota, seed):
        quota.forecast(now, 1.0)  # counts what came back by now
        before = pickle.dumps(quota)
        for cost in (0.0, 1.0, 200.0):
            quota.decide(now, cost)
            quota.room(now)
        assert pickle.dumps(quota) == before


def step(quota: Quota, flying: list[Reservation], now: float, what: str, number: int) -> None:
    """Send a request if one may leave, or end one of those in flight."""
    if what == "send":
        if opens_at(quota, now, 1.0) <= now:
            flying.append(go(quota, now))
    elif flying:
        end(quota, flying.pop(number % len(flying)), now, what, number)


def end(quota: Quota, reservation: Reservation, now: float, what: str, number: int) -> None:
    """End a request in a random way."""
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

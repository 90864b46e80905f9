"""Scheduler, the pure part of the gate: turns of waiting requests, without a loop."""

from __future__ import annotations

from itertools import count
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chainapi.core.limits.group import Group, Places
from chainapi.core.limits.info import PolicyField, RateLimitInfo
from chainapi.core.limits.quota import Quota
from chainapi.core.limits.reservation import Reservation
from chainapi.core.limits.scheduler import Due, Granted, Scheduler, Step, TooLate, Unanswered, Wait
from chainapi.core.limits.ticket import Ticket

MINUTE = (PolicyField(100.0, 60.0),)
numbers = count()


class Caller(Ticket):
    """Request whose caller may give up."""

    gave_up: bool = False

    @property
    def over(self) -> bool:
        """Whether the caller gave up."""
        return self.gave_up


class Bucket:
    """Ceiling of a session that has room for a request after some seconds."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def toll(self, units: float, requests: float = 1.0) -> float:
        """Return a token for each request."""
        return requests

    def ready(self, toll: float) -> bool:
        """Return whether it needs no time."""
        return not self.seconds

    def wait(self, toll: float) -> float:
        """Return the seconds of all the tokens."""
        return self.seconds * toll


def reported(remaining: float, retry_after: float | None = None) -> RateLimitInfo:
    """Return the limit headers of a service with 100 units a minute."""
    return RateLimitInfo(100.0, remaining, None, retry_after, MINUTE)


def opened(remaining: float = 100.0, max_in_flight: int = 100) -> Scheduler[Caller]:
    """Return a scheduler of a known quota: a first request was answered at 1."""
    scheduler: Scheduler[Caller] = Scheduler(Quota(max_in_flight))
    scheduler.quota.costs.learned.update({"": 1.0, "other": 1.0, "expensive": 50.0})
    first = scheduler.reserve(0.0, "", None)
    assert first is not None
    scheduler.answered(first, 1.0, 200, reported(remaining), 0.5)
    return scheduler


def caller(
    scheduler: Scheduler[Caller],
    route: str = "",
    *,
    rank: float = 0.0,
    latest: float = inf,
    ceiling: Bucket | None = None,
) -> Caller:
    """Put a request in the queue, which may wait until a time."""
    ticket = Caller(next(numbers), rank, route, None, ceiling=ceiling)
    ticket.deadline = latest
    scheduler.queue.add(ticket)
    return ticket


def granted(steps: list[Step[Caller]]) -> list[Caller]:
    """Return the requests of the grants among some steps."""
    return [step.ticket for step in steps if isinstance(step, Granted)]


def reserved(scheduler: Scheduler[Caller], now: float, route: str = "") -> Reservation:
    """Return the reservation of a request that may leave at once."""
    reservation = scheduler.reserve(now, route, None)
    assert reservation is not None
    return reservation


def test_round_grants_what_is_left_and_waits_for_the_rest() -> None:
    """As many requests leave as units are left, in their order; then the round has a wait."""
    scheduler = opened(2.0)
    first, second, third = [caller(scheduler) for _ in range(3)]
    steps = list(scheduler.round(1.0))
    assert granted(steps) == [first, second]
    assert [step.reservation.cost for step in steps if isinstance(step, Granted)] == [1.0, 1.0]
    assert scheduler.queue.all() == [third]
    assert scheduler.quota.in_flight == 2


def test_wait_is_reported_once_and_kept_for_newcomers() -> None:
    """A stop yields one wait with its end and reason; later rounds keep it without a report."""
    scheduler = opened()
    scheduler.answered(reserved(scheduler, 1.0), 2.0, 429, reported(0.0, 30.0), 0.5)
    caller(scheduler)
    wait = Wait(32.0, "stop")
    assert list(scheduler.round(2.0)) == [wait]
    assert scheduler.wakes_at == 32.0
    assert list(scheduler.round(3.0)) == []
    assert scheduler.wait == wait
    assert len(granted(list(scheduler.round(32.0)))) == 1
    assert scheduler.wait is None


def test_short_wait_is_not_reported() -> None:
    """A wait of less than a second wakes the scheduler, without a report."""
    scheduler = opened()
    scheduler.answered(reserved(scheduler, 1.0), 2.0, 429, reported(0.0, 30.0), 0.5)
    caller(scheduler)
    assert list(scheduler.round(31.5)) == []
    assert (scheduler.wakes_at, scheduler.wait) == (32.0, None)


def test_wait_for_a_probe_is_not_reported() -> None:
    """While a probe is in flight, the scheduler wakes for the next one, without a report."""
    scheduler: Scheduler[Caller] = Scheduler(Quota())
    reserved(scheduler, 0.0)
    caller(scheduler)
    assert list(scheduler.round(0.0)) == []
    assert scheduler.wait is None
    assert 0.0 < scheduler.wakes_at < inf


def test_empty_queue_needs_no_round() -> None:
    """After a round that serves all, no time is set."""
    scheduler = opened()
    caller(scheduler)
    assert len(list(scheduler.round(1.0))) == 1
    assert scheduler.wakes_at == inf


def test_caller_that_gave_up_gets_no_turn() -> None:
    """A request whose caller gave up leaves the queue, and the next one gets its turn."""
    scheduler = opened(1.0)
    gone, waits = caller(scheduler), caller(scheduler)
    gone.gave_up = True
    assert granted(list(scheduler.round(1.0))) == [waits]
    assert scheduler.queue.waiting == 0


def test_request_pays_its_ceiling_before_its_grant() -> None:
    """A request with a ceiling is due first, and others pass it; once paid, it is granted."""
    scheduler = opened()
    pays, passes = caller(scheduler, ceiling=Bucket(3.0)), caller(scheduler)
    due, grant = scheduler.round(1.0)
    assert isinstance(due, Due)
    assert (due.ticket, due.seconds) == (pays, 3.0)
    assert granted([grant]) == [passes]
    assert list(scheduler.round(1.0)) == []
    pays.paid = True
    scheduler.queue.step_in(pays)
    assert granted(list(scheduler.round(4.0))) == [pays]


def test_request_does_not_pay_while_the_quota_holds_it_back() -> None:
    """A ceiling is paid at the turn of a request, not in a stop."""
    scheduler = opened()
    scheduler.quota.hold_back(10.0)
    caller(scheduler, ceiling=Bucket(3.0))
    assert list(scheduler.round(1.0)) == [Wait(10.0, "stop")]
    assert scheduler.wakes_at == 10.0
    assert isinstance(next(iter(scheduler.round(10.0))), Due)


def test_closed_route_is_parked_until_it_opens() -> None:
    """Requests of a refused route wait for its time; those of other routes leave."""
    scheduler = opened()
    scheduler.answered(reserved(scheduler, 1.0), 2.0, 429, reported(90.0, 20.0), 0.5)
    closed, other = caller(scheduler), caller(scheduler, "other")
    assert granted(list(scheduler.round(2.0))) == [other]
    assert scheduler.wakes_at == 22.0
    assert granted(list(scheduler.round(22.0))) == [closed]


def test_wait_for_closed_routes_alone_is_reported() -> None:
    """While all requests wait for closed routes and none is in flight, their wait is reported once."""
    scheduler = opened()
    scheduler.answered(reserved(scheduler, 1.0), 2.0, 429, reported(90.0, 20.0), 0.5)
    caller(scheduler)
    assert list(scheduler.round(2.0)) == [Wait(22.0, "stop")]
    assert scheduler.wait == Wait(22.0, "stop")
    assert list(scheduler.round(3.0)) == []
    assert len(granted(list(scheduler.round(22.0)))) == 1
    assert scheduler.wait is None


def test_wait_for_a_closed_route_beside_others_is_not_reported() -> None:
    """While requests of other routes are in flight, a closed route is no wait of the service."""
    scheduler = opened()
    scheduler.answered(reserved(scheduler, 1.0), 2.0, 429, reported(90.0, 20.0), 0.5)
    reserved(scheduler, 2.0, "other")
    caller(scheduler)
    assert list(scheduler.round(2.0)) == []
    assert scheduler.wait is None


def test_a_shorter_wait_is_reported_after_a_longer_one() -> None:
    """A stop is reported although the wait for a closed route, reported before, ends later."""
    scheduler = opened()
    scheduler.answered(reserved(scheduler, 1.0), 2.0, 429, reported(90.0, 200.0), 0.5)
    caller(scheduler)
    assert list(scheduler.round(2.0)) == [Wait(202.0, "stop")]
    scheduler.quota.hold_back(32.0)
    caller(scheduler, "other")
    assert list(scheduler.round(2.0)) == [Wait(32.0, "stop")]
    assert len(granted(list(scheduler.round(32.0)))) == 1


def test_request_of_a_closed_route_that_cannot_wait_fails() -> None:
    """A request whose route opens after its deadline fails at once, with the wait of a new attempt."""
    scheduler = opened()
    scheduler.answered(reserved(scheduler, 1.0), 2.0, 429, reported(90.0, 20.0), 0.5)
    late = caller(scheduler, latest=5.0)
    (step,) = scheduler.round(2.0)
    assert isinstance(step, TooLate)
    assert step.ticket is late
    assert step.seconds == pytest.approx(20.0, abs=0.5)
    assert scheduler.queue.waiting == 0


@pytest.mark.parametrize("others", [0, 1])
def test_round_fails_requests_that_will_be_late(others: int) -> None:
    """A stop that begins while requests wait fails those that cannot wait so long, and no other.

    Whether others are in flight makes no difference.
    """
    scheduler = opened(max_in_flight=1 + others)
    busy, *_ = [reserved(scheduler, 1.0) for _ in range(1 + others)]
    patient, late, gone = caller(scheduler), caller(scheduler, latest=10.0), caller(scheduler, latest=10.0)
    assert list(scheduler.round(1.0)) == []
    gone.gave_up = True  # and its task did not run yet
    scheduler.answered(busy, 2.0, 429, reported(0.0, 30.0), 0.5)
    wait, failed = scheduler.round(2.0)
    assert wait == Wait(32.0, "stop")
    assert isinstance(failed, TooLate)
    assert failed.ticket is late
    assert failed.seconds == pytest.approx(30.0 + others)  # the round trip of the one in flight
    assert scheduler.queue.all() == [patient, gone]


def test_request_that_was_held_up_by_others_in_flight_is_not_late_just_before_its_turn() -> None:
    """A request whose time is over, because no place in flight was free, stays if its turn is close."""
    scheduler = opened()
    scheduler.quota.hold_back(10.0)
    caller(scheduler, latest=5.0)
    assert list(scheduler.round(9.96)) == []
    assert len(granted(list(scheduler.round(10.0)))) == 1


def test_cheap_requests_use_units_too_few_for_an_expensive_one() -> None:
    """Cheap requests pass an expensive one while it cannot leave, and use what is left, no more."""
    scheduler = opened(10.0)
    expensive = caller(scheduler, "expensive")
    cheap = [caller(scheduler) for _ in range(40)]
    assert granted(list(scheduler.round(1.0))) == cheap[:10]
    assert expensive.passed == 10.0
    assert scheduler.queue.first() is expensive


def test_cheap_requests_use_at_most_the_cost_of_the_expensive_one() -> None:
    """An expensive request that others passed for its whole cost lets no more of them pass."""
    scheduler = opened(10.0)
    expensive = caller(scheduler, "expensive")
    cheap = [caller(scheduler) for _ in range(40)]
    expensive.passed = 47.0
    assert granted(list(scheduler.round(1.0))) == cheap[:3]


def test_forecast_counts_the_queue_the_route_and_the_ceiling() -> None:
    """The wait of a request is the longest of those by its quota, its route and its ceiling."""
    scheduler = opened()
    wait = scheduler.deadlines.wait
    first, paced = caller(scheduler), caller(scheduler, ceiling=Bucket(4.0))
    assert wait(1.0, first) == 0.0
    assert wait(1.0, paced) == 8.0  # two requests in all pay
    scheduler.answered(reserved(scheduler, 1.0, "other"), 2.0, 429, reported(90.0, 20.0), 0.5)
    assert wait(2.0, caller(scheduler, "other")) == 20.0
    scheduler.quota.hold_back(32.0)
    assert wait(2.0, first) == 30.0


@pytest.mark.parametrize(("latest", "misses"), [(11.0, True), (11.9, True), (11.96, False), (inf, False)])
def test_newcomer_misses_its_deadline_if_the_limits_end_later(latest: float, misses: bool) -> None:
    """A new request fails at once if the limits end later than it may wait, by 0.05 s at least."""
    scheduler = opened()
    scheduler.quota.hold_back(12.0)
    ticket = Caller(next(numbers), 0.0, "", None)
    ticket.waits_until = latest
    assert scheduler.deadlines.misses(1.0, ticket) is misses
    assert scheduler.deadlines.again(1.0, ticket) == 11.0


def test_processes_divide_the_places_for_requests_of_a_rank() -> None:
    """Those with requests of a rank or of a better one divide the places for it; retries are the best."""
    most = Places(10, [-1.0, 0.0, 0.0, 5.0]).most
    assert [most(rank) for rank in (-inf, -1.0, 0.0, 5.0, 9.0)] == [inf, inf, 4, 3, 3]
    assert Places(10, [0.0, 0.0, 5.0]).most(-inf) == 5


@pytest.mark.parametrize(("most", "seconds"), [(inf, (2.0, 3.0)), (1.0, (4.0, 5.0))])
def test_those_that_wait_for_places_in_flight_clear_in_round_trips(
    most: float, seconds: tuple[float, float]
) -> None:
    """With two places, or one for a group, the waiters leave as fast as places are free."""
    scheduler = opened(max_in_flight=2)
    for _ in range(2):
        reserved(scheduler, 1.0)
    for _ in range(4):
        caller(scheduler)
    ticket = Caller(next(numbers), 0.0, "", None, Group(most))
    cleared = scheduler.deadlines.cleared
    assert (cleared(1.0, ticket, joins=False), cleared(1.0, ticket, joins=True)) == seconds


@given(st.floats(1.0, 60.0), st.floats(0.0, 100.0))
def test_overdue_request_fails_unless_its_turn_is_close(stop: float, waited: float) -> None:
    """After `max_wait`, a request fails with the time left of a stop, and stays if the stop is over."""
    scheduler = opened()
    scheduler.quota.hold_back(1.0 + stop)
    ticket = caller(scheduler)
    ticket.max_wait = waited
    failed = scheduler.overdue(1.0 + waited, ticket)
    if stop - waited > 0.06:
        assert isinstance(failed, TooLate)
        assert failed.seconds == pytest.approx(stop - waited)
        assert not ticket.queued
    elif stop - waited < 0.04:
        assert failed is None
        assert ticket.queued


def test_overdue_request_fails_if_the_service_hangs() -> None:
    """With a place among the requests in flight all that lacks, `max_wait` counts silence of five seconds."""
    scheduler = opened(max_in_flight=1)
    reserved(scheduler, 1.0)
    ticket = caller(scheduler)
    ticket.max_wait = 2.0
    assert scheduler.overdue(3.0, ticket) is None
    failed = scheduler.overdue(6.0, ticket)
    assert isinstance(failed, Unanswered)
    assert failed.seconds == 5.0
    assert not ticket.queued


def test_responses_to_others_show_that_the_service_works() -> None:
    """Each response begins the silence again, and without requests in flight no silence counts."""
    scheduler = opened(max_in_flight=2)
    one, _ = reserved(scheduler, 1.0), reserved(scheduler, 1.0)
    ticket = caller(scheduler)
    ticket.max_wait = 2.0
    scheduler.answered(one, 4.0, 200, reported(98.0), 0.5)
    reserved(scheduler, 5.0)
    assert scheduler.overdue(8.0, ticket) is None
    assert isinstance(scheduler.overdue(9.0, ticket), Unanswered)


def test_surplus_is_what_is_left_beside_those_in_flight() -> None:
    """The surplus is in requests: units left by cost, places in flight at most, 0 while any waits."""
    scheduler = opened(40.0, max_in_flight=30)
    assert scheduler.surplus(1.0, "", None) == 30
    assert scheduler.surplus(1.0, "expensive", None) == pytest.approx(0.8)
    reserved(scheduler, 1.0)
    assert scheduler.surplus(1.0, "", None) == 29
    assert scheduler.surplus(1.0, "unknown", None) == 0.0
    caller(scheduler)
    assert scheduler.surplus(1.0, "", None) == 0.0


def test_adopted_request_is_the_probe_while_nothing_is_known() -> None:
    """A request that left by another permit is the probe at first, and later one of many."""
    scheduler: Scheduler[Caller] = Scheduler(Quota())
    probe = scheduler.adopt(-0.5, "", None)
    assert (probe.probe, probe.sent) == (True, -0.5)
    assert scheduler.reserve(0.0, "", None) is None
    scheduler.answered(probe, 0.5, 200, reported(99.0), 0.5)
    scheduler.quota.costs.learned[""] = 1.0
    assert not scheduler.adopt(0.5, "", None).probe

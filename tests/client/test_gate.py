"""Gate: order, stops, cancellation, waiting times, ceilings, members of several sessions and processes."""

from __future__ import annotations

import asyncio
import random
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from aiolimiter import AsyncLimiter
from hypothesis import given, settings
from hypothesis import strategies as st

from chainapi import Limit
from chainapi._limits.gate import Ask, Gate, Member, Permit, WaitingLimit
from chainapi._limits.headers import PolicyField, RateLimitInfo
from chainapi._limits.member import Ceiling
from chainapi._limits.quota import Quota, Reservation
from chainapi._limits.verdict import Verdict
from chainapi.errors import APITimeoutError, QueueFullError, QuotaWaitError
from chainapi.testing import VirtualLoop
from tests.client.services import time
from tests.limits.outside import FORMS, inner_scene, many, random_scene, scene
from tests.limits.runs import Case, Client, gate, play
from tests.limits.servers import Bucket, Clocked, FromFirst, Gcra, Response, Server, SlidingLog
from tests.limits.wild import Errand, Front
from tests.share.exchange import Exchange
from tests.share.responses import end
from tests.share.responses import headers as reported
from tests.share.test_shared_gate import processes

pytestmark = pytest.mark.rule


async def opened(remaining: float = 99.0, stop: float | None = None, **options: Any) -> Gate:
    """Return a gate whose first request was answered; `stop` is the retry-after of a 429 that followed."""
    gate = Gate(**options)
    (await gate.acquire(Ask())).answered(200, reported(remaining))
    if stop is not None:
        (await gate.acquire(Ask())).answered(429, reported(0, stop))
    return gate


class Line:
    """Requests that wait at a gate, and their numbers in the order in which they leave."""

    def __init__(self, gate: Gate, *asks: Ask) -> None:
        self.gate, self.tasks, self.order = gate, list[asyncio.Task[None]](), list[int]()
        self.join(*asks)

    def join(self, *asks: Ask) -> None:
        """Let more requests wait, once they run."""
        for ask in asks:
            self.tasks.append(asyncio.create_task(self._leave(len(self.tasks), ask)))

    async def _leave(self, number: int, ask: Ask) -> None:
        permit = await self.gate.acquire(ask)
        self.order.append(number)
        permit.answered(200, reported(90 - number))


async def test_stop_between_grant_and_resumption_is_honoured() -> None:
    """A granted task that did not run yet returns to its place at a stop."""
    gate = await opened(max_in_flight=3)
    first, second, third = [await gate.acquire(Ask()) for _ in range(3)]
    line = Line(gate, Ask(), Ask(), Ask())
    await asyncio.sleep(1)
    first.answered(200, reported(90))
    second.answered(200, reported(89))
    third.answered(429, reported(0, 5))
    await asyncio.sleep(4.9)
    assert line.order == []
    await asyncio.gather(*line.tasks)
    assert line.order == [0, 1, 2]
    assert time() == pytest.approx(6, abs=1e-4)


async def test_refused_request_goes_first_and_priority_before_the_rest() -> None:
    """After a stop the refused request leaves first, then urgent ones, then the rest."""
    gate = await opened(stop=5)
    line = Line(gate, Ask(), Ask(), Ask(priority=1), Ask(again=True))
    await asyncio.gather(*line.tasks)
    assert line.order == [3, 2, 0, 1]


async def test_session_that_allows_more_in_flight_lets_others_leave_at_once() -> None:
    """When a session joins that allows more requests in flight, waiting ones leave at once."""
    gate = await opened()
    (await gate.acquire(Ask())).answered(200, reported(98))
    small, large = Member(max_in_flight=2), Member(max_in_flight=5)
    gate.join(small)
    tasks = [asyncio.create_task(gate.acquire(Ask())) for _ in range(6)]
    await asyncio.sleep(1)
    assert sum(task.done() for task in tasks) == 2
    gate.join(large)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert sum(task.done() for task in tasks) == 5
    (await tasks[0]).answered(200, reported(97))
    for task in tasks:
        (await task).unsent()


@pytest.mark.parametrize("limit", [1, 2, 3])
@pytest.mark.parametrize("probe", [False, True])
async def test_retry_after_does_not_count_the_request_itself(limit: int, probe: bool) -> None:
    """A request that waited in vain may come again when the window ends, not one window later."""
    gate = Gate(random=lambda: 0.5, probe=probe)
    for number in range(limit):
        permit = await gate.acquire(Ask())
        await asyncio.sleep(0.1)
        policies = (PolicyField(limit, 60.0),)
        permit.answered(200, RateLimitInfo(limit, limit - 1 - number, None, None, policies))
    with pytest.raises(QuotaWaitError) as caught:
        await gate.acquire(Ask(max_wait=1))
    assert 59 <= caught.value.retry_after <= 60.1
    await asyncio.sleep(caught.value.retry_after)
    (await gate.acquire(Ask(max_wait=1))).unsent()


async def test_max_wait_bounds_the_payment_of_a_ceiling() -> None:
    """A call whose tokens others take fails after its `max_wait`, and the next one has its turn."""
    bucket = AsyncLimiter(1, 10.0)
    gate = Gate(rate=bucket)
    await bucket.acquire()
    late = asyncio.create_task(gate.acquire(Ask(max_wait=12.0)))
    patient = asyncio.create_task(gate.acquire(Ask()))
    others = asyncio.gather(*(bucket.acquire(0.9) for _ in range(3)))  # the bucket lets smaller tolls pass
    with pytest.raises(QuotaWaitError):
        await late
    assert time() == pytest.approx(12.05)
    (await patient).unsent()
    await others
    assert time() == pytest.approx(37, abs=0.1)


async def test_ceiling_refuses_none_that_may_leave_in_time() -> None:
    """A dear call that has to wait for a few tokens is not refused for the time of all of them."""
    gate = Gate(rate=Limit(10, 10, units=True))
    for cost, left in ((1, 999.0), (10, 989.0)):
        (await gate.acquire(Ask(f"/{cost}", cost=cost))).answered(200, RateLimitInfo(1000.0, left))
    await asyncio.sleep(9)
    (await gate.acquire(Ask("/10", cost=10, max_wait=1.0))).unsent()
    with pytest.raises(QuotaWaitError):
        await gate.acquire(Ask("/20", cost=20, max_wait=5.0))


async def test_cancelled_head_of_the_queue_does_not_hold_up_the_rest() -> None:
    """The next waiter's own cost decides after the first one leaves."""
    gate = await opened(60.0)
    (await gate.acquire(Ask("/dear", 50))).answered(200, reported(10))
    expensive = asyncio.create_task(gate.acquire(Ask("/dear", 50)))
    await asyncio.sleep(0)
    gate_is_held = asyncio.create_task(gate.acquire(Ask("/cheap", 10)))
    await asyncio.sleep(0.1)
    expensive.cancel()
    (await gate_is_held).unsent()
    assert time() < 1


async def test_permit_ends_once() -> None:
    """Only the first end of a permit counts."""
    gate = await opened()
    permit = await gate.acquire(Ask())
    permit.answered(200, reported(50))
    permit.lost()
    permit.unsent()
    permit.answered(429, reported(0, 60))
    state = gate.snapshot()
    assert (state.remaining, state.in_flight, state.stopped_for) == (50, 0, 0)


async def test_cheap_requests_pass_an_expensive_one_but_not_for_ever() -> None:
    """Units too few for an expensive request go to cheaper ones, up to its cost: these are not refused."""
    gate = await opened(30.0)
    (await gate.acquire(Ask("/cheap", cost=1))).answered(200, reported(29))
    (await gate.acquire(Ask(cost=19))).answered(200, reported(10))
    expensive = asyncio.create_task(gate.acquire(Ask(cost=20)))
    await asyncio.sleep(0)
    cheap = [gate.acquire(Ask("/cheap", cost=1, max_wait=0)) for _ in range(15)]
    outcomes = await asyncio.gather(*cheap, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [Permit] * 10 + [QuotaWaitError] * 5
    assert not expensive.done()
    expensive.cancel()


async def test_suspended_machine_sends_no_burst_above_the_budget() -> None:
    """The probe still leaves alone when the clock jumps in a wait."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    gate = await opened(stop=5)
    waiting = [asyncio.create_task(gate.acquire(Ask())) for _ in range(10)]
    await asyncio.sleep(1)
    loop.jump(3600)
    await asyncio.sleep(1)
    assert sum(task.done() for task in waiting) == 1
    for task in waiting:
        task.cancel()


@settings(max_examples=40, deadline=None)
@given(
    st.integers(0, 10**6),
    st.sampled_from([FromFirst, SlidingLog]),
    st.integers(5, 60),
    st.integers(1, 40),
    st.lists(st.sampled_from([1.0, 1.0, 3.0, 10.0]), min_size=1, max_size=150),
)
def test_random_jobs_are_finished(
    seed: int, kind: type[Server], limit: int, in_flight: int, costs: list[float]
) -> None:
    """Random jobs are all served, with stops honoured and the queue drained, although some hang or leave."""
    rng = random.Random(seed)
    leaves = {number: rng.uniform(0, 100) for number in range(len(costs)) if rng.random() < 0.2}
    case = Case(
        *("", partial(kind, float(limit), 30.0), [min(cost, limit) for cost in costs], len(costs)),
        tail=True,
        trip=0.3,
        hangs=lambda: lambda _: rng.random() < 0.03,
        timeout=5.0,
        in_flight=in_flight,
        leaves=leaves,
        seed=seed,
    )
    outcome = gate(case, limit=100_000)
    assert {*range(len(costs))} <= outcome.finished.keys() | leaves.keys()
    assert (outcome.hung, outcome.rest, outcome.in_stops) == (False, 0, 0)


async def test_session_that_is_closed_while_it_pays_holds_nobody() -> None:
    """A session closed while it pays its ceiling leaves no trace in the queue."""
    gate, stays = Gate(), Member()
    leaves = Member(rate=Limit(1, per=100.0))
    for member in (stays, leaves):
        gate.join(member)
    (await gate.acquire(Ask(), leaves)).answered(200, reported(99))
    paying = [asyncio.create_task(gate.acquire(Ask(), leaves)) for _ in range(3)]
    await asyncio.sleep(1)
    for task in paying:
        task.cancel()
    await asyncio.wait(paying)
    gate.leave(leaves)
    (await gate.acquire(Ask(), stays)).answered(200, reported(98))
    assert time() < 1.1
    assert (gate.snapshot().waiting, gate.snapshot().in_flight) == (0, 0)


async def test_who_was_granted_leaves_before_a_newcomer() -> None:
    """A new request does not pass one that was granted but did not run yet."""
    gate = Gate()
    probe = await gate.acquire(Ask())
    line = Line(gate, Ask())
    await asyncio.sleep(0)
    line.join(Ask())
    probe.lost()  # now two may leave
    await asyncio.gather(*line.tasks)
    assert line.order == [0, 1]


def test_work_for_a_call_with_max_wait_does_not_grow_with_their_number() -> None:
    """The function calls for each of many calls that a stop makes too late do not grow with their number."""

    async def steps(number: int) -> float:
        gate, calls, began = Gate(max_in_flight=1), 0, time()
        (await gate.acquire(Ask())).answered(
            200, RateLimitInfo(1e6, 9e5, None, None, (PolicyField(1e6, 60.0),))
        )

        def count(*event: object) -> None:
            nonlocal calls
            calls += event[1] == "call"

        flying = await gate.acquire(Ask())
        tasks = [asyncio.create_task(gate.acquire(Ask(max_wait=90.0 + n / number))) for n in range(number)]
        sys.setprofile(count)
        await asyncio.sleep(1.0)
        flying.answered(429, reported(0, 600))
        errors = await asyncio.gather(*tasks, return_exceptions=True)
        sys.setprofile(None)
        assert {type(error) for error in errors} == {QuotaWaitError}
        assert time() - began == pytest.approx(1.0)
        return calls / number

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        few, many = runner.run(steps(100)), runner.run(steps(1_000))
    assert many < 1.2 * few


async def test_call_whose_ceiling_has_room_is_not_refused() -> None:
    """A call of a session with `rate` leaves at once while the rate and the quota allow it."""
    gate, limit = Gate(random=lambda: 0.5), WaitingLimit(0)
    member = Member(rate=Limit(2, per=10.0))
    gate.join(member)
    for _ in range(2):
        (await gate.acquire(Ask(limit=limit), member)).answered(200, reported(90))
    with pytest.raises(QueueFullError) as caught:
        await gate.acquire(Ask(limit=limit), member)
    assert caught.value.retry_after == pytest.approx(5.0)
    await asyncio.sleep(5.1)
    (await gate.acquire(Ask(limit=limit), member)).answered(429, reported(0, 30.0))
    await asyncio.sleep(15.0)
    with pytest.raises(QueueFullError):
        await gate.acquire(Ask(limit=limit), member)
    await asyncio.sleep(15.1)
    paying = asyncio.create_task(gate.acquire(Ask(limit=limit), member))
    (await paying).unsent()


async def test_places_of_those_that_left_are_free() -> None:
    """A cancelled call, a late one and a granted one leave a place to the next."""
    gate, limit = await opened(stop=20), WaitingLimit(3)
    line = Line(gate, Ask(limit=limit), Ask(limit=limit), Ask(limit=limit, max_wait=20.5))
    await asyncio.sleep(0)
    gate.hold_back(60.0)
    with pytest.raises(QuotaWaitError, match="max_wait"):
        await line.tasks[2]
    line.tasks[0].cancel()
    await asyncio.sleep(0)
    line.join(Ask(limit=limit), Ask(limit=limit))
    await asyncio.sleep(0)
    with pytest.raises(QueueFullError):
        await gate.acquire(Ask(limit=limit))
    await asyncio.gather(*line.tasks, return_exceptions=True)
    assert line.order == [1, 3, 4]
    assert gate.snapshot().waiting == 0


KINDS: list[Callable[[], Server]] = [
    partial(kind, 60.0, 10.0) for kind in (FromFirst, Clocked, SlidingLog, Bucket, Gcra)
]


@pytest.mark.parametrize(
    ("most", "settings"), [(0, {}), (1, {"max_in_flight": 2}), (25, {"rate": Limit(5, per=1.0)})]
)
@pytest.mark.parametrize("server", KINDS)
async def test_call_is_not_refused_again_at_the_time_that_it_was_given(
    server: Callable[[], Server], most: int, settings: dict[str, object]
) -> None:
    """If nobody else comes, a refused call is admitted at its `retry_after`."""
    service, gate, limit = server(), Gate(random=lambda: 0.5), WaitingLimit(most)
    member = Member(**settings)  # type: ignore[arg-type]
    gate.join(member)
    refused: list[tuple[float, float]] = []

    async def call() -> None:
        again = False
        while True:
            try:
                permit = await gate.acquire(Ask(limit=limit, again=again), member)
            except QueueFullError as error:
                refused.append((time(), error.retry_after))
                return
            await asyncio.sleep(0.05)
            response = service.answer(time(), 1.0)
            await asyncio.sleep(0.05)
            permit.answered(response.status, response.info)
            again = response.status == 429
            if not again:
                return

    await call()
    crowd = [asyncio.create_task(call()) for _ in range(80)]
    await asyncio.sleep(0.5)
    crowd += [asyncio.create_task(call()) for _ in range(80)]
    await asyncio.sleep(0.0)
    when, after = refused[-1]
    assert when == time()
    assert after > 0.0
    before = len(refused)
    await asyncio.sleep(after + 1e-6)
    await asyncio.create_task(call())
    assert len(refused) == before
    await asyncio.wait(crowd)


async def test_limit_holds_through_a_shared_gate() -> None:
    """The host counts the calls of each session and limit, and its forecast reaches the caller at once."""
    async with processes(2, Exchange(delay=0.001)) as (one, two):
        await end(await one.acquire(), 429, reported(0, 10.0))
        limit = WaitingLimit(2)
        calls = [one.acquire(limit=limit), one.acquire(limit=limit), two.acquire(limit=limit)]
        tasks = [*map(asyncio.create_task, calls), asyncio.create_task(one.acquire(limit=limit, again=True))]
        await asyncio.sleep(1.0)
        began = time()
        with pytest.raises(QueueFullError) as caught:
            await one.acquire(limit=limit)
        assert time() - began < 0.1
        assert caught.value.retry_after == pytest.approx(9.0, abs=0.2)
        assert caught.value.max_waiting == 2
        for task in asyncio.as_completed(tasks):
            await end(await task, 200, reported(50))
        await end(await one.acquire(limit=WaitingLimit(0)), 200, reported(49))


async def test_quiet_process_is_not_refused_for_the_waiters_of_another() -> None:
    """A call of a quiet process waits for its turn, not for a thousand requests of another one."""
    gate, busy, quiet = Gate(limits=[Limit(10, per=1.0)]), Member(process="busy"), Member(process="quiet")
    for _ in range(10):
        (await gate.acquire(Ask(), busy)).answered(200, RateLimitInfo())
    crowd = [asyncio.create_task(gate.acquire(Ask(), busy)) for _ in range(1000)]
    await asyncio.sleep(0)
    with pytest.raises(QuotaWaitError) as refused:
        await gate.acquire(Ask(max_wait=2.0), busy)
    assert refused.value.retry_after >= 99
    began = time()
    permit = await gate.acquire(Ask(max_wait=2.0), quiet)
    assert time() - began <= 1.5
    permit.unsent()
    for task in crowd:
        task.cancel()
    await asyncio.gather(*crowd, return_exceptions=True)


# --- services of the real world: hangs, faults, closed routes, prices; some leave fields out ---


def window(limit: float = 100.0, seconds: float = 60.0) -> Any:
    """Return a function that builds a server with a fixed window."""
    return lambda: FromFirst(limit, seconds)


def torn(form: str, share: float, count: int, seed: int, kind: Any = FromFirst) -> Case:
    """Return a job whose service leaves fields out, or writes nonsense, in a share of its answers."""
    return scene(partial(kind, 100.0, 60.0), many(count), Front(form, torn=share), seed=seed)


def closed(form: str, seconds: float) -> Case:
    """Return a job in which one of ten requests is of a route that is always refused."""
    errands = [Errand("/bad" if number % 10 == 0 else "/good") for number in range(300)]
    return scene(window(1000.0), errands, Front(form, closed=frozenset(["/bad"]), closed_for=seconds))


def priced(prior: float | None) -> Case:
    """Return a job of four routes, whose prices one number documents, or none."""
    prices = {"/a": 1.0, "/b": 20.0, "/c": 50.0, "/d": 5.0}
    routes = random.Random(3).choices([*prices], k=300)
    errands = [Errand(route, prices[route], prior) for route in routes]
    return scene(window(1000.0), errands, callers=256, in_flight=256)


def inner(burst: float, callers: int, fields: str, *, waitless: bool) -> Case:
    """Return a job with an inner limiter that nothing names."""
    return inner_scene(10.0, burst, callers, fields=fields, waitless=waitless)


def gcra(size: float, count: int, **options: Any) -> Case:
    """Return a job for a bucket that is much smaller than the limit it announces."""
    return scene(lambda: Gcra(1000.0, 60.0, size=size), many(count), **options)


PLENTY = scene(window(1e7), many(2000), callers=2000, max_wait=10.0, trip=0.1)
WEIGHTLESS = scene(window(), many(40, prior=10.0), used=29.0, callers=40, max_wait=2.0)
# What a job may cost at most; the laboratory has many more of them, as proofs.
JOBS: list[tuple[str, Case, dict[str, Any]]] = [
    *((f"fields that lack, {form}", torn(form, 0.4, 300, 1), {"storm": 3, "refusals": 5}) for form in FORMS),
    *(
        (f"no remaining, {kind.__name__}, x", torn("x", 0.5, 600, 3, kind), {"storm": 2})
        for kind in (Bucket, FromFirst)
    ),
    *(
        (f"no remaining, {kind.__name__}, d6", torn("d6", 0.5, 600, 1, kind), {"storm": 2})
        for kind in (Bucket, FromFirst)
    ),
    ("prices that drips hide", random_scene(401), {"storm": 3}),
    ("met badly once", random_scene(711), {"storm": 3, "refusals": 20}),
    ("closed route, d6", closed("d6", 20.0), {"seconds": 5, "given_up": 30}),
    ("closed route, none", closed("none", 3600.0), {"seconds": 5, "given_up": 30}),
    ("inner limiter, 1, 4", inner(1.0, 4, "none", waitless=False), {"later": 30, "pace": 1.25}),
    ("inner limiter, 10, 100", inner(10.0, 100, "outer", waitless=True), {"later": 30, "pace": 1.25}),
    ("inner limiter, 20, 4", inner(20.0, 4, "none", waitless=True), {"later": 30, "pace": 1.25}),
    ("inner limiter, 20, 100", inner(20.0, 100, "outer", waitless=False), {"later": 30, "pace": 1.25}),
    ("small burst", gcra(10.0, 200, callers=1, trip=0.2), {"pace": 1.2}),
    ("reset that hides a drip", gcra(50.0, 1200, front=Front("d7")), {"pace": 1.05}),
    ("plenty", PLENTY, {"seconds": 8.2}),
    ("weights that do not count", WEIGHTLESS, {}),
    *((f"prices, {prior}", priced(prior), {"refusals": 3}) for prior in (None, 1.0, 10.0)),
    ("no wait", scene(window(), many(400), Front(waitless=True)), {"refusals": 1, "seconds": 181}),
]


@pytest.mark.parametrize(("case", "bounds"), [pytest.param(*job, id=name) for name, *job in JOBS])
def test_jobs_stay_within_their_bounds(case: Case, bounds: dict[str, float]) -> None:
    """A job is done, sends nothing in a stop, and costs no more refusals and time than its bounds."""
    outcome = gate(case)
    cost = {
        "storm": outcome.storm,
        "refusals": outcome.refusals,
        "later": outcome.refusals - outcome.first_burst,
        "given_up": outcome.given_up,
        "seconds": outcome.seconds,
        "pace": 100.0 / outcome.goodput() if "pace" in bounds else 1.0,
    }
    assert {name: cost[name] for name, most in bounds.items() if cost[name] > most} == {}
    assert outcome.done == len(case.errands) - outcome.given_up
    assert (outcome.hung, outcome.in_stops, outcome.turned_away) == (False, 0, {})


def leave(quota: Quota, now: float, route: str = "/a") -> Reservation:
    """Send a request as soon as the quota permits it."""
    return quota.send(quota.decide(now, 1.0, route), now, route, 1.0)


def step(quota: Quota, now: float, info: RateLimitInfo, status: int = 200, sent: int = 1) -> Verdict:
    """Send requests at one time, answered a tenth of a second later; return the last verdict."""
    flying = [leave(quota, now) for _ in range(sent)]
    return [quota.answered(one, now + 0.1, status, info, 0.5) for one in flying][-1]


def room(quota: Quota, now: float) -> int:
    """Return how many requests may leave at once, and take them back."""
    reservations = []
    while quota.decide(now, 1.0, "/a").when <= now:
        reservations.append(leave(quota, now))
    for reservation in reservations:
        quota.unsent(reservation)
    return len(reservations)


def met(*responses: RateLimitInfo) -> Quota:
    """Return a quota whose route /a has a known price, after responses of 200."""
    quota = Quota()
    quota.costs.learned["/a"] = 1.0
    for now, info in enumerate(responses):
        step(quota, float(now), info)
    return quota


def test_reopening_that_nothing_proves_grows_slowly() -> None:
    """A stop without proof of its end lets 1, 2, 3 leave at once and no more."""
    quota = Quota()
    step(quota, 0.0, reported(99.0))
    step(quota, 0.1, reported(0.0, 10.0), 429)
    assert quota.decide(10.2, 1.0).when == 10.2
    step(quota, 10.2, RateLimitInfo(), 404)
    now, most = 10.3, 0
    for _ in range(20):
        most = max(most, flying := room(quota, now))
        if flying:
            step(quota, now, RateLimitInfo(), 404, flying)
        now += 0.1
    assert most == 3
    quota.answered(leave(quota, now), now, 200, reported(50.0), 0.5)
    assert room(quota, now) >= 10


# --- closed routes ---


def test_refusals_of_two_routes_are_about_the_quota() -> None:
    """Refusals of two routes with quota left stop all routes."""
    quota = Quota()
    step(quota, 0.0, reported(99.0))
    one, two = leave(quota, 0.1), leave(quota, 0.1, "/b")
    assert quota.answered(one, 0.2, 429, reported(90.0, 20.0), 0.5) is Verdict.ROUTE
    assert quota.stopped_until < 0.2
    assert quota.answered(two, 0.2, 429, reported(90.0, 20.0), 0.5) is Verdict.QUOTA
    assert quota.stopped_until == pytest.approx(20.2)


# --- an inner limiter that nothing names ---


class _SlowRoute(Client):
    """Service with a route that has a limiter of its own, two requests a second."""

    def __init__(self, case: Case) -> None:
        super().__init__(case)
        self.bucket = Bucket(2.0, 1.0, size=2.0)

    def answer(self, errand: Errand) -> Response:
        now = self.loop.time()
        if errand.route == "/slow":
            if self.bucket.earliest(now, 1.0) > now:
                return Response(429, fields={**self.service.fields(now, None), "retry-after": "1"})
            self.bucket.take(now, 1.0)
        return super().answer(errand)


@pytest.mark.parametrize("callers", [4, 100])
def test_limiter_of_one_route_does_not_close_it_for_minutes(callers: int) -> None:
    """A limiter of one route does not close it for minutes, as long as some pass."""
    errands = [Errand("/fast" if number % 10 else "/slow") for number in range(600)]
    outcome = play(scene(window(10_000.0), errands, callers=callers), _SlowRoute, 5000.0)
    assert outcome.done == 600
    assert outcome.seconds < 40
    assert outcome.refusals <= 60


def test_single_refusal_is_no_limit() -> None:
    """A single refusal with quota left slows requests down for a while, and is no limit."""
    quota = met(reported(99.0))
    assert step(quota, 0.1, RateLimitInfo(), 429) is Verdict.UNANNOUNCED
    now = quota.stopped_until
    quota.answered(leave(quota, now), now, 200, reported(99.0), 0.5)
    assert room(quota, now) == 2
    for left in range(98, 34, -1):
        now += 0.1
        quota.answered(leave(quota, now), now, 200, reported(left), 0.5)
    assert room(quota, now) == 35


def test_refusal_of_the_announced_policy_is_not_taken_for_another() -> None:
    """A refusal of the announced policy causes no pacing afterwards."""
    for refusal in (reported(0.0, 2.0), reported(99.0, 20.0)):
        quota = met(reported(99.0))
        for _ in range(2):
            step(quota, 0.1, refusal, 429)
        step(quota, 30.0, reported(99.0))
        assert room(quota, 30.1) > 90


def test_fields_without_a_limit_erase_nothing_that_was_found() -> None:
    """Fields without a limit do not erase a limit that was found."""
    nothing = RateLimitInfo(0.0, None, None, None, (PolicyField(0.0, 60.0),))
    quota = Quota()
    for now in range(8):
        step(quota, float(now), nothing)
    assert room(quota, 8.0) == 9


async def test_waiters_of_a_closed_route_keep_their_order_and_can_leave() -> None:
    """Waiters of a closed route keep their order, and can be cancelled."""
    gate = Gate()
    (await gate.acquire(Ask("/good"))).answered(200, reported(99))
    (await gate.acquire(Ask("/bad"))).answered(429, reported(98, 10))
    line = Line(gate, *[Ask("/bad")] * 8)
    await asyncio.sleep(1)
    (await gate.acquire(Ask("/good"))).answered(200, reported(97))
    assert time() < 1.1
    line.tasks[3].cancel()
    with pytest.raises(QuotaWaitError) as caught:
        await gate.acquire(Ask("/bad", max_wait=5))
    assert caught.value.retry_after == pytest.approx(9)
    await asyncio.gather(*line.tasks, return_exceptions=True)
    assert line.order == [0, 1, 2, 4, 5, 6, 7]
    assert time() == pytest.approx(10, abs=0.1)
    assert gate.snapshot().waiting == 0


# --- a service that hangs ---


async def test_max_wait_ends_where_nobody_is_answered() -> None:
    """A wait behind a probe that hangs ends with `max_wait`, as a timeout and not as a wait for quota."""
    gate = Gate()
    probe = await gate.acquire(Ask())
    others = [asyncio.create_task(gate.acquire(Ask(max_wait=5))) for _ in range(20)]
    with pytest.raises(APITimeoutError, match="no answer to any request for 5 s"):
        await asyncio.gather(*others)
    assert time() == pytest.approx(5)
    probe.lost()
    for one in others:
        one.cancel()


async def test_late_probe_is_hedged() -> None:
    """A late probe is followed by a second one after a second, then by more."""
    gate = Gate()
    times: list[float] = []

    async def call() -> None:
        await gate.acquire(Ask())
        times.append(round(time(), 3))

    tasks = [asyncio.create_task(call()) for _ in range(20)]
    await asyncio.sleep(8)
    assert times == [0, 1, 3, 3, 7, 7, 7, 7]
    for task in tasks:
        task.cancel()


async def test_turn_that_is_close_is_waited_for() -> None:
    """A stop that ends in a moment refuses nobody; a longer one does."""
    gate = await opened(stop=10)
    await asyncio.sleep(9.98)
    (await gate.acquire(Ask(max_wait=0))).answered(429, reported(0, 10))
    with pytest.raises(QuotaWaitError) as caught:
        await gate.acquire(Ask(max_wait=0))
    assert caught.value.retry_after >= 10


async def test_nothing_is_refused_for_a_quota_that_nobody_used() -> None:
    """Callers with `max_wait=0` that only wait for a place get no quota error."""
    gate = await opened(max_in_flight=1)
    flying = await gate.acquire(Ask())
    waiting = asyncio.create_task(gate.acquire(Ask(max_wait=0.5)))
    await asyncio.sleep(0.9)
    flying.answered(200, reported(98))
    (await waiting).unsent()


# --- the user's own ceiling ---


async def test_margin_for_a_hidden_price_counts_as_no_cost() -> None:
    """The units held for a price that a drip hides are neither paid as a ceiling nor shown as spent."""
    gate = Gate(rate=Limit(1, 1.0, units=True))
    for _ in range(10):
        (await gate.acquire(Ask("/a"))).answered(200, reported(100.0))
    assert time() == pytest.approx(9.0)
    assert gate.snapshot().spenders[0].units == 10.0


# --- the ceiling of a session: tokens for requests or units ---


async def test_toll_is_in_requests_or_units() -> None:
    """A limit, and a bucket of the user, count requests; a limit with `units` the units that they cost."""
    rates = (Limit(10, 1.0), Limit(10, 1.0, units=True), AsyncLimiter(10, 1.0))
    assert [Ceiling(rate).toll(50.0, 2.0) for rate in rates] == [2.0, 50.0, 2.0]
    assert Ceiling(rates[2]).toll(50.0) == 1.0


async def test_tokens_that_lack_take_their_time() -> None:
    """A bucket of 10 that has 6 has 9 after the time of 3; a toll above its size is paid in parts."""
    ceiling, began = Ceiling(Limit(10, 5.0, units=True)), time()
    assert ceiling.ready(25.0)
    assert ceiling.wait(25.0) == 7.5
    await ceiling.pay(4.0)
    assert [ceiling.wait(toll) for toll in (6.0, 9.0, 26.0)] == pytest.approx([0.0, 1.5, 10.0], abs=1e-5)
    assert [ceiling.ready(toll) for toll in (6.0, 9.0, 26.0)] == [True, False, False]
    await ceiling.pay(21.0)
    assert time() - began == pytest.approx(7.5, abs=0.1)
    assert ceiling.wait(10.0) == pytest.approx(5.0)


async def test_less_than_one_request_a_second_is_one_in_a_longer_time() -> None:
    """A limit below one request a second lets a whole request pass each time."""
    ceiling, began = Ceiling(Limit(0.5, 1.0)), time()
    await ceiling.pay(1.0)
    assert ceiling.wait(1.0) == 2.0
    await ceiling.pay(1.0)
    assert time() - began == pytest.approx(2.0, abs=0.1)

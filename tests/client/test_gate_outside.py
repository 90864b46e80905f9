"""Gate before services of the real world: hangs, faults, closed routes, prices.

Some of them leave fields out.
"""

from __future__ import annotations

import asyncio
import random
from functools import partial
from typing import Any

import pytest

from chainapi import Limit
from chainapi._limits.gate import Ask, Gate
from chainapi._limits.headers import PolicyField, RateLimitInfo
from chainapi._limits.quota import Quota, Reservation
from chainapi._limits.verdict import Verdict
from chainapi.errors import APITimeoutError, QuotaWaitError
from tests.limits.outside import inner_scene, promised_scene, random_scene
from tests.limits.replays import check_forecasts
from tests.limits.servers import Bucket, FromFirst, Gcra, Server
from tests.limits.wild import Client, Errand, Front, Scene, ideal, many, run

pytestmark = pytest.mark.rule
proof = pytest.mark.proof

MINUTE = (PolicyField(100.0, 60.0),)


def reported(remaining: float, retry_after: float | None = None, reset: float | None = None) -> RateLimitInfo:
    """Return the headers of a service with 100 units a minute."""
    return RateLimitInfo(100.0, remaining, reset, retry_after, MINUTE)


def time() -> float:
    """Return the loop's time."""
    return asyncio.get_running_loop().time()


def window(limit: float = 100.0, seconds: float = 60.0) -> Any:
    """Return a function that builds a server with a fixed window."""
    return lambda: FromFirst(limit, seconds)


def leave(quota: Quota, now: float, route: str, cost: float) -> Reservation:
    """Send a request as soon as the quota permits it."""
    return quota.send(quota.decide(now, cost, route), now, route, cost)


# --- what a probe proves ---


@proof
@pytest.mark.parametrize(
    "front",
    [
        Front(silent=0.3),
        Front(faults=0.2),
        Front(faults=0.2, retry_after=True),
        Front("d7", faults=0.5, counted=False, retry_after=True),
        Front("x", silent=0.3),
    ],
    ids=str,
)
def test_answers_without_fields_open_nothing(front: Front) -> None:
    """A 404 or 503 without quota fields proves no new window: no storm follows it."""
    for seed in range(5):
        outcome = run(Scene(window(), many(800), front, seed=seed), 20_000.0)
        assert not outcome.hung
        assert outcome.storm <= 3
        assert outcome.in_stops == 0


@pytest.mark.parametrize("form", ["d6", "d7", "d8", "x"])
def test_partial_fields_erase_nothing(form: str) -> None:
    """Partial fields, such as a limit of 0 or a missing policy, erase no known limit."""
    outcome = run(Scene(window(), many(300), Front(form, torn=0.4), seed=1), 20_000.0)
    assert outcome.storm <= 3
    assert outcome.refusals <= 5


@pytest.mark.parametrize(("form", "seed"), [("x", 3), ("d6", 1)])
def test_answers_that_hide_what_remains_are_counted(form: str, seed: int) -> None:
    """Responses without a remaining count against the quota."""
    kinds: tuple[type[Server], ...] = (Bucket, FromFirst)
    for kind in kinds:
        scene = Scene(partial(kind, 100.0, 60.0), many(600), Front(form, torn=0.5), seed=seed)
        assert run(scene).storm <= 2


@pytest.mark.parametrize("seed", [401, pytest.param(575, marks=proof)])
def test_prices_that_drips_hide_make_no_storm(seed: int) -> None:
    """Prices that a drip hides are not underestimated."""
    assert run(random_scene(seed), 1e7).storm <= 3


@pytest.mark.parametrize(
    "seed", [711, *(pytest.param(seed, marks=pytest.mark.proof) for seed in (967, 999, 1323))]
)
def test_random_services_that_were_met_badly_once(seed: int) -> None:
    """Services that once caused defects get no storm and few refusals."""
    outcome = run(random_scene(seed), 1e6)
    assert outcome.storm <= 3
    assert outcome.refusals <= 20
    assert not outcome.hung


def test_reopening_that_nothing_proves_grows_slowly() -> None:
    """A stop without proof of its end lets 1, 2, 3 leave at once and no more."""
    quota = Quota()
    quota.answered(leave(quota, 0.0, "", 1.0), 0.1, 200, reported(99.0), 0.5)
    quota.answered(leave(quota, 0.1, "", 1.0), 0.2, 429, reported(0.0, retry_after=10.0), 0.5)
    assert quota.decide(10.2, 1.0).when == 10.2
    quota.answered(leave(quota, 10.2, "", 1.0), 10.3, 404, RateLimitInfo(), 0.5)
    now, flying = 10.3, 0
    for _ in range(20):
        reservations = []
        while quota.decide(now, 1.0).when <= now:
            reservations.append(leave(quota, now, "", 1.0))
        flying = max(flying, len(reservations))
        now += 0.1
        for reservation in reservations:
            quota.answered(reservation, now, 404, RateLimitInfo(), 0.5)
    assert flying == 3
    quota.answered(leave(quota, now, "", 1.0), now, 200, reported(50.0), 0.5)
    for _ in range(10):
        assert quota.decide(now, 1.0).when <= now
        leave(quota, now, "", 1.0)


# --- closed routes ---


@pytest.mark.parametrize(("form", "seconds"), [("d6", 20.0), ("none", 3600.0)])
def test_route_that_is_always_refused_stops_itself_alone(form: str, seconds: float) -> None:
    """A route that is always refused holds up no other route for long."""
    errands = [Errand("/bad" if number % 10 == 0 else "/good") for number in range(300)]
    front = Front(form, closed=frozenset(["/bad"]), closed_for=seconds)
    outcome = run(Scene(window(1000.0), errands, front), 1e6)
    assert outcome.done == 270
    assert outcome.seconds < 5
    assert outcome.given_up == 30


def test_refusals_of_two_routes_are_about_the_quota() -> None:
    """Refusals of two routes with quota left stop all routes."""
    quota = Quota()
    quota.answered(leave(quota, 0.0, "/a", 1.0), 0.1, 200, reported(99.0), 0.5)
    one, two = leave(quota, 0.1, "/a", 1.0), leave(quota, 0.1, "/b", 1.0)
    assert quota.answered(one, 0.2, 429, reported(90.0, retry_after=20.0), 0.5) is Verdict.ROUTE
    assert quota.stopped_until < 0.2
    assert quota.answered(two, 0.2, 429, reported(90.0, retry_after=20.0), 0.5) is Verdict.QUOTA
    assert quota.stopped_until == pytest.approx(20.2)


# --- an inner limiter that nothing names ---


@pytest.mark.parametrize(
    ("burst", "callers", "waitless", "fields"),
    [
        (1.0, 4, False, "none"),
        (10.0, 100, True, "outer"),
        (20.0, 4, True, "none"),
        (20.0, 100, False, "outer"),
    ],
)
def test_inner_limiter_that_nothing_names_is_learned(
    burst: float, callers: int, waitless: bool, fields: str
) -> None:
    """An inner limiter that no header names is learned: few refusals after the first."""
    scene = inner_scene(10.0, burst, callers, fields=fields, waitless=waitless)
    outcome = run(scene, 5000.0)
    assert outcome.done == len(scene.errands)
    assert outcome.refusals - outcome.first_burst <= 0.05 * len(scene.errands)
    assert outcome.seconds <= ideal(scene) / 0.8
    assert not outcome.in_stops


@proof
def test_inner_limiter_of_several_routes_is_one_limit() -> None:
    """Refusals of several routes that pass in part are about one shared limit."""
    scene = inner_scene(50.0, 20.0, 4, fields="outer", routes=3)
    outcome = run(scene, 5000.0)
    assert outcome.done == len(scene.errands)
    assert outcome.refusals <= 0.02 * len(scene.errands)


class _SlowRoute(Client):
    """Service with a route that has a limiter of its own, two requests a second."""

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self.bucket = Bucket(2.0, 1.0, size=2.0)

    def answer(self, errand: Errand) -> tuple[int, dict[str, str]]:
        now = self.loop.time()
        if errand.route == "/slow":
            if self.bucket.earliest(now, 1.0) > now:
                return 429, {**self.service.fields(now, None), "retry-after": "1"}
            self.bucket.take(now, 1.0)
        return super().answer(errand)


@pytest.mark.parametrize("callers", [4, 100])
def test_limiter_of_one_route_does_not_close_it_for_minutes(callers: int) -> None:
    """A limiter of one route does not close it for minutes, as long as some pass."""
    errands = [Errand("/fast" if number % 10 else "/slow") for number in range(600)]
    outcome = run(Scene(window(10_000.0), errands, callers=callers), 5000.0, _SlowRoute)
    assert outcome.done == 600
    assert outcome.seconds < 40
    assert outcome.refusals <= 60


def test_single_refusal_is_no_limit() -> None:
    """A single refusal with quota left slows requests down for a while, and is no limit."""
    quota = Quota()
    quota.costs.learned["/a"] = 1.0
    quota.answered(leave(quota, 0.0, "/a", 1.0), 0.1, 200, reported(99.0), 0.5)
    verdict = quota.answered(leave(quota, 0.1, "/a", 1.0), 0.2, 429, RateLimitInfo(), 0.5)
    assert verdict is Verdict.UNANNOUNCED
    now, left = quota.stopped_until, 99.0
    quota.answered(leave(quota, now, "/a", 1.0), now, 200, reported(left), 0.5)
    assert _leave(quota, now) == 2
    for _ in range(64):
        left -= 1.0
        now += 0.1
        quota.answered(leave(quota, now, "/a", 1.0), now, 200, reported(left), 0.5)
    assert _leave(quota, now) == left


def test_refusal_of_the_announced_policy_is_not_taken_for_another() -> None:
    """A refusal of the announced policy causes no pacing afterwards."""
    for refusal in (reported(0.0, retry_after=2.0), reported(99.0, retry_after=20.0)):
        quota = Quota()
        quota.costs.learned["/a"] = 1.0
        quota.answered(leave(quota, 0.0, "/a", 1.0), 0.1, 200, reported(99.0), 0.5)
        for _ in range(2):
            quota.answered(leave(quota, 0.1, "/a", 1.0), 0.2, 429, refusal, 0.5)
        quota.answered(leave(quota, 30.0, "/a", 1.0), 30.1, 200, reported(99.0), 0.5)
        assert _leave(quota, 30.1) > 90


def test_fields_without_a_limit_erase_nothing_that_was_found() -> None:
    """Fields without a limit do not erase a limit that was found."""
    nothing = RateLimitInfo(0.0, None, None, None, (PolicyField(0.0, 60.0),))
    quota = Quota()
    for now in range(8):
        quota.answered(leave(quota, float(now), "/a", 1.0), now + 0.1, 200, nothing, 0.5)
    assert _leave(quota, 8.0) == 9


def _leave(quota: Quota, now: float) -> int:
    """Return how many requests may leave at once, and take them back."""
    reservations = []
    while quota.decide(now, 1.0, "/a").when <= now:
        reservations.append(leave(quota, now, "/a", 1.0))
    for reservation in reservations:
        quota.unsent(reservation)
    return len(reservations)


def test_small_burst_under_a_large_limit_is_used() -> None:
    """The price of one request is at most the highest remaining ever seen."""
    scene = Scene(lambda: Gcra(1000.0, 60.0, size=10.0), many(200), callers=1, trip=0.2)
    assert run(scene).seconds < 1.2 * ideal(scene)


async def test_waiters_of_a_closed_route_keep_their_order_and_can_leave() -> None:
    """Waiters of a closed route keep their order, and can be cancelled."""
    gate = Gate()
    (await gate.acquire(Ask("/good"))).answered(200, reported(99))
    (await gate.acquire(Ask("/bad"))).answered(429, reported(98, retry_after=10))
    order: list[int] = []

    async def call(number: int) -> None:
        permit = await gate.acquire(Ask("/bad"))
        order.append(number)
        permit.answered(200, reported(90 - number))

    tasks = [asyncio.create_task(call(number)) for number in range(8)]
    await asyncio.sleep(1)
    (await gate.acquire(Ask("/good"))).answered(200, reported(97))
    assert time() < 1.1
    tasks[3].cancel()
    with pytest.raises(QuotaWaitError) as caught:
        await gate.acquire(Ask("/bad", max_wait=5))
    assert caught.value.retry_after == pytest.approx(9)
    await asyncio.gather(*tasks, return_exceptions=True)
    assert order == [0, 1, 2, 4, 5, 6, 7]
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


# --- forecasts ---


def test_thousands_with_max_wait_and_plenty_of_quota_all_pass() -> None:
    """2,000 calls with `max_wait=10` and ten million units all pass."""
    outcome = run(Scene(window(1e7), many(2000), callers=2000, max_wait=10.0, trip=0.1))
    assert outcome.done == 2000
    assert outcome.seconds < 8.2


def test_weights_of_the_catalogue_turn_nobody_away() -> None:
    """A service that counts requests is not taken to count documented units."""
    outcome = run(Scene(window(), many(40, prior=10.0), used=29.0, callers=40, max_wait=2.0))
    assert outcome.done == 40


@pytest.mark.parametrize("prior", [None, 1.0, 10.0])
def test_unknown_and_wrong_prices_make_no_storm(prior: float | None) -> None:
    """Routes of 1 to 50 units, with any documented price, cost at most one 429."""
    rng = random.Random(3)
    costs = {"/a": 1.0, "/b": 20.0, "/c": 50.0, "/d": 5.0}
    errands = [Errand(route, costs[route], prior) for route in rng.choices(list(costs), k=300)]
    outcome = run(Scene(window(1000.0), errands, callers=256, in_flight=256))
    assert outcome.refusals <= 3
    assert outcome.done == 300


@pytest.mark.parametrize(("form", "seed"), [("d6", 0), ("d7", 1)])
def test_error_of_max_wait_names_a_time_that_holds(form: str, seed: int) -> None:
    """QuotaWaitError is raised at once, with a `retry_after` that holds."""
    scene = Scene(
        window(20.0, 10.0), many(120), Front(form), callers=120, spread=10.0, max_wait=12.0, seed=seed
    )
    outcome = run(scene)
    assert outcome.turned_away
    for number, (when, after) in outcome.turned_away.items():
        assert when - outcome.begun[number] < 12.1
        assert after > 10.0


@pytest.mark.parametrize(("seed", "hidden"), [(165, False), (12, True)])
def test_forecasts_hold_beside_the_future(seed: int, hidden: bool) -> None:
    """Forecasts hold in a replay: no caller was refused in vain."""
    forecasts = check_forecasts(promised_scene(seed, hidden=hidden))
    assert forecasts.checked
    assert (forecasts.wrong, forecasts.again, forecasts.late, forecasts.soon) == (0, 0, 0, 0)


async def test_turn_that_is_close_is_waited_for() -> None:
    """A stop that ends in a moment refuses nobody; a longer one does."""
    gate = Gate()
    (await gate.acquire(Ask())).answered(200, reported(99))
    (await gate.acquire(Ask())).answered(429, reported(0, retry_after=10))
    await asyncio.sleep(9.98)
    (await gate.acquire(Ask(max_wait=0))).answered(429, reported(0, retry_after=10))
    with pytest.raises(QuotaWaitError) as caught:
        await gate.acquire(Ask(max_wait=0))
    assert caught.value.retry_after >= 10


async def test_nothing_is_refused_for_a_quota_that_nobody_used() -> None:
    """Callers with `max_wait=0` that only wait for a place get no quota error."""
    gate = Gate(max_in_flight=1)
    (await gate.acquire(Ask())).answered(200, reported(99))
    flying = await gate.acquire(Ask())
    waiting = asyncio.create_task(gate.acquire(Ask(max_wait=0.5)))
    await asyncio.sleep(0.9)
    flying.answered(200, reported(98))
    (await waiting).unsent()


# --- waits that are announced, and not ---


async def test_remaining_of_zero_with_a_reset_is_obeyed_without_a_policy() -> None:
    """A remaining of zero with a reset holds the next request back."""
    gate = Gate()
    (await gate.acquire(Ask())).answered(200, RateLimitInfo(remaining=0, reset=7))
    (await gate.acquire(Ask())).unsent()
    assert time() == pytest.approx(7)


def test_refusal_without_a_wait_waits_by_the_ledger() -> None:
    """A 429 without a wait costs one 429 a policy, not one a try."""
    outcome = run(Scene(window(), many(400), Front(waitless=True)))
    assert outcome.refusals == 1
    assert outcome.seconds < 181


def test_announced_reset_does_not_hide_a_drip() -> None:
    """A reset until a small burst is whole does not hide a drip: 95 % is used."""
    scene = Scene(lambda: Gcra(1000.0, 60.0, size=50.0), many(1200), Front("d7"))
    assert ideal(scene) / run(scene).seconds > 0.95


# --- the user's own ceiling ---


async def test_margin_for_a_hidden_price_counts_as_no_cost() -> None:
    """The units held for a price that a drip hides are neither paid as a ceiling nor shown as spent."""
    gate = Gate(rate=Limit(1, 1.0, units=True))
    for _ in range(10):
        (await gate.acquire(Ask("/a"))).answered(200, reported(100.0))
    assert time() == pytest.approx(9.0)
    assert gate.snapshot().spenders[0].units == 10.0


async def test_waiter_that_leaves_while_it_pays_gives_its_turn_on() -> None:
    """A cancelled call does not hold up those behind it at the user's own ceiling."""
    gate = Gate(rate=Limit(1, 10.0))
    (await gate.acquire(Ask())).answered(200, RateLimitInfo())
    paying = asyncio.create_task(gate.acquire(Ask()))
    behind = asyncio.create_task(gate.acquire(Ask()))
    await asyncio.sleep(1)
    paying.cancel()
    (await behind).unsent()
    assert time() == pytest.approx(10)
    assert gate.snapshot().waiting == 0

"""What could hang a user or get him banned: stray refusals, long trips, hung requests, weights.

Each test sends a session's requests to a service that counts, in virtual time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from attrs import evolve

from chainapi import Limit, LimiterOptions
from chainapi.errors import AuthenticationError, DeadlineExceededError, QuotaWaitError, RateLimitedError
from tests.limits.counting import PATH, Service, opened, time
from tests.limits.servers import Bucket, FromFirst, Server
from tests.sessions import reaching

DAY = 86_400.0
HANGS = 1e9  # seconds: no answer


# --- refusals that have nothing to do with each other -------------------------------------------

NAMED = {"retry-after": "1", "ratelimit-limit": "1000", "ratelimit-remaining": "990"}


@pytest.mark.parametrize(
    ("server", "headers"),
    [(None, {"retry-after": "1"}), (None, {}), (FromFirst(1000.0, 60.0), NAMED)],
    ids=["announced wait", "bare", "beside headers"],
)
@pytest.mark.parametrize("hourly", [1, 5])
async def test_stray_refusals_days_apart_hold_no_request(
    server: Server | None, headers: dict[str, str], hourly: int
) -> None:
    """Five refusals, each a day after the last one, show no window: no call waits longer than a retry."""
    stray = {24 * hourly * day + 1 for day in range(1, 6)}
    service = Service(server, odd=lambda number: (429, headers) if number in stray else None)
    async with opened(service) as call:
        for _ in range(7 * 24):
            assert max(await asyncio.gather(*(call() for _ in range(hourly)))) < 3.0
            await asyncio.sleep(3600.0)
    assert len(service.refused) == 5


@pytest.mark.parametrize("headers", [{"retry-after": "1"}, {}], ids=["announced wait", "bare"])
async def test_few_calls_between_two_stray_refusals_are_no_limit(headers: dict[str, str]) -> None:
    """Five calls between two refusals a day apart are no limit of five a day."""
    service = Service(odd=lambda number: (429, headers) if number in (6, 12) else None)
    async with opened(service) as call:
        for _ in range(3):
            for _ in range(5):
                assert await call() < 3.0
            await asyncio.sleep(DAY)
        assert await call() < 3.0
        for _ in range(20):
            assert await call() < 3.0
    assert len(service.refused) == 2


async def test_stray_refusals_of_a_service_in_constant_use_are_no_limit() -> None:
    """Refusals that ask for a second are no limit a day, if calls were under way all that day."""
    service = Service(
        trip=300.0, odd=lambda number: (429, {"retry-after": "1"}) if number % 288 == 9 else None
    )
    async with opened(service, timeout=600.0) as call:
        for _ in range(3 * 288):
            assert await call() < 602.0
        service.trip = 0.05
        for _ in range(400):
            assert await call() < 3.0
    assert len(service.refused) == 5


async def test_refused_calls_may_come_back_soon_after_a_stray_refusal() -> None:
    """A refusal after a day of light use asks no call with `max_wait` to come back in a day."""
    service = Service(odd=lambda number: (429, {}) if number == 25 else None)
    async with reaching(service) as session:
        for _ in range(24):
            await session.data.get(PATH)
            await asyncio.sleep(3600.0)
        refused = asyncio.create_task(session.data.get(PATH))
        await asyncio.sleep(0.1)
        with pytest.raises(QuotaWaitError) as caught:
            await session.with_options(max_wait=0.0).data.get(PATH)
        assert caught.value.retry_after < 300.0
        await refused


# --- prices that units dripping in hide ---------------------------------------------------------


@pytest.mark.parametrize(
    ("server", "trip", "most"),
    [
        (lambda: Bucket(3000.0, 60.0, size=50.0), 0.5, 14.5),
        (lambda: Bucket(200.0, 1.0, size=100.0), 1.0, 18.5),
    ],
    ids=["50 a second", "200 a second"],
)
async def test_bucket_that_refills_within_a_round_trip_is_used(
    server: Callable[[], Server], trip: float, most: float
) -> None:
    """A bucket whose units return within a round trip gets many requests at once, not one after the other."""
    service = Service(server(), trip=trip)
    async with opened(service) as call:
        await asyncio.gather(*(call() for _ in range(500)))
        assert time() < most
    assert not service.refused


# --- requests that hang -------------------------------------------------------------------------


@pytest.mark.parametrize("server", [None, FromFirst(1000.0, 60.0)], ids=["no limit", "headers"])
async def test_hung_first_request_fails_no_other(server: Server | None) -> None:
    """Of 500 calls with ten seconds at the start only the one fails whose request hangs."""
    service = Service(server, odd=lambda number: HANGS if number == 1 else None)
    async with reaching(service, deadline=10.0) as session:
        calls = (session.data.get(PATH) for _ in range(500))
        outcomes = await asyncio.gather(*calls, return_exceptions=True)
    assert [type(one) for one in outcomes if not isinstance(one, dict)] == [DeadlineExceededError]
    assert max(service.sent) < 5.0


FAST, SLOW = FromFirst(1000.0, 60.0), FromFirst(100.0, 10.0)


@pytest.mark.parametrize(
    ("server", "hung", "calls", "most", "options"),
    [
        pytest.param(FAST, {1, 2, 3}, 500, 5.0, {}, id="three in a row at the start"),
        pytest.param(FAST, {1, 3, 5}, 500, 5.0, {}, id="one of each try at the start"),
        pytest.param(SLOW, {102}, 190, 14.0, {"timeout": 60.0}, id="after a stop"),
        pytest.param(
            *(SLOW, {101}, 190, 14.0, {"timeout": 60.0, "limiter": LimiterOptions(probe=False)}),
            id="after a window",
        ),
        pytest.param(
            *(Bucket(100.0, 10.0), {101}, 190, 14.0, {"timeout": 60.0}), id="after a pause of a bucket"
        ),
    ],
)
async def test_hung_requests_hold_no_other(
    server: Server, hung: set[int], calls: int, most: float, options: dict[str, Any]
) -> None:
    """If the first requests hang, at the start or after a pause, the others leave seconds later.

    They wait for no timeout, and none is sent twice but those that hung or were refused.
    """
    service = Service(evolve(server), odd=lambda number: HANGS if number in hung else None)
    async with opened(service, **options) as call:
        seconds = sorted(await asyncio.gather(*(call() for _ in range(calls))))
    assert seconds[-len(hung) - 1] < most
    assert len(service.refused) <= 1
    assert len(service.sent) == calls + len(hung) + len(service.refused)


async def test_hung_request_that_times_out_is_not_sent_again_as_a_probe() -> None:
    """A request that hung while another one was answered holds no call when it hangs a second time."""
    again = asyncio.Event()

    def odd(number: int) -> float | None:
        if number == 5:
            again.set()
        return HANGS if number in (1, 5) else None

    service = Service(FromFirst(1000.0, 60.0), odd=odd)
    async with opened(service, timeout=8.0) as call:
        first = asyncio.create_task(call())
        await asyncio.sleep(0.01)
        for _ in range(3):
            await call()
        await again.wait()
        assert max(await asyncio.gather(*(call() for _ in range(20)))) < 0.1
        assert await first > 16.0


# --- waits that nobody announces ----------------------------------------------------------------


@pytest.mark.parametrize(("calls", "seconds"), [(5, 10.0), (12, 6 * 60.0)])
async def test_nothing_left_without_a_time_of_return_pauses_from_a_second_on(
    calls: int, seconds: float
) -> None:
    """Responses that say "0 left" and no time let one request leave after 1, 2, 4 ... 60 seconds."""
    service = Service(odd=lambda _: (200, {"ratelimit-limit": "100", "ratelimit-remaining": "0"}))
    async with opened(service) as call:
        await asyncio.gather(*(call() for _ in range(calls)))
    gaps = [after - before for before, after in pairwise(service.sent)]
    assert gaps == pytest.approx(sorted(gaps))
    assert max(gaps) <= 61.0
    assert time() <= seconds


# --- limits that the user knows of --------------------------------------------------------------


async def blocks(service: Service, limit: Limit, number: int) -> tuple[float | None, float | None, bool]:
    """Send requests of a route with a weight of 10; return what the quota shows after half a minute."""
    async with reaching(service, limits={"data": [limit]}, limiter=LimiterOptions(probe=False)) as session:
        calls = [
            asyncio.create_task(session.data.evm.blocks(43114, page_size=1).first()) for _ in range(number)
        ]
        await asyncio.sleep(30.0)
        quota = session.quota["data"]
        await asyncio.gather(*calls)
        return quota.limit, quota.remaining, quota.counts_requests


UNITS = FromFirst(1000.0, 60.0)  # with a weight of 10: 100 requests a minute


@pytest.mark.parametrize(
    ("server", "headers", "limit", "first"),
    [
        (None, True, Limit(80, per=60.0), 80),
        (None, True, Limit(80, per=60.0, units=True), 8),
        (UNITS, True, Limit(80, per=60.0), 80),
        (UNITS, True, Limit(800, per=60.0), 100),
        (UNITS, True, Limit(800, per=60.0, units=True), 80),
        (UNITS, False, Limit(100, per=60.0), 100),
    ],
    ids=["requests", "units", "beside units", "above units", "units beside units", "units hidden"],
)
async def test_limit_of_the_user_counts_requests(
    server: Server | None, headers: bool, limit: Limit, first: int
) -> None:
    """A `Limit` counts requests whatever they cost, with `units=True` units, also beside announced ones."""
    service = Service(None if server is None else evolve(server), headers=headers, cost=10.0)
    shown = await blocks(service, limit, first + 2)
    assert sum(sent < 60.0 for sent in service.sent) == first
    assert not service.refused
    if shown[0] == limit.amount:  # it holds the requests back
        assert shown[1:] == (0.0, not limit.units)


async def test_time_left_under_a_limit_counts_requests() -> None:
    """The time left of a stream, and its estimate, count requests for a `Limit` of the session."""
    limits = {"data": [Limit(80, per=60.0)]}
    async with reaching(Service(), limits=limits) as session:
        stream = session.data.evm.blocks(43114, page_size=1)
        assert stream.estimate(rows=160).minutes == 1.0
        assert stream.estimate(rows=160, limits=[Limit(800, per=60.0, units=True)]).minutes == 1.0
        await asyncio.gather(*(session.data.evm.blocks(43114, page_size=1).first() for _ in range(80)))
        assert 58.0 < stream.seconds_left(80) < 60.0
        assert 118.0 < stream.seconds_left(81) < 120.0


@pytest.mark.parametrize("max_wait", [59.0, 61.0])
async def test_max_wait_counts_requests_of_a_limit(max_wait: float) -> None:
    """Of 170 calls of weight 10 those beyond two windows of 80 are refused at once, or those beyond one."""
    service = Service()
    async with reaching(service, limits={"data": [Limit(80, per=60.0)]}, max_wait=max_wait) as session:
        calls = (session.data.evm.blocks(43114, page_size=1).first() for _ in range(170))
        outcomes = await asyncio.gather(*calls, return_exceptions=True)
    refused = [one for one in outcomes if isinstance(one, QuotaWaitError)]
    assert len(refused) == (90 if max_wait < 60.0 else 10)


# --- refusals for ever, keys that are revoked ---------------------------------------------------


async def test_refusals_for_ever_end_a_day_after_the_last_success() -> None:
    """Nobody announced a wait, so `max_stop` since the last success ends the call."""
    service = Service(odd=lambda number: None if number == 1 else (429, {}))
    async with reaching(service) as session:
        await session.data.get(PATH)
        with pytest.raises(RateLimitedError):
            await session.data.get(PATH)
    assert DAY < time() <= 1.1 * DAY


async def test_a_revoked_key_ends_the_calls_that_wait() -> None:
    """They raise the error of the first one that the service refused, and send nothing."""
    service = Service(FromFirst(10.0, 60.0), odd=lambda number: (401, {}) if number > 25 else None)
    async with reaching(service) as session:
        calls = [session.data.get(PATH) for _ in range(200)]
        ends = await asyncio.gather(*calls, return_exceptions=True)
        assert [type(one) for one in ends].count(AuthenticationError) >= 175
        assert len(service.sent) <= 36
        assert time() < 122.0
        with pytest.raises(AuthenticationError):  # a new call asks again
            await session.data.get(PATH)
        assert len(service.sent) <= 37


async def test_a_401_without_a_key_ends_no_other_call() -> None:
    """The route that needs a key is the only one that fails."""
    service = Service(FromFirst(10.0, 60.0), odd=lambda number: (401, {}) if number == 15 else None)
    async with reaching(service) as session:
        calls = [session.metrics.get(PATH) for _ in range(30)]
        ends = await asyncio.gather(*calls, return_exceptions=True)
    assert [type(one) for one in ends].count(AuthenticationError) == 1


async def test_max_wait_is_shown_as_it_was_given() -> None:
    """A call that waited a part of it before does not show what is left."""
    service = Service(odd=lambda number: (429, {"retry-after": f"{20 * number}"}))
    async with reaching(service, max_wait=30.0) as session:
        with pytest.raises(QuotaWaitError, match=r"max_wait=30 s") as caught:
            await session.data.get(PATH)
    assert caught.value.max_wait == 30.0

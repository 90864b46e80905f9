"""Limits that no header shows: a session finds them by few refusals, and then keeps them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from chainapi import LimiterOptions, Session
from chainapi.simulator import Simulator
from tests.limits.changing import Changing
from tests.limits.counting import PATH, Service, time
from tests.limits.outside import many, scene
from tests.limits.runs import gate
from tests.limits.servers import Bucket, FromFirst, Gcra, Server, SlidingLog, Stacked
from tests.limits.wild import Front
from tests.sessions import reaching


async def test_hidden_windows_of_the_metrics_api() -> None:
    """A window without headers is used to nine tenths, with few refusals for each."""
    simulator = Simulator(metrics_limit=50, metrics_window=10.0, latency=0.05)
    async with Session(**simulator.arguments()) as session:
        calls = [session.metrics.get("/v1/avg_tps/43114") for _ in range(600)]
        await asyncio.gather(*calls)
    assert time() <= 110.0 / 0.9
    assert simulator.stats.answered[429] <= 40


def grown(rate: float, burst: float, factor: float) -> tuple[Callable[[], Changing], int, float, int]:
    """Return a drip that grows after 200 seconds, and requests for 300 seconds of the new pace.

    The new pace is used a minute after the change.
    """
    requests = int(rate * (200 + 300 * factor))
    drip = lambda: Changing(Bucket(60.0 * rate, 60.0, size=burst), 200.0, factor)  # noqa: E731
    return drip, requests, 200.0 + 60.0 + 300.0 / 0.9, 100


@pytest.mark.parametrize(
    ("server", "requests", "seconds", "refused"),
    [
        pytest.param(lambda: Bucket(10.0, 1.0, size=20.0), 400, 38.0 / 0.75, 40, id="drip"),
        pytest.param(lambda: SlidingLog(100.0, 10.0), 400, 30.0 / 0.75, 40, id="log"),
        pytest.param(lambda: FromFirst(20.0, 2.0), 400, 38.0 / 0.75, 40, id="short window"),
        pytest.param(lambda: Bucket(10.0, 1.0, size=1.0), 10_000, 1000.0 / 0.95, 50, id="seldom tested"),
        pytest.param(*grown(2.0, 100.0, 10.0), id="grown tenfold"),
        pytest.param(*grown(2.0, 100.0, 1.5), id="grown by half"),
        pytest.param(*grown(10.0, 2.0, 3.0), id="grown, no burst"),
    ],
)
async def test_hidden_limits_of_all_kinds(
    server: Callable[[], Server | Changing], requests: int, seconds: float, refused: int
) -> None:
    """Each kind of limit without headers is found by few refusals, and used nearly whole, also if it grows.

    A drip that stays is seldom tested: after a refused test the former pace continues.
    """
    await check(Service(server(), headers=False), requests, seconds, refused)


async def test_an_inner_limit_that_nothing_names() -> None:
    """Beside a shown limit that is never reached, one that only refuses is found, and paced."""
    outer, inner = FromFirst(90_000.0, 60.0), Bucket(10.0, 1.0, size=10.0)
    shown = {"ratelimit-limit": "90000", "ratelimit-remaining": "80000", "ratelimit-policy": "90000;w=60"}
    service = Service(Stacked(90_000.0, 60.0, first=outer, second=inner, in_turn=True), headers=shown)
    await check(service, 300, 30.0 / 0.75, 100 + 20)  # 100 are in flight at the first refusal


async def check(service: Service, requests: int, seconds: float, refused: int) -> None:
    """Send requests at once; they take no more than some seconds, and meet no more than some refusals."""
    async with reaching(service, limiter=LimiterOptions(isolated=True)) as session:
        await asyncio.gather(*(session.data.get(PATH) for _ in range(requests)))
    assert time() <= seconds
    assert len(service.refused) <= refused


def test_a_bucket_whose_pace_no_field_shows() -> None:
    """X- fields show the limit, and a reset that is rounded up to a second: refusals show the pace."""
    outcome = gate(scene(lambda: Gcra(1000.0, 60.0, size=10.0), many(1000), Front("x")))
    assert outcome.refusals <= 6
    assert outcome.goodput() >= 95.0

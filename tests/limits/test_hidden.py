"""Limits that no header shows: a session finds them by few refusals, and then keeps them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from chainapi import LimiterOptions, Session
from chainapi.simulator import Simulator
from chainapi.transport import Request, Response
from tests.limits.changing import Changing
from tests.limits.servers import Bucket, FromFirst, Gcra, Server, SlidingLog, Stacked
from tests.limits.wild import Front, Scene, ideal, many, run
from tests.sessions import reaching

PATH = "/v1/chains/43114"


class Hidden:
    """Service that counts, and says nothing of its limits but that a request was refused.

    With `shown` it has the limit fields of a limit that is never reached.
    """

    def __init__(self, server: Server | Changing, shown: bool = False) -> None:
        self.server, self.shown, self.refused = server, shown, 0

    async def send(self, request: Request) -> Response:
        """Count a request."""
        await asyncio.sleep(0.025)
        status = self.server.answer(asyncio.get_running_loop().time(), 1.0).status
        await asyncio.sleep(0.025)
        self.refused += status == 429
        fields = {
            "ratelimit-limit": "90000",
            "ratelimit-remaining": "80000",
            "ratelimit-policy": "90000;w=60",
        }
        return Response(status, fields if self.shown else {}, b"{}")

    async def aclose(self) -> None:
        """Close nothing."""


async def test_hidden_windows_of_the_metrics_api() -> None:
    """A window without headers is used to nine tenths, with few refusals for each."""
    simulator = Simulator(metrics_limit=50, metrics_window=10.0, latency=0.05)
    async with Session(**simulator.arguments()) as session:
        calls = [session.metrics.get("/v1/avg_tps/43114") for _ in range(600)]
        await asyncio.gather(*calls)
    assert asyncio.get_running_loop().time() <= 110.0 / 0.9
    assert simulator.stats.answered[429] <= 40


@pytest.mark.parametrize(
    ("server", "ideal"),
    [
        (lambda: Bucket(10.0, 1.0, size=20.0), 38.0),
        (lambda: SlidingLog(100.0, 10.0), 30.0),
        (lambda: FromFirst(20.0, 2.0), 38.0),
    ],
    ids=["drip", "log", "short window"],
)
async def test_hidden_limits_of_all_kinds(server: Callable[[], Server], ideal: float) -> None:
    """Units that drip back, a sliding log and a short window are found, and used to three quarters."""
    service = Hidden(server())
    async with reaching(service, limiter=LimiterOptions(isolated=True)) as session:
        await asyncio.gather(*(session.data.get(PATH) for _ in range(400)))
    assert asyncio.get_running_loop().time() <= ideal / 0.75
    assert service.refused <= 40


async def test_an_inner_limit_that_nothing_names() -> None:
    """Beside a shown limit that is never reached, one that only refuses is found, and paced."""
    inner = Bucket(10.0, 1.0, size=10.0)
    outer = FromFirst(90_000.0, 60.0)
    service = Hidden(Stacked(90_000.0, 60.0, first=outer, second=inner, in_turn=True), shown=True)
    async with reaching(service, limiter=LimiterOptions(isolated=True)) as session:
        await asyncio.gather(*(session.data.get(PATH) for _ in range(300)))
    assert asyncio.get_running_loop().time() <= 30.0 / 0.75
    assert service.refused <= 100 + 20  # those in flight at the first refusal


@pytest.mark.parametrize(
    ("rate", "burst", "factor"), [(2.0, 100.0, 10.0), (2.0, 100.0, 1.5), (10.0, 2.0, 3.0)]
)
async def test_a_hidden_drip_that_grew_is_found(rate: float, burst: float, factor: float) -> None:
    """A pace that passed for a minute is tested: so more is used soon after a plan grew."""
    service = Hidden(Changing(Bucket(60.0 * rate, 60.0, size=burst), 200.0, factor))
    async with reaching(service, limiter=LimiterOptions(isolated=True)) as session:
        requests = int(rate * (200 + 300 * factor))
        await asyncio.gather(*(session.data.get(PATH) for _ in range(requests)))
    assert asyncio.get_running_loop().time() <= 200.0 + 60.0 + 300.0 / 0.9
    assert service.refused <= 100


async def test_a_hidden_drip_that_stays_is_seldom_tested() -> None:
    """A refused test costs little: the former pace continues."""
    service = Hidden(Bucket(10.0, 1.0, size=1.0))
    async with reaching(service, limiter=LimiterOptions(isolated=True)) as session:
        await asyncio.gather(*(session.data.get(PATH) for _ in range(10_000)))
    assert asyncio.get_running_loop().time() <= 1000.0 / 0.95
    assert service.refused <= 50


def test_a_bucket_whose_pace_no_field_shows() -> None:
    """X- fields show the limit, and a reset that is rounded up to a second: refusals show the pace."""
    scene = Scene(lambda: Gcra(1000.0, 60.0, size=10.0), many(1000), Front("x"))
    outcome = run(scene)
    assert outcome.refusals <= 6
    assert outcome.seconds <= ideal(scene) / 0.95

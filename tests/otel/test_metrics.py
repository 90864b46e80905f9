"""Metrics of sessions: requests by status, waits, retries, refusals, restarts, quotas."""

from __future__ import annotations

import asyncio
import gc
import threading

import pytest

from chainapi import Cache, Limit, LimiterOptions, Session
from chainapi.errors import NotFoundError
from chainapi.otel import OpenTelemetry
from chainapi.otel.metrics import METRICS
from chainapi.simulator import Fault, Simulator
from tests.otel.recorded import Recorded
from tests.sessions import simulated

DURATION = "http.client.request.duration"
STATUS = "http.response.status_code"


async def test_requests_are_counted_by_status() -> None:
    """Each request counts once, with its status or the name of its error; so does each call."""
    recorded = Recorded()
    faults = [Fault(at=1, status=502), Fault(at=2, status=200, body=b"{"), Fault(at=4, status=404)]
    async with simulated(Simulator(faults=faults), telemetry=recorded.telemetry) as session:
        await session.data.chain(43114)
        with pytest.raises(NotFoundError):
            await session.data.chain(43114)
    template = "/v1/chains/{chainId}"
    assert recorded.values(DURATION, "url.template", STATUS, "error.type") == {
        (template, 200, None): 2,
        (template, 502, "502"): 1,
        (template, 404, "404"): 1,
    }
    assert recorded.values("chainapi.call.duration", "error.type") == {(None,): 1, ("NotFoundError",): 1}
    assert recorded.values("chainapi.retries", "error.type") == {("502",): 1, ("DecodeError",): 1}


async def test_waits_and_refusals_are_counted() -> None:
    """A 429 counts as a refusal, and each wait for quota with its reason and its seconds."""
    recorded = Recorded()
    simulator = Simulator(limit=2, window=30.0)
    async with simulated(simulator, telemetry=recorded.telemetry, rate=Limit(1, per=1.0)) as session:
        await asyncio.gather(*(session.data.chain(43114) for _ in range(4)))
        quota = recorded.values("chainapi.quota.limit", "chainapi.service")
    refused = recorded.values(DURATION, STATUS).get((429,), 0)
    assert recorded.values("chainapi.refusals").get((), 0) == refused
    waits = recorded.values("chainapi.quota.wait.duration", "chainapi.wait.reason")
    assert waits[("rate",)] >= 1
    seconds = sum(point.sum for name, point in recorded.points() if name == "chainapi.quota.wait.duration")
    assert seconds >= 29
    assert quota == {("data",): 2}


async def test_refusals_and_restarts_are_counted() -> None:
    """A refusal counts with its route, a restart with its service."""
    recorded = Recorded()
    faults = [Fault(at=1, status=429), Fault(at=3, status=400)]
    async with simulated(Simulator(points=150, faults=faults), telemetry=recorded.telemetry) as session:
        await session.metrics.avg_tps(43114).collect()
    assert recorded.values("chainapi.refusals", "url.template") == {("/v1/avg_tps/{chainId}",): 1}
    assert recorded.values("chainapi.restarts", "chainapi.service") == {("metrics",): 1}


async def test_answers_from_a_cache_are_counted() -> None:
    """An answer from a cache counts with its use, and not as a call or a request."""
    recorded = Recorded()
    async with simulated(Simulator(), telemetry=recorded.telemetry) as session:
        cached = session.with_options(cache=Cache(fresh=60.0))
        for _ in range(3):
            await cached.data.chain(43114)
    assert recorded.values("chainapi.cache.served", "chainapi.cache.use") == {("answer",): 2}
    assert recorded.values(DURATION) == recorded.values("chainapi.call.duration") == {(): 1}


async def test_request_that_was_cancelled_counts() -> None:
    """A request that was under way when its caller left counts as cancelled."""
    recorded = Recorded()
    async with simulated(Simulator(latency=60.0), telemetry=recorded.telemetry) as session:
        task = asyncio.create_task(session.data.chain(43114))
        await asyncio.sleep(1)
        task.cancel()
        await asyncio.wait((task,))
    assert recorded.values(DURATION, STATUS, "error.type") == {(None, "CancelledError"): 1}


async def test_quota_is_that_of_the_session() -> None:
    """The gauges read the quota of open sessions when they are asked, and the requests that wait."""
    recorded = Recorded()
    async with simulated(Simulator(limit=5, window=30.0), telemetry=recorded.telemetry) as session:
        assert recorded.values("chainapi.quota.remaining") == {}
        await asyncio.gather(*(session.data.chain(43114) for _ in range(3)))
        assert recorded.values("chainapi.quota.remaining", "server.port") == {(443,): 2}
        waiting = [asyncio.create_task(session.data.chain(43114)) for _ in range(4)]
        await asyncio.sleep(0.5)
        assert recorded.values("chainapi.quota.waiting", "chainapi.service")[("data",)] == 2
        await asyncio.gather(*waiting)
        assert recorded.values("chainapi.quota.waiting", "chainapi.service")[("data",)] == 0
        assert recorded.values("chainapi.quota.remaining") == {(): session.data.quota.remaining}
    assert recorded.values("chainapi.quota.remaining") == {}


async def test_quota_counts_back_while_nothing_is_sent() -> None:
    """After an idle window the gauge shows the whole limit again, without a new request."""
    recorded = Recorded()
    async with simulated(Simulator(limit=5, window=30.0), telemetry=recorded.telemetry) as session:
        for _ in range(3):
            await session.data.chain(43114)
        await asyncio.sleep(20)
        assert recorded.values("chainapi.quota.remaining") == {(): 2}
        await asyncio.sleep(30)
        assert recorded.values("chainapi.quota.remaining") == {(): 5}
        assert session.data.quota.back_at is None


async def test_quota_of_several_keys_is_the_smallest() -> None:
    """Of two sessions with quotas of their own at one server, the gauge shows the one with fewer units."""
    recorded, simulator = Recorded(), Simulator(limit=5, window=30.0)
    options = {"telemetry": recorded.telemetry, "limiter": LimiterOptions(isolated=True)}
    async with simulated(simulator, **options) as one, simulated(Simulator(limit=7), **options) as other:
        for session, calls in ((one, 2), (other, 1)):
            for _ in range(calls):
                await session.data.chain(43114)
        assert recorded.values("chainapi.quota.remaining") == {(): 3}
        assert recorded.values("chainapi.quota.limit") == {(): 5}


@pytest.mark.real_time
async def test_exporter_reads_in_the_loop() -> None:
    """An exporter in a thread of its own gets the quota of now from the loop, and waits for no busy loop."""
    recorded = Recorded()
    async with (
        Simulator(limit=5, window=30.0) as simulator,
        Session(
            data_base_url=simulator.data_base_url, api_key=simulator.api_key, telemetry=recorded.telemetry
        ) as session,
    ):
        await session.data.chain(43114)
        read = await asyncio.to_thread(recorded.values, "chainapi.quota.remaining")
        assert read == {(): 4}
        exporter = threading.Thread(target=lambda: read.update(recorded.values("chainapi.quota.remaining")))
        read.clear()
        exporter.start()
        exporter.join(10)  # the loop does nothing else meanwhile
        assert not exporter.is_alive()
        assert read == {}
        assert recorded.values("chainapi.quota.remaining") == {(): 4}


def test_loop_that_does_not_run_has_no_quota() -> None:
    """A session whose loop was left has no quota, and a dropped session is forgotten."""
    recorded = Recorded()

    async def leave() -> Session:
        session = simulated(Simulator(limit=5), telemetry=recorded.telemetry)
        await session.data.chain(43114)
        return session

    session = asyncio.run(leave())
    assert recorded.values("chainapi.quota.remaining") == {}
    quotas = recorded.telemetry._metrics._quotas
    assert len(quotas._sessions) == 1
    del session
    gc.collect()
    assert len(quotas._sessions) == 0


async def test_sessions_share_the_instruments_of_a_provider() -> None:
    """Many sessions, each with an OpenTelemetry of its own, add no instruments and no callbacks."""
    recorded = Recorded()
    for _ in range(3):
        telemetry = OpenTelemetry(recorded.tracers, recorded.meters)
        assert telemetry._metrics is recorded.telemetry._metrics
        async with simulated(Simulator(limit=9), telemetry=telemetry) as session:
            await session.data.chain(43114)
            assert telemetry._calls == {}
    assert recorded.values(DURATION) == {(): 3}


async def test_table_names_each_metric_and_attribute() -> None:
    """The table of metrics names exactly the metrics and attributes that there are."""
    recorded = Recorded()
    faults = [Fault(at=1, status=429), Fault(at=3, status=400), Fault(at=5, status=502)]
    simulator = Simulator(points=150, limit=2, window=5.0, faults=faults)
    seen: dict[str, set[str]] = {}
    async with simulated(simulator, telemetry=recorded.telemetry) as session:
        await session.metrics.avg_tps(43114).collect()
        await session.data.chain(43114)
        with pytest.raises(NotFoundError):
            await session.data.chain(9)
        cached = session.with_options(cache=Cache(fresh=60.0))
        for _ in range(2):
            await cached.data.chain(43114)
        for name, point in recorded.points():
            seen.setdefault(name, set()).update(point.attributes)
    assert seen == {one.name: set(one.attributes) for one in METRICS}

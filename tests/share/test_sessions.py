"""Sessions of several processes on one quota: settings, errors, events, and the end."""

from __future__ import annotations

import asyncio
import os
from typing import Any

import pytest
from aiolimiter import AsyncLimiter

from chainapi import Limit, LimiterOptions, Session
from chainapi.errors import ConfigurationError, QuotaWaitError, SessionClosedError
from chainapi.events import Event, PlanContradicted, QuotaWaitEnded, WaitBegan
from chainapi.simulator import Fault, Simulator
from chainapi.transport import Request, Response
from tests.client.services import time
from tests.sessions import simulated
from tests.share.exchange import Exchange
from tests.share.folders import share_folder

PATH = "/v1/chains/43114"


def opened(sim: Simulator, exchange: Exchange, **options: Any) -> Session:
    """Return the session of one more process."""
    return simulated(sim, **{"share": exchange.carrier(), **options})


async def test_pages_walk_through_a_shared_quota() -> None:
    """A stream of pages works as on a quota of its own, and reports its waits."""
    events: list[Event] = []
    sim, exchange = Simulator(limit=10, window=60.0), Exchange(delay=0.001)
    async with opened(sim, exchange, on_event=events.append) as session:
        rows = await session.data.list("/v1/chains/43114/blocks", items="blocks", page_size=10).collect(
            limit=300
        )
    assert len(rows) == 300
    assert any(isinstance(event, WaitBegan) for event in events)
    waits = [event for event in events if isinstance(event, QuotaWaitEnded)]
    assert 2 <= len(waits) <= 4, "asking the host is no wait"
    assert {wait.reason for wait in waits} <= {"quota", "stop"}
    assert sum(wait.seconds for wait in waits) > 100


async def test_settings_of_each_session_hold_in_the_host() -> None:
    """A session's rate and its cap on requests in flight hold although another process has the gate."""
    sim, exchange = Simulator(limit=10_000, window=60.0), Exchange()
    async with (
        opened(sim, exchange) as one,
        opened(sim, exchange, rate=Limit(5, per=1.0), max_in_flight=1) as two,
    ):
        await one.data.get(PATH)
        began = time()
        await asyncio.gather(*(two.data.get(PATH) for _ in range(25)))
        assert time() - began >= 3.9
        began = time()
        await asyncio.gather(*(one.data.get(PATH) for _ in range(25)))
        assert time() - began < 1.0


async def test_a_contradicted_plan_ends_in_each_session() -> None:
    """Each session that named a plan hears once that a response contradicts it; it is shown until then."""
    events: list[Event] = []
    sim, exchange = Simulator(limit=10_000, window=60.0), Exchange()
    async with (
        opened(sim, exchange, on_event=events.append, plan="free") as one,
        opened(sim, exchange, on_event=events.append, plan="free", limits={"data": [Limit(9)]}) as two,
        opened(sim, exchange, on_event=events.append) as other,
    ):
        await asyncio.gather(*(each.data.get(PATH) for each in (one, two, other)))
        await asyncio.sleep(2.0)
        for each in (one, two, other):
            await each.data.get(PATH)
        await asyncio.sleep(2.0)
        assert [each.quota["data"].plan for each in (one, two, other)] == ["", "", ""]
    ended = [event for event in events if isinstance(event, PlanContradicted)]
    assert ended == [PlanContradicted("data", "free", 10_000, 60)] * 2


@pytest.mark.parametrize("seconds", [0.0, 0.0005])
async def test_a_session_whose_closing_is_cancelled_leaves_its_quota(seconds: float) -> None:
    """A session ends its part in the quota although whoever closes it is cancelled."""
    sim, exchange = Simulator(latency=1.0), Exchange()
    async with opened(sim, exchange) as session:
        await session.data.get(PATH)
        calls = [session.with_options(coalesce=True).data.get(PATH) for _ in range(2)]
        reading = asyncio.gather(*calls, return_exceptions=True)
        await asyncio.sleep(0.5)
        closing = asyncio.create_task(session.aclose())
        await asyncio.sleep(seconds)
        closing.cancel()
        assert [type(error) for error in await reading] == [SessionClosedError] * 2
        with pytest.raises(asyncio.CancelledError):
            await closing
    assert exchange.links == []
    assert exchange.hosts == {}


async def test_processes_that_never_met_a_host_send_little() -> None:
    """Eight processes that never met have one request in flight each, two a second, and one 429 each."""
    sim, most, sent = Simulator(limit=100, window=20.0, latency=0.05), 0, 0

    class Watched:
        """Transport of one process."""

        def __init__(self) -> None:
            self.inner, self.flying = sim.transport(), 0

        async def send(self, request: Request) -> Response:
            """Count the requests under way."""
            nonlocal most, sent
            self.flying, sent = self.flying + 1, sent + 1
            most = max(most, self.flying)
            try:
                return await self.inner.send(request)
            finally:
                self.flying -= 1

        async def aclose(self) -> None:
            """Close nothing."""

    sessions = [opened(sim, Exchange(away=True), transport=Watched()) for _ in range(8)]
    calls = [asyncio.create_task(session.data.get(PATH)) for session in sessions for _ in range(60)]
    await asyncio.sleep(27.0)  # they look for a host for two seconds
    assert most == 1
    assert 100 <= sent <= 8 * 2 * 25
    assert sim.stats.answered[429] <= 8
    assert sim.stats.sent_while_stopped <= 8 * 2
    for call in calls:
        call.cancel()
    await asyncio.gather(*calls, return_exceptions=True)
    for session in sessions:
        await session.aclose()


REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("", {"share": "nonsense"}, "share='nonsense' must be True, False, 'local'"),
    ("", {"share": 1}, "share=1 must be"),
    ("", {"share": "amqp://me:secret@host/0"}, "share must be True"),
    ("", {"share": True, "limiter": LimiterOptions(isolated=True)}, "contradict"),
    ("", {"share": Exchange().carrier(), "rate": AsyncLimiter(5)}, "Limit"),  # a bucket of one loop
    ("yes", {}, "CHAINAPI_SHARE='yes' must be 1, 0, local, or the address"),
]


@pytest.mark.parametrize(("variable", "options", "said"), REFUSED)
def test_bad_arguments_are_refused(
    variable: str, options: dict[str, Any], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A choice that cannot work is refused in its own terms when the session is made, without passwords."""
    monkeypatch.setenv("CHAINAPI_SHARE", variable)
    with pytest.raises(ConfigurationError, match=said) as caught:
        Session(metrics_base_url="http://127.0.0.1:1", **options)
    assert "secret" not in str(caught.value)


async def test_variable_chooses_for_all_sessions(monkeypatch: pytest.MonkeyPatch) -> None:
    """CHAINAPI_SHARE counts where share= is not given."""
    sim, shared = Simulator(), dict[str, bool]()
    for value in ("", "0", "1", "local", "local, share=False"):
        with share_folder() as short:
            folder = short / "chainapi"
            monkeypatch.setenv("CHAINAPI_SHARE_DIR", str(folder))
            monkeypatch.setenv("CHAINAPI_SHARE", value.partition(",")[0])
            options: dict[str, Any] = {"share": False} if "," in value else {}
            async with Session(**sim.arguments(), **options) as session:
                await session.data.get(PATH)
            shared[value] = os.path.exists(folder)  # noqa: ASYNC240, PTH110 - a folder of the test
    assert [value for value in shared if shared[value]] == ["1", "local"]


async def test_sessions_of_one_loop_share_a_link_until_the_last_closes() -> None:
    """Two sessions of a process are one participant; the first to close leaves the other its link."""
    sim, exchange = Simulator(), Exchange()
    carrier = exchange.carrier()
    one, two = (Session(**sim.arguments(), share=carrier, timeout=seconds) for seconds in (10.0, 200.0))
    await one.data.get(PATH)
    await two.data.get(PATH)
    assert len(exchange.links) == 1
    await one.aclose()
    await two.data.get(PATH)
    assert (len(exchange.links), exchange.elections) == (1, 1)
    await two.aclose()
    assert exchange.links == []


async def test_without_a_host_a_session_sends_by_its_last_share(caplog: pytest.LogCaptureFixture) -> None:
    """Alone, a session sends the limit divided by those that shared it, and keeps `max_wait`."""
    sim, exchange = Simulator(limit=30, window=60.0), Exchange()
    sessions = [opened(sim, exchange) for _ in range(3)]
    for session in sessions:
        await session.data.get(PATH)
    await asyncio.sleep(1.0)
    exchange.cut()
    alone, *_ = sessions
    calls = [asyncio.create_task(alone.data.get(PATH)) for _ in range(12)]
    await asyncio.sleep(50.0)
    assert sim.stats.answered[200] <= 3 + 10
    assert alone.quota["data"].waiting >= 2
    with pytest.raises(QuotaWaitError):
        await alone.with_options(max_wait=1.0).data.get(PATH)
    calls.pop().cancel()
    exchange.away = False
    await asyncio.gather(*calls)
    assert (sim.stats.answered[429] <= 1, sim.stats.sent_while_stopped) == (True, 0)
    own = [one.message for one in caplog.records if one.name == "chainapi.share"]
    assert {one.levelname for one in caplog.records if "unavailable" in one.message} == {"WARNING"}
    assert [("unavailable" in text, "available again" in text) for text in own].count((True, False)) == 3
    assert [("unavailable" in text, "available again" in text) for text in own].count((False, True)) >= 1
    for session in sessions:
        await session.aclose()


async def test_a_stop_met_alone_reaches_a_host_that_begins() -> None:
    """A 429 that a process meets while the next host has not accepted it yet stops the other processes."""
    faults = [Fault(at=2, status=429, headers={"retry-after": "30"})]
    sim, exchange = Simulator(faults=faults), Exchange()
    async with opened(sim, exchange) as one, opened(sim, exchange) as two:
        await one.data.get(PATH)
        exchange.cut()
        await asyncio.sleep(5.0)
        exchange.away, exchange.delay = False, 0.5
        await asyncio.sleep(1.2)
        refused = asyncio.create_task(one.data.get(PATH))
        await asyncio.sleep(10.0)
        await two.data.get(PATH)
        await refused
    assert (sim.stats.answered[429], sim.stats.sent_while_stopped) == (1, 0)


async def test_a_longer_timeout_of_a_view_counts() -> None:
    """A request keeps its permit as long as the timeout of its view, not only that of its session."""
    sim, exchange = Simulator(latency=300.0, limit=10, window=1000.0), Exchange()
    async with opened(sim, exchange, timeout=20.0) as session:
        view = session.with_options(timeout=400.0)
        call = asyncio.create_task(view.data.get(PATH))
        await asyncio.sleep(200.0)
        assert session.quota["data"].in_flight == 1
        assert await call


async def test_sessions_from_before_a_fork_raise(monkeypatch: pytest.MonkeyPatch) -> None:
    """A child uses and closes nothing of its parent: the parent's session raises, and a new one works."""
    sim, exchange = Simulator(), Exchange()
    arguments: dict[str, Any] = {**sim.arguments(), "share": exchange.carrier()}
    parent = Session(**arguments)
    await parent.data.get(PATH)
    process = os.getpid()
    monkeypatch.setattr(os, "getpid", lambda: process + 1)
    with pytest.raises(ConfigurationError, match="made before a fork"):
        await parent.data.get(PATH)
    async with Session(**arguments) as child:
        assert await child.data.get(PATH)
        with pytest.raises(ConfigurationError, match="made before a fork"):
            await parent.aclose()
    monkeypatch.undo()
    await parent.aclose()

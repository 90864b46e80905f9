"""`max_waiting`: the calls that may wait for quota at once, and the next one that fails."""

from __future__ import annotations

import asyncio
from math import inf
from typing import Any

import pytest

from chainapi import LimiterOptions, Session, SessionView
from chainapi.errors import ConfigurationError, QueueFullError
from chainapi.models import EvmBlock
from chainapi.simulator import Simulator
from tests.sessions import simulated

PATH = "/v1/chains/43114"


def time() -> float:
    """Return the loop's time."""
    return asyncio.get_running_loop().time()


# --- the gate -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("most", "windows"), [(0, 1), (1, 1), (2, 1), (3, 2), (4, 2)])
async def test_refused_call_comes_again_when_those_that_wait_have_left(most: int, windows: int) -> None:
    """With two requests a minute, the wait is the minutes of those that wait, not of the call behind them."""
    async with simulated(Simulator(limit=2, window=60.0), max_waiting=most) as session:
        for _ in range(2):
            await session.data.get(PATH)
        began = time()
        waiting = [asyncio.create_task(session.data.get(PATH)) for _ in range(most)]
        await asyncio.sleep(0)
        with pytest.raises(QueueFullError) as caught:
            await session.data.get(PATH)
        assert caught.value.retry_after == pytest.approx(60.0 * windows, abs=1.5)
        await asyncio.gather(*waiting)
        assert time() - began <= caught.value.retry_after + 0.1


# --- sessions and views -------------------------------------------------------------------------


async def test_max_waiting_of_a_view() -> None:
    """Views made of one share its places, views with a limit of their own and the session do not."""
    simulator = Simulator(limit=2, window=60.0)
    async with simulated(simulator) as session:
        for _ in range(2):
            await session.data.get(PATH)
        web = session.with_options(max_waiting=2)
        derived = web.with_options(tag="request")
        calls = [asyncio.create_task(view.data.get(PATH)) for view in (web, derived)]
        await asyncio.sleep(0)
        for view in (web, derived):
            with pytest.raises(QueueFullError, match="max_waiting=2 calls"):
                await view.data.get(PATH)
        own = derived.with_options(max_waiting=1)
        free = web.with_options(max_waiting=inf)
        calls += [asyncio.create_task(view.data.get(PATH)) for view in (own, free, session, session)]
        await asyncio.sleep(0)
        with pytest.raises(QueueFullError, match="max_waiting=1 calls"):
            await own.data.get(PATH)
        await web.metrics.chains.list().collect(limit=1)  # another quota
        assert time() < 1.0
        await asyncio.gather(*calls)


async def test_equal_views_are_counted_together() -> None:
    """A view made for each request shares its places with the equal ones, whatever its headers are."""

    def view(session: Session, number: int, **options: Any) -> SessionView:
        tagged = session.with_options(tag="web", headers={"x-request-id": f"r{number}"})
        return tagged.with_options(max_waiting=2, **options)

    async with simulated(Simulator(limit=1, window=60.0)) as session:
        await session.data.get(PATH)
        calls = [asyncio.create_task(view(session, number).data.get(PATH)) for number in range(2)]
        await asyncio.sleep(0)
        for number in range(2, 4):
            with pytest.raises(QueueFullError):
                await view(session, number).data.get(PATH)
        calls.append(asyncio.create_task(view(session, 4, priority=1).data.get(PATH)))
        await asyncio.gather(*calls)


async def test_equal_views_are_coalesced() -> None:
    """Views made for each request share requests although they have `max_waiting`."""
    simulator = Simulator(limit=1, window=60.0)
    async with simulated(simulator) as session:
        await session.data.get(PATH)
        views = [session.with_options(coalesce=True, max_waiting=1) for _ in range(3)]
        await asyncio.gather(*(view.data.get(PATH) for view in views))  # one of them waits for quota
    assert simulator.stats.answered[200] == 2


async def test_max_waiting_of_a_session() -> None:
    """A session can have the limit too; its views share it."""
    async with simulated(Simulator(limit=1, window=60.0), max_waiting=1) as session:
        await session.data.get(PATH)
        waiting = asyncio.create_task(session.data.get(PATH))
        await asyncio.sleep(0)
        with pytest.raises(QueueFullError):
            await session.with_options(priority=1).data.get(PATH)
        await waiting


async def test_refused_page_has_a_checkpoint() -> None:
    """A stream whose next page is refused raises the error with its position, and continues from there."""
    simulator = Simulator(limit=3, window=60.0)
    async with simulated(simulator) as session:
        expected = await session.data.evm.blocks(43114, page_size=10).collect(limit=40)
        await asyncio.sleep(200.0)
        view = session.with_options(max_waiting=0)
        rows = list[EvmBlock]()

        async def read() -> None:
            async for page in view.data.evm.blocks(43114, page_size=10):
                rows.extend(page.items)

        with pytest.raises(QueueFullError) as caught:
            await read()
        assert 0 < len(rows) < 40
        assert caught.value.checkpoint is not None
        began = time()
        await asyncio.sleep(caught.value.retry_after + 1e-6)
        resumed = view.data.evm.blocks(43114, page_size=10, resume=caught.value.checkpoint)
        rows += await resumed.collect(limit=10)
        assert rows == expected[: len(rows)]
        assert time() - began <= 61.0


async def test_retries_of_an_admitted_call_are_not_refused() -> None:
    """A call that met a 429 waits for its next attempt, although no call may wait; others are refused."""
    simulator = Simulator(limit=1, window=10.0)
    other = simulated(simulator, limiter=LimiterOptions(isolated=True))
    async with other, simulated(simulator, limiter=LimiterOptions(isolated=True), max_waiting=0) as session:
        await other.data.get(PATH)
        began = time()
        call = asyncio.create_task(session.data.get(PATH))
        await asyncio.sleep(1.0)
        with pytest.raises(QueueFullError):
            await session.data.get(PATH)
        await call
        assert time() - began > 9.0


@pytest.mark.parametrize("value", [-1, 1.5, True, "10"])
def test_max_waiting_is_checked(value: object) -> None:
    """A limit that is no whole number from 0 up is refused, by sessions and by views."""
    with pytest.raises(ConfigurationError, match="max_waiting"):
        simulated(Simulator(), max_waiting=value)
    with pytest.raises(ConfigurationError, match="max_waiting"):
        simulated(Simulator()).with_options(max_waiting=value)  # type: ignore[arg-type]

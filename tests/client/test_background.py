"""Work in the background: its end, also while its owner is cancelled."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from typing import Any

import pytest

from chainapi._background import ahead, in_background
from chainapi.contrib.streams import SSEBody

pytestmark = pytest.mark.rule

ended = list[str]()


async def slow_to_end() -> None:
    """Wait for ever; take two steps to end after a cancellation."""
    try:
        await asyncio.Event().wait()
    finally:
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        ended.append("ended")


@asynccontextmanager
async def several() -> AsyncIterator[None]:
    """Run two coroutines at once; the first one has a result."""

    async def work() -> AsyncGenerator[Coroutine[Any, Any, None], None]:
        yield asyncio.sleep(0)
        yield slow_to_end()

    async with aclosing(ahead(work(), 2)) as results:
        await anext(results)
        yield


@asynccontextmanager
async def body() -> AsyncIterator[None]:
    """Stream server-sent events: a comment, and no row."""

    async def rows() -> AsyncGenerator[int, None]:
        await slow_to_end()
        yield 1

    async with SSEBody(rows(), heartbeat=0.001):
        yield


def block() -> AbstractAsyncContextManager[None]:
    """Run a coroutine while the block runs."""
    return in_background(slow_to_end())


@pytest.mark.parametrize("background", [block, several, body])
async def test_cancellation_during_the_end_is_raised(
    background: Callable[[], AbstractAsyncContextManager[None]],
) -> None:
    """An owner that is cancelled while its work ends is cancelled after that, with the text of anyio."""
    ended.clear()

    async def owner() -> None:
        async with background():
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            task = asyncio.current_task()
            assert task is not None
            asyncio.get_running_loop().call_soon(task.cancel, "by scope 1")
        pytest.fail("the cancellation was lost")

    task = asyncio.create_task(owner())
    await asyncio.wait([task])
    assert ended == ["ended"]
    with pytest.raises(asyncio.CancelledError, match="by scope 1"):
        task.result()

"""Exports of many sources: quota and memory."""

from __future__ import annotations

import asyncio
import gc
import math
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from chainapi import Session
from chainapi.export import export
from chainapi.simulator import Simulator
from chainapi.transport import Request, Response
from tests.ledger import block
from tests.sessions import simulated
from tests.test_session import DATA_URL, reply


@pytest.mark.parametrize("count", [50, pytest.param(500, marks=pytest.mark.proof)])
async def test_many_chains_through_one_quota(count: int, tmp_path: Path) -> None:
    """500 chains take at most 1.05 times what the quota allows, with three 429s."""
    limit, window = (120, 60.0) if count == 500 else (20, 60.0)
    chains = range(1, count + 1)
    simulator = Simulator(chains=chains, rows=40, limit=limit, window=window, latency=0.05)
    loop = asyncio.get_running_loop()
    async with simulated(simulator) as session:
        begun = loop.time()
        result = await export(session.data.evm.blocks, chains, tmp_path / "b.jsonl", page_size=10)
        taken = loop.time() - begun
    requests = count * 4
    assert result.rows == requests * 10
    assert simulator.stats.answered[200] == requests
    # The first window opens with the first request; then the last request waits for that number of windows.
    allowed = (math.ceil(requests / limit) - 1) * window
    assert taken <= 1.05 * allowed
    assert simulator.stats.answered[429] <= 3
    assert simulator.stats.sent_while_stopped == 0


class TwoPages:
    """A stateless service: five blocks and a token, then five older blocks."""

    async def send(self, request: Request) -> Response:
        """Return the page of a request."""
        await asyncio.sleep(0.01)
        older = "pageToken" in request.url
        blocks = [block(5 if older else 10, serial) for serial in range(5)]
        return reply({"blocks": blocks} if older else {"blocks": blocks, "nextPageToken": "older"})

    async def aclose(self) -> None:
        """Do nothing."""


@pytest.mark.proof
async def test_memory_does_not_grow_with_the_sources(tmp_path: Path) -> None:
    """An export of 720 sources takes as much memory as one of 520.

    A finished source leaves its name only; its rows would be 13 KiB. The number of pages that wait for a
    commit depends on the threads, up to a limit.
    """

    async def held(sources: int) -> tuple[int, int]:
        """Return the bytes at the end of fetching, and at the peak."""
        at_the_end = 0

        def note(progress: Any) -> None:
            nonlocal at_the_end
            if progress.stage == "writing":
                gc.collect()  # cycles are no memory that is held; a process with many modules collects seldom
                at_the_end = tracemalloc.get_traced_memory()[0]

        async with Session(transport=TwoPages(), data_base_url=DATA_URL, api_key="key") as session:
            over = (f"/v1/chains/{chain}/blocks" for chain in range(sources))  # without order: more is kept
            tracemalloc.start()
            result = await export(
                session.data.list, over, tmp_path / f"{sources}.jsonl", concurrency=16, progress=note
            )
            most = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
        assert result.rows == 10 * sources
        return at_the_end, most

    await held(20)  # what is loaded and compiled at first use
    few, many = await held(520), await held(720)  # the ledger of the gate, which is bounded, is full by then
    assert many[0] - few[0] < 600 * 1024
    assert many[1] - few[1] < 2 * 2**20

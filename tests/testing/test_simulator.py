"""Simulator of a test: its log of requests, and assertions that fail with what was sent."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import attrs
import pytest

from chainapi.errors import ArgumentError, ChainAPIError
from chainapi.simulator import Fault
from chainapi.testing import CheckedSimulator
from chainapi.transport import Request

BLOCKS = "/v1/chains/43114/blocks"
TPS = "/v1/avg_tps/43114"


async def send(simulator: CheckedSimulator, path: str = BLOCKS, **headers: str) -> int:
    """Send one request without a session, and return the status of its answer."""
    headers = headers or {"x-data-api-key": simulator.api_key}
    request = Request("GET", simulator.data_base_url + path, headers)
    return (await simulator.transport().send(request)).status


async def test_requests_are_logged() -> None:
    """The log has each request with its route, page, times and answer, and neither key nor page token."""
    simulator = CheckedSimulator(rows=25, api_key="s3cret", latency=2.0, faults=[Fault(at=2, status=503)])
    async with simulator.session() as session:
        await session.data.evm.blocks(43114, page_size=10).collect()
        pages = [(one.route, one.page, one.has_page_token, one.status) for one in simulator.requests]
    first, second = simulator.requests[:2]
    assert pages[:4] == [
        ("data.evm.blocks", 1, False, 200),
        ("data.evm.blocks", 2, True, 503),
        ("data.evm.blocks", 2, True, 200),
        ("data.evm.blocks", 3, True, 200),
    ]
    assert (first.number, first.method, first.path, first.quota) == (1, "GET", BLOCKS, "data")
    assert [first.sent, first.answered] == pytest.approx([0.0, 2.0], abs=1e-6)
    assert (second.number, second.retry_after, second.stopped) == (2, None, False)
    assert "page 3 -> 200" in simulator.timeline()
    tokens = [name for name in simulator._world._pages._tokens if name in simulator.timeline()]
    assert (tokens, "s3cret" in simulator.timeline() + repr(simulator)) == ([], False)


async def test_requests_are_chosen_and_counted() -> None:
    """Requests are chosen by route, status and page, and counted by route."""
    simulator = CheckedSimulator(rows=25, points=300, faults=[Fault(route="metrics.*", at=1, status=500)])
    async with simulator.session() as session:
        await session.data.evm.blocks(43114, page_size=10).collect()
        await session.metrics.avg_tps(43114).collect()
    assert (simulator.count("data.evm.blocks"), simulator.count("metrics.avg_tps")) == (3, 4)
    assert [one.page for one in simulator.select("data.*")] == [1, 2, 3]
    assert (simulator.count(), simulator.count(TPS), simulator.count(status=500)) == (7, 4, 1)
    assert (simulator.count("metrics.avg_tps", page=1), simulator.count(BLOCKS, status=500)) == (2, 0)
    simulator.assert_requests(3, "data.evm.blocks")
    with pytest.raises(AssertionError, match=r"3 requests to data.evm.blocks, not 4; sent were:\n +0.000 s"):
        simulator.assert_requests(4, "data.evm.blocks")
    with pytest.raises(AssertionError, match=r"^7 requests, not 0"):
        simulator.assert_requests(0)
    wrong: Any = ("data.evm.blocks", 3)
    with pytest.raises(
        ArgumentError, match=r"'data.evm.blocks' must be a whole number: it comes before the r"
    ):
        simulator.assert_requests(*wrong)


async def test_broken_and_unanswered_requests_are_logged() -> None:
    """A broken connection and a request to no service are in the log, too."""
    simulator = CheckedSimulator(faults=[Fault(at=1, disconnect=True)])
    with pytest.raises(ChainAPIError):
        await send(simulator)
    await simulator.transport().send(Request("GET", "https://elsewhere.invalid/other"))
    broken, other = simulator.requests
    assert (broken.broken, broken.status, broken.answered) == ("disconnect", None, None)
    assert (other.service, other.route, other.quota, other.status) == (None, None, "no service", 404)
    assert [str(one).split("-> ")[1] for one in simulator.requests] == ["disconnect", "404"]
    assert (simulator.count("data.evm.blocks"), simulator.count()) == (1, 2)


async def test_sending_in_a_stop_is_found() -> None:
    """A request before the end of a retry-after fails the assertion with both; one after it does not."""
    simulator = CheckedSimulator(limit=1, window=60.0)
    statuses = [await send(simulator) for _ in range(2)]
    await asyncio.sleep(60.0)
    statuses.append(await send(simulator))
    assert statuses == [200, 429, 200]
    simulator.assert_nothing_sent_in_stops()
    await send(simulator)
    await send(simulator)
    with pytest.raises(AssertionError) as caught:
        simulator.assert_nothing_sent_in_stops()
    text = str(caught.value)
    assert text.startswith("1 of 5 requests were sent inside a stop")
    assert f"60.000 s  GET {BLOCKS} -> 429, retry-after 60 s (inside a stop)" in text


async def test_session_keeps_both_promises() -> None:
    """A session at a limit gets one 429 at most, and sends nothing inside its stop."""
    simulator = CheckedSimulator(rows=100, limit=3, window=30.0)
    async with simulator.session() as session:
        rows = await session.data.evm.blocks(43114, page_size=10).collect()
    simulator.assert_nothing_sent_in_stops()
    simulator.assert_refused_at_most(3)
    simulator.assert_every_row_once(rows, BLOCKS)


async def test_refusals_are_counted_by_quota() -> None:
    """More 429s of one key than allowed fail with their lines; those of another key count apart."""
    simulator = CheckedSimulator(limit=1, other_keys=["second"])
    for _ in range(2):
        await send(simulator)
        await send(simulator, **{"x-data-api-key": "second"})
    simulator.assert_refused_at_most(1)
    assert {one.quota for one in simulator.requests} == {"data", "data, key 2"}
    await send(simulator, **{"x-data-api-key": "second"})
    with pytest.raises(AssertionError, match="more than 1 requests got status 429: 2 of data, key 2:"):
        simulator.assert_refused_at_most(1)


async def test_long_logs_are_cut() -> None:
    """The message of an assertion has the first and the last requests only."""
    simulator = CheckedSimulator()
    for _ in range(100):
        await send(simulator, "/v1/chains/43114")
    lines = simulator.timeline().splitlines()
    assert (len(lines), lines[30]) == (61, "... 40 more ...")
    assert CheckedSimulator().timeline() == "  none"


@attrs.frozen
class Own:
    """A row model of an application."""

    blockNumber: int  # noqa: N815 - as on the wire


READS: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "typed": (BLOCKS, lambda session: session.data.evm.blocks(43114, page_size=40)),
    "json": (BLOCKS, lambda session: session.data.list(BLOCKS, page_size=40)),
    "own": (BLOCKS, lambda session: session.data.list(BLOCKS, model=Own, page_size=40)),
    "points": (TPS, lambda session: session.metrics.avg_tps(43114)),
    "kinds": (
        "/v1/chains/43114/tokens/0x1/transfers",
        lambda session: session.data.list("/v1/chains/43114/tokens/0x1/transfers", page_size=40),
    ),
}


@pytest.mark.parametrize(("path", "read"), READS.values(), ids=READS)
async def test_every_row_once(path: str, read: Callable[[Any], Any]) -> None:
    """Rows of any model are compared with the list; a row that is lost or repeated is shown."""
    simulator = CheckedSimulator(rows=90, points=90, metrics_page_size=40)
    async with simulator.session() as session:
        rows = await read(session).collect()
    simulator.assert_every_row_once(rows, path)
    simulator.assert_every_row_once(reversed(rows), path)
    with pytest.raises(AssertionError, match=r"89 rows, and .* has 90:\n1 missing:\n  1 x "):
        simulator.assert_every_row_once(rows[1:], path)
    with pytest.raises(
        AssertionError, match=r"95 rows.*\n5 too many:\n  1 x [^\n]*(\n  1 x [^\n]*){2}\n  \.\.\.$"
    ):
        simulator.assert_every_row_once([*rows, *rows[:5]], path)


async def test_sessions_share_a_quota() -> None:
    """All sessions of a test simulator share one gate, as the sessions of a program do."""
    simulator = CheckedSimulator(limit=2, window=60.0)
    async with simulator.session() as one, simulator.session(tag="other") as other:
        for session in (one, other, one):
            await session.data.get("/v1/chains/43114")
    simulator.assert_nothing_sent_in_stops()
    simulator.assert_refused_at_most(1)

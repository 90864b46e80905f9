"""Contract of the seam `Transport`: one list of promises, run against every implementation.

All implementations reach the same simulator: in memory, over a port of the loopback interface, through a
recorder, and played from what the recorder wrote.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, TypeAlias

import aiohttp
import pytest
from attrs import frozen

import chainapi
from chainapi import Session
from chainapi.errors import APIConnectionError, ConnectError, SessionClosedError
from chainapi.simulator import Fault, Simulator
from chainapi.testing import Player, Recorder
from chainapi.transport import AiohttpTransport, Request, Response, Transport
from tests.raw_server import settle, until

pytestmark = pytest.mark.real_time

PACKAGE = Path(chainapi.__file__).parent
BLOCKS = "/v1/chains/43114/blocks"
WEBHOOK: dict[str, Any] = {
    "url": "https://example.org/hook",
    "chainId": "43114",
    "eventType": "address_activity",
    "metadata": {"addresses": ["0x9702230A8Ea53601f5cD2dc00fDBc13d4dF4A8c7"]},
}


@frozen
class Service:
    """Transport under test, and the Data API that it reaches."""

    transport: Transport
    base: str
    key: str

    async def get(self, path: str) -> Response:
        """Send a GET request."""
        return await self.send("GET", path)

    async def send(self, method: str, path: str, body: bytes | None = None) -> Response:
        """Send a request."""
        headers = {"x-data-api-key": self.key, "accept": "application/json"}
        if body is not None:
            headers["content-type"] = "application/json"
        return await self.transport.send(Request(method, self.base + path, headers, body))


Use: TypeAlias = Callable[[Service], Awaitable[Any]]
Kind: TypeAlias = Callable[[Simulator, Path, Use], AbstractAsyncContextManager[Service]]


def service_of(simulator: Simulator, transport: Transport) -> Service:
    """Return the Data API of a simulator behind a transport."""
    return Service(transport, simulator.data_base_url, simulator.api_key)


@asynccontextmanager
async def in_memory(simulator: Simulator, folder: Path, use: Use) -> AsyncIterator[Service]:
    """Reach the simulator without a socket."""
    transport = simulator.transport()
    yield service_of(simulator, transport)
    await transport.aclose()


@asynccontextmanager
async def over_a_port(simulator: Simulator, folder: Path, use: Use) -> AsyncIterator[Service]:
    """Reach the simulator over plain connections of aiohttp."""
    async with simulator, AiohttpTransport() as transport:
        yield service_of(simulator, transport)


@asynccontextmanager
async def through_a_client(simulator: Simulator, folder: Path, use: Use) -> AsyncIterator[Service]:
    """Reach the simulator through a `ClientSession` of the program."""
    async with simulator, aiohttp.ClientSession() as client, AiohttpTransport(client) as transport:
        yield service_of(simulator, transport)


@asynccontextmanager
async def recorded(simulator: Simulator, folder: Path, use: Use) -> AsyncIterator[Service]:
    """Reach the simulator through a recorder."""
    async with Recorder(folder / "recording.jsonl", simulator.transport()) as recorder:
        yield service_of(simulator, recorder)


@asynccontextmanager
async def played(simulator: Simulator, folder: Path, use: Use) -> AsyncIterator[Service]:
    """Play what a recorder wrote while the same was done before."""
    async with recorded(simulator, folder, use) as service:
        await use(service)
    player = Player(folder / "recording.jsonl")
    yield service_of(simulator, player)
    player.assert_all_played()


ON_SOCKETS = [
    pytest.param(over_a_port, marks=pytest.mark.adapter, id="aiohttp"),
    pytest.param(through_a_client, marks=pytest.mark.adapter, id="ClientSession"),
]
MEMORY, RECORDER, PLAYER = (
    pytest.param(kind, id=name)
    for kind, name in ((in_memory, "simulator"), (recorded, "recorder"), (played, "player"))
)
every = pytest.mark.parametrize("kind", [MEMORY, RECORDER, PLAYER, *ON_SOCKETS])
# A recording has no exchange without a response.
live = pytest.mark.parametrize("kind", [MEMORY, RECORDER, *ON_SOCKETS])
# A recording holds nothing that could be closed; a ClientSession of the program stays open.
closing = pytest.mark.parametrize("kind", [MEMORY, ON_SOCKETS[0]])


def of_a_transport(task: asyncio.Task[Any]) -> bool:
    """Check whether a task runs code of the package, the simulator included."""
    code = getattr(task.get_coro(), "cr_code", None)
    return code is not None and Path(code.co_filename).is_relative_to(PACKAGE)


async def nothing(service: Service) -> None:
    """Use no service."""


@every
async def test_any_status_is_a_response(kind: Kind, tmp_path: Path) -> None:
    """A response of any status is returned, with lower-case header names and the body as it was sent."""
    answers: list[tuple[int, bytes]] = [
        (200, b"\x00\xff no JSON"),
        (204, b""),
        (302, b"moved"),
        (401, b"{}"),
        (404, b'{"message": "no"}'),
        (429, b"slow down"),
        (500, b"<html>"),
        (599, "Zürich".encode()),
    ]
    headers = {"Retry-After": "7", "X-Request-Id": "r1", "Location": "/data/v1/chains"}
    faults = [
        Fault(at=number, status=status, body=body, headers=headers)
        for number, (status, body) in enumerate(answers, 1)
    ]

    async def use(service: Service) -> list[Response]:
        return [await service.get(f"{BLOCKS}?pageSize={number}") for number in range(1, len(answers) + 1)]

    simulator = Simulator(faults=faults)
    async with kind(simulator, tmp_path, use) as service:
        responses = await use(service)
    assert [(response.status, response.body) for response in responses] == answers
    for response in responses:
        assert all(name == name.lower() for name in response.headers)
        told = response.headers["retry-after"], response.headers["x-request-id"], response.headers["location"]
        assert told == ("7", "r1", "/data/v1/chains")
    assert simulator.stats.requests == len(answers), "a redirect is followed, or a request repeated"


@every
async def test_requests_arrive_as_they_are(kind: Kind, tmp_path: Path) -> None:
    """Method, path, query, key and body of a request reach the service; its answer comes back whole."""

    async def use(service: Service) -> tuple[Response, Response, Response]:
        page = await service.get(f"{BLOCKS}?pageSize=25")
        escaped = await service.get("/v1/chains/43114%2Fblocks")
        return page, escaped, await service.send("POST", "/v1/webhooks", json.dumps(WEBHOOK).encode())

    simulator = Simulator(rows=40)
    async with kind(simulator, tmp_path, use) as service:
        page, escaped, created = await use(service)
    assert json.loads(page.body)["blocks"] == simulator.rows_of(BLOCKS)[:25]
    assert (page.status, escaped.status, created.status) == (200, 400, 201)
    assert json.loads(created.body)["url"] == WEBHOOK["url"]


@every
async def test_responses_are_not_mixed_up(kind: Kind, tmp_path: Path) -> None:
    """Fifty requests at once each get their own response."""
    sizes = range(1, 51)

    async def use(service: Service) -> list[Response]:
        return await asyncio.gather(*(service.get(f"{BLOCKS}?pageSize={size}") for size in sizes))

    async with kind(Simulator(rows=60), tmp_path, use) as service:
        found = [len(json.loads(response.body)["blocks"]) for response in await use(service)]
    assert found == [*sizes]


@every
async def test_a_session_reads_the_same_rows(kind: Kind, tmp_path: Path) -> None:
    """A session has the same rows over any transport, in order and each once, and leaves it open."""

    async def use(service: Service) -> list[Any]:
        options: dict[str, Any] = {"data_base_url": service.base, "api_key": service.key}
        async with Session(**options, transport=service.transport) as session:
            rows = await session.data.list(BLOCKS, page_size=10).collect()
        await service.get("/v1/chains/43114")
        return rows

    simulator = Simulator(rows=35)
    async with kind(simulator, tmp_path, use) as service:
        assert await use(service) == simulator.rows_of(BLOCKS)


@live
async def test_a_lost_response_is_a_connection_error(kind: Kind, tmp_path: Path) -> None:
    """A broken connection raises APIConnectionError, sends nothing again, and spoils no later request."""
    simulator = Simulator(faults=[Fault(at=1, disconnect=True), Fault(at=2, truncate=True)])
    async with kind(simulator, tmp_path, nothing) as service:
        for number in (1, 2):
            with pytest.raises(APIConnectionError) as caught:
                await service.get("/v1/chains/43114")
            assert not isinstance(caught.value, ConnectError), "ConnectError says that nothing was sent"
            assert simulator.stats.requests == number
        assert (await service.get("/v1/chains/43114")).status == 200


@live
async def test_a_cancelled_request_leaves_nothing(kind: Kind, tmp_path: Path) -> None:
    """A request that is cancelled, or times out, ends at once; no task stays, and the next one works."""
    simulator = Simulator(faults=[Fault(at=2, stall=True), Fault(at=3, stall_body=True)])
    async with kind(simulator, tmp_path, nothing) as service:
        assert (await service.get("/v1/chains/43114")).status == 200
        before = {task for task in asyncio.all_tasks() if of_a_transport(task)}
        for number in (2, 3):
            task = asyncio.create_task(service.get("/v1/chains/43114"))
            await until(lambda number=number: simulator.stats.requests == number)  # type: ignore[misc]
            await settle(50)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        assert (await service.get("/v1/chains/43114")).status == 200
        await until(lambda: {task for task in asyncio.all_tasks() if of_a_transport(task)} <= before)


@closing
async def test_a_closed_transport_refuses(kind: Kind, tmp_path: Path) -> None:
    """A closed transport sends nothing, closed once, twice or by two tasks at once."""
    simulator = Simulator()
    async with kind(simulator, tmp_path, nothing) as service:
        assert (await service.get("/v1/chains/43114")).status == 200
        await asyncio.gather(service.transport.aclose(), service.transport.aclose())
        await service.transport.aclose()
        with pytest.raises(SessionClosedError):
            await service.get("/v1/chains/43114")
        assert simulator.stats.requests == 1


async def test_a_recorder_leaves_the_transport_that_it_was_given_open(tmp_path: Path) -> None:
    """A recorder closes connections of its own only: the transport that it was given still sends."""
    simulator = Simulator()
    transport = simulator.transport()
    async with Recorder(tmp_path / "recording.jsonl", transport) as recorder:
        await recorder.aclose()
        await recorder.aclose()
    assert (await service_of(simulator, transport).get("/v1/chains/43114")).status == 200

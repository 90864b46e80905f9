"""Canned server in its own process: pages of blocks or points at socket speed."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from multiprocessing.connection import Connection

import msgspec

from chainapi.simulator import Simulator
from chainapi.testing import VirtualLoop
from chainapi.transport import Request
from tests.bench.figures import child

BLOCKS, POINTS = "/v1/chains/43114/blocks", "/v1/avg_tps/43114"
NEWEST = 1_767_225_600  # Unix time of the first row
HOUR = 3_600  # seconds from one point to the next


async def canned_bodies(points: int, rows: int = 100) -> dict[str, bytes]:
    """Return the first page of each path from the simulator."""
    simulator = Simulator(rows=100_000, points=1_000_000, metrics_page_size=points)
    transport = simulator.transport()
    bodies: dict[str, bytes] = {}
    for path, base, query in (
        (BLOCKS, simulator.data_base_url, f"?pageSize={rows}"),
        (POINTS, simulator.metrics_base_url, ""),
    ):
        request = Request("GET", base + path + query, {"x-data-api-key": simulator.api_key})
        answer = await transport.send(request)
        fields = msgspec.json.decode(answer.body)
        fields.pop("nextPageToken", None)
        bodies[path] = msgspec.json.encode(fields)
    return bodies


def older(body: bytes, rows: int) -> bytes:
    """Return a page that many rows further down its list, so that no row comes twice."""
    hours = count(NEWEST // HOUR - rows, -1)
    body = re.sub(rb'"timestamp":\d+', lambda _: b'"timestamp":%d' % (next(hours) * HOUR), body)
    seconds = count(NEWEST - 2 * rows, -2)
    body = re.sub(rb'"blockTimestamp":\d+', lambda _: b'"blockTimestamp":%d' % next(seconds), body)
    numbers = count(NEWEST - rows, -1)
    body = re.sub(rb'"blockNumber":"\d+"', lambda _: b'"blockNumber":"%d"' % next(numbers), body)
    return re.sub(rb'"blockHash":"0x.{8}', b'"blockHash":"0x%08x' % rows, body)


def with_nulls(body: bytes, first: int, nulls: int) -> bytes:
    """Return a page of blocks with null in each row whose number `nulls` divides."""
    fields = msgspec.json.decode(body)
    for place, row in enumerate(fields["blocks"], first):
        if not place % nulls:
            row["blockTimestampMilliseconds"] = None
    return msgspec.json.encode(fields)


UNITS = 1_000_000_000  # of the announced window; a request takes one of them


class Canned(asyncio.Protocol):
    """Server of page n of `pages` for the token `n`; the last page has no token.

    `left` counts the units of the window for all connections. It does not support pipelining.
    """

    def __init__(self, bodies: dict[str, list[bytes]], pages: int, left: Iterator[int]) -> None:
        self._bodies = bodies
        self._pages = pages
        self._left = left

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Answer a request; requests of a client that reads whole answers arrive whole."""
        match = re.match(rb"GET ([^? ]+)(?:\?(?:[^ ]*&)?(?:pageToken=([^& ]+))?)?", data)
        assert match is not None
        page = int((match[2] or b"0").rsplit(b"-", 1)[-1], 16)
        bodies = self._bodies[match[1].decode()]
        body = bodies[page % len(bodies)]
        if page + 1 < self._pages:
            token = f"00000000-0000-4000-8000-{page + 1:012x}".encode()
            body = body[:-1] + b',"nextPageToken":"' + token + b'"}'
        head = (
            b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nratelimit-policy: %d;w=60\r\n"
            b"ratelimit-limit: %d\r\nratelimit-remaining: %d\r\ncontent-length: %d\r\n\r\n"
        )
        self._transport.write(head % (UNITS, UNITS, next(self._left), len(body)) + body)


def serve(pipe: Connection, pages: int, points: int, rows: int, nulls: int) -> None:
    """Run the server until the process is ended."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        first = runner.run(canned_bodies(points, rows))
    sizes = {path: body.count(b'"timestamp"') + body.count(b'"blockNumber"') for path, body in first.items()}
    bodies = {
        path: [older(body, page * sizes[path]) for page in range(pages)] for path, body in first.items()
    }
    if nulls:
        bodies[BLOCKS] = [with_nulls(body, page * rows, nulls) for page, body in enumerate(bodies[BLOCKS])]

    left = count(UNITS - 1, -1)

    async def run() -> None:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(lambda: Canned(bodies, pages, left), "127.0.0.1", 0)
        pipe.send(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    asyncio.run(run())


@contextmanager
def canned_server(pages: int, points: int = 100, *, rows: int = 100, nulls: int = 0) -> Iterator[str]:
    """Start a canned server, yield its base address, and end it.

    A page has `points` points or `rows` blocks. Blocks whose number `nulls` divides have a null.
    """
    with child(serve, pages, points, rows, nulls) as port:
        yield f"http://127.0.0.1:{port}"

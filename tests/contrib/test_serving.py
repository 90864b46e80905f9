"""A FastAPI application on uvicorn: real sockets, clients that disconnect."""

from __future__ import annotations

import contextlib
import logging

import pytest
from fastapi import FastAPI

from chainapi.simulator import Fault, Simulator
from tests.contrib.applications import application
from tests.contrib.serving import asked, served
from tests.raw_server import let_pass, settle, until

CHAIN = 43114
pytestmark = [pytest.mark.real_time, pytest.mark.adapter]


def waiting(app: FastAPI) -> int:
    """Return how many requests of an application wait for quota."""
    number: int = app.state.chainapi.quota["metrics"].waiting
    return number


@pytest.mark.parametrize(
    ("http", "path"),
    [("h11", f"/tps/{CHAIN}"), ("httptools", f"/tps/{CHAIN}/events")],
    ids=["h11", "httptools"],
)
async def test_disconnect_ends_the_upstream_work(http: str, path: str) -> None:
    """After a client has disconnected amid a stream, no request is sent for it."""
    simulator = Simulator(points=1_000, metrics_limit=2, metrics_window=600)
    app = application(simulator)
    async with served(app, http) as port:
        async with asked(port, path) as reader:
            assert await reader.readline() == b"HTTP/1.1 200 OK\r\n"
            await until(lambda: waiting(app) == 1)
        await until(lambda: waiting(app) == 0)
        sent = simulator.stats.requests
        let_pass(1_000)
        await settle()
        assert simulator.stats.requests == sent


async def test_stream_is_sent_while_pages_arrive(caplog: pytest.LogCaptureFixture) -> None:
    """A client has the first page, and the wait, while the second one waits for quota."""
    simulator = Simulator(points=300, metrics_limit=1, metrics_window=600)
    app = application(simulator)
    with caplog.at_level(logging.ERROR):
        async with served(app, "h11") as port, asked(port, f"/tps/{CHAIN}/events") as reader:
            text = await reader.readuntil(b"event: rows")
            for _ in range(4):  # the pauses after refusals that name no wait grow
                await until(lambda: waiting(app) == 1)
                let_pass(2)
                await settle()
            text += await reader.readuntil(b"event: waiting")
    assert b"x-accel-buffering: no" in text
    assert text.count(b'"value"') == 100
    assert caplog.text == ""


@pytest.mark.parametrize(
    ("faults", "kind", "waits"),
    [
        pytest.param([Fault(every=1, status=429, headers={"retry-after": "60"})], "quota", True, id="quota"),
        pytest.param([Fault(every=1, stall=True)], "unavailable", False, id="a slow service"),
    ],
)
async def test_server_that_shuts_down_answers_streams_that_wait_for_a_page(
    faults: list[Fault], kind: str, waits: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """A stream without a page when the server ends it is a 503, with the wait for quota if there is one."""
    simulator = Simulator(points=300, faults=faults)
    app = application(simulator)
    async with contextlib.AsyncExitStack() as clients:
        async with served(app, grace=0) as port:
            reader = await clients.enter_async_context(asked(port, f"/tps/{CHAIN}"))
            await until(lambda: simulator.stats.requests == 1)
            await until(lambda: not waits or waiting(app) == 1)
        text = (await reader.read()).decode()
    assert text.startswith("HTTP/1.1 503 ")
    assert f"urn:chainapi:{kind}" in text
    assert ("\r\nretry-after: 60\r\n" in text) is waits
    assert [one for one in caplog.records if one.exc_info] == []

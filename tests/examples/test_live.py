"""The live page of docs/examples/live in headless Chromium, served by uvicorn on a loopback port.

The page, the application and the simulator meet in one event loop, whose clock jumps over waits for quota.
"""

from __future__ import annotations

import asyncio
import json
import re
import socket
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
import uvicorn
from fastapi import FastAPI
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from chainapi import Session
from chainapi.simulator import Fault, Simulator
from docs.examples.live.app import EVERY, live_app
from tests.examples.browser import PATIENCE, Tab, browser, tab
from tests.real_loop import RealLoop

if TYPE_CHECKING:
    from playwright.async_api import Route  # type: ignore[import-not-found, unused-ignore]

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.real_time,
    pytest.mark.proof,
    pytest.mark.browser,
]
__all__ = ["browser", "tab"]  # fixtures

CHAINS = (43114, 53935, 432204)
CHOSEN = "/?" + "&".join(f"chain={chain}" for chain in CHAINS)
POINTS = 300  # three pages for each chain
LIMIT = 7  # requests in a window: the list of chains, two pages of each chain
WINDOW = 30.0  # seconds


ANNOUNCED = """
window.announced = [];
addEventListener("DOMContentLoaded", () => {
  const status = document.querySelector("[role=status]");
  const heard = new MutationObserver(() => announced.push(status.textContent));
  heard.observe(status, { childList: true });
});
"""


def simulated(**settings: Any) -> Simulator:
    """Return a simulator whose quota is used up amid the lists."""
    limits = {"metrics_limit": LIMIT, "metrics_window": WINDOW}
    return Simulator(**{"seed": 7, "points": POINTS, "latency": 0.01, **limits, **settings})


class Streams:
    """Application that counts the streams which it answers.

    Attributes:
        started: set when the application has a session.
        ended: set when no stream is open any more.

    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app
        self.open = 0
        self.started, self.ended = asyncio.Event(), asyncio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] == "lifespan":
            await self.app(scope, receive, self._starting(send))
            return
        counts = scope["path"].startswith("/tps/")
        self.open += counts
        try:
            await self.app(scope, receive, send)
        finally:
            self.open -= counts
            if counts and not self.open:
                self.ended.set()

    def _starting(self, send: Send) -> Send:
        async def sent(message: Message) -> None:
            await send(message)
            self.started.set()

        return sent


@asynccontextmanager
async def served(simulator: Simulator, listener: socket.socket) -> AsyncIterator[tuple[FastAPI, Streams]]:
    """Serve the application on a socket, and end it after the block, open streams included."""
    app = live_app(metrics_base_url=simulator.metrics_base_url)
    streams = Streams(app)
    config = uvicorn.Config(streams, log_level="critical", ws="none", timeout_graceful_shutdown=0)
    server = uvicorn.Server(config)
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    try:
        await streams.started.wait()
        yield app, streams
    finally:
        server.should_exit = True
        await serving


def listening() -> tuple[socket.socket, str]:
    """Return a socket on a free port, and the address of a page there."""
    listener = socket.create_server(("127.0.0.1", 0))
    return listener, f"http://127.0.0.1:{listener.getsockname()[1]}"


async def state(tab: Tab, *states: str) -> str:
    """Wait until the page is in one of some states; return it."""
    selector = ",".join(f'#progress[data-state="{one}"]' for one in states)
    found = await tab.page.wait_for_selector(selector)
    assert found is not None
    return await found.get_attribute("data-state") or ""


async def reach(tab: Tab, app: FastAPI, wanted: str) -> None:
    """Let time pass while no request is in flight, until the page is in a state."""
    session, loop = app.state.chainapi, asyncio.get_running_loop()
    assert isinstance(session, Session)
    assert isinstance(loop, RealLoop)
    for _ in range(5_000):
        if await state(tab, "receiving", "waiting", "fault", "complete") == wanted:
            return
        if session.quota["metrics"].in_flight == 0:
            loop.jump(0.5 if wanted == "waiting" else 5.0)
    pytest.fail(f"the page did not become {wanted}: {await tab.page.inner_text('main')}")


async def points(tab: Tab) -> dict[int, int]:
    """Return the number of points in the line of each chain, as drawn in the next frame."""
    await tab.page.evaluate("new Promise(drawn => requestAnimationFrame(() => requestAnimationFrame(drawn)))")
    script = "lines => lines.map(line => [line.dataset.chain, line.dataset.points, line.getTotalLength()])"
    drawn = await tab.page.eval_on_selector_all("#chart path.series", script)
    return {int(chain): int(number) for chain, number, length in drawn if length > 100}


async def row_states(tab: Tab) -> list[str]:
    """Return the states in the rows of the table."""
    states: list[str] = await tab.page.locator("#series .state").all_inner_texts()
    return states


def received(tab: Tab) -> dict[int, Counter[int]]:
    """Return how often the server sent each point of each chain, counted in the network traffic."""
    chains: dict[str, int] = {}
    counts = {chain: Counter[int]() for chain in CHAINS}

    def requested(event: dict[str, Any]) -> None:
        if found := re.search(r"/tps/(\d+)", event["request"]["url"]):
            chains[event["requestId"]] = int(found[1])

    def arrived(event: dict[str, Any]) -> None:
        if event["eventName"] == "rows":
            rows = json.loads(event["data"])
            counts[chains[event["requestId"]]].update(row["timestamp"] for row in rows)

    tab.network.on("Network.requestWillBeSent", requested)
    tab.network.on("Network.eventSourceMessageReceived", arrived)
    return counts


def each_once(simulator: Simulator) -> dict[int, Counter[int]]:
    """Return the points of the service, each once."""
    rows = {chain: simulator.rows_of(f"/v1/avg_tps/{chain}") for chain in CHAINS}
    return {chain: Counter(row["timestamp"] for row in rows[chain]) for chain in CHAINS}


async def test_points_are_drawn_while_pages_arrive(tab: Tab) -> None:
    """Each chain has a line while the page shows a wait for quota; then all points are drawn.

    The live region announces that, and not each second. Nothing is sent in a stop, nothing is loaded from
    elsewhere, and no error is on the console.
    """
    listener, address = listening()
    async with simulated() as simulator, served(simulator, listener) as (app, _):
        sent = received(tab)
        await tab.page.add_init_script(ANNOUNCED)
        await tab.page.goto(address + CHOSEN)
        await reach(tab, app, "waiting")
        assert re.fullmatch(r"Waiting for quota: \d+ s", await tab.page.inner_text("#progress"))
        assert {*await row_states(tab)} <= {"waiting for quota", "up to date"}
        begun = await points(tab)
        assert set(begun) == set(CHAINS)
        assert 0 < sum(begun.values()) < len(CHAINS) * POINTS
        simulator.advance(25 * 3600)  # the page tokens expire: the walks begin again
        await reach(tab, app, "complete")
        assert await points(tab) == dict.fromkeys(CHAINS, POINTS)
        assert sent == each_once(simulator)
        assert "restarted once" in await tab.page.inner_text("#series")
        announced = await tab.page.evaluate("announced")
        assert announced[-1] == "Up to date: 900 points of 3 chains"
        assert {text.partition(":")[0] for text in announced[:-1]} == {"Receiving pages", "Waiting for quota"}
        assert simulator.stats.sent_while_stopped == 0
    assert tab.errors == []
    assert {url for url in tab.urls if not url.startswith(address)} == set()


async def test_new_points_are_drawn_as_the_lists_gain_them(tab: Tab) -> None:
    """A page that has all points draws new ones, also after a restart of the server."""
    listener, address = listening()
    second = listener.dup()
    async with simulated(metrics_limit=None) as simulator:
        sent = received(tab)
        async with served(simulator, listener) as (app, _):
            await tab.page.goto(address + CHOSEN)
            await reach(tab, app, "complete")
            assert await row_states(tab) == ["up to date"] * 3
            await gain(simulator, tab, 1)
        await state(tab, "fault")
        async with served(simulator, second) as (app, _):
            await reach(tab, app, "complete")
            await gain(simulator, tab, 2)
        assert await points(tab) == dict.fromkeys(CHAINS, POINTS + 2)
        assert sent == each_once(simulator)
    assert {error for error in tab.errors if "net::ERR_" not in error} == set()


async def gain(simulator: Simulator, tab: Tab, points: int) -> None:
    """Give each chain a point, and wait until the page has it: so many more than at first."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, RealLoop)
    for chain in CHAINS:
        simulator.insert(f"/v1/avg_tps/{chain}", 1)
    loop.jump(EVERY)
    total = len(CHAINS) * (POINTS + points)
    await tab.page.get_by_text(f"Up to date: {total:,} points of 3 chains").wait_for()


async def test_a_page_that_connects_again_gets_each_point_once(tab: Tab) -> None:
    """After a restart of the server amid the lists, the page continues behind its last points."""
    listener, address = listening()
    second = listener.dup()
    async with simulated() as simulator:
        sent = received(tab)
        async with served(simulator, listener) as (app, _):
            await tab.page.goto(address + CHOSEN)
            await reach(tab, app, "waiting")
            assert sum(map(len, sent.values())) > 0
        await state(tab, "fault")
        before = {chain: Counter(counts) for chain, counts in sent.items()}
        async with served(simulator, second) as (app, _):
            await reach(tab, app, "complete")
        assert before != sent == each_once(simulator)
        assert await points(tab) == dict.fromkeys(CHAINS, POINTS)
        assert simulator.stats.sent_while_stopped == 0
    assert {error for error in tab.errors if "net::ERR_" not in error} == set()


@pytest.mark.parametrize("how", ["leave", "stop"])
async def test_a_reader_that_leaves_ends_the_upstream_work(tab: Tab, how: str) -> None:
    """After the reader left or pressed Stop, no request waits or is in flight, and none follows."""
    listener, address = listening()
    async with simulated() as simulator, served(simulator, listener) as (app, streams):
        await tab.page.goto(address + CHOSEN)
        await reach(tab, app, "waiting")
        session, loop = app.state.chainapi, asyncio.get_running_loop()
        assert isinstance(loop, RealLoop)
        assert session.quota["metrics"].waiting > 0
        if how == "leave":
            await tab.page.goto("about:blank")
        else:
            await tab.page.press("#stop", "Enter")
            assert (await tab.page.inner_text("#status")).startswith("Stopped: ")
        await asyncio.wait_for(streams.ended.wait(), PATIENCE / 1_000)
        requests, quota = simulator.stats.requests, session.quota["metrics"]
        assert (quota.waiting, quota.in_flight) == (0, 0)
        loop.jump(2 * WINDOW)
        await tab.page.goto(address)  # the server works, and has nothing else to do
        await tab.page.wait_for_selector("#chains input")
        assert simulator.stats.requests == requests + 1  # the list of chains


async def test_a_problem_is_shown_and_can_be_tried_again(tab: Tab) -> None:
    """A chain that fails says why, and the others continue; its button reads it from the beginning."""
    listener, address = listening()
    fault = Fault(route="/v1/avg_tps/53935", after_page=1, status=403, messages=["not this chain"])
    simulator = simulated(faults=[fault], metrics_limit=None)
    async with simulator, served(simulator, listener) as (app, _):
        await tab.page.goto(address + CHOSEN)
        again = await tab.page.wait_for_selector("#series button")
        assert again is not None
        failed = await tab.page.inner_text('#series [data-chain="53935"] .state')
        assert failed.startswith("failed: an upstream service failed")
        assert await state(tab, "fault") == "fault"  # the other chains are complete
        assert await tab.page.inner_text("#status") == "1 of 3 chains failed"
        simulator.faults = ()
        await again.press("Enter")
        await reach(tab, app, "complete")
        assert await points(tab) == dict.fromkeys(CHAINS, POINTS)


def event(name: str, data: object, **fields: object) -> str:
    """Return a server-sent event."""
    lines = {**fields, "event": name, "data": json.dumps(data)}
    return "".join(f"{field}: {value}\n" for field, value in lines.items()) + "\n"


async def test_a_problem_with_a_known_wait_needs_no_button(tab: Tab) -> None:
    """The browser connects again after the wait of a problem, and the page draws the other points."""
    rows = [{"timestamp": day * 86_400, "value": 1.0} for day in range(20_000, 20_100)]
    problem = {"detail": "quota is available again in 0.1 s", "retry_after": 0.1}
    position = json.dumps({"restarts": 0})  # as much of a checkpoint as the page reads
    following = asyncio.Event()
    answers = [
        event("rows", rows[:50], id=position) + event("end", {}),
        event("rows", rows[50:], id=position) + event("problem", problem, retry=100),
    ]

    async def answer(route: Route) -> None:
        await route.fulfill(body=answers.pop(), content_type="text/event-stream")

    async def follow(_: Route) -> None:
        await following.wait()

    listener, address = listening()
    async with simulated() as simulator, served(simulator, listener):
        await tab.page.route("**/tps/43114", answer)
        await tab.page.route("**/tps/43114/new*", follow)
        await tab.page.add_init_script(ANNOUNCED)
        await tab.page.goto(f"{address}/?chain=43114")
        await state(tab, "complete")
        assert await points(tab) == {43114: 100}
        assert answers == []
        assert "Connecting again: 50 points so far" in await tab.page.evaluate("announced")
        following.set()
    assert tab.errors == []


async def test_the_page_is_usable_without_a_pointer_and_on_a_phone(tab: Tab) -> None:
    """Chains are chosen and days are read with the keyboard, and nothing overflows a narrow screen."""
    listener, address = listening()
    async with (
        simulated(metrics_limit=None) as simulator,
        served(simulator, listener) as (app, _),
    ):
        page = tab.page
        await page.set_viewport_size({"width": 360, "height": 740})
        await page.goto(address)
        await page.wait_for_selector("#chains input")
        for box in (await page.query_selector_all("#chains input"))[:4]:
            await box.press("Space")
        assert await page.locator("#chains input:enabled").count() == 4
        await page.press("#draw", "Enter")
        await reach(tab, app, "complete")
        assert len(await points(tab)) == 4
        assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        fits = "cells => cells.every(cell => cell.scrollWidth <= cell.clientWidth)"
        assert await page.eval_on_selector_all("#series, #series th, #series td", fits)
        await page.press("#cursor", "End")
        await page.press("#cursor", "ArrowLeft")
        newest, before = simulator.rows_of(f"/v1/avg_tps/{CHAINS[0]}")[:2]
        assert newest["timestamp"] - before["timestamp"] == 86_400
        text = await page.get_attribute("#cursor", "aria-valuetext") or ""
        assert text == await page.inner_text("#readout")
        assert f"Avalanche (C-Chain) {before['value']:.2f}" in text
    assert tab.errors == []


CONTRAST = """() => {
  const light = (color) => {
    const [r, g, b] = color.match(/[0-9.]+/g).map((one) => one / 255)
      .map((one) => (one <= 0.04045 ? one / 12.92 : ((one + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const page = light(getComputedStyle(document.body).backgroundColor);
  const ratio = (selector, property) => {
    const tab = light(getComputedStyle(document.querySelector(selector))[property]);
    return (Math.max(tab, page) + 0.05) / (Math.min(tab, page) + 0.05);
  };
  return {
    texts: ["body", "#readout", "thead th"].map((selector) => ratio(selector, "color")),
    lines: ["path.hue-1", "path.hue-2", "path.hue-3"].map((selector) => ratio(selector, "stroke")),
  };
}"""


async def test_contrast_is_high_enough(tab: Tab) -> None:
    """Texts have a contrast of 4.5 or more to the page, lines of 3 or more, in light and dark mode."""
    listener, address = listening()
    async with simulated(metrics_limit=None) as simulator, served(simulator, listener) as (app, _):
        await tab.page.goto(address + CHOSEN)
        await reach(tab, app, "complete")
        await tab.page.emulate_media(color_scheme="light")
        light = await tab.page.evaluate(CONTRAST)
        await tab.page.emulate_media(color_scheme="dark")
        dark = await tab.page.evaluate(CONTRAST)
    assert light != dark
    for contrast in (light, dark):
        assert min(contrast["texts"]) >= 4.5  # WCAG 2.2, level AA
        assert min(contrast["lines"]) >= 3.0

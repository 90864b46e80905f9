"""Web backend under load: a FastAPI application, its clients, and the service.

`python -m tests.bench.web` runs `tests/bench/web_app.py` on uvicorn, with asyncio and uvloop, one worker and
four that share the quota, against a simulated service of 50 requests a second. 500 clients request a resource
as fast as they are answered; a refused one waits for Retry-After. The time is real: a row takes a minute.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from itertools import pairwise
from statistics import median, quantiles

import aiohttp
from attrs import define, field, frozen

from chainapi.simulator import Simulator
from tests.ports import free_port

CLIENTS = 500
LIMITS = ((500, 10.0), (50, 1.0))  # requests and seconds: 50 a second, at once or evenly
ROUND_TRIP = 0.05
LOAD = 35.0  # seconds in which the service counts
SETTLED = 3.0  # seconds of load before
ROUNDS, ROUND = 5, 2.0  # of the comparison with the bare application
STREAMS = 100
HEADROOM = 3.0  # seconds in which what was under way ends


# --- the service: a process of its own ------------------------------------------------------------


async def serve(limit: str, window: str) -> None:
    """Run the simulator until the standard input ends; print its address, and its counts at each line."""
    async with Simulator(limit=int(limit), window=float(window), latency=ROUND_TRIP, log=True) as simulator:
        print(json.dumps(simulator.environment()), flush=True)
        reader = asyncio.StreamReader()
        await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), sys.stdin
        )
        while await reader.readline():
            stats = simulator.stats
            print(
                json.dumps(
                    {
                        "requests": stats.requests,
                        "refused": stats.refused,
                        "stopped": stats.sent_while_stopped,
                        "answered": [one.sent for one in simulator.requests if one.status == 200],
                    }
                ),
                flush=True,
            )


@frozen
class Counts:
    """Counts of requests, and the times in seconds at which answered ones were sent."""

    requests: int
    refused: int
    stopped: int
    answered: list[float]

    def since(self, before: Counts) -> Counts:
        """Return the counts since an earlier moment."""
        return Counts(
            self.requests - before.requests,
            self.refused - before.refused,
            self.stopped - before.stopped,
            self.answered[len(before.answered) :],
        )

    def used(self, limit: int, window: float) -> float:
        """Return the part of the quota that was used, over whole windows.

        The windows are those of the server: they begin in the longest pause between requests.
        """
        times = sorted(self.answered)
        pauses = [
            (later - one, (later + one) / 2) for one, later in pairwise(times) if one < times[0] + window
        ]
        begin = max(pauses)[1]
        windows = int((times[-1] - begin) / window)
        end = begin + windows * window
        return sum(begin <= one < end for one in times) / (windows * limit)


@define
class Service:
    """Simulator in its process."""

    process: asyncio.subprocess.Process
    environment: dict[str, str]

    async def counts(self) -> Counts:
        """Return the counts of requests so far."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(b"\n")
        return Counts(**json.loads(await self.process.stdout.readline()))


@asynccontextmanager
async def service(limit: int, window: float) -> AsyncIterator[Service]:
    """Start the service, and end it."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.bench.web", "serve", str(limit), str(window)), stdin=-1, stdout=-1
    )
    assert process.stdout is not None
    try:
        yield Service(process, json.loads(await process.stdout.readline()))
    finally:
        process.kill()
        await process.wait()


# --- the backend ----------------------------------------------------------------------------------


@asynccontextmanager
async def backend(loop: str, workers: int, environment: dict[str, str]) -> AsyncIterator[str]:
    """Start the application, and end it; yield its address."""
    port = free_port()
    with tempfile.TemporaryDirectory() as folder:
        variables = {"CHAINAPI_BENCH_SHARED": str(int(workers > 1)), "CHAINAPI_SHARE_DIR": folder}
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "uvicorn", "tests.bench.web_app:app", "--port", str(port)),
            *("--loop", loop, "--workers", str(workers), "--log-level", "warning"),
            env={**os.environ, **environment, **variables},
        )
        try:
            await _answering(port)
            yield f"http://127.0.0.1:{port}"
        finally:
            process.send_signal(signal.SIGTERM)
            await process.wait()


async def _answering(port: int) -> None:
    """Wait until the port accepts connections."""
    while True:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            await asyncio.sleep(0.1)
        else:
            writer.close()
            return


# --- the clients ----------------------------------------------------------------------------------


@define
class Load:
    """Answers that clients had: seconds of each, by status, and what else went wrong."""

    seconds: dict[int, list[float]] = field(factory=dict[int, list[float]])
    without_retry_after: int = 0
    decided: list[float] = field(factory=list[float])  # milliseconds from a refusal to its response
    kept: int = 0  # refused calls that were answered when they came again at Retry-After
    repeated: int = 0
    failures: list[str] = field(factory=list[str])

    def add(self, status: int, seconds: float) -> None:
        """Count an answer."""
        self.seconds.setdefault(status, []).append(seconds)

    def count(self, status: int) -> int:
        """Return the number of answers with a status."""
        return len(self.seconds.get(status, ()))

    def p99(self, status: int) -> float:
        """Return the 99th percentile in milliseconds."""
        times = self.seconds.get(status, [])
        return quantiles(times, n=100)[98] * 1000 if len(times) > 1 else 0.0


async def clients(number: int, work: Callable[[], Awaitable[None]], seconds: float) -> None:
    """Let clients work again and again for some seconds."""
    until = time.monotonic() + seconds

    async def one() -> None:
        while time.monotonic() < until:
            await work()

    await asyncio.gather(*(one() for _ in range(number)))


async def saturate(http: aiohttp.ClientSession, base: str) -> Load:
    """Request a resource with all clients; refused ones come again at Retry-After."""
    load, refused = Load(), set[int]()

    async def work() -> None:
        task = id(asyncio.current_task())
        began = time.monotonic()
        async with http.get(f"{base}/chain") as answer:
            await answer.read()
            load.add(answer.status, time.monotonic() - began)
            if task in refused:
                load.repeated += 1
                load.kept += answer.status == 200
                refused.discard(task)
            if answer.status == 503:
                wait = answer.headers.get("retry-after")
                load.without_retry_after += wait is None
                load.decided.append(float(answer.headers["server-timing"].rpartition("=")[2]))
                refused.add(task)
                await asyncio.sleep(float(wait or 1))
            elif answer.status != 200:
                load.failures.append(f"{answer.status} {await answer.text()}")

    await clients(CLIENTS, work, SETTLED + LOAD)
    return load


async def repeat(http: aiohttp.ClientSession, base: str) -> float:
    """Return the share of refused calls that are answered at Retry-After, while nobody else calls.

    The calls of one moment are twice what a window allows, so that half of them are refused.
    """
    kept = list[bool]()

    async def work() -> None:
        async with http.get(f"{base}/chain") as answer:
            await answer.read()
        if answer.status == 503:
            await asyncio.sleep(float(answer.headers["retry-after"]))
            async with http.get(f"{base}/chain") as again:
                kept.append(again.status == 200)

    await asyncio.gather(*(work() for _ in range(2 * CLIENTS)))
    return sum(kept) / len(kept) if kept else 1.0


async def compare(http: aiohttp.ClientSession, base: str) -> list[float]:
    """Return the p99 of cached reads over that of the bare application, for each round."""
    ratios = []
    for _ in range(ROUNDS):
        p99 = {}
        for path in ("bare", "cached"):
            load = Load()

            async def work(path: str = path, load: Load = load) -> None:
                began = time.monotonic()
                async with http.get(f"{base}/{path}") as answer:
                    await answer.read()
                    load.add(answer.status, time.monotonic() - began)

            await clients(CLIENTS, work, ROUND)
            assert load.seconds.keys() == {200}, load.seconds.keys()
            p99[path] = load.p99(200)
        ratios.append(p99["cached"] / p99["bare"])
    return ratios


async def leave(http: aiohttp.ClientSession, base: str) -> None:
    """Begin to read streams, and leave after the first row."""

    async def work() -> None:
        async with http.get(f"{base}/blocks") as answer:
            if answer.status == 200:
                await answer.content.readline()
            answer.close()

    await asyncio.gather(*(work() for _ in range(STREAMS)))


async def states(http: aiohttp.ClientSession, base: str, workers: int) -> dict[int, dict[str, float]]:
    """Return what each worker holds, by its process."""
    found: dict[int, dict[str, float]] = {}
    while len(found) < workers:
        headers = {"connection": "close"}  # another connection may reach another worker
        async with http.get(f"{base}/state", headers=headers) as answer:
            state = await answer.json()
            found[int(state.pop("pid"))] = state
    return found


# --- one row --------------------------------------------------------------------------------------


async def row(limit: int, window: float, loop: str, workers: int) -> None:
    """Run everything with one backend, and print its figures."""
    async with (
        service(limit, window) as upstream,
        backend(loop, workers, upstream.environment) as base,
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as http,
    ):
        await compare(http, base)  # warm: connections, caches, memory
        held = await states(http, base, workers)
        load, sent = await measured(http, base, upstream)
        ratios = await compare(http, base)
        await asyncio.sleep(window)
        held_promises = await repeat(http, base)
        await leave(http, base)
        await asyncio.sleep(HEADROOM)
        left = await upstream.counts()
        await asyncio.sleep(HEADROOM)
        rest = (await upstream.counts()).since(left).requests
        now = await states(http, base, workers)
    used = sent.used(limit, window)
    name = f"{limit} in {window:g} s, {loop}, {workers}"
    print(line(name, load, sent, used, held_promises, ratios, rest, growth(held, now)), flush=True)
    for failure in load.failures[:3]:
        print("!!", failure)


async def measured(http: aiohttp.ClientSession, base: str, upstream: Service) -> tuple[Load, Counts]:
    """Return what the clients had, and what the service counted meanwhile."""
    saturation = asyncio.create_task(saturate(http, base))
    await asyncio.sleep(SETTLED)
    before = await upstream.counts()
    load = await saturation
    return load, (await upstream.counts()).since(before)


def growth(before: dict[int, dict[str, float]], after: dict[int, dict[str, float]]) -> dict[str, float]:
    """Return what the workers hold more than before, in all."""
    return {
        name: sum(state[name] - before[pid][name] for pid, state in after.items())
        for name in ("tasks", "descriptors", "mebibytes")
    }


def line(
    name: str,
    load: Load,
    sent: Counts,
    used: float,
    repeated: float,
    ratios: list[float],
    rest: int,
    grown: dict[str, float],
) -> str:
    """Return one line of the table."""
    more = ", ".join(f"{value:+.0f} {name}" for name, value in grown.items())
    cells = (
        name,
        f"{used:.1%}",
        f"{sent.refused}",
        f"{sent.stopped}",
        f"{load.count(200)} / {load.count(503)}",
        f"{load.without_retry_after + len(load.failures)}",
        f"{load.kept / max(1, load.repeated):.0%} / {repeated:.0%}",
        f"{quantiles([0.0, *load.decided], n=100)[98]:.1f} ms",
        f"{median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})",
        f"{rest}",
        more,
    )
    return f"| {' | '.join(cells)} |"


HEAD = (
    "service, loop, workers",
    "of the quota",
    "429s",
    "sent in stops",
    "answered / refused",
    "neither",
    "answered at Retry-After, with others / alone",
    "p99 from refusal to response",
    "p99 cached / bare",
    "sent after clients left",
    "growth",
)


async def main() -> None:
    """Print the table."""
    print(f"| {' | '.join(HEAD)} |\n|{'---|' * len(HEAD)}")
    for limit, window in LIMITS:
        for loop in ("asyncio", "uvloop"):
            for workers in (1, 4):
                await row(limit, window, loop, workers)


if __name__ == "__main__":
    asyncio.run(serve(*sys.argv[2:]) if sys.argv[1:2] == ["serve"] else main())

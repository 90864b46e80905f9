"""Benchmark report: each figure beside its target, ``python -m tests.bench [NAME...]``.

Figures are CPU time of this process: the median of paired runs, with the least and the greatest. The names of
`BENCHES` choose lines. Those of `PROGRAMS` have processes and tables of their own, and the last one takes
minutes of real time.
"""

from __future__ import annotations

import asyncio
import gc
import resource
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

import msgspec
from aiolimiter import AsyncLimiter

from chainapi import ROUTES, MetricPoint, Session
from chainapi._http.options import Call
from chainapi._http.query import Query
from chainapi._limits.gate import Ask, Gate
from chainapi._limits.headers import read_limits
from chainapi.models.codec import PageDecoder
from chainapi.simulator import Simulator
from chainapi.testing import VirtualLoop
from chainapi.transport import Request, Response
from tests.bench import table, walks
from tests.bench.figures import shown
from tests.bench.imports import bench_import
from tests.bench.pages import canned_bodies, canned_server
from tests.bench.simulator import bench_simulator
from tests.documents import Maker
from tests.limits.servers import FromFirst

ROUNDS = 5
PAGES = 200
LIMITS = {"ratelimit-policy": "9999;w=60", "ratelimit-limit": "9999", "ratelimit-remaining": "9000"}


def cpu(work: Callable[[], object]) -> float:
    """Return the CPU seconds that `work` took."""
    gc.collect()
    began = time.process_time()
    work()
    return time.process_time() - began


def show(what: str, figure: str, target: str) -> None:
    """Print one line of the table."""
    print(f"| {what} | {figure} | {target} |", flush=True)


def repeat(decode: Callable[[bytes], object], body: bytes) -> None:
    """Decode 300 times and discard the results."""
    for _ in range(300):
        decode(body)


def bench_decoding() -> None:
    """Measure decoding alone, against msgspec into a Struct, or into dicts."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        bodies = runner.run(canned_bodies(2_160))
    for what, ours, theirs, path in (
        (
            "100 blocks",
            PageDecoder(walks.Block, "blocks"),
            msgspec.json.Decoder(walks.BlockBody),
            walks.BLOCKS,
        ),
        (
            "2,160 points",
            PageDecoder(MetricPoint, "results"),
            msgspec.json.Decoder(walks.PointBody),
            walks.POINTS,
        ),
    ):
        body = bodies[path]
        ratios = [
            cpu(partial(repeat, ours.decode, body)) / cpu(partial(repeat, theirs.decode, body))
            for _ in range(9)
        ]
        show(f"decoding {what}, against Structs", shown(ratios), "<= 2.30")
    for name in ("data.nfts.tokens", "data.evm.transfers"):
        route = ROUTES[name].route
        body = msgspec.json.encode(Maker(seed=1, whole=True).page(ROUTES[name], rows=100))
        typed, plain = PageDecoder(route.model, route.items, route.extra).decode, msgspec.json.decode
        ratios = [cpu(partial(repeat, typed, body)) / cpu(partial(repeat, plain, body)) for _ in range(9)]
        show(f"decoding 100 rows of several kinds, {name}, against dicts", shown(ratios), "<= 2.50")


class Same:
    """A transport that answers at once, always the same."""

    def __init__(self) -> None:
        self._answer = Response(200, LIMITS, b"{}")

    async def send(self, request: Request) -> Response:
        """Answer."""
        return self._answer

    async def aclose(self) -> None:
        """Do nothing."""


def bench_request() -> None:
    """Measure the cost of a request beside transport and decoding, against aiohttp."""
    count = 2_000

    async def ours() -> float:
        async with Session(data_base_url="https://bench.test", api_key="k", transport=Same()) as session:
            service, query = session.connection.service("data"), Query(walks.BLOCKS, route="r")
            began = time.process_time()
            for _ in range(count):
                await session.connection.call(service, Call(query, "token"), len)
            return (time.process_time() - began) / count

    def paired(base: str) -> tuple[float, float]:
        raw = cpu(lambda: asyncio.run(walks.raw_requests(base))) / count
        return asyncio.run(ours()), raw

    with canned_server(count) as base:
        pairs = [paired(base) for _ in range(ROUNDS)]
    share = shown([own / raw for own, raw in pairs])
    show("a request beside transport and decoding, against one of aiohttp", share, "<= 0.22")
    show("the same, us", shown([own * 1e6 for own, _ in pairs], 0), "<= 20")


def bench_gate() -> None:
    """Measure requests from their demand to the recorded response: alone, and among 10,000 that wait."""

    async def alone(count: int) -> float:
        gate = Gate()
        began = time.process_time()
        for _ in range(count):
            permit = await gate.acquire(Ask("r"))
            permit.answered(200, read_limits(LIMITS, 0.0))
        return (time.process_time() - began) / count

    async def bucket(count: int) -> float:
        limiter = AsyncLimiter(1e9, 1.0)
        began = time.process_time()
        for _ in range(count):
            await limiter.acquire()
        return (time.process_time() - began) / count

    async def crowd(count: int, max_wait: float | None = None) -> float:
        loop, gate, server = asyncio.get_running_loop(), Gate(max_in_flight=100), FromFirst(1000.0, 60.0)

        async def one(*, again: bool = False) -> None:
            permit = await gate.acquire(Ask("r", max_wait=max_wait, again=again))
            await asyncio.sleep(0.01)
            response = server.answer(loop.time(), 1.0)
            permit.answered(response.status, response.info)
            if response.status != 200:
                await one(again=True)

        began = time.process_time()
        await asyncio.gather(*(one() for _ in range(count)))
        return (time.process_time() - began) / count

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        free, plain = [[runner.run(one(50_000)) * 1e6 for _ in range(ROUNDS)] for one in (alone, bucket)]
        full, hasty, double = [
            [runner.run(crowd(count, max_wait)) * 1e6 for _ in range(ROUNDS)]
            for count, max_wait in ((10_000, None), (10_000, 1e4), (20_000, 1e4))
        ]
    show("gate, acquire to recorded response, its headers parsed, us", shown(free), "<= 6")
    show("aiolimiter, acquire, us", shown(plain), "")
    show("gate, a request among 10,000 waiting, its task included, us", shown(full, 0), "<= 40")
    show("the same with max_wait, us", shown(hasty, 0), "<= 40")
    growth = shown([twice / once for once, twice in zip(hasty, double, strict=True)])
    show("the same among 20,000, against 10,000", growth, "linear: about 1")


class Endless:
    """A transport that returns pages of points, each older than the last."""

    def __init__(self, pages: int, size: int) -> None:
        self._pages = pages
        self._size = size
        self._page = 0

    async def send(self, request: Request) -> Response:
        """Return the next page after one turn of the loop, which drops dead timers."""
        await asyncio.sleep(0)
        first = 2_000_000_000 - self._page * self._size
        self._page += 1
        rows = [{"timestamp": first - row, "value": 1.5} for row in range(self._size)]
        body: dict[str, object] = {"results": rows, "status": 200}
        if self._page < self._pages:
            body["nextPageToken"] = f"token-{self._page}"
        return Response(200, {}, msgspec.json.encode(body))

    async def aclose(self) -> None:
        """Do nothing."""


def resident() -> int:
    """Return the resident memory of this process in bytes (Linux)."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def bench_stream() -> None:
    """Measure a million rows through items(): memory, and time a row beyond pages."""

    async def rows(count: int) -> None:
        session = Session(metrics_base_url="https://bench.test", transport=Endless(count // 1_000, 1_000))
        async with session:
            async for _ in session.metrics.avg_tps(1).items():
                pass

    async def pages(count: int) -> None:
        session = Session(metrics_base_url="https://bench.test", transport=Endless(count // 1_000, 1_000))
        async with session:
            async for _ in session.metrics.avg_tps(1):
                pass

    async def growth(count: int, *, ordered: bool) -> float:
        """Return the peak growth of memory in MiB from the second page on."""
        transport = Endless(count // 1_000, 1_000)
        session = Session(
            metrics_base_url="https://bench.test",
            data_base_url="https://bench.test",
            api_key="k",
            transport=transport,
        )
        before = highest = 0
        async with session:
            points = session.metrics.avg_tps(1).items()
            plain = session.data.list("/v1/rows", items="results").items()
            read = 0
            async for _ in points if ordered else plain:
                read += 1
                if read == 2_000:
                    gc.collect()
                    before = resident()
                elif not read % 50_000:
                    highest = max(highest, resident())
        return (highest - before) / 2**20

    asyncio.run(rows(200_000))
    for ordered, what, target in (
        (True, "in an order", "<= 0.25 MiB"),
        (False, "without an order", "< 40 MiB"),
    ):
        grown = asyncio.run(growth(1_000_000, ordered=ordered))
        show(f"1,000,000 rows {what}, growth of resident memory at most", f"{grown:.2f} MiB", target)
    beyond = [
        (cpu(lambda: asyncio.run(rows(200_000))) - cpu(lambda: asyncio.run(pages(200_000)))) / 200_000 * 1e9
        for _ in range(ROUNDS)
    ]
    show("items(), a row beyond its page, ns", shown(beyond, 0), "<= 100")


def bench_prefetch() -> None:
    """Measure the gain of prefetch for a slow reader and its cost for a fast one."""

    async def walk(prefetch: int, seconds: float) -> float:
        """Return pages per second of virtual time.

        A fetch of a page and the work on it both take `seconds`.
        """
        simulator = Simulator(points=20_000, latency=seconds)
        session = Session(metrics_base_url=simulator.metrics_base_url, transport=simulator.transport())
        began, pages = asyncio.get_running_loop().time(), 0
        async with session:
            async for _ in session.metrics.avg_tps(43114, prefetch=prefetch):
                pages += 1
                if seconds:
                    await asyncio.sleep(seconds)
        return pages / max(asyncio.get_running_loop().time() - began, 1e-9)

    def virtual(prefetch: int, seconds: float) -> float:
        with asyncio.Runner(loop_factory=VirtualLoop) as runner:
            return runner.run(walk(prefetch, seconds))

    async def instant(prefetch: int) -> None:
        session = Session(metrics_base_url="https://bench.test", transport=Endless(5_000, 1))
        async with session:
            async for _ in session.metrics.avg_tps(1, prefetch=prefetch):
                pass

    gain = virtual(1, 0.02) / virtual(0, 0.02)
    show("prefetch=1 against 0, pages/s, 20 ms to fetch and 20 ms to work", f"{gain:.2f}", ">= 1.80")
    paired = [
        (cpu(lambda: asyncio.run(instant(0))), cpu(lambda: asyncio.run(instant(1)))) for _ in range(ROUNDS)
    ]
    more = shown([ahead / without for without, ahead in paired])
    show("prefetch=1 against 0, CPU per page of an instant reader", more, "decides the default: 0")


class Silent(Same):
    """A transport that never answers."""

    async def send(self, request: Request) -> Response:
        """Wait for ever."""
        await asyncio.get_running_loop().create_future()
        return await super().send(request)


def bench_waiting() -> None:
    """Measure the memory of 10,000 paused streams, and of calls that wait for quota."""
    count = 10_000

    async def streams() -> float:
        transport = Endless(10**9, 1)
        async with Session(metrics_base_url="https://bench.test", transport=transport) as session:
            kept = [session.metrics.avg_tps(43114) for _ in range(count)]
            for stream in kept:
                await anext(stream)
            gc.collect()
            before, _ = tracemalloc.get_traced_memory()
            kept += [session.metrics.avg_tps(43114) for _ in range(count)]
            for stream in kept[count:]:
                await anext(stream)
            gc.collect()
            return (tracemalloc.get_traced_memory()[0] - before) / count

    async def calls() -> float:
        session = Session(
            metrics_base_url="https://bench.test", transport=Silent(), max_in_flight=1, timeout=1e6
        )
        async with session:
            service, query = session.connection.service("metrics"), Query("/v1/rows", route="r")

            def call() -> asyncio.Task[object]:
                return asyncio.create_task(session.connection.call(service, Call(query), len))

            kept = [call() for _ in range(count)]
            await asyncio.sleep(0)
            gc.collect()
            before, _ = tracemalloc.get_traced_memory()
            kept += [call() for _ in range(count)]
            await asyncio.sleep(0)
            gc.collect()
            size = (tracemalloc.get_traced_memory()[0] - before) / count
            for task in kept:
                task.cancel()
            await asyncio.gather(*kept, return_exceptions=True)
            return size

    tracemalloc.start()
    show(
        "a stream between two pages, with its page of one row",
        f"{asyncio.run(streams()) / 1_024:.1f} KiB",
        "<= 4 KiB",
    )
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        size = runner.run(calls())
    tracemalloc.stop()
    show("a call that waits, with its task", f"{size / 1_024:.1f} KiB", "<= 3 KiB")


def print_all(rows: Callable[[], Iterator[tuple[str, str, str]]]) -> None:
    """Print the rows of a benchmark as it yields them."""
    for row in rows():
        show(*row)


BENCHES: Mapping[str, Callable[[], None]] = {
    "walks": table.main,
    "decoding": bench_decoding,
    "request": bench_request,
    "gate": bench_gate,
    "stream": bench_stream,
    "prefetch": bench_prefetch,
    "waiting": bench_waiting,
    "simulator": partial(print_all, bench_simulator),
    "import": partial(print_all, bench_import),
}
PROGRAMS: Mapping[str, Sequence[str]] = {
    "tables": ("tests.bench.table", "--tables"),
    "exports": ("tests.bench.sources", "--sources", "100"),
    "processes": ("tests.bench.processes",),
}


def main(chosen: Sequence[str]) -> None:
    """Print the tables of the chosen benchmarks, by default of all."""
    names = [*BENCHES, *PROGRAMS]
    if unknown := [name for name in chosen if name not in names]:
        sys.exit(f"no benchmark {', '.join(unknown)}: choose from {', '.join(names)}")
    lines = [name for name in BENCHES if name in (chosen or names)]
    if lines:
        print("| what | figure | target |\n|---|---|---|", flush=True)
    for name in lines:
        BENCHES[name]()
    for name in PROGRAMS:
        if name in (chosen or names):
            print(f"\n{name}\n", flush=True)
            subprocess.run([sys.executable, "-m", *PROGRAMS[name]], check=True)


if __name__ == "__main__":
    main(sys.argv[1:])

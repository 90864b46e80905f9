"""Benchmark report: each figure beside its target, ``python -m tests.bench [NAME...]``.

Figures are CPU time of this process: the median of paired runs, with the least and the greatest. The names of
`BENCHES` choose lines. The programs of `PROGRAMS` have processes and tables of their own, and the last one
takes minutes of real time.
"""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import msgspec
from aiolimiter import AsyncLimiter

from chainapi import ROUTES, MetricPoint, Session
from chainapi._http.options import Call
from chainapi._http.query import Query
from chainapi._limits.gate import Ask, Gate
from chainapi._limits.headers import read_limits
from chainapi.models.codec import PageDecoder
from chainapi.testing import VirtualLoop
from chainapi.transport import Request, Response
from tests.bench import table
from tests.bench.figures import row, shown
from tests.bench.imports import bench_import
from tests.bench.pages import BLOCKS, POINTS, canned_bodies, canned_server
from tests.bench.simulator import bench_simulator
from tests.documents import Maker
from tests.limits.servers import FromFirst

ROUNDS = 5
LIMITS = {"ratelimit-policy": "9999;w=60", "ratelimit-limit": "9999", "ratelimit-remaining": "9000"}


def cpu(work: Callable[[], object]) -> float:
    """Return the CPU seconds that `work` took."""
    gc.collect()
    began = time.process_time()
    work()
    return time.process_time() - began


def repeat(decode: Callable[[bytes], object], body: bytes) -> None:
    """Decode 300 times and discard the results."""
    for _ in range(300):
        decode(body)


def bench_decoding() -> None:
    """Measure decoding alone, against msgspec into a Struct, or into dicts."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        bodies = runner.run(canned_bodies(2_160))
    for what, path, model in (("100 blocks", BLOCKS, table.Block), ("2,160 points", POINTS, MetricPoint)):
        body, ours = bodies[path], PageDecoder(model, table.FIELDS[path]).decode
        theirs = msgspec.json.Decoder(table.struct_of(path)).decode
        ratios = [cpu(partial(repeat, ours, body)) / cpu(partial(repeat, theirs, body)) for _ in range(9)]
        row(f"decoding {what}, against Structs", shown(ratios), "<= 2.30")
    for name in ("data.nfts.tokens", "data.evm.transfers"):
        route = ROUTES[name].route
        body = msgspec.json.encode(Maker(seed=1, whole=True).page(ROUTES[name], rows=100))
        typed, plain = PageDecoder(route.model, route.items, route.extra).decode, msgspec.json.decode
        ratios = [cpu(partial(repeat, typed, body)) / cpu(partial(repeat, plain, body)) for _ in range(9)]
        row(f"decoding 100 rows of several kinds, {name}, against dicts", shown(ratios), "<= 2.50")


class Same:
    """A transport that answers at once, always the same."""

    def __init__(self, body: bytes = b"{}") -> None:
        self._answer = Response(200, LIMITS, body)

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
            service, query = session.connection.service("data"), Query(BLOCKS, route="r")
            began = time.process_time()
            for _ in range(count):
                await session.connection.call(service, Call(query, "token"), len)
            return (time.process_time() - began) / count

    def paired(base: str) -> tuple[float, float]:
        raw = table.by_hand("bytes", table.raw).cpu(base, table.Work("bytes", BLOCKS, 100, count))
        return asyncio.run(ours()), raw / count

    with canned_server(count) as base:
        pairs = [paired(base) for _ in range(ROUNDS)]
    share = shown([own / raw for own, raw in pairs])
    row("a request beside transport and decoding, against one of aiohttp", share, "<= 0.22")
    row("the same, us", shown([own * 1e6 for own, _ in pairs], 0), "<= 20")


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
    row("gate, acquire to recorded response, its headers parsed, us", shown(free), "<= 6")
    row("aiolimiter, acquire, us", shown(plain), "")
    row("gate, a request among 10,000 waiting, its task included, us", shown(full, 0), "<= 40")
    row("the same with max_wait, us", shown(hasty, 0), "<= 40")
    growth = shown([twice / once for once, twice in zip(hasty, double, strict=True)])
    row("the same among 20,000, against 10,000", growth, "linear: about 1")


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
        transport = Same(b'{"results":[{"timestamp":1,"value":1.5}],"status":200,"nextPageToken":"token"}')
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
    row(
        "a stream between two pages, with its page of one row",
        f"{asyncio.run(streams()) / 1_024:.1f} KiB",
        "<= 4 KiB",
    )
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        size = runner.run(calls())
    tracemalloc.stop()
    row("a call that waits, with its task", f"{size / 1_024:.1f} KiB", "<= 3 KiB")


BENCHES: Mapping[str, Callable[[], None]] = {
    "walks": table.main,
    "decoding": bench_decoding,
    "request": bench_request,
    "gate": bench_gate,
    "waiting": bench_waiting,
    "simulator": bench_simulator,
    "import": bench_import,
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
        row("what", "figure", "target", head=True)
    for name in lines:
        BENCHES[name]()
    for name in PROGRAMS:
        if name in (chosen or names):
            print(f"\n{name}\n", flush=True)
            subprocess.run([sys.executable, "-m", *PROGRAMS[name]], check=True)


if __name__ == "__main__":
    main(sys.argv[1:])

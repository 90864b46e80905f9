"""Memory of exports by process: ``python -m tests.bench.sources [FORMAT...]``.

The service is simulated in another process, on a socket.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import resource
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from attrs import frozen

from chainapi import Session
from chainapi.export import export
from chainapi.simulator import Simulator

SOURCES = (100, 500, 2_000)
PAGES, PAGE = 20, 100  # of each source; rows
FORMATS = ("jsonl", "parquet")


@frozen
class Served:
    """Address of the service."""

    address: str
    key: str


def serve(pipe: Connection) -> None:
    """Run a simulator until the process is ended."""

    async def run() -> None:
        async with Simulator(chains=range(1, max(SOURCES) + 1), rows=PAGES * PAGE) as simulator:
            pipe.send(Served(simulator.data_base_url, simulator.api_key))
            await asyncio.get_running_loop().create_future()

    asyncio.run(run())


def measure(pipe: Connection, served: Served, sources: int, out: str) -> None:
    """Export, and send the peak of resident memory in bytes."""

    async def run() -> None:
        async with Session(data_base_url=served.address, api_key=served.key) as session:
            chains = range(1, sources + 1)
            result = await export(session.data.evm.blocks, chains, out, page_size=PAGE)
        if result.rows != sources * PAGES * PAGE:
            raise RuntimeError(f"{result.rows} rows of {sources} sources")

    asyncio.run(run())
    pipe.send(peak())


def peak() -> int:
    """Return the peak resident memory of this process in bytes."""
    status = Path("/proc/self/status")
    if status.exists():  # elsewhere, what a process inherits from the one that started it counts as well
        fields = dict(line.split(":", 1) for line in status.read_text().splitlines())
        return int(fields["VmHWM"].split()[0]) * 1_024
    unit = 1 if sys.platform == "darwin" else 1_024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


@contextmanager
def child(work: Callable[..., None], *arguments: object) -> Iterator[Any]:
    """Run `work` in a process of its own, return its result, and end it."""
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=work, args=(there, *arguments), daemon=True)
    process.start()
    there.close()  # so that the end of the process is the end of what it sends
    try:
        yield here.recv()
    finally:
        process.terminate()
        process.join()


def main() -> None:
    """Print the table."""
    print(f"| format | sources of {PAGES} pages | rows | peak, MiB | against {SOURCES[0]} |")
    print("|---|---|---|---|---|")
    with child(serve) as served, tempfile.TemporaryDirectory() as folder:
        for name in sys.argv[1:] or FORMATS:
            first = 0
            for sources in SOURCES:
                out = Path(folder, f"{sources}.{name}")
                with child(measure, served, sources, str(out)) as size:
                    first = first or size
                    rows = sources * PAGES * PAGE
                    print(
                        f"| {name} | {sources:,} | {rows:,} | {size / 2**20:.0f} | {size / first:.2f} |",
                        flush=True,
                    )
                for path in out.parent.iterdir():
                    path.unlink()


if __name__ == "__main__":
    main()

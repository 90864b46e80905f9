"""Cost of exports by process: ``python -m tests.bench.sources [FORMAT...]``.

The service is simulated in another process, on a socket. Times are those of the export's own process: seconds
of fetching, and of the rest, in which parts are written; CPU by row; the most bytes that the folder held at
one time, and the bytes that the process wrote to files, against the bytes of the final files. ``--folder``
exports to a folder, ``--sources N`` only N sources. Before each export as many bytes are written and deleted:
a virtual machine gets memory from its host when it first writes to it, at ten times the cost of a write.
"""

from __future__ import annotations

import argparse
import asyncio
import resource
import shutil
import sys
import tempfile
import time
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path

from attrs import frozen

from chainapi import Session
from chainapi.export import export
from chainapi.export.progress import ExportProgress
from chainapi.simulator import Simulator
from tests.bench.figures import child, row

SOURCES = (100, 500, 2_000)
MOST = 5_000  # sources: 10,000,000 rows
PAGES, PAGE = 20, 100  # of each source; rows
FORMATS = ("jsonl", "parquet")
ROW = 600  # bytes that a row takes on the disk at most
COLUMNS = (
    *("format", "rows", "fetching, s", "rest, s", "rows/s", "CPU, us a row", "memory, MiB"),
    *("peak disk / files", "written / files"),
)


@frozen
class Served:
    """Address of the service."""

    address: str
    key: str


def serve(pipe: Connection) -> None:
    """Run a simulator until the process is ended."""

    async def run() -> None:
        async with Simulator(chains=range(1, MOST + 1), rows=PAGES * PAGE) as simulator:
            pipe.send(Served(simulator.data_base_url, simulator.api_key))
            await asyncio.get_running_loop().create_future()

    asyncio.run(run())


@frozen
class Cost:
    """Cost of an export.

    Attributes:
        memory: peak of resident memory in bytes.
        fetching: seconds until the last page was committed.
        rest: seconds from there to the end.
        cpu: seconds of CPU.
        written: bytes written to files.
        files: bytes of the final files.

    """

    memory: int
    fetching: float
    rest: float
    cpu: float
    written: int
    files: int


def measure(pipe: Connection, served: Served, sources: int, out: str, name: str, compact: bool) -> None:
    """Export, and send its cost."""
    begun, cpu = time.perf_counter(), time.process_time()
    stages = {"fetching": begun}
    written = bytes_written()

    def note(progress: ExportProgress) -> None:
        stages[progress.stage] = time.perf_counter()

    async def run() -> None:
        async with Session(data_base_url=served.address, api_key=served.key) as session:
            chains = range(1, sources + 1)
            result = await export(
                session.data.evm.blocks,
                chains,
                out,
                format=name,
                page_size=PAGE,
                compact=compact,
                progress=note,
            )
        if result.rows != sources * PAGES * PAGE:
            raise RuntimeError(f"{result.rows} rows of {sources} sources")

    asyncio.run(run())
    end, files = time.perf_counter(), size_of(Path(out).parent, journals=False)
    pipe.send(
        Cost(
            peak(),
            stages["fetching"] - begun,
            end - stages["fetching"],
            time.process_time() - cpu,
            bytes_written() - written,
            files,
        )
    )


def size_of(folder: Path, *, journals: bool = True) -> int:
    """Return the bytes of the files below a folder; a file of several names counts once."""
    sizes = dict[int, int]()
    for path in folder.rglob("*"):
        with suppress(OSError):
            if path.is_file() and (journals or "log/" not in str(path.relative_to(folder))):
                state = path.stat()
                sizes[state.st_ino] = state.st_size
    return sum(sizes.values())


def bytes_written() -> int:
    """Return the bytes that this process has written, sockets included."""
    for line in Path("/proc/self/io").read_text().splitlines():
        if line.startswith("write_bytes:"):
            return int(line.split()[1])
    return 0


def peak() -> int:
    """Return the peak resident memory of this process in bytes."""
    status = Path("/proc/self/status")
    if status.exists():  # elsewhere, what a process inherits from the one that started it counts as well
        fields = dict(line.split(":", 1) for line in status.read_text().splitlines())
        return int(fields["VmHWM"].split()[0]) * 1_024
    unit = 1 if sys.platform == "darwin" else 1_024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("formats", nargs="*", default=FORMATS)
    parser.add_argument("--folder", action="store_true", help="export to a folder")
    parser.add_argument("--sources", type=int, action="append", help=f"by default {SOURCES}")
    parser.add_argument("--compact", action="store_true", help="merge small parts")
    given = parser.parse_args()
    row(*COLUMNS, head=True)
    with child(serve) as served, tempfile.TemporaryDirectory() as folder:
        for name in given.formats:
            for sources in given.sources or SOURCES:
                place = Path(folder, f"{sources}-{name}")
                place.mkdir()
                out = place / ("rows" if given.folder else f"rows.{name}")
                use_memory(place / "used", sources * PAGES * PAGE * ROW)
                row(*cells_of(served, sources, out, name, compact=given.compact))
                shutil.rmtree(place)


def use_memory(path: Path, size: int) -> None:
    """Write a file of that size, and delete it."""
    block = bytes(1 << 20)
    with path.open("wb", buffering=0) as file:
        for _ in range(size // len(block)):
            file.write(block)
    path.unlink()


def cells_of(served: Served, sources: int, out: Path, name: str, *, compact: bool) -> tuple[str, ...]:
    """Export in another process, and return its row of the table.

    This process measures the folder: that takes CPU.
    """
    rows, sizes = sources * PAGES * PAGE, [0]

    def note() -> None:
        sizes.append(size_of(out.parent))

    with child(measure, served, sources, str(out), name, compact, meanwhile=note) as cost:
        return (
            name,
            f"{rows:,}",
            f"{cost.fetching:.1f}",
            f"{cost.rest:.1f}",
            f"{rows / (cost.fetching + cost.rest):,.0f}",
            f"{cost.cpu / rows * 1e6:.1f}",
            f"{cost.memory / 2**20:.0f}",
            f"{max(*sizes, cost.files) / cost.files:.2f}",
            f"{cost.written / cost.files:.2f}",
        )


if __name__ == "__main__":
    main()

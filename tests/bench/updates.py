"""Cost of an update of one file: ``python -m tests.bench.updates [FORMAT...]``.

A file of 1,000,000 blocks is written, then 20,000 more are added to it as an export adds them. For both it
prints the bytes that the process wrote to the disk, the seconds, and those of CPU; the rows are made before.
``--rows N`` and ``--new N`` choose the numbers.
"""

from __future__ import annotations

import argparse
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from random import Random

import msgspec

from chainapi.export.append import append
from chainapi.export.files import digest_of, partial_of, put_in_place, sync_file, write_partial
from chainapi.export.formats import DatabaseFormat, Format, TextFormat, format_of
from chainapi.export.part_records import Base
from chainapi.models import EvmBlock
from chainapi.tables.columns import Column, columns_of

FORMATS = ("jsonl", "csv", "parquet", "sqlite", "duckdb")
PAGE = 100  # rows
COLUMNS = columns_of(EvmBlock)
STOP = threading.Event()  # never set


def pages(rows: int, seed: int) -> Iterator[tuple[str, bytes]]:
    """Yield pages of blocks, in which few values repeat."""
    draw = Random(seed)
    for start in range(0, rows, PAGE):
        numbers = range(start, min(rows, start + PAGE))
        yield "43114", b"".join(msgspec.json.encode(block(draw, number)) + b"\n" for number in numbers)


def block(draw: Random, number: int) -> dict[str, object]:
    """Return a block as JSON."""
    return {column.name: value(draw, number, column) for column in COLUMNS}


def value(draw: Random, number: int, column: Column) -> object:
    """Return a value of a column."""
    match column.kind:
        case "integer":
            return number * 7 + draw.randrange(1_000)
        case "digits":
            return str(draw.randrange(10**18))
        case "text":
            return f"0x{draw.getrandbits(256):064x}"
        case "time":
            return 1_700_000_000 + number
        case _:
            return None


def written_bytes() -> int:
    """Return the bytes that this process has written to the disk."""
    lines = Path("/proc/self/io").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("write_bytes"))


def measured(name: str, step: Callable[[], object]) -> None:
    """Run a step and print its cost."""
    before, begun, spent = written_bytes(), time.perf_counter(), time.process_time()
    step()
    size = (written_bytes() - before) / 1e6
    seconds, cpu = time.perf_counter() - begun, time.process_time() - spent
    print(f"{name:24} {size:8.1f} MB written {seconds:8.2f} s {cpu:8.2f} s of CPU", flush=True)


def create(form: Format, path: Path, rows: int) -> None:
    """Write a new file."""
    fresh = [*pages(rows, 1)]

    def step() -> None:
        write_partial(path, lambda new: form.write(new, COLUMNS, fresh))
        put_in_place(path)

    measured(f"{form.name}, {rows:,} rows", step)


def update(form: Format, path: Path, rows: int) -> None:
    """Add rows to a file as an export does."""
    fresh = [*pages(rows, 2)]

    def step() -> None:
        if isinstance(form, DatabaseFormat):
            write_partial(path, lambda new: form.write(new, COLUMNS, fresh))
            form.merge(path, partial_of(path), 2, "bench")
            sync_file(path)
        elif isinstance(form, TextFormat):
            write_tail, base = form.write_tail, Base(path.stat().st_size, digest_of(path))
            write_partial(path, lambda new: write_tail(new, COLUMNS, fresh, path))
            append(path, base, STOP)
        else:
            write_partial(path, lambda new: form.write(new, COLUMNS, fresh, path))
            put_in_place(path)

    measured(f"{form.name}, {rows:,} more", step)


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the cost for each format."""
    parser = argparse.ArgumentParser()
    parser.add_argument("formats", nargs="*", default=FORMATS)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--new", type=int, default=20_000)
    chosen = parser.parse_args(arguments)
    for name in chosen.formats:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / f"blocks.{name}"
            create(format_of(name), path, chosen.rows)
            update(format_of(name), path, chosen.new)


if __name__ == "__main__":
    main()

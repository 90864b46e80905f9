"""Contract of the targets of exports: the targets, lists that change, and stops at every step.

`TARGETS` is the only place that says which targets there are, and how other programs read them. `STORIES`
has the kinds of lists, and what happens to them between two runs. `test_contract` has the promises.
``python -m tests.export.contract [WORD ...]`` stops each story at every step, at each target whose name has
one of the words; with a number it runs as many random histories at each of these targets instead.
"""

from __future__ import annotations

import asyncio
import csv
import io
import json
import sqlite3
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from pathlib import Path
from random import Random
from typing import Any, TypeVar
from urllib.parse import unquote

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
from attrs import define, evolve, field, frozen

from chainapi import Session
from chainapi.errors import ExportError
from chainapi.export import export, files
from chainapi.testing import run
from tests.export.buckets import Bucket, bucket
from tests.export.disks import FullDisk, Images, State, files_of_at_most, restored
from tests.ledger import ADDRESS, Ledger, Row, block, transfer
from tests.sessions import reaching

__all__ = [
    "BLOCKS",
    "DATABASES",
    "FORMATS",
    "STORIES",
    "TARGETS",
    "TRANSFERS",
    "Place",
    "Story",
    "Target",
    "day_of",
    "full_disks",
    "history",
    "read",
    "sample",
    "stopped",
    "stops",
]

T = TypeVar("T")
FORMATS = ("jsonl", "jsonl.gz", "jsonl.zst", "csv", "csv.gz", "csv.zst", "parquet", "sqlite", "duckdb")
DAY = 86_400  # seconds
LATENCY = 0.05  # seconds of a request: more than pages gather for a commit
LIFETIMES = (4 * LATENCY, 86_400.0)  # seconds of page tokens in random histories


# What other programs read


def read_database(connect: Callable[..., Any], path: Path) -> list[Row]:
    """Return the rows of a database."""
    with closing(connect(path)) as database:
        found = database.execute("SELECT * FROM rows")
        return [
            dict(zip([name for name, *_ in found.description], row, strict=True)) for row in found.fetchall()
        ]


def text_of(path: Path) -> str:
    """Return the text of a file, compressed or not."""
    compression = {".gz": "gzip", ".zst": "zstd"}.get(path.suffix)
    with pa.input_stream(str(path), compression=compression) as file:
        return str(file.read().decode())


DATABASES: Mapping[str, Callable[[Path], Any]] = {"sqlite": sqlite3.connect, "duckdb": duckdb.connect}
READERS: Mapping[str, Callable[[Path], list[Row]]] = {
    "jsonl": lambda path: [json.loads(line) for line in text_of(path).split("\n")[:-1]],
    "csv": lambda path: [*csv.DictReader(io.StringIO(text_of(path), newline=""))],
    "parquet": lambda path: pq.ParquetFile(path).read().to_pylist(),
    "sqlite": lambda path: read_database(sqlite3.connect, path),
    "duckdb": lambda path: read_database(duckdb.connect, path),
}


def read(path: Path, format_: str) -> list[Row]:
    """Return the rows of a file, as another program reads them."""
    return READERS[format_.partition(".")[0]](path)


@frozen
class Target:
    """Target of an export.

    Attributes:
        name: what the tests call it.
        out: its path below a folder, or in a bucket; that of a folder ends with a slash.
        format: name of the format.
        remote: whether it is in a bucket, and not on the disk.
        divided: whether the rows of the folder are divided by source, and by day if they have a time.

    """

    name: str
    out: str
    format: str
    remote: bool = False
    divided: bool = False

    def __str__(self) -> str:
        return self.name

    @property
    def folder(self) -> bool:
        """Whether the target is a folder, which gets parts, and not one file."""
        return self.out.endswith("/")


TARGETS = (
    Target("folder of Parquet", "rows/", "parquet"),
    Target("folder of JSON lines", "rows/", "jsonl"),
    Target("folder of CSV", "rows/", "csv.gz"),
    Target("partitions", "rows/", "parquet", divided=True),
    Target("text file", "rows.jsonl", "jsonl"),
    Target("compressed text file", "rows.csv.gz", "csv.gz"),
    Target("SQLite", "rows.sqlite", "sqlite"),
    Target("DuckDB", "rows.duckdb", "duckdb"),
    Target("Parquet file", "rows.parquet", "parquet"),
    Target("URL of a folder", "rows/", "jsonl", remote=True),
    Target("URL of partitions", "rows/", "jsonl", remote=True, divided=True),
)


# Lists, and what happens to them


@frozen(kw_only=True)
class Plain:
    """Row of a class of a user, without a key and without an order."""

    number: int | None = None
    text: str | None = None


def plain(number: int, serial: int) -> Row:
    """Return a row that is equal to two others."""
    return {"number": serial // 3, "text": f"t{serial // 3}"}


@frozen
class Story:
    """Kind of a list, how it is exported, and how it changes between two runs.

    Attributes:
        name: what the tests call it.
        walk: returns the method of a session.
        sources: arguments of two lists, which are equal.
        fields: columns that tell the rows apart.
        make: makes a row of its number and its serial.
        items: name of the list field.
        numbers: numbers of the rows at first.
        invalid: rows that are invalid at first.
        change: changes the list after the first run.
        options: further options of the export.
        again: further options of the run after the change.
        timed: whether rows have a time.

    """

    name: str
    walk: Callable[[Session], Any]
    sources: Sequence[Any]
    fields: Sequence[str]
    make: Callable[[int, int], Row]
    items: str = "transactions"
    numbers: Sequence[int] = range(12)
    invalid: Sequence[int] = ()
    change: Callable[[Ledger], None] = lambda _: None
    options: Mapping[str, Any] = field(factory=dict[str, Any])
    again: Mapping[str, Any] = field(factory=dict[str, Any])
    timed: bool = True

    def __str__(self) -> str:
        return self.name

    def ledger(
        self, *, changed: bool = False, after: Ledger | None = None, latency: float = LATENCY, **options: Any
    ) -> Ledger:
        """Return a service with the lists, before or after the change; it refuses the tokens of `after`."""
        ledger = Ledger([*self.numbers], self.make, self.items, latency=latency, by_number=True, **options)
        ledger.changed = {serial: {"gasUsed": ""} for serial in self.invalid}
        if after is not None:
            ledger._tokens.update(dict.fromkeys(after._tokens, (float("-inf"), 0)))
        if changed:
            self.change(ledger)
        return ledger

    def rows(self, ledger: Ledger, *earlier: Ledger) -> Counter[tuple[str, ...]]:
        """Count the valid rows of the lists; those that are or were invalid are there once, too."""
        valid, invalid = self.split(ledger)
        for one in (self.ledger(), *earlier):
            invalid |= self.split(one)[1]
        return valid + Counter(invalid)

    def split(self, ledger: Ledger) -> tuple[Counter[tuple[str, ...]], set[tuple[str, ...]]]:
        """Return the valid and the invalid rows of the lists of now."""
        valid, invalid = Counter[tuple[str, ...]](), set[tuple[str, ...]]()
        for serial in {*range(len(ledger.numbers))} - ledger.gone:
            row = {**ledger.make(ledger.numbers[serial], serial), **ledger.changed.get(serial, {})}
            told = self.told({camel(name): value for name, value in row.items()})
            if row.get("gasUsed") == "":
                invalid |= {("invalid", label, *told) for label in self.labels}
            else:
                valid.update((label, *told) for label in self.labels)
        return valid, invalid

    @property
    def labels(self) -> list[str]:
        """Names of the sources."""
        return ["/".join(map(str, one)) if isinstance(one, tuple) else str(one) for one in self.sources]

    def told(self, row: Row) -> tuple[str, ...]:
        """Return what tells a row apart, by names of JSON or of columns."""
        return tuple(str(row[name if name in row else camel(name)]) for name in self.fields)


def camel(name: str) -> str:
    """Return the name of a field in JSON."""
    first, *others = name.split("_")
    return first + "".join(map(str.capitalize, others))


def grow(ledger: Ledger) -> None:
    """Add rows at the head, one of them with the newest number so far."""
    newest = max(ledger.numbers)
    ledger.numbers += [newest, newest + 1, newest + 2 * DAY]


def correct(ledger: Ledger) -> None:
    """Change, withdraw and add rows; one becomes valid, and another one invalid."""
    ledger.changed = {7: {"gasUsed": "70"}, 9: {"gasUsed": "90"}, 10: {"gasUsed": ""}}
    ledger.gone.add(11)
    ledger.numbers += [8 * DAY + 1, 12 * DAY]


BLOCKS = Story(
    "key and order",
    lambda session: session.data.evm.blocks,
    (1, 2),
    ("block_number", "block_hash", "gas_used"),
    block,
    "blocks",
    numbers=[DAY // 4 * one for one in range(12)],
    invalid=(3, 9),
    change=grow,
)
TRANSFERS = Story(
    "key without an order",
    lambda session: session.data.evm.erc20_transactions,
    ((1, ADDRESS), (2, ADDRESS)),
    ("tx_hash", "log_index", "block_number"),
    transfer,
    numbers=[one // 3 for one in range(12)],
    change=grow,
)
STORIES = (
    BLOCKS,
    TRANSFERS,
    Story(
        "neither",
        lambda session: session.data.list,
        ("/v1/a", "/v1/b"),
        ("number", "text"),
        plain,
        options={"model": Plain},
        timed=False,
    ),
    evolve(TRANSFERS, name="ranges", options={"ranges": 2}),
    evolve(
        BLOCKS,
        name="lookback",
        numbers=[DAY * one for one in range(12)],
        invalid=(7, 8),
        change=correct,
        again={"lookback": "6d"},
    ),
)


# Where a target is


@define
class Place:
    """Target of a test: on a disk, or in a bucket with its journal on a disk.

    Attributes:
        target: what it is.
        folder: folder with all its files, but for objects.
        objects: the bucket.

    """

    target: Target
    folder: Path
    objects: type[Bucket] | None = None

    @classmethod
    def of(cls, target: Target, folder: Path, objects: type[Bucket]) -> Place:
        """Return a new place in a folder that does not exist."""
        folder.mkdir(parents=True)
        objects.store.clear()
        return cls(target, folder, objects if target.remote else None)

    @property
    def out(self) -> str:
        """What the caller names."""
        return f"{self.out_folder}/{self.target.out}"

    @property
    def out_folder(self) -> str:
        """The folder or the bucket in which the target is."""
        return "bucket://b" if self.objects else str(self.folder)

    async def export(self, session: Session, story: Story, **options: Any) -> Any:
        """Run the export once."""
        given: dict[str, Any] = {"format": self.target.format, "page_size": 4, "on_invalid": "raw"}
        if self.target.divided:
            given["partition"] = ["source", "day"] if story.timed else ["source"]
        if self.target.folder:
            given["commit_seconds"] = 2 * LATENCY
        given |= {**story.options, **options}
        return await export(story.walk(session), story.sources, self.out, **given)

    def local(self) -> Path:
        """Return the folder, or a local copy of the bucket, in which the target has its name."""
        if self.objects is None:
            return self.folder
        copy = self.folder.with_name(f"{self.folder.name}-objects") / "b"
        self.objects.copy_to(copy)
        return copy

    def files(self) -> list[Path]:
        """Return the files with rows, in the folder or its copy."""
        found = self.local() / self.target.out
        return sorted(found.rglob("part-*")) if self.target.folder else [found] if found.exists() else []

    def listed(self) -> list[Path]:
        """Return the files with rows that the export names; of a folder, with what it says of each."""
        here, named = self.local(), dict[Path, Any]()
        for one in files(self.out):
            named[here / str(one.path).removeprefix(f"{self.out_folder}/")] = one
        for path, one in named.items() if self.target.folder else ():
            rows = read(path, self.target.format)
            assert (one.rows, one.size) == (len(rows), path.stat().st_size)
            assert one.newest.keys() >= {row["source"] for row in rows if "source" in row}
        return sorted(named)

    def rows(self, story: Story, files: Iterable[Path] | None = None) -> Counter[tuple[str, ...]]:
        """Count the rows that other programs find, and the invalid ones."""
        found = Counter[tuple[str, ...]]()
        for path in self.files() if files is None else files:
            keys = dict(part.split("=") for part in path.parts if "=" in part)
            for row in read(path, self.target.format):
                source = row["source"] if "source" in row else unquote(keys["source"])
                found[source, *story.told(row)] += 1
                if "day" in keys:
                    assert (
                        day_of(row["block_timestamp" if "block_timestamp" in row else "day"]) == keys["day"]
                    )
        for source, row in self.invalid():
            found["invalid", source, *story.told(row)] += 1
        return found

    def invalid(self) -> Iterator[tuple[str, Row]]:
        """Yield the invalid rows with their sources."""
        for path in [*self.local().rglob("_invalid-*"), *self.local().glob("*.invalid")]:
            for line in map(json.loads, path.read_text().splitlines()):
                yield line["source"], line["row"]
        for path in self.files() if self.target.format in DATABASES else ():
            with closing(DATABASES[self.target.format](path)) as database:
                try:
                    found = database.execute("SELECT source, row FROM invalid").fetchall()
                except (sqlite3.OperationalError, duckdb.CatalogException):  # there was no such row
                    found = []
            yield from ((source, json.loads(row)) for source, row in found)

    def check(self, story: Story, ledger: Ledger, *earlier: Ledger) -> None:
        """Compare the target with the list, and look for what a stopped run has left behind."""
        expected, found = story.rows(ledger, *earlier), self.rows(story)
        assert found == expected, (found - expected, expected - found)
        assert self.listed() == self.files()
        left = [path.name for folder in (self.folder, self.local()) for path in folder.rglob("*")]
        assert [name for name in left if "partial" in name or "unfinished" in name] == []


def day_of(value: Any) -> str:
    """Return the date of a time in UTC."""
    seconds = value if isinstance(value, int) else value.timestamp()
    return time.strftime("%Y-%m-%d", time.gmtime(seconds))


# Stops at every step


def sample(states: Sequence[T], most: int) -> Iterator[T]:
    """Yield at most `most` of the states, evenly spread."""
    step = max(1, len(states) / most)
    return (states[int((place + 0.5) * step)] for place in range(min(most, len(states))))


async def stopped(exporting: Coroutine[Any, Any, T], seconds: float) -> asyncio.Task[T]:
    """Run an export, cancel it after some seconds, and return its task."""
    task = asyncio.create_task(exporting)
    await asyncio.wait([task], timeout=seconds)
    task.cancel()
    await asyncio.wait([task])
    return task


async def stops(
    target: Target, story: Story, folder: Path, objects: type[Bucket], most: int = sys.maxsize, twice: int = 0
) -> int:
    """Continue an export from what a kill or a power cut leaves; return the number of stops.

    The service refuses the page tokens that it gave before the stop. Runs that continue are themselves
    stopped, at `twice` steps each.
    """
    place, ledger = Place.of(target, folder / "run", objects), story.ledger()
    states = list[tuple[bool, State]]()
    async with reaching(ledger) as session:
        for changed in (False, True):
            if changed:
                story.change(ledger)
            with Images(place.folder, place.objects) as images:
                await place.export(session, story, **(story.again if changed else {}))
            states += [(changed, state) for state in images.take()]
    place.check(story, ledger)
    assert len(states) >= 4
    count = 0
    for changed, state in sample(states, most):
        count += 1
        place.folder = restored(state, folder / f"{count}", place.objects)
        ledger, later = await _finish(place, story, ledger, changed=changed, noted=twice > 0)
        for second, (after, again) in enumerate(sample(later, twice) if later else ()):
            place.folder = restored(again, folder / f"{count}-{second}", place.objects)
            ledger, _ = await _finish(place, story, ledger, changed=after)
    return count


async def _finish(
    place: Place, story: Story, ledger: Ledger, *, changed: bool, noted: bool = False
) -> tuple[Ledger, list[tuple[bool, State]]]:
    """Continue an export, change the list unless it has changed, and export it again.

    Return the service, and what stops would leave, with whether that is after the change, if it is noted.
    """
    states = list[tuple[bool, State]]()
    for now in sorted({changed, True}):
        ledger = story.ledger(changed=now, after=ledger)
        async with reaching(ledger) as session:
            with Images(place.folder, place.objects) if noted else nullcontext() as images:
                await place.export(session, story, **(story.again if now else {}))
        states += [(now, state) for state in images.take()] if images else []
    place.check(story, ledger)
    return ledger, states


async def full_disks(
    target: Target, story: Story, folder: Path, objects: type[Bucket], most: int = sys.maxsize
) -> int:
    """Let the disk be full from a step on, then make room; return the number of full disks."""
    place = Place.of(target, folder / "counted", objects)
    disk = FullDisk(objects=place.objects)
    async with reaching(story.ledger()) as session:
        with disk:
            await place.export(session, story)
    disks = (FullDisk(at, objects=place.objects) for at in sample(range(1, disk.steps + 1), most))
    return await _made_room(target, story, folder, objects, disks)


async def small_disks(
    target: Target, story: Story, folder: Path, objects: type[Bucket], most: int = sys.maxsize
) -> int:
    """Let no file grow beyond a size, then make room; return the number of full disks."""
    sizes = sample([0, 500, 2_000, 6_000, 20_000, 60_000, 250_000], most)
    return await _made_room(target, story, folder, objects, map(files_of_at_most, sizes))


async def _made_room(
    target: Target,
    story: Story,
    folder: Path,
    objects: type[Bucket],
    disks: Iterable[AbstractContextManager[Any]],
) -> int:
    """Export to each of these disks, which may get full, and again without it; return how many were full."""
    full = 0
    for number, disk in enumerate(disks):
        place, ledger = Place.of(target, folder / f"{number}", objects), story.ledger()
        async with reaching(ledger) as session:
            with disk:
                full += await no_room(place.export(session, story))
            await place.export(session, story)
        place.check(story, ledger)
    return full


# Random histories


async def history(target: Target, story: Story, seed: int, folder: Path, objects: type[Bucket]) -> None:
    """Run an export several times, in a random history, and then to its end.

    A run completes, or is cancelled, killed or cut off from power at a random step, while page tokens live
    for a random time. The list changes before one of the runs.
    """
    chance = Random(seed)
    if story.again:  # an invalid row that changes before it was fetched leaves no trace
        story = evolve(story, invalid=())
    place, ledger = Place.of(target, folder / "run", objects), story.ledger(lifetime=chance.choice(LIFETIMES))
    runs = chance.randint(1, 4)
    changes = chance.randint(0, runs)
    for number in range(runs):
        changed = number >= changes
        if number == changes:
            story.change(ledger)
        options = {"page_size": chance.choice((2, 4, 5)), **(story.again if changed else {})}
        how = chance.choice(("complete", "cancel", "stop", "stop"))
        seconds = 60.0 if how == "complete" else chance.uniform(0.0, 20 * LATENCY)
        with Images(place.folder, place.objects) if how == "stop" else nullcontext() as images:
            async with reaching(ledger) as session:
                running = await stopped(place.export(session, story, **options), seconds)
        if not running.cancelled():
            running.result()
        if images is not None and (states := images.take()):
            place.folder = restored(chance.choice(states), folder / f"{number}", place.objects)
        if chance.random() < 0.5:
            lifetime = chance.choice(LIFETIMES)
            ledger = story.ledger(changed=changed, after=ledger, lifetime=lifetime)
    if changes == runs:
        story.change(ledger)
    async with reaching(ledger) as session:
        for _ in range(2):  # the first one may end the first walk, which fetches nothing again
            await place.export(session, story, **story.again)
    place.check(story, ledger)


async def histories(targets: Sequence[Target], count: int, objects: type[Bucket]) -> None:
    """Run random histories at each target, with the stories by turns."""
    for target in targets:
        begun = time.perf_counter()
        for seed in range(count):
            with tempfile.TemporaryDirectory() as place:
                story = STORIES[seed % len(STORIES)]
                try:
                    await history(target, story, seed, Path(place), objects)
                except BaseException as error:
                    error.add_note(f"{target}, {story}, seed {seed}")
                    raise
        print(f"{target!s:24}{count:8} histories{time.perf_counter() - begun:10.0f} s", flush=True)


async def no_room(exporting: Any) -> bool:
    """Await an export; return whether a full disk ended it, with advice."""
    try:
        await exporting
    except ExportError as error:
        if not any(advice in str(error) for advice in ("again", "choose another")):
            raise
        return True
    return False


async def _main(words: Sequence[str]) -> None:
    named = [word for word in words if not word.isdecimal()]
    targets = [one for one in TARGETS if not named or any(word in one.name for word in named)]
    with bucket() as objects:
        if count := next((int(word) for word in words if word.isdecimal()), 0):
            await histories(targets, count, objects)
            return
        print(f"{'':24}{'':24}{'stops':>8}{'full disks':>12}{'small disks':>12}{'seconds':>10}")
        for target in targets:
            for story in STORIES:
                begun = time.perf_counter()
                with tempfile.TemporaryDirectory() as place:
                    counts = [
                        await stops(target, story, Path(place, "stops"), objects, twice=1),
                        await full_disks(target, story, Path(place, "full"), objects),
                        await small_disks(target, story, Path(place, "small"), objects),
                    ]
                seconds = time.perf_counter() - begun
                print(f"{target!s:24}{story!s:24}{counts[0]:8}{counts[1]:12}{counts[2]:12}{seconds:10.0f}")


if __name__ == "__main__":
    run(_main(sys.argv[1:]))

"""Kills, power cuts and full disks at every step of the parts of a target, in every format.

``python -m tests.export.crashes`` runs all of them; the suite has a sample (`test_crashes`). The export has
invalid rows, several parts, and rows that are added before its second run. After each stop it continues, from
a page token that the service refuses, and each row must be there exactly once, in the folder of its source
and day where rows are divided.
"""

from __future__ import annotations

import asyncio
import errno
import json
import os
import resource
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar
from urllib.parse import unquote

from attrs import evolve, frozen

from chainapi import Session
from chainapi.errors import ExportError
from chainapi.export import export
from chainapi.export.formats import FORMATS, format_of, parquet
from chainapi.export.gathering import GroupSize
from chainapi.export.manifest import MANIFEST
from chainapi.export.partition import FORMATS as DIVIDED
from chainapi.export.writer import COMMIT_AFTER
from chainapi.testing import run
from chainapi.transport import Request, Response
from tests.export.power_cuts import PowerCuts
from tests.models.test_invalid import Served, block

__all__ = ["SCENES", "Scene", "full_disks", "groups_of", "kills_and_power_cuts", "small_disks"]

CHAINS = (1, 2)
OLDEST, ROWS, MORE = 80, 20, 5
HOURS_6 = 21_600
T = TypeVar("T")


class Chains(Served):
    """Chains of 20 blocks, four a day, every seventh invalid; `more` are added at their heads.

    With `refused`, the first page token is refused.
    """

    def __init__(self, more: int = 0, *, valid: bool = False, refused: bool = False) -> None:
        super().__init__([])
        self.more, self.valid, self.refused = more, valid, refused

    @property
    def numbers(self) -> Counter[tuple[str, int]]:
        """Chain and number of each block."""
        newest = OLDEST + ROWS + self.more
        return Counter((str(chain), number) for chain in CHAINS for number in range(OLDEST, newest))

    async def send(self, request: Request) -> Response:
        """Return a page of a chain, after more time than pages gather for a commit."""
        await asyncio.sleep(2 * COMMIT_AFTER)
        self.rows = [
            block(number, blockTimestamp=number * HOURS_6, gasUsed="1" if self.valid or number % 7 else "")
            for number in range(OLDEST + ROWS + self.more - 1, OLDEST - 1, -1)
        ]
        return await super().send(request)


@frozen
class Scene:
    """Export to a folder, or to a file in it.

    Attributes:
        format: name of the format.
        partition: keys of the folders; None for parts that are not divided.
        groups: whether pages become row groups while they are fetched.
        valid: whether all rows are valid.
        single: whether the target is a single file.

    """

    format: str
    partition: tuple[str, ...] | None = None
    groups: bool = False
    valid: bool = False
    single: bool = False

    def __str__(self) -> str:
        words = [name for name in ("groups", "valid", "single") if getattr(self, name)]
        return " ".join([self.format, *filter(None, [",".join(self.partition or ())]), *words])

    async def export(self, folder: Path, more: int = 0, *, refused: bool = False, **options: Any) -> None:
        """Run the export once."""
        chains = Chains(more, valid=self.valid, refused=refused)
        session = Session(data_base_url="https://data.invalid", api_key="key", transport=chains)
        if not self.single:
            options["part_rows"] = 16 if self.valid else 12
        size = GroupSize(least=8, full=8) if self.groups else GroupSize(seconds=COMMIT_AFTER)
        async with session:
            with groups_of(size):
                await export(
                    session.data.evm.blocks,
                    CHAINS,
                    folder / f"rows.{self.format}" if self.single else folder,
                    format=self.format,
                    partition=self.partition,
                    page_size=4,
                    on_invalid="raw",
                    **options,
                )

    async def finish(self, folder: Path, more: int = 0) -> None:
        """Continue the export, add rows and export them, and check all rows."""
        for grown in sorted({more, MORE}):
            await self.export(folder, grown, refused=True)
        assert self.rows_in(folder) == Chains(MORE).numbers
        self.check_files(folder)

    def check_files(self, folder: Path) -> None:
        """Check that the manifest has all parts, and that nothing else is left."""
        if self.single:
            journal = folder / f"rows.{self.format}.export"
            assert {path.name for path in folder.iterdir()} == {*self.names_in(folder), journal.name}
            assert [path.name for path in journal.iterdir()] == ["journal"]
            return
        entries = [json.loads(line) for line in (folder / MANIFEST).read_bytes().splitlines()]
        assert {entry["name"] for entry in entries} == self.names_in(folder)
        assert [path.name for path in (folder / "_export").iterdir()] == ["journal"]
        assert [*folder.rglob("*.partial")] == []

    def names_in(self, folder: Path) -> set[str]:
        """Return the names of all parts below the folder, or of the file."""
        if self.single:
            return {f"rows.{self.format}"}
        return {str(path.relative_to(folder)) for path in folder.rglob(f"part-*.{self.format}")}

    def rows_in(self, folder: Path) -> Counter[tuple[str, int]]:
        """Count the rows of all parts, and the invalid ones; check the folders of divided ones."""
        found = Counter[tuple[str, int]]()
        form = format_of(self.format)
        for name in self.names_in(folder):
            named = dict(part.split("=") for part in name.split("/")[:-1])
            for row in form.read(folder / name):
                number = int(row["block_number"])
                if self.partition:
                    day = time.strftime("%Y-%m-%d", time.gmtime(number * HOURS_6))
                    assert named["day"] == day, name
                found[unquote(named.get("source", "")) or str(row["source"]), number] += 1
        for path in folder.glob("_invalid-*.ndjson"):
            rows = [json.loads(line) for line in path.read_bytes().splitlines()]
            found.update((row["source"], row["row"]["blockNumber"]) for row in rows)
        return found


SCENES = [
    *(Scene(name) for name in FORMATS),
    *(Scene(name, ("source", "day")) for name in DIVIDED),
    Scene("parquet", groups=True),
    Scene("parquet", groups=True, valid=True),
    Scene("parquet", groups=True, valid=True, single=True),
]


@contextmanager
def groups_of(size: GroupSize) -> Iterator[None]:
    """Let pages of Parquet exports become row groups of a size."""
    before = parquet.FORMAT
    parquet.FORMAT = evolve(before, group_size=size)
    try:
        yield
    finally:
        parquet.FORMAT = before


def sample(states: Sequence[T], most: int) -> Sequence[T]:
    """Return at most `most` of the states, evenly spread."""
    step = max(1, len(states) / most)
    return [states[int((place + 0.5) * step)] for place in range(min(most, len(states)))]


def new(folder: Path) -> Path:
    """Create a folder."""
    folder.mkdir(parents=True)
    return folder


# Kills and power cuts


async def kills_and_power_cuts(scene: Scene, folder: Path, most: int = sys.maxsize) -> int:
    """Continue the export from each image that a kill or a power cut leaves; return their number."""
    made = new(folder / "run")
    states = list[tuple[int, dict[str, bytes]]]()
    cuts = PowerCuts(made)
    for more in (0, MORE):
        with cuts:
            await scene.export(made, more)
        states += [(more, image) for image in cuts.take()]
    found = any("groups-" in name for _, image in states for name in image)
    assert found is scene.groups
    chosen = sample(states, most)
    for number, (more, image) in enumerate(chosen):
        cuts.restore(image, folder / str(number))
        await scene.finish(folder / str(number), more)
    return len(chosen)


# Full disks


class FullDisk:
    """Disk without room from a step on: a sync, a rename, a new folder.

    Attributes:
        steps: number of steps so far.

    """

    STEPS = ("fsync", "replace", "mkdir")

    def __init__(self, at: int = sys.maxsize) -> None:
        self.steps = 0
        self._at = at
        self._real: dict[str, Callable[..., Any]] = {}

    def __enter__(self) -> Self:
        for name in self.STEPS:
            self._real[name] = getattr(os, name)
            setattr(os, name, self._limited(self._real[name]))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for name, real in self._real.items():
            setattr(os, name, real)

    def _limited(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def step(*arguments: Any, **options: Any) -> Any:
            self.steps += 1
            if self.steps >= self._at:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return real(*arguments, **options)

        return step


async def full_disks(scene: Scene, folder: Path, most: int = sys.maxsize) -> int:
    """Let the disk be full from each step on, then make room; return the number of full disks.

    Pages that are committed together take fewer steps, so the last ones may not come.
    """
    with FullDisk() as disk:
        await scene.export(new(folder / "counted"))
    full = 0
    for at in sample(range(1, disk.steps + 1), most):
        place = new(folder / str(at))
        with FullDisk(at):
            full += await refused(scene.export(place))
        await scene.finish(place)
    return full


async def small_disks(scene: Scene, folder: Path, most: int = sys.maxsize) -> int:
    """Let no file grow beyond a size from a commit on, then make room; return the number of full disks."""
    full = 0
    attempts = [(at, size) for at in (1, 3, 5, 8) for size in (0, 500, 2_000, 6_000, 20_000, 60_000, 250_000)]
    for at, size in sample(attempts, most):
        place = new(folder / f"{at}-{size}")
        with limits_of_files() as limit:
            calls = iter(range(1, sys.maxsize))

            def report(_: Any, at: int = at, size: int = size, calls: Iterator[int] = calls) -> None:
                if next(calls) == at:
                    limit(size)

            full += await refused(scene.export(place, on_progress=report))
        await scene.finish(place)
    return full


@contextmanager
def limits_of_files() -> Iterator[Callable[[int], None]]:
    """Yield a function that limits the size of the files of this process, in bytes, until the end."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        yield lambda size: resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


async def refused(exporting: Any) -> bool:
    """Await an export; return whether a full disk ended it."""
    try:
        await exporting
    except ExportError as error:
        if not any(advice in str(error) for advice in ("again", "choose another target")):
            raise
        return True
    return False


async def _main() -> None:
    kinds = {"kills, cuts": kills_and_power_cuts, "full disks": full_disks, "small disks": small_disks}
    print(f"{'':30}" + "".join(f"{name:>14}" for name in kinds) + f"{'seconds':>10}")
    for scene in SCENES:
        begun = time.perf_counter()
        with tempfile.TemporaryDirectory() as folder:
            counts = [await kind(scene, Path(folder) / name) for name, kind in kinds.items()]
        print(f"{scene!s:30}" + "".join(f"{n:14}" for n in counts) + f"{time.perf_counter() - begun:10.0f}")


if __name__ == "__main__":
    run(_main())

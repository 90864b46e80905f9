"""Kills, power cuts and full disks at every step of a correction (`lookback`), in every format and target.

``python -m tests.export.corrected`` runs all of them; the suite has a sample (`test_lookback`). Points of a
metric change, leave, come on top, become invalid and valid. After each stop a run with the same lookback
follows, and the target must be the list.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path

from attrs import frozen

from chainapi import Session
from chainapi.export import export
from chainapi.export.formats import FORMATS
from chainapi.export.partition import FORMATS as DIVIDED
from chainapi.export.run import ExportResult
from chainapi.testing import run
from tests.export.crashes import FullDisk, new, refused, sample
from tests.export.power_cuts import PowerCuts, Statements
from tests.export.windows import check_folder, rows_of, seconds
from tests.ledger import Ledger, point
from tests.sessions import reaching

__all__ = ["DAY", "SCENES", "Correction", "invalid_in", "points", "values_of"]

DAY = 86_400  # seconds


def points(days: list[int] | range) -> Ledger:
    """Return a service with one point a day."""
    return Ledger([DAY * day for day in days], point, "results", by_number=True)


def values_of(out: Path, suffix: str = "jsonl") -> dict[int, int]:
    """Return the value of each day; fail where a day is there twice."""
    found = [
        (int(seconds(row["timestamp"]) // DAY), int(float(row["value"]))) for row in rows_of(out, suffix)
    ]
    assert len({day for day, _ in found}) == len(found)
    return dict(found)


def invalid_in(out: Path) -> list[int]:
    """Return the days of the invalid points, in order, each as often as it is there."""
    files = [out.with_name(f"{out.name}.invalid"), *out.glob("_invalid-*.ndjson")]
    lines = [line for file in files if file.is_file() for line in file.read_text().splitlines()]
    return sorted(json.loads(line)["row"]["timestamp"] // DAY for line in lines)


@frozen
class Correction:
    """Correction of an export.

    Attributes:
        format: name of the format.
        shape: kind of the target: a file, a folder, or a folder with partitions.

    """

    format: str
    shape: str

    def __str__(self) -> str:
        return f"{self.format} {self.shape}"

    def target(self, place: Path) -> Path:
        """Return the target in a folder."""
        return place / f"b.{self.format}" if self.shape == "file" else place

    async def export(self, session: Session, place: Path, lookback: str | None = "4d") -> ExportResult:
        """Run the export once."""
        return await export(
            session.metrics.chains.metric,
            [(43114, "txCount")],
            self.target(place),
            page_size=3,
            format=self.format,
            partition=["source", "day"] if self.shape == "partitions" else None,
            lookback=lookback,
            on_invalid="raw",
        )

    def ledger(self) -> Ledger:
        """Return a list with two invalid points."""
        ledger = points(range(6))
        ledger.changed = {day: {"value": "none"} for day in (1, 2)}
        return ledger

    def change(self, ledger: Ledger) -> None:
        """Change the list after the first run."""
        ledger.changed[1] = {"value": 10}
        ledger.changed[3] = {"value": "none"}
        ledger.changed[4] = {"value": 40}
        ledger.gone.add(5)
        ledger.numbers.append(6 * DAY)

    def check(self, place: Path) -> None:
        """Compare the target with the changed list."""
        out = self.target(place)
        assert values_of(out, self.format) == {0: 0, 1: 10, 4: 40, 6: 6}
        assert invalid_in(out) == [1, 2, 3]
        if self.shape != "file":
            check_folder(out, self.format)
        assert [*place.rglob("*.partial*")] == []

    async def stops(self, folder: Path, most: int = sys.maxsize) -> int:
        """Continue the correction from each image that a kill or a power cut leaves; return their number."""
        made, ledger = new(folder / "run"), self.ledger()
        async with reaching(ledger) as session:
            await self.export(session, made, None)
            self.change(ledger)
            with PowerCuts(made) as cuts:
                cuts.settle()
                await self.export(session, made)
            self.check(made)
            chosen = sample(cuts.take(), most)
            for number, image in enumerate(chosen):
                place = folder / f"{number}"
                cuts.restore(image, place)
                await self.export(session, place)
                self.check(place)
        return len(chosen)

    async def statements(self, folder: Path, most: int = sys.maxsize) -> int:
        """Continue the correction from each image that a kill between two statements of a database leaves.

        Return their number: of images that differ in the journal alone there is one.
        """
        made, ledger = new(folder / "run"), self.ledger()
        async with reaching(ledger) as session:
            await self.export(session, made, None)
            self.change(ledger)
            with Statements(made) as statements:
                await self.export(session, made)
            chosen = sample([*self._different(statements.images)], most)
            for number, image in enumerate(chosen):
                place = folder / f"{number}"
                PowerCuts(made).restore(image, place)
                await self.export(session, place)
                self.check(place)
        return len(chosen)

    def _different(self, images: list[dict[str, bytes]]) -> Iterable[dict[str, bytes]]:
        """Return the last image of each state of what is not in the journal."""
        found = dict[int, dict[str, bytes]]()
        for image in images:
            found[hash(frozenset(one for one in image.items() if ".export/" not in one[0]))] = image
        return found.values()

    async def full_disks(self, folder: Path, most: int = sys.maxsize, first: int = 1) -> int:
        """Let the disk be full from each step on, then make room; return the number of full disks."""
        disk, full = FullDisk(), 0
        await self._correct(new(folder / "counted"), disk)
        for at in sample(range(first, disk.steps + 1), most):
            full += await self._correct(new(folder / f"{at}"), FullDisk(at))
        return full

    async def _correct(self, place: Path, disk: FullDisk) -> bool:
        """Correct an export on a disk, then with room; return whether the disk was full."""
        ledger = self.ledger()
        async with reaching(ledger) as session:
            await self.export(session, place, None)
            self.change(ledger)
            with disk:
                full = await refused(self.export(session, place))
            await self.export(session, place)
        self.check(place)
        return full


SCENES = [
    *(Correction(name, shape) for name in FORMATS for shape in ("file", "folder")),
    *(Correction(name, "partitions") for name in DIVIDED),
]


async def _main() -> None:
    print(f"{'':22}{'kills, cuts':>14}{'statements':>14}{'full disks':>14}{'seconds':>10}")
    for scene in SCENES:
        begun = time.perf_counter()
        with tempfile.TemporaryDirectory() as folder:
            counts = [
                await scene.stops(new(Path(folder) / "stops")),
                await scene.statements(new(Path(folder) / "statements")) if scene.shape == "file" else 0,
                await scene.full_disks(new(Path(folder) / "disks")),
            ]
        print(f"{scene!s:22}" + "".join(f"{n:14}" for n in counts) + f"{time.perf_counter() - begun:10.0f}")


if __name__ == "__main__":
    run(_main())

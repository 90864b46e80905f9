"""Damage to a journal, bit by bit: the export refuses it or is exact."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from random import Random
from typing import Any

import pytest
from attrs import define

from chainapi import Session
from chainapi.errors import ExportError
from chainapi.export import export
from chainapi.export.progress import ExportProgress
from chainapi.simulator import Simulator

CHAINS = (1, 2, 3)
ROWS, PAGE = 60, 10
FLIPS = 30  # of each image
ADVICE = r"[Cc]hoose another target|choose a target|make room|put it back|Put back"


@define
class Image:
    """Files of an interrupted export, its arguments, and the expected rows."""

    simulator: Simulator
    over: list[Any]
    walk: str
    name: str
    files: dict[str, bytes]
    rows: Counter[str]

    @property
    def journal(self) -> str:
        """Path of the journal below a folder."""
        return f"{self.name}/_export/journal" if self.name == "b" else f"{self.name}.export/journal"

    def put(self, folder: Path) -> None:
        """Replace the content of a folder by the files."""
        shutil.rmtree(folder, ignore_errors=True)
        for name, content in self.files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(content)

    async def resume(self, folder: Path, **options: Any) -> Counter[str]:
        """Continue the export to its end; return the rows of its files."""
        simulator = self.simulator
        async with Session(
            transport=simulator.transport(), data_base_url=simulator.data_base_url, api_key=simulator.api_key
        ) as session:
            walk: Callable[..., Any] = session.data.list if self.walk == "list" else session.data.evm.blocks
            await export(walk, self.over, folder / self.name, page_size=PAGE, format="jsonl", **options)
        return rows_in(folder)

    async def outcome(self, folder: Path) -> bool:
        """Continue the export; return whether it was refused, else check the rows."""
        try:
            rows = await self.resume(folder)
        except ExportError as error:
            with pytest.raises(ExportError, match=ADVICE):
                raise error from None
            return True
        assert rows == self.rows
        return False


def rows_in(folder: Path) -> Counter[str]:
    """Count the rows of all files."""
    return Counter(line for path in folder.rglob("*.jsonl") for line in path.read_text().splitlines())


def files_in(folder: Path) -> dict[str, bytes]:
    """Return all files of a folder."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


async def image(folder: Path, kind: str) -> Image:
    """Return an export that was interrupted in one of the ways of `KINDS`."""
    simulator = Simulator(seed=3, chains=CHAINS, rows=ROWS, latency=1.0)
    over: list[Any] = list(CHAINS)
    walk, name = "blocks", "b" if kind == "folder" else "b.jsonl"
    if kind == "restarted":
        over, walk = [f"/v1/chains/{chain}/blocks" for chain in CHAINS], "list"
    made = Image(simulator, over, walk, name, {}, Counter())
    committed = 0

    def copy(progress: ExportProgress) -> None:
        nonlocal committed
        committed += progress.stage == "fetching"
        if committed == 4 and kind in ("killed", "restarted"):
            made.files = files_in(folder)

    if kind == "folder":
        await made.resume(folder)
        simulator.insert("/v1/chains/1/blocks", 15)
    else:
        run = asyncio.create_task(made.resume(folder))
        await asyncio.sleep(5.5)
        run.cancel()
        await asyncio.wait([run])
    made.files = files_in(folder)
    if kind == "restarted":
        simulator.advance(86_400)
    made.rows = await made.resume(folder, on_progress=copy)
    if kind == "folder":
        made.files = files_in(folder)
    assert set(made.rows.values()) == {1}
    return made


KINDS = ["closed", "killed", "restarted", "folder"]


@pytest.mark.untraced
@pytest.mark.parametrize("kind", KINDS)
async def test_a_flipped_bit_of_a_file_is_found_or_does_no_harm(kind: str, tmp_path: Path) -> None:
    """A flipped bit of the database or its log loses, changes and repeats no row."""
    made, random, refused = await image(tmp_path / "made", kind), Random(kind), 0
    folder = tmp_path / "copy"
    journals = [name for name in made.files if "export" in name]
    for _ in range(FLIPS):
        made.put(folder)
        name = random.choice(journals)
        content = bytearray(made.files[name])
        reach = random.choice((100, 1_000, len(content)))  # headers are small, and much depends on them
        content[random.randrange(min(reach, len(content)))] ^= 1 << random.randrange(8)
        (folder / name).write_bytes(content)
        refused += await made.outcome(folder)
    assert refused < FLIPS
    assert refused or kind == "restarted"  # there all pages are in the log, which ends at the flipped bit


def flipped(value: Any, random: Random) -> Any:
    """Return a value of the same type that differs in one bit; any value for None."""
    if value is None:
        return random.choice((0, "", b"", "1"))
    if isinstance(value, int):
        return value ^ (1 << random.randrange(40))
    content = bytearray(value.encode() if isinstance(value, str) else value)
    if not content:
        return "x" if isinstance(value, str) else b"x"
    at = random.randrange(len(content))
    content[at] ^= 1 << random.randrange(7)
    return content.decode("utf-8", "replace") if isinstance(value, str) else bytes(content)


@pytest.mark.untraced
@pytest.mark.parametrize("kind", KINDS)
async def test_a_flipped_bit_of_a_value_is_found(kind: str, tmp_path: Path) -> None:
    """A value that was changed by a bit, to None or to another type is refused."""
    made, random = await image(tmp_path / "made", kind), Random(kind)
    folder, journal = tmp_path / "copy", tmp_path / "copy" / made.journal
    made.put(folder)
    with closing(sqlite3.connect(journal)) as database:
        tables = {
            table: [name for _, name, *_ in database.execute(f"PRAGMA table_info({table})")]
            for (table,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        }
    for table, columns in tables.items():
        for column in columns:
            for change in (flipped, lambda value, _: 99 if isinstance(value, str) else "99", lambda *_: None):
                made.put(folder)
                if damage(journal, table, columns, column, change, random):
                    assert await made.outcome(folder), (table, column, change)


def damage(
    journal: Path,
    table: str,
    columns: list[str],
    column: str,
    change: Callable[[Any, Random], Any],
    random: Random,
) -> bool:
    """Change a column of a random record; return False if the table rejects it."""
    with closing(sqlite3.connect(journal, isolation_level=None)) as database:
        records = database.execute(f'SELECT * FROM "{table}"').fetchall()
        if not records:
            return False
        record = random.choice(records)
        before = record[columns.index(column)]
        after = change(before, random)
        where = " AND ".join(f'"{name}" IS ?' for name in columns)
        try:
            database.execute(f'UPDATE "{table}" SET "{column}" = ? WHERE {where}', (after, *record))
        except sqlite3.IntegrityError:
            return False
        (now,) = database.execute("SELECT total_changes()").fetchone()
        return bool(now) and after != before

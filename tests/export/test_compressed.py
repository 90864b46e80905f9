"""Text files that are compressed: the bytes, and what other programs read of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow.csv as pa_csv
import pyarrow.json as pa_json
import pytest

from chainapi.errors import ConfigurationError
from chainapi.export.formats import format_of, with_options
from tests.export.test_append import CHAINS, NEW, ROWS, Growing
from tests.export.test_lost_writes import COLUMNS, lines

NAMES = ("jsonl.gz", "jsonl.zst", "csv.gz", "csv.zst")


@pytest.mark.parametrize("name", NAMES)
def test_bytes_are_reproducible(name: str, tmp_path: Path) -> None:
    """Equal rows give equal bytes, whatever the name of the file; no time is in them."""
    form = format_of(name)
    for file in ("one", "another"):
        form.write(tmp_path / file, COLUMNS, lines(30))
    content = (tmp_path / "one").read_bytes()
    assert content == (tmp_path / "another").read_bytes()
    if name.endswith(".gz"):
        assert content[3] == 0, "a flag of the header"
        assert content[4:8] == bytes(4), "the time in the header"


@pytest.mark.parametrize("name", NAMES)
def test_the_level_reaches_the_compressor(name: str, tmp_path: Path) -> None:
    """A greater level makes a smaller file, with the same rows."""
    sizes = list[int]()
    rows = lines(200)
    levels = (1, 9) if name.endswith("gz") else (1, 19)
    for level in levels:
        form = with_options(format_of(name), compression_level=level)
        assert form.write(tmp_path / f"{level}", COLUMNS, rows) == 200
        sizes.append((tmp_path / f"{level}").stat().st_size)
    assert sizes[1] < sizes[0]
    form = format_of(name)
    assert [*form.read(tmp_path / "1")] == [*form.read(tmp_path / f"{levels[1]}")]


def readers(path: Path, name: str) -> list[list[str]]:
    """Return the block hashes of a file, as each of three programs reads them."""
    if name.startswith("jsonl"):
        found: Any = duckdb.sql(f"SELECT block_hash FROM read_json('{path}', format='newline_delimited')")
        frames = [pa_json.read_json(path), pl.read_ndjson(path)]
    else:
        found = duckdb.sql(f"SELECT block_hash FROM read_csv('{path}')")
        frames = [pa_csv.read_csv(path), pl.read_csv(path, infer_schema=False)]
    return [[row[0] for row in found.fetchall()], *(list(map(str, frame["block_hash"])) for frame in frames)]


@pytest.mark.parametrize("name", NAMES)
async def test_other_programs_read_members(name: str, tmp_path: Path) -> None:
    """DuckDB, pyarrow and polars read a file to which rows were appended: each row, in order."""
    growing = Growing(tmp_path, name)
    before = await growing.begin()
    await growing.run()
    assert growing.path.read_bytes().startswith(before)
    growing.check()
    wanted = [row["block_hash"] for row in format_of(name).read(growing.path)]
    assert len(wanted) == len(CHAINS) * ROWS + NEW
    assert readers(growing.path, name) == [wanted] * 3


@pytest.mark.parametrize("name", NAMES)
def test_damage_is_refused(name: str, tmp_path: Path) -> None:
    """A compressed file that was cut or changed is refused for reading, and as an earlier file."""
    form, path = format_of(name), tmp_path / f"f.{name}"
    form.write(path, COLUMNS, lines(20))
    content = path.read_bytes()
    middle = len(content) // 2
    for damaged in (content[:-1], content[:middle], content[:middle] + b"\0\0\0\0" + content[middle + 4 :]):
        path.write_bytes(damaged)
        with pytest.raises(ConfigurationError, match=f"is not a {name} file of an export"):
            list(form.read(path))
        with pytest.raises(ConfigurationError, match=f"is not a {name} file of an export"):
            form.write(tmp_path / "new", COLUMNS, lines(1), path)

"""Exports: each row exactly once after every kind of stop, and clear errors."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import stat
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from fsspec.core import url_to_fs  # type: ignore[import-untyped]

from chainapi import Session
from chainapi.errors import (
    AuthenticationError,
    ConfigurationError,
    ExportError,
    IncompleteExportError,
    NotFoundError,
)
from chainapi.events import Event, PageReceived
from chainapi.export import ExportResult, export
from chainapi.simulator import Fault, Simulator
from tests.export.growing import blocks_of, numbers_in, rows_in
from tests.sessions import simulated

CHAINS = tuple(range(1, 13))


# The rows


async def test_all_rows_of_all_sources_are_in_the_file_once(tmp_path: Path) -> None:
    """An export of twelve chains has each block once, those of a source newest first."""
    simulator = Simulator(chains=CHAINS, rows=250)
    async with simulated(simulator) as session:
        result = await export(session.data.evm.blocks, CHAINS, tmp_path / "blocks.jsonl")
    path = tmp_path / "blocks.jsonl"
    assert result == ExportResult(path, 12 * 250, 12, (path,))
    assert numbers_in(path) == Counter(blocks_of(simulator, 250))
    for chain in CHAINS:  # the pages of several may alternate
        numbers = [row["block_number"] for row in rows_in(path) if row["source"] == str(chain)]
        assert numbers == sorted(numbers, reverse=True)


async def test_sources_may_be_tuples_and_mappings_and_come_one_by_one(tmp_path: Path) -> None:
    """A source is an argument, a tuple or a mapping, also of an async iterable."""
    simulator = Simulator(rows=30)

    async def sources() -> AsyncIterator[Any]:
        yield "mainnet", "p-chain"
        yield {"network": "fuji", "blockchain_id": "x-chain"}
        yield "mainnet", "p-chain"

    async with simulated(simulator) as session:
        result = await export(session.data.primary_network.utxos, sources(), tmp_path / "utxos.jsonl")
    assert Counter(row["source"] for row in rows_in(tmp_path / "utxos.jsonl")) == {
        "mainnet/p-chain": 30,
        "fuji/x-chain": 30,
    }
    assert result.sources == 2


async def test_a_list_without_arguments_is_one_source(tmp_path: Path) -> None:
    """A list without arguments is one source with the name "all"."""
    simulator = Simulator(chains=CHAINS)
    async with simulated(simulator) as session:
        await export(session.data.chains, [()], tmp_path / "chains.jsonl")
    rows = rows_in(tmp_path / "chains.jsonl")
    assert [(row["source"], row["chain_id"]) for row in rows] == [("all", chain) for chain in CHAINS]


async def test_a_limit_is_that_of_each_source(tmp_path: Path) -> None:
    """A limit leaves each source its newest rows, and no further page is requested."""
    simulator = Simulator(chains=CHAINS, rows=250)
    async with simulated(simulator) as session:
        await export(session.data.evm.blocks, CHAINS, tmp_path / "blocks.jsonl", limit=150)
    assert numbers_in(tmp_path / "blocks.jsonl") == Counter(blocks_of(simulator, 150))
    assert simulator.stats.requests == 2 * 12


async def test_many_exports_run_under_one_session(tmp_path: Path) -> None:
    """Three exports at once share a quota, and each file has all its rows."""
    simulator = Simulator(chains=CHAINS, rows=250, limit=20, window=1.0)
    names = ["a.jsonl", "b.jsonl", "c.jsonl"]
    async with simulated(simulator) as session, asyncio.TaskGroup() as group:
        for name in names:
            group.create_task(export(session.data.evm.blocks, CHAINS, tmp_path / name))
    for name in names:
        assert numbers_in(tmp_path / name) == Counter(blocks_of(simulator, 250))


# Stop and continue


async def test_pages_in_hand_are_kept(tmp_path: Path) -> None:
    """Pages in hand at a cancellation are not requested again, and no task or thread is left."""
    simulator, tasks = Simulator(chains=CHAINS, rows=100, latency=1.0), asyncio.all_tasks()
    events: list[Event] = []
    async with simulated(simulator, on_event=events.append) as session:
        run = asyncio.create_task(export(session.data.evm.blocks, CHAINS, tmp_path / "b.jsonl", page_size=10))
        await asyncio.sleep(5.5)
        for _ in range(3):
            run.cancel()
            await asyncio.sleep(0)
        with pytest.raises(asyncio.CancelledError):
            await run
        assert asyncio.all_tasks() == tasks
        assert [one.name for one in threading.enumerate() if "export" in one.name] == []
        requests = simulator.stats.requests
        had = sum(isinstance(event, PageReceived) for event in events)
        assert 12 < had <= requests
        await export(session.data.evm.blocks, CHAINS, tmp_path / "b.jsonl", page_size=10)
    assert simulator.stats.requests == requests + 12 * 10 - had
    assert numbers_in(tmp_path / "b.jsonl") == Counter(blocks_of(simulator, 100))


# Sources that fail


async def test_a_source_that_fails_stops_no_other(tmp_path: Path) -> None:
    """The error names the failed sources; the others are in the file."""
    simulator = Simulator(chains=CHAINS[:3], rows=50)
    async with simulated(simulator) as session:
        with pytest.raises(IncompleteExportError, match=r"1 of 3 sources failed: 77 \(404") as caught:
            await export(session.data.evm.blocks, [1, 77, 2], tmp_path / "b.jsonl")
        assert isinstance(caught.value.failures["77"], NotFoundError)
        assert numbers_in(tmp_path / "b.jsonl") == Counter(blocks_of(simulator, 50, (1, 2)))
        await export(session.data.evm.blocks, [1, 3, 2], tmp_path / "b.jsonl")
    assert numbers_in(tmp_path / "b.jsonl") == Counter(blocks_of(simulator, 50, (1, 2, 3)))


@pytest.mark.parametrize("name", ["b.jsonl", "b"])
async def test_an_error_of_all_sources_names_no_others(name: str, tmp_path: Path) -> None:
    """If all sources failed, the error does not say that others are in the target."""
    async with simulated(Simulator(chains=(1,))) as session:
        with pytest.raises(IncompleteExportError) as caught:
            await export(session.data.evm.blocks, [77, 78], tmp_path / name)
    assert str(caught.value).startswith("2 of 2 sources failed: 77 (404 ")
    assert str(caught.value).endswith(", and 1 more. Start the same export again to fetch the failed ones")


async def test_a_failed_source_continues_behind_its_last_page(tmp_path: Path) -> None:
    """The rows of a failed source are in the file, and the next run continues behind them."""
    simulator = Simulator(chains=(1, 2), rows=100)
    async with simulated(simulator, max_attempts=1) as session:
        walk, path = session.data.evm.blocks, tmp_path / "b.jsonl"
        simulator.faults = (Fault(at=4, status=500),)
        with pytest.raises(IncompleteExportError):
            await export(walk, [1], path, page_size=20)
        assert numbers_in(path) == Counter(blocks_of(simulator, 60, (1,)))
        simulator.faults = (Fault(at=5 + 5, status=500),)
        with pytest.raises(IncompleteExportError):
            await export(walk, [2, 1], path, page_size=20, concurrency=1)
        assert numbers_in(path) == Counter(blocks_of(simulator, 100, (2,)) | blocks_of(simulator, 60, (1,)))
        simulator.faults = ()
        requests = simulator.stats.requests
        await export(walk, [1], path, page_size=20)
    assert simulator.stats.requests == requests + 2
    assert numbers_in(path) == Counter(blocks_of(simulator, 100, (1, 2)))


async def test_a_key_that_is_refused_ends_the_export(tmp_path: Path) -> None:
    """An error that concerns all sources is raised unchanged, after few requests."""
    simulator = Simulator(chains=tuple(range(1, 501)))
    session = Session(
        transport=simulator.transport(), data_base_url=simulator.data_base_url, api_key="another-key"
    )
    async with session:
        with pytest.raises(AuthenticationError):
            await export(session.data.evm.blocks, range(1, 501), tmp_path / "b.jsonl", concurrency=8)
    assert simulator.stats.requests <= 8
    assert not (tmp_path / "b.jsonl").exists()


# Invalid targets


async def test_a_foreign_file_beside_a_refused_export_is_left_alone(tmp_path: Path) -> None:
    """A file or folder that came after a refused run is refused as before it."""
    simulator = Simulator()
    async with simulated(simulator) as session:
        for name in ("mine.jsonl", "invalid.jsonl", "ours/", "memory://refused/ours/"):
            target = name if "://" in name else f"{tmp_path}/{name}"
            with pytest.raises(ConfigurationError, match="nothing to export"):
                await export(session.data.evm.blocks, [], target)
            own = f"{target}mine.jsonl" if target.endswith("/") else target
            own = f"{target}.invalid" if name == "invalid.jsonl" else own  # with invalid rows of others
            files, path = url_to_fs(own)
            files.makedirs(path.rpartition("/")[0], exist_ok=True)
            files.pipe_file(path, b"mine")
            with pytest.raises(ExportError, match="no export wrote it"):
                await export(session.data.evm.blocks, [43114], target)
            assert files.cat_file(path) == b"mine"
    assert simulator.stats.requests == 0


@pytest.mark.parametrize(
    ("out", "left"),
    [
        ("b/", "b/_export/journal"),
        ("b/", "b/_manifest.ndjson"),
        ("b.jsonl", "b.jsonl.export/journal"),
        ("b.parquet", "b.parquet.export/journal"),
        ("b.sqlite", "b.sqlite"),
        ("memory://earlier/b/", "memory://earlier/b/_export"),
    ],
)
async def test_a_target_of_an_earlier_version(out: str, left: str, tmp_path: Path) -> None:
    """A target of an earlier version is refused before the first request, and stays as it is."""
    simulator, target = Simulator(), out if "://" in out else f"{tmp_path}/{out}"
    if left.endswith(".sqlite"):
        with closing(sqlite3.connect(tmp_path / left)) as database:
            database.execute("CREATE TABLE chainapi_parts (part INTEGER)")
    else:
        disk, path = url_to_fs(left if "://" in left else f"{tmp_path}/{left}", auto_mkdir=True)
        disk.pipe_file(path, b"theirs")
    before = {path: path.is_file() and path.read_bytes() for path in tmp_path.rglob("*")}  # noqa: ASYNC240
    async with simulated(simulator) as session:
        with pytest.raises(ExportError, match="exported by an earlier version of chainapi: keep its"):
            await export(session.data.evm.blocks, [43114], target, format=None if "." in out else "jsonl")
    assert simulator.stats.requests == 0
    after = {path: path.is_file() and path.read_bytes() for path in tmp_path.rglob("*")}  # noqa: ASYNC240
    assert {path: content for path, content in after.items() if path.name != "_log"} == before


LINKS = (  # in place of a file of an export, and whether that is refused
    ("b.jsonl", "b.jsonl", True),
    ("b.jsonl", "b.jsonl.log", True),
    ("b.jsonl", "b.jsonl.log/00000001.json", True),
    ("b.jsonl", ".b.jsonl.partial", False),
    ("b.jsonl", "b.jsonl.invalid", True),
    ("b.parquet", "b.parquet", True),
    ("b.parquet", ".b.parquet.partial", False),
    ("b.sqlite", "b.sqlite", True),
    ("b", "b/_log", True),
    ("b", "b/part-00000001.jsonl", True),
    ("b", "b/_log/00000001.json", True),
    ("b", "b/.part-00000001.jsonl.partial", False),
)


@pytest.mark.parametrize("dangling", [True, False])
@pytest.mark.parametrize(("out", "link", "refused"), LINKS, ids=[link for _, link, _ in LINKS])
async def test_a_symbolic_link_is_not_followed(
    out: str, link: str, refused: bool, dangling: bool, tmp_path: Path
) -> None:
    """Nothing is written through a link in place of a file of an export; most links are refused by name."""
    theirs = tmp_path / "theirs"
    (tmp_path / link).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / link).symlink_to(theirs)
    if not dangling:
        theirs.write_bytes(b"theirs")
    async with simulated(Simulator(rows=30)) as session:
        for _ in range(2):
            exporting = export(session.data.evm.blocks, [43114], tmp_path / out)
            if refused:
                with pytest.raises(ExportError, match=Path(link).name):
                    await exporting
                assert (tmp_path / link).is_symlink()
            else:
                await exporting
    assert theirs.exists() is not dangling
    assert dangling or theirs.read_bytes() == b"theirs"


async def test_a_link_to_a_folder_is_followed(tmp_path: Path) -> None:
    """The folder of a target and those above may be links; a broken link is refused."""
    simulator = Simulator(rows=30)
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real", target_is_directory=True)
    (tmp_path / "nowhere").symlink_to(tmp_path / "gone")
    async with simulated(simulator) as session:
        for name in ("b.jsonl", "folder/"):
            await export(session.data.evm.blocks, [43114], f"{tmp_path}/link/{name}", format="jsonl")
            with pytest.raises(ExportError, match=r"nowhere.* cannot be written"):
                await export(session.data.evm.blocks, [43114], f"{tmp_path}/nowhere/{name}", format="jsonl")
    assert (tmp_path / "real" / "b.jsonl").exists()
    assert (tmp_path / "real" / "folder" / "part-00000001.jsonl").exists()
    assert not (tmp_path / "gone").exists()


@pytest.mark.parametrize("format_", ["jsonl", "sqlite", "parquet"])
async def test_a_file_that_is_written_again_keeps_its_mode(format_: str, tmp_path: Path) -> None:
    """A new file follows the umask; a later run keeps the mode that the user gave it."""
    simulator, path = Simulator(chains=(1,), rows=30), tmp_path / f"b.{format_}"
    async with simulated(simulator) as session:
        await export(session.data.evm.blocks, [1], path)
        mask = os.umask(0)
        os.umask(mask)
        assert stat.S_IMODE(path.stat().st_mode) == 0o666 & ~mask
        path.chmod(0o600)
        simulator.insert("/v1/chains/1/blocks", 3)
        result = await export(session.data.evm.blocks, [1], path)
    assert (result.rows, stat.S_IMODE(path.stat().st_mode)) == (3, 0o600)


@pytest.mark.parametrize("given", ["os.fsdecode(b'\\xc3\\xbc.jsonl')", "'\\xfc.jsonl'", "'memory://\\xfc/'"])
def test_a_file_name_without_utf_8_mode(given: str, tmp_path: Path) -> None:
    """Names beyond ASCII are refused with the remedy where Python does not encode them as UTF-8."""
    code = f"import os\nfrom chainapi.export import files\nfiles({given})"
    environment = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    ran = subprocess.run(
        [sys.executable, "-c", code],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert "ExportError: " in ran.stderr
    assert "Python encodes file names as ascii here" in ran.stderr
    assert "set PYTHONUTF8=1" in ran.stderr

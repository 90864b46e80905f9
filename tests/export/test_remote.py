"""Exports to URLs: what is at the URL while a run continues, what is refused, and no credential anywhere."""

from __future__ import annotations

import asyncio
import logging
import re
import threading
import traceback
from collections import Counter
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from fsspec.config import conf  # type: ignore[import-untyped]

from chainapi.errors import ConfigurationError, ExportError, TargetInUseError
from chainapi.export import export
from chainapi.export import files as files_of
from chainapi.simulator import Simulator
from tests.export.buckets import Bucket, bucket
from tests.export.growing import CHAINS, NEW, ROWS, Growing, blocks_in, blocks_of, names_in
from tests.sessions import simulated

SECRET = "hunt3r2-of-the-bucket"


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Bucket]]:
    """Return an empty bucket; the current directory is a new one too."""
    monkeypatch.chdir(tmp_path)
    with bucket() as files:
        yield files


def rows_in(files: type[Bucket], place: Path) -> Counter[tuple[str, int]]:
    """Count the blocks in all objects by source and number."""
    files.copy_to(place / "copy" / "b")
    return blocks_in((place / "copy").rglob("part-*.jsonl"))


async def test_small_files_are_uploaded_side_by_side(files: Any, tmp_path: Path) -> None:
    """An asynchronous driver gets several uploads at a time; one that fails ends the run."""
    calls, met, chains = count(), threading.Barrier(3), range(1, 31)

    def meet(name: str, when: str, _: bytes) -> None:
        if when == "before" and name.endswith(".jsonl") and (call := next(calls)) < 3:
            met.wait(30)  # for the others
            if call == 2:
                raise OSError("no route")

    files.async_impl, files.on_step = True, meet
    async with simulated(Simulator(chains=chains, rows=2)) as session:
        walk, out = session.data.evm.blocks, "bucket://b/x/"
        with pytest.raises(ExportError, match="no route"):
            await export(walk, chains, out, format="jsonl", partition=["source"])
        await export(walk, chains, out, format="jsonl", partition=["source"])
    assert sum(name.endswith(".jsonl") for name in files.objects()) == 30


async def test_an_upload_that_loses_bytes(files: type[Bucket], tmp_path: Path) -> None:
    """An object with another size than its file is found, and the next run uploads the rows again."""
    growing = Growing("bucket://b/x/")

    def lose(path: str, now: str, content: bytes) -> None:
        if now == "after" and "part" in path and content:
            files.store_object(path, content[:-1])

    files.on_step = staticmethod(lose)
    with pytest.raises(ExportError, match=r"part-00000001-.* has another size than the file"):
        await growing.run()
    files.on_step = None
    await growing.run()
    assert rows_in(files, tmp_path) == Counter(blocks_of(growing.simulator, ROWS, CHAINS))
    assert sorted(str(one.path) for one in files_of("bucket://b/x/")) == [
        f"bucket:/{name}" for name in sorted(files.objects()) if "/part-" in name
    ]


DISK = "dir://x/"


def disk_of(place: Path) -> dict[str, Any]:
    """Return the options of ``dir://``: a disk behind fsspec, which lets two writers create one name."""
    (place / "disk" / "x").mkdir(parents=True)
    return {"path": str(place / "disk"), "target_protocol": "file"}


async def test_a_file_system_with_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A local disk behind fsspec gets the parts as well, in a folder that exists."""
    monkeypatch.chdir(tmp_path)
    growing, options = Growing(DISK), disk_of(tmp_path)
    await growing.run(storage_options=options, format="parquet")
    growing.grow()
    await growing.run(storage_options=options, format="parquet")
    names = names_in(tmp_path / "disk" / "x")
    assert [re.sub("-[0-9a-f]{12}", "", name) for name in names] == [
        "_log",
        "part-00000001.parquet",
        "part-00000002.parquet",
    ]
    paths = [tmp_path / "disk" / "x" / name for name in names[1:]]
    assert len(pq.read_table(paths)) == len(CHAINS) * ROWS + NEW


async def test_two_writers_where_a_name_can_be_created_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run ends before its next commit once another one has begun; each row is there once."""
    monkeypatch.chdir(tmp_path)
    growing, options = Growing(DISK, Simulator(chains=CHAINS, rows=100, latency=1.0)), disk_of(tmp_path)
    options["target_options"] = {"auto_mkdir": True}
    run: dict[str, Any] = {
        "storage_options": options,
        "format": "jsonl",
        "page_size": 10,
        "commit_seconds": 2,
    }
    first = asyncio.create_task(growing.run(**run))
    await asyncio.sleep(4.5)
    assert (await growing.run(**run)).rows > 0
    with pytest.raises(TargetInUseError, match="another export is writing to this target"):
        await first
    found = blocks_in((tmp_path / "disk").rglob("part-*.jsonl"))
    assert found == Counter(blocks_of(growing.simulator, 100, CHAINS))


async def test_windows_ask_for_no_object(files: type[Bucket]) -> None:
    """The requests to a store do not grow with the sources whose rows are fetched again."""
    asked = list[int]()
    for chains in (range(1, 3), range(1, 41)):
        url = f"bucket://b/{len(chains)}/"
        async with simulated(Simulator(chains=chains, rows=4)) as session:
            await export(session.data.evm.blocks, chains, url, format="jsonl")
            files.asked.clear()
            await export(session.data.evm.blocks, chains, url, lookback="1d")
        asked.append(sum(times for name, times in files.asked.items() if "part-" in name))
    assert asked == [0, 0]  # the listing at the beginning has them


async def test_a_reader_changes_nothing(files: type[Bucket]) -> None:
    """`files` reads a log whose newest record is half written, and leaves it to its writer."""
    await Growing("bucket://b/x/").run()
    (record,) = [name for name in files.objects() if name.endswith("00000001.json")]
    half = files.objects()[record][:50]
    files.store_object(record.replace("1.json", "2.json"), half)
    before = files.objects()
    assert sum(one.rows for one in files_of("bucket://b/x/")) == len(CHAINS) * ROWS
    assert files.objects() == before


# What is refused


async def test_a_local_url_is_a_local_target(tmp_path: Path) -> None:
    """A URL of a local file or folder is that file or folder, with its log."""
    await Growing(f"file://{tmp_path}/x/").run()
    await Growing(f"file://{tmp_path}/y.jsonl").run()
    assert names_in(tmp_path) == ["x", "y.jsonl", "y.jsonl.log"]
    assert names_in(tmp_path / "x") == ["_log", "part-00000001.jsonl"]


# Credentials


async def test_credentials_are_nowhere(
    files: type[Bucket], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Options reach the file system, and no file, no log, no repr and no error has them."""
    options = {"key": "me", "secret": SECRET, "client_kwargs": {"headers": [SECRET]}}
    growing = Growing("bucket://b/x/")
    caplog.set_level(logging.DEBUG)
    result = await growing.run(storage_options=options)
    assert options in files.options
    files.on_step = staticmethod(failing(f"signature of {SECRET} is wrong"))
    growing.grow()
    with pytest.raises(ExportError, match=r"cannot be written: signature of \*\*\* is wrong") as caught:
        await growing.run(storage_options=options)
    kept = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]  # noqa: ASYNC240
    texts = [repr(result), caplog.text, *traceback.format_exception(caught.value)]
    assert not any(SECRET.encode() in content for content in (*kept, *files.objects().values()))
    assert not any(SECRET in text for text in texts)


def failing(said: str) -> Any:
    """Return a step that a driver refuses with these words."""

    def fail(*_: Any) -> None:
        raise PermissionError(said)

    return fail


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"key": "hunter", "secret": "hunter-2-tail"}, "hunter-2-tail is wrong"),
        ({"sas_token": "?sv=1&sig=tail-of-it"}, "GET /c?comp=list&sv=1&sig=tail-of-it"),
        ({"connection_string": "AccountName=me;AccountKey=the-tail=="}, "the key the-tail== is wrong"),
        ({"password": b"the-tail"}, "b'the-tail' is wrong"),
        ({"secret": "a/b+tail=="}, "GET /c?s=a%2Fb%2Btail%3D%3D"),
        ({"token": {"private_key": "---\nthe-tail\n---"}}, "{'private_key': '---\\nthe-tail\\n---'}"),
        ({"tokens": {"the-tail"}}, "the-tail is wrong"),
    ],
)
async def test_errors_have_no_part_of_an_option(
    options: dict[str, Any], said: str, files: type[Bucket]
) -> None:
    """Options are masked whole, in pieces and encoded, whatever driver puts them in its message."""
    files.on_step = staticmethod(failing(said))
    with pytest.raises(ExportError, match=r"cannot be written: .*\*\*\*") as caught:
        await Growing("bucket://b/x/").run(storage_options=options)
    assert "tail" not in "".join(traceback.format_exception(caught.value))


async def test_credentials_of_the_configuration_are_in_no_error(
    files: type[Bucket], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An option that fsspec has from a variable or a file reaches the file system, and no error has it."""
    monkeypatch.setitem(conf, "bucket", {"secret": SECRET})
    files.on_step = staticmethod(failing(f"signature of {SECRET} is wrong"))
    with pytest.raises(ExportError, match=r"signature of \*\*\* is wrong") as caught:
        await Growing("bucket://b/x/").run()
    assert {"secret": SECRET} in files.options
    assert SECRET not in "".join(traceback.format_exception(caught.value))

    def refuse(_: Bucket, secret: str) -> None:
        raise ValueError(f"{secret} is no secret of this service")

    monkeypatch.setattr(files, "__init__", refuse)
    with pytest.raises(ConfigurationError, match=r"\*\*\* is no secret of this service") as refused:
        files_of("bucket://b/x/")
    assert SECRET not in "".join(traceback.format_exception(refused.value))

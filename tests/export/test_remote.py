"""Exports to URLs: each row in one object, whatever fails or stops, and no credential anywhere."""

from __future__ import annotations

import json
import logging
import os
import re
import threading
import traceback
from collections import Counter
from collections.abc import Iterator
from errno import EPERM
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from attrs import define
from fsspec.config import conf  # type: ignore[import-untyped]

from chainapi.errors import ArgumentError, ConfigurationError, ExportError
from chainapi.export import export
from chainapi.export.formats import format_of
from chainapi.export.remote import target_of
from chainapi.export.run import ExportResult
from chainapi.simulator import Simulator
from chainapi.testing import run
from tests.export.buckets import Bucket, bucket
from tests.export.held_steps import HeldStep
from tests.export.test_export import blocks_of
from tests.sessions import simulated

CHAINS, ROWS, NEW = (1, 2), 20, 7
SECRET = "hunt3r2-of-the-bucket"


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Bucket]]:
    """Return an empty bucket; the current directory is a new one too."""
    monkeypatch.chdir(tmp_path)
    with bucket() as files:
        yield files


@define
class Growing:
    """An export of blocks to a URL, whose list may grow between two runs."""

    url: str
    simulator: Simulator

    @classmethod
    def to(cls, url: str) -> Growing:
        """Return an export to a URL."""
        return cls(url, Simulator(chains=CHAINS, rows=ROWS))

    def grow(self) -> None:
        """Add rows to a list."""
        self.simulator.insert("/v1/chains/2/blocks", NEW)

    async def run(self, **options: Any) -> ExportResult:
        """Run the export."""
        async with simulated(self.simulator) as session:
            return await export(session.data.evm.blocks, CHAINS, self.url, **options)

    def check(self, files: type[Bucket], place: Path, new: int = NEW) -> None:
        """Compare the rows of the objects, and of the manifest, with those of the lists."""
        found = rows_in(files, place)
        assert found.total() == len(found) == len(CHAINS) * ROWS + new
        assert set(found) >= blocks_of(self.simulator, ROWS, CHAINS)
        if self.url.endswith("/"):
            names = [entry["name"] for entry in manifest_of(files)]
            assert names == [name for name in names_in(files) if name.startswith("part")]


def names_in(files: type[Bucket]) -> list[str]:
    """Return the sorted names of the objects."""
    return sorted(name.rpartition("/")[2] for name in files.objects())


def local_names(folder: Path) -> list[str]:
    """Return the sorted names in a local folder."""
    return sorted(path.name for path in folder.iterdir())


def contents(folder: Path) -> list[bytes]:
    """Return the content of all files in a local folder."""
    return [path.read_bytes() for path in folder.rglob("*") if path.is_file()]


def manifest_of(files: type[Bucket]) -> list[dict[str, Any]]:
    """Return the entries of the manifest."""
    return [json.loads(line) for line in files.objects()["/b/x/_manifest.ndjson"].splitlines()]


def rows_in(files: type[Bucket], place: Path) -> Counter[tuple[str, int]]:
    """Count the blocks in all objects by source and number."""
    found = Counter[tuple[str, int]]()
    for name, content in files.objects().items():
        path = place / name.rpartition("/")[2]
        if path.suffix and path.suffix not in (".export", ".ndjson", ".invalid"):
            path.write_bytes(content)
            found.update((row["source"], int(row["block_number"])) for row in format_of(path).read(path))
            path.unlink()
    return found


async def test_the_journal_is_local(files: type[Bucket], tmp_path: Path) -> None:
    """The journal is in the current directory, or where `journal` says, and keeps no file of a part."""
    growing = Growing.to("bucket://b/x/")
    await growing.run()
    assert local_names(tmp_path) == ["x.export"]
    assert local_names(tmp_path / "x.export") == ["files", "journal", "target"]
    assert local_names(tmp_path / "x.export" / "files") == []
    files.store.clear()
    await growing.run(journal=tmp_path / "a" / "b")
    assert (tmp_path / "a" / "b" / "journal").is_file()
    assert names_in(files) == ["_export", "_manifest.ndjson", "part-00001.jsonl"]


async def test_parts_are_uploaded_while_the_export_runs(files: type[Bucket], tmp_path: Path) -> None:
    """A part is an object, and listed, before the last page is fetched."""
    simulator, seen = Simulator(chains=CHAINS, rows=200, latency=1.0), list[int]()

    def note(progress: Any) -> None:
        if progress.stage == "fetching" and progress.done == 0:
            seen.append(len(manifest_of(files)) if "/b/x/_manifest.ndjson" in files.objects() else 0)

    async with simulated(simulator) as session:
        walk = session.data.evm.blocks
        result = await export(walk, CHAINS, "bucket://b/x/", page_size=10, part_rows=60, on_progress=note)
    assert seen[-1] >= 3
    assert len(result.written) == len(manifest_of(files)) >= 5
    assert rows_in(files, tmp_path) == Counter(blocks_of(simulator, 200, CHAINS))


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
        await export(walk, chains, out)
    assert sum(name.endswith(".jsonl") for name in files.objects()) == 30


@pytest.mark.real_time
async def test_a_stop_ends_an_upload(files: type[Bucket], tmp_path: Path) -> None:
    """An export that is cancelled during an upload ends at its next piece; the next run uploads the part."""
    growing, held = Growing.to("bucket://b/x/"), HeldStep()

    def wait(name: str, when: str, _content: bytes) -> None:
        if when == "before" and "part-" in name:
            held.wait()

    files.on_step = staticmethod(wait)
    await held.cancel(growing.run())
    assert not [name for name in names_in(files) if "part-" in name]
    files.on_step = None
    await growing.run()
    growing.check(files, tmp_path, new=0)


async def test_an_upload_that_loses_bytes(files: type[Bucket], tmp_path: Path) -> None:
    """An object that differs from the file is found, and replaced by the next run."""
    growing = Growing.to("bucket://b/x/")

    def lose(path: str, now: str, content: bytes) -> None:
        if now == "after" and "part" in path:
            files.store_object(path, content[:-1])

    files.on_step = staticmethod(lose)
    with pytest.raises(ExportError, match=r"part-00001\.jsonl has other bytes when it is read back"):
        await growing.run()
    assert "_manifest.ndjson" not in names_in(files)
    files.on_step = None
    await growing.run()
    growing.check(files, tmp_path, new=0)


async def test_a_file_system_with_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A local disk behind fsspec gets the parts as well, in a folder that exists."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "disk" / "x").mkdir(parents=True)
    growing = Growing.to("dir://x/")
    options = {"path": str(tmp_path / "disk"), "target_protocol": "file"}
    await growing.run(storage_options=options, format="parquet")
    growing.grow()
    await growing.run(storage_options=options, format="parquet")
    assert local_names(tmp_path / "disk" / "x") == [
        "_export",
        "_manifest.ndjson",
        "part-00001.parquet",
        "part-00002.parquet",
    ]
    assert len(pq.read_table([*(tmp_path / "disk" / "x").glob("*.parquet")])) == len(CHAINS) * ROWS + NEW


# Lookback


async def test_an_object_of_many_windows_is_looked_for_once(files: type[Bucket]) -> None:
    """The number of requests to a store does not grow with the sources whose rows are fetched again."""
    asked = list[int]()
    for chains in (range(1, 3), range(1, 41)):
        url = f"bucket://b/{len(chains)}/"
        async with simulated(Simulator(chains=chains, rows=4)) as session:
            await export(session.data.evm.blocks, chains, url, format="jsonl")
            files.asked.clear()
            await export(session.data.evm.blocks, chains, url, lookback="1d")
        asked.append(files.asked["part-00001.jsonl"])
    assert asked[0] == asked[1] > 0


# What is refused


async def test_objects_that_no_export_of_the_journal_wrote(files: type[Bucket], tmp_path: Path) -> None:
    """A target with other objects, and one of an export with another journal, are refused untouched."""
    files.store_object("/b/x/readme", b"mine")
    with pytest.raises(ExportError, match=r"bucket://b/x is not empty, and .*x\.export is not the journal"):
        await Growing.to("bucket://b/x/").run()
    files.store_object("/b/x.csv", b"mine")
    with pytest.raises(
        ExportError, match=r"bucket://b/x\.csv exists, and .* is not the journal of an export"
    ):
        await Growing.to("bucket://b/x.csv").run()
    assert files.objects() == {"/b/x/readme": b"mine", "/b/x.csv": b"mine"}
    growing = Growing.to("bucket://b/y/")
    await growing.run()
    with pytest.raises(ExportError, match="use the journal of that export, or choose another target"):
        await growing.run(journal="other")
    with pytest.raises(
        ExportError, match=r"is the journal of an export to bucket://b/y, and not to bucket://b/z"
    ):
        await Growing.to("bucket://b/z/").run(journal="y.export")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").write_text("")
    with pytest.raises(ExportError, match="full is not a journal of an export to bucket://b/z"):
        await Growing.to("bucket://b/z/").run(journal="full")


async def test_of_two_exports_that_begin_at_once_one_is_refused(files: type[Bucket]) -> None:
    """Two exports that both find an empty folder do not both write to it."""
    growing = Growing.to("bucket://b/x/")

    def race(path: str, now: str, _: bytes) -> None:
        if now == "before":
            files.on_step = None
            files.store_object("/b/x/_export", b"the id of the other one")

    files.on_step = staticmethod(race)
    with pytest.raises(ExportError, match="another export writes to bucket://b/x, with another journal"):
        await growing.run()
    assert names_in(files) == ["_export"]


@pytest.mark.parametrize("linking", [True, False])
async def test_two_exports_with_one_journal_that_begin_at_once(
    linking: bool, files: type[Bucket], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both find no journal, and one target: they agree on it, and later runs continue the export."""
    growing = Growing.to("bucket://b/x/")
    if not linking:  # as on a disk without hard links
        monkeypatch.setattr(os, "link", refuse_links)
    files.on_list.append(lambda: run(growing.run()))
    assert (await growing.run()).rows == 0
    growing.grow()
    await growing.run()
    growing.check(files, tmp_path)
    assert local_names(tmp_path / "x.export") == ["files", "journal", "target"]


def refuse_links(*_: object, **__: object) -> None:
    """Refuse to link a file."""
    raise PermissionError(EPERM, "Operation not permitted")


async def test_a_file_that_is_changed_while_its_export_runs(files: type[Bucket], tmp_path: Path) -> None:
    """A single file that others change while new rows are fetched is refused, and left alone."""
    growing = Growing.to("bucket://b/x.jsonl")
    await growing.run()
    growing.grow()
    own = files.objects()["/b/x.jsonl"]
    others = own.replace(b"0x", b"1x")  # as many rows
    with pytest.raises(ExportError, match=r"x\.jsonl was changed while its new rows were fetched"):
        await growing.run(on_progress=lambda _: files.store_object("/b/x.jsonl", others))
    assert files.objects()["/b/x.jsonl"] == others
    files.store_object("/b/x.jsonl", own)
    await growing.run()
    growing.check(files, tmp_path)


async def test_an_object_with_the_name_of_a_later_part(files: type[Bucket]) -> None:
    """An object of others is refused untouched, whichever part of a run would have its name."""
    growing = Growing.to("bucket://b/x/")
    await growing.run(part_rows=10, page_size=3)
    growing.grow()
    name = f"part-{len(manifest_of(files)) + 2:05}.jsonl"
    files.store_object(f"/b/x/{name}", b"mine")
    for _ in range(2):
        with pytest.raises(ExportError, match=rf"{name} exists, but .* has no record of it"):
            await growing.run(part_rows=3, page_size=3)
    assert files.objects()[f"/b/x/{name}"] == b"mine"


@pytest.mark.parametrize(
    ("url", "options", "message"),
    [
        ("x/", {"journal": "j"}, "journal= applies to a URL such as s3://bucket/folder/"),
        ("x/", {"storage_options": {"key": SECRET}}, "storage_options= apply to a URL"),
        ("nowhere://b/x/", {}, "nowhere://b/x cannot be opened by fsspec"),
        ("zip://x/::bucket://b/x.zip", {}, "is a chain of file systems"),
        (f"bucket://me:{SECRET}@b/x/", {}, "bucket://b/x/ was given with a password or a query"),
        (f"bucket://b/x/?sig={SECRET}", {}, "bucket://b/x/ was given with a password or a query"),
        ("bucket://b/x/", {"journal": "bucket://b/j"}, "journal=bucket://b/j is a URL"),
        ("bucket://b/x/", {"journal": f"bucket://{SECRET}@b/j"}, "journal=bucket://b/j is a URL"),
        ("bucket://b/x.txt", {}, "unknown file format 'x.txt'"),
        ("bucket://my.bucket", {}, "csv.zst; the name of a folder ends with a slash"),
        ("bucket://b/x.csv", {"partition": ["source"]}, "and bucket://b/x.csv is a file: leave it out"),
        ("bucket://b/x.csv", {"part_rows": 5}, "and bucket://b/x.csv is a file, which gets its rows"),
    ],
)
async def test_arguments_that_are_wrong(
    url: str, options: dict[str, Any], message: str, files: type[Bucket], tmp_path: Path
) -> None:
    """Wrong arguments are refused before a request, and nothing is created."""
    with pytest.raises(ConfigurationError) as caught:
        await Growing.to(url).run(**options)
    assert message in str(caught.value)
    assert SECRET not in "".join(traceback.format_exception(caught.value))
    assert files.objects() == {}
    assert local_names(tmp_path) == []


async def test_journal_that_cannot_be_written(files: type[Bucket], tmp_path: Path) -> None:
    """A folder for the journal that cannot be made is an error about the journal, and not about the URL."""
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(ExportError, match=r"/j cannot be written: .*; choose another folder for the journal"):
        await Growing.to("bucket://b/x/").run(journal=tmp_path / "file" / "j")
    assert files.objects() == {}


async def test_a_local_url_is_a_local_target(tmp_path: Path) -> None:
    """A URL of a local file is that file, with its journal beside it."""
    await Growing.to(f"file://{tmp_path}/x/").run()
    await Growing.to(f"file://{tmp_path}/y.jsonl").run()
    assert local_names(tmp_path) == ["x", "y.jsonl", "y.jsonl.export"]
    assert (tmp_path / "x" / "_export").is_dir()
    with pytest.raises(ConfigurationError, match="the journal of a local target is beside it"):
        await Growing.to(f"file://{tmp_path}/x/").run(journal="j")


# Credentials


async def test_credentials_are_nowhere(
    files: type[Bucket], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Options reach the file system, and no file, no log, no repr and no error has them."""
    options = {"key": "me", "secret": SECRET, "client_kwargs": {"headers": [SECRET]}}
    growing = Growing.to("bucket://b/x/")
    caplog.set_level(logging.DEBUG)
    result = await growing.run(storage_options=options)
    assert {"key": "me", "secret": SECRET, "client_kwargs": {"headers": [SECRET]}} in files.options

    def fail(*_: Any) -> None:
        raise PermissionError(f"signature of {SECRET} is wrong")

    files.on_step = staticmethod(fail)
    growing.grow()
    with pytest.raises(ExportError, match=r"cannot be written: signature of \*\*\* is wrong") as caught:
        await growing.run(storage_options=options)
    kept = contents(tmp_path)
    texts = [repr(result), caplog.text, *traceback.format_exception(caught.value)]
    assert not any(SECRET.encode() in content for content in (*kept, *files.objects().values()))
    assert not any(SECRET in text for text in texts)


async def test_credentials_of_the_configuration_are_in_no_error(
    files: type[Bucket], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An option that fsspec has from a variable or a file reaches the file system, and no error has it."""
    monkeypatch.setitem(conf, "bucket", {"secret": SECRET})

    def fail(*_: Any) -> None:
        raise PermissionError(f"signature of {SECRET} is wrong")

    files.on_step = staticmethod(fail)
    with pytest.raises(ExportError, match=r"signature of \*\*\* is wrong") as caught:
        await Growing.to("bucket://b/x/").run()
    assert {"secret": SECRET} in files.options
    assert SECRET not in "".join(traceback.format_exception(caught.value))


def test_a_file_system_that_does_not_open_with_its_configuration(
    files: type[Bucket], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error of a file system that refuses an option of the configuration does not have it."""

    def refuse(_: Bucket, secret: str) -> None:
        raise ValueError(f"{secret} is no secret of this service")

    monkeypatch.setitem(conf, "bucket", {"secret": SECRET})
    monkeypatch.setattr(files, "__init__", refuse)
    with pytest.raises(ConfigurationError, match=r"\*\*\* is no secret of this service") as caught:
        target_of("bucket://b/x/", None, None, None)
    assert SECRET not in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize(
    ("out", "message"),
    [
        (Path("bucket://b/x/"), "'bucket:/b/x' is a URL that lacks a slash: give a string"),
        ("s3:/b/x.jsonl", "is a URL that lacks a slash"),
        (None, "out=None must be a path"),
        (b"x.jsonl", "must be a path"),
    ],
)
async def test_a_target_that_is_no_path_and_no_url(
    out: Any, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A URL that lost a slash, as in a Path, is refused before the first request; no local folder is made."""
    monkeypatch.chdir(tmp_path)
    simulator = Simulator()
    async with simulated(simulator) as session:
        with pytest.raises(ArgumentError, match=re.escape(message)):
            await export(session.data.evm.blocks, [43114], out)
    assert simulator.stats.requests == 0
    assert not any(tmp_path.iterdir())  # noqa: ASYNC240
    assert target_of(tmp_path / "s3:" / "x.jsonl", None, None, None).path == tmp_path / "s3:" / "x.jsonl"


# Names


@pytest.mark.parametrize("url", ["memory://a.jsonl", "memory:///a.jsonl", "memory:///b/a.jsonl"])
def test_a_file_keeps_its_url(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The address of a file at the top of a file system is the URL that was given."""
    monkeypatch.chdir(tmp_path)
    target = target_of(url, None, None, None)
    assert target.address == url
    assert target.file("a.jsonl") == url


@pytest.mark.parametrize("name", ["nul\0", "half\udc80"])
@pytest.mark.parametrize("end", ["/", ".jsonl"])
async def test_names_that_no_file_can_have(name: str, end: str, files: type[Bucket], tmp_path: Path) -> None:
    """A URL, or a journal, whose name no file can have is refused, and nothing is created."""
    with pytest.raises(ExportError, match=r"cannot be written: .*; choose another target"):
        await Growing.to(f"bucket://b/{name}{end}").run()
    with pytest.raises(ExportError, match=r"cannot be written: .*; choose another folder for the journal"):
        await Growing.to(f"bucket://b/x{end}").run(journal=name)
    assert files.objects() == {}
    assert local_names(tmp_path) == []


# Journals of others


async def test_a_local_export_leaves_the_journal_of_a_url_alone(files: type[Bucket], tmp_path: Path) -> None:
    """A local file whose journal has the name of that of a URL is refused; the URL gets its rows."""
    growing = Growing.to("bucket://b/x.jsonl")

    def fail(path: str, _now: str, _: bytes) -> None:
        if path.endswith(".jsonl"):
            raise RuntimeError("the service is gone")

    files.on_step = staticmethod(fail)
    with pytest.raises(ExportError, match="the service is gone"):
        await growing.run()
    files.on_step = None
    with pytest.raises(ExportError, match=r"x\.jsonl\.export is the journal of an export to a URL"):
        await Growing("x.jsonl", growing.simulator).run()
    await growing.run()
    growing.check(files, tmp_path, new=0)

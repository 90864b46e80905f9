"""Appends to a single file: old rows stay as they are, and each new row is in the file once."""

from __future__ import annotations

import os
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from chainapi.errors import ExportError
from chainapi.export import append as appends
from chainapi.export import export, files
from chainapi.export.append import append
from chainapi.export.files import digest_of, partial_of
from chainapi.export.part_records import Base
from chainapi.export.progress import ExportProgress
from chainapi.export.run import ExportResult
from chainapi.export.worker import Stopped
from chainapi.simulator import Simulator
from tests.export.held_steps import HeldStep
from tests.export.power_cuts import PowerCuts
from tests.export.test_export import blocks_of
from tests.export.test_growth import exported, model
from tests.export.test_lost_writes import files_of_at_most
from tests.export.test_parts import names_in
from tests.export.test_power_cuts import blocks_in
from tests.sessions import simulated

CHAINS, ROWS, NEW = (1, 2, 3), 40, 7
FORMATS = ("jsonl", "csv", "jsonl.gz", "csv.zst")


class Growing:
    """An export of blocks to one file, whose list grows between two runs."""

    def __init__(self, folder: Path, format_: str) -> None:
        self.simulator = Simulator(chains=CHAINS, rows=ROWS)
        self.folder, self.format = folder, format_
        self.path = folder / f"b.{format_}"
        folder.mkdir(exist_ok=True)

    async def run(self, folder: Path | None = None, **options: Any) -> ExportResult:
        """Run the export."""
        path = (folder or self.folder) / self.path.name
        async with simulated(self.simulator) as session:
            return await export(session.data.evm.blocks, CHAINS, path, **options)

    async def begin(self) -> bytes:
        """Run the export, let the list grow, and return the file."""
        await self.run()
        self.simulator.insert("/v1/chains/2/blocks", NEW)
        return self.path.read_bytes()

    def check(self, folder: Path | None = None) -> None:
        """Compare the rows of the file with those of the lists."""
        found = blocks_in([folder or self.folder], self.format)
        assert found.keys() >= blocks_of(self.simulator, ROWS, CHAINS)
        assert found.total() == len(found) == len(CHAINS) * ROWS + NEW

    async def stopped(self) -> tuple[PowerCuts, list[dict[str, bytes]]]:
        """Update the file; return the images in which an append has begun."""
        with PowerCuts(self.folder) as cuts:
            before = await self.begin()
            cuts.take()
            await self.run()
        name, aside = self.path.name, partial_of(self.path).name
        torn = [image for image in cuts.take() if image.get(aside) and len(image[name]) > len(before)]
        assert torn
        return cuts, torn


@pytest.mark.parametrize("format_", FORMATS)
async def test_old_rows_are_not_written_again(format_: str, tmp_path: Path) -> None:
    """An update adds bytes behind those of the file, and leaves no other file behind."""
    growing = Growing(tmp_path, format_)
    before = await growing.begin()
    number = growing.path.stat().st_ino
    await growing.run()
    assert growing.path.read_bytes().startswith(before)
    assert growing.path.stat().st_ino == number
    growing.check()
    assert names_in(tmp_path) == [f"b.{format_}", f"b.{format_}.export"]
    await growing.run()
    growing.check()


@pytest.mark.parametrize("format_", FORMATS)
async def test_an_append_that_stopped_is_done_again(format_: str, tmp_path: Path) -> None:
    """Old rows with half of the new ones, zeros or all of them behind lead to each row once.

    That holds as well where the run that repairs the file is stopped at any step.
    """
    growing = Growing(tmp_path / "run", format_)
    cuts, torn = await growing.stopped()
    for number, image in enumerate(torn):
        place = tmp_path / f"image-{number}"
        cuts.restore(image, place)
        again = PowerCuts(place)
        again.settle()
        with again:
            await growing.run(place)
        growing.check(place)
        for second, left in enumerate(again.take()):
            cuts.restore(left, tmp_path / f"image-{number}-{second}")
            await growing.run(tmp_path / f"image-{number}-{second}")
            growing.check(tmp_path / f"image-{number}-{second}")


@pytest.mark.parametrize("damage", ["deleted", "shorter", "other"])
async def test_an_append_whose_new_rows_are_gone(damage: str, tmp_path: Path) -> None:
    """The rows are written again from the journal if the ``.partial`` file was deleted or changed."""
    growing = Growing(tmp_path / "run", "jsonl")
    cuts, torn = await growing.stopped()
    for number, image in enumerate(torn):
        place = tmp_path / f"image-{number}"
        cuts.restore(image, place)
        aside = partial_of(place / "b.jsonl")
        if damage == "deleted":
            aside.unlink()
        elif damage == "shorter":
            os.truncate(aside, 100)
        else:
            aside.write_bytes(b"x" * aside.stat().st_size)
        await growing.run(place)
        growing.check(place)


@pytest.mark.parametrize("change", ["shorter", "other"])
async def test_changed_rows_before_an_append_are_refused(change: str, tmp_path: Path) -> None:
    """A begun append to a file whose old rows were changed is refused, and the file left alone."""
    growing = Growing(tmp_path / "run", "jsonl")
    cuts, torn = await growing.stopped()
    cuts.restore(torn[0], tmp_path / "image")
    path = tmp_path / "image" / "b.jsonl"
    content = path.read_bytes()[:1000] if change == "shorter" else b"#" + path.read_bytes()[1:]
    path.write_bytes(content)
    with pytest.raises(ExportError, match="was changed since it was written: put it back"):
        await growing.run(tmp_path / "image")
    assert path.read_bytes() == content


async def test_a_change_while_an_export_runs_is_refused(tmp_path: Path) -> None:
    """A line that someone else appends during an update is neither overwritten nor counted."""
    growing = Growing(tmp_path, "jsonl")
    before = await growing.begin()

    def change(progress: ExportProgress) -> None:
        if progress.stage == "writing" and growing.path.read_bytes() == before:
            with growing.path.open("ab") as file:
                file.write(b"{}\n")

    with pytest.raises(ExportError, match="was changed since it was written"):
        await growing.run(on_progress=change)
    assert growing.path.read_bytes() == before + b"{}\n"
    growing.path.write_bytes(before)
    await growing.run()
    growing.check()


@pytest.mark.parametrize("format_", FORMATS)
async def test_a_full_disk_leaves_the_old_rows(format_: str, tmp_path: Path) -> None:
    """An append that does not fit raises an error and takes its bytes back; later the rows are there once."""
    growing = Growing(tmp_path, format_)
    growing.simulator = Simulator(chains=CHAINS, rows=400)
    await growing.run(limit=ROWS * 8)
    growing.simulator.insert("/v1/chains/2/blocks", NEW)
    before = growing.path.read_bytes()
    for _ in range(2):
        with (
            files_of_at_most(len(before) + 100),
            pytest.raises(ExportError, match=r"File too large; all rows are kept in the journal: make room"),
        ):
            await growing.run(limit=ROWS * 8)
        assert growing.path.read_bytes() == before
    await growing.run(limit=ROWS * 8)
    found = blocks_in([tmp_path], format_)
    assert found.total() == len(found) == len(CHAINS) * ROWS * 8 + NEW


def ready(tmp_path: Path) -> tuple[Path, Base]:
    """Return a file, and what it was before an append that is about to begin."""
    path = tmp_path / "b.jsonl"
    path.write_bytes(b"old\n")
    partial_of(path).write_bytes(b"new\n" * 1_000)
    return path, Base(4, digest_of(path))


def test_a_stopped_append_takes_its_bytes_back(tmp_path: Path) -> None:
    """An append that is stopped leaves the old rows; without a stop, the new ones follow."""
    path, base = ready(tmp_path)
    stop = threading.Event()
    stop.set()
    with pytest.raises(Stopped):
        append(path, base, stop)
    assert path.read_bytes() == b"old\n"
    append(path, base, threading.Event())
    assert path.read_bytes() == b"old\n" + b"new\n" * 1_000


@pytest.mark.parametrize("left", [b"", b"n", b"new\n" * 500, b"new\n" * 1_000, bytes(4_000), bytes(9_000)])
def test_what_a_stopped_append_left_is_replaced(left: bytes, tmp_path: Path) -> None:
    """Whatever a stopped append left behind the old rows, the next one replaces it."""
    path, base = ready(tmp_path)
    path.write_bytes(b"old\n" + left)
    append(path, base, threading.Event())
    assert path.read_bytes() == b"old\n" + b"new\n" * 1_000


@pytest.mark.parametrize("format_", FORMATS)
async def test_an_export_that_is_cancelled_while_it_appends(
    format_: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cancelled export ends with the next piece and leaves the old rows; the next run adds the new ones."""
    growing = Growing(tmp_path, format_)
    before = await growing.begin()
    held, sync = HeldStep(), os.fsync

    def slow(handle: int) -> None:
        sync(handle)
        if growing.path.stat().st_size > len(before):
            held.wait()

    with monkeypatch.context() as patched:
        patched.setattr(files, "CHUNK", 500)
        patched.setattr(appends, "SYNC_EVERY", 500)
        patched.setattr(os, "fsync", slow)
        await held.cancel(growing.run())
    assert growing.path.read_bytes() == before
    requests = growing.simulator.stats.requests
    await growing.run()
    assert growing.simulator.stats.requests == requests + len(CHAINS)  # to see whether there is anything new
    growing.check()


def test_appended_rows_that_the_disk_loses_are_missed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Appended bytes that differ when they are read back raise an error, and are taken back."""
    path, base = ready(tmp_path)
    sync = os.fsync

    def damaging(handle: int) -> None:
        sync(handle)
        os.pwrite(handle, b"\0", 2_000)

    monkeypatch.setattr(os, "fsync", damaging)
    with pytest.raises(ExportError, match="has other rows when it is read back"):
        append(path, base, threading.Event())
    assert path.read_bytes() == b"old\n"


def test_gigabytes_are_synced_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A long append syncs as it goes, so that no sync at its end takes long."""
    path, base = ready(tmp_path)
    monkeypatch.setattr(files, "CHUNK", 1_000)
    monkeypatch.setattr(appends, "SYNC_EVERY", 2_000)
    sync, sizes = os.fsync, list[int]()

    def noting(handle: int) -> None:
        sizes.append(os.fstat(handle).st_size)
        sync(handle)

    monkeypatch.setattr(os, "fsync", noting)
    append(path, base, threading.Event())
    assert sizes == [2_004, 4_004, 4_004]


async def test_a_link_in_place_of_the_file_is_refused(tmp_path: Path) -> None:
    """A symbolic link that takes the place of the file is not followed."""
    path, base = ready(tmp_path)
    path.rename(tmp_path / "other")
    path.symlink_to(tmp_path / "other")
    with pytest.raises(ExportError, match="is a symbolic link"):
        append(path, base, threading.Event())
    assert (tmp_path / "other").read_bytes() == b"old\n"


@pytest.mark.parametrize("format_", FORMATS)
async def test_a_file_with_a_hard_link_is_written_again(format_: str, tmp_path: Path) -> None:
    """A copy by a hard link keeps its rows."""
    growing = Growing(tmp_path / "run", format_)
    before = await growing.begin()
    copy = tmp_path / "copy"
    copy.hardlink_to(growing.path)
    await growing.run()
    assert copy.read_bytes() == before
    growing.check()


async def test_a_read_only_file_is_written_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file without the right to write gets its rows as well, and keeps its mode."""
    growing = Growing(tmp_path, "jsonl")
    await growing.begin()
    growing.path.chmod(0o444)
    number = growing.path.stat().st_ino
    monkeypatch.setattr(os, "access", lambda *_: False)  # root may always write
    await growing.run()
    assert growing.path.stat().st_mode & 0o777 == 0o444
    assert growing.path.stat().st_ino != number
    growing.check()


async def test_a_grown_header_is_written_once(tmp_path: Path) -> None:
    """CSV with a new column is written again; the next rows are appended."""
    simulator, out = Simulator(seed=1, chains=(43114, 43113, 1, 2)), tmp_path / "blocks.csv"
    grown = model(block_hash=str, gas_used=int)
    numbers = list[int]()
    await exported(simulator, out, model(gas_used=int), limit=5)
    for chain in (43113, 1, 2):
        numbers.append(out.stat().st_ino)
        rows = await exported(simulator, out, grown, f"/v1/chains/{chain}/blocks", limit=5)
    assert numbers[0] != numbers[1] == numbers[2] == out.stat().st_ino
    assert len(rows) == len({(row["source"], row["block_number"]) for row in rows}) == 20
    assert Counter(row["block_hash"] is None for row in rows) == {True: 5, False: 15}
    assert out.read_text().count("block_number") == 1


@pytest.mark.parametrize(("size", "tail"), [(0, 5), (100, 0), (20_000, 100_000), (70_000, 10), (90_000, 1)])
def test_digests_of_joined_files(size: int, tail: int, tmp_path: Path) -> None:
    """The digest of a file and its tail is that of one file with the bytes of both."""
    one, rest, both = tmp_path / "one", tmp_path / "rest", tmp_path / "both"
    content = os.urandom(size + tail)
    one.write_bytes(content[:size] + b"torn")
    rest.write_bytes(content[size:])
    both.write_bytes(content)
    assert digest_of(one, size, rest) == digest_of(both) == digest_of(both, size + tail)

"""Syncs of the files of a part."""

from __future__ import annotations

from pathlib import Path

import pytest

from chainapi.errors import ExportError
from chainapi.export.files import SYNC_AT_ONCE, SYNC_EVERY, SyncGroup, partial_of, put_in_place, write_partial
from tests.export.power_cuts import PowerCuts


def written(folder: Path, count: int, syncs: SyncGroup) -> list[Path]:
    """Write files into a folder; return their paths."""
    paths = [folder / str(number) for number in range(count)]
    for path in paths:
        write_partial(path, lambda new: new.write_bytes(b"row\n"), syncs)
    return paths


def test_files_and_names_of_a_group_survive_a_power_cut(tmp_path: Path) -> None:
    """After the sync of a group, a power cut leaves each file under its last name."""
    syncs = SyncGroup()
    with PowerCuts(tmp_path) as cuts:
        paths = written(tmp_path, 3, syncs)
        assert not any(cuts.images)
        syncs.sync()
        assert cuts.images[-1] == {partial_of(path).name: b"row\n" for path in paths}
        for path in paths:
            put_in_place(path, syncs)
        syncs.sync()
    assert cuts.images[-1] == {path.name: b"row\n" for path in paths}


def test_a_group_is_synced_before_it_is_large(tmp_path: Path) -> None:
    """A group of many files, or of many bytes, does not wait for its end."""
    with PowerCuts(tmp_path) as cuts:
        written(tmp_path, SYNC_AT_ONCE, SyncGroup())
        assert len(cuts.images[-1]) == SYNC_AT_ONCE - 1  # the folder is one of the group
        (tmp_path / "one").touch()
        SyncGroup().add(tmp_path, tmp_path, SYNC_EVERY)
    assert "one" in cuts.images[-1]


def test_a_sync_that_fails_names_the_file(tmp_path: Path) -> None:
    """The error of a sync names the file that the caller writes, not its other name."""
    syncs, path = SyncGroup(), tmp_path / "b.jsonl"
    write_partial(path, lambda new: new.write_bytes(b"row\n"), syncs)
    partial_of(path).unlink()
    with pytest.raises(ExportError, match=r"/b\.jsonl cannot be written: No such file .*kept in the journal"):
        syncs.sync()
    syncs.sync()

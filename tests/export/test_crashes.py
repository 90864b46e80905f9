"""Parts of a folder after kills, power cuts and full disks: a sample of `crashes`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.export.crashes import SCENES, Scene, full_disks, kills_and_power_cuts, small_disks

# Each compression with one kind of text: the steps of an export are the same.
SAMPLE = [scene for scene in SCENES if scene.format not in ("csv.zst", "jsonl.gz")]


@pytest.mark.untraced
@pytest.mark.parametrize("scene", SAMPLE, ids=str)
async def test_no_stop_loses_or_repeats_a_row(scene: Scene, tmp_path: Path) -> None:
    """After a kill, a power cut or a full disk at any step, a folder has each row once."""
    assert await kills_and_power_cuts(scene, tmp_path / "kills", 2)
    assert await full_disks(scene, tmp_path / "full", 1)
    await small_disks(scene, tmp_path / "small", 1)  # some of its limits are large enough

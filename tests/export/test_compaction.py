"""Small parts of a folder are merged, and its log stays short: each row is there once at every moment."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from chainapi.errors import ExportError, TargetInUseError
from chainapi.export import compact, export, files
from chainapi.simulator import Simulator
from tests.export.buckets import Bucket, bucket
from tests.export.contract import STORIES, TARGETS, Story, Target, read, stops
from tests.export.disks import FullDisk, Images, restored
from tests.export.growing import names_in, rows_in
from tests.export.test_formats import class_with, exported
from tests.ledger import ADDRESS, Ledger
from tests.sessions import reaching, simulated

LISTS = {f"/v1/{number}": [{"number": number}] for number in range(100)}


@pytest.fixture
def objects() -> Iterator[type[Bucket]]:
    """Return an empty bucket."""
    with bucket() as found:
        yield found


async def grown(out: Path | str, first: int, end: int, **options: Any) -> list[int]:
    """Add the part of each list by a run of its own; return the number of files after each run."""
    found = list[int]()
    for number in range(first, end):
        await exported(out, dict([*LISTS.items()][: number + 1]), **options)  # type: ignore[arg-type]
        found.append(len(files(out)))
    return found


def numbers_in(out: Path, suffix: str = "jsonl") -> Counter[int]:
    """Count the rows in all parts of a folder by their numbers."""
    return Counter(int(row["number"]) for row in rows_in(out, suffix))


@pytest.mark.parametrize("suffix", ["parquet", "jsonl", "csv.gz"])
async def test_small_parts_are_merged(suffix: str, tmp_path: Path) -> None:
    """The run that writes the 24th small part merges all of them to one file, which has each row once."""
    counts = await grown(tmp_path, 0, 26, format=suffix)
    assert counts == [*range(1, 24), 1, 2, 3]
    parts = [name for name in names_in(tmp_path) if name.startswith("part-")]
    assert parts == sorted(Path(one.path).name for one in files(tmp_path))
    assert parts == [f"part-{number:08}.{suffix}" for number in (25, 26, 27)]
    assert numbers_in(tmp_path, suffix) == Counter(range(26))
    assert [one.rows for one in files(tmp_path)] == [24, 1, 1]
    assert [*files(tmp_path)[0].newest] == [f"/v1/{number}" for number in range(24)]


async def test_only_small_parts_are_merged(tmp_path: Path) -> None:
    """A part with 50,000 rows is left as it is."""
    lists = {"/v1/large": [{"number": 1}] * 50_000, **LISTS}
    for number in range(26):
        await exported(tmp_path, dict([*lists.items()][: number + 1]), format="jsonl")
    assert [one.rows for one in files(tmp_path)] == [50_000, 24, 1]
    assert "part-00000001.jsonl" in names_in(tmp_path)


@pytest.mark.parametrize("out", ["folder/", "bucket://b/x/"])
async def test_each_partition_is_merged_by_itself(out: str, objects: type[Bucket], tmp_path: Path) -> None:
    """Parts of one partition are merged as soon as there are 24 of them, on a disk and at a URL."""
    local = "://" not in out
    target = f"{tmp_path}/{out}" if local else out
    simulator, counts = Simulator(chains=(1, 2), rows=10), list[list[int]]()
    async with simulated(simulator) as session:
        for day in range(25):
            layout: dict[str, Any] = {"format": "jsonl", "partition": ["source"], "compact": True}
            await export(session.data.evm.blocks, [1, 2], target, **layout)
            listed = Counter(str(one.path).split("source=")[1][0] for one in files(target))
            counts.append([listed["1"], listed["2"]])
            simulator.insert("/v1/chains/1/blocks", 1)
            simulator.insert("/v1/chains/2/blocks", day % 2)
    assert counts[22:] == [[23, 12], [1, 12], [2, 13]]
    if not local:
        objects.copy_to(tmp_path / "b")
    folder = tmp_path / ("folder" if local else "b/x")
    paths = sorted(folder.rglob("part-*"))
    assert len(paths) == len(files(target))
    found = Counter((path.parent.name, row["block_number"]) for path in paths for row in read(path, "jsonl"))
    assert found.total() == len(found) == (10 + 24) + (10 + 12)


@pytest.mark.parametrize("out", ["folder/", "bucket://b/x/"])
async def test_parts_of_others_may_stay(out: str, objects: type[Bucket], tmp_path: Path) -> None:
    """With ``compact=False`` parts stay as they are, until `compact` merges them."""
    target = out if "://" in out else f"{tmp_path}/{out}"
    assert await grown(target, 0, 26, format="jsonl", compact=False) == [*range(1, 27)]
    assert compact(target) == 26
    assert [one.rows for one in files(target)] == [26]
    assert compact(target) == 0
    await grown(target, 26, 27)
    assert [one.rows for one in files(target)] == [26, 1]


async def test_parts_that_were_moved_away_stay_away(tmp_path: Path) -> None:
    """A merge takes the parts that are there: rows of others do not come back, and are not fetched again."""
    out, away = tmp_path / "out", tmp_path / "away"
    await grown(out, 0, 30, format="jsonl", compact=False)
    away.mkdir()
    for path in sorted(out.glob("part-*"))[:5]:
        path.rename(away / path.name)
    assert compact(out) == 25
    await grown(out, 30, 31)
    assert numbers_in(out) == Counter(range(5, 31))
    assert numbers_in(out) + numbers_in(away) == Counter(range(31))


@pytest.mark.parametrize("suffix", ["parquet", "jsonl", "csv"])
async def test_parts_of_an_older_model_are_merged(suffix: str, tmp_path: Path) -> None:
    """Parts with fewer columns are merged with later ones; their rows have no value there."""
    older, newer = class_with(number=int), class_with(number=int, more=str)
    lists = {f"/v1/{number}": [{"number": number, "more": "x"}] for number in range(24)}
    for number in range(24):
        await exported(
            tmp_path, dict([*lists.items()][: number + 1]), older if number < 12 else newer, format=suffix
        )
    rows = rows_in(tmp_path, suffix)
    assert len(files(tmp_path)) == 1
    assert Counter(int(row["number"]) for row in rows) == Counter(range(24))
    assert Counter(row.get("more") or None for row in rows) == {None: 12, "x": 12}


@pytest.mark.parametrize("out", ["folder/", "bucket://b/x/"])
async def test_a_merge_on_a_full_disk(out: str, objects: type[Bucket], tmp_path: Path) -> None:
    """A full disk at any step of a merge is an error, and each row is there once after the next run."""
    remote, place = "://" in out, tmp_path / "run"
    place.mkdir()
    await grown(out if remote else f"{place}/{out}", 0, 24, format="jsonl", compact=False)
    images = Images(place, objects)
    images.keep()
    for at in (1, 2, 3, 5, 8, 12, 60):
        folder = restored(images.kills[-1], tmp_path / str(at), objects)
        target = out if remote else f"{folder}/{out}"
        disk = FullDisk(at, objects=objects)
        with disk, pytest.raises(ExportError, match="No space left") if at < 60 else nullcontext():
            compact(target)
        await grown(target, 24, 25)
        assert rows_at(target, objects, folder) == Counter(range(25))


async def test_a_merge_beside_a_run_is_refused(tmp_path: Path) -> None:
    """`compact` is refused while an export writes to the folder."""
    refused = list[bool]()

    def merge(_: object) -> None:
        with pytest.raises(TargetInUseError, match="another export is writing to this target"):
            compact(tmp_path)
        refused.append(True)

    await grown(tmp_path, 0, 2, format="jsonl", compact=False)
    await exported(tmp_path, dict([*LISTS.items()][:3]), progress=merge)
    assert refused


@pytest.mark.parametrize("every", [5, pytest.param(1, marks=pytest.mark.proof)])
@pytest.mark.parametrize("out", ["folder/", "bucket://b/x/"])
async def test_a_merge_that_is_stopped_at_any_step(
    out: str, every: int, objects: type[Bucket], tmp_path: Path
) -> None:
    """After a kill or a power cut at any step of a merge each row is there once, for readers too."""
    remote, place = "://" in out, tmp_path / "run"
    await grown(out if remote else f"{place}/{out}", 0, 25, format="jsonl", compact=False)
    place.mkdir(exist_ok=True)
    with Images(place, objects if remote else None) as images:
        assert compact(out if remote else f"{place}/{out}") == 25
    kills = len(images.kills)
    states = [*images.kills, *images.cuts]
    assert len(states) > 6
    for number, state in [*enumerate(states)][::every]:
        folder = restored(state, tmp_path / str(number), objects if remote else None)
        target = out if remote else f"{folder}/{out}"
        if number < kills:  # a reader takes the parts of a folder, or what `files` names at a URL
            rows = rows_at(target, objects, folder)
            assert max(rows.values(), default=1) == 1
            assert not remote or rows == Counter(range(25))
        await grown(target, 25, 26)
        assert rows_at(target, objects, folder) == Counter(range(26))
        assert len(files(target)) <= 2
        names = [*objects.objects()] if remote else [path.name for path in folder.rglob("*")]
        assert len([name for name in names if "part-" in name]) == len(files(target))


def rows_at(target: str, objects: type[Bucket], folder: Path) -> Counter[int]:
    """Count the rows in the parts of a folder, or in those that `files` names at a URL."""
    if "://" not in target:
        return numbers_in(Path(target))
    objects.copy_to(folder / "b")
    paths = [folder / str(one.path).removeprefix("bucket://") for one in files(target)]
    return Counter(row["number"] for path in paths for row in read(path, "jsonl"))


@pytest.mark.proof
@pytest.mark.parametrize("often", [{"folder.COMPACT_AT": 2}, {"log.FULL_EVERY": 2, "log.KEPT": 4}], ids=str)
@pytest.mark.parametrize("story", STORIES, ids=str)
@pytest.mark.parametrize("target", [one for one in TARGETS if one.folder], ids=str)
async def test_kills_of_runs_that_merge(
    target: Target,
    story: Story,
    often: Mapping[str, int],
    objects: type[Bucket],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A stop of a run that merges parts, or its log, loses and repeats no row."""
    for name, number in often.items():  # else a run would need 24 parts, or 100 commits
        monkeypatch.setattr(f"chainapi.export.{name}", number)
    assert await stops(target, story, tmp_path, objects, most=12, twice=1) > 9


async def test_a_log_of_many_commits_stays_short(
    objects: type[Bucket], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After hundreds of commits the log has at most 300 records, and opening it reads at most 101."""
    ledger, out = Ledger([*range(330)], latency=0.05), "bucket://b/x/"

    async def run() -> Any:
        walk = session.data.evm.erc20_transactions
        return await export(walk, [(1, ADDRESS)], out, page_size=1, format="jsonl", commit_seconds=0)

    async with reaching(ledger) as session:
        result = await run()
        assert len(result.written) == len(files(out)) < 24 + 24  # merged meanwhile or at the end
        records = [name for name in objects.objects() if "/_log/" in name]
        assert 200 <= len(records) <= 301
        reads, read_file = count(), objects.cat_file
        ledger.numbers.append(330)

        def counted(self: Any, path: str, *rest: Any, **named: Any) -> Any:
            if path.endswith(".json"):
                next(reads)
            return read_file(self, path, *rest, **named)

        monkeypatch.setattr(objects, "cat_file", counted)
        assert (await run()).rows == 1
    assert next(reads) <= 101
    assert sum(one.rows for one in files(out)) == 331

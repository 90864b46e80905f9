"""Promises that every target of an export keeps; `contract` has the targets."""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from errno import EPERM
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve, frozen

from chainapi.errors import ExportError, TargetInUseError
from chainapi.export import ExportResult
from tests.export.buckets import Bucket, bucket
from tests.export.contract import (
    BLOCKS,
    DATABASES,
    STORIES,
    TARGETS,
    Place,
    Plain,
    Story,
    Target,
    full_disks,
    history,
    read,
    small_disks,
    stopped,
    stops,
)
from tests.export.disks import Images, State, restored
from tests.sessions import reaching

REFUSED = ExportError  # the error of a second writer, of a target of others, and of damage
NEITHER = next(story for story in STORIES if story.name == "neither")
FOLDERS = [target for target in TARGETS if target.folder]
FILES = [target for target in TARGETS if not target.folder]

every_target = pytest.mark.parametrize("target", TARGETS, ids=str)
# One target of each kind; the others, which share its steps, and DuckDB, which is slow, are proofs.
QUICK = ("folder of Parquet", "text file", "SQLite", "Parquet file", "URL of a folder")


def quick(targets: Iterable[Target]) -> pytest.MarkDecorator:
    """Return a decorator that runs a test for targets, most of them as proofs."""
    others = {one: [] if one.name in QUICK else [pytest.mark.proof] for one in targets}
    params = [pytest.param(one, id=one.name, marks=marks) for one, marks in others.items()]
    return pytest.mark.parametrize("target", params)


each_target = quick(TARGETS)
with_records = quick(one for one in TARGETS if one.format not in DATABASES)  # those have them in a table


@pytest.fixture
def objects() -> Iterator[type[Bucket]]:
    """Return an empty bucket."""
    with bucket() as files:
        yield files


def slow(target: Target) -> bool:
    """Tell whether the exports to a target take long."""
    return target.divided or target.format == "duckdb"


def quick_and_whole(names: Sequence[str] = tuple(map(str, TARGETS))) -> list[Any]:
    """Return targets of these names with one of the stories, by turns, and as proofs all with all of them."""
    turns = [
        (target, NEITHER if slow(target) else STORIES[(place + 4) % len(STORIES)], True)
        for place, target in enumerate(TARGETS)
        if target.name in names
    ]
    whole = [
        pytest.param(*case, False, marks=pytest.mark.proof, id=f"{case[0]}, {case[1]}, whole")
        for case in product(TARGETS, STORIES)
    ]
    return [*(pytest.param(*case, id=f"{case[0]}, {case[1]}") for case in turns), *whole]


# The rows


@every_target
async def test_each_row_is_there_once(target: Target, objects: type[Bucket], tmp_path: Path) -> None:
    """A first run exports all rows, a second one nothing, and a third one the new rows alone.

    With a lookback, a run removes rows that the list has withdrawn, and replaces those that it has changed.
    """
    place, ledger = Place.of(target, tmp_path / "run", objects), BLOCKS.ledger()
    async with reaching(ledger) as session:
        first = await place.export(session, BLOCKS)
        place.check(BLOCKS, ledger)
        before = {path: path.read_bytes() for path in place.files()}
        second = await place.export(session, BLOCKS)
        assert {path: path.read_bytes() for path in place.files()} == before
        BLOCKS.change(ledger)
        third = await place.export(session, BLOCKS)
        place.check(BLOCKS, ledger)
        if target.folder:  # earlier parts stay as they are
            assert all(path.read_bytes() == content for path, content in before.items())
        files = {str(path).rpartition("/rows")[2] for path in place.files()}
        assert {str(one).rpartition("/rows")[2] for one in third.written} <= files
        ledger.gone.add(10)
        ledger.changed[11] = {"gasUsed": "11"}
        fourth = await place.export(session, BLOCKS, lookback="4d")
        place.check(BLOCKS, ledger)
    results = [(one.rows, one.invalid, one.removed, one.sources) for one in (first, second, third, fourth)]
    assert results == [(20, 4, 0, 2), (0, 0, 0, 2), (6, 0, 0, 2), (2, 0, 4, 2)]
    assert bool(first.written) == bool(third.written) == bool(second.written == ())


@pytest.mark.parametrize(
    "target", [one for one in TARGETS if not one.remote and not slow(one)][1::3], ids=str
)
async def test_a_disk_without_hard_links(
    target: Target, objects: type[Bucket], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk that has no hard links gets each row once, too."""

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    story = evolve(BLOCKS, invalid=())
    place, ledger = Place.of(target, tmp_path / "run", objects), story.ledger()
    async with reaching(ledger) as session:
        for _ in range(2):
            await place.export(session, story)
            place.check(story, ledger)
            story.change(ledger)


@frozen(kw_only=True)
class Grown(Plain):
    """Row with more fields than before."""

    more: str | None = None


@each_target
async def test_a_model_that_gains_a_field(target: Target, objects: type[Bucket], tmp_path: Path) -> None:
    """A field that the model gained is a new column, and earlier rows have no value there."""
    place, ledger = Place.of(target, tmp_path / "run", objects), NEITHER.ledger()
    grown = evolve(NEITHER, sources=[*NEITHER.sources, "/v1/c"])
    async with reaching(ledger) as session:
        await place.export(session, NEITHER)
        ledger.changed = {serial: {"more": "x"} for serial in range(12)}
        await place.export(session, grown, model=Grown)
        place.check(grown, ledger)
        rows = [row for path in place.files() for row in read(path, target.format)]
        assert Counter(row.get("more") or None for row in rows) == {None: 24, "x": 12}
        assert "more" in [*rows[-1]]
        before = {path: path.read_bytes() for path in place.files()}
        with pytest.raises(REFUSED, match="column more is gone"):
            await place.export(session, NEITHER)
    assert {path: path.read_bytes() for path in place.files()} == before


# Stops


@pytest.mark.parametrize(("target", "story", "quick"), quick_and_whole())
async def test_a_kill_or_a_power_cut_at_any_step(
    target: Target, story: Story, objects: type[Bucket], tmp_path: Path, *, quick: bool
) -> None:
    """After a kill or a power cut, and with dead page tokens, the next run leaves each row there once."""
    if quick:
        most = 1 if target.format == "duckdb" else 3 if target.folder else 6
        assert await stops(target, story, tmp_path, objects, most) == most
    else:
        assert await stops(target, story, tmp_path, objects, twice=2) >= 4


@pytest.mark.parametrize(("target", "story", "quick"), quick_and_whole(QUICK))
async def test_a_full_disk(
    target: Target, story: Story, objects: type[Bucket], tmp_path: Path, *, quick: bool
) -> None:
    """A full disk, at any step or any size, is an error with advice; with room the rows are complete."""
    most = {"most": 1} if quick else {}
    assert await full_disks(target, story, tmp_path / "full", objects, **most)
    await small_disks(target, story, tmp_path / "small", objects, **most)


@pytest.mark.parametrize("story", STORIES, ids=str)
@pytest.mark.parametrize(
    "target", [TARGETS[1], *(pytest.param(one, marks=pytest.mark.proof) for one in FILES)], ids=str
)
async def test_a_run_that_is_cancelled_again_and_again(
    target: Target, story: Story, objects: type[Bucket], tmp_path: Path
) -> None:
    """Runs that are cancelled after a page or two, while all page tokens die, lead to each row once."""
    place, ledger = Place.of(target, tmp_path / "run", objects), story.ledger(latency=1.0, lifetime=20.0)
    async with reaching(ledger) as session:
        for changed in (False, True):
            if changed:
                story.change(ledger)
            for seconds in (1.5, 2.5, 30.0):
                again = story.again if changed else {}
                running = await stopped(place.export(session, story, **again), seconds)
                await asyncio.sleep(ledger.lifetime)
            running.result()
            place.check(story, ledger)


@pytest.mark.proof
@every_target
async def test_random_histories(target: Target, objects: type[Bucket], tmp_path: Path) -> None:
    """Runs that are cancelled, killed or cut off from power, in random order, lead to each row once."""
    for seed in range(100):
        await history(target, STORIES[seed % len(STORIES)], seed, tmp_path / f"{seed}", objects)


# Other writers, and people


@pytest.mark.parametrize("target", [one for one in TARGETS if not one.remote], ids=str)
async def test_a_second_writer_is_refused(target: Target, objects: type[Bucket], tmp_path: Path) -> None:
    """A second export to a target is refused before its first request, and the first one completes."""
    place, ledger = Place.of(target, tmp_path / "run", objects), BLOCKS.ledger(latency=10.0)
    other = BLOCKS.ledger()
    async with reaching(ledger) as session, reaching(other) as another:
        first = asyncio.create_task(place.export(session, BLOCKS))
        await asyncio.sleep(15.0)
        with pytest.raises(TargetInUseError, match="another export is writing to this target"):
            await place.export(another, BLOCKS)
        with pytest.raises(TargetInUseError):
            await place.export(another, BLOCKS, wait=1.0)
        assert not other.sent
        second = asyncio.create_task(place.export(another, BLOCKS, wait=600.0))
        await first
        assert (await second).rows == 0
    place.check(BLOCKS, ledger)


@pytest.mark.parametrize("target", [one for one in TARGETS if one.remote], ids=str)
async def test_a_second_writer_of_a_url(target: Target, objects: type[Bucket], tmp_path: Path) -> None:
    """Of two exports to a URL the one that makes a commit too late ends; each row is there once."""
    place, ledger = Place.of(target, tmp_path / "run", objects), BLOCKS.ledger(latency=1.0)
    async with reaching(ledger) as session:
        runs = [asyncio.create_task(place.export(session, BLOCKS)) for _ in range(2)]
        results = await asyncio.gather(*runs, return_exceptions=True)
        assert sorted(map(type, results), key=str) == sorted([ExportResult, TargetInUseError], key=str)
        await place.export(session, BLOCKS)
        place.check(BLOCKS, ledger)


@each_target
async def test_files_of_others_stay(target: Target, objects: type[Bucket], tmp_path: Path) -> None:
    """A target with files of others is refused untouched; files that others add beside it are left alone."""
    place, ledger = Place.of(target, tmp_path / "run", objects), BLOCKS.ledger()
    theirs = named(place, f"{target.out}notes.{target.format}" if target.folder else target.out)
    async with reaching(ledger) as session:
        put(place, theirs, b"theirs")
        with pytest.raises(REFUSED, match=r"no export wrote it|is not the journal"):
            await place.export(session, BLOCKS)
        assert got(place, theirs) == b"theirs"
        assert not ledger.sent
        put(place, theirs, None)
        await place.export(session, BLOCKS)
        beside = theirs if target.folder else f"other.{target.format}"
        put(place, beside, b"theirs")
        BLOCKS.change(ledger)
        await place.export(session, BLOCKS)
        place.check(BLOCKS, ledger)
    assert got(place, beside) == b"theirs"


@pytest.mark.parametrize("target", FOLDERS, ids=str)
async def test_parts_may_be_moved_or_deleted(target: Target, objects: type[Bucket], tmp_path: Path) -> None:
    """Parts that a person has moved away are not written again; a window that needs them is refused."""
    place, ledger = Place.of(target, tmp_path / "run", objects), BLOCKS.ledger()
    async with reaching(ledger) as session:
        await place.export(session, BLOCKS)
        whole = state_of(place)
        names = [name for name in whole if "part-" in name]
        for name in names:
            put(place, name, None)
        requests = len(ledger.sent)
        with pytest.raises(REFUSED, match="is missing, and has rows of"):
            await place.export(session, BLOCKS, lookback="9d")
        assert len(ledger.sent) == requests
        BLOCKS.change(ledger)
        assert (await place.export(session, BLOCKS)).rows == 6
    both = restored({**whole, **state_of(place)}, tmp_path / "both", place.objects)
    assert evolve(place, folder=both).rows(BLOCKS) == BLOCKS.rows(ledger)
    assert len(names) > 1


@pytest.mark.parametrize("target", FILES, ids=str)
async def test_a_file_that_was_changed_or_deleted(
    target: Target, objects: type[Bucket], tmp_path: Path
) -> None:
    """A file that a person changed, deleted or replaced by an old copy is refused, and stays as it is."""
    place, ledger = Place.of(target, tmp_path / "run", objects), BLOCKS.ledger()
    async with reaching(ledger) as session:
        await place.export(session, BLOCKS)
        content, requests = got(place, target.out), len(ledger.sent)
        assert content
        BLOCKS.change(ledger)
        gone = () if target.format in DATABASES else ((None, "missing"),)
        for change, said in ((content[:-9], "changed|other rows"), (b"{}", "changed|other rows"), *gone):
            put(place, target.out, change)
            with pytest.raises(REFUSED, match=said):
                await place.export(session, BLOCKS)
            assert got(place, target.out) == change
        assert len(ledger.sent) == requests
        put(place, target.out, content)
        await place.export(session, BLOCKS)
        place.check(BLOCKS, ledger)
        put(place, target.out, content)  # an old copy
        if target.format in DATABASES:  # has its positions too
            assert (await place.export(session, BLOCKS)).rows == 6
            place.check(BLOCKS, ledger)
            return
        with pytest.raises(REFUSED, match=r"changed|other rows"):
            await place.export(session, BLOCKS)
        assert got(place, target.out) == content


def flip(content: bytes) -> bytes:
    """Flip a bit in the middle of a file."""
    half = len(content) // 2
    return content[:half] + bytes(one ^ 4 for one in content[half : half + 1]) + content[half + 1 :]


DAMAGES: Sequence[Callable[[bytes], bytes | None]] = (
    lambda content: content[: len(content) // 2],
    lambda content: content[: len(content) // 3] + bytes(200) + content[len(content) // 3 + 200 :],
    flip,
    lambda _: b"text of others\n" * 20,
    lambda _: None,
)


@pytest.mark.parametrize("every", [7, pytest.param(1, marks=pytest.mark.proof)])
@with_records
async def test_a_damaged_record(target: Target, every: int, objects: type[Bucket], tmp_path: Path) -> None:
    """A record that is damaged or gone is named before the first request, or it does no harm.

    So it is with records of a run that was stopped, and with those of one that ended. A stopped run may be
    refused later if only the log of its newest steps is damaged.
    """
    place, ledger = Place.of(target, tmp_path / "run", objects), BLOCKS.ledger()
    async with reaching(ledger) as session:
        with Images(place.folder, place.objects) as images:
            await place.export(session, BLOCKS)
        states = (images.kills[len(images.kills) // 2], state_of(place))
        damages = [(state, *one) for state in states for one in product(filter(is_record, state), DAMAGES)]
        refused = 0
        for number, (state, name, damage) in enumerate(damages[::every]):
            damaged = {**state, name: damage(state[name])}
            place.folder = restored(
                {one: content for one, content in damaged.items() if content is not None},
                tmp_path / f"{number}",
                place.objects,
            )
            before, requests = rows_of(state_of(place)), len(ledger.sent)
            error = await error_of(place.export(session, BLOCKS))
            if error is None:
                place.check(BLOCKS, ledger)
                continue
            refused += 1
            assert len(ledger.sent) == requests or name.endswith("-wal")
            assert rows_of(state_of(place)) == before
            assert target.out.split(".")[0].strip("/") in str(error) or Path(name).name in str(error)
    assert refused


@with_records
async def test_an_old_copy_of_the_records(target: Target, objects: type[Bucket], tmp_path: Path) -> None:
    """Records of an earlier moment are refused on a disk, and no file with rows is changed."""
    place, ledger = Place.of(target, tmp_path / "run", objects), BLOCKS.ledger()
    async with reaching(ledger) as session:
        await place.export(session, BLOCKS)
        old = {name: content for name, content in state_of(place).items() if is_record(name)}
        BLOCKS.change(ledger)
        await place.export(session, BLOCKS)
        rows, requests = rows_of(state_of(place)), len(ledger.sent)
        place.folder = restored({**rows, **old}, tmp_path / "old", place.objects)
        if target.remote:  # objects without a record are those of a run that was killed
            assert (await place.export(session, BLOCKS)).rows == 6
            place.check(BLOCKS, ledger)
            return
        with pytest.raises(REFUSED, match=r"old copy|was changed"):
            await place.export(session, BLOCKS)
        assert len(ledger.sent) == requests
        assert rows_of(state_of(place)) == rows


async def error_of(exporting: Coroutine[Any, Any, Any]) -> ExportError | None:
    """Await an export; return the error that refused it."""
    try:
        await exporting
    except REFUSED as error:
        return error
    return None


# What is where


def state_of(place: Place) -> State:
    """Return all files and objects of a place."""
    images = Images(place.folder, place.objects)
    images.keep()
    return images.kills[-1]


def is_record(name: str) -> bool:
    """Check for a file that the export keeps for itself."""
    return "_log/" in name or (".log/" in name and "/part-" not in name)


def rows_of(state: State) -> State:
    """Return the files and objects with rows."""
    return {name: content for name, content in state.items() if not is_record(name)}


def named(place: Place, name: str) -> str:
    """Return the name that a file or an object of a place has in a state."""
    return name if place.objects is None else f"bucket://b/{name}"


def put(place: Place, name: str, content: bytes | None) -> None:
    """Create, change or remove a file or an object, by its name in a state.

    An empty folder goes with its last file.
    """
    key, path = name.removeprefix("bucket:/"), place.folder / name
    if place.objects is not None and content is None:
        del place.objects.store[key]
    elif place.objects is not None and content is not None:
        place.objects.store_object(key, content)
    elif content is not None:
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content)
    else:
        path.unlink()
        if place.target.folder and not [*path.parent.iterdir()]:
            path.parent.rmdir()


def got(place: Place, name: str) -> bytes | None:
    """Return the content of a file or an object, by its name in a state."""
    return state_of(place).get(name)

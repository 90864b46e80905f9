"""The memory of an export, and the way into it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any, cast

import pytest

from chainapi.core.checkpoint import Checkpoint
from chainapi.errors import ExportError
from chainapi.export.commits import MOST_PENDING, Commits
from chainapi.export.state import Batch, SourceState, State


class BusyState:
    """A disk that is busy until it is let go."""

    def __init__(self) -> None:
        self.free = threading.Event()
        self.commits: list[int] = []

    def commit(self, batches: Sequence[Batch]) -> int:
        """Wait, then count what is committed."""
        self.free.wait(30)
        self.commits.append(len(batches))
        return len(batches)


def batch_of(source: SourceState, rows: Sequence[bytes] = (), *, done: bool = False) -> Batch:
    """Return what a page with these rows adds."""
    return Batch(
        source=source,
        rows=rows,
        identity=lambda row: cast("bytes", row),
        encode=lambda row: cast("bytes", row),
        checkpoint=Checkpoint("q"),
        taken=0,
        done=done,
    )


async def test_whoever_fetches_waits_for_the_disk() -> None:
    """Beyond a number of pages there is no room until some are committed, and then all are, together."""
    state, failed = BusyState(), threading.Event()
    with ThreadPoolExecutor(1) as thread:
        commits = Commits(cast("Any", state), thread, lambda _, __: None, failed.set)
        source = SourceState(1, "a", "q")
        for _ in range(MOST_PENDING):  # the first one is taken at once
            commits.put(batch_of(source))
            await commits.room()
        commits.put(batch_of(source))
        room = asyncio.create_task(commits.room())
        await asyncio.sleep(0)
        assert not room.done()
        state.free.set()
        await room
        await commits.flush()
    assert state.commits == [1, MOST_PENDING]
    assert not failed.is_set()


def test_a_commit_is_on_the_disk(tmp_path: Path) -> None:
    """SQLite is told to sync what is committed, and to keep everybody else out."""
    with closing(State.open(tmp_path / "s")) as state:
        assert state._db.execute("PRAGMA synchronous").fetchone() == (2,)  # FULL
        with pytest.raises(ExportError, match="another export"):
            State.open(tmp_path / "s")
    State.open(tmp_path / "s").close()


def test_a_row_is_kept_once(tmp_path: Path) -> None:
    """A row that came before is not kept a second time, nor moved; the same row of another source is."""
    with closing(State.open(tmp_path / "s")) as state:
        one, other = state.source("a", "q"), state.source("b", "q")
        assert state.commit([batch_of(one, [b"1", b"2"]), batch_of(other, [b"2"])]) == 3
        assert state.commit([batch_of(one, [b"2", b"3", b"1"], done=True), batch_of(other, done=True)]) == 1
        assert list(state.finished_rows()) == [("a", b"1"), ("a", b"2"), ("a", b"3"), ("b", b"2")]


def test_rows_of_sources_that_go_on_are_not_given(tmp_path: Path) -> None:
    """Only the rows of sources that came to their end are for the file."""
    with closing(State.open(tmp_path / "s")) as state:
        one, other = state.source("a", "q"), state.source("b", "q")
        state.commit([batch_of(one, [b"1"]), batch_of(other, [b"2"], done=True)])
        assert list(state.finished_rows()) == [("b", b"2")]
        assert (state.waiting(), state.finished()) == (1, 1)


def test_numbers_beyond_64_bits_are_kept(tmp_path: Path) -> None:
    """Numbers in an order may be larger than SQLite's integers, here as the newest row of a source."""
    with closing(State.open(tmp_path / "s")) as state:
        source = state.source("a", "q")
        batch = Batch(
            source=source,
            rows=[2**70, 5],
            identity=lambda row: cast("int", row),
            encode=lambda row: b"%d" % row,
            checkpoint=Checkpoint("q"),
            taken=0,
            done=True,
        )
        assert state.commit([batch, batch]) == 2
        assert state.source("a", "q").floor == 2**70

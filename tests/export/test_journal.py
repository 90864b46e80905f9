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

from chainapi.core.paging.checkpoint import Checkpoint
from chainapi.core.paging.order import Watermark
from chainapi.errors import ExportError
from chainapi.export.journal import State
from chainapi.export.records import Batch, SourceState
from chainapi.export.writer import MOST_PENDING, Commits


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


ONE, OTHER, OLD = ("1" * 16, "2" * 16, "3" * 16)  # marks of rows


def batch_of(
    source: SourceState,
    rows: Sequence[bytes] = (),
    *,
    done: bool = False,
    walk_pass: int = 0,
    counted: bool = False,
    known: Sequence[bytes] = (),
    newest: int | None = None,
    watermark: Watermark | None = None,
) -> Batch:
    """Return what a page with these rows adds, which are their own digests."""
    return Batch(
        source=source,
        rows=rows,
        digests=rows,
        encode=lambda row: cast("bytes", row),
        checkpoint=Checkpoint("q", restarts=walk_pass, watermark=watermark),
        taken=0,
        done=done,
        known=known,
        newest=newest,
        counted=counted,
    )


def rows_of(state: State) -> list[bytes]:
    """Return the rows of the finished sources."""
    return [row for _, row in state.finished_rows()]


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


def test_equal_rows_are_kept(tmp_path: Path) -> None:
    """In one pass every row is kept, also one that is equal to another, of its page, its source or not."""
    with closing(State.open(tmp_path / "s")) as state:
        one, other = state.source("a", "q"), state.source("b", "q")
        assert state.commit([batch_of(one, [b"1", b"1"]), batch_of(other, [b"1"], done=True)]) == 3
        assert state.commit([batch_of(one, [b"2", b"1"], done=True)]) == 2
        assert list(state.finished_rows()) == [
            *(("a", row) for row in (b"1", b"1", b"2", b"1")),
            ("b", b"1"),
        ]


def test_a_later_pass_is_counted(tmp_path: Path) -> None:
    """In a later pass each row is left out as often as it is kept; what is kept stays in its place."""
    with closing(State.open(tmp_path / "s")) as state:
        one, other = state.source("a", "q"), state.source("b", "q")
        state.commit([batch_of(one, [b"1", b"1", b"2"]), batch_of(other, [b"3"])])
        again = [b"2", b"1", b"3", b"1", b"1", b"2"]
        assert state.commit([batch_of(one, again, walk_pass=1, counted=True)]) == 3
        assert state.commit([batch_of(one, [b"1"], walk_pass=1, counted=True)]) == 1
        assert state.commit([batch_of(one, [b"1"] * 5, walk_pass=2, counted=True, done=True)]) == 1
        assert rows_of(state) == [b"1", b"1", b"2", b"3", b"1", b"2", b"1", b"1"]


def test_a_later_pass_is_counted_after_a_kill_as_well(tmp_path: Path) -> None:
    """The state knows on the disk which rows this pass has met."""
    with closing(State.open(tmp_path / "s")) as state:
        one = state.source("a", "q")
        state.commit([batch_of(one, [b"1", b"1"])])
        assert state.commit([batch_of(one, [b"1"], walk_pass=1, counted=True)]) == 0
    with closing(State.open(tmp_path / "s")) as state:
        one = state.source("a", "q")
        assert state.commit([batch_of(one, [b"1", b"1"], walk_pass=1, counted=True, done=True)]) == 1
        assert rows_of(state) == [b"1"] * 3


def test_rows_that_the_stream_knows_count_as_met(tmp_path: Path) -> None:
    """A row that an order showed to be given before is met; the next equal row of the same pass is new."""
    with closing(State.open(tmp_path / "s")) as state:
        one = state.source("a", "q")
        state.commit([batch_of(one, [b"1", b"2"])])
        assert state.commit([batch_of(one, [b"3"], walk_pass=1, known=[b"1"])]) == 1
        assert state.commit([batch_of(one, [b"1", b"2"], walk_pass=1, counted=True, done=True)]) == 1
        assert rows_of(state) == [b"1", b"2", b"3", b"1"]


A, B, OLD = (mark * 16 for mark in "abc")  # marks of rows


@pytest.mark.parametrize(
    ("watermark", "edge"),
    [
        (Watermark(9, 1, at=1), None),  # each number is of one row
        (Watermark(9, 1, at=1, ties=((9, (A, A)), (1, (B,)))), (A, A)),
        (Watermark(9, 1, at=1, ties=((9, ()), (1, ()))), ()),  # nobody knows what the target has
        (Watermark(8, 1, at=1, ties=((8, (A,)), (1, (B,)))), (OLD,)),  # the list has none of them now
        (None, (OLD,)),  # the list is empty now
    ],
)
def test_the_rows_at_the_floor(
    tmp_path: Path, watermark: Watermark | None, edge: tuple[str, ...] | None
) -> None:
    """At the end of a walk the state keeps the marks of the newest rows, where several may share a number."""
    with closing(State.open(tmp_path / "s")) as state:
        source = state.source("a", "q")
        source.newest, source.edge = 9, (OLD,)
        state.commit([batch_of(source, newest=None, watermark=watermark, done=True)])
        for known in (source, state.source("a", "q")):
            assert (known.floor, known.edge) == (9, edge)


def test_a_new_source_has_no_rows_at_the_floor(tmp_path: Path) -> None:
    """A source that was never walked to its end has no floor, and no marks."""
    with closing(State.open(tmp_path / "s")) as state:
        state.source("a", "q")
        source = state.source("a", "q")
        assert (source.floor, source.edge, source.newest) == (None, None, None)


def test_rows_of_sources_that_go_on_are_not_given(tmp_path: Path) -> None:
    """Only the rows of sources that came to their end are for the file."""
    with closing(State.open(tmp_path / "s")) as state:
        one, other = state.source("a", "q"), state.source("b", "q")
        state.commit([batch_of(one, [b"1"]), batch_of(other, [b"2"], done=True)])
        assert list(state.finished_rows()) == [("b", b"2")]
        assert (state.waiting(), state.finished()) == ((1, 0), 1)


def test_numbers_beyond_64_bits_are_kept(tmp_path: Path) -> None:
    """Numbers in an order may be larger than SQLite's integers, here as the newest row of a source."""
    with closing(State.open(tmp_path / "s")) as state:
        source = state.source("a", "q")
        assert state.commit([batch_of(source, [b"1"], newest=2**70), batch_of(source, newest=5)]) == 1
        assert state.commit([batch_of(source, done=True)]) == 0
        assert state.source("a", "q").floor == 2**70

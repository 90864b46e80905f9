"""Writer of a journal: group commit in a thread.

Pages gather for some milliseconds and become one transaction: for a small page, a transaction with its sync
takes longer than all else. Pages that become a row group gather for a second, or until they are enough for
one. While the thread commits some pages, the next ones gather.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from functools import partial
from typing import Any, TypeVar

from attrs import define, field

from chainapi.export.gathering import GroupEncoder, packed_batches
from chainapi.export.page_log import PageLog
from chainapi.export.source_records import Batch

__all__ = ["MAX_PENDING", "Writer"]

T = TypeVar("T")

MAX_PENDING = 64  # pages that wait for a commit before the fetching side waits too
COMMIT_AT = 32  # pages that are committed without waiting for more
COMMIT_SIZE = 1 << 20  # bytes of pages, likewise
COMMIT_AFTER = 0.02  # seconds after which the pages that have arrived are committed


@define(eq=False)
class _Gathered:
    """Batches, with the number of their rows and of their bytes."""

    batches: list[Batch] = field(factory=list[Batch])
    rows: int = 0
    size: int = 0

    def add(self, batches: Sequence[Batch]) -> None:
        """Add batches after the others."""
        self.batches += batches
        self.rows += sum(len(batch.rows) for batch in batches)
        self.size += sum(batch.size for batch in batches)

    def take(self) -> list[Batch]:
        """Return the batches, and start with none."""
        batches = self.batches
        self.batches, self.rows, self.size = [], 0, 0
        return batches


@define(eq=False)
class Writer:
    """Commits batches to a journal; a cancelled caller loses none that it has put in.

    Attributes:
        journal: the journal.
        thread: the one thread that the journal belongs to.
        on_commit: called with the committed batches and the number of their new rows.
        on_failure: called once, when a commit failed: no further one is tried.

    """

    journal: PageLog
    thread: Executor
    on_commit: Callable[[Sequence[Batch], int], None]
    on_failure: Callable[[], None]
    _pending: _Gathered = field(factory=_Gathered, init=False)
    _packed: _Gathered = field(factory=_Gathered, init=False)  # in front of the pending ones
    _due: bool = field(default=False, init=False)  # whether no more pages are to gather
    _timer: asyncio.TimerHandle | None = field(default=None, init=False)
    _running: asyncio.Future[Any] | None = field(default=None, init=False)
    _failure: Exception | None = field(default=None, init=False)
    _changed: asyncio.Event = field(factory=asyncio.Event, init=False)

    def put(self, batch: Batch) -> None:
        """Queue a batch for the next commit."""
        self._pending.add([batch])
        self._start()

    async def wait_for_room(self) -> None:
        """Wait until fewer than `MAX_PENDING` batches wait for a commit.

        Batches that become a row group wait until the thread is free, or they are too few for one.

        Raises:
            Exception: the error of the failed commit, or of `on_commit`.

        """
        await self._wait(self._has_room)

    async def flush(self) -> None:
        """Wait until all batches are committed.

        A cancelled caller waits too, and then raises CancelledError: the end of a program cancels every task.

        Raises:
            Exception: the error of the failed commit, or of `on_commit`.

        """
        cancelled: asyncio.CancelledError | None = None
        self._commit_soon()
        while True:
            try:
                await self._wait(lambda: self._running is None)
                break
            except asyncio.CancelledError as error:
                cancelled = error
        if cancelled is not None:
            raise cancelled

    def _has_room(self) -> bool:
        encoder = self.journal.groups
        if encoder is None:
            return len(self._pending.batches) < MAX_PENDING
        return self._running is None or not self._can_pack(encoder)

    def _start(self) -> None:
        """Begin the next step of the thread, if there is one."""
        encoder, gathered = self.journal.groups, self._packed.batches or self._pending.batches
        if self._running is not None or self._failure is not None or not gathered:
            return
        if self._due or self._is_full(encoder):
            self._commit()
        elif encoder is not None and self._can_pack(encoder):
            self._run(partial(packed_batches, encoder, self._pending.take()), self._pack)
        elif self._timer is None:
            seconds = COMMIT_AFTER if encoder is None else encoder.size.seconds
            self._timer = asyncio.get_running_loop().call_later(seconds, self._commit_soon)

    def _is_full(self, encoder: GroupEncoder | None) -> bool:
        """Check whether all batches are enough for a commit without waiting for more."""
        if encoder is None:
            return len(self._pending.batches) >= COMMIT_AT or self._pending.size >= COMMIT_SIZE
        size = encoder.size
        rows, bytes_ = self._packed.rows + self._pending.rows, self._packed.size + self._pending.size
        return rows >= size.full or bytes_ >= size.size

    def _can_pack(self, encoder: GroupEncoder) -> bool:
        """Check whether the pending batches are enough for the smallest row group."""
        return self._pending.rows >= encoder.size.least or self._pending.size * 4 >= encoder.size.size

    def _commit(self) -> None:
        batches = self._packed.take() + self._pending.take()
        self._due = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._run(partial(self.journal.commit, batches), partial(self.on_commit, batches))

    def _commit_soon(self) -> None:
        self._due = True
        self._start()

    def _pack(self, batches: Sequence[Batch]) -> None:
        self._packed.add(batches)
        self._due = self._due or any(batch.values is None and len(batch.rows) for batch in batches)

    def _run(self, step: Callable[[], T], on_result: Callable[[T], None]) -> None:
        """Run a step in the thread."""
        self._running = running = asyncio.get_running_loop().run_in_executor(self.thread, step)
        running.add_done_callback(partial(self._done, on_result))

    def _done(self, on_result: Callable[[T], None], running: asyncio.Future[T]) -> None:
        self._running = None
        self._changed.set()
        try:
            on_result(running.result())
        except Exception as error:  # noqa: BLE001 - raised by wait_for_room and flush
            self._failure = error
            self.on_failure()
        else:
            self._start()

    async def _wait(self, condition: Callable[[], bool]) -> None:
        while self._failure is None and not condition():
            self._changed.clear()
            await self._changed.wait()
        if self._failure is not None:
            raise self._failure

"""Writer of a journal: group commit in a thread.

While the thread commits some pages, the next ones gather and become one transaction: a sync of the disk takes
longer than most pages take to arrive.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Executor

from attrs import define, field

from chainapi.export.source_records import Batch, PageLog

__all__ = ["MAX_PENDING", "Writer"]

MAX_PENDING = 64  # pages that wait for a commit before the fetching side waits too


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
    _pending: list[Batch] = field(factory=list[Batch], init=False)
    _running: asyncio.Future[int] | None = field(default=None, init=False)
    _failure: Exception | None = field(default=None, init=False)
    _changed: asyncio.Event = field(factory=asyncio.Event, init=False)

    def put(self, batch: Batch) -> None:
        """Queue a batch for the next commit."""
        self._pending.append(batch)
        self._start()

    async def wait_for_room(self) -> None:
        """Wait until fewer than `MAX_PENDING` batches wait for a commit.

        Raises:
            Exception: the error of the failed commit, or of `on_commit`.

        """
        await self._wait(lambda: len(self._pending) < MAX_PENDING)

    async def flush(self) -> None:
        """Wait until all batches are committed.

        Raises:
            Exception: the error of the failed commit, or of `on_commit`.

        """
        await self._wait(lambda: self._running is None)

    def _start(self) -> None:
        if self._running is not None or not self._pending or self._failure is not None:
            return
        batches, self._pending = self._pending, []
        loop = asyncio.get_running_loop()
        self._running = loop.run_in_executor(self.thread, self.journal.commit, batches)
        self._running.add_done_callback(lambda running: self._done(batches, running))

    def _done(self, batches: Sequence[Batch], running: asyncio.Future[int]) -> None:
        self._running = None
        self._changed.set()
        try:
            self.on_commit(batches, running.result())
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

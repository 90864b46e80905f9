"""Observers of a shared quota: they read its state, and never host it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from chainapi._limits.view import QuotaSnapshot
from chainapi.core.share.messages import (
    VERSION,
    Denied,
    FrameError,
    FromHost,
    Hello,
    QuotaState,
    Watch,
    encode,
    read_host_frame,
)
from chainapi.errors import ShareUnavailableError
from chainapi.share.link import Link

__all__ = ["PATIENCE", "Observer"]

PATIENCE = 5.0  # seconds for the answer of the host


class Observer:
    """Observer at the end of a link to the host of a quota.

    Attributes:
        processes: number of the processes that share the quota, by the last state.
        origin: scheme, host and port of its service, by the last state.

    Args:
        link: the link, not started yet.
        process: name of this process, for the host.
        now: the wall clock in Unix seconds, for the snapshots.
        quota: name of the quota, for a host of several.

    """

    def __init__(self, link: Link, process: str, now: Callable[[], float], quota: str = "") -> None:
        self.processes: int = 0
        self.origin: str = ""
        self._link = link
        self._now = now
        self._asked: asyncio.Future[QuotaSnapshot] | None = None
        self._error: ShareUnavailableError | None = None
        link.start(self._receive, self._broken)
        link.send(encode([Hello(VERSION, process, quota=quota)]))

    async def snapshot(self) -> QuotaSnapshot:
        """Return the state of the quota, on the loop's clock; one call at a time.

        Raises:
            ShareUnavailableError: the host refused this process, ended, or does not answer.

        """
        if self._error is not None:
            raise self._error
        self._asked = asyncio.get_running_loop().create_future()
        self._link.send(encode([Watch()]))
        try:
            async with asyncio.timeout(PATIENCE):
                return await self._asked
        except TimeoutError:
            raise ShareUnavailableError(
                f"the process that hosts the shared quota did not answer for {PATIENCE:g} s: it is stopped,"
                " or its event loop is blocked. Try again in a moment"
            ) from None
        finally:
            self._asked = None

    def close(self) -> None:
        """Break the link."""
        self._link.close()

    def _receive(self, frame: bytes) -> None:
        try:
            for message in read_host_frame(frame):
                self._read(message)
        except (FrameError, ValueError) as error:
            self._fail(f"the process that hosts the shared quota sent something else than its state: {error}")

    def _read(self, message: FromHost) -> None:
        match message:
            case QuotaState():
                now = asyncio.get_running_loop().time()
                self.processes, self.origin = message.processes, message.origin
                snapshot = QuotaSnapshot.from_json(message.shown, now, self._now())
                if self._asked is not None and not self._asked.done():
                    self._asked.set_result(snapshot)
            case Denied():
                self._fail(f"the process that hosts the shared quota refused this one: {message.reason}")
            case _:  # for participants
                pass

    def _broken(self) -> None:
        self._fail("the process that hosts the shared quota ended; another one may host it now. Try again")

    def _fail(self, why: str) -> None:
        if self._error is None:
            self._error = ShareUnavailableError(why)
        if self._asked is not None and not self._asked.done():
            self._asked.set_exception(self._error)

"""Links from members of a shared quota to its host, and the carriers of links.

A link delivers frames in order, each at most once, until it breaks. What a carrier cannot deliver breaks the
link. So a member knows after a break that the host ended all of its permits as lost.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Protocol, runtime_checkable

__all__ = ["Authenticating", "Carrier", "Link", "PairedLink", "Serve", "linked_pair"]


class Link(Protocol):
    """One end of a link."""

    def start(self, on_frame: Callable[[bytes], None], on_broken: Callable[[], None]) -> None:
        """Deliver frames to `on_frame`, in order, beginning with those that wait.

        `on_broken` is called once, when the link ends, from whichever side; not after `close` on this side.
        Both are called by the event loop, never from within `start`, `send` or `close`.
        """
        ...

    def send(self, frame: bytes) -> None:
        """Send a frame, without waiting; on a broken link do nothing."""
        ...

    def close(self) -> None:
        """Break the link: frames sent before are still delivered if possible."""
        ...


Serve = Callable[[Link], None]


class Carrier(Protocol):
    """Connects the processes that share a quota, and elects the host of its gate."""

    async def connect(self, name: str, make_host: Callable[[bytes, float], Serve]) -> Link:
        """Return a link to the host of the quota `name`, elected among the callers.

        A process that is elected calls `make_host` with the memory that the carrier stores (empty for none)
        and its age in seconds, and then the returned function with the host's end of each new link, its own
        among them.

        Raises:
            ShareUnavailableError: no host can be reached or elected.

        """
        ...

    def store(self, name: str, memory: bytes) -> None:
        """Store the memory of a quota for later hosts, where the carrier can.

        Only the host calls it.
        """
        ...

    async def aclose(self, name: str) -> None:
        """End this process's part in a quota.

        Its links break, and another process becomes the host.
        """
        ...


@runtime_checkable
class Authenticating(Protocol):
    """Carrier that authenticates the frames of a quota by a secret."""

    def authenticate(self, name: str, secret: bytes) -> None:
        """Authenticate the frames of the quota `name`; called before `connect`."""
        ...


class PairedLink:
    """End of a link within one event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.other: PairedLink = self
        self._early: deque[bytes] = deque()  # frames from before `start`
        self._on_frame: Callable[[bytes], None] | None = None
        self._on_broken: Callable[[], None] | None = None
        self._open = True

    def start(self, on_frame: Callable[[bytes], None], on_broken: Callable[[], None]) -> None:
        """See `Link.start`."""
        self._on_frame, self._on_broken = on_frame, on_broken
        self._loop.call_soon(self._deliver_early)

    def send(self, frame: bytes) -> None:
        """See `Link.send`."""
        if self._open:
            self._loop.call_soon(self.other._deliver, frame)  # noqa: SLF001 - the two ends are one thing

    def close(self) -> None:
        """See `Link.close`."""
        if self._open:
            self._open = False
            self._on_frame = self._on_broken = None
            self._loop.call_soon(self.other._break)  # noqa: SLF001

    def fail(self) -> None:
        """Break the link: both ends are informed."""
        for end in (self, self.other):
            self._loop.call_soon(end._break)  # noqa: SLF001

    def _deliver(self, frame: bytes) -> None:
        if self._early or (self._on_frame is None and self._open):
            self._early.append(frame)
        elif self._on_frame is not None:
            self._on_frame(frame)

    def _deliver_early(self) -> None:
        while self._early and self._on_frame is not None:
            self._on_frame(self._early.popleft())
        if not self._open:
            self._report()

    def _break(self) -> None:
        self._open = False
        if not self._early:
            self._report()

    def _report(self) -> None:
        on_broken, self._on_frame, self._on_broken = self._on_broken, None, None
        if on_broken is not None:
            on_broken()


def linked_pair() -> tuple[PairedLink, PairedLink]:
    """Return both ends of a link within the running event loop."""
    loop = asyncio.get_running_loop()
    one, other = PairedLink(loop), PairedLink(loop)
    one.other, other.other = other, one
    return one, other

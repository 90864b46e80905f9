"""Links from participants of a shared quota to its host, and carriers.

A link delivers frames in order, each at most once, until it breaks. What a carrier cannot deliver breaks the
link. So a participant knows after a break that the host ended all of its permits as lost.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Protocol, TypeVar

from chainapi.core.share.messages import Remote

__all__ = ["Carrier", "Ends", "Link", "RoutedEnd", "linked_pair"]

K = TypeVar("K")


class Link(ABC):
    """One end of a link: order of the frames that arrive, and the break after them.

    The ends of the carriers derive from it. They call `deliver` for each frame that arrives, and `snap` when
    the link breaks.

    Attributes:
        open: whether neither end has broken the link yet.

    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.open: bool = True
        self._early = deque[bytes | None]()  # frames from before `start`; None is the break
        self._on_frame: Callable[[bytes], None] | None = None
        self._on_broken: Callable[[], None] | None = None

    def start(self, on_frame: Callable[[bytes], None], on_broken: Callable[[], None]) -> None:
        """Deliver frames to `on_frame`, in order, beginning with those that wait.

        `on_broken` is called once, when the link ends, from whichever side; not after `close` on this side.
        Both are called by the event loop, never from within `start`, `send` or `close`.
        """
        self._on_frame, self._on_broken = on_frame, on_broken
        self._loop.call_soon(self._hand_over_early)

    @abstractmethod
    def send(self, frame: bytes) -> None:
        """Send a frame, without waiting; on a broken link do nothing."""

    def close(self) -> None:
        """Break the link: frames sent before are still delivered if possible."""
        self._on_frame = self._on_broken = _ignore
        if self.open:
            self.open = False
            self._hang_up()

    def deliver(self, frame: bytes) -> None:
        """Take a frame that arrived; after a break do nothing."""
        if self.open:
            self._loop.call_soon(self._hand_over, frame)

    def snap(self) -> None:
        """Break the link, because the other end closed it or cannot be reached."""
        if self.open:
            self.open = False
            self._loop.call_soon(self._break)

    @abstractmethod
    def _hang_up(self) -> None:
        """Inform the other end that this one closed the link."""

    def _hand_over(self, frame: bytes) -> None:
        if self._on_frame is None or self._early:
            self._early.append(frame)
        else:
            self._on_frame(frame)

    def _break(self) -> None:
        if self._on_broken is None or self._early:
            self._early.append(None)
        else:
            on_broken = self._on_broken
            self._on_frame = self._on_broken = _ignore
            on_broken()

    def _hand_over_early(self) -> None:
        """Hand over what came before `start`, one frame in each iteration of the loop."""
        if self._early and self._on_frame is not None:
            self._loop.call_soon(self._hand_over_early)
            frame = self._early.popleft()
            if frame is None:
                self._break()
            else:
                self._on_frame(frame)


def _ignore(*_: object) -> None:
    """Do nothing, on a link that has ended."""


class Carrier(Protocol):
    """Connects a process to the host of a quota."""

    @property
    def patience(self) -> float:
        """Seconds without a host after which a session goes on alone, or fails."""
        ...

    def remote(self, name: str, secret: bytes) -> Remote | None:
        """Return the server over which the host shares a quota with other machines.

        `secret` authenticates the frames of the quota there; see `frame_key`.
        """
        ...

    async def connect(self, name: str) -> Link:
        """Return a link to the host of the quota `name`.

        Raises:
            ShareUnavailableError: no host can be reached or started.

        """
        ...

    async def aclose(self, name: str) -> None:
        """End this process's part in a quota."""
        ...


class RoutedEnd(Link):
    """End of a link that travels over a connection of others, or within a loop.

    Args:
        pass_on: sends a frame to the other end, or with None the end of the link; False if it cannot.
        forget: called once, when the link ended; its result has no meaning.

    """

    def __init__(
        self, pass_on: Callable[[bytes | None], bool], forget: Callable[[], object] = lambda: None
    ) -> None:
        super().__init__()
        self._pass_on, self._forget = pass_on, forget

    def send(self, frame: bytes) -> None:
        """See `Link.send`."""
        if self.open and not self._pass_on(frame):
            self.snap()

    def take(self, frame: bytes | None) -> bool:
        """Take what the other end passed on; return whether the link is open."""
        if frame is None:
            self.snap()
        else:
            self.deliver(frame)
        return self.open

    def snap(self) -> None:
        """See `Link.snap`."""
        if self.open:
            super().snap()
            self._forget()

    def _hang_up(self) -> None:
        self._pass_on(None)
        self._forget()


def linked_pair() -> tuple[RoutedEnd, RoutedEnd]:
    """Return both ends of a link within the running event loop."""
    one: RoutedEnd = RoutedEnd(lambda frame: other.take(frame))
    other: RoutedEnd = RoutedEnd(lambda frame: one.take(frame))
    return one, other


class Ends(dict[K, RoutedEnd]):
    """Open ends of links in one process, by key.

    Args:
        send: sends a frame of a link to its other end, or with None the end of the link; False if it cannot.

    """

    def __init__(self, send: Callable[[K, bytes | None], bool]) -> None:
        super().__init__()
        self._send = send

    def add(self, key: K) -> RoutedEnd:
        """Open an end."""
        end = self[key] = RoutedEnd(partial(self._send, key), partial(self.pop, key, None))
        return end

    def receive(self, key: K, frame: bytes | None) -> None:
        """Take a frame that arrived, or with None the end of the link."""
        if key in self:
            self[key].take(frame)
        elif frame is not None:  # so the other process is informed that nobody reads
            self._send(key, None)

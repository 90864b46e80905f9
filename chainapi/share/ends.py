"""Links that travel over one connection: their ends in one process, by key."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeVar

from chainapi.share.link import Link

__all__ = ["Ends", "RoutedEnd"]

K = TypeVar("K")


class RoutedEnd(Link):
    """One end of a link.

    Args:
        pass_on: sends a frame to the other end, or with None the end of the link; False if it cannot.
        forget: called once, when the link ended; its result has no meaning.

    """

    def __init__(self, pass_on: Callable[[bytes | None], bool], forget: Callable[[], object]) -> None:
        super().__init__()
        self._pass_on, self._forget = pass_on, forget

    def send(self, frame: bytes) -> None:
        """See `Link.send`."""
        if self.open and not self._pass_on(frame):
            self.snap()

    def snap(self) -> None:
        """See `Link.snap`."""
        if self.open:
            super().snap()
            self._forget()

    def _hang_up(self) -> None:
        self._pass_on(None)
        self._forget()


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
        end = self.get(key)
        if end is None:
            if frame is not None:  # so the other process is informed that nobody reads
                self._send(key, None)
        elif frame is None:
            end.snap()
        else:
            end.deliver(frame)

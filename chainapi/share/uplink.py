"""Connection of one process to the host, renewed when the link breaks."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Protocol

from attrs import define, field

from chainapi.core.share.messages import (
    Denied,
    FrameError,
    FromHost,
    FromParticipant,
    Welcome,
    frames_of,
    read_host_frame,
)
from chainapi.errors import ConfigurationError, ShareUnavailableError
from chainapi.share.link import Carrier, Link

__all__ = ["LinkedGate", "Uplink"]

UNAVAILABLE = 2.0  # seconds for a host that refuses a process for now
RETRY = 0.25  # seconds between two attempts to reach a host

_log = logging.getLogger("chainapi.share")


class LinkedGate(Protocol):
    """Gate of a participant, as its connection calls it."""

    def greeting(self) -> Sequence[FromParticipant]:
        """Return the first messages to a host."""
        ...

    def receive(self, message: FromHost) -> None:
        """Handle a message of the host."""
        ...

    def connected(self) -> None:
        """Note that the host answered the greeting."""
        ...

    def broken(self) -> None:
        """Note that the link broke: its host ended all permits as lost."""
        ...

    def unavailable(self, error: ShareUnavailableError | ConfigurationError) -> None:
        """Note that no host was there in time; called repeatedly."""
        ...


@define(eq=False, repr=False)
class Uplink:
    """Link to the host of a quota, replaced by another when it breaks.

    Messages that are sent without a link are dropped: the next greeting has what the host needs.
    """

    name: str
    carrier: Carrier
    gate: LinkedGate
    _link: Link | None = field(default=None, init=False)
    _outbox: list[FromParticipant] = field(factory=list[FromParticipant], init=False)
    _flushing: asyncio.Handle | None = field(default=None, init=False)
    _welcome: bool = field(default=True, init=False)
    _connecting: asyncio.Task[None] | None = field(default=None, init=False)
    _patience: asyncio.TimerHandle | None = field(default=None, init=False)
    _reason: ShareUnavailableError | ConfigurationError | None = field(default=None, init=False)
    _closed: bool = field(default=False, init=False)

    @property
    def up(self) -> bool:
        """Whether there is a link, even if its host did not answer yet."""
        return self._link is not None

    def open(self, pause: float = 0.0) -> None:
        """Connect after a pause in seconds, unless that is under way or done."""
        if self._link is None and self._connecting is None and not self._closed:
            if self._patience is None:
                self._expect(self.carrier.patience)
            self._connecting = asyncio.get_running_loop().create_task(self._connect(pause))

    async def aclose(self) -> None:
        """Send what is left to send, and end the link."""
        self._closed = True
        self._stop_patience()
        self.flush()
        if self._link is not None:
            self._link.close()
            self._link = None
        try:
            if self._connecting is not None:
                self._connecting.cancel()
                await asyncio.wait([self._connecting])
        finally:  # also if the close is cancelled
            await self.carrier.aclose(self.name)

    # --- sending ----------------------------------------------------------------------------

    def send(self, message: FromParticipant) -> None:
        """Send a message with all others of this iteration of the loop."""
        if self._link is None:
            return
        self._outbox.append(message)
        if self._flushing is None:
            self._flushing = asyncio.get_running_loop().call_soon(self.flush)

    def flush(self) -> None:
        """Send the messages that wait for others."""
        self._cancel_flush()
        if self._outbox and self._link is not None:
            messages, self._outbox = self._outbox, []
            for frame in frames_of(messages):
                self._link.send(frame)

    def _cancel_flush(self) -> None:
        if self._flushing is not None:
            self._flushing.cancel()
            self._flushing = None

    # --- receiving --------------------------------------------------------------------------

    def _receive(self, frame: bytes) -> None:
        """Handle the messages of a frame; the link breaks if that fails."""
        try:
            for message in read_host_frame(frame):
                self._handle(message)
        except FrameError as error:
            _log.warning("the link to the host of the shared quota broke: %s", error)
            self._drop()
        except ShareUnavailableError as error:
            self._reason = error
            self._drop()
        except BaseException:
            self._drop()  # else requests of the frame would wait for ever
            raise

    def _handle(self, message: FromHost) -> None:
        match message:
            case Welcome():
                self._welcome, self._reason = True, None
                self._stop_patience()
                self.gate.connected()
            case Denied():
                self._expect(UNAVAILABLE if message.again else 0.0)
                raise ShareUnavailableError(message.reason)
            case _:
                self.gate.receive(message)

    def _drop(self) -> None:
        """Break the link; a pause follows, because the next one may fail in the same way."""
        if self._link is not None:
            self._link.close()
            self._welcome = False
            self._broken()

    def _broken(self) -> None:
        self._link = None
        self._outbox.clear()
        self._cancel_flush()
        self.gate.broken()
        self.open(0.0 if self._welcome else RETRY)

    # --- connecting -------------------------------------------------------------------------

    async def _connect(self, pause: float) -> None:
        """Connect, again and again until it succeeds."""
        while True:
            await asyncio.sleep(pause)
            pause = RETRY
            try:
                link = await self.carrier.connect(self.name)
                break
            except ShareUnavailableError as error:
                self._reason = error
            except ConfigurationError as error:
                self._reason = error
                self._give_up()
            except Exception as error:  # noqa: BLE001 - a carrier that a user wrote may raise anything
                self._reason = ShareUnavailableError(f"the carrier failed: {type(error).__name__}: {error}")
        self._connecting, self._welcome = None, False
        self._link = link
        for frame in frames_of(self.gate.greeting()):
            link.send(frame)
        link.start(self._receive, self._broken)

    def _expect(self, seconds: float) -> None:
        """Wait so long for a host, at most."""
        loop = asyncio.get_running_loop()
        if self._patience is None or self._patience.when() > loop.time() + seconds:
            self._stop_patience()
            self._patience = loop.call_later(seconds, self._give_up)

    def _give_up(self) -> None:
        self._stop_patience()
        reason = self._reason or ShareUnavailableError(
            "no process hosts the shared quota: the attempts to reach or start a host did not end in time."
            " Try again in a moment"
        )
        self.gate.unavailable(reason)  # meanwhile the attempts continue

    def _stop_patience(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None

"""Links of a Dask cluster: workers reach the gates on the scheduler through Dask.

Frames travel as messages of the stream that each worker has with its scheduler, so a cluster with TLS
encrypts them, and no further port is opened. If that stream ends, Dask removes the worker and the worker
ends itself: the scheduler's ends of its links break at once (`GatePlugin.remove_worker`).
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any
from uuid import uuid4

from distributed import SchedulerPlugin
from distributed.comm.core import CommClosedError

from chainapi.core.share.messages import Remote
from chainapi.errors import ShareUnavailableError
from chainapi.share.host import Host
from chainapi.share.link import Ends, Link

__all__ = ["DaskCarrier", "GatePlugin"]

OPERATION = "chainapi-share"  # name of the messages, in both directions
MOST_UNSENT = 10_000  # messages of a stream: a peer that lets more wait does not read


def _post(stream: Any, link: str, frame: bytes | None, **more: str) -> bool:
    """Send a message; return False if its stream has ended, or nobody reads it."""
    try:
        if stream is None or stream.comm is None or len(stream.buffer) > MOST_UNSENT:
            return False
        stream.send({"op": OPERATION, "link": link, "frame": frame, **more})
    except CommClosedError:
        return False
    return True


class DaskCarrier:
    """Carrier of one worker: its scheduler is the host.

    All sessions of a worker use the same one: `of` returns it, and each of them closes it.
    """

    patience: float = 2.0

    def __init__(self, worker: Any) -> None:
        self._worker = worker
        self._users = 0
        self._ends = Ends[str](self._send)
        worker.stream_handlers[OPERATION] = self._received

    @classmethod
    def of(cls, worker: Any) -> DaskCarrier:
        """Return the carrier of a worker, for one more user."""
        handler = worker.stream_handlers.get(OPERATION)
        carrier: DaskCarrier = cls(worker) if handler is None else handler.__self__
        carrier._users += 1
        return carrier

    async def connect(self, name: str) -> Link:
        """Return a link to the scheduler.

        Raises:
            ShareUnavailableError: the worker has lost its scheduler.

        """
        link = uuid4().hex
        if not self._send(link, None, name=name):
            raise ShareUnavailableError(
                "the worker has lost its scheduler, which hosts the shared quota: Dask ends such a worker; "
                "start the work again on another one"
            )
        return self._ends.add(link)

    def remote(self, name: str, secret: bytes) -> Remote | None:
        """Return None: the scheduler is the host."""
        return None

    async def aclose(self, name: str) -> None:
        """Do nothing: the link was closed."""

    def close(self) -> None:
        """Break all links after the last user.

        The worker keeps the handler of their messages: one may be on its way, and Dask ends a worker that
        receives a message without a handler.
        """
        self._users -= 1
        if self._users > 0:
            return
        for end in [*self._ends.values()]:
            end.snap()

    def _send(self, link: str, frame: bytes | None, **more: str) -> bool:
        return _post(self._worker.batched_stream, link, frame, **more)

    def _received(self, link: str, frame: bytes | None, **_: Any) -> None:
        self._ends.receive(link, frame)


class GatePlugin(SchedulerPlugin):
    """Hosts the gates of all quotas beside the scheduler.

    A gate stays when its last worker leaves, so that nothing has to be learned again.
    """

    name = "chainapi-gates"
    idempotent = True

    def __init__(self) -> None:
        self._scheduler: Any = None
        self._hosts = defaultdict[str, Host](Host)
        self._ends = Ends[tuple[str, str]](self._send)  # by worker and link

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), ()

    async def start(self, scheduler: Any) -> None:
        """Receive the messages of workers."""
        self._scheduler = scheduler
        scheduler.stream_handlers[OPERATION] = self._received

    def remove_worker(self, scheduler: Any, worker: str, **_: Any) -> None:
        """Break the links of a worker that left or died."""
        for end in [end for (address, _), end in self._ends.items() if address == worker]:
            end.snap()

    async def close(self) -> None:
        """Break all links: the scheduler ends."""
        for end in [*self._ends.values()]:
            end.close()

    def _received(self, worker: str, link: str, frame: bytes | None, name: str = "", **_: Any) -> None:
        if name:
            self._hosts[name].serve(self._ends.add((worker, link)))
        else:
            self._ends.receive((worker, link), frame)

    def _send(self, key: tuple[str, str], frame: bytes | None) -> bool:
        worker, link = key
        return _post(self._scheduler.stream_comms.get(worker), link, frame)

"""Simulator of both services: limits, page tokens, faults and anomalies.

Its answers follow from a seed.

::

    async with Simulator(limit=100) as sim:                      # on a loopback port
        Session(metrics_base_url=sim.metrics_base_url, data_base_url=sim.data_base_url, api_key=sim.api_key)

    sim = Simulator()                                            # in memory: no socket, any event loop
    Session(transport=sim.transport(), metrics_base_url=sim.metrics_base_url, ...)

A request passes `memory` or `server`, then `world` (keys, limits, faults), the handler of its route in
`handlers` or `writes`, and `pages`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from random import Random
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from attrs import define, field

from chainapi._config import Provider
from chainapi._http.message import Request
from chainapi.simulator.anomalies import Anomalies
from chainapi.simulator.calls import Post, WebhookCall, calls_of, send_calls
from chainapi.simulator.faults import Fault
from chainapi.simulator.memory import MemoryTransport
from chainapi.simulator.settings import API_KEY_HEADER, Settings
from chainapi.simulator.traffic import Exchange, Stats
from chainapi.simulator.validation import text_of
from chainapi.simulator.world import Answer, World

if TYPE_CHECKING:
    from chainapi.simulator.server import Server

__all__ = [
    "Anomalies",
    "Exchange",
    "Fault",
    "MemoryTransport",
    "Settings",
    "Simulator",
    "Stats",
    "WebhookCall",
    "World",
]

Latency = float | Callable[[Random], float]


def _running_time() -> float:
    return asyncio.get_running_loop().time()


def _not_negative(_: object, __: object, value: Latency) -> None:
    if not callable(value) and not value >= 0:
        raise ValueError(f"latency must be at least 0 seconds, not {value!r}")


@define(eq=False)
class Simulator(Settings):
    """Simulator of the Metrics API and the Data API.

    All arguments except the seed are keyword-only. `async with` starts a server on the loopback interface;
    its end closes the port and every connection.

    Attributes:
        latency: round trip in seconds, or a function that returns it for a random generator.
        now: clock in seconds; by default the running loop's.
        port: port of the server; 0 for any free port.
        log: whether `requests` keeps each request; a test wants it, a long run does not.

    `Settings` describes the other arguments.

    """

    latency: Latency = field(default=0.0, kw_only=True, validator=_not_negative)
    now: Callable[[], float] | None = field(default=None, kw_only=True, repr=False)
    port: int = field(default=0, kw_only=True)
    log: bool = field(default=False, kw_only=True)
    _offset: float = field(default=0.0, init=False, repr=False)
    _world: World = field(init=False, repr=False)
    _server: Server | None = field(default=None, init=False, repr=False)
    _random: Random = field(init=False, repr=False)

    def __attrs_post_init__(self) -> None:
        self._world = World(self, [] if self.log else None)
        self._random = Random(f"latency {self.seed}")  # noqa: S311 - a simulation is to be repeatable, not secret

    async def __aenter__(self) -> Self:
        """Start the server.

        Raises OSError if the port is taken, RuntimeError if the server is running.
        """
        from chainapi.simulator.server import Server

        if self._server is not None:
            raise RuntimeError("the simulator is already running: leave its `async with` first")
        self._server = await Server(self._exchange).start(self.port)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop the server."""
        server, self._server = self._server, None
        if server is not None:
            await server.stop()

    @property
    def metrics_base_url(self) -> str:
        """Base URL of the Metrics API; its host name never resolves while no server runs."""
        return self._origin + "/metrics"

    @property
    def data_base_url(self) -> str:
        """Base URL of the Data API; its host name never resolves while no server runs."""
        return self._origin + "/data"

    @property
    def stats(self) -> Stats:
        """Counts of requests and answers so far."""
        return self._world.stats

    @property
    def requests(self) -> Sequence[Exchange]:
        """Requests so far, in the order of sending; always empty without ``log=True``."""
        return () if self._world.log is None else tuple(self._world.log)

    def arguments(self) -> dict[str, Any]:
        """Return the arguments of a session that uses this simulator in memory.

        ``Session(**simulator.arguments())`` needs no running server.
        """
        arguments: dict[str, Any] = {
            "metrics_base_url": self.metrics_base_url,
            "data_base_url": self.data_base_url,
            "api_key": self.api_key,
            "transport": self.transport(),
        }
        if self.api_key_header != API_KEY_HEADER:
            arguments["provider"] = Provider(api_key_header=self.api_key_header)
        return arguments

    def environment(self) -> dict[str, str]:
        """Return the environment variables that point a session at this simulator.

        The command line reads them too.
        """
        variables = {
            "CHAINAPI_METRICS_BASE_URL": self.metrics_base_url,
            "CHAINAPI_DATA_BASE_URL": self.data_base_url,
            "CHAINAPI_API_KEY": self.api_key,
        }
        if self.api_key_header != API_KEY_HEADER:
            variables["CHAINAPI_API_KEY_HEADER"] = self.api_key_header
        return variables

    def transport(self) -> MemoryTransport:
        """Return a transport to the services without a socket; it needs no running server."""
        return MemoryTransport(self._exchange)

    def time(self) -> float:
        """Return the simulated time in seconds: the clock's plus all advances."""
        return (self.now or _running_time)() + self._offset

    def advance(self, seconds: float) -> None:
        """Advance the simulated clock: tokens age and windows end.

        Raises ValueError below 0.
        """
        if not seconds >= 0:
            raise ValueError(f"the clock cannot go backwards by {seconds!r} seconds: give at least 0")
        self._offset += seconds

    def insert(self, path: str, count: int) -> None:
        """Add `count` new rows at the head of the list at `path`.

        A path is written like ``/v1/chains/43114/blocks``. Raises ValueError for a path without a list that
        can grow.
        """
        self._world.insert(path, count)

    def rows_of(self, path: str, **query: object) -> list[dict[str, Any]]:
        """Return all current rows of a list, in the order of its pages.

        Compare the rows of a stream with them. `path` leads to the list, such as
        ``/v1/chains/43114/blocks``, and `query` has parameters by their names on the wire, such as
        ``startTimestamp=1_700_000_000``; those in the body of a request are JSON values. Anomalies are those
        of the latest pass over the list. A list that is read with POST has that before its path.
        Raises ValueError for a path without a list, and for a query that the route does not take.
        """
        now = None if self.grow_every is None else self.time()
        return self._world.rows_of(path, {name: text_of(value) for name, value in query.items()}, now)

    async def send_webhook_calls(
        self, webhook_id: str, post: Post, *, events: int = 1, doubled: float = 0.0, late: float = 0.0
    ) -> list[WebhookCall]:
        """Send signed calls of a webhook to `post`, and return them as they were sent.

        `post` gets the body and the headers of each call, and sends them to the application. An event happens
        each second. `doubled` is the share of events that are sent twice, and `late` the greatest delay of a
        call in seconds, so that calls do not arrive in order. Raises ValueError for a webhook that gets no
        calls: it is inactive, or its events are not documented.
        """
        calls = calls_of(self._world.state, webhook_id, events=events, doubled=doubled, late=late)
        await send_calls(calls, post)
        return calls

    @property
    def _origin(self) -> str:
        return (
            "https://simulator.invalid" if self._server is None else f"http://127.0.0.1:{self._server.port}"
        )

    async def _exchange(self, request: Request, grace: float = 0.0) -> Answer:
        """Return the answer to a request, when it has arrived or the connection breaks.

        Half of the round trip passes before the services answer, half after it. The client reads the answer
        `grace` seconds after it arrives. A stalled request never returns.
        """
        one_way = (self.latency(self._random) if callable(self.latency) else self.latency) / 2
        call = self._world.sent(request, self.time())
        await asyncio.sleep(one_way)
        answer = self._world.answer(call, self.time())
        if answer.broken == "stall":
            await asyncio.get_running_loop().create_future()
        if one_way or answer.slow:
            await asyncio.sleep(one_way + answer.slow)
        if not answer.broken:
            self._world.delivered(call, answer.response, self.time(), grace)
        return answer

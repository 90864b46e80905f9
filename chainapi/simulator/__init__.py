"""Both services on this machine: seeded, with their limits, their page tokens and, on request, their faults.

::

    async with Simulator(limit=100) as sim:                      # on a loopback port
        Session(metrics_base_url=sim.metrics_base_url, data_base_url=sim.data_base_url, api_key=sim.api_key)

    sim = Simulator()                                            # in memory: no socket, any event loop
    Session(transport=sim.transport(), metrics_base_url=sim.metrics_base_url, ...)

``world`` decides every answer and knows neither clock nor loop; ``server`` and ``memory`` are the
two ways in.
``router`` finds the route of a path, its handler in ``handlers`` gives a list or a resource, ``pages`` cuts
lists into pages. ``sources`` compute the lists of the specification, ``factories`` make the rows of all other
routes from their models; ``injection`` and ``order`` add anomalies.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from attrs import define, field

from chainapi.simulator.anomalies import Anomalies
from chainapi.simulator.faults import Fault
from chainapi.simulator.memory import MemoryTransport
from chainapi.simulator.settings import Settings
from chainapi.simulator.stats import Stats, Tally
from chainapi.simulator.world import World

if TYPE_CHECKING:
    from chainapi.simulator.server import Server

__all__ = ["Anomalies", "Fault", "MemoryTransport", "Settings", "Simulator", "Stats", "Tally", "World"]

Latency = float | Callable[[Random], float]


def _running_time() -> float:
    return asyncio.get_running_loop().time()


def _not_negative(_: object, __: object, value: Latency) -> None:
    if not callable(value) and not value >= 0:
        raise ValueError(f"latency must be at least 0 seconds, not {value!r}")


@define(eq=False)
class Simulator(Settings):
    """The Metrics API and the Data API, simulated; every argument but the seed goes by its name.

    Entering it starts a server on the loopback interface, leaving it closes the port and every connection.

    Attributes:
        latency: round trip in seconds, or a function that draws it from the random generator it is given.
        now: the clock, in seconds; the running loop's when not given.
        port: where the server listens; 0 for any free port.

    The rest is described at `Settings`.

    """

    latency: Latency = field(default=0.0, kw_only=True, validator=_not_negative)
    now: Callable[[], float] | None = field(default=None, kw_only=True, repr=False)
    port: int = field(default=0, kw_only=True)
    _offset: float = field(default=0.0, init=False, repr=False)
    _world: World = field(init=False, repr=False)
    _server: Server | None = field(default=None, init=False, repr=False)
    _random: Random = field(init=False, repr=False)

    def __attrs_post_init__(self) -> None:
        self._world = World(self)
        self._random = Random(f"latency {self.seed}")  # noqa: S311 - a simulation is to be repeatable, not secret

    async def __aenter__(self) -> Self:
        """Start the server. Raises OSError where the port is taken, RuntimeError where it runs already."""
        from chainapi.simulator.server import Server

        if self._server is not None:
            raise RuntimeError("the simulator runs already")
        self._server = await Server(self._world, self.time, self._next_latency).start(self.port)
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
        """Where the Metrics API is; a name that never resolves while no server runs."""
        return self._origin + "/metrics"

    @property
    def data_base_url(self) -> str:
        """Where the Data API is; a name that never resolves while no server runs."""
        return self._origin + "/data"

    @property
    def stats(self) -> Stats:
        """What was counted so far."""
        return self._world.stats

    def environment(self) -> dict[str, str]:
        """Return the variables that point a session, or the command line, at this simulator."""
        return {
            "CHAINAPI_METRICS_BASE_URL": self.metrics_base_url,
            "CHAINAPI_DATA_BASE_URL": self.data_base_url,
            "CHAINAPI_API_KEY": self.api_key,
        }

    def transport(self) -> MemoryTransport:
        """Return a transport that reaches the services without a socket, whether a server runs or not."""
        return MemoryTransport(self._world, self.time, self._next_latency)

    def time(self) -> float:
        """Return the simulated time in seconds: the clock's, and what was advanced."""
        return (self.now or _running_time)() + self._offset

    def advance(self, seconds: float) -> None:
        """Move the simulated clock: tokens age and windows pass, while nobody waits. Never backwards."""
        if not seconds >= 0:
            raise ValueError(f"time does not run backwards: {seconds!r}")
        self._offset += seconds

    def insert(self, path: str, count: int) -> None:
        """Add `count` new rows at the head of the list at `path`, such as ``/v1/chains/43114/blocks``.

        Raises ValueError where there is no list that can grow.
        """
        self._world.insert(path, count)

    def rows_of(self, path: str, **query: object) -> list[dict[str, Any]]:
        """Return all rows of a list as the service holds them now, in the order of its pages.

        This is what a walk over the list is to be compared with. `path` is that of the list, such as
        ``/v1/chains/43114/blocks``, and `query` has parameters by their names on the wire, such as
        ``startTimestamp=1_700_000_000``. The list is as its latest pass sees it, from the first page on.
        Raises ValueError where there is no such list, or the query is refused.
        """
        now = None if self.grow_every is None else self.time()
        return self._world.rows_of(path, {name: str(value) for name, value in query.items()}, now)

    @property
    def _origin(self) -> str:
        return (
            "https://simulator.invalid" if self._server is None else f"http://127.0.0.1:{self._server.port}"
        )

    def _next_latency(self) -> float:
        return self.latency(self._random) if callable(self.latency) else self.latency

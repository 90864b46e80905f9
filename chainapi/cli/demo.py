"""``chainapi demo``: the same lists by a loop that retries, and by chainapi."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from random import Random
from typing import Any
from urllib.parse import urlencode

from attrs import define, field
from rich.console import RenderableType

from chainapi._paging.pages import Pages
from chainapi.cli.common import Hidden
from chainapi.cli.tables import table_of
from chainapi.cli.terminal import Terminal
from chainapi.session import Session
from chainapi.simulator import Simulator
from chainapi.transport import AiohttpTransport, Request

__all__ = ["demo"]

CHAINS = (43114, 53935, 432204)

# Each service gets 30 requests, ten pages of each chain, and accepts 12 per window. The Data API sends its
# limit in headers; the Metrics API sends none, so its limit can only be learned from a 429.
SETTINGS: Mapping[str, Any] = {
    "seed": 7,
    "chains": CHAINS,
    "points": 1_000,
    "rows": 1_000,
    "limit": 12,
    "window": 4.0,
    "metrics_limit": 12,
    "metrics_window": 4.0,
    "latency": 0.2,
}
# Seconds before the first retry of the loop; each further pause is twice as long, up to the second value.
PAUSES = 0.25, 2.0


@define(eq=False)
class Contender:
    """One way to read the lists, and the services that it reads."""

    name: str
    simulator: Simulator
    clock: Callable[[], float]
    began: float = field(init=False)
    lists: list[Sequence[Any]] = field(factory=list[Sequence[Any]])  # that were read to the end
    ended: float | None = None

    def __attrs_post_init__(self) -> None:
        self.began = self.clock()

    async def read(self, lists: Sequence[Callable[[], Any]]) -> None:
        """Read all lists at once."""

        async def read_one(read: Callable[[], Any]) -> None:
            self.lists.append(await read())

        try:
            async with asyncio.TaskGroup() as group:
                for one in lists:
                    group.create_task(read_one(one))
        except ExceptionGroup as errors:  # one is enough: all lists share the services and the screen
            raise errors.exceptions[0] from None
        self.ended = self.clock()

    @property
    def figures(self) -> tuple[str, ...]:
        """Figures so far, as the services have counted them."""
        stats = self.simulator.stats
        seconds = (self.clock() if self.ended is None else self.ended) - self.began
        return (
            f"{len(self.lists)} of {2 * len(CHAINS)}",
            f"{sum(map(len, self.lists)):,}",
            str(stats.requests),
            str(stats.refused),
            str(stats.sent_while_stopped),
            f"{seconds:.1f} s",
        )


MEANINGS = ("lists read", "rows", "requests", "refused with 429", "sent during a wait", "time")


def draw(contenders: Sequence[Contender]) -> RenderableType:
    """Return the figures side by side."""
    rows = zip(MEANINGS, *(one.figures for one in contenders), strict=True)
    return table_of(("", *(one.name for one in contenders)), list(rows), right=len(contenders))


async def demo(*, terminal: Hidden) -> None:
    """Read the same lists twice, by a loop that retries and by chainapi.

    Both read a simulator on this machine, whose limits are too low for them. It takes about 20 seconds and
    needs no network and no key.

    Args:
        terminal: The streams of the command.

    """
    terminal.console.print(
        "Six lists of two services, simulated on this machine. Each service takes"
        f" {SETTINGS['limit']} requests in {SETTINGS['window']:g} s, and refuses more with 429.\n"
    )
    clock = asyncio.get_running_loop().time
    async with Simulator(**SETTINGS) as theirs, Simulator(**SETTINGS) as ours:
        addresses = {name: getattr(ours, name) for name in ("metrics_base_url", "data_base_url", "api_key")}
        async with terminal.session(**addresses) as session, AiohttpTransport() as client:
            contenders = [Contender("a loop that retries", theirs, clock), Contender("chainapi", ours, clock)]
            drawn = terminal.live(lambda: draw(contenders)) if terminal.interactive else nullcontext()
            async with drawn, asyncio.TaskGroup() as group:
                group.create_task(contenders[0].read(loops(client, theirs)))
                group.create_task(contenders[1].read(streams(session)))
        if not terminal.interactive:
            terminal.console.print(draw(contenders))
        _conclude(terminal, *contenders)


def _conclude(terminal: Terminal, theirs: Contender, ours: Contender) -> None:
    loop, own = theirs.simulator.stats, ours.simulator.stats
    terminal.console.print(
        f"\nAfter a 429 the loop sent {loop.sent_while_stopped} requests before the time that the service had"
        f" named, chainapi {own.sent_while_stopped}. A service can block a client for that."
    )


def streams(session: Session) -> list[Callable[[], Any]]:
    """Return the readers of all lists, with chainapi."""
    points: list[Pages[Any]] = [session.metrics.avg_tps(chain) for chain in CHAINS]
    blocks: list[Pages[Any]] = [session.data.evm.blocks(chain, page_size=100) for chain in CHAINS]
    return [one.collect for one in (*points, *blocks)]


def loops(client: AiohttpTransport, simulator: Simulator) -> list[Callable[[], Any]]:
    """Return the readers of all lists, with the loop that people write."""
    random = Random(7)  # noqa: S311 - spreads pauses
    headers = {"x-data-api-key": simulator.api_key}

    async def read(url: str, rows: str) -> list[Any]:
        found: list[Any] = []
        query = {"pageSize": "100"}
        while True:
            pause, longest = PAUSES
            while True:
                response = await client.send(Request("GET", f"{url}?{urlencode(query)}", headers))
                if response.status == 200:
                    break
                await asyncio.sleep(pause * random.uniform(0.5, 1.0))
                pause = min(2 * pause, longest)
            page = json.loads(response.body)
            found += page[rows]
            if not page.get("nextPageToken"):
                return found
            query["pageToken"] = page["nextPageToken"]

    points = [f"{simulator.metrics_base_url}/v1/avg_tps/{chain}" for chain in CHAINS]
    blocks = [f"{simulator.data_base_url}/v1/chains/{chain}/blocks" for chain in CHAINS]
    readers = [(url, "results") for url in points] + [(url, "blocks") for url in blocks]
    return [partial(read, url, rows) for url, rows in readers]

"""``chainapi demo``: the same lists by a loop that retries, and by chainapi."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
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
    lists: list[Sequence[Any]] = field(factory=list[Sequence[Any]])  # that were read to the end
    seconds: float = 0.0  # until the last of them

    async def read(self, read_one: Callable[[], Awaitable[Sequence[Any]]]) -> None:
        """Read a list."""
        clock = asyncio.get_running_loop().time
        began = clock()
        self.lists.append(await read_one())
        self.seconds = clock() - began

    @property
    def figures(self) -> tuple[str, ...]:
        """Figures so far, as the services have counted them."""
        stats = self.simulator.stats
        return (
            f"{len(self.lists)} of {2 * len(CHAINS)}",
            f"{sum(map(len, self.lists)):,}",
            str(stats.requests),
            str(stats.refused),
            str(stats.sent_while_stopped),
            f"{self.seconds:.1f} s",
        )


MEANINGS = ("lists read", "rows", "requests", "refused with 429", "sent during a wait", "time")


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
    async with Simulator(**SETTINGS) as theirs, Simulator(**SETTINGS) as ours:
        addresses = {name: getattr(ours, name) for name in ("metrics_base_url", "data_base_url", "api_key")}
        loop, own = Contender("a loop that retries", theirs), Contender("chainapi", ours)

        def table() -> RenderableType:
            rows = list(zip(MEANINGS, loop.figures, own.figures, strict=True))
            return table_of(("", loop.name, own.name), rows, right=2)

        async with terminal.session(**addresses) as session, AiohttpTransport() as client:
            points: list[Pages[Any]] = [session.metrics.avg_tps(chain) for chain in CHAINS]
            blocks: list[Pages[Any]] = [session.data.evm.blocks(chain, page_size=100) for chain in CHAINS]
            drawn = terminal.live(table) if terminal.interactive else nullcontext()
            async with drawn, asyncio.TaskGroup() as group:
                for read_one in loops(client, theirs):
                    group.create_task(loop.read(read_one))
                for pages in (*points, *blocks):
                    group.create_task(own.read(pages.collect))
        if not terminal.interactive:
            terminal.console.print(table())
        terminal.console.print(
            f"\nAfter a 429 the loop sent {theirs.stats.sent_while_stopped} requests before the time that the"
            f" service had named, chainapi {ours.stats.sent_while_stopped}. A service can block a client for"
            " that."
        )


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

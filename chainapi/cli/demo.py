"""``chainapi demo``: walks over both simulated services through low limits."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import plotext  # type: ignore[import-untyped]  # noqa: F401 - if it is missing, before the walks
from attrs import define, field
from rich.console import Group, RenderableType
from rich.text import Text

from chainapi._limits.view import QuotaSnapshot
from chainapi._paging.pages import Pages
from chainapi.cli.common import Hidden
from chainapi.cli.plot import print_chart
from chainapi.cli.progress import Progress, pause
from chainapi.cli.tables import table_of
from chainapi.cli.terminal import Terminal
from chainapi.cli.wording import counted
from chainapi.core.events import Event
from chainapi.export.chart import chart_of
from chainapi.models.metrics import MetricPoint
from chainapi.session import Session
from chainapi.simulator import Simulator

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
PLOT_DAYS = 90
NEWEST = 5


WALKS = [
    f"GET {path.format(chain)}" for path in ("/v1/avg_tps/{}", "/v1/chains/{}/blocks") for chain in CHAINS
]

Series = Mapping[int, Sequence[MetricPoint]]
Blocks = Mapping[int, Sequence[Mapping[str, Any]]]


@define(eq=False)
class Show:
    """State of the demonstration: its events, and the walks that have ended."""

    terminal: Terminal
    progress: Progress
    done: set[str] = field(factory=set[str])

    def on_event(self, event: Event) -> None:
        """Count an event, and report a wait if nothing is drawn live."""
        self.progress(event)
        if not self.terminal.interactive:
            self.terminal.report_wait(event)

    def draw(self, quota: Mapping[str, QuotaSnapshot]) -> RenderableType:
        """Return the table of all walks, and the requests to each service."""
        pages, rows = self.progress.pages, self.progress.rows
        cells = [(one, "✓" if one in self.done else " ", f"{pages[one]}", f"{rows[one]:,}") for one in WALKS]
        table = table_of(("walk", "", "pages", "rows"), cells, right=2)
        return Group(table, "", *(self._draw_service(*known) for known in quota.items()))

    def _draw_service(self, service: str, quota: QuotaSnapshot) -> Text:
        traffic = self.progress.services[service]
        line = Text(f"{service:8}")
        line.append(f"{counted(traffic.requests, 'request'):11}", style="cyan")
        line.append(f"  429: {traffic.refused}", style="yellow" if traffic.refused else "dim")
        if left := pause(quota):
            line.append(f"  no requests for {left:.1f} s", style="bold yellow")
        return line


async def demo(*, terminal: Hidden) -> None:
    """Walk both services, simulated on this machine, through limits that are too low.

    It takes about ten seconds and needs no network and no key.

    Args:
        terminal: The streams of the command.

    """
    show = Show(terminal, Progress(asyncio.get_running_loop().time))
    terminal.console.print(
        "Both services, simulated on this machine, each walked with more requests than the "
        f"{SETTINGS['limit']} requests it takes in {SETTINGS['window']:g} s.\n"
        "The Data API sends its limit in headers, the Metrics API does not.\n"
    )
    async with Simulator(**SETTINGS) as simulator:
        addresses = {
            name: getattr(simulator, name) for name in ("metrics_base_url", "data_base_url", "api_key")
        }
        async with terminal.session(**addresses, on_event=show.on_event) as session:
            drawn = terminal.live(lambda: show.draw(session.quota)) if terminal.interactive else nullcontext()
            async with drawn:
                series, blocks = await _walk(show, session)
        taken = show.progress.clock() - show.progress.began
        _print_rows(terminal, series, blocks)
        if not terminal.console.options.ascii_only:
            newest = {f"{chain}": points[:PLOT_DAYS] for chain, points in series.items()}
            print_chart(terminal, chart_of(newest, "average TPS"))
        _summarise(show, simulator, taken)


async def _walk(show: Show, session: Session) -> tuple[Series, Blocks]:
    """Walk all lists of all chains at once."""

    async def collect(where: str, stream: Pages[Any]) -> list[Any]:
        rows = await stream.collect()
        show.done.add(where)
        return rows

    streams: list[Pages[Any]] = [session.metrics.avg_tps(chain) for chain in CHAINS]
    streams += [session.data.list(f"/v1/chains/{chain}/blocks", page_size=100) for chain in CHAINS]
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(collect(where, stream))
                for where, stream in zip(WALKS, streams, strict=True)
            ]
    except ExceptionGroup as errors:  # one is enough: all walks share the services and the screen
        raise errors.exceptions[0] from None
    rows = [task.result() for task in tasks]
    return dict(zip(CHAINS, rows, strict=False)), dict(zip(CHAINS, rows[len(CHAINS) :], strict=True))


def _print_rows(terminal: Terminal, series: Series, blocks: Blocks) -> None:
    days = [
        (f"{points[0].time:%Y-%m-%d}", *(f"{point.value:.2f}" for point in points))
        for points in list(zip(*series.values(), strict=True))[:NEWEST]
    ]
    table = table_of(("day", *map(str, series)), days, right=len(series))
    newest = [f"{chain}: {rows[0]['blockNumber']}" for chain, rows in blocks.items()]
    terminal.console.print("\nAverage TPS of each chain, newest first:", table, sep="\n")
    terminal.console.print(f"Newest block of each chain: {', '.join(newest)}\n")


def _summarise(show: Show, simulator: Simulator, taken: float) -> None:
    progress, stats = show.progress, simulator.stats
    summary = {
        "rows": f"{progress.rows.total():,}",
        "pages": f"{progress.pages.total():,}",
        "requests": f"{progress.requests:,}",
        "429s": f"{sum(traffic.refused for traffic in progress.services.values())}",
        "time waited": ", ".join(
            f"{name} {traffic.waited:.1f} s" for name, traffic in progress.services.items()
        ),
        "sent during a wait": f"{stats.sent_while_stopped} (as the simulator counted)",
        "time taken": f"{taken:.1f} s",
    }
    for name, value in summary.items():
        show.terminal.out.write(f"{name:20}{value}\n")

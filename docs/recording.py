"""Records what commands show on a terminal, as SVGs of the docs: ``python docs/recording.py [--check]``.

The commands run against the simulator, in virtual time: two runs give the same bytes.
"""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, chdir, suppress
from datetime import UTC, datetime, timedelta
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from attrs import frozen
from rich.console import Console, RenderableType
from rich.terminal_theme import MONOKAI
from rich.text import Text

DOCS = Path(__file__).parent
sys.path.insert(0, str(DOCS.parent))

from chainapi import Session  # noqa: E402 - the project's root has to be on the path first
from chainapi.cli import run  # noqa: E402
from chainapi.cli.terminal import Terminal  # noqa: E402
from chainapi.simulator import Simulator  # noqa: E402
from tests.virtual_time import VirtualLoop  # noqa: E402

WIDTH = 100  # characters
BEGIN = datetime(2026, 1, 31, 9, 0, tzinfo=UTC)
CHAINS = range(1, 121)


class Screen(StringIO):
    """What takes the text of a program that sees a terminal."""

    def isatty(self) -> bool:
        """Say so."""
        return True


@frozen(eq=False)
class Recorder(Terminal):
    """A terminal that keeps what is drawn at some moments, one below the other, and all that is told."""

    moments: Sequence[float] = ()  # seconds

    def __attrs_post_init__(self) -> None:
        console = Console(
            record=True,
            file=StringIO(),
            width=WIDTH,
            force_terminal=True,
            color_system="truecolor",
            highlight=False,
            _environ={"TERM": "xterm"},
        )
        for name in ("console", "messages"):
            object.__setattr__(self, name, console)

    @asynccontextmanager
    async def live(
        self, render: Callable[[], RenderableType], *, transient: bool = False
    ) -> AsyncIterator[None]:
        """Draw at the moments."""

        async def draw() -> None:
            for moment in self.moments:
                await asyncio.sleep(moment - asyncio.get_running_loop().time())
                self.console.print(Text(f"after {moment:.0f} s:", style="italic dim"))
                self.console.print(render())
                self.console.print()

        drawing = asyncio.create_task(draw())
        try:
            yield
        finally:
            drawing.cancel()
            with suppress(asyncio.CancelledError):
                await drawing

    def note(self, line: str) -> None:
        """Keep a line for people."""
        self.console.print(Text(f"chainapi: {line}"))


def record(command: str, simulator: Simulator, moments: Sequence[float] = ()) -> str:
    """Run a command line, and return what it shows as SVG."""

    def session(**options: Any) -> Session:
        addresses = {"data_base_url": simulator.data_base_url, "metrics_base_url": simulator.metrics_base_url}
        return Session(**{**options, **addresses}, api_key=simulator.api_key, transport=simulator.transport())

    def now() -> datetime:
        return BEGIN + timedelta(seconds=asyncio.get_running_loop().time())

    terminal = Recorder(Screen(), Screen(), session, now, moments=moments)
    terminal.console.print(Text.assemble(("$ ", "bold green"), (command, "bold")), end="\n\n")
    code = run(command.split()[1:], terminal=terminal, loop_factory=VirtualLoop)
    if code:
        raise RuntimeError(f"{command} ended with {code}: {terminal.console.export_text()}")
    terminal.console.print(Text.from_ansi(terminal.out.getvalue().rstrip()), end="")  # type: ignore[attr-defined]
    name = "-".join(command.split()[:2])
    svg = terminal.console.export_svg(title="", theme=MONOKAI, unique_id=name)
    # Fonts from elsewhere are not fetched where a picture is embedded: the reader's own one does.
    svg = re.sub(r"\s*@font-face \{.*?\}", "", svg, flags=re.DOTALL)
    return "\n".join(line.rstrip() for line in svg.replace("Fira Code, monospace", "monospace").splitlines())


def export_progress() -> str:
    """Record an export that has to wait for quota."""
    Path("chains.txt").write_text("\n".join(map(str, CHAINS)), "utf-8")
    simulator = Simulator(seed=7, chains=CHAINS, rows=500, limit=2_000, weighted=True, latency=0.3)
    return record(
        "chainapi export data.evm.blocks --from chains.txt --out blocks.parquet", simulator, (1.2, 35.2, 90.2)
    )


def tps_plot() -> str:
    """Record a chart of three chains."""
    return record("chainapi tps 43114 53935 432204 --limit 365 --plot", Simulator(seed=7))


RECORDINGS: dict[str, Callable[[], str]] = {"export-progress.svg": export_progress, "tps-plot.svg": tps_plot}


def main() -> int:
    """Write what has changed, or only tell; return 1 where a check fails."""
    old = 0
    for name, recording in RECORDINGS.items():
        with TemporaryDirectory() as folder, chdir(folder):
            made = recording() + "\n"
        path = DOCS / name
        if path.exists() and path.read_text("utf-8") == made:
            continue
        old += 1
        print(f"{name} {'is old' if '--check' in sys.argv else 'is made anew'}")
        if "--check" not in sys.argv:
            path.write_text(made, "utf-8")
    return int("--check" in sys.argv and old > 0)


if __name__ == "__main__":
    sys.exit(main())

"""Record terminals as SVGs for the docs: ``python docs/recording.py [--check]``.

The commands run against the simulator in virtual time, so two runs give the same bytes.
"""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, chdir
from datetime import UTC, datetime, timedelta
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from attrs import define
from rich.console import Console, RenderableType
from rich.terminal_theme import MONOKAI
from rich.text import Text

sys.path.insert(0, str(Path(__file__).parent.parent))

# The root of the project is on the path from here on.
from chainapi import Session
from chainapi._background import in_background
from chainapi._tooling.files import MARKUP_HEADER, Writer
from chainapi.cli import run
from chainapi.cli.terminal import Terminal
from chainapi.simulator import Simulator
from chainapi.testing.loops import VirtualLoop

WIDTH = 100  # characters
BEGIN = datetime(2026, 1, 31, 9, 0, tzinfo=UTC)
CHAINS = range(1, 121)


class Screen(StringIO):
    """Text stream that passes for a terminal."""

    def isatty(self) -> bool:
        """Return True."""
        return True


@define(eq=False)
class Recorder(Terminal):
    """Terminal that keeps the screens of some times, one below the other, and all messages."""

    times: Sequence[float] = ()  # seconds since the start

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
        self.console = self.messages = console

    @asynccontextmanager
    async def live(
        self, render: Callable[[], RenderableType], *, transient: bool = False
    ) -> AsyncIterator[None]:
        """Draw the screen at each of the times."""

        async def draw() -> None:
            for time in self.times:
                await asyncio.sleep(time - asyncio.get_running_loop().time())
                self.console.print(Text(f"after {time:.0f} s:", style="italic dim"))
                self.console.print(render())
                self.console.print()

        async with in_background(draw()):
            yield

    def note(self, message: object) -> None:
        """Keep a message for people."""
        self.console.print(Text(f"chainapi: {message}"))


def record(command: str, simulator: Simulator, times: Sequence[float] = ()) -> str:
    """Run a command line, and return its terminal as SVG."""

    def session(**options: Any) -> Session:
        addresses = {"data_base_url": simulator.data_base_url, "metrics_base_url": simulator.metrics_base_url}
        return Session(**{**options, **addresses}, api_key=simulator.api_key, transport=simulator.transport())

    def now() -> datetime:
        return BEGIN + timedelta(seconds=asyncio.get_running_loop().time())

    terminal = Recorder(Screen(), Screen(), session, now, times=times)
    terminal.console.print(Text.assemble(("$ ", "bold green"), (command, "bold")), end="\n\n")
    code = run(command.split()[1:], terminal=terminal, loop_factory=VirtualLoop)
    if code:
        raise RuntimeError(f"{command} ended with {code}: {terminal.console.export_text()}")
    terminal.console.print(Text.from_ansi(terminal.out.getvalue().rstrip()), end="")  # type: ignore[attr-defined]
    name = "-".join(command.split()[:2])
    svg = terminal.console.export_svg(title="", theme=MONOKAI, unique_id=name)
    # Browsers fetch no fonts for an embedded picture, so it uses a font of the reader.
    svg = re.sub(r"\s*@font-face \{.*?\}", "", svg, flags=re.DOTALL)
    return "\n".join(line.rstrip() for line in svg.replace("Fira Code, monospace", "monospace").splitlines())


def export_progress() -> str:
    """Record an export that waits for quota."""
    Path("chains.txt").write_text("\n".join(map(str, CHAINS)), "utf-8")
    simulator = Simulator(seed=7, chains=CHAINS, rows=500, limit=2_000, weighted=True, latency=0.3)
    return record(
        "chainapi export data.evm.blocks --from chains.txt --out blocks.parquet", simulator, (1.5, 35.2)
    )


def tps_plot() -> str:
    """Record a chart of three chains."""
    return record("chainapi tps 43114 53935 432204 --limit 365 --plot", Simulator(seed=7))


RECORDINGS: dict[str, Callable[[], str]] = {"export-progress.svg": export_progress, "tps-plot.svg": tps_plot}


def main() -> int:
    """Write the pictures that changed, or only compare them; return 1 if a check finds a difference."""
    writer = Writer(check="--check" in sys.argv)
    for name, recording in RECORDINGS.items():
        with TemporaryDirectory() as folder, chdir(folder):
            picture = recording()
        writer.write(f"docs/{name}", f"{MARKUP_HEADER}{picture}\n")
    return writer.report()


if __name__ == "__main__":
    sys.exit(main())

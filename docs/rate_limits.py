"""Write the picture of rate-limits.md, and its tables: ``python docs/rate_limits.py [--check] [--full]``.

The picture shows runs in virtual time against a server with a quota: the gate, and two usual strategies.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

# The root of the project is on the path from here on.
from chainapi._tooling.files import MARKUP_HEADER, Writer
from tests.limits import runs
from tests.limits.report import measure, strategies, table
from tests.limits.runs import Case
from tests.limits.servers import Clocked

WIDTH, HEIGHT, LEFT, TOP = 720, 150, 110, 30
SECONDS = 200.0
STYLE = """
svg { background: #fff } text { font: 12px sans-serif; fill: #222 } .name { font-weight: bold }
.sent { fill: #2a6f97 } .stop { fill: #f4d6cc } .refused { fill: #c1121f; font-weight: bold }
.axis { stroke: #888 } .note { fill: #555 }
"""


def x(seconds: float) -> float:
    """Return the place of a time on the picture."""
    return LEFT + seconds / SECONDS * WIDTH


def lane(top: float, name: str, run: runs.Run) -> list[str]:
    """Draw one run: requests per second as bars, stops as a band, refusals as crosses."""
    floor, drawn = top + HEIGHT - 30, []
    drawn.append(f'<text x="8" y="{top + 60}" class="name">{name}</text>')
    for begin, end in sorted({(round(begin), round(end)) for begin, end in run.stops}):
        drawn.append(
            f'<rect x="{x(begin):.1f}" y="{top}" width="{max(1.0, x(min(end, SECONDS)) - x(begin)):.1f}" '
            f'height="{HEIGHT - 30}" class="stop"/>'
        )
    counts: dict[int, int] = {}
    for when, _ in run.sent:
        counts[int(when)] = counts.get(int(when), 0) + 1
    for second, number in counts.items():
        tall = min(1.0, number / 400.0) * (HEIGHT - 40)
        top_of_bar = f'x="{x(second):.1f}" y="{floor - tall:.1f}"'
        drawn.append(f'<rect {top_of_bar} width="3" height="{max(tall, 1.0):.1f}" class="sent"/>')
    drawn += [
        f'<text x="{x(when) - 4:.1f}" y="{top + 10}" class="refused">&#215;</text>'
        for when in sorted({round(begin) for begin, _ in run.stops})
    ]
    drawn.append(f'<line x1="{LEFT}" y1="{floor}" x2="{LEFT + WIDTH}" y2="{floor}" class="axis"/>')
    drawn.append(
        f'<text x="{LEFT + WIDTH - 200}" y="{top + 10}" class="note">'
        f"{len(run.passed)} done in {run.seconds:.0f} s, {run.refusals} refused</text>"
    )
    return drawn


def picture() -> str:
    """Return the picture as SVG."""
    case = Case("window on the clock", lambda: Clocked(400.0, 60.0, phase=23.0), [1.0] * 1600, 32, tail=True)
    known = runs.knowing(case)
    shown = {
        "the gate": runs.gate(case),
        "AsyncLimiter": runs.plain(case, "bucket", 20 * known.seconds),
        "retry each": runs.plain(case, "blind", 20 * known.seconds),
    }
    bottom = TOP + HEIGHT * len(shown)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {LEFT + WIDTH + 20} {bottom + 30}">',
        "<title>Requests over time: the gate and two usual strategies, 400 requests a minute allowed</title>",
        f"<style>{STYLE}</style>",
    ]
    for number, (name, run) in enumerate(shown.items()):
        lines += lane(TOP + number * HEIGHT, name, run)
    for second in range(0, int(SECONDS) + 1, 20):
        lines.append(f'<text x="{x(second) - 8:.1f}" y="{bottom + 10}" class="note">{second} s</text>')
    return "\n".join([*lines, "</svg>", ""])


def replace(text: str, name: str, content: str) -> str:
    """Return the text with `content` between the two marks of `name`."""
    begin, end = f"<!-- {name} -->\n", f"\n<!-- end of {name} -->"
    head, rest = text.split(begin)
    return head + begin + content + end + rest.split(end)[1]


def main() -> int:
    """Write the picture, and with ``--full`` the tables; return 1 if a check finds a difference."""
    writer = Writer(check="--check" in sys.argv)
    writer.write("docs/rate-limits.svg", MARKUP_HEADER + picture())
    if "--full" in sys.argv:
        text = replace(writer.read("docs/rate-limits.md"), "targets", table(measure(quick=False)))
        writer.write("docs/rate-limits.md", replace(text, "strategies", strategies(quick=False)))
    return writer.report()


if __name__ == "__main__":
    sys.exit(main())

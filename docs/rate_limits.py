"""Write the picture of rate-limits.md, and the tables of limits-internals.md.

Run ``python docs/rate_limits.py [--check] [--tables] [--full]``: ``--tables`` measures the small sample, and
``--full`` everything. The picture shows runs in virtual time against a server with a quota: chainapi, and two
usual strategies.
"""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

# The root of the project is on the path from here on.
from chainapi._tooling.files import MARKUP_HEADER, Writer
from tests.limits import runs
from tests.limits.report import measure, strategies, table
from tests.limits.runs import Case
from tests.limits.servers import Clocked

WIDTH, HEIGHT, LEFT, TOP = 720, 130, 150, 40
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
    floor, tallest = top + HEIGHT - 20, HEIGHT - 45
    stops = sorted({(round(begin), round(min(end, SECONDS))) for begin, end in run.stops if begin < SECONDS})
    counts = Counter(int(when) for when, _ in run.sent if when < SECONDS)
    about = f"{len(run.passed):,} done in {run.seconds:.0f} s", f"{run.refusals} refused"
    return [
        f'<text x="8" y="{top + 45}" class="name">{name}</text>',
        *(f'<text x="8" y="{top + 62 + 16 * line}">{text}</text>' for line, text in enumerate(about)),
        *(band(x(begin), top, max(1.0, x(end) - x(begin)), HEIGHT - 20, "stop") for begin, end in stops),
        *(bar(x(second), floor, max(1.0, min(1.0, n / 400.0) * tallest)) for second, n in counts.items()),
        *(cross(x(when), top + 10) for when in sorted({begin for begin, _ in stops})),
        f'<line x1="{LEFT}" y1="{floor}" x2="{LEFT + WIDTH}" y2="{floor}" class="axis"/>',
    ]


def band(left: float, top: float, wide: float, tall: float, kind: str) -> str:
    """Draw a rectangle."""
    return f'<rect x="{left:.1f}" y="{top:.1f}" width="{wide:.1f}" height="{tall:.1f}" class="{kind}"/>'


def bar(left: float, floor: float, tall: float) -> str:
    """Draw the requests of a second."""
    return band(left, floor - tall, 3.0, tall, "sent")


def cross(middle: float, top: float) -> str:
    """Draw a refusal."""
    return f'<text x="{middle - 4:.1f}" y="{top:.1f}" class="refused">&#215;</text>'


def legend() -> list[str]:
    """Say what bars, crosses and bands are."""
    return [
        bar(LEFT, 24, 14),
        f'<text x="{LEFT + 9}" y="24">requests sent in a second</text>',
        cross(LEFT + 204, 24),
        f'<text x="{LEFT + 214}" y="24">refused with 429</text>',
        band(LEFT + 330, 11, 20, 14, "stop"),
        f'<text x="{LEFT + 356}" y="24">wait that the service asked for</text>',
    ]


def picture() -> str:
    """Return the picture as SVG."""
    case = Case("window on the clock", lambda: Clocked(400.0, 60.0, phase=23.0), [1.0] * 1600, 32, tail=True)
    known = runs.knowing(case)
    shown = {
        "chainapi": runs.gate(case),
        "AsyncLimiter": runs.plain(case, "bucket", 20 * known.seconds),
        "retry each": runs.plain(case, "blind", 20 * known.seconds),
    }
    bottom = TOP + HEIGHT * len(shown)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {LEFT + WIDTH + 30} {bottom + 15}">',
        "<title>Requests over time: chainapi and two usual strategies, 400 requests a minute allowed</title>",
        f"<style>{STYLE}</style>",
        *legend(),
    ]
    for number, (name, run) in enumerate(shown.items()):
        lines += lane(TOP + number * HEIGHT, name, run)
    for second in range(0, int(SECONDS) + 1, 20):
        lines.append(f'<text x="{x(second) - 8:.1f}" y="{bottom + 5}" class="note">{second} s</text>')
    return "\n".join([*lines, "</svg>", ""])


def replace(text: str, name: str, content: str) -> str:
    """Return the text with `content` between the two marks of `name`."""
    begin, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->"
    head, rest = text.split(begin)
    return f"{head}{begin}{content}\n{end}{rest.split(end)[1]}"


def main() -> int:
    """Write the picture, and tables on demand; return 1 if a check finds a difference."""
    writer = Writer(check="--check" in sys.argv)
    writer.write("docs/rate-limits.svg", MARKUP_HEADER + picture())
    if {"--tables", "--full"} & {*sys.argv}:
        quick, page = "--full" not in sys.argv, "docs/limits-internals.md"
        text = replace(writer.read(page), "targets", table(measure(quick)))
        writer.write(page, replace(text, "strategies", strategies(quick=False)))
    return writer.report()


if __name__ == "__main__":
    sys.exit(main())

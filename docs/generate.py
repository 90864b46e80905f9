"""Make the generated parts of the docs anew; with `--check`, fail where one is old.

A part stands in a page between ``<!-- begin NAME -->`` and ``<!-- end NAME -->``.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path

from chainapi.core.paging import TRANSITIONS, State

DOCS = Path(__file__).parent


def states() -> str:
    """Draw the states of a walk as the code has them."""
    lines = ["```mermaid", "stateDiagram-v2", f"    [*] --> {State.FIRST.name}"]
    lines += [f"    {state.name}: {state.value}" for state in State]
    for state, steps in TRANSITIONS.items():
        lines += [f"    {state.name} --> {to.name}: {step.value}" for step, to in steps.items()]
    lines += [f"    {state.name} --> [*]" for state, steps in TRANSITIONS.items() if not steps]
    return "\n".join([*lines, "```"])


PARTS: dict[str, Callable[[], str]] = {"states": states}


def generated(text: str) -> str:
    """Return a page with its generated parts made anew."""

    def part(match: re.Match[str]) -> str:
        name = match[1]
        return f"<!-- begin {name} -->\n\n{PARTS[name]()}\n\n<!-- end {name} -->"

    return re.sub(r"<!-- begin (\w+) -->.*?<!-- end \1 -->", part, text, flags=re.DOTALL)


def main() -> int:
    """Write what has changed, or only tell; return 1 where a check fails."""
    old = 0
    for page in sorted(DOCS.glob("*.md")):
        text = page.read_text("utf-8")
        if (new := generated(text)) == text:
            continue
        old += 1
        print(f"{page.name} {'is old' if '--check' in sys.argv else 'is made anew'}")
        if "--check" not in sys.argv:
            page.write_text(new, "utf-8")
    return int("--check" in sys.argv and old > 0)


if __name__ == "__main__":
    sys.exit(main())

"""Make the generated parts of the docs anew; with `--check`, fail where one is old.

A part stands in a page between ``<!-- begin NAME ARGUMENT -->`` and ``<!-- end -->``.
"""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Callable
from pathlib import Path

from rich.console import Console

from chainapi.catalogue import ROUTES
from chainapi.cli import app
from chainapi.core.paging import TRANSITIONS, State

DOCS = Path(__file__).parent
MARKED = re.compile(r"(<!-- begin (\w+)(?: ([^\n>]+?))? -->).*?(<!-- end -->)", re.DOTALL)


def help_text(command: str) -> str:
    """Return what ``COMMAND --help`` prints on a screen of 80 columns."""
    out = io.StringIO()
    app.help_print(command.split()[1:], console=Console(file=out, width=80, color_system=None))
    lines = (line.rstrip() for line in out.getvalue().strip().splitlines())
    return "\n".join(["```text", *lines, "```"])


def states(_: str) -> str:
    """Draw the states of a walk as the code has them."""
    lines = ["```mermaid", "stateDiagram-v2", f"    [*] --> {State.FIRST.name}"]
    lines += [f"    {state.name}: {state.value}" for state in State]
    for state, steps in TRANSITIONS.items():
        lines += [f"    {state.name} --> {to.name}: {step.value}" for step, to in steps.items()]
    lines += [f"    {state.name} --> [*]" for state, steps in TRANSITIONS.items() if not steps]
    return "\n".join([*lines, "```"])


def routes(service: str) -> str:
    """List the routes of a service: method, what it gives, weight, path."""
    lines = ["| Method | Gives | Weight | Route |", "|---|---|---|---|"]
    for name, declared in ROUTES.items():
        if not name.startswith(f"{service}."):
            continue
        route, gives = declared.route, declared.function.__annotations__["return"]
        names = ", ".join(parameter.name for parameter in declared.parameters if parameter.required)
        old = " (deprecated)" if route.deprecated else ""
        lines.append(f"| `{name}({names})`{old} | `{gives}` | {route.weight or ''} | `{route.path}` |")
    return "\n".join(lines)


PARTS: dict[str, Callable[[str], str]] = {"help": help_text, "routes": routes, "states": states}


def generated(text: str) -> str:
    """Return a page with its generated parts made anew."""

    def part(match: re.Match[str]) -> str:
        made = PARTS[match[2]](match[3] or "")
        return f"{match[1]}\n\n{made}\n\n{match[4]}"

    return MARKED.sub(part, text)


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

"""Make the generated parts of the docs anew; with `--check`, fail where one is old.

A part stands in a page between ``<!-- begin NAME ARGUMENT -->`` and ``<!-- end -->``.
"""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from rich.console import Console

from chainapi.api.catalogue import ROUTES
from chainapi.api.routes import Route
from chainapi.cli import app
from chainapi.core.paging.states import TRANSITIONS, State

DOCS = Path(__file__).parents[2] / "docs"
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


def keys(service: str) -> str:
    """List what identifies a row of each list of a service, and the number by which it descends."""
    lines = ["| List | A row is identified by | Descends by |", "|---|---|---|"]
    for name, declared in ROUTES.items():
        if not declared.single and name.startswith(f"{service}."):
            lines.append(f"| `{name}` | {_identity(declared.route)} | {_order(declared.route)} |")
    return "\n".join(lines)


def _identity(route: Route) -> str:
    if route.key:
        return _listed(route.key) + _condition(route, "key")
    kinds = [f"{_listed(names)} of an `{kind}`" for kind, names in route.kind_keys]
    return "; ".join([*kinds, "others: nothing"]) if kinds else "nothing"


def _order(route: Route) -> str:
    return f"`{route.descending_key}`" + _condition(route, "descending_key") if route.descending_key else ""


def _listed(names: Sequence[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _condition(route: Route, what: str) -> str:
    """Say which values of parameters something needs."""
    needed = [
        f"`{name}=`" if value is None else f'`{name}="{value}"`'
        for field, name, value in route.holds_if
        if field == what
    ]
    return f", with {' and '.join(needed)}" if needed else ""


PARTS: dict[str, Callable[[str], str]] = {"help": help_text, "keys": keys, "routes": routes, "states": states}


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

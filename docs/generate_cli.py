"""Writes the help texts of the command line into docs/cli.md; with --check, only compares them."""

from __future__ import annotations

import io
import re
import sys
from pathlib import Path

from rich.console import Console

from chainapi.cli import app

PAGE = Path(__file__).with_name("cli.md")
MARKED = re.compile(r"(<!-- help: (.*?) -->\n).*?(<!-- end -->)", re.DOTALL)


def help_text(command: str) -> str:
    """Return what ``COMMAND --help`` prints on a screen of 80 columns."""
    out = io.StringIO()
    app.help_print(command.split()[1:], console=Console(file=out, width=80, color_system=None))
    return "\n".join(line.rstrip() for line in out.getvalue().strip().splitlines())


def filled(page: str) -> str:
    """Return the page with the help texts between its markers."""
    return MARKED.sub(lambda found: f"{found[1]}```text\n{help_text(found[2])}\n```\n{found[3]}", page)


def main() -> int:
    """Write the page, or compare it."""
    page = PAGE.read_text("utf-8")
    wanted = filled(page)
    if "--check" in sys.argv:
        return 0 if page == wanted else 1
    PAGE.write_text(wanted, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())

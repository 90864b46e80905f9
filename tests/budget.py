"""Budgets: the size of the package, its tests and its docs, which only falls.

``python -m tests.budget`` prints the figures beside those in `budget.toml`; with ``--record`` it lowers the
recorded figures to the measured ones, and never raises one.
"""

from __future__ import annotations

import argparse
import ast
import asyncio
import io
import re
import sys
import tempfile
import threading
import tokenize
import tomllib
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from fnmatch import fnmatch
from functools import cache
from inspect import signature
from itertools import count
from math import ceil
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Self

from chainapi import Session
from chainapi.export import export
from chainapi.simulator import Simulator
from tests import tiers

__all__ = ["FIGURES", "ROOT", "Figures", "measured", "recorded", "room_of"]

ROOT = Path(__file__).parents[1]
FIGURES = Path(__file__).with_name("budget.toml")
Figures = dict[str, float]

# Rooms by the design: the modules of a room, where they were and where they move to.
HEART: Mapping[str, Sequence[str]] = {
    "face": (
        "__init__ _version session script sync json webhooks errors events transport _config _text _hints py",
        "core core.extras core.arguments core.numbers core.duration core.private _background",
    ),
    "http": ("_http _http.* core.idempotency core.canonical_json",),
    "limits": ("_limits _limits.*",),
    "paging": ("_paging _paging.*",),
    "models": ("models models.*",),
    "tables": ("_tables _tables.*",),
    "api": ("_api _api.* api api.*",),
}
EDGES: Mapping[str, Sequence[str]] = {
    "export": ("export export.*",),
    "share": ("_share _share.* share share.* core.share core.share.*",),
    "dask": ("dask dask.*",),
    "simulator": ("simulator simulator.*",),
    "testing": ("testing testing.*",),
    "cli": ("_cli _cli.* cli cli.* __main__",),
    "contrib": ("contrib contrib.*",),
    "otel": ("otel otel.*",),
    "tooling": ("_tooling _tooling.*",),
}
BRANCHES = (ast.If, ast.For, ast.AsyncFor, ast.While, ast.IfExp, ast.ExceptHandler, ast.comprehension)


def modules() -> dict[str, Path]:
    """Return each module of the package by its name below `chainapi`."""
    found: dict[str, Path] = {}
    for path in sorted((ROOT / "chainapi").rglob("*.py")):
        parts = path.relative_to(ROOT / "chainapi").with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" and len(parts) > 1 else parts)] = path
    return found


def room_of(module: str) -> str:
    """Return the room of a module; a module of none, or of two, is an error."""
    rooms = [
        room
        for room, lines in {**HEART, **EDGES}.items()
        if any(fnmatch(module, pattern) for pattern in " ".join(lines).split())
    ]
    if len(rooms) != 1:
        raise LookupError(f"{module} is in the rooms {rooms}: name it in one of them in tests/budget.py")
    return rooms[0]


@cache
def tree(path: Path) -> ast.Module:
    """Parse a module."""
    return ast.parse(path.read_text("utf-8"))


def is_generated(path: Path) -> bool:
    """Check for a file that the tooling writes."""
    return path.read_text("utf-8").startswith("# Generated")


def lines_of(path: Path) -> int:
    """Return the number of lines of a file."""
    return path.read_text("utf-8").count("\n")


def code_lines(path: Path) -> int:
    """Return the number of lines with code: no blank ones, comments and docstrings."""
    text = path.read_text("utf-8")
    docs = {
        line
        for node in ast.walk(tree(path))
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }
    skipped = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT}
    lines = {
        line
        for token in tokenize.generate_tokens(io.StringIO(text).readline)
        if token.type not in skipped and token.type != tokenize.ENDMARKER
        for line in range(token.start[0], token.end[0] + 1)
    }
    return len(lines - docs)


def functions(path: Path) -> Iterator[tuple[int, int]]:
    """Yield the length and the complexity of each function of a module."""
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            inner = [*ast.walk(node)]
            boolean = sum(len(each.values) - 1 for each in inner if isinstance(each, ast.BoolOp))
            yield (
                (node.end_lineno or 0) - node.lineno + 1,
                1 + boolean + sum(isinstance(each, BRANCHES) for each in inner),
            )


def words_of(path: Path) -> int:
    """Return the number of words of a page as its reader sees them, without code blocks."""
    text = re.sub(r"(?ms)^(`{3,}|~{3,}).*?^\1\s*$", "", path.read_text("utf-8"))
    text = re.sub(r"(?s)<!--.*?-->|<[^>\n]+>", "", text)
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", text)
    return sum(any(map(str.isalnum, word)) for word in text.replace("|", " ").split())


def percentile(values: Sequence[int], share: float) -> int:
    """Return the value that this share of the values does not exceed."""
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def sizes() -> Figures:
    """Return the lines and modules of each room, and what the heart and all functions measure."""
    found, paths = dict[str, float](), modules()
    for module, path in paths.items():
        room = room_of(module)
        for name, value in (("lines", lines_of(path)), ("modules", 1)):
            for owner in (room, "all"):
                key = f"{owner}.{name}"
                found[key] = found.get(key, 0) + value
    heart = [path for name, path in paths.items() if room_of(name) in HEART and not is_generated(path)]
    found["heart.lines"] = sum(map(lines_of, heart))
    found["heart.code"] = sum(map(code_lines, heart))
    found["heart.files"] = len(heart)
    written = [path for path in paths.values() if not is_generated(path)]
    lengths, complexities = zip(*(each for path in written for each in functions(path)), strict=True)
    found["functions.p90_lines"] = percentile(lengths, 0.9)
    found["functions.most_lines"] = max(lengths)
    found["functions.most_complex"] = max(complexities)
    found["files.most_lines"] = max(map(lines_of, written))
    found["option.files"] = sum(
        "max_waiting" in path.read_text("utf-8")
        for name, path in paths.items()
        if not is_generated(path) and room_of(name) != "cli"
    )
    return found


def interfaces() -> Figures:
    """Return the number of public names but for events, and of arguments."""
    owners = [names for module, names in tiers.public_names().items() if module != "chainapi.events"]
    return {
        "public.names": len(set[str]().union(*owners)),
        "session.arguments": _arguments(Session),
        "export.arguments": _arguments(export),
    }


def _arguments(called: Callable[..., Any]) -> int:
    kinds = (each.kind for each in signature(called).parameters.values())
    return sum(kind not in (kind.VAR_KEYWORD, kind.VAR_POSITIONAL) for kind in kinds)


def texts() -> Figures:
    """Return the sizes of the tests, and the words of the docs."""
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    found = tiers.test_modules()
    tests = [test for module in found for test in module.tests]
    rules = [test for test in tests if test.tier == tiers.TIERS["rule"]]
    return {
        "tests.lines": sum(map(lines_of, (ROOT / "tests").rglob("*.py"))),
        "tests.rule_lines": sum(module.lines for module in found if module.is_rule()),
        "tests.rule_percent": ceil(100 * len(rules) / len(tests)),
        "tests.undocumented_imports": sum(map(len, tiers.undocumented().values())),
        "docs.words": sum(map(words_of, pages)),
    }


class Traced:
    """Code objects of the package that run while this is entered."""

    def __init__(self) -> None:
        self.codes: set[CodeType] = set()
        self.on = True

    def __enter__(self) -> Self:
        package = str(ROOT / "chainapi") + "/"

        def note(frame: FrameType, event: str, _: object) -> None:
            if self.on and event == "call" and frame.f_code.co_filename.startswith(package):
                self.codes.add(frame.f_code)

        threading.setprofile(note)  # of the threads that are started from here on
        sys.setprofile(note)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)
        threading.setprofile(None)

    def figures(self, name: str) -> Figures:
        """Return the number of functions and files."""
        own = [code for code in self.codes if "/simulator/" not in code.co_filename]
        files = {code.co_filename for code in own}
        return {f"{name}.functions": len(own), f"{name}.files": len(files)}


async def paths() -> Figures:
    """Return the functions and files that a page, a resource, and a page of an export with its commit pass.

    The simulator listens on a port, so that the transport is the real one.
    """
    found: Figures = {}
    async with Simulator(rows=40, latency=0.1) as simulator, Session(**_addresses(simulator)) as session:
        async with session.data.evm.blocks(43114, page_size=10) as pages:
            await anext(pages)
            with Traced() as traced:
                await anext(pages)
            found |= traced.figures("page")
        await session.data.get("/v1/chains/43114")
        with Traced() as traced:
            await session.data.get("/v1/chains/43114")
        found |= traced.figures("resource")
        for _ in range(2):  # the first export loads its modules
            with tempfile.TemporaryDirectory() as folder, Traced() as traced:
                await _exported(session, Path(folder) / "blocks.jsonl", traced)
        found |= traced.figures("exported_page")
    return found


async def _exported(session: Session, out: Path, traced: Traced) -> None:
    """Export a list; trace one of its pages, from the commit of one to that of the next."""
    reports = count()

    def trace(_: object) -> None:
        traced.on = next(reports) == 1

    traced.on = False
    walk = session.data.evm.blocks
    await export(walk, [43114], out, page_size=10, commit_seconds=0, progress=trace)


def _addresses(simulator: Simulator) -> dict[str, Any]:
    return {
        "metrics_base_url": simulator.metrics_base_url,
        "data_base_url": simulator.data_base_url,
        "api_key": simulator.api_key,
    }


@cache
def measured() -> Figures:
    """Measure everything."""
    run: Callable[[Coroutine[Any, Any, Figures]], Figures] = asyncio.run
    return {**sizes(), **interfaces(), **texts(), **run(paths())}


def recorded() -> Figures:
    """Return the recorded figures, the greatest that are allowed."""
    owners = tomllib.loads(FIGURES.read_text("utf-8"))
    return {f"{owner}.{name}": value for owner, names in owners.items() for name, value in names.items()}


def record(figures: Figures) -> None:
    """Write the figures."""
    lines = [
        "# The greatest figures that are allowed. `python -m tests.budget --record` lowers them.",
        "# One that has to rise while a room is rebuilt beside the old one is raised by hand, with a reason.",
        "",
    ]
    for owner in dict.fromkeys(key.partition(".")[0] for key in figures):
        lines.append(f"[{owner}]")
        lines += [
            f"{key.partition('.')[2]} = {int(value)}"
            for key, value in figures.items()
            if key.startswith(f"{owner}.")
        ]
        lines.append("")
    FIGURES.write_text("\n".join(lines[:-1]) + "\n", "utf-8")


def main() -> None:
    """Print the figures, and record them on request."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--record", action="store_true", help="lower the recorded figures to the measured ones"
    )
    chosen = parser.parse_args()
    allowed = recorded() if FIGURES.exists() else {}
    for key, value in measured().items():
        print(f"{key:28}{value:10.0f}{allowed.get(key, value):10.0f}")
    if chosen.record:
        record({key: min(value, allowed.get(key, value)) for key, value in measured().items()})


if __name__ == "__main__":
    main()

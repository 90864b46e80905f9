"""Tests as their sources declare them: tier, name, and what each module imports of the package.

A test without a marker is of tier 2: it calls documented names, in virtual time. ``rule`` is tier 1,
``adapter`` tier 3 and ``proof`` tier 4; a marker of a function replaces that of its module.

``python -m tests.tiers`` prints the functions and lines of each tier; with ``--record`` it writes
`undocumented.toml`, the list of imports that the rule of imports still has to allow.
"""

from __future__ import annotations

import argparse
import ast
import re
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path

from attrs import frozen

__all__ = [
    "ALLOWED",
    "DOCUMENTED",
    "TIERS",
    "Test",
    "TestModule",
    "allowed",
    "public_names",
    "test_modules",
    "undocumented",
]

ROOT = Path(__file__).parents[1]
ALLOWED = Path(__file__).with_name("undocumented.toml")
TIERS = {"rule": 1, "adapter": 3, "proof": 4}
DEFAULT_TIER = 2


def public_names() -> dict[str, set[str]]:
    """Return the public names by their modules, as the page that promises them lists them."""
    page = (ROOT / "docs" / "api.md").read_text("utf-8")
    listed = re.findall(r"automodule:: (\S+)\n +:members: ([\w,\s]+)", page)
    names = {module: {*re.findall(r"\w+", members)} for module, members in listed}
    return {
        "chainapi": {*re.findall(r"auto(?:class|data|function):: chainapi\.(\w+)$", page, re.MULTILINE)}
    } | names


# What users import: the modules with public names, and others that the pages of docs name.
DOCUMENTED = frozenset(
    {
        *public_names(),
        "chainapi.__main__",
        "chainapi.core.idempotency",
        "chainapi.models",
        "chainapi.models.enums",
        "chainapi.script",
        "chainapi.testing.plugin",
    }
)


@frozen
class Test:
    """Test function: its place, as in `promises.toml`, and its tier."""

    __test__ = False

    file: str
    name: str
    tier: int

    def __str__(self) -> str:
        return f"{self.file}::{self.name}"


@frozen
class TestModule:
    """Module below tests: its test functions, and the modules of the package that it imports."""

    __test__ = False

    file: str
    lines: int
    tests: tuple[Test, ...]
    imports: frozenset[str]

    def is_rule(self) -> bool:
        """Check for a module whose tests are all of tier 1."""
        return bool(self.tests) and {test.tier for test in self.tests} == {TIERS["rule"]}


@cache
def test_modules() -> tuple[TestModule, ...]:
    """Parse each module below tests."""
    return tuple(_read(path) for path in sorted((ROOT / "tests").rglob("*.py")))


test_modules.__test__ = False  # type: ignore[attr-defined]  # pytest collects nothing from it


def _read(path: Path) -> TestModule:
    text = path.read_text("utf-8")
    tree, file = ast.parse(text), path.relative_to(ROOT).as_posix()
    default = DEFAULT_TIER
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "pytestmark":
            default = _tier([node.value], default)
    functions = [
        node
        for node in _collected(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_")
    ]
    tests = tuple(Test(file, node.name, _tier(node.decorator_list, default)) for node in functions)
    collected = tests if path.name.startswith("test_") else ()
    return TestModule(file, text.count("\n"), collected, frozenset(_imports(tree)))


def _collected(tree: ast.Module) -> list[ast.stmt]:
    classes = (node for node in tree.body if isinstance(node, ast.ClassDef) and node.name.startswith("Test"))
    return [*tree.body, *(each for node in classes for each in node.body)]


def _tier(marks: Iterable[ast.expr], default: int) -> int:
    names = {
        node.attr
        for mark in marks
        if "parametrize" not in ast.unparse(mark)[:30]  # marks of single cases do not move the test
        for node in ast.walk(mark)
        if isinstance(node, ast.Attribute)
    }
    return next((tier for name, tier in TIERS.items() if name in names), default)


def _imports(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module or ""]
        else:
            continue
        yield from (name for name in names if name.partition(".")[0] == "chainapi")


def undocumented() -> dict[str, list[str]]:
    """Return what modules outside of tier 1 import beside documented names."""
    found = {each.file: sorted(each.imports - DOCUMENTED) for each in test_modules() if not each.is_rule()}
    return {file: names for file, names in found.items() if names}


def allowed() -> Mapping[str, list[str]]:
    """Return the imports that the rule still allows."""
    found: Mapping[str, list[str]] = tomllib.loads(ALLOWED.read_text("utf-8"))
    return found


def record() -> None:
    """Write the imports that are allowed: those of today which were allowed before, if there is a list."""
    before, lines = allowed() if ALLOWED.exists() else None, []
    for file, names in undocumented().items():
        kept = [name for name in names if before is None or name in before.get(file, ())]
        if kept:
            lines.append(f'"{file}" = [{", ".join(map(repr, kept))}]'.replace("'", '"'))
    head = "# Undocumented imports outside of tier 1. `python -m tests.tiers --record` shrinks it."
    ALLOWED.write_text("\n".join([head, *lines]) + "\n", "utf-8")


def main() -> None:
    """Print the tiers, and record the allowed imports on request."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--record", action="store_true", help="write the list of allowed imports")
    chosen = parser.parse_args()
    functions = Counter(test.tier for module in test_modules() for test in module.tests)
    for tier in sorted(functions):
        print(f"tier {tier}: {functions[tier]} functions")
    print("lines of modules of tier 1:", sum(each.lines for each in test_modules() if each.is_rule()))
    names = [name for each in undocumented().values() for name in each]
    print(f"undocumented imports outside of tier 1: {len(names)} in {len(undocumented())} modules")
    if chosen.record:
        record()


if __name__ == "__main__":
    main()

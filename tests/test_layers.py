"""Which module may import which: the core is pure, imports point one way, aiohttp's client has one door.

The rules are checked on the source, so that an import inside of a function counts like any other. What only
type checkers read (`if TYPE_CHECKING:`) is no import at run time.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from attrs import frozen

import chainapi

ROOT = Path(chainapi.__file__).parent

# What the core may import: nothing that waits, reads a clock, draws lots, logs, or reaches out.
PURE_STANDARD = frozenset(
    {"__future__", "base64", "bisect", "collections", "enum", "fractions", "functools", "hashlib", "heapq"}
    | {"itertools", "json", "math", "operator", "re", "string", "types", "typing", "urllib"}
)
PURE = PURE_STANDARD | {"attrs", "msgspec"}
# Names that would let a clock or a socket in by the back door of a module that is pure otherwise.
PURE_NAMES = {
    "datetime": frozenset({"UTC", "datetime", "timedelta", "timezone"}),  # as values: `now` is looked for
    "http": frozenset({"HTTPStatus"}),
    "urllib": frozenset({"parse"}),
}
CLOCKS = frozenset(
    {"now", "utcnow", "today", "time", "monotonic", "perf_counter", "urandom", "uuid4", "uuid1"}
)

# Layers from the bottom up; a module imports from its own layer and from those below. What is named nowhere
# is an edge: it stands on top, and nobody imports it but edges.
LAYERS = (
    ("_version", "_text", "errors"),
    ("core",),
    ("models",),
    ("client",),
    ("api",),
    ("session", "transport"),
    ("__init__",),
)
EDGES = frozenset({"cli", "__main__", "export", "simulator"})
# The simulator is a service: of the client it knows what crosses the wire and the errors. Two of its
# modules read what both have in common, the records of routes and models, when a path needs them.
SIMULATOR_MAY = frozenset({"core.http", "errors"})
RECORDS = frozenset({"api.catalogue", "api.binding", "models.metrics", "models.unions", "api.parameters"})
RECORDS_DOORS = frozenset({"simulator.table", "simulator.made"})
CLIENT_DOOR = "client.transport"


@frozen
class Import:
    """One import at run time: which module imports what, on which line."""

    importer: str
    module: str
    names: tuple[str, ...]
    line: int

    def __str__(self) -> str:
        names = f" ({', '.join(self.names)})" if self.names else ""
        return f"{self.importer}:{self.line} imports {self.module}{names}"


class _RunTime(ast.NodeVisitor):
    """Collects the imports of a module, those of type checkers apart, and the clocks that it reads."""

    def __init__(self, name: str, package: str) -> None:
        self.name = name
        self.package = package
        self.imports: list[Import] = []
        self.clocks: list[str] = []

    def visit_If(self, node: ast.If) -> None:
        """Pass over what only type checkers read."""
        if ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING"):
            for other in node.orelse:
                self.visit(other)
        else:
            self.generic_visit(node)

    def visit_Import(self, node: ast.Import) -> None:
        """Take note of `import a.b`."""
        for alias in node.names:
            self.imports.append(Import(self.name, alias.name, (), node.lineno))

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        """Take note of `from a.b import c`, relative ones included."""
        module = node.module or ""
        if node.level:
            above = self.package.split(".")
            module = ".".join([*above[: len(above) - node.level + 1], *([module] if module else [])])
        names = tuple(alias.name for alias in node.names)
        self.imports.append(Import(self.name, module, names, node.lineno))

    def visit_Call(self, node: ast.Call) -> None:
        """Take note of calls that read a clock, such as `datetime.now()`, and of hidden imports."""
        called = ast.unparse(node.func)
        owner, _, method = called.rpartition(".")
        if (method in CLOCKS and owner in ("datetime", "date", "time", "os", "uuid")) or called in (
            "__import__",
            "importlib.import_module",
        ):
            self.clocks.append(f"{self.name}:{node.lineno} calls {called}")
        self.generic_visit(node)


@frozen
class Package:
    """The modules of a package, by their names below it, with what each imports and which clocks it reads."""

    name: str
    imports: dict[str, list[Import]]
    clocks: dict[str, list[str]]

    @classmethod
    def read(cls, root: Path, name: str = "chainapi") -> Package:
        """Parse every module below `root`."""
        imports: dict[str, list[Import]] = {}
        clocks: dict[str, list[str]] = {}
        for path in sorted(root.rglob("*.py")):
            parts = list(path.relative_to(root).with_suffix("").parts)
            package = ".".join([name, *parts[:-1]])
            if parts[-1] == "__init__" and len(parts) > 1:
                parts.pop()
            module = ".".join(parts)
            visitor = _RunTime(module, package)
            visitor.visit(ast.parse(path.read_text("utf-8")))
            imports[module], clocks[module] = visitor.imports, visitor.clocks
        return cls(name, imports, clocks)

    def ours(self, module: str) -> Iterator[tuple[str, Import]]:
        """Yield the modules of this package that `module` imports."""
        for entry in self.imports[module]:
            if entry.module != self.name and not entry.module.startswith(f"{self.name}."):
                continue
            below = entry.module.removeprefix(self.name).removeprefix(".")
            # `from chainapi.core import paging` imports the module, not only the package.
            inner = [f"{below}.{name}".removeprefix(".") for name in entry.names]
            modules = [name for name in inner if name in self.imports]
            if len(modules) < len(inner) or not inner:
                modules.append(below or "__init__")
            for target in modules:
                yield target, entry


def faults_of(package: Package) -> list[str]:
    """Return every breach of the rules, in words."""
    return [
        *_impure(package),
        *_upward(package),
        *_cycles(package),
        *_doors(package),
        *_simulator(package),
    ]


def _top(module: str) -> str:
    return module.partition(".")[0]


def _layer(module: str) -> int:
    for number, names in enumerate(LAYERS):
        if _top(module) in names:
            return number
    return len(LAYERS)


def _impure(package: Package) -> Iterator[str]:
    for module, entries in package.imports.items():
        if _top(module) != "core":
            continue
        for entry in entries:
            top = _top(entry.module)
            if top == package.name:
                continue
            names = {entry.module.partition(".")[2] or name for name in entry.names or ("",)}
            if top in PURE_NAMES and entry.names and names <= PURE_NAMES[top]:
                continue
            if top not in PURE or top in PURE_NAMES:
                yield f"{entry}: the core is pure"
        for target, entry in package.ours(module):
            if _top(target) not in ("core", "errors"):
                yield f"{entry}: the core imports the core and the errors only"
        yield from (f"{clock}: the core reads no clock" for clock in package.clocks[module])


def _upward(package: Package) -> Iterator[str]:
    for module in package.imports:
        for target, entry in package.ours(module):
            if _top(module) == "simulator" and _top(target) == "simulator":
                continue
            if _layer(target) > _layer(module):
                yield f"{entry}: imports point down, and edges are imported by edges only"
            if _top(module) == "_text" or (_top(module) == "errors" and _top(target) != "_text"):
                yield f"{entry}: the errors import nothing of ours but _text"
    for module in package.imports:
        if _layer(module) == len(LAYERS) and _top(module) not in EDGES:
            yield f"{module} is in no layer and no edge"


def _cycles(package: Package) -> Iterator[str]:
    """Yield each cycle once, by a search in depth."""
    # What is inside of a package imports past its __init__, which only gathers names.
    graph = {
        module: sorted({target for target, _ in package.ours(module)} - {module})
        for module in package.imports
    }
    done: set[str] = set()

    def search(module: str, path: tuple[str, ...]) -> Iterator[str]:
        if module in path:
            yield f"cycle: {' -> '.join((*path[path.index(module) :], module))}"
            return
        if module in done:
            return
        for target in graph.get(module, ()):
            yield from search(target, (*path, module))
        done.add(module)

    for module in graph:
        yield from search(module, ())


def _doors(package: Package) -> Iterator[str]:
    for module, entries in package.imports.items():
        for entry in entries:
            of_aiohttp = _top(entry.module) == "aiohttp"
            server = entry.module == "aiohttp.web" or (entry.module == "aiohttp" and entry.names == ("web",))
            if of_aiohttp and module != CLIENT_DOOR and not (server and module == "simulator.server"):
                yield f"{entry}: only {CLIENT_DOOR} knows aiohttp"


def _simulator(package: Package) -> Iterator[str]:
    for module in package.imports:
        if _top(module) != "simulator":
            continue
        may = SIMULATOR_MAY | (RECORDS if module in RECORDS_DOORS else frozenset())
        for target, entry in package.ours(module):
            if _top(target) != "simulator" and target not in may:
                yield f"{entry}: the simulator knows nothing of the client"


# The package as it is.


def test_the_package_keeps_the_rules() -> None:
    """The core is pure, imports point one way without a cycle, and each door is used by its keeper."""
    assert faults_of(Package.read(ROOT)) == []


def test_the_package_was_read() -> None:
    """The checker saw the modules and imports that are there."""
    package = Package.read(ROOT)
    assert {
        "__init__",
        "errors",
        "core",
        "core.paging.walk",
        "models.convert",
        "client.transport",
        "session",
    } <= set(package.imports)
    assert "errors" in {target for target, _ in package.ours("core.paging.walk")}
    assert "_version" in {target for target, _ in package.ours("__init__")}
    assert "aiohttp" in {entry.module for entry in package.imports["client.transport"]}
    # For type checkers only, or there would be a cycle.
    assert "core.paging.checkpoint" not in {target for target, _ in package.ours("errors")}


def test_the_pure_modules_are_there() -> None:
    """What the core may import from the standard library is of the standard library."""
    assert not PURE_STANDARD - sys.stdlib_module_names
    assert not PURE & {"asyncio", "aiohttp", "time", "random", "logging", "datetime", "os", "socket", "uuid"}


# The checker itself: a small house, in order and with each rule broken.

HOUSE = {
    "__init__.py": "from chainapi.session import Session\n",
    "errors.py": (
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from chainapi.core.paging import Walk\n"
    ),
    "core/__init__.py": "",
    "core/paging.py": (
        "import math\nfrom urllib.parse import quote\nfrom datetime import datetime, UTC\n"
        "import attrs\nfrom chainapi.errors import ChainAPIError\n"
    ),
    "core/dates.py": "from chainapi.core import paging\n",
    "models/__init__.py": "from .convert import converter\n",
    "models/convert.py": "def converter():\n    import cattrs\n    from ..core.paging import Walk\n",
    "client/transport.py": "import aiohttp\n",
    "session.py": "from chainapi import errors\nfrom chainapi.client import transport\n",
    "simulator/__init__.py": "from chainapi.simulator.server import Server\n",
    "simulator/server.py": "from aiohttp import web\nfrom chainapi.core.http import Request\n",
    "core/http.py": "",
    "cli/__init__.py": "from chainapi.session import Session\nfrom chainapi.simulator import Simulator\n",
}


def house(root: Path, **changed: str) -> Package:
    """Build the house, with some modules changed: `core__paging` stands for core/paging.py."""
    for name, text in HOUSE.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        added = changed.pop(name.removesuffix(".py").replace("/", "__"), "")
        path.write_text(text + added, "utf-8")
    for name, text in changed.items():
        (root / f"{name.replace('__', '/')}.py").write_text(text, "utf-8")
    return Package.read(root)


def test_a_house_in_order_has_no_faults(tmp_path: Path) -> None:
    """Function-level, relative and type-checking imports are all read for what they are."""
    package = house(tmp_path)
    assert faults_of(package) == []
    assert [target for target, _ in package.ours("models.convert")] == ["core.paging"]
    assert [target for target, _ in package.ours("models")] == ["models.convert"]
    assert [target for target, _ in package.ours("session")] == ["errors", "client.transport"]


@pytest.mark.parametrize(
    ("module", "line", "fault"),
    [
        *(
            ("core__paging", line, "the core is pure")
            for line in (
                "import asyncio",
                "import asyncio.tasks",
                "from asyncio import sleep",
                "import aiohttp",
                "import time",
                "from time import monotonic",
                "import random",
                "from random import random",
                "import logging",
                "import os",
                "import socket",
                "import uuid",
                "import datetime",
                "from datetime import date",
                "import urllib.request",
                "from urllib import request",
                "from urllib.request import urlopen",
                "import cattrs",
                "def f():\n    import time",
                "try:\n    import time\nexcept ImportError:\n    pass",
                "if True:\n    import time",
                "if TYPE_CHECKING:\n    pass\nelse:\n    import time",
            )
        ),
        ("core__paging", "datetime.now(UTC)", "the core reads no clock"),
        ("core__paging", "x = [datetime.utcnow()]", "the core reads no clock"),
        ("core__paging", "__import__('time')", "the core reads no clock"),
        ("core__paging", "importlib.import_module('time')", "the core reads no clock"),
        ("core__paging", "from chainapi.models import converter", "the core and the errors only"),
        ("core__paging", "from chainapi.client import transport", "the core and the errors only"),
        ("core__paging", "from ..session import Session", "the core and the errors only"),
        ("core__paging", "from ..session import Session", "imports point down"),
        ("core__http", "from .dates import x\nfrom . import paging", None),
        ("core__paging", "from .dates import x", "cycle: core.dates -> core.paging -> core.dates"),
        (
            "core__paging",
            "from chainapi.core import dates",
            "cycle: core.dates -> core.paging -> core.dates",
        ),
        ("core__paging", "def f():\n    from .dates import x", "cycle: "),
        (
            "errors",
            "from chainapi.core.paging import Walk",
            "the errors import nothing of ours but _text",
        ),
        (
            "errors",
            "from chainapi._version import __version__",
            "the errors import nothing of ours but _text",
        ),
        ("errors", "import chainapi.core.paging", "cycle: "),
        ("errors", "from chainapi._text import printable", None),
        ("_text", "from chainapi.errors import ChainAPIError", "the errors import nothing of ours but _text"),
        ("models__convert", "from chainapi.client.transport import Transport", "imports point down"),
        ("models__convert", "from . import convert", None),
        ("client__transport", "from chainapi.session import Session", "imports point down"),
        ("client__transport", "import chainapi", "imports point down"),
        ("session", "from chainapi.cli import App", "edges are imported by edges only"),
        ("session", "from chainapi.simulator import Simulator", "edges are imported by edges only"),
        ("session", "from chainapi import simulator", "edges are imported by edges only"),
        ("__init__", "from chainapi.simulator import Simulator", "edges are imported by edges only"),
        ("session", "import aiohttp", "only client.transport knows aiohttp"),
        ("session", "from aiohttp.client import ClientSession", "only client.transport knows aiohttp"),
        ("session", "from aiohttp import web", "only client.transport knows aiohttp"),
        ("cli____init__", "import aiohttp", "only client.transport knows aiohttp"),
        ("simulator__server", "import aiohttp", "only client.transport knows aiohttp"),
        (
            "simulator__server",
            "from aiohttp import web, ClientSession",
            "only client.transport knows aiohttp",
        ),
        ("simulator__server", "from chainapi.session import Session", "knows nothing of the client"),
        ("simulator__server", "from chainapi.core import paging", "knows nothing of the client"),
        ("simulator__server", "from chainapi import errors", None),
        ("simulator__server", "from chainapi.api.catalogue import ROUTES", "knows nothing of the client"),
        ("simulator__table", "from chainapi.api.catalogue import ROUTES", None),
        ("simulator__table", "from chainapi.session import Session", "knows nothing of the client"),
        ("newcomer", "import chainapi.session", "newcomer is in no layer and no edge"),
        ("export", "import chainapi.session", None),
    ],
)
def test_each_broken_rule_is_noticed(module: str, line: str, fault: str | None, tmp_path: Path) -> None:
    """A house with one wrong import has that fault; the lines that are fine have none."""
    faults = faults_of(house(tmp_path, **{module: f"\n{line}\n"}))
    if fault is None:
        assert faults == []
    else:
        assert any(fault in entry for entry in faults), faults

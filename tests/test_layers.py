"""Import rules: a pure core, one direction, one package for aiohttp's client.

The rules are checked on the source: an import inside of a function and one for type checkers
(`if TYPE_CHECKING:`) count like any other.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from attrs import frozen

import chainapi

ROOT = Path(chainapi.__file__).parent

# From the bottom up: a module imports from its own layer and from those below. One that is named itself is in
# that layer, and the others of its package are in the layer of the package.
LAYERS = (
    {"_version", "_text", "_hints", "errors", "events"},
    {"core", "_limits", "_paging", "_http.retry", "_http.message", "_http.query"},
    {"_limits.gate", "_limits.member"},
    {"models"},
    {"_tables"},
    {"_http", "_config", "_limits.gates", "_background"},
    {"share"},
    {
        "_api",
        *("_paging.pages", "_paging.page", "_paging.runner", "_paging.prefetch", "_paging.tables"),
        *("_paging.follow", "_paging.split", "_paging.merge", "_paging.progress"),
    },
    {"session", "transport", "json", "webhooks"},
    {"script", "sync"},
    {"__init__"},
    {"contrib", "export", "otel", "simulator"},
    {"dask", "testing"},
    {"_tooling", "cli", "__main__"},
)

# `error.checkpoint` has a type that users pass to `resume=`, and `Checkpoint.loads` raises an error of the
# tree: the root of the errors and the record name each other. The errors do so for type checkers only.
EXCEPTIONS = {("errors", "_paging.checkpoint")}

# The core and the rules of limits import nothing that waits, reads a clock, draws random numbers, logs, or
# reaches out.
PURE = frozenset(
    {
        "__future__",
        "attrs",
        "base64",
        "bisect",
        "collections",
        "copy",
        "decimal",
        "enum",
        "fractions",
        "functools",
        "hashlib",
    }
    | {"heapq", "hmac", "itertools", "json", "math", "msgspec", "operator", "re", "string", "struct"}
    | {"types", "typing", "urllib.parse"}
)
PURE_NAMES = {  # of modules that are not pure as a whole
    "datetime": {
        "UTC",
        "datetime",
        "timedelta",
        "timezone",
    },  # as values: calls of a clock are found
    "email.utils": {"parsedate_to_datetime"},
    "http": {"HTTPStatus"},
}
CLOCKS = {"now", "utcnow", "today", "time", "monotonic", "perf_counter", "urandom", "uuid4", "uuid1"}

# The simulator is a service: it shares with the client what crosses the wire, the errors, the records of
# routes and models, and the settings that lead a session to it.
SHARED_WITH_SIMULATOR = {
    "errors",
    "_config",
    "_http.message",
    "models",
    "_api.catalogue",
    "_api.endpoint",
    "_api.parameters",
    "_api.routes",
}


@frozen
class Import:
    """Import: the importing module, the imported module, and the names from it."""

    importer: str
    module: str
    names: tuple[str, ...]
    line: int

    def __str__(self) -> str:
        names = f" ({', '.join(self.names)})" if self.names else ""
        return f"{self.importer}:{self.line} imports {self.module}{names}"


@frozen
class Package:
    """Modules of a package by relative name: their imports and their reads of a clock."""

    imports: dict[str, list[Import]]
    clocks: dict[str, list[str]]

    @classmethod
    def read(cls, root: Path) -> Package:
        """Parse every module below `root`."""
        package = cls({}, {})
        for path in sorted(root.rglob("*.py")):
            parts = path.relative_to(root).with_suffix("").parts
            module = ".".join(parts[:-1] if parts[-1] == "__init__" and len(parts) > 1 else parts)
            nodes = [*ast.walk(ast.parse(path.read_text("utf-8")))]
            package.imports[module] = [
                found for node in nodes for found in _imports(node, module, ["chainapi", *parts[:-1]])
            ]
            package.clocks[module] = [
                f"{module}:{node.lineno} calls {ast.unparse(node.func)}"
                for node in nodes
                if isinstance(node, ast.Call) and _reads_clock(ast.unparse(node.func))
            ]
        return package

    def edges(self, module: str) -> Iterator[tuple[str, Import]]:
        """Yield the modules of the package that `module` imports."""
        for found in self.imports[module]:
            if _top(found.module) != "chainapi":
                continue
            base = found.module.partition(".")[2]
            # `from chainapi.core import url` imports the module, not only the package.
            for name in found.names or ("",):
                inner = ".".join(filter(None, (base, name)))
                target = inner if inner in self.imports else base or "__init__"
                if (module, target) not in EXCEPTIONS:
                    yield target, found


def _imports(node: ast.AST, module: str, package: list[str]) -> Iterator[Import]:
    if isinstance(node, ast.Import):
        yield from (Import(module, alias.name, (), node.lineno) for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        above = package[: len(package) + 1 - node.level] if node.level else []
        name = ".".join([*above, *filter(None, (node.module,))])
        yield Import(module, name, tuple(alias.name for alias in node.names), node.lineno)


def _reads_clock(called: str) -> bool:
    owner, _, method = called.rpartition(".")
    hidden = called in ("__import__", "importlib.import_module")
    return hidden or (method in CLOCKS and owner in ("datetime", "date", "time", "os", "uuid"))


def _top(module: str) -> str:
    return module.partition(".")[0]


def _layer(module: str) -> int:
    layers = {name: number for number, names in enumerate(LAYERS) for name in names}
    return layers.get(module, layers.get(_top(module), -1))


def violations(package: Package) -> list[str]:
    """Return every violation of the rules."""
    return [*_impure(package), *_upward(package), *_cycles(package), *_aiohttp(package), *_simulator(package)]


def _impure(package: Package) -> Iterator[str]:
    for module in package.imports:
        if _layer(module) == _layer("core"):
            yield from (f"{found}: the core is pure" for found in package.imports[module] if not _pure(found))
            yield from (f"{call}: the core reads no clock" for call in package.clocks[module])


def _pure(found: Import) -> bool:
    if found.module in PURE_NAMES:
        return bool(found.names) and PURE_NAMES[found.module].issuperset(found.names)
    return _top(found.module) in PURE | {"chainapi"} or found.module in PURE


def _upward(package: Package) -> Iterator[str]:
    for module in package.imports:
        if _layer(module) < 0:
            yield f"{module} is in no layer"
        for target, found in package.edges(module):
            if _layer(target) > _layer(module):
                yield f"{found}: imports point down"


def _cycles(package: Package) -> Iterator[str]:
    """Yield each cycle once, by a search in depth."""
    done: set[str] = set()

    def search(module: str, path: tuple[str, ...]) -> Iterator[str]:
        if module in path:
            yield f"cycle: {' -> '.join((*path[path.index(module) :], module))}"
        elif module not in done:
            for target in sorted({target for target, _ in package.edges(module)} - {module}):
                yield from search(target, (*path, module))
            done.add(module)

    for module in package.imports:
        yield from search(module, ())


def _aiohttp(package: Package) -> Iterator[str]:
    for module, imports in package.imports.items():
        for found in imports:
            server = module == "simulator.server" and (found.module, found.names) == ("aiohttp", ("web",))
            ours = f"{module}.".startswith("_http.transport.")
            if _top(found.module) == "aiohttp" and not ours and not server:
                yield f"{found}: only _http.transport imports aiohttp's client"


def _simulator(package: Package) -> Iterator[str]:
    for module in package.imports:
        if _top(module) == "simulator":
            for target, found in package.edges(module):
                if _top(target) != "simulator" and not {target, _top(target)} & SHARED_WITH_SIMULATOR:
                    yield f"{found}: the simulator shares no code with the client"


# The package as it is


@cache
def the_package() -> Package:
    """Parse the package once for all tests."""
    return Package.read(ROOT)


def test_the_package_keeps_the_rules() -> None:
    """The core is pure, imports form no cycle, and aiohttp has its two places."""
    assert violations(the_package()) == []


def test_the_package_was_read() -> None:
    """The checker reads every module and every import.

    These are imports at run time, in functions, and for type checkers.
    """
    package = the_package()
    layers = set[str]().union(*LAYERS)
    assert {_top(module) for module in package.imports} == {_top(name) for name in layers}
    assert layers <= {_top(module) for module in package.imports} | {*package.imports}
    edges = {(module, target) for module in package.imports for target, _ in package.edges(module)}
    assert edges >= {("_http.query", "errors"), ("__main__", "cli"), ("__init__", "session")}
    assert "aiohttp" in {found.module for found in package.imports["_http.transport.sender"]}


def test_exceptions_are_needed() -> None:
    """Every exception names two modules that import each other."""
    package = the_package()
    for one, other in EXCEPTIONS:
        assert f"chainapi.{other}" in {found.module for found in package.imports[one]}
        assert one in {target for target, _ in package.edges(other)}


# The checker: a small package that keeps the rules, with one line added

SMALL = {
    "__init__.py": "from chainapi.session import Session\n",
    "errors.py": "",
    "core/__init__.py": "",
    "_http/message.py": "",
    "core/url.py": "from urllib.parse import quote\nfrom datetime import datetime\nfrom ..errors import E\n",
    "core/query.py": "from . import url\n",
    "_limits/queue.py": "",
    "_limits/gate.py": "from chainapi._limits import queue\n",
    "_http/transport.py": "import aiohttp\nfrom chainapi.core import query\n",
    "session.py": "from chainapi._http.transport import Transport\n",
    "simulator/server.py": "from aiohttp import web\nfrom chainapi._http.message import Request\n",
}


@pytest.mark.parametrize(
    ("module", "line", "fault"),
    [
        ("core/url", "import time", "core is pure"),
        ("core/url", "from urllib import request", "core is pure"),
        ("core/url", "from datetime import date", "core is pure"),
        ("core/url", "from http import client", "core is pure"),
        ("core/url", "import http.client", "core is pure"),
        ("core/url", "def f():\n    import random", "core is pure"),
        ("core/url", "datetime.now()", "reads no clock"),
        ("core/url", "__import__('time')", "reads no clock"),
        ("core/url", "from ..session import Session", "imports point down"),
        ("_http/transport", "import chainapi", "imports point down"),
        ("session", "from chainapi import simulator", "imports point down"),
        ("core/url", "from chainapi.core import query", "cycle: core.query -> core.url -> core.query"),
        ("core/url", "def f():\n    from .query import x", "cycle: "),
        ("core/url", "if TYPE_CHECKING:\n    from .query import x", "cycle: "),
        ("_limits/queue", "import asyncio", "core is pure"),
        ("_limits/queue", "from chainapi._limits import gate", "imports point down"),
        ("core/query", "from chainapi._limits.gate import Gate", "imports point down"),
        ("session", "from aiohttp import web", "only _http.transport"),
        ("simulator/server", "import aiohttp", "only _http.transport"),
        ("simulator/server", "from chainapi.core import url", "shares no code"),
        ("newcomer", "", "newcomer is in no layer"),
        ("simulator/server", "from chainapi import errors", None),
        ("core/query", "from .url import x", None),
        ("core/query", "from chainapi._limits import queue", None),
        ("_limits/gate", "import asyncio", None),
    ],
)
def test_each_violation_is_found(module: str, line: str, fault: str | None, tmp_path: Path) -> None:
    """A wrong import is reported with its rule, and a right one is not."""
    for name, text in {**SMALL, f"{module}.py": SMALL.get(f"{module}.py", "") + line}.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    found = violations(Package.read(tmp_path))
    assert (fault in found[0]) if fault else found == []

"""Typed calls of every route, for the type checkers.

Run it as `python -m chainapi._tooling.calls`: it writes the calls into a temporary folder, and mypy checks
them.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from chainapi import models
from chainapi._api.catalogue import ROUTES, WRITES
from chainapi._api.endpoint import Endpoint
from chainapi._api.parameters import Parameter
from chainapi._tooling.files import ROOT, Writer, imports
from chainapi.models.schema import Type, fields_of, is_record

__all__ = ["example", "main", "text"]

FILE = "every_route.py"


def example(parameter: Parameter, number: Callable[[], int] = lambda: 1) -> object:
    """Return a value that a parameter accepts.

    `number` returns the number at the end of a string.
    """
    if any(map(is_record, parameter.kinds)):
        made = record(parameter.kinds[0])
        return [made] if parameter.many else made
    if parameter.choices:
        return list(parameter.choices[:2]) if parameter.many else parameter.choices[0]
    if parameter.many:
        return ["first", "second"]
    if bool in parameter.kinds:
        return True
    if int in parameter.kinds:
        return 7 if parameter.bounds is None else int(parameter.bounds.most or parameter.bounds.least)
    return f"{parameter.name}-{number()}"


def record(model: Any) -> Any:
    """Return a record of a request, with its required fields and one optional text."""
    return model(
        **{field.name: _value(field.type, field.name) for field in fields_of(model) if field.required}
    )


def source(value: Any) -> str:
    """Return a value as an expression of Python."""
    if isinstance(value, list):
        return f"[{', '.join(map(source, value))}]"
    if not is_record(type(value)):
        return repr(value)
    given = {field.name: getattr(value, field.name) for field in fields_of(type(value)) if field.required}
    return f"{type(value).__name__}({', '.join(f'{name}={source(one)}' for name, one in given.items())})"


def _value(kind: Type, name: str) -> Any:
    match kind.kind:
        case "record":
            return record(kind.hint)
        case "union":
            return record(kind.tags[0].kind)
        case "list":
            return [_value(kind.item, name)]
        case "integer":
            return 7
        case _:
            return kind.choices[0] if kind.choices else f"{name}-1"


def call(name: str, endpoint: Endpoint) -> str:
    """Return the call of a route with all its parameters, and the type that it has."""
    given = [
        source(example(one)) if one.in_path or one.whole else f"{one.name}={source(example(one))}"
        for one in endpoint.parameters
    ]
    if not endpoint.single:
        given += ["resume=None", "page_token=None", "on_invalid='raw'", "prefetch=2"]
    given += ["priority=1", "deadline=9.5", "tag='job'"]
    result = endpoint.function.__annotations__["return"]
    called = f"{'await ' if endpoint.single else ''}session.{name}({', '.join(given)})"
    return f"    {called}" if endpoint.bodiless else f"    assert_type({called}, {result})"


def text() -> str:
    """Return the source of the module."""
    calls = [call(name, endpoint) for name, endpoint in ROUTES.items()]
    writes = [call(name, endpoint) for name, endpoint in WRITES.items()]
    lines = [
        '"""Every route with every parameter, for the type checkers."""',
        "",
        "from __future__ import annotations",
        "",
        "from typing import assert_type",
        "",
        "from chainapi import Session",
        *imports("\n".join([*calls, *writes]), {"chainapi.models": dir(models)}),
        "from chainapi._paging.pages import MetricPages, Pages",
        "",
        "",
        "async def call_every_route(session: Session) -> None:",
        '    """Call every route; lists send nothing before they are read."""',
        *calls,
        "",
        "",
        "async def call_every_write(session: Session) -> None:",
        '    """Call every route that writes."""',
        *writes,
    ]
    return "\n".join(lines) + "\n"


def main() -> int:
    """Check the types of the calls with mypy, and return its exit code."""
    with TemporaryDirectory() as folder:
        Writer(Path(folder)).write_python(FILE, text())
        command = (sys.executable, "-m", "mypy", str(Path(folder, FILE)))
        return subprocess.run(command, check=False, cwd=ROOT).returncode


if __name__ == "__main__":
    sys.exit(main())

"""Write tests/typing/every_route.py, whose types are checked: `python -m chainapi._tooling.calls`."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from chainapi import models
from chainapi.api.catalogue import ROUTES
from chainapi.api.endpoint import Endpoint
from chainapi.api.parameters import Parameter

PLACE = Path(__file__).parents[2] / "tests" / "typing" / "every_route.py"


def example(parameter: Parameter) -> object:
    """Return a value that a parameter takes."""
    if parameter.choices:
        return list(parameter.choices[:2]) if parameter.many else parameter.choices[0]
    if parameter.many:
        return ["first", "second"]
    if bool in parameter.kinds:
        return True
    if int in parameter.kinds:
        return 7 if parameter.bounds is None else int(parameter.bounds.most or parameter.bounds.least)
    return f"{parameter.name}-1"


def call(name: str, declared: Endpoint) -> str:
    """Return the call of a route with all its parameters, and the type that it has."""
    given = [
        repr(example(one)) if one.in_path else f"{one.name}={example(one)!r}" for one in declared.parameters
    ]
    if not declared.single:
        given += ["resume=None", "on_invalid='raw'", "prefetch=2"]
    given += ["priority=1", "deadline=9.5"]
    result = declared.function.__annotations__["return"]
    called = f"{'await ' if declared.single else ''}session.{name}({', '.join(given)})"
    return f"    assert_type({called}, {result})"


def text() -> str:
    """Return the module."""
    calls = [call(name, declared) for name, declared in ROUTES.items()]
    results = {declared.function.__annotations__["return"] for declared in ROUTES.values()}
    words = sorted({word for result in results for word in re.findall(r"\w+", result)})
    records = [word for word in words if word in dir(models)]
    lines = [
        '"""Every route with every parameter, for the type checkers; made by `chainapi._tooling.calls`."""',
        "",
        "from __future__ import annotations",
        "",
        "from typing import assert_type",
        "",
        "from chainapi import Session",
        f"from chainapi.models import {', '.join(records)}",
        "from chainapi.client.pages import MetricPages, Pages",
        "",
        "",
        "async def call_every_route(session: Session) -> None:",
        '    """Call every route; lists send nothing before they are read."""',
        *calls,
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Write the module, laid out by ruff."""
    PLACE.write_text(text(), "utf-8")
    ruff = (sys.executable, "-m", "ruff")
    subprocess.run((*ruff, "check", "--quiet", "--fix", "--select", "I", str(PLACE)), check=True)
    subprocess.run((*ruff, "format", "--quiet", str(PLACE)), check=True)


if __name__ == "__main__":
    main()

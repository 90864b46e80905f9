"""``chainapi routes``: the routes with a name, their parameters and their rows."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any

from cyclopts import Parameter as Option
from rich.console import Console
from rich.table import Table
from rich.text import Text

from chainapi._api.catalogue import ROUTES, WRITES
from chainapi._api.endpoint import Endpoint
from chainapi._api.parameters import Parameter
from chainapi._api.routes import units_of
from chainapi.cli.common import FAILED, Flag, Hidden
from chainapi.cli.names import field_types, returns, route_names
from chainapi.cli.tables import table_of

__all__ = ["routes"]

DECLARED = {**ROUTES, **WRITES}


def routes(
    text: Annotated[str, Option(completer=route_names, show_default=False)] = "",
    /,
    *,
    json: Flag = False,
    terminal: Hidden,
) -> int:
    """Show all routes with a name, or those whose name or path contains TEXT.

    For the whole name of a route, show its path, its parameters and the fields of its rows.

    Args:
        text: Part of a name or of a path, upper or lower case, or the whole name of one route.
        json: JSON lines; the default if the output is not a terminal.
        terminal: The streams of the command.

    """
    found = {
        name: endpoint
        for name, endpoint in DECLARED.items()
        if text.lower() in name or text.lower() in endpoint.route.path.lower()
    }
    if not found:
        terminal.note(f"no route has {text!r} in its name or path: `chainapi routes` shows all")
        return FAILED
    table = terminal.interactive and not json
    if table and text not in DECLARED:
        terminal.console.print(_table(found))
    elif table:
        _show(terminal.console, _record(text, DECLARED[text]), DECLARED[text])
    elif text in DECLARED:
        terminal.line({**_record(text, DECLARED[text]), "fields": field_types(DECLARED[text])})
    else:
        for name, endpoint in found.items():
            terminal.line(_record(name, endpoint))
    return 0


def _table(found: Mapping[str, Endpoint]) -> Table:
    rows = list[tuple[Text, str, str, str]]()
    for name, endpoint in found.items():
        label = Text(name)
        if endpoint.route.deprecated:
            label.append(" (deprecated)", style="yellow")
        if not endpoint.reads:
            label.append(" (writes)", style="yellow")
        ordered = sorted(endpoint.parameters, key=lambda one: not one.required)
        names = [one.name if one.required else f"[{one.name}]" for one in ordered]
        rows.append((label, " ".join(names), returns(endpoint), _text(units_of(name, endpoint.route))))
    return table_of(("route", "parameters", "returns", "units"), rows, right=1)


def _show(console: Console, record: dict[str, Any], endpoint: Endpoint) -> None:
    """Print the properties of a route, its parameters, and the fields of its rows."""
    known = {name: value for name, value in record.items() if name != "parameters" and value is not None}
    properties = [(name, str(value)) for name, value in known.items()]
    parameters = [
        (one.name, _takes(one), "required" if one.required else _text(one.default))
        for one in endpoint.parameters
    ]
    tables = [table_of(("", ""), properties)]
    tables += [table_of(("parameter", "takes", "default"), parameters)] if parameters else []
    tables += [table_of((kind, "type"), types.items()) for kind, types in field_types(endpoint).items()]
    for table in tables:
        console.print(table, "", sep="\n")


def _takes(one: Parameter) -> str:
    kinds = _kind_names(one)
    text = ", ".join(one.choices) if one.choices else " or ".join(kinds)
    if one.bounds is not None:
        text += f", {one.bounds}"
    return f"list of {text}" if one.many else text


def _kind_names(one: Parameter) -> list[str]:
    return [kind.__name__ for kind in one.kinds] or ["str"]


def _text(value: object) -> str:
    return "" if value is None else str(value)


def _record(name: str, endpoint: Endpoint) -> dict[str, Any]:
    route = endpoint.route
    return {
        "name": name,
        "doc": (endpoint.function.__doc__ or "").partition("\n")[0],
        "parameters": [_parameter(one) for one in endpoint.parameters],
        "method": route.method,
        "path": route.path,
        "model": re.sub(r"^\w+\[(.+)\]$", r"\1", returns(endpoint)),
        "single": endpoint.single,
        "reads": endpoint.reads,
        "idempotency": route.idempotency.value,
        "weight": route.weight,
        "units": units_of(name, route),
        "deprecated": route.deprecated,
    }


def _parameter(one: Parameter) -> dict[str, Any]:
    as_they_are = ("name", "wire", "in_path", "in_body", "required", "default", "many", "choices")
    bounds = None if one.bounds is None else [one.bounds.least, one.bounds.most]
    return {name: getattr(one, name) for name in as_they_are} | {"types": _kind_names(one), "bounds": bounds}

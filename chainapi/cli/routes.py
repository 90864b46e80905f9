"""``chainapi routes``: what can be asked for by name, from the records of the routes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any

from cyclopts import Parameter as Option
from rich.table import Table
from rich.text import Text

from chainapi.api.catalogue import ROUTES
from chainapi.api.endpoint import Endpoint
from chainapi.api.parameters import Parameter
from chainapi.cli.common import FAILED, Flag, Hidden
from chainapi.cli.names import gives, route_names
from chainapi.cli.terminal import Terminal
from chainapi.models.schema import fields_of, row_classes

__all__ = ["routes"]


def routes(
    text: Annotated[str, Option(completer=route_names, show_default=False)] = "",
    /,
    *,
    json: Flag = False,
    terminal: Hidden,
) -> int:
    """Show the routes that have a name, all of them or those that a text is found in.

    With the whole name of a route: its path, its parameters with what they take, and the fields of its rows.

    Args:
        text: Part of a name or of a path, in any case, or the whole name of one route.
        json: JSON lines instead of a table; always so where the output is no terminal.
        terminal: Where the command writes.

    """
    found = {
        name: declared
        for name, declared in ROUTES.items()
        if text.lower() in name or text.lower() in declared.route.path.lower()
    }
    if not found:
        terminal.complain(f"no route has {text!r} in its name or path")
        return FAILED
    table = terminal.interactive and not json
    if text in ROUTES:
        _show(terminal, text, ROUTES[text], table=table)
    elif table:
        terminal.console.print(_table(found))
    else:
        for name, declared in found.items():
            terminal.line(_record(name, declared))
    return 0


def _table(found: Mapping[str, Endpoint]) -> Table:
    table = _columns("route", "parameters", "gives", "units")
    for name, declared in found.items():
        label = Text(name)
        if declared.route.deprecated:
            label.append(" (deprecated)", style="yellow")
        ordered = sorted(declared.parameters, key=lambda one: not one.required)
        names = [one.name if one.required else f"[{one.name}]" for one in ordered]
        table.add_row(label, Text(" ".join(names)), Text(gives(declared)), _units(declared))
    table.columns[-1].justify = "right"
    return table


def _units(declared: Endpoint) -> str:
    return "" if declared.route.units is None else str(declared.route.units)


def _show(terminal: Terminal, name: str, declared: Endpoint, *, table: bool) -> None:
    fields = {
        kind.__name__: {field.name: str(field.type) for field in fields_of(kind)}
        for kind in row_classes(declared.route.model)
    }
    if not table:
        terminal.line({**_record(name, declared), "fields": fields})
        return
    route, console = declared.route, terminal.console
    console.print(Text(f"{name}: {(declared.function.__doc__ or '').partition(chr(10))[0]}", style="bold"))
    console.print(Text(f"GET {route.path}, gives {gives(declared)}"))
    if route.weight is not None:
        console.print(Text(f"weight: {route.weight}, {route.units} units a request"))
    if route.deprecated:
        console.print(Text("deprecated: the service will take it away", style="yellow"))
    parameters = _columns("parameter", "takes", "default")
    for one in declared.parameters:
        parameters.add_row(one.name, Text(_takes(one)), "required" if one.required else _default(one))
    if declared.parameters:
        console.print("", parameters, sep="\n")
    for kind, types in fields.items():
        rows = _columns(kind, "type")
        for field, declaration in types.items():
            rows.add_row(field, Text(declaration))
        console.print("", rows, sep="\n")


def _columns(*names: str) -> Table:
    return Table(*names, box=None, pad_edge=False, header_style="bold")


def _takes(one: Parameter) -> str:
    kinds = _kind_names(one)
    text = ", ".join(one.choices) if one.choices else " or ".join(kinds)
    if one.bounds is not None:
        text += f", {one.bounds}"
    return f"list of {text}" if one.many else text


def _kind_names(one: Parameter) -> list[str]:
    return [kind.__name__ for kind in one.kinds] or ["str"]


def _default(one: Parameter) -> str:
    return "" if one.default is None else str(one.default)


def _record(name: str, declared: Endpoint) -> dict[str, Any]:
    route = declared.route
    return {
        "name": name,
        "parameters": [_parameter(one) for one in declared.parameters],
        "path": route.path,
        "model": re.sub(r"^\w+\[(.+)\]$", r"\1", gives(declared)),
        "single": declared.single,
        "weight": route.weight,
        "units": route.units,
        "deprecated": route.deprecated,
    }


def _parameter(one: Parameter) -> dict[str, Any]:
    return {
        "name": one.name,
        "wire": one.wire,
        "in_path": one.in_path,
        "required": one.required,
        "default": one.default,
        "types": _kind_names(one),
        "many": one.many,
        "bounds": None if one.bounds is None else [one.bounds.least, one.bounds.most],
        "choices": list(one.choices),
    }

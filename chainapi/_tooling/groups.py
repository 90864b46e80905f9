"""Routes as methods: the source of the services and of their groups."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import Enum

from attrs import frozen
from msgspec.structs import fields, replace

from chainapi._api import parameters
from chainapi._api.routes import Conditional, Route
from chainapi._paging.ranges import Ranged, Unit
from chainapi._tooling.entries import ROUTES, Entries, Entry, Group, Key, Number
from chainapi._tooling.files import COMMAND, HEADER, GeneratorError, Writer, imports
from chainapi._tooling.openapi import Operation, Schema, variants
from chainapi._tooling.records import HAND_WRITTEN, REQUESTS, Records, bounds
from chainapi.core.idempotency import Idempotency
from chainapi.models.unions import wire_name

__all__ = ["Method", "write_groups"]


@frozen
class Method:
    """Method of a route.

    Attributes:
        name: dotted name of the route.
        entry: what a person decided on the route.
        operation: what the document says of it.
        records: records and types of all routes.
        module: module of the records of the route.

    """

    name: str
    entry: Entry
    operation: Operation
    records: Records
    module: str

    def text(self) -> str:
        """Return the source of the method.

        Raises:
            GeneratorError: the entry lacks a decision, or does not fit the document.

        """
        listed = self.operation.list_field is not None
        rows, route = self.rows(), declaration(self.route())
        name, signature = self.name.rpartition(".")[2], ", ".join(self.signature())
        lines = (
            f"    @endpoint({route})",
            f"    def {name}({signature}) -> Pages[{rows}]:"
            if listed
            else f"    async def {name}({signature}) -> {rows}:",
            f'        """{self.entry.doc}"""',
            "        ...",
        )
        return "\n".join(lines)

    def rows(self) -> str:
        """Return the type of the rows of a list, or of a single resource."""
        operation, rows = self.operation, self.operation.rows
        if not operation.answer:
            return "None"
        if any("properties" not in row for row in rows):
            return "str"
        kind = self.records.one_of(self.name, rows, self.module)
        if operation.list_field is not None:
            self.check_attributes(rows)
        return f"{kind} | None" if operation.method == "DELETE" else kind  # of a repeated one

    def check_attributes(self, rows: Sequence[Schema]) -> None:
        """Check that rows have the attributes of the entry, and require those in keys."""
        for row in rows:
            kind = self.records.add(row, self.module)
            for path in self.key.kinds.get(kind, self.key.by):
                if not has(row, path, "required"):
                    raise GeneratorError(
                        f"{self.name}: its key names {path}, which {kind} need not have: correct {ROUTES}"
                    )
        numbers = [one for one in (self.entry.order, self.entry.cursor, self.entry.range) if one is not None]
        for path in (*self.key.immutable, *(path for one in numbers for path in one.by)):
            if not any(has(row, path, "properties") for row in rows):
                raise GeneratorError(f"{self.name}: no row has {path}: correct the entry in {ROUTES}")

    @property
    def key(self) -> Key:
        """Identity of the rows of the list."""
        if self.entry.key is None:
            raise GeneratorError(
                f"{self.name}: the key of its rows is not decided. Add `key.by` and `key.why` to the entry in"
                f" {ROUTES}: the attributes that no two rows of the whole list share, by the schema of a row,"
                f' or only a reason, "no key: ..."; then run {COMMAND}'
            )
        return self.entry.key

    @property
    def ranged(self) -> Ranged | None:
        """Range parameters of the list; None if it cannot be walked in ranges."""
        bounded, wires = self.entry.range, {one["name"] for one in self.operation.parameters}
        if wires.isdisjoint({"startBlock", "startTimestamp"}):
            return None
        if bounded is None:
            raise GeneratorError(
                f"{self.name}: whether the list can be walked in ranges is not decided. Add `range.by` and"
                f" `range.why` to the entry in {ROUTES}: the attribute of a row that start and end bound, or"
                f' only a reason, "no ranges: ..."; then run {COMMAND}'
            )
        unit: Unit = "blocks" if "startBlock" in wires else "days" if bounded.days else "seconds"
        return Ranged(unit, bounded.by) if bounded.by else None

    def route(self) -> Route:
        """Return the record of the route, with names of types in place of types."""
        entry, operation = self.entry, self.operation
        route = Route(
            operation.path,
            weight=entry.weight or operation.weight,
            deprecated=operation.deprecated,
            method=operation.method,
            body=tuple(one["name"] for one in operation.body_fields),
            idempotency=Idempotency.of_method(operation.method) if entry.writes else Idempotency.SAFE,
            lookup=entry.lookup,
        )
        return route if operation.list_field is None else self.list_route(route)

    def list_route(self, route: Route) -> Route:
        """Return the record of a list."""
        entry, items, key = self.entry, self.operation.list_field, self.key
        order, cursor = entry.order or Number(why=""), entry.cursor or Number(why="")
        return replace(
            route,
            items=items if entry.items is None else entry.items or None,
            key=key.by,
            kind_keys=tuple(key.kinds.items()),
            immutable=key.immutable,
            descending_key=order.by[0] if order.by else None,
            until=order.until,
            cursor=cursor.by,
            holds_if=(
                *condition("key", key.needs),
                *condition("descending_key", order.needs),
                *condition("since", cursor.needs),
            ),
            ranged=self.ranged,
            extra=tuple(
                self.records.envelope(wire, schema, self.module)
                for wire, schema in self.operation.envelope.items()
            ),
        )

    def signature(self) -> Iterator[str]:
        """Yield the parameters in Python: of the path, required ones, optional ones."""
        operation = self.operation
        given = {one["name"]: one for one in (*operation.parameters, *operation.body_fields)}
        size = given.pop("pageSize", None)
        given.pop("pageToken", None)
        yield "self"
        for wire in re.findall(r"{(\w+)}", operation.path):
            yield self.records.parameter(given.pop(wire))
        if operation.body is not None and not operation.body_fields:
            yield self.whole_body(operation.body)
        if given or size is not None:
            yield "*"
        for parameter in sorted(given.values(), key=lambda parameter: not parameter.get("required")):
            yield self.records.parameter(parameter)
        if size is not None:
            yield page_size(size["schema"]["minimum"], size["schema"]["maximum"])
        kind = "ResourceOptions" if operation.list_field is None else "ListOptions"
        yield f"**options: Unpack[{kind}]"

    def whole_body(self, body: Schema) -> str:
        """Return the parameter of a body that is one of several records."""
        union = self.records.one_of(self.name, variants(body), REQUESTS)
        if not self.entry.body:
            raise GeneratorError(
                f"{self.name}: its body is a {union}: name the parameter with `body` in {ROUTES}; then run"
                f" {COMMAND}"
            )
        return f"{self.entry.body}: Annotated[{union}, WHOLE_BODY]"


def has(row: Schema, path: str, among: str) -> bool:
    """Check whether an attribute, and each that leads to it, is among others."""
    for wire in map(wire_name, path.split(".")):
        if wire not in row.get(among, ()):
            return False
        row = row["properties"][wire]
    return True


def condition(field: Conditional, needed: str | None) -> Iterator[tuple[Conditional, str, str | None]]:
    """Yield the condition, "name" or "name=value", of a field of a route, if any."""
    if needed is not None:
        name, _, value = needed.partition("=")
        yield field, name, value or None


def declaration(route: Route) -> str:
    """Return the expression of a route: its arguments that differ from the defaults."""
    positional = [one for one in (route.path, route.items) if one is not None]
    named = [
        f"{one.name}={source(value)}"
        for one in fields(Route)
        if one.name not in ("path", "items") and (value := getattr(route, one.name)) != one.default
    ]
    return f"Route({', '.join([*map(repr, positional), *named])})"


def source(value: object) -> str:
    """Return the expression of a value."""
    if isinstance(value, Ranged):
        return f"Ranged({value.unit!r}, {value.number})"
    return str(value) if isinstance(value, Enum) else repr(value)


def page_size(least: int, most: int) -> str:
    """Return the parameter of the page size, by default the greatest size.

    Each request costs the same.
    """
    kind = "PageSize" if (least, most) == (1, 100) else f"Annotated[int, {bounds(least, most)}]"
    return f"page_size: {kind} | None = {most}"


def write_groups(
    entries: Entries, methods: Mapping[str, Sequence[str]], records: Records, writer: Writer
) -> None:
    """Write the modules of services and groups, from the methods of each."""
    modules: dict[str, dict[str, str]] = {}
    for dotted, group in entries.groups.items():
        inner = [name for name in entries.groups if name.startswith(f"{dotted}.") and name in methods]
        if inner or dotted in methods:
            body = [attribute(name, entries.groups[name]) for name in inner]
            body += methods.get(dotted, ())
            text = f'class {group.name}({group.base}):\n    """{group.doc}"""\n\n' + "\n\n".join(body)
            modules.setdefault(group.module, {})[dotted] = text
    for module, texts in modules.items():
        writer.write_python(f"{module.replace('.', '/')}.py", module_text(entries, module, texts, records))


def attribute(dotted: str, group: Group) -> str:
    """Return the declaration of a group in its service."""
    name = dotted.rpartition(".")[2]
    return f'    {name}: {group.name} = group("{group.module}.{group.name}")\n    """{group.doc}"""'


def module_text(entries: Entries, module: str, texts: Mapping[str, str], records: Records) -> str:
    """Return the source of a module, made of its classes by the names of groups.

    The layout removes imports that the module does not need.
    """
    body = "\n\n".join(texts.values())
    types: dict[str, Iterable[str]] = {
        "chainapi._api.parameters": parameters.__all__,
        "chainapi._api.options": ("ListOptions", "ResourceOptions"),
        "chainapi.models": {*records.records, *records.names.unions, *HAND_WRITTEN},
        "chainapi.models.enums": records.enums,
    }
    for group in entries.groups.values():
        if group.module != module:
            types[group.module] = [*types.get(group.module, ()), group.name]
    paths = ", ".join(f"`session.{group}`" for group in texts)
    title = paths if len(paths) < 80 else f"the groups of `session.{next(iter(texts)).partition('.')[0]}`"
    lines = [
        HEADER,
        f'"""Routes of {title}."""',
        "",
        "from __future__ import annotations",
        "",
        "from collections.abc import Sequence",
        "from typing import TYPE_CHECKING, Annotated, Unpack",
        "from chainapi._api.binding import Group, endpoint, group",
        "from chainapi._api.routes import Route",
        "from chainapi._api.service import ServiceAPI",
        "from chainapi._api.specified import SpecifiedMetrics",
        "from chainapi._paging.pages import Pages",
        "from chainapi.core.idempotency import Idempotency",
        "from chainapi._paging.ranges import Ranged",
        "",
        "if TYPE_CHECKING:",
        *(f"    {line}" for line in imports(body, types)),
        "",
        f"__all__ = {[entries.groups[group].name for group in texts]}",
        "",
        "",
        body,
        "",
    ]
    return "\n".join(lines)

"""Write models and groups of routes from documents: `python -m chainapi._tooling.generate DATA METRICS`.

What the documents do not say (names, which texts are numbers, what may be missing) is in `names`. No text of
the documents is taken over.
"""

from __future__ import annotations

import re
import subprocess
import sys
import textwrap
from collections.abc import Iterable, Iterator
from pathlib import Path

from attrs import define, field, frozen

from chainapi._tooling import names
from chainapi._tooling.openapi import Document, Operation, Schema, snake

PACKAGE = Path(__file__).parents[1]
MODULES = {
    "common": "Records that several groups of routes share.",
    "evm": "Records of EVM chains and their NFT collections.",
    "primary_network": "Records of the Primary Network.",
    "icm": "Records of messages between chains.",
    "usage": "Records of the use of the services.",
    "webhooks": "Records of webhooks.",
    "chain_metrics": "Records of the Metrics API, data points apart.",
}
HAND_MADE = {"MetricPoint"}
TIMES = ("timestamp",)


@frozen
class Field:
    """One field of a record: its names, its type in Python, whether it may be missing."""

    wire: str
    type: str
    missing: bool

    @property
    def name(self) -> str:
        """Its name in Python."""
        return f"{snake(self.wire)}{'_' if self.wire == 'from' else ''}"

    def lines(self, record: str) -> Iterator[str]:
        """Yield its declaration."""
        kind = f"{self.type} | None" if self.missing and self.type != "Any" else self.type
        secret = f"{record}.{self.wire}" in names.SECRETS
        default = " = field(repr=False)" if secret else " = None" if self.missing else ""
        yield f"    {self.name}: {kind}{default}"

    @property
    def time(self) -> str | None:
        """Declare the property that gives it as a datetime."""
        if not self.name.endswith("timestamp") or self.type != "int":
            return None
        kind = "MaybeMoment" if self.missing else "Moment"
        return f'    {self.name.removesuffix("timestamp")}time = {kind}("{self.name}")'


@define
class Record:
    """One class to write."""

    name: str
    fields: list[Field]
    uses: set[str] = field(factory=set[str])
    groups: set[str] = field(factory=set[str])


class Models:
    """The records of several documents, gathered from their routes."""

    def __init__(self) -> None:
        self.records: dict[str, Record] = {}
        self.enums: dict[str, tuple[str, ...]] = {}

    def record(self, document: Document, name: str, schema: Schema, group: str) -> str:
        """Take note of a record and of all that it is made of; return its name in Python."""
        ours = names.CLASSES.get(name, name)
        if ours in HAND_MADE:
            return ours
        known = self.records.get(ours)
        if known is not None and group in known.groups:
            return ours
        record = Record(ours, [])
        self.records[ours] = record if known is None else known
        self.records[ours].groups.add(group)
        required = schema.get("required", ())
        for wire, kind in schema["properties"].items():
            text = self.type(document, record, wire, kind, group)
            explained = {f"{ours}.{wire}", f"{ours}.*"} & set(names.MAY_BE_MISSING)
            record.fields.append(Field(wire, text, wire not in required or bool(explained)))
        if known is not None and known.fields and known.fields != record.fields:
            raise SystemExit(f"{name}: another shape than that of the other schemas that are {ours}")
        self.records[ours].fields = record.fields
        self.records[ours].uses |= record.uses
        return ours

    def type(self, document: Document, record: Record, wire: str, schema: Schema, group: str) -> str:
        """Return the type of a field in Python."""
        if wire in names.PLAIN:
            return "Any"
        kind = document.follow(schema)
        variants = kind.get("oneOf") or kind.get("anyOf")
        if variants:
            texts = [self.type(document, record, wire, variant, group) for variant in variants]
            return " | ".join(sorted(set(texts), reverse=True))
        if "enum" in kind:
            return self.enum(document, record, wire, schema, kind)
        if "properties" in kind:
            used = self.record(document, document.name_of(schema) or wire, kind, group)
            record.uses.add(used)
            return used
        name = kind["type"] if isinstance(kind["type"], str) else kind["type"][0]
        if name == "array":
            return f"list[{self.type(document, record, wire, kind['items'], group)}]"
        if name == "object":
            inner = kind.get("additionalProperties")
            value = self.type(document, record, wire, inner, group) if isinstance(inner, dict) else "Any"
            return f"dict[str, {value}]"
        return scalar(record.name, wire, name)

    def enum(self, document: Document, record: Record, wire: str, schema: Schema, kind: Schema) -> str:
        """Return the type of a field with known values; it is open, even for a tag."""
        tags = {
            rule.removeprefix(f"{wire}=")
            for rules in names.UNIONS.values()
            for rule, name in rules.items()
            if name == record.name and rule.startswith(f"{wire}=")
        }
        if tags:
            return f'Annotated[str, Literal["{tags.pop()}"]]'
        values = tuple(value for value in kind["enum"] if value is not None)
        name = document.name_of(schema) or f"{wire[0].upper()}{wire[1:]}"
        name = name.removesuffix("Enum").removesuffix("Code") if name != "OperationStatusCode" else name
        return f"Annotated[str, enums.{self.enum_name(name, values)}]"

    def enum_name(self, name: str, values: tuple[str, ...]) -> str:
        """Return the name of an enumeration; those with the same values are one."""
        name = names.ENUMS.get(" ".join(values), name)
        for known, same in self.enums.items():
            if same == values and (known == name or len(values) > 1):
                return known
        if name in self.enums:
            raise SystemExit(f"another enumeration is called {name}: {values}")
        self.enums[name] = values
        return name

    def module_of(self, name: str) -> str:
        """Return the module of a record: that of its group, or the common one."""
        groups = {MODULE_OF.get(group, group) for group in self.records[name].groups}
        return groups.pop() if len(groups) == 1 else "common"


MODULE_OF = {
    "data": "common",
    "nfts": "evm",
    "teleporter": "icm",
    "chains": "chain_metrics",
    "networks": "chain_metrics",
    "l1_validators": "chain_metrics",
    "subnets": "chain_metrics",
    "metrics": "chain_metrics",
    "metrics.icm": "chain_metrics",
}


def scalar(record: str, wire: str, kind: str) -> str:
    """Return the type of a text, a number or a truth."""
    exact = wire in names.DECIMALS or f"{record}.{wire}" in names.DECIMALS
    if kind == "string":
        whole = wire in names.WHOLE_STRINGS or (wire == "chainId" and record in names.WHOLE_CHAIN_IDS)
        return "int" if whole else "Decimal" if exact else "str"
    if kind == "number" or kind == "integer":
        return "Decimal" if exact else "float" if wire in names.FLOATS else "int"
    return {"boolean": "bool"}[kind]


# Models.


def write_models(models: Models) -> None:
    """Write a module for each group, and the enumerations."""
    modules: dict[str, list[Record]] = {name: [] for name in MODULES}
    for name, record in models.records.items():
        modules[models.module_of(name)].append(record)
    unions = {name: set(rules.values()) for name, rules in names.UNIONS.items()}
    places: dict[str, list[str]] = {}
    for module, records in modules.items():
        text, public = module_text(models, module, in_order(records), unions)
        places[module] = public
        save(PACKAGE / "models" / f"{module}.py", text)
    save(PACKAGE / "models" / "enums.py", enums_text(models))
    save(PACKAGE / "models" / "__init__.py", package_text(places))


def in_order(records: list[Record]) -> list[Record]:
    """Return the records with each after those that it is made of."""
    done: dict[str, Record] = {}
    known = {record.name: record for record in records}

    def add(record: Record) -> None:
        for used in sorted(record.uses & set(known) - set(done)):
            add(known[used])
        done.setdefault(record.name, record)

    for record in records:
        add(record)
    return list(done.values())


def module_text(
    models: Models, module: str, records: list[Record], unions: dict[str, set[str]]
) -> tuple[str, list[str]]:
    """Return the source of a module, and its public names."""
    bodies = "\n\n".join(class_text(record) for record in records)
    ours = {record.name for record in records}
    here = [
        name for name, members in unions.items() if members <= ours or (members & ours and module != "common")
    ]
    here = [name for name in here if home(models, unions[name]) == module]
    tail = "\n".join(union_text(name) for name in here)
    foreign: dict[str, set[str]] = {}
    for used in set().union(*(record.uses for record in records), *(unions[name] for name in here)) - ours:
        if used not in HAND_MADE:
            foreign.setdefault(models.module_of(used), set()).add(used)
    body = f"{bodies}\n\n{tail}\n"
    public = sorted([*ours, *here])
    return "\n".join((*head(module, body, foreign, public), "", "", body)), public


def home(models: Models, members: set[str]) -> str:
    """Return the module of a union: that of its members, where they are of one module, or the other one."""
    modules = {models.module_of(name) for name in members} - {"common"}
    return modules.pop() if modules else "common"


def head(module: str, body: str, foreign: dict[str, set[str]], public: list[str]) -> Iterator[str]:
    """Yield the lines above the classes."""
    yield f'"""{MODULES[module]}"""'
    yield ""
    yield "from __future__ import annotations"
    yield ""
    if "Decimal" in body:
        yield "from decimal import Decimal"
    typing = [name for name in ("Annotated", "Any", "Literal", "TypeAlias") if f"{name}" in body]
    if typing:
        yield f"from typing import {', '.join(typing)}"
    yield ""
    yield f"from attrs import {'field, ' if 'field(' in body else ''}frozen"
    yield ""
    if "enums." in body:
        yield "from chainapi.models import enums"
    for name, used in sorted(foreign.items()):
        yield f"from chainapi.models.{name} import {', '.join(sorted(used))}"
    if moments := [name for name in ("MaybeMoment", "Moment") if f"= {name}(" in body]:
        yield f"from chainapi.models.timestamps import {', '.join(moments)}"
    yield "from chainapi.models.records import Record"
    if "tell(" in body:
        yield "from chainapi.models.unions import Unknown, tell"
    yield ""
    yield f"__all__ = [{', '.join(repr(name) for name in public)}]"


def class_text(record: Record) -> str:
    """Return the source of a class."""
    lines = [
        "@frozen(kw_only=True)",
        f"class {record.name}(Record):",
        f'    """{sentence(record.name)}"""',
        "",
    ]
    for entry in record.fields:
        lines += entry.lines(record.name)
    times = [entry.time for entry in record.fields if entry.time]
    return "\n".join([*lines, *([""] if times else []), *times, ""])


DOCSTRINGS = {
    "AddressChainIds": "An address of the Primary Network, and the chains that it is active on.",
    "AddressChains": "The EVM chains that an address is active on.",
    "AddressTransaction": "A transaction of an address, with its transfers.",
    "AddressTransactionV2": "A transaction of an address, with its transfers and the reputation of tokens.",
    "AvaxSupply": "The supply of AVAX, in whole AVAX.",
    "ChainInfo": "A chain; the specification shows none of its fields, so any may be missing.",
    "IcmPoint": "A count of messages at a time.",
    "Money": "An amount of money, exact.",
    "RankedAddress": "An address, and the number by which the list is sorted.",
    "RankedAddresses": "Addresses of one owner, and the number by which the list is sorted.",
    "RollingWindow": "A metric over windows that end now.",
    "SharedSecret": "The secret that signs the webhooks' calls; no repr shows it.",
}


def sentence(name: str) -> str:
    """Return the docstring of a class, made of its name."""
    if name in DOCSTRINGS:
        return DOCSTRINGS[name]
    spaced = snake(name).replace("_", " ")
    for letter in ("p", "x", "c"):
        spaced = spaced.replace(f"{letter} chain ", f"{letter.upper()}-Chain ")
    words = spaced.split()
    upper = {"evm", "icm", "utxo", "api", "rpc", "nft", "l1", "bls", "asset"} - {"asset"}
    words = [word.upper() if word in upper else word for word in words]
    text = (
        " ".join(words).replace("erc20", "ERC-20").replace("erc721", "ERC-721").replace("erc1155", "ERC-1155")
    )
    text = text.replace("primary network", "Primary Network").replace("BLS credentials", "BLS keys")
    if text.endswith(("s", "data")) and not text.endswith("ss"):
        return f"{text[0].upper()}{text[1:]}."
    vowel = text[0].lower() in "aeio" or text.startswith(("RPC", "L1", "NFT", "X-", "unk"))
    return f"{'An' if vowel else 'A'} {text}."


def union_text(name: str) -> str:
    """Return the source of a union and of its tag."""
    rules = names.UNIONS[name]
    lines = [f"{name}: TypeAlias = {' | '.join([*dict.fromkeys(rules.values()), 'Unknown'])}", "tell("]
    lines += [f"    {name},", "    {"]
    lines += [f'        "{rule}": {record},' for rule, record in rules.items()]
    return "\n".join([*lines, "    },", ")"])


def enums_text(models: Models) -> str:
    """Return the source of the enumerations."""
    lines = ['"""Values that the services list. Fields are open: other values are kept as they come."""', ""]
    lines += ["from __future__ import annotations", "", "from typing import Literal, TypeAlias", ""]
    for name, values in sorted(models.enums.items()):
        lines.append(f"{name}: TypeAlias = Literal[{', '.join(map(repr, values))}]")
    return "\n".join(lines) + "\n"


def package_text(places: dict[str, list[str]]) -> str:
    """Return the source of the package: names that load their module on first use."""
    lines = [
        '"""What rows become: frozen records, and the decoder that makes them from the body of an answer.',
        "",
        "The records of a group of routes are loaded when one of them is first used.",
        '"""',
        "",
        "from __future__ import annotations",
        "",
        "from importlib import import_module",
        "from typing import TYPE_CHECKING, Any",
        "",
        "from chainapi.models.hooks import converter as converter",
        "from chainapi.models.invalid import Invalid as Invalid",
        "from chainapi.models.metrics import MetricPoint as MetricPoint",
        "from chainapi.models.unions import Unknown as Unknown",
        "",
        "if TYPE_CHECKING:",
    ]
    lines += [f"    from chainapi.models.{module} import *" for module in sorted(places)]
    lines += ["", "# What is in which module, for who runs this: type checkers look there.", "_NAMES = {"]
    for module, public in places.items():
        words = textwrap.fill(" ".join(public), 109, initial_indent=" " * 8, subsequent_indent=" " * 8)
        lines += [f'    "{module}": """', words, '    """,']
    lines += [
        "}",
        "_PLACES = {name: module for module, names in _NAMES.items() for name in names.split()}",
        "",
        "_PUBLIC = sorted([*_PLACES, 'Invalid', 'MetricPoint', 'Unknown', 'converter'])",
        "if not TYPE_CHECKING:",
        "    __all__ = _PUBLIC",
        "",
        "",
        "def __getattr__(name: str) -> Any:",
        "    if name not in _PLACES:",
        "        raise AttributeError(f'module {__name__!r} has no attribute {name!r}')",
        "    return getattr(import_module(f'{__name__}.{_PLACES[name]}'), name)",
        "",
        "",
        "def __dir__() -> list[str]:",
        "    return _PUBLIC",
    ]
    return "\n".join(lines) + "\n"


# Routes.


@frozen
class Method:
    """One method to write."""

    name: str
    text: str


class Routes:
    """The routes of several documents as methods of groups."""

    def __init__(self, models: Models) -> None:
        self.models = models
        self.groups: dict[str, list[Method]] = {}

    def add(self, document: Document, operation: Operation) -> None:
        """Make the method of a route."""
        dotted, docstring = names.ROUTES[document.name][operation.path]
        group, _, name = dotted.rpartition(".")
        items = document.list_field(operation)
        given = self.given(document, operation, items, group)
        route = self.route(document, operation, items, dotted)
        signature = ", ".join(self.signature(document, operation, items))
        result = f"Pages[{given}]" if items else given
        text = "\n".join(
            (
                f"    @{'lists' if items else 'gets'}({route})",
                f"    {'' if items else 'async '}def {name}({signature}) -> {result}:",
                f'        """{docstring}"""',
                "        ...",
            )
        )
        self.groups.setdefault(group, []).append(Method(name, text))

    def given(self, document: Document, operation: Operation, items: str | None, group: str) -> str:
        """Return the type of the rows, or of the answer."""
        variants: list[Schema] = []
        for variant in document.variants(operation.answer):
            if items is None:
                variants.append(variant)
            else:
                row = document.follow(variant)["properties"][items]["items"]
                variants += document.variants(row)
        found = []
        module = "metrics.icm" if group == "metrics.icm" else group.rpartition(".")[2]
        for variant in variants:
            schema = document.follow(variant)
            if "properties" not in schema:
                return "str"
            found.append(self.models.record(document, document.name_of(variant) or "", schema, module))
        if len(set(found)) == 1:
            return found[0]
        for name, rules in names.UNIONS.items():
            if set(found) <= set(rules.values()) and len(set(found)) >= len(set(rules.values())) - 1:
                return name
        raise SystemExit(f"{operation.path}: no union of {found}")

    def route(self, document: Document, operation: Operation, items: str | None, dotted: str) -> str:
        """Return the record of a route."""
        parts = [f'"{operation.path}"']
        if items and dotted != "data.chains":
            parts.append(f'"{items}"')
        if items:
            parts += identity_parts(dotted)
        if operation.weight:
            parts.append(f'weight="{operation.weight}"')
        if items:
            parts += order_parts(dotted)
        others = self.others(document, operation, items)
        if others:
            parts.append(f"others=({', '.join(others)},)")
        if operation.deprecated:
            parts.append("deprecated=True")
        return f"Route({', '.join(parts)})"

    def others(self, document: Document, operation: Operation, items: str | None) -> list[str]:
        """Return the further fields of the envelope."""
        if items is None:
            return []
        found = {}
        for body in document.answers(operation):
            for wire, schema in body["properties"].items():
                if wire in (items, "nextPageToken"):
                    continue
                group = (
                    "primary_network"
                    if wire == "chainInfo"
                    else "evm"
                    if wire == "nativeTokenBalance"
                    else ""
                )
                kind = self.models.type(document, Record("", []), wire, schema, group or "chain_metrics")
                kind = names.ENVELOPE_TYPES.get(wire, kind)
                found[snake(wire)] = f'("{snake(wire)}", "{kind}")'
        return list(found.values())

    def signature(self, document: Document, operation: Operation, items: str | None) -> Iterator[str]:
        """Yield the parameters as Python writes them: those of the path first."""
        yield "self"
        order = [part[1:-1] for part in operation.path.replace(":", "/").split("/") if part[:1] == "{"]
        given = {parameter["name"]: parameter for parameter in operation.parameters}
        for wire in order:
            yield self.parameter(document, given.pop(wire))
        size = given.pop("pageSize", None)
        given.pop("pageToken", None)
        rest = sorted(given.values(), key=lambda parameter: not parameter.get("required"))
        yield "*"
        for parameter in rest:
            yield self.parameter(document, parameter)
        if size is not None:
            most, least = size["schema"]["maximum"], size["schema"]["minimum"]
            alias = (
                f"PageSize{'' if most == 100 else most}" if least == 1 else "Annotated[int, Bounds(0, 100)]"
            )
            yield f"page_size: {alias} | None = {most}"
        if items:
            yield "resume: Checkpoint | None = None"
            yield 'on_invalid: OnInvalid = "raise"'
            yield "prefetch: int = 0"
        yield "priority: int = 0"
        yield "deadline: float | None = None"

    def parameter(self, document: Document, parameter: Schema) -> str:
        """Return one parameter as Python writes it."""
        wire = parameter["name"]
        name = names.RENAMED_PARAMETERS.get(wire, snake(wire))
        kind = self.parameter_type(document, wire, parameter["schema"])
        if name == "webhook_id":
            kind = f'Annotated[{kind}, Wire("{wire}")]'
        return f"{name}: {kind}" if parameter.get("required") else f"{name}: {kind} | None = None"

    def parameter_type(self, document: Document, wire: str, schema: Schema) -> str:
        """Return the type of a parameter."""
        kind = document.follow(schema)
        if "enum" in kind:
            return self.parameter_enum(document, wire, schema, kind)
        if wire in names.PARAMETER_TYPES:
            return names.PARAMETER_TYPES[wire]
        if wire.endswith("Timestamp"):
            return "Timestamp"
        if wire in names.LIST_PARAMETERS:
            return "Texts"
        if kind.get("type") == "array":
            return f"Annotated[Sequence[{self.parameter_type(document, wire, kind['items'])}], REPEATED]"
        if wire in names.WHOLE_PARAMETERS or wire in ("startBlock", "endBlock"):
            return "int"
        plain = {"string": "str", "integer": "int", "number": "float", "boolean": "bool"}[kind["type"]]
        if "minimum" in kind or "maximum" in kind:
            least, most = kind.get("minimum"), kind.get("maximum")
            return f"Annotated[{plain}, Bounds({least}{'' if most is None else f', {most}'})]"
        return plain

    def parameter_enum(self, document: Document, wire: str, schema: Schema, kind: Schema) -> str:
        """Return the enumeration of a parameter."""
        name = document.name_of(schema) or f"{wire[0].upper()}{wire[1:]}"
        return self.models.enum_name(name.removesuffix("Enum").removesuffix("Code"), tuple(kind["enum"]))


def identity_parts(dotted: str) -> Iterator[str]:
    """Yield what the record of a list says of the identity of its rows."""
    identity = names.identity_of(dotted)
    if identity.key:
        yield f"key={identity.key}"
    if identity.kinds:
        yield f"kind_keys={tuple(identity.kinds.items())}"
    if identity.immutable:
        yield f"immutable={identity.immutable}"


def order_parts(dotted: str) -> Iterator[str]:
    """Yield what the record of a list says of its order, and what that and the key depend on."""
    order, needed = names.ORDERS.get(dotted), names.identity_of(dotted).needs
    conditions: list[tuple[str, str, str | None]] = [("key", needed, None)] if needed else []
    if order:
        yield f'descending_key="{order.attribute}"'
        conditions += [("descending_key", *order.needs)] if order.needs else []
    if order and order.until:
        yield f'until="{order.until}"'
    if conditions:
        yield f"holds_if={tuple(conditions)}"


def group_text(dotted: str, methods: list[Method]) -> str:
    """Return the source of a group."""
    name, docstring = names.GROUPS[dotted]
    body = "\n\n".join(method.text for method in methods)
    return f'class {name}(Group):\n    """{docstring}"""\n\n{body}\n'


def write_groups(models: Models, routes: Routes) -> None:
    """Write a module for each group of the Data API, and one for those of the Metrics API."""
    modules: dict[str, list[str]] = {}
    for dotted in routes.groups:
        if dotted in names.GROUPS:
            service, _, group = dotted.partition(".")
            module = "chain_metrics" if service == "metrics" else "icm" if group == "teleporter" else group
            modules.setdefault(module, []).append(dotted)
    for module, dotted_names in modules.items():
        body = "\n\n".join(group_text(dotted, routes.groups[dotted]) for dotted in dotted_names)
        classes = [names.GROUPS[dotted][0] for dotted in dotted_names]
        service = dotted_names[0].partition(".")[0]
        titles = (
            f"`session.{dotted_names[0]}`" if len(dotted_names) == 1 else f"the groups of `session.{service}`"
        )
        if module == "icm":
            titles = "`session.data.icm`, and of its former name"
        save(PACKAGE / "api" / "groups" / f"{module}.py", routes_head(models, titles, body, classes) + body)
    for service in ("data", "metrics"):
        into(PACKAGE / "api" / f"{service}.py", "\n\n".join(method.text for method in routes.groups[service]))


def into(path: Path, methods: str) -> None:
    """Put the routes that are in no group into the class of their service, below its last hand-made part."""
    text = path.read_text("utf-8")
    mark = "    # The routes that are in no group.\n"
    save(path, f"{text.partition(mark)[0]}{mark}\n{methods}\n")


def routes_head(models: Models, titles: str, body: str, classes: list[str]) -> str:
    """Return the lines above the groups of a module."""

    def used(candidates: Iterable[str]) -> list[str]:
        return [name for name in candidates if re.search(rf"(?<![\w.\"/]){name}\b(?!/)", body)]

    lines = [f'"""The routes of {titles}."""', "", "from __future__ import annotations", ""]
    if "Sequence[" in body:
        lines.append("from collections.abc import Sequence")
    typing = used(["Annotated"])
    lines += [
        f"from typing import {', '.join([*(['TYPE_CHECKING']), *typing])}".replace(
            "TYPE_CHECKING, Annotated", "TYPE_CHECKING, Annotated"
        ),
        "",
    ]
    if "resume" in body:
        lines.append("from chainapi.core.paging.checkpoint import Checkpoint")
    lines.append(f"from chainapi.api.binding import {', '.join(['Group', *used(['gets', 'lists'])])}")
    if "Pages[" in body:
        lines.append("from chainapi.client.pages import OnInvalid, Pages")
    aliases = [
        "REPEATED",
        "Bounds",
        "ChainId",
        "PageSize",
        "PageSize10000",
        "PageSize2160",
        "PageSize500",
        "PageSize5000",
        "Texts",
        "Timestamp",
        "Wire",
    ]
    if parameters := used(aliases):
        lines.append(f"from chainapi.api.parameters import {', '.join(parameters)}")
    lines += ["from chainapi.api.routes import Route", "", "if TYPE_CHECKING:"]
    records = used(sorted({*models.records, *names.UNIONS, "MetricPoint"}))
    lines.append(f"    from chainapi.models import {', '.join(records)}")
    if enums := used(sorted(models.enums)):
        lines.append(f"    from chainapi.models.enums import {', '.join(enums)}")
    lines += ["", f"__all__ = [{', '.join(map(repr, classes))}]"]
    return "\n".join([*lines, "", "", ""])


def save(path: Path, text: str) -> None:
    """Write a module, and let ruff lay it out."""
    path.parent.mkdir(exist_ok=True)
    path.write_text(text, "utf-8")
    ruff = ("ruff", "check", "--quiet", "--fix", "--select", "I,RUF022,UP", str(path))
    subprocess.run((sys.executable, "-m", *ruff), check=False)
    subprocess.run((sys.executable, "-m", "ruff", "format", "--quiet", str(path)), check=True)


def main() -> None:
    """Read the documents that are given, and write all modules."""
    models = Models()
    routes = Routes(models)
    for path in sys.argv[1:]:
        document = Document.read(Path(path))
        operations = {operation.path: operation for operation in document.operations()}
        for known in names.ROUTES[document.name]:
            routes.add(document, operations[known])
    write_models(models)
    write_groups(models, routes)


if __name__ == "__main__":
    main()

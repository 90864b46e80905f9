"""Records from schemas: the modules of chainapi/models that the generator writes."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator

from attrs import define, field, frozen

from chainapi._tooling import fields, record_names
from chainapi._tooling.files import HEADER, GeneratorError, Writer
from chainapi._tooling.openapi import Document, Schema, snake

__all__ = ["Field", "Record", "Records", "sentence", "without_note", "write_records"]

FOLDER = "chainapi/models"


@frozen
class Field:
    """Field of a record: its JSON name, its Python type, whether it may be missing."""

    wire: str
    type: str
    missing: bool

    @property
    def name(self) -> str:
        """Name in Python."""
        return f"{snake(self.wire)}{'_' if self.wire == 'from' else ''}"

    def declaration(self, record: str, tag: str | None = None) -> str:
        """Return the line that declares it; a `tag` is its value in each request."""
        kind = f"{self.type} | None" if self.missing and self.type != "Any" else self.type
        secret = f"{record}.{self.wire}" in fields.SECRETS
        kind = f"Annotated[{kind}, NOT_SHOWN]" if secret else kind
        default = " = None" if self.missing else ""
        if tag is not None:
            default = f' = "{tag}"'
        return f"    {self.name}: {kind}{default}"

    @property
    def time(self) -> str | None:
        """Property that returns a timestamp as a datetime; None for other fields."""
        if not self.name.endswith("timestamp") or self.type != "Int":
            return None
        kind = "OptionalUTCDatetime" if self.missing else "UTCDatetime"
        return f'    {self.name.removesuffix("timestamp")}time = {kind}("{self.name}")'


@define
class Record:
    """Class of a record: fields, referenced records, tags, and groups of routes."""

    name: str
    fields: list[Field] = field(factory=list[Field])
    uses: set[str] = field(factory=set[str])
    tags: dict[str, str] = field(factory=dict[str, str])
    groups: set[str] = field(factory=set[str])


class Records:
    """Records and enumerations of all routes, gathered from the documents."""

    def __init__(self) -> None:
        self.records: dict[str, Record] = {}
        self.enums: dict[str, tuple[str, ...]] = {}

    def add(self, document: Document, name: str, schema: Schema, group: str) -> str:
        """Add a schema's record and the records it refers to; return its Python name."""
        ours = record_names.CLASSES.get(name, name)
        if ours in record_names.HAND_WRITTEN:
            return ours
        known = self.records.get(ours)
        if known is not None and group in known.groups:
            return ours
        record = self.records.setdefault(ours, Record(ours))
        record.groups.add(group)
        described = list(self._fields(document, record, schema, group))
        if record.fields and record.fields != described:
            raise GeneratorError(
                f"schema {name} has other fields than the schemas that became the record {ours}: give it a"
                " class of its own in CLASSES in chainapi/_tooling/record_names.py"
            )
        record.fields = described
        return ours

    def _fields(self, document: Document, record: Record, schema: Schema, group: str) -> Iterator[Field]:
        required = schema.get("required", ())
        for wire, kind in schema["properties"].items():
            optional = {f"{record.name}.{wire}", f"{record.name}.*"} & set(fields.OPTIONAL)
            text = self.type(document, record, wire, kind, group)
            yield Field(wire, text, wire not in required or bool(optional))

    def type(self, document: Document, record: Record, wire: str, schema: Schema, group: str) -> str:
        """Return the type of a field in Python."""
        if wire in fields.PLAIN:
            return "Any"
        kind = document.follow(schema)
        variants = kind.get("oneOf") or kind.get("anyOf")
        if variants and all("properties" in document.follow(variant) for variant in variants):
            record.uses.add(merged := self.merged(document, record, variants, group))
            return merged
        if variants:
            texts = [self.type(document, record, wire, variant, group) for variant in variants]
            return " | ".join(sorted(set(texts), reverse=True))
        if "enum" in kind:
            return self.enum(document, record, wire, schema, kind)
        if "properties" in kind:
            used = self.add(document, document.name_of(schema) or wire, kind, group)
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

    def merged(self, document: Document, record: Record, variants: list[Schema], group: str) -> str:
        """Return the record with the fields of several.

        Those that one of them lacks may be missing.
        """
        schemas = " ".join(document.name_of(one) or "" for one in variants)
        if schemas not in record_names.MERGED:
            raise GeneratorError(
                f"record {record.name} has one of {schemas} in a field: name the record that has the fields"
                " of all of them in MERGED in chainapi/_tooling/record_names.py"
            )
        followed = [document.follow(one) for one in variants]
        fields = {wire: kind for schema in followed for wire, kind in schema["properties"].items()}
        required = [wire for wire in fields if all(wire in one.get("required", ()) for one in followed)]
        return self.add(
            document, record_names.MERGED[schemas], {"properties": fields, "required": required}, group
        )

    def union(self, document: Document, record: Record, variants: list[Schema], group: str) -> str:
        """Return the union of several records."""
        found = {
            self.add(document, document.name_of(one) or "", document.follow(one), group) for one in variants
        }
        return union_of(record.name, found)

    def enum(self, document: Document, record: Record, wire: str, schema: Schema, kind: Schema) -> str:
        """Return the type of a field with listed values; it accepts other values, too."""
        tags = {
            rule.removeprefix(f"{wire}=")
            for rules in record_names.UNIONS.values()
            for rule, name in rules.items()
            if name == record.name and rule.startswith(f"{wire}=")
        }
        if tags:
            record.tags[wire] = tag = tags.pop()
            return f'Annotated[str, Literal["{tag}"]]'
        values = tuple(value for value in kind["enum"] if value is not None)
        name = document.name_of(schema) or f"{wire[0].upper()}{wire[1:]}"
        name = name.removesuffix("Enum").removesuffix("Code") if name != "OperationStatusCode" else name
        return f"Annotated[str, enums.{self.enum_name(name, values)}]"

    def enum_name(self, name: str, values: tuple[str, ...]) -> str:
        """Return the name of an enumeration; enumerations with the same values become one."""
        name = record_names.ENUMS.get(" ".join(values), name)
        for known, same in self.enums.items():
            if same == values and (known == name or len(values) > 1):
                return known
        if name in self.enums:
            raise GeneratorError(
                f"two enumerations have the name {name}: name the one with the values {' '.join(values)!r}"
                " in ENUMS in chainapi/_tooling/record_names.py"
            )
        self.enums[name] = values
        return name

    def module_of(self, name: str) -> str:
        """Return the module of a record's group.

        Records of several groups are in `common`.
        """
        groups = self.records[name].groups
        groups = groups - {record_names.REQUESTS} or groups  # bodies of requests use records of their answers
        modules = {record_names.MODULE_OF.get(group, group) for group in groups}
        module = modules.pop() if len(modules) == 1 else "common"
        if module not in record_names.MODULES:
            raise GeneratorError(
                f"record {name} of the group {module!r} has no module: in chainapi/_tooling/record_names.py"
                f" add {module!r} to MODULES for a new module, or to MODULE_OF for an existing one"
            )
        return module


def union_of(path: str, found: set[str]) -> str:
    """Return the union that has these records as its members.

    The documents may omit one of its members.
    """
    for name, rules in record_names.UNIONS.items():
        members = set(rules.values())
        if found <= members and len(found) >= len(members) - 1:
            return name
    raise GeneratorError(
        f"{path} has one of {', '.join(sorted(found))}, which are no union yet: add one to UNIONS in"
        " chainapi/_tooling/record_names.py, with the field that discriminates each"
    )


def scalar(record: str, wire: str, kind: str) -> str:
    """Return the type of a string, a number or a boolean."""
    exact = wire in fields.DECIMALS or f"{record}.{wire}" in fields.DECIMALS
    if kind == "string":
        whole = wire in fields.WHOLE_STRINGS or (wire == "chainId" and record in fields.WHOLE_CHAIN_IDS)
        return f"Annotated[{'Int' if whole else 'Decimal'}, AS_TEXT]" if whole or exact else "str"
    if kind in ("number", "integer"):
        return "Decimal" if exact else "Float" if wire in fields.FLOATS else "Int"
    return {"boolean": "bool"}[kind]


def without_note(kind: str) -> str:
    """Return a type in Python without what numbers have for the decoder."""
    plain = re.sub(r"Annotated\[(\w+), AS_TEXT\]", r"\1", kind)
    return re.sub(r"\b(Int|Float)\b", lambda found: found[1].lower(), plain)


def write_records(records: Records, writer: Writer) -> None:
    """Write a module for each group of records, the enumerations, and the package."""
    modules: dict[str, list[Record]] = {name: [] for name in record_names.MODULES}
    for name, record in records.records.items():
        modules[records.module_of(name)].append(record)
    places: dict[str, list[str]] = {}
    for module, members in modules.items():
        unions = [name for name in record_names.UNIONS if home(records, name) == module]
        places[module] = sorted([*(record.name for record in members), *unions])
        writer.write_python(f"{FOLDER}/{module}.py", module_text(records, module, in_order(members), unions))
    writer.write_python(f"{FOLDER}/enums.py", enums_text(records))
    writer.write_python(f"{FOLDER}/__init__.py", package_text(places))


def in_order(records: list[Record]) -> list[Record]:
    """Return the records sorted so that each one follows those that it refers to."""
    done: dict[str, Record] = {}
    known = {record.name: record for record in records}

    def add(record: Record) -> None:
        for used in sorted(record.uses & set(known) - set(done)):
            add(known[used])
        done.setdefault(record.name, record)

    for record in records:
        add(record)
    return list(done.values())


def home(records: Records, union: str) -> str | None:
    """Return the module of a union.

    It is the module of the members that are not in `common`; None means no members.
    """
    members = set(record_names.UNIONS[union].values()) & set(records.records)
    modules = {records.module_of(name) for name in members}
    if not modules:
        return None
    return min(modules - {"common"}, default="common")


def module_text(records: Records, module: str, members: list[Record], unions: list[str]) -> str:
    """Return the source of a module."""
    ours = {record.name for record in members}
    used = {name for record in members for name in record.uses}
    used |= {name for union in unions for name in record_names.UNIONS[union].values()}
    foreign: dict[str, set[str]] = {}
    for name in used - ours - record_names.HAND_WRITTEN:
        foreign.setdefault(records.module_of(name), set()).add(name)
    classes = "\n\n".join(class_text(record) for record in members)
    body = f"{classes}\n\n" + "\n".join(union_text(name) for name in unions) + "\n"
    return "\n".join((*head(module, foreign, sorted([*ours, *unions])), "", "", body))


def head(module: str, foreign: dict[str, set[str]], public: list[str]) -> Iterator[str]:
    """Yield the lines above the classes.

    The layout removes imports that the body does not need.
    """
    yield HEADER
    yield f'"""{record_names.MODULES[module]}"""'
    yield ""
    yield "from __future__ import annotations"
    yield ""
    yield "from decimal import Decimal"
    yield "from typing import Annotated, Any, Literal, TypeAlias"
    yield "from chainapi.models import enums"
    for name, used in sorted(foreign.items()):
        yield f"from chainapi.models.{name} import {', '.join(sorted(used))}"
    yield "from chainapi.models.timestamps import OptionalUTCDatetime, UTCDatetime"
    yield "from chainapi.models.records import Record"
    yield "from chainapi.models.schema import AS_TEXT, NOT_SHOWN, Float, Int"
    yield "from chainapi.models.unions import Unknown, register_union"
    yield ""
    yield f"__all__ = [{', '.join(repr(name) for name in public)}]"


def class_text(record: Record) -> str:
    """Return the source of a class; in records of requests, tags have their values."""
    defaults = record.tags if record.groups == {record_names.REQUESTS} else {}
    lines = [
        f"class {record.name}(Record, frozen=True, kw_only=True):",
        f'    """{sentence(record.name)}"""',
        "",
        *(entry.declaration(record.name, defaults.get(entry.wire)) for entry in record.fields),
    ]
    times = [entry.time for entry in record.fields if entry.time]
    return "\n".join([*lines, *([""] if times else []), *times, ""])


def sentence(name: str) -> str:
    """Return the docstring of a class, made from its name.

    It copies no text of a document.
    """
    if name in record_names.DOCSTRINGS:
        return record_names.DOCSTRINGS[name]
    spaced = snake(name).replace("_", " ")
    for letter in ("p", "x", "c"):
        spaced = spaced.replace(f"{letter} chain ", f"{letter.upper()}-Chain ")
    upper = {"evm", "icm", "utxo", "api", "rpc", "nft", "l1", "bls"}
    text = " ".join(word.upper() if word in upper else word for word in spaced.split())
    for old, new in (("erc20", "ERC-20"), ("erc721", "ERC-721"), ("erc1155", "ERC-1155")):
        text = text.replace(old, new)
    text = text.replace("primary network", "Primary Network").replace("BLS credentials", "BLS keys")
    if text.endswith(("s", "data")) and not text.endswith("ss"):
        return f"{text[0].upper()}{text[1:]}."
    vowel = text[0].lower() in "aeio" or text.startswith(("RPC", "L1", "NFT", "X-", "unk"))
    return f"{'An' if vowel else 'A'} {text}."


def union_text(name: str) -> str:
    """Return the source of a union and of its discriminators."""
    rules = record_names.UNIONS[name]
    lines = [
        f"{name}: TypeAlias = {' | '.join([*dict.fromkeys(rules.values()), 'Unknown'])}",
        "register_union(",
    ]
    lines += [f"    {name},", "    {"]
    lines += [f'        "{rule}": {record},' for rule, record in rules.items()]
    return "\n".join([*lines, "    },", ")"])


def enums_text(records: Records) -> str:
    """Return the source of the enumerations."""
    lines = [HEADER, '"""Values that the services list. Fields are open: other values are kept."""', ""]
    lines += ["from __future__ import annotations", "", "from typing import Literal, TypeAlias", ""]
    for name, values in sorted(records.enums.items()):
        lines.append(f"{name}: TypeAlias = Literal[{', '.join(map(repr, values))}]")
    return "\n".join(lines) + "\n"


PACKAGE_HEAD = '''"""Frozen records of rows, and the decoder of response bodies.

The records of a group of routes are loaded when one of them is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from chainapi.models.own import converter as converter
from chainapi.models.invalid import Invalid as Invalid
from chainapi.models.metrics import MetricPoint as MetricPoint
from chainapi.models.unions import Unknown as Unknown
'''

PACKAGE_TAIL = """_MODULES = {name: module for module, names in _NAMES.items() for name in names.split()}

_PUBLIC = sorted([*_MODULES, "Invalid", "MetricPoint", "Unknown", "converter"])
if not TYPE_CHECKING:
    __all__ = _PUBLIC


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return _PUBLIC
"""


def package_text(places: dict[str, list[str]]) -> str:
    """Return the source of the package: names that load their module on first use."""
    lines = [HEADER, PACKAGE_HEAD, "if TYPE_CHECKING:"]
    lines += [f"    from chainapi.models.{module} import *" for module in sorted(places)]
    lines += [
        "",
        "# Module -> names, for imports on first use; type checkers read the imports above.",
        "_NAMES = {",
    ]
    for module, public in places.items():
        words = textwrap.fill(" ".join(public), 109, initial_indent=" " * 8, subsequent_indent=" " * 8)
        lines += [f'    "{module}": """', words, '    """,']
    return "\n".join([*lines, "}", PACKAGE_TAIL])

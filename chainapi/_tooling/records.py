"""Records from schemas: the modules of chainapi/models that the generator writes."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence

from attrs import define, field, frozen

from chainapi._tooling.entries import RECORDS, Names
from chainapi._tooling.files import HEADER, GeneratorError, Writer, imports, words_of
from chainapi._tooling.openapi import NAME, Schema, name_of, snake, variants

__all__ = ["REQUESTS", "Field", "Record", "Records", "sentence", "write_records"]

FOLDER = "chainapi/models"
REQUESTS = "requests"  # module of the records that only requests have
HAND_WRITTEN = frozenset({"MetricPoint"})
AFFIXES = re.compile(r"^(Get|List)(?=\w+Response$)|(Dto|DTO|Param|Response)$")  # of names of schemas


@frozen
class Field:
    """Field of a record: JSON name, type, whether it may be missing, value that tags."""

    wire: str
    type: str
    missing: bool
    tag: str | None = None

    @property
    def name(self) -> str:
        """Name in Python."""
        return snake(self.wire)

    def declaration(self, *, tagged: bool) -> str:
        """Return the line that declares it; `tagged`, it has its tag by default."""
        kind = f"{self.type} | None" if self.missing and self.type != "Any" else self.type
        default = " = None" if self.missing else ""
        if tagged and self.tag is not None:
            default = f' = "{self.tag}"'
        return f"    {self.name}: {kind}{default}"

    @property
    def time(self) -> str | None:
        """Property that returns a timestamp as a datetime; None for other fields."""
        if not self.name.endswith("timestamp") or self.type != "Int":
            return None
        kind = "OptionalUTCDatetime" if self.missing else "UTCDatetime"
        return f'    {self.name.removesuffix("timestamp")}time: ClassVar[{kind}] = {kind}("{self.name}")'


@define
class Record:
    """Class of a record, and the modules whose routes use it."""

    name: str
    fields: list[Field] = field(factory=list[Field])
    modules: set[str] = field(factory=set[str])


class Records:
    """Records, enumerations and types of parameters, gathered from schemas."""

    def __init__(self, names: Names) -> None:
        self.names = names
        self.records: dict[str, Record] = {}
        self.enums: dict[str, tuple[str, ...]] = {}
        self.added: set[tuple[str, str]] = set()  # schemas and the modules that use them

    # Records

    def add(self, schema: Schema, module: str) -> str:
        """Add a schema's record and the records it refers to; return its Python name."""
        name = name_of(schema)
        if name is None:
            raise GeneratorError(
                f"a schema of {module} with the fields {', '.join(schema['properties'])} has no name. Move it"
                " to components/schemas of the document, and refer to it with $ref"
            )
        ours = self.names.classes.get(name) or AFFIXES.sub("", name)
        if ours in HAND_WRITTEN or (name, module) in self.added:
            return ours
        self.added.add((name, module))
        record = self.records.setdefault(ours, Record(ours))
        record.modules.add(module)
        fields = [self.field(ours, wire, schema, module) for wire in schema["properties"]]
        if record.fields and record.fields != fields:
            raise GeneratorError(
                f"schema {name} has other fields than the schemas that became the record {ours}: give it a"
                f" class of its own in [classes] in {RECORDS}"
            )
        record.fields = fields
        return ours

    def one_of(self, where: str, schemas: Sequence[Schema], module: str) -> str:
        """Add the records of several schemas; return the one record, or the union of all.

        The documents may omit one member of a union.
        """
        found = {self.add(one, module): None for one in schemas}
        if len(found) == 1:
            return next(iter(found))
        for name, rules in self.names.unions.items():
            members = set(rules.values())
            if found.keys() <= members and len(found) >= len(members) - 1:
                return name
        raise GeneratorError(
            f"{where} has one of {', '.join(sorted(found))}, which are no union yet: add one to [unions] in"
            f" {RECORDS}, with the field that discriminates each"
        )

    def module_of(self, name: str) -> str:
        """Return the module of a record; records of several modules are in `common`."""
        modules = self.records[name].modules
        modules = modules - {REQUESTS} or modules  # bodies of requests use records of their answers
        return next(iter(modules)) if len(modules) == 1 else "common"

    def module_of_union(self, name: str) -> str | None:
        """Return the module of the members that are not in `common`; None without members."""
        members = set(self.names.unions[name].values()) & set(self.records)
        modules = {self.module_of(member) for member in members}
        return min(modules - {"common"}, default="common") if modules else None

    # Fields

    def field(self, record: str, wire: str, schema: Schema, module: str) -> Field:
        """Return a field of a record."""
        optional = not self.names.optional.keys().isdisjoint((f"{record}.{wire}", f"{record}.*"))
        missing = optional or wire not in schema.get("required", ())
        tag = self.tag(record, wire)
        if tag is not None:
            return Field(wire, f'Annotated[str, Literal["{tag}"]]', missing, tag)
        return Field(wire, self.type(record, wire, schema["properties"][wire], module), missing)

    def tag(self, record: str, wire: str) -> str | None:
        """Return the value of a field by which a union knows the record."""
        rules = (
            rule for union in self.names.unions.values() for rule, kind in union.items() if kind == record
        )
        return next((rule.removeprefix(f"{wire}=") for rule in rules if rule.startswith(f"{wire}=")), None)

    def type(self, record: str, wire: str, schema: Schema, module: str) -> str:
        """Return the type of a field in Python."""
        for name in (f"{record}.{wire}", wire):
            if name in self.names.types:
                return self.names.types[name]
        kinds = variants(schema)
        if len(kinds) > 1 and all("properties" in one for one in kinds):
            schema = self.merged(record, kinds)
        elif len(kinds) > 1:
            texts = {self.type(record, wire, one, module) for one in kinds}
            return " | ".join(sorted(texts, reverse=True))
        if "enum" in schema:
            values = tuple(value for value in schema["enum"] if value is not None)
            return f"Annotated[str, enums.{self.enum_name(wire, schema, values)}]"
        if "properties" in schema:
            return self.add({NAME: wire, **schema}, module)
        name = schema["type"] if isinstance(schema["type"], str) else schema["type"][0]
        if name == "array":
            return f"list[{self.type(record, wire, schema['items'], module)}]"
        if name == "object":
            inner = schema.get("additionalProperties")
            value = self.type(record, wire, inner, module) if isinstance(inner, dict) else "Any"
            return f"dict[str, {value}]"
        return self.scalar(record, wire, name)

    def merged(self, record: str, schemas: list[Schema]) -> Schema:
        """Return a schema with the fields of several; those that one lacks are optional."""
        names = tuple(name_of(one) for one in schemas)
        for name, members in self.names.merged.items():
            if members == names:
                fields = {wire: kind for one in schemas for wire, kind in one["properties"].items()}
                needed = [wire for wire in fields if all(wire in one.get("required", ()) for one in schemas)]
                return {NAME: name, "properties": fields, "required": needed}
        raise GeneratorError(
            f"record {record} has one of {names} in a field: name the record that has the fields of all"
            f" of them in [merged] in {RECORDS}"
        )

    def scalar(self, record: str, wire: str, kind: str) -> str:
        """Return the type of a string, a number or a boolean."""
        fields = {wire, f"{record}.{wire}"}
        exact = not fields.isdisjoint(self.names.exact)
        if kind == "string":
            whole = not fields.isdisjoint(self.names.whole)
            return f"Annotated[{'Int' if whole else 'Decimal'}, AS_TEXT]" if whole or exact else "str"
        if kind in ("number", "integer"):
            return "Decimal" if exact else "Float" if wire in self.names.fractional else "Int"
        return {"boolean": "bool"}[kind]

    def envelope(self, wire: str, schema: Schema, module: str) -> tuple[str, str]:
        """Return a field of a page beside its rows: its name, and its type for users."""
        kind = re.sub(r"Annotated\[(\w+), AS_TEXT\]", r"\1", self.type("", wire, schema, module))
        return snake(wire), re.sub(r"\b(Int|Float)\b", lambda found: found[1].lower(), kind)

    # Enumerations

    def enum_name(self, wire: str, schema: Schema, values: tuple[str, ...]) -> str:
        """Return the name of an enumeration; enumerations with the same values become one."""
        name = name_of(schema) or f"{wire[0].upper()}{wire[1:]}"
        name = name.removesuffix("Enum").removesuffix("Code")
        name = next((ours for ours, listed in self.names.enums.items() if listed == values), name)
        for known, same in self.enums.items():
            if same == values and (known == name or len(values) > 1):
                return known
        if name in self.enums:
            raise GeneratorError(
                f"two enumerations have the name {name}: name the one with the values {' '.join(values)!r}"
                f" in [enums] in {RECORDS}"
            )
        self.enums[name] = values
        return name

    # Parameters

    def parameter(self, parameter: Schema) -> str:
        """Return a parameter in Python."""
        wire, name = parameter["name"], snake(parameter["name"])
        kind = self.parameter_type(wire, parameter["schema"], in_body=parameter["in"] == "body")
        if wire in self.names.renamed:
            name, kind = self.names.renamed[wire], f'Annotated[{kind}, Wire("{wire}")]'
        return f"{name}: {kind}{'' if parameter.get('required') else ' | None = None'}"

    def parameter_type(self, wire: str, schema: Schema, *, in_body: bool = False) -> str:
        """Return the type of a parameter."""
        kind = schema.get("type")
        if in_body and kind == "array":
            return f"Annotated[Sequence[{self.entry_type(schema['items'])}], REPEATED]"
        if "enum" in schema:
            return self.enum_name(wire, schema, tuple(schema["enum"]))
        if wire in self.names.parameters:
            return self.names.parameters[wire]
        if wire.endswith("Timestamp"):
            return "Timestamp"
        if wire in self.names.whole:
            return "int"
        if kind == "array":
            return f"Annotated[Sequence[{self.parameter_type(wire, schema['items'])}], REPEATED]"
        plain = {"string": "str", "integer": "int", "number": "float", "boolean": "bool"}[schema["type"]]
        least, most = schema.get("minimum"), schema.get("maximum")
        if least is None and most is None:
            return plain
        return f"Annotated[{plain}, {bounds(least, most)}]"

    def entry_type(self, schema: Schema) -> str:
        """Return the type of the entries of a list in a body."""
        if len(variants(schema)) == 1:
            return self.parameter_type("", schema)
        return self.one_of("a list in a body", variants(schema), REQUESTS)


def bounds(least: float | None, most: float | None) -> str:
    """Return the bounds of a number."""
    return f"Bounds({least}{'' if most is None else f', {most}'})"


def write_records(records: Records, writer: Writer) -> None:
    """Write a module for each group of records, the enumerations, and the package."""
    modules: dict[str, dict[str, str]] = {module: {} for module in records.names.modules}
    for name, record in records.records.items():
        modules[records.module_of(name)][name] = class_text(records.names, record)
    for name, rules in records.names.unions.items():
        if module := records.module_of_union(name):
            modules[module][name] = union_text(name, rules)
    for module, texts in modules.items():
        others = {f"chainapi.models.{name}": other for name, other in modules.items() if name != module}
        text = module_text(records.names.modules[module], texts, others)
        writer.write_python(f"{FOLDER}/{module}.py", text)
    writer.write_python(f"{FOLDER}/enums.py", enums_text(records))
    writer.write_python(f"{FOLDER}/__init__.py", package_text(modules))


def module_text(docstring: str, texts: Mapping[str, str], others: Mapping[str, Iterable[str]]) -> str:
    """Return the source of a module, made of its classes.

    The layout removes imports that the module does not need. `others` has the names in other modules.
    """
    body = "\n".join(in_order(texts))
    lines = [
        HEADER,
        f'"""{docstring}"""',
        "",
        "from __future__ import annotations",
        "",
        "from decimal import Decimal",
        "from typing import Annotated, Any, ClassVar, Literal, TypeAlias",
        "from chainapi.models import enums",
        *imports(body, others),
        "from chainapi.models.timestamps import OptionalUTCDatetime, UTCDatetime",
        "from chainapi.models.records import Record",
        "from chainapi.models.schema import AS_TEXT, NOT_SHOWN, Float, Int",
        "from chainapi.models.unions import Unknown, register_union",
        "",
        "",
        body,
    ]
    return "\n".join(lines)


def in_order(texts: Mapping[str, str]) -> Iterator[str]:
    """Yield the sources of classes, each after those that it refers to."""
    done = set[str]()

    def add(name: str) -> Iterator[str]:
        done.add(name)
        for used in sorted(words_of(texts[name]) & texts.keys()):
            if used not in done:
                yield from add(used)
        yield texts[name]

    for name in texts:
        if name not in done:
            yield from add(name)


def class_text(names: Names, record: Record) -> str:
    """Return the source of a class; in records of requests, tags have their values."""
    tagged = record.modules == {REQUESTS}
    lines = [
        f"class {record.name}(Record, frozen=True, kw_only=True):",
        f'    """{names.docs.get(record.name) or sentence(record.name)}"""',
        "",
        *(one.declaration(tagged=tagged) for one in record.fields),
        "",
        *(one.time for one in record.fields if one.time),
    ]
    return "\n".join([*lines, ""])


def sentence(name: str) -> str:
    """Return the docstring of a class, made from its name.

    It copies no text of a document.
    """
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


def union_text(name: str, rules: Mapping[str, str]) -> str:
    """Return the source of a union and of its discriminators."""
    members = " | ".join([*dict.fromkeys(rules.values()), "Unknown"])
    lines = "".join(f'    "{rule}": {record},\n' for rule, record in rules.items())
    return f"{name}: TypeAlias = {members}\nregister_union({name}, {{\n{lines}}})"


def enums_text(records: Records) -> str:
    """Return the source of the enumerations."""
    lines = [
        HEADER,
        '"""Values that the services list. Fields are open: other values are kept."""',
        "from __future__ import annotations",
        "from typing import Literal, TypeAlias",
        "",
        *(f"{name}: TypeAlias = Literal{list(values)}" for name, values in sorted(records.enums.items())),
    ]
    return "\n".join(lines)


PACKAGE_HEAD = '''"""Frozen records of rows, and the decoder of response bodies.

The records of a group of routes are loaded when one of them is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from chainapi.models.invalid import Invalid as Invalid
from chainapi.models.metrics import MetricPoint as MetricPoint
from chainapi.models.own import converter as converter
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


def package_text(modules: Mapping[str, Iterable[str]]) -> str:
    """Return the source of the package: names that load their module on first use."""
    lines = [HEADER, PACKAGE_HEAD, "if TYPE_CHECKING:"]
    lines += [f"    from chainapi.models.{module} import *" for module in sorted(modules)]
    lines += [
        "",
        "# Module -> names, for imports on first use; type checkers read the imports above.",
        "_NAMES = {",
    ]
    for module, names in modules.items():
        words = textwrap.indent(textwrap.fill(" ".join(sorted(names)), 101), " " * 8)
        lines += [f'    "{module}": """', words, '    """,']
    return "\n".join([*lines, "}", PACKAGE_TAIL])

"""Compare routes and records with OpenAPI documents.

Run it as `python -m chainapi._tooling.compare [DOCUMENT ...]`. The command prints a line for each difference:
paths, parameters, bounds, values, required fields, weights, list fields, types, optional attributes of keys.
Differences with a reason in `EXPLAINED` or in the tables of `fields` are only counted, unless `--all` is
given; any other makes the command fail. With `--examples` it also decodes the examples of the documents.
"""

from __future__ import annotations

import json
import sys
import types
import typing
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Literal

import attrs
from attrs import frozen

from chainapi._tooling import fields, record_names
from chainapi._tooling.openapi import Document, Operation, Schema, find_documents
from chainapi.api.catalogue import ROUTES, WRITES
from chainapi.api.endpoint import Endpoint
from chainapi.api.parameters import Parameter
from chainapi.errors import DecodeError
from chainapi.models.codec import PageDecoder, decode_resource
from chainapi.models.schema import AS_TEXT, REFUSED
from chainapi.models.unions import tags_of, wire_name

__all__ = ["Difference", "compare", "examples", "main"]

DECLARED = {**ROUTES, **WRITES}

# Wanted differences: kind, end of the place, reason.
EXPLAINED: tuple[tuple[str, str, str], ...] = (
    (
        "not in the document",
        "metrics.avg_tps",
        "the specification's own route, which the public service has left",
    ),
    ("list field", "data.chains", "the specification does not name the list field: the first page decides"),
    ("type", "chainId", "a chain may be given by its number"),
    ("type", "blockId", "a block may be given by its number"),
    ("type", "tokenId", "a token may be given by its number"),
    ("type", "threshold", "an amount may be given as a number"),
    ("type", "Timestamp", "a time may be given as a datetime"),
    ("type", "blockNumber", "numbers are numbers"),
    ("type", "responseCode", "numbers are numbers"),
    ("type", "DelegationCapacity", "numbers are numbers"),
    ("type", "startBlock", "a block has a whole number"),
    ("type", "endBlock", "a block has a whole number"),
    ("type", "addresses", "addresses may be given as a list"),
    ("type", "contractAddresses", "addresses may be given as a list"),
    ("type", "nodeIds", "nodes may be given as a list"),
    ("type", "rewardAddresses", "addresses may be given as a list"),
    ("type", "subnetId", "the document gives no type"),
    ("variant", "data.teleporter.message", "what the list has, the single message may have"),
    ("variant", "data.teleporter.messages", "what the single message has, the list may have"),
    ("variant", "data.teleporter.address_messages", "what the single message has, the list may have"),
    ("bounds", "data.primary_network.balances blockTimestamp", "no block is older than Unix time"),
    ("type", "pChainHeight", "a height is a whole number"),
    ("type", "quorumPercentage", "the document describes it as an integer"),
    ("type", "quorumPercentageBuffer", "the document describes it as an integer"),
    ("required", "Request.eventType", "the class of the record implies it"),
    ("required", "Query.type", "the class of the record implies it"),
    ("required", "EvmTransactionExport.type", "the class of the record implies it"),
    *(
        ("field", f"NftHoldersRange.{wire}", "one record has the fields of both ranges")
        for wire in ("firstDate", "lastDate", "startTs", "endTs")
    ),
    *(
        ("required", f"NftHoldersRange.{wire}", "one record has the fields of both ranges")
        for wire in ("firstDate", "lastDate", "startTs", "endTs")
    ),
    ("type", "lastUpdated", "a date in a text is kept as it comes"),
)


@frozen
class Difference:
    """Difference: its kind, its place, and the reason if it is wanted."""

    what: str
    where: str
    detail: str
    reason: str | None = None

    def __str__(self) -> str:
        reason = "" if self.reason is None else f"  [{self.reason}]"
        return f"{self.what}: {self.where}: {self.detail}{reason}"


def differs(what: str, where: str, detail: str, reason: str | None = None) -> Difference:
    """Return a difference, with its reason if there is one."""
    for kind, end, why in EXPLAINED:
        if reason is None and kind == what and where.endswith(end):
            reason = why
    return Difference(what, where, detail, reason)


def compare(documents: list[Document]) -> Iterator[Difference]:
    """Yield the differences between declared routes and documents."""
    ours: dict[tuple[str, str], str] = {}
    for name, declared in DECLARED.items():
        ours[name.partition(".")[0], declared.route.place] = name
    there: set[tuple[str, str]] = set()
    for document in documents:
        for operation in document.operations():
            there.add((document.name, operation.place))
            known = ours.get((document.name, operation.place))
            if known is None:
                yield differs("not declared", f"{document.name} {operation.place}", "no declared route")
            else:
                yield from _Route(document, operation, known, DECLARED[known]).differences()
    services = {document.name for document in documents}
    for place, name in ours.items():
        if place[0] in services and place not in there:
            yield differs("not in the document", name, place[1])


class _Route:
    """Declared route beside the route of the document."""

    def __init__(self, document: Document, operation: Operation, name: str, declared: Endpoint) -> None:
        self.document, self.operation, self.name, self.declared = document, operation, name, declared
        self.seen: set[tuple[Any, int]] = set()

    def differences(self) -> Iterator[Difference]:
        """Yield all differences of the route."""
        route, operation = self.declared.route, self.operation
        for what, mine, theirs in (
            ("weight", route.weight, operation.weight),
            ("deprecated", route.deprecated, operation.deprecated),
            ("list field", route.items, self.document.list_field(operation)),
        ):
            if mine != theirs:
                yield differs(what, self.name, f"{mine!r} is {theirs!r} in the document")
        yield from self.parameters()
        yield from self.answer()

    def parameters(self) -> Iterator[Difference]:
        """Yield the differences of the parameters."""
        mine = {parameter.wire: parameter for parameter in self.declared.parameters}
        theirs = {one["name"]: one for one in self.operation.parameters} | self.in_body()
        theirs.pop("pageToken", None)  # the walk sets it
        for wire in sorted(mine.keys() ^ theirs.keys()):
            yield differs("parameter", f"{self.name} {wire}", "ours only" if wire in mine else "not ours")
        for wire in sorted(mine.keys() & theirs.keys()):
            yield from self.parameter(mine[wire], theirs[wire])

    def in_body(self) -> dict[str, Schema]:
        """Return the fields of the body as parameters; a union of bodies is one parameter."""
        body = None if self.operation.body is None else self.document.follow(self.operation.body)
        if body is None:
            return {}
        if "properties" not in body:
            whole = next(one for one in self.declared.parameters if one.whole)
            return {whole.wire: {"name": whole.wire, "in": "body", "required": True, "schema": body}}
        needed = body.get("required", ())
        return {
            wire: {"name": wire, "in": "body", "required": wire in needed, "schema": schema}
            for wire, schema in body["properties"].items()
        }

    def parameter(self, mine: Parameter, theirs: Schema) -> Iterator[Difference]:
        """Yield the differences of one parameter."""
        where = f"{self.name} {mine.wire}"
        schema = self.document.follow(theirs["schema"])
        if mine.union is not None:
            items = schema["items"] if schema.get("type") == "array" else schema
            yield from self.union(where, mine.union, self.document.variants(items))
            return
        array = schema.get("type") == "array"
        inner = self.document.follow(schema["items"]) if array else schema
        least, most = inner.get("minimum"), inner.get("maximum")
        bounds = None if least is None and most is None else (least, most)
        ours = None if mine.bounds is None else (mine.bounds.least, mine.bounds.most)
        kinds = {"string": {str}, "integer": {int}, "number": {int, float}, "boolean": {bool}}
        for what, have, want in (
            ("place", (mine.in_path, mine.in_body), (theirs["in"] == "path", theirs["in"] == "body")),
            ("required", mine.required, bool(theirs.get("required"))),
            ("values", set(mine.choices), set(inner.get("enum", ()))),
            ("bounds", ours, bounds),
            ("repeated", mine.repeated, array),
            ("type", mine.many and not mine.repeated, False),
        ):
            if have != want:
                yield differs(what, where, f"{have!r} is {want!r} in the document")
        if not mine.choices and set(mine.kinds) != kinds.get(inner.get("type", ""), set()):
            known = ", ".join(kind.__name__ for kind in mine.kinds)
            yield differs("type", where, f"{known} is {inner.get('type')} in the document")
        if mine.wire == "pageSize" and mine.default != most:
            yield differs("default", where, f"{mine.default} is not the greatest, {most}")

    def answer(self) -> Iterator[Difference]:
        """Yield the differences of the response."""
        route = self.declared.route
        if self.declared.single:
            if bool(self.operation.answer) == self.declared.bodiless:
                yield differs("answer", self.name, "with a body here only, or there only")
            elif self.operation.answer:
                yield from self.value(self.name, "", route.model, self.operation.answer)
            return
        rows: list[Schema] = []
        extra = dict(route.extra)
        mine = {wire_name(name): kind for name, kind in extra.items()}
        for body in self.document.answers(self.operation):
            envelope = dict(body["properties"])
            envelope.pop("nextPageToken", None)
            items = self.document.list_field(self.operation) or ""
            rows += self.document.variants(envelope.pop(items)["items"])
            for wire in sorted(envelope.keys() ^ mine.keys()):
                yield differs("envelope", f"{self.name} {wire}", "ours only" if wire in mine else "not ours")
            for wire in sorted(envelope.keys() & mine.keys()):
                yield from self.value(f"{self.name}.{wire}", wire, mine[wire], envelope[wire])
        model = str if route.model is None else route.model
        yield from self.value(self.name, "", model, {"oneOf": rows})
        for variant in rows:
            yield from self.key(variant)

    def key(self, variant: Schema) -> Iterator[Difference]:
        """Yield the attributes of the key that are optional in the document."""
        named = self.document.name_of(variant) or ""
        kind = record_names.CLASSES.get(named, named)
        for path in dict(self.declared.route.kind_keys).get(kind, self.declared.route.key):
            schema = self.document.follow(variant)
            for wire in map(wire_name, path.split(".")):
                if wire not in schema.get("required", ()):
                    yield differs("key", f"{self.name} {path}", f"{kind} need not have {wire}")
                    break
                schema = self.document.follow(schema["properties"][wire])

    def value(self, where: str, wire: str, hint: Any, schema: Schema) -> Iterator[Difference]:
        """Yield the differences between a type and a schema."""
        hint, choices = _plain(hint)
        variants = self.document.variants(schema)
        if wire in fields.PLAIN:
            yield differs("type", where, "plain JSON", fields.PLAIN[wire])
        elif tags_of(hint):
            yield from self.union(where, hint, variants)
        elif attrs.has(hint):
            for variant in variants:
                yield from self.record(where, hint, self.document.follow(variant))
        elif typing.get_origin(hint) in (list, dict):
            followed = self.document.follow(schema)
            inner = followed.get("items") or followed.get("additionalProperties") or {}
            if inner or typing.get_args(hint)[-1] is not Any:
                yield from self.value(where, wire, typing.get_args(hint)[-1], inner)
        else:
            yield from self.scalar(where, hint, choices, [self.document.follow(one) for one in variants])

    def union(self, where: str, union: Any, variants: list[Schema]) -> Iterator[Difference]:
        """Yield the differences between a union and the union of a schema."""
        mine = {tag.kind.__name__: tag for tag in tags_of(union)}
        theirs = {
            record_names.CLASSES.get(self.document.name_of(one) or "", self.document.name_of(one)): one
            for one in variants
        }
        for name in sorted(mine.keys() ^ theirs.keys(), key=str):
            yield differs("variant", where, f"{name} is {'ours only' if name in mine else 'not ours'}")
        for name in mine.keys() & theirs.keys():
            schema, tag = self.document.follow(theirs[name]), mine[name]
            yield from self.record(where, tag.kind, schema)
            if tag.path[0] not in schema["properties"]:
                yield differs("tag", where, f"{name} has no {tag.path[0]}")

    def record(self, where: str, model: Any, schema: Schema) -> Iterator[Difference]:
        """Yield the differences between a record and an object."""
        if (model, id(schema)) in self.seen:
            return
        self.seen.add((model, id(schema)))
        hints = typing.get_type_hints(model, include_extras=True)
        mine = {wire_name(field.name): field for field in attrs.fields(model)}
        theirs = schema["properties"]
        name = model.__name__
        for wire in sorted(mine.keys() ^ theirs.keys()):
            yield differs("field", f"{where} {name}.{wire}", "ours only" if wire in mine else "not ours")
        for wire in sorted(mine.keys() & theirs.keys()):
            required = mine[wire].default is attrs.NOTHING
            if required != (wire in schema.get("required", ())):
                known = fields.OPTIONAL
                reason = known.get(f"{name}.{wire}") or known.get(f"{name}.*")
                detail = f"{required} is {not required} in the document"
                yield differs("required", f"{where} {name}.{wire}", detail, reason)
            place = f"{where} {name}.{wire}"
            yield from self.value(place, wire, hints[mine[wire].name], theirs[wire])

    def scalar(self, where: str, hint: Any, choices: set[str], schemas: list[Schema]) -> Iterator[Difference]:
        """Yield the differences between a string, a number or a boolean and a schema."""
        values = {value for schema in schemas for value in schema.get("enum", ()) if value is not None}
        if choices != values:
            only = f"{sorted(choices - values)} ours only, {sorted(values - choices)} not ours"
            yield differs("values", where, only)
        fits: dict[str, set[Any]] = {
            "string": {str, int, Decimal},  # numbers in strings: `fields` lists them
            "number": {int, float, Decimal},
            "integer": {int},
            "boolean": {bool},
            "object": {Any},
            "array": {list[str]},
        }
        kinds = typing.get_args(hint) if _is_union(hint) else (hint,)
        for schema in schemas:
            kind = schema.get("type")
            text = kind[0] if isinstance(kind, list) else kind
            if not set(kinds) & fits.get(text or "", set()):
                yield differs("type", where, f"{hint} is {kind} in the document")


def _is_union(hint: Any) -> bool:
    return typing.get_origin(hint) in (typing.Union, types.UnionType)


def _plain(hint: Any) -> tuple[Any, set[str]]:
    """Return a type without None and annotations, and the values that it lists."""
    if _is_union(hint) and not tags_of(hint):
        kept = [one for one in typing.get_args(hint) if one not in (type(None), *REFUSED)]
        if len(kept) == 1:
            return _plain(kept[0])
    if typing.get_origin(hint) is Annotated:
        of, note, *_ = typing.get_args(hint)
        return _plain(of) if note == AS_TEXT else (_plain(note)[0], set(typing.get_args(note)))
    if typing.get_origin(hint) is Literal:
        return str, set(typing.get_args(hint))
    return hint, set()


# Examples.


class _Examples:
    """Example responses of a document, with invented values for missing examples."""

    def __init__(self, document: Document, *, optional: bool) -> None:
        self.document, self.optional = document, optional

    def of(self, schema: Schema, wire: str = "") -> Any:
        """Return an example of a schema."""
        for holder in (schema, self.document.follow(schema)):
            if "example" in holder:
                return holder["example"]
            given = holder.get("examples")
            if given:
                return given[0] if isinstance(given, list) else given
        kind = self.document.follow(schema)
        variants = kind.get("oneOf") or kind.get("anyOf")
        if variants:
            return self.of(variants[0], wire)
        if "enum" in kind:
            return kind["enum"][0]
        if "properties" in kind:
            return {
                name: self.of(inner, name)
                for name, inner in kind["properties"].items()
                if self.optional or name in kind.get("required", ())
            }
        name = kind["type"] if isinstance(kind["type"], str) else kind["type"][0]
        if name == "array":
            return [self.of(variant, wire) for variant in self.document.variants(kind["items"])]
        made_up = {"number": 12, "integer": 12, "boolean": True, "object": {}}
        in_digits = wire in fields.WHOLE_STRINGS | fields.DECIMALS | {"chainId"}
        return made_up.get(name, "12" if in_digits else "text")


def examples(document: Document) -> Iterator[tuple[str, str | None]]:
    """Yield each route with the fault of its example response, or with None."""
    by_place = {(name.split(".")[0], one.route.place): (name, one) for name, one in DECLARED.items()}
    for operation in document.operations():
        if not operation.answer:
            continue
        name, declared = by_place[document.name, operation.place]
        route = declared.route
        for optional in (True, False):
            maker = _Examples(document, optional=optional)
            for answer in document.variants(operation.answer):
                body = json.dumps(maker.of(answer)).encode()
                try:
                    if declared.single:
                        decode_resource(body, route.model)
                    else:
                        PageDecoder(route.model, route.items, route.extra).decode(body)
                except DecodeError as error:
                    yield name, f"{error}"
                else:
                    yield name, None


def main(arguments: list[str]) -> int:
    """Print all differences; return the number of unexplained ones.

    Examples that cannot be decoded count too. Without a document it is 1.
    """
    flags = {argument for argument in arguments if argument.startswith("--")}
    documents = [Document.read(Path(one)) for one in arguments if one not in flags] or find_documents()
    if not documents:
        print("no OpenAPI documents to compare with: name them, or see docs/contributing.md for their folder")
        return 1
    found = list(compare(documents))
    unexplained = [difference for difference in found if difference.reason is None]
    for difference in found if "--all" in flags else unexplained:
        print(difference)
    print(f"{len(found)} differences, {len(unexplained)} of them without a reason")
    if "--examples" not in flags:
        return len(unexplained)
    decoded = [outcome for document in documents for outcome in examples(document)]
    wrong = [f"{name}: {fault}" for name, fault in decoded if fault is not None]
    print("\n".join([*wrong, f"{len(decoded)} answers of examples, {len(wrong)} of them cannot be decoded"]))
    return len(unexplained) + len(wrong)


if __name__ == "__main__":
    sys.exit(min(1, main(sys.argv[1:])))

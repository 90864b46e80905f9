"""An OpenAPI document as the tools read it: routes and schemas, with references followed."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from attrs import field, frozen

Schema = dict[str, Any]


@frozen
class Operation:
    """One GET route of a document."""

    path: str
    weight: str | None
    deprecated: bool
    parameters: tuple[Schema, ...]
    answer: Schema


@frozen
class Document:
    """The parts of a document that matter here."""

    content: Schema
    name: str = field()  # `data` or `metrics`

    @classmethod
    def read(cls, path: Path) -> Document:
        """Read a document; its server says which of the two it is."""
        content = json.loads(path.read_text("utf-8"))
        host = content["servers"][0]["url"]
        return cls(content, "metrics" if "metrics" in host else "data")

    def operations(self) -> Iterator[Operation]:
        """Yield the GET routes."""
        for path, methods in self.content["paths"].items():
            if "get" not in methods:
                continue
            get = methods["get"]
            answers = [answer for status, answer in get["responses"].items() if status.startswith("2")]
            yield Operation(
                path,
                get.get("x-execution-weight"),
                get.get("deprecated", False),
                tuple(get.get("parameters", ())),
                answers[0]["content"]["application/json"]["schema"],
            )

    def follow(self, schema: Schema) -> Schema:
        """Return a schema, references and lone `allOf`, `oneOf` and `anyOf` followed."""
        while True:
            alone = [schema[way][0] for way in ("allOf", "oneOf", "anyOf") if len(schema.get(way, ())) == 1]
            if "$ref" in schema:
                schema = self.content["components"]["schemas"][schema["$ref"].rsplit("/", 1)[1]]
            elif alone:
                schema = alone[0]
            else:
                return schema

    @staticmethod
    def name_of(schema: Schema) -> str | None:
        """Return the name under which a schema is referred to."""
        while "$ref" not in schema:
            alone = [schema[way][0] for way in ("allOf", "oneOf", "anyOf") if len(schema.get(way, ())) == 1]
            if not alone:
                return None
            schema = alone[0]
        name: str = schema["$ref"].rsplit("/", 1)[1]
        return name

    def variants(self, schema: Schema) -> list[Schema]:
        """Return what a schema may be: the members of its union, or itself."""
        followed = self.follow(schema)
        return list(followed.get("oneOf") or followed.get("anyOf") or [schema])

    def answers(self, operation: Operation) -> list[Schema]:
        """Return the objects that may be the body of an answer."""
        return [self.follow(variant) for variant in self.variants(operation.answer)]

    def list_field(self, operation: Operation) -> str | None:
        """Return the name of the list field, for routes that give rows: the only field that holds a list."""
        for body in self.answers(operation):
            fields = body.get("properties", {})
            lists: list[str] = [
                name for name, kind in fields.items() if self.follow(kind).get("type") == "array"
            ]
            if "nextPageToken" in fields:
                required = [name for name in lists if name in body.get("required", ())]
                return required[0]
            if len(lists) == 1 and len(fields) == 1:
                return lists[0]
        return None


def beside() -> list[Document]:
    """Return the documents of both services, where they are beside the project; none where they are not.

    They are in a folder `openapi`, or the one that CHAINAPI_OPENAPI names: beside the project, or one level
    below that.
    """
    around = Path(__file__).resolve().parents[3]
    named = os.environ.get("CHAINAPI_OPENAPI")
    folders = [Path(named)] if named else [*around.glob("openapi"), *sorted(around.glob("*/openapi"))]
    for folder in folders:
        places = sorted(folder.glob("*-api.json"))
        if places:
            return [Document.read(place) for place in places]
    return []


def snake(name: str) -> str:
    """Return a name of the wire as Python writes it: `blockNumber` is `block_number`."""
    return re.sub(r"(?<=[a-z0-9])([A-Z])|(?<=[A-Z])([A-Z])(?=[a-z])", r"_\g<0>", name).lower()

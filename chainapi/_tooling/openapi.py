"""OpenAPI documents: GET routes and schemas, with references followed."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from attrs import field, frozen

from chainapi._tooling.files import ROOT, GeneratorError
from chainapi.models.unions import python_name

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
    """OpenAPI document of one of the two services."""

    content: Schema
    name: str = field()  # `data` or `metrics`

    @classmethod
    def read(cls, path: Path) -> Document:
        """Read a document; the host of its first server names the service.

        Raises:
            GeneratorError: the document has no server.

        """
        content = json.loads(path.read_text("utf-8"))
        servers = content.get("servers")
        if not servers:
            raise GeneratorError(
                f'{path} has no servers: add "servers": [{{"url": "https://data-api.example.com"}}],'
                ' with "metrics" in the host if the routes are of the Metrics API'
            )
        return cls(content, "metrics" if "metrics" in servers[0]["url"] else "data")

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
        """Return the name of the component that a schema refers to."""
        while "$ref" not in schema:
            alone = [schema[way][0] for way in ("allOf", "oneOf", "anyOf") if len(schema.get(way, ())) == 1]
            if not alone:
                return None
            schema = alone[0]
        name: str = schema["$ref"].rsplit("/", 1)[1]
        return name

    def variants(self, schema: Schema) -> list[Schema]:
        """Return the members of a union, or the schema itself."""
        followed = self.follow(schema)
        return list(followed.get("oneOf") or followed.get("anyOf") or [schema])

    def answers(self, operation: Operation) -> list[Schema]:
        """Return the objects that may be the body of a response."""
        return [self.follow(variant) for variant in self.variants(operation.answer)]

    def list_field(self, operation: Operation) -> str | None:
        """Return the field that holds the rows; None for a single resource."""
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


def find_documents() -> list[Document]:
    """Return the documents in the folder of OpenAPI documents.

    The list is empty if the folder does not exist. The variable CHAINAPI_OPENAPI names the folder; the
    default is a folder `openapi` beside the checkout, or in a folder beside it. All of its `*-api.json` are
    read; several documents of one service are read as one.
    """
    around = ROOT.resolve().parent
    named = os.environ.get("CHAINAPI_OPENAPI")
    folders = [Path(named)] if named else [*around.glob("openapi"), *sorted(around.glob("*/openapi"))]
    for folder in folders:
        if places := sorted(folder.glob("*-api.json")):
            return [Document.read(place) for place in places]
    return []


def snake(name: str) -> str:
    """Convert a name in JSON to Python's style: `blockNumber` to `block_number`."""
    return python_name(name)

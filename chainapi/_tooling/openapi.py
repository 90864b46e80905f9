"""OpenAPI documents: routes and schemas, with references followed."""

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


METHODS = ("get", "post", "put", "patch", "delete")


def _content(described: Schema) -> Schema | None:
    """Return the schema of a body of JSON; None without a body."""
    content = described.get("content")
    schema: Schema | None = None if content is None else content["application/json"]["schema"]
    return schema


@frozen
class Operation:
    """One route of a document.

    Attributes:
        path: its path.
        weight: name of its cost.
        deprecated: whether it will be removed.
        parameters: those of path and query.
        answer: schema of a successful response; empty for a response without a body.
        method: HTTP method, in upper case.
        body: schema of the body of a request; None without one.

    """

    path: str
    weight: str | None
    deprecated: bool
    parameters: tuple[Schema, ...]
    answer: Schema
    method: str = "GET"
    body: Schema | None = None

    @property
    def place(self) -> str:
        """Path, with the method before it unless that is GET: the key in the tables."""
        return self.path if self.method == "GET" else f"{self.method} {self.path}"


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
        """Yield the routes of all methods."""
        for path, methods in self.content["paths"].items():
            for method in METHODS:
                if method in methods:
                    yield self._operation(path, method, methods[method])

    def _operation(self, path: str, method: str, described: Schema) -> Operation:
        answers = [answer for status, answer in described["responses"].items() if status.startswith("2")]
        return Operation(
            path,
            described.get("x-execution-weight"),
            described.get("deprecated", False),
            tuple(described.get("parameters", ())),
            _content(answers[0]) or {},
            method.upper(),
            _content(described.get("requestBody", {})),
        )

    def webhooks(self) -> Iterator[Schema]:
        """Yield the schemas of the calls that the service sends."""
        for described in self.content.get("webhooks", {}).values():
            schema = _content(described["post"].get("requestBody", {}))
            if schema is not None:
                yield schema

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
        if operation.method not in ("GET", "POST"):  # a change returns one resource
            return None
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

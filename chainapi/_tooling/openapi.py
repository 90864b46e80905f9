"""OpenAPI documents: routes and schemas, without references."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from keyword import iskeyword
from pathlib import Path
from typing import Any

from attrs import frozen

from chainapi._api.routes import Weight
from chainapi._tooling.files import ROOT, GeneratorError
from chainapi.models.unions import python_name

__all__ = ["NAME", "Document", "Operation", "Schema", "find_documents", "name_of", "snake", "variants"]

Schema = dict[str, Any]

METHODS = ("get", "post", "put", "patch", "delete")
NAME = "x-name"  # of the component that a schema is, or refers to


@frozen
class Operation:
    """One route of a document.

    Attributes:
        path: its path.
        weight: name of its cost.
        deprecated: whether it will be removed.
        parameters: parameters of path and query.
        answer: schema of a successful response; empty for a response without a body.
        method: HTTP method, in upper case.
        body: schema of the body of a request; None without one.

    """

    path: str
    weight: Weight | None
    deprecated: bool
    parameters: tuple[Schema, ...]
    answer: Schema
    method: str
    body: Schema | None

    @classmethod
    def read(cls, path: str, method: str, described: Schema) -> Operation:
        """Read the description of a route."""
        answers = [answer for status, answer in described["responses"].items() if status.startswith("2")]
        return cls(
            path,
            described.get("x-execution-weight"),
            described.get("deprecated", False),
            tuple(described.get("parameters", ())),
            _content(answers[0]) or {},
            method.upper(),
            _content(described.get("requestBody", {})),
        )

    @property
    def place(self) -> str:
        """Path, with the method before it unless that is GET."""
        return self.path if self.method == "GET" else f"{self.method} {self.path}"

    @property
    def list_field(self) -> str | None:
        """Field that holds the rows; None for a single resource."""
        if self.method not in ("GET", "POST"):  # a change returns one resource
            return None
        for body in variants(self.answer):
            fields = body.get("properties", {})
            lists: list[str] = [name for name, kind in fields.items() if kind.get("type") == "array"]
            if "nextPageToken" in fields:
                return next(name for name in lists if name in body.get("required", ()))
            if len(lists) == len(fields) == 1:
                return lists[0]
        return None

    @property
    def rows(self) -> list[Schema]:
        """Schemas of the rows of a list, or of a single resource."""
        bodies, items = variants(self.answer), self.list_field
        if items is None:
            return bodies
        return [row for body in bodies for row in variants(body["properties"][items]["items"])]

    @property
    def envelope(self) -> dict[str, Schema]:
        """Fields of a page beside its rows and its token."""
        fields = {wire: kind for body in variants(self.answer) for wire, kind in body["properties"].items()}
        return {wire: kind for wire, kind in fields.items() if wire not in (self.list_field, "nextPageToken")}

    @property
    def body_fields(self) -> tuple[Schema, ...]:
        """Fields of the body of a request, as parameters.

        There are none if the body is one of several records.
        """
        body = self.body or {}
        needed = body.get("required", ())
        return tuple(
            {"name": wire, "required": wire in needed, "schema": schema, "in": "body"}
            for wire, schema in body.get("properties", {}).items()
        )


@frozen
class Document:
    """OpenAPI document of one of the two services."""

    content: Schema
    name: str  # `data` or `metrics`

    @classmethod
    def read(cls, path: Path) -> Document:
        """Read a document; the host of its first server names the service.

        Raises:
            GeneratorError: the document has no server.

        """
        objects: list[Schema] = []

        def noted(found: Schema) -> Schema:
            objects.append(found)
            return found

        content = json.loads(path.read_text("utf-8"), object_hook=noted)
        servers = content.get("servers")
        if not servers:
            raise GeneratorError(
                f'{path} has no servers: add "servers": [{{"url": "https://data-api.example.com"}}],'
                ' with "metrics" in the host if the routes are of the Metrics API'
            )
        _resolve(objects, content.get("components", {}))
        return cls(content, "metrics" if "metrics" in servers[0]["url"] else "data")

    def operations(self) -> Iterator[Operation]:
        """Yield the routes of all methods."""
        for path, methods in self.content["paths"].items():
            for method in METHODS:
                if method in methods:
                    yield Operation.read(path, method, methods[method])

    def webhooks(self) -> Iterator[Schema]:
        """Yield the schemas of the calls that the service sends."""
        for described in self.content.get("webhooks", {}).values():
            schema = _content(described["post"].get("requestBody", {}))
            if schema is not None:
                yield schema


def _content(described: Schema) -> Schema | None:
    """Return the schema of a body of JSON; None without a body."""
    content = described.get("content")
    schema: Schema | None = None if content is None else content["application/json"]["schema"]
    return schema


def _resolve(objects: list[Schema], components: dict[str, dict[str, Schema]]) -> None:
    """Replace references by what they name.

    `allOf`, `oneOf` and `anyOf` of one schema are references, too.
    """
    for name, schema in components.get("schemas", {}).items():
        schema[NAME] = name
    for one in objects:
        while True:
            alone = [way for way in ("allOf", "oneOf", "anyOf") if len(one.get(way, ())) == 1]
            if "$ref" in one:
                _, _, kind, name = one.pop("$ref").split("/")
                one.update(components[kind][name])
            elif alone:
                one.update(one.pop(alone[0])[0])
            else:
                break


def name_of(schema: Schema) -> str | None:
    """Return the name of the component that a schema is."""
    name: str | None = schema.get(NAME)
    return name


def variants(schema: Schema) -> list[Schema]:
    """Return the members of a union, or the schema itself."""
    return list(schema.get("oneOf") or schema.get("anyOf") or [schema])


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
    converted = python_name(name)
    return f"{converted}_" if iskeyword(converted) else converted

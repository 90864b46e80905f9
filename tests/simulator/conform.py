"""Conformance of simulated answers: `python -m tests.simulator.conform`.

The command requests each route with several seeds, once for each listed value of its parameters. Each
response has to fit the JSON Schema of its route, and its model, and each body of a request its own schema.
The examples in the documents have to fit the models, too. The arguments are the paths of the documents
(`[DATA METRICS]`), by default those of `chainapi._tooling.openapi.find_documents`; a route without a document
is held to its model alone. The command prints a line for each misfit, and any makes it fail.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from attrs import frozen
from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError
from jsonschema.validators import extend

from chainapi import ROUTES, WRITES
from chainapi._api.endpoint import Endpoint
from chainapi._tooling.openapi import Document, find_documents, variants
from chainapi.errors import DecodeError
from chainapi.models.codec import PageDecoder, decode_resource
from chainapi.simulator import Settings, World
from chainapi.transport import Request
from tests.documents import Maker, values

__all__ = ["Checker", "checkers", "main", "misfits", "misfits_of_examples", "questions", "requests"]

DECLARED = {**ROUTES, **WRITES}
WATCHED = ["addresses-1"]  # of the webhook that `values` makes
CHAINS = (43114, 7, 43113)  # `values` draws chain 7
# Unions of the documents let several variants fit: balances of the P-Chain have all fields of the C-Chain's.
_extend: Any = extend  # which has no types
Schema: type[Draft202012Validator] = _extend(
    Draft202012Validator, {"oneOf": Draft202012Validator.VALIDATORS["anyOf"]}
)
EXCERPT = 200  # characters of a misfit


@frozen(eq=False)
class Checker:
    """Checks of the bodies of one route; the schemas are None without a document.

    `sent` is the schema of the body of a request.
    """

    declared: Endpoint
    schema: Draft202012Validator | None = None
    sent: Draft202012Validator | None = None

    def misfits_of(self, request: Request) -> Iterator[str]:
        """Yield each misfit of the body of a request."""
        if request.body is not None and self.sent is not None:
            for misfit in self.sent.iter_errors(json.loads(request.body)):
                yield from (f"request: {reason}" for reason in _reasons(misfit))

    def misfits(self, body: bytes) -> Iterator[str]:
        """Yield each misfit of a body with its place and reason."""
        if self.declared.bodiless:
            if body or self.schema is not None:
                yield "document: whether there is a body"
            return
        route = self.declared.route
        try:
            if self.declared.single:
                decode_resource(body, route.model)
            else:
                PageDecoder(route.model, route.items, route.extra).decode(body)
        except DecodeError as error:
            yield f"model: {error}"
        if self.schema is not None:
            for misfit in self.schema.iter_errors(json.loads(body)):
                yield from _reasons(misfit)


def _reasons(error: ValidationError) -> Iterator[str]:
    """Yield the misfits of the best-fitting variant of a union."""
    variants: dict[object, list[str]] = {}
    for inner in error.context or ():
        variants.setdefault(inner.schema_path[0], []).extend(_reasons(inner))
    if variants:
        yield from min(variants.values(), key=len)
        return
    where = ".".join("*" if isinstance(part, int) else part for part in error.absolute_path) or "$"
    kind = str(error.validator)
    wanted: Any = error.validator_value
    given: Any = error.instance
    if kind == "required":
        wanted = [name for name in wanted if name not in given]
    elif kind == "type":
        wanted = f"{wanted}, not {type(given).__name__}"
    elif kind == "enum":
        wanted = f"{wanted}, not {given}"
    yield f"document: {where}: {kind} {wanted}"[:EXCERPT]


def checkers(documents: Sequence[Document]) -> dict[str, Checker]:
    """Return the checks of each route's answers by name."""
    answers: dict[tuple[str, str], Draft202012Validator] = {}
    bodies: dict[tuple[str, str], Draft202012Validator] = {}
    for document in documents:
        components = {"components": document.content["components"]}
        for operation in document.operations():
            place = document.name, operation.place
            if operation.answer:
                answers[place] = Schema({**operation.answer, **components})
            if operation.body is not None:
                bodies[place] = Schema({**operation.body, **components})
    checks: dict[str, Checker] = {}
    for name, declared in DECLARED.items():
        place = name.partition(".")[0], declared.route.place
        checks[name] = Checker(declared, answers.get(place), bodies.get(place))
    return checks


def questions(name: str) -> Iterator[str]:
    """Yield an address of a route, and one for each listed value of its parameters."""
    for given in _arguments(name):
        yield _address(name, given)


def _arguments(name: str) -> Iterator[dict[str, Any]]:
    """Yield arguments of a route, and others for each listed value of its parameters."""
    declared = DECLARED[name]
    given = values(declared, Maker(seed=1), optional=False)
    yield given
    for parameter in declared.parameters:
        for choice in parameter.choices:
            yield {**given, parameter.name: [choice] if parameter.many else choice}


def requests(name: str, world: World) -> Iterator[Request]:
    """Yield a request for a route, and one for each listed value of its parameters.

    Those that change a webhook follow one that creates it.
    """
    declared, headers = DECLARED[name], {"x-data-api-key": world.settings.api_key}
    if declared.route.method == "GET":
        yield from (Request("GET", f"https://any{address}", headers) for address in questions(name))
        return
    for given in _arguments(name):
        if "webhook_id" in given:
            call = world.sent(next(requests("data.webhooks.create", world)), 0.0)
            given["webhook_id"] = json.loads(world.answer(call, 0.0).response.body)["id"]
            given |= {"addresses": WATCHED} if "addresses" in given else {}
        missing = {one.name: None for one in declared.parameters if not one.required}
        _, _, body = declared.encode(missing | given)
        path = _address(name, given).partition("?")[0]
        yield Request(declared.route.method, f"https://any{path}", headers, body)


def _address(name: str, given: Mapping[str, Any]) -> str:
    declared = DECLARED[name]
    path, query = declared.route.path, {"pageSize": "100"}
    for parameter in declared.parameters:
        if parameter.name in given:
            value = given[parameter.name]
            text = ",".join(map(str, value)) if isinstance(value, list) else str(value)
            query[parameter.wire] = text
            path = path.replace(f"{{{parameter.wire}}}", text)
    return f"/{name.partition('.')[0]}{path}?{urlencode(query)}"


def misfits(name: str, check: Checker, *, seeds: Iterable[int] = range(3), rows: int = 40) -> list[str]:
    """Return the misfits of a route's simulated answers, each once."""
    found: dict[str, None] = {}
    for seed in seeds:
        world = World(Settings(seed, chains=CHAINS, rows=rows, points=rows, forbidden=()))
        for request in requests(name, world):
            response = world.answer(world.sent(request, 0.0), 0.0).response
            found.update(dict.fromkeys(check.misfits_of(request)))
            if response.status in (200, 201):
                found.update(dict.fromkeys(check.misfits(response.body)))
            else:
                address = request.url.removeprefix("https://any")
                found[f"{address}: {response.body.decode()}"] = None
    return list(found)


def misfits_of_examples(documents: Sequence[Document]) -> list[str]:
    """Return the misfits between the examples of the documents and the models."""
    bodies = _examples(documents)
    return [f"{name}: {misfit}" for name, body in bodies for misfit in Checker(DECLARED[name]).misfits(body)]


def _examples(documents: Sequence[Document]) -> Iterator[tuple[str, bytes]]:
    """Yield each route with its example answers: with optional fields, and without."""
    names = {(name.partition(".")[0], one.route.place): name for name, one in DECLARED.items()}
    for document in documents:
        for operation in document.operations():
            for answer in variants(operation.answer) if operation.answer else ():
                for optional in (True, False):
                    body = _example(answer, optional=optional)
                    yield names[document.name, operation.place], json.dumps(body).encode()


def _example(schema: dict[str, Any], *, optional: bool) -> Any:
    """Return the example of a schema; values are invented if the document has none."""
    given = schema.get("examples")
    if "example" in schema or given:
        return schema.get("example", given[0] if isinstance(given, list) else given)
    if "enum" in schema:
        return schema["enum"][0]
    if "properties" in schema:
        names = schema["properties"] if optional else schema.get("required", ())
        return {name: _example(schema["properties"][name], optional=optional) for name in names}
    if variants(schema) != [schema]:
        return _example(variants(schema)[0], optional=optional)
    if "items" in schema:
        return [_example(one, optional=optional) for one in variants(schema["items"])]
    name = schema["type"] if isinstance(schema["type"], str) else schema["type"][0]
    return {"number": 12, "integer": 12, "boolean": True, "object": {}}.get(name, "12")


def main(arguments: Sequence[str]) -> int:
    """Report all misfits; return 0 if there are none."""
    documents = [Document.read(Path(one)) for one in arguments] or find_documents()
    wrong = 0
    for name, check in checkers(documents).items():
        found = misfits(name, check)
        wrong += bool(found)
        for misfit in found:
            print(f"{name}: {misfit}")
    held = ", ".join(document.name for document in documents) or "none, the models alone"
    print(f"{len(DECLARED)} routes, {wrong} of them do not fit (documents: {held})")
    invalid = misfits_of_examples(documents)
    print("\n".join([*invalid, f"{len(invalid)} misfits of examples"]))
    return wrong + len(invalid)


if __name__ == "__main__":
    sys.exit(min(1, main(sys.argv[1:])))

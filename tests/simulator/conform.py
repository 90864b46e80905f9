"""Conformance of simulated answers: `python -m tests.simulator.conform`.

The command requests each route with several seeds, once for each listed value of its parameters. Each
response has to fit the JSON Schema of its route, and its model. The arguments are the paths of the documents
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

from chainapi._tooling.openapi import Document, find_documents
from chainapi.api.catalogue import ROUTES
from chainapi.api.endpoint import Endpoint
from chainapi.core.http import Request
from chainapi.errors import DecodeError
from chainapi.models.codec import PageDecoder, decode_resource
from chainapi.simulator import Settings, World
from tests.documents import Maker, values

__all__ = ["Checker", "checkers", "main", "misfits", "questions"]

CHAINS = (43114, 7, 43113)  # `values` draws chain 7
# Unions of the documents let several variants fit: balances of the P-Chain have all fields of the C-Chain's.
_extend: Any = extend  # which has no types
Schema: type[Draft202012Validator] = _extend(
    Draft202012Validator, {"oneOf": Draft202012Validator.VALIDATORS["anyOf"]}
)
EXCERPT = 200  # characters of a misfit


@frozen(eq=False)
class Checker:
    """Checks of the bodies of one route; `schema` is None without a document."""

    declared: Endpoint
    schema: Draft202012Validator | None = None

    def misfits(self, body: bytes) -> Iterator[str]:
        """Yield each misfit of a body with its place and reason."""
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
    schemas = {
        (document.name, operation.place): Schema(
            {**operation.answer, "components": document.content["components"]}
        )
        for document in documents
        for operation in document.operations()
    }
    return {
        name: Checker(declared, schemas.get((name.partition(".")[0], declared.route.place)))
        for name, declared in ROUTES.items()
    }


def questions(name: str) -> Iterator[str]:
    """Yield an address of a route, and one for each listed value of its parameters."""
    declared = ROUTES[name]
    given = values(declared, Maker(seed=1), optional=False)
    yield _address(name, given)
    for parameter in declared.parameters:
        for choice in parameter.choices:
            yield _address(name, {**given, parameter.name: [choice] if parameter.many else choice})


def _address(name: str, given: Mapping[str, Any]) -> str:
    declared = ROUTES[name]
    path, query = declared.route.path, {"pageSize": "100"}
    for parameter in declared.parameters:
        if parameter.name in given:
            value = given[parameter.name]
            text = ",".join(value) if isinstance(value, list) else str(value)
            query[parameter.wire] = text
            path = path.replace(f"{{{parameter.wire}}}", text)
    return f"/{name.partition('.')[0]}{path}?{urlencode(query)}"


def misfits(name: str, check: Checker, *, seeds: Iterable[int] = range(3), rows: int = 40) -> list[str]:
    """Return the misfits of a route's simulated answers, each once."""
    found: dict[str, None] = {}
    for seed in seeds:
        world = World(Settings(seed, chains=CHAINS, rows=rows, points=rows, forbidden=()))
        for address in questions(name):
            headers = {"x-data-api-key": world.settings.api_key}
            response = world.answer(Request("GET", f"https://any{address}", headers), 0.0).response
            if response.status in (200, 201):
                found.update(dict.fromkeys(check.misfits(response.body)))
            else:
                found[f"{address}: {response.body.decode()}"] = None
    return list(found)


def main(arguments: Sequence[str]) -> int:
    """Report all misfits; return how many routes have any."""
    documents = [Document.read(Path(one)) for one in arguments] or find_documents()
    wrong = 0
    for name, check in checkers(documents).items():
        found = misfits(name, check)
        wrong += bool(found)
        for misfit in found:
            print(f"{name}: {misfit}")
    held = ", ".join(document.name for document in documents) or "none, the models alone"
    print(f"{len(ROUTES)} routes, {wrong} of them do not fit (documents: {held})")
    return wrong


if __name__ == "__main__":
    sys.exit(min(1, main(sys.argv[1:])))

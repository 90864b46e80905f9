"""``chainapi check``: differences between a service and the records of routes."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from attrs import define, evolve, field
from cyclopts import Parameter as Option

from chainapi._api.catalogue import ROUTES
from chainapi._api.routes import units_of
from chainapi._http.message import Request, Response
from chainapi._http.transport import MAX_BODY, AiohttpTransport
from chainapi._limits.headers import read_limits
from chainapi._text import quoted
from chainapi.cli.common import (
    DEFAULTS,
    FAILED,
    ConnectionOptions,
    Flag,
    Hidden,
    Many,
    open_session,
)
from chainapi.cli.names import method_of, read_pairs, read_values, route_names
from chainapi.cli.tables import table_of
from chainapi.cli.wording import counted, worded
from chainapi.errors import APIStatusError, APITimeoutError, ConfigurationError, DecodeError
from chainapi.models import Invalid, Unknown
from chainapi.models.codec import decode_resource
from chainapi.models.records import Record
from chainapi.models.schema import fields_of
from chainapi.models.unions import wire_name
from chainapi.session import Session
from chainapi.testing import Recorder

__all__ = ["check"]

# Values of parameters that no answer shows. Identifiers come from the answers of other routes.
EXAMPLES = {
    "chain_id": "43114",
    "network": "mainnet",
    "address": "0xB97EF9Ef8734C71904D8002F8b6Bc66Dd9c48a6E",  # USDC on the C-Chain
    "page_size": "25",
    "threshold": "1000000",
}
# Attributes of rows that have the value of a parameter with another name.
SHOWN_AS = {
    "block_hash": "block_id",
    "reward_addresses": "addresses",
    "validation_id": "l1_validation_id",
    "id": "webhook_id",
}
ANNOUNCED = ("ratelimit-policy", "ratelimit-limit", "ratelimit-remaining")  # with a key: specification, 8
PRIVATE = "data.webhooks.shared_secret"
OF_ACCOUNT = ("data.operation", "data.usage.", "data.webhooks.")  # a recording leaves their answers out
REFUSED = ("data.chain", "metrics.chains.get")  # no chain has the id 0: the answer shows the body of an error
NO_ANSWER = "no answer"  # kind of what is no difference
MOST_NAMED = 3  # routes in a line of the table


async def check(
    text: Annotated[str, Option(completer=route_names, show_default=False)] = "",
    /,
    *,
    param: Many = None,
    record: Path | None = None,
    json: Flag = False,
    connection: ConnectionOptions = DEFAULTS,
    terminal: Hidden,
) -> int:
    """Request each route once, and list what differs from the records of chainapi.

    Identifiers come from the answers of other routes. The exit code is 1 if anything differs.

    Args:
        text: Part of the names of the routes; all by default.
        param: Value of a parameter as NAME=VALUE, for all routes that have it; may be repeated.
        record: File for the answers, without the key; routes about your account are left out.
        json: JSON lines; the default if the output is not a terminal.
        connection: Options of the session.
        terminal: The streams of the command.

    """
    table, names = terminal.interactive and not json, [name for name in ROUTES if text.lower() in name]
    if not names:
        raise ConfigurationError(f"no route has {quoted(text)} in its name: `chainapi routes` shows all")
    async with AiohttpTransport(max_body=connection.max_body, proxy=connection.proxy) as transport:
        answers = _Answers(record or "", transport)
        recorded = evolve(terminal, session=answers.session)
        plain = evolve(connection, max_body=MAX_BODY, proxy=None)  # the transport has them
        async with open_session(recorded, plain, table=table) as session:
            keyed = any(service.endpoint.key is not None for service in session.connection.configured)
            comparison = _Comparison(session, answers, dict(read_pairs(param or [])), keyed)
            await comparison.run(names, private=PRIVATE if record is None else OF_ACCOUNT)
    if record is not None:
        answers.save()
    found = sorted(comparison.found.items(), key=lambda one: one[0][0] == NO_ANSWER)
    if table and found:
        rows = [(kind, what, _shortened(routes)) for (kind, what), routes in found]
        terminal.console.print(table_of(("kind", "what", "routes"), rows))
    for (kind, what), routes in found if not table else ():
        terminal.line({"kind": kind, "what": what, "routes": routes})
    silent = [routes for (kind, _), routes in found if kind == NO_ANSWER]
    differences = len(found) - len(silent)
    terminal.note(
        f"{counted(comparison.answered, 'route')} answered, {sum(map(len, silent)):,} did not; "
        + (counted(differences, "difference") if differences else "no differences")
    )
    return FAILED if differences or not comparison.answered else 0


def _shortened(routes: Sequence[str]) -> str:
    more = [f"{len(routes) - MOST_NAMED} more"] if len(routes) > MOST_NAMED else []
    return ", ".join([*routes[:MOST_NAMED], *more])


class _Answers(Recorder):
    """Recorder that counts the responses, and keeps the last one."""

    last = Response(200)
    number = 0

    async def send(self, request: Request) -> Response:
        """Send a request, and keep its response."""
        self.last = await super().send(request)
        self.number += 1
        return self.last


@define(eq=False)
class _Comparison:
    """Differences between the answers of routes and their records."""

    session: Session
    answers: _Answers
    given: Mapping[str, str]
    keyed: bool  # whether the Data API gets a key
    answered: int = 0
    found: dict[tuple[str, str], list[str]] = field(factory=dict[tuple[str, str], list[str]])
    _shown: dict[str, dict[str, str]] = field(factory=dict[str, dict[str, str]])  # values by group
    _left: dict[str, float | None] = field(factory=dict[str, float | None])  # by service
    _prices: dict[str, tuple[float, int]] = field(factory=dict[str, tuple[float, int]])

    async def run(self, names: Sequence[str], *, private: str | tuple[str, ...]) -> None:
        """Request routes, those with known values first, without the `private` ones."""
        configured = {service.name for service in self.session.connection.configured} or {"metrics", "data"}
        left = [name for name in names if name.partition(".")[0] in configured]
        refused = [name for name in left if name in REFUSED]
        for name in [name for name in left if name.startswith(private)]:
            self._note(NO_ANSWER, "not requested: its answer is private", name)
            left.remove(name)
        with warnings.catch_warnings(action="ignore", category=DeprecationWarning):
            while asked := [name for name in left if not self._missing(name)]:
                for name in asked:
                    await self._ask(name)
                    left.remove(name)
            for name in refused:
                if await self._answer(name, {"chain_id": "0"}) is not None:
                    self._note("error", "an unknown chain is no error", name)
        for name in left:
            options = " ".join(f"--param {one}=VALUE" for one in self._missing(name))
            self._note(NO_ANSWER, f"not requested: no answer shows an example; give {options}", name)
        counted_units = sum(drop == units for drop, units in self._prices.values())
        requests = sum(drop == 1 for drop, _ in self._prices.values())
        for name, (drop, units) in self._prices.items():
            price = units if counted_units >= requests else 1
            if drop != price:
                self._note("weight", f"{drop:g} units, documented {price}", name)

    def _values(self, name: str) -> dict[str, str]:
        """Return values of the required parameters, as far as they are known."""
        known = {key: value for shown in self._shown.values() for key, value in shown.items()}
        known |= {**self._shown.get(name.rpartition(".")[0], {}), **EXAMPLES, **self.given}
        values = dict[str, str]()
        for one in ROUTES[name].parameters:
            value = known.get(one.name)
            if one.choices and value not in one.choices:
                value = next((choice for choice in one.choices if choice.endswith("-chain")), one.choices[0])
            if value is not None and (one.required or one.name in (*self.given, "page_size")):
                values[one.name] = value
        return values

    def _missing(self, name: str) -> list[str]:
        values = self._values(name)
        return [one.name for one in ROUTES[name].parameters if one.required and one.name not in values]

    async def _ask(self, name: str) -> None:
        """Request a route, and compare its answer."""
        before, values = self.answers.number, self._values(name)
        try:
            query = read_values(name, (), [f"{key}={value}" for key, value in values.items()])
        except ConfigurationError as error:
            if self.given.keys() & values:
                raise
            self._note(NO_ANSWER, f"not requested: {error}", name)  # a value of another route
            return
        rows = await self._answer(name, query)
        if rows is not None:
            self.answered += 1
            if name.startswith("data.") and self.keyed:
                for header in ANNOUNCED:
                    if header not in self.answers.last.headers:
                        self._note("header", f"{header}: missing", name)
            for record in _records(rows):
                self._compare(name, record)
        self._note_price(name, single=self.answers.number == before + 1)

    async def _answer(self, name: str, query: Mapping[str, Any]) -> Sequence[Any] | None:
        """Return the resource, or the rows of the first page; note an error."""
        method, route = method_of(self.session, name), ROUTES[name].route
        try:
            if ROUTES[name].single:
                return [await method(**query)]
            async with method(**query, on_invalid="raw") as pages:
                page = await anext(pages)
        except (APIStatusError, APITimeoutError) as error:
            if name not in REFUSED or query != {"chain_id": "0"}:
                self._note(NO_ANSWER, worded(error), name)
            if isinstance(error, APIStatusError) and error.status < 500:  # a gateway has bodies of its own
                self._compare_error(name, error.status)
            return None
        except DecodeError as error:
            self._note_fault(name, error)
            return None
        named = {route.items, "nextPageToken", *(wire_name(one) for one, _ in route.extra)}
        for unknown in page.raw.keys() - named if route.items else ():
            self._note("unknown field", f"{quoted(unknown)} beside the rows of {name}", name)
        return list(page)

    def _note(self, kind: str, what: str, name: str) -> None:
        routes = self.found.setdefault((kind, what), [])
        if name not in routes:
            routes.append(name)

    def _note_fault(self, name: str, fault: DecodeError) -> None:
        kind = "missing field" if fault.reason.startswith("missing") else "type"
        self._note(kind, f"{re.sub(r'[0-9]+(?=])', '', fault.path)}: {fault.reason}", name)

    def _note_price(self, name: str, *, single: bool) -> None:
        """Note a drop of the remainder, if it shows the price of one request."""
        service, units = name.partition(".")[0], units_of(name, ROUTES[name].route)
        left = read_limits(self.answers.last.headers, 0.0).remaining
        before, self._left[service] = self._left.get(service), left
        if single and units is not None and left is not None and before is not None and before >= left:
            self._prices[name] = before - left, units

    def _compare(self, name: str, record: Any) -> None:
        """Compare a record with its model, and keep its values for parameters."""
        kind, shown = type(record).__name__, self._shown.setdefault(name.rpartition(".")[0], {})
        if isinstance(record, Invalid):
            return self._note_fault(name, record.error)
        if isinstance(record, Unknown):
            return self._note("unknown kind", f"a row with the fields {', '.join(sorted(record.raw))}", name)
        for unknown in record.extra:
            self._note("unknown field", f"{kind}.{unknown}", name)
        for one in fields_of(type(record)):
            value = getattr(record, one.name)
            values = value if isinstance(value, list | tuple) else [value]
            choices = {choice for part in one.type.parts() for choice in part.choices}
            for unknown in {entry for entry in values if isinstance(entry, str)} - choices if choices else ():
                self._note("unknown value", f"{kind}.{one.wire}: {quoted(unknown)}", name)
            if values and isinstance(values[0], str | int) and values[0] != "":
                shown.setdefault(SHOWN_AS.get(one.name, one.name), str(values[0]))
        return None

    def _compare_error(self, name: str, status: int) -> None:
        """Compare the body of an error with the documented one (specification, section 2)."""
        try:
            body = decode_resource(self.answers.last.body)
        except DecodeError:
            body = None
        body = body if isinstance(body, dict) else {}
        fitting = {
            "message": isinstance(body.get("message"), str | list),
            "error": isinstance(body.get("error"), str),
            "statusCode": body.get("statusCode") == status,
        }
        for wrong in [one for one, fits in fitting.items() if not fits]:
            how = "another value" if wrong in body else "missing"
            self._note("error", f"{wrong} in the body of an error: {how}", name)


def _records(value: Any) -> Iterator[Any]:
    """Yield the records in a value, at any depth, and rows as they were sent."""
    if isinstance(value, Record | Invalid | Unknown):
        yield value
    within: Iterable[Any] = ()
    match value:
        case Record():
            within = (getattr(value, one.name) for one in fields_of(type(value)))
        case list() | tuple():
            within = value
        case dict():
            within = value.values()
    for entry in within:
        yield from _records(entry)

"""Handlers of the routes that read: parts of lists, and resources.

The routes of the specification have handlers of their own, because their rows refer to each other: blocks are
chained, and transactions lie in blocks. The rows of every other route are made by a factory from its model.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from random import Random
from typing import Any, TypeVar

from attrs import evolve

from chainapi.models.unions import wire_name
from chainapi.simulator.factories import Generated, factory
from chainapi.simulator.matching import Match
from chainapi.simulator.names import BLOCKCHAIN_NAMES, TESTNETS
from chainapi.simulator.rows import DAY, Fixed, Row, Timed, View
from chainapi.simulator.sources import Blocks, Points, Transactions
from chainapi.simulator.state import Lookup, matched
from chainapi.simulator.validation import HTTPError, check_path
from chainapi.simulator.values import FIRST_HEIGHT, Context

__all__ = ["addresses_of", "handles", "serve", "shared_secret", "webhook_of"]

# Other names of networks and chains, and of the service whose list is read with POST: the rows are the same.
ALIASES = {"testnet": "fuji", "POST data": "data", **BLOCKCHAIN_NAMES}
BLOCK_SECONDS, ROW_SECONDS = 2, 5
EXPORT_SECONDS = 10  # after which an export is complete
SELECTED = 160  # of 256 addresses that a subquery selects
# Seconds between two points, by the time interval of the query; a month has 30 days.
INTERVALS = {"hour": 3_600, "day": DAY, "week": 7 * DAY, "month": 30 * DAY}
# Values of a request that select rows and are not in them.
NOT_ECHOED = frozenset({"startTimestamp", "endTimestamp", "blockNumber", "blockTimestamp", "threshold"})
# Fields that repeat a value of another name.
ECHOED_AS = {"currency": "currencyCode", "timeInterval": "aggregateDuration"}
# Size of the values of a metric; None for those that have decimals.
SCALES: Mapping[str, int | None] = {
    **dict.fromkeys(("avgTps", "maxTps"), None),
    **dict.fromkeys(("avgGps", "maxGps", "feesPaid"), 1_000_000),
    **dict.fromkeys(("avgGasPrice", "maxGasPrice"), 25_000_000_000),
    **dict.fromkeys(("gasUsed", "delegatorWeight", "validatorWeight"), 10**11),
}
SCALE = 20_000
# Kinds that a route never answers with, although its model has them.
NOT_GENERATED = {
    "/v1/teleporter/messages": frozenset({"DeliveredSourceNotIndexedTeleporterMessage"}),
    "/v1/teleporter/addresses/{address}/messages": frozenset({"DeliveredSourceNotIndexedTeleporterMessage"}),
    "/v1/teleporter/messages/{messageId}": frozenset({"DeliveredSourceNotIndexedIcmMessage"}),
}

Handler = TypeVar("Handler", bound=Callable[[Lookup], Any])

HANDLERS: dict[str, Callable[[Lookup], Any]] = {}


def handles(name: str) -> Callable[[Handler], Handler]:
    """Register the handler of a route by the route's name."""

    def register(handler: Handler) -> Handler:
        HANDLERS[name] = handler
        return handler

    return register


def serve(lookup: Lookup) -> Any:
    """Return the `View` of a list, or the body of the answer to another request.

    Raises:
        HTTPError: it does not exist, or does not take the change.

    """
    check_path(lookup.match, lookup.settings.chains)
    return HANDLERS.get(lookup.match.name, _generated)(lookup)


# Routes of the specification


@handles("data.chains")
@handles("metrics.chains.list")
def _chains(lookup: Lookup) -> View:
    rows = Fixed([_record_of(lookup, chain) for chain in lookup.settings.chains])
    return View(rows, ascending=lookup.ascending)


@handles("data.chain")
@handles("metrics.chains.get")
def _chain(lookup: Lookup) -> Row:
    return _record_of(lookup, lookup.chain)


def _record_of(lookup: Lookup, chain: int) -> Row:
    """Return the record of a chain, the same in a list and alone."""
    settings, random = lookup.settings, Random(lookup.draw("chains")(chain))  # noqa: S311 - repeatable
    echoes = {"evmChainId": str(chain), "network": "testnet" if chain in TESTNETS else "mainnet"}
    context = Context(
        settings.seed, random, 0, settings.epoch, settings.chains, echoes, {"chainId": str(chain)}
    )
    row: Row = factory(lookup.match.endpoint.route.model)(context)
    return row


@handles("metrics.avg_tps")
def _avg_tps(lookup: Lookup) -> View:
    settings = lookup.settings
    points = Points(settings.points, settings.epoch, DAY, lookup.draw("avg_tps", lookup.chain))

    def page_fields(added: int) -> Row:
        return {"status": 200, "lastRun": settings.epoch + added * DAY}

    return View(points, ascending=lookup.ascending, page_fields=page_fields)


@handles("data.evm.blocks")
def _blocks(lookup: Lookup) -> View:
    return View(_blocks_of(lookup), ascending=lookup.ascending)


@handles("data.evm.block")
def _block(lookup: Lookup) -> Row:
    blocks, number = _find_block(lookup)
    row = blocks.row(number)
    name = lookup.match.values["blockId"]
    return row if name.isdecimal() else {**row, "blockHash": name}


@handles("data.evm.transactions")
def _transactions(lookup: Lookup) -> View:
    return View(_transactions_of(lookup), ascending=lookup.ascending)


@handles("data.evm.block_transactions")
def _block_transactions(lookup: Lookup) -> View:
    _, number = _find_block(lookup)
    transactions = _transactions_of(lookup)
    return View(transactions, *transactions.span(number), ascending=lookup.ascending)


def _blocks_of(lookup: Lookup) -> Blocks:
    chain, settings = lookup.chain, lookup.settings
    return Blocks(settings.rows, settings.epoch, BLOCK_SECONDS, chain, lookup.draw("blocks", chain))


def _transactions_of(lookup: Lookup) -> Transactions:
    draw = lookup.draw("transactions", lookup.chain)
    return Transactions(_blocks_of(lookup), lookup.settings.rows, draw)


def _find_block(lookup: Lookup) -> tuple[Blocks, int]:
    """Return the blocks of a chain, and the number of the block that the path names."""
    blocks, name = _blocks_of(lookup), lookup.match.values["blockId"]
    listed = matched("data", "v1", "chains", str(blocks.chain), "blocks")
    size = blocks.size + lookup.state.added(listed)
    number = blocks.find(name, size)
    if number >= size:
        raise HTTPError(404, f"block {name} does not exist")
    return blocks, number


# Routes that read what writes change


@handles("data.webhooks.list")
def _webhooks(lookup: Lookup) -> View:
    view, state = _generated_list(lookup), lookup.state
    if not state.webhooks:
        return view
    originals = view.source.rows(0, view.end(state.added(lookup.match)))
    created = [state.webhooks[name] for name in reversed(state.created)]
    listed = [*created, *({**row, **state.webhooks.get(row["id"], {})} for row in originals)]
    rows = [row for row in listed if lookup.values.get("status") in (None, row["status"])]
    return View(Fixed(rows), high=len(rows))


@handles("data.webhooks.addresses")
def _webhook_addresses(lookup: Lookup) -> View:
    view, watched = _generated_list(lookup), lookup.state.watched.get(lookup.match.values["id"])
    if watched is None:
        return view
    rows = Fixed(watched[::-1])
    return View(rows, high=rows.size, page_fields=lambda _: {"totalAddresses": rows.size})


def addresses_of(lookup: Lookup, name: str) -> list[str]:
    """Return all addresses of a webhook, the latest first."""
    view = _webhook_addresses(lookup.at("data", "v1", "webhooks", name, "addresses"))
    return view.source.rows(view.low, view.end(0))


@handles("data.webhooks.get")
def _webhook(lookup: Lookup) -> Row:
    known = lookup.state.webhooks.get(lookup.match.values["id"], {})
    return dict(known) if "id" in known else {**_generated_resource(lookup), **known}


def webhook_of(lookup: Lookup, name: str) -> Row:
    """Return a webhook as it is now."""
    return _webhook(lookup.at("data", "v1", "webhooks", name))


@handles("data.webhooks.shared_secret")
def _shared_secret(lookup: Lookup) -> Row:
    secret = lookup.state.secret
    return _generated_resource(lookup) if secret is None else {"secret": secret}


def shared_secret(lookup: Lookup) -> str:
    """Return the secret by which calls of webhooks are signed, as it is now."""
    return str(_shared_secret(lookup.at("data", "v1", "webhooks:getSharedSecret"))["secret"])


@handles("data.operation")
def _operation(lookup: Lookup) -> Row:
    """Return an export, as it is now."""
    begun = lookup.state.operations.get(lookup.match.values["operationId"])
    if begun is None:
        return _generated_resource(lookup)
    end = begun["createdAtTimestamp"] + EXPORT_SECONDS
    if lookup.state.time < end:
        return begun
    done = {"operationStatus": "COMPLETED", "message": "the export is complete"}
    return {**begun, **done, "updatedAtTimestamp": end}


# Composite queries


@handles("metrics.looking_glass.composite_query")
@handles("metrics.looking_glass.composite_query_v1")
def _composite(lookup: Lookup) -> View:
    """Return the addresses that all (AND) or any (OR) of the subqueries select.

    A subquery selects the same addresses in every composite query.
    """
    values, draw, size = lookup.values, lookup.draw("looking glass"), lookup.settings.rows
    chosen: dict[str, set[int]] = {}
    for query in json.loads(values["queries"]):
        selects = lookup.draw(json.dumps([query["type"], query["params"]], sort_keys=True))
        chosen[str(query["id"])] = {number for number in range(size) if selects(number)[0] < SELECTED}
    combine = set.intersection if values["operator"] == "AND" else set.union
    numbers = sorted(combine(*chosen.values()), reverse=True)
    fields = {
        "subQueryCounts": {name: len(found) for name, found in chosen.items()},
        "totalCount": len(numbers),
    }
    return View(Fixed(["0x" + draw(number)[:20].hex() for number in numbers]), page_fields=lambda _: fields)


# All other routes


def _generated(lookup: Lookup) -> View | Row:
    """Return a list, or a resource, whose rows are made from its model."""
    match = lookup.match
    if match.endpoint.single:
        return _generated_resource(lookup)
    is_series = "metric" in match.values and match.endpoint.record.items == "results"
    return _series(lookup) if is_series else _generated_list(lookup)


def _generated_resource(lookup: Lookup) -> Row:
    return _generated_rows(lookup, 1).row(0)


def _generated_list(lookup: Lookup) -> View:
    match, settings = lookup.match, lookup.settings
    if match.endpoint.record.items == "results":
        rows = _generated_rows(lookup, settings.points, _interval(lookup))
    else:
        rows = _generated_rows(lookup, settings.rows)
    names = [(wire_name(name), kind) for name, kind in match.endpoint.route.extra]
    fields = {name: factory(kind, name) for name, kind in names}

    def page_fields(added: int) -> Row:
        if not fields:
            return {}
        context = rows.context(rows.size - 1 + added)
        return {name: make(context) for name, make in fields.items()}

    return evolve(_selected(lookup, rows), page_fields=page_fields)


def _series(lookup: Lookup) -> View:
    """Return a metric's series."""
    settings, metric, draw = (
        lookup.settings,
        lookup.match.values["metric"],
        lookup.draw(*lookup.match.segments),
    )
    scale, is_sum = SCALES.get(metric, SCALE), "umulative" in metric
    points = Points(settings.points, settings.epoch, _interval(lookup), draw, scale, is_sum)
    return _selected(lookup, points)


def _interval(lookup: Lookup) -> int:
    """Return the seconds between two points."""
    return INTERVALS[lookup.values.get("timeInterval", "day")]


def _generated_rows(lookup: Lookup, size: int, step: int = ROW_SECONDS) -> Generated:
    match, settings = lookup.match, lookup.settings
    route = match.endpoint.route
    without = NOT_GENERATED.get(route.path, frozenset())
    make = factory(str, "address") if route.model is None else factory(route.model, without=without)
    draw = lookup.draw(*(ALIASES.get(segment, segment) for segment in match.segments))
    echoes = _echoes(match, lookup.values)
    return Generated(size, settings.epoch, step, make, settings.seed, draw, settings.chains, echoes)


def _echoes(match: Match, query: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Return the request values that rows repeat, by the names of their fields."""
    given = {name: text for name, text in {**query, **match.values}.items() if name not in NOT_ECHOED}
    if not match.endpoint.single:
        if "collections" not in match.segments:  # the address belongs to the list's owner, not to a row
            given.pop("address", None)
        key = match.endpoint.record.key
        if len(key) == 1:  # it differs from row to row
            given.pop(wire_name(key[0]), None)
    if chain := BLOCKCHAIN_NAMES.get(given.get("blockchainId", "")):
        given["chainName"] = chain
    if block := given.get("blockId"):
        given["blockNumber" if block.isdecimal() else "blockHash"] = block
    return tuple((ECHOED_AS.get(name, name), text) for name, text in sorted(given.items()))


def _selected(lookup: Lookup, rows: Timed) -> View:
    """Return the rows that the bounds of a query select."""
    values, low, high = lookup.values, 0, math.inf
    if text := values.get("startTimestamp"):
        low = max(low, rows.first_at(int(text)))
    if text := values.get("endTimestamp"):
        high = min(high, rows.first_at(int(text) + 1))
    if text := values.get("startBlock"):
        low = max(low, int(text) - FIRST_HEIGHT)
    if text := values.get("endBlock"):
        high = min(high, int(text) + 1 - FIRST_HEIGHT)
    return View(rows, low, None if high == math.inf else int(high), lookup.ascending)

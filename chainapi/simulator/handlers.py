"""Handlers of the routes, which return the list or the resource at a path.

The routes of the specification have handlers of their own, because their rows refer to each other: blocks are
chained, and transactions lie in blocks. The rows of every other route are made by a factory from its model.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeAlias

from attrs import evolve, frozen

from chainapi.models.unions import wire_name
from chainapi.simulator.account import Account
from chainapi.simulator.factories import Completed, Completion, Generated, factory
from chainapi.simulator.lists import DEFAULT_PAGE_SIZE, Listing
from chainapi.simulator.matching import Match, Segments
from chainapi.simulator.names import BLOCKCHAIN_NAMES
from chainapi.simulator.rows import CachedDraw, Draw, Row, RowSource, View
from chainapi.simulator.settings import Settings
from chainapi.simulator.sources import (
    DAY,
    Addresses,
    Blocks,
    Chains,
    Fixed,
    MetricsChains,
    Part,
    Points,
    Sums,
    TpsPoints,
    Transactions,
    Utxos,
)
from chainapi.simulator.validation import HTTPError, chain_id, check_path, checked_query
from chainapi.simulator.values import FIRST_HEIGHT

if TYPE_CHECKING:
    from chainapi._api.endpoint import Endpoint

__all__ = ["Lookup", "serve"]

NETWORKS = {"mainnet": "mainnet", "fuji": "fuji", "testnet": "fuji"}
ROW_SECONDS = 5
# Seconds between two points, by the time interval of the query; a month has 30 days.
INTERVALS = {"hour": 3_600, "day": DAY, "week": 7 * DAY, "month": 30 * DAY}
# Values of a request that select rows and are not in them.
NOT_ECHOED = frozenset({"startTimestamp", "endTimestamp", "blockNumber", "blockTimestamp", "threshold"})
# Fields that repeat a value of another name.
ECHOED_AS = {"currency": "currencyCode", "timeInterval": "aggregateDuration"}
# Size of the values of a metric; None for those that have decimals.
SCALES = {
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


@frozen
class Lookup:
    """Request for the list or the resource at a path.

    Attributes:
        match: route and path.
        query: parameters of the query.
        settings: settings of the simulator.
        added: returns how many rows were added to the list at a path.
        account: what writes changed.

    """

    match: Match
    query: Mapping[str, str]
    settings: Settings
    added: Callable[[Segments], int]
    account: Account

    @property
    def chain(self) -> int:
        """Chain that the path names.

        Raises HTTPError for a chain that does not exist.
        """
        return chain_id(self.match, self.settings.chains)

    def draw(self, *names: object) -> Draw:
        """Return random bytes that follow from the seed and the names."""
        return Draw(self.settings.seed, *names)

    def completion(self, model: Any) -> Completion:
        """Return what completes rows of a model."""
        return _completion(model, self.settings.epoch, self.settings.chains)


Handler: TypeAlias = Callable[[Lookup], Listing | Row]

HANDLERS: dict[str, Handler] = {}


def _handles(name: str) -> Callable[[Handler], Handler]:
    """Register the handler of a route by the route's name."""

    def register(handler: Handler) -> Handler:
        HANDLERS[name] = handler
        return handler

    return register


def serve(lookup: Lookup) -> Listing | Row:
    """Return the list, or the resource, that a path names.

    Raises:
        HTTPError: it does not exist, or a value of the request is not one that the route takes.

    """
    return HANDLERS.get(lookup.match.name, _generated)(lookup)


# Routes of the specification


@_handles("data.chains")
def _chains(lookup: Lookup) -> Listing:
    return _listed(lookup, "chains", _chains_of(lookup, Chains), page_size=None, grows=False)


@_handles("data.chain")
def _chain(lookup: Lookup) -> Row:
    return _completed_row(lookup, _chains_of(lookup, Chains).chain(lookup.chain))


@_handles("metrics.chains.list")
def _metrics_chains(lookup: Lookup) -> Listing:
    chains = _chains_of(lookup, MetricsChains)
    return _listed(lookup, "chains", chains, page_size=None, grows=False, fixed=True)


@_handles("metrics.chains.get")
def _metrics_chain(lookup: Lookup) -> Row:
    return _completed_row(lookup, _chains_of(lookup, MetricsChains).chain(lookup.chain))


@_handles("metrics.avg_tps")
def _avg_tps(lookup: Lookup) -> Listing:
    settings = lookup.settings
    points = TpsPoints(settings.points, settings.epoch, lookup.draw("avg_tps", lookup.chain))

    def page_fields(added: int) -> Row:
        return {"status": 200, "lastRun": settings.epoch + added * DAY}

    size = settings.metrics_page_size
    return _listed(lookup, "results", points, page_fields, page_size=size, fixed=True)


@_handles("data.evm.blocks")
def _blocks(lookup: Lookup) -> Listing:
    return _listed(lookup, "blocks", _blocks_of(lookup))


@_handles("data.evm.block")
def _block(lookup: Lookup) -> Row:
    blocks, number = _find_block(lookup)
    (row,) = blocks.rows(number, number + 1)
    name = lookup.match.values["blockId"]
    return _completed_row(lookup, row if name.isdecimal() else {**row, "blockHash": name})


@_handles("data.evm.transactions")
def _transactions(lookup: Lookup) -> Listing:
    return _listed(lookup, "transactions", _transactions_of(lookup))


@_handles("data.evm.block_transactions")
def _block_transactions(lookup: Lookup) -> Listing:
    _, number = _find_block(lookup)
    transactions = _transactions_of(lookup)
    first, behind = transactions.span(number)
    part = Part(transactions, first, behind - first)
    return _listed(lookup, "transactions", part, grows=False, sizes=(0, 100))


@_handles("data.primary_network.utxos_v2")
def _utxos_v2(lookup: Lookup) -> Listing:
    listing = _utxo_list(lookup)
    listing.sizes = _sizes(lookup.match.endpoint)
    return listing


@_handles("data.primary_network.utxos")
def _utxos(lookup: Lookup) -> Listing:
    return _utxo_list(lookup)


def _utxo_list(lookup: Lookup) -> Listing:
    network, blockchain = lookup.match.values["network"], lookup.match.values["blockchainId"]
    chain, of = BLOCKCHAIN_NAMES.get(blockchain), NETWORKS.get(network)
    if chain is None or of is None:
        raise HTTPError(404, f"blockchain {blockchain} of network {network} does not exist")
    settings = lookup.settings
    utxos = Utxos(of, chain, settings.rows, settings.epoch, lookup.draw("utxos", of, chain))
    kinds = dict(lookup.match.endpoint.route.extra)
    chain_info = lookup.completion(kinds["chain_info"])([{"chainName": chain, "network": network}])[0]
    return _listed(lookup, "utxos", utxos, lambda added: {"chainInfo": chain_info})


def _listed(
    lookup: Lookup,
    name: str,
    source: RowSource,
    page_fields: Callable[[int], Row] = lambda added: {},
    **settings: Any,
) -> Listing:
    """Return a list; each query has all its rows, in the order that it names."""
    match, rows = lookup.match, _completed(lookup, source)

    def select(query: Mapping[str, str]) -> View:
        ascending = checked_query(match, query).get("sortOrder") == "asc"
        return View(rows, ascending=ascending, page_fields=page_fields)

    return Listing(name, rows, select, **settings)


def _blocks_of(lookup: Lookup) -> Blocks:
    chain, settings = lookup.chain, lookup.settings
    # Its transactions read each block several times.
    draw = CachedDraw(settings.seed, "blocks", chain)
    return Blocks(chain, settings.rows, settings.epoch, draw)


def _transactions_of(lookup: Lookup) -> Transactions:
    draw = lookup.draw("transactions", lookup.chain)
    return Transactions(_blocks_of(lookup), lookup.settings.rows, draw)


def _find_block(lookup: Lookup) -> tuple[Blocks, int]:
    """Return the blocks of a chain, and the number of the block that the path names."""
    blocks, name = _blocks_of(lookup), lookup.match.values["blockId"]
    size = blocks.size + lookup.added(("data", "v1", "chains", str(blocks.chain), "blocks"))
    number = blocks.find(name, size)
    if number >= size:
        raise HTTPError(404, f"block {name} does not exist")
    return blocks, number


# Routes that read what writes change


@_handles("data.webhooks.list")
def _webhooks(lookup: Lookup) -> Listing:
    account = lookup.account

    def change(rows: list[Any], values: Mapping[str, str]) -> list[Any]:
        return account.listed(rows, values.get("status"))

    return _changing(lookup, lambda: account.touched, change)


@_handles("data.webhooks.addresses")
def _webhook_addresses(lookup: Lookup) -> Listing:
    account, name = lookup.account, lookup.match.values["id"]

    def change(rows: list[Any], values: Mapping[str, str]) -> list[Any]:
        return account.addresses(name, () if account.is_created(name) else rows)

    return _changing(lookup, lambda: account.knows_addresses(name), change, total="totalAddresses")


def _changing(
    lookup: Lookup,
    is_changed: Callable[[], bool],
    change: Callable[[list[Any], Mapping[str, str]], list[Any]],
    total: str | None = None,
) -> Listing:
    """Return a generated list whose rows are others once writes changed them.

    `change` returns them, from the generated rows and the query; `total` is the field with their number.
    """
    listing = _generated_list(lookup)
    generated = listing.select

    def select(query: Mapping[str, str]) -> View:
        view = generated(query)
        if not is_changed():
            return view
        size = view.source.size + lookup.added(lookup.match.segments)
        rows = tuple(change(view.source.rows(0, size), query))
        changed = View(Fixed(rows), high=len(rows), page_fields=view.page_fields)
        return changed if total is None else evolve(changed, page_fields=lambda _: {total: len(rows)})

    listing.select, listing.cached = select, lambda: not is_changed()
    return listing


@_handles("data.webhooks.get")
def _webhook(lookup: Lookup) -> Row:
    original = _generated(lookup)
    assert isinstance(original, dict)  # noqa: S101 - it is no list
    return dict(lookup.account.webhook(lookup.match.values["id"], original))


@_handles("data.webhooks.shared_secret")
def _shared_secret(lookup: Lookup) -> Listing | Row:
    secret = lookup.account.secret
    return _generated(lookup) if secret is None else {"secret": secret}


@_handles("data.operation")
def _operation(lookup: Lookup) -> Listing | Row:
    begun = lookup.account.operation(lookup.match.values["operationId"])
    return _generated(lookup) if begun is None else begun


# Composite queries


@_handles("metrics.looking_glass.composite_query")
@_handles("metrics.looking_glass.composite_query_v1")
def _composite(lookup: Lookup) -> Listing:
    universe = Addresses(lookup.settings.rows, lookup.draw("looking glass"))

    def select(query: Mapping[str, str]) -> View:
        values = checked_query(lookup.match, query)
        found = universe.composite(json.loads(values["queries"]), values["operator"])
        return View(found, page_fields=lambda added: found.counts())

    return evolve(_paged(lookup, universe, select), grows=False)


# All other routes


def _generated(lookup: Lookup) -> Listing | Row:
    """Return the list, or the resource, of a route whose rows are made from its model."""
    match = lookup.match
    check_path(match, lookup.settings.chains)
    if not match.endpoint.single:
        is_series = "metric" in match.values and match.endpoint.record.items == "results"
        return _series(lookup) if is_series else _generated_list(lookup)
    source = _generated_rows(lookup, 1, checked_query(match, lookup.query))
    return source.rows(0, 1)[0]


def _generated_list(lookup: Lookup) -> Listing:
    match, settings = lookup.match, lookup.settings
    route = match.endpoint.route
    has_interval = route.items == "results"
    rows = _generated_rows(lookup, settings.points if has_interval else settings.rows, {})

    def select(query: Mapping[str, str]) -> View:
        values = checked_query(match, query)
        step = INTERVALS[values.get("timeInterval", "day")] if has_interval else ROW_SECONDS
        selected = evolve(rows, step=step, echoes=_echoes(match, values))

        def page_fields(added: int) -> Row:
            if not fields:
                return {}
            newest = rows.size - 1 + added
            (context,) = selected.contexts(newest, newest + 1)
            return {name: make(context) for name, make in fields.items()}

        low, high = _bounds(selected, values)
        return View(selected, low, high, values.get("sortOrder") == "asc", page_fields)

    fields = {wire_name(name): factory(kind, wire_name(name)) for name, kind in route.extra}
    return _paged(lookup, rows, select)


def _series(lookup: Lookup) -> Listing:
    """Return a metric's series."""
    match, settings = lookup.match, lookup.settings
    metric = match.values["metric"]
    kind = Sums if "umulative" in metric else Points
    draw = lookup.draw(*match.segments)
    points = kind(settings.points, settings.epoch, draw, DAY, SCALES.get(metric, SCALE))

    def select(query: Mapping[str, str]) -> View:
        values = checked_query(match, query)
        selected = evolve(points, step=INTERVALS[values.get("timeInterval", "day")])
        low, high = _bounds(selected, values)
        return View(_completed(lookup, selected), low, high, values.get("sortOrder") == "asc")

    return _paged(lookup, points, select)


def _paged(lookup: Lookup, source: RowSource, select: Callable[[Mapping[str, str]], View]) -> Listing:
    """Return a list with the page sizes that its route takes."""
    endpoint, settings = lookup.match.endpoint, lookup.settings
    parameter = endpoint.page_size
    default = DEFAULT_PAGE_SIZE if parameter else None
    return Listing(
        endpoint.record.items or "items",
        source,
        select,
        page_size=settings.metrics_page_size if lookup.match.name.startswith("metrics.") else default,
        fixed=parameter is None,
        sizes=_sizes(endpoint),
    )


def _sizes(endpoint: Endpoint) -> tuple[int, int]:
    """Return the least and the greatest size of a page."""
    bounds = None if endpoint.page_size is None else endpoint.page_size.bounds
    return (1, 1) if bounds is None else (int(bounds.least), int(bounds.most or bounds.least))


def _generated_rows(lookup: Lookup, size: int, values: Mapping[str, str]) -> Generated:
    match, settings = lookup.match, lookup.settings
    route = match.endpoint.route
    without = NOT_GENERATED.get(route.path, frozenset())
    make = factory(str, "address") if route.model is None else factory(route.model, without=without)
    draw = lookup.draw(*match.segments)
    echoes = _echoes(match, values)
    return Generated(make, size, settings.epoch, ROW_SECONDS, draw, settings.chains, echoes)


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


def _bounds(source: Points | Generated, values: Mapping[str, str]) -> tuple[int, int | None]:
    """Return the number range of a query: the first row, and the one after the last."""
    low, high = 0, math.inf
    if text := values.get("startTimestamp"):
        low = max(low, source.first_at(int(text)))
    if text := values.get("endTimestamp"):
        high = min(high, source.first_at(int(text) + 1))
    if text := values.get("startBlock"):
        low = max(low, int(text) - FIRST_HEIGHT)
    if text := values.get("endBlock"):
        high = min(high, int(text) + 1 - FIRST_HEIGHT)
    return low, None if high == math.inf else int(high)


# Required fields that the rows of a handler lack


@lru_cache(maxsize=64)
def _completion(model: Any, epoch: int, chains: tuple[int, ...]) -> Completion:
    return Completion(model, epoch, chains)


def _chains_of(lookup: Lookup, kind: type[Chains]) -> Chains:
    return kind(lookup.settings.chains, lookup.draw("chains"))


def _completed_row(lookup: Lookup, row: Row) -> Row:
    return lookup.completion(lookup.match.endpoint.route.model)([row])[0]


def _completed(lookup: Lookup, source: RowSource) -> Completed:
    return Completed(source, lookup.completion(lookup.match.endpoint.route.model))

"""What there is at each path: the specification's lists by their own sources, all others by their records."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from chainapi.simulator.injection import Alterations
from chainapi.simulator.lists import Listing, Place, Refusal, known_chain
from chainapi.simulator.matching import target
from chainapi.simulator.names import BLOCKCHAIN_NAMES
from chainapi.simulator.rows import Draw, Row, RowSource
from chainapi.simulator.settings import Settings
from chainapi.simulator.sources import DAY, Blocks, Chains, MetricsChains, Part, Points, Transactions, Utxos

__all__ = ["Places"]

NETWORKS = {"mainnet": "mainnet", "fuji": "fuji", "testnet": "fuji"}
OF_ALL_CHAINS = ("allBlocks", "allTransactions")


class Places:
    """Finds lists and resources; `grown` says how many rows a list has in addition to those it began with."""

    def __init__(self, settings: Settings, grown: Callable[[Listing], int]) -> None:
        self._settings = settings
        self._grown = grown
        self._listings: dict[Place, Listing] = {}
        self._alterations: dict[Place, Alterations | None] = {}

    def find(self, place: Place, query: Mapping[str, str]) -> Listing | Row:
        """Return the list at a place, or the one record there.

        Raises:
            Refusal: there is none, or not with such a query.

        """
        found = self._listings.get(place)
        if found is not None:
            return found
        resolved = self._resolve(place, query)
        if not isinstance(resolved, Listing):
            return resolved if not self._settings.anomalies else self._altered(place, resolved)
        resolved.alterations = self._alterations_at(place)
        self._listings[place] = resolved
        return resolved

    def _altered(self, place: Place, resource: Row) -> Row:
        """Return a single resource with its anomalies."""
        alterations = self._alterations_at(place)
        return resource if alterations is None else alterations.resource(resource)

    def _alterations_at(self, place: Place) -> Alterations | None:
        """Return the anomalies of what is at a place; None where there are none."""
        if place in self._alterations:
            return self._alterations[place]
        settings, alterations = self._settings, None
        for anomalies in settings.anomalies:
            if alterations is None and (anomalies.route is None or place in target(anomalies.route)):
                alterations = Alterations(anomalies, place, settings.seed, settings.chains)
        self._alterations[place] = alterations
        return alterations

    def _resolve(self, place: Place, query: Mapping[str, str]) -> Listing | Row:
        match place:
            case "metrics", "v1", "avg_tps", chain:
                return self._points(self._chain(chain))
            case "metrics", "v2", "chains":
                return Listing("chains", self._metrics_chains(), page_size=None, grows=False, fixed=True)
            case "metrics", "v2", "chains", chain:
                return self._metrics_chains().chain(self._chain(chain))
            case "data", "v1", "chains", *rest:
                return self._of_chains(place, rest, query)
            case "data", "v1", "networks", network, "blockchains", blockchain, "utxos":
                return self._utxos(network, blockchain)
            case _:
                return self._recorded(place, query)

    def _of_chains(self, place: Place, rest: list[str], query: Mapping[str, str]) -> Listing | Row:
        """Return what is below the list of chains."""
        match rest:
            case []:
                return Listing("chains", self._chains(), page_size=None, grows=False)
            case [chain] if chain not in OF_ALL_CHAINS:
                return self._chains().chain(self._chain(chain))
            case chain, "blocks":
                return Listing("blocks", self._blocks(self._chain(chain)))
            case chain, "blocks", block:
                return self._block(self._chain(chain), block)
            case chain, "blocks", block, "transactions":
                return self._transactions_of(self._chain(chain), block)
            case chain, "transactions":
                return Listing("transactions", self._transactions(self._chain(chain)))
            case _:
                return self._recorded(place, query)

    def _recorded(self, place: Place, query: Mapping[str, str]) -> Listing | Row:
        """Return what the record of a route says is there."""
        from chainapi.simulator import handlers

        match = handlers.find(place)
        if match is None:
            raise Refusal(404, "Cannot GET /" + "/".join(place[1:]))
        return match.serve(self._settings, query)

    def units(self, place: Place) -> int:
        """Return what a request there is said to cost, in compute units; 1 where nobody says."""
        from chainapi.simulator import handlers

        match = handlers.find(place)
        units = None if match is None else match.declared.route.units
        return 1 if units is None else units

    def _chain(self, text: str) -> int:
        return known_chain(text, self._settings.chains)

    def _chains(self) -> Chains:
        return Chains(self._settings.chains, Draw(self._settings.seed, "chains"))

    def _metrics_chains(self) -> MetricsChains:
        return MetricsChains(self._settings.chains, Draw(self._settings.seed, "chains"))

    def _blocks(self, chain: int) -> Blocks:
        settings = self._settings
        return Blocks(chain, settings.rows, settings.epoch, Draw(settings.seed, "blocks", chain))

    def _find_block(self, chain: int, name: str) -> tuple[Blocks, int]:
        """Return the blocks of a chain, and the number of the one of that height or hash."""
        blocks = self._blocks(chain)
        listing = self._listings.get(("data", "v1", "chains", str(chain), "blocks"))
        size = blocks.size + self._grown(listing or Listing("blocks", blocks))
        number = blocks.find(name, size)
        if number >= size:
            raise Refusal(404, f"block {name} does not exist")
        return blocks, number

    def _block(self, chain: int, name: str) -> Row:
        blocks, number = self._find_block(chain, name)
        (row,) = blocks.rows(number, number + 1)
        return row if name.isdecimal() else {**row, "blockHash": name}

    def _transactions(self, chain: int) -> Transactions:
        draw = Draw(self._settings.seed, "transactions", chain)
        return Transactions(self._blocks(chain), self._settings.rows, draw)

    def _transactions_of(self, chain: int, name: str) -> Listing:
        _, number = self._find_block(chain, name)
        transactions = self._transactions(chain)
        first, behind = transactions.span(number)
        part = Part(transactions, first, behind - first)
        return Listing("transactions", part, grows=False, sizes=(0, 100))

    def _points(self, chain: int) -> Listing:
        settings = self._settings
        points = Points(settings.points, settings.epoch, Draw(settings.seed, "avg_tps", chain))

        def fields(_: RowSource, added: int) -> Row:
            return {"status": 200, "lastRun": settings.epoch + added * DAY}

        return Listing("results", points, page_size=settings.metrics_page_size, fixed=True, fields=fields)

    def _utxos(self, network: str, blockchain: str) -> Listing:
        chain, of = BLOCKCHAIN_NAMES.get(blockchain), NETWORKS.get(network)
        if chain is None or of is None:
            raise Refusal(404, f"blockchain {blockchain} of network {network} does not exist")
        settings = self._settings
        draw = Draw(settings.seed, "utxos", of, chain)
        utxos = Utxos(of, chain, settings.rows, settings.epoch, draw)
        about: Row = {"chainInfo": {"chainName": chain, "network": network}}
        return Listing("utxos", utxos, fields=lambda source, added: about)

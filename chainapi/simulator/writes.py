"""Handlers of the routes that change the account of the Data API."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from chainapi.simulator.handlers import addresses_of, webhook_of
from chainapi.simulator.rows import Row
from chainapi.simulator.state import Lookup
from chainapi.simulator.validation import HTTPError

__all__ = ["WRITES"]

REINDEX_SECONDS = 3_600  # in which a token can be reindexed once


def _create(lookup: Lookup) -> Row:
    body, state = lookup.values, lookup.state
    name = state.identifier()
    state.created.append(name)
    state.webhooks[name] = {
        "id": name,
        "url": body["url"],
        "chainId": body.get("chainId", "p-chain"),
        "status": "active",
        "createdAt": state.time,
        **{name: body.get(name, "") for name in ("name", "description")},
        "eventType": body["eventType"],
        "metadata": body["metadata"],
        **{name: body[name] for name in ("includeInternalTxs", "includeLogs") if name in body},
    }
    state.watched[name] = [*body["metadata"].get("addresses", ())]
    return state.webhooks[name]


def _update(lookup: Lookup) -> Row:
    return _edit(lookup, **lookup.values)


def _deactivate(lookup: Lookup) -> Row:
    name = lookup.match.values["id"]
    if lookup.state.webhooks.get(name, {}).get("status") == "inactive":
        raise HTTPError(404, f"webhook {name} is not active")
    return _edit(lookup, status="inactive")


def _add_addresses(lookup: Lookup) -> Row:
    watched = _watched(lookup)
    return _watch(lookup, [*watched, *(one for one in lookup.values["addresses"] if one not in watched)])


def _remove_addresses(lookup: Lookup) -> Row:
    watched, removed = _watched(lookup), set(lookup.values["addresses"])
    if not removed & set(watched):
        name = lookup.match.values["id"]
        raise HTTPError(404, f"webhook {name} watches none of these addresses")
    return _watch(lookup, [one for one in watched if one not in removed])


def _edit(lookup: Lookup, **changes: Any) -> Row:
    """Change fields of the webhook that the path names, and return it."""
    name = lookup.match.values["id"]
    lookup.state.webhooks.setdefault(name, {}).update(changes)
    return webhook_of(lookup, name)


def _watched(lookup: Lookup) -> list[str]:
    """Return the addresses of the webhook that the path names, oldest first."""
    name = lookup.match.values["id"]
    if webhook_of(lookup, name)["eventType"] != "address_activity":
        raise HTTPError(400, "only webhooks of the type address_activity have addresses")
    return addresses_of(lookup, name)[::-1]


def _watch(lookup: Lookup, watched: list[str]) -> Row:
    """Let the webhook watch these addresses, oldest first, and return it."""
    name = lookup.match.values["id"]
    lookup.state.watched[name] = watched
    return _edit(lookup, metadata={**webhook_of(lookup, name)["metadata"], "addresses": watched[::-1]})


def _rotate(lookup: Lookup) -> Row:
    lookup.state.secret = lookup.state.draw()[:32].hex()
    return {"secret": lookup.state.secret}


def _export(lookup: Lookup) -> Row:
    state = lookup.state
    operation = {
        "operationId": state.identifier(),
        "operationType": lookup.values["type"],
        "operationStatus": "RUNNING",
        "createdAtTimestamp": state.time,
        "updatedAtTimestamp": state.time,
    }
    state.operations[operation["operationId"]] = operation
    return operation


def _reindex(lookup: Lookup) -> None:
    state, token = lookup.state, lookup.match.segments
    recent = {one: time for one, time in state.reindexed.items() if state.time - time < REINDEX_SECONDS}
    if token in recent:
        raise HTTPError(400, "a token can be reindexed once an hour")
    state.reindexed = {**recent, token: state.time}


WRITES: Mapping[str, Callable[[Lookup], Row | None]] = {  # by the names of the routes
    "data.webhooks.create": _create,
    "data.webhooks.update": _update,
    "data.webhooks.deactivate": _deactivate,
    "data.webhooks.add_addresses": _add_addresses,
    "data.webhooks.remove_addresses": _remove_addresses,
    "data.webhooks.rotate_shared_secret": _rotate,
    "data.export_transactions": _export,
    "data.nfts.reindex": _reindex,
}

"""Handlers of the routes that write.

They change the account, and return the body of the answer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from attrs import frozen

from chainapi.simulator.account import Account
from chainapi.simulator.matching import Match, Segments
from chainapi.simulator.rows import Row
from chainapi.simulator.validation import HTTPError, check_path

__all__ = ["Write", "created", "write"]

REINDEX_SECONDS = 3_600
# Routes with POST whose answer is no 201.
READING = frozenset(
    {
        "data.primary_network.utxos_v2",
        "data.primary_network.last_activity_v2",
        "metrics.looking_glass.composite_query",
        "metrics.looking_glass.composite_query_v1",
    }
)


@frozen
class Write:
    """Request that writes.

    Attributes:
        match: route and path.
        body: the checked body.
        account: account that it changes.
        read: returns the resource at a path.

    """

    match: Match
    body: Row
    account: Account
    read: Callable[[Segments], Row]

    @property
    def webhook_id(self) -> str:
        """Webhook that the path names."""
        return self.match.values["id"]

    def webhook(self) -> Row:
        """Return the webhook that the path names, as it is now."""
        return self.read(("data", "v1", "webhooks", self.webhook_id))


Writer: TypeAlias = Callable[[Write], Row | None]

WRITERS: dict[str, Writer] = {}


def created(name: str, method: str) -> bool:
    """Return whether the answer of a route has the status 201."""
    return method == "POST" and name not in READING


def write(request: Write) -> Row | None:
    """Carry out a write, and return the body of its answer, if it has one.

    Raises:
        HTTPError: the resource does not exist, or does not take the change.

    """
    check_path(request.match, request.account.settings.chains)
    return WRITERS[request.match.name](request)


def _writes(name: str) -> Callable[[Writer], Writer]:
    """Register the handler of a route by the route's name."""

    def register(writer: Writer) -> Writer:
        WRITERS[name] = writer
        return writer

    return register


@_writes("data.webhooks.create")
def _create(request: Write) -> Row:
    body, account = request.body, request.account
    webhook: Row = {
        "id": account.identifier(),
        "url": body["url"],
        "chainId": body.get("chainId", "p-chain"),
        "status": "active",
        "createdAt": account.time,
        "name": body.get("name", ""),
        "description": body.get("description", ""),
        "eventType": body["eventType"],
        "metadata": body["metadata"],
    }
    webhook |= {name: body[name] for name in ("includeInternalTxs", "includeLogs") if name in body}
    account.add(webhook)
    if body["eventType"] == "address_activity":
        account.change_addresses(str(webhook["id"]), added=_texts(body["metadata"], "addresses"))
    return webhook


@_writes("data.webhooks.update")
def _update(request: Write) -> Row:
    request.account.edit(request.webhook_id, request.body)
    return request.webhook()


@_writes("data.webhooks.deactivate")
def _deactivate(request: Write) -> Row:
    if request.webhook()["status"] == "inactive" and request.account.knows(request.webhook_id):
        raise HTTPError(404, f"webhook {request.webhook_id} is not active")
    request.account.edit(request.webhook_id, {"status": "inactive"})
    return request.webhook()


@_writes("data.webhooks.add_addresses")
def _add_addresses(request: Write) -> Row:
    _watched(request)
    request.account.change_addresses(request.webhook_id, added=_texts(request.body, "addresses"))
    return _with_addresses(request)


@_writes("data.webhooks.remove_addresses")
def _remove_addresses(request: Write) -> Row:
    removed = _texts(request.body, "addresses")
    if not set(removed) & set(_watched(request)):
        raise HTTPError(404, f"webhook {request.webhook_id} watches none of these addresses")
    request.account.change_addresses(request.webhook_id, removed=removed)
    return _with_addresses(request)


def _watched(request: Write) -> list[str]:
    """Return the addresses of the webhook that the path names."""
    webhook = request.webhook()
    if webhook["eventType"] != "address_activity":
        raise HTTPError(400, "only webhooks of the type address_activity have addresses")
    return request.account.addresses(request.webhook_id, _texts(webhook["metadata"], "addresses"))


def _with_addresses(request: Write) -> Row:
    """Return the webhook with the addresses that it watches now."""
    webhook = request.webhook()
    metadata = webhook["metadata"]
    watched = request.account.addresses(request.webhook_id, _texts(metadata, "addresses"))
    assert isinstance(metadata, dict)  # noqa: S101 - of every webhook
    request.account.edit(request.webhook_id, {"metadata": {**metadata, "addresses": watched}})
    return request.webhook()


@_writes("data.webhooks.rotate_shared_secret")
def _rotate(request: Write) -> Row:
    request.account.secret = request.account.draw()[:32].hex()
    return {"secret": request.account.secret}


@_writes("data.export_transactions")
def _export(request: Write) -> Row:
    account = request.account
    operation: Row = {
        "operationId": account.identifier(),
        "operationType": request.body["type"],
        "operationStatus": "RUNNING",
        "createdAtTimestamp": account.time,
        "updatedAtTimestamp": account.time,
    }
    account.begin(operation)
    return operation


@_writes("data.nfts.reindex")
def _reindex(request: Write) -> None:
    if not request.account.reindex(request.match.segments, REINDEX_SECONDS):
        raise HTTPError(400, "a token can be reindexed once an hour")


def _texts(record: object, name: str) -> list[str]:
    """Return a list of strings in an object."""
    assert isinstance(record, dict)  # noqa: S101 - bodies are checked
    return list(record.get(name, ()))

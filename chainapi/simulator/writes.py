"""Writes: the account of the Data API that they change, and their handlers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeAlias
from uuid import UUID

from attrs import define, field, frozen

from chainapi.simulator.matching import Match
from chainapi.simulator.rows import Draw, Row
from chainapi.simulator.validation import HTTPError

__all__ = ["Account", "Write", "created", "write"]

EXPORT_SECONDS = 10  # after which an export is complete
REINDEX_SECONDS = 3_600  # in which a token can be reindexed once
# Routes with POST whose answer is no 201.
READING = frozenset(
    {
        "data.primary_network.utxos_v2",
        "data.primary_network.last_activity_v2",
        "metrics.looking_glass.composite_query",
        "metrics.looking_glass.composite_query_v1",
    }
)


@define(eq=False)
class Account:
    """State of the one account that all keys share.

    Attributes:
        seed: all random choices follow from it.
        time: Unix time in seconds of the latest request.
        secret: the shared secret since its rotation; None before the first one.
        webhooks: webhooks that writes created, and the changed fields of others, by their identifiers.
        created: identifiers of those that writes created, oldest first.
        watched: addresses of the webhooks whose addresses writes changed, oldest first.
        operations: exports that writes began, as they were then.
        reindexed: times of the requests to reindex a token, of the last hour.

    """

    seed: int
    time: int = 0
    secret: str | None = None
    webhooks: dict[str, Row] = field(factory=dict[str, Row])
    created: list[str] = field(factory=list[str])
    watched: dict[str, list[str]] = field(factory=dict[str, list[str]])
    operations: dict[str, Row] = field(factory=dict[str, Row])
    reindexed: dict[tuple[str, ...], int] = field(factory=dict[tuple[str, ...], int])
    _drawn: int = 0

    def draw(self) -> bytes:
        """Return 64 random bytes, others at each call."""
        self._drawn += 1
        return Draw(self.seed, "account")(self._drawn)

    def identifier(self) -> str:
        """Return a new identifier."""
        return str(UUID(bytes=self.draw()[:16], version=4))

    def listed(self, originals: Iterable[Row]) -> list[Row]:
        """Return all webhooks, newest first; `originals` were there at the beginning."""
        created = [self.webhooks[name] for name in reversed(self.created)]
        return [*created, *({**row, **self.webhooks.get(row["id"], {})} for row in originals)]

    def operation(self, name: str) -> Row | None:
        """Return an export that a write began, as it is now."""
        begun = self.operations.get(name)
        if begun is None or self.time < begun["createdAtTimestamp"] + EXPORT_SECONDS:
            return begun
        done = {"operationStatus": "COMPLETED", "message": "the export is complete"}
        return {**begun, **done, "updatedAtTimestamp": begun["createdAtTimestamp"] + EXPORT_SECONDS}


@frozen
class Write:
    """Request that writes.

    Attributes:
        match: route and path.
        body: the checked body.
        account: account that it changes.
        webhook: returns the webhook of an identifier, as it is now.
        addresses: returns all addresses of a webhook, the latest first.

    """

    match: Match
    body: Row
    account: Account
    webhook: Callable[[str], Row]
    addresses: Callable[[str], list[str]]

    @property
    def name(self) -> str:
        """Identifier of the webhook that the path names."""
        return self.match.values["id"]

    def edit(self, **changes: Any) -> Row:
        """Change fields of the webhook, and return it."""
        self.account.webhooks.setdefault(self.name, {}).update(changes)
        return self.webhook(self.name)

    def watch(self, addresses: list[str]) -> Row:
        """Let the webhook watch these addresses, oldest first, and return it."""
        self.account.watched[self.name] = addresses
        return self.edit(metadata={**self.webhook(self.name)["metadata"], "addresses": addresses[::-1]})


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
    name = account.identifier()
    account.created.append(name)
    account.webhooks[name] = {
        "id": name,
        "url": body["url"],
        "chainId": body.get("chainId", "p-chain"),
        "status": "active",
        "createdAt": account.time,
        "name": body.get("name", ""),
        "description": body.get("description", ""),
        "eventType": body["eventType"],
        "metadata": body["metadata"],
        **{name: body[name] for name in ("includeInternalTxs", "includeLogs") if name in body},
    }
    account.watched[name] = [*body["metadata"].get("addresses", ())]
    return account.webhooks[name]


@_writes("data.webhooks.update")
def _update(request: Write) -> Row:
    return request.edit(**request.body)


@_writes("data.webhooks.deactivate")
def _deactivate(request: Write) -> Row:
    if request.account.webhooks.get(request.name, {}).get("status") == "inactive":
        raise HTTPError(404, f"webhook {request.name} is not active")
    return request.edit(status="inactive")


@_writes("data.webhooks.add_addresses")
def _add_addresses(request: Write) -> Row:
    watched = _watched(request)
    return request.watch([*watched, *(one for one in request.body["addresses"] if one not in watched)])


@_writes("data.webhooks.remove_addresses")
def _remove_addresses(request: Write) -> Row:
    watched, removed = _watched(request), set(request.body["addresses"])
    if not removed & set(watched):
        raise HTTPError(404, f"webhook {request.name} watches none of these addresses")
    return request.watch([one for one in watched if one not in removed])


def _watched(request: Write) -> list[str]:
    """Return the addresses of the webhook that the path names, oldest first."""
    if request.webhook(request.name)["eventType"] != "address_activity":
        raise HTTPError(400, "only webhooks of the type address_activity have addresses")
    return request.addresses(request.name)[::-1]


@_writes("data.webhooks.rotate_shared_secret")
def _rotate(request: Write) -> Row:
    request.account.secret = request.account.draw()[:32].hex()
    return {"secret": request.account.secret}


@_writes("data.export_transactions")
def _export(request: Write) -> Row:
    account = request.account
    operation = {
        "operationId": account.identifier(),
        "operationType": request.body["type"],
        "operationStatus": "RUNNING",
        "createdAtTimestamp": account.time,
        "updatedAtTimestamp": account.time,
    }
    account.operations[operation["operationId"]] = operation
    return operation


@_writes("data.nfts.reindex")
def _reindex(request: Write) -> None:
    account, token = request.account, request.match.segments
    recent = {one: time for one, time in account.reindexed.items() if account.time - time < REINDEX_SECONDS}
    if token in recent:
        raise HTTPError(400, "a token can be reindexed once an hour")
    account.reindexed = {**recent, token: account.time}

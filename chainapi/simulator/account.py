"""Account of the Data API: what writes changed since the beginning."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from uuid import UUID

from attrs import define, field

from chainapi.simulator.rows import Draw, Row
from chainapi.simulator.settings import Settings

__all__ = ["EXPORT_SECONDS", "Account"]

EXPORT_SECONDS = 10  # after which an export is complete


@define
class _Addresses:
    """Addresses of a webhook that were added, oldest first, and those removed."""

    added: list[str] = field(factory=list[str])
    removed: set[str] = field(factory=set[str])


@define(eq=False)
class Account:
    """State of the one account that all keys share.

    It has webhooks, the shared secret, exports, and requests to reindex.

    Attributes:
        settings: settings of the simulator.
        time: Unix time in seconds of the latest request.
        secret: the shared secret since its rotation; None before the first one.

    """

    settings: Settings
    time: int = 0
    secret: str | None = None
    _webhooks: dict[str, Row] = field(factory=dict[str, Row])  # created ones, oldest first
    _edits: dict[str, Row] = field(factory=dict[str, Row])  # of those that were there at the beginning
    _addresses: dict[str, _Addresses] = field(factory=dict[str, _Addresses])
    _operations: dict[str, Row] = field(factory=dict[str, Row])
    _reindexed: dict[tuple[str, ...], int] = field(factory=dict[tuple[str, ...], int])
    _drawn: int = 0

    @property
    def touched(self) -> bool:
        """Check whether a write changed any webhook."""
        return bool(self._webhooks or self._edits)

    def draw(self) -> bytes:
        """Return 64 random bytes, others at each call."""
        self._drawn += 1
        return Draw(self.settings.seed, "account")(self._drawn)

    def identifier(self) -> str:
        """Return a new identifier."""
        return str(UUID(bytes=self.draw()[:16], version=4))

    # Webhooks

    def add(self, webhook: Row) -> None:
        """Add a webhook."""
        self._webhooks[str(webhook["id"])] = webhook

    def is_created(self, name: str) -> bool:
        """Return whether a write created the webhook."""
        return name in self._webhooks

    def knows(self, name: str) -> bool:
        """Return whether a write created or changed the webhook."""
        return name in self._webhooks or name in self._edits

    def webhook(self, name: str, original: Row) -> Row:
        """Return a webhook as it is now.

        `original` is the row of one that was there at the beginning.
        """
        return self._webhooks.get(name) or {**original, **self._edits.get(name, {})}

    def edit(self, name: str, changes: Row) -> None:
        """Change fields of a webhook."""
        if name in self._webhooks:
            self._webhooks[name] |= changes
        else:
            self._edits.setdefault(name, {}).update(changes)

    def listed(self, originals: Iterable[Row], status: str | None) -> list[Row]:
        """Return all webhooks, newest first, or the ones of a status."""
        rows = [*reversed(self._webhooks.values()), *(self.webhook(str(row["id"]), row) for row in originals)]
        return rows if status is None else [row for row in rows if row["status"] == status]

    # Addresses of webhooks

    def change_addresses(self, name: str, *, added: Iterable[str] = (), removed: Iterable[str] = ()) -> None:
        """Add addresses to a webhook, and remove others."""
        changes = self._addresses.setdefault(name, _Addresses())
        gone = set(removed)
        changes.removed = (changes.removed | gone) - set(added)
        changes.added = [one for one in changes.added if one not in gone]
        changes.added += [one for one in added if one not in changes.added]

    def knows_addresses(self, name: str) -> bool:
        """Return whether a write created the webhook, or named addresses of it."""
        return name in self._webhooks or name in self._addresses

    def addresses(self, name: str, originals: Iterable[str]) -> list[str]:
        """Return the addresses of a webhook, the latest first."""
        changes = self._addresses.get(name, _Addresses())
        kept = [one for one in originals if one not in changes.removed and one not in changes.added]
        return [*reversed(changes.added), *kept]

    # Exports and requests to reindex

    def begin(self, operation: Row) -> None:
        """Add an operation."""
        self._operations[str(operation["operationId"])] = operation

    def operation(self, name: str) -> Row | None:
        """Return an operation that a write began, as it is now."""
        begun = self._operations.get(name)
        if begun is None:
            return None
        start = int(str(begun["createdAtTimestamp"]))
        if self.time < start + EXPORT_SECONDS:
            return begun
        done: Mapping[str, object] = {
            "operationStatus": "COMPLETED",
            "message": "the export is complete",
            "updatedAtTimestamp": start + EXPORT_SECONDS,
        }
        return {**begun, **done}

    def reindex(self, token: tuple[str, ...], every: int) -> bool:
        """Note a request to reindex a token.

        Return False if one came less than `every` seconds ago.
        """
        recent = {known: time for known, time in self._reindexed.items() if self.time - time < every}
        if token in recent:
            return False
        self._reindexed = {**recent, token: self.time}
        return True

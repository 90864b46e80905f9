"""Trace of a seed: what a user sees of its programs, as JSON, and the digest of it.

Promises only: no text of a message, no checkpoint, no time, no name of a class of rows.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

from chainapi.errors import ChainAPIError
from tests.judge.service import World

__all__ = ["Trace", "shown_error", "shown_page", "shown_row"]

# Public attributes of errors that neither time nor wording decides.
_ATTRIBUTES = (
    "status",
    "error",
    "messages",
    "where",
    "attempts",
    "retry_after",
    "transient",
    "sent",
    "lookup",
)
_MORE = ("path", "row", "malformed", "request_id", "max_wait")


class Trace:
    """Lines of a trace; each is a list whose first entry says what it is."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def add(self, *entries: Any) -> None:
        """Add a line."""
        self.lines.append(json.dumps(entries, sort_keys=True, default=_plain))

    def add_sent(self, world: World, *, ordered: bool = False) -> None:
        """Add the requests of a program: how often each was sent, or in their order and with their times."""
        if ordered:
            for time, place in world.sent:
                self.add("at", int(1_000 * (time - world.sent[0][0]) + 0.01), place)
        for place, count in sorted(Counter(place for _, place in world.sent).items()):
            self.add("sent", count, place)

    def digest(self) -> str:
        """Return the digest of all lines."""
        return hashlib.blake2b("\n".join(self.lines).encode(), digest_size=12).hexdigest()


def _plain(value: Any) -> Any:
    """Return a value that JSON does not know, with its type."""
    return {type(value).__name__: str(value)}


def shown_row(row: Any) -> Any:
    """Return a row in the form of the service."""
    if isinstance(getattr(row, "error", None), ChainAPIError):
        return {"invalid": row.raw, "error": shown_error(row.error)}
    return row.to_wire() if hasattr(row, "to_wire") else row


def shown_page(page: Any) -> list[Any]:
    """Return what a page promises."""
    extra = {name: shown_row(value) for name, value in page.extra.items()}
    metric = [page.status, page.last_run] if hasattr(page, "last_run") else []
    rows = [shown_row(row) for row in page.items]
    assert list(page) == page.items
    response = [page.response.status, page.response.request_id]
    kept = [page.restarts, page.next_page_token, page.checkpoint is not None]
    return [len(page), *kept, *response, extra, metric, rows]


def shown_error(error: BaseException) -> list[Any]:
    """Return the class of an error and its public attributes."""
    return [type(error).__name__, dict(_attributes(error)), *map(shown_error, _inside(error))]


def _attributes(error: BaseException) -> Iterator[tuple[str, Any]]:
    for name in (*_ATTRIBUTES, *_MORE):
        if hasattr(error, name):
            yield name, getattr(error, name)
    if isinstance(error, ChainAPIError):
        yield "checkpoint", error.checkpoint is not None
        if isinstance(error.partial, list):
            yield "partial", [shown_row(row) for row in error.partial]


def _inside(error: BaseException) -> list[BaseException]:
    """Return the errors of a group, or the cause where it is an error of ours."""
    if isinstance(error, BaseExceptionGroup):
        return sorted(error.exceptions, key=lambda one: json.dumps(shown_error(one), default=_plain))
    return [error.__cause__] if isinstance(error.__cause__, ChainAPIError) else []

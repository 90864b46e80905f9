"""Source: one list query, as the asynchronous shell of a walk needs it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from chainapi.client.emitter import Emitter
from chainapi.core.call import SentAt
from chainapi.core.limits.limit import Limit
from chainapi.core.paging.walk import Fetch
from chainapi.models.codec import DecodedPage

if TYPE_CHECKING:
    from chainapi.core.limits.estimate import Estimate

__all__ = ["Source"]


class Source(Protocol):
    """One list query of one service."""

    @property
    def emit(self) -> Emitter:
        """Emitter of the session's events."""
        ...

    @property
    def prefetch(self) -> int:
        """Number of pages to fetch ahead."""
        ...

    @property
    def model(self) -> Any:
        """Class of the rows; None where they are plain JSON values."""
        ...

    @property
    def extra(self) -> tuple[str, ...]:
        """Names of the further fields of a page."""
        ...

    def clock(self) -> float:
        """Return the time of the running loop in seconds."""
        ...

    def now(self) -> float:
        """Return Unix time in seconds."""
        ...

    def fetch(
        self, fetch: Fetch, needed: Callable[[], bool] | None = None
    ) -> Awaitable[tuple[DecodedPage, SentAt]]:
        """Return a page, and when its request was sent; to be awaited at once.

        `needed` is called before each attempt: whether somebody still waits for the page.
        """
        ...

    def estimate(self, rows: int, limits: Sequence[Limit] | None, page_size: int | None) -> Estimate:
        """Return what fetching `rows` rows takes (see `Pages.estimate`)."""
        ...

"""Source: one list query, as the asynchronous shell of a walk needs it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from msgspec import Struct

from chainapi._paging.cursor import Cursor
from chainapi._paging.ranges import Interval, Ranged
from chainapi._paging.walk import Answer, Fetch, Walk
from chainapi.client.emitter import Emitter
from chainapi.models.codec import OnInvalid

if TYPE_CHECKING:
    from chainapi._limits.view import Estimate, Limit

__all__ = ["Numbered", "Ranges", "Source"]


class Numbered(Struct, frozen=True):
    """Number of the rows of a list, which new rows exceed: its name, and its reader.

    `descends`: a walk of the list is in descending order of it, so that its checkpoints have it.
    """

    name: str
    read: Callable[[Any], int | None]
    descends: bool


class Ranges(Protocol):
    """Ranges of one list query, each between two numbers of its rows."""

    @property
    def ranged(self) -> Ranged:
        """Range parameters of the list."""
        ...

    @property
    def within(self) -> Interval:
        """Interval of the range that the list is; open at both ends for a whole list."""
        ...

    @property
    def ends(self) -> Interval:
        """Ends of the list: those of its range, else those that the caller passed."""
        ...

    @property
    def ascending(self) -> bool:
        """Whether the caller asked for the oldest rows first."""
        ...

    @property
    def has_order(self) -> bool:
        """Whether the list has an order to choose: the oldest row can be asked for."""
        ...

    def part(self, within: Interval) -> tuple[Walk, Source]:
        """Return the walk of a range of the list, and the source of its pages."""
        ...

    async def outermost(self, *, newest: bool) -> int | None:
        """Return the number of the newest or oldest row; None where it is not known."""
        ...


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
    def on_invalid(self) -> OnInvalid:
        """Treatment of rows that do not fit their model."""
        ...

    @property
    def extra(self) -> tuple[str, ...]:
        """Names of the further fields of a page."""
        ...

    @property
    def address(self) -> str:
        """Base address of the service."""
        ...

    @property
    def cursor(self) -> Cursor | None:
        """Cursor of the list (see `Pages.cursor`)."""
        ...

    @property
    def number_names(self) -> tuple[str, ...]:
        """Names of the number that shows new rows (see `Pages.number_names`)."""
        ...

    @property
    def fingerprint(self) -> str:
        """Fingerprint of the query without its page size (see `Pages.fingerprint`)."""
        ...

    @property
    def quota_wait(self) -> float:
        """Seconds of the wait for quota (see `Pages.quota_wait`)."""
        ...

    @property
    def ranges(self) -> Ranges | None:
        """Ranges of the list; None where it has none."""
        ...

    @property
    def numbered(self) -> Numbered | None:
        """Number of the rows that a start bounds, or that grows; None without."""
        ...

    def poll(self, since: int | None) -> tuple[Walk, Source]:
        """Return a walk from the head of the list, at the lowest priority.

        A list with a start begins at the number `since`; its source then has ranges.
        """
        ...

    def times(self) -> tuple[float, float]:
        """Return the time of the running loop and Unix time, in seconds."""
        ...

    async def fetch(self, fetch: Fetch, needed: Callable[[], bool] | None = None) -> Answer:
        """Return the page, or the error in its place.

        `needed` is called before each attempt: whether somebody still waits for the page. None is returned
        once nobody does.
        """
        ...

    def seconds_left(self, requests: float) -> float:
        """Return the seconds until further requests have left (`Pages.seconds_left`)."""
        ...

    def estimate(self, rows: int, limits: Sequence[Limit] | None, page_size: int | None) -> Estimate:
        """Return what fetching `rows` rows takes (see `Pages.estimate`)."""
        ...

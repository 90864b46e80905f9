"""Protocol of a log that keeps the pages of an export until they are in files."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Protocol

from chainapi.core.paging.checkpoint import Checkpoint
from chainapi.core.paging.digests import DigestCounter
from chainapi.export.gathering import GroupEncoder
from chainapi.export.matching import Walk
from chainapi.export.source_records import Batch, SourceRecord

__all__ = ["PageLog"]


class PageLog(Protocol):
    """Log of the pages of an export.

    Every method blocks, and all calls come from one thread.

    Attributes:
        invalid: number of invalid rows committed since the log was opened.

    """

    invalid: int

    @property
    def groups(self) -> GroupEncoder | None:
        """Encoder of pages as row groups; None if all rows are stored as JSON lines."""
        ...

    def settings(self) -> dict[str, Any]:
        """Return the settings of the export; an empty dict for a new one."""
        ...

    def begin(self, settings: Mapping[str, Any]) -> None:
        """Store the settings of an export without pages, in place of those stored before."""
        ...

    def extend(self, settings: Mapping[str, Any]) -> None:
        """Replace the stored settings by ones with more columns, or another compression."""
        ...

    def has_pages(self) -> bool:
        """Return whether a page was ever committed."""
        ...

    def source(self, label: str, query: str) -> SourceRecord:
        """Return the source with this query, and its unfinished ranges.

        It is created if it is missing. Its label gets a suffix if another source has it.
        """
        ...

    def split(self, source: SourceRecord, starts: Sequence[Checkpoint]) -> None:
        """Store the ranges of a source before their first pages.

        They begin at these checkpoints.
        """
        ...

    def commit(self, batches: Sequence[Batch]) -> int:
        """Commit the rows of pages and the positions after them; count the new rows.

        A page with a value that does not fit its column is not taken, and no later page of its source:
        `SourceRecord.failure` has the error.
        """
        ...

    def given_since(
        self, walk: Walk, restarts: int, digests: Collection[bytes], whole: bool
    ) -> DigestCounter | None:
        """See `Matchers.given_since`."""
        ...

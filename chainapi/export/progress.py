"""How far an export is: counts, speed, and the time that is left."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Literal

from attrs import define, field

__all__ = ["ExportProgress", "Stage"]

Stage = Literal["fetching", "writing", "done"]


@define(eq=False)
class ExportProgress:
    """How far an export is; the same object is brought up to date while it runs.

    Attributes:
        stage: whether pages are fetched, the final file is written, or all is done.
        sources: how many sources there are; None where they are not known before they are met.
        met: how many of them were looked at.
        skipped: how many had nothing left to fetch when they were met.
        done: how many are at their end, the skipped ones among them.
        failed: how many cannot be fetched.
        pages: pages committed in this run.
        rows: rows committed in this run.
        invalid: rows committed besides that could not be made (``on_invalid="raw"``).
        clock: gives the time in seconds.

    """

    sources: int | None = None
    stage: Stage = "fetching"
    met: int = 0
    skipped: int = 0
    done: int = 0
    failed: int = 0
    pages: int = 0
    rows: int = 0
    invalid: int = 0
    _of_open: Counter[str] = field(factory=Counter[str], init=False, repr=False)  # pages, by source
    clock: Callable[[], float] = field(default=lambda: 0.0, kw_only=True, repr=False)
    _begun: float = field(init=False, repr=False)

    def __attrs_post_init__(self) -> None:
        self._begun = self.clock()

    @property
    def elapsed(self) -> float:
        """Seconds since the run began."""
        return self.clock() - self._begun

    @property
    def rows_per_second(self) -> float:
        """Rows committed a second, since the run began."""
        return self.rows / self.elapsed if self.elapsed > 0 else 0.0

    @property
    def seconds_left(self) -> float | None:
        """Seconds until all are done, if the others are like those that are; None before the first is."""
        fetched, on_the_way = self.done - self.skipped, self._of_open.total()
        if self.sources is None or fetched < 1:
            return None
        pages_a_source = (self.pages - on_the_way) / fetched
        pages_left = pages_a_source * (self.sources - self.done - self.failed) - on_the_way
        return max(pages_left, 0) * self.elapsed / self.pages

    def committed(self, label: str, *, done: bool) -> None:
        """Count a page of a source."""
        self.pages += 1
        self._of_open[label] += 1
        if done:
            self.done += 1
            del self._of_open[label]

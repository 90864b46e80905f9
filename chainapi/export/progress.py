"""Progress of an export: counts, speed, time left."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from math import ceil
from typing import Literal

from attrs import define, field

from chainapi.client.progress import progress_text

__all__ = ["ExportProgress", "Stage"]

Stage = Literal["fetching", "writing", "done"]

_COUNTS = ("met", "skipped", "done", "failed", "pages", "rows", "invalid", "closed")
_OPEN = "pages_of_open"


@define(eq=False)
class ExportProgress:
    """Progress of a run; the export updates one object while it runs.

    Attributes:
        stage: ``fetching`` pages, ``writing`` the final file, or ``done``.
        sources: number of sources; None where `over` has no length.
        met: sources that were opened or skipped so far.
        skipped: finished sources that were not asked again: their rows do not show which are new.
        closed: sources that later runs will not ask again for this reason, skipped ones included.
        done: sources whose walk has ended, skipped ones included.
        failed: sources that failed.
        pages: pages committed in this run.
        rows: valid rows committed in this run.
        invalid: invalid rows committed in this run (``on_invalid="raw"``).
        limit: greatest number of rows of each source; None for all.
        ask: returns the least seconds that a number of requests takes, by the quota; None if it is not known.
        clock: returns the time in seconds.

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
    closed: int = 0
    _pages_of_open: Counter[str] = field(factory=Counter[str], init=False, repr=False)  # by label
    limit: int | None = field(default=None, kw_only=True)
    ask: Callable[[float], float] | None = field(default=None, kw_only=True, repr=False)
    clock: Callable[[], float] = field(default=lambda: 0.0, kw_only=True, repr=False)
    _begun: float = field(init=False, repr=False)

    def __attrs_post_init__(self) -> None:
        self._begun = self.clock()

    @property
    def elapsed(self) -> float:
        """Seconds since the start of the run."""
        return self.clock() - self._begun

    @property
    def rows_per_second(self) -> float:
        """Average of committed rows a second in this run."""
        return self.rows / self.elapsed if self.elapsed > 0 else 0.0

    @property
    def seconds_left(self) -> float | None:
        """Estimated seconds until the last source is done; None if it is not known.

        The estimate gives the open sources as many pages as the finished ones had; before a source is done,
        as many rows as the limit. It is the pace so far, or what the quota allows if that takes longer.
        """
        pages = self._pages_left()
        if pages is None:
            return None
        paced = pages * self.elapsed / self.pages
        return paced if self.ask is None else max(paced, self.ask(ceil(pages)))

    def _pages_left(self) -> float | None:
        fetched, of_open = self.done - self.skipped, self._pages_of_open.total()
        if self.sources is not None and fetched > 0:
            pages_a_source = (self.pages - of_open) / fetched
            return max(0.0, pages_a_source * (self.sources - self.done - self.failed) - of_open)
        if self.expected is None or not self.rows:
            return None
        return max(0.0, (self.expected - self.rows) * self.pages / self.rows)

    @property
    def expected(self) -> int | None:
        """Greatest number of rows of this run.

        None without a limit or a number of sources.
        """
        if self.limit is None or self.sources is None:
            return None
        return self.limit * (self.sources - self.skipped)

    @property
    def share(self) -> float | None:
        """Share of the rows expected, or of the sources if that is more.

        None without a number of sources.
        """
        of_rows = self.rows / self.expected if self.expected else 0.0
        of_sources = (self.done + self.failed) / self.sources if self.sources else 0.0
        return max(of_rows, of_sources) if self.sources else None

    def text(self) -> str:
        """Return sources, rows, speed, time left and a wait for quota in one line."""
        if self.stage == "writing":
            return f"{self.rows:,} rows · writing the file"
        sources = "" if self.sources is None else f"{self.done:,} of {self.sources:,} sources · "
        wait = 0.0 if self.ask is None or self.stage == "done" else self.ask(1)
        left = None if self.stage == "done" else self.seconds_left
        return sources + progress_text(self.rows, self.expected, self.elapsed, left, wait)

    @property
    def counts(self) -> dict[str, int]:
        """All counts by name, to send them to another process; see `add_up`."""
        return {**{name: getattr(self, name) for name in _COUNTS}, _OPEN: self._pages_of_open.total()}

    def add_up(self, counts: Iterable[Mapping[str, int]]) -> None:
        """Take the sums of the counts of several processes."""
        sums = Counter[str]()
        for one in counts:
            sums.update(one)
        for name in _COUNTS:
            setattr(self, name, sums[name])
        self._pages_of_open = Counter({_OPEN: sums[_OPEN]})

    def committed(self, label: str, *, done: bool) -> None:
        """Count a page of a source."""
        self.pages += 1
        self._pages_of_open[label] += 1
        if done:
            self.done += 1
            del self._pages_of_open[label]

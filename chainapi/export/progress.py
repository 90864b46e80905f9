"""Progress of an export: counts, speed, time left."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from inspect import iscoroutinefunction
from math import ceil
from typing import Any, Literal, cast

from attrs import define, field

from chainapi._paging.progress import progress_text
from chainapi._text import quoted
from chainapi.errors import ConfigurationError

__all__ = ["ExportProgress", "Stage", "Step", "reporter_of"]

Stage = Literal["fetching", "writing", "done"]
"""``fetching`` pages, which are written meanwhile; ``writing`` what is left at the end; or ``done``."""

Step = Literal["compacting", "joining"]
"""Step of the writing at the end: the merging of small parts, or the joining of parts to one file."""

_COUNTS = ("seen", "skipped", "done", "failed", "pages", "rows", "invalid", "closed", "removed")


@define(eq=False)
class _OpenSource:
    """Pages of a source that is not done, and the shares of its walks that are."""

    walks: int
    pages: int = 0
    shares: dict[int, float] = field(factory=dict[int, float])  # by the numbers of the ranges

    @property
    def estimate(self) -> float | None:
        """Estimated pages of all walks; None if no share is known."""
        done = sum(self.shares.values())
        return self.pages * self.walks / done if done else None


@define(eq=False)
class ExportProgress:
    """Progress of a run; the export updates one object while it runs.

    Attributes:
        stage: ``fetching`` pages (a folder gets parts meanwhile), ``writing`` the last parts, or ``done``.
        sources: number of sources; None if `over` has no length.
        seen: sources that were opened, skipped or refused so far.
        skipped: finished sources that were not fetched again: their rows do not show which are new.
        closed: sources that later runs will not fetch again for this reason, skipped ones included.
        done: sources whose walk has ended, skipped ones included.
        failed: sources that failed.
        pages: pages committed in this run.
        rows: valid rows committed in this run; of those that are fetched again, the ones that the target
            lacks.
        removed: rows that left the target in this run: the list has changed or withdrawn them.
        invalid: invalid rows committed in this run (``on_invalid="raw"``).
        step: step of the writing that is under way; None otherwise.
        limit: greatest number of rows of each source; None for all.
        ask: returns the least seconds that a number of requests takes within the quota; None if that is not
            known.
        clock: returns the time in seconds.
        incremental: whether the rows of this list show a later run which are new; None before the first
            source.
        pages_of_done: pages of the sources that are done, committed in this run.

    """

    sources: int | None = None
    stage: Stage = "fetching"
    seen: int = 0
    skipped: int = 0
    done: int = 0
    failed: int = 0
    pages: int = 0
    rows: int = 0
    invalid: int = 0
    closed: int = 0
    removed: int = 0
    step: Step | None = None
    incremental: bool | None = field(default=None, init=False)
    pages_of_done: int = field(default=0, init=False)
    _open: dict[str, _OpenSource] = field(factory=dict[str, _OpenSource], init=False, repr=False)  # by label
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
        """Estimated seconds until the last row is there; None if they are not known.

        The pace is the pace so far, or what the quota allows if that takes longer.
        """
        if self.stage == "done":
            return 0.0
        total = self._total_pages
        if total is None or self.stage == "writing":
            return None
        left = total - self.pages
        paced = left * self.elapsed / self.pages
        return paced if self.ask is None else max(paced, self.ask(ceil(left)))

    @property
    def expected(self) -> int | None:
        """Number of rows of this run, from the limit or an estimate; None if not known."""
        if self._limited is not None or self._total_pages is None:
            return self._limited
        return round(self.rows * self._total_pages / self.pages)

    @property
    def share(self) -> float | None:
        """Share of the pages expected, or else of the sources; None if neither is known."""
        if self._total_pages is not None:
            return self.pages / self._total_pages
        return (self.done + self.failed) / self.sources if self.sources else None

    @property
    def _total_pages(self) -> float | None:
        """Estimated pages of this run; None if they are not known.

        An open source of a list whose rows have a number, and end at a known one, has as many pages as the
        share of the numbers says that it has passed. The others have as many as these and the finished ones
        on average; with a limit, before a source is done, as many rows as the limit.
        """
        known = [one.estimate for one in self._open.values()] if self.limit is None else []
        estimates = [one for one in known if one is not None]
        count = self.done - self.skipped + len(estimates)
        if self.sources is not None and count:
            average = (self.pages_of_done + sum(estimates)) / count
            return max(self.pages, average * (self.sources - self.skipped - self.failed))
        if self._limited is None or not self.rows:
            return None
        return max(self.pages, self._limited * self.pages / self.rows)

    @property
    def _limited(self) -> int | None:
        """Greatest number of rows of this run that the limit allows."""
        if self.limit is None or self.sources is None:
            return None
        return self.limit * (self.sources - self.skipped)

    def text(self, *, waits: bool = True) -> str:
        """Return sources, rows, speed, time left, faults and the step in one line.

        With `waits` also a wait for quota.
        """
        total = "" if self.sources is None else f" of {self.sources:,}"
        wait = self.ask(1) if waits and self.ask is not None and self.stage == "fetching" else 0.0
        expected, about = self.expected, "about " if self._limited is None else ""
        if about and expected is not None and expected <= self.rows:
            expected = None
        rows = progress_text(self.rows, expected, self.elapsed, self.seconds_left, wait, about)
        faults = {"invalid": self.invalid, "failed": self.failed}
        found = [f"{count:,} {name}" for name, count in faults.items() if count]
        step = [] if self.step is None else [self.step]
        return " · ".join([f"{self.done:,}{total} sources", rows, *found, *step])

    @property
    def record(self) -> dict[str, Any]:
        """The progress as JSON values, for machines: stage, step, counts, speed, seconds.

        ``seconds_left``, ``sources``, ``expected`` and ``incremental`` are None if they are not known,
        ``step`` between two steps.
        """
        return {
            "stage": self.stage,
            "step": self.step,
            "sources": self.sources,
            "incremental": self.incremental,
            **{name: getattr(self, name) for name in _COUNTS},
            "expected": self.expected,
            "rows_per_second": round(self.rows_per_second, 1),
            "elapsed": round(self.elapsed, 1),
            "seconds_left": None if self.seconds_left is None else round(self.seconds_left, 1),
        }

    @property
    def counts(self) -> dict[str, int]:
        """All counts by name, to send them to another process; see `add_up`."""
        return {name: getattr(self, name) for name in (*_COUNTS, "pages_of_done")}

    def add_up(self, counts: Iterable[Mapping[str, int]]) -> None:
        """Take the sums of the counts of several processes."""
        sums = Counter[str]()
        for one in counts:
            sums.update(one)
        for name in self.counts:
            setattr(self, name, sums[name])

    def opened(self, label: str, walks: int) -> None:
        """Note how many walks of a source there are: one, or one for each of its ranges."""
        self._open[label] = _OpenSource(walks)

    def walked(self, label: str, place: int, share: float | None) -> None:
        """Note the share of a walk that is done, if it is known."""
        if share is not None and label in self._open:
            self._open[label].shares[place] = share

    def source_failed(self, label: str) -> None:
        """Count a source that failed."""
        self.failed += 1
        self._open.pop(label, None)

    def committed(self, label: str, *, done: bool) -> None:
        """Count a page of a source."""
        self.pages += 1
        if label in self._open:  # another range of it may have failed
            self._open[label].pages += 1
        if done:
            self.done += 1
            self.pages_of_done += self._open.pop(label).pages


def reporter_of(given: object) -> Callable[[ExportProgress], None] | None:
    """Return the argument `progress` of an export if it is a function.

    Raises:
        ConfigurationError: it is neither a bool nor a function, or one that would have to be awaited.

    """
    if isinstance(given, bool):
        return None
    if callable(given) and not iscoroutinefunction(given):
        return cast("Callable[[ExportProgress], None]", given)
    named = "an async function, which nobody awaits" if callable(given) else quoted(given)
    raise ConfigurationError(f"progress= must be True, False or a function, not {named}")

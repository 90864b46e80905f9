"""Position of a source in an export, and the rows that a page adds to it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

from attrs import NOTHING, define, evolve, field, fields, frozen

from chainapi.core.paging.checkpoint import Checkpoint
from chainapi.core.paging.cursor import Trend
from chainapi.core.paging.position import Position as WalkPosition
from chainapi.core.paging.position import checkpoint_of
from chainapi.errors import ColumnValueError

__all__ = ["Batch", "SourcePosition"]


def _checkpoint_of(position: WalkPosition | None) -> Checkpoint | None:
    return None if position is None else checkpoint_of(position)


@define
class SourcePosition:
    """Position of a source: its walk, and the newest row that the target has.

    A source that is walked as ranges has a record for each of them too, until that range has ended.

    Attributes:
        label: name of the source, such as ``43114``; no other one has it.
        query: fingerprint of its query, whatever the page size.
        place: number of the range, from 1, in the order of the list; 0 for the source itself.
        position: position of its walk; None before the first page.
        taken: rows that were stored before the source ended for the first time; a limit counts these.
        newest: greatest number among its rows, where the route has a descending number or a cursor.
        newest_ties: marks of its rows that have the number `newest`.
        exported: greatest number among the rows that earlier walks brought into the target.
        exported_ties: marks of the target's rows that have the number `exported`.
        met_ties: those of `exported_ties` that the pass under way has met.
        trend: order of the numbers of a cursor, over all pages.
        last: number of the last row of the pass under way, by the cursor.
        oldest: least number among its rows.
        invalid: digests of the invalid rows that were written: a window may bring them again.
        window: least number of the rows that the walk fetches again: the target's rows from it on are
            replaced once the walk has ended. None if no row is fetched again.
        done: whether its walk has ended.
        limited: whether the limit ended it in this run.
        failure: error of a page with a value that no column holds; no later page of this run is stored.
        ranges: unfinished ranges of the source by their numbers; empty if it is walked as a whole.
        source: the source of a range; None for a source.

    """

    label: str
    query: str
    place: int = 0
    position: WalkPosition | None = field(default=None, eq=_checkpoint_of)
    taken: int = 0
    newest: int | None = None
    exported: int | None = None
    exported_ties: tuple[str, ...] = ()
    done: bool = False
    newest_ties: tuple[str, ...] = ()
    met_ties: tuple[str, ...] = ()
    trend: Trend = Trend.LEVEL
    last: int | None = None
    oldest: int | None = None
    invalid: tuple[str, ...] = ()
    window: int | None = field(default=None, init=False)
    limited: bool = field(default=False, init=False)
    failure: ColumnValueError | None = field(default=None, init=False)
    ranges: dict[int, SourcePosition] = field(factory=dict[int, "SourcePosition"], init=False, repr=False)
    source: SourcePosition | None = field(default=None, init=False, eq=False, repr=False)

    @property
    def checkpoint(self) -> Checkpoint | None:
        """Checkpoint of the position; it is made when it is first read."""
        self.position = checkpoint = _checkpoint_of(self.position)
        return checkpoint

    @classmethod
    def load(cls, label: str, fields: Mapping[str, Any]) -> Self:
        """Read what `dump` returned.

        Raises:
            ValueError, TypeError, LookupError: it has another form.

        """
        fields = dict(fields)
        ranges = [cls.load(label, one) for one in fields.pop("ranges", ())]
        for name in _TUPLES & fields.keys():
            fields[name] = tuple(fields[name])
        for name in _NUMBERS & fields.keys():
            fields[name] = int(fields[name])
        if "checkpoint" in fields:
            fields["position"] = Checkpoint.loads(fields.pop("checkpoint"))
        if "trend" in fields:
            fields["trend"] = Trend(fields["trend"])
        made = cls(label, **fields)
        for one in ranges:
            made.add(one)
        return made

    def dump(self) -> dict[str, Any]:
        """Return the position as JSON values; large numbers are strings.

        Fields with their default values are left out. A window that is being fetched is no part of it.
        """
        found: dict[str, Any] = {"query": self.query}
        for name in _FIELDS:
            if (value := getattr(self, name)) != _DEFAULTS[name]:
                found[name] = str(value) if name in _NUMBERS else [*value] if name in _TUPLES else value
        if self.trend is not Trend.LEVEL:
            found["trend"] = self.trend.value
        if (checkpoint := self.checkpoint) is not None:
            found["checkpoint"] = checkpoint.dumps()
        if self.ranges:
            found["ranges"] = [one.dump() for one in self.ranges.values()]
        return found

    def open_window(self, start: int) -> None:
        """Let another walk fetch the rows from the number `start` on again.

        The target counts as one without them.
        """
        self.window = self.exported = self.newest = start
        self.exported_ties = self.newest_ties = self.met_ties = ()
        self.done = False
        self.position = None

    @property
    def whole(self) -> SourcePosition:
        """The record of the source: itself, unless it is one of a range."""
        return self.source or self

    def split(self, starts: Sequence[Checkpoint]) -> Sequence[SourcePosition]:
        """Return new records of ranges that begin at these checkpoints.

        They are in the order of the list.
        """
        return [SourcePosition(self.label, self.query, place, start) for place, start in enumerate(starts, 1)]

    def add(self, part: SourcePosition) -> None:
        """Add the record of an unfinished range of this source."""
        part.source, self.ranges[part.place] = self, part

    def absorb(self, part: SourcePosition, ended: Checkpoint) -> None:
        """Take over the rows of a range that has ended.

        After its last range the source has ended too, as if its list had been walked as a whole.
        """
        self._join(part, ended)
        self.taken += part.taken
        self.trend = self.trend.joined(part.trend)
        del self.ranges[part.place]
        self.done = not self.ranges

    def _join(self, part: SourcePosition, ended: Checkpoint) -> None:
        """Keep the newest number of both, and the marks of all rows with it."""
        before = ended if self.position is None else self.position
        unordered = before.unordered or ended.unordered
        self.position = Checkpoint(ended.query, ended.path, unordered=unordered, done=True)
        if unordered:
            self.newest, self.newest_ties = None, ()
        elif part.newest is not None and (self.newest is None or part.newest > self.newest):
            self.newest, self.newest_ties = part.newest, part.newest_ties
        elif part.newest is not None and part.newest == self.newest:
            self.newest_ties += part.newest_ties
        self.exported, self.exported_ties = self.newest, self.newest_ties

    def advance(self, batch: Batch, *, met: bool = True) -> None:
        """Move the position after a page of this source.

        Args:
            batch: rows of the page that were stored.
            met: whether the pass of the page has had a row that an earlier pass stored.

        """
        self.taken += len(batch.rows) if self.exported is None else 0
        self.limited = self.limited or self._at_limit(batch, met=met)
        self.position, self.done = batch.position, batch.done or self.limited
        self._advance_newest(batch)
        if batch.oldest is not None:
            self.oldest = batch.oldest if self.oldest is None else min(self.oldest, batch.oldest)
        self.trend, self.last, self.met_ties = batch.trend, batch.last, batch.met_ties
        if self.done:
            self.met_ties = ()
            self.exported, self.exported_ties = self.newest, self.newest_ties
            if self.source is not None:
                self.source.absorb(self, checkpoint_of(batch.position))

    def _at_limit(self, batch: Batch, *, met: bool) -> bool:
        """Check whether the limit ends the source.

        It also ends the source if a later pass begins with as many rows that the source does not have: its
        own rows are too far down, or gone.
        """
        if batch.limit is None:
            return False
        return self.taken >= batch.limit or (not met and batch.seen >= batch.limit)

    def _advance_newest(self, batch: Batch) -> None:
        if batch.position.unordered:
            self.newest, self.newest_ties = None, ()
        elif batch.newest is not None and (self.newest is None or batch.newest > self.newest):
            self.newest, self.newest_ties = batch.newest, batch.ties
        elif batch.newest == self.newest:
            self.newest_ties += batch.ties


@frozen
class Batch:
    """Rows that one page adds to a source, and the position after them.

    Attributes:
        source: the source; a commit moves its position.
        rows: rows of the page that the target may lack.
        digests: digest of each row.
        encode: returns the JSON lines of valid rows, each with the label of the source in front, and those of
            invalid rows.
        position: position of the walk after the page.
        done: whether the walk has ended.
        repeats: digests of rows that the stream recognized as rows of an earlier pass.
        newest: greatest number among the rows; None for a list without such numbers.
        oldest: least number among the rows.
        ties: marks of the rows with that number.
        met_ties: those of the marks in the target that this pass has met.
        trend: order of the numbers of a cursor, over all pages.
        last: number of the last row, by the cursor.
        matched: number and mark of each row of a later pass, which the committer matches with the rows it
            has; None for other pages.
        limit: number of rows that the source may have; None for any number.
        seen: number of rows that this pass has brought so far.
        share: share of the walk that this run has done; None if it is not known.
        size: bytes of the page as the service sent it.
        indices: indices of the rows in the page; None if these are all of its rows.
        begins: whether the walk of a window began, or began again, with this page: it takes the place of the
            pages before.

    """

    source: SourcePosition
    rows: Sequence[Any]
    digests: Sequence[bytes]
    encode: Callable[[Sequence[Any]], tuple[bytes, bytes]]
    position: WalkPosition
    done: bool
    repeats: Sequence[bytes] = ()
    newest: int | None = None
    oldest: int | None = None
    ties: tuple[str, ...] = ()
    met_ties: tuple[str, ...] = ()
    trend: Trend = Trend.LEVEL
    last: int | None = None
    matched: Sequence[tuple[int | None, str]] | None = None
    limit: int | None = None
    seen: int = 0
    share: float | None = None
    size: int = 0
    indices: Sequence[int] | None = None
    begins: bool = False

    def in_page(self, error: ColumnValueError) -> ColumnValueError:
        """Return the error of one of the rows with the index of that row in its page."""
        indices = self.indices
        return error if indices is None else error.changed(row=indices[error.row or 0])

    def unmatched(self, known: Sequence[bool], *, met: bool) -> Batch:
        """Return the page of a later pass with the rows to store alone.

        With a limit, rows above the first one that an earlier pass stored are left out: they are newer
        than the list that the limit is about, and as many as fit would leave a gap below them.

        Args:
            known: whether an earlier pass stored each row of the page.
            met: whether an earlier page of this pass had a row that is known.

        """
        new = [place for place, old in enumerate(known) if not old]
        if self.limit is not None:
            first = 0 if met or not self.source.taken else (known.index(True) if any(known) else len(known))
            left = 0 if self.source.limited else max(0, self.limit - self.source.taken)
            new = [place for place in new if place >= first][:left]
        return self._only(new)

    def _only(self, places: Sequence[int]) -> Batch:
        """Return the page of a later pass with the rows at these places."""
        matched = self.matched or ()
        marked = [matched[place] for place in places]
        numbers = [number for number, _ in marked if number is not None]
        newest = max(numbers, default=None)
        return evolve(
            self,
            rows=[self.rows[place] for place in places],
            indices=places if self.indices is None else [self.indices[place] for place in places],
            digests=[self.digests[place] for place in places],
            newest=newest,
            oldest=min(numbers, default=None),
            ties=tuple(mark for number, mark in marked if number is not None and number == newest),
        )


_NUMBERS = frozenset({"newest", "exported", "last", "oldest"})  # of any size
_TUPLES = frozenset({"exported_ties", "newest_ties", "met_ties", "invalid"})
_FIELDS = ("place", "taken", "done", *sorted(_NUMBERS), *sorted(_TUPLES))
_DEFAULTS: Mapping[str, Any] = {
    one.name: one.default for one in fields(SourcePosition) if one.default is not NOTHING
}

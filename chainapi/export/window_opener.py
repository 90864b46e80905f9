"""Opening of windows: which rows of finished sources a run fetches again."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from attrs import define, field

from chainapi.errors import ExportError
from chainapi.export.journal import Journal
from chainapi.export.lookback import Lookback
from chainapi.export.manifest import files_in_place
from chainapi.export.source_records import SourceRecord
from chainapi.export.target import Target

__all__ = ["WindowOpener"]


@define(eq=False)
class WindowOpener:
    """Opener of windows: the newest rows of finished sources, to fetch again.

    Attributes:
        lookback: how far a window reaches below the newest row.
        journal: journal of the export.
        target: its target.
        limited: whether its sources have a limit.

    """

    lookback: Lookback
    journal: Journal
    target: Target
    limited: bool = field(kw_only=True)
    # Sources whose rows are not in the target yet.
    _waiting: set[int] | None = field(default=None, init=False)
    # Files with rows of the window of each source.
    _files: Mapping[str, Sequence[str]] | None = field(default=None, init=False)
    _present: set[str] = field(factory=set[str], init=False)  # files that were found

    def __call__(self, source: SourceRecord, names: tuple[str, ...]) -> None:
        """Open the window of a source, unless its rows wait for a part.

        A run that was stopped is then completed, and the next one fetches rows again. `names` are those of
        the row attributes with the number of the rows.

        Raises:
            ExportError: a part with rows of the window is missing.

        """
        if self._waiting is None:
            self._waiting = self.journal.waiting_sources()
        start = self._start(source)
        if start is None or source.window is not None or source.number in self._waiting:
            return
        self._check_files(source.label)
        source.open_window(start, names)

    def _start(self, source: SourceRecord) -> int | None:
        return self.lookback.start(source, limited=self.limited)

    def _check_files(self, label: str) -> None:
        if not self.target.folder:
            return
        if self._files is None:
            self._files = self._find_files()
        for name in self._files.get(label, ()):
            if name not in self._present and not self.target.exists(name):
                raise ExportError(
                    f"{self.target.file(name)} is missing, and has rows of {label} that lookback= fetches "
                    "again: put it back, or leave lookback= out until its rows are older than that"
                )
            self._present.add(name)

    def _find_files(self) -> Mapping[str, Sequence[str]]:
        """Return the files with rows of the window of each finished source."""
        starts = {source.label: self._start(source) for source in self.journal.finished_sources()}
        found = defaultdict[str, list[str]](list)
        for _, file in files_in_place(self.journal):
            for rows in file.sources:
                start = starts.get(rows.source)
                if start is not None and rows.reaches(start):
                    found[rows.source].append(file.name)
        return found

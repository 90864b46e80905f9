"""Opening of windows: which rows of finished sources a run fetches again."""

from __future__ import annotations

import math
from collections import defaultdict

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
    _waiting: set[int] | None = field(
        default=None, init=False
    )  # sources whose rows are not in the target yet
    _files: dict[str, list[tuple[float, str]]] | None = field(default=None, init=False)

    def __call__(self, source: SourceRecord, names: tuple[str, ...]) -> None:
        """Open the window of a source, unless its rows wait for a part.

        A run that was stopped is then completed, and the next one fetches rows again. `names` are those of
        the row attributes with the number of the rows.

        Raises:
            ExportError: a part with rows of the window is missing.

        """
        if self._waiting is None:
            self._waiting = self.journal.waiting_sources()
        start = self.lookback.start(source, limited=self.limited)
        if start is None or source.window is not None or source.number in self._waiting:
            return
        self._check_files(source.label, start)
        source.open_window(start, names)

    def _check_files(self, label: str, start: int) -> None:
        if not self.target.folder:
            return
        if self._files is None:
            self._files = self._find_files()
        for highest, name in self._files.get(label, ()):
            if highest >= start and not self.target.exists(name):
                raise ExportError(
                    f"{self.target.file(name)} is missing, and has rows of {label} that lookback= fetches "
                    "again: put it back, or leave lookback= out until its rows are older than that"
                )

    def _find_files(self) -> dict[str, list[tuple[float, str]]]:
        """Return the files of each source, with the greatest number of its rows in each."""
        found = defaultdict[str, list[tuple[float, str]]](list)
        for _, file in files_in_place(self.journal):
            for rows in file.sources:
                highest = math.inf if rows.highest is None else int(rows.highest)
                found[rows.source].append((highest, file.name))
        return found

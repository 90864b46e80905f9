"""Sinks: writers of the targets of exports.

A commit has rows of any sources, and the positions after them: a sink stores both, or neither. After a
commit has failed, `close` is the only call that follows.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from attrs import define, evolve, field, frozen

from chainapi.errors import ExportError
from chainapi.export.given import PageDigests, WalkId
from chainapi.export.log import TargetState
from chainapi.export.partition import Partitioner
from chainapi.export.progress import Step
from chainapi.export.text import EncodedRows
from chainapi.export.window import Window, Windows

__all__ = ["CommitSize", "Moves", "Sink", "check_path", "earlier_version", "not_ours"]


@frozen
class CommitSize:
    """When a commit is due, whichever comes first.

    Attributes:
        rows: number of rows since the last one.
        size: bytes of their pages.
        seconds: time since the first of them.

    """

    rows: int
    size: int
    seconds: float


@define(eq=False)
class Moves:
    """Changes that a commit stores beside rows.

    Attributes:
        positions: positions that moved, by label.
        given: digests of rows of unfinished sources.
        invalid: JSON lines of invalid rows, with the label in front.

    """

    positions: dict[str, Any] = field(factory=dict[str, Any])
    given: dict[WalkId, list[PageDigests]] = field(factory=dict[WalkId, list[PageDigests]])
    invalid: list[bytes] = field(factory=list[bytes])


class Sink(ABC):
    """Writer of a target.

    All calls but `packs` block, and come from one thread.

    Args:
        seconds: greatest number of seconds between two commits; None for the default of the class.

    Attributes:
        state: what is in force.
        size: when a commit is due.
        added: names of the files that this run has added or changed.
        ends_with: what `finish` does.

    """

    size: CommitSize
    ends_with: Step | None = None

    def __init__(self, seconds: float | None = None) -> None:
        if seconds is not None:
            self.size = evolve(self.size, seconds=seconds)
        self.state: TargetState = TargetState()
        self.added: list[str] = []
        self._form: Any = None
        self._partitioner: Partitioner | None = None
        self._settings: dict[str, Any] | None = None  # for the next commit
        self._waiting = list[EncodedRows]()  # for the next commit

    @property
    def packs(self) -> bool:
        """Whether `write` takes the values of rows (`EncodedRows.values`)."""
        return self._partitioner is None and bool(self._form.packs)

    @abstractmethod
    def open(self) -> TargetState:
        """Keep other writers away, and complete or remove what a killed run began.

        Raises:
            TargetInUseError: another export, or another program, has the target open.
            ExportError: the target has rows of others, was changed or damaged, or cannot be read.

        """

    def begin(self, form: Any, settings: Mapping[str, Any], partitioner: Partitioner | None) -> None:
        """Take the format of new rows.

        Store the settings with the next commit, if they differ.
        """
        self._form, self._partitioner = form, partitioner
        self._settings = None if settings == self.state.settings else dict(settings)

    @abstractmethod
    def given(self, walk: WalkId) -> Iterable[PageDigests]:
        """Yield the digests of the rows of a walk, in the order in which they were stored."""

    def missing(self, label: str, start: int) -> str | None:
        """Return the address of a missing file with rows of a source.

        Args:
            label: label of the source.
            start: least number of the rows.

        """
        return None

    def write(self, pages: Iterable[EncodedRows]) -> None:
        """Add rows to the next commit."""
        self._waiting += pages

    @abstractmethod
    def commit(self, moves: Moves) -> None:
        """Store the rows written and the positions after them: both, or neither.

        Raises:
            TargetInUseError: another export, or another program, has the target open.
            ExportError: the target cannot be written.

        """

    def replace(
        self, windows: Mapping[str, Window], number: Callable[[Mapping[str, Any]], int | None], moves: Moves
    ) -> tuple[int, int]:
        """Let rows that were fetched again replace rows of the target, in one commit.

        Return the numbers of rows that the target gains and loses.
        """
        compared = Windows(windows, number, self.keys)
        self.drop(compared)
        new = [*compared.new()]
        self.write(new)
        self.commit(moves)
        return sum(page.count for page in new), compared.removed

    @abstractmethod
    def drop(self, compared: Windows) -> None:
        """Compare windows with the rows of the target.

        The next commit removes the rows that leave.
        """

    def keys(self, page: EncodedRows) -> list[Any]:
        """Return what each row of a page is compared by."""
        return list(self._form.keys(page))

    def finish(self) -> None:  # noqa: B027 - most sinks do nothing
        """End a run after its last commit."""

    @abstractmethod
    def close(self) -> None:
        """Release what `open` took."""


def check_path(path: Path) -> None:
    """Refuse the file of an earlier version, and a symbolic link in place of a file.

    Raises:
        ExportError: it is one of them.

    """
    if path.with_name(f"{path.name}.export").exists():
        raise earlier_version(str(path))
    if path.is_symlink():
        raise ExportError(
            f"{path} is a symbolic link to {path.readlink()}, which an export neither follows nor replaces: "
            "name the file itself, or choose another target"
        )


def earlier_version(address: str) -> ExportError:
    """Return the error for a target of an unreleased version."""
    return ExportError(
        f"{address} was exported by an earlier version of chainapi: keep its files, and choose another target"
    )


def not_ours(address: str) -> ExportError:
    """Return the error for a file that others have written."""
    return ExportError(f"{address} exists, and no export wrote it: move it away, or choose another target")

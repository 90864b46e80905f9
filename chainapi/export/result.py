"""Results of exports, and files of their targets."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from attrs import frozen

__all__ = ["ExportResult", "TargetFile"]


@frozen
class ExportResult:
    """Result of an export.

    Attributes:
        path: the file with the rows, or the folder with such files; a string for a URL, as are `written` and
            `written_invalid`.
        rows: number of fetched rows that the target lacked.
        sources: number of sources.
        written: files that this run has added or changed; empty if there was nothing new.
        invalid: number of invalid rows, which `rows` does not count (``on_invalid="raw"``).
        written_invalid: files with the invalid rows; empty if there was no such row.
        skipped: number of finished sources that were not fetched again: their rows do not show which are new.
        closed: number of sources that later runs will not fetch again for this reason, skipped ones included.
        removed: number of rows that left the target, because the list has changed or withdrawn them
            (``lookback``); `rows` counts their new versions.

    """

    path: Path | str
    rows: int
    sources: int
    written: tuple[Path | str, ...]
    invalid: int = 0
    written_invalid: tuple[Path | str, ...] = ()
    skipped: int = 0
    closed: int = 0
    removed: int = 0


@frozen
class TargetFile:
    """File of a target, as its log has it.

    Attributes:
        path: path of the file, or its URL.
        rows: number of its rows.
        size: its bytes.
        newest: for each source the greatest of the numbers that order its list, such as a block number or a
            time in Unix seconds; None for a list without an order.

    """

    path: Path | str
    rows: int
    size: int
    newest: Mapping[str, int | None]

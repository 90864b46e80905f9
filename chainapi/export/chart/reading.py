"""Chart of exported files: two columns, and a series for each source.

One pass finds the kinds of the columns, a second one reads the points. The first pass ends as soon as the
kind of each column that matters is known.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from datetime import datetime
from decimal import Decimal
from itertools import islice
from pathlib import Path
from typing import Any, Literal, TypeAlias

from attrs import define, field

from chainapi._text import printable
from chainapi.core.numbers import is_of
from chainapi.errors import ConfigurationError
from chainapi.export.chart.files import LABELS, Files
from chainapi.export.chart.series import Chart, Series, in_calendar, scaled, visible
from chainapi.export.chart.units import unit_of

__all__ = ["read_chart"]

Kind: TypeAlias = Literal["time", "number"]

SAMPLE = 1_000  # first rows, which decide the kind of each column that has a value in them
LISTED = 5  # labels in an error message


def read_chart(
    path: Path | str, x: str | None = None, y: str | None = None, series: Collection[str] = ()
) -> Chart:
    """Return a chart of exported rows: one column over another, for each source.

    Memory does not grow with the number of rows.

    Args:
        path: a file, or a folder with the parts of an export; or the URL of one.
        x: column of the horizontal axis; by default the only column of times.
        y: column of the vertical axis; by default the only other column of numbers.
        series: labels of the sources to read; all by default.

    Raises:
        ConfigurationError: the format is unknown, the rows have no such column or source, there are no rows,
            or the default of an axis is ambiguous; the URL is invalid, or a package is missing.
        ExportError: a file at a URL cannot be read, or another program has locked a database.
        OSError: a file cannot be read.

    """
    files = Files.of(path)
    kinds = _kinds(files, (x, y) if x and y else None)
    for name in (x, y):
        if name is not None and name not in kinds:
            raise ConfigurationError(
                f"{files.path} has no column {name!r} of numbers or times; {_listed(kinds)}"
            )
    x = x or _only("time", kinds, "x", files.path)
    y = y or _only("number", kinds, "y", files.path, but=x)
    read = _series(files, x, y, frozenset(series))
    found = {label: visible(points.points) for label, points in read.items()}
    times = kinds[x] == "time" and in_calendar(found)
    return scaled(Chart(x, y, found, times, unit_of(y, found), title=files.name))


def _series(files: Files, x: str, y: str, wanted: frozenset[str]) -> dict[str, Series]:
    """Return the points of each source, or of those that are wanted.

    Raises:
        ConfigurationError: there are no points, or a wanted source has no row.

    """
    series: dict[str, Series] = defaultdict(Series)
    labels: set[str] = set()
    for row in files.rows():
        label = next((str(row[name]) for name in LABELS if name in row), "")
        labels.add(label)
        if wanted and label not in wanted:
            continue
        across, up = _number(row.get(x)), _number(row.get(y))
        if across is not None and up is not None:
            series[label].add(across, up)
    if missing := sorted(wanted - labels):
        raise ConfigurationError(f"{files.path} has no rows of {missing[0]!r}; {_some(labels)}")
    if not series:
        raise ConfigurationError(f"{files.path} has no row with a number in {x!r} and in {y!r}")
    return series


def _some(labels: Iterable[str]) -> str:
    found = sorted(labels)
    more = f" and {len(found) - LISTED:,} more" if len(found) > LISTED else ""
    return "its sources are " + ", ".join(printable(label, 40) for label in found[:LISTED]) + more


# Kinds of columns


@define
class _Column:
    """Column of the first rows; of no kind if a value is neither a number nor a time."""

    drawn: bool = True
    plain: bool = False
    values: bool = False

    def add(self, value: Any) -> None:
        """Add a value of the column."""
        self.values = True
        self.drawn = self.drawn and _number(value) is not None
        self.plain = self.plain or not (
            isinstance(value, datetime) or (isinstance(value, str) and value.endswith("Z"))
        )


@define
class _Survey:
    """Columns of the rows read so far."""

    columns: dict[str, _Column] = field(factory=lambda: defaultdict(_Column))

    def add(self, row: Mapping[str, Any], *, undecided: bool = False) -> None:
        """Add a row; if `undecided`, only its values of columns that had none so far."""
        for name, value in row.items():
            column = self.columns[name]
            if value is not None and not (undecided and column.values):
                column.add(value)

    def kinds(self) -> dict[str, Kind]:
        """Return the kind of each column that can be drawn."""
        return {
            name: "time" if name.lower().endswith("timestamp") or not column.plain else "number"
            for name, column in self.columns.items()
            if column.values and column.drawn and name not in LABELS
        }

    def ends(self, named: Collection[str] | None) -> bool:
        """Check whether each named column, or each column without names, has had a value."""
        names = self.columns if named is None else named
        return all(name in self.columns and self.columns[name].values for name in names)


def _kinds(files: Files, named: Collection[str] | None) -> dict[str, Kind]:
    """Return the kind of each column that can be drawn.

    The first rows decide; of a column without a value in them, the first value after them.

    Raises:
        ConfigurationError: there are no rows, or no column can be drawn.

    """
    survey, rows = _Survey(), files.rows()
    for row in islice(rows, SAMPLE):
        survey.add(row)
    if not survey.columns:
        raise ConfigurationError(f"{files.path} has no rows to plot")
    if not survey.ends(named):
        for row in rows:
            survey.add(row, undecided=True)
            if survey.ends(named):
                break
    if kinds := survey.kinds():
        return kinds
    raise ConfigurationError(
        f"{files.path} has no column of numbers or times: a chart needs two such columns"
    )


def _only(kind: Kind, kinds: Mapping[str, Kind], axis: str, path: str, *, but: str = "") -> str:
    names = [name for name, found in kinds.items() if found == kind and name != but]
    if len(names) == 1:
        return names[0]
    which = f"{len(names)} columns of {kind}s" if names else f"no column of {kind}s"
    raise ConfigurationError(f"{path} has {which}: choose a column for {axis}; {_listed(kinds)}")


def _listed(kinds: Mapping[str, Kind]) -> str:
    return "there are " + ", ".join(f"{name} ({kind})" for name, kind in kinds.items())


# Values

_DIGITS = re.compile(r"[-+]?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?", re.ASCII)
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")


def _number(value: Any) -> float | None:
    """Return a number, or a time in seconds, as a coordinate; None for other values."""
    if isinstance(value, datetime):
        return value.timestamp()
    if isinstance(value, str):
        if _TIME.fullmatch(value):
            return _time(value)
        value = float(value) if _DIGITS.fullmatch(value) else None
    if not is_of(value, (int, float, Decimal)):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def _time(text: str) -> float | None:
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:  # such as the 31st of February
        return None

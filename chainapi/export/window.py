"""Windows of a lookback: the newest rows of finished sources, fetched again.

A row that the target has with the same values stays. Others leave it, and those that it lacks are added.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Literal, Self, TypeAlias

import msgspec
from attrs import define, field, frozen

from chainapi._tables.columns import SOURCE, Column
from chainapi._text import quoted
from chainapi.core.numbers import is_whole, whole_of
from chainapi.errors import ConfigurationError
from chainapi.export.text import EncodedRows

__all__ = ["Lookback", "LookbackGiven", "Window", "Windows", "number_of_columns"]

Unit = Literal["seconds", "blocks"]
LookbackGiven: TypeAlias = str | int | timedelta
Row = Mapping[str, Any]

_SECONDS = {
    **dict.fromkeys(("s", "second", "seconds"), 1),
    **dict.fromkeys(("m", "min", "minute", "minutes"), 60),
    **dict.fromkeys(("h", "hour", "hours"), 3_600),
    **dict.fromkeys(("d", "day", "days"), 86_400),
    **dict.fromkeys(("w", "week", "weeks"), 604_800),
}
_TEXT = re.compile(r"\s*(\d{1,4300})\s*([a-z]*)\s*", re.ASCII)  # Python reads no more digits
_FORMS = '"1d", "6h", "30min", seconds or a timedelta for times, "100 blocks" or a number for blocks'


@define(eq=False)
class Window:
    """Rows of a source that were fetched again.

    Attributes:
        start: least number of the rows.
        known: digests of the invalid rows that were written before.
        pages: the rows, as JSON lines.
        size: bytes of them.
        invalid: JSON lines of the invalid rows that were not written before.

    """

    start: int
    known: Counter[str] = field(factory=Counter[str])
    pages: list[EncodedRows] = field(factory=list[EncodedRows])
    size: int = 0
    invalid: list[bytes] = field(factory=list[bytes])

    def add(self, page: EncodedRows) -> None:
        """Add rows after the others."""
        self.pages.append(page)
        self.size += len(page.lines)


class Windows:
    """Comparison of windows with the rows of the target, file by file.

    Args:
        windows: the windows by the labels of their sources.
        number: returns the number of a row of the target.
        keys: returns what each row of a page is compared by.

    Attributes:
        removed: number of rows that leave the target so far.

    """

    def __init__(
        self,
        windows: Mapping[str, Window],
        number: Callable[[Row], int | None],
        keys: Callable[[EncodedRows], list[Any]],
    ) -> None:
        self.windows: Mapping[str, Window] = windows
        self.removed: int = 0
        self._number, self._keys = number, keys
        self._lacking = {
            label: Counter(key for page in one.pages for key in keys(page)) for label, one in windows.items()
        }

    def dropped(self, rows: Iterable[tuple[Row, Any]], label: str | None = None) -> dict[int, str]:
        """Return the places of the rows that leave a file, with their sources.

        Args:
            rows: the rows of the file in their order, each with what it is compared by.
            label: source of all rows; None if they have a column with it.

        """
        found = dict[int, str]()
        for place, (row, key) in enumerate(rows):
            source = row[SOURCE] if label is None else label
            window = self.windows.get(source)
            if window is None or (number := self._number(row)) is None or number < window.start:
                continue
            if self._lacking[source][key] > 0:
                self._lacking[source][key] -= 1
            else:
                found[place] = source
        self.removed += len(found)
        return found

    def new(self) -> Iterator[EncodedRows]:
        """Yield the rows that the target lacks, after all of its files were compared."""
        for label, window in self.windows.items():
            lacking = self._lacking[label]
            for page in window.pages:
                places = list[int]()
                for place, key in enumerate(self._keys(page)):
                    if lacking[key] > 0:
                        lacking[key] -= 1
                        places.append(place)
                if places:
                    yield page if len(places) == page.count else page.chosen(places)


@frozen
class Lookback:
    """Distance below the newest row of a source.

    Attributes:
        size: number of seconds or blocks.
        unit: what it counts; None for a number alone, which counts as the list does.

    """

    size: int
    unit: Unit | None = None

    @classmethod
    def of(cls, given: object) -> Self:
        """Read the argument `lookback` of an export.

        Raises:
            ConfigurationError: it is no duration above 0 and no number of blocks.

        """
        if isinstance(given, timedelta):
            found = cls(math.ceil(given.total_seconds()), "seconds")
        elif is_whole(given):
            found = cls(given)
        else:
            found = cls._read(given)
        if found.size < 1:
            raise _invalid(given)
        return found

    @classmethod
    def _read(cls, given: object) -> Self:
        match = _TEXT.fullmatch(given.lower()) if isinstance(given, str) else None
        if match is None:
            raise _invalid(given)
        size, word = int(match[1]), match[2]
        if word in ("block", "blocks"):
            return cls(size, "blocks")
        if word and word not in _SECONDS:
            raise _invalid(given)
        return cls(size * _SECONDS[word], "seconds") if word else cls(size)

    def check(self, names: Sequence[str]) -> None:
        """Check that a list has a number which this distance can be subtracted from.

        Args:
            names: names of the row attributes with its number; empty for a list without.

        Raises:
            ConfigurationError: it has none, or its number counts something else.

        """
        if not names:
            raise ConfigurationError(
                "lookback= does not apply to this list: its rows have no number that shows which of them are "
                "new, so later runs do not fetch it again; leave it out, and start over for the list of today"
            )
        named, unit = " or ".join(names), _unit_of(names[0])
        if self.unit is None or self.unit == unit:
            return
        if unit is None:
            raise ConfigurationError(
                f"lookback= in {self.unit} does not fit {named}, whose unit is not known: give a number alone"
            )
        example = '"1d"' if unit == "seconds" else '"100 blocks"'
        raise ConfigurationError(
            f"lookback= in {self.unit} does not fit this list, whose rows are ordered by {named}, in {unit}: "
            f"give it in {unit}, such as {example}"
        )


def _invalid(given: object) -> ConfigurationError:
    return ConfigurationError(f"lookback={quoted(given)} must be a distance above 0: {_FORMS}")


def _unit_of(name: str) -> Unit | None:
    """Return the unit of a number, which the name of its field tells."""
    plain = name.lower().replace("_", "")
    if plain.endswith(("timestamp", "time")):
        return "seconds"
    return "blocks" if plain.endswith(("blocknumber", "height")) else None


def number_of_columns(names: Sequence[str], columns: Sequence[Column]) -> Callable[[Row], int | None]:
    """Return a reader of the number of a row of a file, in the unit of the list.

    It reads rows with the types of any format: times as datetimes or ISO 8601, records as JSON text.

    Args:
        names: names of the row attributes with the number; the first that a row has counts.
        columns: columns of the file; empty for rows without a model.

    Raises:
        ConfigurationError: a column is not among them.

    """
    paths = [tuple(name.split(".")) for name in names]
    known = {column.name for column in columns}
    if columns and (missing := next((path[0] for path in paths if path[0] not in known), None)):
        raise ConfigurationError(
            f"lookback= finds the rows of its window by the column {missing}, which the files lack: add it "
            "to fields=, in a new export"
        )

    def number(row: Row) -> int | None:
        for path in paths:
            value: Any = row
            for name in path:
                record = _JSON.decode(value) if isinstance(value, str) else value
                value = record.get(name) if isinstance(record, Mapping) else None
            if (found := whole_of(value)) is None:
                found = _seconds(value)
            if found is not None:
                return found
        return None

    return number


_JSON = msgspec.json.Decoder()


def _seconds(value: Any) -> int | None:
    """Return the Unix time of a value that is a time."""
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value)
        except ValueError:
            return None
    return int(value.timestamp()) if isinstance(value, datetime) else None

"""Rows as JSON objects of their columns.

A row is encoded once, when it is fetched. The encoded row is a line of JSON lines; the other formats decode
its values (`chainapi._tables.rows`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from decimal import Decimal
from typing import Any, Literal

import msgspec

from chainapi._tables.columns import (
    SOURCE,
    Column,
    chosen_columns,
    columns_of,
    free_name,
    has_extra,
)
from chainapi._tables.rows import by_class
from chainapi._tables.shapes import Misfit, Shape, encoded, fitting
from chainapi._tables.types import Amounts, Kind
from chainapi._text import printable, quoted
from chainapi.errors import ColumnValueError, ConfigurationError
from chainapi.models.exact_json import encode_json
from chainapi.models.invalid import Invalid
from chainapi.models.plain import is_pydantic_row, to_wire
from chainapi.models.schema import row_classes
from chainapi.models.shown import shown
from chainapi.models.unions import Unknown, tags_of, wire_name

__all__ = ["INVALID", "Codec"]

INVALID = b"!"  # before the JSON of an invalid row, which is written to a separate file


class Codec:
    """Encoder of rows as JSON objects by column name, all columns or chosen ones.

    Amounts have the form of their choice, decimals are strings. Fields that a record does not name are in the
    column ``extra``, by their own names. A row of an unknown kind of a union has values in the known columns
    if they fit, and its other fields in ``extra``.

    Attributes:
        model: model of the rows.
        columns: columns of the rows, or the columns that `fields` names, in its order, ``extra`` last; empty
            if the model has no fields.

    Raises:
        ConfigurationError: the rows lack one of the `fields`.

    """

    def __init__(
        self,
        model: Any,
        amounts: Amounts = "text",
        on_invalid: Literal["raise", "raw"] = "raise",
        fields: Sequence[str] | None = None,
    ) -> None:
        self.model = model
        columns = columns_of(model, amounts)
        extra = columns[-1].name if has_extra(model) else None
        self.columns: tuple[Column, ...] = (
            columns if fields is None else chosen_columns(columns, fields, last=extra)
        )
        self._raw = on_invalid == "raw"
        chosen = {column.name: column for column in self.columns}
        self._extra = extra if extra in chosen else None
        self._shapes = {kind: Shape(kind, chosen, row=True, extra=self._extra) for kind in row_classes(model)}
        self._known = {wire_name(one.name): one for one in columns if one.name != extra}

    def values(self, rows: Sequence[Any]) -> list[Sequence[Any]] | None:
        """Return the values of each column; None if a row is no record of the model.

        They are those that `chainapi._tables.rows.reader` returns for the encoded rows, or whole numbers in
        place of the texts of ``digits``.

        Raises:
            ColumnValueError: a value does not fit its column.

        """
        if not self._shapes.keys() >= {*map(type, rows)}:
            return None
        found, nothing = by_class(rows, self._values), [None] * len(rows)
        return [found.get(column.name, nothing) for column in self.columns]

    def _values(self, rows: Sequence[Any], places: Sequence[int]) -> Mapping[str, Sequence[Any]]:
        """Return the values of rows of one class, which have these indices among all."""
        shape = self._shapes[type(rows[0])]
        with _placed(places):
            try:
                return dict(zip(shape.names, shape.values(rows), strict=True))
            except Misfit as misfit:
                raise _fault(misfit, rows) from None

    def encode_lines(self, rows: Sequence[Any], label: str | None = None) -> bytes:
        """Return rows as JSON lines; the label is the first value.

        Rows of one class are encoded together. The line of an invalid row begins with `INVALID`, and has no
        label.

        Raises:
            ColumnValueError: a value does not fit its column; with ``on_invalid="raw"`` its row is invalid.
            ConfigurationError: a row is no row of the model.

        """
        kinds = {*map(type, rows)}
        if len(kinds) == 1:
            return self._encode_alike(kinds.pop(), rows, label)
        made = [b""] * len(rows)
        for kind in kinds:
            places = [place for place, row in enumerate(rows) if type(row) is kind]
            with _placed(places):
                lines = self._encode_alike(kind, [rows[place] for place in places], label)
            for place, line in zip(places, lines.split(b"\n"), strict=False):
                made[place] = line
        return _joined(made)

    def encode_page(self, rows: Sequence[Any], label: str | None = None) -> tuple[bytes, bytes]:
        """Return the lines of valid rows, and the lines of invalid rows without `INVALID`.

        Raises:
            ColumnValueError: as `encode_lines` raises.
            ConfigurationError: as `encode_lines` raises.

        """
        lines = self.encode_lines(rows, label)
        if not lines.startswith(INVALID) and b"\n" + INVALID not in lines:
            return lines, b""
        several = lines.split(b"\n")[:-1]
        invalid = [line.removeprefix(INVALID) for line in several if line.startswith(INVALID)]
        return _joined(line for line in several if not line.startswith(INVALID)), _joined(invalid)

    def _encode_alike(self, kind: type, rows: Sequence[Any], label: str | None) -> bytes:
        """Encode rows of one class."""
        shape = self._shapes.get(kind)
        if shape is None:
            return _joined(_labelled(self._encode_other(row), label) for row in rows)
        try:
            return shape.lines(rows, label)
        except Misfit as misfit:
            fault = _fault(misfit, rows)
        if not self._raw:
            raise fault.changed(advice=_ADVICE)
        if len(rows) == 1:
            return _invalid(fault.path, fault.reason, to_wire(rows[0])) + b"\n"
        return b"".join(self._encode_alike(kind, [row], label) for row in rows)

    def _encode_other(self, row: Any) -> bytes:
        """Encode a row that is no record of the model."""
        if isinstance(row, Invalid):
            return _invalid(row.error.path, row.error.reason, row.raw)
        if not self.columns:
            return _with_free_label(self._plain_line(row))
        if isinstance(row, Unknown) and tags_of(self.model):
            return encoded(self._of_unknown(row.raw))
        if self.model is str:
            return encoded({"value": row if isinstance(row, str) else encode_json(row).decode()})
        raise ConfigurationError(f"a row is a {type(row).__name__}, and {self.model!r} has the columns")

    def _plain_line(self, row: Any) -> bytes:
        """Encode a row without columns."""
        if self.model is None:
            return encode_json(row)
        return encoded(to_wire(row) if is_pydantic_row(type(row)) else row)

    def _of_unknown(self, raw: Mapping[str, Any]) -> dict[str, Any]:
        made: dict[str, Any] = {}
        extra = dict(raw)
        for wire, column in self._known.items():
            value = fitting(column, raw.get(wire))
            if value is not None:
                made[column.name] = value
            if value is not None or raw.get(wire) is None:
                extra.pop(wire, None)
        if self._extra is not None:
            made[self._extra] = msgspec.Raw(encode_json(extra)) if extra else None
        return {column.name: made[column.name] for column in self.columns if column.name in made}


_ADVICE = 'with on_invalid="raw", such rows go into a file of their own'


def _joined(lines: Iterable[bytes]) -> bytes:
    return b"".join([line + b"\n" for line in lines])


def _labelled(line: bytes, label: str | None) -> bytes:
    """Return the JSON of a row with its label in front; an invalid row gets none."""
    if label is None or line.startswith(INVALID):
        return line
    rest = b"}" if line == b"{}" else b"," + line[1:]
    return b'{"%b":%b%b' % (SOURCE.encode(), msgspec.json.encode(label), rest)


def _invalid(path: str, error: str, row: Any) -> bytes:
    return INVALID + encode_json({"path": path, "error": error, "row": row})


def _with_free_label(line: bytes) -> bytes:
    """Return the JSON of a row without columns as an object.

    The name ``source`` in it is free for the label.
    """
    if not line.startswith(b"{"):
        return b'{"value":%b}' % line
    if _NAMED_SOURCE not in line:
        return line
    fields = _OBJECT.decode(line)
    used = {name.lower() for name in fields}
    free = {free_name(SOURCE, used) if name == SOURCE else name: value for name, value in fields.items()}
    return msgspec.json.encode(free)


_NAMED_SOURCE = b'"%b":' % SOURCE.encode()
_OBJECT = msgspec.json.Decoder(dict[str, msgspec.Raw])

# Faults

_REASONS: Mapping[Kind, str] = {
    "integer": "a whole number that is no amount has at most 64 bits",
    "time": "a time is in the years 1 to 9999",
    "whole": 'amounts="decimal" holds 38 digits; amounts="text" holds every whole number',
    "float": 'amounts="float" holds numbers up to 1.8e308; amounts="text" holds every whole number',
    "decimal": "a decimal has at most 20 digits before its point and 18 after it",
}
_SHOWN = 200  # characters of a row in an error message


def _fault(misfit: Misfit, rows: Sequence[Any]) -> ColumnValueError:
    """Return the error of a value in one of some rows.

    The reason for a number is that it is out of the range of its column.
    """
    value, row, reason = misfit.value, rows[misfit.place], misfit.reason
    if type(value) in (int, float, Decimal):
        reason = _REASONS.get(misfit.column, reason)
    what = quoted(value) if misfit.shown else "a value that the repr of its row hides"
    text = f"{what} does not fit its column: {reason}. The row is {printable(shown(row, _SHOWN), _SHOWN)}"
    return ColumnValueError(text, path=f"${misfit.path}", row=misfit.place)


@contextmanager
def _placed(places: Sequence[int]) -> Iterator[None]:
    """Give a fault the index that its row has among all rows."""
    try:
        yield
    except ColumnValueError as fault:
        raise fault.changed(row=places[fault.row or 0]) from None

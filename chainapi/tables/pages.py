"""Pages decoded to columns, without an object of the model for each row.

The decoder takes the fast path of the model to its private Structs (`chainapi.models.structs`). If all fields
are numbers, strings and booleans, it checks all values of a field in one step; else it converts the Structs
to those of the columns (`chainapi.tables.shapes`), which checks them. A page that does not pass is decoded to
rows of the model, which names the fault: both ways accept the same bodies.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from operator import attrgetter
from types import NoneType
from typing import Any, Literal

import attrs
import msgspec
from attrs import define, evolve, frozen

from chainapi.models.codec import DecodedPage, PageDecoder
from chainapi.models.convert import row_type
from chainapi.models.envelope import Envelope, envelope_of
from chainapi.models.kinds import grouped
from chainapi.models.metrics import MetricPoint
from chainapi.models.row_type import FastPath, Finish, RowType
from chainapi.models.schema import Field, fields_of, row_classes
from chainapi.tables.columns import Column, columns_of, has_extra
from chainapi.tables.shapes import Misfit, Shape, has_code
from chainapi.tables.structs import struct_rows
from chainapi.tables.types import INT64, YEARS, Amounts
from chainapi.tables.values import Values, by_column, packed, packed_texts

__all__ = ["ColumnarDecoder", "ColumnarPage", "columnar_type"]

# Points have nothing to change, and their numbers never come as strings: their decoder is strict.
_POINT = msgspec.defstruct(
    "Point", [("timestamp", int), ("value", float)], gc=False, forbid_unknown_fields=True
)
WIDEST = 256  # rows from which on reading each field by itself is faster than whole rows


@define(eq=False, repr=False)
class ColumnarPage:
    """Page whose rows are columns; rows of the model are made when they are read.

    Attributes:
        amounts: the form of amounts.
        columns: the values of each column, in their order; without unnamed fields, because it has none.

    """

    amounts: Amounts
    columns: Sequence[Values]
    _page: DecodedPage
    _decode: Callable[[bytes], DecodedPage]
    _rows: list[Any] | None = None

    @property
    def size(self) -> int:
        """Number of rows."""
        return len(self._page.rows)

    @property
    def key_rows(self) -> list[Any]:
        """Structs of the rows, with the attributes of the model."""
        return self._page.rows

    @property
    def rows(self) -> list[Any]:
        """Rows of the model."""
        if self._rows is None:
            self._rows = self._decode(self.body).rows
        return self._rows

    @property
    def next_page_token(self) -> str | None:
        """Token to the next page; None on the last one."""
        return self._page.next_page_token

    @property
    def extra(self) -> tuple[Any, ...]:
        """Values of further fields that the route names."""
        return self._page.extra

    @property
    def body(self) -> bytes:
        """Body as the service sent it."""
        return self._page.body

    @property
    def digest(self) -> int:
        """Hash of the rows (see `DecodedPage.digest`)."""
        return self._page.digest

    @property
    def content(self) -> DecodedPage:
        """Content of the rows (see `DecodedPage.content`)."""
        return self._page.content

    def canonical_rows(self) -> Sequence[bytes]:
        """Return the canonical JSON of each row (see `DecodedPage.canonical_rows`)."""
        return self._page.canonical_rows()

    def keep(self, indices: Sequence[int]) -> DecodedPage:
        """Return some of the rows as a page of rows of the model: few pages are cut."""
        return self._decode(self.body).keep(indices)


@frozen(eq=False, repr=False)
class _Checked:
    """Structs of a page, and their columns."""

    structs: list[Any]
    columns: Sequence[Values]


class ColumnarDecoder(PageDecoder):
    """Decoder of a route's pages: to columns if it can, else to rows of the model.

    Its other arguments are those of `PageDecoder`. `amounts` is the form of amounts.

    Raises:
        ConfigurationError: as `PageDecoder` raises.

    """

    def __init__(
        self, model: Any, items: str | None = None, *args: Any, amounts: Amounts = "text", **options: Any
    ) -> None:
        self._amounts: Amounts = amounts
        self._columnar = columnar_type(model, amounts)
        super().__init__(model, items, *args, **options)
        self._plain = PageDecoder(model, items, *args, **options)

    def _page(self, page: Any, body: bytes) -> Any:
        """Return a page of columns of a decoded body, or of rows."""
        page = super()._page(page, body)
        checked: Any = page.rows
        if not isinstance(checked, _Checked):
            return page
        decoded = DecodedPage(checked.structs, page.next_page_token, page.extra, body, page.items)
        return ColumnarPage(self._amounts, checked.columns, decoded, self._plain.decode)

    def _envelope_of(self, items: str) -> Envelope:
        rows = self._rows.strict if self._columnar is None else self._columnar
        return envelope_of(items, rows, self._further)


@lru_cache(maxsize=256)
def columnar_type(model: Any, amounts: Amounts) -> RowType | None:
    """Return the row type whose fast path ends at columns, or None.

    A model has one if making an object checks no more than its types. Rows without a model have none.
    """
    checks = _checks(model) if columns_of(model, amounts) == columns_of(model) else None
    return _of_structs(model, amounts) if checks is None else _of_checks(model, checks)


def _of_checks(model: Any, checks: Mapping[str, Check]) -> RowType | None:
    """Return the row type whose columns are those of private Structs."""
    rows = row_type(model, strict=True)
    if model is MetricPoint:
        return evolve(rows, fast=FastPath(_POINT, _finish(checks, _columns_of_points), lax=False))
    if rows.fast is None:
        return None
    finish = _finish(checks, partial(_columns, tuple(checks)))
    return evolve(rows, fast=evolve(rows.fast, finish=finish))


def _of_structs(model: Any, amounts: Amounts) -> RowType | None:
    """Return the row type whose columns are those of Structs with their names."""
    columns = columns_of(model, amounts)
    extra = columns[-1].name if has_extra(model) else None
    named = {column.name: column for column in columns if column.name != extra}
    try:
        shapes = {
            kind: Shape(kind, named, row=True, extra=extra, exact=True, as_json=True)
            for kind in row_classes(model)
        }
    except TypeError:
        return None
    rows = struct_rows(model, lambda kind: shapes[kind].maker) if shapes else None
    if rows is None or rows.fast is None:
        return None
    of = {shape.struct: shape for shape in shapes.values()}
    finish = partial(_shaped, rows.fast.finish, lambda kind, structs: _changed(of[kind], structs), named)
    return evolve(rows, fast=evolve(rows.fast, finish=finish))


def _shaped(
    of: Finish, change: Callable[[Any, list[Any]], list[Any]], named: Mapping[str, Column], rows: list[Any]
) -> Any:
    """Return Structs with the attributes of a model, and their columns."""
    structs = of(rows)
    columns = by_column(named, grouped(structs, map(type, structs), change))
    pairs = zip(named.values(), columns, strict=True)
    return _Checked(structs, [packed(column.kind, values) for column, values in pairs])


def _changed(shape: Shape, structs: list[Any]) -> list[Any]:
    try:
        return shape.change(structs)
    except Misfit:
        raise msgspec.ValidationError("a value does not fit its column") from None


def _finish(checks: Mapping[str, Check], read: Callable[[list[Any]], Sequence[Sequence[Any]]]) -> Finish:
    """Return the function that reads and checks the columns of Structs."""
    forms = tuple(check.form for check in checks.values())
    others = tuple(check.other for check in checks.values())

    def finish(structs: list[Any]) -> Any:
        made = list[Values]()
        for values, pack, other in zip(read(structs), _packers(forms, len(structs)), others, strict=True):
            try:
                made.append(other(values) if pack is None else pack(*values))
            except struct.error:
                made.append(other(values))
        return _Checked(structs, made)

    return finish


def _columns_of_points(points: list[Any]) -> Sequence[Sequence[Any]]:
    # Pages of points are long, and this is twice as fast as an attrgetter.
    return [point.timestamp for point in points], [point.value for point in points]


def _columns(names: Sequence[str], structs: list[Any]) -> Sequence[Sequence[Any]]:
    if not structs or len(names) == 1 or len(structs) > WIDEST:
        return [list(map(attrgetter(name), structs)) for name in names]
    return list(zip(*map(attrgetter(*names), structs), strict=True))


# Checks of the values of a field. They raise the error that sends a page to rows of the model.


@frozen
class Check:
    """Check of the values of a field.

    Attributes:
        form: format of a value for `struct`, which refuses values that do not fit; None for values that are
            not packed.
        other: check of values that cannot be packed.

    """

    form: Literal["q", "I", "d"] | None
    other: Callable[[Sequence[Any]], Values]


@lru_cache(maxsize=64)
def _packers(forms: Sequence[str | None], count: int) -> Sequence[Callable[..., bytes] | None]:
    """Return the function that packs the values of each field."""
    return [None if form is None else struct.Struct(f"{count}{form}").pack for form in forms]


def _checks(model: Any) -> Mapping[str, Check] | None:
    """Return the check of each field; None if an object has to be made for it."""
    if not isinstance(model, type) or has_code(model):
        return None
    found = {field.name: _check(field) for field in fields_of(model)}
    checks = {name: check for name, check in found.items() if check is not None}
    return checks if checks and len(checks) == len(found) else None


def _check(field: Field) -> Check | None:
    kind = field.type
    if any(isinstance(note, msgspec.Meta) for note in kind.notes):
        return None
    if isinstance(field.default, attrs.Factory):  # type: ignore[arg-type]  # may make a value of another type
        return None
    nothing = {NoneType} if kind.optional else set[type]()
    match kind.kind:
        case "integer" if field.timestamp:
            return Check("I", partial(_whole, YEARS))  # up to the year 2106
        case "integer":
            return Check("q", _digits if field.amount else partial(_whole, INT64))
        case "float":
            return Check("d", partial(_floats, {float, int} | nothing))
        case "boolean":
            return Check(None, partial(_of, {bool} | nothing))
        case "text":
            return Check(None, packed_texts)
        case "literal" if {*map(type, kind.choices)} == {str}:
            return Check(None, partial(_chosen, {*kind.choices, None} if kind.optional else {*kind.choices}))
    return None


def _of(kinds: set[type], values: Sequence[Any]) -> Sequence[Any]:
    if not kinds.issuperset(map(type, values)):
        raise msgspec.ValidationError("a value has another type")
    return values


def _chosen(choices: set[str | None], values: Sequence[Any]) -> Values:
    if not choices.issuperset(values):
        raise msgspec.ValidationError("a value is not in the list")
    return packed_texts(values)


# There is None, a number beyond 64 bits, or a fraction among the values.


def _digits(values: Sequence[Any]) -> Values:
    return [None if value is None else str(value) for value in _of({int, NoneType}, values)]


def _whole(limits: tuple[int, int], values: Sequence[Any]) -> Values:
    if values.count(None) == len(values):
        return values
    given = [value for value in _of({int, NoneType}, values) if value is not None]
    if not limits[0] <= min(given) <= max(given) <= limits[1]:
        raise msgspec.ValidationError("a number is out of range")
    return values


def _floats(kinds: set[type], values: Sequence[Any]) -> Values:
    given = [value for value in _of(kinds, values) if value is not None]
    made = _doubles(given)
    if len(given) == len(values):
        return made
    floats = iter(memoryview(made).cast("d").tolist())
    return [None if value is None else next(floats) for value in values]


def _doubles(values: Sequence[Any]) -> bytes:
    try:
        return struct.pack(f"{len(values)}d", *values)
    except struct.error:
        raise msgspec.ValidationError("a number is out of range") from None

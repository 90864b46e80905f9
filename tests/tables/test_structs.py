"""Pages decoded to Structs: the same lines, keys and faults as through rows of the model."""

from __future__ import annotations

import json
from typing import Any

import pytest
from attrs import Factory, field, frozen, make_class
from hypothesis import given
from hypothesis import strategies as st

from chainapi import Checkpoint
from chainapi.api.catalogue import ROUTES
from chainapi.api.identity import cursor_of, deduplicator
from chainapi.errors import ColumnValueError, DecodeError
from chainapi.models import EvmBlock, MetricPoint, Unknown
from chainapi.models.codec import PageDecoder
from chainapi.models.schema import row_classes
from chainapi.models.unions import register_union
from chainapi.tables.codec import Codec
from chainapi.tables.pages import columnar_type
from chainapi.tables.structs import StructDecoder
from chainapi.tables.types import AMOUNTS, Amounts
from tests.documents import Maker
from tests.models.test_kinds import UNIONS, body_of, mixed_rows
from tests.tables.test_pages import Reading, rows_of

LISTS = [name for name, endpoint in ROUTES.items() if not endpoint.single]
# Rows without a model are texts.
TEXTS = {
    "data.webhooks.addresses",
    "metrics.looking_glass.composite_query",
    "metrics.looking_glass.composite_query_v1",
}


def decoders(model: Any, codec: Codec, items: str, *more: Any) -> tuple[StructDecoder, PageDecoder]:
    """Return the decoder to Structs, and the one to rows."""
    assert codec.structs is not None
    return StructDecoder(codec.structs, model, items, *more), PageDecoder(model, items, *more)


@pytest.mark.parametrize("name", LISTS)
def test_lists_whose_pages_become_structs(name: str) -> None:
    """Rows of lists with a model are encoded without an object of it, with the same keys and marks."""
    endpoint = ROUTES[name]
    route, model = endpoint.route, endpoint.rows
    codec = Codec(model)
    assert (codec.structs is None) == (name in TEXTS)
    if codec.structs is None:
        return
    items = route.items or "rows"
    body = json.dumps({items: [Maker(seed, whole=seed % 2 > 0).value(model) for seed in range(6)]}).encode()
    to_structs, to_rows = decoders(model, codec, items, route.extra)
    pages = [to_structs.decode(body), to_rows.decode(body)]
    assert {type(row) for row in pages[0].rows}.isdisjoint(type(row) for row in pages[1].rows)
    read = []
    for page in pages:
        dedupe = deduplicator(route, Checkpoint("q"), endpoint.identity)
        dedupe.start_counting()
        compared = dedupe.add(page)
        cursor = cursor_of(route)
        numbers = None if cursor is None else [cursor.number(row) for row in page.rows]
        marks = [dedupe.marks(index) for index in range(6)]
        facts = compared.repeated, compared.stale, compared.fresh, compared.signature, compared.refuted
        before, lines = [*dedupe.digests(range(6))], codec.encode_page(page.rows, "43114")
        after = [*dedupe.digests(range(6))], [*dedupe.numbers()], marks
        read.append((facts, numbers, before, lines, after))
    assert read[0] == read[1]


@frozen
class Flat:
    """A class of numbers and strings, which msgspec decodes in one step."""

    whole: int
    total_fees: int | None
    real: float
    may_real: float | None
    text: str | None
    given: int | None = 5
    note: str = "none"


@given(st.data())
def test_structs_give_the_lines_of_rows(data: st.DataObject) -> None:
    """A body gives the same lines, or the same fault, whichever way its rows take.

    Odd values, columns that are left out and all forms of amounts are among them.
    """
    model = data.draw(st.sampled_from([EvmBlock, MetricPoint, Reading, Flat]))
    amounts: Amounts = data.draw(st.sampled_from(AMOUNTS))
    names = [column.name for column in Codec(model).columns]
    fields = data.draw(st.none() | st.lists(st.sampled_from(names), unique=True, min_size=1))
    codec = Codec(model, amounts, data.draw(st.sampled_from(["raise", "raw"])), fields)
    body = f'{{"rows":[{",".join(data.draw(st.lists(rows_of(model), max_size=4)))}]}}'.encode()
    label = data.draw(st.none() | st.sampled_from(["43114", 'a"\n']))
    assert lines(codec, body, label, exact=False) == lines(codec, body, label, exact=True)


def lines(codec: Codec, body: bytes, label: str | None, *, exact: bool) -> Any:
    """Return the lines of a page, or its fault."""
    try:
        page = decoders(codec.model, codec, "rows")[exact].decode(body)
        return codec.encode_page(page.rows, label)
    except (DecodeError, ColumnValueError) as error:
        return type(error), str(error), error.path, error.row


@given(st.sampled_from([name for name in LISTS if name not in TEXTS]), st.data())
def test_structs_of_nested_rows_give_the_lines_of_rows(name: str, data: st.DataObject) -> None:
    """Rows with records and lists in them give the same lines both ways, with odd values too."""
    model = ROUTES[name].rows
    codec = Codec(model, data.draw(st.sampled_from(AMOUNTS)))
    rows = [Maker(data.draw(st.integers(0, 50)), whole=data.draw(st.booleans())).value(model) for _ in "ab"]
    target = rows[0]
    while isinstance(target, dict) and target:
        key = data.draw(st.sampled_from([*target]))
        inner = [value for value in [target[key]] if isinstance(value, dict) and data.draw(st.booleans())]
        if not inner:
            target[key] = data.draw(
                st.sampled_from([target[key], None, "null", 1.5, 2**65, "x", True, {}, []])
            )
            break
        (target,) = inner
    body = json.dumps({"rows": rows}).encode()
    assert lines(codec, body, "1", exact=False) == lines(codec, body, "1", exact=True)


@given(st.sampled_from(UNIONS), st.data())
def test_structs_of_several_kinds_give_the_lines_of_rows(model: Any, data: st.DataObject) -> None:
    """Rows of several kinds on one page give the same lines both ways, foreign and odd fields included."""
    codec = Codec(model, data.draw(st.sampled_from(AMOUNTS)), data.draw(st.sampled_from(["raise", "raw"])))
    body = body_of(data.draw(mixed_rows(model)))
    assert lines(codec, body, "1", exact=False) == lines(codec, body, "1", exact=True)


class Count(int):
    """A whole number of a user's, which the encoder takes for a foreign value."""


@pytest.mark.parametrize(
    ("kind", "default"),
    [
        (float, 0),
        (float, Factory(lambda: 3)),
        (int, 2**70),
        (int, Count(4)),
        (int, Factory(lambda: "four")),
        (str, Factory(lambda: None)),
    ],
)
@pytest.mark.parametrize("on_invalid", ["raise", "raw"])
def test_defaults_are_checked_like_values(kind: Any, default: Any, on_invalid: Any) -> None:
    """A default of another type, or beyond its column, gives the lines or the fault of rows."""
    fields = {"plain": field(type=int), "given": field(type=kind, default=default)}
    codec = Codec(make_class("Given", fields, frozen=True), on_invalid=on_invalid)
    body = b'{"rows":[{"plain":"1"}, {"plain":2}]}'
    assert lines(codec, body, "1", exact=False) == lines(codec, body, "1", exact=True)


def positive(_: Any, __: Any, value: int) -> None:
    """Refuse a negative number."""
    if value < 0:
        raise ValueError("negative")


@frozen
class Checked:
    number: int = field(validator=positive)


def test_models_with_code_become_rows() -> None:
    """A model whose validators run when an object is made has no Structs."""
    assert Codec(Checked).structs is None
    assert Codec(None).structs is None


@frozen
class Plain:
    plain: int


@frozen
class Converted:
    converted: int = field(converter=int)


EITHER: Any = Plain | Converted | Unknown
register_union(EITHER, {"plain": Plain, "converted": Converted})


def test_kinds_that_only_cattrs_makes_become_rows() -> None:
    """Rows of several kinds have no Structs if one kind has none."""
    assert Codec(EITHER).structs is None
    assert columnar_type(EITHER, "text") is None


def test_pages_with_a_row_of_an_unknown_kind_become_rows() -> None:
    """A row of an unknown kind sends its page to rows of the model, with the same lines."""
    model = ROUTES["data.evm.transfers"].rows
    rows = [Maker(1, whole=True).value(model), {"futureToken": {}}]
    to_structs, _ = decoders(model, codec := Codec(model), "rows")
    page = to_structs.decode(body_of(rows))
    assert isinstance(page.rows[1], Unknown)
    assert isinstance(page.rows[0], row_classes(model))
    assert lines(codec, body_of(rows), "1", exact=False) == lines(codec, body_of(rows), "1", exact=True)

"""Pages decoded to columns: the same rows and tables as through objects of the model."""

from __future__ import annotations

import json
from contextlib import suppress
from itertools import chain, permutations
from typing import Any, Literal

import pytest
from attrs import Factory, field, frozen, make_class
from hypothesis import given, settings
from hypothesis import strategies as st

from chainapi import Checkpoint
from chainapi.api.catalogue import ROUTES
from chainapi.api.identity import deduplicator, identity_of
from chainapi.errors import DecodeError
from chainapi.models import EvmBlock, MetricPoint
from chainapi.models.codec import PageDecoder
from chainapi.models.schema import fields_of
from chainapi.tables.build import builder_of
from chainapi.tables.pages import ColumnarDecoder, ColumnarPage, columnar_type
from chainapi.tables.types import AMOUNTS, Amounts
from tests.documents import Maker
from tests.models.test_kinds import UNIONS, body_of, mixed_rows

LISTS = [name for name, endpoint in ROUTES.items() if not endpoint.single]


@frozen
class Reading:
    """Class of a user, with a field of each type that has columns."""

    number: int
    name: str
    share: float
    sure: bool
    unit: Literal["a", "b"]
    gas_price: int
    count: int | None = None
    note: str | None = None
    rate: float | None = None
    seen: bool | None = None
    kind: Literal["x"] | None = None


# Values as JSON: what services send, and what they should not.
ODD = (
    *("null", "true", "1.0", "1e3", "1.5", "-0", "0", "{}", "[]", "1e400", "253402300800"),
    *('"1"', '"007"', '"-5"', '"1.0"', '"+1"', '" 1"', '"x"', '""', '"null"', '"NULL"'),
    *('"é"', '"\\u00e9\\n"', '"\\ud83d\\ude00"', '"\\ud800"'),
    *map(str, (2**63, 2**64, 10**77, -(2**63) - 1)),
    *(f'"{number}"' for number in (2**63, 10**77)),
)
PLAIN: dict[str, st.SearchStrategy[str]] = {
    "integer": st.integers(0, 2**40).map(str) | st.integers(-5, 10**20).map('"{}"'.format),
    "float": st.floats(allow_nan=False, allow_infinity=False).map(json.dumps) | st.integers(0, 9).map(str),
    "boolean": st.sampled_from(["true", "false"]),
    "text": st.text(max_size=5).map(json.dumps),
}


def value_of(kind: Any) -> st.SearchStrategy[str]:
    """Return a strategy of JSON values for a field, odd ones among them."""
    plain = st.sampled_from([json.dumps(one) for one in kind.choices]) if kind.choices else PLAIN[kind.kind]
    return st.one_of([plain] * 30 + [st.sampled_from(ODD)])


@st.composite
def rows_of(draw: st.DrawFn, model: type) -> str:
    """Draw a row as JSON: fields may be missing, come twice, or have no name in the model."""
    pairs = []
    for one in fields_of(model):
        times = draw(st.sampled_from([1] * 40 + [0, 2] + [0, 0, 0] * (not one.required)))
        pairs += [f'"{one.wire}":{draw(value_of(one.type))}' for _ in range(times)]
    if draw(st.integers(0, 30)) == 0:
        name = draw(st.sampled_from(["further", "source", "extra", "_label", "_unnamed"]))
        pairs.append(f'"{name}":{draw(st.sampled_from(ODD))}')
    return "{" + ",".join(pairs) + "}"


def read(decoder: PageDecoder, body: bytes, model: Any, amounts: Amounts) -> Any:
    """Return table, rows, keys and numbers of a page; or its fault."""
    builder = builder_of(model, amounts, [], lenient=False)
    try:
        page = decoder.decode(body)
        builder.add(page, range(len(page.key_rows)))
    except DecodeError as fault:
        return type(fault), fault.path, fault.reason
    return builder.table(), list(page.rows)


def check(body: bytes, model: Any, items: str, extra: Any = (), amounts: Amounts = "text") -> bool:
    """Check that both ways agree on a body; return whether it was decoded to columns."""
    columnar, exact = ColumnarDecoder(model, items, extra, amounts=amounts), PageDecoder(model, items, extra)
    one, other = (read(decoder, body, model, amounts) for decoder in (columnar, exact))
    assert one == other
    try:
        return isinstance(columnar.decode(body), ColumnarPage)
    except DecodeError:
        return False


@settings(max_examples=60)
@pytest.mark.parametrize("model", [EvmBlock, MetricPoint, Reading])
@given(data=st.data())
def test_columns_are_those_of_the_rows(model: type, data: st.DataObject) -> None:
    """A body gives the same table, rows or fault through columns as through rows of the model."""
    rows = data.draw(st.lists(rows_of(model), max_size=4))
    check(('{"rows":[' + ",".join(rows) + "]}").encode("utf-8", "surrogatepass"), model, "rows")


@settings(max_examples=60)
@pytest.mark.parametrize("model", [EvmBlock, MetricPoint, Reading])
@given(data=st.data())
def test_pages_of_one_table(model: type, data: st.DataObject) -> None:
    """Pages whose values are packed or not, as null and large numbers let them be, become one table."""
    tables = []
    bodies = [
        ('{"rows":[' + ",".join(rows) + "]}").encode("utf-8", "surrogatepass")
        for rows in data.draw(st.lists(st.lists(rows_of(model), max_size=2), min_size=2, max_size=6))
    ]
    for decoder in (ColumnarDecoder(model, "rows"), PageDecoder(model, "rows")):
        builder = builder_of(model, "text", [], lenient=False)
        for body in bodies:
            with suppress(DecodeError):
                page: Any = decoder.decode(body)
                builder.add(page, range(len(page.key_rows)))
        tables.append(builder.table())
    tables[0].validate(full=True)
    assert tables[0] == tables[1]


def test_texts_of_one_table() -> None:
    """Texts keep their bytes next to null and to texts of other languages, in each order of the pages."""
    names: tuple[list[str | None], ...] = (["a", "bc"], ["é", "日本", ""], [None], ["x", None, "ü"], [])
    row = {"number": 1, "share": 1.5, "sure": True, "unit": "a", "gasPrice": 1, "name": "n"}
    decoder = ColumnarDecoder(Reading, "rows")
    for order in permutations(names):
        builder = builder_of(Reading, "text", [], lenient=False)
        for given_names in order:
            page = decoder.decode(
                json.dumps({"rows": [{**row, "note": name} for name in given_names]}).encode()
            )
            assert isinstance(page, ColumnarPage)
            builder.add(page, range(page.size))
        assert builder.table().column("note").to_pylist() == [*chain.from_iterable(order)]


@pytest.mark.parametrize("model", [EvmBlock, MetricPoint, Reading])
def test_each_odd_value_of_each_field(model: type) -> None:
    """Each odd value of each field gives the same through columns as through rows of the model."""
    plain = {"integer": "1", "float": "1.5", "boolean": "true", "text": '"x"'}
    row = {
        one.wire: json.dumps(one.type.choices[0]) if one.type.choices else plain[one.type.kind]
        for one in fields_of(model)
    }
    for name in row:
        for odd in ODD:
            values = ",".join(f'"{wire}":{value}' for wire, value in {**row, name: odd}.items())
            check(f'{{"rows":[{{{values}}}]}}'.encode("utf-8", "surrogatepass"), model, "rows")


@pytest.mark.parametrize("name", LISTS)
def test_pages_of_every_list(name: str) -> None:
    """Pages of each list give the same table through columns as through rows, for each form of amounts."""
    endpoint = ROUTES[name]
    route = endpoint.route
    for seed in range(4):
        page = Maker(seed, whole=seed == 0).page(endpoint, rows=seed * 3)
        amounts = AMOUNTS[seed]
        check(json.dumps(page).encode(), route.model, route.items or "chains", route.extra, amounts)


@pytest.mark.parametrize("amounts", AMOUNTS)
def test_nested_pages_are_columns(amounts: Amounts) -> None:
    """Pages with records and lists in their rows become columns too, in each form of amounts."""
    endpoint = ROUTES["data.evm.erc20_transactions"]
    route = endpoint.route
    for rows in (0, 1, 3, 300):
        page = Maker(1, whole=True).page(endpoint, rows=rows)
        for row in page[route.items or ""]:
            row["value"] = "115792089237316195423570985008687907853"  # 39 digits: no decimal holds them
        is_columns = check(json.dumps(page).encode(), route.model, route.items or "", (), amounts)
        assert is_columns is (rows == 0 or amounts != "decimal")


def test_lists_with_a_model_are_columns() -> None:
    """Lists become columns, except those without a model, whose rows are texts."""
    others = {name for name in LISTS if columnar_type(ROUTES[name].route.model, "text") is None}
    assert others == {name for name in LISTS if ROUTES[name].route.model is None}
    assert (len(LISTS), len(others)) == (62, 3)


@given(st.sampled_from(UNIONS), st.data())
def test_columns_of_several_kinds(model: Any, data: st.DataObject) -> None:
    """Rows of several kinds give the same table or fault both ways, foreign and odd fields included."""
    amounts: Amounts = data.draw(st.sampled_from(AMOUNTS))
    check(body_of(data.draw(mixed_rows(model))), model, "rows", (), amounts)


@frozen
class Loose:
    """Class of a user with JSON of any type."""

    value: Any
    values: list[Any] | None = None
    names: dict[str, Any] | None = None


@given(st.lists(st.sampled_from([odd for odd in ODD if "ud800" not in odd]), min_size=1, max_size=4))
def test_columns_of_any_json(values: list[str]) -> None:
    """JSON of any type has the same text in a column both ways, with all digits of its numbers."""
    rows = [f'{{"value":{one},"values":[{one},null],"names":{{"n":{one}}}}}' for one in values]
    assert check(f'{{"rows":[{",".join(rows)}]}}'.encode(), Loose, "rows")


@pytest.mark.parametrize("name", ["data.evm.blocks", "metrics.avg_tps", "metrics.chains.metric"])
def test_ordinary_pages_are_columns(name: str) -> None:
    """Pages of blocks and of points become columns, and no object of the model is made."""
    endpoint = ROUTES[name]
    route = endpoint.route
    row: dict[str, Any] = {"timestamp": 1_700_000_000, "value": 1}
    if name == "data.evm.blocks":
        row = {one.wire: "0x1" if one.type.kind == "text" else "1" for one in fields_of(EvmBlock)}
    body = json.dumps({route.items or "rows": [row] * 300}).encode()
    assert check(body, route.model, route.items or "rows", route.extra)


@pytest.mark.parametrize("name", LISTS)
def test_keys_and_numbers_of_light_rows(name: str) -> None:
    """The walk reads the same keys and numbers of Structs as of rows of the model."""
    endpoint = ROUTES[name]
    route = endpoint.route
    body = json.dumps(Maker(3, whole=True).page(endpoint, rows=5)).encode()
    seen = []
    for kind in (ColumnarDecoder, PageDecoder):
        page = kind(route.model, route.items or "chains", route.extra).decode(body)
        dedupe = deduplicator(route, Checkpoint("query", "path"), identity_of(route, declared=True))
        dedupe.start_counting()
        compared = dedupe.add(page)
        rows = zip(map(dedupe.number, range(5)), dedupe.digests(range(5)), strict=True)
        seen.append([compared.repeated, compared.stale, compared.refuted, *rows])
    assert seen[0] == seen[1]


@frozen
class Validated:
    """Class of a user with a validator, which runs when an object is made."""

    number: int = field(validator=lambda _, __, value: None if value < 5 else exec("raise ValueError('5')"))


def test_validators_run() -> None:
    """Rows of a class with a validator are made, so that it runs."""
    assert not check(b'{"rows":[{"number":1}]}', Validated, "rows")
    assert not check(b'{"rows":[{"number":9}]}', Validated, "rows")


@pytest.mark.parametrize("kind", [int, float, str, bool])
def test_defaults_of_another_type_are_refused(kind: type) -> None:
    """A default that a function makes is checked like a value, as in rows."""
    fields = {"plain": field(type=int), "given": field(type=kind, default=Factory(lambda: None))}
    model = make_class("Given", fields, frozen=True)
    assert check(b'{"rows":[{"plain":1,"given":%b}]}' % VALUES[kind], model, "rows")
    assert not check(b'{"rows":[{"plain":1}]}', model, "rows")


VALUES = {int: b"1", float: b"1.5", str: b'"a"', bool: b"true"}


def test_rows_are_made_when_they_are_read() -> None:
    """A page of columns makes the rows of the model once, as the service sent them."""
    page: Any = ColumnarDecoder(MetricPoint, "rows").decode(
        b'{"rows":[{"timestamp":1,"value":2}],"nextPageToken":"t"}'
    )
    assert isinstance(page, ColumnarPage)
    assert page.rows == [MetricPoint(1, 2.0)]
    assert page.rows is page.rows
    assert (page.next_page_token, [*page.canonical_rows()]) == ("t", [b'{"timestamp":1,"value":2}'])

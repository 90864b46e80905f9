"""Rows as JSON objects of their columns: forms of amounts, unnamed fields, values that do not fit."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import attrs
import pytest
from attrs import frozen
from hypothesis import given
from hypothesis import strategies as st

from chainapi import models
from chainapi.errors import ColumnValueError, ConfigurationError, DecodeError
from chainapi.models import AddressTransaction, EvmBlock, Invalid, MetricPoint, Money, NativeTransaction
from chainapi.models.codec import PageDecoder, decode_resource
from chainapi.models.timestamps import UTCDatetime
from chainapi.tables.codec import INVALID, Codec
from chainapi.tables.columns import changes, columns_of, described
from chainapi.tables.rows import count_lines
from chainapi.tables.types import AMOUNTS, Amounts, checked_amounts
from tests.documents import Maker

LARGE = 2**256 - 1


@frozen
class Inner:
    value: int | None = None
    ratio: Decimal | None = None


@frozen
class Row:
    height: int = 1
    seen: int = 5
    value: int | None = None
    share: float = 0.5
    text: str = "x"
    inner: Inner | None = None
    inners: list[Inner | None] | None = None
    ratios: list[Decimal] | None = None

    seen_at = UTCDatetime("seen")


def made(model: Any, seed: int = 1, **more: Any) -> Any:
    """Return a row of a model with further fields."""
    return decode_resource(json.dumps({**Maker(seed, whole=True).record(model), **more}).encode(), model)


def encoded(row: Any, amounts: Amounts = "text") -> Any:
    """Return a row as JSON."""
    return json.loads(Codec(type(row), amounts).encode_lines([row]))


@pytest.mark.parametrize(
    ("amounts", "value", "wanted"),
    [
        ("text", LARGE, str(LARGE)),
        ("text", -(10**99), str(-(10**99))),
        ("decimal", 10**38 - 1, "9" * 38),
        ("decimal", 1 - 10**38, "-" + "9" * 38),
        ("binary", LARGE, "0x" + "f" * 64),
        ("binary", 258, f"0x{'0' * 61}102"),
        ("float", 3, 3.0),
        ("float", LARGE, float(LARGE)),
    ],
)
def test_forms_of_amounts(amounts: Amounts, value: int, wanted: Any) -> None:
    """Amounts have the form of their choice, in records and in lists too."""
    row = encoded(Row(value=value, inner=Inner(value=value), inners=[None, Inner(value=value)]), amounts)
    assert [row["value"], row["inner"]["value"], row["inners"][1]["value"]] == [wanted] * 3
    assert type(row["value"]) is type(wanted)
    assert row["height"] == 1
    assert encoded(Row(), amounts)["value"] is None


@pytest.mark.parametrize(
    ("amounts", "row", "path", "shown", "remedy"),
    [
        ("text", Row(height=2**63), "$.height", str(2**63), "at most 64 bits"),
        ("text", Row(height=-(2**63) - 1), "$.height", str(-(2**63) - 1), "at most 64 bits"),
        ("text", Row(seen=253402300800), "$.seen", "253402300800", "years 1 to 9999"),
        ("decimal", Row(value=10**38), "$.value", str(10**38), 'amounts="text" holds every whole number'),
        ("decimal", Row(inner=Inner(LARGE)), "$.inner.value", str(LARGE), 'amounts="text"'),
        ("binary", Row(value=-1), "$.value", "-1", 'amounts="text" holds every whole number'),
        ("binary", Row(inners=[None, Inner(LARGE + 1)]), "$.inners[1].value", str(LARGE + 1), "256 bits"),
        ("float", Row(value=10**400), "$.value", "more than 100 digits", 'amounts="text"'),
        ("text", Row(inner=Inner(ratio=Decimal("1E+20"))), "$.inner.ratio", "E+20", "20 digits before"),
        ("text", Row(ratios=[Decimal(1), Decimal("1E-19")]), "$.ratios[1]", "1E-19", "18 after"),
        ("text", Row(ratios=[Decimal("NaN")]), "$.ratios[0]", "NaN", "20 digits before"),
        ("text", Row(height="high"), "$.height", "'high'", "Expected `int"),  # type: ignore[arg-type]
        ("text", Row(value="5"), "$.value", "'5'", "Expected `int"),  # type: ignore[arg-type]
        ("text", Row(text=7), "$.text", "7", "Expected `str"),  # type: ignore[arg-type]
    ],
)
def test_a_value_that_does_not_fit(amounts: Amounts, row: Row, path: str, shown: str, remedy: str) -> None:
    """A value that its type cannot hold raises an error with the value, the row and the remedy.

    With ``on_invalid="raw"`` the row is an invalid one, and the others stay as they are.
    """
    with pytest.raises(ColumnValueError) as caught:
        Codec(Row, amounts).encode_lines([Row(), Row(), row])
    error = caught.value
    assert isinstance(error, DecodeError)
    assert (error.path, error.row) == (path, 2)
    assert shown in error.reason
    assert remedy in error.reason
    assert "The row is Row(" in error.reason
    assert 'on_invalid="raw"' in error.advice
    with pytest.raises(ColumnValueError) as caught:
        Codec(Row, amounts).encode_lines([Invalid({}, DecodeError("no number")), Row(), row])
    assert caught.value.row == 2
    lines = Codec(Row, amounts, "raw").encode_lines([Row(), row, Row()]).split(b"\n")
    assert lines[0] == lines[2] == Codec(Row, amounts).encode_lines([Row()])[:-1]
    assert lines[1].startswith(INVALID)
    invalid = json.loads(lines[1].removeprefix(INVALID))
    assert (invalid["path"], invalid["error"]) == (path, error.reason)
    assert invalid["row"]["height"] == row.height


@pytest.mark.parametrize(
    ("model", "path"),
    [(NativeTransaction, "$.from.decimals"), (AddressTransaction, "$.native_transaction.from.decimals")],
)
def test_a_value_in_a_column_whose_attribute_has_another_name(model: Any, path: str) -> None:
    """The error names the column, such as ``from``, whose attribute is ``from_``."""
    row = made(model)
    large = attrs.evolve(row.native_transaction if model is AddressTransaction else row)
    large = attrs.evolve(large, from_=attrs.evolve(large.from_, decimals=2**63))
    row = attrs.evolve(row, native_transaction=large) if model is AddressTransaction else large
    with pytest.raises(ColumnValueError, match=f"'?{2**63}'? does not fit its column") as caught:
        Codec(model).encode_lines([row])
    assert caught.value.path == path
    invalid = json.loads(Codec(model, on_invalid="raw").encode_lines([row]).removeprefix(INVALID))
    assert invalid["path"] == path


def test_rows_that_are_none_of_the_model() -> None:
    """A row of another class is refused; an invalid row is marked."""
    with pytest.raises(ConfigurationError, match="a row is a int, the columns are those of"):
        Codec(Row).encode_lines([7])
    lines = Codec(Row).encode_lines([Row(), Invalid({"a": 1}, DecodeError("no number", path="$.a")), Row()])
    assert lines.split(b"\n")[1] == INVALID + b'{"path":"$.a","error":"no number","row":{"a":1}}'


def test_fields_that_a_record_does_not_name() -> None:
    """Unnamed fields are in the column ``extra``, those of records inside in their places."""
    rows = [made(EvmBlock), made(EvmBlock, news={"a": 2**70}, burned="5"), made(EvmBlock)]
    lines = [json.loads(line) for line in Codec(EvmBlock).encode_lines(rows).splitlines()]
    assert [line["extra"] for line in lines] == [None, {"news": {"a": 2**70}, "burned": "5"}, None]
    assert {name: value for name, value in lines[1].items() if name != "extra"} == {
        name: value for name, value in lines[0].items() if name != "extra"
    }
    sender = {**Maker(1, whole=True).value(models.RichAddress), "rank": 3}
    value = {**Maker(1, whole=True).record(NativeTransaction), "from": sender}
    row = decode_resource(json.dumps(value).encode(), NativeTransaction)
    assert encoded(row)["extra"] == {"from": {"rank": 3}}
    details = Maker(1, whole=True).record(models.PrimaryNetworkBlock)
    assert encoded(decode_resource(json.dumps(details).encode(), models.PrimaryNetworkBlock))["extra"] is None


def test_fields_that_a_point_does_not_name() -> None:
    """Points of metrics, which keep further fields elsewhere, have them in ``extra`` too."""
    body = [{"timestamp": 1, "value": 2.5}, {"timestamp": 2, "value": 0.5, "partial": True}]
    page = PageDecoder(MetricPoint, "results").decode(json.dumps({"results": body}).encode())
    lines = [json.loads(line) for line in Codec(MetricPoint).encode_lines(page.rows).splitlines()]
    assert [line["extra"] for line in lines] == [None, {"partial": True}]


def test_fields_in_lists_of_records() -> None:
    """Unnamed fields of records in a list have the places of those records."""
    found = Maker(1, whole=True).record(models.EvmTransaction)
    transfer = Maker(1, whole=True).record(models.Erc20TransferDetails)
    found["erc20Transfers"] = [transfer, {**transfer, "news": 1}]
    row = decode_resource(json.dumps(found).encode(), models.EvmTransaction)
    assert encoded(row)["extra"] == {"erc20Transfers": [{}, {"news": 1}]}


def test_models_of_users_have_no_such_column() -> None:
    """Classes of users drop unnamed fields: they have no column ``extra``."""
    assert [column.name for column in columns_of(Row)] == [field.name for field in attrs.fields(Row)]


@given(st.data())
def test_chosen_columns_are_those_of_whole_rows(data: st.DataObject) -> None:
    """Any choice of columns gives the values of whole rows in its order, ``extra`` last.

    Rows of unknown kinds are among them.
    """
    model = data.draw(st.sampled_from([EvmBlock, MetricPoint, models.PrimaryNetworkTransaction]))
    whole = Codec(model)
    names = [column.name for column in whole.columns]
    fields = data.draw(st.lists(st.sampled_from(names), unique=True, min_size=1))
    some = Codec(model, fields=fields)
    wanted = [*(name for name in fields if name != "extra"), *(["extra"] if "extra" in fields else [])]
    assert [column.name for column in some.columns] == wanted
    value = Maker(data.draw(st.integers(0, 20))).value(model)
    more: dict[str, Any] = data.draw(st.sampled_from([{}, {"news": 1}, {"txType": "New", "type": "New"}]))
    row = decode_resource(json.dumps({**value, **more}).encode(), model)
    (line,) = some.encode_lines([row]).splitlines()
    found, all_of = json.loads(line), json.loads(whole.encode_lines([row]))
    assert found == {name: all_of[name] for name in wanted if name in all_of}
    assert [*found] == [name for name in wanted if name in all_of]


def test_values_of_other_columns_are_not_checked() -> None:
    """A value that does not fit a column fails a row only where the column is chosen."""
    row = Row(height=2**70)
    assert json.loads(Codec(Row, fields=["text"]).encode_lines([row])) == {"text": "x"}
    with pytest.raises(ColumnValueError, match=r"^\$\.height: "):
        Codec(Row, fields=["text", "height"]).encode_lines([row])


def test_every_kind_of_a_union_at_once() -> None:
    """Rows of several kinds keep their order in one page."""
    model = models.PrimaryNetworkTransaction
    rows = [decode_resource(json.dumps(Maker(seed).value(model)).encode(), model) for seed in range(20)]
    codec = Codec(model)
    assert codec.encode_lines(rows) == b"".join(codec.encode_lines([row]) for row in rows)
    assert codec.encode_lines([]) == b""


@pytest.mark.parametrize("amounts", AMOUNTS)
def test_decimals_keep_their_type(amounts: Amounts) -> None:
    """Exact fractions are texts without an exponent, whatever the choice of amounts."""
    money = Money(currency_code="usd", value=Decimal("1E-7"))
    assert encoded(money, amounts)["value"] == "0.0000001"


def test_choices_of_amounts() -> None:
    """Choices of amounts are checked."""
    assert [checked_amounts(given) for given in AMOUNTS] == [*AMOUNTS]
    with pytest.raises(ConfigurationError, match="amounts= must be one of text, decimal, float, binary"):
        checked_amounts("bytes")


# Columns that grow


@frozen
class Grown(Row):
    more: str | None = None


@frozen
class Other:
    height: str
    inner: int


def test_what_a_description_allows() -> None:
    """New columns are no difference; columns that are gone or of another kind are named."""
    old, new = described(columns_of(Row)), described(columns_of(Grown))
    assert changes(old, new) == []
    assert changes(new, old) == ["column more is gone"]
    assert changes(old, described(columns_of(Row, "decimal"))) == [
        "column value was digits, is whole",
        "column inner.value was digits, is whole",
        "column inners[].value was digits, is whole",
    ]
    assert changes(old, described(columns_of(Other)))[:3] == [
        "column height was integer, is text",
        "column seen is gone",
        "column value is gone",
    ]
    assert "column inner was a record, is integer" in changes(old, described(columns_of(Other)))
    assert json.loads(json.dumps(old)) == old


@given(st.lists(st.binary(max_size=3), max_size=9).map(b"\n".join))
def test_lines_are_counted_by_their_ends(content: bytes) -> None:
    """The number of lines is the number of line ends, and of no other character that ends a line."""
    assert count_lines(content) == content.count(b"\n")
    assert count_lines(content + b"\r\x0b\x1c\x85\n") == content.count(b"\n") + 1

"""Decimals that are no numbers: refused in every model, because no JSON, table or sum can hold them.

So are strings with other characters than those of a number, although Python reads them as a `Decimal`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any, TypedDict

import attrs
import msgspec
import pytest
from attrs import frozen
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

import chainapi.json
from chainapi.core.numbers import is_decimal
from chainapi.errors import DecodeError
from chainapi.models import Erc20TokenBalance, Invalid, Money, RankedAddress
from chainapi.models.codec import PageDecoder, decode_resource
from chainapi.models.sizes import LARGE
from chainapi.tables.pages import ColumnarDecoder
from tests.documents import Maker


@frozen
class Attrs:
    """An attrs class."""

    price: Decimal | None
    count: int = 0


@frozen
class Converted:
    """A class that only cattrs makes."""

    price: Decimal
    count: int = attrs.field(default=0, converter=int)


@dataclass
class Data:
    """A dataclass with a whole number."""

    price: Decimal
    count: int = 0


@dataclass
class Plain:
    """A dataclass without one."""

    price: Decimal


class Typed(TypedDict):
    """A TypedDict."""

    price: Decimal


class Packed(msgspec.Struct):
    """A Struct."""

    price: Decimal | float


class Pydantic(BaseModel):
    """A Pydantic class."""

    price: Decimal


@frozen
class Outer:
    """A class with decimals inside of lists, objects and classes."""

    price: dict[str, list[Attrs]]


OWN: list[Any] = [Attrs, Converted, Data, Plain, Typed, Packed]
NO_NUMBERS = ["NaN", "nan", "-NaN", "sNaN", "NaN5", "Infinity", "-inf"]
# Python reads these as a Decimal too; JSON has no such number.
OF_PYTHON = ["1_0", "_1", "1e1_0", " 10 ", "1.5 ", "\\t10", "10\\n", "\\u00a010"]
OF_PYTHON += ["\u0661\u0660", "1\u0660", "\\uff11.5", "-\u0661", "\u20281"]


@pytest.mark.parametrize("padding", [b"", b" " * LARGE], ids=["", "large"])
@pytest.mark.parametrize("text", NO_NUMBERS)
@pytest.mark.parametrize("model", [*OWN, Pydantic])
def test_own_models_refuse_them(model: Any, text: str, padding: bytes) -> None:
    """The row is the only invalid one of its page, and the error has the path of the field."""
    body = b'{"rows":[{"price":"1.50"},{"price":"%b"}]}' % text.encode() + padding
    with pytest.raises(DecodeError) as caught:
        PageDecoder(model, "rows").decode(body)
    assert (caught.value.row, caught.value.path) == (1, "$.rows[1].price")
    rows = PageDecoder(model, "rows", shown=lambda fault: fault).decode(body).rows
    assert [type(row) is Invalid for row in rows] == [False, True]


@pytest.mark.parametrize("padding", [b"", b" " * LARGE], ids=["", "large"])
@pytest.mark.parametrize("text", OF_PYTHON)
@pytest.mark.parametrize("model", OWN)
def test_own_models_refuse_notations_of_python(model: Any, text: str, padding: bytes) -> None:
    """Such a string is a fault of its row, also beside JSON numbers and whole numbers in strings."""
    good = '{"price":1.50,"count":"1"}' if model in (Attrs, Data) else '{"price":"1.50"}'
    body = f'{{"rows":[{good},{{"price":"{text}"}}]}}'.encode() + padding
    with pytest.raises(DecodeError, match="Expected `decimal`, got '") as caught:
        PageDecoder(model, "rows").decode(body)
    assert (caught.value.row, caught.value.path) == (1, "$.rows[1].price")
    rows = PageDecoder(model, "rows", shown=lambda fault: fault).decode(body).rows
    assert [type(row) is Invalid for row in rows] == [False, True]
    with pytest.raises(DecodeError) as caught:
        decode_resource(f'{{"price":"{text}"}}'.encode(), model)
    assert caught.value.path == "$.price"


@given(text=st.text(st.sampled_from('0123456789+-.eE_ \t\u0661\uff11nNaAiIfFtTyYsS"\\'), max_size=6))
@pytest.mark.parametrize("model", OWN)
def test_all_ways_accept_the_same_strings(model: Any, text: str) -> None:
    """A string is a decimal if Python reads it as one, and it has the characters of a number alone."""
    try:
        number = Decimal(text) if is_decimal(text) else None
    except InvalidOperation:
        number = None
    row = json.dumps({"price": text}, ensure_ascii=len(text) % 2 == 0).encode()
    for body in (b'{"rows":[%b]}' % row, b'{"rows":[%b]}' % row + b" " * LARGE):
        try:
            (made,) = PageDecoder(model, "rows").decode(body).rows
        except DecodeError:
            assert number is None
        else:
            assert number is not None
            assert (made["price"] if model is Typed else made.price) == number


@pytest.mark.parametrize("more", [b'"\xff"', b'" \xff"', b'{" \xff":[" \xff"]}'])
@pytest.mark.parametrize("model", [Attrs, Plain, Typed, Packed])  # cattrs needs all values
def test_fields_that_no_decoder_reads_are_no_fault(model: Any, more: bytes) -> None:
    """A field that the model does not name may be no UTF-8."""
    for price in (b'"1.5"', b"1.5"):
        row = b'{"price":%b,"more":%b}' % (price, more)
        assert len(PageDecoder(model, "rows").decode(b'{"rows":[%b]}' % row).rows) == 1
    wrong = b'{"price":"1_0","more":%b}' % more
    with pytest.raises(DecodeError):
        PageDecoder(model, "rows").decode(b'{"rows":[%b]}' % wrong)


def test_the_path_leads_to_such_a_string() -> None:
    """The path goes through lists, objects and classes, and names in other scripts are no fault."""
    good = '{"price":{" \u540d":[{"price":null},{"price":"1","count":"1"}]}}'
    wrong = good.replace('"price":"1"', '"price":"1_0"')
    assert PageDecoder(Outer, "rows").decode(f'{{"rows":[{good}]}}'.encode()).rows
    with pytest.raises(DecodeError, match="'1_0'") as caught:
        PageDecoder(Outer, "rows").decode(f'{{"rows":[{wrong}]}}'.encode())
    assert caught.value.path == "$.rows[0].price. \u540d[1].price"


def test_the_path_leads_to_the_value() -> None:
    """The path goes through lists, objects and classes."""
    body = b'{"rows":[{"price":{"k":[{"price":null},{"price":"Infinity","count":"1"}]}}]}'
    with pytest.raises(DecodeError, match="Infinity") as caught:
        PageDecoder(Outer, "rows").decode(body)
    assert caught.value.path == "$.rows[0].price.k[1].price"


@frozen
class Lists:
    """A class with decimals and classes in lists, and one that contains itself."""

    prices: list[Decimal | None]
    parts: list[Attrs | None] = attrs.Factory(list)
    inner: Lists | None = None


def test_lists_and_classes_with_null() -> None:
    """Null beside decimals is no fault, and a fault in any place has its path."""
    good = '{"prices":["1",null],"parts":[null,{"price":null},{"price":"2"}],"inner":{"prices":[]}}'
    (row,) = PageDecoder(Lists, "rows").decode(f'{{"rows":[{good}]}}'.encode()).rows
    assert row.prices == [Decimal(1), None]
    for place, path in (('"1"', "prices[0]"), ('"2"', "parts[2].price"), ("[]}", "inner.prices[0]")):
        wrong = '"NaN"' if place != "[]}" else '["NaN"]}'
        with pytest.raises(DecodeError) as caught:
            PageDecoder(Lists, "rows").decode(f'{{"rows":[{good.replace(place, wrong)}]}}'.encode())
        assert caught.value.path == f"$.rows[0].{path}"


@frozen
class Defaulted:
    """A class whose decimal may be missing."""

    price: Decimal = Decimal("0.5")


@frozen
class Whole:
    """A class whose default is another number than a decimal."""

    price: Decimal = 0  # type: ignore[assignment]


@dataclass
class WholeData:
    """A dataclass with such a default and a whole number."""

    price: Decimal = 0.0  # type: ignore[assignment]
    count: int = 0


class WholeStruct(msgspec.Struct):
    """A Struct with such a default."""

    price: Decimal = 0  # type: ignore[assignment]


def to_float(price: Decimal) -> Any:
    """Return a number of another type than that of its field."""
    return float(price)


def to_sum(prices: list[Decimal]) -> Any:
    """Return one number in place of several."""
    return sum(prices)


@frozen
class AsFloat:
    """A class with another number than a decimal in its field."""

    price: Decimal = attrs.field(converter=to_float)


@frozen
class Summed:
    """A class with decimals in JSON, and one number in its field."""

    price: list[Decimal] = attrs.field(converter=to_sum)


@frozen
class Unset:
    """A class with a field that has no value."""

    price: Decimal = attrs.field(converter=lambda price: [price])  # type: ignore[var-annotated]
    later: Decimal = attrs.field(init=False)


@pytest.mark.parametrize("padding", [b"", b" " * LARGE], ids=["", "large"])
@pytest.mark.parametrize(
    ("model", "sent", "made"),
    [
        (Defaulted, [b"{}", b'{"price":"1.5"}'], [Decimal("0.5"), Decimal("1.5")]),
        (Whole, [b"{}", b'{"price":"1.5"}'], [0, Decimal("1.5")]),
        (WholeData, [b"{}", b'{"price":"1.5","count":"2"}'], [0.0, Decimal("1.5")]),
        (WholeStruct, [b"{}", b'{"price":"1.5"}'], [0, Decimal("1.5")]),
        (AsFloat, [b'{"price":1.5}'], [1.5]),
        (Summed, [b'{"price":["1.5",2]}'], [Decimal("3.5")]),
        (Unset, [b'{"price":"1.5"}'], [[Decimal("1.5")]]),
        (Attrs | None, [b"null", b'{"price":"1.5"}'], [None, Decimal("1.5")]),
        (Decimal | None, [b"null", b'"1.5"'], [None, Decimal("1.5")]),
        (list[Decimal] | None, [b"null", b'["1.5"]'], [None, [Decimal("1.5")]]),
        (dict[str, Decimal] | None, [b"null", b'{"a":"1.5"}'], [None, {"a": Decimal("1.5")}]),
    ],
    ids=str,
)
def test_other_values_in_place_of_decimals(
    model: Any, sent: list[bytes], made: list[Any], padding: bytes
) -> None:
    """Defaults, the results of converters and null rows are no fault, and do not hide one."""
    rows = PageDecoder(model, "rows").decode(b'{"rows":[%b]}' % b",".join(sent) + padding).rows
    assert [getattr(row, "price", row) for row in rows] == made
    for text in (b"1_0",) if model is AsFloat else (b"NaN", b"1_0"):  # that float is the converter's
        wrong = sent[-1].replace(b"1.5", text if b'"1.5"' in sent[-1] else b'"%b"' % text)
        with pytest.raises(DecodeError) as caught:
            PageDecoder(model, "rows").decode(b'{"rows":[%b]}' % b",".join([*sent, wrong]) + padding)
        assert caught.value.row == len(sent)


@frozen
class Endless:
    """A class whose default is no number."""

    price: Decimal = Decimal("Infinity")


def test_a_default_that_is_no_number() -> None:
    """A default that no JSON can hold is refused in a row that takes it."""
    with pytest.raises(DecodeError) as caught:
        PageDecoder(Endless, "rows").decode(b'{"rows":[{"price":"1"},{}]}')
    assert caught.value.path == "$.rows[1].price"


@pytest.mark.parametrize("text", [*NO_NUMBERS, "1_0", " 10 ", "\u0661\u0660"])
@pytest.mark.parametrize("decoder", [PageDecoder, ColumnarDecoder])
def test_records_refuse_them(decoder: Any, text: str) -> None:
    """Prices and sort keys are numbers in every way to decode a page."""
    price = {"currencyCode": "usd", "value": text}
    for model, sent, path in (
        (Money, price, ".value"),
        (RankedAddress, {"address": "a", "sortKey": text}, ".sortKey"),
        (
            Erc20TokenBalance,
            {**Maker(1, whole=True).record(Erc20TokenBalance), "price": price},
            ".price.value",
        ),
    ):
        with pytest.raises(DecodeError) as caught:
            decoder(model, "rows").decode(json.dumps({"rows": [sent]}).encode())
        assert caught.value.path == f"$.rows[0]{path}"


@pytest.mark.parametrize("text", ["0", "-0.10", "1E+3", "1e-7", "0.1234567890123456789", "1" * 40])
@pytest.mark.parametrize("quote", ['"', ""])
def test_numbers_are_accepted(text: str, quote: str) -> None:
    """Numbers keep their digits, as strings and as numbers, and decode to themselves."""
    body = f'{{"rows":[{{"currencyCode":"usd","value":{quote}{text}{quote}}}]}}'.encode()
    rows = PageDecoder(Money, "rows").decode(body).rows
    assert rows == [Money(currency_code="usd", value=Decimal(text))]
    assert PageDecoder(Money, "rows").decode(b'{"rows":%b}' % chainapi.json.dumps(rows)).rows == rows

"""Decimals that are no numbers: refused in every model, because no JSON, table or sum can hold them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, TypedDict

import attrs
import msgspec
import pytest
from attrs import frozen
from pydantic import BaseModel

import chainapi.json
from chainapi.errors import DecodeError
from chainapi.models import Erc20TokenBalance, Invalid, Money, RankedAddress
from chainapi.models.codec import PageDecoder
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


OWN = [Attrs, Converted, Data, Plain, Typed, Packed, Pydantic]
NO_NUMBERS = ["NaN", "nan", "-NaN", "sNaN", "NaN5", "Infinity", "-inf"]


@pytest.mark.parametrize("padding", [b"", b" " * LARGE], ids=["", "large"])
@pytest.mark.parametrize("text", NO_NUMBERS)
@pytest.mark.parametrize("model", OWN)
def test_own_models_refuse_them(model: Any, text: str, padding: bytes) -> None:
    """The row is the only invalid one of its page, and the error has the path of the field."""
    body = b'{"rows":[{"price":"1.50"},{"price":"%b"}]}' % text.encode() + padding
    with pytest.raises(DecodeError) as caught:
        PageDecoder(model, "rows").decode(body)
    assert (caught.value.row, caught.value.path) == (1, "$.rows[1].price")
    rows = PageDecoder(model, "rows", shown=lambda fault: fault).decode(body).rows
    assert [type(row) is Invalid for row in rows] == [False, True]


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


@pytest.mark.parametrize("text", NO_NUMBERS)
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

"""Decimals: all digits are kept, and what is no JSON number is refused in every model.

Python reads other strings as a `Decimal` too; no JSON, table or sum can hold them.
"""

from __future__ import annotations

import json
import re
from decimal import Decimal
from itertools import product
from typing import Any

import attrs
from attrs import frozen
from hypothesis import given, settings
from hypothesis import strategies as st

import chainapi.json
from chainapi import Invalid
from chainapi.errors import DecodeError
from chainapi.models import Erc20TokenBalance, Money, RankedAddress
from tests.answers import LARGE, decoded, refused, resource_of, rows_of, table_of
from tests.documents import Maker
from tests.models.classes import KINDS, class_of, read


@frozen
class Attrs:
    """An attrs class."""

    price: Decimal | None
    count: int = 0


DATA = class_of("dataclass", price=Decimal, count=(int, 0))
OWN: list[Any] = [Attrs, DATA, class_of("Struct", price=Decimal | float)]
OWN += [class_of(kind, price=Decimal) for kind in KINDS[1:4]]
NO_NUMBERS = ["NaN", "nan", "-NaN", "sNaN", "NaN5", "Infinity", "-inf"]
# Python reads these as a Decimal too; JSON has no such number.
OF_PYTHON = ["1_0", "_1", "1e1_0", " 10 ", "1.5 ", "\\t10", "10\\n", "\\u00a010"]
OF_PYTHON += ["\u0661\u0660", "1\u0660", "\\uff11.5", "-\u0661", "\u20281"]


def test_what_is_no_number_is_refused() -> None:
    """NaN, infinities and notations of Python are the fault of their row, with the path of the field."""
    cases = [
        *product([*OWN, class_of("Pydantic class", price=Decimal)], NO_NUMBERS),
        *product(OWN, OF_PYTHON),
    ]
    for (model, text), padding in product(cases, (b"", b" " * LARGE)):
        if padding and text not in ("NaN", "1_0"):
            continue
        good = '{"price":1.50,"count":"1"}' if model in (Attrs, DATA) else '{"price":"1.50"}'
        body = f'{{"rows":[{good},{{"price":"{text}"}}]}}'.encode() + padding
        error = refused(rows_of, body, model)
        assert (error.row, error.path) == (1, "$.rows[1].price"), (model, text)
        rows = rows_of(body, model, on_invalid="raw")
        assert [type(row) is Invalid for row in rows] == [False, True], (model, text)
        assert refused(resource_of, f'{{"price":"{text}"}}'.encode(), model).path == "$.price"


NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)


@settings(max_examples=60)
@given(text=st.text(st.sampled_from('0123456789+-.eE_ \t\u0661\uff11nNaAiIfF"\\'), max_size=6))
def test_all_models_accept_the_same_strings(text: str) -> None:
    """A string is a decimal if it has the form of a number, whatever class reads it."""
    row = json.dumps({"price": text}, ensure_ascii=len(text) % 2 == 0).encode()
    for model in OWN:
        try:
            (made,) = rows_of(b'{"rows":[%b]}' % row, model)
        except DecodeError:
            assert NUMBER.fullmatch(text) is None
        else:
            assert NUMBER.fullmatch(text) is not None
            assert read(made, "price") == Decimal(text)


@frozen
class Lists:
    """A class with decimals and classes in lists, and one that contains itself."""

    prices: list[Decimal | None]
    parts: list[Attrs | None] = attrs.Factory(list)
    inner: Lists | None = None


def test_the_path_leads_to_such_a_string() -> None:
    """The path of the error goes through lists, objects and classes; null beside decimals is no fault."""
    outer = class_of("attrs class", price=dict[str, list[Attrs]])
    good = '{"price":{" \u540d":[{"price":null},{"price":"1","count":"1"}]}}'
    assert rows_of(f'{{"rows":[{good}]}}'.encode(), outer)
    for text in ("1_0", "Infinity"):
        wrong = good.replace('"price":"1"', f'"price":"{text}"')
        error = refused(rows_of, f'{{"rows":[{wrong}]}}'.encode(), outer)
        assert error.path == "$.rows[0].price. \u540d[1].price"
    good = '{"prices":["1",null],"parts":[null,{"price":null},{"price":"2"}],"inner":{"prices":[]}}'
    (row,) = rows_of(f'{{"rows":[{good}]}}'.encode(), Lists)
    assert row.prices == [Decimal(1), None]
    for place, path in (('"1"', "prices[0]"), ('"2"', "parts[2].price"), ("[]}", "inner.prices[0]")):
        wrong = good.replace(place, '"NaN"' if place != "[]}" else '["NaN"]}')
        assert refused(rows_of, f'{{"rows":[{wrong}]}}'.encode(), Lists).path == f"$.rows[0].{path}"


def test_defaults_and_results_of_converters_are_no_fault() -> None:
    """Defaults, results of converters and null rows may be other values than decimals, and hide no fault."""
    as_float = attrs.make_class("AsFloat", {"price": attrs.field(type=Decimal, converter=float)})
    summed: Any = attrs.field(type=list[Decimal], converter=sum)
    later = attrs.field(type=Decimal, init=False)
    cases: list[tuple[Any, list[bytes], list[Any]]] = [
        (
            class_of("attrs class", price=(Decimal, Decimal("0.5"))),
            [b"{}", b'{"price":"1.5"}'],
            [Decimal("0.5"), Decimal("1.5")],
        ),
        (
            class_of("dataclass", price=(Decimal, 0.0), count=(int, 0)),
            [b"{}", b'{"price":"1.5","count":"2"}'],
            [0.0, Decimal("1.5")],
        ),
        (class_of("Struct", price=(Decimal, 0)), [b"{}", b'{"price":"1.5"}'], [0, Decimal("1.5")]),
        (as_float, [b'{"price":1.5}'], [1.5]),
        (attrs.make_class("Summed", {"price": summed}), [b'{"price":["1.5",2]}'], [Decimal("3.5")]),
        (
            attrs.make_class("Unset", {"price": attrs.field(type=Decimal), "later": later}),
            [b'{"price":"1.5"}'],
            [Decimal("1.5")],
        ),
        (Attrs | None, [b"null", b'{"price":"1.5"}'], [None, Decimal("1.5")]),
        (Decimal | None, [b"null", b'"1.5"'], [None, Decimal("1.5")]),
        (list[Decimal] | None, [b"null", b'["1.5"]'], [None, [Decimal("1.5")]]),
        (dict[str, Decimal] | None, [b"null", b'{"a":"1.5"}'], [None, {"a": Decimal("1.5")}]),
    ]
    for (model, sent, made), padding in product(cases, (b"", b" " * LARGE)):
        rows = rows_of(b'{"rows":[%b]}' % b",".join(sent) + padding, model)
        assert [getattr(row, "price", row) for row in rows] == made, model
        for text in (b"1_0",) if model is as_float else (b"NaN", b"1_0"):  # that float is the converter's
            wrong = sent[-1].replace(b"1.5", text if b'"1.5"' in sent[-1] else b'"%b"' % text)
            body = b'{"rows":[%b]}' % b",".join([*sent, wrong]) + padding
            assert refused(rows_of, body, model).row == len(sent), model


def test_records_refuse_them() -> None:
    """Prices and sort keys of the services are numbers, in rows and in tables."""
    balance = Maker(1, whole=True).record(Erc20TokenBalance)
    for text in NO_NUMBERS:
        price = {"currencyCode": "usd", "value": text}
        for model, sent, path in (
            (Money, price, ".value"),
            (RankedAddress, {"address": "a", "sortKey": text}, ".sortKey"),
            (Erc20TokenBalance, {**balance, "price": price}, ".price.value"),
        ):
            for reading in (rows_of, table_of):
                error = refused(reading, json.dumps({"rows": [sent]}).encode(), model)
                assert error.path == f"$.rows[0]{path}", text


def test_numbers_keep_their_digits() -> None:
    """Numbers keep their digits, as strings and as JSON numbers, and are read back from their JSON."""
    texts = ("0", "1.50", "1E+3", "1e-7", "0.1234567890123456789", "1" * 40, "1e400")
    for text, quote in product(texts, ('"', "")):
        body = f'{{"rows":[{{"currencyCode":"usd","value":{quote}{text}{quote}}}]}}'.encode()
        (row,) = rows_of(body, Money)
        assert (row, str(row.value)) == (Money(currency_code="usd", value=Decimal(text)), str(Decimal(text)))
        assert rows_of(b'{"rows":[%b]}' % chainapi.json.dumps(row), Money) == [row]
        exact = Decimal(repr(float(text))) == Decimal(text)  # else a float would lose digits
        assert type(row.to_wire()["value"]) is (float if exact else Decimal), text
        assert decoded(Money, {"currencyCode": "xau", "value": 7})[0].value == 7

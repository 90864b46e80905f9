"""Plain values: numbers are exact in reading and writing."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import msgspec
import pytest
from attrs import frozen
from hypothesis import given
from hypothesis import strategies as st

from chainapi.errors import DecodeError
from chainapi.models import BlockchainInfo, Transfer, Unknown
from chainapi.models.codec import PageDecoder, decode_resource
from chainapi.models.exact_json import ascii_json, decode_leniently, encode_json, exact_number, is_json
from tests.documents import DEEP

LOSSY = (
    "0.1234567890123456789",
    "12345678901234567890.5",
    "1e400",
    "-1e400",
    "1e-400",
    "1.2345e-320",
    "9007199254740993.0",
    "123456789012345678e-3",
    "1" * 500 + ".5",
)
SHORT = ("0.1", "-2.5", "1e3", "1E+22", "0.0", "-0.0", "5e-324", "1.7976931348623157e308", "1.10", "0e999")


@pytest.mark.parametrize("end", ["\ud800", 1, Decimal("0.10")])
def test_values_of_any_depth_are_written(end: Any) -> None:
    """Values of any depth are written.

    Decoders of some Python versions read deeper values than their encoders write.
    """
    value, text = end, json.dumps(end) if isinstance(end, str) else str(end)
    for _ in range(3_000):
        value, text = [1, {"a": value, "b": []}], f'[1,{{"a":{text},"b":[]}}]'
    assert encode_json(value).decode() == ascii_json(value).replace(" ", "") == text


@frozen
class Own:
    """A user's class with a field of any type."""

    name: str
    more: Any


@pytest.mark.parametrize("digits", LOSSY)
def test_fields_of_any_type_keep_the_digits_within_records(digits: str) -> None:
    """Fields of any type keep all digits within records.

    Examples are the genesis data of a blockchain and such a field of a user's model.
    """
    body = b'{"chainName":"c","vmId":"v","genesisData":{"n":%b}}' % digits.encode()
    assert decode_resource(body, BlockchainInfo).genesis_data == {"n": Decimal(digits)}
    (row,) = PageDecoder(BlockchainInfo, "rows").decode(b'{"rows":[%b]}' % body).rows
    assert row.genesis_data == {"n": Decimal(digits)}
    (own,) = PageDecoder(Own, "rows").decode(b'{"rows":[{"name":"a","more":[%b]}]}' % digits.encode()).rows
    assert own.more == [Decimal(digits)]


@pytest.mark.parametrize("digits", LOSSY)
def test_a_number_that_a_float_would_round_is_a_decimal(digits: str) -> None:
    """Numbers without a model, in resources and in unknown kinds, are as sent."""
    body = b'{"rows":[{"n":%b,"f":0.5}]}' % digits.encode()
    (row,) = PageDecoder(None, "rows").decode(body).rows
    (unknown,) = PageDecoder(Transfer, "rows").decode(body).rows
    assert isinstance(unknown, Unknown)
    for found in (row, decode_resource(body)["rows"][0], unknown.raw):
        assert found == {"n": Decimal(digits), "f": 0.5}
        assert isinstance(found["n"], Decimal)
        assert isinstance(found["f"], float)


@pytest.mark.parametrize("digits", SHORT)
def test_other_numbers_are_floats(digits: str) -> None:
    """Numbers become floats if a float keeps all their digits."""
    found = decode_resource(digits.encode())
    assert isinstance(found, float)
    assert (found, str(found)[0] == "-") == (float(digits), digits[0] == "-")


@pytest.mark.parametrize("digits", ["0", "-1", "18446744073709551616", "9" * 4_300])
def test_whole_numbers_are_whole(digits: str) -> None:
    """A whole number is an int of any size up to 4,300 digits."""
    assert decode_resource(digits.encode()) == int(digits)


@pytest.mark.parametrize("digits", ["1" * 4_301, "1e1000000000000000001", "1e-9999999999999999999"])
def test_numbers_that_python_cannot_hold_are_refused(digits: str) -> None:
    """Numbers that Python cannot hold raise DecodeError.

    These have more than 4,300 digits, or an exponent of more than 18.
    """
    with pytest.raises(DecodeError, match="out of range"):
        decode_resource(digits.encode())


@given(st.decimals(allow_nan=False, allow_infinity=False) | st.floats(allow_nan=False, allow_infinity=False))
def test_no_number_changes(number: Any) -> None:
    """Numbers are equal after reading and writing."""
    digits = str(number)
    if not set(digits) & set(".eE"):
        digits += ".0"
    assert Decimal(encode_json(exact_number(digits)).decode()) == Decimal(digits)


@pytest.mark.parametrize(
    ("raw", "value"),
    [
        (b'{"a":"\\ud800"}', {"a": "\ud800"}),
        (
            b'{"a":NaN,"b":-Infinity,"c":0.1234567890123456789}',
            {"a": "NaN", "b": "-Infinity", "c": Decimal("0.1234567890123456789")},
        ),
        (b'["\xff"]', ["\ufffd"]),
        (b"[" * DEEP + b"]" * DEEP, "[" * DEEP + "]" * DEEP),
        (b'{"a":%b}' % (b"9" * 5_000), '{"a":%s}' % ("9" * 5_000)),
    ],
    ids=["surrogate", "constants", "bytes", "depth", "digits"],
)
def test_odd_values_are_read_as_far_as_they_can(raw: bytes, value: Any) -> None:
    """Values that a decoder refuses are read all the same, or kept as text."""
    with pytest.raises((msgspec.MsgspecError, UnicodeError, RecursionError)):
        msgspec.json.decode(raw)
    assert decode_leniently(raw) == value
    assert is_json(raw)


@pytest.mark.parametrize("raw", [b"", b"{", b'{"a":1,}', b"[1 2]", b'["\x00"]', b"<html>"])
def test_what_is_no_json_is_none(raw: bytes) -> None:
    """`is_json` rejects damaged bodies."""
    assert not is_json(raw)


def test_halves_of_characters_are_written_as_escapes() -> None:
    """A lone surrogate is written as an escape; numbers beside it keep their digits."""
    value = {"\ud800": ["\udfff", Decimal("0.1234567890123456789"), {"a": None}]}
    text = encode_json(value)
    assert text == b'{"\\ud800":["\\udfff",0.1234567890123456789,{"a":null}]}'
    assert json.loads(text, parse_float=Decimal) == value

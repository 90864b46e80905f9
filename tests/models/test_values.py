"""Plain values: rows without a model, resources, `raw` and `extra` round no number and lose no text."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

from attrs import frozen
from hypothesis import given, settings
from hypothesis import strategies as st

import chainapi.json
from chainapi.models import BlockchainInfo, Transfer, Unknown
from chainapi.transport import Request, Response
from tests.answers import refused, resource_of, rows_of
from tests.sessions import Answering, reaching

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
WHOLE = ("0", "-1", "18446744073709551616", "9" * 4_300)
TOO_LONG = ("1" * 4_301, "1e1000000000000000001", "1e-9999999999999999999")


@frozen
class Own:
    """A user's class with a field of any type."""

    name: str
    more: Any


def test_a_number_that_a_float_would_round_is_a_decimal() -> None:
    """It is a Decimal in rows, resources, unknown kinds and fields of any type; others are floats."""
    for digits in LOSSY:
        wanted = {"n": Decimal(digits), "f": 0.5}
        body = b'{"rows":[{"n":%b,"f":0.5}]}' % digits.encode()
        (unknown,) = rows_of(body, Transfer)
        assert isinstance(unknown, Unknown)
        for found in (*rows_of(body), resource_of(body)["rows"][0], unknown.raw):
            assert (found, type(found["n"]), type(found["f"])) == (wanted, Decimal, float), digits
        genesis = b'{"chainName":"c","vmId":"v","genesisData":{"n":%b}}' % digits.encode()
        for row in (
            resource_of(genesis, BlockchainInfo),
            *rows_of(b'{"rows":[%b]}' % genesis, BlockchainInfo),
        ):
            assert row.genesis_data == {"n": Decimal(digits)}
        (own,) = rows_of(b'{"rows":[{"name":"a","more":[%b]}]}' % digits.encode(), Own)
        assert own.more == [Decimal(digits)]
    for digits in SHORT:
        found = resource_of(digits.encode())
        assert (type(found), found, str(found)[0] == "-") == (float, float(digits), digits[0] == "-")


def test_whole_numbers_are_whole() -> None:
    """A whole number is an int of up to 4,300 digits; what Python cannot hold raises DecodeError."""
    for digits in WHOLE:
        assert resource_of(digits.encode()) == int(digits)
    for digits in TOO_LONG:
        assert "out of range" in str(refused(resource_of, digits.encode()))


@settings(max_examples=50)
@given(st.decimals(allow_nan=False, allow_infinity=False) | st.floats(allow_nan=False, allow_infinity=False))
def test_no_number_changes(number: Any) -> None:
    """A number is written with the digits that were read."""
    digits = str(number)
    if not set(digits) & set(".eE"):
        digits += ".0"
    assert Decimal(chainapi.json.dumps(resource_of(digits.encode())).decode()) == Decimal(digits)


def test_values_of_any_depth_are_written() -> None:
    """A value is written as deep as it was read, and halves of surrogate pairs as escapes."""
    text = b'[1,{"a":' * 200 + b"0.10" + b',"b":[]}]' * 200
    assert chainapi.json.dumps(resource_of(text)) == text.replace(b"0.10", b"0.1")
    value = {"\ud800": ["\udfff", Decimal("0.1234567890123456789"), {"a": None}]}
    written = chainapi.json.dumps(value)
    assert written == b'{"\\ud800":["\\udfff",0.1234567890123456789,{"a":null}]}'
    assert json.loads(written, parse_float=Decimal) == value


# What identifies a row without a key: all of its JSON, whatever its notation


async def after_a_restart(before: list[bytes], after: list[bytes]) -> list[Any]:
    """Return the rows of a list that is read again, in other notations, when its only token is refused."""

    class Service(Answering):
        async def send(self, request: Request) -> Response:
            self.requests.append(request)
            if "pageToken" in request.url:
                return Response(400, {}, b'{"message":"no such token"}')
            if len(self.requests) == 1:
                return Response(200, {}, b'{"rows":[%b],"nextPageToken":"t"}' % b",".join(before))
            return Response(200, {}, b'{"rows":[%b]}' % b",".join(after))

    async with reaching(Service()) as session:
        return await session.data.list("/v1/x", on_invalid="raw").collect()


SAME = [
    (b'{"a":1,"b":[1,{"c":3,"d":2}]}', b'{ "b" : [1, {"d":2,\n"c":3}], "a":1}'),
    (b'["\\u0041\\u00e9\\/"]', b'["A\xc3\xa9/"]'),
    (b'{"n":0.1234567890123456789}', b'{"n":  0.1234567890123456789 }'),
    (b'{"x":"\xff"}', b'{"x":"\xff"}'),
    (b'{"x":"\\ud800"}', b'{"x":"\\ud800"}'),
    (b'{"n":%b}' % (b"9" * 4_301), b'{"n":%b}' % (b"9" * 4_301)),
    (b"[" * 5_000 + b"]" * 5_000, b"[" * 5_000 + b"]" * 5_000),
    (b'{"rows":["no"],"x":"],[\\""}', b'{"x":"],[\\"", "rows":["no"]}'),
    (b"{}", b"{ }"),
    (b"null", b"null"),
]
OTHER = [
    (b'{"n":0.1234567890123456789}', b'{"n":0.1234567890123456788}'),
    (b'{"n":1}', b'{"n":1.0}'),
    (b'{"n":-0.0}', b'{"n":0.0}'),
    (b'{"a":null}', b"{}"),
]


async def test_a_row_is_recognized_in_any_notation() -> None:
    """A restart leaves out a row whose JSON is equal but for white space, order of fields and escapes."""
    repeated = [one for one, again in SAME if len(await after_a_restart([one], [again])) != 1]
    assert not repeated
    assert len(await after_a_restart([one for one, _ in SAME], [again for _, again in SAME])) == len(SAME)
    lost = [one for one, other in OTHER if len(await after_a_restart([one], [other])) != 2]
    assert not lost

"""Canonical JSON of RFC 8785, by its own examples and by properties."""

from __future__ import annotations

import json
import struct
from decimal import Inexact, localcontext
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chainapi.core.canonical_json import canonical_json

pytestmark = pytest.mark.rule

VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)

# Appendix B of the RFC: bits of a number, and its text.
NUMBERS = {
    "0000000000000000": "0",
    "8000000000000000": "0",
    "0000000000000001": "5e-324",
    "8000000000000001": "-5e-324",
    "7fefffffffffffff": "1.7976931348623157e+308",
    "ffefffffffffffff": "-1.7976931348623157e+308",
    "4340000000000000": "9007199254740992",
    "c340000000000000": "-9007199254740992",
    "4430000000000000": "295147905179352830000",
    "44b52d02c7e14af5": "9.999999999999997e+22",
    "44b52d02c7e14af6": "1e+23",
    "44b52d02c7e14af7": "1.0000000000000001e+23",
    "444b1ae4d6e2ef4e": "999999999999999700000",
    "444b1ae4d6e2ef4f": "999999999999999900000",
    "444b1ae4d6e2ef50": "1e+21",
    "3eb0c6f7a0b5ed8c": "9.999999999999997e-7",
    "3eb0c6f7a0b5ed8d": "0.000001",
    "41b3de4355555553": "333333333.3333332",
    "41b3de4355555554": "333333333.33333325",
    "41b3de4355555555": "333333333.3333333",
    "41b3de4355555556": "333333333.3333334",
    "41b3de4355555557": "333333333.33333343",
    "becbf647612f3696": "-0.0000033333333333333333",
    "43143ff3c1cb0959": "1424953923781206.2",
}


@pytest.mark.parametrize(("bits", "text"), NUMBERS.items())
def test_numbers_are_those_of_the_rfc(bits: str, text: str) -> None:
    """Numbers have the texts of the RFC's table, whatever decimal context the application has set."""
    (number,) = struct.unpack(">d", bytes.fromhex(bits))
    with localcontext() as context:
        context.prec, context.traps[Inexact] = 6, True
        assert canonical_json(repr(number).encode()) == text.encode()


def test_the_example_of_the_rfc() -> None:
    """Names are sorted by UTF-16 units, escapes are the shortest, white space is left out."""
    text = rb"""{
      "numbers": [333333333.33333329, 1E30, 4.50, 2e-3, 0.000000000000000000000000001],
      "string": "\u20ac$\u000F\u000aA'\u0042\u0022\u005c\\\"\/",
      "literals": [null, true, false]
    }"""
    assert canonical_json(text) == (
        b'{"literals":[null,true,false],"numbers":[333333333.3333333,1e+30,4.5,0.002,1e-27],'
        b'"string":"\xe2\x82\xac$\\u000f\\nA\'B\\"\\\\\\\\\\"/"}'
    )
    names = ["\u20ac", "\r", "\ufb33", "1", "\U0001f600", "\u0080", "\u00f6"]
    wanted = ["\r", "1", "\u0080", "\u00f6", "\u20ac", "\U0001f600", "\ufb33"]
    assert list(json.loads(canonical_json(json.dumps(dict.fromkeys(names)).encode()))) == wanted


@given(VALUES)
def test_canonical_json_is_the_same_json(value: Any) -> None:
    """The canonical text has the same value, and its own canonical text is itself."""
    text = canonical_json(json.dumps(value).encode())
    assert json.loads(text, parse_int=float) == json.loads(json.dumps(value), parse_int=float)
    assert canonical_json(text) == text
    assert canonical_json(json.dumps(value, indent=3, sort_keys=True).encode()) == text


@pytest.mark.parametrize(
    "text", [b"", b"{", b"NaN", b"[Infinity]", b"1e999", b"9" * 400, b"\xff", rb'"\ud800"', b"[" * 100_000]
)
def test_what_is_no_json_is_refused(text: bytes) -> None:
    """Texts that are no JSON, or have numbers beyond a float, are errors of two kinds."""
    with pytest.raises((ValueError, RecursionError)):
        canonical_json(text)

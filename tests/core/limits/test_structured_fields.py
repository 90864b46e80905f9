"""Structured fields by the RFC, and a reader that never raises."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from decimal import Decimal

import pytest
from http_sfv.byteseq import ser_byteseq
from http_sfv.dictionary import Dictionary
from http_sfv.item import InnerList
from http_sfv.item import Item as OracleItem
from http_sfv.list import List
from http_sfv.string import ser_string
from hypothesis import given, settings
from hypothesis import strategies as st

from chainapi.core.limits.structured_fields import (
    Date,
    Item,
    Value,
    parse_dictionary,
    parse_list,
    parse_number,
)

pytestmark = pytest.mark.rule

KEYS = st.from_regex(r"[a-z*][a-z0-9_.*-]{0,8}", fullmatch=True)
PRINTABLE = st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=12)
NUMBERS = st.one_of(
    st.integers(-(10**15) + 1, 10**15 - 1).map(str),
    st.from_regex(r"-?[0-9]{1,12}\.[0-9]{1,3}", fullmatch=True),
)
TOKENS = st.from_regex(r"[A-Za-z*][A-Za-z0-9:/!#$%&'*+.^_`|~-]{0,12}", fullmatch=True)
BARE = st.one_of(
    NUMBERS,
    TOKENS,
    PRINTABLE.map(ser_string),
    st.binary(max_size=12).map(ser_byteseq),
    st.sampled_from(["?0", "?1"]),
    st.integers(0, 4_000_000_000).map(lambda moment: f"@{moment}"),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=8).map(
        lambda text: '%"' + "".join(f"%{byte:02x}" for byte in text.encode()) + '"'
    ),
)
PARAMS = st.lists(
    st.one_of(KEYS.map(lambda key: f";{key}"), st.builds("; {}={}".format, KEYS, BARE)), max_size=4
).map("".join)
ITEMS = st.builds("{}{}".format, BARE, PARAMS)
MEMBERS = st.one_of(ITEMS, st.builds("({}){}".format, st.lists(ITEMS, max_size=3).map("  ".join), PARAMS))
PAIRS = st.one_of(st.builds("{}={}".format, KEYS, MEMBERS), st.builds("{}{}".format, KEYS, PARAMS))
COMMAS = st.sampled_from([",", ", ", " ,\t"])


def joined(members: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    """Make fields of one to four members."""
    return st.builds(
        lambda comma, parts: comma.join(parts), COMMAS, st.lists(members, min_size=1, max_size=4)
    )


def plain(value: object) -> object:
    """Put a value of the oracle into the types of ours."""
    match value:
        case Decimal():
            return float(value)
        case datetime():
            return Date(value.timestamp())
        case OracleItem():
            return Item(plain_bare(value.value), plain_params(value.params))
        case InnerList():
            items = [plain(item) for item in value.data]
            return Item(tuple(item for item in items if isinstance(item, Item)), plain_params(value.params))
        case str():
            return str(value)
        case _:
            return value


def plain_bare(value: object) -> Value:
    """Put a bare value of the oracle into the types of ours."""
    bare = plain(value)
    assert isinstance(bare, bool | int | float | str | bytes)
    return bare


def plain_params(params: Mapping[str, object]) -> dict[str, Value]:
    """Put the parameters of the oracle into the types of ours."""
    return {key: plain_bare(value) for key, value in params.items()}


@settings(max_examples=40)
@given(joined(MEMBERS))
def test_list_is_read_as_the_oracle_reads_it(text: str) -> None:
    """Well-formed lists give the same values, types and parameters as http_sfv."""
    oracle = List()
    oracle.parse(text.encode())

    items = parse_list(text)

    assert items is not None
    assert list(items) == [plain(member) for member in oracle]
    assert [type(item.value) for item in items if not isinstance(item.value, tuple)] == [
        type(plain(member.value)) for member in oracle if isinstance(member, OracleItem)
    ]


@settings(max_examples=40)
@given(joined(PAIRS))
def test_dictionary_is_read_as_the_oracle_reads_it(text: str) -> None:
    """Well-formed dictionaries give the same keys, values and parameters as http_sfv."""
    oracle = Dictionary()
    oracle.parse(text.encode())

    pairs = parse_dictionary(text)

    assert pairs is not None
    assert dict(pairs) == {key: plain(member) for key, member in oracle.items()}


@given(st.one_of(st.text(), st.text('ab1-.,;= \t"\\:?@%()*\0²٣é', max_size=30)))
def test_no_text_makes_the_reader_raise(text: str) -> None:
    """The result for any text is a value or None."""
    for answer in (parse_list(text), parse_dictionary(text)):
        assert answer is None or isinstance(answer, tuple)
    number = parse_number(text)
    assert number is None or text.isascii()


MALFORMED = [
    "5x",
    "5 5",
    "1.",
    ".5",
    "+5",
    "²",
    "٣",
    "5\0",
    "9" * 5000,
    '"open',
    '"a\\b"',
    '"é"',
    ":QQ",
    ":A:",
    "?2",
    "@1.5",
    '%"%ff"',
    '%"%FF"',
    "(1 2",
    "a;",
    "a;=1",
    "a;b=",
    "a;b=;c",
    "\n5",
    "a=1",
]


def test_malformed_list_is_none() -> None:
    """One fault anywhere makes the whole list unreadable."""
    texts = [text for one in MALFORMED for text in (one, f"1, {one}", f"{one}, 1")]
    assert [text for text in texts if parse_list(text) is not None] == []


def test_malformed_dictionary_is_none() -> None:
    """One fault anywhere makes the whole dictionary unreadable."""
    texts = ["=1", "1=1", "a=", "a=1 b=2", "a=1, b=\\", 'a="', "a==1"]
    assert [text for text in texts if parse_dictionary(text) is not None] == []


def test_harmless_habits_are_understood() -> None:
    """Blanks, capitals and empty elements change nothing."""
    lists = ["a;q=1;w=2.5", " a ; q = 1 ;\tw=2.5 ", "a;Q=1;W=2.5", ",a;q=1;w=2.5", ", ,a;q=1;w=2.5, ,\t"]
    assert [text for text in lists if parse_list(text) != (Item("a", {"q": 1, "w": 2.5}),)] == []
    for text in ("a=1, b;c", "a = 1 , b ; c", "A=1,,B;C,"):
        assert parse_dictionary(text) == (("a", Item(1)), ("b", Item(True, {"c": True})))


def test_dictionary_keeps_repeated_keys() -> None:
    """A key that comes twice is given twice, in order."""
    assert parse_dictionary("a=1, a=2") == (("a", Item(1)), ("a", Item(2)))


def test_nothing_is_an_empty_list() -> None:
    """A field without members is well-formed to this reader."""
    assert parse_list("") == parse_list(" ,\t") == ()


def test_long_numbers_become_floats() -> None:
    """Numbers with more digits than the RFC has are read as far as a float goes."""
    assert parse_list("12345678901234567, 1.23456") == (Item(12345678901234567.0), Item(1.23456))


def test_padding_may_be_missing() -> None:
    """Byte sequences are read with and without their padding."""
    assert parse_list(":QQ==:, :QQ:") == (Item(b"A"), Item(b"A"))


def test_number() -> None:
    """Digits with optional sign and fraction are a number if a float can hold it."""
    numbers = {"0": 0.0, "007": 7.0, "-2.5": -2.5, "9" * 300: float("9" * 300), "9" * 400: None, "1e3": None}
    numbers |= dict.fromkeys(["", " 1", "1_000", "nan", "inf", "-", "1.", "²", "٣", "1\n"])
    assert [text for text, number in numbers.items() if parse_number(text) != number] == []

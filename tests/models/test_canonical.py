"""Canonical rows: the service's rows, without errors for any decoded page."""

from __future__ import annotations

import json
from typing import Any

import pytest
from attrs import frozen
from hypothesis import given
from hypothesis import strategies as st

from chainapi.models.canonical import CanonicalRows, canonical_rows, scan
from chainapi.models.codec import DecodedPage, PageDecoder


@frozen
class Row:
    """Model with a single field of the rows."""

    a: int | None = None


def page(rows: bytes, model: Any = None) -> DecodedPage:
    """Decode a page of these rows."""
    return PageDecoder(model, "rows").decode(b'{"rows":' + rows + b',"nextPageToken":"t"}')


def canonical(rows: bytes, model: Any = None) -> list[bytes]:
    """Return canonical JSON of the rows of a page."""
    return [*page(rows, model).canonical_rows()]


def one_by_one(body: bytes) -> list[bytes]:
    """Return canonical JSON of rows that are read by their places."""
    rows = CanonicalRows(body, "rows")
    return [CanonicalRows(body, "rows", [place])[0] for place in range(len(rows))]


@pytest.mark.parametrize("model", [None, Row])
def test_canonical_rows_are_those_of_the_answer_not_of_the_model(model: Any) -> None:
    """Keys are sorted, white space is removed, and unknown fields are kept."""
    assert canonical(b'[ {"b" : [1, {"d":2,"c":3}], "a":1}\n, {}, {"a":null} ]', model) == [
        b'{"a":1,"b":[1,{"c":3,"d":2}]}',
        b"{}",
        b'{"a":null}',
    ]


@pytest.mark.parametrize(
    "digits",
    ["0.1234567890123456789", "12345678901234567890.5", "1.0", "1", "1e3", "1e400", "-0.0", "9" * 4_300],
)
def test_numbers_keep_their_digits(digits: str) -> None:
    """Numbers of any size and precision keep all their digits."""
    assert canonical(b'[{"n":%b}]' % digits.encode(), Row) == [b'{"n":%b}' % digits.encode()]


def test_canonical_rows_of_equal_texts_are_equal() -> None:
    """Escapes and the characters they stand for are one text."""
    assert canonical(b'["\\u0041\\u00e9\\/", "A\xc3\xa9/"]') == [b'"A\xc3\xa9/"'] * 2


def test_a_page_without_rows_has_no_canonical_rows() -> None:
    """An empty list and null have no rows."""
    assert canonical(b"[]") == canonical(b"null") == []


@pytest.mark.parametrize(
    "odd", [b'{"x":%b}' % (b"9" * 4_301), b'{"x":"\xff"}', b'{"x":"\xff", "a" : 1}'], ids=ascii
)
def test_an_odd_row_is_returned_as_it_came(odd: bytes) -> None:
    """A row without a canonical form is its bytes; the other rows are canonical."""
    assert canonical(b'[{"a": 1}, %b ,{ }]' % odd, Row) == [b'{"a":1}', odd, b"{}"]


def test_values_that_differ_in_signs_alone_are_split_as_well() -> None:
    """Lone surrogates and any depth of nesting raise nothing."""
    deep = b"[" * 5_000 + b"]" * 5_000
    rows = [b'"\\ud800"', b'{"rows":["no"],"x":"],[\\""}', deep, b"1"]
    body = b'{"other":{"rows":["no"]},"list":[["no"]], "r\\u006fws" : [ %b ],"z":[1]}' % b" ,".join(rows)
    dense = [rows[0], b'{"rows":["no"],"x":"],[\\""}', deep, b"1"]
    assert canonical_rows(body, "rows") == dense == one_by_one(body)


def test_of_two_lists_of_one_name_the_last_counts_everywhere() -> None:
    """Rows and canonical JSON are from the same list."""
    both = PageDecoder(None, "rows").decode(b'{"rows":[1],"rows":[2,3]}')
    assert (both.rows, [*both.canonical_rows()]) == ([2, 3], [b"2", b"3"])
    deep = b"[" * 5_000 + b"]" * 5_000
    assert canonical_rows(b'{"rows":[1],"rows":[2,%b]}' % deep, "rows") == [b"2", deep]


def test_the_digest_is_of_the_lists_alone() -> None:
    """Digests change with a row, but not with the page token or `lastRun`."""
    bodies = [
        b'{"results":[{"timestamp":1,"value":2}],"lastRun":1,"nextPageToken":"a"}',
        b'{"lastRun":22,"nextPageToken":"bb","results":[{"timestamp":1,"value":2}]}',
        b'{"results":[{"timestamp":1,"value":3}],"lastRun":1,"nextPageToken":"a"}',
    ]
    same, moved, other = (PageDecoder(None, "results").decode(body).digest for body in bodies)
    assert same == moved != other


values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner),
    max_leaves=15,
)


@given(st.lists(values), st.sampled_from([None, 1]), st.booleans())
def test_canonical_rows_are_canonical_json(rows: list[Any], indent: int | None, escaped: bool) -> None:
    """Canonical rows are sorted, dense JSON for any notation of the input."""
    body = json.dumps({"list": [["x"]], "rows": rows}, indent=indent, ensure_ascii=escaped).encode()
    dense = [
        json.dumps(row, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode() for row in rows
    ]
    assert canonical_rows(body, "rows") == dense == one_by_one(body)


@given(st.lists(values))
def test_both_ways_to_split_agree(rows: list[Any]) -> None:
    """Rows split by signs have the bytes that were sent, and equal the rows split by a decoder."""
    body = json.dumps({"rows": rows}).encode()
    odd = body.replace(b'{"rows": ', b'{"odd": "\\ud800", "rows": ')
    assert scan(body, "rows") == ([json.dumps(row).encode() for row in rows], b'{"rows": []}')
    assert canonical_rows(odd, "rows") == canonical_rows(body, "rows")

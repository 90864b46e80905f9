"""Rows of several kinds: decoded together, as each by itself."""

from __future__ import annotations

import json
from contextlib import nullcontext
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chainapi import Invalid
from chainapi.api.catalogue import ROUTES
from chainapi.errors import DecodeError
from chainapi.models import Unknown
from chainapi.models.codec import PageDecoder
from chainapi.models.kinds import KindReader, grouped
from chainapi.models.records import AnyRecord, unnamed
from chainapi.models.rows import RowDecoder
from chainapi.models.schema import fields_of, row_classes
from chainapi.models.unions import tags_of
from tests.documents import Maker

UNIONS = list(dict.fromkeys(endpoint.rows for endpoint in ROUTES.values() if tags_of(endpoint.rows)))
NO_OBJECTS: tuple[Any, ...] = (None, 5, "x", [])
ODD: tuple[Any, ...] = (None, "null", "x", "1", 1.5, 2**65, True, {}, [], [None])


@st.composite
def mixed_rows(draw: st.DrawFn, model: Any) -> list[Any]:
    """Draw rows of a union; some have missing, odd or foreign fields, or null."""
    maker = Maker(draw(st.integers(0, 50)), whole=draw(st.booleans()))
    fields = [one for kind in row_classes(model) for one in fields_of(kind)]
    rows = list[Any]()
    for _ in range(draw(st.integers(1, 4))):
        row = maker.value(model)
        for field in draw(st.lists(st.sampled_from(fields), max_size=draw(st.sampled_from([0, 0, 0, 1, 2])))):
            row[field.wire] = draw(st.sampled_from([maker.of_type(field.type, field.name)] * 5 + [*ODD]))
            if draw(st.integers(0, 3)) == 0:
                del row[field.wire]
        if draw(st.integers(0, 9)) == 0:
            row = without_tags(model, row)
        if draw(st.integers(0, 19)) == 0:
            row["further"] = draw(st.sampled_from(ODD))
        rows.append(row)
    if draw(st.integers(0, 19)) == 0:
        rows.append(draw(st.sampled_from(NO_OBJECTS)))
    return rows


def without_tags(model: Any, row: dict[str, Any]) -> dict[str, Any]:
    """Return a row of no known kind."""
    heads = {tag.path[0] for tag in tags_of(model)}
    return {name: value for name, value in row.items() if name not in heads}


def body_of(rows: list[Any]) -> bytes:
    """Return a page with these rows."""
    return json.dumps({"rows": rows}).encode()


def alone(model: Any, row: Any) -> Any:
    """Return a row as the decoder of its kind makes it, found by the tags in their order."""
    kinds = [tag.kind for tag in tags_of(model) if tag.fits(row)]
    if not kinds and isinstance(row, dict):
        return Unknown(row)
    return RowDecoder(kinds[0] if kinds else row_classes(model)[0]).one(json.dumps(row).encode())


def all_alone(model: Any, rows: list[Any]) -> list[Any]:
    """Return each row with its further fields as the decoder of its kind makes it, or its fault."""
    made = list[Any]()
    for number, row in enumerate(rows):
        try:
            made.append(seen(alone(model, row)))
        except DecodeError as fault:
            made.append((f"$.rows[{number}]{fault.path[1:]}", fault.reason))
    return made


def seen(row: Any) -> Any:
    """Return a row with the fields that no record names; an invalid one as its fault."""
    if isinstance(row, Invalid):
        return row.error.path, row.error.reason
    return row, unnamed(row) if isinstance(row, AnyRecord) else row.extra


@given(st.sampled_from(UNIONS), st.data())
def test_rows_together_are_rows_alone(model: Any, data: st.DataObject) -> None:
    """Rows of several kinds on one page are those that the decoders of their kinds make, faults included."""
    rows = data.draw(mixed_rows(model))
    expected = all_alone(model, rows)
    decoder = PageDecoder(model, "rows", shown=lambda fault: fault)
    assert [*map(seen, decoder.decode(body_of(rows)).rows)] == expected


@given(st.sampled_from(UNIONS), st.data())
def test_the_first_fault_is_that_of_its_row(model: Any, data: st.DataObject) -> None:
    """A page with rows that do not fit has the fault of the first of them."""
    rows = data.draw(mixed_rows(model))
    faults = [one for one in all_alone(model, rows) if isinstance(one[0], str)]
    with pytest.raises(DecodeError) if faults else nullcontext() as found:
        PageDecoder(model, "rows").decode(body_of(rows))
    assert [(one.value.path, one.value.reason) for one in [found] if one is not None] == faults[:1]


@pytest.mark.parametrize("model", UNIONS, ids=lambda model: tags_of(model)[0].kind.__name__)
def test_null_is_no_tag(model: Any) -> None:
    """A row with null in each field that tells kinds apart is of no known kind."""
    tags = tags_of(model)
    row = {tag.path[0]: None for tag in tags}
    assert KindReader(tags)([json.dumps(row).encode(), b"{}"]) == [Unknown, Unknown]


def test_the_first_tag_that_fits_counts() -> None:
    """A row with the tags of several kinds is of the first one."""
    tags = tags_of(ROUTES["data.evm.transfers"].rows)
    row = json.dumps({tag.path[0]: {} for tag in reversed(tags)}).encode()
    assert KindReader(tags)([row]) == [tags[0].kind]


def test_groups_keep_their_places() -> None:
    """Rows that are made by kind come back in their order."""
    calls = []

    def make(kind: str, rows: list[int]) -> list[str]:
        calls.append((kind, rows))
        return [f"{kind}{row}" for row in rows]

    assert grouped([1, 2, 3, 4], "abba", make) == ["a1", "b2", "b3", "a4"]
    assert calls == [("a", [1, 4]), ("b", [2, 3])]
    assert grouped([], "", make) == []

"""Rows of several kinds: each is of the kind that its fields tell, in its place, as if it came alone."""

from __future__ import annotations

import json
import typing
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chainapi import Invalid, models
from chainapi.errors import DecodeError
from chainapi.models import Erc20Transfer, PChainBalances, PrimaryNetworkBalances, Transfer, Unknown
from tests.answers import decoded, refused, resource_of, rows_of
from tests.documents import UNIONS, Maker, each_kind

NO_OBJECTS: tuple[Any, ...] = (None, 5, "x", [])
ODD: tuple[Any, ...] = (None, "null", "x", "1", 1.5, 2**65, True, {}, [], [None])


@st.composite
def mixed_rows(draw: st.DrawFn, model: Any) -> list[Any]:
    """Draw rows of a union; some have missing, odd or foreign fields, or null."""
    maker = Maker(draw(st.integers(0, 50)), whole=draw(st.booleans()))
    whole = each_kind(model, Maker(1, whole=True))
    rows = list[Any]()
    for _ in range(draw(st.integers(1, 4))):
        row = maker.value(model)
        for _ in range(draw(st.sampled_from([0, 0, 0, 1, 2]))):
            other = draw(st.sampled_from([one for _, one in whole]))
            name = draw(st.sampled_from(sorted(other)))
            row[name] = draw(st.sampled_from([other[name]] * 5 + [*ODD]))
            if draw(st.integers(0, 3)) == 0:
                del row[name]
        if draw(st.integers(0, 19)) == 0:
            row["further"] = draw(st.sampled_from(ODD))
        rows.append(row)
    if draw(st.integers(0, 19)) == 0:
        rows.append(draw(st.sampled_from(NO_OBJECTS)))
    return rows


def body_of(rows: list[Any]) -> bytes:
    """Return a page with these rows."""
    return json.dumps({"rows": rows}).encode()


def alone(model: Any, rows: list[Any]) -> Iterator[Any]:
    """Yield each row as a resource, with its further fields, or its fault."""
    for number, row in enumerate(rows):
        try:
            yield seen(resource_of(json.dumps(row).encode(), model))
        except DecodeError as fault:
            yield f"$.rows[{number}]{fault.path[1:]}", fault.reason


def seen(row: Any) -> Any:
    """Return a row with the fields that no record names; an invalid one as its fault."""
    return (row.error.path, row.error.reason) if isinstance(row, Invalid) else (row, row.extra)


@settings(max_examples=60)
@given(st.sampled_from([*UNIONS.values()]), st.data())
def test_rows_together_are_rows_alone(model: Any, data: st.DataObject) -> None:
    """Rows of several kinds on one page are as each alone, faults included; the first fault is raised."""
    rows = data.draw(mixed_rows(model))
    expected = [*alone(model, rows)]
    assert [*map(seen, rows_of(body_of(rows), model, on_invalid="raw"))] == expected
    faults = [one for one in expected if isinstance(one[0], str)]
    with pytest.raises(DecodeError) if faults else nullcontext() as found:
        rows_of(body_of(rows), model)
    assert [(one.value.path, one.value.reason) for one in [found] if one is not None] == faults[:1]


def test_every_union() -> None:
    """Rows of every union have the kind of their tag and stay in their order; others are Unknown, whole."""
    failures = []
    for name, union in UNIONS.items():
        kinds, rows = zip(*(one for seed in range(6) for one in each_kind(union, Maker(seed))), strict=True)
        if {*kinds} != {*typing.get_args(union)} - {Unknown}:
            failures.append(f"{name}: kinds without a tag")
        for page in (rows, [*rows[:3], {"news": 1}, *rows[3:]]):
            made = decoded(union, *page)
            if [type(row) for row in made if row != Unknown({"news": 1})] != [*kinds]:
                failures.append(f"{name}: other kinds")
            if made.count(Unknown({"news": 1})) != len(page) - len(rows):
                failures.append(f"{name}: unknown rows")
    assert not failures


def test_a_kind_that_is_told_by_a_value_may_be_new() -> None:
    """A row with a new value, or null, in the field that tells kinds apart is Unknown and unchanged."""
    told = [("ercType", "Contract"), ("ercType", "CollectibleBalance"), ("validationStatus", "Validator")]
    for field, name in told:
        for value in ("brand new", None):
            (_, row), *_ = each_kind(UNIONS[name], Maker(1, whole=True))
            assert decoded(UNIONS[name], row | {field: value}) == [Unknown(row | {field: value})]


def test_tags_in_depth_and_tags_that_are_null() -> None:
    """A tag may be inside an object, and a null field counts as missing; the first tag that fits counts."""
    union = PrimaryNetworkBalances
    for value in ({"balances": {"unlockedUnstaked": None}}, {"balances": "none"}):
        assert decoded(union, value) == [Unknown(value)]
    row = Maker(seed=1, whole=True).record(PChainBalances)
    assert isinstance(decoded(union, row)[0], PChainBalances)
    assert decoded(Transfer, {"erc20Token": None}) == [Unknown({"erc20Token": None})]
    kinds = each_kind(Transfer, Maker(1, whole=True))
    both = {name: value for _, one in reversed(kinds) for name, value in one.items()}
    assert type(decoded(Transfer, both)[0]) is kinds[0][0]


def test_faults_in_rows_of_several_kinds() -> None:
    """A fault in a row of a known kind has its path, in a list and alone; a row is an object."""
    row = Maker(seed=1, whole=True).record(Erc20Transfer)
    for change, path in (
        ({"logIndex": "first"}, ".logIndex"),
        ({"from": 5}, ".from"),
        ({"from": {}}, ".from.address"),
    ):
        assert refused(decoded, Transfer, row, row | change).path == f"$.rows[1]{path}"
        assert refused(resource_of, json.dumps(row | change).encode(), Transfer).path == f"${path}"
    for body in (b"5", b"[]", b"null", b'"text"'):
        refused(resource_of, body, Transfer)
    kinds = [
        type(one) for one in decoded(Transfer, row, {"news": 1}, row | {"logIndex": ""}, on_invalid="raw")
    ]
    assert kinds == [Erc20Transfer, Unknown, Invalid]


def test_rows_of_unknown_kinds() -> None:
    """Unknown rows have their fields under both names; the error of a missing one has its name."""
    (row,) = decoded(models.Validator, {"validationStatus": "resting", "nodeId": "n", "from": "x"})
    assert (row.validation_status, row.node_id, row.from_) == ("resting", "n", "x")
    assert (row.raw["nodeId"], row.extra) == ("n", row.raw)
    with pytest.raises(AttributeError, match="'Unknown' has no attribute 'tx_hash'"):
        _ = row.tx_hash

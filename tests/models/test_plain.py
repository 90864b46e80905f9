"""Rows as plain values: dicts by names in Python, objects as the service sends them, and JSON."""

from __future__ import annotations

import json
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chainapi import models
from chainapi.json import default, dumps
from chainapi.models.codec import decode_resource
from chainapi.models.plain import to_wire
from chainapi.models.unions import tags_of
from tests.documents import Maker
from tests.models.test_extra import Newsmaker, body_of, records_in

MODELS = [getattr(models, name) for name in sorted({*dir(models)} - {"Invalid", "Unknown", "converter"})]
KINDS = [model for model in MODELS if not tags_of(model)]


def a_row(model: Any, seed: int, *, news: bool = False, whole: bool = False) -> Any:
    """Return a row of a model, decoded from JSON that a seed makes."""
    maker = Newsmaker(seed, whole=whole) if news else Maker(seed, whole=whole)
    return decode_resource(body_of(maker.value(model)), model)


@pytest.mark.parametrize("news", [False, True], ids=["named", "extra"])
@given(st.sampled_from(MODELS), st.integers(0, 10**6))
def test_decoding_what_a_row_writes_returns_the_row(news: bool, model: Any, seed: int) -> None:
    """A row that is written in the forms of the service and decoded again is equal, `extra` included."""
    row = a_row(model, seed, news=news)
    again = decode_resource(dumps(row), model)
    assert again == row
    assert [one.extra for one in records_in(again)] == [one.extra for one in records_in(row)]


@given(st.sampled_from(MODELS), st.integers(0, 10**6))
def test_every_encoder_writes_rows_that_decode_to_themselves(model: Any, seed: int) -> None:
    """`json.dumps` and `orjson.dumps` with the hook write rows that decode to equal rows."""
    row = a_row(model, seed)
    assert decode_resource(json.dumps(row, default=default).encode(), model) == row
    within_64_bits = all(abs(number) < 2**63 for number in _numbers(to_wire(row)) if isinstance(number, int))
    if within_64_bits:
        assert decode_resource(orjson.dumps(row, default=default), model) == row


def _numbers(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return [number for entry in value.values() for number in _numbers(entry)]
    if isinstance(value, list):
        return [number for entry in value for number in _numbers(entry)]
    return [value]

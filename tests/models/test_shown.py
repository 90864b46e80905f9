"""Descriptions of rows for people: time or key of a row, never a field that its class hides."""

from __future__ import annotations

import json
from dataclasses import field as data_field
from dataclasses import make_dataclass
from typing import Any

import attrs
import pydantic
from pydantic.dataclasses import dataclass as pydantic_dataclass

from chainapi.errors import ColumnValueError
from tests.answers import decoded, page_of, refused, table_of

SECRET = "open-sesame-123"
TOO_LARGE = 2**70


NUMBER = attrs.field(type=int, default=0)
HIDDEN: list[Any] = [attrs.field(type=str, repr=shown) for shown in (False, lambda _: "***")]
DATA: Any = make_dataclass("Data", [("secret", Any, data_field(repr=False)), ("n", int, 0)])
RAW = make_dataclass("Raw", [("raw", dict[str, Any], data_field(repr=False)), ("n", int, 0)])
CHECKED = make_dataclass("Checked", [("secret", Any, pydantic.Field(repr=False)), ("n", int, 0)])
OUTER = make_dataclass("Outer", [("inner", DATA), ("n", int, 0)])
ROWS: list[tuple[type, dict[str, Any]]] = [
    *((attrs.make_class("Attrs", {"secret": one, "n": NUMBER}), {"secret": SECRET}) for one in HIDDEN),
    *((kind, {"secret": SECRET}) for kind in (DATA, pydantic_dataclass(CHECKED))),
    (OUTER, {"inner": {"secret": SECRET}}),
    (RAW, {"raw": {"a": SECRET}}),  # as the JSON of an unknown row is named
]


def body_of(row: dict[str, Any]) -> bytes:
    """Return a page with one row."""
    return json.dumps({"rows": [row]}).encode()


def test_hidden_fields_are_not_shown() -> None:
    """The repr of a page, and the error of a value that fits no column, show no field that a class hides."""
    for kind, sent in ROWS:
        shown = repr(page_of(body_of({**sent, "n": 7}), kind))
        assert "sesame" not in shown
        assert f"1 {kind.__name__} row, " in shown
        assert kind is OUTER or " 7" in shown
        error = refused(table_of, body_of({**sent, "n": TOO_LARGE}), kind)
        assert isinstance(error, ColumnValueError)
        assert "sesame" not in str(error)
        assert f"The row is {kind.__name__}(" in error.reason
        assert f"n={TOO_LARGE}" in error.reason


def test_a_hidden_value_that_does_not_fit() -> None:
    """The error of a column does not show the value if the repr of its row hides it."""
    for shown in list[Any]([False, lambda _: "***"]):
        kind = attrs.make_class("Wrong", {"secret": attrs.field(type=int, repr=shown)})
        error = refused(table_of, body_of({"secret": TOO_LARGE}), kind)
        assert (type(error), error.path) == (ColumnValueError, "$.secret")
        assert str(TOO_LARGE) not in str(error)


def test_a_row_with_a_hidden_field_alone_has_its_class() -> None:
    """A row without a value to show is described by the name of its class."""
    only = attrs.make_class("Only", {"secret": attrs.field(type=str, repr=False)}, frozen=True)
    assert "1 Only row, Only(...)" in repr(page_of(body_of({"secret": SECRET}), only))
    assert decoded(only, {"secret": SECRET})[0].secret == SECRET

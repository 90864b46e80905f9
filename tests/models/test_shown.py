"""Descriptions of rows for people: time or key of a row, never a field that its class hides."""

from __future__ import annotations

import json
from dataclasses import dataclass
from dataclasses import field as data_field
from typing import Any

import attrs
import pydantic
from attrs import field, frozen
from pydantic.dataclasses import dataclass as pydantic_dataclass

from chainapi.errors import ColumnValueError
from tests.answers import decoded, page_of, refused, table_of

SECRET = "open-sesame-123"
TOO_LARGE = 2**70


@frozen
class Attrs:
    """An attrs class with a field that its repr hides."""

    secret: Any = field(repr=False)
    n: int = 0


@frozen
class Masked:
    """An attrs class whose repr has another text for a field."""

    secret: Any = field(repr=lambda _: "***")
    n: int = 0


@dataclass
class Data:
    """A dataclass with a field that its repr hides."""

    secret: Any = data_field(repr=False)
    n: int = 0


@pydantic_dataclass
class Checked:
    """A dataclass of Pydantic with a field that its repr hides."""

    secret: Any = pydantic.Field(repr=False)
    n: int = 0


@dataclass
class Outer:
    """A class with such a class inside."""

    inner: Data
    n: int = 0


@dataclass
class Raw:
    """A class with a field that has the name of the JSON of an unknown row."""

    raw: dict[str, Any] = data_field(repr=False)
    n: int = 0


ROWS: list[tuple[type, dict[str, Any]]] = [
    *((kind, {"secret": SECRET}) for kind in (Attrs, Masked, Data, Checked)),
    (Outer, {"inner": {"secret": SECRET}}),
    (Raw, {"raw": {"a": SECRET}}),
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
        assert kind is Outer or " 7" in shown
        error = refused(table_of, body_of({**sent, "n": TOO_LARGE}), kind)
        assert isinstance(error, ColumnValueError)
        assert "sesame" not in str(error)
        assert f"The row is {kind.__name__}(" in error.reason
        assert f"n={TOO_LARGE}" in error.reason


def test_a_hidden_value_that_does_not_fit() -> None:
    """The error of a column does not show the value if the repr of its row hides it."""
    for hidden in (attrs.field(type=int, repr=False), attrs.field(type=int, repr=lambda _: "***")):
        kind = attrs.make_class("Wrong", {"secret": hidden})
        error = refused(table_of, body_of({"secret": TOO_LARGE}), kind)
        assert (type(error), error.path) == (ColumnValueError, "$.secret")
        assert str(TOO_LARGE) not in str(error)


def test_a_row_with_a_hidden_field_alone_has_its_class() -> None:
    """A row without a value to show is described by the name of its class."""
    only = attrs.make_class("Only", {"secret": attrs.field(type=str, repr=False)}, frozen=True)
    assert "1 Only row, Only(...)" in repr(page_of(body_of({"secret": SECRET}), only))
    assert decoded(only, {"secret": SECRET})[0].secret == SECRET

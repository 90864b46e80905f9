"""Descriptions of rows for people: time or key of a row, never a field that its class hides."""

from __future__ import annotations

import json
from dataclasses import dataclass
from dataclasses import field as data_field
from typing import Any

import pydantic
import pytest
from attrs import field, frozen
from pydantic.dataclasses import dataclass as pydantic_dataclass

from chainapi.errors import ColumnValueError
from chainapi.models.codec import PageDecoder
from chainapi.models.shown import described
from chainapi.tables.codec import Codec

SECRET = "open-sesame-123"


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


HIDING = [Attrs, Masked, Data, Checked]
ROWS: list[Any] = [*(kind(SECRET, 7) for kind in HIDING), Outer(Data(SECRET), 7), Raw({"a": SECRET}, 7)]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: type(row).__name__)
def test_hidden_fields_are_not_described(row: Any) -> None:
    """The description of a page has no field that the repr of its rows hides."""
    text = described([row])
    assert "sesame" not in text
    assert text.startswith(f"1 {type(row).__name__} row, ")
    assert isinstance(row, Outer) or text.endswith(" 7")


@pytest.mark.parametrize("row", ROWS, ids=lambda row: type(row).__name__)
def test_hidden_fields_are_not_in_errors_of_columns(row: Any) -> None:
    """The error of a value that does not fit its column shows the row without what its repr hides."""
    object.__setattr__(row, "n", 2**70)
    with pytest.raises(ColumnValueError) as caught:
        Codec(type(row)).encode_lines([row])
    assert "sesame" not in str(caught.value)
    assert f"The row is {type(row).__name__}(" in caught.value.reason
    assert f"n={2**70}" in caught.value.reason


@pytest.mark.parametrize("kind", HIDING)
def test_a_hidden_value_that_does_not_fit(kind: Any) -> None:
    """The error of a column does not show the value if the repr of its row hides it."""

    class Wrong(kind):  # type: ignore[misc]
        """The class with a number as its hidden field."""

    Wrong.__annotations__ = {"secret": int}
    row = Wrong(2**70)
    with pytest.raises(ColumnValueError) as caught:
        Codec(Wrong).encode_lines([row])
    assert str(2**70) not in str(caught.value)
    assert caught.value.path == "$.secret"


def test_a_row_with_a_hidden_field_alone_has_its_class() -> None:
    """A row without a value to show is described by the name of its class."""
    body = json.dumps({"rows": [{"secret": SECRET, "n": None}]}).encode()

    @frozen
    class Only:
        """A class whose only field is hidden."""

        secret: str = field(repr=False)

    assert described(PageDecoder(Only, "rows").decode(body).rows) == "1 Only row, Only(...)"

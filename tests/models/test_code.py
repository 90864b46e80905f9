"""Code of a model that runs when a row is made: any error of it is the fault of that row."""

from __future__ import annotations

import json
from dataclasses import dataclass
from itertools import product
from typing import Any

import msgspec
import pydantic
import pytest
from attrs import field, frozen

from chainapi import Invalid
from tests.answers import LARGE, decoded, refused, resource_of, rows_of

raised: list[BaseException] = []  # that the code of each model raises for the name "odd"


def check(name: str) -> None:
    """Raise the error of a test for one name."""
    if name == "odd":
        raise raised[0]


def validator(_: Any, __: Any, name: str) -> None:
    """Check a name as attrs does."""
    check(name)


def checked(name: str) -> str:
    """Return a name, as converters do."""
    check(name)
    return name


@frozen
class Validated:
    """A class of attrs with a validator."""

    name: str = field(validator=validator)


@frozen
class Numbered:
    """The same class with a number, which may be a string."""

    name: str = field(validator=validator)
    number: int = 0


@frozen
class Aliased:
    """A class with an alias."""

    name_: str = field(validator=validator, alias="name")


@frozen
class Converted:
    """A class with a converter."""

    name: str = field(converter=checked)


@frozen
class Completed:
    """A class of attrs with a hook."""

    name: str

    def __attrs_post_init__(self) -> None:
        check(self.name)


@dataclass
class Data:
    """A dataclass with a hook."""

    name: str

    def __post_init__(self) -> None:
        check(self.name)


@dataclass
class NumberedData:
    """A dataclass with a number, which may be a string."""

    name: str
    number: int = 0

    def __post_init__(self) -> None:
        check(self.name)


class Packed(msgspec.Struct):
    """A Struct with a hook."""

    name: str

    def __post_init__(self) -> None:
        check(self.name)


class Modelled(pydantic.BaseModel):
    """A Pydantic class with a validator."""

    name: str

    @pydantic.field_validator("name")
    @classmethod
    def check_name(cls, name: str) -> str:
        """Check a name as Pydantic does."""
        return checked(name)


@frozen
class Outer:
    """A class with a class inside that has code."""

    name: str
    inner: Data | None = None


MODELS = [Validated, Numbered, Aliased, Converted, Completed, Data, NumberedData, Packed, Modelled]
ERRORS = [
    AssertionError("said so"),
    KeyError("said so"),
    AttributeError("said so"),
    ZeroDivisionError("said so"),
    StopIteration("said so"),
    ValueError("said so"),
    TypeError("said so"),
]
ROWS = [{"name": name, "number": "5", "inner": {"name": name}} for name in ("good", "odd", "fine")]


def test_any_error_is_the_fault_of_its_row() -> None:
    """An error of a validator, a hook or a converter is a DecodeError that names the row and the error."""
    for model, error, padding in product([*MODELS, Outer], ERRORS, (0, LARGE)):
        raised[:] = [error]
        fault = refused(rows_of, json.dumps({"rows": ROWS, "padding": "x" * padding}).encode(), model)
        inner = ".inner" if model is Outer else ""
        assert (fault.path.startswith(f"$.rows[1]{inner}"), fault.row) == (True, 1), model
        assert "said so" in fault.reason, model
        if not isinstance(error, ValueError | TypeError | AttributeError | AssertionError):
            assert f"the code of the model raised {type(error).__name__}" in fault.reason, model


def test_other_rows_are_made() -> None:
    """With ``on_invalid="raw"`` the row is an invalid one, and the others are objects."""
    raised[:] = [KeyError("said so")]
    for model in [*MODELS, Outer]:
        rows = decoded(model, *ROWS, on_invalid="raw")
        assert [type(row) for row in rows] == [model, Invalid, model]
        assert rows[1].raw == ROWS[1]


def test_a_resource_has_the_fault_too() -> None:
    """A single resource raises the same error, with the line of the code that raised it."""
    raised[:] = [KeyError("said so")]
    for model in MODELS:
        error = refused(resource_of, b'{"name": "odd"}', model)
        assert f"KeyError: 'said so' (line {check.__code__.co_firstlineno + 3} of test_code.py)" in str(error)


def test_what_is_no_fault_of_a_row_is_raised() -> None:
    """A lack of memory and an interrupt do not make a row invalid."""
    for other, model in product((MemoryError(), KeyboardInterrupt()), (Validated, Data, Packed, Modelled)):
        raised[:] = [other]
        with pytest.raises(type(other)):
            decoded(model, ROWS[1], on_invalid="raw")

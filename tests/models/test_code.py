"""Code of a model that runs when a row is made: any error of it is the fault of that row."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import msgspec
import pydantic
import pytest
from attrs import field, frozen

from chainapi import Invalid
from chainapi.errors import DecodeError
from chainapi.models.codec import PageDecoder, decode_resource
from chainapi.models.row_type import RowType, decoder_of
from chainapi.models.sizes import LARGE

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
    """The same class with a number, whose rows are made in two steps."""

    name: str = field(validator=validator)
    number: int = 0


@frozen
class Aliased:
    """A class that only cattrs can make."""

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
    """A dataclass, which msgspec decodes by itself."""

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


@pytest.fixture(params=ERRORS, ids=lambda error: type(error).__name__)
def error(request: pytest.FixtureRequest) -> Any:
    """Let the code of the models raise an error."""
    raised[:] = [request.param]
    return request.param


def body_of(*names: str, padding: str = "") -> bytes:
    """Return a page with a row of each name."""
    rows = [{"name": name, "number": "5", "inner": {"name": name}} for name in names]
    return json.dumps({"rows": rows, "padding": padding}).encode()


@pytest.mark.parametrize("padding", ["", "x" * LARGE], ids=["small", "large"])
@pytest.mark.parametrize("model", [*MODELS, Outer])
def test_any_error_is_the_fault_of_its_row(model: Any, padding: str, error: Exception) -> None:
    """The error of a validator, a hook or a converter is a DecodeError that names the row and the error."""
    with pytest.raises(DecodeError) as caught:
        PageDecoder(model, "rows").decode(body_of("good", "odd", "fine", padding=padding))
    assert caught.value.path.startswith("$.rows[1]")
    assert caught.value.row == 1
    assert "said so" in caught.value.reason
    if not isinstance(error, ValueError | TypeError | AttributeError | AssertionError):
        assert f"the code of the model raised {type(error).__name__}" in caught.value.reason


@pytest.mark.parametrize("model", [*MODELS, Outer])
def test_other_rows_are_made(model: Any) -> None:
    """With ``on_invalid="raw"``, the row is an invalid one, and the others are objects."""
    raised[:] = [KeyError("said so")]
    body = body_of("good", "odd", "fine")
    rows = PageDecoder(model, "rows", shown=lambda fault: fault).decode(body).rows
    assert [type(row) for row in rows] == [model, Invalid, model]
    assert rows[1].raw == json.loads(body)["rows"][1]


@pytest.mark.parametrize("model", MODELS)
def test_a_resource_has_the_fault_too(model: Any) -> None:
    """A single resource raises the same error, with the place where it was raised."""
    raised[:] = [KeyError("said so")]
    with pytest.raises(DecodeError, match=r"KeyError: 'said so' \(line \d+ of test_code\.py\)"):
        decode_resource(b'{"name": "odd"}', model)


@pytest.mark.parametrize("other", [MemoryError(), KeyboardInterrupt()], ids=repr)
@pytest.mark.parametrize("model", [Validated, Data, Packed, Modelled])
def test_what_is_no_fault_of_a_row_is_raised(model: Any, other: BaseException) -> None:
    """A lack of memory and an interrupt do not make a row invalid."""
    raised[:] = [other]
    with pytest.raises(type(other)):
        PageDecoder(model, "rows", shown=lambda fault: fault).decode(body_of("odd"))


@pytest.mark.parametrize("decode", ["one", "several"])
def test_errors_of_our_own_code_are_not_hidden(decode: str, error: Exception) -> None:
    """An error in the making of rows that no code of a model raised is not one of the response."""

    def broken(_: list[Any]) -> list[Any]:
        raise error

    decoder: Any = decoder_of(RowType(Any, broken))
    with pytest.raises(type(error), match="said so"):
        getattr(decoder, decode)(b"1" if decode == "one" else [b"1"])

"""Code of a model that runs when a row is made: any error of it is the fault of that row."""

from __future__ import annotations

import json
from dataclasses import make_dataclass
from itertools import product
from typing import Annotated, Any

import msgspec
import pydantic
import pytest
from attrs import field, make_class

from chainapi import Invalid
from tests.answers import LARGE, decoded, refused, resource_of, rows_of

raised: list[BaseException] = []  # that the code of each model raises for the name "odd"


def checked(name: str) -> str:
    """Return a name, as converters do; raise the error of a test for one name."""
    if name == "odd":
        raise raised[0]
    return name


def validator(_: Any, __: Any, name: str) -> None:
    """Check a name as attrs does."""
    checked(name)


def completed(made: Any) -> None:
    """Check the name of an object that was made."""
    checked(made.name)


VALIDATED = field(type=str, validator=validator)
ALIASED = field(type=str, validator=validator, alias="name")
NUMBER = field(type=int, default=0)  # which may be a string
HOOK = {"__post_init__": completed}
DATA: Any = make_dataclass("Data", [("name", str)], namespace=HOOK)
STRUCT = msgspec.defstruct("Packed", [("name", str)], namespace=HOOK)
PYDANTIC = pydantic.create_model("Modelled", name=Annotated[str, pydantic.AfterValidator(checked)])
MODELS: list[Any] = [
    make_class("Validated", {"name": VALIDATED}),
    make_class("Numbered", {"name": VALIDATED, "number": NUMBER}),
    make_class("Aliased", {"name_": ALIASED}),
    make_class("Converted", {"name": field(type=str, converter=checked)}),
    make_class("Completed", {"name": field(type=str), "__attrs_post_init__": completed}),
    make_dataclass("NumberedData", [("name", str), ("number", int, 0)], namespace=HOOK),
    *(DATA, STRUCT, PYDANTIC),
]
OUTER = make_class("Outer", {"name": field(type=str), "inner": field(type=DATA | None)})
KINDS_OF_ERRORS = (
    AssertionError,
    KeyError,
    AttributeError,
    ZeroDivisionError,
    StopIteration,
    ValueError,
    TypeError,
)
ROWS = [{"name": name, "number": "5", "inner": {"name": name}} for name in ("good", "odd", "fine")]


def test_any_error_is_the_fault_of_its_row() -> None:
    """An error of a validator, a hook or a converter is a DecodeError that names the row and the error."""
    for model, kind, padding in product([*MODELS, OUTER], KINDS_OF_ERRORS, (0, LARGE)):
        raised[:] = [kind("said so")]
        fault = refused(rows_of, json.dumps({"rows": ROWS, "padding": "x" * padding}).encode(), model)
        inner = ".inner" if model is OUTER else ""
        assert (fault.path.startswith(f"$.rows[1]{inner}"), fault.row) == (True, 1), model
        assert "said so" in fault.reason, model
        if not issubclass(kind, ValueError | TypeError | AttributeError | AssertionError):
            assert f"the code of the model raised {kind.__name__}" in fault.reason, model


def test_other_rows_are_made() -> None:
    """With ``on_invalid="raw"`` the row is an invalid one, and the others are objects."""
    raised[:] = [KeyError("said so")]
    for model in [*MODELS, OUTER]:
        rows = decoded(model, *ROWS, on_invalid="raw")
        assert [type(row) for row in rows] == [model, Invalid, model]
        assert rows[1].raw == ROWS[1]


def test_a_resource_has_the_fault_too() -> None:
    """A single resource raises the same error, with the line of the code that raised it."""
    raised[:] = [KeyError("said so")]
    for model in MODELS:
        error = refused(resource_of, b'{"name": "odd"}', model)
        line = checked.__code__.co_firstlineno + 3
        assert f"KeyError: 'said so' (line {line} of test_code.py)" in str(error)


def test_what_is_no_fault_of_a_row_is_raised() -> None:
    """A lack of memory and an interrupt do not make a row invalid."""
    for other, model in product((MemoryError(), KeyboardInterrupt()), (MODELS[0], DATA, STRUCT, PYDANTIC)):
        raised[:] = [other]
        with pytest.raises(type(other)):
            decoded(model, ROWS[1], on_invalid="raw")

"""Schema of models: fields and types for decoder, exports and simulator."""

from __future__ import annotations

import dataclasses
import enum
import typing
from collections import abc, deque
from collections.abc import Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from typing import Annotated, Any, Generic, Literal, NewType, TypedDict, TypeVar

import attrs
import msgspec
import pytest

from chainapi import MetricPoint, models
from chainapi.models.schema import Type, fields_of, is_amount, is_record, row_classes, type_of
from chainapi.models.timestamps import OptionalUTCDatetime, UTCDatetime

T = TypeVar("T")


class Colour(enum.Enum):
    """An enumeration of texts."""

    RED = "red"
    BLUE = "blue"


@attrs.frozen
class Tree:
    """A class that contains itself."""

    name: str
    trees: list[Tree] | None = None


@attrs.frozen
class Box(Generic[T]):
    """A generic class."""

    content: T


Height = NewType("Height", int)
MaybeHeight = NewType("MaybeHeight", int | None)  # type: ignore[valid-newtype]


@pytest.mark.parametrize(
    ("hint", "kind"),
    [
        (Any, "any"),
        (bool, "boolean"),
        (int, "integer"),
        (Height, "integer"),
        (float, "float"),
        (Decimal, "decimal"),
        (str, "text"),
        (Literal["a", 1], "literal"),
        (Colour, "enum"),
        (list[int], "list"),
        (set[int], "list"),
        (abc.MutableSequence[int], "list"),
        (tuple[int, ...], "list"),
        (tuple[int, str], "tuple"),
        (dict[str, int], "mapping"),
        (deque[int], "other"),
        (Mapping[str, int], "mapping"),
        (Tree, "record"),
        (MetricPoint, "record"),
        (int | str, "union"),
        (models.Erc20Transfer, "record"),
        (list, "other"),
        *((getattr(typing, name), "other") for name in ("List", "Set", "Sequence", "Tuple", "Dict")),
        (Box[int], "other"),
        (datetime, "other"),
        (None, "other"),
        (T, "other"),
    ],
)
def test_kinds(hint: Any, kind: str) -> None:
    """Annotations have one kind, unchanged by None, notes and aliases."""
    assert type_of(hint).kind == kind
    if hint is not None:
        assert type_of(Annotated[hint, "note"]).kind == kind
        found = type_of(Annotated[hint | None, "note"])
        assert (found.kind, found.optional, found.notes) == (kind, True, ("note",))


def test_none_and_notes() -> None:
    """None and notes are removed at any depth of unions, notes and new types."""
    assert type_of(int) == Type(int, "integer")
    assert type_of(Annotated[Annotated[int, 1] | None, 2]) == Type(int, "integer", True, (2, 1))
    assert type_of(MaybeHeight) == Type(int, "integer", True)
    union = type_of(int | str | None)
    assert union.optional
    assert union.members == (Type(int, "integer"), Type(str, "text"))
    assert type_of(int).members == ()


def test_choices() -> None:
    """Choices are the values of a literal, an enum, or a literal noted on a text."""
    assert type_of(Literal["a", "b"]).choices == ("a", "b")
    assert type_of(Colour).choices == ("red", "blue")
    noted = type_of(Annotated[str, Literal["a", "b"]] | None)  # pyright: ignore[reportOperatorIssue]
    assert (noted.kind, noted.choices) == ("text", ("a", "b"))
    assert type_of(Annotated[int, Literal[1]]).choices == ()
    assert type_of(str).choices == ()


def test_parts() -> None:
    """Parts of a type are itself and its items, values and members.

    Fields of records are no parts.
    """
    hint = dict[str, list[int | Tree]] | None
    assert [part.kind for part in type_of(hint).parts()] == ["mapping", "list", "union", "integer", "record"]
    assert type_of(hint).key == Type(str, "text")


@pytest.mark.parametrize(
    ("hint", "text"),
    [
        (Annotated[str, Literal["a"]] | None, "str | None"),  # pyright: ignore[reportOperatorIssue]
        (list[Annotated[str, Literal["a"]]] | None, "list[str] | None"),
        (dict[str, Tree], "dict[str, Tree]"),
        (Sequence[Height], "Sequence[int]"),
        (tuple[Height, str | None], "tuple[int, str | None]"),
        (int | str | None, "int | str | None"),
        (Literal["a", 1], "Literal['a', 1]"),
        (dict[str, Any], "dict[str, Any]"),
        (Box[int], str(Box[int])),
    ],
)
def test_text(hint: Any, text: str) -> None:
    """Types are written as in Python, without the known values of a text."""
    assert str(type_of(hint)) == text


def test_fields_of_attrs() -> None:
    """Fields of attrs classes have JSON names, defaults, timestamps and converters."""

    @attrs.define
    class Row:
        block_number: int
        _hidden: str = ""
        kind: str = attrs.field(default="", alias="type")
        rest: list[int] = attrs.field(factory=list[int])
        end_timestamp: int | None = None
        made: int = attrs.field(default=1, init=False)
        changed: int = attrs.field(default=1, converter=int)
        time = UTCDatetime("block_number")
        end = OptionalUTCDatetime("end_timestamp")

    Row.__annotations__ = {**Row.__annotations__, "rest": list[int]}
    fields = {field.name: field for field in fields_of(Row)}
    assert [field.wire for field in fields.values()] == [
        *("blockNumber", "hidden", "type", "rest", "endTimestamp", "made", "changed")
    ]
    assert [name for name, field in fields.items() if field.required] == ["block_number"]
    assert [name for name, field in fields.items() if field.direct] == [
        *("block_number", "rest", "end_timestamp")
    ]
    assert [name for name, field in fields.items() if field.timestamp] == ["block_number", "end_timestamp"]
    assert fields["rest"].default == attrs.Factory(list[int])
    assert fields["end_timestamp"].type == Type(int, "integer", True)


def test_fields_of_other_classes() -> None:
    """Fields of dataclasses keep their names; Structs have their encoded names."""

    @dataclasses.dataclass
    class Point:
        x_axis: int
        tags: list[str] = dataclasses.field(default_factory=list[str])
        unit: str = "m"

    class Pair(msgspec.Struct, rename="camel"):
        first_one: int
        second: float = 0.5

    point, pair = fields_of(Point), fields_of(Pair)
    assert [field.wire for field in (*point, *pair)] == ["x_axis", "tags", "unit", "firstOne", "second"]
    assert [field.required for field in (*point, *pair)] == [True, False, False, True, False]
    assert point[1].default == attrs.Factory(list[str])
    assert (point[2].default, pair[1].default) == ("m", 0.5)


def test_no_record() -> None:
    """Plain JSON, a TypedDict and an instance are no record and have no fields."""

    class Row(TypedDict):
        a: int

    for model in (None, dict, dict[str, int], int, Row, Tree("a")):
        assert not is_record(model)
        assert fields_of(model) == ()
        if not isinstance(model, Tree):
            assert row_classes(model) == ()


def test_a_generic_class() -> None:
    """A generic class with arguments has the fields of the class, with open types."""
    assert row_classes(Box[int]) == (Box,)
    assert fields_of(Box[int]) is fields_of(Box)
    assert not is_record(Box[int])
    assert [field.type.kind for field in fields_of(Box)] == ["other"]


def test_a_class_that_contains_itself() -> None:
    """A class that contains itself has finite fields: the reader decides on recursion."""
    trees = fields_of(Tree)[1].type
    assert (trees.kind, trees.optional, trees.item) == ("list", True, Type(Tree, "record"))


def test_unresolved_annotations() -> None:
    """Unresolved annotations have no type until their name is defined."""

    @attrs.define
    class Row:
        number: int
        later: Later  # type: ignore[name-defined] # noqa: F821

    assert [(field.type.kind, field.hint) for field in fields_of(Row)] == [("other", None)] * 2
    globals()["Later"] = str
    try:
        assert [field.type.kind for field in fields_of(Row)] == ["integer", "text"]
    finally:
        del globals()["Later"]


def test_row_classes() -> None:
    """Row classes of a union are its kinds, each once; a record is its own."""
    assert row_classes(MetricPoint) == (MetricPoint,)
    union = row_classes(models.PrimaryNetworkTransaction)
    assert set(union) > {models.PChainTransaction}
    assert len(set(union)) == len(union)
    assert not {models.Unknown, None} & {*union}


def test_amounts_by_name() -> None:
    """Amounts are whole numbers with the name of an amount that are no times."""

    @attrs.define
    class Row:
        fee: int
        fees: float
        value: int
        height: int
        time = UTCDatetime("value")

    assert [field.amount for field in fields_of(Row)] == [True, False, False, False]


AMOUNTS = ("value", "total_supply", "base_fee_per_gas", "token_id", "Balance", "fees_")
NUMBERS = ("fee_count", "reward_id", "height", "evaluation", "id", "balance_index")


@pytest.mark.parametrize("name", AMOUNTS + NUMBERS)
def test_names_of_amounts(name: str) -> None:
    """Names of amounts contain an amount word and end in no counter or identifier."""
    assert is_amount(name) is (name in AMOUNTS)


def test_models_of_ours_are_described_whole() -> None:
    """Models of ours have only fields of known kinds, and their schema is cached."""
    for name in models.__dir__():
        for kind in {*row_classes(getattr(models, name))} - {models.Invalid}:
            assert fields_of(kind) is fields_of(kind)
            for field in fields_of(kind):
                assert "other" not in [part.kind for part in field.type.parts()], (name, field.name)

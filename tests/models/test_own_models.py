"""Classes of a user's as models: dataclasses, TypedDicts, Structs, Pydantic classes and plain types."""

from __future__ import annotations

import enum
import json
import re
import typing
from dataclasses import dataclass, field, make_dataclass
from decimal import Decimal
from typing import Any, Generic, Literal, NotRequired, TypedDict, TypeVar

import attrs
import msgspec
import pytest
from attrs import frozen
from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel
from pydantic.dataclasses import dataclass as pydantic_dataclass

import chainapi.json
from chainapi import Invalid
from chainapi.models import MetricPoint
from chainapi.simulator import Simulator
from tests.answers import LARGE, decoded, refused, resource_of, rows_of, table_of
from tests.models.classes import KINDS, class_of, read
from tests.sessions import simulated

T = TypeVar("T")
HUGE = 10**40


@dataclass
class InnerData:
    """Part of a dataclass."""

    amount: int | None = None


class InnerTyped(TypedDict):
    """Part of a TypedDict."""

    amount: NotRequired[int | None]


class InnerStruct(msgspec.Struct):
    """Part of a Struct."""

    amount: int | None = None


class InnerPydantic(BaseModel):
    """Part of a Pydantic class."""

    amount: int | None = None


INNER: list[Any] = [InnerData, InnerTyped, InnerStruct, InnerPydantic]
MODELS = {
    kind: class_of(
        kind,
        block_number=int,
        name=str,
        parts=(list[inner], []),  # type: ignore[valid-type]
        counts=(dict[str, int], {}),
        pair=(tuple[int, str], (0, "")),
        either=(int | bool | None, None),
        text=(int | str, ""),
        price=(Decimal, Decimal(0)),
        anything=(Any, None),
    )
    for kind, inner in zip(KINDS, INNER, strict=True)
}
SENT = {
    "blockNumber": str(HUGE),
    "name": "7",
    "parts": [{"amount": "-3"}, {"amount": 4}, {"amount": None}],
    "counts": {"a": "12", "b": 13},
    "pair": ["5", "6"],
    "either": True,
    "text": "8",
    "price": "0.1234567890123456789",
    "anything": {"n": "9"},
    "unnamed": 1,
}


def test_whole_numbers_may_be_texts() -> None:
    """Whole numbers are read from numbers and from texts of any length, at all depths of any class."""
    for kind, model in MODELS.items():
        rows = decoded(model, SENT, {**SENT, "blockNumber": 1})
        assert [read(row, "block_number") for row in rows] == [HUGE, 1]
        for row in (*rows, resource_of(json.dumps(SENT).encode(), model)):
            assert type(row) is (dict if kind == "TypedDict" else model)
            assert [read(part, "amount") for part in read(row, "parts")] == [-3, 4, None]
            assert read(row, "counts") == {"a": 12, "b": 13}
            assert read(row, "pair") == (5, "6")
            assert (read(row, "name"), read(row, "either"), read(row, "text")) == ("7", True, "8")
            assert read(row, "price") == Decimal("0.1234567890123456789")
            assert read(row, "anything") == {"n": "9"}


@pydantic_dataclass(config=ConfigDict(alias_generator=to_camel))
class PydanticData:
    """A dataclass of Pydantic, whose aliases are the names in the response."""

    block_number: int
    inner_part: InnerPydantic
    price: Decimal = Decimal(0)


@dataclass
class DerivedData(PydanticData):
    """A dataclass of Python, derived from one of Pydantic."""

    more_names: list[str] = field(default_factory=list)


def test_dataclasses_of_pydantic_read_what_they_write() -> None:
    """A dataclass of Pydantic is written by its aliases, and has a column for each field."""
    price = "0.1234567890123456789"
    sent = {"blockNumber": str(HUGE), "innerPart": {"amount": "4"}, "price": price, "moreNames": ["a"]}
    for model in (PydanticData, DerivedData):
        (row,) = decoded(model, sent)
        wanted = (HUGE, InnerPydantic(amount=4), Decimal(price))
        assert (row.block_number, row.inner_part, row.price) == wanted
        written = json.loads(chainapi.json.dumps(row))
        assert written["innerPart"] == {"amount": 4}
        assert decoded(model, written) == [row]
        assert json.loads(json.dumps([row], default=chainapi.json.default)) == [written]
        names = ["block_number", "inner_part", "price", "more_names"]
        table = table_of(json.dumps({"rows": [{**sent, "blockNumber": 1, "price": "0.5"}]}).encode(), model)
        assert table.column_names == names[: len(written)]


def test_faults_of_pydantic_are_decode_errors() -> None:
    """A row that a Pydantic class refuses raises DecodeError with the path of the field."""
    model = MODELS["Pydantic class"]
    error = refused(decoded, model, SENT, {**SENT, "parts": [{}, {"amount": "many"}]})
    assert (error.path, error.row) == ("$.rows[1].parts[1].amount", 1)
    assert "valid integer" in str(error)
    body = b'{"rows": [%b, 1%b]}' % (json.dumps(SENT).encode(), b"0" * 4_300)  # digits that Pydantic refuses
    error = refused(rows_of, body, model)
    assert (error.path, error.row, "out of range" in str(error)) == ("$.rows[1]", 1, True)
    assert refused(resource_of, b'{"blockNumber": 1}', model).path == "$.name"
    assert refused(resource_of, b'{"blockNumber": ', model).malformed


def test_name_of_python_without_an_alias() -> None:
    """The error of a field that only its name keeps from being read says which name it needs."""
    for kind in KINDS:
        error = refused(decoded, class_of(kind, camel=False, block_number=int), SENT)
        assert error.path == "$.rows[0].block_number"
        assert re.search(r"missing \(.*'blockNumber'.* alias\)", str(error))


@dataclass
class Keyed:
    """A dataclass whose keys are numbers."""

    places: dict[int, str]
    count: int = 0


@frozen
class AttrsKeyed:
    """An attrs class with the same field."""

    places: dict[int, str]


class Closed(msgspec.Struct, forbid_unknown_fields=True):
    """A Struct that refuses other fields."""

    count: int


def test_wrong_keys_and_refused_fields_have_a_path() -> None:
    """The error of a key of another type, or of a field that a Struct refuses, has the path of its object."""
    keys = [{"places": {"1": "a"}}, {"places": {"x": "a"}}]
    for padding in ("", " " * LARGE):
        for model, rows, path, said in (
            (Keyed, keys, "$.rows[1].places.x", "Expected `int`, got `str`"),
            (AttrsKeyed, keys, "$.rows[1].places.x", "Expected `int`, got `str`"),
            (Closed, [{"count": 1}, {"count": 2, "other": 3}], "$.rows[1]", "Extra fields"),
        ):
            error = refused(rows_of, (json.dumps({"rows": rows}) + padding).encode(), model)
            assert (error.row, error.path, said in error.reason) == (1, path, True), model


def test_invalid_rows_of_own_classes() -> None:
    """With ``on_invalid="raw"`` a row that a class refuses is an `Invalid` among the others."""
    for model in MODELS.values():
        rows = decoded(model, SENT, {"name": 1}, SENT, on_invalid="raw")
        assert [type(row) is Invalid for row in rows] == [False, True, False]


class Cat(msgspec.Struct, tag="cat", tag_field="kind"):
    """A kind of a tagged union."""

    lives: int


class Dog(msgspec.Struct, tag="dog", tag_field="kind", array_like=False):
    """Another kind, in which the same field is a text."""

    lives: str


class Box(msgspec.Struct, Generic[T]):
    """A generic Struct, and a recursive one."""

    content: T
    count: int
    inner: Box[T] | None = None


@frozen
class Outer:
    """An attrs class with classes of other kinds inside."""

    block_number: int
    data: InnerData
    struct: InnerStruct
    typed: InnerTyped
    several: list[InnerStruct]


@frozen
class Gas:
    """An attrs class whose field has another name in JSON."""

    gas_used: int


@dataclass
class DataOfAttrs:
    """A dataclass with an attrs class."""

    gas: list[Gas]


class TypedOfAttrs(TypedDict):
    """A TypedDict with an attrs class."""

    gas: Gas


@dataclass
class Loop:
    """A dataclass that holds itself."""

    more: Loop | None = None


READ: list[tuple[Any, Any, Any]] = [
    (Cat | Dog, {"kind": "cat", "lives": "9"}, Cat(9)),
    (Cat | Dog, {"kind": "dog", "lives": "9"}, Dog("9")),
    (Box[int], {"content": "1", "count": "2"}, Box(1, 2)),
    (
        Box[str],
        {"content": "1", "count": "2", "inner": {"content": "3", "count": "4"}},
        Box("1", 2, Box("3", 4)),
    ),
    (list[InnerData], [{"amount": "1"}, {"amount": 2}], [InnerData(1), InnerData(2)]),
    (dict[str, InnerStruct], {"a": {"amount": "1"}}, {"a": InnerStruct(1)}),
    (
        tuple[InnerData, MetricPoint],
        [{"amount": "1"}, {"timestamp": "1", "value": 2}],
        (InnerData(1), MetricPoint(1, 2.0)),
    ),
    (list[InnerPydantic], [{"amount": "1"}], [InnerPydantic(amount=1)]),
    (DataOfAttrs, {"gas": [{"gasUsed": "5"}]}, DataOfAttrs([Gas(5)])),
    (TypedOfAttrs, {"gas": {"gasUsed": "5"}, "more": 1}, {"gas": Gas(5)}),
    (Loop, {"more": {"more": None}}, Loop(Loop())),
    (dict[str, int], {"a": "5"}, {"a": 5}),
    (dict[str, Gas], {"a": {"gasUsed": 5}}, {"a": Gas(5)}),
    (int, "5", 5),
    (str, "5", "5"),
    (Gas | None, None, None),
    (None, {"any": ["thing"]}, {"any": ["thing"]}),
    (Any, 5, 5),
    (
        Outer,
        {
            "blockNumber": "1",
            "data": {"amount": "2"},
            "struct": {"amount": "3"},
            "typed": {"amount": "4"},
            "several": [{"amount": "5"}],
        },
        Outer(1, InnerData(2), InnerStruct(3), {"amount": 4}, [InnerStruct(5)]),
    ),
]


def test_models_of_all_kinds_inside_of_others() -> None:
    """Plain types, mappings, unions with tags, generic and nested classes are models, in lists and alone."""
    for model, sent, made in READ:
        assert decoded(model, sent, sent) == [made, made], model
        assert resource_of(json.dumps(sent).encode(), model) == made, model
    for model, wrong, path in (
        (DataOfAttrs, {"gas": [{"gasUsed": None}]}, ".gas[0].gasUsed"),
        (Box[int], {"content": "1"}, ".count"),
        (int, "x", ""),
    ):
        assert refused(decoded, model, wrong).path == f"$.rows[0]{path}"


def test_a_number_or_a_collection() -> None:
    """A field with a whole number or a collection takes both, and the number as a string too."""
    for other, given, made in (
        (list[int], ["6", 7], [6, 7]),
        (set[int], [6, 6], {6}),
        (dict[str, int], {"a": "6"}, {"a": 6}),
    ):
        hint: Any = int | other | None
        model = attrs.make_class("Either", {"content": attrs.field(type=hint)})
        rows = decoded(model, {"content": "5"}, {"content": given}, {"content": None})
        assert rows == [model(5), model(made), model(None)]
        assert refused(decoded, model, {"content": "x"}).path == "$.rows[0].content"


def test_collections_without_the_type_of_their_entries() -> None:
    """A collection of `typing` without arguments takes any entries, as a model and in a class."""
    for name, given, made in (
        *(("List", [1, "a"], [1, "a"]), ("Tuple", [1, "a"], (1, "a")), ("Set", [1], {1})),
        *(("Sequence", [1], (1,)), ("Collection", [1], [1])),
        *(("Dict", {"a": 1}, {"a": 1}), ("Mapping", {"a": 1}, {"a": 1})),
    ):
        bare = getattr(typing, name)
        model = attrs.make_class("Row", {"content": attrs.field(type=bare)})
        assert decoded(model, {"content": given}) == [model(made)]
        assert decoded(bare, given) == [made]
        other = attrs.make_class("Row", {"content": attrs.field(type=bare), "more": attrs.field(alias="x")})
        assert [*decoded(other, {"content": given, "x": 1})[0].content] == [*made]


# Fields that a class computes


@dataclass
class Doubled:
    """A dataclass that computes a field."""

    name: str
    twice: str = field(init=False)

    def __post_init__(self) -> None:
        self.twice = self.name * 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    """A frozen dataclass that computes a field, and has a default in another."""

    count: int
    square: int = field(init=False)
    fixed: int = field(init=False, default=7)

    def __post_init__(self) -> None:
        object.__setattr__(self, "square", self.count**2)


@frozen
class DoubledAttrs:
    """An attrs class with such a class."""

    inner: Doubled | None


def test_fields_that_a_dataclass_computes() -> None:
    """A field that the constructor does not take is not read, in a Struct either."""
    name = {"name": "a", "twice": "b"}
    for model, sent, made in (
        (Doubled, {"name": "a"}, Doubled("a")),
        (Doubled, name, Doubled("a")),
        (Counted, {"count": "3", "fixed": "8"}, Counted(count=3)),
        (list[Doubled], [name], [Doubled("a")]),
        (DoubledAttrs, {"inner": name}, DoubledAttrs(Doubled("a"))),
    ):
        assert decoded(model, sent) == [made]
    outer = msgspec.defstruct("Outer", [("inner", Doubled)])
    assert decoded(outer, {"inner": name}) == [outer(Doubled("a"))]


# Listed values


class Sign(enum.StrEnum):
    """An enumeration of strings that look like other values, whose members are strings."""

    NULL = "null"
    TRUE = "true"
    ONE = "1"


class Mark(enum.Enum):
    """An enumeration of the same strings, whose members are no strings."""

    NULL = "null"
    TRUE = "true"
    ONE = "1"


@pytest.mark.parametrize("make", [attrs.make_class, make_dataclass])
@pytest.mark.parametrize("read", [Sign, Mark, str])
def test_a_listed_text_stays_a_text(make: Any, read: Any) -> None:
    """A string that a type lists is no null, no boolean and no number beside them."""
    listed: Any = Literal["null", "true", "1"] if read is str else read
    hints: dict[str, Any] = {
        "null": listed | None,
        "true": bool | listed,
        "number": int | listed,
        "ratio": float | listed,
        "nulls": list[listed | None],
        "named": dict[str, listed | None],
        "amount": int,
    }
    annotated = {name: attrs.field(type=hint) for name, hint in hints.items()}
    model = make("Row", annotated if make is attrs.make_class else [*hints.items()])
    sent = {"null": "null", "true": "true", "number": "1", "ratio": "1", "nulls": ["null", None]}
    (row,) = decoded(model, {**sent, "named": {"a": "null", "b": None}, "amount": "5"})
    found = [row.null, row.true, row.number, row.ratio, *row.nulls, *row.named.values()]
    null, true, one = map(read, ("null", "true", "1"))
    assert found == [null, true, one, one, null, None, null, None]
    assert {*map(type, found)} == {read, type(None)}
    other: dict[str, Any] = {
        "null": None,
        "true": True,
        "number": 2,
        "ratio": 1.5,
        "nulls": [],
        "named": {},
        "amount": "5",
    }
    (row,) = decoded(model, other)
    assert (row.null, row.true, row.number, row.ratio) == (None, True, 2, 1.5)


class Level(enum.Enum):
    """An enumeration of whole numbers, whose members are no numbers."""

    LOW = 1
    HIGH = 2


@pytest.mark.parametrize("make", [attrs.make_class, make_dataclass])
def test_enumerations_of_whole_numbers(make: Any) -> None:
    """A member of an enumeration of whole numbers is read at all depths; other numbers are refused."""
    hints: dict[str, Any] = {"one": Level, "many": list[Level], "maybe": Level | None, "amount": int}
    annotated = {name: attrs.field(type=hint) for name, hint in hints.items()}
    model = make("Row", annotated if make is attrs.make_class else [*hints.items()])
    sent = {"one": 1, "many": [2], "maybe": None, "amount": "5"}
    assert decoded(model, sent) == [model(Level.LOW, [Level.HIGH], None, 5)]
    assert refused(decoded, model, {**sent, "many": [2, 3]}).path == "$.rows[0].many[1]"


async def test_lists_and_resources_of_a_service() -> None:
    """Lists and resources of a session are read into each kind of class."""
    for kind in KINDS:
        model = class_of(kind, block_number=int)
        async with simulated(Simulator(rows=5)) as session:
            pages = session.data.list("/v1/chains/43114/blocks", items="blocks", model=model)
            rows = await pages.collect(limit=3)
            block = await session.data.get("/v1/chains/43114/blocks/13114002", model=model)
        assert [read(row, "block_number") for row in rows] == [13_114_004, 13_114_003, 13_114_002]
        assert block == rows[2]

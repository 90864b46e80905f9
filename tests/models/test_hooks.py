"""Models that cattrs makes: the values that msgspec makes of other models, and nothing that they refuse."""

from __future__ import annotations

import enum
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Annotated, Any, Generic, Literal, TypedDict, TypeVar

import attrs
import msgspec
import pytest
from attrs import frozen
from hypothesis import given
from hypothesis import strategies as st

from chainapi.errors import ConfigurationError, DecodeError
from chainapi.models import converter
from chainapi.models.codec import PageDecoder, decode_resource

T = TypeVar("T")


class Color(enum.Enum):
    """An enumeration of texts."""

    RED = "red"


class Size(enum.IntEnum):
    """An enumeration whose members are integers."""

    ONE = 1
    TWO = 2


class Place(enum.StrEnum):
    """An enumeration whose members are strings."""

    HERE = "here"


@frozen
class Inner:
    """An attrs class inside of others."""

    number: int


@dataclass
class Data:
    """A dataclass inside of others."""

    exact: Decimal


class Packed(msgspec.Struct):
    """A Struct inside of others."""

    exact: Decimal
    ratio: float = 0.0


TYPES: tuple[Any, ...] = (
    *(int, float, str, bool, bytes, Decimal, Any, Color, Size, Place, Packed),
    *(
        list[str],
        list[int],
        list[Decimal],
        list[Color],
        list[Inner],
        list[list[str]],
        list[Any],
        list[Packed],
    ),
    *(tuple[int, ...], tuple[int, str], set[int], frozenset[str], Sequence[str]),
    *(dict[str, int], dict[str, list[str]], dict[str, Inner], dict[str, Any]),
    *(
        Literal[1, 2],
        Literal["a"],
        Annotated[int, msgspec.Meta(ge=0)],
        Annotated[str, msgspec.Meta(max_length=2)],
    ),
)
VALUES = (
    *("null", "true", "false", "0", "1", "-5", "1.0", "1.5", "1e400", "1e20", "0.1234567890123456789"),
    *('""', '"1"', '"a"', '"abc"', '"red"', '"here"', '"aGk="', '"0.5"', '"1.0"', "9007199254740993"),
    *("[]", "[1]", '["1"]', '["abc"]', '["red"]', '[1,"a"]', '[["a"]]', '["a","b"]', "[null]", "[1.5]"),
    *("[0.1234567890123456789]", '[{"number":1}]', '[{"exact":0.1234567890123456789}]', "[true]", "[1,2,3]"),
    *(
        "{}",
        '{"a":1}',
        '{"a":"b"}',
        '{"a":["b"]}',
        '{"a":{"number":"1"}}',
        '{"number":1}',
        '{"a":0.12345678901234567}',
    ),
    *('{"exact":0.1234567890123456789,"ratio":0.12345678901234567}', '{"exact":"1","ratio":1e400}'),
)


def model_of(hint: Any, *, cattrs: bool) -> Any:
    """Return a class with a field of a type; the field beside it is one that only cattrs reads, or not."""
    beside = attrs.field(type=int, default=0, converter=int if cattrs else None)
    return attrs.make_class("Row", {"value": attrs.field(type=hint), "beside": beside}, frozen=True)


def made(model: Any, value: str) -> Any:
    """Return the type and the value that a model makes of JSON, or the path at which it refuses it."""
    try:
        row = decode_resource(f'{{"value": {value}}}'.encode(), model)
    except DecodeError as fault:
        return fault.path
    return type(row.value), list(row.value) if isinstance(row.value, tuple) else row.value


@pytest.mark.parametrize("hint", TYPES, ids=str)
def test_both_ways_make_the_same(hint: Any) -> None:
    """A class with a converter has the values of one without, and is refused where that one is."""
    with_hooks, without = (model_of(hint, cattrs=cattrs) for cattrs in (True, False))
    for value in VALUES:
        one, other = made(with_hooks, value), made(without, value)
        if hint == Sequence[str] and not isinstance(one, str):
            one, other = one[1], other[1]  # cattrs makes a tuple of it
        if isinstance(one, str) and isinstance(other, str):
            continue  # the depth at which a union is refused may differ
        assert one == other, value


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.text(max_size=3)
    | st.floats(allow_nan=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("ab"), inner, max_size=2),
    max_leaves=5,
)


@given(hint=st.sampled_from(TYPES[:-4]), value=JSON)
def test_any_json_of_both_ways(hint: Any, value: Any) -> None:
    """The same holds for any JSON."""
    text = json.dumps(value).replace("Infinity", "1e999")
    one, other = (made(model_of(hint, cattrs=cattrs), text) for cattrs in (True, False))
    assert isinstance(one, str) == isinstance(other, str)
    if not isinstance(one, str):
        assert one[1] == other[1]


class Wei(int):
    """A number with a class of its own."""


class Name(str):
    """A text with a class of its own."""

    __slots__ = ()


@frozen
class Own:
    """A class with fields of classes derived from those of JSON values."""

    wei: Wei
    name: Name


def test_classes_derived_from_numbers_and_texts() -> None:
    """A field of a class derived from int or str has a value of that class, checked as those are."""
    row = decode_resource(b'{"wei": "5", "name": "a"}', Own)
    assert (type(row.wei), type(row.name)) == (Wei, Name)
    assert row == Own(Wei(5), Name("a"))
    for wrong in (b'{"wei": 1.5, "name": "a"}', b'{"wei": true, "name": "a"}', b'{"wei": 1, "name": 2}'):
        with pytest.raises(DecodeError):
            decode_resource(wrong, Own)


class Gwei(Decimal):
    """A number with a hook."""


class Shade(enum.Enum):
    """An enumeration with a hook."""

    DARK = "dark"


@pytest.fixture
def hooks() -> Iterator[None]:
    """Register the hooks for one test."""
    converter().register_structure_hook(Gwei, lambda value, _: Gwei(value))
    converter().register_structure_hook(Shade, lambda value, _: Shade(value.lower()))
    yield
    converter.cache_clear()


@frozen
class Hooked:
    """A class whose fields have hooks, at several depths."""

    fee: Gwei
    fees: list[Gwei] = attrs.Factory(list)
    shades: dict[str, list[Shade]] = attrs.Factory(dict)


@pytest.mark.usefixtures("hooks")
def test_hooks_get_all_digits() -> None:
    """A hook gets the number of the response, as a Decimal where a float would lose digits."""
    sent = (
        b'{"fee": 0.1234567890123456789, "fees": [0.5, "12345678901234567890.5"], "shades": {"a": ["DARK"]}}'
    )
    row = decode_resource(sent, Hooked)
    assert row.fee == Gwei("0.1234567890123456789")
    assert row.fees == [Gwei("0.5"), Gwei("12345678901234567890.5")]
    assert row.shades == {"a": [Shade.DARK]}


@pytest.mark.usefixtures("hooks")
@pytest.mark.parametrize(
    ("sent", "path"),
    [
        (b'{"fee": 1, "fees": "55"}', "$.fees"),
        (b'{"fee": 1, "fees": {"1": 2}}', "$.fees"),
        (b'{"fee": 1, "fees": [1, "x"]}', "$.fees[1]"),
        (b'{"fee": 1, "shades": []}', "$.shades"),
        (b'{"fee": 1, "shades": {"a": "DARK"}}', "$.shades"),
    ],
)
def test_faults_of_hooked_fields(sent: bytes, path: str) -> None:
    """A text is no list of characters, an object no list of names: DecodeError has the path."""
    with pytest.raises(DecodeError) as caught:
        decode_resource(sent, Hooked)
    assert caught.value.path.startswith(path)


@frozen
class Fee:
    """A class whose field has another name in JSON than in Python."""

    max_fee: int = 0


@frozen
class Box(Generic[T]):
    """A generic class with such a field."""

    the_content: T


class FeeStruct(msgspec.Struct):
    """A Struct with such a class."""

    fee: Fee


class OuterStruct(msgspec.Struct):
    """A Struct with that Struct, and a whole number."""

    inner: list[FeeStruct]
    count: int = 0


@dataclass
class FeeData:
    """A dataclass with such a class."""

    fee: Fee


class FeeTyped(TypedDict):
    """A TypedDict with such a class."""

    fee: Fee


def aliased(hint: Any) -> Any:
    """Return a class of cattrs with a field of a type."""
    fields = {"fee": attrs.field(type=hint), "beside": attrs.field(type=int, default=0, alias="next")}
    return attrs.make_class("Aliased", fields, frozen=True)


@pytest.mark.parametrize(
    "model",
    [
        *map(aliased, (Fee | str, Fee | int, Fee | list[Fee], dict[str, Fee | str], Box[int] | str)),
        *(FeeStruct, OuterStruct, FeeStruct | None, list[FeeStruct], FeeStruct | str),
        *map(aliased, (FeeStruct, FeeData | str)),
        *(msgspec.defstruct("Deep", [("fee", hint)]) for hint in (FeeData, FeeTyped, Fee | str, Box[int])),
        *(tuple[FeeStruct, Packed], dataclass(type("Outer", (), {"__annotations__": {"fee": FeeStruct}}))),
    ],
    ids=str,
)
def test_an_attrs_class_that_only_msgspec_could_read(model: Any) -> None:
    """Such a model is refused before a request: msgspec would miss the fields by their names in JSON."""
    with pytest.raises(ConfigurationError, match=r"msgspec reads .*(Fee|Box).* by other rules: register one"):
        PageDecoder(model, "rows")


FEE = b'{"fee":{"maxFee":"3"}}'


@pytest.mark.parametrize("model", [FeeData, FeeTyped, *map(aliased, (Fee, Fee | None, Fee | Inner))], ids=str)
def test_an_attrs_class_in_a_class_of_another_kind(model: Any) -> None:
    """Dataclasses, TypedDicts and unions of attrs classes read its fields by their names in JSON."""
    row = decode_resource(FEE[:-1] + b',"more":1}', model)
    assert row == {"fee": Fee(3)} if model is FeeTyped else row.fee == Fee(3)


def test_a_hook_reads_such_a_model(hooks: None) -> None:
    """A hook for the Struct or the union makes its values."""
    del hooks
    converter().register_structure_hook(
        FeeStruct, lambda value, _: FeeStruct(Fee(int(value["fee"]["maxFee"])))
    )
    converter().register_structure_hook(Fee | str, lambda value, _: Fee(int(value["maxFee"])))
    assert decode_resource(FEE, FeeStruct) == FeeStruct(Fee(3))
    assert decode_resource(FEE, aliased(Fee | str)).fee == Fee(3)


class Foreign:
    """A class that needs a hook."""


@frozen
class Node:
    """A class with an alias that contains itself."""

    name: str = attrs.field(alias="title")
    child: Node | None = None


def test_null_beside_a_type_with_a_hook_or_without() -> None:
    """A type beside None is checked before a request too, unless the union has a hook."""
    assert decode_resource(b'{"title":"a","child":{"title":"b"}}', Node) == Node("a", Node("b"))
    for model in (Foreign | None, aliased(Foreign | None), aliased(list[Foreign | None])):
        with pytest.raises(ConfigurationError, match=r"Foreign'> has no structure hook: register one"):
            PageDecoder(model, "rows")
    converter.cache_clear()
    converter().register_structure_hook(Foreign | None, lambda value, _: [value])
    try:
        assert decode_resource(b'{"fee":null}', aliased(Foreign | None)).fee == [None]
    finally:
        converter.cache_clear()


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


class DoubledTyped(TypedDict):
    """A TypedDict with such a class."""

    inner: Doubled


@dataclass
class DoubledData:
    """A dataclass with such a class."""

    inner: list[Doubled]


@frozen
class DoubledAttrs:
    """An attrs class with such a class."""

    inner: Doubled | None


A = b'{"name":"a","twice":"b"}'


@pytest.mark.parametrize(
    ("model", "sent", "made"),
    [
        (Doubled, b'{"name":"a"}', Doubled("a")),
        (Doubled, A, Doubled("a")),
        (Counted, b'{"count":"3","fixed":"8"}', Counted(count=3)),
        (Doubled | None, A, Doubled("a")),
        (list[Doubled], b"[%b]" % A, [Doubled("a")]),
        (DoubledTyped, b'{"inner":%b}' % A, {"inner": Doubled("a")}),
        (DoubledData, b'{"inner":[%b]}' % A, DoubledData([Doubled("a")])),
        (DoubledAttrs, b'{"inner":%b}' % A, DoubledAttrs(Doubled("a"))),
    ],
    ids=str,
)
def test_fields_that_a_dataclass_computes(model: Any, sent: bytes, made: Any) -> None:
    """A field that the constructor of a dataclass does not take is not read from JSON."""
    assert decode_resource(sent, model) == made


def test_a_computed_field_that_only_msgspec_could_read() -> None:
    """A Struct with such a dataclass is refused before a request: msgspec would read the field."""
    with pytest.raises(ConfigurationError, match=r"msgspec reads .*Doubled.* by other rules: register one"):
        PageDecoder(msgspec.defstruct("Outer", [("inner", Doubled)]), "rows")

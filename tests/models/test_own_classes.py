"""Classes of a user's as models: types of fields, names, hooks and refusals."""

from __future__ import annotations

import enum
import json
import re
import typing
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from dataclasses import field as data_field
from datetime import UTC, datetime
from decimal import Decimal
from ipaddress import IPv4Address
from typing import Annotated, Any, Generic, Literal, NewType, TypedDict, TypeVar
from uuid import UUID

import attrs
import msgspec
import pytest
from attrs import field, frozen
from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel
from pydantic.dataclasses import dataclass as pydantic_dataclass

import chainapi.json
from chainapi import Invalid
from chainapi.errors import ConfigurationError
from chainapi.models import Erc721Token, MetricPoint, NftToken, Unknown, converter
from tests.answers import LARGE, decoded, refused, resource_of, rows_of, table_of
from tests.documents import Maker
from tests.models.classes import ALL_KINDS, KINDS, class_of, read
from tests.sessions import Answering, reaching

T = TypeVar("T")
HUGE = 10**40
EXACT = Decimal("0.1234567890123456789")


@pytest.fixture(autouse=True)
def _fresh_converter() -> Iterator[None]:
    """Keep the hooks of a test from the others."""
    converter.cache_clear()
    yield
    converter.cache_clear()


# A field of each type in each kind of class


@frozen
class Gas:
    """An attrs class whose field has another name in JSON."""

    gas_used: int


class Packed(msgspec.Struct):
    """A Struct inside of others."""

    exact: Decimal
    ratio: float = 0.0


class Open(enum.Enum):
    """Enumeration with a place for new values."""

    COIN = "coin"
    OTHER = "other"

    @classmethod
    def _missing_(cls, value: object) -> Open:
        return cls.OTHER


class Sign(enum.StrEnum):
    """Enumeration of strings that look like other values; its members are strings."""

    NULL = "null"
    TRUE = "true"
    ONE = "1"


class Wei(int):
    """A number with a class of its own."""


class Name(str):
    """A text with a class of its own."""

    __slots__ = ()


Closed = enum.Enum("Closed", {"COIN": "coin"})  # without a place for new values
Mark = enum.Enum("Mark", {"NULL": "null", "TRUE": "true", "ONE": "1"})  # whose members are no strings
Level = enum.Enum("Level", {"LOW": 1, "HIGH": 2})
Size = enum.IntEnum("Size", {"ONE": 1})
Height = NewType("Height", int)

WHOLE_NUMBERS = [0, -5, 2**53 + 1, 2**64, -(2**64), 10**18, 10**77]
NO_WHOLE_NUMBERS = [
    *("", "x", "1.0", "1.5", "1e3", " 1", "1\n", "1_000", "0x1", "007", "+1", "٣", "null", "true"),
    *("1" * 4_301, True, 1.5, None, [1]),
]
SMALL: Any = Annotated[int, msgspec.Meta(le=9)]
EITHER: Any = Annotated[int | None, msgspec.Meta(le=9)]
GAS = ({"gasUsed": "2"}, Gas(2))
NO_GAS = [({}, ".gasUsed", "missing"), ({"gasUsed": "x"}, ".gasUsed", "Expected `int`, got `str`")]
NOT_INT = [(one, "", "Expected `int`, got `") for one in (1.5, True, None)]

# A type, values of JSON with what they make, and values that are refused with their path and the reason.
FIELDS: list[tuple[Any, list[tuple[Any, Any]], list[tuple[Any, str, str]]]] = [
    (
        int,
        [(sent, number) for number in WHOLE_NUMBERS for sent in (number, str(number))],
        [(other, "", "Expected `int`, got `") for other in NO_WHOLE_NUMBERS],
    ),
    (
        float,
        [(2, 2.0), (0.5, 0.5)],
        [*((one, "", "Expected `float`, got `") for one in ("1", True)), (10**400, "", "int too large")],
    ),
    (str, [("7", "7"), ("0xab", "0xab")], [(None, "", "Expected `str"), (5, "", "got `int`")]),
    (bool, [(True, True)], [(1, "", "Expected `bool`, got `int`")]),
    (Decimal, [(str(EXACT), EXACT), (1.5, Decimal("1.5"))], [([], "", "Expected `decimal`")]),
    (bytes, [("aGk=", b"hi")], [(5, "", ""), ("a", "", "")]),
    (datetime, [("2024-01-01T00:00:00Z", datetime(2024, 1, 1, tzinfo=UTC))], [("yesterday", "", "")]),
    (UUID, [("12345678-1234-5678-1234-567812345678", UUID("12345678123456781234567812345678"))], []),
    (Any, [({"n": "9"}, {"n": "9"}), ([1], [1]), (5, 5)], []),
    (int | None, [("2", 2), (None, None)], [(one, "", "") for one in NO_WHOLE_NUMBERS if one is not None]),
    (int | str | None, [("12", "12"), (12, 12)], []),
    (int | datetime | None, [(6, 6), ("2024-01-01T00:00:00Z", datetime(2024, 1, 1, tzinfo=UTC))], []),
    (bool | int | None, [("7", 7), (True, True)], [("true", "", "")]),
    (SMALL, [("9", 9)], [(10, "", "<= 9"), ("10", "", "<= 9")]),
    (SMALL | None, [("9", 9), (None, None)], [("10", "", "<= 9")]),
    (EITHER, [("9", 9), (None, None)], []),
    (Annotated[int, "seconds"], [("8", 8)], NOT_INT),
    (Annotated[Gas | None, "a note"], [GAS, (None, None)], NO_GAS),
    (Height, [("7", Height(7))], NOT_INT),
    (Wei, [("5", Wei(5))], NOT_INT),
    (Name, [("a", Name("a"))], [(2, "", "Expected `str`")]),
    (Open, [("coin", Open.COIN), ("unheard of", Open.OTHER)], [(5, "", "")]),
    (Closed, [("coin", Closed.COIN)], [("\x1b[2J" + "x" * 5_000, "", "")]),
    (Level, [(1, Level.LOW), (2, Level.HIGH)], [(3, "", ""), (True, "", ""), (1.0, "", "")]),
    (list[Level], [([2], [Level.HIGH])], [([2, 3], "[1]", "")]),
    (Level | None, [(None, None), (1, Level.LOW)], []),
    (Size, [(1, Size.ONE)], [(2, "", ""), (True, "", "")]),
    (Literal["a", "b"], [("b", "b")], [("c", "", ""), (["a"], "", "")]),
    (Literal[1, 2], [(1, 1)], [("1", "", ""), (True, "", "")]),
    (Gas, [GAS], NO_GAS),
    (
        Packed,
        [({"exact": str(EXACT), "ratio": 2}, Packed(EXACT, 2.0))],
        [({"ratio": 1}, ".exact", "missing")],
    ),
    (
        MetricPoint,
        [({"timestamp": "1", "value": 2}, MetricPoint(1, 2.0))],
        [({"value": 1}, ".timestamp", "")],
    ),
    (list[Gas], [([GAS[0]], [GAS[1]])], [([GAS[0], {"gasUsed": []}], "[1].gasUsed", "Expected `int")]),
    (Sequence[Gas], [([GAS[0]], (GAS[1],))], [([{"gas_used": 1}], "[0].gasUsed", "missing")]),
    (
        dict[str, Gas],
        [({"a_b": GAS[0]}, {"a_b": GAS[1]})],
        [({"s": {"gasUsed": None}}, ".s.gasUsed", "`int")],
    ),
    (
        Mapping[str, Gas],
        [({"a_b": GAS[0]}, {"a_b": GAS[1]})],
        [({"s": {}}, ".s.gasUsed", "missing"), (5, "", "")],
    ),
    (dict[int, int], [({"7": "8"}, {7: 8})], [({"x": 1}, ".x", "Expected `int`, got `str`")]),
    (dict[str, int], [({"a": "12", "b": 13}, {"a": 12, "b": 13})], [({"a": 1.5}, ".a", "")]),
    (
        dict[str, list[str]],
        [({"a": ["b"]}, {"a": ["b"]})],
        [({"a": "bc"}, ".a", "Expected `array`, got `str`")],
    ),
    (tuple[int, ...], [([1, "2"], (1, 2))], [([1, "x"], "[1]", "")]),
    (tuple[Height, str], [(["5", "6"], (5, "6"))], [(["3", 4], "[1]", ""), (["3"], "", "")]),
    (set[int], [(["1", 1], {1})], [("1", "", "Expected `array`, got `str`")]),
    (frozenset[str], [(["a"], frozenset("a"))], [("a", "", "Expected `array`, got `str`")]),
    (deque[int], [(["1", 2], deque([1, 2]))], [([None], "[0]", "")]),  # which msgspec does not know
    (list[int], [(["1", 2], [1, 2])], [("12", "", "Expected `array`, got `str`"), ([True], "[0]", "")]),
    (list[list[str]], [([["a"]], [["a"]])], [(["a"], "[0]", "Expected `array`, got `str`")]),
    (list[Decimal], [(["0.5", 1], [Decimal("0.5"), Decimal(1)])], [(["NaN"], "[0]", "")]),
    *(  # a number or a collection
        (int | other | None, [("5", 5), (given, made), (None, None)], [("x", "", "")])
        for other, given, made in list[tuple[Any, Any, Any]](
            [(list[int], ["6", 7], [6, 7]), (set[int], [6, 6], {6}), (dict[str, int], {"a": "6"}, {"a": 6})]
        )
    ),
    *(  # collections of `typing` without the type of their entries
        (getattr(typing, name), [(given, made)], [])
        for name, given, made in (
            *(("List", [1, "a"], [1, "a"]), ("Tuple", [1, "a"], (1, "a")), ("Set", [1], {1})),
            *(("Sequence", [1], (1,)), ("Collection", [1], [1])),
            *(("Dict", {"a": 1}, {"a": 1}), ("Mapping", {"a": 1}, {"a": 1})),
        )
    ),
    *(  # a text that a type lists is no null, no boolean and no number beside them
        (form, [(text, make(text)), (other, other)], [])
        for listed, make in list[tuple[Any, Any]](
            [(Sign, Sign), (Mark, Mark), (Literal["null", "true", "1"], str)]
        )
        for form, text, other in list[tuple[Any, str, Any]](
            [
                *((listed | None, "null", None), (bool | listed, "true", True)),
                *((int | listed, "1", 2), (float | listed, "1", 1.5)),
            ]
        )
    ),
    (list[Sign | None], [(["null", None], [Sign.NULL, None])], []),
    (dict[str, Mark | None], [({"a": "null", "b": None}, {"a": Mark.NULL, "b": None})], []),
    (
        NftToken,
        [({"ercType": "ERC-9"}, Unknown({"ercType": "ERC-9"}))],
        [
            (5, "", "Expected `object`, got `int`"),
            ({**Maker(1, whole=True).record(Erc721Token), "name": 5}, ".name", "Expected `str`, got `int`"),
        ],
    ),
]
# A Struct is checked by msgspec, too: it makes a list of a sequence, and has other rules for the rest.
NOT_IN_STRUCTS: tuple[Any, ...] = (Sequence[Gas], typing.Sequence, SMALL, SMALL | None, EITHER)
NOT_IN_STRUCTS += (NftToken,)
# Further values of each type: what a class makes of them, each kind does.
VALUES = [
    *("null", "true", "0", "1", "-5", "1.0", "1.5", "1e400", "1e20", "0.1234567890123456789"),
    *('""', '"1"', '"a"', '"abc"', '"red"', '"aGk="', '"0.5"', '"1.0"', "9007199254740993"),
    *("[]", "[1]", '["1"]', '["abc"]', '["red"]', '[1,"a"]', '[["a"]]', "[null]", "[1.5]", "[true]"),
    *("[0.1234567890123456789]", '[{"gasUsed":1}]', '[{"exact":0.1234567890123456789}]', "{}", '{"a":1}'),
    *('{"a":"b"}', '{"a":["b"]}', '{"a":{"gasUsed":"1"}}', '{"gasUsed":1}', '{"a":0.12345678901234567}'),
    *('{"exact":0.1234567890123456789,"ratio":0.5}', '{"exact":"1","ratio":1e400}'),
]


def made_of(model: Any, values: Sequence[str]) -> list[tuple[Any, str]]:
    """Return type and repr of a field for each value; Invalid and a path for a fault."""
    body = f'{{"rows":[{",".join(f"""{{"myField":{value}}}""" for value in values)}]}}'
    rows = rows_of(body.encode(), model, on_invalid="raw")
    return [
        (Invalid, row.error.path) if isinstance(row, Invalid) else shown(read(row, "my_field"))
        for row in rows
    ]


def shown(value: Any) -> tuple[Any, str]:
    """Return what tells 1, True, 1.0 and the members of enumerations apart."""
    return type(value), repr(value)


@pytest.mark.parametrize(("hint", "taken", "wrong"), FIELDS)
def test_a_field_of_each_type_in_each_kind_of_class(hint: Any, taken: Any, wrong: Any) -> None:
    """A field takes the values of its type and no others, in each kind of class."""
    values = [*map(json.dumps, [sent for sent, _ in taken] + [sent for sent, *_ in wrong])]
    values += VALUES
    wanted = [shown(made) for _, made in taken]
    wanted += [(Invalid, f"$.rows[{number}].myField{one[1]}") for number, one in enumerate(wrong, len(taken))]
    others: Any = None
    for kind in KINDS:
        if kind == "Struct" and hint in NOT_IN_STRUCTS:
            continue
        model = class_of(kind, my_field=hint)
        found = made_of(model, values)
        assert found[: len(wanted)] == wanted, kind
        others = others or found
        assert found == others, kind
        for sent, path, reason in wrong:
            error = refused(resource_of, json.dumps({"myField": sent}).encode(), model)
            assert (error.path, reason in error.reason) == (f"$.myField{path}", True), (kind, sent)


@pytest.mark.parametrize(("hint", "taken", "wrong"), FIELDS)
def test_a_type_as_a_model(hint: Any, taken: Any, wrong: Any) -> None:
    """A type of a field is a model too, in lists and alone, and refuses the same values."""
    sent = [json.dumps(one) for one, _ in taken]
    rows = rows_of(f'{{"rows":[{",".join(sent)}]}}'.encode(), hint)
    assert [*map(shown, rows)] == [shown(made) for _, made in taken]
    assert [shown(resource_of(one.encode(), hint)) for one in sent] == [*map(shown, rows)]
    for one, *_ in wrong if hint is not bool else ():  # a boolean of its own may be sent as a number
        assert refused(decoded, hint, one).row == 0, one


@pytest.mark.parametrize("kind", ALL_KINDS)
def test_a_class_of_many_fields(kind: str) -> None:
    """A class of any kind is read at all depths, with defaults for missing fields."""
    inner = class_of(kind, amount=(int | None, None))
    model = class_of(
        kind,
        block_number=int,
        parts=(list[inner], []),  # type: ignore[valid-type]
        counts=(dict[str, int], {}),
        either=(int | bool | None, None),
        text=(int | str, ""),
        price=(Decimal, Decimal(0)),
        anything=(Any, None),
    )
    sent: dict[str, Any] = {
        "blockNumber": str(HUGE),
        "parts": [{"amount": "-3"}, {"amount": None}, {}],
        "counts": {"a": "12"},
    }
    sent |= {"either": True, "text": "8", "price": str(EXACT), "anything": {"n": "9"}, "unnamed": 1}
    rows = decoded(
        model,
        sent,
        {"blockNumber": 1},
        {"text": 1},
        {"blockNumber": 1, "parts": [{}, {"amount": "x"}]},
        on_invalid="raw",
    )
    assert [type(row) for row in rows[:2]] == [dict if kind == "TypedDict" else model] * 2
    for row in (rows[0], resource_of(json.dumps(sent).encode(), model)):
        assert read(row, "block_number") == HUGE
        amounts = [None if part == {} else read(part, "amount") for part in read(row, "parts")]
        assert (amounts, read(row, "counts")) == ([-3, None, None], {"a": 12})
        assert (read(row, "either"), read(row, "text"), read(row, "price")) == (True, "8", EXACT)
        assert read(row, "anything") == {"n": "9"}
    if kind != "TypedDict":
        defaults = [
            read(rows[1], name) for name in ("parts", "counts", "either", "text", "price", "anything")
        ]
        assert defaults == [[], {}, None, "", 0, None]
    assert [row.error.path for row in rows[2:]] == ["$.rows[2].blockNumber", "$.rows[3].parts[1].amount"]
    assert refused(resource_of, b'{"text": 1}', model).path == "$.blockNumber"
    assert refused(resource_of, b'{"blockNumber": ', model).malformed
    for other in list[Any]([None, 5, "x", []]):
        assert refused(decoded, model, {"blockNumber": 1}, other).path == "$.rows[1]"


def test_name_of_python_without_an_alias() -> None:
    """The error of a field in Python's style says which name it needs."""
    for kind in ALL_KINDS[2:]:
        error = refused(decoded, class_of(kind, camel=False, block_number=int), {"blockNumber": 1})
        assert error.path == "$.rows[0].block_number"
        assert re.search(r"missing \(.*'blockNumber'.* alias\)", str(error))


# Names and fields


@frozen
class Odd:
    """A model with a field of each kind of name, and one that is not read."""

    weird: int = field(alias="other_name")
    _hidden_part: int
    gas_total: int = field(converter=int)
    block_number: int = 0
    blockNumber: int = 0  # noqa: N815 - as on the wire
    from_: str = ""
    block_height: int = None  # type: ignore[assignment] # a default of another type
    later: int = field(init=False, default=9)


def test_names_of_attrs_classes() -> None:
    """An alias is the exact name in JSON; other names are in camel case."""
    row: dict[str, Any] = {"other_name": 1, "hiddenPart": "2", "gasTotal": "3"}
    assert decoded(Odd, row | {"later": 5}, row | {"blockNumber": 5, "from": "0x1"}) == [
        Odd(1, 2, 3),
        Odd(1, 2, 3, 5, 5, "0x1"),
    ]
    for change, path, reason in list[tuple[dict[str, Any], str, str]](
        [
            ({"other_name": ...}, "other_name", "missing"),
            ({"hiddenPart": None}, "hiddenPart", "Expected `int`, got `NoneType`"),
            ({"gasTotal": 1.5}, "gasTotal", "Expected `int`, got `float`"),
        ]
    ):
        wrong = {name: value for name, value in (row | change).items() if value is not ...}
        error = refused(decoded, Odd, row, wrong)
        assert (error.path, reason in error.reason) == (f"$.rows[1].{path}", True)
    copied = attrs.Factory(lambda made: [made.a_b], takes_self=True)
    fields = {"a_b": field(type=int), "copied": field(type=list[int], default=copied)}
    assert decoded(attrs.make_class("Made", fields), {"aB": "5"})[0].copied == [5]
    untyped = attrs.make_class("Old", ["a", "b_c"])
    assert decoded(untyped, {"a": 1, "bC": [2]}) == [untyped(1, [2])]


@dataclass
class Doubled:
    """A dataclass with two fields that are not read, one of them computed."""

    name: str
    twice: str = data_field(init=False)
    fixed: int = data_field(init=False, default=7)

    def __post_init__(self) -> None:
        self.twice = self.name * 2


def test_fields_that_a_dataclass_computes() -> None:
    """A field that the constructor does not take is not read, at any depth."""
    sent, made = {"name": "a", "twice": "b", "fixed": 8}, Doubled("a")
    assert decoded(Doubled, {"name": "a"}, sent) == [made, made]
    assert decoded(list[Doubled], [sent]) == [[made]]
    for kind in ("attrs class", "Struct"):
        outer = class_of(kind, inner=Doubled | None)
        assert decoded(outer, {"inner": sent}) == [outer(made)]


# Models of other kinds


class Cat(msgspec.Struct, tag="cat", tag_field="kind"):
    """A kind of a tagged union."""

    lives: int


class Dog(msgspec.Struct, tag="dog", tag_field="kind"):
    """Another kind, in which the same field is a text."""

    lives: str


class Box(msgspec.Struct, Generic[T]):
    """A generic Struct, and a recursive one."""

    content: T
    inner: Box[T] | None = None


@frozen
class AttrsBox(Generic[T]):
    """A generic attrs class."""

    my_item: T


@frozen
class Tree:
    """A model that contains itself."""

    node_name: str
    child_nodes: list[Tree] = field(factory=list)


@dataclass
class Loop:
    """A dataclass that holds itself."""

    more: Loop | None = None


class TypedOfAttrs(TypedDict):
    """A TypedDict with an attrs class."""

    gas: Gas


class Part(BaseModel):
    """A Pydantic class."""

    amount: int | None = None


READ: list[tuple[Any, Any, Any]] = [
    (Cat | Dog, {"kind": "cat", "lives": "9"}, Cat(9)),
    (Cat | Dog, {"kind": "dog", "lives": "9"}, Dog("9")),
    (Box[int], {"content": "1"}, Box(1)),
    (Box[str], {"content": "1", "inner": {"content": "3"}}, Box("1", Box("3"))),
    (AttrsBox[int], {"myItem": "5"}, AttrsBox(5)),
    (Tree, {"nodeName": "a", "childNodes": [{"nodeName": "b"}]}, Tree("a", [Tree("b")])),
    (Loop, {"more": {"more": None}}, Loop(Loop())),
    (TypedOfAttrs, {"gas": GAS[0], "more": 1}, {"gas": GAS[1]}),
    (list[Part], [{"amount": "1"}], [Part(amount=1)]),
    (dict[str, Packed], {"a": {"exact": "1"}}, {"a": Packed(Decimal(1))}),
    (tuple[Gas, MetricPoint], [GAS[0], {"timestamp": "1", "value": 2}], (GAS[1], MetricPoint(1, 2.0))),
    (None, {"any": ["thing"]}, {"any": ["thing"]}),
]
FAULTS: list[tuple[Any, Any, str]] = [
    (Tree, {"nodeName": "a", "childNodes": [{"nodeName": 5}]}, ".childNodes[0].nodeName"),
    (AttrsBox[int], {"myItem": "x"}, ".myItem"),
    (Box[int], {"inner": {"content": 1}}, ".content"),
    (TypedOfAttrs, {"gas": {"gasUsed": None}}, ".gas.gasUsed"),
]


def test_models_of_all_kinds_inside_of_others() -> None:
    """Plain types, unions with tags, generic and recursive classes are models."""
    for model, sent, made in READ:
        assert decoded(model, sent, sent) == [made, made], model
        assert resource_of(json.dumps(sent).encode(), model) == made, model
    for model, wrong, path in FAULTS:
        assert refused(decoded, model, wrong).path == f"$.rows[0]{path}"


def test_wrong_keys_and_refused_fields_have_a_path() -> None:
    """The error of a key of another type, or of a refused field, has its path."""
    closed = msgspec.defstruct("Closed", [("count", int)], forbid_unknown_fields=True)
    keys = [{"places": {"1": "a"}}, {"places": {"x": "a"}}]
    extra = [{"count": 1}, {"count": 2, "other": 3}]
    cases = [(class_of(kind, places=dict[int, str]), keys, ".places.x", "`int`, got `str`") for kind in KINDS]
    for padding in ("", " " * LARGE):
        for model, rows, path, said in [*cases, (closed, extra, "", "Extra fields")]:
            error = refused(rows_of, (json.dumps({"rows": rows}) + padding).encode(), model)
            assert (error.row, error.path, said in error.reason) == (1, f"$.rows[1]{path}", True), model


@pydantic_dataclass(config=ConfigDict(alias_generator=to_camel))
class PydanticData:
    """A dataclass of Pydantic, whose aliases are the names in the response."""

    block_number: int
    inner_part: Part
    price: Decimal = Decimal(0)


@dataclass
class DerivedData(PydanticData):
    """A dataclass of Python, derived from one of Pydantic."""

    more_names: list[str] = data_field(default_factory=list)


def test_dataclasses_of_pydantic_read_what_they_write() -> None:
    """A dataclass of Pydantic is written by its aliases, with a column per field."""
    sent = {"blockNumber": str(HUGE), "innerPart": {"amount": "4"}, "price": str(EXACT), "moreNames": ["a"]}
    for model in (PydanticData, DerivedData):
        (row,) = decoded(model, sent)
        assert (row.block_number, row.inner_part, row.price) == (HUGE, Part(amount=4), EXACT)
        written = json.loads(chainapi.json.dumps(row))
        assert written["innerPart"] == {"amount": 4}
        assert decoded(model, written) == [row]
        assert json.loads(json.dumps([row], default=chainapi.json.default)) == [written]
        names = ["block_number", "inner_part", "price", "more_names"]
        table = table_of(json.dumps({"rows": [{**sent, "blockNumber": 1, "price": "0.5"}]}).encode(), model)
        assert table.column_names == names[: len(written)]


def test_faults_of_pydantic_are_decode_errors() -> None:
    """A row that Pydantic refuses raises DecodeError with its text and place."""
    good = b'{"amount": 1}'
    error = refused(rows_of, b'{"rows": [%b, {"amount": "many"}]}' % good, Part)
    assert (error.path, error.row, "valid integer" in str(error)) == ("$.rows[1].amount", 1, True)
    body = b'{"rows": [%b, 1%b]}' % (good, b"0" * 4_300)  # digits that Pydantic refuses
    error = refused(rows_of, body, Part)
    assert (error.path, error.row, "out of range" in str(error)) == ("$.rows[1]", 1, True)


# Hooks, and what is refused before a request


class Gwei(Decimal):
    """A number with a hook."""


def test_hooks_get_plain_values() -> None:
    """A hook gets the plain value of its field, with all digits."""
    converter().register_structure_hook(Gwei, lambda value, _: Gwei(value))
    converter().register_structure_hook(Closed, lambda value, _: Closed(value.lower()))
    model = class_of("attrs class", fee=Gwei, fees=(list[Gwei], []), kinds=(dict[str, list[Closed]], {}))
    sent = b'"fees": [0.5, "12345678901234567890.5"], "kinds": {"a": ["COIN"]}'
    row = resource_of(b'{"fee": %b, %b}' % (str(EXACT).encode(), sent), model)
    assert row == model(Gwei(EXACT), [Gwei("0.5"), Gwei("12345678901234567890.5")], {"a": [Closed.COIN]})
    for wrong, path in (
        (b'"fees": "55"', "$.fees"),
        (b'"fees": {"1": 2}', "$.fees"),
        (b'"fees": [1, "x"]', "$.fees[1]"),
        (b'"kinds": []', "$.kinds"),
        (b'"kinds": {"a": "COIN"}', "$.kinds"),
    ):
        assert refused(resource_of, b'{"fee": 1, %b}' % wrong, model).path.startswith(path), wrong


def test_hooks_replace_the_reading_of_any_type() -> None:
    """A hook reads a known type, a model or a whole number, wherever it occurs."""
    mined = class_of("attrs class", mined_at=datetime, gas=(Gas | None, None))
    converter().register_structure_hook(datetime, lambda value, _: datetime.fromtimestamp(value, UTC))
    converter().register_structure_hook(Gas, lambda value, _: Gas(int(value.removesuffix(" wei"))))
    assert decoded(mined, {"minedAt": 0, "gas": "5 wei"}) == [mined(datetime(1970, 1, 1, tzinfo=UTC), Gas(5))]
    assert decoded(Gas, "6 wei") == [Gas(6)]
    for wrong in ("x wei", 5):
        assert refused(decoded, Gas, wrong).path == "$.rows[0]"
    converter.cache_clear()
    converter().register_structure_hook(int, lambda value, _: int(value, 16))
    hexadecimal = class_of("attrs class", number=int)
    assert decoded(hexadecimal, {"number": "0xff"}) == [hexadecimal(255)]


@frozen
class Host:
    """Model with a type that needs a hook."""

    ip_address: IPv4Address


class GasStruct(msgspec.Struct):
    """A Struct with a class whose field has another name in JSON than in Python."""

    gas: Gas


class Plain:
    """Class that no decoder can construct."""


@frozen
class Undefined:
    """A model with an unresolvable annotation."""

    gas: Nowhere  # type: ignore[name-defined]  # noqa: F821  # pyright: ignore[reportUndefinedVariable]


def aliased(hint: Any) -> Any:
    """Return a class with an alias, and with a field of a type."""
    fields = {"fee": field(type=hint), "beside": field(type=int, default=0, alias="next")}
    return attrs.make_class("Aliased", fields, frozen=True)


NO_MODELS: list[tuple[Any, str]] = [
    *((one, "^model=") for one in [Plain, object, 5, "x", [], {}, Plain(), list[Plain], Undefined]),
    *((model, r"IPv4Address.*no structure hook: register one") for model in (Host, aliased(IPv4Address))),
    (aliased(Plain | None), r"Plain'> has no structure hook: register one"),
    (class_of("Struct", weight=enum.Enum("Weight", {"MOST": 2**70})), "cannot be made from JSON"),
]


async def test_what_is_no_model_is_refused() -> None:
    """A type that is no model, or needs a hook, is refused before a request."""
    for model, said in NO_MODELS:
        transport = Answering()
        async with reaching(transport) as session:
            with pytest.raises(ConfigurationError, match=said):
                await session.data.list("/v1/x", items="rows", model=model).collect()
            with pytest.raises(ConfigurationError, match=said):
                await session.data.get("/v1/x", model=model)
        assert transport.requests == [], model


def test_a_hook_makes_such_a_model() -> None:
    """With a hook for the type, the Struct or the union, the model is read."""
    register = converter().register_structure_hook
    register(IPv4Address, lambda value, _: IPv4Address(value))
    register(GasStruct, lambda value, _: GasStruct(Gas(int(value["gas"]["gasUsed"]))))
    register(Gas | str, lambda value, _: Gas(int(value["gasUsed"])))
    register(Plain | None, lambda value, _: [value])
    assert decoded(Host, {"ipAddress": "10.0.0.1"}) == [Host(IPv4Address("10.0.0.1"))]
    error = refused(decoded, Host, {"ipAddress": "10.0.0.1"}, {"ipAddress": "10.0.0.256"})
    assert error.path == "$.rows[1].ipAddress"
    assert "not permitted" in error.reason
    assert decoded(GasStruct, {"gas": GAS[0]}) == [GasStruct(GAS[1])]
    assert decoded(aliased(Gas | str), {"fee": GAS[0]})[0].fee == GAS[1]
    assert decoded(aliased(Plain | None), {"fee": None})[0].fee == [None]

"""attrs classes of a user's as models: names, types, converters, aliases and hooks."""

from __future__ import annotations

import enum
import json
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from ipaddress import IPv4Address
from typing import Annotated, Any, Generic, Literal, NewType, TypeVar
from uuid import UUID

import attrs
import msgspec
import pytest
from attrs import field, frozen

from chainapi import Invalid
from chainapi.errors import ConfigurationError
from chainapi.models import Erc721Token, NftToken, Unknown, converter
from tests.answers import decoded, refused, resource_of, rows_of
from tests.documents import Maker
from tests.models.classes import KINDS, class_of, read
from tests.sessions import Answering, reaching

T = TypeVar("T")


@pytest.fixture(autouse=True)
def _fresh_converter() -> Iterator[None]:
    """Keep the hooks of a test from the others."""
    converter.cache_clear()
    yield
    converter.cache_clear()


class Kind(enum.Enum):
    """Enumeration of a user's with a place for new values."""

    COIN = "coin"
    OTHER = "other"

    @classmethod
    def _missing_(cls, value: object) -> Kind:
        return cls.OTHER


class Closed(enum.Enum):
    """Enumeration without a place for new values."""

    COIN = "coin"


@frozen
class Gas:
    """A whole number with a name of two words."""

    gas_used: int


@frozen
class Block:
    """A model with a field of nearly every type."""

    tx_count: int
    block_hash: str = ""
    base_fee_per_gas: int | None = None
    price: Decimal | None = None
    mined_at: datetime | None = None
    gas: Gas | None = None
    gas_list: list[Gas] = field(factory=list)
    gas_sequence: Sequence[Gas] = field(factory=list)
    gas_by_name: Mapping[str, Gas] = field(factory=dict)
    by_number: dict[int, int] = field(factory=dict)
    pair: tuple[int, ...] = ()
    kind: Kind = Kind.COIN
    number_or_text: int | str | None = None
    number_or_time: int | datetime | None = None
    truth_or_number: bool | int | None = None
    small: Annotated[int, msgspec.Meta(le=9)] = 0
    gas_annotated: Annotated[Gas | None, "a note"] = None
    mode: Literal["a", "b"] = "a"
    uuid: UUID | None = None
    anything: Any = None
    blockNumber: int = 0  # noqa: N815 - as on the wire
    from_: str = ""


@frozen
class Converted:
    """A model with a converter."""

    gas_used: int = field(converter=int)


@frozen
class Odd:
    """A model with aliases, a private name, a converter and a field that is not read."""

    weird: int = field(alias="other_name")
    _hidden_part: int
    gas_total: int = field(converter=int)
    ratio: float = 1.0
    label: str = ""
    flag: bool = False
    mined_at: datetime | None = None
    gas_list: list[Gas] = field(factory=list)
    gas_by_name: dict[str, Gas] = field(factory=dict)
    later: int = field(init=False, default=9)


ODD: dict[str, Any] = {"other_name": 1, "hiddenPart": "2", "gasTotal": "3"}

EVERYTHING: dict[str, tuple[Any, Any]] = {  # field: JSON, value
    "tx_count": (5, 5),
    "block_hash": ("0xab", "0xab"),
    "base_fee_per_gas": (str(2**128), 2**128),
    "price": ("42.42", Decimal("42.42")),
    "mined_at": ("2024-01-01T00:00:00Z", datetime(2024, 1, 1, tzinfo=UTC)),
    "gas": ({"gasUsed": 1}, Gas(1)),
    "gas_list": ([{"gasUsed": "2"}], [Gas(2)]),
    "gas_sequence": ([{"gasUsed": 3}], (Gas(3),)),
    "gas_by_name": ({"a_b": {"gasUsed": 4}}, {"a_b": Gas(4)}),
    "by_number": ({"7": "8"}, {7: 8}),
    "pair": ([1, "2"], (1, 2)),
    "kind": ("unheard of", Kind.OTHER),
    "number_or_text": ("12", "12"),
    "number_or_time": (6, 6),
    "truth_or_number": ("7", 7),
    "small": (9, 9),
    "gas_annotated": ({"gasUsed": 5}, Gas(5)),
    "mode": ("b", "b"),
    "uuid": ("12345678-1234-5678-1234-567812345678", UUID("12345678-1234-5678-1234-567812345678")),
    "anything": ({"a": [1]}, {"a": [1]}),
    "blockNumber": ("77", 77),
    "from_": ("0x1", "0x1"),
}


def in_json(name: str) -> str:
    """Return the name of a field in camel case."""
    first, *words = name.split("_")
    return first + "".join(word.capitalize() for word in words)


def test_an_attrs_class_of_everything() -> None:
    """Each field is read from its name in camel case, in any type; missing fields take their defaults."""
    sent = {in_json(name): value for name, (value, _) in EVERYTHING.items()} | {"unknown": "ignored"}
    made = Block(**{name: value for name, (_, value) in EVERYTHING.items()})
    assert decoded(Block, sent, {"txCount": 0}) == [made, Block(0)]
    assert resource_of(json.dumps([sent]).encode(), list[Block]) == [made]


def test_converters_aliases_and_private_names() -> None:
    """Converters run, an alias is the exact name in JSON, and private names lose underscores."""
    row = ODD | {"ratio": 2, "minedAt": "2024-01-01T00:00:00Z", "gasList": [{"gasUsed": "7"}], "new": 1}
    wanted = Odd(1, 2, 3, 2.0, mined_at=datetime(2024, 1, 1, tzinfo=UTC), gas_list=[Gas(7)])
    assert decoded(Odd, row | {"later": 5}) == [wanted]


WHOLE_NUMBERS = [0, -5, 2**53 + 1, 2**64, -(2**64), 10**18, 10**77]
NO_WHOLE_NUMBERS = [
    *("", "x", "1.0", "1.5", "1e3", " 1", "1\n", "1_000", "0x1", "007", "+1", "٣", "null", "true"),
    "1" * 4_301,
]


def test_whole_numbers() -> None:
    """Whole numbers are exact in any class, sent as numbers or as strings.

    Each class refuses other values with the path of the field.
    """
    for model in (Gas, Converted, *(class_of(kind, gas_used=int) for kind in KINDS[:3])):
        for number in WHOLE_NUMBERS:
            rows = decoded(model, {"gasUsed": number}, {"gasUsed": str(number)})
            assert [read(row, "gas_used") for row in rows] == [number] * 2
        for other in (*NO_WHOLE_NUMBERS, True, 1.5, None, [1]):
            error = refused(decoded, model, {"gasUsed": 1}, {"gasUsed": other})
            assert (error.path, error.reason[:20]) == ("$.rows[1].gasUsed", "Expected `int`, got "), other
            assert refused(resource_of, json.dumps({"gasUsed": other}).encode(), model).path == "$.gasUsed"
    for text in NO_WHOLE_NUMBERS:
        optional = refused(decoded, Block, {"txCount": 1, "baseFeePerGas": text})
        assert optional.path == "$.rows[0].baseFeePerGas"


WRONG: list[tuple[Any, dict[str, Any], str, str]] = [
    (Block, {"txCount": ...}, "txCount", "missing"),
    (Block, {"txCount": None}, "txCount", "Expected `int"),
    (Block, {"txCount": True}, "txCount", "got `bool`"),
    (Block, {"txCount": 1.0}, "txCount", "got `float`"),
    (Block, {"blockHash": None}, "blockHash", "Expected `str"),
    (Block, {"blockHash": 5}, "blockHash", "got `int`"),
    (Block, {"gas": {}}, "gas.gasUsed", "missing"),
    (Block, {"gas": {"gasUsed": "x"}}, "gas.gasUsed", "got `str`"),
    (Block, {"gasList": [{"gasUsed": 1}, {"gasUsed": []}]}, "gasList[1].gasUsed", "Expected `int"),
    (Block, {"gasSequence": [{"gas_used": 1}]}, "gasSequence[0].gasUsed", "missing"),
    (Block, {"gasByName": {"secret": {"gasUsed": None}}}, "gasByName.secret.gasUsed", "Expected `int"),
    (Block, {"small": 10}, "small", ""),
    (Block, {"mode": "c"}, "mode", ""),
    (Block, {"minedAt": "yesterday"}, "minedAt", ""),
    (Block, {"truthOrNumber": "true"}, "truthOrNumber", ""),
    (Odd, {"other_name": ...}, "other_name", "missing"),
    (Odd, {"hiddenPart": None}, "hiddenPart", "Expected `int`, got `NoneType`"),
    (Odd, {"hiddenPart": True}, "hiddenPart", "Expected `int`, got `bool`"),
    (Odd, {"hiddenPart": 1.5}, "hiddenPart", "Expected `int`, got `float`"),
    (Odd, {"ratio": "1"}, "ratio", "Expected `float`, got `str`"),
    (Odd, {"ratio": True}, "ratio", "Expected `float`, got `bool`"),
    (Odd, {"label": None}, "label", "Expected `str`, got `NoneType`"),
    (Odd, {"flag": 1}, "flag", "Expected `bool`, got `int`"),
    (Odd, {"gasList": [{"gasUsed": 1}, {}]}, "gasList[1].gasUsed", "missing"),
    (Odd, {"gasByName": {"a": {"gasUsed": "x"}}}, "gasByName.a.gasUsed", "Expected `int`, got `str`"),
    (Odd, {"ratio": 10**400}, "ratio", "int too large to convert to float"),
]


def test_wrong_types_are_reported_by_their_names_in_json() -> None:
    """The path of an error has the names and indices of the response, whichever way makes the class."""
    good = {Block: {"txCount": 1}, Odd: ODD}
    for model, change, path, reason in WRONG:
        row = {name: value for name, value in (good[model] | change).items() if value is not ...}
        error = refused(decoded, model, good[model], row)
        assert error.path == f"$.rows[1].{path}", change
        assert reason in error.reason, change
    for other in list[Any]([None, 5, "x", []]):
        for model in good:
            error = refused(decoded, model, good[model], other)
            assert error.path == "$.rows[1]"
            assert error.reason.startswith("Expected `object`, got `")


def test_an_enumeration_without_a_place_for_new_values() -> None:
    """A closed enumeration refuses a new value in a short and printable error."""
    model = attrs.make_class("Model", {"kind": attrs.field(type=Closed)})
    assert decoded(model, {"kind": "coin"})[0].kind is Closed.COIN
    assert refused(decoded, model, {"kind": "\x1b[2J" + "x" * 5_000}).path == "$.rows[0].kind"


Height = NewType("Height", int)


@frozen
class Noted:
    """A model with types behind other names and notes."""

    height: Height
    small: Annotated[int, msgspec.Meta(le=9)] | None = None
    named: Annotated[int, "seconds"] = 0
    pair: tuple[Height, str] = (Height(0), "")
    either: Annotated[int | None, msgspec.Meta(le=9)] = None
    recent: deque[int] = field(factory=deque[int])  # which msgspec does not know


def test_digits_behind_names_and_notes() -> None:
    """Whole numbers keep their digits, and their bounds, under any type alias."""
    sent = {"height": "7", "small": "9", "named": "8", "pair": ["3", "x"], "either": "9", "recent": ["1", 2]}
    assert decoded(Noted, sent) == [Noted(Height(7), 9, 8, (Height(3), "x"), 9, deque([1, 2]))]
    for wrong in ({"small": "10"}, {"named": 1.5}, {"named": True}, {"pair": ["3", 4]}):
        refused(decoded, Noted, {"height": 7, **wrong})


@frozen
class Tree:
    """A model that contains itself."""

    node_name: str
    child_nodes: list[Tree] = field(factory=list)


@frozen
class Box(Generic[T]):
    """A generic model."""

    my_item: T


def test_recursive_and_generic_models() -> None:
    """Models may contain themselves, and may have type arguments."""
    tree = {"nodeName": "a", "childNodes": [{"nodeName": "b"}]}
    assert decoded(Tree, tree) == [Tree("a", [Tree("b")])]
    broken = {"nodeName": "a", "childNodes": [{"nodeName": 5}]}
    assert refused(decoded, Tree, broken).path == "$.rows[0].childNodes[0].nodeName"
    assert decoded(Box[int], {"myItem": "5"}) == [Box(5)]
    assert refused(decoded, Box[int], {"myItem": "x"}).path == "$.rows[0].myItem"


@frozen
class Sloppy:
    """A model whose defaults are not of their types."""

    block_height: int = None  # type: ignore[assignment]


@frozen
class Twice:
    """A model with two fields of one name in JSON."""

    block_number: int = 0
    blockNumber: int = 0  # noqa: N815 - as on the wire


def test_odd_classes() -> None:
    """Defaults of another type, factories that take the object, two fields of one name, and no types work."""
    assert decoded(Sloppy, {}) == [Sloppy()]
    copied = attrs.Factory(lambda made: [made.a_b], takes_self=True)
    fields = {"a_b": attrs.field(type=int), "copied": attrs.field(type=list[int], default=copied)}
    assert decoded(attrs.make_class("Made", fields), {"aB": "5"})[0].copied == [5]
    assert decoded(Twice, {"blockNumber": 5}) == [Twice(5, 5)]
    untyped = attrs.make_class("Old", ["a", "b_c"])
    assert decoded(untyped, {"a": 1, "bC": [2]}) == [untyped(1, [2])]


# Hooks


class Gwei(Decimal):
    """A number with a hook."""


class Shade(enum.Enum):
    """An enumeration with a hook."""

    DARK = "dark"


@frozen
class Hooked:
    """A class whose fields have hooks, at several depths."""

    fee: Gwei
    fees: list[Gwei] = attrs.Factory(list)
    shades: dict[str, list[Shade]] = attrs.Factory(dict)


def test_hooks_get_plain_values() -> None:
    """A hook gets the plain value of its field with all digits; a text is no list of characters."""
    converter().register_structure_hook(Gwei, lambda value, _: Gwei(value))
    converter().register_structure_hook(Shade, lambda value, _: Shade(value.lower()))
    row = resource_of(
        b'{"fee": 0.1234567890123456789, "fees": [0.5, "12345678901234567890.5"], "shades": {"a": ["DARK"]}}',
        Hooked,
    )
    fees = [Gwei("0.5"), Gwei("12345678901234567890.5")]
    assert row == Hooked(Gwei("0.1234567890123456789"), fees, {"a": [Shade.DARK]})
    for sent, path in (
        (b'"fees": "55"', "$.fees"),
        (b'"fees": {"1": 2}', "$.fees"),
        (b'"fees": [1, "x"]', "$.fees[1]"),
        (b'"shades": []', "$.shades"),
        (b'"shades": {"a": "DARK"}', "$.shades"),
    ):
        assert refused(resource_of, b'{"fee": 1, %b}' % sent, Hooked).path.startswith(path), sent


def test_hooks_replace_the_reading_of_any_type() -> None:
    """A hook reads a known type, a model or a whole number, wherever it occurs."""

    @frozen
    class Price:
        amount: int

    @frozen
    class Mined:
        mined_at: datetime
        price: Price | None = None

    converter().register_structure_hook(datetime, lambda value, _: datetime.fromtimestamp(value, UTC))
    converter().register_structure_hook(Price, lambda value, _: Price(int(value.removesuffix(" wei"))))
    Mined.__annotations__ = {"mined_at": datetime, "price": Price | None}
    assert decoded(Mined, {"minedAt": 0, "price": "5 wei"}) == [
        Mined(datetime(1970, 1, 1, tzinfo=UTC), Price(5))
    ]
    assert decoded(Price, "6 wei") == [Price(6)]
    for wrong in ("x wei", 5):
        assert refused(decoded, Price, wrong).path == "$.rows[0]"
    converter.cache_clear()
    converter().register_structure_hook(int, lambda value, _: int(value, 16))
    assert (
        decoded(attrs.make_class("Hex", {"number": attrs.field(type=int)}), {"number": "0xff"})[0].number
        == 255
    )


class Wei(int):
    """A number with a class of its own."""


class Name(str):
    """A text with a class of its own."""

    __slots__ = ()


@frozen
class Own:
    """A class with fields of classes derived from int and str."""

    wei: Wei
    name: Name


def test_classes_derived_from_numbers_and_texts() -> None:
    """A field of a class derived from int or str has a value of that class, and is checked as those are."""
    (row,) = decoded(Own, {"wei": "5", "name": "a"})
    assert (type(row.wei), type(row.name), row) == (Wei, Name, Own(Wei(5), Name("a")))
    for wrong in ({"wei": 1.5, "name": "a"}, {"wei": True, "name": "a"}, {"wei": 1, "name": 2}):
        refused(decoded, Own, wrong)


# What a converter beside a field changes: nothing


class Color(enum.Enum):
    """An enumeration of texts."""

    RED = "red"


class Size(enum.IntEnum):
    """An enumeration whose members are integers."""

    ONE = 1


class Packed(msgspec.Struct):
    """A Struct inside of others."""

    exact: Decimal
    ratio: float = 0.0


TYPES: tuple[Any, ...] = (
    *(int, float, str, bool, bytes, Decimal, Any, Color, Size, Packed, Literal[1, 2], Literal["a"]),
    *(list[str], list[int], list[Decimal], list[Color], list[Gas], list[list[str]], list[Any], list[Packed]),
    *(tuple[int, ...], tuple[int, str], set[int], frozenset[str], dict[str, int], dict[str, list[str]]),
    *(dict[str, Gas], dict[str, Any], Annotated[int, msgspec.Meta(ge=0)]),
)
VALUES = (
    *("null", "true", "0", "1", "-5", "1.0", "1.5", "1e400", "1e20", "0.1234567890123456789"),
    *('""', '"1"', '"a"', '"abc"', '"red"', '"aGk="', '"0.5"', '"1.0"', "9007199254740993"),
    *("[]", "[1]", '["1"]', '["abc"]', '["red"]', '[1,"a"]', '[["a"]]', "[null]", "[1.5]", "[true]"),
    *("[0.1234567890123456789]", '[{"gasUsed":1}]', '[{"exact":0.1234567890123456789}]', "{}", '{"a":1}'),
    *('{"a":"b"}', '{"a":["b"]}', '{"a":{"gasUsed":"1"}}', '{"gasUsed":1}', '{"a":0.12345678901234567}'),
    *('{"exact":0.1234567890123456789,"ratio":0.5}', '{"exact":"1","ratio":1e400}'),
)


def made_of(hint: Any, converter: Any) -> list[Any]:
    """Return type and value of a field of a type for each of `VALUES`; Invalid if it is refused."""
    beside = attrs.field(type=int, default=0, converter=converter)
    model = attrs.make_class("Row", {"value": attrs.field(type=hint), "beside": beside}, frozen=True)
    body = f'{{"rows":[{",".join(f"""{{"value":{value}}}""" for value in VALUES)}]}}'
    rows = rows_of(body.encode(), model, on_invalid="raw")
    return [Invalid if isinstance(row, Invalid) else (type(row.value), row.value) for row in rows]


def test_a_converter_beside_a_field_changes_nothing() -> None:
    """A class with a converter has the values of one without, and refuses what that one refuses."""
    different = [hint for hint in TYPES if made_of(hint, int) != made_of(hint, None)]
    assert not different


# What is refused before a request


@frozen
class Host:
    """Model with a type that needs a hook."""

    ip_address: IPv4Address
    heard_at: datetime | None = None


@frozen
class Fee:
    """A class whose field has another name in JSON than in Python."""

    max_fee: int = 0


class FeeStruct(msgspec.Struct):
    """A Struct with such a class."""

    fee: Fee


class Plain:
    """Class that no decoder can construct."""


@frozen
class Undefined:
    """A model with an unresolvable annotation."""

    gas: Nowhere  # type: ignore[name-defined]  # noqa: F821  # pyright: ignore[reportUndefinedVariable]


def aliased(hint: Any) -> Any:
    """Return a class with an alias, and with a field of a type."""
    fields = {"fee": attrs.field(type=hint), "beside": attrs.field(type=int, default=0, alias="next")}
    return attrs.make_class("Aliased", fields, frozen=True)


NO_MODELS: list[tuple[Any, str]] = [
    *(
        (one, "^model=")
        for one in list[Any]([Plain, object, 5, "x", [], {}, Plain(), list[Plain], Undefined])
    ),
    *((model, r"IPv4Address.*no structure hook: register one") for model in (Host, aliased(IPv4Address))),
    *((model, r"Plain'> has no structure hook: register one") for model in (aliased(Plain | None),)),
]


async def test_what_is_no_model_is_refused() -> None:
    """A type that cannot be a model, or needs a hook, is refused before a request, in lists and resources."""
    for model, said in NO_MODELS:
        transport = Answering()
        async with reaching(transport) as session:
            with pytest.raises(ConfigurationError, match=said):
                await session.data.list("/v1/x", items="rows", model=model).collect()
            with pytest.raises(ConfigurationError, match=said):
                await session.data.get("/v1/x", model=model)
        assert transport.requests == [], model


def test_rows_of_several_kinds_in_a_class() -> None:
    """A field may be one of several records: the row names which, and other kinds are kept."""
    hint: Any = NftToken
    model = attrs.make_class("Holding", {"token": attrs.field(type=hint)})
    sent = Maker(1, whole=True).record(Erc721Token)
    (row, other) = decoded(model, {"token": sent}, {"token": {"ercType": "ERC-9"}})
    assert (type(row.token), other.token) == (Erc721Token, Unknown({"ercType": "ERC-9"}))
    error = refused(decoded, model, {"token": 5})
    assert (error.path, error.reason) == ("$.rows[0].token", "Expected `object`, got `int`")
    error = refused(decoded, model, {"token": {**sent, "name": 5}})
    assert (error.path, error.reason) == ("$.rows[0].token.name", "Expected `str`, got `int`")


def test_a_hook_makes_such_a_model() -> None:
    """With a hook for the type, the Struct or the union, the model is read."""
    register = converter().register_structure_hook
    register(IPv4Address, lambda value, _: IPv4Address(value))
    register(FeeStruct, lambda value, _: FeeStruct(Fee(int(value["fee"]["maxFee"]))))
    register(Fee | str, lambda value, _: Fee(int(value["maxFee"])))
    register(Plain | None, lambda value, _: [value])
    assert decoded(Host, {"ipAddress": "10.0.0.1"}) == [Host(IPv4Address("10.0.0.1"))]
    error = refused(decoded, Host, {"ipAddress": "10.0.0.1"}, {"ipAddress": "10.0.0.256"})
    assert error.path == "$.rows[1].ipAddress"
    assert "not permitted" in error.reason
    assert decoded(FeeStruct, {"fee": {"maxFee": "3"}}) == [FeeStruct(Fee(3))]
    assert decoded(aliased(Fee | str), {"fee": {"maxFee": "3"}})[0].fee == Fee(3)
    assert decoded(aliased(Plain | None), {"fee": None})[0].fee == [None]

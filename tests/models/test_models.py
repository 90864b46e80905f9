"""Records of both services: numbers, times, kinds, optional fields, pickles."""

from __future__ import annotations

import copy
import gc
import json
import pickle
import re
import types
import typing
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from typing import Annotated, Any

import attrs
import msgspec
import pytest
from attrs import frozen
from hypothesis import given
from hypothesis import strategies as st

from chainapi import models
from chainapi._tooling.openapi import snake
from chainapi.api.catalogue import ROUTES
from chainapi.errors import DecodeError
from chainapi.models import (
    EvmBlock,
    Money,
    SharedSecret,
    Unknown,
    chain_metrics,
    common,
    evm,
    icm,
    primary_network,
    requests,
    usage,
    webhooks,
)
from chainapi.models.codec import PageDecoder, decode_resource
from chainapi.models.convert import row_type
from chainapi.models.records import Record
from chainapi.models.row_type import FastDecoder
from chainapi.models.rows import RowDecoder
from chainapi.models.schema import AS_TEXT, fields_of
from chainapi.models.timestamps import OptionalUTCDatetime, UTCDatetime
from chainapi.models.unions import tags_of, wire_name
from chainapi.models.untracked import untracked
from tests.documents import Maker

RECORDS = sorted(
    (record for name in {*dir(models)} - {"Invalid"} if attrs.has(record := getattr(models, name))),
    key=lambda record: str(record.__name__),
)
UNIONS = [name for name in dir(models) if tags_of(getattr(models, name))]


def decoded(model: Any, value: object) -> Any:
    """Return a decoded JSON value."""
    return decode_resource(json.dumps(value).encode(), model)


def a_block(**changed: Any) -> dict[str, Any]:
    """Return a block with all its fields, some changed.

    Fields whose value is `...` are left out.
    """
    fields = {**Maker(seed=1, whole=True).record(EvmBlock), **changed}
    return {name: value for name, value in fields.items() if value is not ...}


# All of them


@pytest.mark.parametrize(
    "record", [one for one in RECORDS if one is not Unknown], ids=lambda one: one.__name__
)
def test_every_record(record: Any) -> None:
    """Records decode with and without optional fields, are frozen, and can be pickled."""
    for seed in range(20):
        made = decoded(record, Maker(seed).record(record))
        assert type(made) is record
        assert pickle.loads(pickle.dumps(made)) == made == copy.deepcopy(made)
        first = attrs.fields(record)[0].name
        with pytest.raises(attrs.exceptions.FrozenInstanceError):
            setattr(made, first, None)
        assert not hasattr(made, "__dict__")


@pytest.mark.parametrize("name", UNIONS)
def test_every_union(name: str) -> None:
    """Union rows have the kind of their tag; others are Unknown, with all their data."""
    union = getattr(models, name)
    for tag in tags_of(union):
        for seed in range(10):
            assert type(decoded(union, Maker(seed).of_kind(tag))) is tag.kind
    assert decoded(union, {"news": 1}) == Unknown({"news": 1})
    assert {tag.kind for tag in tags_of(union)} == {*typing.get_args(union)} - {Unknown}


@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize("name", UNIONS)
def test_rows_of_several_kinds_stay_in_their_order(name: str, whole: bool) -> None:
    """Pages of mixed kinds decode each row as if alone, in order.

    This includes pages with a row of an unknown kind.
    """
    union = getattr(models, name)
    tags = tags_of(union)
    rows = [Maker(seed, whole=whole).of_kind(tags[seed % len(tags)]) for seed in range(20)]
    decoder = PageDecoder(union, "rows")
    for page in (rows, [*rows[:7], {"news": 1}, *rows[7:]]):
        made = decoder.decode(json.dumps({"rows": page}).encode()).rows
        assert made == [decoded(union, row) for row in page]
        assert len({type(row) for row in made}) >= len(tags)


@pytest.mark.parametrize("name", UNIONS)
def test_a_tag_that_one_field_holds_is_read_on_the_way(name: str) -> None:
    """Unions with one tag field take the fast decoder, which sets that field."""
    union = getattr(models, name)
    tags = tags_of(union)
    one_field = len({tag.path for tag in tags}) == 1 and all(tag.value for tag in tags)
    quick = row_type(union).fast
    assert (quick is not None) is one_field
    if quick is None:
        return
    for tag in tags:
        row = Maker(seed=2, whole=True).of_kind(tag)
        (made,) = quickly(union, json.dumps([row]).encode())
        assert type(made) is tag.kind
        assert made == decoded(tag.kind, row)


@pytest.mark.parametrize("record", RECORDS, ids=lambda one: one.__name__)
def test_every_time_has_both_forms(record: Any) -> None:
    """Timestamps each have a property that returns an aware datetime, or None."""
    kinds = UTCDatetime | OptionalUTCDatetime
    times = {name for name, value in vars(record).items() if isinstance(value, kinds)}
    stamps = {field.name for field in attrs.fields(record) if field.name.endswith("timestamp")}
    assert times == {f"{name.removesuffix('timestamp')}time" for name in stamps}
    for seed in range(5 if times else 0):
        made = decoded(record, Maker(seed).record(record))
        for name in times:
            stamp = getattr(made, f"{name.removesuffix('time')}timestamp")
            wanted = None if stamp is None else datetime.fromtimestamp(stamp, UTC)
            assert getattr(made, name) == wanted


def test_names_are_found_where_they_are() -> None:
    """The package offers each record by its name and no other, and lists them all."""
    modules = [chain_metrics, common, evm, icm, primary_network, requests, usage, webhooks]
    public = [name for module in modules for name in module.__all__]
    assert dir(models) == sorted([*public, "Invalid", "MetricPoint", "Unknown", "converter"])
    for module in modules:
        assert all(getattr(models, name) is getattr(module, name) for name in module.__all__)
    everything: dict[str, Any] = {}
    exec("from chainapi.models import *", everything)
    assert set(dir(models)) <= set(everything)
    with pytest.raises(AttributeError, match="no attribute 'NoSuchRecord'"):
        _ = models.NoSuchRecord


# Numbers, texts, times


@pytest.mark.parametrize("number", [0, 1, -5, 2**53 + 1, 10**18, 2**64, 10**77])
def test_whole_numbers_are_exact(number: int) -> None:
    """Whole numbers beyond 64 bits are exact, sent as numbers or as texts."""
    assert decoded(EvmBlock, a_block(gasUsed=str(number))).gas_used == number
    assert decoded(EvmBlock, a_block(gasUsed=number)).gas_used == number
    assert decoded(EvmBlock, a_block(chainId=str(number))).chain_id == number


@pytest.mark.parametrize(
    "text", ["", "x", "1.0", "1e3", " 1", "1_000", "0x1", "007", "+1", "null", "NULL", "true"]
)
@pytest.mark.parametrize("name", ["gasUsed", "chainId"])
def test_nothing_else_is_a_whole_number(name: str, text: str) -> None:
    """Texts that are no whole number are refused with their path.

    This holds in optional fields too.
    """
    with pytest.raises(DecodeError) as caught:
        decoded(EvmBlock, a_block(**{name: text}))
    assert (caught.value.path, caught.value.reason) == (f"$.{name}", "Expected `int`, got `str`")


@pytest.mark.parametrize("value", ["42.42", 42.42, "0.1000000000000000055511151231257827", 7])
def test_money_is_exact(value: Any) -> None:
    """A price is an exact decimal, whether it comes as a number or as a text."""
    made = decoded(Money, {"currencyCode": "usd", "value": value})
    assert made.value == Decimal(str(value))
    assert made.currency_code == "usd"


def test_required_fields_and_others() -> None:
    """Required fields raise an error with their path if missing; others are None.

    Fields that real answers lack are optional.
    """
    assert decoded(EvmBlock, a_block(chainId=..., blockMinDelayExcess=None)).chain_id is None
    with pytest.raises(DecodeError) as caught:
        decoded(EvmBlock, a_block(blockHash=...))
    assert (caught.value.path, caught.value.reason) == ("$.blockHash", "missing")


def test_unknown_values_and_fields_do_no_harm() -> None:
    """Unlisted values are kept, and unknown fields are ignored."""
    made = decoded(Money, {"currencyCode": "xau", "value": 1, "unit": "oz"})
    assert made.currency_code == "xau"


@pytest.mark.parametrize("stamp", [10**12, -(10**12), 10**15])
def test_times_that_no_calendar_has(stamp: int) -> None:
    """Timestamps outside of the calendar are kept; only their datetime is an error."""
    made = decoded(EvmBlock, a_block(blockTimestamp=stamp))
    assert made.block_timestamp == stamp
    with pytest.raises(ValueError, match="outside the years 1 to 9999"):
        _ = made.block_time


def test_moments_of_a_class() -> None:
    """Time properties read from the class are the property itself."""
    assert isinstance(EvmBlock.block_time, UTCDatetime)
    assert isinstance(models.Operation.created_at_time, UTCDatetime)
    assert isinstance(models.PChainTransaction.start_time, OptionalUTCDatetime)


@pytest.mark.parametrize("name", ROUTES)
def test_every_route_takes_values_that_are_not_listed(name: str) -> None:
    """Fields with listed values keep any other text, also nested and in unions."""
    declared = ROUTES[name]
    for seed in range(4):
        maker = Maker(seed, whole=True, novel=True)
        if declared.single:
            hint = declared.rows
            made, sent = [decode_resource(json.dumps(value := maker.value(hint)).encode(), hint)], [value]
        else:
            body = maker.page(declared, 3)
            sent = body[declared.route.items or "chains"]
            decoder = PageDecoder(declared.route.model, declared.route.items, declared.route.extra)
            made = decoder.decode(json.dumps(body).encode()).rows
        assert not any(isinstance(row, Unknown) for row in made)
        assert [*novel_texts(made)] == re.findall(r"novel\d+", json.dumps(sent))


def novel_texts(value: Any) -> Iterator[str]:
    """Yield the unlisted values in rows, in the order of their fields."""
    if isinstance(value, str) and value.startswith("novel"):
        yield value
    elif attrs.has(type(value)):
        yield from novel_texts([getattr(value, field.name) for field in attrs.fields(type(value))])
    elif isinstance(value, list | dict):
        for entry in value.values() if isinstance(value, dict) else value:
            yield from novel_texts(entry)


@pytest.mark.parametrize(
    "name", [name for name in UNIONS if all(tag.value for tag in tags_of(getattr(models, name)))]
)
def test_an_unknown_tag_gives_an_unknown_row(name: str) -> None:
    """Rows with an unknown tag value stay unchanged in a union."""
    union = getattr(models, name)
    tag = tags_of(union)[0]
    row = {**Maker(seed=1, whole=True).of_kind(tag), tag.path[0]: "brand new"}
    assert decoded(union, row) == Unknown(row)
    assert PageDecoder(union, "rows").decode(json.dumps({"rows": [row]}).encode()).rows == [Unknown(row)]


@pytest.mark.parametrize("nested", ["networkToken", "utilityAddresses"])
def test_a_chain_has_no_required_field(nested: str) -> None:
    """Chains, and the records in them, have no required field."""
    made = decoded(models.ChainInfo, {nested: {}})
    assert all(value is None for value in attrs.astuple(getattr(made, snake(nested))))


def test_a_secret_is_not_shown() -> None:
    """Webhook secrets are in no repr."""
    made = decoded(SharedSecret, {"secret": "hush"})
    assert made.secret == "hush"
    assert "hush" not in repr(made)


# Kinds


def test_rows_of_unknown_kinds() -> None:
    """Unknown rows have their fields under both names and can be pickled.

    The error for a missing field has its name.
    """
    row = decoded(models.Validator, {"validationStatus": "resting", "nodeId": "n", "from": "x"})
    assert (row.validation_status, row.node_id, row.from_) == ("resting", "n", "x")
    assert row.raw["nodeId"] == "n"
    with pytest.raises(AttributeError, match="'Unknown' has no attribute 'tx_hash'"):
        _ = row.tx_hash
    assert pickle.loads(pickle.dumps(row)) == row == copy.copy(row)


def test_faults_in_rows_of_several_kinds() -> None:
    """Faults in rows of a known kind have their path, in a list and alone."""
    row = Maker(seed=1, whole=True).record(models.Erc20Transfer)
    wrong = {**row, "logIndex": "first"}
    decoder = PageDecoder(models.Transfer, "transfers")
    assert len(decoder.decode(json.dumps({"transfers": [row, row]}).encode()).rows) == 2
    for change, path in (
        ({"logIndex": "first"}, "$.transfers[1].logIndex"),
        ({"from": 5}, "$.transfers[1].from"),
        ({"from": {}}, "$.transfers[1].from.address"),
    ):
        with pytest.raises(DecodeError) as caught:
            decoder.decode(json.dumps({"transfers": [row, {**row, **change}]}).encode())
        assert caught.value.path == path
    with pytest.raises(DecodeError) as caught:
        decoded(models.Transfer, wrong)
    assert caught.value.path == "$.logIndex"


@pytest.mark.parametrize("body", [b"5", b"[]", b"null", b'"text"'])
def test_a_row_of_several_kinds_is_an_object(body: bytes) -> None:
    """Rows of a union are objects; any other JSON raises DecodeError."""
    with pytest.raises(DecodeError):
        decode_resource(body, models.Transfer)


def test_a_tag_in_depth_and_one_that_is_null() -> None:
    """Tags may be nested, and a null field counts as missing."""
    union = models.PrimaryNetworkBalances
    assert isinstance(decoded(union, {"balances": {"unlockedUnstaked": None}}), Unknown)
    assert isinstance(decoded(union, {"balances": "none"}), Unknown)
    row = Maker(seed=1, whole=True).record(models.PChainBalances)
    assert isinstance(decoded(union, row), models.PChainBalances)
    assert isinstance(decoded(models.Transfer, {"erc20Token": None}), Unknown)


# The quick way and the thorough one


@frozen
class Inner:
    """A record within a record."""

    number: int
    name: str | None = None


@frozen
class Everything:
    """Record with fields of all types that the fast decoder supports."""

    whole: int
    text: str
    truth: bool
    real: float
    exact: Decimal
    inner: Inner
    many: list[Inner]
    may_whole: int | None = None
    may_text: str | None = None
    may_truth: bool | None = None
    may_real: float | None = None
    may_exact: Decimal | None = None
    may_inner: Inner | None = None
    may_many: list[int] | None = None
    named: dict[str, int] | None = None
    any_named: dict[str, Any] | None = None
    given: int | None = 5
    holes: list[int | None] | None = None
    records: list[Inner | None] | None = None
    named_holes: dict[str, Inner | None] | None = None


@frozen
class Nullable:
    """Record with a required field that may be null."""

    whole: int | None
    text: str | None


@untracked
@frozen(kw_only=True, repr=False)
class Scalars(Record):
    """Record that msgspec decodes without a second step."""

    whole: Annotated[int, AS_TEXT]
    text: str
    real: float
    may_whole: int | None = None
    may_text: str | None = None
    may_real: float | None = None
    given: int | None = 5


def quickly(model: Any, body: bytes, *, strict: bool = False) -> list[Any]:
    """Make rows on the fast path; ValidationError where it refuses them."""
    rows = row_type(model, strict=strict)
    assert rows.fast is not None
    fast = FastDecoder(rows, rows.fast, lambda wire: types.GenericAlias(list, (wire,)))
    return fast.finish(fast.decode(body))


odd = st.sampled_from(
    [
        None,
        True,
        0,
        1,
        -1,
        1.0,
        0.5,
        10**30,
        "",
        "1",
        "-0",
        "1.0",
        "1e3",
        "9007199254740993e0",
        "4503599627370497.1",
        str(10**30),
        "007",
        "null",
        "Null",
        "true",
        "nan",
        "1_0",
        " 10 ",
        "\u0661",
        "x",
    ]
)
inner = st.fixed_dictionaries({"number": st.integers() | odd}, optional={"name": odd})


def test_a_decimal_keeps_its_sign() -> None:
    """Negative zeros and all digits are preserved."""
    rows = decode_resource(b'{"currencyCode": "usd", "value": "-0"}', Money)
    page = PageDecoder(Money, "prices").decode(
        b'{"prices": [{"currencyCode": "usd", "value": "-0"}, {"currencyCode": "usd", "value": "1.50"}]}'
    )
    assert [str(row.value) for row in (rows, *page.rows)] == ["-0", "-0", "1.50"]


@given(
    st.fixed_dictionaries(
        {
            "whole": st.integers() | odd,
            "text": st.text() | odd,
            "truth": st.booleans() | odd,
            "real": st.floats(allow_nan=False, allow_infinity=False) | odd,
            "exact": st.decimals(allow_nan=False, allow_infinity=False).map(str) | odd,
            "inner": inner | odd,
            "many": st.lists(inner | odd, max_size=2) | odd,
        },
        optional={
            "mayWhole": odd,
            "mayText": odd,
            "mayTruth": odd,
            "mayReal": odd,
            "mayExact": odd,
            "mayInner": inner | odd,
            "mayMany": st.lists(odd, max_size=2) | odd,
            "named": st.dictionaries(st.text() | st.just("1"), odd, max_size=2) | odd,
            "anyNamed": st.dictionaries(st.text(), odd, max_size=2) | odd,
            "given": odd,
            "holes": st.lists(odd, max_size=2) | odd,
            "records": st.lists(inner | st.none(), max_size=2) | odd,
            "namedHoles": st.dictionaries(st.text(), inner | odd, max_size=2) | odd,
        },
    ),
    st.sampled_from([Everything, Nullable, Scalars]),
)
def test_the_quick_way_takes_nothing_that_the_other_refuses(row: dict[str, Any], model: Any) -> None:
    """Fast and thorough decoders have equal results for any row."""
    kind = row_type(model)
    body = json.dumps([row]).encode()
    try:
        quick = quickly(model, body)
    except (msgspec.MsgspecError, DecodeError):
        return
    assert kind.finish is not None
    thorough = kind.finish(kind.decoder(list[kind.wire]).decode(body))  # type: ignore[name-defined]
    assert quick == thorough
    assert repr(quick) == repr(thorough)


@given(
    st.fixed_dictionaries(
        {"whole": st.integers() | odd, "text": st.text() | odd, "real": st.floats(allow_nan=False) | odd},
        optional={"mayWhole": odd, "mayText": odd, "mayReal": odd, "given": odd, "more": odd},
    ),
    st.sampled_from(["", "e0", "E2", "e-1", ".0", ".5"]),
)
def test_rows_made_in_one_step_are_those_of_two(row: dict[str, Any], end: str) -> None:
    """A record of numbers and strings has the values of the thorough decoder, or is refused as by it."""
    body = json.dumps([{**row, "whole": "#"}]).replace('"#"', f"{json.dumps(row['whole'])}{end}").encode()
    kind = row_type(Scalars, strict=True)
    assert kind.finish is not None
    try:
        quick = quickly(Scalars, body, strict=True)
    except msgspec.MsgspecError:
        return
    thorough = kind.finish(msgspec.json.Decoder(list[kind.wire]).decode(body))  # type: ignore[name-defined]
    assert [type(made) for made in quick] == [Scalars]
    assert [attrs.asdict(made) for made in quick] == [attrs.asdict(made) for made in thorough]
    assert [made.extra for made in quick] == [{}]


@pytest.mark.parametrize(
    "body",
    [
        b'{"whole": "12", "text": "a", "real": 1}',
        b'{"whole": 10000000000000000000000000000000000, "text": "", "real": 0.5, "mayText": null}',
        b'{"whole": -7, "text": "null", "real": -1e3, "mayWhole": 4, "mayReal": 2, "given": 6}',
    ],
)
def test_scalars_take_the_step(body: bytes) -> None:
    """Numbers, their strings and null are decoded in one step."""
    (made,) = quickly(Scalars, b"[%s]" % body, strict=True)
    assert made == RowDecoder(Scalars).one(body)
    assert type(made) is Scalars
    assert not gc.is_tracked(made)


NULLS = {
    "mayWhole": None,
    "mayTruth": None,
    "mayReal": None,
    "mayExact": None,
    "mayInner": None,
    "mayMany": None,
    "named": None,
    "anyNamed": None,
    "given": None,
    "holes": [1, None],
    "records": [None, {"number": "2", "name": None}],
    "namedHoles": {"a": None},
}
WITHOUT_NULL = {
    "whole": "1",
    "text": "x",
    "truth": True,
    "real": 0.5,
    "exact": "1.5",
    "inner": {"number": 1},
    "many": [],
}


def test_null_goes_the_quick_way() -> None:
    """Null in any optional field of any type is decoded on the fast path, into the same rows."""
    body = json.dumps([WITHOUT_NULL, {**WITHOUT_NULL, **NULLS}]).encode()
    made = quickly(Everything, body)
    assert made == [decoded(Everything, WITHOUT_NULL), decoded(Everything, {**WITHOUT_NULL, **NULLS})]
    assert made[1].given is None
    (nullable,) = quickly(Nullable, b'[{"whole": null, "text": null}]')
    assert nullable == Nullable(None, None)


@pytest.mark.parametrize("text", ['"null"', '"NULL"', '"Null"', '"nuLl"', r'"\u006eull"', r'"nul\u006C"'])
@pytest.mark.parametrize("name", sorted(NULLS))
def test_a_text_that_looks_like_null_is_refused(text: str, name: str) -> None:
    """A text of "null" is no null, however it is spelt: it is refused with its path."""
    row = json.dumps({**WITHOUT_NULL, "mayWhole": None, name: 0}).encode()
    body = b'{"rows": [%s]}' % row.replace(
        b'"%s": 0' % name.encode(), b'"%s": %s' % (name.encode(), text.encode())
    )
    with pytest.raises(DecodeError) as caught:
        PageDecoder(Everything, "rows").decode(body)
    assert caught.value.path == f"$.rows[0].{name}"


@pytest.mark.parametrize(
    "record",
    [one for one in RECORDS if one not in (Unknown, models.MetricPoint)],
    ids=lambda one: one.__name__,
)
def test_our_records_go_the_quick_way(record: Any) -> None:
    """Records of ours take the fast decoder.

    The exceptions are records with texts that may be numbers.
    """
    slow = {"UsageValue", "RpcUsageValue", "UsageMetric", "RpcUsageMetric", "UsageMetrics"}
    slow |= {"SubnetRpcUsage", "PrimaryNetworkRpcUsage"}
    quick = row_type(record).fast
    if quick is None:
        assert record.__name__ in slow
        return
    whole, some = Maker(seed=2, whole=True).record(record), Maker(seed=3).record(record)
    nulls = {field.wire: None for field in fields_of(record) if field.type.optional}
    made = quickly(record, json.dumps([whole, some, {**whole, **nulls}]).encode())
    assert [type(one) for one in made] == [record] * 3
    assert made == [decoded(record, row) for row in (whole, some, {**whole, **nulls})]


def test_names_on_the_wire() -> None:
    """Fields of records have wire names that map back to them."""
    assert wire_name("l1_validator_details") == "l1ValidatorDetails"
    assert wire_name("from_") == "from"
    for record in RECORDS:
        wires = [wire_name(field.name) for field in attrs.fields(record)]
        assert len(set(wires)) == len(wires)

"""Further fields of records: readable in `extra`, at no cost without them."""

from __future__ import annotations

import copy
import json
import pickle
import sys
import tracemalloc
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import attrs
import msgspec
import pytest
from attrs import frozen

from chainapi.api.catalogue import ROUTES
from chainapi.api.endpoint import Endpoint
from chainapi.errors import DecodeError
from chainapi.models import EvmBlock, MetricPoint, NativeTransaction, RichAddress, Transfer, Unknown
from chainapi.models.codec import DecodedPage, PageDecoder, decode_resource
from chainapi.models.records import AnyRecord
from chainapi.models.sizes import LARGE
from chainapi.tables.codec import Codec
from tests.documents import Maker

NEWS = {"brand new": [1, {"x": None}], "ratio": Decimal("0.1234567890123456789")}


class Newsmaker(Maker):
    """Makes the values of a Maker, with unnamed fields in each record."""

    def __init__(self, seed: int, *, whole: bool) -> None:
        super().__init__(seed, whole=whole)
        self.made = 0

    def record(self, model: Any, needed: str = "") -> dict[str, Any]:
        """Return an object with further fields, one of them its number."""
        value = super().record(model, needed)
        self.made += 1
        return {**value, "serial number": self.made, **NEWS}


def body_of(value: Any) -> bytes:
    """Return JSON of a value, decimals with their digits."""
    return msgspec.json.Encoder(decimal_format="number").encode(value)


def records_in(value: Any) -> Iterator[Any]:
    """Yield all records in rows, including nested ones."""
    if isinstance(value, list | dict):
        for entry in value.values() if isinstance(value, dict) else value:
            yield from records_in(entry)
    elif isinstance(value, AnyRecord):
        yield value
        kind: Any = type(value)
        yield from records_in([getattr(value, field.name) for field in attrs.fields(kind)])


def decoded(declared: Endpoint, value: Any) -> Any:
    """Return the decoded content of a page or resource in a comparable form."""
    if declared.single:
        return decode_resource(body_of(value), declared.rows)
    route = declared.route
    return PageDecoder(route.model, route.items, route.extra).decode(body_of(value))


def objects_of(made: Any) -> list[Any]:
    """Return the records of a page or a resource."""
    return [made.rows, *made.extra] if isinstance(made, DecodedPage) else [made]


RECORDED = [name for name, declared in ROUTES.items() if declared.rows is not str]


@pytest.mark.parametrize("name", RECORDED)
@pytest.mark.parametrize("whole", [True, False])
def test_every_route_keeps_fields_without_a_name(name: str, whole: bool) -> None:
    """Unnamed fields of rows, resources and nested records are in `extra`."""
    declared = ROUTES[name]
    plain = decoded(declared, sent(declared, Maker(seed=5, whole=whole)))
    maker = Newsmaker(seed=5, whole=whole)
    made = decoded(declared, sent(declared, maker))
    assert objects_of(made) == objects_of(plain)
    found = [*records_in(objects_of(made))]
    assert sorted(record.extra["serial number"] for record in found) == [*range(1, maker.made + 1)]
    for record in found:
        assert {**record.extra, **NEWS} == record.extra
        assert isinstance(record.extra["ratio"], Decimal)
    for record in records_in(objects_of(plain)):
        assert record.extra == {}
        assert getattr(record, "_extra", None) is None


def sent(declared: Endpoint, maker: Maker) -> Any:
    """Return the JSON of a page or a resource."""
    return maker.value(declared.rows) if declared.single else maker.page(declared, 3)


def block(**more: Any) -> EvmBlock:
    """Return a block with further fields."""
    fields = Maker(seed=1, whole=True).record(EvmBlock)
    made = decode_resource(body_of({**fields, **more}), EvmBlock)
    assert isinstance(made, EvmBlock)
    return made


@pytest.mark.parametrize("read_before", [True, False])
def test_records_with_further_fields_are_like_others(read_before: bool) -> None:
    """Records with further fields are equal and printed by their named fields alone.

    Pickles and copies keep the rest.
    """
    bare, rich = block(), block(news=[1], burned="5")
    if read_before:
        assert rich.extra is rich.extra
    assert (rich, hash(rich), repr(rich)) == (bare, hash(bare), repr(bare))
    assert attrs.asdict(rich) == attrs.asdict(bare)
    assert "extra" not in [field.name for field in attrs.fields(EvmBlock)]
    for twin in (copy.copy(rich), copy.deepcopy(rich), pickle.loads(pickle.dumps(rich))):
        assert (twin, twin.extra) == (rich, {"news": [1], "burned": "5"})
    one, other = (json.loads(Codec(EvmBlock).encode_lines([row])) for row in (rich, bare))
    assert (one.pop("extra"), other.pop("extra")) == ({"news": [1], "burned": "5"}, None)
    assert one == other
    assert attrs.evolve(rich, gas_used=1).extra == {}  # is not what the service sent any more


def test_records_in_records_are_copied_with_theirs() -> None:
    """A pickle of a row has the further fields of the records within it."""
    value = Newsmaker(seed=1, whole=True).record(NativeTransaction)
    made = pickle.loads(pickle.dumps(decode_resource(body_of(value), NativeTransaction)))
    assert made.from_.extra == {"serial number": 1, **NEWS}


def test_one_row_of_a_page_has_further_fields() -> None:
    """Further fields are kept in any row of a page; other rows have an empty `extra`."""
    rows = [{"timestamp": number, "value": 1.5} for number in range(1_000)]
    rows[777]["partial"] = True
    page = PageDecoder(MetricPoint, "results").decode(json.dumps({"results": rows, "new": "a:b"}).encode())
    assert [row.timestamp for row in page.rows if row.extra] == [777]
    assert page.rows[777].extra == {"partial": True}


def test_further_fields_and_null_in_one_page() -> None:
    """Pages outside of the fast decoder keep further fields as well."""
    fields = Maker(seed=1, whole=True).record(EvmBlock)
    body = body_of({"blocks": [{**fields, "chainId": None}, {**fields, "news": 1}]})
    first, second = PageDecoder(EvmBlock, "blocks").decode(body).rows
    assert (first.chain_id, first.extra, second.extra) == (None, {}, {"news": 1})


def test_a_colon_in_a_text_is_no_field() -> None:
    """A colon in a text is not mistaken for a further field."""
    rows = b'[{"timestamp":1,"value":2},{"timestamp":0,"value":1,"timestamp":5}]'
    page = PageDecoder(MetricPoint, "results").decode(b'{"results":%b,"more":["a:b"]}' % rows)
    assert page.rows == [MetricPoint(1, 2.0), MetricPoint(5, 1.0)]
    assert [row.extra for row in page.rows] == [{}, {}]


@pytest.mark.parametrize(
    ("odd", "value"),
    [(b'"\xff"', "\ufffd"), (b"9" * 5_000, "9" * 5_000), (b"1e400", Decimal("1e400"))],
    ids=["bytes", "digits", "exponent"],
)
def test_odd_values_of_further_fields(odd: bytes, value: Any) -> None:
    """Unnamed fields of any content cause no row to be refused."""
    body = b'{"results":[{"timestamp":1,"value":2,"odd":%b}]}' % odd
    (row,) = PageDecoder(MetricPoint, "results").decode(body).rows
    assert row.extra == {"odd": value}


def test_further_fields_beyond_the_stack() -> None:
    """Further fields too deep for the stack raise DecodeError when read.

    This may happen on Python 3.11.
    """
    body = b'{"timestamp":1,"value":2,"odd":' + b"[" * 900 + b"]" * 900 + b"}"
    row = decode_resource(body, MetricPoint)

    def deeper(levels: int) -> Any:
        return deeper(levels - 1) if levels else row.extra

    if sys.version_info < (3, 12):  # decoders of later Pythons have a stack of their own
        with pytest.raises(DecodeError, match="nested too deeply"):
            deeper(200)
    else:
        assert deeper(200) == row.extra
    assert len(str(row.extra["odd"])) == 1_800


def test_an_unknown_kind_has_all_fields_beyond_names() -> None:
    """Unions have `extra` on each of their rows."""
    row = decode_resource(b'{"news":1}', Transfer)
    assert isinstance(row, Unknown)
    assert row.extra == {"news": 1}


@frozen
class Mine:
    """Model of a user without a field for the rest."""

    block_number: int


def test_models_of_users_keep_nothing() -> None:
    """User models keep no further fields: a row is exactly that class."""
    (row,) = PageDecoder(Mine, "blocks").decode(b'{"blocks":[{"blockNumber":"1","more":2}]}').rows
    assert row == Mine(1)


@frozen
class Route(EvmBlock):
    """Record of a user with records in it."""

    hops: tuple[RichAddress, ...] = ()


def test_records_in_tuples_keep_further_fields() -> None:
    """Records in a tuple keep the fields that no record names, as those in a list do."""
    sent = {**Maker(seed=1, whole=True).record(EvmBlock), "hops": [{"address": "0x1", "news": 1}]}
    (row,) = PageDecoder(Route, "rows").decode(body_of({"rows": [sent]})).rows
    assert isinstance(row.hops, tuple)
    assert [hop.extra for hop in row.hops] == [{"news": 1}]


def twice(gas: int) -> int:
    """Return another number."""
    return gas * 2


@frozen
class Doubled(EvmBlock):
    """Record of a user that only cattrs makes."""

    gas_used: int = attrs.field(converter=twice, kw_only=True)


def without_first(hops: tuple[RichAddress, ...]) -> tuple[RichAddress, ...]:
    """Return records without the first one."""
    return hops[1:]


def by_address(hops: list[RichAddress]) -> Any:
    """Return records by one of their fields."""
    return {hop.address: hop for hop in hops}


@frozen
class Converted(Route):
    """Record of a user that changes the shape of the records in it, and leaves one of them out."""

    hops: tuple[RichAddress, ...] = attrs.field(default=(), converter=without_first)
    places: list[RichAddress] = attrs.field(factory=list[RichAddress], converter=by_address)
    origin: RichAddress | None = attrs.field(default=None, alias="sender")


def test_records_that_cattrs_makes_keep_further_fields() -> None:
    """A record with a converter keeps the fields that it does not name, in pages and tables."""
    fields = Maker(seed=1, whole=True).record(EvmBlock)
    body = body_of({"rows": [{**fields, "news": 1, **NEWS}, fields]})
    for sent in (body, body + b" " * LARGE):
        first, second = PageDecoder(Doubled, "rows").decode(sent).rows
        assert (first.extra, second.extra) == ({"news": 1, **NEWS}, {})
        assert first == second
        assert json.loads(Codec(Doubled).encode_lines([first]))["extra"]["news"] == 1
        assert first.gas_used == 2 * block().gas_used
    assert decode_resource(body_of({**fields, "news": 1}), Doubled).extra == {"news": 1}
    with pytest.raises(DecodeError) as caught:
        PageDecoder(Doubled, "rows").decode(body_of({"rows": [{**fields, "news": 1, "gasUsed": "x"}]}))
    assert caught.value.path == "$.rows[0].gasUsed"


def test_records_that_a_converter_moves_keep_further_fields() -> None:
    """A record in another place than in JSON has its own further fields."""
    hops = [{"address": f"0x{number}", "news": number} for number in range(3)]
    sent = {**Maker(seed=1, whole=True).record(EvmBlock), "hops": hops, "places": hops, "sender": hops[0]}
    (row,) = PageDecoder(Converted, "rows").decode(body_of({"rows": [{**sent, "news": 9}]})).rows
    assert row.extra == {"news": 9}
    assert [hop.extra for hop in row.hops] == [{"news": 1}, {"news": 2}]
    assert {name: hop.extra["news"] for name, hop in row.places.items()} == {"0x0": 0, "0x1": 1, "0x2": 2}
    assert row.origin.extra == {"news": 0}


def test_what_further_fields_take() -> None:
    """Rows with further fields keep their own JSON; other rows keep none."""

    def kept(more: str) -> int:
        rows = ",".join(f'{{"timestamp":{number},"value":1.5{more}}}' for number in range(2_000))
        body = b'{"results":[%b],"more":"%b"}' % (rows.encode(), b"x" * 200_000)
        tracemalloc.start()
        try:
            held = PageDecoder(MetricPoint, "results").decode(body).rows
            del body
            size, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert len(held) == 2_000
        return size // 2_000

    assert kept(',"a":1') - kept("") < 360  # bytes a row; its JSON takes about 75

"""Further fields of records: readable in `extra`, at no cost without them."""

from __future__ import annotations

import json
import pickle
import tracemalloc
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import attrs
import msgspec

from chainapi import ROUTES
from chainapi.models import EvmBlock, MetricPoint, NativeTransaction, RichAddress
from tests.answers import called, decoded, refused, resource_of, rows_of
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
    elif attrs.has(type(value)):
        yield value
        kind: Any = type(value)
        yield from records_in([getattr(value, field.name) for field in attrs.fields(kind)])


def objects_of(name: str, value: Any) -> list[Any]:
    """Return the rows and further records of a page of a route, or its resource."""
    made = called(name, body_of(value))
    return [made] if ROUTES[name].single else [*made, *made.extra.values()]


def fault_of(name: str) -> str | None:
    """Return what a route does wrong with fields that no record names, or None."""
    declared = ROUTES[name]
    plain_maker, maker = Maker(seed=5, whole=False), Newsmaker(seed=5, whole=False)
    plain, made = (
        objects_of(name, one.value(declared.rows) if declared.single else one.page(declared, 3))
        for one in (plain_maker, maker)
    )
    found = [*records_in(made)]
    if made != plain:
        return "other values"
    if sorted(record.extra["serial number"] for record in found) != [*range(1, maker.made + 1)]:
        return "not in each record"
    if any({**record.extra, **NEWS} != record.extra for record in found):
        return "not as sent"
    return "in a record without any" if any(record.extra for record in records_in(plain)) else None


def test_every_route_keeps_fields_without_a_name() -> None:
    """Unnamed fields of rows, resources and nested records are in `extra`, with all digits."""
    failures = [
        f"{name}: {fault}"
        for name, declared in ROUTES.items()
        if declared.rows is not str and (fault := fault_of(name)) is not None
    ]
    assert not failures


def block(**more: Any) -> EvmBlock:
    """Return a block with further fields."""
    fields = Maker(seed=1, whole=True).record(EvmBlock)
    made = resource_of(body_of({**fields, **more}), EvmBlock)
    assert isinstance(made, EvmBlock)
    return made


def test_records_with_further_fields_are_like_others() -> None:
    """Pickles keep further fields at any depth; a changed row has none."""
    rich = block(news=[1], burned="5")
    assert rich.extra is rich.extra
    assert "extra" not in [field.name for field in attrs.fields(EvmBlock)]
    changed = attrs.evolve(rich, gas_used=1)  # type: ignore[misc] # mypy knows attrs' own classes alone
    assert changed.extra == {}, "it is not what the service sent any more"
    value = Newsmaker(seed=1, whole=True).record(NativeTransaction)
    made = pickle.loads(pickle.dumps(resource_of(body_of(value), NativeTransaction)))
    assert made.from_.extra == {"serial number": 1, **NEWS}


def test_one_row_of_a_page_has_further_fields() -> None:
    """Further fields are kept in any row of a page, beside null too; other rows have an empty `extra`."""
    rows = [{"timestamp": number, "value": 1.5} for number in range(1_000)]
    rows[777]["partial"] = True
    page = rows_of(json.dumps({"rows": rows, "new": "a:b"}).encode(), MetricPoint)
    assert [(row.timestamp, row.extra) for row in page if row.extra] == [(777, {"partial": True})]
    fields = Maker(seed=1, whole=True).record(EvmBlock)
    first, second = decoded(EvmBlock, {**fields, "chainId": None}, {**fields, "news": 1})
    assert (first.chain_id, first.extra, second.extra) == (None, {}, {"news": 1})


def test_odd_values_of_further_fields() -> None:
    """Unnamed fields keep their content: one that no Python value can hold causes its row to be refused."""
    row = b'{"rows":[{"timestamp":1,"value":2,"odd":%b}]}'
    for odd, value in ((b"1e400", Decimal("1e400")), (b"9" * 4_000, int("9" * 4_000))):
        assert rows_of(row % odd, MetricPoint)[0].extra == {"odd": value}
    for odd in (b'"\xff"', b"9" * 5_000):
        assert refused(rows_of, row % odd, MetricPoint).row == 0


class Route(EvmBlock, frozen=True, kw_only=True):
    """Record of a user with records in it."""

    hops: tuple[RichAddress, ...] = ()


def test_records_in_tuples_keep_further_fields() -> None:
    """Records in a tuple keep the fields that no record names, as those in a list do."""
    sent = {**Maker(seed=1, whole=True).record(EvmBlock), "hops": [{"address": "0x1", "news": 1}]}
    (row,) = rows_of(body_of({"rows": [sent]}), Route)
    assert isinstance(row.hops, tuple)
    assert [hop.extra for hop in row.hops] == [{"news": 1}]


def test_what_further_fields_take() -> None:
    """Rows with further fields keep their own JSON; other rows keep none."""

    def kept(more: str) -> int:
        rows = ",".join(f'{{"timestamp":{number},"value":1.5{more}}}' for number in range(2_000))
        body = b'{"rows":[%b],"more":"%b"}' % (rows.encode(), b"x" * 200_000)
        tracemalloc.start()
        try:
            held = rows_of(body, MetricPoint)
            del body
            size, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert len(held) == 2_000
        return size // 2_000

    assert kept(',"a":1') - kept("") < 360  # bytes a row; its JSON takes about 75

"""Invalid rows: an error with the remedy, or `Invalid` in place of the row."""

from __future__ import annotations

import json
import pickle
from collections.abc import Sequence
from decimal import Decimal
from functools import partial
from itertools import product
from typing import Any

import attrs
import pytest

from chainapi import ROUTES, Checkpoint, Invalid, MetricPoint, Session
from chainapi.errors import CheckpointError, ConfigurationError, DecodeError
from chainapi.models import EvmBlock
from tests.answers import LARGE, called, page_of, refused, rows_of
from tests.documents import DEEP, LISTS, Maker
from tests.models.lists import ListService
from tests.sessions import reaching

BLOCKS = "/v1/chains/43114/blocks"


def session_of(served: ListService, **options: Any) -> Session:
    """Return a session with this service alone."""
    return reaching(served, api_key="secret-key-of-mine", **options)


def block(number: int, **changed: Any) -> bytes:
    """Return a block; fields that are `...` are left out."""
    own = {"blockNumber": number, "blockHash": f"0x{number}", "blockTimestamp": 1_700_000_000 + number}
    fields = {**Maker(seed=1, whole=True).record(EvmBlock), **own, **changed}
    return json.dumps({name: value for name, value in fields.items() if value is not ...}).encode()


def blocks(odd: bytes, *, at: int = 5, count: int = 10) -> ListService:
    """Return a service with blocks from number 100 down, one of them invalid."""
    rows = [block(100 - place) for place in range(count)]
    return ListService([*rows[:at], odd, *rows[at + 1 :]], items="blocks")


def numbers(rows: Sequence[Any]) -> list[int]:
    """Return the numbers of blocks, both typed and untyped, and of invalid ones."""
    found = [row.raw if isinstance(row, Invalid) else row for row in rows]
    return [int(row["blockNumber"]) if isinstance(row, dict) else row.block_number for row in found]


# The error


async def test_the_error_names_the_row_and_the_ways_on() -> None:
    """DecodeError has the row's number, the JSON path and the ways to continue."""
    async with session_of(blocks(block(95, gasUsed=""))) as session:
        with pytest.raises(DecodeError) as caught:
            await session.data.evm.blocks(43114, page_size=4).collect()
    error = caught.value
    assert (error.row, error.path, error.reason) == (1, "$.blocks[1].gasUsed", "Expected `int`, got `str`")
    assert str(error) == (
        "$.blocks[1].gasUsed: Expected `int`, got `str` in the response to GET /v1/chains/43114/blocks; "
        'resume=error.checkpoint with on_invalid="raw" continues and returns this row as an Invalid record; '
        "without a model, list() of the same path and parameters continues with JSON values"
    )
    copy = pickle.loads(pickle.dumps(error))
    assert (str(copy), copy.row, copy.advice) == (str(error), error.row, error.advice)


UNREADABLE = [
    (b'{"blockHash":"\\ud800"}', "half of a surrogate pair"),
    (b'{"a":["\\udc00\\ud800"]}', "half of a surrogate pair"),
    (b'{"blockHash":"\xff"}', "no valid JSON: not UTF-8"),
    (b'{"a":%b}' % (b"[" * 20_000 + b"]" * 20_000), "nested too deeply"),
]


UNREADABLE_PLAIN = [  # which a model refuses for its type
    (b'"\\ud800"', "half of a surrogate pair"),
    (b"9" * 5_000, "Integer value out of range"),
    (b'"\xff"', "no valid JSON: not UTF-8"),
]


def test_a_row_that_cannot_be_read_is_named() -> None:
    """The error of a row that no decoder reads names it, with a model and without."""
    cases = [*product(UNREADABLE, (EvmBlock, None)), *product(UNREADABLE_PLAIN, (None,))]
    for ((odd, reason), model), padding in product(cases, (0, LARGE)):
        items = None if padding else "blocks"
        body = b'{"blocks":[%b,%b]}' % (block(1), odd) + b" " * padding
        error = refused(page_of, body, model, items)
        assert (error.row, error.path, error.reason) == (1, "$.blocks[1]", reason)
        assert error.advice.startswith("resume=error.checkpoint")
        assert "without a model" not in error.advice  # the row could not be read either
        assert error.malformed is (b"\xff" in odd)
        first, row = rows_of(body, model, items, on_invalid="raw")
        assert type(first) is (model or dict)
        assert (row.error.row, row.error.path, row.error.reason) == (1, "$.blocks[1]", reason)


async def test_half_of_a_surrogate_pair_is_not_requested_again() -> None:
    """Half of a surrogate pair raises an error without a retry; a resume with "raw" returns that row."""
    served = blocks(block(95, blockHash="\ud800"))
    async with session_of(served) as session:
        with pytest.raises(DecodeError) as caught:
            await session.data.evm.blocks(43114, page_size=10).collect()
        assert (served.requests, caught.value.row) == (1, 5)
        rest = session.data.evm.blocks(43114, page_size=10, resume=caught.value.checkpoint, on_invalid="raw")
        rows: list[Any] = await rest.collect()
    assert [type(row) for row in rows].count(Invalid) == 1


def test_other_errors_name_no_row() -> None:
    """Errors in the envelope have no row and offer no way round."""
    for body in (b'{"other":[]}', b'{"blocks":{}}', b'{"blocks":[],"nextPageToken":5}'):
        for on_invalid in ("raise", "raw"):
            error = refused(page_of, body, EvmBlock, "blocks", on_invalid=on_invalid)
            assert (error.row, error.advice) == (None, "")


# As the named route has it, without a model and with one.
SAME_ORDER = {"descending_key": "blockTimestamp", "key": "blockHash"}
TYPED_ORDER = {"descending_key": "block_timestamp", "key": "block_hash"}


@pytest.mark.parametrize("ordered", [True, False])
@pytest.mark.parametrize("named", [True, False])
async def test_a_checkpoint_resumes_with_or_without_a_model(ordered: bool, named: bool) -> None:
    """A typed walk continues untyped at the exact row, and an untyped one typed."""
    served = blocks(block(95, gasUsed=""))

    def walk(session: Session, *, typed: bool, resume: Checkpoint | None = None) -> Any:
        if typed and named:
            return session.data.evm.blocks(43114, page_size=4, resume=resume, on_invalid="raw")
        order: Any = (TYPED_ORDER if typed else SAME_ORDER) if ordered else {}
        model: Any = {"model": EvmBlock, "on_invalid": "raw"} if typed else {}
        return session.data.list(BLOCKS, items="blocks", page_size=4, resume=resume, **order, **model)

    async with session_of(served) as session:
        for steps, typed in product((0, 3, 4, 6), (True, False)):
            begun = walk(session, typed=typed)
            first = [row async for row in begun.items(limit=steps)] if steps else []
            text = begun.checkpoint.dumps()
            rest = await walk(session, typed=not typed, resume=Checkpoint.loads(text)).collect()
            assert numbers([*first, *rest]) == list(range(100, 90, -1))


@pytest.mark.parametrize("order", [SAME_ORDER, {}], ids=["same order", "no order"])
async def test_what_failed_typed_goes_on_untyped(order: Any) -> None:
    """The error's checkpoint resumes with all further rows, untyped or with Invalid."""
    async with session_of(blocks(block(95, gasUsed=""))) as session:
        with pytest.raises(DecodeError) as caught:
            await session.data.evm.blocks(43114, page_size=4).collect()
        first, at = caught.value.partial, caught.value.checkpoint
        plain = await session.data.list(BLOCKS, page_size=4, resume=at, **order).collect()
        walk: Any = session.data.evm.blocks(43114, page_size=4, resume=at, on_invalid="raw")
        mixed = await walk.collect()
    assert numbers([*(first or ()), *plain]) == numbers([*(first or ()), *mixed]) == list(range(100, 90, -1))
    assert [type(row) for row in mixed].count(Invalid) == 1
    assert plain[1]["gasUsed"] == ""


async def test_what_was_in_order_of_one_field_is_not_resumed_by_another() -> None:
    """A walk ordered by one field is not resumed with the order of another.

    The error has the names of both fields.
    """
    async with session_of(blocks(block(95))) as session:
        typed = session.data.evm.blocks(43114, page_size=4)
        assert len([row async for row in typed.items(limit=3)]) == 3
        at = Checkpoint.loads(typed.checkpoint.dumps())
        with pytest.raises(
            CheckpointError, match=r"order of 'blockTimestamp', and .* in the order of 'blockNumber'"
        ):
            session.data.list(BLOCKS, page_size=4, resume=at, descending_key="blockNumber")
        plain = session.data.list(BLOCKS, page_size=4, resume=at)
        assert numbers(await plain.collect()) == list(range(97, 90, -1))


# Invalid records


ODD: list[tuple[bytes, Any, str]] = [
    (block(95, gasUsed=""), None, ".gasUsed"),
    (block(95, blockHash=...), None, ".blockHash"),
    (block(95, new="x", gasUsed=[]), None, ".gasUsed"),
    (b"null", None, ""),
    (b"[1,2]", None, ""),
    (b'"text"', None, ""),
    (b'{"blockNumber":0.12345678901234567890}', {"blockNumber": Decimal("0.12345678901234567890")}, ""),
    (block(95, blockHash="\ud800"), None, ""),
    (b'{"blockHash":"\xff"}', {"blockHash": "\ufffd"}, ""),
    (b'{"n":%b}' % (b"9" * 4_400), '{"n":%s}' % ("9" * 4_400), ""),
    (b"[" * DEEP + b"]" * DEEP, "[" * DEEP + "]" * DEEP, ""),
    (b'{"gasUsed":NaN}', {"gasUsed": "NaN"}, ""),
]


async def test_an_odd_row_stands_among_the_others() -> None:
    """An invalid row has its raw JSON and its error, and all other rows are made."""
    for odd, raw, path in ODD:
        served = blocks(odd)
        async with session_of(served) as session:
            rows: list[Any] = await session.data.evm.blocks(43114, page_size=10, on_invalid="raw").collect()
        assert served.requests == 1
        invalid = rows.pop(5)
        assert isinstance(invalid, Invalid)
        assert invalid.raw == (json.loads(odd) if raw is None else raw)
        assert invalid.error.path.startswith(f"$.blocks[5]{path}")
        assert (invalid.error.row, invalid.error.advice) == (5, "")
        assert str(invalid.error).endswith("in the response to GET /v1/chains/43114/blocks")
        assert numbers(rows) == [100 - place for place in range(10) if place != 5]
        assert {type(row) for row in rows} == {EvmBlock}


async def test_odd_rows_without_a_key_are_never_the_same() -> None:
    """Invalid rows with an object or a list in place of their key are all returned, on several pages too."""
    for odd in list[Any]([[], {}, [1]]):
        rows = [{"txHash": odd, "number": number} for number in range(2)]
        async with session_of(ListService(rows, 1, "delegators")) as session:
            walk: Any = session.data.primary_network.delegators("mainnet", on_invalid="raw")
            assert [row.raw async for row in walk.items()] == rows


def test_the_list_is_found_beside_rows_that_cannot_be_read() -> None:
    """Rows that cannot be decoded do not hide the list field."""
    body = b'{"more":{"list":[]},"rows" : [{"n":1},"\\ud800",[{"x":[]}]],"nextPageToken":"t"}'
    page = page_of(body, items=None, on_invalid="raw")
    assert [type(row) for row in page] == [dict, Invalid, list]
    assert page.next_page_token == "t"
    for other in (b'["\\ud800"]', b'{"a":["\\ud800"],"b":[]}', b'{"a":["\\ud800"]'):
        refused(page_of, other, items=None, on_invalid="raw")


def test_a_damaged_body_is_an_error_all_the_same() -> None:
    """A damaged body raises an error and yields no row, under any on_invalid."""
    for body in (
        b'{"blocks":[{"a":1},{"a":1,}]}',
        b'{"blocks":[{"a":1},{"a":"\\ud800"}',
        b'{"blocks":["\\ud800",{"a" 1}]}',
        b'{"blocks":["\\ud800"]}]',
        b"<html>",
        b"",
    ):
        assert refused(page_of, body, EvmBlock, "blocks", on_invalid="raw").malformed, body


def test_every_list_gives_odd_rows() -> None:
    """Invalid rows are yielded in their place in every list, and the others are as without them."""
    failures = []
    for name in LISTS:
        items = ROUTES[name].route.items or "chains"
        page = Maker(seed=3, whole=True).page(ROUTES[name], 4)
        good = [*called(name, json.dumps(page).encode())]
        page[items].insert(2, 5)
        rows = [*called(name, json.dumps(page).encode(), on_invalid="raw")]
        odd = rows.pop(2)
        if rows != good or odd != (5 if ROUTES[name].rows is str else Invalid(5, odd.error)):
            failures.append(name)
    assert not failures


async def test_points_without_a_time() -> None:
    """A point without a time is yielded once, also across a resume and a restart."""
    kinds = [MetricPoint] * 5 + [Invalid] + [MetricPoint] * 4
    for odd in (b'{"value":1}', b'{"timestamp":null,"value":1}', b"null"):
        rows = [b'{"timestamp":%d,"value":1}' % (100 - place) for place in range(10)]
        rows[5] = odd
        served = ListService(rows, 4, "results")
        async with session_of(served) as session:
            walk: Any = partial(session.metrics.avg_tps, 1, on_invalid="raw")
            for stop in (1, 4, 5, 6, 9, 10):
                pages = walk()
                first = await pages.collect(limit=stop)
                rest = await walk(resume=Checkpoint.loads(pages.checkpoint.dumps())).collect()
                assert [type(row) for row in [*first, *rest]] == kinds
            pages = walk()
            first = await pages.collect(limit=4)
            served.forget()
            assert [type(row) for row in [*first, *await pages.collect()]] == kinds
            assert pages.restarts == 1


async def test_the_key_is_in_no_error_of_a_row() -> None:
    """An echoed key is masked in the error of an invalid row."""
    strange = attrs.make_class("Strange", {"by_name": attrs.field(type=dict[str, int])})
    async with session_of(blocks(b'{"byName":{"secret-key-of-mine":"x"}}')) as session:
        walk: Any = session.data.list(BLOCKS, items="blocks", model=strange, on_invalid="raw")
        rows = await walk.collect()
    assert all(isinstance(row, Invalid) for row in rows)
    assert "secret-key-of-mine" not in "".join(str(row.error) for row in rows)


async def test_other_values_are_refused() -> None:
    """on_invalid has two values, and any other is refused before a request."""
    served = blocks(b"null")
    async with session_of(served) as session:
        for value in list[Any](["skip", None, True, ["raw"]]):
            for call in (
                partial(session.data.list, BLOCKS),
                partial(session.data.evm.blocks, 1),
                partial(session.metrics.avg_tps, 1),
            ):
                with pytest.raises(ConfigurationError, match="must be 'raise' or 'raw'"):
                    call(on_invalid=value)
    assert served.requests == 0


def test_invalid_records() -> None:
    """Invalid records are compared by their raw JSON and can be pickled."""
    error = DecodeError("missing", path="$.blocks[1].x", row=1)
    record = Invalid({"a": 1}, error)
    assert record == Invalid({"a": 1}, DecodeError("other"))
    copy = pickle.loads(pickle.dumps(record))
    assert (copy, str(copy.error)) == (record, "$.blocks[1].x: missing")

"""Arrow arrays of values: those that pyarrow makes of the same Python objects."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chainapi.tables.arrow import array_of, arrow_type
from chainapi.tables.columns import Column
from chainapi.tables.types import INT64, YEARS, Kind

BEGIN = datetime(1970, 1, 1, tzinfo=UTC)
AMOUNT = st.integers(0, 2**256 - 1)
VALUES: dict[Kind, st.SearchStrategy[Any]] = {
    "integer": st.integers(*INT64),
    "float": st.floats(allow_nan=False),
    "boolean": st.booleans(),
    "text": st.text(st.characters(codec="utf-8"), max_size=4),
    "digits": AMOUNT.map(str),
    "time": st.integers(*YEARS),
    "whole": st.integers(1 - 10**38, 10**38 - 1).map(str),
    "decimal": st.decimals(-(10**19), 10**19, places=18).map("{:f}".format),
    "bytes32": AMOUNT.map("0x{:064x}".format),
    "json": st.sampled_from(["null", "1", '"é"', '{"a":[null]}']).map(
        lambda text: msgspec.Raw(text.encode())
    ),
}


def plain(kind: Kind, value: Any) -> Any:
    """Return a value as the Python object that Arrow has for it."""
    if value is None or value == msgspec.Raw(b"null"):
        return None
    match kind:
        case "time":
            return BEGIN + timedelta(seconds=value)
        case "whole" | "decimal":
            return Decimal(value)
        case "bytes32":
            return bytes.fromhex(value[2:])
        case "json":
            return bytes(value).decode()
    return value


@settings(max_examples=30)
@pytest.mark.parametrize("kind", VALUES)
@given(data=st.data())
def test_values(kind: Kind, data: st.DataObject) -> None:
    """Values of each kind, nulls among them, become the array that pyarrow makes of them."""
    nothing = msgspec.Raw(b"null") if kind == "json" else None
    values = data.draw(st.lists(VALUES[kind] | st.just(nothing), max_size=20))
    column = Column("values", kind)
    made = array_of(column, values)
    made.validate(full=True)
    assert made == pa.array([plain(kind, value) for value in values], arrow_type(column))


class Inner(msgspec.Struct):
    """Record in a row."""

    name: str | None
    sizes: list[int | None] | None


@settings(max_examples=60)
@given(
    st.lists(
        st.none()
        | st.builds(
            Inner,
            st.none() | st.text("aé", max_size=2),
            st.none() | st.lists(st.none() | st.integers(0, 9), max_size=3),
        )
    )
)
def test_records_and_lists(values: list[Inner | None]) -> None:
    """Records with lists in them, and lists of records, become the arrays that pyarrow makes of dicts."""
    fields = Column("name", "text"), Column("sizes", "list", (Column("item", "integer"),))
    record = Column("record", "struct", fields)
    dicts = [None if value is None else msgspec.structs.asdict(value) for value in values]
    several = Column("records", "list", (record,))
    for column, given_, wanted in (
        (record, values, dicts),
        (several, [values, None, [], values], [dicts, None, [], dicts]),
    ):
        made = array_of(column, given_)
        made.validate(full=True)
        assert made == pa.array(wanted, arrow_type(column))

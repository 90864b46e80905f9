"""Tables of streams and files of exports: the same rows and faults."""

from __future__ import annotations

import json
from itertools import permutations
from pathlib import Path
from typing import Any, Literal

import pyarrow.parquet
from attrs import Factory, field, make_class
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic.alias_generators import to_camel

from chainapi import ROUTES
from chainapi.errors import DecodeError, IncompleteExportError
from chainapi.models import EvmBlock, MetricPoint, Transfer
from tests.answers import exported, refused, table_of
from tests.documents import LISTS, Maker
from tests.models.classes import class_of
from tests.models.lists import Bodies
from tests.models.test_kinds import body_of
from tests.sessions import reaching

# A class of a user's, with a field of each type that has columns: its name, type, JSON, and default if any.
OF_READING: list[tuple[Any, ...]] = [
    *(
        ("number", int, "integer"),
        ("name", str, "text"),
        ("share", float, "float"),
        ("sure", bool, "boolean"),
    ),
    *(("unit", Literal["a", "b"], '"a"'), ("gas_price", int, "integer")),
    *(("count", int | None, "integer", None), ("note", str | None, "text", None)),
    *(("rate", float | None, "float", None), ("seen", bool | None, "boolean", None)),
    ("kind", Literal["x"] | None, '"x"', None),
]
TYPES: Any = {name: (hint, None) if default else hint for name, hint, _, *default in OF_READING}
READING: type = class_of("attrs class", **TYPES)
# Values as JSON: what services send, and what they should not.
ODD = (
    *("null", "true", "1.0", "1e3", "1.5", "-0", "0", "{}", "[]", "1e400", "253402300800"),
    *('"1"', '"007"', '"-5"', '"1.0"', '"+1"', '" 1"', '"x"', '""', '"null"', '"NULL"'),
    *('"é"', '"\\u00e9\\n"', '"\\ud83d\\ude00"', '"\\ud800"'),
    *map(str, (2**63, 2**64, 10**77, -(2**63) - 1)),
    *(f'"{number}"' for number in (2**63, 10**77)),
)
PLAIN: dict[str, st.SearchStrategy[str]] = {
    "integer": st.integers(0, 2**40).map(str) | st.integers(-5, 10**20).map('"{}"'.format),
    "float": st.floats(allow_nan=False, allow_infinity=False).map(json.dumps) | st.integers(0, 9).map(str),
    "boolean": st.sampled_from(["true", "false"]),
    "text": st.text(max_size=5).map(json.dumps),
}


# JSON of a field of each model: its name, its kind, and whether it may be missing.
FIELDS: dict[type, list[tuple[str, str, bool]]] = {
    READING: [(to_camel(name), kind, bool(default)) for name, _, kind, *default in OF_READING],
    MetricPoint: [("timestamp", "integer", False), ("value", "float", False)],
    EvmBlock: [
        (name, "text" if isinstance(value, str) and not value.lstrip("-").isdecimal() else "integer", False)
        for name, value in Maker(1, whole=True).record(EvmBlock).items()
    ],
}


def value_of(kind: str) -> st.SearchStrategy[str]:
    """Return a strategy of JSON values for a field, odd ones among them."""
    return st.one_of([PLAIN.get(kind, st.just(kind))] * 30 + [st.sampled_from(ODD)])


@st.composite
def rows_of(draw: st.DrawFn, model: type) -> str:
    """Draw a row as JSON: fields may be missing, come twice, or have no name in the model."""
    pairs = []
    for wire, kind, may_miss in FIELDS[model]:
        times = draw(st.sampled_from([1] * 40 + [0, 2] + [0, 0, 0] * may_miss))
        pairs += [f'"{wire}":{draw(value_of(kind))}' for _ in range(times)]
    if draw(st.integers(0, 30)) == 0:
        name = draw(st.sampled_from(["further", "source", "extra", "_label", "_unnamed"]))
        pairs.append(f'"{name}":{draw(st.sampled_from(ODD))}')
    return "{" + ",".join(pairs) + "}"


def outcome(read: Any, *arguments: Any, **options: Any) -> Any:
    """Return the table of a call, or its fault."""
    try:
        return read(*arguments, **options)
    except DecodeError as fault:
        return type(fault), fault.path, fault.reason, fault.row


def test_files_of_every_list(tmp_path: Path) -> None:
    """A Parquet export of each list has the columns, the types and the values of its table."""
    failures = []
    for name in LISTS[::6]:
        model = ROUTES[name].rows
        body = body_of([Maker(seed, whole=seed == 0).value(model) for seed in range(6)])
        written = pyarrow.parquet.read_table(exported(body, tmp_path / f"{name}.parquet", model))
        if written.drop_columns(["source"]).to_pylist() != table_of(body, model).to_pylist():
            failures.append(name)
    assert not failures


@settings(max_examples=12)
@given(st.sampled_from([EvmBlock, MetricPoint, READING]), st.data())
def test_files_have_the_rows_of_tables(tmp_path_factory: Any, model: Any, data: st.DataObject) -> None:
    """An export has the rows of the table, or fails for the same reason, with odd values too."""
    rows = data.draw(st.lists(rows_of(model), min_size=1, max_size=3))
    body = ('{"rows":[' + ",".join(rows) + "]}").encode("utf-8", "surrogatepass")
    made = outcome(table_of, body, model)
    try:
        out = exported(body, tmp_path_factory.mktemp("out") / "out.parquet", model)
    except IncompleteExportError as error:
        (fault,) = error.failures.values()
        assert isinstance(fault, DecodeError)
        assert (type(fault), fault.path, fault.reason, fault.row) == made
    else:
        assert pyarrow.parquet.read_table(out).drop_columns(["source"]).to_pylist() == made.to_pylist()


async def test_texts_of_one_table() -> None:
    """Texts keep their bytes next to null and to texts of other languages, in each order of the pages."""
    notes: tuple[list[str | None], ...] = (["a", "bc"], ["é", "日本", ""], [None], ["x", None, "ü"], [])
    row = {"number": 1, "share": 1.5, "sure": True, "unit": "a", "gasPrice": 1, "name": "n"}
    for order in permutations(notes):
        bodies = [{"rows": [{**row, "note": note} for note in page]} for page in order]
        async with reaching(Bodies(bodies=tuple(bodies))) as session:
            table = await session.data.list("/v1/x", items="rows", model=READING).to_arrow()
        assert table["note"].to_pylist() == [note for page in order for note in page]


def positive(_: Any, __: Any, value: int) -> None:
    """Refuse a negative number."""
    if value < 0:
        raise ValueError("negative")


def test_validators_and_defaults_hold_for_tables() -> None:
    """A validator runs for each row of a table, and a default that does not fit its column is refused."""
    checked = make_class("Checked", {"number": field(type=int, validator=positive)}, frozen=True)
    assert table_of(body_of([{"number": 1}]), checked)["number"].to_pylist() == [1]
    error = refused(table_of, body_of([{"number": 1}, {"number": -1}]), checked)
    assert (error.path, error.row, "negative" in error.reason) == ("$.rows[1]", 1, True)
    body = b'{"rows":[{"plain":"1"}, {"plain":2}]}'
    for kind, default in ((int, 2**70), (int, Factory(lambda: "four")), (str, 5), (bool, Factory(list))):
        fields = {"plain": field(type=int), "given": field(type=kind, default=default)}
        assert refused(table_of, body, make_class("Given", fields, frozen=True)).path == "$.given", default
    fields = {"plain": field(type=int), "given": field(type=float, default=0)}
    assert table_of(body, make_class("Given", fields))["given"].to_pylist() == [0.0, 0.0]


def test_pages_with_a_row_of_an_unknown_kind() -> None:
    """A row of an unknown kind does not change the table of the others."""
    rows = [Maker(1, whole=True).value(Transfer), {"futureToken": {}}]
    table = table_of(body_of(rows), Transfer)
    assert table.slice(0, 1).to_pylist() == table_of(body_of(rows[:1]), Transfer).to_pylist()
    assert table["extra"].to_pylist()[1] == '{"futureToken":{}}'

"""Records of both services: numbers, times, optional fields, and what attrs and pickle make of them."""

from __future__ import annotations

import copy
import gc
import inspect
import json
import os
import pickle
import re
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import attrs
import cattrs
import cloudpickle  # type: ignore[import-untyped]
import msgspec
import pytest
from rich.pretty import pretty_repr

import chainapi
from chainapi import ROUTES, MetricPoint, models
from chainapi.models import EvmBlock, SharedSecret, Unknown
from tests.answers import called, decoded, refused
from tests.documents import RECORDS, RETURNED, Maker

POINT = MetricPoint(1_700_000_000, 1.5)


def a_block(**changed: Any) -> dict[str, Any]:
    """Return a block with all its fields, some changed; fields whose value is `...` are left out."""
    fields = {**Maker(seed=1, whole=True).record(EvmBlock), **changed}
    return {name: value for name, value in fields.items() if value is not ...}


# All of them


def times_of(record: Any) -> list[str]:
    """Return the names of the timestamps of a record, without their last word."""
    names = [field.name for field in attrs.fields(record) if field.name.endswith("timestamp")]
    return [name.removesuffix("timestamp") for name in names]


def fault_of(record: Any) -> str | None:
    """Return what a record does wrong, or None."""
    rows = decoded(record, *(Maker(seed).record(record) for seed in range(3)))
    if {type(row) for row in rows} != {record}:
        return "other classes"
    for row in rows:
        if not pickle.loads(pickle.dumps(row)) == row == copy.deepcopy(row) == copy.copy(row):
            return "its copies differ"
        if hasattr(row, "__dict__"):
            return "it has a dict"
        for name in times_of(record):
            stamp = getattr(row, f"{name}timestamp")
            if getattr(row, f"{name}time") != (None if stamp is None else datetime.fromtimestamp(stamp, UTC)):
                return f"{name}time"
        hidden = [field.name for field in attrs.fields(record) if not field.repr]
        if any(f"{name}=" in repr(row) + pretty_repr(row) for name in hidden):
            return "its repr shows a hidden field"
        try:
            setattr(row, attrs.fields(record)[0].name, None)
        except AttributeError:
            continue
        return "it is not frozen"
    return None


def test_every_record() -> None:
    """Records decode with and without optional fields, are frozen, and keep their values in copies."""
    failures = [f"{name}: {fault}" for name, record in RECORDS.items() if (fault := fault_of(record))]
    assert not failures


def hash_of(row: Any) -> int | None:
    """Return the hash of a row; None if it has a list in it."""
    try:
        return hash(row)
    except TypeError:
        return None


def test_records_equal_those_with_further_fields() -> None:
    """A record that keeps a field that it does not name is equal to one without: equal hash, equal repr."""
    failures = []
    for name, record in RETURNED.items():
        if not attrs.has(record):
            continue
        row = Maker(seed=1).record(record)
        plain, further = decoded(record, row, {**row, "more": 1})
        shown = [(repr(one), hash_of(one), attrs.asdict(one)) for one in (plain, further)]
        same = plain == further == plain and shown[0] == shown[1]
        if not same or (plain.extra, further.extra) != ({}, {"more": 1}):
            failures.append(name)
        if not isinstance(further, record) or not issubclass(type(further), record):
            failures.append(name)
        twins = [copy.copy(further), copy.deepcopy(further), pickle.loads(pickle.dumps(further))]
        if [(twin, twin.extra) for twin in twins] != [(further, {"more": 1})] * 3:
            failures.append(name)
    assert not failures


def novel_texts(value: Any) -> Iterator[str]:
    """Yield the unlisted values in rows, in the order of their fields."""
    if isinstance(value, str) and value.startswith("novel"):
        yield value
    elif attrs.has(type(value)):
        yield from novel_texts([getattr(value, field.name) for field in attrs.fields(type(value))])
    elif isinstance(value, list | dict):
        for entry in value.values() if isinstance(value, dict) else value:
            yield from novel_texts(entry)


def test_every_route_takes_values_that_are_not_listed() -> None:
    """Fields with listed values keep any other text, also nested and in unions."""
    failures = []
    for name, declared in ROUTES.items():
        for seed in range(2):
            maker = Maker(seed, whole=True, novel=True)
            sent = maker.value(declared.rows) if declared.single else maker.page(declared, 3)
            made = called(name, json.dumps(sent).encode())
            rows = [made] if declared.single else [*made]
            shown = sent if declared.single else sent[declared.route.items or "chains"]
            if [*novel_texts(rows)] != re.findall(r"novel\d+", json.dumps(shown)):
                failures.append(name)
            if any(isinstance(row, Unknown) for row in rows):
                failures.append(name)
    assert not failures


def test_names_are_found_where_they_are() -> None:
    """The package offers each record by its name and no other, and lists them all."""
    assert dir(models) == sorted(models.__all__)
    assert {"EvmBlock", "Invalid", "MetricPoint", "Unknown", "converter"} <= {*dir(models)}
    assert all(getattr(models, name).__name__ == name for name in RECORDS)
    everything: dict[str, Any] = {}
    exec("from chainapi.models import *", everything)
    assert {*dir(models)} <= {*everything}
    with pytest.raises(AttributeError, match="no attribute 'NoSuchRecord'"):
        _ = models.NoSuchRecord


# Numbers, texts, times


def test_whole_numbers_are_exact() -> None:
    """Whole numbers beyond 64 bits are exact, sent as numbers or as texts; other texts are refused."""
    for number in (0, 1, -5, 2**53 + 1, 10**18, 2**64, 10**77):
        for value in (number, str(number)):
            (row,) = decoded(EvmBlock, a_block(gasUsed=value, chainId=value))
            assert (row.gas_used, row.chain_id) == (number, number)
    for text in ("", "x", "1.0", "1e3", " 1", "1_000", "0x1", "007", "+1", "true"):
        for name in ("gasUsed", "chainId"):
            error = refused(decoded, EvmBlock, a_block(), a_block(**{name: text}))
            assert (error.path, error.reason[:13]) == (f"$.rows[1].{name}", "Expected `int"), text
    assert refused(decoded, EvmBlock, a_block(gasUsed="null")).path == "$.rows[0].gasUsed"
    (row,) = decoded(EvmBlock, a_block(chainId="null", blockHash="null"))
    assert (row.chain_id, row.block_hash) == (None, "null"), "a text stays a text"


def test_required_fields_and_others() -> None:
    """A missing required field is an error with its path; others are None, and unknown values are kept."""
    (row,) = decoded(EvmBlock, a_block(chainId=..., blockMinDelayExcess=None))
    assert (row.chain_id, row.block_min_delay_excess) == (None, None)
    error = refused(decoded, EvmBlock, a_block(blockHash=...))
    assert (error.path, error.reason) == ("$.rows[0].blockHash", "missing")
    (chain,) = decoded(models.ChainInfo, {"networkToken": {}, "utilityAddresses": {}})
    for part in (chain.network_token, chain.utility_addresses):
        assert not any(attrs.astuple(part)), "real answers lack any of them"


def test_a_secret_is_not_shown() -> None:
    """Webhook secrets are in no repr."""
    (made,) = decoded(SharedSecret, {"secret": "hush"})
    assert made.secret == "hush"
    assert "hush" not in repr(made) + pretty_repr(made)


# Names, for a program


def test_another_name_of_a_field_names_the_attribute() -> None:
    """A name in JSON, a subscript or a misspelt name is an error with the attribute that was meant."""
    row: Any = decoded(EvmBlock, a_block())[0]
    for name in ("blockNumber", "block_numbr"):
        with pytest.raises(AttributeError, match=r"no attribute .*did you mean 'block_number'\?"):
            getattr(row, name)
        with pytest.raises(TypeError, match=r"EvmBlock is no dict: read row\.block_number"):
            row[name]
    with pytest.raises(AttributeError, match="EvmBlock has no attribute 'xyz'"):
        _ = row.xyz
    assert not hasattr(row, "__array__")
    assert dict(row)["block_number"] == row.block_number


# As attrs classes, for a program


class Labelled(MetricPoint, frozen=True):
    """Point with a field of a user's."""

    label: str = ""


class Listed(MetricPoint, frozen=True):
    """Point with a field of a user's whose default is a new list."""

    labels: list[str] = msgspec.field(default_factory=list[str])


class Doubled(MetricPoint, frozen=True):
    """Point with a method of a user's."""

    def double(self) -> float:
        """Return twice the value."""
        return 2 * self.value


def test_records_of_scalars_are_not_tracked() -> None:
    """The garbage collector tracks no point that was decoded, made, copied or unpickled."""
    rows = [*decoded(MetricPoint, {"timestamp": 1, "value": 2.5}), POINT, copy.copy(POINT)]
    rows += [attrs.evolve(POINT, value=2.0), pickle.loads(pickle.dumps(POINT))]  # type: ignore[misc] # mypy knows attrs' own classes alone
    rows += decoded(EvmBlock, a_block())
    gc.collect()
    assert [gc.is_tracked(row) for row in rows] == [False] * len(rows)
    assert sys.getsizeof(POINT) <= 16 + 2 * 8 + 8


def test_attrs_takes_a_point_as_its_own() -> None:
    """Functions of attrs read and change points; no field can be set or deleted."""
    assert [field.name for field in attrs.fields(MetricPoint)] == ["timestamp", "value"]
    assert attrs.fields(MetricPoint).value.type in (float, "float")
    assert attrs.asdict(POINT) == {"timestamp": 1_700_000_000, "value": 1.5}
    assert attrs.astuple(POINT) == (1_700_000_000, 1.5)
    assert attrs.evolve(POINT, value=2.0) == MetricPoint(1_700_000_000, 2.0)  # type: ignore[misc] # mypy knows attrs' own classes alone
    with pytest.raises(AttributeError):
        setattr(POINT, "value", 2.0)  # noqa: B010 - the checker knows that it is frozen
    with pytest.raises(AttributeError):
        delattr(POINT, "value")
    assert attrs.has(MetricPoint)


def test_points_are_compared_by_their_fields() -> None:
    """Equal points are equal, have one hash and one repr, and match by position."""
    same = MetricPoint(timestamp=1_700_000_000, value=1.5)
    assert same == POINT
    assert {POINT: 1}[same] == 1
    assert MetricPoint(1, 1.5) != POINT
    assert repr(POINT) == "MetricPoint(timestamp=1700000000, value=1.5)"
    further = decoded(MetricPoint, {"timestamp": 1_700_000_000, "value": 1.5, "unit": "tps"})
    for point in (POINT, *further):
        match point:
            case MetricPoint(timestamp, value):
                assert (timestamp, value) == (1_700_000_000, 1.5)
    assert {*further} == {POINT}
    assert further[0] != Doubled(1_700_000_000, 1.5)
    assert list(inspect.signature(MetricPoint).parameters) == ["timestamp", "value"]
    with pytest.raises(TypeError):
        MetricPoint(1)  # type: ignore[call-arg]


def test_points_are_pickled_and_copied() -> None:
    """Copies and pickles of every protocol are equal, and keep the fields that no record names."""
    (further,) = decoded(MetricPoint, {"timestamp": 1, "value": 2.5, "unit": "tps"})
    for point in (POINT, further, Labelled(1, 2.5, "x")):
        twins = [
            pickle.loads(pickle.dumps(point, protocol)) for protocol in range(pickle.HIGHEST_PROTOCOL + 1)
        ]
        for again in (*twins, copy.copy(point), copy.deepcopy(point)):
            assert (again, type(again), again.extra) == (point, type(point), point.extra)
    assert further.extra == {"unit": "tps"}


@pytest.mark.adapter
def test_a_class_of_main_reaches_another_process(tmp_path: Path) -> None:
    """A class that travels by value, as Dask sends those of ``__main__``, stays derived from the point."""
    module = sys.modules[__name__]
    cloudpickle.register_pickle_by_value(module)
    try:
        content = cloudpickle.dumps([Doubled(1, 2.5)])
    finally:
        cloudpickle.unregister_pickle_by_value(module)
    (tmp_path / "rows").write_bytes(content)
    code = (
        "import pickle; from pathlib import Path; from chainapi import MetricPoint;"
        "rows = pickle.loads(Path('rows').read_bytes());"
        "print([isinstance(row, MetricPoint) for row in rows], rows[0].double())"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(chainapi.__file__).parent.parent)}
    command = [sys.executable, "-c", code]
    run = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
    assert run.stdout == "[True] 5.0\n"


def test_cattrs_and_msgspec_take_points() -> None:
    """The converter of a user and msgspec read and write points."""
    fields = {"timestamp": 1_700_000_000, "value": 1.5}
    converter = cattrs.Converter()
    assert converter.structure(fields, MetricPoint) == POINT
    assert converter.unstructure(POINT) == fields
    assert converter.structure({**fields, "label": "x"}, Labelled) == Labelled(1_700_000_000, 1.5, "x")
    assert msgspec.json.decode(msgspec.json.encode([POINT]), type=list[MetricPoint]) == [POINT]
    assert msgspec.json.decode(msgspec.json.encode(POINT)) == fields
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(b'{"timestamp": "x", "value": 1}', type=MetricPoint)


def test_a_class_of_a_user_may_derive_from_a_point() -> None:
    """A class derived from a point is a record too, with or without fields of its own."""
    rows = [Labelled(1, 2.5, "x"), Doubled(1, 2.5)]
    for row in rows:
        assert isinstance(row, MetricPoint)
        assert issubclass(type(row), MetricPoint)
        assert row.time == MetricPoint(1, 2.5).time
        assert attrs.evolve(row, value=3.5).value == 3.5  # type: ignore[misc] # mypy knows attrs' own classes alone
        assert attrs.asdict(row)["timestamp"] == 1
        assert not isinstance(POINT, type(row))
    assert rows[0] != MetricPoint(1, 2.5)
    assert Doubled(1, 2.5).double() == 5.0
    with pytest.raises(AttributeError):
        rows[0].label = "y"  # type: ignore[attr-defined]
    sent = {"timestamp": 1, "value": 2.5, "label": "x"}
    assert decoded(Labelled, sent) == [Labelled(1, 2.5, "x")]
    assert decoded(Listed, {"timestamp": 1, "value": 2.5}) == [Listed(1, 2.5)]
    assert attrs.fields(Listed).labels.default.factory() == []

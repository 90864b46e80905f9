"""Records that the garbage collector does not track are attrs classes to their users."""

from __future__ import annotations

import copy
import gc
import inspect
import json
import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import attrs
import cattrs
import cloudpickle  # type: ignore[import-untyped]
import msgspec
import pytest
from attrs.exceptions import FrozenInstanceError
from rich.pretty import pretty_repr

import chainapi
from chainapi import MetricPoint, models
from chainapi.models.codec import PageDecoder, decode_resource
from chainapi.models.records import AnyRecord
from chainapi.models.untracked import class_with_extra, is_untracked
from tests.documents import Maker

POINT = MetricPoint(1_700_000_000, 1.5)
BODY = {"results": [{"timestamp": 1_700_000_000 - row, "value": row + 0.5} for row in range(3)]}


@attrs.frozen
class Labelled(MetricPoint):
    """Point with a field of a user's."""

    label: str = ""


@attrs.define(slots=False, frozen=True)
class Loose(MetricPoint):
    """Point with a dict of attributes."""

    labels: list[str] = attrs.field(factory=list[str])


class Doubled(MetricPoint):
    """Point with a method of a user's."""

    def double(self) -> float:
        """Return twice the value."""
        return 2 * self.value


def decoded(body: dict[str, Any]) -> list[Any]:
    """Decode points."""
    return PageDecoder(MetricPoint, "results").decode(json.dumps(body).encode()).rows


def test_points_are_not_tracked() -> None:
    """The collector tracks no point that was decoded, made, copied or unpickled."""
    rows = [*decoded(BODY), POINT, copy.copy(POINT), attrs.evolve(POINT, value=2.0)]
    rows.append(pickle.loads(pickle.dumps(POINT)))
    gc.collect()
    assert [gc.is_tracked(row) for row in rows] == [False] * len(rows)
    assert {type(row) for row in rows} == {MetricPoint}


def test_each_record_of_scalars_is_untracked_and_an_attrs_class() -> None:
    """Such records keep the defaults, the keywords and the secrets of their attrs class, also in copies."""
    found = (getattr(models, name) for name in models.__all__)
    kinds: list[Any] = [kind for kind in found if isinstance(kind, msgspec.StructMeta)]
    assert {MetricPoint, models.EvmBlock, models.SharedSecret} < {*kinds}
    for kind in kinds:
        fields = attrs.fields(kind)
        required = {field.name: "8" for field in fields if field.default is attrs.NOTHING}
        record = kind(**required)
        assert attrs.asdict(record) == {field.name: required.get(field.name) for field in fields}
        for again in (record, copy.deepcopy(record), pickle.loads(pickle.dumps(record))):
            assert not gc.is_tracked(again)
            assert again == record
        for text in (repr(record), pretty_repr(record)):
            assert not [field.name for field in fields if not field.repr and f"{field.name}=" in text]


def test_each_record_of_scalars_equals_one_with_further_fields() -> None:
    """A record that keeps a field that it does not name is equal to one without, with the same hash."""
    found = (getattr(models, name) for name in models.__all__)
    for kind in [kind for kind in found if isinstance(kind, msgspec.StructMeta)]:
        row = Maker(seed=1).record(kind)
        rows = [json.dumps(fields).encode() for fields in (row, {**row, "more": 1})]
        plain, further = (decode_resource(content, kind) for content in rows)
        assert (plain.extra, further.extra) == ({}, {"more": 1})
        assert (plain, further) == (further, plain)
        assert hash(plain) == hash(further)
        assert attrs.asdict(plain) == attrs.asdict(further)
        assert repr(plain) == repr(further)


def test_points_have_no_part_for_the_collector() -> None:
    """A point takes the memory of its fields, and the 16 bytes of each object."""
    assert sys.getsizeof(POINT) == 16 + 2 * 8
    assert not gc.is_tracked(MetricPoint(1, []))  # type: ignore[arg-type]


def test_attrs_takes_a_point_as_its_own() -> None:
    """Functions of attrs read, convert and change points; no field can be set or deleted."""
    assert [field.name for field in attrs.fields(MetricPoint)] == ["timestamp", "value"]
    assert attrs.fields(MetricPoint).value.type in (float, "float")
    assert attrs.asdict(POINT) == {"timestamp": 1_700_000_000, "value": 1.5}
    assert attrs.astuple(POINT) == (1_700_000_000, 1.5)
    assert attrs.evolve(POINT, value=2.0) == MetricPoint(1_700_000_000, 2.0)
    with pytest.raises(FrozenInstanceError):
        setattr(POINT, "value", 2.0)  # noqa: B010 - the checker knows that it is frozen
    with pytest.raises(FrozenInstanceError):
        delattr(POINT, "value")
    assert POINT.value == 1.5
    assert attrs.has(MetricPoint)


def test_points_are_compared_by_their_fields() -> None:
    """Equal points are equal, have one hash and one repr, and match by position."""
    same = MetricPoint(timestamp=1_700_000_000, value=1.5)
    assert same == POINT
    assert hash(same) == hash(POINT)
    assert {POINT: 1}[same] == 1
    assert MetricPoint(1, 1.5) != POINT
    assert repr(POINT) == "MetricPoint(timestamp=1700000000, value=1.5)"
    match POINT:
        case MetricPoint(timestamp, value):
            assert (timestamp, value) == (1_700_000_000, 1.5)
    assert list(inspect.signature(MetricPoint).parameters) == ["timestamp", "value"]
    with pytest.raises(TypeError):
        MetricPoint(1)  # type: ignore[call-arg]


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_points_are_pickled_and_copied(protocol: int) -> None:
    """Copies and pickles of points are equal, and keep the fields that no record names."""
    (further,) = decoded({"results": [{"timestamp": 1, "value": 2.5, "unit": "tps"}]})
    for point in (POINT, further, Labelled(1, 2.5, "x")):
        for again in (
            pickle.loads(pickle.dumps(point, protocol)),
            copy.copy(point),
            copy.deepcopy(point),
        ):
            assert again == point
            assert type(again) is type(point)
            assert again.extra == point.extra
    assert further.extra == {"unit": "tps"}


def test_classes_are_pickled_by_their_names() -> None:
    """Each untracked record, and the class of its objects with further fields, is found by its name."""
    records = [getattr(models, name) for name in models.__all__]
    for record in filter(is_untracked, records):
        for kind in (record, class_with_extra(record)):
            assert pickle.loads(pickle.dumps(kind)) is kind


def test_a_class_of_main_reaches_another_process(tmp_path: Path) -> None:
    """A class that travels by value, as Dask sends those of ``__main__``, stays derived from the point."""
    module = sys.modules[__name__]
    cloudpickle.register_pickle_by_value(module)
    try:
        content = cloudpickle.dumps([Doubled(1, 2.5), Labelled(1, 2.5, "x")])
    finally:
        cloudpickle.unregister_pickle_by_value(module)
    (tmp_path / "rows").write_bytes(content)
    code = (
        "import pickle; from pathlib import Path; from chainapi import MetricPoint;"
        "rows = pickle.loads(Path('rows').read_bytes());"
        "print([isinstance(row, MetricPoint) for row in rows], rows[0].double(), rows[1].label)"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(chainapi.__file__).parent.parent)}
    run = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert run.stdout == "[True, True] 5.0 x\n"


def test_points_with_further_fields_are_points() -> None:
    """Points with fields that the record does not name are instances of it, and equal to others."""
    rows = decoded({"results": [{"timestamp": row, "value": 1.5, "unit": row} for row in range(3)]})
    plain = [MetricPoint(row, 1.5) for row in range(3)]
    assert [row.extra for row in rows] == [{"unit": row} for row in range(3)]
    assert (rows, plain) == (plain, rows)
    assert {*rows} == {*plain}
    assert rows[0] != plain[1]
    assert plain[1] != rows[0]
    assert rows[0] != Doubled(0, 1.5)
    assert repr(rows) == repr(plain)
    assert attrs.evolve(rows[0], value=2.5) == MetricPoint(0, 2.5)
    for row in rows:
        assert isinstance(row, MetricPoint)
        assert isinstance(row, AnyRecord)
        assert issubclass(type(row), MetricPoint)
        assert type(row).__name__ == "MetricPoint"
        with pytest.raises(FrozenInstanceError):
            setattr(row, "value", 2.0)  # noqa: B010 - the checker knows that it is frozen
        assert [copy.copy(row).extra, pickle.loads(pickle.dumps(row)).extra] == [row.extra] * 2
        assert msgspec.json.decode(msgspec.json.encode(row)) == {"timestamp": row.timestamp, "value": 1.5}
    match rows[2]:
        case MetricPoint(timestamp, value):
            assert (timestamp, value) == (2, 1.5)


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
    """A class derived from a point is an attrs class: with slots, with a dict, or without attrs."""
    rows = [Labelled(1, 2.5, "x"), Loose(1, 2.5, ["x"]), Doubled(1, 2.5)]
    for row in rows:
        assert isinstance(row, MetricPoint)
        assert isinstance(row, AnyRecord)
        assert issubclass(type(row), MetricPoint)
        assert row.time == MetricPoint(1, 2.5).time
        assert attrs.evolve(row, value=3.5).value == 3.5
        assert attrs.asdict(row)["timestamp"] == 1
        assert not isinstance(POINT, type(row))
    assert rows[0] != MetricPoint(1, 2.5)
    assert Doubled(1, 2.5).double() == 5.0
    with pytest.raises(FrozenInstanceError):
        rows[0].label = "y"  # type: ignore[attr-defined]
    body = json.dumps({"results": [{"timestamp": 1, "value": 2.5, "label": "x"}]}).encode()
    assert PageDecoder(Labelled, "results").decode(body).rows == [Labelled(1, 2.5, "x")]

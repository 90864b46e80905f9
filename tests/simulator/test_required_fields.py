"""Required fields added to a model get a value in every simulated row."""

from __future__ import annotations

import functools
import operator
import types
from decimal import Decimal
from typing import Annotated, Any, Literal

import attrs
import pytest
from msgspec.structs import replace

from chainapi import ROUTES
from chainapi.models import Unknown
from chainapi.models.codec import PageDecoder, decode_resource
from chainapi.models.records import Record
from chainapi.models.schema import fields_of, row_classes, type_of
from chainapi.models.unions import register_union
from tests.simulator.test_routes import Caller, needed_by, path_of

pytestmark = pytest.mark.rule  # models are replaced

Colour = Literal["red", "green"]


class Inner(Record, frozen=True, kw_only=True):
    """A record in a row."""

    inner_name: str
    inner_amount: int


# A field of each kind, by its name in Python; the types of its values in a decoded row.
ADDED: dict[str, tuple[Any, type | tuple[type, ...]]] = {
    "new_text": (str, str),
    "new_address": (str, str),
    "new_number": (int, int),
    "new_amount": (int, int),
    "new_timestamp": (int, int),
    "new_share": (float, float),
    "new_ratio": (Decimal, Decimal),
    "new_flag": (bool, bool),
    "new_colour": (Colour, str),
    "new_listed": (Annotated[str, Colour], str),
    "new_texts": (list[str], list),
    "new_record": (Inner, Inner),
    "new_records": (list[Inner], list),
    "new_either": (int | str, (int, str)),
    "new_mapping": (dict[str, Inner], dict),
    "new_anything": (Any, object),
    "new_credentials": (dict[str, Any], dict),
    # Names that anomalies look for, with values of other types.
    "price": (str, str),
    "progress": (str, str),
    "logo_uri": (int, int),
}


@functools.cache
def extended(model: Any) -> Any:
    """Return a model with a required field of each kind in it and its inner records."""
    if tags := type_of(model).tags:
        kinds = {tag.kind: extended(tag.kind) for tag in tags}
        union = functools.reduce(operator.or_, [*kinds.values(), Unknown])
        rules = {
            ".".join(tag.path) + ("" if tag.value is None else f"={tag.value}"): tag.kind for tag in tags
        }
        register_union(union, {rule: kinds[kind] for rule, kind in rules.items()})
        return union
    added, defaults = {name: kind for name, (kind, _) in ADDED.items()}, dict[str, None]()
    known = {field.name: field for field in fields_of(model)}
    for name, field in known.items():
        added.pop(name, None)
        if field.type.kind == "record":
            hint = extended(field.type.hint)
            added[name] = hint if field.required else hint | None
            defaults.update({} if field.required else {name: None})
    namespace = {**defaults, "__annotations__": added}
    options = {"frozen": True, "kw_only": True}
    return types.new_class(model.__name__, (model,), options, lambda made: made.update(namespace))


def extend(monkeypatch: pytest.MonkeyPatch, name: str) -> Any:
    """Extend the model of a route, and the other records of its pages."""
    endpoint = ROUTES[name]
    others = tuple(
        (other, extended(kind) if row_classes(kind) else kind) for other, kind in endpoint.route.extra
    )
    model = extended(endpoint.route.model)
    monkeypatch.setitem(vars(endpoint), "route", replace(endpoint.route, model=model, extra=others))
    return model


def assert_complete(record: Any) -> None:
    """Check that a decoded record has a value of the right type in each added field."""
    own = {field.name for kind in type(record).__mro__[1:] if attrs.has(kind) for field in fields_of(kind)}
    for name, (_, kinds) in ADDED.items():
        if name not in own:
            value = getattr(record, name)
            assert value is not None
            assert isinstance(value, kinds), (name, value)
            assert value != [], name


def test_required_fields_that_a_model_gains_have_values() -> None:
    """Required fields added to a model get values in all rows of all routes."""
    for name, endpoint in ROUTES.items():
        if endpoint.route.model is None:
            continue
        with pytest.MonkeyPatch.context() as patch:
            model = extend(patch, name)
            body = Caller(rows=2, points=2).response(path_of(name), **needed_by(name)).body
            if endpoint.single:
                rows = [decode_resource(body, model)]
            else:
                page = PageDecoder(model, endpoint.route.items, endpoint.route.extra).decode(body)
                rows = [*page.rows, *(other for other in page.extra if isinstance(other, Record))]
                assert page.rows, name
            for row in rows:
                assert_complete(row)


def test_required_fields_are_those_of_the_row_wherever_it_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    """A block is equal in its list, on pages of any size, and as a resource."""
    for name in ("data.evm.blocks", "data.evm.block"):
        extend(monkeypatch, name)
    caller = Caller()
    path = path_of("data.evm.blocks")
    blocks = caller.body(path, pageSize=100)["blocks"]
    assert len({block["newAddress"] for block in blocks}) == len(blocks)
    assert caller.body(path, pageSize=3)["blocks"] == blocks[:3]
    for name in ("blockNumber", "blockHash"):
        assert caller.body(f"{path}/{blocks[5][name]}") == blocks[5]

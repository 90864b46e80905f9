"""Bodies of requests, checked as the services check them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from chainapi.errors import DecodeError
from chainapi.models.codec import decode_resource
from chainapi.models.unions import Unknown
from chainapi.simulator.matching import Match
from chainapi.simulator.rows import Row
from chainapi.simulator.validation import HTTPError

if TYPE_CHECKING:
    from chainapi._api.parameters import Parameter

__all__ = ["checked_body", "parameters_of", "read_body", "text_of"]


def text_of(value: object) -> str:
    """Return the text of a parameter; lists and objects become JSON with sorted names."""
    if isinstance(value, str):
        return value
    if isinstance(value, list | dict | bool):
        return json.dumps(value, sort_keys=True)
    return str(value)


def read_body(body: bytes | None) -> Row:
    """Return the object that a body has.

    Raises HTTPError for a body that is no JSON object; a request without a body has an empty one.
    """
    try:
        content = json.loads(body or b"{}")
    except (ValueError, RecursionError):
        raise HTTPError(400, "the body is not valid JSON") from None
    if not isinstance(content, dict):
        raise HTTPError(400, "the body must be a JSON object")
    return content


def parameters_of(body: bytes | None) -> dict[str, str]:
    """Return the fields of a body as parameters of a query; none of a bad body."""
    try:
        return {name: text_of(value) for name, value in read_body(body).items() if value is not None}
    except HTTPError:
        return {}


def checked_body(match: Match, body: Row) -> Row:
    """Return the fields of a body that the route has.

    Raises:
        HTTPError: a required field is missing, or a value is not one that the route takes.

    """
    inside = [parameter for parameter in match.endpoint.parameters if parameter.in_body]
    if inside and inside[0].whole:
        _check_record(inside[0], body, "the body")
        return body
    checked: Row = {}
    for parameter in inside:
        value = body.get(parameter.wire)
        if value is None and parameter.required:
            raise HTTPError(400, f"{parameter.wire} should not be empty")
        if value is not None:
            _check_field(parameter, value)
            checked[parameter.wire] = value
    if match.name == "data.aggregate_signatures" and not {"message", "justification"} & checked.keys():
        raise HTTPError(400, "either message or justification must be provided")
    return checked


def _check_field(parameter: Parameter, value: Any) -> None:
    name = parameter.wire
    if parameter.repeated:
        if not isinstance(value, list) or not value:
            raise HTTPError(400, f"{name} must be an array, and not empty")
        for entry in value:
            _check_entry(parameter, entry, f"each value in {name}")
        return
    _check_entry(parameter, value, name)
    if parameter.bounds is not None and not parameter.bounds.hold(value):
        raise HTTPError(400, f"{name} must be {parameter.bounds}")


def _check_entry(parameter: Parameter, value: Any, name: str) -> None:
    if parameter.choices and value not in parameter.choices:
        listed = ", ".join(parameter.choices)
        raise HTTPError(400, f"{name} must be one of the following values: {listed}")
    if Unknown in parameter.kinds:
        _check_record(parameter, value, name)
    elif not parameter.choices and type(value) not in parameter.kinds:
        raise HTTPError(400, f"{name} must be a {parameter.kinds[0].__name__}")


def _check_record(parameter: Parameter, value: Any, name: str) -> None:
    """Check that an object is one of the records that a parameter takes."""
    try:
        record = decode_resource(json.dumps(value).encode(), parameter.union)
    except DecodeError as error:
        raise HTTPError(400, f"{name}: {error.path} {error.reason}") from None
    if isinstance(record, Unknown):
        raise HTTPError(400, f"{name} is of an unknown kind")
    _check_choices(record, name)


def _check_choices(record: Any, name: str) -> None:
    """Check the fields that have listed values, at any depth."""
    from chainapi.models.schema import fields_of

    for field in fields_of(type(record)):
        value = getattr(record, field.name)
        entries = value if isinstance(value, list) else [value]
        kind = field.type.item if field.type.kind == "list" else field.type
        for entry in entries:
            if kind.choices and entry is not None and entry not in kind.choices:
                listed = ", ".join(kind.choices)
                raise HTTPError(400, f"{name}.{field.wire} must be one of the following values: {listed}")
            _check_choices(entry, f"{name}.{field.wire}")

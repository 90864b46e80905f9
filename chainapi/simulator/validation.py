"""Validation of requests, as the services check them: path, query and body."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from chainapi.errors import DecodeError
from chainapi.models.codec import decode_resource
from chainapi.models.unions import Unknown
from chainapi.simulator.matching import Match
from chainapi.simulator.rows import Row

if TYPE_CHECKING:
    from chainapi._api.parameters import Parameter

__all__ = [
    "HTTPError",
    "check_path",
    "checked_body",
    "checked_query",
    "parameters_of",
    "read_body",
    "text_of",
    "whole_number",
]


class HTTPError(Exception):
    """Error answer: its status, and the messages in its body."""

    def __init__(self, status: int, *messages: str) -> None:
        self.status = status
        self.messages = messages


@lru_cache(maxsize=1_024)
def whole_number(name: str, text: str, least: float, most: float | None) -> int:
    """Return the whole number of a parameter.

    Raises HTTPError for other strings, and out of bounds.
    """
    if not re.fullmatch("-?[0-9]{1,18}", text):
        raise HTTPError(400, f"{name} must be an integer number")
    if int(text) < least:
        raise HTTPError(400, f"{name} must not be less than {least:g}")
    if most is not None and int(text) > most:
        raise HTTPError(400, f"{name} must not be greater than {most:g}")
    return int(text)


# Paths and queries


def check_path(match: Match, chains: Sequence[int]) -> None:
    """Check the parameters of a path.

    Raises:
        HTTPError: one of them is empty or not a value that the route takes, or the chain does not exist.

    """
    if (chain := match.values.get("chainId")) is not None:
        if not re.fullmatch("[0-9]{1,18}", chain):
            raise HTTPError(400, "chainId must be a number string")
        if chain not in map(str, chains):
            raise HTTPError(404, f"chain {chain} does not exist")
    if "" in match.values.values():
        raise HTTPError(404, "Cannot GET /" + "/".join(match.segments[1:]))
    for parameter in match.endpoint.parameters:
        if parameter.in_path:
            _check_text(parameter, match.values[parameter.wire])


def checked_query(match: Match, query: Mapping[str, str]) -> dict[str, str]:
    """Return the parameters of a query that the route has, except for the page size.

    Raises:
        HTTPError: a required parameter is missing, or a value is not one that the route takes.

    """
    checked: dict[str, str] = {}
    for parameter in match.endpoint.parameters:
        if parameter.in_path or parameter.wire == "pageSize":
            continue
        if parameter.wire in query:
            checked[parameter.wire] = query[parameter.wire]
            _check_text(parameter, checked[parameter.wire])
        elif parameter.required:
            raise HTTPError(400, f"{parameter.wire} should not be empty")
    return checked


def _check_text(parameter: Parameter, text: str) -> None:
    for value in text.split(",") if parameter.many else [text]:
        _check_choice(parameter.choices, value, parameter.wire)
    # A parameter that takes strings or decimals, too, takes any string.
    if int in parameter.kinds and not {str, float} & set(parameter.kinds):
        bounds = parameter.bounds
        least, most = (-math.inf, None) if bounds is None else (bounds.least, bounds.most)
        whole_number(parameter.wire, text, least, most)


def _check_choice(choices: Sequence[str], value: object, name: str) -> None:
    if choices and value not in choices:
        raise HTTPError(400, f"{name} must be one of the following values: {', '.join(choices)}")


# Bodies


def text_of(value: object) -> str:
    """Return the text of a parameter; lists and objects become JSON with sorted names."""
    if isinstance(value, str):
        return value
    return json.dumps(value, sort_keys=True) if isinstance(value, list | dict | bool) else str(value)


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
    if not parameter.repeated:
        _check_value(parameter, value, name)
        if parameter.bounds is not None and not parameter.bounds.hold(value):
            raise HTTPError(400, f"{name} must be {parameter.bounds}")
        return
    if not isinstance(value, list) or not value:
        raise HTTPError(400, f"{name} must be an array, and not empty")
    for entry in value:
        _check_value(parameter, entry, f"each value in {name}")


def _check_value(parameter: Parameter, value: Any, name: str) -> None:
    _check_choice(parameter.choices, value, name)
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
        kind = field.type.item if field.type.kind == "list" else field.type
        for entry in value if isinstance(value, list) else [value]:
            if entry is not None:
                _check_choice(kind.choices, entry, f"{name}.{field.wire}")
            _check_choices(entry, f"{name}.{field.wire}")

"""Bodies of requests: parameters and records as JSON, in the names and forms of the service."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

from chainapi.api.parameters import Parameter
from chainapi.errors import ConfigurationError
from chainapi.models.schema import fields_of, is_record
from chainapi.models.unions import Unknown

__all__ = ["wire_body"]

# Whole numbers that the service reads as texts.
_TEXTS = frozenset({"balanceThreshold", "l1ValidatorFeeBalanceThreshold"})


def wire_body(parameters: Sequence[Parameter], given: Mapping[str, Any]) -> bytes | None:
    """Return the body as JSON, with sorted names; None where the route has no parameters in it.

    Raises:
        ConfigurationError: a value cannot be sent.

    """
    inside = [parameter for parameter in parameters if parameter.in_body]
    if not inside:
        return None
    if inside[0].whole:
        content: Any = _field(inside[0], given[inside[0].name])
    else:
        content = {
            one.wire: _field(one, given[one.name])
            for one in inside
            if one.required or given[one.name] is not None
        }
    try:
        return json.dumps(content, separators=(",", ":"), sort_keys=True, allow_nan=False).encode()
    except (TypeError, ValueError) as error:
        raise ConfigurationError(f"the body cannot be sent as JSON: {error}") from None


def _field(parameter: Parameter, given: Any) -> Any:
    """Return the value of a field of a body as JSON."""
    value = parameter.checked(given)
    if parameter.repeated:
        value = value if isinstance(value, list) else [value]
    elif isinstance(value, list):
        value = ",".join(map(str, value))
    elif int in parameter.kinds and str in parameter.kinds:  # a number that the service reads as a text
        value = str(value)
    return body_value(value)


def body_value(value: Any) -> Any:
    """Return a record as a JSON object without its missing fields, at any depth.

    An `Unknown` is sent as its JSON; values other than records and lists stay as they are.
    """
    if isinstance(value, Unknown):
        return dict(value.raw)
    if isinstance(value, list | tuple):
        return [body_value(entry) for entry in value]
    if isinstance(value, Decimal):
        return str(value)
    if not is_record(type(value)):
        return value
    named = ((field.wire, getattr(value, field.name)) for field in fields_of(type(value)))
    return {wire: str(one) if wire in _TEXTS else body_value(one) for wire, one in named if one is not None}

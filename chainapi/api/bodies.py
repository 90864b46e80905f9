"""Bodies of requests: parameters and records as JSON of the service."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from chainapi.api.parameters import Parameter
from chainapi.errors import ConfigurationError
from chainapi.models.decode_errors import TOO_DEEP
from chainapi.models.plain import to_wire

__all__ = ["wire_body"]


def wire_body(parameters: Sequence[Parameter], given: Mapping[str, Any]) -> bytes | None:
    """Return the body as JSON with sorted names; None without parameters in it.

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
    except RecursionError:
        raise ConfigurationError(f"the body cannot be sent as JSON: it is {TOO_DEEP}") from None
    except (TypeError, ValueError) as error:
        raise ConfigurationError(f"the body cannot be sent as JSON: {error}") from None


def _field(parameter: Parameter, given: Any) -> Any:
    """Return the value of a field of a body as JSON."""
    value = parameter.checked(given)
    if parameter.repeated:
        value = value if isinstance(value, list) else [value]
    elif isinstance(value, list):
        value = ",".join(map(str, value))
    return to_wire(value)

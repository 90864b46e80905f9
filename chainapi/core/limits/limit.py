"""Limit that the user of a session knows of."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import Any

from attrs import Attribute, field, frozen

from chainapi.core.arguments import boolean
from chainapi.core.numbers import is_number
from chainapi.errors import ConfigurationError

__all__ = ["Limit", "limits_of", "whole"]


def _above_zero(_: object, attribute: Attribute[float], value: object) -> None:
    if not is_number(value) or not 0 < value < inf:
        raise ConfigurationError(f"Limit {attribute.name}={value!r} must be a finite number above 0")


def _is_bool(_: object, attribute: Attribute[bool], value: object) -> None:
    boolean(f"Limit {attribute.name}", value)


@frozen
class Limit:
    """Limit of `amount` requests in any `per` seconds; with `units`, of quota units.

    Less than one request is a whole one in a longer time: 0.5 in 60 seconds is one in 120. A request
    counts as one whatever its route costs, also beside a service that announces units.

    Raises:
        ConfigurationError: if one of them is not a finite number above 0.

    """

    amount: float = field(validator=_above_zero)
    per: float = field(default=60.0, validator=_above_zero)
    units: bool = field(default=False, validator=_is_bool, kw_only=True)


def whole(limit: Limit) -> tuple[float, float]:
    """Return amount and seconds of a limit; a part of a request is a whole one later."""
    if limit.units or limit.amount >= 1:
        return limit.amount, limit.per
    return 1.0, limit.per / limit.amount


def limits_of(name: str, given: Any) -> tuple[Limit, ...]:
    """Return an argument that is a sequence of limits.

    Raises:
        ConfigurationError: it is something else.

    """
    if isinstance(given, Sequence) and all(isinstance(limit, Limit) for limit in given):
        return tuple(given)
    raise ConfigurationError(f"{name} must be a sequence of Limit")

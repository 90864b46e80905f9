"""Limit headers of a response: all forms of the RateLimit fields, Retry-After.

draft-ietf-httpapi-ratelimit-headers, -00 to -10, and vendors before it define the forms:

- ``RateLimit-Limit``, ``-Remaining`` and ``-Reset``, a number each, with policies after the limit
  (``100, 100;w=60``) or in ``RateLimit-Policy``; the same as ``X-RateLimit-`` and ``X-Rate-Limit-``;
- ``RateLimit: limit=100, remaining=50, reset=30``;
- ``RateLimit: "default";r=50;t=30`` with ``RateLimit-Policy: "default";q=100;w=60``.

All are lists of members with parameters, and one pattern reads a member. Two rules hold throughout. A
malformed field counts as absent. And of several values for the same thing the strictest counts: the
smallest limit and remainder, the longest wait.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import UTC
from email.utils import parsedate_to_datetime
from functools import lru_cache
from math import inf
from typing import NamedTuple

from msgspec import Struct

__all__ = ["PolicyField", "RateLimitInfo", "ServiceLimit", "hold", "read_limits"]


# --- the record ---


class PolicyField(Struct, frozen=True):
    """Announced rate-limit policy: `quota` units in `window` seconds.

    A quota of 0 stays as sent; a window of 0, or a malformed one, is None as if it were absent.
    """

    quota: float
    window: float | None = None
    name: str | None = None


class ServiceLimit(Struct, frozen=True):
    """State of a named policy: `remaining` units, `reset` seconds from the arrival."""

    name: str
    remaining: float | None = None
    reset: float | None = None


class RateLimitInfo(Struct, frozen=True):
    """Quota information of one response; None for a value that it does not have.

    `limit` and `remaining` are quota units, `reset` and `retry_after` seconds from the response's arrival. No
    number is negative, infinite or NaN, and none is capped.

    If a response announces several limits, `limit`, `remaining` and `reset` come from one of them, never
    mixed: the one with the smallest remainder, and of equals the one with the longest reset. Limits without a
    remainder count only if no limit has one. `policies` and `service_limits` hold them all.
    """

    limit: float | None = None
    remaining: float | None = None
    reset: float | None = None
    retry_after: float | None = None
    policies: tuple[PolicyField, ...] = ()
    service_limits: tuple[ServiceLimit, ...] = ()


def hold(status: int, info: RateLimitInfo) -> float:
    """Return the seconds without requests that a response with this status demands.

    Retry-After wins over the reset. The reset counts if nothing remains, with any status, and on a refusal
    (429 or 503) even if something remains.
    """
    if info.retry_after is not None:
        return info.retry_after
    if info.reset is not None and (info.remaining == 0 or status in (429, 503)):
        return info.reset
    return 0.0


# --- reading ---

_FAMILIES = tuple(
    (prefix + "limit", prefix + "remaining", prefix + "reset")
    for prefix in ("ratelimit-", "x-ratelimit-", "x-rate-limit-")
)
_RARE = frozenset(("ratelimit", "retry-after")).union(*_FAMILIES[1:])
_NAMES = _RARE.union(_FAMILIES[0], ("ratelimit-policy",))


def read_limits(headers: Mapping[str, str], now: float) -> RateLimitInfo:
    """Read the limit headers of one response (specification, section 8).

    A malformed header counts as absent. The names in `headers` are lower-case. `now` is Unix time in
    seconds; points in time in a response with a Date are relative to that instead. Never raises.
    """
    if _NAMES.isdisjoint(headers):
        return RateLimitInfo()
    get = headers.get
    quota, policies = _announced(get("ratelimit-limit"), get("ratelimit-policy"))
    remaining = _smallest(get("ratelimit-remaining"))
    reset = _read_reset(get("ratelimit-reset"), headers, now)
    if _RARE.isdisjoint(headers):  # as of nearly all responses
        return RateLimitInfo(quota, remaining, reset, None, policies)
    claims = [RateLimitInfo(quota, remaining, reset)]
    for names in _FAMILIES[1:]:
        limit, left, until = map(get, names)
        if limit or left or until:
            quota, inline = _announced(limit, None)
            claims.append(RateLimitInfo(quota, _smallest(left), _read_reset(until, headers, now)))
            policies = policies or inline
    named, service_limits = _read_combined(_members(get("ratelimit")), policies)
    best = min(claims + named, key=_strictness)
    retry_after = _read_retry_after(get("retry-after"), headers, now)
    return RateLimitInfo(best.limit, best.remaining, best.reset, retry_after, policies, service_limits)


def _strictness(claim: RateLimitInfo) -> tuple[float, float, bool]:
    """Return the sort key of a claim: the strictest first, an empty one last."""
    remaining = inf if claim.remaining is None else claim.remaining
    reset = 1.0 if claim.reset is None else -claim.reset
    return remaining, reset, claim.limit is None


# --- lists of members ---


class _Member(NamedTuple):
    """Member of a list: an amount or a name, and those parameters that are amounts.

    The key is None but in a dictionary. A value of another kind is neither an amount nor a name.
    """

    key: str | None
    name: str | None
    amount: float | None
    params: Mapping[str, float]


_B = r"[ \t]*"
_KEY = r"[A-Za-z*][A-Za-z0-9_.*-]*"
_NUMBER = r"-?[0-9]+(?:\.[0-9]+)?"
_NAME = r"""(?:"(?:[ !#-\[\]-~]|\\["\\])*"|[A-Za-z*][A-Za-z0-9:/!#$%&'*+.^_`|~-]*)"""
# A limit has no other values, but its parameters may: RFC 9651 has bytes (:eHg=:), booleans (?1), dates (@0).
_OTHER = r"[:?@][A-Za-z0-9+/=:-]*"
_PARAM = rf";{_B}{_KEY}(?:{_B}={_B}(?:{_NUMBER}|{_NAME}|{_OTHER}))?{_B}"
_MEMBER = re.compile(
    rf"{_B}(?:(?:({_KEY}){_B}={_B})?(?:({_NUMBER})|({_NAME})|{_OTHER}){_B}((?:{_PARAM})*))?(?:,|\Z)"
)
_PARAMS = re.compile(rf";{_B}({_KEY})(?:{_B}={_B}(?:({_NUMBER})|{_NAME}|{_OTHER}))?")


def _members(text: str | None) -> list[_Member]:
    """Read a field; it has no members if it is absent, or if any of them is malformed."""
    members, at = list[_Member](), 0
    while text and at < len(text):
        match = _MEMBER.match(text, at)
        if match is None:
            return []
        key, number, name, params = match.groups()
        if params is not None:  # else an empty member: RFC 9110, section 5.6.1.2
            pairs = ((each.lower(), _amount(value)) for each, value in _PARAMS.findall(params))
            amounts = {each: amount for each, amount in pairs if amount is not None}
            members.append(_Member(key and key.lower(), name and name.strip('"'), _amount(number), amounts))
        at = match.end()
    return members


def _amount(text: str | None) -> float | None:
    """Read an amount: a number that is not negative, and not above all floats."""
    number = float(text) if text and re.fullmatch(_NUMBER, text) else inf
    return abs(number) if 0 <= number < inf else None  # abs: -0.0 should look like an amount


def _amounts(text: str | None) -> list[float]:
    """Return the amounts in a list; an empty list if any member is not an amount."""
    members = _members(text)
    amounts = [one.amount for one in members if one.amount is not None and one.key is None]
    return amounts if len(amounts) == len(members) else []


def _plain(text: str) -> float | None:
    """Read a plain integer fast; None for any other string, also for valid ones."""
    # isdecimal alone would accept the digits of other scripts, and 300 digits are too many for a float.
    return float(text) if len(text) < 16 and text.isascii() and text.isdecimal() else None


# --- limits and policies ---


@lru_cache(maxsize=64)
def _announced(limit: str | None, policy: str | None) -> tuple[float | None, tuple[PolicyField, ...]]:
    """Read a limit and its policies, of their own field or after the limit."""
    policies, members = _policies(_members(policy)), _members(limit)
    amounts = _amounts(limit)
    if not amounts:
        return None, policies
    stated = [amount for amount, one in zip(amounts, members, strict=True) if "w" not in one.params]
    return min(stated or amounts[:1]), policies or _policies(one for one in members if "w" in one.params)


def _smallest(text: str | None) -> float | None:
    if text is None:
        return None
    plain = _plain(text)
    return min(_amounts(text), default=None) if plain is None else plain


def _policies(members: Iterable[_Member]) -> tuple[PolicyField, ...]:
    """Read ``"name";q=100;w=60`` or ``100;w=60``; skip a member without a quota."""
    quotas = ((one, one.amount if one.name is None else one.params.get("q")) for one in members)
    return tuple(
        PolicyField(quota, one.params.get("w") or None, one.name)
        for one, quota in quotas
        if quota is not None and not one.key
    )


def _read_combined(
    members: list[_Member], policies: tuple[PolicyField, ...]
) -> tuple[list[RateLimitInfo], tuple[ServiceLimit, ...]]:
    """Read ``RateLimit``: a list of named limits, or three numbers (older form)."""
    if any(one.key for one in members):
        limits, remainders, resets = (
            [one.amount for one in members if one.key == key and one.amount is not None]
            for key in ("limit", "remaining", "reset")
        )
        older = RateLimitInfo(
            min(limits, default=None), min(remainders, default=None), max(resets, default=None)
        )
        return [older], ()
    claims, named = list[RateLimitInfo](), list[ServiceLimit]()
    for one in members:
        if one.name is None:
            return [], ()
        quotas = [policy.quota for policy in policies if policy.name == one.name]
        quotas += [one.params["q"]] if "q" in one.params else []
        remaining, reset = one.params.get("r"), one.params.get("t")
        if remaining is not None or reset is not None:
            claims.append(RateLimitInfo(min(quotas, default=None), remaining, reset))
            named.append(ServiceLimit(one.name, remaining, reset))
    return claims, tuple(named)


# --- times ---

_LONGEST_WINDOW = 1e8  # seconds, three years: a reset beyond it may be a Unix time
_COMMA = re.compile(r",(?![ \t]*[0-9]{1,2}[ -][A-Za-z]{3}[ -])")  # not the one before the day of a date


def _read_reset(text: str | None, headers: Mapping[str, str], now: float) -> float | None:
    """Read seconds from now, or a Unix time."""
    if text is None:
        return None
    if (plain := _plain(text)) is not None and plain < _LONGEST_WINDOW:
        return plain
    base = _answered_at(headers, now)
    return max((_until_unix_time(reset, base) for reset in _amounts(text)), default=None)


def _until_unix_time(reset: float, base: float) -> float:
    """Convert a Unix time to seconds from `base`; return other numbers unchanged.

    A number at most a factor of two away from the present is a Unix time, in seconds or in milliseconds.
    """
    for unix in (reset, reset / 1000):
        if base / 2 <= unix <= base * 2 and unix >= _LONGEST_WINDOW:
            return max(unix - base, 0.0)
    return reset


def _answered_at(headers: Mapping[str, str], now: float) -> float:
    """Return the time of the response by the service's clock; `now` without a Date."""
    date = _read_date(headers.get("date", ""))
    return now if date is None else date


def _read_retry_after(text: str | None, headers: Mapping[str, str], now: float) -> float | None:
    """Read seconds or a date; of several the longest, ignoring malformed ones."""
    waits = list[float]()
    for part in [] if text is None else _COMMA.split(text):
        element = part.strip(" \t")
        if (seconds := _amount(element)) is not None:
            waits.append(seconds)
        elif (date := _read_date(element)) is not None:
            waits.append(max(date - _answered_at(headers, now), 0.0))
    return max(waits, default=None)


def _read_date(text: str) -> float | None:
    """Read a date in one of the three forms of RFC 9110, section 5.6.7, as Unix time."""
    try:
        date = parsedate_to_datetime(text.encode("ascii").decode())  # no digits of other scripts
        return (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp()
    except (ValueError, TypeError, IndexError, OverflowError):
        return None

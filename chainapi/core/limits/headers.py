"""Limit headers of a response: all forms of the RateLimit fields, Retry-After.

The forms are those of draft-ietf-httpapi-ratelimit-headers, -00 to -10, and of the vendors before it:

- ``RateLimit-Limit``, ``-Remaining`` and ``-Reset``, a number each, with policies after the limit
  (``100, 100;w=60``) or in ``RateLimit-Policy``; the same as ``X-RateLimit-`` and ``X-Rate-Limit-``;
- ``RateLimit: limit=100, remaining=50, reset=30``;
- ``RateLimit: "default";r=50;t=30`` with ``RateLimit-Policy: "default";q=100;w=60``.

Two rules hold throughout. A malformed field counts as absent. And of several values for the same thing the
strictest counts: the smallest limit and remainder, the longest wait.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from functools import lru_cache
from math import inf
from typing import NamedTuple

from chainapi.core.limits.info import PolicyField, RateLimitInfo, ServiceLimit
from chainapi.core.limits.structured_fields import (
    Date,
    Item,
    Value,
    parse_dictionary,
    parse_list,
    parse_number,
)
from chainapi.core.numbers import is_number

__all__ = ["read_limits"]


class _Claim(NamedTuple):
    """Values of one family of fields, or of one member of a list."""

    limit: float | None = None
    remaining: float | None = None
    reset: float | None = None


_SILENCE = RateLimitInfo()
_NO_CLAIM = _Claim()
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
        return _SILENCE
    if _RARE.isdisjoint(headers) and (usual := _read_usual(headers)) is not None:
        return usual
    return _read_all(headers, now)


def _read_usual(headers: Mapping[str, str]) -> RateLimitInfo | None:
    """Read the fields of nearly all responses; None for a form that is not as plain.

    Only the remainder changes from one response to the next, so the rest is read once.
    """
    get = headers.get
    limit, remaining, reset = get("ratelimit-limit"), get("ratelimit-remaining"), get("ratelimit-reset")
    left = None if remaining is None else _plain(remaining)
    seconds = None if reset is None else _plain(reset)
    if (remaining is not None and left is None) or (reset is not None and seconds is None):
        return None
    if seconds is not None and seconds >= _LONGEST_WINDOW:
        return None
    quota, policies = _announced(limit, get("ratelimit-policy"))
    return RateLimitInfo(quota, left, seconds, None, policies)


@lru_cache(maxsize=64)
def _announced(limit: str | None, policy: str | None) -> tuple[float | None, tuple[PolicyField, ...]]:
    """Read a limit and its policies.

    The policies are those of their own field, or else those after the limit.
    """
    quota, inline = _read_limit(limit)
    return quota, _read_policies(policy) or inline


def _read_all(headers: Mapping[str, str], now: float) -> RateLimitInfo:
    """Read all fields, in each of their forms."""
    get = headers.get
    policies = _read_policies(get("ratelimit-policy"))
    claims: list[_Claim] = []
    for limit_name, remaining_name, reset_name in _FAMILIES:
        limit, remaining, reset = get(limit_name), get(remaining_name), get(reset_name)
        if limit or remaining or reset:
            quota, inline = _read_limit(limit)
            claims.append(_Claim(quota, _read_remaining(remaining), _read_reset(reset, headers, now)))
            policies = policies or inline
    more, service_limits = _read_combined(get("ratelimit"), policies)
    claims += more
    best = claims[0] if len(claims) == 1 else min(claims, key=_strictness, default=_NO_CLAIM)
    retry_after = _read_retry_after(get("retry-after"), headers, now)
    return RateLimitInfo(best.limit, best.remaining, best.reset, retry_after, policies, service_limits)


def _strictness(claim: _Claim) -> tuple[float, float, bool]:
    """Return the sort key of a claim: the strictest first, an empty one last."""
    remaining = inf if claim.remaining is None else claim.remaining
    reset = 1.0 if claim.reset is None else -claim.reset
    return remaining, reset, claim.limit is None


# --- numbers ---


def _plain(text: str) -> float | None:
    """Read a plain integer fast; None for any other string, also for valid ones."""
    # isdecimal alone would accept the digits of other scripts, and 300 digits are too many for a float.
    return float(text) if len(text) < 16 and text.isascii() and text.isdecimal() else None


def _amount(value: Value | None) -> float | None:
    """Return a value as an amount; None if it is not a number, or negative."""
    if is_number(value) and not isinstance(value, Date) and value >= 0:
        return abs(float(value))  # -0.0 is an amount too, and should look like one
    return None


def _smallest(amounts: Iterable[float | None]) -> float | None:
    return min((amount for amount in amounts if amount is not None), default=None)


def _longest(amounts: Iterable[float | None]) -> float | None:
    return max((amount for amount in amounts if amount is not None), default=None)


def _amounts(items: Iterable[Item]) -> list[float]:
    """Return the amounts in a list; an empty list if any item is not an amount."""
    amounts = [_amount(item.value) for item in items]
    return [] if None in amounts else [amount for amount in amounts if amount is not None]


# --- the separate fields ---


@lru_cache(maxsize=64)
def _read_limit(text: str | None) -> tuple[float | None, tuple[PolicyField, ...]]:
    """Read a limit and the policies after it.

    Such as ``100, 100;w=60;comment="sliding", 5000;w=3600``.
    """
    items = parse_list(text or "") or ()
    if not _amounts(items):
        return None, ()
    announced = [item for item in items if "w" in item.params]
    stated = [item for item in items if "w" not in item.params] or announced[:1]
    return _smallest(_amounts(stated)), _policies(announced)


def _read_remaining(text: str | None) -> float | None:
    if text is None:
        return None
    plain = _plain(text)
    return _smallest(_amounts(parse_list(text) or ())) if plain is None else plain


def _read_reset(text: str | None, headers: Mapping[str, str], now: float) -> float | None:
    """Read seconds from now, or a Unix time."""
    if text is None:
        return None
    plain = _plain(text)
    if plain is not None and plain < _LONGEST_WINDOW:
        return plain
    base = _answered_at(headers, now)
    return _longest(_until_unix_time(reset, base) for reset in _amounts(parse_list(text) or ()))


# --- the combined field, and policies ---


@lru_cache(maxsize=64)
def _read_policies(text: str | None) -> tuple[PolicyField, ...]:
    return _policies(parse_list(text or "") or ())


def _policies(items: Iterable[Item]) -> tuple[PolicyField, ...]:
    return tuple(policy for item in items if (policy := _policy(item)))


def _policy(item: Item) -> PolicyField | None:
    """Read ``"name";q=100;w=60`` or ``100;w=60``; None without a quota."""
    name = item.value if isinstance(item.value, str) else None
    quota = _amount(item.value if name is None else item.params.get("q"))
    return None if quota is None else PolicyField(quota, _amount(item.params.get("w")) or None, name)


def _read_combined(
    text: str | None, policies: tuple[PolicyField, ...]
) -> tuple[Iterable[_Claim], tuple[ServiceLimit, ...]]:
    """Read ``RateLimit``: a list of named limits, or three numbers (older form)."""
    if text is None:
        return (), ()
    items = parse_list(text)
    if items is None:
        return (_dictionary_claim(parse_dictionary(text) or ()),), ()
    claims = list[_Claim]()
    service_limits = list[ServiceLimit]()
    for item in items:
        if not isinstance(item.value, str):
            return (), ()
        remaining, reset = _amount(item.params.get("r")), _amount(item.params.get("t"))
        if remaining is not None or reset is not None:
            quotas = [policy.quota for policy in policies if policy.name == item.value]
            claims.append(_Claim(_smallest([*quotas, _amount(item.params.get("q"))]), remaining, reset))
            service_limits.append(ServiceLimit(item.value, remaining, reset))
    return claims, tuple(service_limits)


def _dictionary_claim(pairs: Iterable[tuple[str, Item]]) -> _Claim:
    amounts: dict[str, list[float | None]] = {"limit": [], "remaining": [], "reset": []}
    for key, item in pairs:
        amounts.get(key, []).append(_amount(item.value))
    return _Claim(_smallest(amounts["limit"]), _smallest(amounts["remaining"]), _longest(amounts["reset"]))


# --- times ---

# A reset beyond this many seconds, three years, may be a Unix time: no window is as long.
_LONGEST_WINDOW = 1e8

_CLOCK = r"(?P<hour>[0-9]{2}):(?P<minute>[0-9]{2}):(?P<second>[0-9]{2})"
_HTTP_DATES = (
    rf"[a-z]{{3}}, (?P<day>[0-9]{{1,2}}) (?P<month>[a-z]{{3}}) (?P<year>[0-9]{{4}}) {_CLOCK} (?:GMT|UTC)",
    rf"[a-z]{{6,9}}, (?P<day>[0-9]{{2}})-(?P<month>[a-z]{{3}})-(?P<year>[0-9]{{2}}) {_CLOCK} (?:GMT|UTC)",
    rf"[a-z]{{3}} (?P<month>[a-z]{{3}}) (?P<day>[ 0-9][0-9]) {_CLOCK} (?P<year>[0-9]{{4}})",
)
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_DAY_NAME = r"(?:mon|tues?|wed(?:nes)?|thu(?:rs)?|fri|sat(?:ur)?|sun)(?:day)?"
_ANY_CASE = re.IGNORECASE | re.ASCII


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
    date = _read_date(headers.get("date", "").strip(), now)
    return now if date is None else date


def _read_retry_after(text: str | None, headers: Mapping[str, str], now: float) -> float | None:
    """Read seconds or a date; of several the longest, ignoring malformed ones."""
    if text is None:
        return None
    plain = _plain(text)
    if plain is not None:
        return plain
    return _longest(_wait(element, headers, now) for element in _elements(text))


def _elements(text: str) -> Iterator[str]:
    """Split at the commas, except those after the name of a day."""
    day = ""
    for part in text.split(","):
        element = day + part.strip(" \t")
        day = f"{element}, " if re.fullmatch(_DAY_NAME, element, _ANY_CASE) else ""
        if not day:
            yield element


def _wait(element: str, headers: Mapping[str, str], now: float) -> float | None:
    seconds = parse_number(element)
    if seconds is not None:
        return _amount(seconds)
    base = _answered_at(headers, now)
    date = _read_date(element, base)
    return None if date is None else max(date - base, 0.0)


def _read_date(text: str, base: float) -> float | None:
    """Read a date in one of the three forms of RFC 9110, section 5.6.7, as Unix time."""
    for form in _HTTP_DATES:
        if match := re.fullmatch(form, text, _ANY_CASE):
            return _unix_time(match, base)
    return None


def _unix_time(match: re.Match[str], base: float) -> float | None:
    year, day, hour, minute, second = map(int, match.group("year", "day", "hour", "minute", "second"))
    leap = second == 60
    try:
        if len(match["year"]) == 2:
            # The last year with these two digits at most 50 years ahead.
            latest = datetime.fromtimestamp(base, UTC).year + 50
            year = latest - (latest - year) % 100
        month = _MONTHS.index(match["month"].lower()) + 1
        date = datetime(year, month, day, hour, minute, second - leap, tzinfo=UTC)
    except (ValueError, OverflowError, OSError):  # no such day or hour; a base beyond all calendars
        return None
    return date.timestamp() + leap

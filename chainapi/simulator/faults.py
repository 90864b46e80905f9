"""Faults: what goes wrong with a request, and with which ones."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, Self

from attrs import define, field, frozen
from attrs.validators import ge, lt, optional

from chainapi.simulator.matching import Segments, check_route, parse_pattern

__all__ = ["Broken", "Fault", "Schedule"]

Broken = Literal["disconnect", "stall", "stall_body", "truncate"]

EXAMPLE = "data.evm.blocks=status:503,every:3"
# How the parts of a fault are written: effects that have no value, and the types of the values of all others.
FLAGS: Mapping[str, Broken] = {
    "disconnect": "disconnect",
    "stall": "stall",
    "stall-body": "stall_body",
    "truncate": "truncate",
}
KEYS: Mapping[str, Callable[[str], Any]] = {
    **dict.fromkeys(("at", "every", "times", "after-page", "status", "retry-after"), int),
    "message": str,
    "slow": float,
}


def _texts(values: Iterable[str]) -> tuple[str, ...]:
    return tuple(values)


@frozen(kw_only=True)
class Fault:
    """Something that goes wrong, once or on schedule.

    Attributes:
        route: the route that it is aimed at, as a name, a pattern of names such as ``data.evm.*``, or a path
            in which ``{...}`` and ``*`` stand for any one segment; without it, all of both services.
        after_page: requests for a page beyond this one only, whatever their token.
        at: the first request that it meets, counted from 1 over those of `route` and `after_page`; `every`
            when not given.
        every: it comes back after this number of these requests. With `route` or `after_page` and without
            `at` and `every`, it meets each of them; with `at` alone, one.
        times: the most requests that it meets.
        status: answered instead of what was asked for, as a gateway would: it never meets the rate limit.
        messages: what the error body says that goes with `status`.
        body: the body that goes with `status`, instead of an error body.
        headers: the headers that go with `status`.
        disconnect: the services do the work, then close the connection without an answer.
        stall: the services do the work and never answer.
        stall_body: the answer stops in the middle of the body, and the connection stays open.
        truncate: the connection closes in the middle of the body.
        slow: seconds by which the answer is late; an effect of its own, or one more.

    """

    route: str | None = field(default=None, validator=check_route)
    after_page: int | None = field(default=None, validator=optional(ge(1)))
    at: int | None = field(default=None, validator=optional(ge(1)))
    every: int | None = field(default=None, validator=optional(ge(1)))
    times: int | None = field(default=None, validator=optional(ge(1)))
    status: int | None = None
    messages: tuple[str, ...] = field(default=(), converter=_texts)
    body: bytes | None = None
    headers: Mapping[str, str] = field(factory=dict[str, str], repr=False)
    disconnect: bool = False
    stall: bool = False
    stall_body: bool = False
    truncate: bool = False
    slow: float = field(default=0.0, validator=[ge(0), lt(math.inf)])

    def __attrs_post_init__(self) -> None:
        if not self.aimed and self.at is None and self.every is None:
            raise ValueError("a fault needs to know when it happens: at, every, after_page or route")
        effects = (self.status is not None) + sum(getattr(self, flag) for flag in FLAGS.values())
        if effects > 1 or (effects == 0 and not self.slow):
            raise ValueError(
                f"a fault has one of status, {', '.join(FLAGS.values())}, or it is slow, or both"
            )
        if self.status is None and (self.messages or self.headers or self.body is not None):
            raise ValueError("messages, body and headers of a fault go with a status")

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read a fault written as ``ROUTE=KEY:VALUE,...``, such as ``data.evm.blocks=status:503,every:3``.

        ROUTE is as `route`, or ``*`` for all of both services. The keys are at, every, times, after-page,
        status, message, retry-after (seconds) and slow (seconds); disconnect, stall, stall-body and truncate
        have no value. Without at and every, each request is met. Raises ValueError for any other text.
        """
        route, equals, rest = text.partition("=")
        if not equals or not route:
            raise ValueError(f"cannot read the fault {text!r}: write ROUTE=KEY:VALUE,..., such as {EXAMPLE}")
        given: dict[str, Any] = {}
        for part in rest.split(","):
            key, colon, value = part.strip().partition(":")
            given |= _setting(key, value if colon else None)
        if "at" not in given:
            given.setdefault("every", 1)
        return cls(route=None if route == "*" else route, **given)

    @property
    def aimed(self) -> bool:
        """Whether the fault concerns some requests only."""
        return self.route is not None or self.after_page is not None

    def matches(self, segments: Segments | None, page: int) -> bool:
        """Return whether a request is one of those that the fault counts, by its path and page number.

        `segments` is None for a request to neither service, `page` is 0 for an unknown page token.
        """
        if self.route is not None and (segments is None or not parse_pattern(self.route).matches(segments)):
            return False
        return self.after_page is None or page > self.after_page

    def is_due(self, ordinal: int) -> bool:
        """Return whether request number `ordinal`, of those that the fault counts, meets the fault."""
        first = self.at or self.every or 1
        every = 1 if self.at is None and self.every is None else self.every
        if every is None:
            return ordinal == first
        rounds, rest = divmod(ordinal - first, every)
        return rounds >= 0 and rest == 0 and rounds < (math.inf if self.times is None else self.times)

    @property
    def broken(self) -> Broken | None:
        """What happens to the connection."""
        return next((flag for flag in FLAGS.values() if getattr(self, flag)), None)


def _setting(key: str, value: str | None) -> dict[str, Any]:
    """Return the attributes that a part of a written fault sets."""
    if value is None and key in FLAGS:
        return {FLAGS[key]: True}
    if value is None or key not in KEYS:
        known = ", ".join([*(f"{name}:VALUE" for name in KEYS), *FLAGS])
        raise ValueError(f"unknown part {key!r} of a fault: use {known}")
    try:
        made = KEYS[key](value)
    except ValueError:
        raise ValueError(f"{key}:{value} has no number") from None
    if key == "message":
        return {"messages": (made,)}
    if key == "retry-after":
        return {"headers": {"retry-after": str(made)}}
    return {key.replace("-", "_"): made}


@define
class Schedule:
    """Counts the requests that faults are aimed at, and finds the fault that meets one."""

    _counts: Counter[tuple[str | None, int | None]] = field(factory=Counter[tuple[str | None, int | None]])

    def fault(
        self, faults: Iterable[Fault], total: int, segments: Segments | None, page: int
    ) -> Fault | None:
        """Return the first fault that meets a request, the `total`-th of both services."""
        ordinals: dict[tuple[str | None, int | None], int] = {(None, None): total}
        met: Fault | None = None
        for fault in faults:
            aim = fault.route, fault.after_page
            if aim not in ordinals:
                counts = fault.matches(segments, page)
                self._counts[aim] += counts
                ordinals[aim] = self._counts[aim] if counts else 0
            if met is None and ordinals[aim] and fault.is_due(ordinals[aim]):
                met = fault
        return met

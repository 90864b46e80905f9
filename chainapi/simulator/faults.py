"""Faults of requests: their effects, and the requests that they meet."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from random import Random
from typing import Any, Literal, Self, TypeAlias

from attrs import field, frozen
from attrs.validators import ge, gt, le, lt, optional

from chainapi.simulator.matching import Segments, check_route, route_has

__all__ = ["Broken", "Fault", "Schedule"]

Broken = Literal["disconnect", "stall", "stall_body", "truncate"]

EXAMPLE = "data.evm.blocks=status:503,every:3"
BREAKS: tuple[Broken, ...] = ("disconnect", "stall", "stall_body", "truncate")
# Notation of a fault: effects without a value, and the types of the values of all other parts.
FLAGS: Mapping[str, str] = {flag.replace("_", "-"): flag for flag in (*BREAKS, "expire", "malformed")}
KEYS: Mapping[str, Callable[[str], Any]] = {
    **dict.fromkeys(("at", "every", "times", "page", "after-page", "status", "retry-after"), int),
    "message": str,
    **dict.fromkeys(("share", "slow"), float),
}

# Requests that a fault counts: route, page, pages after this one, only requests with a page token.
_Aim: TypeAlias = tuple[str | None, int | None, int | None, bool]
ALL: _Aim = (None, None, None, False)


def _texts(values: Iterable[str]) -> tuple[str, ...]:
    return tuple(values)


@frozen(kw_only=True)
class Fault:
    """Fault of requests, once or on a schedule.

    Attributes:
        route: route of the requests that the fault counts, as a name, a pattern of names such as
            ``data.evm.*``, or a path in which ``{...}`` and ``*`` match any one segment; None for all
            requests to both services.
        page: count only requests for this page, from 1, with any token.
        after_page: count only requests for a page beyond this one, with any token.
        share: share of the counted requests that meet the fault, from 0 to 1; which ones follows from the
            seed. It stands in place of `at`, `every` and `times`.
        at: number of the first request that meets the fault, from 1, among those that it counts; by default
            the value of `every`.
        every: number of counted requests between two that meet the fault. With `route`, `page`, `after_page`
            or `expire`, and without `at` and `every`, each of them meets it; with `at` alone, one.
        times: greatest number of requests that meet the fault.
        status: status of an answer instead of the right one, as a gateway sends it: it costs no quota.
        messages: messages in the error body that goes with `status`.
        body: body that goes with `status`, instead of an error body.
        headers: headers that go with `status`.
        disconnect: the service does the work, then closes the connection without an answer.
        stall: the service does the work and never answers.
        stall_body: the answer stops in the middle of the body, and the connection stays open.
        truncate: the connection closes in the middle of the body.
        expire: the page token of the request expires now; counts only requests with a page token.
        malformed: one row of the page, or the resource, cannot be read.
        slow: seconds by which the answer is late; an effect of its own, or one more.

    """

    route: str | None = field(default=None, validator=check_route)
    page: int | None = field(default=None, validator=optional(ge(1)))
    after_page: int | None = field(default=None, validator=optional(ge(1)))
    share: float | None = field(default=None, validator=optional([gt(0), le(1)]))
    at: int | None = field(default=None, validator=optional(ge(1)))
    every: int | None = field(default=None, validator=optional(ge(1)))
    times: int | None = field(default=None, validator=optional(ge(1)))
    status: int | None = field(default=None, validator=optional([ge(200), le(599)]))
    messages: tuple[str, ...] = field(default=(), converter=_texts)
    body: bytes | None = None
    headers: Mapping[str, str] = field(factory=dict[str, str], repr=False)
    disconnect: bool = False
    stall: bool = False
    stall_body: bool = False
    truncate: bool = False
    expire: bool = False
    malformed: bool = False
    slow: float = field(default=0.0, validator=[ge(0), lt(math.inf)])

    def __attrs_post_init__(self) -> None:
        if self.aim == ALL and self.share is self.at is self.every is None:
            raise ValueError("no request meets this fault: give at, every, share, page, after_page or route")
        if self.share is not None and (self.at, self.every, self.times) != (None, None, None):
            raise ValueError("share= stands in place of at, every and times: give it alone")
        effects = (self.status is not None) + sum(getattr(self, flag) for flag in FLAGS.values())
        if effects > 1 or (effects == 0 and not self.slow):
            raise ValueError(
                f"a fault has one effect: give one of status, {', '.join(FLAGS.values())}, or slow, or slow "
                "and one of the others"
            )
        if self.status is None and (self.messages or self.headers or self.body is not None):
            raise ValueError("messages, body and headers need a status: give status, too")

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse a fault written as ``ROUTE=KEY:VALUE,...``.

        An example is ``data.evm.blocks=status:503,every:3``. ROUTE is as `route`, or ``*`` for all of both
        services. The keys are at, every, times, share, page, after-page, status, message, retry-after
        (seconds) and slow (seconds); disconnect, stall, stall-body, truncate, expire and malformed have no
        value. Without at, every and share, each request is met. Raises ValueError for any other string.
        """
        route, equals, rest = text.partition("=")
        if not equals or not route:
            raise ValueError(f"cannot read the fault {text!r}: write ROUTE=KEY:VALUE,..., such as {EXAMPLE}")
        given: dict[str, Any] = {}
        for part in rest.split(","):
            key, colon, value = part.strip().partition(":")
            given |= _setting(key, value if colon else None)
        if not {"at", "share"} & given.keys():
            given.setdefault("every", 1)
        return cls(route=None if route == "*" else route, **given)

    @property
    def aim(self) -> _Aim:
        """Choice of the requests that the fault counts."""
        return self.route, self.page, self.after_page, self.expire

    def counts(self, segments: Segments | None, page: int) -> bool:
        """Return whether the fault counts a request.

        `segments` is None for a request to neither service, `page` is 0 for an unknown page token.
        """
        return (
            (not self.expire or page > 1)
            and (self.route is None or (segments is not None and route_has(self.route, segments)))
            and self.page in (None, page)
            and (self.after_page is None or page > self.after_page)
        )

    def is_due(self, ordinal: int, seed: int = 0) -> bool:
        """Check whether counted request number `ordinal` meets the fault.

        The choice of a share follows from the seed.
        """
        if self.share is not None:
            # By its text, so that two faults with one aim do not choose the same requests.
            drawn = Random(f"{self!r} {seed} {ordinal}").random()  # noqa: S311 - repeatable, not secret
            return drawn < self.share
        first = self.at or self.every or 1
        every = 1 if self.at is None and self.every is None else self.every
        if every is None:
            return ordinal == first
        rounds, rest = divmod(ordinal - first, every)
        return rounds >= 0 and rest == 0 and rounds < (math.inf if self.times is None else self.times)

    @property
    def broken(self) -> Broken | None:
        """Effect on the connection, None for no effect."""
        return next((flag for flag in BREAKS if getattr(self, flag)), None)


def _setting(key: str, value: str | None) -> dict[str, Any]:
    """Return the attributes that one part of a fault's notation sets."""
    if value is None and key in FLAGS:
        return {FLAGS[key]: True}
    if value is None or key not in KEYS:
        known = ", ".join([*(f"{name}:VALUE" for name in KEYS), *FLAGS])
        raise ValueError(f"a fault has no part {key!r}: use {known}")
    try:
        converted = KEYS[key](value)
    except ValueError:
        raise ValueError(f"{key}:{value} has no number: write {key}:N") from None
    if key == "message":
        return {"messages": (converted,)}
    if key == "retry-after":
        return {"headers": {"retry-after": str(converted)}}
    return {key.replace("-", "_"): converted}


class Schedule:
    """Counts of requests by the aims of faults, for the choice of the fault."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._counts: Counter[_Aim] = Counter()

    def fault(self, faults: Sequence[Fault], segments: Segments | None, page: int) -> Fault | None:
        """Count a request, and return the first fault that is due for it."""
        aims = {fault.aim: fault for fault in faults}
        counted = {ALL, *(aim for aim, fault in aims.items() if fault.counts(segments, page))}
        self._counts.update(counted)
        due = (one for one in faults if one.aim in counted and one.is_due(self._counts[one.aim], self._seed))
        return next(due, None)

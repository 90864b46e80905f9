"""What a simulator is set to: its knobs, and the faults that befall its requests on schedule."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal

from attrs import Attribute, define, field, frozen
from attrs.validators import ge, gt, optional

__all__ = ["Broken", "Fault", "Settings"]

Broken = Literal["disconnect", "stall", "truncate"]

CHAINS = (43114, 43113, 53935, 432204, 4337, 8021)


@frozen(kw_only=True)
class Fault:
    """Something that goes wrong on schedule.

    Attributes:
        at: the first request it befalls, counted from 1 over both services; `every` when not given.
        every: it comes back after so many requests; without it, it happens once.
        times: how often at most it comes back.
        status: answered instead of what was asked for, as a gateway would: it never meets the rate limit.
        body: the body that goes with `status`; without it, a proper error body.
        headers: the headers that go with `status`.
        disconnect: the services do the work, then close the connection without a word.
        stall: the services do the work and never answer.
        truncate: the connection closes in the middle of the body.

    """

    at: int | None = field(default=None, validator=optional(ge(1)))
    every: int | None = field(default=None, validator=optional(ge(1)))
    times: int | None = field(default=None, validator=optional(ge(1)))
    status: int | None = None
    body: bytes | None = None
    headers: Mapping[str, str] = field(factory=dict[str, str], repr=False)
    disconnect: bool = False
    stall: bool = False
    truncate: bool = False

    def __attrs_post_init__(self) -> None:
        if self.at is None and self.every is None:
            raise ValueError("a fault needs at= or every=")
        if (self.status is not None) + self.disconnect + self.stall + self.truncate != 1:
            raise ValueError("a fault needs exactly one of status=, disconnect=, stall=, truncate=")

    def befalls(self, ordinal: int) -> bool:
        """Tell whether request number `ordinal` meets the fault."""
        first = self.at or self.every or 1
        if self.every is None:
            return ordinal == first
        rounds, rest = divmod(ordinal - first, self.every)
        return rounds >= 0 and rest == 0 and (self.times is None or rounds < self.times)

    @property
    def broken(self) -> Broken | None:
        """What happens to the connection."""
        if self.disconnect:
            return "disconnect"
        if self.stall:
            return "stall"
        return "truncate" if self.truncate else None


# Converters are written out, because the type checkers cannot see through `tuple` and `str.lower`.
def _chain_ids(values: Iterable[int]) -> tuple[int, ...]:
    return tuple(values)


def _texts(values: Iterable[str]) -> tuple[str, ...]:
    return tuple(values)


def _faults(values: Iterable[Fault]) -> tuple[Fault, ...]:
    return tuple(values)


def _lower(value: str) -> str:
    return value.lower()


def _distinct(_: object, attribute: Attribute[tuple[int, ...]], value: tuple[int, ...]) -> None:
    if not value or len(set(value)) != len(value):
        raise ValueError(f"{attribute.name} must be at least one chain id, each given once")


@define(eq=False)
class Settings:
    """What the services hold and how they behave; limits and faults may be changed while they run.

    Attributes:
        seed: everything that looks random follows from it.
        chains: the chain ids that exist.
        points: daily points of each series at the beginning.
        rows: rows of every other list at the beginning.
        metrics_page_size: points on a page of the Metrics API.
        api_key: the key that the Data API accepts.
        other_keys: more keys that it accepts, each with a quota of its own.
        api_key_header: the header that carries the key.
        limit: requests that a key may send in a window; None for no limit, and no limit headers either.
        weighted: whether `limit` counts compute units instead: as many for a request as its route is said to
            cost, and one where nobody says.
        window: length of that window in seconds, counted from the first request in it.
        metrics_limit: requests that the Metrics API takes in a window; it says nothing about it.
        metrics_window: length of that window in seconds.
        token_lifetime: seconds for which a page token is good.
        expired_status: answered to a token that is older.
        grow_every: seconds after which each list has one more row at its head; None for never.
        forbidden: paths of the Data API that no key has the privilege for.
        faults: what goes wrong, and when.
        epoch: Unix time, in seconds, of the newest rows at the beginning.
        cached_pages: how many pages are kept encoded, for whoever asks for the same ones again;
            fewer where they are large.

    """

    seed: int = 0
    chains: tuple[int, ...] = field(default=CHAINS, kw_only=True, converter=_chain_ids, validator=_distinct)
    points: int = field(default=1_000, kw_only=True, validator=ge(0))
    rows: int = field(default=1_000, kw_only=True, validator=ge(0))
    metrics_page_size: int = field(default=100, kw_only=True, validator=ge(1))
    api_key: str = field(default="simulated-key", kw_only=True, repr=False)
    other_keys: tuple[str, ...] = field(default=(), kw_only=True, converter=_texts, repr=False)
    api_key_header: str = field(default="x-data-api-key", kw_only=True, converter=_lower)
    limit: int | None = field(default=None, kw_only=True, validator=optional(ge(0)))
    weighted: bool = field(default=False, kw_only=True)
    window: float = field(default=60.0, kw_only=True, validator=gt(0))
    metrics_limit: int | None = field(default=None, kw_only=True, validator=optional(ge(0)))
    metrics_window: float = field(default=60.0, kw_only=True, validator=gt(0))
    token_lifetime: float = field(default=86_400.0, kw_only=True, validator=gt(0))
    expired_status: int = field(default=400, kw_only=True)
    grow_every: float | None = field(default=None, kw_only=True, validator=optional(gt(0)))
    forbidden: tuple[str, ...] = field(default=("/v1/apiUsageMetrics",), kw_only=True, converter=_texts)
    faults: tuple[Fault, ...] = field(default=(), kw_only=True, converter=_faults)
    epoch: int = field(default=1_767_225_600, kw_only=True)
    cached_pages: int = field(default=256, kw_only=True, validator=ge(0))

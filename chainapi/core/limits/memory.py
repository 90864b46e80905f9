"""Memory of a quota: its learned state as bytes, for the next host.

Each part belongs to the class of the quota that makes and restores it. All times are seconds relative to the
time of the memory, because the clocks of two processes differ; None stands for an infinite time. A reader
ignores malformed bytes, those of another version, and amounts that are not finite or out of range.
"""

from __future__ import annotations

from itertools import pairwise
from math import inf
from typing import Annotated, Literal

from msgspec import DecodeError as MalformedError
from msgspec import Meta, Struct
from msgspec.msgpack import Decoder, Encoder

__all__ = [
    "LONGEST_NAME",
    "MOST_ENTRIES",
    "MOST_LOWS",
    "MOST_ROUTES",
    "OLDEST",
    "VERSION",
    "BalancePart",
    "CostPart",
    "CostsPart",
    "DiscoveryPart",
    "DripPart",
    "LimitsPart",
    "MemoryPart",
    "PoliciesPart",
    "PolicyPart",
    "RefusalsPart",
    "ResetPart",
    "ReturnsPart",
    "RoutePart",
    "TrialPart",
    "amount",
    "encode",
    "moment",
    "read",
    "relative",
    "seconds",
    "units",
]

VERSION = 2
LONGEST = 65_536  # bytes that a reader accepts
OLDEST = 604_800.0  # seconds: services change their limits, so an older memory is of no use
MOST = 1e15  # of any amount: beyond it a float is no exact whole number
MOST_SECONDS = 1e9  # before or after the time of the memory
MOST_ENTRIES = 64  # of all ledgers
MOST_LOWS = 8  # remainders of a policy
MOST_POLICIES = 8
MOST_ROUTES = 64
LONGEST_NAME = 128  # characters of a route or policy; a longer one is left out

Units = Annotated[float, Meta(ge=-MOST, le=MOST)]
Amount = Annotated[float, Meta(ge=0, le=MOST)]
Positive = Annotated[float, Meta(gt=0, le=MOST)]
Factor = Annotated[float, Meta(ge=1, le=64)]
Share = Annotated[float, Meta(ge=0, le=1)]
Seconds = Annotated[float, Meta(ge=-MOST_SECONDS, le=MOST_SECONDS)]
Number = Annotated[int, Meta(ge=0, le=1_000_000)]
Index = Annotated[int, Meta(ge=0, lt=MOST_POLICIES)]
Name = Annotated[str, Meta(max_length=LONGEST_NAME)]
Entry = tuple[Seconds, Seconds, Amount]  # sent, back, units


class Part(Struct, array_like=True, forbid_unknown_fields=True):
    """Part of a memory."""


class BalancePart(Part):
    """State of a `Balance`: `spent` is its ledger, `lows` its remainders."""

    limit: Positive
    window: Positive | None
    reported: bool
    proven: bool
    remaining: Units
    returned: Amount
    recorded_at: Seconds | None
    highest: Amount
    reserve: Amount
    opened: Seconds | None
    counted: Units | None
    silent_at: Seconds | None
    sent: Seconds | None
    spent: Annotated[list[Entry], Meta(max_length=MOST_ENTRIES)]
    lows: Annotated[list[tuple[Seconds, Units]], Meta(max_length=MOST_LOWS)]

    def __post_init__(self) -> None:
        """Check the order of the ledger and of the remainders."""
        if any(sent > back for sent, back, _ in self.spent):
            raise ValueError("units are back before they were sent")
        if any(one[1] > two[1] for one, two in pairwise(self.spent)):
            raise ValueError("units come back in another order")
        if any(one > two for one, two in pairwise(self.lows)):
            raise ValueError("remainders have another order")


class ResetPart(Part):
    """State of a `Reset`."""

    at: Seconds | None
    moving: bool
    first: Seconds | None
    left: Units


class ReturnsPart(Part):
    """State of `Returns`."""

    kind: Literal["log", "window", "bucket"]
    probed: bool
    answered: bool
    tick: Seconds | None
    slowness: Factor


class PolicyPart(Part):
    """State of a `Policy`."""

    balance: BalancePart
    named: bool
    sized: bool
    only_on_refusal: bool
    guessed: bool
    requests: bool
    reset: ResetPart
    returns: ReturnsPart


class PoliciesPart(Part):
    """State of `Policies`: `latest`, `listed` and `names` point into `known`."""

    known: Annotated[list[PolicyPart], Meta(max_length=MOST_POLICIES)]
    latest: Index | None
    listed: Annotated[list[Index], Meta(max_length=MOST_POLICIES)]
    names: Annotated[dict[Name, Index], Meta(max_length=MOST_POLICIES)]

    def __post_init__(self) -> None:
        """Check the places of policies."""
        places = [*self.listed, *self.names.values(), *([] if self.latest is None else [self.latest])]
        if any(place >= len(self.known) for place in places):
            raise ValueError("a policy is missing")


class DripPart(Part):
    """State of a `Drip`."""

    rate: Positive
    next: Seconds
    low: Positive
    measured: Positive
    too_fast: Positive | None
    doubt: Share
    seconds: Amount


class TrialPart(Part):
    """State of a `Trial`."""

    every: Annotated[int, Meta(ge=1, le=64)]
    full: Number
    step: Share
    shorter: bool
    runs: bool
    kept: tuple[Amount, Amount]
    bound: bool
    drips: bool
    since: Seconds


class DiscoveryPart(Part):
    """State of a `Discovery`."""

    drips: bool
    most: Amount
    drip: DripPart | None
    learned: PolicyPart | None
    trial: TrialPart | None
    opened: Seconds | None
    anchor: Seconds | None
    refused: Seconds | None
    tried: Seconds | None
    tries: Number
    announced: bool
    passed: Amount
    count: Number
    before: Amount | None
    window: Amount | None
    found: bool
    last_refused: Seconds | None
    since_refused: Amount
    busy: Amount
    busy_until: Seconds | None
    longest_wait: Amount
    history: Annotated[list[tuple[Seconds, Seconds, Amount]], Meta(max_length=MOST_ENTRIES)]

    def __post_init__(self) -> None:
        """Check that a learned limit has its trials."""
        if (self.learned is None) != (self.trial is None):
            raise ValueError("a learned limit needs its trials")


class LimitsPart(Part):
    """State of `LimitsInForce`: `counted` are the limits that the user set."""

    counted: Annotated[list[PolicyPart], Meta(max_length=MOST_POLICIES)]
    announced: PoliciesPart
    discovery: DiscoveryPart | None


class CostPart(Part):
    """Price of a route: its votes, and requests sent alone to show it."""

    route: Name
    learned: Amount | None
    votes: Number
    above: Amount | None
    tries: Amount


class CostsPart(Part):
    """State of `Costs`."""

    routes: Annotated[list[CostPart], Meta(max_length=MOST_ROUTES)]
    units: bool | None
    contradictions: Number
    most_left: Amount


class RefusalsPart(Part):
    """State of `Refusals`."""

    stopped: Seconds | None
    in_a_row: Number
    route: Name | None
    passed_any: bool


class RoutePart(Part):
    """State of a refused route."""

    name: Name
    until: Seconds
    refused_at: Seconds
    refusals: Number
    most: Number
    passed: Number
    others_passed: bool
    own: bool


class MemoryPart(Part):
    """State of a `Quota`.

    Attributes:
        doubtful: units that may have been counted: of requests in flight, and of lost ones.
        in_flight: the number of requests in flight.
        idle: seconds in which no request may leave, from the time of the memory; None if some are in flight.

    """

    version: Annotated[int, Meta(ge=VERSION, le=VERSION)]
    limits: LimitsPart
    costs: CostsPart
    refusals: RefusalsPart
    routes: Annotated[list[RoutePart], Meta(max_length=MOST_ROUTES)]
    doubtful: Amount
    in_flight: Number
    idle: Amount | None
    trip: Amount


_ENCODER = Encoder()
_DECODER = Decoder(MemoryPart)


def encode(memory: MemoryPart) -> bytes:
    """Return a memory as bytes."""
    return _ENCODER.encode(memory)


def read(memory: bytes) -> MemoryPart | None:
    """Return the memory of some bytes.

    None if they are malformed, too long, or of another version.
    """
    if not memory or len(memory) > LONGEST:
        return None
    try:
        return _DECODER.decode(memory)
    except (MalformedError, UnicodeDecodeError, RecursionError):
        return None


def seconds(then: float, at: float) -> float | None:
    """Return a time relative to the time of the memory; None for an infinite one."""
    return None if at in (inf, -inf) else relative(then, at)


def relative(then: float, at: float) -> float:
    """Return a finite time relative to the time of the memory."""
    return max(-MOST_SECONDS, min(at - then, MOST_SECONDS))


def moment(then: float, since: float | None, infinite: float = inf) -> float:
    """Return the time of relative seconds; `infinite` for None."""
    return infinite if since is None else then + since


def amount(value: float) -> float:
    """Return an amount, from 0 to `MOST`."""
    return max(0.0, min(value, MOST))


def units(value: float) -> float:
    """Return units that may be negative, because requests cost more than was left."""
    return max(-MOST, min(value, MOST))

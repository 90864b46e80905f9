"""Snapshot of a quota, for people; also as JSON, for other processes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from attrs import astuple, field, frozen
from msgspec import DecodeError as MalformedError
from msgspec import Meta, Struct
from msgspec.json import Decoder, Encoder
from msgspec.structs import asdict

from chainapi._limits.spenders import Spender
from chainapi.core.duration import DAY, HOUR, MINUTE

__all__ = ["QuotaSnapshot"]

_POLICIES = {1.0: "quota a second", MINUTE: "quota a minute", HOUR: "hourly quota", DAY: "daily quota"}

Amount = Annotated[float, Meta(ge=0)]
Number = Annotated[int, Meta(ge=0)]
Text = Annotated[str, Meta(max_length=1024)]


class _SpenderState(Struct):
    """A `Spender`."""

    process: Text
    tag: Text
    requests: Number
    units: Amount
    refusals: Number
    in_flight: Number
    waiting: Number


class _State(Struct):
    """A `QuotaSnapshot` with times as seconds from now."""

    limit: Amount | None = None
    remaining: Amount | None = None
    window: Amount | None = None
    stopped_for: Amount = 0.0
    reset_in: Amount | None = None
    costs: dict[Text, Amount] = {}
    waiting: Number = 0
    in_flight: Number = 0
    spenders: tuple[_SpenderState, ...] = ()
    requests: bool = False


_ENCODER = Encoder()
_DECODER = Decoder(_State)


@frozen
class QuotaSnapshot:
    """Snapshot of a quota at `time`.

    Amounts are units, or requests if the service counts requests, or if they are those of a `Limit`. Times
    are seconds on the event loop's clock.

    Attributes:
        time: time of the snapshot.
        limit: greatest amount in a window; None if unknown.
        remaining: amount that the last response reported, less what was spent since, and with what is
            predicted to be back at `time`; that of requests in flight counts as left. None if unknown.
        window: length of the window in seconds; None if unknown.
        stopped_until: end of the stop after a refusal; None without a stop.
        reset_at: predicted time when quota comes back; None while requests may leave, and if unknown.
        costs: amounts that a request costs, by route, as learned.
        waiting: number of requests that wait for quota.
        in_flight: number of requests without a response.
        unix_time: `time` as Unix time in seconds; None if unknown.
        spenders: who spent the quota: each process and tag since the gate began, those with the most units
            first.
        requests: whether limit and remaining count requests, whatever these cost: while a `Limit` of the
            session holds requests back.

    """

    time: float
    limit: float | None = None
    remaining: float | None = None
    window: float | None = None
    stopped_until: float | None = None
    reset_at: float | None = None
    costs: Mapping[str, float] = field(factory=dict[str, float])
    waiting: int = 0
    in_flight: int = 0
    unix_time: float | None = None
    spenders: tuple[Spender, ...] = ()
    requests: bool = False

    @property
    def stopped_for(self) -> float:
        """Seconds until requests may leave again after a refusal; 0 without a stop."""
        return max(0.0, self.stopped_until - self.time) if self.stopped_until is not None else 0.0

    @property
    def reset_in(self) -> float | None:
        """Predicted seconds until quota comes back; None if unknown."""
        return max(0.0, self.reset_at - self.time) if self.reset_at is not None else None

    @property
    def policy(self) -> str:
        """Policy in words, such as "daily quota"; "quota" if its window is unknown."""
        if self.window is None:
            return "quota"
        return _POLICIES.get(self.window, f"quota of {self.window:g} s")

    @property
    def back_at(self) -> float | None:
        """Predicted Unix time when quota is back; None if it, or the time, is unknown."""
        if self.unix_time is None or self.reset_in is None:
            return None
        return self.unix_time + self.reset_in

    def to_json(self) -> bytes:
        """Return the snapshot as a JSON object; its times are seconds from now."""
        state = _State(
            self.limit,
            self.remaining,
            self.window,
            self.stopped_for,
            self.reset_in,
            dict(self.costs),
            self.waiting,
            self.in_flight,
            tuple(_SpenderState(*astuple(one)) for one in self.spenders),
            self.requests,
        )
        return _ENCODER.encode(state)

    @classmethod
    def from_json(cls, text: bytes, time: float, unix_time: float | None = None) -> QuotaSnapshot:
        """Return the snapshot of a `to_json`; `time` is now on the reader's clock.

        Raises:
            ValueError: the text is not a snapshot.

        """
        try:
            state = _DECODER.decode(text)
        except MalformedError as error:
            raise ValueError(f"malformed snapshot of a quota: {error}") from None
        return cls(
            time,
            state.limit,
            state.remaining,
            state.window,
            time + state.stopped_for if state.stopped_for else None,
            None if state.reset_in is None else time + state.reset_in,
            state.costs,
            state.waiting,
            state.in_flight,
            unix_time,
            tuple(Spender(**asdict(one)) for one in state.spenders),
            state.requests,
        )

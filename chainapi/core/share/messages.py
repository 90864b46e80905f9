"""Messages between the participants of a shared quota and the host of its gate.

A frame is a MessagePack array of messages, each an array that begins with its number. A carrier that
delivers bytes instead of frames puts the length before each (`FrameReader`). All times are durations in
seconds from the time of sending, because the clocks of two processes differ. No message has an API key.

The processes that share a quota are its participants. A participant begins with `Hello`, and the host answers
with `Welcome`, or with `Denied` and the end of the link. Then the participant sends `Join` for each session,
and `Holding` for each request whose response it still expects. From then on, in any order:

- `Acquire` requests a permit. The answer is one `Granted` or one `Refused`, unless `Cancel` comes first.
- A participant ends each permit once: `Answered`, `Lost`, or `Unsent`. A `PermitVerdict` follows a 429.
- `Stopped` reports a stop: what was granted and did not leave yet comes back as `Unsent`.
- `Waiting` reports a wait to the listener of a session, and `PlanEnded` the end of its plan.
- `QuotaState` reports the quota, in answer to `Watch`, after a refusal, and now and then during requests.
- The end of the link ends all permits as lost.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, TypeAlias

from msgspec import DecodeError as MalformedError
from msgspec import Meta, Struct
from msgspec.msgpack import Decoder, Encoder

from chainapi._limits import verdict as verdicts
from chainapi._limits.headers import PolicyField, RateLimitInfo, ServiceLimit

__all__ = [
    "HOLDING",
    "MAX_FRAME",
    "VERSION",
    "Acquire",
    "Answered",
    "Cancel",
    "Denied",
    "FrameError",
    "FrameReader",
    "FromHost",
    "FromParticipant",
    "Granted",
    "Hello",
    "Holding",
    "Join",
    "Leave",
    "Limits",
    "Lost",
    "PermitVerdict",
    "PlanEnded",
    "QuotaState",
    "Refused",
    "Remote",
    "Stopped",
    "Unsent",
    "Waiting",
    "Watch",
    "Welcome",
    "amount_of",
    "encode",
    "framed",
    "frames_of",
    "greeting_of",
    "info_of",
    "limits_of",
    "read_host_frame",
    "read_participant_frame",
]

VERSION = 3
MAX_FRAME = 1_048_576  # bytes; the largest message has the learned state of a quota
MOST_MESSAGES = 128  # of a frame that has one message for each request: far below `MAX_FRAME`
MOST = 1e15  # of any amount: beyond it a float is no exact whole number

HOLDING = 2**48  # first number of a permit of an earlier host; hosts number theirs from 0

Amount = Annotated[float, Meta(ge=0, le=MOST)]
Number = Annotated[int, Meta(ge=0, le=2**63 - 1)]
Held = Annotated[int, Meta(ge=HOLDING, le=2**63 - 1)]
Text = Annotated[str, Meta(max_length=1024)]
Rate: TypeAlias = tuple[Amount, Amount, bool, Text]  # amount, seconds, whether it counts units, its plan


class Limits(Struct, array_like=True, frozen=True):
    """Limit headers of a response; see `RateLimitInfo`."""

    limit: Amount | None = None
    remaining: Amount | None = None
    reset: Amount | None = None
    retry_after: Amount | None = None
    policies: tuple[tuple[Amount, Amount | None, Text | None], ...] = ()
    service_limits: tuple[tuple[Text, Amount | None, Amount | None], ...] = ()


class Remote(Struct, array_like=True, frozen=True):
    """Redis server over which machines share a quota; see `RedisCarrier`."""

    url: Annotated[str, Meta(max_length=4096)]
    prefix: Text
    secret: Annotated[bytes, Meta(max_length=1024)] = b""
    ttl: Amount = 2.0
    silence: Amount = 2.0
    timeout: Amount = 2.0


# --- from a participant to the host -------------------------------------------------------------


class Hello(Struct, array_like=True, tag=1, frozen=True):
    """First message of a participant.

    Attributes:
        version: of the protocol.
        process: name of the process, such as ``host:4711``.
        origin: scheme, host and port of the service.
        stopped: seconds for which nothing may be sent, as far as the participant was informed.
        quota: name of the quota, for a host of several.
        remote: server over which that host shares the quota; None for the processes of one machine.

    """

    version: int
    process: Text
    origin: Text = ""
    stopped: Amount = 0.0
    quota: Annotated[str, Meta(pattern="^[A-Za-z0-9_-]{0,64}$")] = ""
    remote: Remote | None = None


class Join(Struct, array_like=True, tag=2, frozen=True):
    """Settings of a session that joins, and seconds until it gives up a request.

    A session that joined sends it again when some of its requests may take longer; the rest is the same.
    """

    session: Number
    tag: Text = ""
    rate: Rate | None = None
    max_in_flight: Number | None = None
    limits: tuple[Rate, ...] = ()
    probe: bool = True
    max_stop: Amount | None = None
    timeout: Amount = 30.0


class Leave(Struct, array_like=True, tag=3, frozen=True):
    """A session closed; its permits stay valid."""

    session: Number


class Holding(Struct, array_like=True, tag=4, frozen=True):
    """A request is under way since `elapsed` seconds, permitted by an earlier host.

    `permit` is a number that the participant chose, from `HOLDING` up.
    """

    permit: Held
    session: Number
    route: Text
    cost: Amount | None = None
    elapsed: Amount = 0.0
    tag: Text | None = None


class Acquire(Struct, array_like=True, tag=5, frozen=True):
    """Request for a permit, `left` seconds before its deadline; see `Gate.acquire`.

    Those with the same `limit` are counted together while they wait. The host refuses it if `most_waiting` of
    them wait already; without `most_waiting`, an earlier host let it wait.
    """

    number: Number
    session: Number
    route: Text
    cost: Amount | None = None
    priority: int = 0
    max_wait: Amount | None = None
    left: Amount | None = None
    again: bool = False
    tag: Text | None = None
    limit: Number | None = None
    most_waiting: Number | None = None


class Cancel(Struct, array_like=True, tag=6, frozen=True):
    """The request `number` does not need its permit any more."""

    number: Number


class Answered(Struct, array_like=True, tag=7, frozen=True):
    """Response that arrived."""

    permit: Number
    status: int
    limits: Limits | None = None


class Lost(Struct, array_like=True, tag=8, frozen=True):
    """No response will arrive: the service may have counted the request."""

    permit: Number


class Unsent(Struct, array_like=True, tag=9, frozen=True):
    """A permit comes back unused."""

    permit: Number


class Watch(Struct, array_like=True, tag=10, frozen=True):
    """Request for the `QuotaState` now."""


# --- from the host to a participant -------------------------------------------------------------


class Welcome(Struct, array_like=True, tag=32, frozen=True):
    """The participant is accepted."""

    version: int


class Denied(Struct, array_like=True, tag=33, frozen=True):
    """The participant is refused, for a reason in words.

    With `again` it may be accepted later.
    """

    reason: Text
    again: bool = False


class Granted(Struct, array_like=True, tag=34, frozen=True):
    """Permit for the request `number`."""

    number: Number
    permit: Number


class Refused(Struct, array_like=True, tag=35, frozen=True):
    """The request `number` would wait too long.

    It would wait for `seconds`, or has to come again after them because as many wait as its limit allows
    (`full`). Without them the service does not respond at all, and `reason` is the message of the error.
    """

    number: Number
    seconds: Amount | None = None
    reason: Text = ""
    full: bool = False


class PermitVerdict(Struct, array_like=True, tag=36, frozen=True):
    """Meaning of a refusal for the quota; see `chainapi._limits.verdict.Verdict`."""

    permit: Number
    verdict: verdicts.Verdict


class Stopped(Struct, array_like=True, tag=37, frozen=True):
    """Nothing may be sent for some seconds."""

    seconds: Amount


class Waiting(Struct, array_like=True, tag=38, frozen=True):
    """The requests of a session wait for a known time."""

    session: Number
    reason: Text
    seconds: Amount
    waiting: Number


class PlanEnded(Struct, array_like=True, tag=40, frozen=True):
    """Responses contradict the plan of a session: they announce another limit."""

    session: Number
    plan: Text
    amount: Amount | None
    window: Amount | None


class QuotaState(Struct, array_like=True, tag=39, frozen=True):
    """State of the quota, for people.

    Attributes:
        shown: JSON of a `QuotaSnapshot`, its times as seconds from now.
        stopped: seconds for which nothing may be sent.
        processes: number of the processes that share the quota.
        origin: scheme, host and port of the service, as the first process named it.

    """

    shown: bytes
    stopped: Amount = 0.0
    processes: Number = 1
    origin: Text = ""


FromParticipant: TypeAlias = (
    Hello | Join | Leave | Holding | Acquire | Cancel | Answered | Lost | Unsent | Watch
)
FromHost: TypeAlias = (
    Welcome | Denied | Granted | Refused | PermitVerdict | Stopped | Waiting | QuotaState | PlanEnded
)

_ENCODER = Encoder()
_FROM_PARTICIPANT: Decoder[list[FromParticipant]] = Decoder(list[FromParticipant])
_FROM_HOST: Decoder[list[FromHost]] = Decoder(list[FromHost])


# msgspec raises the last two for strings that are no UTF-8, and for arrays within arrays without end.
_MALFORMED = (MalformedError, UnicodeDecodeError, RecursionError)


class FrameError(ValueError):
    """Bytes that are no frame of this protocol."""


def encode(messages: Sequence[FromParticipant | FromHost]) -> bytes:
    """Return the frame of some messages."""
    return _ENCODER.encode(messages)


def frames_of(messages: Sequence[FromParticipant | FromHost]) -> Iterator[bytes]:
    """Yield the frames of messages: thousands of requests may begin at once."""
    for first in range(0, len(messages), MOST_MESSAGES):
        yield encode(messages[first : first + MOST_MESSAGES])


def read_participant_frame(frame: bytes) -> list[FromParticipant]:
    """Return the messages of a participant.

    Raises:
        FrameError: the frame is malformed, or has an unknown message or an amount out of range.

    """
    try:
        return _FROM_PARTICIPANT.decode(frame)
    except _MALFORMED as error:
        raise FrameError(f"malformed frame of a participant: {error}") from None


def greeting_of(frame: bytes) -> Hello:
    """Return the greeting in the first frame of a participant.

    Raises:
        FrameError: it does not begin with a `Hello` that names one.

    """
    messages = read_participant_frame(frame)
    if not messages or not isinstance(messages[0], Hello) or not messages[0].quota:
        raise FrameError("the first message has to be Hello, and name a quota")
    return messages[0]


def read_host_frame(frame: bytes) -> list[FromHost]:
    """Return the messages of a host.

    Raises:
        FrameError: as for `read_participant_frame`.

    """
    try:
        return _FROM_HOST.decode(frame)
    except _MALFORMED as error:
        raise FrameError(f"malformed frame of the host: {error}") from None


# --- frames in a stream of bytes ----------------------------------------------------------------


def framed(frame: bytes) -> bytes:
    """Return a frame with its length in front, four bytes in network order."""
    return len(frame).to_bytes(4, "big") + frame


class FrameReader:
    """Reader of frames from bytes that arrive in pieces of any size."""

    __slots__ = ("_buffer",)

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Yield the frames that are complete with `data`.

        Raises:
            FrameError: a frame is longer than `MAX_FRAME` bytes.

        """
        buffer = self._buffer
        buffer += data
        while len(buffer) >= 4:
            end = 4 + int.from_bytes(buffer[:4], "big")
            if end > MAX_FRAME + 4:
                raise FrameError(f"a frame of {end - 4} bytes is longer than {MAX_FRAME}")
            if len(buffer) < end:
                return
            frame = bytes(buffer[4:end])
            del buffer[:end]
            yield frame


# --- limit headers ------------------------------------------------------------------------------


def amount_of(value: float) -> float:
    """Return an amount as a message can have it: at most `MOST`."""
    return min(value, MOST)


def limits_of(info: RateLimitInfo) -> Limits | None:
    """Return the limit headers of a response as part of a message; None without any."""
    if info == _SILENCE:
        return None
    return Limits(
        _capped(info.limit),
        _capped(info.remaining),
        _capped(info.reset),
        _capped(info.retry_after),
        tuple((min(one.quota, MOST), _capped(one.window), _short(one.name)) for one in info.policies),
        tuple((one.name[:1024], _capped(one.remaining), _capped(one.reset)) for one in info.service_limits),
    )


def info_of(limits: Limits | None) -> RateLimitInfo:
    """Return the limit headers of a message."""
    if limits is None:
        return _SILENCE
    return RateLimitInfo(
        limits.limit,
        limits.remaining,
        limits.reset,
        limits.retry_after,
        tuple(PolicyField(*one) for one in limits.policies),
        tuple(ServiceLimit(*one) for one in limits.service_limits),
    )


_SILENCE = RateLimitInfo()


def _capped(value: float | None) -> float | None:
    return None if value is None else min(value, MOST)


def _short(name: str | None) -> str | None:
    return None if name is None else name[:1024]

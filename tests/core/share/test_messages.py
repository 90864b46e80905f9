"""Messages between processes that share a quota: every one survives its frame, and damaged ones do not."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, get_args

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import inspect

from chainapi._limits.headers import PolicyField, RateLimitInfo, ServiceLimit
from chainapi.core.share import messages
from chainapi.core.share.messages import (
    HOLDING,
    MAX_FRAME,
    MOST,
    Acquire,
    Answered,
    Cancel,
    FrameError,
    FrameReader,
    FromHost,
    FromParticipant,
    Granted,
    Hello,
    Holding,
    Join,
    Limits,
    Stopped,
    Waiting,
    amount_of,
    encode,
    framed,
    frames_of,
    info_of,
    limits_of,
    read_host_frame,
    read_participant_frame,
)

pytestmark = pytest.mark.rule


SIMPLE = {
    inspect.NoneType: st.none(),
    inspect.BoolType: st.booleans(),
    inspect.BytesType: st.binary(max_size=40),
}


def strategy(kind: Any) -> st.SearchStrategy[Any]:
    """Return a strategy for the values of a type of msgspec, within its bounds."""
    match kind:
        case inspect.IntType(ge=least, le=most):
            return st.integers(-(2**63) if least is None else least, 2**63 - 1 if most is None else most)
        case inspect.FloatType(ge=least, le=most):
            return st.floats(least, most)
        case inspect.StrType(pattern=pattern):
            return st.text(max_size=40) if pattern is None else st.from_regex(pattern[:-1], fullmatch=True)
        case inspect.UnionType(types=kinds):
            return st.one_of([*map(strategy, kinds)])
        case inspect.TupleType(item_types=kinds):
            return st.tuples(*map(strategy, kinds))
        case inspect.VarTupleType(item_type=item):
            return st.lists(strategy(item), max_size=3).map(tuple)
        case inspect.StructType(cls=cls, fields=fields):
            return st.builds(cls, **{field.name: strategy(field.type) for field in fields})
        case inspect.EnumType(cls=cls):
            return st.sampled_from(cls)
    return SIMPLE[type(kind)]


READERS: list[tuple[Any, Any]] = [(FromParticipant, read_participant_frame), (FromHost, read_host_frame)]


@pytest.mark.parametrize(("kinds", "read"), READERS)
@settings(max_examples=50)
@given(st.data())
def test_messages_survive_their_frame(kinds: Any, read: Any, data: st.DataObject) -> None:
    """Messages of both ends are read as they were sent."""
    sent = data.draw(st.lists(strategy(inspect.type_info(kinds)), max_size=5))
    assert read(encode(sent)) == sent


MALFORMED = {
    "empty": b"",
    "no array": b"\x80",
    "truncated": encode([Cancel(1)])[:-1],
    "two frames": encode([Cancel(1)]) * 2,
    "unknown message": b"\x91\x91\x7f",
    "too few fields": b"\x91\x91\x06",
    "wrong type": b"\x91\x92\x06\xa1x",
    "no UTF-8": b"\x91\x93\x01\x01\xa2\xff\xfe",
    "endless arrays": b"\x91\x93\x06\x01" + b"\x91" * 100_000 + b"\x01",
    "endless length": b"\xdd\xff\xff\xff\xff",
}


def test_malformed_frames_are_refused_at_both_ends() -> None:
    """Bytes that are no frame raise FrameError, and no other error."""
    for frame in MALFORMED.values():
        with pytest.raises(FrameError, match="malformed frame of a participant: "):
            read_participant_frame(frame)
        with pytest.raises(FrameError, match="malformed frame of the host: "):
            read_host_frame(frame)


@given(st.binary(max_size=60))
def test_any_bytes_are_messages_or_an_error(frame: bytes) -> None:
    """Whatever arrives, reading it returns messages or raises FrameError."""
    for read in (read_participant_frame, read_host_frame):
        with suppress(FrameError):
            assert isinstance(read(frame), list)


NAN, INF = float("nan"), float("inf")
OUT_OF_RANGE: list[FromParticipant] = [
    *(Acquire(1, 1, "/a", cost) for cost in (NAN, INF, -1.0, 2 * MOST)),
    *(Cancel(-1), Cancel(2**63)),
    *(Answered(1, 200, Limits(NAN)), Answered(1, 200, Limits(policies=((1.0, NAN, None),)))),
    *(Join(1, rate=(NAN, 1.0, False, "")), Hello(1, "x" * 1025)),
    Holding(HOLDING - 1, 1, "/a"),  # the number of a host's permit
]
OF_A_HOST: list[FromHost] = [Stopped(NAN), Stopped(INF), Waiting(1, "stop", NAN, 1), Granted(1, -1)]


def test_amounts_out_of_range_are_refused() -> None:
    """Amounts out of range, and messages of the wrong end, are refused."""
    for read, wrong in (
        (read_participant_frame, [*OUT_OF_RANGE, Stopped(1.0)]),
        (read_host_frame, [*OF_A_HOST, Cancel(1)]),
    ):
        for message in wrong:
            with pytest.raises(FrameError):
                read(encode([message]))
    with pytest.raises(FrameError):
        read_host_frame(msgspec.msgpack.encode([[36, 1, "maybe"]]))  # a verdict that this version lacks


def test_bounds_are_part_of_the_range() -> None:
    """The largest amounts, numbers and texts pass."""
    sent: list[FromParticipant] = [Acquire(2**63 - 1, 0, "x" * 1024, MOST), Holding(HOLDING, 0, "")]
    assert read_participant_frame(encode(sent)) == sent
    assert amount_of(MOST) == MOST
    assert amount_of(INF) == MOST
    assert amount_of(1.5) == 1.5


@given(st.lists(st.binary(max_size=300), max_size=6), st.lists(st.integers(1, 400), max_size=20))
def test_stream_in_pieces_of_any_size_has_its_frames(frames: list[bytes], sizes: list[int]) -> None:
    """Frames arrive whole and in order, however the stream is cut."""
    stream, reader, read = b"".join(framed(frame) for frame in frames), FrameReader(), []
    for size in [*sizes, len(stream)]:
        read += list(reader.feed(stream[:size]))
        stream = stream[size:]
    assert read == frames


def test_longest_frame_passes_and_a_longer_one_does_not() -> None:
    """A length above MAX_FRAME raises before its bytes arrive; the frames before it are read."""
    assert [len(frame) for frame in FrameReader().feed(framed(bytes(MAX_FRAME)))] == [MAX_FRAME]
    read = FrameReader().feed(framed(b"one") + (MAX_FRAME + 1).to_bytes(4, "big"))
    assert next(read) == b"one"
    with pytest.raises(FrameError, match=f"a frame of {MAX_FRAME + 1} bytes is longer than {MAX_FRAME}"):
        next(read)


def test_thousands_of_messages_are_frames_that_pass() -> None:
    """Any number of messages are frames of at most MAX_FRAME bytes, in order, whatever their text."""
    longest = [Acquire(n, 1, "\U0001f517" * 1024, tag="\U0001f517" * 64) for n in range(300)]
    for many in ([], longest[:1], longest):
        frames = list(frames_of(many))
        assert all(len(frame) <= MAX_FRAME for frame in frames)
        assert [one for frame in frames for one in read_participant_frame(frame)] == many


def test_length_has_four_bytes_in_network_order() -> None:
    """Carriers in other processes read the same length."""
    assert framed(b"abc") == b"\x00\x00\x00\x03abc"


INFO = RateLimitInfo(
    100.0,
    0.0,
    12.5,
    30.0,
    (PolicyField(100.0, 60.0, "minute"), PolicyField(5.0, None, None)),
    (ServiceLimit("minute", 3.0, 4.0), ServiceLimit("day", None, None)),
)


def test_limit_headers_survive_a_message() -> None:
    """The host reads the limit headers that the participant received."""
    for info in (INFO, RateLimitInfo(), RateLimitInfo(5.0)):
        (sent,) = read_participant_frame(encode([Answered(1, 200, limits_of(info))]))
        assert isinstance(sent, Answered)
        assert info_of(sent.limits) == info
        assert (sent.limits is None) == (info == RateLimitInfo())


def test_exaggerated_limit_headers_are_cut_to_the_range() -> None:
    """A service that sends huge amounts or names does not break the link."""
    info = RateLimitInfo(
        1e300,
        1e300,
        1e300,
        1e300,
        (PolicyField(1e300, 1e300, "x" * 2000),),
        (ServiceLimit("y" * 2000, 1e300, 1e300),),
    )
    (sent,) = read_participant_frame(encode([Answered(1, 200, limits_of(info))]))
    assert isinstance(sent, Answered)
    assert sent.limits == Limits(
        MOST, MOST, MOST, MOST, ((MOST, MOST, "x" * 1024),), (("y" * 1024, MOST, MOST),)
    )


FROM_PARTICIPANT = (
    "9a970103a57765623a31b168747470733a2f2f646174612e74657374cb4004000000000000a46e616d6596ac72656469733a"
    "2f2f686f7374a6707265666978c406736563726574cb3ff0000000000000cb4000000000000000cb40080000000000009902"
    "01a374616794cb4024000000000000cb3ff0000000000000c2a0059194cb4020000000000000cb404e000000000000c3a466"
    "726565c2cb40ac200000000000cb403e0000000000009203019704cf000100000000000001a22f61cb4000000000000000cb"
    "3fe0000000000000a37461679c050101a22f61cb400000000000000003cb4010000000000000cb4014000000000000c3a374"
    "61670607920601940701cd01ad96cb3ff0000000000000cb4000000000000000cb4008000000000000cb4010000000000000"
    "9193cb4014000000000000cb4018000000000000a16e9193a16dcb401c000000000000cb4020000000000000920801920901"
    "910a"
)
FROM_HOST = (
    "999220039321a26e6fc393220102952301cb4000000000000000a26e6fc3932401a571756f74619225cb3ff0000000000000"
    "952601a473746f70cb4000000000000000039527c4027b7dcb3ff000000000000002b168747470733a2f2f646174612e7465"
    "7374952801a466726565cb4072c00000000000cb404e000000000000"
)


def test_golden_frames_pin_the_schema_to_its_version() -> None:
    """Frames of version 3 are read and written as they always were: another schema is another version."""
    for text, (kinds, read) in zip((FROM_PARTICIPANT, FROM_HOST), READERS, strict=True):
        frame = bytes.fromhex(text)
        found = read(frame)
        assert encode(found) == frame
        assert {*map(type, found)} == {*get_args(kinds)}
        assert all(None not in msgspec.structs.astuple(message) for message in found)
    assert messages.VERSION == 3


def test_numbers_of_messages_are_fixed() -> None:
    """Two versions of chainapi understand each other's numbers: they are never used again."""
    kinds = (*get_args(FromParticipant), *get_args(FromHost))
    tags = {kind.__name__: kind.__struct_config__.tag for kind in kinds}
    participants = {"Hello": 1, "Join": 2, "Leave": 3, "Holding": 4, "Acquire": 5, "Cancel": 6}
    ends = {"Answered": 7, "Lost": 8, "Unsent": 9, "Watch": 10}
    hosts = {"Welcome": 32, "Denied": 33, "Granted": 34, "Refused": 35, "PermitVerdict": 36}
    states = {"Stopped": 37, "Waiting": 38, "QuotaState": 39, "PlanEnded": 40}
    assert tags == {**participants, **ends, **hosts, **states}
    assert messages.VERSION == 3

"""Limit headers in every form, and malformed ones."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import copysign, isfinite
from types import MappingProxyType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chainapi._limits.headers import PolicyField, RateLimitInfo, ServiceLimit, hold, read_limits

pytestmark = pytest.mark.rule

NOW = 1_750_000_000.0  # Sunday, 15 June 2025, 15:06:40 GMT
DATE = "Sun, 15 Jun 2025 15:00:00 GMT"
DATE_TIME = NOW - 400

FAMILIES = ["ratelimit-", "x-ratelimit-", "x-rate-limit-"]
NAMES = [
    "ratelimit",
    "ratelimit-policy",
    "retry-after",
    "date",
    *(family + name for family in FAMILIES for name in ("limit", "remaining", "reset")),
]


def read(**headers: str) -> RateLimitInfo:
    """Read headers whose names are written with underscores."""
    return read_limits({name.replace("_", "-"): value for name, value in headers.items()}, NOW)


def wrong(field: str, *table: tuple[RateLimitInfo, Iterable[str]]) -> list[str]:
    """Return the texts of a field that are not read as the table says, and what they are read as."""
    found = [(text, read_limits({field: text}, NOW), info) for info, texts in table for text in texts]
    return [f"{text!r}: {one}" for text, one, info in found if one != info]


NOTHING = RateLimitInfo()


# --- fields together ---

HUGE = "9" * 300
TOGETHER: dict[str, RateLimitInfo] = {
    f"content-type: application/json | date: {DATE}": RateLimitInfo(),
    # those of the specification, as a refusal has them
    "ratelimit-policy: 300;w=60 | ratelimit-limit: 300 | ratelimit-remaining: 0 | ratelimit-reset: 17"
    " | retry-after: 17": RateLimitInfo(300, 0, 17, 17, (PolicyField(300, 60),)),
    # parameters of the remainder and of the reset do not count
    'ratelimit-remaining: 76;w=21600;comment="so, so" | ratelimit-reset: 5;unit=s': RateLimitInfo(
        None, 76, 5
    ),
    # the family with the smallest remainder counts as a whole; one without a readable value is absent
    "ratelimit-limit: 100 | ratelimit-remaining: 90 | ratelimit-reset: 600"
    " | x-ratelimit-limit: 10 | x-ratelimit-remaining: 2": RateLimitInfo(10, 2),
    "ratelimit-limit: many | x-ratelimit-limit: 10": RateLimitInfo(10),
    # a number that a float can hold is neither capped nor dropped
    f"ratelimit-limit: {HUGE} | ratelimit-remaining: {HUGE} | ratelimit-reset: {HUGE}"
    f" | retry-after: {HUGE}": RateLimitInfo(float(HUGE), float(HUGE), float(HUGE), float(HUGE)),
    # a named limit takes its quota from the policy of the same name
    'ratelimit: "spree";r=7;t=11 | ratelimit-policy: "slow";q=9000;w=86400, "spree";q=80;w=20': RateLimitInfo(
        *(80, 7, 11, None),
        (PolicyField(9000, 86400, "slow"), PolicyField(80, 20, "spree")),
        (ServiceLimit("spree", 7, 11),),
    ),
    # each named limit with a value is there, with None for a missing one
    'ratelimit: "minute";r=5, "day";t=3600;x="y", "week"': RateLimitInfo(
        remaining=5, service_limits=(ServiceLimit("minute", 5), ServiceLimit("day", None, 3600))
    ),
    # the stricter of the combined and the separate fields counts
    "ratelimit: limit=70, remaining=20, reset=4 | ratelimit-limit: 50"
    " | ratelimit-remaining: 9": RateLimitInfo(50, 9),
    "ratelimit: limit=70, remaining=2, reset=4 | ratelimit-limit: 50 | ratelimit-remaining: 9": RateLimitInfo(
        70, 2, 4
    ),
    # policies behind the limit count only without a readable field for them
    "ratelimit-limit: 80, 80;w=30 | ratelimit-policy: 80;w=31": RateLimitInfo(
        80, policies=(PolicyField(80, 31),)
    ),
    "ratelimit-limit: 80, 80;w=30 | ratelimit-policy: ?": RateLimitInfo(80, policies=(PolicyField(80, 30),)),
}


def test_fields_are_read_together() -> None:
    """The fields of a response give one reading, from any mapping: the strictest of what can be read."""
    assert read_limits({}, NOW) == RateLimitInfo()
    found = {
        text: read_limits(MappingProxyType(dict(one.split(": ") for one in text.split(" | "))), NOW)
        for text in TOGETHER
    }
    assert found == TOGETHER


# --- the separate fields ---


def test_separate_fields() -> None:
    """Limit, remainder and reset have a header each, with three possible names."""
    for family in FAMILIES:
        headers = {f"{family}limit": "600", f"{family}remaining": "7", f"{family}reset": "41"}
        assert read_limits(headers, NOW) == RateLimitInfo(limit=600, remaining=7, reset=41)


LIMITS: list[tuple[float, list[PolicyField], list[str]]] = [
    (80, [PolicyField(80, 30)], ["80, 80;w=30", "80;w=30"]),
    (
        *(80, [PolicyField(80, 30), PolicyField(900, 7200)]),
        ["80, 80;w=30, 900;w=7200", '80, 80;w=30;burst=9;comment="fixed, with a \\"comma\\"";x, 900;w=7200'],
    ),
    (8, [PolicyField(80, 30)], ["8,80;w=30"]),
    (80, [], ["80;comment=fixed", " 80 "]),
    (0, [PolicyField(80, None)], ["0, 80;w=0"]),
    (20, [], ["80, 20"]),
    (80.5, [], ["80.5"]),
]


def test_limit_with_policies_behind_it() -> None:
    """The limit is the number without a window; numbers with a window are policies."""
    table = [(RateLimitInfo(limit, policies=tuple(policies)), texts) for limit, policies, texts in LIMITS]
    assert wrong("ratelimit-limit", *table) == []


def test_repeated_fields_are_read_strictly() -> None:
    """The smallest remainder and the longest reset of one field count."""
    for text in ("3, 9", "9, 3", "3;w=1, 9;w=60", "9,,3,"):
        info = read(ratelimit_remaining=text, ratelimit_reset=text)
        assert info == RateLimitInfo(remaining=3, reset=9), text


MALFORMED = [
    *("", " ", "-5", "many", "5 units", "5; using half, that is 6", "5x", "0x10", "1e3", "1_000", "+5"),
    *("nan", "inf", "-inf", "?1", "@5", "(5)", '"5"', ":NQ==:", "5\0", "5\n", "²", "٣", "५"),
    *("9" * 5000, "-" + "9" * 5000, "5, many", "5, -5"),
]


def test_malformed_field_is_as_if_absent() -> None:
    """A field other than a plain list of amounts does not count; the others do."""
    for family in FAMILIES:
        for name in ("limit", "remaining", "reset"):
            assert wrong(family + name, (NOTHING, MALFORMED)) == []
        for text in MALFORMED:
            headers = {f"{family}limit": text, f"{family}remaining": "4", f"{family}reset": text}
            assert read_limits(headers, NOW) == RateLimitInfo(remaining=4), text


# --- resets that are moments ---


RESETS = {
    30.0: ("1750000030", "5, 1750000030"),
    30.5: ("1750000030.5", "1750000030500"),
    60.0: ("60, 1750000030",),
    0.0: ("1749999990", "1000000000", "0", "-0.0"),
}
DURATIONS = ("2592000", "31622400", "100000000", "99999999999", "99999999999999999999")


def test_reset_as_a_moment() -> None:
    """A reset near the present is Unix time, in s or ms; any other is in seconds."""
    table = [*RESETS.items(), *((float(text), (text,)) for text in DURATIONS)]
    for family in FAMILIES:
        assert wrong(f"{family}reset", *((RateLimitInfo(reset=one), texts) for one, texts in table)) == []


CLOCKS: list[tuple[str, str | None, list[float], float]] = [
    # a wrong clock on our side does not matter if the answer has a Date
    (f"{DATE_TIME + 20:.0f}", DATE, [NOW, NOW + 86400, NOW - 86400, 0.0], 20),
    # without a Date or a plausible clock a large reset stays a long wait
    ("1750000030", None, [0.0, 1000.0, -5.0, 1e300, float("nan"), float("inf")], 1750000030),
    # a reset of less than three years is a number of seconds
    ("600.5", None, [1000.0], 600.5),
    ("60000000", None, [1e8], 60000000),
]


def test_moment_is_measured_against_the_date_or_a_plausible_clock() -> None:
    """A moment is a wait from the Date, or from our clock if it can be right; a possible window is none."""
    for reset, date, clocks, seconds in CLOCKS:
        headers = {"x-ratelimit-reset": reset} | ({} if date is None else {"date": date})
        assert [read_limits(headers, now).reset for now in clocks] == [seconds] * len(clocks), reset


# --- the combined field ---


COMBINED = {
    RateLimitInfo(70, 20, 4): (
        *("limit=70, remaining=20, reset=4", "remaining=20,reset=4,limit=70"),
        "Limit=70; remaining=0, Remaining = 20 , reset=4",
    ),
    RateLimitInfo(70, None, 4): ("limit=70, reset=4",),
    RateLimitInfo(70, 20.5, 4.5): ('limit=70;w=60, remaining=20.5, reset=4.5, scope="a, b", flag',),
    RateLimitInfo(9, 20, 50): ("limit=70, remaining=20, reset=4, limit=9, remaining=30, reset=50",),
    RateLimitInfo(70): ("limit=70, remaining=lots, reset=-4",),
    NOTHING: (
        *("limit=?1, remaining=(1 2), reset=@5", "limit=70 remaining=20"),
        "limit=70, remaining=20, reset=4 \\",
    ),
}


def test_combined_dictionary() -> None:
    """The dictionary form gives its three numbers; no number if it is malformed."""
    assert wrong("ratelimit", *COMBINED.items()) == []


TIGHTEST: dict[str, tuple[float | None, float | None]] = {
    '"minute";r=5;t=10, "day";r=1000;t=3600': (5, 10),
    '"day";r=1000;t=3600, "minute";r=5;t=10': (5, 10),
    '"minute";r=0;t=10, "day";r=0;t=3600': (0, 3600),
    '"minute";r=0, "day";r=0;t=3600': (0, 3600),
    '"minute";t=90, "day";r=1000;t=3600': (1000, 3600),
    '"minute";t=90, "day";t=3600': (None, 3600),
    '"minute";r=5, "day";r=6;t=1': (5, None),
    "minute;r=5;t=10,day;r=6": (5, 10),
    '"a";r=9;pk=:eHg=:, "a";r=4;t=2;pk=:eXk:': (4, 2),
    '"a";r=-1;t=5': (None, 5),
    '"a";r=?1;t=5': (None, 5),
    '"a";r=3;t="5"': (3, None),
}


def test_tightest_of_several_limits() -> None:
    """The smallest remainder counts, and of equal ones that with the longest reset."""
    for text, tightest in TIGHTEST.items():
        info = read(ratelimit=text)
        assert (info.remaining, info.reset) == tightest, text
        names = text.count('"a"' if '"a"' in text else "minute") + text.count("day")
        assert len(info.service_limits) == names, text


PARAMETERS = [
    '"a";r=5;t=3',
    ' "a" ; r = 5 ;\tt=3 ',
    '"a";R=5;T=3',
    'a;r=5;t=3;pk=:cHsdsRa894==:;on;off=?0;at=@1659578233;why="so, so;r=1"',
    ", ,a;r=5;t=3, ,\t",
]
BROKEN = [
    *("a;", "a;=1", "a;r=", "a;r=;t=3", 'a;r=5;why="open', 'a;why="\\x";r=5', "a b;r=5", "a;r=(5 6)"),
    "\na;r=5",
]


def test_parameters_of_any_kind() -> None:
    """Blanks, capitals, empty members and parameters of other kinds change nothing; a fault ends all."""
    limit = RateLimitInfo(remaining=5, reset=3, service_limits=(ServiceLimit("a", 5, 3),))
    broken = [text for one in BROKEN for text in (one, f"b;r=1, {one}", f"{one}, b;r=1")]
    assert wrong("ratelimit", (limit, PARAMETERS), (NOTHING, broken)) == []


def test_quota_may_stand_beside_the_remainder() -> None:
    """A quota in RateLimit itself counts too; the smaller one wins."""
    table = {'"a";q=12;w=1': 10, '"a";q=8;w=1': 8, '"b";q=1;w=1': 10, '"a";q=12;w=1, "a";q=9;pk=:eHg=:': 9}
    for policy, limit in table.items():
        assert read(ratelimit='"a";q=10;r=6;t=1', ratelimit_policy=policy).limit == limit, policy


def test_malformed_combined_field_is_as_if_absent() -> None:
    """A partly malformed list does not count: the rest could be too loose a limit."""
    for text in ('"day";r=1000;t=3600, "minute;r=0', "5;r=1", '"a";r=1, (a b);r=0', '"a";r=1 x', ""):
        assert read(ratelimit=text) == RateLimitInfo()
        assert read(ratelimit=text, ratelimit_remaining="4") == RateLimitInfo(remaining=4)


# --- policies ---


POLICY_FIELDS: list[tuple[list[PolicyField], list[str]]] = [
    ([PolicyField(80, 30)], ["80;w=30", '80;w=30;burst=9;comment="a, b;w=1"']),
    ([PolicyField(80, 30), PolicyField(900, 7200)], ["80;w=30, 900;w=7200"]),
    ([PolicyField(80)], ["80", "80;w=0", "80;w=-1", "80;w", '80;w="a"']),
    ([PolicyField(0, 30)], ["0;w=30"]),
    ([PolicyField(0)], ["0;w=0"]),
    ([PolicyField(80, 2.5)], ["80;w=2.5"]),
    ([PolicyField(80, 30, "a")], ['"a";q=80;w=30', '"a";q=80;w=30;qu="requests";pk=:eHg=:']),
    ([PolicyField(80, 30, "a"), PolicyField(9, None, "b")], ['"a";q=80;w=30, b;q=9']),
    ([PolicyField(9, None, "b")], ['"a";w=30, "b";q=9']),
    ([], ["-1;w=30", '"a";q=-1, "b";q=x, "c";q=?1', "80;w=30, 900;w=", "80;w=30;comment=not quoted", ""]),
]


def test_policies() -> None:
    """Policies have name, quota and window; without a quota they do not count."""
    table = [(RateLimitInfo(policies=tuple(policies)), texts) for policies, texts in POLICY_FIELDS]
    assert wrong("ratelimit-policy", *table) == []


# --- Retry-After ---


WAITS: dict[float, list[str]] = {
    0.0: [
        *("0", "Sun, 15 Jun 2025 15:06:00 GMT", "Sun, 06 Nov 1994 08:49:37 GMT"),
        *("Sunday, 06-Nov-94 08:49:37 GMT", "Sun Nov  6 08:49:37 1994"),
    ],
    2.5: ["2.5"],
    20.0: [
        *("20", " 20 ", "20, soon", "-5, 20", "20, " + "9" * 5000, "Sun, 20"),
        *("Sun, 15 Jun 2025 15:07:00 GMT", "Sunday, 15-Jun-25 15:07:00 GMT", "Sun Jun 15 15:07:00 2025"),
        *(
            "sun, 15 JUN 2025 15:07:00 gmt",
            "Sun, 15 Jun 2025 15:07:00 UTC",
            "Sun, 15 Jun 2025 17:07:00 +0200",
        ),
        *("5, Sun, 15 Jun 2025 15:07:00 GMT", "Sun, 15 Jun 2025 15:07:00 GMT, 5"),
        "Sun, 15 Jun 2025 25:07:00 GMT, Sun, 15 Jun 2025 15:07:00 GMT",
    ],
    22.0: ["Sunday, 15-Jun-25 15:07:00 GMT, Sun, 15 Jun 2025 15:07:01 GMT,Sun Jun 15 15:07:02 2025"],
    30.0: ["20, 30", "30,20"],
    50.0: ["Sun, 15 Jun 2025 15:07:00 GMT, 50"],
    1327999.0: ["Mon, 30 Jun 2025 23:59:59 GMT"],
    1328000.0: [
        *("Tue Jul  1 00:00:00 2025", "Tuesday, 01-Jul-25 00:00:00 GMT", "Tue, 1 Jul 2025 00:00:00 GMT")
    ],
    1750000030.0: ["1750000030"],
    86400000000.0: ["86400000000"],
}
NO_WAITS = [
    *(text for text in MALFORMED if not text.startswith("5,")),
    *("Sun", "Sun,", "Sun, Mon, Tue", "Sun, 15 Jun 2025", "2025-06-15T15:07:00Z"),
    *("Sun, 31 Jun 2025 15:07:00 GMT", "Sun, 15 Juh 2025 15:07:00 GMT", "Sunday, 00-Jun-25 15:07:00 GMT"),
    *("Sun, 15 Jun 2025 24:07:00 GMT", "Sun, 15 Jun 2025 15:07:61 GMT", "Mon, 30 Jun 2025 23:59:60 GMT"),
    *("Sun, \u0661\u0665 Jun 2025 15:07:00 GMT", "Sun Jun    15:07:00 2025"),
]


def test_retry_after() -> None:
    """Seconds and three forms of a date; the past is 0; the longest counts; what is neither does not."""
    table = [(RateLimitInfo(retry_after=seconds), texts) for seconds, texts in WAITS.items()]
    assert wrong("retry-after", *table, (NOTHING, NO_WAITS)) == []


def test_date_of_the_response_is_the_measure() -> None:
    """A date is relative to the Date of the response, with any clock; without a readable one, to `now`."""
    for date in (DATE, "Sunday, 15-Jun-25 15:00:00 GMT", "Sun Jun 15 15:00:00 2025", f" {DATE} "):
        for now in (NOW, NOW + 2 * 86400, NOW - 3600):
            headers = {"retry-after": "Sun, 15 Jun 2025 15:00:09 GMT", "date": date}
            assert read_limits(headers, now) == RateLimitInfo(retry_after=9)
    for date in ("", "today", "Sun, 99 Jun 2025 15:00:00 GMT", "1750000000"):
        headers = {"retry-after": "Sun, 15 Jun 2025 15:07:00 GMT", "date": date}
        assert read_limits(headers, NOW + 0.25) == RateLimitInfo(retry_after=19.75)


def test_zero_has_no_sign() -> None:
    """A negative zero is read as zero."""
    for name in ("ratelimit-remaining", "x-ratelimit-reset", "retry-after"):
        assert "-0" not in repr(read_limits({name: "-0.0"}, NOW))


# --- any text ---

FRAGMENTS = st.sampled_from(
    [
        *("5", "0", "-1", "-0.0", "9" * 400, "1750000030", "2.5", "nan", "inf", "_", "²", "٣", "\0"),
        *(",", ", ", ";", "=", '"', "\\", "(", ")", ":", "?1", "@1", "%", " ", "\t"),
        *('"a"', "a", "w=", "q=0", "w=0", "r=", "t=", "limit=", "remaining=", "reset="),
        *(DATE, "Sunday, 15-Jun-25 15:07:00 GMT", "Sun Jun 15 15:07:00 2025", "Sun", "Sun, "),
    ]
)
TEXTS = st.one_of(st.text(), st.lists(FRAGMENTS, max_size=12).map("".join), st.integers().map(str))


def numbers(info: RateLimitInfo) -> list[float]:
    """Collect every number in the info."""
    numbers = [info.limit, info.remaining, info.reset, info.retry_after]
    numbers += [number for policy in info.policies for number in (policy.quota, policy.window)]
    numbers += [number for limit in info.service_limits for number in (limit.remaining, limit.reset)]
    return [number for number in numbers if number is not None]


@given(st.dictionaries(st.sampled_from(NAMES), TEXTS), st.floats(0, 4e9))
def test_no_text_does_harm(headers: Mapping[str, str], now: float) -> None:
    """No header text raises; all numbers are finite and not negative."""
    info = read_limits(headers, now)
    assert all(isfinite(number) and copysign(1, number) > 0 for number in numbers(info))
    assert all(policy.window != 0 for policy in info.policies)
    assert isfinite(hold(429, info))


USUAL = st.sampled_from(
    [
        *("", "0", "7", "007", "600", "-1", "1e3", "7.5", "x", " 7", "\u0667"),
        *("9" * 15, "9" * 16, "99999999", "100000000"),
    ]
)
POLICIES = st.sampled_from(
    ("", "600;w=60", "600;w=60, 9000;w=3600", '"day";q=9000;w=86400', "600, 600;w=60", "x")
)


@given(
    st.fixed_dictionaries(
        {},
        optional={
            "ratelimit-limit": st.one_of(USUAL, POLICIES),
            "ratelimit-remaining": USUAL,
            "ratelimit-reset": st.one_of(USUAL, st.just(str(int(NOW) + 30))),
            "ratelimit-policy": POLICIES,
            "date": st.just(DATE),
        },
    )
)
def test_usual_fields_are_read_as_all_fields_are(headers: dict[str, str]) -> None:
    """The short way for the fields of nearly all responses reads what the long one reads.

    An empty field of another name has no value, but needs the long way.
    """
    assert read_limits(headers, NOW) == read_limits({**headers, "x-ratelimit-limit": ""}, NOW)


@given(st.lists(st.integers(0, 50), min_size=1, max_size=6), st.lists(st.integers(0, 50), max_size=6))
def test_more_fields_never_widen_the_limit(first: list[int], more: list[int]) -> None:
    """A further named limit can lower the remainder, never raise it."""

    def remaining(amounts: list[int]) -> float | None:
        text = ", ".join(f'"p{index}";r={amount};t=9' for index, amount in enumerate(amounts))
        return read(ratelimit=text).remaining

    alone, together = remaining(first), remaining(first + more)
    assert alone is not None
    assert together is not None
    assert together <= alone


# --- obeying ---


HOLDS = [
    (429, RateLimitInfo(remaining=15, reset=40, retry_after=20), 20.0),
    (429, RateLimitInfo(remaining=15, reset=40, retry_after=0), 0.0),
    (200, RateLimitInfo(remaining=5, retry_after=20), 20.0),
    (429, RateLimitInfo(remaining=15, reset=40), 40.0),
    (503, RateLimitInfo(reset=40), 40.0),
    (429, RateLimitInfo(), 0.0),
    (429, RateLimitInfo(remaining=0), 0.0),
    (200, RateLimitInfo(remaining=0, reset=40), 40.0),
    (301, RateLimitInfo(remaining=0, reset=40), 40.0),
    (404, RateLimitInfo(remaining=0, reset=40), 40.0),
    (200, RateLimitInfo(remaining=0), 0.0),
    (200, RateLimitInfo(remaining=0.5, reset=40), 0.0),
    (200, RateLimitInfo(remaining=1, reset=40), 0.0),
    (200, RateLimitInfo(reset=40), 0.0),
    (500, RateLimitInfo(remaining=1, reset=40), 0.0),
]


def test_hold() -> None:
    """Retry-After wins; the reset counts on a refusal or if nothing remains."""
    assert [one for one in HOLDS if hold(one[0], one[1]) != one[2]] == []

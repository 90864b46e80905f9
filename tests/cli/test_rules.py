"""Rules of the command line: how values are read, how waits and errors are worded, how columns fit."""

from __future__ import annotations

import io
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from chainapi import ROUTES, Limit
from chainapi._http.query import query_params
from chainapi._limits.view import PLANS, QuotaSnapshot
from chainapi.cli.common import Plan
from chainapi.cli.estimate import read_limit
from chainapi.cli.names import plain, read_values, resolve
from chainapi.cli.progress import CommandProgress
from chainapi.cli.quota import SharedQuota, record, tables
from chainapi.cli.tables import RowTable
from chainapi.cli.wording import worded
from chainapi.errors import APIStatusError, ConfigurationError, DecodeError, QuotaWaitError
from chainapi.export.progress import ExportProgress
from chainapi.models import HealthCheck, HealthIndicator, Money, Unknown
from tests.cli.terminal import plain as seen

pytestmark = pytest.mark.rule

UTXOS = "data.primary_network.utxos"
METRIC = "metrics.chains.metric"
BALANCES = "data.evm.erc20_balances"


# Names and values


@pytest.mark.parametrize(
    ("name", "words", "params", "values"),
    [
        ("data.evm.blocks", ["43114"], [], {"chain_id": "43114"}),
        ("data.evm.blocks", [], ["chain_id=43114"], {"chain_id": "43114"}),
        ("data.evm.blocks", ["43114"], ["page_size=7"], {"chain_id": "43114", "page_size": 7}),
        ("data.evm.blocks", ["43114"], ["pageSize=7"], {"chain_id": "43114", "page_size": 7}),
        (
            UTXOS,
            ["fuji", "p-chain"],
            ["addresses=a,b", "addresses=c", "min_utxo_amount=0.5"],
            {"network": "fuji", "addresses": ["a", "b", "c"], "min_utxo_amount": 0.5},
        ),
        (UTXOS, ["fuji", "p-chain"], ["min_utxo_amount=2"], {"min_utxo_amount": 2}),
        (BALANCES, ["1", "0x"], ["filter_spam_tokens=false"], {"filter_spam_tokens": False}),
        (METRIC, ["1", "avgTps"], ["start_timestamp=1700000000"], {"start_timestamp": 1_700_000_000}),
        (METRIC, ["1", "avgTps"], ["start_timestamp=2026-01-01"], {"start_timestamp": 1_767_225_600}),
        (
            METRIC,
            ["1", "avgTps"],
            ["start_timestamp=2026-01-01T01:00:00+01:00"],
            {"start_timestamp": 1_767_225_600},
        ),
    ],
)
def test_values_are_read_as_the_route_takes_them(
    name: str, words: list[str], params: list[str], values: dict[str, Any]
) -> None:
    """Words fill the path in its order, and --param any parameter by either of its names; dates are UTC."""
    found = read_values(name, words, params)
    assert {key: found[key] for key in values} == values
    assert {key: type(found[key]) for key in values} == {key: type(value) for key, value in values.items()}


WITH_RECORDS = {name for name, one in ROUTES.items() if any(part.union for part in one.parameters)}


@given(st.sampled_from(sorted(ROUTES.keys() - WITH_RECORDS)), st.data())
def test_words_that_a_route_takes_are_sent_as_they_are(name: str, data: st.DataObject) -> None:
    """Values written as words and parsed again are sent exactly as given."""
    endpoint = resolve(name)
    segments = [one for one in endpoint.parameters if one.in_path]
    others = [one for one in endpoint.parameters if not one.in_path]
    given_ = {one.name: data.draw(values_of(one)) for one in endpoint.parameters}
    words = [str(given_[one.name]) for one in segments]
    params = [f"{one.name}={word(given_[one.name])}" for one in others]
    read = read_values(name, words, params)
    assert set(read) == set(given_)
    for one in endpoint.parameters:
        assert query_params({"x": read[one.name]}) == query_params({"x": one.checked(given_[one.name])})


def values_of(one: Any) -> st.SearchStrategy[Any]:
    """Return values that a parameter takes."""
    if one.choices:
        value: st.SearchStrategy[Any] = st.sampled_from(one.choices)
    elif bool in one.kinds:
        value = st.booleans()
    elif int in one.kinds and (one.bounds or str not in one.kinds):
        bounds = one.bounds
        least, most = (int(bounds.least), bounds.most) if bounds else (0, None)
        value = st.integers(least, int(most) if most else 2**80)
        if datetime in one.kinds:
            value = st.integers(least, 4_000_000_000)
    else:
        value = st.text("abcxyz0189-_", min_size=1, max_size=12)
    return st.lists(value, min_size=1, max_size=3) if one.many else value


def word(value: Any) -> str:
    """Return a value as it is written on a command line."""
    ((_, text),) = query_params({"x": value})
    return text


@pytest.mark.parametrize(
    ("text", "limit"),
    [
        ("600/60", Limit(600, per=60, units=True)),
        ("100/1.5s", Limit(100, per=1.5, units=True)),
        ("6000/minute", Limit(6_000, per=60, units=True)),
        ("6000/5min", Limit(6_000, per=300, units=True)),
        ("7/2h", Limit(7, per=7_200, units=True)),
        ("1_200_000/day", Limit(1_200_000, per=86_400, units=True)),
        ("9/2 days", Limit(9, per=172_800, units=True)),
        *((text, None) for text in ("", "600", "600/", "/60", "x/60", "600/x", "600/60ms", "0/60", "600/0")),
        *((text, None) for text in ("6/1.2.3", f"{'9' * 400}/60")),
    ],
)
def test_limits_are_read(text: str, limit: Limit | None) -> None:
    """A limit is an amount in a time, in seconds or in a unit that is named; anything else is refused."""
    if limit is not None:
        assert read_limit(text) == limit
        return
    with pytest.raises(ConfigurationError, match="--limit '"):
        read_limit(text)


def test_rows_keep_every_digit() -> None:
    """Rows keep whole numbers, decimals as texts, nested records as objects, and unknown kinds unchanged."""
    check = HealthCheck(status="ok", info={"db": HealthIndicator(status="up")})
    assert plain(Money(currency_code="usd", value=Decimal("1.10")))["value"] == "1.10"
    assert plain(check)["info"]["db"]["status"] == "up"
    assert plain([2**80, ("a", None)]) == [2**80, ["a", None]]
    raw = {"ercType": "ERC-9999", "amount": 2**80, "nested": {"a": [1]}}
    assert plain(Unknown(raw)) == raw


# Words


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (ConfigurationError("data_base_url is empty"), "--data-base-url is empty"),
        (ConfigurationError("max_wait='x' must be"), "--max-wait 'x' must be"),
        (ConfigurationError("lake/format=csv/ is no file"), "lake/format=csv/ is no file"),
        (QuotaWaitError(1.0, retry_after=9.0, max_wait=5.0), "in 9.0 s, later than --max-wait 5 s allows"),
        (DecodeError("name one with items= (a, b)"), "$: name one with --items (a, b)"),
        (APIStatusError(400, "no", ("deadline=5 is wrong",)), "400 no: deadline=5 is wrong"),
        (FileNotFoundError(2, "No such file", "a.csv"), "a.csv cannot be opened: No such file"),
    ],
)
def test_errors_name_options_and_not_arguments(error: Exception, message: str) -> None:
    """Error messages name options instead of arguments; the service's own words stay as they are."""
    assert worded(error).endswith(message)


# Progress and waits


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (1.6, "next request in 2 s, at 23:59:01"),
        (119.0, "next request in 119 s, at 2026-02-01 00:00"),
        (3_600.0, "next request in 60 min, at 2026-02-01 00:59"),
        (36_000.0, "next request in 10 h, at 2026-02-01 09:59"),
        (400_000.0, "next request in 5 d, at 2026-02-05 15:05"),
    ],
)
def test_the_end_of_a_wait(seconds: float, said: str) -> None:
    """A wait has its length and its end, with the date if the end is on another day."""
    stopped = QuotaSnapshot(100.0, limit=6_000.0, remaining=0.0, stopped_for=seconds)
    now = datetime(2026, 1, 31, 23, 59, tzinfo=UTC)
    progress = CommandProgress(lambda: now, lambda: {"data": stopped})
    assert progress.waits == f"data: 0 of 6,000 left, {said}"
    assert progress.line() == f"0 pages · 0 rows · 0 requests · {progress.waits}"


def test_plan_of_a_quota_is_shown() -> None:
    """`chainapi quota` names the published plan that counts, in its table and in JSON."""
    snapshot = QuotaSnapshot(limit=8_000.0, remaining=7_990.0, window=60.0, plan="free")
    shared = SharedQuota("digest", "data", "https://x.test", 1, snapshot)
    console = Console(file=io.StringIO(), width=200)
    console.print(tables([shared], datetime.now(UTC)))
    assert isinstance(console.file, io.StringIO)
    text = console.file.getvalue()
    assert "7,990 of 8,000 left (quota a minute), plan free, 0 waiting" in text
    assert record(shared)["plan"] == "free"
    assert get_args(Plan) == (*PLANS,), "the command line has the names of all plans"


def test_stages_and_failures_of_an_export_are_seen() -> None:
    """Failed sources are counted, and the steps of the end are named."""
    progress = ExportProgress(1_000, "writing", seen=1_000, done=997, failed=3, pages=5_000, rows=123_456)
    progress.clock, progress.step = lambda: 3.4, "compacting"
    assert CommandProgress(datetime.now, export=progress).line() == (
        "997 of 1,000 sources · 123,456 rows · 36,311 rows/s · 3 failed · compacting · 0 requests"
    )


# Tables


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        (["a", None, 1], ["value", "a", "", "1"]),
        ([{"a": True, "b": {"c": 1}}, {"a": 2.5}], ["a", "true", "2.5", "more fields, with --json: b"]),
        ([{"a": "x\x1b[31m\ny"}], ["a", r"x\x1b[31m\ny"]),
        ([{"[/x]": "[bold]", "[red]b": [1]}], ["[/x]", "[bold]", "more fields, with --json: [red]b"]),
        ([], []),
    ],
)
def test_row_table_prints_whatever_a_list_holds(rows: list[Any], expected: list[str]) -> None:
    """Rows may be bare values, have different fields, or try to steer the terminal."""
    out = io.StringIO()
    table = RowTable(Console(file=out, width=80))
    for row in rows:
        table.add(row)
    table.close()
    assert seen(out.getvalue()) == expected

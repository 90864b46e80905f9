"""Command line: standard output and error, failures, and exit."""

from __future__ import annotations

import io
import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest
from attrs import evolve
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from chainapi import Checkpoint, Session, __version__
from chainapi.__main__ import main
from chainapi.api.catalogue import ROUTES
from chainapi.cli import FAILED, INTERRUPTED, PIPE_CLOSED, WRONG_USAGE, run
from chainapi.cli.names import route_names
from chainapi.cli.progress import Progress, pause, waits
from chainapi.cli.tables import RowTable, print_series
from chainapi.cli.terminal import Terminal, standard
from chainapi.cli.wording import shell_words, worded
from chainapi.core.events import PageReceived, RequestSent, ResponseReceived, WaitBegan, WaitEnded
from chainapi.core.limits.snapshot import QuotaSnapshot
from chainapi.errors import APIStatusError, ConfigurationError, DecodeError, QuotaWaitError
from chainapi.models import EvmBlock, MetricPoint
from chainapi.simulator import Fault, Simulator
from chainapi.testing import VirtualLoop
from chainapi.transport import Request, Response
from tests.cli.terminal import (
    ADDRESSES,
    BLOCKS,
    INTERRUPTIBLE,
    Broken,
    Fixed,
    Outcome,
    Stream,
    chainapi,
    finish,
    plain,
    start,
)
from tests.cli.terminal import environment as environment
from tests.documents import Maker

# tps


def test_tps_prints_lines_of_json_to_a_pipe() -> None:
    """`tps` prints a JSON line per point, newest first, up to --limit for each chain."""
    outcome = chainapi("tps", "43114", "--limit", "2", "53935")  # options may stand between values
    assert (outcome.code, outcome.err) == (0, "")
    assert [row["chain"] for row in outcome.rows] == [43114, 43114, 53935, 53935]
    assert set(outcome.rows[0]) == {"chain", "timestamp", "time", "value"}
    assert outcome.rows[0]["timestamp"] == 1_767_225_600
    assert [row["time"][:10] for row in outcome.rows[:2]] == ["2026-01-01", "2025-12-31"]


def test_tps_takes_thirty_points_or_all() -> None:
    """`tps` prints 30 points per chain by default, and all of them with --all."""
    assert len(chainapi("tps", "43114").rows) == 30
    transport = Simulator(points=250).transport()
    assert len(chainapi("tps", "43114", "--all", "--limit", "3", transport=transport).rows) == 250


def test_tps_requests_a_chain_once() -> None:
    """A chain that is named twice is printed once."""
    assert len(chainapi("tps", "43114", "43114", "--limit", "2").rows) == 2


def test_tps_prints_a_table_to_a_terminal() -> None:
    """A terminal gets the chains side by side: a row per day, a chart above."""
    outcome = chainapi("tps", "43114", "53935", "--limit", "3", tty=True)
    values = [row["value"] for row in chainapi("tps", "43114", "53935", "--limit", "3").rows]
    text = plain(outcome.out)
    assert outcome.code == 0
    assert text[0].split() == ["time", "43114", "53935"]
    days = ["2026-01-01", "2025-12-31", "2025-12-30"]
    assert [line.split() for line in text[1:]] == [
        [day, f"{values[index]:.2f}", f"{values[index + 3]:.2f}"] for index, day in enumerate(days)
    ]


def test_tps_prints_json_to_a_terminal_on_request() -> None:
    """--json gives the same lines on a terminal as through a pipe."""
    assert chainapi("tps", "43114", "--json", tty=True).rows == chainapi("tps", "43114").rows


@pytest.mark.parametrize("option", [("--top", "3"), ("--log",), ("--title", "TPS")])
def test_tps_refuses_options_of_a_chart_without_one(option: tuple[str, ...]) -> None:
    """An option of a chart without --plot or --png is an error of usage, before any request."""
    simulator = Simulator()
    outcome = chainapi("tps", "43114", *option, transport=simulator.transport())
    assert (outcome.code, outcome.out, simulator.stats.requests) == (2, "", 0)
    assert "add --plot or --png" in outcome.err
    assert chainapi("tps", "43114", *option, "--plot", "--limit", "5").code == 0


def test_tps_sets_the_chains_that_do_not_fit_below(monkeypatch: pytest.MonkeyPatch) -> None:
    """A narrow terminal gets several tables instead of squeezed columns."""
    monkeypatch.setenv("COLUMNS", "50")
    text = plain(chainapi("tps", "43114", "53935", "432204", "--limit", "1", tty=True).out)
    assert [line.split()[1:] for line in text if line.startswith("time")] == [["43114", "53935"], ["432204"]]
    assert max(map(len, text)) <= 50


def series_printed(width: int, chains: list[str]) -> str:
    """Return the table of the chains with a value of 12 characters at a time of day."""
    out = io.StringIO()
    point = MetricPoint(1_767_229_261, 1_234_567.89)
    print_series(Console(file=out, width=width), {chain: [point] for chain in chains})
    assert max(map(len, out.getvalue().splitlines())) <= width
    return out.getvalue()


@pytest.mark.parametrize("width", [200, 100, 80, 60, 40])
def test_series_side_by_side_have_their_whole_values(width: int) -> None:
    """As many series stand side by side as fit beside the times of day, each value in one piece."""
    text = series_printed(width, ["43110", "43111", "43112", "43113", "43114"])
    assert text.count("1,234,567.89") == 5


@pytest.mark.parametrize("width", [30, 26, 20, 14, 8])
def test_narrow_terminal_loses_no_digit(width: int) -> None:
    """A terminal that is too narrow for a value shows all its digits, in several lines."""
    shown, whole = (Counter("".join(series_printed(most, ["43114"]).split())) for most in (width, 100))
    assert shown == whole


@pytest.mark.parametrize("command", ["--help", "tps 43114 --limit 1", "tps 43114 --plot"])
def test_columns_of_zero_are_an_unknown_width(monkeypatch: pytest.MonkeyPatch, command: str) -> None:
    """COLUMNS=0, as some programs set it where they know no width, gives the output of 80 columns."""
    monkeypatch.setenv("COLUMNS", "80")
    usual = chainapi(*command.split(), tty=True)
    monkeypatch.setenv("COLUMNS", "0")
    assert chainapi(*command.split(), tty=True) == usual
    assert usual.code == 0


@pytest.mark.parametrize("tty", [False, True])
def test_tps_prints_the_chains_that_exist_beside_one_that_does_not(tty: bool) -> None:
    """`tps` prints one error line for a chain that fails, and the other chains.

    The exit code is 1.
    """
    outcome = chainapi("tps", "1", "43114", "--limit", "2", tty=tty)
    assert outcome.code == FAILED
    errors = [line for line in plain(outcome.err) if line.startswith("chainapi:")]
    assert errors == ["chainapi: 404 Not Found for GET /v1/avg_tps/1: chain 1 does not exist"]
    assert "43114" in outcome.out


def test_tps_keeps_the_points_that_came_before_an_error() -> None:
    """A table shows what was fetched before the limit stopped the walk."""
    transport = Simulator(metrics_limit=1).transport()
    outcome = chainapi("tps", "43114", "--all", "--max-wait", "0", transport=transport, tty=True)
    assert outcome.code == FAILED
    assert len(plain(outcome.out)) >= 100
    assert "--max-wait 0" in outcome.err


def test_tps_ends_at_its_deadline() -> None:
    """--deadline ends `tps` on a page that never arrives, and reports the times."""
    transport = Simulator(faults=[Fault(at=2, every=1, stall=True)]).transport()
    outcome = chainapi("tps", "43114", "--all", "--deadline", "7.5", transport=transport, tty=True)
    assert outcome.code == FAILED
    assert len(plain(outcome.out)) >= 100
    assert "no answer within --deadline 7.5 s" in outcome.err
    assert "7.5 s in 1 attempt," in outcome.err


def test_tps_prints_a_timestamp_that_is_no_date() -> None:
    """A time outside of the calendar is null in JSON and the bare number in a table."""
    body = {"results": [{"timestamp": 10**15, "value": 1.5}], "status": 200, "lastRun": 0}
    assert chainapi("tps", "x", transport=Fixed(200, body)).rows == [
        {"chain": "x", "timestamp": 10**15, "time": None, "value": 1.5}
    ]
    text = plain(chainapi("tps", "x", transport=Fixed(200, body), tty=True).out)
    assert text[-1].split() == [str(10**15), "1.50"]


# list


def test_list_prints_each_row_as_a_line_of_json() -> None:
    """Rows printed are those of a session, through any number of pages."""
    rows = chainapi("list", BLOCKS, "--page-size", "7", "--limit", "20").rows
    assert rows == chainapi("list", BLOCKS, "--page-size", "100", "--limit", "20").rows
    assert [row["chainId"] for row in rows] == ["43114"] * 20
    assert len({row["blockHash"] for row in rows}) == 20


@pytest.mark.parametrize("digits", ["0.1234567890123456789", "12345678901234567890.5", "1E+400"])
def test_list_rounds_no_number(digits: str) -> None:
    """A row is printed with the digits that were sent, and in ASCII."""
    transport = Answer(f'{{"rows":[{{"n":{digits},"text":"\u00e9\U0001f600"}}]}}')
    outcome = chainapi("list", "/v1/rows", "--json", transport=transport, tty=True)
    assert outcome.out == f'{{"n": {digits}, "text": "\\u00e9\\ud83d\\ude00"}}\n'
    assert digits in chainapi("list", "/v1/rows", transport=transport, tty=True).out
    row = chainapi(
        "list", "data.evm.transfers", "43114", "0x1", transport=Answer(f'{{"transfers":[{{"n":{digits}}}]}}')
    )
    assert row.out == f'{{"n": {digits}}}\n'


class Answer(Fixed):
    """A transport that always answers with this text."""

    def __init__(self, body: str) -> None:
        self._response = Response(200, {"content-type": "application/json"}, body.encode())


def test_list_reaches_both_services() -> None:
    """--api metrics lists routes of the Metrics API; --items names the field."""
    rows = chainapi("list", "/v1/avg_tps/43114", "--api", "metrics", "--items", "results", "--all").rows
    assert len(rows) == 1_000
    assert set(rows[0]) == {"timestamp", "value"}
    assert len(chainapi("list", "/v1/chains").rows) == 6


def test_list_sends_parameters() -> None:
    """--param adds a query parameter, and a repeated one becomes a list."""
    asked: list[str] = []

    class Recorder(Fixed):
        async def send(self, request: Request) -> Response:
            asked.append(request.url)
            return await super().send(request)

    transport = Recorder(200, {"rows": []})
    outcome = chainapi(
        "list", "/v1/x", "--param", "a=1", "--param", "b=x=y", "--param", "a=2", transport=transport
    )
    assert (outcome.code, outcome.out) == (0, "")
    assert asked == ["https://simulator.invalid/data/v1/x?a=1%2C2&b=x%3Dy"]


def test_list_prints_a_table_that_fits_the_terminal() -> None:
    """`list` prints a table of the first simple fields, and names the omitted ones."""
    outcome = chainapi("list", BLOCKS, "--limit", "120", "--page-size", "100", tty=True)
    text = plain(outcome.out)
    assert outcome.code == 0
    assert text[0].split()[:3] == ["chainId", "blockNumber", "blockTimestamp"]
    assert sum(line.startswith("43114 ") for line in text) == 120
    assert text[-1].startswith("more fields, with --json: ")
    assert max(map(len, text[:-1])) <= 100
    assert "…" in text[1], "a hash is cut"


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
    assert plain(out.getvalue()) == expected


def test_list_that_fails_prints_how_to_continue() -> None:
    """The command that standard error names prints exactly the rows that are missing."""
    command = ["list", BLOCKS, "--page-size", "10", "--limit", "65", "--param", "q=a  b"]
    first = chainapi(*command, "--max-wait", "0", transport=(simulator := Simulator(limit=3)).transport())
    assert (first.code, len(first.rows)) == (FAILED, 30)
    *_, error, advice = first.err.splitlines()
    assert "--max-wait 0" in error
    message, _, again = advice.partition(" so far; to continue: ")
    assert message == "chainapi: 30 rows"
    program, *words = shlex.split(again)
    assert program == "chainapi"
    assert words[words.index("--limit") + 1] == "35"
    words[words.index("--max-wait") + 1] = "3600"
    second = chainapi(*words, transport=simulator.transport(), at=100.0)
    assert second.code == 0
    whole = chainapi(*command, transport=Simulator().transport()).rows
    assert first.rows + second.rows == whole


def test_list_continues_with_values_that_begin_with_a_dash() -> None:
    """The command that continues a list can be run: a value with a dash in front is no option."""
    command = ["list", BLOCKS, "--page-size", "10", "--limit", "65", "--param=-q=1", "--max-wait", "0"]
    first = chainapi(*command, transport=(simulator := Simulator(limit=3)).transport())
    program, *words = shlex.split(first.err.partition("to continue: ")[2])
    assert (first.code, program) == (FAILED, "chainapi")
    second = chainapi(*words, transport=simulator.transport(), at=100.0)
    assert (second.code, len(second.rows)) == (FAILED, 30)


def test_list_of_all_rows_goes_on_with_all_rows() -> None:
    """The advice keeps the flags, and leaves out what was not given."""
    transport = Simulator(limit=1).transport()
    command = [
        "list",
        BLOCKS,
        "--all",
        "--json",
        "--max-wait",
        "0",
        "--data-base-url",
        "https://simulator.invalid/data",
    ]
    outcome = chainapi(*command, transport=transport, tty=True)
    words = shlex.split(plain(outcome.err)[-1])
    assert {"--all", "--json", "--max-wait", "--data-base-url"} <= set(words)
    assert not {"--limit", "--items", "--timeout"} & set(words)


def test_list_table_is_complete_before_the_error() -> None:
    """Rows buffered for the table are printed when the walk fails."""
    transport = Simulator(limit=1).transport()
    outcome = chainapi("list", BLOCKS, "--all", "--max-wait", "0", transport=transport, tty=True)
    assert outcome.code == FAILED
    assert sum(line.startswith("43114 ") for line in plain(outcome.out)) == 10


def test_list_refuses_what_is_no_checkpoint() -> None:
    """A text that cannot be read as a checkpoint is wrong usage, reported in one line."""
    outcome = chainapi("list", BLOCKS, "--resume", "{}")
    assert (outcome.code, outcome.out) == (WRONG_USAGE, "")
    assert outcome.err == "chainapi: --resume: this is no checkpoint of chainapi\n"


@pytest.mark.parametrize("route", [["/v1/chains/53935/blocks"], ["data.evm.blocks", "53935"]])
def test_list_refuses_a_checkpoint_of_another_query(route: list[str]) -> None:
    """`list` refuses the checkpoint of another query in one line with its path.

    It sends no request.
    """
    checkpoint = Checkpoint("0" * 32, BLOCKS).dumps()
    outcome = chainapi("list", *route, "--resume", checkpoint, transport=Fixed(500, {}))
    assert (outcome.code, outcome.out) == (FAILED, "")
    assert outcome.err.startswith(f"chainapi: the checkpoint belongs to another query ({BLOCKS})")


# Progress and waits


def test_waits_are_reported_on_standard_error() -> None:
    """Waits of a second or more are one line on standard error, apart from the data."""
    transport = Simulator(limit=3, window=20.0).transport()
    outcome = chainapi("list", BLOCKS, "--limit", "50", transport=transport)
    assert (outcome.code, len(outcome.rows)) == (0, 50)
    assert outcome.err.splitlines()
    assert all(
        line.startswith("chainapi: data: rate limit reached, next request in ")
        for line in outcome.err.splitlines()
    )


def test_waits_are_drawn_and_taken_back_on_a_terminal() -> None:
    """Progress on a terminal has pages, rows, requests and the seconds left.

    In the end only the table stays.
    """
    transport = Simulator(limit=3, window=20.0).transport()
    outcome = chainapi("list", BLOCKS, "--limit", "50", transport=transport, tty=True)
    assert re.search(
        r"3 pages · 30 rows · 4 requests · data: rate limit, next request in \d+\.\d s", outcome.out
    )
    assert len(plain(outcome.out)) == 52
    assert outcome.err == ""


def test_waits_are_drawn_beside_data_that_goes_to_a_file(tmp_path: Path) -> None:
    """Progress appears on standard error if data goes to a file (``> rows.jsonl``)."""
    err = Stream(terminal=True)
    session = partial(Session, transport=Simulator(limit=3, window=20.0).transport())
    with (tmp_path / "rows.jsonl").open("w+") as out:
        code = run(
            ["list", BLOCKS, "--limit", "50"], terminal=Terminal(out, err, session), loop_factory=VirtualLoop
        )
        out.seek(0)
        rows = [json.loads(line) for line in out]
    assert (code, len(rows)) == (0, 50)
    assert "data: rate limit, next request in " in err.getvalue()
    assert plain(err.getvalue()) == []


def test_progress_counts_the_events_of_a_session() -> None:
    """Progress sums pages, rows, requests and refusals from the session's events.

    The waited time is that from an answer to the next request.
    """
    now = 100.0
    progress = Progress(lambda: now)
    for event in (
        RequestSent("data", "GET /a", 1),
        RequestSent("data", "GET /b", 1),
        ResponseReceived("data", "GET /a", 200, 0.1),
        PageReceived("data", "GET /a", 1, 25),
        ResponseReceived("data", "GET /b", 429, 0.1),
        WaitBegan("data", "429", 5.0),
    ):
        progress(event)
    quota = {"metrics": QuotaSnapshot(now), "data": QuotaSnapshot(now, stopped_until=now + 5.0, waiting=1)}
    assert progress.line(quota) == "1 page · 25 rows · 2 requests · data: rate limit, next request in 5.0 s"
    now = 105.0
    progress(WaitEnded("data", "429", 5.0))
    progress(RequestSent("data", "GET /b", 2))
    now = 106.0
    progress(ResponseReceived("data", "GET /b", None, 1.0, fault="reset"))
    data, metrics = progress.services["data"], progress.services["metrics"]
    assert (data.requests, data.refused, data.waited) == (3, 1, 5.0)
    assert (metrics.requests, metrics.refused, metrics.waited) == (0, 0, 0.0)


@pytest.mark.parametrize(
    ("window", "seconds", "said"),
    [
        (60.0, 20.0, "rate limit, next request in 20.0 s"),
        (86_400.0, 3_600.0, "daily quota, back at {:%H:%M}"),
        (3_600.0, 90_000.0, "hourly quota, back at {:%Y-%m-%d %H:%M}"),
        (None, 90_000.0, "quota, back at {:%Y-%m-%d %H:%M}"),
        (7.0, 90_000.0, "quota of 7 s, back at {:%Y-%m-%d %H:%M}"),
    ],
)
def test_long_waits_are_shown_as_a_time_of_day(window: float | None, seconds: float, said: str) -> None:
    """A wait of a minute or more is shown with its policy and its end."""
    noon = datetime(2026, 3, 4, 12, 0, tzinfo=UTC).astimezone().replace(hour=12)
    known = QuotaSnapshot(
        time=50.0, window=window, stopped_until=50.0 + seconds, unix_time=noon.timestamp(), waiting=1
    )
    assert waits(known) == said.format(noon + timedelta(seconds=seconds))


@pytest.mark.parametrize(
    ("quota", "seconds"),
    [
        (QuotaSnapshot(10.0), 0.0),
        (QuotaSnapshot(10.0, stopped_until=12.0, in_flight=1), 2.0),
        (QuotaSnapshot(10.0, reset_at=13.0), 0.0),
        (QuotaSnapshot(10.0, reset_at=13.0, waiting=2), 3.0),
        (QuotaSnapshot(10.0, reset_at=13.0, waiting=2, in_flight=1), 0.0),
        (QuotaSnapshot(10.0, waiting=2), 0.0),
    ],
)
def test_pause_is_shown_when_requests_wait(quota: QuotaSnapshot, seconds: float) -> None:
    """Pauses exist after a refusal, and while requests wait and none is in flight."""
    assert pause(quota) == seconds


@pytest.mark.parametrize("values", [[1.7e308, -1.7e308], [1e308, 1e308], [5e-324, 0.0], [1e17] * 2])
@pytest.mark.parametrize("options", [(), ("--json",), ("--plot",)])
def test_tps_prints_every_number(values: list[float], options: tuple[str, ...], capfd: Any) -> None:
    """`tps` prints the largest and smallest floats as table, lines and chart."""
    body = {"results": [{"timestamp": 86_400 * n, "value": value} for n, value in enumerate(values, 1)]}
    outcome = chainapi("tps", "43114", *options, transport=Fixed(200, body), tty=True)
    assert (outcome.code, outcome.err) == (0, "")
    assert max(map(len, plain(outcome.out))) <= 100
    assert capfd.readouterr() == ("", "")


# What a service sends, on the terminal

HOSTILE = st.text(
    st.sampled_from("a[]/\\:=\x1b\x07\x9b\x7f\x00\r\n\u202e\u2066\u200bé語") | st.characters(codec="utf-8")
) | st.sampled_from(["[/x]", "[link=http://e]", ":smile:", "\x1b]0;title\x07", "\x1b[2J", "\x9b31m"])


@settings(max_examples=40)
@given(
    st.lists(st.dictionaries(HOSTILE, HOSTILE | st.lists(HOSTILE, max_size=1), max_size=4), max_size=3),
    st.booleans(),
)
def test_list_lets_nothing_of_a_service_steer_the_terminal(rows: list[dict[str, Any]], table: bool) -> None:
    """`list` prints hostile field names and values as plain text, never as escapes.

    This holds in tables and in lines of JSON.
    """
    with pytest.MonkeyPatch.context() as environment:
        for name, value in {**ADDRESSES, "COLUMNS": "100", "TERM": "dumb"}.items():
            environment.setenv(name, value)
        outcome = chainapi(
            "list", "/v1/x", "--items", "rows", transport=Fixed(200, {"rows": rows}), tty=table
        )
    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.out.replace("\n", "").isprintable()
    if not table:
        assert outcome.rows == rows


@pytest.mark.untraced
@settings(max_examples=40)
@given(HOSTILE, HOSTILE)
def test_errors_let_nothing_of_a_service_steer_the_terminal(name: str, value: str) -> None:
    """An error that names fields of a service, or quotes it, is one printable line."""
    with pytest.MonkeyPatch.context() as environment:
        for variable, setting in {**ADDRESSES, "TERM": "dumb"}.items():
            environment.setenv(variable, setting)
        for status, body in ((200, {name: value}), (200, [value]), (418, {"message": value, "error": name})):
            outcome = chainapi("list", "/v1/x", transport=Fixed(status, body))
            (line,) = outcome.err.removesuffix("\n").split("\n")
            assert outcome.code == FAILED
            assert line.isprintable()


@given(st.lists(st.text(st.characters(codec=None, exclude_characters="\0")), min_size=1))
def test_printed_commands_are_printable(words: list[str]) -> None:
    """A command that continues a walk is printable with any content."""
    assert shell_words(words).isprintable()


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
def test_printed_commands_can_be_run() -> None:
    """A shell parses the printed command into the original words."""
    words = [
        "plain",
        "a b",
        "",
        "it's",
        "\x1b]0;t\x07",
        "\n\u202e'\\",
        "\x9b\x7f",
        "🎉\U000e0041",
        "\udcff$x",
    ]
    script = f"printf '%s\\0' {shell_words(words)}"
    done = subprocess.run(["bash", "-c", script], capture_output=True, check=True, env={"LC_ALL": "C.UTF-8"})
    assert [os.fsdecode(word) for word in done.stdout.split(b"\0")[:-1]] == words


def test_completions_are_printable() -> None:
    """Completions of route names and values contain no control characters."""
    offered = route_names(cast("Any", None))
    assert offered
    values = {value for route in ROUTES.values() for one in route.parameters for value in one.choices}
    assert all(text.isprintable() for text in {*offered, *offered.values(), *values})


# Errors and endings


@pytest.mark.parametrize(
    ("tokens", "message"),
    [
        (["tps"], "CHAINS"),
        (["tps", "1", "--limit", "0"], "--limit"),
        (["tps", "1", "--limit", "many"], "--limit"),
        (["tps", "1", "--nope"], "--nope"),
        (["tps", "1", "--api-key", "x"], "--api-key"),
        (["tps", "a/b"], "chain_id"),
        (["tps", "1", "--timeout", "0"], "--timeout"),
        (["tps", "1", "--max-wait", "-1"], "--max-wait"),
        (["tps", "1", "--metrics-base-url", ""], "--metrics-base-url is empty"),
        (["list", "/v1/chains", "--api", "other"], "--api"),
        (["list", "v1/chains"], "path"),
        (["list", "/v1/chains", "--page-size", "0"], "--page-size"),
        (["list", "/v1/chains", "--param", "a"], "NAME=VALUE"),
        (["list", "/v1/chains", "--param", "=a"], "NAME=VALUE"),
        (["list", "/v1/chains", "--param", "self=a"], "self"),
        (["list", "/v1/chains", "--param", "pageToken=a"], "pageToken"),
        (["simulate", "--port", "70000"], "--port"),
        (["simulate", "--window", "0"], "--window"),
        (["routes", "--limit=3"], "option: --limit=3."),
        (["plot", "a.csv", "b.csv"], "'b.csv' is one value too many"),
        (["dance"], "dance"),
    ],
)
def test_wrong_usage_is_one_line_and_exit_code_2(tokens: list[str], message: str) -> None:
    """An invalid argument is named on standard error, and nothing is printed."""
    outcome = chainapi(*tokens)
    assert (outcome.code, outcome.out) == (WRONG_USAGE, "")
    (line,) = outcome.err.splitlines()
    assert line.startswith("chainapi: ")
    assert message in line


@pytest.mark.parametrize(
    ("tokens", "variable", "message"),
    [
        (
            ["tps", "1", "2"],
            "CHAINAPI_METRICS_BASE_URL",
            "the address of the Metrics API is not set: give --metrics-base-url or set the variable ",
        ),
        (
            ["list", "/v1/chains"],
            "CHAINAPI_DATA_BASE_URL",
            "the address of the Data API is not set: give --data-base-url or set the variable ",
        ),
        (["list", "/v1/chains"], "CHAINAPI_API_KEY", "the key of the Data API is not set: set the variable "),
    ],
)
def test_missing_variable_is_named(
    monkeypatch: pytest.MonkeyPatch, tokens: list[str], variable: str, message: str
) -> None:
    """A missing setting is one error line: option, variable, and the public services for an address."""
    monkeypatch.delenv(variable)
    outcome = chainapi(*tokens)
    assert outcome.code == WRONG_USAGE
    hint = "; CHAINAPI_PROVIDER=public has the addresses of the public services" * ("address" in message)
    assert outcome.err == f"chainapi: {message}{variable}{hint}\n"


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (ConfigurationError("data_base_url is empty"), "--data-base-url is empty"),
        (ConfigurationError("api_key_header is no valid"), "--api-key-header is no valid"),
        (ConfigurationError("max_wait='x' must be"), "--max-wait 'x' must be"),
        (ConfigurationError("lake/format=csv/ is no file"), "lake/format=csv/ is no file"),
        (QuotaWaitError(1.0, retry_after=9.0, max_wait=5.0), "in 9.0 s, later than --max-wait 5 s allows"),
        (DecodeError("name one with items= (a, b)"), "$: name one with --items (a, b)"),
        (APIStatusError(400, "no", ("deadline=5 is wrong",)), "400 no: deadline=5 is wrong"),
        (FileNotFoundError(2, "No such file", "a.csv"), "a.csv cannot be opened: No such file"),
    ],
)
def test_errors_name_options_and_not_arguments(error: Exception, message: str) -> None:
    """Error messages name options instead of arguments.

    The service's own words stay as they are.
    """
    assert worded(error).endswith(message)


def test_error_of_a_service_stays_one_line() -> None:
    """Error messages of a service lose line ends and control characters."""
    error = {"message": ["first\nsecond\x1b[2J"], "error": "Bad Request", "statusCode": 400}
    outcome = chainapi("list", "/v1/chains", transport=Fixed(400, error))
    assert outcome.code == FAILED
    (line,) = outcome.err.splitlines()
    assert line.isprintable()


def test_complaint_is_one_printable_line() -> None:
    """Messages of any content are printed on one line."""
    err = io.StringIO()
    Terminal(io.StringIO(), err).report("first\n second\x1b[2J")
    assert err.getvalue() == "chainapi: first second\\x1b[2J\n"


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (BrokenPipeError(32, "Broken pipe"), PIPE_CLOSED, ""),
        (OSError(28, "No space left on device"), FAILED, "chainapi: [Errno 28] No space left on device\n"),
    ],
)
@pytest.mark.parametrize("tokens", [["tps", "43114", "53935"], ["list", BLOCKS], ["--help"], ["demo"]])
def test_output_that_cannot_be_written_ends_the_command(
    error: OSError, code: int, message: str, tokens: list[str]
) -> None:
    """A closed pipe ends the command silently, a full disk with one line."""
    err = io.StringIO()
    session = partial(Session, transport=Simulator().transport())
    terminal = Terminal(Broken(error), err, session)
    assert run(tokens, terminal=terminal, loop_factory=VirtualLoop) == code
    assert err.getvalue() == message


def test_broken_standard_error_changes_nothing() -> None:
    """An error that cannot be written still has its exit code."""
    terminal = Terminal(io.StringIO(), Broken(BrokenPipeError()), Session)
    assert run(["dance"], terminal=terminal) == WRONG_USAGE


def test_version_and_help() -> None:
    """--version prints the version alone.

    --help lists every command and the variable of the key.
    """
    assert chainapi("--version") == Outcome(0, __version__ + "\n", "")
    text = chainapi("--help").out
    assert all(word in text for word in ("tps", "list", "simulate", "demo", "CHAINAPI_API_KEY"))
    assert chainapi().out == text


# The process


@contextmanager
def simulated(*options: str) -> Iterator[dict[str, str]]:
    """Run ``chainapi simulate`` on a free port and give the variables that it prints."""
    process = start(*INTERRUPTIBLE, "simulate", "--port", "0", *options)
    try:
        assert process.stdout is not None
        printed = len(ADDRESSES) + ("--api-key-header" in options)
        lines = [process.stdout.readline() for _ in range(printed)]
        yield dict(shlex.split(line)[0].split("=", 1) for line in lines)
    finally:
        process.send_signal(signal.SIGINT)
        outcome = finish(process)
    assert outcome == Outcome(INTERRUPTED, "", "")


@pytest.mark.real_time
def test_simulate_serves_the_other_commands() -> None:
    """Variables printed by `simulate` lead ``tps`` to it; Ctrl-C ends it silently."""
    with simulated("--seed", "1") as variables:
        assert list(variables) == list(ADDRESSES)
        assert all(variables[name].startswith("http://127.0.0.1:") for name in list(ADDRESSES)[:2])
        outcome = finish(start("-m", "chainapi", "tps", "43114", "--limit", "3", **variables))
    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.rows == chainapi("tps", "43114", "--limit", "3").rows


@pytest.mark.real_time
def test_simulate_counts_compute_units() -> None:
    """--weighted counts compute units: a request for blocks costs ten of them."""
    with simulated("--limit", "25", "--window", "30", "--weighted") as variables:
        outcome = finish(
            start("-m", "chainapi", "list", BLOCKS, "--all", "--max-wait", "0", **variables),
        )
    assert (outcome.code, len(outcome.rows)) == (FAILED, 20)


@pytest.mark.real_time
def test_simulate_on_a_port_that_is_taken_is_one_line() -> None:
    """A port in use is an ordinary error."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        err = io.StringIO()
        port = str(taken.getsockname()[1])
        assert run(["simulate", "--port", port], terminal=Terminal(io.StringIO(), err)) == FAILED
    (line,) = err.getvalue().splitlines()
    assert line.startswith("chainapi: ")
    assert port in line


EARLY = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
from chainapi.__main__ import main
class Interrupting:
    def __set_name__(self, owner, name):
        signal.raise_signal(signal.SIGINT)
class Herald:
    loads = {0}
    def find_spec(self, name, path=None, target=None):
        self.loads -= 1
        if not self.loads:
            print("now", flush=True)
            {1}
sys.meta_path.insert(0, Herald())
sys.argv = ["chainapi", "simulate"]
sys.exit(main())
"""


@pytest.mark.parametrize(
    "interrupt", ["signal.raise_signal(signal.SIGINT)", "type('Made', (), {'name': Interrupting()})"]
)
@pytest.mark.parametrize("loads", [1, 30, 300])
def test_interrupt_while_modules_load_is_silent(loads: int, interrupt: str) -> None:
    """Ctrl-C while modules load exits with 130, even amid another exception."""
    outcome = finish(start("-c", EARLY.format(loads, interrupt)))
    assert outcome == Outcome(INTERRUPTED, "now\n", "")


@pytest.mark.real_time
@pytest.mark.parametrize("loads", [1, 150])
def test_interrupt_from_outside_while_modules_load_is_silent(loads: int) -> None:
    """SIGINT at any moment of the start exits with 130 and prints no traceback."""
    process = start("-c", EARLY.format(loads, "pass"))
    assert process.stdout is not None
    assert process.stdout.readline() == "now\n"
    process.send_signal(signal.SIGINT)
    outcome = finish(process)
    assert (outcome.code, outcome.err) == (INTERRUPTED, "")


@pytest.mark.parametrize("handler", [signal.default_int_handler, signal.SIG_IGN])
def test_main_leaves_the_handler_of_interrupts(monkeypatch: pytest.MonkeyPatch, handler: Any) -> None:
    """The handler of SIGINT is restored; an ignored signal stays ignored."""
    before = signal.signal(signal.SIGINT, handler)
    try:
        monkeypatch.setattr(sys, "argv", ["chainapi", "--version"])
        assert main() == 0
        assert signal.getsignal(signal.SIGINT) == handler
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.mark.real_time
def test_interrupt_during_a_wait_ends_with_advice() -> None:
    """Ctrl-C in a wait for quota exits with 130 and prints the command that continues."""
    with simulated("--limit", "2", "--window", "30") as variables:
        process = start(*INTERRUPTIBLE, "list", BLOCKS, "--limit", "50", **variables)
        assert process.stderr is not None
        message = process.stderr.readline()
        process.send_signal(signal.SIGINT)
        outcome = finish(process)
    assert re.fullmatch(r"chainapi: data: rate limit reached, next request in \d+ s\n", message)
    assert (outcome.code, len(outcome.rows)) == (INTERRUPTED, 20)
    (advice,) = outcome.err.splitlines()
    assert advice.startswith("chainapi: 20 rows so far; to continue: chainapi list " + BLOCKS)


@pytest.mark.real_time
def test_second_interrupt_ends_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second Ctrl-C does not wait for the end of the command, and shows the cursor again."""
    ended = list[int]()
    monkeypatch.setattr(os, "_exit", ended.append)

    class Interrupted(Fixed):
        async def send(self, request: Request) -> Response:
            for _ in range(2):
                os.kill(os.getpid(), signal.SIGINT)
            return await super().send(request)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    master, slave = os.openpty()
    try:
        with os.fdopen(slave, "w") as err:
            terminal = Terminal(io.StringIO(), err, partial(Session, transport=Interrupted(500, {})))
            code = run(["list", BLOCKS], terminal=terminal, loop_factory=VirtualLoop)
            assert os.read(master, 100) == b"\x1b[?25h"
    finally:
        os.close(master)
        assert signal.signal(signal.SIGINT, before) is signal.default_int_handler
    assert (code, ended) == (INTERRUPTED, [INTERRUPTED])


def test_interrupt_of_several_walks_is_silent() -> None:
    """Ctrl-C while several chains wait ends with 130 and no traceback."""
    with simulated("--metrics-limit", "1", "--metrics-window", "600") as variables:
        process = start(*INTERRUPTIBLE, "tps", "43114", "53935", "--all", **variables)
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(signal.SIGINT)
        outcome = finish(process)
    assert outcome.code == INTERRUPTED
    assert all(line.startswith("chainapi: metrics: rate limit reached") for line in outcome.err.splitlines())


@pytest.mark.real_time
@pytest.mark.parametrize("command", [["tps", "43114", "53935", "--all"], ["list", BLOCKS, "--all"]])
def test_closed_pipe_ends_the_command_in_silence(command: list[str]) -> None:
    """A reader that closes early, as ``head``, gets no traceback and no report."""
    with simulated("--points", "3000", "--rows", "3000") as variables:
        process = start("-m", "chainapi", *command, **variables)
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())
        process.stdout.close()
        assert process.stderr is not None
        assert process.stderr.read() == ""
        assert process.wait(timeout=60) == PIPE_CLOSED
        process.stderr.close()


@pytest.mark.real_time
def test_demo_runs_to_its_end() -> None:
    """The demo prints rows, meets a 429, sends nothing in the wait, and exits."""
    outcome = finish(start("-m", "chainapi", "demo"))
    assert (outcome.code, outcome.err) == (0, "")
    assert "\x1b" not in outcome.out
    check_demo(outcome.out.splitlines())


@pytest.mark.real_time
def test_demo_draws_on_a_terminal() -> None:
    """The demo draws each walk, the requests by service and the seconds of a wait."""
    out = Stream(terminal=True)
    # The waits are jumped over: the sockets are in this process and never keep the loop waiting.
    assert run(["demo"], terminal=Terminal(out, Stream(terminal=True)), loop_factory=VirtualLoop) == 0
    assert re.search(r"no requests for \d\.\d s", out.getvalue())
    lines = plain(out.getvalue())
    assert [line.split() for line in lines if line.endswith("✓")] == [
        ["GET", path.format(chain), "10", "1,000", "✓"]
        for path in ("/v1/avg_tps/{}", "/v1/chains/{}/blocks")
        for chain in (43114, 53935, 432204)
    ]
    check_demo(lines)


def test_demo_leaves_the_plot_to_terminals_that_can_draw_it() -> None:
    """The demo omits the plot on terminals without its characters, and nothing else."""
    out = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    assert run(["demo"], terminal=Terminal(out, io.StringIO()), loop_factory=VirtualLoop) == 0
    out.seek(0)
    check_demo(out.read().splitlines(), plot=False)


def check_demo(lines: list[str], *, plot: bool = True) -> None:
    """Check the summary of the demonstration."""
    day = next(line for line in lines if line.startswith("2026-01-01 "))
    assert all(float(value) > 0 for value in day.split()[1:])
    assert any("┤" in line for line in lines) == plot
    summary = {line[:20].strip(): line[20:] for line in lines[-7:]}
    assert list(summary) == [
        "rows",
        "pages",
        "requests",
        "429s",
        "time waited",
        "sent during a wait",
        "time taken",
    ]
    assert (summary["rows"], summary["pages"]) == ("6,000", "60")
    assert int(summary["429s"]) >= 1
    assert int(summary["requests"]) == 60 + int(summary["429s"])
    assert re.fullmatch(r"metrics [1-9]\d*\.\d s, data [1-9]\d*\.\d s", summary["time waited"])
    assert summary["sent during a wait"].split()[0] == "0"
    assert 1.0 < float(summary["time taken"].removesuffix(" s")) < 40.0


BLOCKER = """
import sys
class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name == {0!r}:
            raise ModuleNotFoundError("no " + name, name=name)
sys.meta_path.insert(0, Blocker())
from chainapi.__main__ import main
sys.exit(main())
"""


@pytest.mark.parametrize(
    ("module", "command"), [("cyclopts", "--help"), ("rich", "--help"), ("plotext", "demo")]
)
def test_missing_extra_is_one_line(module: str, command: str) -> None:
    """A missing extra is one error line with the package to install."""
    outcome = finish(start("-c", BLOCKER.format(module), command))
    assert (outcome.code, outcome.out) == (WRONG_USAGE, "")
    assert outcome.err == f"chainapi: {module} is not installed: pip install 'chainapi[cli]'\n"


@pytest.mark.parametrize("module", ["chainapi.cli.terminal", "chainapi.cli.demo"])
def test_broken_installation_is_not_taken_for_a_missing_extra(module: str) -> None:
    """A missing module of chainapi itself is an error of its own."""
    outcome = finish(start("-c", BLOCKER.format(module), "demo"))
    assert outcome.code == 1
    assert "Traceback" in outcome.err
    assert module in outcome.err


def test_package_imports_nothing_of_the_command_line() -> None:
    """`Session` imports no command line, plot, terminal, server or simulator."""
    outcome = finish(start("-c", "import sys; from chainapi import Session; print(*sys.modules)"))
    loaded = set(outcome.out.split())
    assert "chainapi.session" in loaded
    unwanted = {"aiohttp.web", "chainapi.cli", "chainapi.simulator", "cyclopts", "plotext", "rich"}
    assert not loaded & unwanted


def test_main_reads_the_arguments(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The console script takes its arguments and streams from the process."""
    monkeypatch.setattr(sys, "argv", ["chainapi", "--version"])
    assert main() == 0
    assert capsys.readouterr().out == __version__ + "\n"


def test_main_drops_what_a_closed_pipe_does_not_take(monkeypatch: pytest.MonkeyPatch) -> None:
    """`main` empties the buffer that the interpreter could not write at exit."""
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as out:
        monkeypatch.setattr(sys, "stdout", out)
        monkeypatch.setattr(sys, "argv", ["chainapi", "--help"])
        assert main() == PIPE_CLOSED
        out.flush()


def test_main_takes_closed_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process without standard output and error works and returns its exit code."""
    monkeypatch.setattr(sys, "stdout", None)
    monkeypatch.setattr(sys, "stderr", None)
    for argument, code in (("--version", 0), ("dance", WRONG_USAGE)):
        monkeypatch.setattr(sys, "argv", ["chainapi", argument])
        assert main() == code


@pytest.mark.parametrize(
    ("encoding", "shown"),
    [("ascii", r"Z\xfcrich \u20bf"), ("latin-1", r"Zürich \u20bf"), ("utf-8", "Zürich ₿")],
)
def test_main_escapes_what_its_terminal_cannot_show(
    encoding: str, shown: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A terminal of any encoding shows progress and a table, other characters as escapes; JSON is exact."""

    class Screen(io.TextIOWrapper):
        def isatty(self) -> bool:
            return True

    def printed(*options: str) -> str:
        out = Screen(io.BytesIO(), encoding=encoding)
        monkeypatch.setattr(sys, "stdout", out)
        monkeypatch.setattr(sys, "stderr", Stream(terminal=True))
        session = partial(Session, transport=Fixed(200, {"rows": [row]}))
        terminal = evolve(standard(), session=session)
        assert run(["list", "/v1/rows", *options], terminal=terminal, loop_factory=VirtualLoop) == 0
        return cast("io.BytesIO", out.buffer).getvalue().decode(encoding)

    row = {"city": "Zürich ₿", "long": "x" * 50}
    assert plain(printed())[1].startswith(shown)
    assert json.loads(printed("--json")) == row


def test_interrupt_outside_of_the_loop_has_its_exit_code() -> None:
    """Ctrl-C during the help exits with 130."""

    class Interrupted(io.StringIO):
        def write(self, text: str) -> int:
            raise KeyboardInterrupt

    assert run(["--help"], terminal=Terminal(Interrupted(), io.StringIO())) == INTERRUPTED


def invalid_page() -> Fixed:
    """Return a service with one page, in which two rows cannot be read."""
    digits = "9" * 5_000
    return Answer(f'{{"rows":[{{"n":1}},{{"n":"\\ud800"}},{{"n":2}},{{"n":{digits}}}]}}')


def test_list_prints_invalid_rows_as_they_came() -> None:
    """--on-invalid raw prints invalid rows among the others and counts them."""
    outcome = chainapi("list", "/v1/rows", "--on-invalid", "raw", transport=invalid_page())
    assert outcome.code == 0
    assert outcome.rows == [{"n": 1}, {"n": "\ud800"}, {"n": 2}, f'{{"n":{"9" * 5_000}}}']
    assert outcome.err.startswith("chainapi: 2 invalid rows printed as received; the first: $.rows[1]")
    assert outcome.err.count("\n") == 1


def test_list_reports_how_an_invalid_row_can_be_printed() -> None:
    """The error names the option, and the command that continues has it."""
    blocks = {"blocks": [Maker(seed=1, whole=True).record(EvmBlock) for _ in range(3)]}
    blocks["blocks"][1]["gasUsed"] = ""
    first = chainapi("list", "data.evm.blocks", "43114", transport=Fixed(200, blocks))
    assert first.code == 1
    assert "; --on-invalid raw prints such a row as received\n" in first.err
    assert "resume=" not in first.err
    assert " --on-invalid raw " in first.err.splitlines()[1]
    whole = chainapi("list", "data.evm.blocks", "43114", "--on-invalid", "raw", transport=Fixed(200, blocks))
    assert [row.get("gasUsed") for row in whole.rows] == [None, "", None]
    assert "1 invalid row printed as received" in whole.err
    assert chainapi("list", "data.health_check", "--on-invalid", "raw").code == 2
    table = chainapi(
        "list", "data.evm.blocks", "43114", "--on-invalid", "raw", transport=Fixed(200, blocks), tty=True
    )
    assert table.code == 0


def test_tps_names_no_argument_of_python() -> None:
    """A wrong point ends the walk of its chain, without advice for Python."""
    outcome = chainapi("tps", "7", transport=Fixed(200, {"results": [{"timestamp": 1}]}))
    assert outcome.code == 1
    assert outcome.err == "chainapi: $.results[0].value: missing in the response to GET /v1/avg_tps/7\n"

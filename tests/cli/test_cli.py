"""Command line: ``tps``, ``list`` by a path, standard output and error, failures."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chainapi import Checkpoint, __version__
from chainapi.models import EvmBlock
from chainapi.simulator import Fault, Simulator
from tests.cli.terminal import (
    ADDRESSES,
    BLOCKS,
    FAILED,
    PIPE_CLOSED,
    WRONG_USAGE,
    Broken,
    Fixed,
    Outcome,
    Stream,
    chainapi,
    plain,
)
from tests.cli.terminal import environment as environment
from tests.documents import Maker

# tps


def test_tps_prints_lines_of_json_to_a_pipe() -> None:
    """`tps` prints a JSON line per point, newest first, up to --limit for each chain, and a chain once."""
    outcome = chainapi("tps", "43114", "--limit", "2", "53935", "43114")  # options may stand between values
    assert (outcome.code, outcome.err) == (0, "")
    assert [row["chain"] for row in outcome.rows] == [43114, 43114, 53935, 53935]
    assert set(outcome.rows[0]) == {"chain", "timestamp", "time", "value"}
    assert outcome.rows[0]["timestamp"] == 1_767_225_600
    assert [row["time"][:10] for row in outcome.rows[:2]] == ["2026-01-01", "2025-12-31"]
    assert chainapi("tps", "43114", "53935", "--limit", "2", "--json", tty=True).rows == outcome.rows


def test_tps_takes_thirty_points_or_all() -> None:
    """`tps` prints 30 points per chain by default, and all of them with --all."""
    assert len(chainapi("tps", "43114").rows) == 30
    transport = Simulator(points=250).transport()
    assert len(chainapi("tps", "43114", "--all", "--limit", "3", transport=transport).rows) == 250


def test_tps_prints_a_table_to_a_terminal() -> None:
    """A terminal gets a row for each point, with the digits and the names of the lines of JSON."""
    command = ("tps", "43114", "53935", "--limit", "3")
    rows = chainapi(*command).rows
    outcome = chainapi(*command, tty=True)
    assert outcome.code == 0
    assert [line.split() for line in plain(outcome.out)] == [
        ["chain", "timestamp", "time", "value"],
        *([str(value) for value in row.values()] for row in rows),
    ]


@pytest.mark.parametrize("option", [("--top", "3"), ("--log",), ("--title", "TPS")])
def test_tps_refuses_options_of_a_chart_without_one(option: tuple[str, ...]) -> None:
    """An option of a chart without --plot or --png is an error of usage, before any request."""
    simulator = Simulator()
    outcome = chainapi("tps", "43114", *option, transport=simulator.transport())
    assert (outcome.code, outcome.out, simulator.stats.requests) == (WRONG_USAGE, "", 0)
    assert "add --plot or --png" in outcome.err
    assert chainapi("tps", "43114", *option, "--plot", "--limit", "5").code == 0


def test_colors_are_left_out_on_request(monkeypatch: pytest.MonkeyPatch) -> None:
    """Colors are left out if the output is no terminal, or if NO_COLOR is set."""
    color = re.compile(r"\x1b\[(?:\d+;)*(?:3[0-7]|38|9[0-7])")
    for command in (["--help"], ["tps", "43114", "--plot"]):
        assert color.search(chainapi(*command, tty=True).out)
        assert "\x1b" not in chainapi(*command).out
        with monkeypatch.context() as patch:
            patch.setenv("NO_COLOR", "1")
            assert color.search(chainapi(*command, tty=True).out) is None


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
    """`tps` prints one error line for a chain that fails, and the other chains; the exit code is 1."""
    outcome = chainapi("tps", "1", "43114", "--limit", "2", tty=tty)
    assert outcome.code == FAILED
    errors = [line for line in plain(outcome.err) if line.startswith("chainapi:")]
    assert errors == ["chainapi: 404 Not Found for GET /v1/avg_tps/1: chain 1 does not exist"]
    assert "43114" in outcome.out


def test_a_failed_command_shows_what_came_before_the_error() -> None:
    """A table shows what was fetched before a limit or a deadline stopped the walk, and the error why."""
    limited = Simulator(metrics_limit=1).transport()
    outcome = chainapi("tps", "43114", "--all", "--max-wait", "0", transport=limited, tty=True)
    assert (outcome.code, len(plain(outcome.out)) >= 100) == (FAILED, True)
    assert "--max-wait 0" in outcome.err
    stalled = Simulator(faults=[Fault(at=2, every=1, stall=True)]).transport()
    outcome = chainapi("tps", "43114", "--all", "--deadline", "7.5", transport=stalled, tty=True)
    assert (outcome.code, len(plain(outcome.out)) >= 100) == (FAILED, True)
    assert "no answer within --deadline 7.5 s" in outcome.err
    assert "7.5 s in 1 attempt," in outcome.err
    limited = Simulator(limit=1).transport()
    outcome = chainapi("list", BLOCKS, "--all", "--max-wait", "0", transport=limited, tty=True)
    assert outcome.code == FAILED
    assert sum(line.startswith("43114 ") for line in plain(outcome.out)) == 10


def test_tps_prints_a_timestamp_that_is_no_date() -> None:
    """A time outside of the calendar is null in JSON and empty in a table."""
    body = {"results": [{"timestamp": 10**15, "value": 1.5}], "status": 200, "lastRun": 0}
    assert chainapi("tps", "x", transport=Fixed(200, body)).rows == [
        {"chain": "x", "timestamp": 10**15, "time": None, "value": 1.5}
    ]
    text = plain(chainapi("tps", "x", transport=Fixed(200, body), tty=True).out)
    assert text[-1].split() == ["x", str(10**15), "1.5"]


@pytest.mark.parametrize("values", [[1.7e308, -1.7e308], [1e308, 1e308], [5e-324, 0.0], [1e17] * 2])
def test_tps_prints_every_number(values: list[float], capfd: Any) -> None:
    """`tps` prints the largest and smallest floats as table, lines and chart."""
    body = {"results": [{"timestamp": 86_400 * n, "value": value} for n, value in enumerate(values, 1)]}
    for options in ((), ("--json",), ("--plot",)):
        outcome = chainapi("tps", "43114", *options, transport=Fixed(200, body), tty=True)
        assert (outcome.code, outcome.err) == (0, ""), options
        assert max(map(len, plain(outcome.out))) <= 100, options
    assert capfd.readouterr() == ("", "")


# list


def test_list_prints_each_row_as_a_line_of_json() -> None:
    """Rows printed are those of a session, through any number of pages; other services have an option."""
    rows = chainapi("list", BLOCKS, "--page-size", "7", "--limit", "20").rows
    assert rows == chainapi("list", BLOCKS, "--page-size", "100", "--limit", "20").rows
    assert [row["chainId"] for row in rows] == ["43114"] * 20
    assert len({row["blockHash"] for row in rows}) == 20
    rows = chainapi("list", "/v1/avg_tps/43114", "--api", "metrics", "--items", "results", "--all").rows
    assert (len(rows), set(rows[0])) == (1_000, {"timestamp", "value"})
    assert len(chainapi("list", "/v1/chains").rows) == 6


@pytest.mark.parametrize("digits", ["0.1234567890123456789", "12345678901234567890.5", "1E+400"])
def test_list_rounds_no_number(digits: str) -> None:
    """A row is printed with the digits that were sent, and in ASCII."""
    transport = Fixed(200, f'{{"rows":[{{"n":{digits},"text":"\u00e9\U0001f600"}}]}}')
    outcome = chainapi("list", "/v1/rows", "--json", transport=transport, tty=True)
    assert outcome.out == f'{{"n": {digits}, "text": "\\u00e9\\ud83d\\ude00"}}\n'
    assert digits in chainapi("list", "/v1/rows", transport=transport, tty=True).out
    typed = Fixed(200, f'{{"transfers":[{{"n":{digits}}}]}}')
    row = chainapi("list", "data.evm.transfers", "43114", "0x1", transport=typed)
    assert row.out == f'{{"n": {digits}}}\n'


def test_list_sends_parameters() -> None:
    """--param adds a query parameter, and a repeated one becomes a list."""
    transport = Fixed(200, {"rows": []})
    params = ("--param", "a=1", "--param", "b=x=y", "--param", "a=2")
    outcome = chainapi("list", "/v1/x", *params, transport=transport)
    assert (outcome.code, outcome.out) == (0, "")
    assert transport.asked == ["data/v1/x?a=1%2C2&b=x%3Dy"]


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


@pytest.mark.parametrize("route", [(BLOCKS,), ("data.evm.blocks", "43114")])
def test_list_prints_chosen_fields(route: tuple[str, ...]) -> None:
    """--fields chooses the fields and their order, in lines and in a table, also where the list continues."""
    names = ["blockNumber", "chainId"] if len(route) == 1 else ["block_number", "chain_id"]
    command = ("list", *route, "--limit", "12", "--page-size", "10", "--fields", ", ".join(names))
    outcome = chainapi(*command)
    assert (outcome.code, [[*row] for row in outcome.rows]) == (0, [names] * 12)
    assert outcome.rows[0][names[0]] is not None
    text = plain(chainapi(*command, tty=True).out)
    assert [text[0].split(), len(text)] == [names, 13]
    limited = Simulator(limit=1).transport()
    assert "--fields" in chainapi(*command, "--max-wait", "0", transport=limited).err


def test_fields_that_no_row_has_take_no_column() -> None:
    """A table has no empty columns; a field that later rows have is named at the end."""
    rows = [{"id": "7", "note": None, "text": ""}] * 60 + [{"id": "8", "note": None, "text": "late"}]
    text = plain(chainapi("list", "/v1/rows", "--all", transport=Fixed(200, {"rows": rows}), tty=True).out)
    assert [text[0], text[1], text[-1]] == ["id", "7", "more fields, with --json: text"]


@pytest.mark.parametrize(
    "written",
    [
        f"list {BLOCKS} --page-size 10 --limit 65 '--param=q=a  b'",
        f"list {BLOCKS} --page-size 10 --limit 65 --param=-q=1",
        "list data.evm.blocks 43114 --param page_size=10 --limit 65",
    ],
)
def test_list_that_fails_prints_how_to_continue(written: str) -> None:
    """The command that standard error names prints exactly the missing rows, however often it fails."""
    simulator, command, rows = Simulator(limit=3), shlex.split(written), list[Any]()
    words = [*command, "--max-wait", "0"]
    for at, left in ((0.0, "35"), (100.0, "5")):
        outcome = chainapi(*words, transport=simulator.transport(), at=at)
        assert (outcome.code, len(outcome.rows)) == (FAILED, 30)
        rows += outcome.rows
        *_, error, advice = outcome.err.splitlines()
        assert "--max-wait 0" in error
        message, _, again = advice.partition(" so far; to continue: ")
        assert message == f"chainapi: {len(rows)} rows"
        program, *words = shlex.split(again)
        assert (program, words[:2]) == ("chainapi", command[:2])
        assert words[words.index("--limit") + 1] == left
    last = chainapi(*words, transport=simulator.transport(), at=200.0)
    assert last.code == 0
    assert rows + last.rows == chainapi(*command, transport=Simulator().transport()).rows


def test_list_of_all_rows_goes_on_with_all_rows() -> None:
    """The advice keeps the flags, and leaves out what was not given."""
    transport = Simulator(limit=1).transport()
    address = ("--data-base-url", ADDRESSES["CHAINAPI_DATA_BASE_URL"])
    options = ("--all", "--json", "--max-wait", "0", *address)
    outcome = chainapi("list", BLOCKS, *options, transport=transport, tty=True)
    words = shlex.split(plain(outcome.err)[-1])
    assert {"--all", "--json", "--max-wait", "--data-base-url"} <= set(words)
    assert not {"--limit", "--items", "--timeout"} & set(words)


@pytest.mark.parametrize("route", [["/v1/chains/53935/blocks"], ["data.evm.blocks", "53935"]])
def test_list_refuses_a_checkpoint_of_another_query(route: list[str]) -> None:
    """`list` refuses the checkpoint of another query in one line with its path, and sends no request."""
    checkpoint = Checkpoint("0" * 32, BLOCKS).dumps()
    transport = Fixed(500, {})
    outcome = chainapi("list", *route, "--resume", checkpoint, transport=transport)
    assert (outcome.code, outcome.out, transport.asked) == (FAILED, "", [])
    assert outcome.err.startswith(f"chainapi: the checkpoint belongs to another query ({BLOCKS})")


def test_list_prints_invalid_rows_as_they_came() -> None:
    """--on-invalid raw prints invalid rows among the others and counts them."""
    digits = "9" * 5_000
    page = Fixed(200, f'{{"rows":[{{"n":1}},{{"n":"\\ud800"}},{{"n":2}},{{"n":{digits}}}]}}')
    outcome = chainapi("list", "/v1/rows", "--on-invalid", "raw", transport=page)
    assert outcome.code == 0
    assert outcome.rows == [{"n": 1}, {"n": "\ud800"}, {"n": 2}, f'{{"n":{digits}}}']
    assert outcome.err.startswith("chainapi: 2 invalid rows printed as received; the first: $.rows[1]")
    assert outcome.err.count("\n") == 1


def test_list_reports_how_an_invalid_row_can_be_printed() -> None:
    """The error names the option, and the command that continues has it."""
    blocks = {"blocks": [Maker(seed=1, whole=True).record(EvmBlock) for _ in range(3)]}
    blocks["blocks"][1]["gasUsed"] = ""
    page, command = Fixed(200, blocks), ("list", "data.evm.blocks", "43114")
    first = chainapi(*command, transport=page)
    assert first.code == FAILED
    assert "; --on-invalid raw prints such a row as received\n" in first.err
    assert "resume=" not in first.err
    assert " --on-invalid raw " in first.err.splitlines()[1]
    whole = chainapi(*command, "--on-invalid", "raw", transport=page)
    assert [row.get("gasUsed") for row in whole.rows] == [None, "", None]
    assert "1 invalid row printed as received" in whole.err
    assert chainapi(*command, "--on-invalid", "raw", transport=page, tty=True).code == 0
    assert chainapi("list", "data.health_check", "--on-invalid", "raw").code == WRONG_USAGE


# Progress and waits


def test_waits_are_reported_on_standard_error() -> None:
    """Waits of a second or more are one line on standard error, apart from the data."""
    transport = Simulator(limit=3, window=20.0).transport()
    outcome = chainapi("list", BLOCKS, "--limit", "50", transport=transport)
    assert (outcome.code, len(outcome.rows)) == (0, 50)
    lines = outcome.err.splitlines()
    assert lines
    said = "chainapi: data: rate limit reached, next request in "
    assert all(line.startswith(said) for line in lines)


def test_waits_are_drawn_and_taken_back_on_a_terminal(tmp_path: Path) -> None:
    """Progress on a terminal has pages, rows, requests and the seconds left, until only the rows stay.

    It is drawn on standard error if the data goes to a file (``> rows.jsonl``).
    """
    command = ("list", BLOCKS, "--limit", "50")
    outcome = chainapi(*command, transport=Simulator(limit=3, window=20.0).transport(), tty=True)
    said = r"3 pages · 30 rows · 4 requests\n.*data: 0 of 3 left, next request in \d+ s, at \d\d:"
    assert re.search(said, outcome.out)
    assert (len(plain(outcome.out)), outcome.err) == (52, "")
    with (tmp_path / "rows.jsonl").open("w+") as out:
        transport = Simulator(limit=3, window=20.0).transport()
        outcome = chainapi(*command, transport=transport, out=out, err=Stream(terminal=True))
        out.seek(0)
        rows = [json.loads(line) for line in out]
    assert (outcome.code, len(rows)) == (0, 50)
    assert "data: 0 of 3 left, next request in " in outcome.err
    assert plain(outcome.err) == []


# What a service sends, on the terminal

HOSTILE = st.text(
    st.sampled_from("a[]/\\:=\x1b\x07\x9b\x7f\x00\r\n\u202e\u2066\u200bé語") | st.characters(codec="utf-8")
) | st.sampled_from(["[/x]", "[link=http://e]", ":smile:", "\x1b]0;title\x07", "\x1b[2J", "\x9b31m"])


@settings(max_examples=15)
@given(
    st.lists(st.dictionaries(HOSTILE, HOSTILE | st.lists(HOSTILE, max_size=1), max_size=4), max_size=3),
    st.booleans(),
)
def test_list_lets_nothing_of_a_service_steer_the_terminal(rows: list[dict[str, Any]], table: bool) -> None:
    """`list` prints hostile names and values as plain text, never as escapes, in tables and in JSON."""
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("TERM", "dumb")
        command = ("list", "/v1/x", "--items", "rows", "--data-base-url", "https://x.invalid")
        outcome = chainapi(*command, transport=Fixed(200, {"rows": rows}), tty=table)
    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.out.replace("\n", "").isprintable()
    if not table:
        assert outcome.rows == rows


@settings(max_examples=8)
@given(HOSTILE, HOSTILE)
def test_errors_let_nothing_of_a_service_steer_the_terminal(name: str, value: str) -> None:
    """An error that names fields of a service, or quotes it, is one printable line."""
    for status, body in ((200, {name: value}), (200, [value]), (418, {"message": value, "error": name})):
        outcome = chainapi("list", "/v1/x", transport=Fixed(status, body))
        (line,) = outcome.err.removesuffix("\n").split("\n")
        assert outcome.code == FAILED
        assert line.isprintable()


# Errors and endings


@pytest.mark.parametrize(
    ("tokens", "variable", "message"),
    [
        (
            ["tps", "1", "2"],
            "CHAINAPI_METRICS_BASE_URL",
            "the address of the Metrics API is not set: give --metrics-base-url or set the variable ",
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


def test_error_of_a_service_stays_one_line() -> None:
    """Error messages of a service lose line ends and control characters."""
    error = {"message": ["first\nsecond\x1b[2J"], "error": "Bad Request", "statusCode": 400}
    outcome = chainapi("list", "/v1/chains", transport=Fixed(400, error))
    assert outcome.code == FAILED
    (line,) = outcome.err.splitlines()
    assert line.isprintable()


def test_tps_names_no_argument_of_python() -> None:
    """A wrong point ends the walk of its chain, without advice for Python."""
    outcome = chainapi("tps", "7", transport=Fixed(200, {"results": [{"timestamp": 1}]}))
    assert outcome.code == FAILED
    assert outcome.err == "chainapi: $.results[0].value: missing in the response to GET /v1/avg_tps/7\n"


@pytest.mark.parametrize("tokens", [["tps", "43114", "53935"], ["list", BLOCKS], ["--help"]])
def test_output_that_cannot_be_written_ends_the_command(tokens: list[str]) -> None:
    """A closed pipe ends the command silently, a full disk with one line."""
    closed = chainapi(*tokens, out=Broken(BrokenPipeError(32, "Broken pipe")))
    assert (closed.code, closed.err) == (PIPE_CLOSED, "")
    full = chainapi(*tokens, out=Broken(OSError(28, "No space left on device")))
    assert (full.code, full.err) == (FAILED, "chainapi: [Errno 28] No space left on device\n")


def test_broken_standard_error_changes_nothing() -> None:
    """An error that cannot be written still has its exit code."""
    assert chainapi("dance", err=Broken(BrokenPipeError())).code == WRONG_USAGE


def test_version_and_help() -> None:
    """--version prints the version alone; --help lists every command and the variable of the key."""
    assert chainapi("--version") == Outcome(0, __version__ + "\n", "")
    text = chainapi("--help").out
    assert all(word in text for word in ("tps", "list", "simulate", "demo", "CHAINAPI_API_KEY"))
    assert all(word in text for word in ("Print the rows of a list", "Export many lists", "Merge the small"))
    assert chainapi().out == text

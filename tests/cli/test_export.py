"""``chainapi export``: rows, progress on the terminal, end and continuation."""

from __future__ import annotations

import csv
import io
import json
import re
import shlex
import signal
import sys
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb
import pyarrow.parquet as pq
import pytest

from chainapi.models import EvmBlock
from chainapi.simulator import Fault, Simulator
from tests.cli.terminal import (
    BLOCKS,
    FAILED,
    INTERRUPTED,
    INTERRUPTIBLE,
    PARTLY,
    TERMINATED,
    WRONG_USAGE,
    Fixed,
    Outcome,
    chainapi,
    finish,
    plain,
    start,
)
from tests.cli.terminal import environment as environment
from tests.documents import Maker
from tests.ledger import ADDRESS, Ledger
from tests.served import served

ROUTE = "data.evm.blocks"
METRIC = "metrics.networks.metric"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def exported(*tokens: str, simulator: Simulator | None = None, tty: bool = False) -> Outcome:
    """Run ``chainapi export``, by default on a simulator with 30 rows in each list."""
    simulator = simulator or Simulator(seed=1, rows=30)
    return chainapi("export", *tokens, transport=simulator.transport(), tty=tty)


def rows_in(path: str, form: str = "") -> list[dict[str, Any]]:
    """Return the rows of a file, whose suffix is its format unless that is given."""
    match form or path.rpartition(".")[2]:
        case "parquet":
            return [*pq.read_table(path).to_pylist()]
        case "csv":
            return [*csv.DictReader(Path(path).read_text("utf-8").splitlines())]
        case "duckdb":
            with duckdb.connect(path, read_only=True) as database:
                found = database.execute("select * from rows")
                names = [column[0] for column in found.description or ()]
                return [dict(zip(names, row, strict=True)) for row in found.fetchall()]
    return [json.loads(line) for line in Path(path).read_text("utf-8").splitlines()]


def sources_in(path: str) -> Counter[str]:
    """Count the rows of each source in a file."""
    return Counter(row["source"] for row in rows_in(path))


# What is fetched


def test_the_values_of_a_named_route_are_its_sources() -> None:
    """Values of a named route are sources, and each has the rows of one list.

    The command prints nothing but a line on standard error.
    """
    outcome = exported(ROUTE, "43114", "53935", "--out", "blocks.jsonl")
    assert outcome == Outcome(0, "", "chainapi: 60 new rows of 2 sources fetched, blocks.jsonl written\n")
    rows = rows_in("blocks.jsonl")
    assert [row["source"] for row in rows] == ["43114"] * 30 + ["53935"] * 30
    listed = chainapi("list", ROUTE, "53935", "--all", transport=Simulator(seed=1, rows=30).transport()).rows
    numbers = [row["block_number"] for row in listed]
    assert [row["block_number"] for row in rows[30:]] == [int(number) for number in numbers]


def test_paths_are_sources() -> None:
    """Paths are sources: their rows are unchanged, with the path as the source."""
    other = BLOCKS.replace("43114", "53935")
    outcome = exported(BLOCKS, other, "--page-size", "7", "--limit", "9", "--out", "blocks.jsonl")
    assert outcome.code == 0
    assert sources_in("blocks.jsonl") == {BLOCKS: 9, other: 9}
    assert {row["chainId"] for row in rows_in("blocks.jsonl")} == {"43114", "53935"}


def test_a_path_of_the_other_service() -> None:
    """--api selects the service of a path, --items its list field, --param its query."""
    outcome = exported(
        "/v2/chains/43114/metrics/gasUsed",
        *("--api", "metrics", "--items", "results", "--out", "gas.jsonl", "--limit", "5"),
        *("--param", "timeInterval=day", "--param", "startTimestamp=1700000000"),
    )
    assert (outcome.code, len(rows_in("gas.jsonl"))) == (0, 5)


@pytest.mark.parametrize("name", ["chains.txt", "-"])
def test_sources_from_a_file(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """--from reads one source from each line of a file or of standard input, beside the command line.

    It skips empty lines, comments, and a byte order mark.
    """
    text = "\ufeff# chains\n\n43114\r\n  \n  # the other\n 53935  \n53935"
    (folder / "chains.txt").write_text(text, "utf-8")
    monkeypatch.setattr(sys, "stdin", io.StringIO(text))
    outcome = exported(ROUTE, "432204", "--from", name, "--out", "blocks.jsonl", "--limit", "2")
    assert outcome.err == "chainapi: 6 new rows of 3 sources fetched, blocks.jsonl written\n"
    assert sources_in("blocks.jsonl") == {"43114": 2, "53935": 2, "432204": 2}


def test_a_wrong_source_in_a_file_sends_nothing(folder: Path) -> None:
    """A line that is no source is refused before the first request."""
    (folder / "paths.txt").write_text(f"{BLOCKS}\n/v1/chains/a b/blocks\n")
    simulator = Simulator(seed=1)
    outcome = exported(BLOCKS, "--from", "paths.txt", "--out", "blocks.jsonl", simulator=simulator)
    assert (outcome.code, simulator.stats.requests) == (WRONG_USAGE, 0)
    assert "source '/v1/chains/a b/blocks': " in outcome.err


def test_sources_from_a_closed_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    """--from - without standard input is refused in the terms of the command line."""
    monkeypatch.setattr(sys, "stdin", None)
    outcome = exported(ROUTE, "--from", "-", "--out", "blocks.jsonl")
    assert outcome.code == WRONG_USAGE
    assert outcome.err == "chainapi: --from -: standard input is closed; give it a file or a pipe\n"


def test_over_names_another_parameter() -> None:
    """--over selects the parameter of the values, by default the one path parameter that --param leaves."""
    chain = ("--param", "blockchain_id=p-chain")
    mainnet = ("--over", "addresses", "--param", "network=mainnet", *chain)
    outcome = exported("data.primary_network.utxos", "avax1a", "avax1b", *mainnet, "--out", "utxos.parquet")
    assert (outcome.code, sources_in("utxos.parquet")) == (0, {"avax1a": 30, "avax1b": 30})
    outcome = exported("data.primary_network.utxos", "mainnet", "fuji", *chain, "--out", "u.csv")
    assert (outcome.code, sources_in("u.csv")) == (0, {"mainnet": 30, "fuji": 30})


def test_a_list_without_values() -> None:
    """A list without required parameters is exported as one source."""
    simulator = Simulator(seed=1)
    assert exported("data.chains", "--out", "chains.jsonl", simulator=simulator).code == 0
    assert len(rows_in("chains.jsonl")) == len(simulator.chains)


def test_parameters_and_limit_hold_for_each_source() -> None:
    """--param and --page-size apply to each request, --limit to each source."""
    simulator = Simulator(seed=1, points=100)
    outcome = exported(
        *("metrics.chains.metric", "43114", "53935", "--param", "metric=gasUsed", "--out", "gas.jsonl"),
        *("--param", "start_timestamp=2026-01-01", "--page-size", "5", "--limit", "12"),
        simulator=simulator,
    )
    assert outcome.code == 0
    assert sources_in("gas.jsonl") == {"43114": 1, "53935": 1}
    other = ("--page-size", "5", "--limit", "12", "--out", "blocks.jsonl")
    assert exported(ROUTE, "43114", "53935", *other, simulator=simulator).code == 0
    assert sources_in("blocks.jsonl") == {"43114": 12, "53935": 12}
    assert simulator.stats.requests == 2 * 1 + 2 * 3


TRANSFERS = ("data.evm.erc20_transactions", "0x" + "1" * 40, "--param", "chain_id=43114", "--page-size", "5")


@pytest.mark.parametrize("words", [["--ranges", "3"], ["--ranges", "10 blocks"]])
def test_ranges_walk_side_by_side(words: list[str]) -> None:
    """--ranges takes a number of ranges or their width; the rows are those of one walk."""
    simulator = Simulator(seed=1, rows=30)
    assert exported(*TRANSFERS, "--out", "one.jsonl", simulator=simulator).code == 0
    met = simulator.stats.requests
    oldest = min(row["block_number"] for row in rows_in("one.jsonl"))
    more = ("--param", f"start_block={oldest}", "--out", "ranges.jsonl")
    outcome = exported(*TRANSFERS, *more, *words, simulator=simulator)
    assert (outcome.code, outcome.err) == (
        0,
        "chainapi: 30 new rows of 1 source fetched, ranges.jsonl written\n",
    )
    lines = [Path(name).read_bytes().splitlines() for name in ("ranges.jsonl", "one.jsonl")]
    assert sorted(lines[0]) == sorted(lines[1])
    assert simulator.stats.requests - met == 10  # the newest row, and three pages of each range
    simulator.faults = (Fault(at=simulator.stats.requests + 3, status=404),)
    failed = exported(*TRANSFERS, "--out", "t.jsonl", *words, simulator=simulator)
    assert failed.code == FAILED
    assert f"--ranges {shlex.quote(words[1])}" in failed.err


@pytest.mark.parametrize(
    ("out", "option", "written"),
    [
        ("blocks.csv", (), "blocks.csv"),
        ("blocks.parquet", (), "blocks.parquet"),
        ("blocks.duckdb", (), "blocks.duckdb"),
        ("blocks.txt", ("--format", "jsonl"), "blocks.txt"),
        ("blocks", (), "blocks/part-00000001.jsonl"),
        ("deep/down/", ("--format", "parquet"), "deep/down/part-00000001.parquet"),
        ("there.parquet", (), "there.parquet/part-00000001.parquet"),
        ("down.csv.gz/", ("--format", "csv"), "down.csv.gz/part-00000001.csv"),
    ],
)
def test_formats_and_folders(out: str, option: tuple[str, ...], written: str) -> None:
    """The format follows the suffix or --format.

    A name without a suffix, with a final slash, or of a folder that exists, is a folder.
    """
    Path("there.parquet").mkdir()
    outcome = exported(ROUTE, "43114", "--limit", "3", "--out", out, *option)
    assert outcome == Outcome(0, "", f"chainapi: 3 new rows of 1 source fetched, {written} written\n")
    assert len(rows_in(written, option[1] if option else "")) == 3


def test_options_of_files() -> None:
    """--fields are the columns in their order; Parquet files have the given compression and groups."""
    given = (ROUTE, "43114", "--limit", "3")
    assert exported(*given, "--out", "b.csv", "--fields", "tx_count, block_hash").code == 0
    assert [[*row] for row in rows_in("b.csv")] == [["source", "tx_count", "block_hash"]] * 3
    assert exported(*given, "--out", "c.csv", "--escape-formulas").code == 0
    assert "--escape-formulas applies to CSV" in exported(*given, "--out", "c.jsonl", "--escape-formulas").err
    words = "--compression gzip --compression-level 3 --row-group-rows 2"
    assert exported(*given, "--out", "b.parquet", *words.split()).code == 0
    found = pq.ParquetFile("b.parquet").metadata
    assert [found.row_group(number).num_rows for number in range(found.num_row_groups)] == [2, 1]
    assert found.row_group(0).column(0).compression == "GZIP"


def test_keys_divide_the_rows_of_a_folder() -> None:
    """The keys of --partition are the names of folders."""
    outcome = exported(ROUTE, "43114", "--limit", "3", "--out", "b", "--partition", "source, year")
    assert outcome.code == 0
    files = [*Path("b").rglob("*.jsonl")]
    assert f"fetched, {len(files)} files in b written" in outcome.err
    for file in files:
        years = {datetime.fromtimestamp(row["block_timestamp"], UTC).year for row in rows_in(str(file))}
        assert {str(file.parent)} == {f"b/source=43114/year={year}" for year in years}
    assert files


def test_a_second_run_fetches_what_is_new() -> None:
    """A second run of the command adds new rows, or reports that the file has them all."""
    simulator = Simulator(seed=1, rows=30)
    command = (ROUTE, "43114", "53935", "--out", "blocks.parquet")
    assert exported(*command, simulator=simulator).code == 0
    again = exported(*command, simulator=simulator)
    assert again == Outcome(0, "", "chainapi: no new rows: blocks.parquet has the rows of 2 sources\n")
    simulator.insert(BLOCKS, 4)
    third = exported(*command, simulator=simulator)
    assert third == Outcome(0, "", "chainapi: 4 new rows of 2 sources fetched, blocks.parquet written\n")
    assert sources_in("blocks.parquet") == {"43114": 34, "53935": 30}


def test_a_window_is_fetched_again() -> None:
    """--lookback corrects the newest rows, and the last line counts those that left the file."""
    ledger = Ledger([1, 2, 3])
    command = ["data.evm.erc20_transactions", ADDRESS, "--param", "chain_id=43114", "--out", "b.jsonl"]
    assert chainapi("export", *command, transport=ledger).code == 0
    ledger.changed[2] = {"logIndex": 9}
    ledger.numbers.append(4)
    again = chainapi("export", *command, "--lookback", "2 blocks", transport=ledger)
    said = "chainapi: 2 new rows of 1 source fetched, b.jsonl written; 1 row replaced or removed\n"
    assert again == Outcome(0, "", said)
    ledger.gone |= {2, 3}
    gone = chainapi("export", *command, "--lookback", "2 blocks", transport=ledger)
    assert gone.err.endswith(" 0 new rows of 1 source fetched, b.jsonl written; 2 rows replaced or removed\n")


def test_a_deprecated_route_is_reported() -> None:
    """A deprecated route is exported, with one line of warning."""
    outcome = exported("data.teleporter.messages", "--limit", "3", "--out", "messages.csv")
    message, last = outcome.err.splitlines()
    assert outcome.code == 0
    assert message.startswith("chainapi: Teleporter.messages is deprecated")
    assert last == "chainapi: 3 new rows of 1 source fetched, messages.csv written"


# What fails


def test_each_failing_source_is_reported() -> None:
    """Failed sources are one error line each, and the file has the other sources.

    The exit code is 3, as the rows of one source are written.
    """
    command = f"chainapi export {ROUTE} 77 43114 78 --out blocks.jsonl"
    outcome = exported(*command.split()[2:])
    assert (outcome.code, outcome.out) == (PARTLY, "")
    assert outcome.err.splitlines() == [
        "chainapi: 77: 404 Not Found for GET /v1/chains/77/blocks: chain 77 does not exist",
        "chainapi: 78: 404 Not Found for GET /v1/chains/78/blocks: chain 78 does not exist",
        f"chainapi: 30 new rows kept, 2 of 3 sources failed; to continue: {command}",
    ]
    assert sources_in("blocks.jsonl") == {"43114": 30}


UTXOS = "data.primary_network.utxos --over addresses --param network=mainnet --param blockchain_id=p-chain"


@pytest.mark.parametrize(
    ("command", "name", "sources", "kept"),
    [
        (f"{ROUTE} 43114 53935 --concurrency 1 --out 'a b.jsonl'", "a b.jsonl", ["43114", "53935"], 30),
        (f"{UTXOS} --out=-a.jsonl -- -x", "-a.jsonl", ["-x"], 20),
    ],
)
def test_an_error_of_all_sources_prints_how_to_continue(
    command: str, name: str, sources: list[str], kept: int
) -> None:
    """An error in the middle is reported, and the printed command continues, whatever its words are."""
    simulator = Simulator(seed=1, rows=30, faults=(Fault(at=kept // 10 + 1, status=401),))
    outcome = exported("--page-size", "10", *shlex.split(command), simulator=simulator)
    error, advice = outcome.err.splitlines()[-2:]
    assert (outcome.code, error[:15]) == (FAILED, "chainapi: 401 U")
    said, words = advice.split("; to continue: chainapi ")
    assert said == f"chainapi: {kept} new rows kept"
    simulator.faults = ()
    again = chainapi(*shlex.split(words), transport=simulator.transport())
    new = f"{30 * len(sources) - kept} new rows of {len(sources)} source{'s' * (len(sources) > 1)}"
    assert again == Outcome(0, "", f"chainapi: {new} fetched, {name} written\n")
    assert sources_in(name) == dict.fromkeys(sources, 30)


def test_the_way_to_go_on_has_every_option(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command that continues has all options that were given, and no others."""
    monkeypatch.setattr(sys, "stdin", io.StringIO("mainnet\n"))
    given = (
        "data.primary_network.utxos --out utxos --format csv --param blockchain_id=p-chain "
        "--param include_spent=true --page-size 2 --over network --from - "
        "--fields utxo_id,block_timestamp,timestamp --limit 50 --lookback 1d --concurrency 3 --progress none "
        "--max-wait 0.5 --timeout 7.5"
    )
    simulator = Simulator(seed=1, rows=30, limit=2, window=600.0)
    outcome = exported(*given.split(), simulator=simulator)
    assert outcome.code == FAILED
    advice = outcome.err.splitlines()[-1]
    assert advice == (
        "chainapi: 4 new rows kept, 1 of 1 sources failed; to continue with the same standard input: "
        f"chainapi export {given}"
    )


def test_a_target_of_other_rows_is_left_alone(folder: Path) -> None:
    """A file that no export wrote, or that holds another export, is refused with the reason."""
    (folder / "mine.csv").write_text("mine")
    simulator = Simulator(seed=1, rows=30)
    outcome = exported(ROUTE, "43114", "--out", "mine.csv", simulator=simulator)
    assert (outcome.code, outcome.err.count("\n"), simulator.stats.requests) == (FAILED, 1, 0)
    assert "mine.csv exists, and no export wrote it" in outcome.err
    assert (folder / "mine.csv").read_text() == "mine"
    for sizes in ((), ("--page-size", "7")):
        assert exported(ROUTE, "43114", "--out", "b.csv", *sizes, simulator=simulator).code == 0
    outcome = exported(ROUTE, "43114", "--out", "b.csv", "--limit", "7", simulator=simulator)
    assert outcome.code == FAILED
    assert "b.csv holds another export: --limit was left out, is 7" in outcome.err


@pytest.mark.parametrize(
    ("tokens", "said"),
    [
        (["data.evm.erc20_balances", "0xab", "--param", "chain_id=43114"], True),
        ([BLOCKS], True),
        (["data.evm.erc20_balances", "0xab", "--param", "chain_id=43114", "--progress", "none"], False),
        ([ROUTE, "43114"], False),
        (["data.evm.native_transactions", "0xab", "--param", "chain_id=43114"], False),
    ],
)
def test_a_list_that_is_not_updated_is_named_before_and_after(tokens: list[str], said: bool) -> None:
    """The command prints before it begins that later runs add nothing, and counts skipped sources."""
    simulator = Simulator(seed=1, rows=30)
    first, again = (exported(*tokens, "--out", "b.jsonl", simulator=simulator).err for _ in range(2))
    note = "chainapi: the rows of this list do not show which are new: later runs do not fetch it again\n"
    for errors in (first, again):
        assert errors.startswith(note) is said
    closed = said or "--progress" in tokens
    assert "not fetched" not in first
    assert first.endswith("; later runs do not fetch 1 source again\n") is closed
    assert again.endswith("1 source; 1 source not fetched again\n") is closed


def test_plain_lines_every_ten_seconds() -> None:
    """Progress without a terminal is a line every ten seconds with counts and waits."""
    simulator = Simulator(seed=1, rows=60, chains=(1, 2), limit=4, window=15.0, latency=2.0)
    command = ("export", ROUTE, "1", "2", "--page-size", "10", "--out", "b.jsonl")
    noon = datetime(2026, 1, 31, 12, 0, tzinfo=UTC)
    outcome = chainapi(*command, transport=simulator.transport(), now=lambda: noon)
    assert outcome.code == 0
    *lines, last = outcome.err.splitlines()
    assert last == "chainapi: 120 new rows of 2 sources fetched, b.jsonl written"
    assert len(lines) > 2
    shape = re.compile(
        r"chainapi: \d of 2 sources · \d+(?: of about \d+)? rows(?: \(\d+%\))? · \d+ rows/s"
        r"(?: · about \d+ s left)? · \d+ requests · "
        r"data: \d of 4 left(?:, next request in \d+ s, at 12:00:\d\d)?"
    )
    assert [line for line in lines if not shape.fullmatch(line)] == []
    wait = re.compile(r".* next request in (\d+) s, at 12:00:(\d\d)")
    waits = [match for line in lines if (match := wait.fullmatch(line))]
    assert waits
    assert all(int(match[1]) == int(match[2]) for match in waits)


@pytest.mark.parametrize("tty", [True, False])
def test_progress_as_json(tty: bool) -> None:
    """--progress json writes a line of JSON each second, and the result behind them; none the result only."""
    simulator = Simulator(seed=1, rows=60, limit=2, window=30.0)
    outcome = exported(
        *(ROUTE, "43114", "--page-size", "10", "--out", "b/", "--commit-seconds", "40", "--progress", "json"),
        simulator=simulator,
        tty=tty,
    )
    *lines, end = outcome.err.splitlines()
    assert end == "chainapi: 60 new rows of 1 source fetched, 2 files in b written"
    records = [json.loads(line) for line in lines]
    assert 55 <= len(records) <= 65
    assert records[0]["stage"] == "fetching"
    assert {record["seconds_left"] for record in records[:5]} == {None}
    last = records[-1]
    assert (last["stage"], last["sources"], last["done"], last["rows"]) == ("done", 1, 1, 60)
    assert (last["requests"], last["seconds_left"], last["step"]) == (7, 0.0, None)  # one was refused
    assert all(one["incremental"] for one in records)
    outcome = exported(BLOCKS, "--out", "other.jsonl", "--progress", "json")
    assert [json.loads(line)["incremental"] for line in outcome.err.splitlines()[:-1]] == [False]
    silent = exported(ROUTE, "43114", "--out", "b.jsonl", "--progress", "none")
    assert silent.err == "chainapi: 30 new rows of 1 source fetched, b.jsonl written\n"


def test_progress_is_drawn_on_a_terminal() -> None:
    """Progress on a terminal is a bar and two lines, which are erased in the end."""
    simulator = Simulator(seed=1, rows=60, chains=(1, 2), limit=4, window=15.0, latency=0.5)
    command = (ROUTE, "1", "2", "--page-size", "10", "--out", "b.jsonl", "--concurrency", "1")
    outcome = exported(*command, simulator=simulator, tty=True)
    assert outcome.code == 0
    assert plain(outcome.err) == ["chainapi: 120 new rows of 2 sources fetched, b.jsonl written"]
    assert [line for line in plain(outcome.out) if line] == []
    drawn = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", outcome.out)
    for part in (
        "━━━",
        "0 pages · 0 rows · 1 request",
        "1 of 2 sources · ",
        " rows/s · about ",
        " left · ",
        " requests",
    ):
        assert part in drawn
    assert re.search(r"data: 0 of 4 left, next request in \d+ s, at \d\d:\d\d:\d\d", drawn)


@pytest.mark.adapter
@pytest.mark.parametrize(
    ("sent", "code"),
    [
        (signal.SIGTERM, TERMINATED),
        pytest.param(signal.SIGINT, INTERRUPTED, marks=pytest.mark.proof),
    ],
    ids=["SIGTERM", "SIGINT"],
)
def test_a_signal_keeps_the_pages_and_prints_how_to_continue(
    sent: signal.Signals, code: int, folder: Path
) -> None:
    """Ctrl-C and SIGTERM end a waiting export, and the printed command completes it."""
    chains, rows = tuple(range(1, 9)), 50
    (folder / "chains.txt").write_text("\n".join(map(str, chains)))
    given = ["export", ROUTE, "--out", "b.jsonl", "--page-size", "10", "--from", "chains.txt"]
    given += ["--progress", "json"]
    simulator = Simulator(seed=1, chains=chains, rows=rows, limit=20, window=600.0)
    with served(simulator) as variables:
        process = start(*INTERRUPTIBLE, *given, **variables)
        assert process.stderr is not None
        while json.loads(process.stderr.readline())["requests"] < 20:
            pass
        process.send_signal(sent)
        outcome = finish(process)
    assert outcome.code == code
    said = outcome.err.splitlines()[-1]
    end = re.fullmatch(r"chainapi: (\d+) new rows kept; to continue: chainapi (.*)", said)
    assert end is not None
    assert shlex.split(end[2]) == given
    assert sum(sources_in("b.jsonl").values()) == int(end[1])

    whole = Simulator(seed=1, chains=chains, rows=rows)
    again = chainapi(
        *shlex.split(end[2]),
        "--data-base-url",
        variables["CHAINAPI_DATA_BASE_URL"],
        transport=whole.transport(),
    )
    new = len(chains) * rows - int(end[1])
    assert again.err.splitlines()[-1] == f"chainapi: {new} new rows of 8 sources fetched, b.jsonl written"
    numbers = Counter((row["source"], row["block_number"]) for row in rows_in("b.jsonl"))
    assert set(numbers.values()) == {1}
    assert sources_in("b.jsonl") == dict.fromkeys(map(str, chains), rows)


def test_export_puts_invalid_rows_aside(tmp_path: Path) -> None:
    """--on-invalid sets invalid rows aside; without it the error names the option.

    With it the summary counts the rows.
    """
    blocks: dict[str, Any] = {"blocks": [Maker(seed=1, whole=True).record(EvmBlock) for _ in range(3)]}
    blocks["blocks"][1]["gasUsed"] = ""
    out = str(tmp_path / "b.jsonl")
    command = ("export", "data.evm.blocks", "1", "--out", out)
    first = chainapi(*command, transport=Fixed(200, blocks))
    assert first.code == 1
    assert "; --on-invalid raw writes such rows to a file of their own\n" in first.err
    assert "on_invalid=" not in first.err
    second = chainapi(*command, "--on-invalid", "raw", transport=Fixed(200, blocks))
    assert second.code == 0
    message = f"chainapi: 2 new rows of 1 source fetched, {out} written; 1 invalid in {out}.invalid\n"
    assert second.err.endswith(message)


def test_a_url_is_a_folder() -> None:
    """An export to a URL names the URLs of its parts, and continues from anywhere."""
    tokens = (ROUTE, "43114", "--out", "memory://cli/blocks/", "--format", "csv.gz", "--progress", "none")
    outcome = exported(*tokens)
    assert outcome.code == 0
    assert re.search(
        r"30 new rows of 1 source fetched, memory://cli/blocks/part-00000001-\w+\.csv\.gz written",
        outcome.err,
    )
    assert "no new rows: memory://cli/blocks has the rows" in exported(*tokens).err


def test_a_target_is_shown() -> None:
    """--show prints the files of a target with rows and bytes, and the newest number of each source."""
    assert exported(ROUTE, "43114", "53935", "--out", "blocks/", "--progress", "none").code == 0
    shown = chainapi("export", "--show", "blocks/")
    [line] = shown.out.splitlines()
    name, rows, size = line.split("\t")
    assert (name, rows) == ("blocks/part-00000001.jsonl", "60")
    assert int(size) == Path(name).stat().st_size
    newest = max(row["block_timestamp"] for row in rows_in(name) if row["source"] == "43114")
    assert f"chainapi: newest of 43114: {newest}" in shown.err.splitlines()
    other = chainapi("export", "--show", "nothing/")
    assert (other.code, other.out) == (FAILED, "")
    assert "nothing has no export" in other.err


def test_parts_are_merged_by_hand() -> None:
    """`chainapi compact` merges the small parts that runs with --no-compact have left."""
    for limit in range(3):
        chains = [str(one) for one in range(1, limit + 2)]
        simulator = Simulator(seed=1, rows=5, chains=(1, 2, 3))
        assert exported(ROUTE, *chains, "--out", "b/", "--no-compact", simulator=simulator).code == 0
    assert len([*Path("b").glob("part-*")]) == 3
    merged = chainapi("compact", "b/")
    assert (merged.code, merged.err) == (0, "chainapi: 3 parts merged in b/\n")
    [part] = Path("b").glob("part-*")
    assert sources_in(str(part)) == {"1": 5, "2": 5, "3": 5}
    assert chainapi("compact", "b/").err == "chainapi: b/ has no small parts to merge\n"

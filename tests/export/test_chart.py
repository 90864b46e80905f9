"""Charts in a terminal and as pictures, of commands and of files."""

from __future__ import annotations

import json
import re
import sqlite3
import sys
import tracemalloc
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from random import Random
from typing import Any, get_args

import duckdb
import pytest
from attrs import evolve
from fsspec.config import conf  # type: ignore[import-untyped]
from fsspec.implementations.memory import MemoryFileSystem  # type: ignore[import-untyped]
from matplotlib.image import imread

from chainapi.errors import ConfigurationError
from chainapi.export.chart import Chart, chart_of, draw, read_chart, save
from chainapi.models import MetricPoint, enums
from tests.cli.terminal import FAILED, WRONG_USAGE, Outcome, Stream, chainapi, environment

__all__ = ["environment"]  # a fixture

DAY = 86_400
FIRST = 1_700_000_000  # 2023-11-14 22:13:20
FORMATS = ("jsonl", "csv", "parquet", "sqlite", "duckdb", "jsonl.gz", "jsonl.zst", "csv.gz", "csv.zst")


def points(count: int, *, first: int = FIRST) -> list[MetricPoint]:
    """Return daily points, newest first."""
    return [MetricPoint(first + day * DAY, float(day % 7)) for day in reversed(range(count))]


def exported(path: Path, *chains: str, limit: int = 5, options: tuple[str, ...] = ()) -> Path:
    """Export points of simulated chains."""
    command = ("export", "metrics.avg_tps", *chains, "--limit", str(limit), "--out", str(path), *options)
    assert chainapi(*command).code == 0
    return path


def lines(path: Path, *rows: Any) -> Path:
    """Write lines of JSON."""
    path.write_text("".join(json.dumps({"source": "s", **row}) + "\n" for row in rows))
    return path


def check_refused(outcome: Outcome, code: int, message: str) -> None:
    """Check one line of error, without a secret."""
    assert (outcome.code, outcome.out) == (code, "")
    assert message in outcome.err
    assert "hunt3r2" not in outcome.err
    assert outcome.err.count("\n") == 1


# What can be seen


def test_no_peak_is_lost() -> None:
    """Few of many points are kept, whatever their distances: the extremes of each stretch, in order."""
    random, failures = Random(1), []
    for power in (0, 1, 3):
        given = [(float(n**power), random.random()) for n in range(1, 10_001)]
        given[77], given[5_432] = (given[77][0], -5.0), (given[5_432][0], 100.0)
        seen = chart_of({"a": [MetricPoint(int(x), y) for x, y in given]}).series["a"]
        spread = power != 1 or all(sum(x < at <= x + 20 for at, _ in seen) > 1 for x in range(0, 9_980, 10))
        kept = {given[77], given[5_432]} <= {*seen} <= {*given} and len(seen) <= 2_000
        failures += [] if kept and spread and [*seen] == sorted(seen) else [power]
    assert not failures


@pytest.mark.proof
def test_a_large_file_takes_little_memory(tmp_path: Path) -> None:
    """A file with ten times as many rows takes about the same memory."""
    peaks = []
    for rows in (1, 20_000, 200_000):
        path = lines(tmp_path / "f.jsonl", *({"timestamp": n, "value": n % 97} for n in range(rows)))
        tracemalloc.start()
        assert len(read_chart(path).series["s"]) <= 2_000
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[2] < 1.2 * peaks[1]


def test_a_chart_names_its_lines() -> None:
    """A title, whole months, and the name of each line at its end: that of a chain in place of its id."""
    above = [MetricPoint(point.timestamp, point.value + 10) for point in points(90)]
    text = draw(chart_of({"43114": points(90), "mainnet/p-chain": above}, "average TPS"), width=80)
    head, *rows, ticks, axis = text.splitlines()
    assert (len(rows), {*map(len, rows)} <= {*range(61, 81)}, "\x1b" in text) == (17, True, False)
    assert (head.strip(), ticks.split()) == ("average TPS", ["2023-12", "2024-01", "2024-02"])
    assert axis.strip() == "time (UTC)"
    assert re.findall(r"│(\S [^│]+)$", text, re.MULTILINE) == ["+ mainnet/p-chain", "* C-Chain"]
    chart = Chart("x", "y", {f"s{n}": [(0.0, float(n)), (1.0, 5.0)] for n in range(10)})
    for colored, look in ((True, r"(\x1b\[38;5;\d+m)━(s\d)\x1b\[0m$"), (False, r"│(.) (s\d)$")):
        found = re.findall(look, draw(chart, width=90, colored=colored), re.MULTILINE)
        assert [len({*each}) for each in zip(*found, strict=True)] == [10, 10]  # no two look the same


def test_many_series_have_a_row_each() -> None:
    """More than ten series are rows of numbers and a sparkline, the largest first; `top` leaves some out."""
    series = {f"s{n}": [(0.0, n + 1.0), (1.0, n + 1.5), (2.0, n + 1.8)] for n in range(40)}
    chart = Chart("x", "y", series, top=12, title="t")
    for log in (False, True):
        head, names, *rows, ticks, axis = draw(evolve(chart, log=log), width=60).splitlines()
        assert (head, names.split()) == ("t: y, 12 largest of 40", ["lowest", "highest", "last"])
        assert [row.split()[0] for row in rows] == [f"s{size}" for size in range(39, 27, -1)]
        assert rows[0].split()[1:4] == ["40", "40.8", "40.8"]
        assert (rows[0][-1], rows[0].split()[4][0]) == ("█", "▁")
        assert (ticks.split()[0], axis.strip(), max(map(len, (*rows, ticks)))) == ("0", "x", 60)
    for top in (0, 41):
        with pytest.raises(ConfigurationError, match=f"top={top} must be a whole number from 1 to 40"):
            evolve(chart, top=top)


# Axes


def test_times_stand_at_whole_units(tmp_path: Path) -> None:
    """Ticks are whole seconds, minutes, hours, days, Mondays, months or years, as fine as they need to be."""
    expected = {
        40: "22:13:20 22:13:30 22:13:40 22:13:50 22:14:00 time (UTC), from 2023-11-14",
        7_200: "11-14 22:30 11-14 23:00 11-14 23:30 11-15 00:00 time (UTC), from 2023-11-14",
        0: "11-14 00:00 11-14 12:00 11-15 00:00 11-15 12:00 time (UTC), from 2023-11-14",
        9 * DAY: "2023-11-15 2023-11-17 2023-11-19 2023-11-21 2023-11-23 time (UTC)",
        40 * DAY: "2023-11-20 2023-11-27 2023-12-04 2023-12-11 2023-12-18 time (UTC)",
        400 * DAY: "2024-01 2024-04 2024-07 2024-10 time (UTC)",
        4_000 * DAY: "2025 2030 time (UTC)",
    }
    charts = {n: chart_of({"a": [MetricPoint(FIRST, 1.0), MetricPoint(FIRST + n, 2.0)]}) for n in expected}
    ends = {n: draw(chart, width=80).splitlines()[-2:] for n, chart in charts.items()}
    assert {n: " ".join(" ".join(end).split()) for n, end in ends.items()} == expected
    first, now, last = "0001-01-01T00:00:00Z", "2026-11-20T03:15:00Z", "9999-12-31T23:59:59Z"  # the calendar
    for given in ([first], [last], [first, last], [now, last]):
        chart = read_chart(lines(tmp_path / "f.jsonl", *({"end": time, "value": 1} for time in given)))
        assert "end (UTC)" in draw(chart, width=80)
        save(chart, tmp_path / "f.png")
    assert "UTC" not in draw(chart_of({"a": [MetricPoint(10**15, 1.0)]}), width=80)


def test_numbers_stand_at_even_steps() -> None:
    """Numbers have separators and steps of 1, 2 or 5; large and small ones have an exponent."""
    expected = {
        (13_110_000, 13_110_500): "13,110,500 13,110,400 13,110,300 13,110,200 13,110,100 13,110,000",
        (0.9, 1): "1 0.98 0.96 0.94 0.92 0.9",
        (0, 4e18): "4e+18 3e+18 2e+18 1e+18 0",
        (0, 1.2e40): "1.2e+40 1e+40 8e+39 6e+39 4e+39 2e+39 0",
        (-1e-7, 1e-7): "1e-07 5e-08 0 -5e-08 -1e-07",
        (1, 3): "3 2.5 2 1.5 1 0.5 0",  # zero is near
        (1.7e12, 1.7e12 + 400): " ".join(f"1.7000000{n}e+12" for n in ("004", "003", "002", "001"))
        + " 1.7e+12",
    }
    texts = {each: draw(Chart("x", "y", {"": [*enumerate(each)]}), width=60) for each in expected}
    assert {each: " ".join(re.findall(r"(\S+)┤", text)) for each, text in texts.items()} == expected


SIZES = [1e17, 1e-299, 1e-310, 5e-324]


@pytest.mark.parametrize("largest", [1e300, *(pytest.param(one, marks=pytest.mark.proof) for one in SIZES)])
def test_numbers_of_every_size(largest: float, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """The largest and the smallest numbers make charts without warnings, on both axes."""
    for names in (("x", "y"), ("y", "x")):
        rows = [dict(zip(names, (n, sign * largest), strict=True)) for n, sign in enumerate((-1, 0, 1))]
        chart = read_chart(lines(tmp_path / "f.jsonl", *rows), "x", "y")
        assert max(map(len, draw(chart, width=80).splitlines())) <= 80
        save(chart, tmp_path / "f.png")
        save(evolve(chart, log=True, series={"a": [(0.0, 1.0), *chart.series["s"]]}), tmp_path / "f.png")
    with pytest.raises(ConfigurationError, match="no column 'x' to draw"):
        read_chart(lines(tmp_path / "f.jsonl", {"x": 1.1e300, "y": 1}), "x", "y")
    assert capfd.readouterr() == ("", "")


def test_a_logarithmic_axis(tmp_path: Path) -> None:
    """`log` shows all sizes, leaves out what is not above zero, and says if nothing is left."""
    chart = Chart("x", "y", {"a": [(0.0, 0.0), (1.0, 0.001), (2.0, 1e6)], "b": [(0.0, -1.0)]}, log=True)
    text = draw(chart, width=80)
    assert re.findall(r"(\S+)┤", text) == ["100,000", "1,000", "10", "0.1", "0.001"]
    assert "b" not in text
    near = draw(evolve(chart, series={"a": [(0.0, 8.0), (1.0, 19.0)]}), width=80)
    assert " ".join(re.findall(r"(\S+)┤", near)) == "18 16 14 12 10 8"
    save(chart, tmp_path / "f.png")
    nothing = evolve(chart, series={"b": [(0.0, -1.0)]})
    for use in (lambda: draw(nothing, width=80), lambda: save(nothing, tmp_path / "g.png")):
        with pytest.raises(ConfigurationError, match="no value of y is above zero: a logarithmic axis"):
            use()


def test_units_of_columns_and_metrics(tmp_path: Path) -> None:
    """The y axis has the unit of a documented column, or of the metric that all labels name."""

    def heading(*labels: str, y: str = "value") -> str:
        rows = ({"source": label, "timestamp": 1, y: 2} for label in labels)
        return read_chart(lines(tmp_path / "f.jsonl", *rows)).heading.removeprefix("f.jsonl: ")

    metrics = (enums.ChainMetric, enums.NetworkMetric, enums.AllValidatorsMetric, enums.SubnetMetric)
    headings = {heading(f"43114/{name}") for each in metrics for name in get_args(each)}
    assert len(headings - {"value"}) == 16
    assert {"avgGps (gas/s)", "txCount (transactions)"} <= headings
    assert heading("43114/avgGps", "53935/avgGps") == "avgGps (gas/s)"
    assert heading("43114/avgGps", "53935/txCount") == heading("43114/avgGps", "1") == "value"
    assert heading("43114", y="gas_used") == "gas_used (gas)"


# Pictures


def test_a_picture_shows_its_series(tmp_path: Path) -> None:
    """A PNG has a size, a color for each line, and replaces a file; many series have small charts."""
    path, blue, orange = tmp_path / "f.png", 0x1F77B4, 0xFF7F0E
    path.write_text("old")
    cases = ((2, 2, 750), (1, 1, 750), (1, 40, 750), (11, 9, 690), (0, 0, 750))
    for count, length, height in cases:
        save(chart_of({f"{number}": points(length, first=FIRST + number) for number in range(count)}), path)
        pixels = (imread(path)[:, :, :3] * 255).round().astype(int) @ [1 << 16, 1 << 8, 1]
        assert pixels.shape == (height, 1500)
        assert (blue in pixels, orange in pixels) == (count > 0, count == 2)


def test_odd_labels(tmp_path: Path) -> None:
    """No label or title controls the terminal, is read as a formula, or is hidden."""
    odd = ["_hidden", "$\\frac{1}$", "x\x1b[31m", "long" * 20]
    for count in (1, 3):
        series = {label * copy: [(0.0, 1.0), (1.0, 2.0)] for label in odd for copy in range(1, count + 1)}
        chart = Chart("x", "y$", series, title="t\x1b$")
        text = draw(chart, width=80)
        assert all(each in text for each in ("_hidden", r"x\x1b[31m", r"t\x1b$: y$", "longlonglo…glonglong"))
        save(chart, tmp_path / "f.png")


def test_a_missing_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A missing extra is an error with the package to install, and no file is made."""
    chart, png = chart_of({"a": points(2)}), tmp_path / "f.png"
    uses: dict[str, tuple[str, Callable[[], object]]] = {
        "matplotlib": ("plot", lambda: save(chart, png)),
        "plotext": ("cli", lambda: draw(chart, width=80)),
        "duckdb": ("duckdb", lambda: read_chart(lines(tmp_path / "f.duckdb"))),
        "fsspec.core": ("fsspec", lambda: read_chart("memory://b/f.csv")),
        "backports": ("zstd", lambda: read_chart(lines(tmp_path / "f.csv.zst"))),
    }
    for package, (extra, use) in [*uses.items()][: 4 if sys.version_info >= (3, 14) else 5]:
        with monkeypatch.context() as patch:
            patch.setitem(sys.modules, package, None)
            with pytest.raises(ConfigurationError, match=rf"needs? .*, which is .* 'chainapi\[{extra}\]'$"):
                use()
    assert not png.exists()


# Files


def test_files_of_every_format(tmp_path: Path) -> None:
    """An export of any format makes the same chart, with a series for each source."""
    wanted = read_chart(exported(tmp_path / "f.jsonl", "43114", "53935")).series
    assert {label: len(series) for label, series in wanted.items()} == {"43114": 5, "53935": 5}
    charts = {name: read_chart(exported(tmp_path / f"g.{name}", "43114", "53935")) for name in FORMATS}
    shown = {name: (each.x, each.y, each.times, each.title, each.series) for name, each in charts.items()}
    assert shown == {name: ("timestamp", "value", True, f"g.{name}", wanted) for name in FORMATS}


def test_any_two_columns_of_numbers(tmp_path: Path) -> None:
    """Named columns are drawn, beyond 64 bits too; without names, an error lists what there is."""
    block = {"number": 1, "fee": str(10**40), "hash": "0x1", "a": True, "b": [1], "c": "1_0", "d": "\u0661"}
    path, late = lines(tmp_path / "f.jsonl", block), lines(tmp_path / "g.jsonl", {**block, "timestamp": 1})
    chart = read_chart(path, "number", "fee")
    assert (chart.times, chart.series) == (False, {"s": [(1.0, 1e40)]})
    for file, x, y, message in (
        (
            path,
            None,
            None,
            r"no columns of times: choose a column with x= \(--x\); there are number \(number\), fee",
        ),
        (
            path,
            "number",
            "hash",
            r"no column 'hash' to draw: choose a column with y= \(--y\); .* fee \(number\)$",
        ),
        (path, "number", "source", "has no column 'source' to draw"),
        (path, "c", "number", "has no column 'c' to draw"),
        (late, None, None, "has 2 columns of numbers: choose a column with y="),
    ):
        with pytest.raises(ConfigurationError, match=message):
            read_chart(file, x, y)


def test_rows_without_numbers_are_left_out(tmp_path: Path) -> None:
    """Rows without a number in both columns are left out; a column is chosen by its first value."""
    empty = [{"timestamp": n, "value": None, "note": None} for n in range(1_500)]
    given = [{"timestamp": 1, "value": value} for value in (2, "2.5", 10**400, "NaN", 4.0)]
    path = lines(tmp_path / "f.jsonl", *empty, *given, {"timestamp": 2}, {"value": 3}, {"note": "x"})
    assert read_chart(path).series == {"s": [(1.0, 2.0), (1.0, 2.5), (1.0, 4.0)]}
    assert read_chart(path, y="value") == read_chart(path, "timestamp", "value") == read_chart(path)
    refused = {"has no row with a number in": [{"timestamp": 1}, {"value": 1}], "has no rows": []}
    for message, rows in refused.items():
        with pytest.raises(ConfigurationError, match=message):
            read_chart(lines(path, *rows))
    cells = "source,at,exact,list\na,1970-01-01T00:00:09Z,0.5,{}\na,2026-02-{}T00:00:00Z,,\n"
    path = tmp_path / "f.csv"
    path.write_text(cells.format("x" * 200_000, 28))
    assert read_chart(path).series == {"a": [(9.0, 0.5)]}
    path.write_text(cells.format("x", 31))  # no such day
    with pytest.raises(ConfigurationError, match=r"there are exact \(number\)$"):
        read_chart(path)


def test_folders(tmp_path: Path) -> None:
    """A folder makes the chart of all its parts, in partitions too; other files do not matter."""
    folder = exported(tmp_path / "tps", "43114", options=("--format", "jsonl", "--partition", "source,day"))
    (folder / "_invalid-00002.ndjson").write_text("{}")
    (folder / ".part-00003.jsonl").write_text("other")
    (folder / "source=a%2Fb" / "day=x").mkdir(parents=True)
    (folder / "source=a%2Fb" / "day=x" / "f.jsonl").write_text('{"timestamp":1,"value":2}')
    chart = read_chart(folder)
    assert {label: len(series) for label, series in chart.series.items()} == {"43114": 5, "a/b": 1}
    assert chart.heading == "tps: value"
    (folder / "other.csv").write_text("")
    with pytest.raises(ConfigurationError, match=r"files of several formats \(\.csv, \.jsonl\): name one"):
        read_chart(folder)


def test_charts_behind_urls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder and a file at a URL have the chart of a disk; a wrong URL is one line of error."""
    exported(tmp_path / "tps", "43114", "53935", options=("--format", "parquet", "--partition", "source"))
    exported(tmp_path / "f.sqlite", "43114")
    (tmp_path / "bad.csv").write_text('a,b\n1\n"')
    MemoryFileSystem().put(f"{tmp_path}/", "/charts/", recursive=True)
    for name in ("tps", "tps/", "f.sqlite"):
        assert read_chart(f"memory://charts/{name}") == read_chart(tmp_path / name), name
    assert read_chart(f"file://{tmp_path}/f.sqlite") == read_chart(tmp_path / "f.sqlite")
    for url, code, message in (
        ("memory://charts/none.csv", FAILED, "/charts/none.csv cannot be opened: No such file or directory"),
        ("memory://charts/empty/", WRONG_USAGE, "memory://charts/empty has no files of rows (jsonl, csv"),
        ("memory://me:hunt3r2@charts/", WRONG_USAGE, "memory://charts/ was given with a password"),
        ("memory://me:hunt3r2@f.csv", WRONG_USAGE, "memory://f.csv was given with a password"),
        ("memory://charts/bad.csv", WRONG_USAGE, "/charts/bad.csv is damaged, in use, or not a csv file"),
        ("nowhere://b/x/", WRONG_USAGE, "nowhere://b/x cannot be opened by fsspec on this machine: Protocol"),
    ):
        check_refused(chainapi("plot", url), code, message)
    monkeypatch.setitem(conf, "memory", {"token": "hunt3r2"})
    monkeypatch.setattr(MemoryFileSystem, "get_file", lambda *_: dict[str, int]()["hunt3r2"])
    check_refused(chainapi("plot", "memory://charts/bad.csv"), FAILED, "bad.csv cannot be read: '***'")


# Files that come from anywhere

COMPUTED = "CREATE TABLE rows (a INTEGER, value INTEGER GENERATED ALWAYS AS (a + 1)); "
SECRET = "CREATE VIEW rows AS SELECT * FROM read_text('{secret}')"
ENDLESS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT max(i) AS value FROM n"
MACRO = "CREATE MACRO duckdb_tables() AS TABLE SELECT 'main' AS schema_name, 'rows' AS table_name"
HOSTILE = {
    "sqlite endless view": f"CREATE VIEW ROWS AS {ENDLESS}",
    "sqlite virtual table": "CREATE VIRTUAL TABLE rows USING fts5(value)",
    "sqlite generated column": f"{COMPUTED} INSERT INTO rows VALUES (9)",
    "sqlite other table": "CREATE TABLE other (a INTEGER)",
    "duckdb view of a file": SECRET,
    "duckdb hidden view": f"{SECRET}; {MACRO}",
    "duckdb generated column": COMPUTED,
}


@pytest.mark.parametrize("name", HOSTILE)
def test_no_code_in_a_file_is_run(name: str, tmp_path: Path) -> None:
    """A view, or anything computed, is refused at once with one line of advice."""
    secret, path = tmp_path / "secret.txt", tmp_path / f"f.{name.split()[0]}"
    secret.write_text("hunt3r2")
    connect: Any = sqlite3.connect if path.suffix == ".sqlite" else duckdb.connect
    with closing(connect(path)) as database:
        for statement in HOSTILE[name].replace("{secret}", str(secret)).split(";"):
            database.execute(statement)
        database.commit()
    check_refused(chainapi("plot", str(path)), WRONG_USAGE, f"{path} cannot be drawn: it has no plain table")


def test_a_database_in_use_is_named(tmp_path: Path) -> None:
    """A DuckDB file that another program has open, or that has a log, is refused in one line."""
    path = exported(tmp_path / "f.duckdb", "43114")
    with closing(duckdb.connect(path)):
        check_refused(chainapi("plot", str(path)), WRONG_USAGE, f"{path} is damaged, in use, or not a duckdb")
    path.with_name("f.duckdb.wal").write_text("")
    check_refused(chainapi("plot", str(path)), WRONG_USAGE, "open it with DuckDB, run CHECKPOINT")


@pytest.mark.parametrize("flips", [0, pytest.param(120, marks=pytest.mark.proof)])
def test_damaged_files_are_refused(flips: int, tmp_path: Path) -> None:
    """A file that lacks its end is an error with its name; one with flipped bits is drawn or refused."""
    for name in FORMATS:
        whole = exported(tmp_path / f"whole.{name}", "43114", limit=700).read_bytes()
        random, damaged = Random(name), tmp_path / f"f.{name}"
        damaged.write_bytes(whole[: len(whole) // 2 - 3])
        with pytest.raises(ConfigurationError, match=f"{damaged} is damaged, in use, or not a {name} file: "):
            read_chart(damaged)
        for _ in range(flips):
            data = bytearray(whole)
            for _ in range(random.choice((1, 1, 5, 50))):
                reach = min(len(data), random.choice((100, 5_000, len(data))))
                data[random.randrange(reach)] ^= 1 << random.randrange(8)
            damaged.write_bytes(data)
            with suppress(ConfigurationError):
                read_chart(damaged)


# The command line


@pytest.mark.parametrize("tty", [True, pytest.param(False, marks=pytest.mark.proof)])
def test_tps_draws_a_chart(tty: bool, tmp_path: Path) -> None:
    """--plot draws the chains instead of a table or of lines of JSON; --png does not change the output."""
    outcome = chainapi("tps", "43114", "53935", "--limit", "90", "--plot", tty=tty)
    assert (outcome.code, outcome.err) == (0, "")
    assert all(text in outcome.out for text in ("average TPS", "C-Chain", "DFK Chain", "2025-11", "┤"))
    assert "timestamp" not in outcome.out
    assert ("\x1b[38;5;" in outcome.out) is tty
    path = tmp_path / "tps.png"
    outcome = chainapi("tps", "43114", "--limit", "40", "--png", str(path), tty=tty)
    assert outcome == chainapi("tps", "43114", "--limit", "40", tty=tty)
    path.unlink()
    outcome = chainapi("tps", "1", "43114", "--limit", "9", "--plot")
    assert (outcome.code, "C-Chain" in outcome.out) == (FAILED, True)
    assert "chain 1 does not exist" in outcome.err  # and the other one is drawn
    outcome = chainapi("tps", "1", "--plot", "--png", str(path))
    assert (outcome.code, outcome.out, path.exists()) == (FAILED, "", False)


def test_plot_takes_options(tmp_path: Path) -> None:
    """`chainapi plot` draws what tps printed: with a title, log axis, some sources, and as a picture."""
    path = tmp_path / "f.jsonl"
    path.write_text(chainapi("tps", "43114", "53935", "432204", "--limit", "9").out)
    text = chainapi("plot", str(path), "--title", "TPS of a week", "--log", "--top", "1").out
    assert "TPS of a week: value, 1 largest of 3" in text
    assert not re.search(r"\b0┤", text)
    text = chainapi("plot", str(path), "--series", "DFK Chain", "--series", "43114").out
    assert ("f.jsonl: value" in text, "DFK Chain" in text, "Dexalot" in text) == (True, True, False)
    refused = chainapi("plot", str(path), "--series", "a")
    check_refused(refused, WRONG_USAGE, "no rows of 'a'; its sources are 43114, 432204")
    assert chainapi("plot", str(path), "--top", "41").code == WRONG_USAGE
    assert "1 largest of 2" in chainapi("tps", "43114", "53935", "--plot", "--top", "1").out
    assert chainapi("plot", str(path), "--png", str(tmp_path / "f.png")) == Outcome(0, "", "")
    assert imread(tmp_path / "f.png").shape == (750, 1500, 4)


def test_plot_reports_errors(tmp_path: Path) -> None:
    """A wrong file or column, and an output of ASCII only, cause one line of error."""
    path = lines(tmp_path / "f.jsonl", {"timestamp": 1, "value": 2})
    for name, code, message in (
        ("f.xlsx", WRONG_USAGE, "unknown file format"),
        ("none.csv", FAILED, "none.csv cannot be opened: No such file or directory"),
        ("folder", FAILED, "folder cannot be opened: No such file or directory"),
        (
            "f.jsonl",
            WRONG_USAGE,
            "no column 'gas' to draw: choose a column with y= (--y); there are timestamp (time)",
        ),
    ):
        check_refused(chainapi("plot", str(tmp_path / name), "--y", "gas"), code, message)

    class Ascii(Stream):
        encoding = "ascii"

    message = "the output supports ASCII only: use a UTF-8 terminal"
    check_refused(chainapi("plot", str(path), out=Ascii(terminal=False)), WRONG_USAGE, message)
    png = str(tmp_path / "f.png")
    assert chainapi("plot", str(path), "--png", png, out=Ascii(terminal=False)).code == 0

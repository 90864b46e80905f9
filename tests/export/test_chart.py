"""Charts in a terminal and as pictures, of commands and of files."""

from __future__ import annotations

import io
import json
import re
import sqlite3
import sys
import tracemalloc
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, get_args

import duckdb
import numpy as np
import pytest
from attrs import define, evolve, fields_dict, frozen, has
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.image import imread

from chainapi import Session, models
from chainapi.cli import FAILED, WRONG_USAGE, run
from chainapi.cli.terminal import Terminal
from chainapi.errors import ConfigurationError
from chainapi.export import export
from chainapi.export.chart import Chart, Point, chart_of, draw, read_chart, save, visible
from chainapi.export.chart.axes import number_labels
from chainapi.export.chart.units import COLUMNS, METRICS, unit_of
from chainapi.models import MetricPoint, enums
from chainapi.simulator import Simulator
from chainapi.testing import VirtualLoop
from chainapi.testing import run as in_virtual_time
from chainapi.transport import Request, Response
from tests.export.buckets import bucket
from tests.export.contract import FORMATS
from tests.ledger import Ledger, block
from tests.sessions import reaching

DAY = 86_400
FIRST = 1_700_000_000
SIZE = (750, 1500, 4)  # of a picture
CHAINS = {"43114": 5, "53935": 3}


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set the variables of a session and of a terminal with 100 columns."""
    variables = {
        "CHAINAPI_METRICS_BASE_URL": "https://simulator.invalid/metrics",
        "CHAINAPI_DATA_BASE_URL": "https://simulator.invalid/data",
        "COLUMNS": "100",
        "TERM": "xterm",
    }
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE", "CHAINAPI_API_KEY"):
        monkeypatch.delenv(name, raising=False)


@frozen
class Outcome:
    """Exit code and output of a command."""

    code: int
    out: str
    err: str


class Screen(io.StringIO):
    """Stream that is a terminal."""

    encoding = "utf-8"

    def isatty(self) -> bool:
        """Return True."""
        return True


class Pipe(io.StringIO):
    """Stream that is not a terminal."""

    encoding = "utf-8"


def chainapi(*tokens: str, tty: bool = False, out: io.StringIO | None = None, **simulated: Any) -> Outcome:
    """Run a command in this process, in virtual time, against a simulator in memory."""
    out, err = out or (Screen() if tty else Pipe()), Pipe()
    session = partial(Session, transport=Simulator(seed=1, **simulated).transport())
    code = run(tokens, terminal=Terminal(out, err, session), loop_factory=VirtualLoop)
    return Outcome(code, out.getvalue(), err.getvalue())


def points(count: int, *, first: int = FIRST) -> list[MetricPoint]:
    """Return daily points, newest first."""
    return [MetricPoint(first + day * DAY, float(day % 7)) for day in reversed(range(count))]


@define
class Service:
    """Service with daily points of chains."""

    counts: Mapping[str, int]

    async def send(self, request: Request) -> Response:
        """Return the points of a chain, newest first."""
        count = self.counts[next(chain for chain in self.counts if f"/{chain}" in request.url)]
        rows = [{"timestamp": FIRST + day * DAY, "value": day % 7} for day in reversed(range(count))]
        return Response(200, {}, json.dumps({"results": rows}).encode())

    async def aclose(self) -> None:
        """Close nothing."""


def exported(path: Path, counts: Mapping[str, int] = CHAINS, **options: Any) -> Path:
    """Export the points of chains."""

    async def scenario() -> None:
        async with reaching(Service(counts)) as session:
            await export(session.metrics.avg_tps, [*counts], path, **options)

    in_virtual_time(scenario())
    return path


def lines(path: Path, *rows: Any) -> Path:
    """Write lines of JSON."""
    path.write_text("".join(json.dumps({"source": "s", **row}) + "\n" for row in rows))
    return path


# What can be seen

FINITE = st.floats(-1e9, 1e9)
ANY = st.floats(allow_nan=False, allow_infinity=False)


@settings(max_examples=40)
@given(st.lists(st.tuples(FINITE | ANY, FINITE), max_size=100), st.integers(1, 20))
def test_no_peak_is_lost(given_points: list[tuple[float, float]], stretches: int) -> None:
    """Few of many points are kept, the extremes of the series among them, whatever the distances are."""
    seen = visible(given_points, stretches)
    assert seen == sorted(seen)
    assert set(seen) <= set(given_points)
    assert len(seen) <= max(2 * stretches, 0)
    assert {y for _, y in seen} >= {edge([y for _, y in given_points]) for edge in (min, max) if given_points}


def test_each_stretch_keeps_its_lowest_and_highest() -> None:
    """A single high point among many low ones stays where it was."""
    many = [(float(x), 100.0 if x == 5_432 else x % 3.0) for x in range(10_000)]
    seen = visible(many, 100)
    assert (5_432.0, 100.0) in seen
    assert all({0.0, 2.0} <= {y for x, y in seen if a <= x < a + 200} for a in range(0, 9_900, 100))
    assert visible(many[:200], 100) == many[:200]
    assert visible([(1.0, float(y)) for y in range(50)], 10) == [(1.0, 0.0), (1.0, 49.0)]


# In the terminal


def test_a_chart_names_its_series() -> None:
    """The text has a title, dates, and a line of its own kind for each series."""
    above = [MetricPoint(point.timestamp, point.value + 10) for point in points(90)]
    text = draw(chart_of({"43114": points(90), "mainnet/p-chain": above}, "average TPS"), width=80)
    lines = text.splitlines()
    assert max(map(len, lines)) <= 80
    assert len(lines) == 20
    assert "average TPS" in lines[0]
    assert "* 43114" in text
    assert "+ mainnet/p-chain" in text
    assert lines[-1] == "  * 43114  + mainnet/p-chain"
    assert lines[-2].strip() == "time (UTC)"
    assert "2023-11-14" in lines[-3]
    assert "2024-02-11" in lines[-3]
    assert text.count("*") > 20
    assert "\x1b" not in text


def test_times_are_as_fine_as_they_need_be() -> None:
    """The axis has days, minutes or seconds; a single point is drawn too."""
    for seconds, tick in (
        (60, "22:13:20"),
        (2 * 3_600, "11-14 22:13"),
        (9 * DAY, "2023-11-14"),
        (0, "22:13:19"),
    ):
        series = {"a": [MetricPoint(FIRST, 1.0), MetricPoint(FIRST + seconds, 2.0)]}
        assert tick in draw(chart_of(series), width=80).splitlines()[-3], seconds


def test_the_ends_of_the_calendar(tmp_path: Path) -> None:
    """The first and the last time of the calendar, which stand for "never", are times; others are numbers."""
    for end in ("0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z"):
        for others in ([], ["2026-11-20T03:15:00Z"]):
            rows = [{"end": time, "value": 1} for time in (end, *others)]
            text = draw(read_chart(lines(tmp_path / "f.jsonl", *rows)), width=80)
            assert "end (UTC)" in text
            assert (end[:10] if others else end[11:19]) in text
    save(read_chart(tmp_path / "f.jsonl"), tmp_path / "f.png")
    text = draw(chart_of({"a": [MetricPoint(10**15, 1.0), MetricPoint(0, 2.0)]}), width=80)
    assert "1.0e15" in text
    assert "UTC" not in text


def test_odd_labels(tmp_path: Path) -> None:
    """No label or title controls the terminal, is read as a formula, or is hidden."""
    odd = ["_hidden", "$\\frac{1}$", "x\x1b[31m", "long" * 20]
    chart = Chart("x", "y$", {label: [(0.0, 1.0), (1.0, 2.0)] for label in odd}, title="t\x1b$")
    text = draw(chart, width=80)
    assert r"x\x1b[31m" in text
    assert r"t\x1b$: y$" in text.splitlines()[0]
    assert "longlonglo…glonglong" in text
    save(chart, tmp_path / "f.png")
    assert imread(tmp_path / "f.png").shape == SIZE


# Many series


def many(count: int) -> dict[str, list[Point]]:
    """Return series by their sizes: each at a constant value, the last one the largest."""
    return {f"s{size:02}": [(float(x), float(size)) for x in range(9)] for size in range(1, count + 1)}


def test_the_largest_of_many_series_have_lines() -> None:
    """Beyond `top`, the largest series have lines, largest first, and the others a band."""
    legend = draw(Chart("x", "y", many(40), top=3), width=90).splitlines()[-1]
    assert re.findall(r"s\d\d|\d+ others", legend) == ["s40", "s39", "s38", "37 others"]
    with pytest.raises(ConfigurationError, match="top=41: a chart can show 1 to 40 series as lines"):
        Chart("x", "y", {}, top=41)


@pytest.mark.parametrize(("top", "coloured"), [(40, True), (40, False)])
def test_each_line_has_a_style_of_its_own(top: int, coloured: bool) -> None:
    """No two of up to 40 lines look the same in a legend, in colours and without."""
    text = draw(Chart("x", "y", many(50), top=top), width=90, coloured=coloured)
    legend = text[text.rindex("┘") :]
    style = r"(\x1b\[38;5;\d+m)?(\S+?)(?:\x1b\[0m)? s\d\d"
    assert len(set(re.findall(style, legend))) == top
    assert f"░{chr(27) + '[0m' if coloured else ''} {50 - top} others" in legend


# Axes


@pytest.mark.rule
@pytest.mark.parametrize(
    ("ticks", "labels"),
    [
        ([13_110_000.0, 13_110_500.0], ["13,110,000", "13,110,500"]),
        ([0.0, 0.5, 1.0], ["0.0", "0.5", "1.0"]),
        ([0.0, 2e18, 4e18], ["0", "2e18", "4e18"]),
        ([1e40, 1.5e40], ["10e39", "15e39"]),
        ([0.0, 1e-7], ["0", "100e-9"]),
        ([-0.0, 1e9], ["0", "1,000,000,000"]),
        ([1e-290], ["10e-291"]),
        ([1e-15], ["1e-15"]),
    ],
)
def test_labels_of_numbers(ticks: list[float], labels: list[str]) -> None:
    """Numbers have separators and no offset, very large ones an engineering exponent."""
    assert number_labels(ticks) == labels


def test_a_logarithmic_axis(tmp_path: Path) -> None:
    """`log` shows all sizes, leaves out what is not above zero, and says if nothing is left."""
    series = {"a": [(0.0, 0.0), (1.0, 0.001), (2.0, 1_000_000.0)], "b": [(0.0, -1.0)]}
    chart = Chart("x", "y", series, log=True)
    text = draw(chart, width=80)
    assert "100,000┤" in text
    assert "0.001┤" in text
    assert "b" not in text
    save(chart, tmp_path / "f.png")
    nothing = Chart("x", "y", {"b": [(0.0, -1.0)]}, log=True)
    for use in (lambda: draw(nothing, width=80), lambda: save(nothing, tmp_path / "g.png")):
        with pytest.raises(ConfigurationError, match="no value of y is above zero: a logarithmic axis"):
            use()


@pytest.mark.rule
def test_units_belong_to_known_columns_and_metrics() -> None:
    """Each unit is that of a field of a record, or of a metric of the services."""
    fields = {
        name
        for model in (getattr(models, name) for name in models.__all__)
        if isinstance(model, type) and has(model)
        for name in fields_dict(model)
    }
    assert fields >= {*COLUMNS}
    metrics = (enums.ChainMetric, enums.NetworkMetric, enums.AllValidatorsMetric, enums.SubnetMetric)
    assert {name for metric in metrics for name in get_args(metric)} >= {*METRICS}
    assert unit_of("gas_used", []) == "gas"
    assert unit_of("value", ["43114/avgGps", "53935/maxGps"]) == "gas/s"
    assert unit_of("value", ["43114/avgGps", "53935/txCount"]) == unit_of("value", ["43114"]) == ""


# Pictures


def colours(path: Path) -> set[tuple[int, ...]]:
    """Return the colours of a picture, red, green and blue in tenths."""
    tenths = (imread(path)[:, :, :3] * 10).round().astype(int)
    codes = np.unique(tenths @ np.array([10_000, 100, 1]))
    return {(code // 10_000, code // 100 % 100, code % 100) for code in codes.tolist()}


def test_a_picture_shows_its_series(tmp_path: Path) -> None:
    """A PNG has the stated size and a colour for each series, and replaces a file."""
    path = tmp_path / "f.png"
    path.write_text("old")
    save(chart_of({"43114": points(40), "53935": points(40, first=FIRST + DAY)}), path)
    assert path.read_bytes().startswith(b"\x89PNG\r\n")
    assert imread(path).shape == SIZE
    blue, orange = (1, 5, 7), (10, 5, 1)
    assert {blue, orange} <= colours(path)
    save(chart_of({"43114": points(40)}), path)
    assert blue in colours(path)
    assert orange not in colours(path)
    save(Chart("x", "y", many(50), top=2), path)
    assert (8, 8, 8) in colours(path)  # the range of the others


def hide(package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make a package impossible to import, in modules that are not yet imported."""
    drawing = ("chainapi.export.chart.image", "chainapi.export.chart.terminal")
    for name in [name for name in sys.modules if name.partition(".")[0] == package or name in drawing]:
        monkeypatch.delitem(sys.modules, name)
    for name in drawing:  # `from` looks here first
        monkeypatch.delattr(name, raising=False)
    monkeypatch.setitem(sys.modules, package, None)


@pytest.mark.parametrize(
    ("package", "extra", "use"),
    [
        ("matplotlib", "plot", lambda path: save(chart_of({"a": points(2)}), path)),
        ("plotext", "cli", lambda path: draw(chart_of({"a": points(2)}), width=80)),
    ],
)
def test_a_missing_extra_is_named(
    package: str, extra: str, use: Callable[[Path], Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A missing extra is an error with the package to install, and no file is made."""
    hide(package, monkeypatch)
    with pytest.raises(ConfigurationError, match=rf"needs {package}, which is .* 'chainapi\[{extra}\]'$"):
        use(tmp_path / "f.png")
    assert [*tmp_path.iterdir()] == []


# Files


def test_files_of_every_format(tmp_path: Path) -> None:
    """A file of any format makes the same chart, with a series for each source."""
    for name in FORMATS:
        chart = read_chart(exported(tmp_path / f"f.{name}"))
        assert (chart.x, chart.y, chart.times) == ("timestamp", "value", True), name
        assert chart.series["43114"] == [(float(FIRST + day * DAY), float(day)) for day in range(5)], name
        assert len(chart.series["53935"]) == 3, name


@pytest.mark.parametrize("name", ["jsonl", "csv", "parquet", "sqlite"])
async def test_columns_by_their_names(name: str, tmp_path: Path) -> None:
    """Any two columns of numbers make a chart, also beyond 64 bits; others are an error with all columns."""
    ledger, path = Ledger([FIRST] * 3, block, "blocks"), tmp_path / f"f.{name}"
    ledger.changed = {one: {"baseFee": str(one * 10**40)} for one in range(3)}
    async with reaching(ledger) as session:
        await export(session.data.evm.blocks, [43114], path)
    chart = read_chart(path, "block_number", "base_fee")
    assert not chart.times
    assert chart.series["43114"] == [(0.0, 0.0), (1.0, 1e40), (2.0, 2e40)]
    for x, y, message in (
        (
            None,
            None,
            r"has \d+ columns of numbers: choose a column for y; there are .*block_number \(number\)",
        ),
        ("nothing", "gas_used", r"has no column 'nothing' of numbers or times; there are chain_id"),
        (None, "block_hash", r"has no column 'block_hash' of numbers or times"),
    ):
        with pytest.raises(ConfigurationError, match=message):
            read_chart(path, x, y)


def test_what_cannot_be_drawn_is_left_out(tmp_path: Path) -> None:
    """Rows without a number in both columns are left out; infinity is no number."""
    path = lines(
        tmp_path / "f.jsonl",
        *({"timestamp": 1, "value": value} for value in (1, "2.5", None, 4.0)),
        {"timestamp": 2},
        {"value": 3},
    )
    assert read_chart(path).series == {"s": [(1.0, 1.0), (1.0, 2.5), (1.0, 4.0)]}
    with pytest.raises(
        ConfigurationError, match="has no column of numbers: choose a column for y; there are timestamp"
    ):
        read_chart(lines(tmp_path / "g.jsonl", {"timestamp": 1, "value": True, "text": "x", "huge": 10**400}))
    with pytest.raises(ConfigurationError, match="no column of numbers or times: a chart needs two"):
        read_chart(lines(tmp_path / "h.jsonl", {"a": "NaN", "b": [1], "c": "1_000"}))
    with pytest.raises(ConfigurationError, match="has no row with a number in 'timestamp' and in 'value'"):
        read_chart(lines(tmp_path / "i.jsonl", {"timestamp": 1}, {"value": 1}))
    with pytest.raises(ConfigurationError, match="has no rows to plot"):
        read_chart(lines(tmp_path / "j.jsonl"))


def test_a_column_may_begin_with_nulls(tmp_path: Path) -> None:
    """A column is chosen by its first value, however many rows before it have none."""
    empty = [{"timestamp": n, "value": None, "note": None} for n in range(1_500)]
    path = lines(tmp_path / "f.jsonl", *empty, {"timestamp": 1_500, "value": 2.5, "note": "x"})
    assert read_chart(path).series == {"s": [(1_500.0, 2.5)]}
    assert read_chart(path, y="value") == read_chart(path, "timestamp", "value") == read_chart(path)
    with pytest.raises(ConfigurationError, match="has no column 'note' of numbers"):
        read_chart(path, y="note")
    late = lines(
        tmp_path / "g.jsonl", *({"timestamp": n} for n in range(1_500)), {"timestamp": 9, "value": 1}
    )
    assert read_chart(late, "timestamp", "value").series == {"s": [(9.0, 1.0)]}


def test_folders(tmp_path: Path) -> None:
    """A folder makes the chart of all its parts, in partitions too; other files do not matter."""
    folder = exported(tmp_path / "tps", partition=["source", "day"])
    (folder / "_invalid-00002.ndjson").write_text("{}")
    (folder / ".part-00003.jsonl").write_text("other")
    chart = read_chart(folder)
    assert {label: len(series) for label, series in chart.series.items()} == CHAINS
    assert (chart.title, chart.x_label, chart.y_label) == ("tps", "timestamp (UTC)", "value")
    with pytest.raises(ConfigurationError, match=r"has no files of rows \(jsonl, csv"):
        read_chart(folder / "_export")
    (folder / "other.csv").write_text("")
    with pytest.raises(ConfigurationError, match=r"files of several formats \(\.csv, \.jsonl\): name one"):
        read_chart(folder)


@pytest.fixture
def objects(tmp_path: Path) -> Iterator[Callable[[Path], None]]:
    """Return what copies a local folder to the bucket ``b``."""

    def copy(folder: Path) -> None:
        for path in folder.rglob("*"):
            if path.is_file():
                files.store_object(f"/b/{path.relative_to(folder).as_posix()}", path.read_bytes())

    with bucket() as files:
        yield copy


def test_a_chart_behind_a_url(objects: Callable[[Path], None], tmp_path: Path) -> None:
    """A folder and a file behind a URL have the chart that they have on a disk, partitions included."""
    exported(tmp_path / "tps", partition=["source", "day"], format="parquet")
    exported(tmp_path / "f.sqlite")
    objects(tmp_path)
    for name in ("tps", "f.sqlite"):
        local = read_chart(tmp_path / name)
        assert read_chart(f"bucket://b/{name}") == local
        assert local.title == name
    assert read_chart("bucket://b/tps/").series.keys() == {*CHAINS}
    assert "tps: value" in chainapi("plot", "bucket://b/tps/").out
    assert read_chart(f"file://{tmp_path}/f.sqlite") == read_chart(tmp_path / "f.sqlite")


@pytest.mark.parametrize(
    ("url", "code", "message"),
    [
        ("bucket://b/none.csv", FAILED, "bucket://b/none.csv cannot be opened: No such file or directory"),
        ("bucket://b/empty/", WRONG_USAGE, "bucket://b/empty has no files of rows (jsonl, csv"),
        ("bucket://me:hunt3r2@b/x/", WRONG_USAGE, "bucket://b/x/ was given with a password"),
        ("nowhere://b/x/", WRONG_USAGE, "nowhere://b/x cannot be opened by fsspec"),
    ],
)
def test_urls_that_cannot_be_drawn(
    url: str, code: int, message: str, objects: Callable[[Path], None]
) -> None:
    """A wrong URL is one line of error, without a password."""
    outcome = chainapi("plot", url)
    assert (outcome.code, outcome.out) == (code, "")
    assert message in outcome.err
    assert "hunt3r2" not in outcome.err
    assert outcome.err.count("\n") == 1


def test_chosen_sources(tmp_path: Path) -> None:
    """Only the sources that are named are drawn; an unknown one is an error with some of those there are."""
    path = exported(tmp_path / "f.csv", {f"{number}00": 2 for number in range(1, 10)})
    assert [*read_chart(path, series=["700", "100"]).series] == ["100", "700"]
    with pytest.raises(ConfigurationError, match=r"no rows of 'a'; its sources are 100, 200, .* and 4 more"):
        read_chart(path, series=["100", "a"])


def test_cells_of_text(tmp_path: Path) -> None:
    """Exact decimals and dates are drawn at their values; a cell that only Python reads is no number."""
    path = tmp_path / "f.csv"
    path.write_text('source,at_timestamp,exact\n"a",1970-01-01T00:00:00Z,0.5\n"a",1970-01-01T00:00:09Z,1.5\n')
    assert read_chart(path, y="exact").series == {"a": [(0.0, 0.5), (9.0, 1.5)]}
    path = lines(
        tmp_path / "f.jsonl", *({"timestamp": 1, "v": text} for text in ("1_0", " 1 ", "\u0661", "1.\uff11"))
    )
    with pytest.raises(ConfigurationError, match="v"):
        read_chart(path, y="v")


@pytest.mark.proof
def test_a_large_file_takes_little_memory(tmp_path: Path) -> None:
    """A file with forty times as many rows takes about the same memory."""

    def peak(rows: int) -> int:
        path = tmp_path / "f.jsonl"
        path.write_bytes(
            b"".join(b'{"source":"s","timestamp":%d,"value":%d}\n' % (n, n % 97) for n in range(rows))
        )
        tracemalloc.start()
        try:
            assert len(read_chart(path).series["s"]) <= 2_000
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    read_chart(lines(tmp_path / "warm.jsonl", {"timestamp": 1, "value": 1}))
    few = peak(20_000)
    assert peak(200_000) < 1.2 * few


# Files that come from anywhere

ENDLESS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT max(i) AS value FROM n"
SQLITE = {
    "endless view": ("a view", f"CREATE VIEW rows AS {ENDLESS}"),
    "view in capitals": ("a view", f"CREATE VIEW ROWS AS {ENDLESS}"),
    "virtual table": ("a virtual table", "CREATE VIRTUAL TABLE rows USING fts5(value)"),
    "generated column": (
        "a table with generated columns",
        "CREATE TABLE rows (a INTEGER, value AS (length(hex(zeroblob(a))))); INSERT INTO rows VALUES (9)",
    ),
}
DUCKDB = {
    "view of a file": ("a view", "CREATE VIEW rows AS SELECT * FROM read_text('{secret}')"),
    "view that is hidden": (
        "a view",
        """CREATE VIEW rows AS SELECT * FROM read_text('{secret}');
        CREATE MACRO duckdb_tables() AS TABLE SELECT 'main' AS schema_name, 'rows' AS table_name""",
    ),
    "generated column": (
        "a table with generated columns",
        "CREATE TABLE rows (a INTEGER, value INTEGER GENERATED ALWAYS AS (a + 1))",
    ),
}
HOSTILE = [
    *(pytest.param("f.sqlite", *case, id=f"sqlite {name}") for name, case in SQLITE.items()),
    *(pytest.param("f.duckdb", *case, id=f"duckdb {name}") for name, case in DUCKDB.items()),
]


def made(path: Path, script: str) -> Path:
    """Make a database by a script."""
    connect: Any = sqlite3.connect if path.suffix == ".sqlite" else duckdb.connect
    with closing(connect(path)) as database:
        for statement in script.split(";"):
            database.execute(statement)
        database.commit()
    return path


@pytest.mark.parametrize(("name", "what", "script"), HOSTILE)
def test_no_code_in_a_file_is_run(name: str, what: str, script: str, tmp_path: Path) -> None:
    """A view, or anything computed, is refused at once with one line of advice."""
    secret = tmp_path / "secret.txt"
    secret.write_text("hunter2")
    path = made(tmp_path / name, script.replace("{secret}", str(secret)))
    outcome = chainapi("plot", str(path))
    assert (outcome.code, outcome.out) == (WRONG_USAGE, "")
    assert f"has {what} in place of a table of rows" in outcome.err
    assert "Copy the rows into a table" in outcome.err
    assert "hunter2" not in outcome.err
    assert outcome.err.count("\n") == 1


@pytest.mark.proof
@pytest.mark.parametrize("name", FORMATS)
def test_damaged_files_are_reported(name: str, tmp_path: Path) -> None:
    """A file with flipped bits is drawn or refused; no other error is raised."""
    whole = exported(tmp_path / f"whole.{name}", {"43114": 700}).read_bytes()
    random, damaged = Random(name), tmp_path / f"f.{name}"
    for _ in range(120):
        data = bytearray(whole)
        for _ in range(random.choice((1, 1, 5, 50))):
            reach = min(len(data), random.choice((100, 5_000, len(data))))
            data[random.randrange(reach)] ^= 1 << random.randrange(8)
        damaged.write_bytes(data)
        with suppress(ConfigurationError, OSError):
            read_chart(damaged)


@pytest.mark.parametrize(
    "largest",
    [
        1.7976931348623157e308,
        *(pytest.param(one, marks=pytest.mark.proof) for one in (1e300, 1e17, 1e-310, 5e-324)),
    ],
)
def test_numbers_of_every_size_are_drawn(
    largest: float, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The largest and the smallest numbers make charts without warnings, on both axes."""
    for place, names in enumerate((("x", "y"), ("y", "x"))):
        rows = [dict(zip(names, (n, sign * largest), strict=True)) for n, sign in enumerate((-1, 0, 1))]
        chart = read_chart(lines(tmp_path / "f.jsonl", *rows), "x", "y")
        assert max(map(len, draw(chart, width=80).splitlines())) <= 80
        if place:
            save(chart, tmp_path / "f.png")
            save(evolve(chart, log=True), tmp_path / "f.png")
        unit = {True: "1e+300", False: "1e-300"}[largest > 1]
        assert (f", in {unit}" in chart.x + chart.y) is not (1e-300 <= largest <= 1e300)
    assert capfd.readouterr() == ("", "")


# The command line


@pytest.mark.parametrize("tty", [True, pytest.param(False, marks=pytest.mark.proof)])
def test_tps_draws_a_chart(tty: bool, tmp_path: Path) -> None:
    """--plot draws the chains instead of a table or of lines of JSON; --png does not change the output."""
    outcome = chainapi("tps", "43114", "53935", "--limit", "90", "--plot", tty=tty)
    assert (outcome.code, outcome.err) == (0, "")
    assert all(text in outcome.out for text in ("average TPS", "43114", "53935", "2026-01-01", "┤"))
    assert "timestamp" not in outcome.out
    assert ("\x1b[38;5;" in outcome.out) is tty
    path = tmp_path / "tps.png"
    outcome = chainapi("tps", "43114", "--limit", "40", "--png", str(path), tty=tty)
    assert outcome == chainapi("tps", "43114", "--limit", "40", tty=tty)
    assert imread(path).shape == SIZE


def test_tps_draws_what_it_got(tmp_path: Path) -> None:
    """A chain that fails causes an error line, and the others are drawn."""
    path = tmp_path / "tps.png"
    outcome = chainapi("tps", "1", "43114", "--limit", "9", "--plot")
    assert outcome.code == FAILED
    assert "43114" in outcome.out
    assert "chain 1 does not exist" in outcome.err
    outcome = chainapi("tps", "1", "--plot", "--png", str(path))
    assert (outcome.code, outcome.out, path.exists()) == (FAILED, "", False)


def test_plot_takes_options(tmp_path: Path) -> None:
    """`chainapi plot` has a title, a logarithmic axis, chosen sources, a number of lines, and a picture."""
    path = exported(tmp_path / "f.csv", {"43114": 9, "53935": 9, "432204": 9})
    text = chainapi("plot", str(path), "--title", "TPS of a week", "--log", "--top", "1").out
    assert "TPS of a week: value" in text
    assert "2 others" in text
    assert "0┤" not in text
    text = chainapi("plot", str(path), "--series", "53935", "--series", "43114").out
    assert "432204" not in text
    assert "f.csv: value" in text
    assert chainapi("plot", str(path), "--top", "41").code == WRONG_USAGE
    assert "1 other" in chainapi("tps", "43114", "53935", "--plot", "--top", "1").out
    assert chainapi("plot", str(path), "--png", str(tmp_path / "f.png")) == Outcome(0, "", "")
    assert imread(tmp_path / "f.png").shape == SIZE


def test_plot_draws_what_tps_printed(tmp_path: Path) -> None:
    """The lines of `chainapi tps` make a chart with a line for each chain."""
    path = tmp_path / "tps.jsonl"
    path.write_text(chainapi("tps", "43114", "53935").out)
    chart = read_chart(path)
    assert (chart.y, [*chart.series]) == ("value", ["43114", "53935"])


@pytest.mark.parametrize(
    ("name", "code", "message"),
    [
        ("f.xlsx", WRONG_USAGE, "unknown file format"),
        ("none.csv", FAILED, "none.csv cannot be opened: No such file or directory"),
        ("none.parquet", FAILED, "none.parquet cannot be opened: No such file or directory"),
        ("folder", FAILED, "folder cannot be opened: No such file or directory"),
        ("f.csv", WRONG_USAGE, "has no column 'gas' of numbers or times; there are timestamp (time), value"),
    ],
)
def test_plot_reports_errors(name: str, code: int, message: str, tmp_path: Path) -> None:
    """A wrong file or column causes one line of error."""
    exported(tmp_path / "f.csv")
    outcome = chainapi("plot", str(tmp_path / name), "--y", "gas")
    assert (outcome.code, outcome.out) == (code, "")
    assert message in outcome.err
    assert outcome.err.count("\n") == 1


def test_plot_needs_more_than_ascii(tmp_path: Path) -> None:
    """An output of ASCII only causes an error; a picture works."""

    class Ascii(Pipe):
        encoding = "ascii"

    path = exported(tmp_path / "f.csv")
    outcome = chainapi("plot", str(path), out=Ascii())
    assert (outcome.code, outcome.out) == (WRONG_USAGE, "")
    assert "the output supports ASCII only: use a UTF-8 terminal" in outcome.err
    assert chainapi("plot", str(path), "--png", str(tmp_path / "f.png"), out=Ascii()).code == 0

"""Docs: Python blocks of README and docs/ run on a simulator with a real port."""

from __future__ import annotations

import ast
import asyncio
import inspect
import re
import shlex
import shutil
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import PIPE
from typing import get_args

import pytest
import pytest_asyncio

from chainapi._tooling.generate import PICTURES
from chainapi.cli.export import FileFormat
from chainapi.export.formats import FORMATS
from chainapi.models import evm as _loaded  # noqa: F401 - pytester forgets modules that its tests load
from chainapi.simulator import Simulator
from tests.cli.recorder import Recorder

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)


PROGRAM = re.compile(r"^    run\(|^run\(|asyncio\.(run|Runner)\(|chainapi\.run\(", re.MULTILINE)


def blocks() -> list[tuple[str, str]]:
    """Return each Python block with its page and line."""
    found: list[tuple[str, str]] = []
    for page in PAGES:
        text = page.read_text("utf-8")
        for match in BLOCK.finditer(text):
            line = text[: match.start()].count("\n") + 2
            found.append((f"{page.relative_to(ROOT)}:{line}", match[1]))
    return found


@pytest_asyncio.fixture
async def simulated(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> AsyncIterator[dict[str, str]]:
    """Start a simulator, and put its addresses into the environment for `Session()`.

    Files are written into a folder of their own.
    """
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("CHAINAPI_SHARE_DIR", str(tmp_path / "share"))
    async with Simulator(seed=1) as simulator:
        environment = simulator.environment()
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        yield environment


def test_there_are_blocks() -> None:
    """The README has Python blocks for the next test."""
    assert any(place.startswith("README.md") for place, _ in blocks())


@pytest.mark.real_time
@pytest.mark.parametrize(
    ("place", "code"),
    [pytest.param(*block, id=block[0]) for block in blocks() if "def test_" not in block[1]],
)
async def test_block_runs(simulated: dict[str, str], place: str, code: str) -> None:
    """Python blocks of the docs run unchanged against a live simulator."""
    if PROGRAM.search(code):
        await run_as_program(code)
        return
    compiled = compile(code, place, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
    outcome = eval(compiled, {"__name__": "docs"})
    if inspect.isawaitable(outcome):
        await outcome


def test_tests_of_the_docs_pass(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tests on the pages pass unchanged: once while recording, and once from the recordings alone."""
    suites = [code for _, code in blocks() if "def test_" in code]
    pytester.makeini(
        "[pytest]\nfilterwarnings = error\nasyncio_mode = auto\naddopts = -p no:cov -p no:xdist\n"
        "asyncio_default_fixture_loop_scope = function"
    )
    pytester.makepyfile(**{f"test_{number}": code for number, code in enumerate(suites)})
    tests = sum(code.count("def test_") for code in suites)
    assert tests >= 5
    with simulator_in_a_thread() as environment, monkeypatch.context() as patch:
        for name, value in environment.items():
            patch.setenv(name, value)
        pytester.runpytest_inprocess("--chainapi-record=once").assert_outcomes(passed=tests)
    pytester.runpytest_inprocess().assert_outcomes(passed=tests)


@contextmanager
def simulator_in_a_thread() -> Iterator[dict[str, str]]:
    """Run a simulator on a port in a thread; yield the variables that point to it."""
    loop, simulator = asyncio.new_event_loop(), Simulator(seed=1)
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        asyncio.run_coroutine_threadsafe(simulator.__aenter__(), loop).result(10)
        yield simulator.environment()
        asyncio.run_coroutine_threadsafe(simulator.__aexit__(None, None, None), loop).result(10)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def commands(page: str) -> list[str]:
    """Return the shell blocks of a page."""
    text = (ROOT / "docs" / page).read_text("utf-8")
    return re.findall(r"^```sh\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)


async def run_in_shell(script: str) -> tuple[str, str]:
    """Run commands with the command line of this very interpreter; return output and errors."""
    function = f'set -e\nchainapi() {{ {shlex.quote(sys.executable)} -W error -m chainapi "$@"; }}\n'
    process = await asyncio.create_subprocess_exec("sh", "-c", function + script, stdout=PIPE, stderr=PIPE)
    output, errors = await asyncio.wait_for(process.communicate(), 120)
    assert process.returncode == 0, errors.decode()
    return output.decode(), errors.decode()


@pytest.mark.untraced
@pytest.mark.real_time
@pytest.mark.skipif(shutil.which("sh") is None, reason="there is no shell")
async def test_export_commands_run(simulated: dict[str, str], tmp_path: Path) -> None:
    """Export commands of the docs run in order in an empty folder, with their results."""
    output, errors = await run_in_shell("ls *.parquet\n".join(commands("export.md")) + "ls")
    assert re.findall(r"(\S+ new rows) of", errors) == [
        "2,000 new rows",
        "1,500 new rows",
        "2,000 new rows",
        "2,000 new rows",
        "1,000 new rows",
        "100 new rows",
        "100 new rows",
        "100 new rows",
        "200 new rows",
        "1,000 new rows",
        "1,000 new rows",
    ]
    names = {"blocks.jsonl", "blocks.jsonl.export", "chains.txt", "newest.parquet", "newest.parquet.export"}
    chosen = {"gas.csv", "gas.csv.export", "packed.parquet", "packed.parquet.export"}
    chosen |= {"transfers.parquet", "transfers.parquet.export", "blocks"}
    chosen |= {"blocks.jsonl.zst", "blocks.jsonl.zst.export"}
    windows = {"daily", "sent.sqlite", "sent.sqlite.export"}
    assert set(output.split()) == {*names, *chosen, *windows, "blocks.parquet", "utxos"}


@pytest.mark.untraced
@pytest.mark.real_time
@pytest.mark.skipif(shutil.which("sh") is None, reason="there is no shell")
async def test_chart_commands_run(simulated: dict[str, str], tmp_path: Path) -> None:
    """Chart commands of the docs run in order in an empty folder, and draw what those before them fetched."""
    output, _ = await run_in_shell("".join(commands("plots.md")))
    for title in ("average TPS", "tps.parquet: value", "blocks.csv: gas_used", "Gas of the C-Chain"):
        assert title in output
    for picture in ("tps.png", "fees.png"):
        assert (tmp_path / picture).read_bytes().startswith(b"\x89PNG")


async def run_as_program(code: str) -> None:
    """Run a block as a whole program, with warnings as errors."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-W",
        "error",
        "-c",
        code,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    output, errors = await asyncio.wait_for(process.communicate(), 30)
    assert process.returncode == 0, errors.decode()
    assert errors == b""
    assert output


@pytest.mark.untraced
@pytest.mark.parametrize("script", PICTURES)
def test_pictures_are_up_to_date(script: str) -> None:
    """Recorded terminals and runs in the docs equal the output of the code."""
    outcome = subprocess.run(
        [sys.executable, str(ROOT / script), "--check"], capture_output=True, text=True, check=False
    )
    assert outcome.returncode == 0, outcome.stdout + outcome.stderr


def test_code_fences_close() -> None:
    """Code blocks of the docs are closed, and the states are drawn once."""
    for page in PAGES:
        assert page.read_text("utf-8").count("```") % 2 == 0, page.name
    assert (ROOT / "docs" / "pages.md").read_text("utf-8").count("stateDiagram-v2") == 1


def test_layout_page_names_each_module() -> None:
    """The page on the layout names every module of the package."""
    text = (ROOT / "docs" / "layout.md").read_text("utf-8")
    package = ROOT / "chainapi"
    declared = ("groups", "formats", "simulator", "cli", "_tooling")  # named as folders
    modules = {path.name for path in package.rglob("*.py") if path.parent.name not in declared}
    records = {
        path.name for path in (package / "models").glob("*.py") if "(Record)" in path.read_text("utf-8")
    }
    missing = {name for name in modules - records if not name.startswith("_") and name not in text}
    assert missing == set(), "add a line for each to the tree of docs/layout.md"


def test_docstrings_open_with_a_term() -> None:
    """The first line of each docstring fits into 80 characters and opens with no question word."""
    wrong = list[str]()
    for path in (ROOT / "chainapi").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                first = (ast.get_docstring(node) or "").partition("\n")[0]
                if len(first) > 80 or first.startswith(("What ", "Who ", "How ", "Where ", "From ")):
                    wrong.append(f"{path}: {first}")
    assert wrong == []


def test_docstrings_name_everything_once() -> None:
    """A section of a docstring names no argument, attribute or error twice."""
    twice = list[str]()
    for path in (ROOT / "chainapi").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                for section in re.findall(
                    r"^(?:Attributes|Args|Raises):\n(?:    .*\n?)+",
                    ast.get_docstring(node) or "",
                    re.MULTILINE,
                ):
                    names = re.findall(r"^    ([\w*]+):", section, re.MULTILINE)
                    twice += [f"{path}: {name}" for name in {*names} if names.count(name) > 1]
    assert twice == []


def test_the_page_on_exports_names_each_format() -> None:
    """The docs name every file format, and the command line offers each."""
    text = (ROOT / "docs" / "export.md").read_text("utf-8")
    assert [name for name in FORMATS if f"`.{name}`" not in text] == [], "add each to docs/export.md"
    assert get_args(FileFormat) == FORMATS, "FileFormat in chainapi/cli/export.py lists the formats"


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text("utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_links_lead_somewhere() -> None:
    """Links of the docs lead to a file that exists and to a heading in it."""
    for page in PAGES:
        for target, anchor in re.findall(r"\]\((?!https?:)([^)#]*)(?:#([^)]+))?\)", page.read_text("utf-8")):
            path = page.parent / target if target else page
            assert path.exists(), f"{page.name}: {target}"
            assert not anchor or anchor in anchors(path), f"{page.name}: {target}#{anchor}"


def test_readme_links_each_page() -> None:
    """The README has a link to each page of the docs."""
    text = (ROOT / "README.md").read_text("utf-8")
    missing = {page.name for page in PAGES[1:] if f"](docs/{page.name})" not in text}
    assert missing == set()


def test_first_program_reaches_the_public_services(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first program of the README with the line in its comment reads the public services, keyless."""
    monkeypatch.delenv("CHAINAPI_API_KEY", raising=False)
    program = BLOCK.findall((ROOT / "README.md").read_text("utf-8"))[0]
    [(line, instead)] = re.findall(r"^(services = .*# .*: (services = .*))$", program, re.MULTILINE)
    recorder = Recorder({"results": [{"timestamp": 86_400, "value": 1.5}], "nextPageToken": ""})
    given = {"recorder": recorder, "__name__": "docs"}
    exec(program.replace(line, f"{instead}\nservices['transport'] = recorder"), given)
    assert recorder.places == ["https://metrics.avax.network/v2/chains/43114/metrics/avgTps"]
    assert not [name for request in recorder.requests for name in request.headers if "key" in name]


def test_readme_has_one_command_each() -> None:
    """The README has one line each for "Run it" and "Test it".

    The line also sets up the environment.
    """
    text = (ROOT / "README.md").read_text("utf-8")
    for title, commands in (("Run it", 1), ("Test it", 1)):
        section = text.split(f"\n## {title}\n")[1].split("\n## ")[0]
        found = re.findall(r"^```sh\n(.*?)^```$", section, re.DOTALL | re.MULTILINE)
        assert len(found) == 1
        assert len(found[0].splitlines()) == commands

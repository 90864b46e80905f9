"""Docs: Python blocks and commands of README and docs/ run on a simulator."""

from __future__ import annotations

import ast
import inspect
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

from chainapi import LimiterOptions, Session, errors
from chainapi.models import evm as _loaded  # noqa: F401 - pytester forgets modules that its tests load
from chainapi.simulator import Simulator
from chainapi.transport import AiohttpTransport
from tests.cli.recorder import Recorder
from tests.cli.terminal import chainapi
from tests.cli.terminal import environment as addresses
from tests.served import served
from tests.tiers import public_names

__all__ = ["addresses"]  # a fixture

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)
COMMANDS = re.compile(r"^```sh\n(.*?)^```$", re.DOTALL | re.MULTILINE)
PICTURES = ("docs/recording.py", "docs/rate_limits.py")
PROGRAM = re.compile(r"^    run\(|^run\(|asyncio\.(run|Runner)\(|chainapi\.run\(", re.MULTILINE)
SECTION = re.compile(r"^(?:Attributes|Args|Raises):\n(?:    .*\n?)+", re.MULTILINE)


def blocks() -> list[tuple[str, str]]:
    """Return each Python block with its page and line."""
    found: list[tuple[str, str]] = []
    for page in PAGES:
        text = page.read_text("utf-8")
        for match in BLOCK.finditer(text):
            line = text[: match.start()].count("\n") + 2
            found.append((f"{page.relative_to(ROOT)}:{line}", match[1]))
    return found


@pytest.fixture(scope="module")
def variables() -> Iterator[dict[str, str]]:
    """Serve a simulator on a port for all blocks, and return the variables that point to it."""
    with served(Simulator(seed=1)) as variables:
        yield variables


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Work in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CHAINAPI_SHARE_DIR", str(tmp_path / "share"))
    return tmp_path


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("place", "code"),
    [pytest.param(*block, id=block[0]) for block in blocks() if "def test_" not in block[1]],
)
def test_block_runs(
    variables: dict[str, str],
    place: str,
    code: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Python blocks of the docs run as files against a simulator on a port; programs print something."""
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    program = PROGRAM.search(code) is not None
    exec(compile(code, place, "exec", dont_inherit=True), {"__name__": "__main__" if program else "docs"})
    if program:
        printed = capsys.readouterr()
        assert printed.out
        assert printed.err == ""


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
    with served(Simulator(seed=1)) as variables, monkeypatch.context() as patch:
        for name, value in variables.items():
            patch.setenv(name, value)
        pytester.runpytest_subprocess("--chainapi-record=once").assert_outcomes(passed=tests)
    pytester.runpytest_subprocess().assert_outcomes(passed=tests)


def run_commands(page: str) -> tuple[str, str]:
    """Run the commands of a page in order; return what they printed, and their messages.

    Those of chainapi run in this process on one simulator in memory, the others in a shell.
    """
    transport, out, err = Simulator(seed=1, rows=120, points=120).transport(), "", ""
    text = "".join(COMMANDS.findall((ROOT / "docs" / page).read_text("utf-8")))
    for command in text.replace("\\\n", " ").splitlines():
        words = shlex.split(command)
        if words[0] != "chainapi":
            subprocess.run(["sh", "-ec", command], check=True)
            continue
        outcome = chainapi(*words[1:], transport=transport)
        assert outcome.code == 0, f"{command}: {outcome.err}"
        out, err = out + outcome.out, err + outcome.err
    return out, err


@pytest.mark.usefixtures("addresses")
def test_export_commands_run(folder: Path) -> None:
    """Export commands of the docs run in order in an empty folder, with their results."""
    _, errors = run_commands("export.md")
    fetched = [int(rows) for rows in re.findall(r"(\d+) new rows of", errors)]
    assert fetched == [240, 360, 240, 240, 200, 120, 120, 100, 100]
    files = ["blocks.parquet", "newest.parquet", "blocks.jsonl", "transfers.parquet", "gas.csv"]
    files += ["packed.parquet"]
    made = {name for file in files for name in (file, f"{file}.log")}
    assert {path.name for path in folder.iterdir()} == {*made, "chains.txt", "utxos", "days", "daily"}


@pytest.mark.usefixtures("addresses")
def test_chart_commands_run(folder: Path) -> None:
    """Chart commands of the docs run in order in an empty folder, and draw what those before them fetched."""
    output, _ = run_commands("plots.md")
    for title in ("average TPS", "tps.parquet: value", "blocks.csv: gas_used", "Gas of the C-Chain"):
        assert title in output
    for picture in ("tps.png", "fees.png"):
        assert (folder / picture).read_bytes().startswith(b"\x89PNG")


@pytest.mark.proof
@pytest.mark.parametrize("script", PICTURES)
def test_pictures_are_up_to_date(script: str) -> None:
    """Recorded terminals and runs in the docs equal the output of the code."""
    outcome = subprocess.run(
        [sys.executable, str(ROOT / script), "--check"], capture_output=True, text=True, check=False
    )
    assert outcome.returncode == 0, outcome.stdout + outcome.stderr


def test_code_fences_close() -> None:
    """Code blocks of the docs are closed."""
    for page in PAGES:
        assert page.read_text("utf-8").count("```") % 2 == 0, page.name


def statements(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield a module and its statements at any depth: `ast.walk` takes five times as long."""
    yield tree
    for inner in ast.iter_child_nodes(tree):
        if isinstance(inner, ast.stmt | ast.excepthandler | ast.match_case):
            yield from statements(inner)


def test_docstrings_open_with_a_term_and_name_everything_once() -> None:
    """Docstrings open with a short line that is no question; no section names an argument or error twice."""
    wrong = list[str]()
    for path in (ROOT / "chainapi").rglob("*.py"):
        for node in statements(ast.parse(path.read_text("utf-8"))):
            if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            text = ast.get_docstring(node) or ""
            first = text.partition("\n")[0]
            if len(first) > 80 or first.startswith(("What ", "Who ", "How ", "Where ", "From ")):
                wrong.append(f"{path}: {first}")
            for section in SECTION.findall(text):
                names = re.findall(r"^    ([\w*]+):", section, re.MULTILINE)
                wrong += [f"{path}: {name} twice" for name in {*names} if names.count(name) > 1]
    assert wrong == []


@pytest.mark.usefixtures("addresses")
def test_the_page_on_exports_names_each_format() -> None:
    """The docs name every file format that exports know, and the command line offers each."""
    text, page = chainapi("export", "--help").out, (ROOT / "docs" / "export.md").read_text("utf-8")
    offered = re.search(r"--format.*?\[choices: (.*?)\]", text.replace("│", " "), re.DOTALL)
    assert offered is not None
    formats = offered[1].replace("\n", " ").replace(" ", "").split(",")
    refused = chainapi("export", "data.evm.blocks", "43114", "--out", "blocks.exe")
    assert f"choose one of {', '.join(formats)};" in refused.err
    assert [name for name in formats if f"`.{name}`" not in page] == [], "add each to docs/export.md"


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text("utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_public_names_are_on_one_page() -> None:
    """The page of public names lists what each public module exports, and nothing else."""
    names = public_names()
    assert {*names} >= {
        "chainapi",
        "chainapi.errors",
        "chainapi.events",
        "chainapi.export",
        "chainapi.simulator",
    }
    assert names == {module: {*import_module(module).__all__} - {"__version__"} for module in names}


def test_options_are_on_one_page() -> None:
    """The page of options names each argument of a session, and of what some of them take."""
    page = (ROOT / "docs" / "options.md").read_text("utf-8")
    rows = re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE)
    assert rows == [name for name in inspect.signature(Session).parameters if name != "unknown"]
    inner = {*inspect.signature(LimiterOptions).parameters, *inspect.signature(AiohttpTransport).parameters}
    assert [name for name in inner if f"`{name}`" not in page] == []


def test_errors_are_on_one_page() -> None:
    """The page of errors says of each error when it comes, and what to do."""
    rows = re.findall(
        r"^\| (`\w+Error`.*?) \|", (ROOT / "docs" / "errors.md").read_text("utf-8"), re.MULTILINE
    )
    assert sorted(re.findall(r"\w+", "".join(rows))) == sorted({*errors.__all__} - {"ChainAPIError"})


def test_links_lead_somewhere() -> None:
    """Links of the docs lead to a file that exists and to a heading in it."""
    for page in PAGES:
        for target, anchor in re.findall(r"\]\((?!https?:)([^)#]*)(?:#([^)]+))?\)", page.read_text("utf-8")):
            path = page.parent / target if target else page
            assert path.exists(), f"{page.name}: {target}"
            assert not anchor or anchor in anchors(path), f"{page.name}: {target}#{anchor}"


def test_readme_links_each_page() -> None:
    """The README has a link to each page of the docs; the site's first page includes it."""
    text = (ROOT / "README.md").read_text("utf-8")
    missing = {
        page.name for page in PAGES[1:] if page.name != "index.md" and f"](docs/{page.name})" not in text
    }
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

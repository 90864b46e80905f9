"""The program: its process, signals, pipes, and the packages that it needs."""

from __future__ import annotations

import asyncio
import io
import json
import os
import re
import signal
import sys
from typing import Any, cast

import attrs
import pytest

from chainapi import Session, __version__
from chainapi.__main__ import main
from chainapi.simulator import Simulator
from chainapi.transport import Request, Response
from tests.cli.terminal import (
    ADDRESSES,
    BLOCKS,
    INTERRUPTED,
    INTERRUPTIBLE,
    PIPE_CLOSED,
    WRONG_USAGE,
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
from tests.served import served


@pytest.mark.adapter
def test_the_program_serves_and_is_served(monkeypatch: pytest.MonkeyPatch) -> None:
    """Variables that `simulate` prints lead ``tps`` to it; Ctrl-C ends it silently."""
    process = start(*INTERRUPTIBLE, "simulate", "--port", "0", "--seed", "1")
    expected = chainapi("tps", "43114", "--limit", "3")
    try:
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in ADDRESSES]
        variables = dict(line.rstrip().split("=", 1) for line in lines)
        assert list(variables) == list(ADDRESSES)
        assert all(variables[name].startswith("http://127.0.0.1:") for name in list(ADDRESSES)[:2])
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        command = ("tps", "43114", "--limit", "3")
        outcome = chainapi(*command, session=Session, loop_factory=asyncio.new_event_loop)
    finally:
        process.send_signal(signal.SIGINT)
        ended = finish(process)
    assert ended == Outcome(INTERRUPTED, "", "")
    assert outcome == expected


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
PROOF = pytest.mark.proof
RAISED = "signal.raise_signal(signal.SIGINT)"


@pytest.mark.adapter
@pytest.mark.parametrize(
    ("loads", "interrupt"),
    [
        (30, "type('Made', (), {'name': Interrupting()})"),
        *(pytest.param(loads, RAISED, marks=PROOF) for loads in (1, 30, 300)),
        *(pytest.param(loads, "pass", marks=PROOF) for loads in (1, 150)),  # from outside
    ],
)
def test_interrupt_while_modules_load_is_silent(loads: int, interrupt: str) -> None:
    """Ctrl-C while modules load exits with 130 and no traceback, even amid another exception."""
    process = start("-c", EARLY.format(loads, interrupt))
    assert process.stdout is not None
    assert process.stdout.readline() == "now\n"
    if interrupt == "pass":
        process.send_signal(signal.SIGINT)
    outcome = finish(process)
    assert (outcome.code, outcome.err) == (INTERRUPTED, "")


@pytest.mark.adapter
def test_interrupt_during_a_wait_ends_with_advice() -> None:
    """Ctrl-C in a wait for quota exits with 130 and prints the command that continues."""
    with served(Simulator(limit=2, window=30.0)) as variables:
        process = start(*INTERRUPTIBLE, "list", BLOCKS, "--limit", "50", **variables)
        assert process.stderr is not None
        message = process.stderr.readline()
        process.send_signal(signal.SIGINT)
        outcome = finish(process)
    assert re.fullmatch(r"chainapi: data: rate limit reached, next request in \d+ s\n", message)
    assert (outcome.code, len(outcome.rows)) == (INTERRUPTED, 20)
    (advice,) = outcome.err.splitlines()
    assert advice.startswith("chainapi: 20 rows so far; to continue: chainapi list " + BLOCKS)


@pytest.mark.proof
def test_interrupt_of_several_walks_is_silent() -> None:
    """Ctrl-C while several chains wait ends with 130 and no traceback."""
    with served(Simulator(metrics_limit=1, metrics_window=600.0)) as variables:
        process = start(*INTERRUPTIBLE, "tps", "43114", "53935", "--all", **variables)
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(signal.SIGINT)
        outcome = finish(process)
    assert outcome.code == INTERRUPTED
    assert all(line.startswith("chainapi: metrics: rate limit reached") for line in outcome.err.splitlines())


@pytest.mark.proof
@pytest.mark.parametrize("command", [["tps", "43114", "53935", "--all"], ["list", BLOCKS, "--all"]])
def test_closed_pipe_ends_the_command_in_silence(command: list[str]) -> None:
    """A reader that closes early, as ``head``, gets no traceback and no report."""
    with served(Simulator(points=3_000, rows=3_000)) as variables:
        process = start("-m", "chainapi", *command, **variables)
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())
        process.stdout.close()
        assert process.stderr is not None
        assert process.stderr.read() == ""
        assert process.wait(timeout=60) == PIPE_CLOSED
        process.stderr.close()


@pytest.mark.adapter
def test_package_imports_nothing_of_the_command_line() -> None:
    """`Session` imports no command line, plot, terminal, server or simulator."""
    outcome = finish(start("-c", "import sys; from chainapi import Session; print(*sys.modules)"))
    loaded = set(outcome.out.split())
    assert "chainapi.session" in loaded
    unwanted = {"aiohttp.web", "chainapi.cli", "chainapi.simulator", "cyclopts", "plotext", "rich"}
    assert not loaded & unwanted


# In this process


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
            outcome = chainapi("list", BLOCKS, transport=Interrupted(500, {}), out=io.StringIO(), err=err)
            assert os.read(master, 100) == b"\x1b[?25h"
    finally:
        os.close(master)
        assert signal.signal(signal.SIGINT, before) is signal.default_int_handler
    assert (outcome.code, ended) == (INTERRUPTED, [INTERRUPTED])


def test_interrupt_outside_of_the_loop_has_its_exit_code() -> None:
    """Ctrl-C during the help exits with 130."""
    assert chainapi("--help", out=Broken(KeyboardInterrupt())).code == INTERRUPTED


@attrs.frozen
class Blocker:
    """Importer that finds no module of this name."""

    module: str

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        """Fail."""
        if name == self.module:
            raise ModuleNotFoundError(f"no {name}", name=name)


def without_the_command_line(monkeypatch: pytest.MonkeyPatch, module: str, command: str) -> None:
    """Make a module missing, and have `main` load the command line again."""
    for name in [*sys.modules]:
        if any(name == one or name.startswith(f"{one}.") for one in ("chainapi.cli", module)):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "meta_path", [Blocker(module), *sys.meta_path])
    monkeypatch.delattr("chainapi.cli")  # the package has its loaded modules as attributes
    monkeypatch.setattr(sys, "argv", ["chainapi", command])


@pytest.mark.parametrize("module", ["cyclopts", "rich"])
def test_missing_extra_is_one_line(
    module: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A missing extra is one error line with the package to install."""
    without_the_command_line(monkeypatch, module, "--help")
    assert main() == WRONG_USAGE
    said = f"chainapi: {module} is not installed: pip install 'chainapi[cli]'\n"
    assert capsys.readouterr() == ("", said)


@pytest.mark.parametrize("module", ["chainapi.cli.terminal", "chainapi.cli.demo"])
def test_broken_installation_is_not_taken_for_a_missing_extra(
    module: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A missing module of chainapi itself is an error of its own."""
    without_the_command_line(monkeypatch, module, "demo")
    with pytest.raises(ModuleNotFoundError, match=module):
        main()


def test_main_reads_the_arguments(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The console script takes its arguments and streams from the process; closed streams are no error."""
    monkeypatch.setattr(sys, "argv", ["chainapi", "--version"])
    assert main() == 0
    assert capsys.readouterr().out == __version__ + "\n"
    monkeypatch.setattr(sys, "stdout", None)
    monkeypatch.setattr(sys, "stderr", None)
    assert main() == 0
    monkeypatch.setattr(sys, "argv", ["chainapi", "dance"])
    assert main() == WRONG_USAGE


def test_main_drops_what_a_closed_pipe_does_not_take(monkeypatch: pytest.MonkeyPatch) -> None:
    """`main` empties the buffer that the interpreter could not write at exit."""
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as out:
        monkeypatch.setattr(sys, "stdout", out)
        monkeypatch.setattr(sys, "argv", ["chainapi", "--help"])
        assert main() == PIPE_CLOSED
        out.flush()


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
        transport = Fixed(200, {"rows": [row]})
        assert chainapi("list", "/v1/rows", *options, transport=transport, streams=True).code == 0
        return cast("io.BytesIO", out.buffer).getvalue().decode(encoding)

    row = {"city": "Zürich ₿", "long": "x" * 50}
    assert plain(printed())[1].startswith(shown)
    assert json.loads(printed("--json")) == row


# The demonstration


def figures(lines: list[str]) -> dict[str, list[str]]:
    """Return the figures of the last table of the demonstration, of the loop and of chainapi."""
    found = [re.split(r"  +", line.strip()) for line in lines]
    return {name: values for name, *values in found if len(values) == 2}


@pytest.mark.adapter
@pytest.mark.parametrize("tty", [False, True])
def test_demo_reads_the_same_lists_with_a_loop_and_with_chainapi(tty: bool) -> None:
    """The demo reads all rows twice; only the loop sends requests during a wait."""
    # The waits are jumped over: the sockets are in this process and never keep the loop waiting.
    outcome = chainapi("demo", tty=tty, session=Session)
    assert outcome.code == 0
    found = figures(plain(outcome.out))
    assert found["lists read"] == ["6 of 6", "6 of 6"]
    assert found["rows"] == ["6,000", "6,000"]
    refused = [int(one) for one in found["refused with 429"]]
    assert 1 <= refused[1] < refused[0]
    assert [int(one) for one in found["requests"]] == [60 + refused[0], 60 + refused[1]]
    loop, own = map(int, found["sent during a wait"])
    assert loop > own == 0
    assert f"the loop sent {loop} requests" in " ".join(outcome.out.split())

"""Command line in tests: in this process, by default on a simulator in memory, or in a process of its own."""

from __future__ import annotations

import asyncio
import io
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, TextIO

import pytest
from attrs import evolve, frozen

from chainapi import Session
from chainapi.cli import FAILED, INTERRUPTED, PARTLY, PIPE_CLOSED, TERMINATED, WRONG_USAGE, run
from chainapi.cli.terminal import Terminal, standard
from chainapi.simulator import Simulator
from chainapi.testing import VirtualLoop
from chainapi.transport import Transport
from tests.sessions import Answering

__all__ = [
    "ADDRESSES",
    "BLOCKS",
    "FAILED",
    "INTERRUPTED",
    "INTERRUPTIBLE",
    "PARTLY",
    "PIPE_CLOSED",
    "TERMINATED",
    "WRONG_USAGE",
    "Broken",
    "Fixed",
    "Outcome",
    "Stream",
    "chainapi",
    "environment",
    "finish",
    "plain",
    "simulate",
    "start",
]

BLOCKS = "/v1/chains/43114/blocks"
ADDRESSES = {
    "CHAINAPI_METRICS_BASE_URL": "https://simulator.invalid/metrics",
    "CHAINAPI_DATA_BASE_URL": "https://simulator.invalid/data",
    "CHAINAPI_API_KEY": "simulated-key",
}


class Stream(io.StringIO):
    """Output stream of a program: a terminal or not."""

    def __init__(self, *, terminal: bool) -> None:
        super().__init__()
        self._terminal = terminal

    def isatty(self) -> bool:
        """Return whether the stream is a terminal."""
        return self._terminal


class Broken(io.StringIO):
    """Stream that refuses all writes."""

    def __init__(self, error: BaseException) -> None:
        super().__init__()
        self._error = error

    def write(self, text: str) -> int:
        """Fail."""
        raise self._error


class Fixed(Answering):
    """A transport with one constant response, of a JSON value or a text, which keeps the requests."""

    def __init__(self, status: int, body: object) -> None:
        text = body if isinstance(body, str) else json.dumps(body)
        super().__init__(text.encode(), status, headers={"content-type": "application/json"})

    @property
    def asked(self) -> list[str]:
        """Service, path and query of each request."""
        return [request.url.removeprefix("https://simulator.invalid/") for request in self.requests]


@frozen
class Outcome:
    """Exit code and output of a command."""

    code: int
    out: str
    err: str

    @property
    def rows(self) -> list[Any]:
        """JSON lines of standard output, decoded."""
        return [json.loads(line) for line in self.out.splitlines()]


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set the variables of a session and of a terminal with 100 columns."""
    for name, value in {**ADDRESSES, "COLUMNS": "100", "TERM": "xterm"}.items():
        monkeypatch.setenv(name, value)
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)


def chainapi(
    *tokens: str,
    transport: Transport | None = None,
    tty: bool = False,
    at: float = 0.0,
    out: TextIO | None = None,
    err: TextIO | None = None,
    loop_factory: Callable[[], asyncio.AbstractEventLoop] | None = None,
    streams: bool = False,
    **settings: Any,
) -> Outcome:
    """Run a command in this process, by default in virtual time and against a simulator in memory.

    `out` and `err` replace streams in memory, `streams` takes those of the process, and `settings` are other
    parts of the terminal.
    """
    given = {"session": partial(Session, transport=transport or Simulator(seed=1).transport()), **settings}
    terminal = Terminal(out or Stream(terminal=tty), err or Stream(terminal=tty), **given)
    if streams:
        terminal = evolve(standard(), **given)
    code = run(tokens, terminal=terminal, loop_factory=loop_factory or (lambda: VirtualLoop(at)))
    texts = (one.getvalue() if isinstance(one, io.StringIO) else "" for one in (terminal.out, terminal.err))
    return Outcome(code, *texts)


def simulate(visit: Callable[[dict[str, str]], Awaitable[None]], *options: str) -> None:
    """Run ``chainapi simulate`` in this process until `visit`, called with its variables, returns."""
    out, visits = Stream(terminal=False), list[asyncio.Task[None]]()

    async def visited() -> None:
        while "CHAINAPI_API_KEY=" not in out.getvalue():  # noqa: ASYNC110 - a stream has no event
            await asyncio.sleep(0)
        try:
            await visit(dict(shlex.split(line)[0].split("=", 1) for line in out.getvalue().splitlines()))
        finally:
            for task in asyncio.all_tasks() - {asyncio.current_task()}:
                task.cancel()

    def loop() -> asyncio.AbstractEventLoop:
        made = asyncio.new_event_loop()
        made.call_soon(lambda: visits.append(made.create_task(visited())))
        return made

    outcome = chainapi("simulate", "--port", "0", *options, out=out, loop_factory=loop)
    for made in visits:
        made.result()
    assert (outcome.code, outcome.err) == (TERMINATED, "")


def start(*arguments: str, **variables: str) -> subprocess.Popen[str]:
    """Start a Python process."""
    return subprocess.Popen(
        [sys.executable, "-W", "error", *arguments],
        env={**os.environ, **variables},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(process: subprocess.Popen[str]) -> Outcome:
    """Wait for the end of a process."""
    try:
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
        process.wait()
    return Outcome(process.returncode, out, err)


# Where the tests themselves run without SIGINT, in the background of a script, a process would inherit that.
INTERRUPTIBLE_MAIN = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
from chainapi.__main__ import main
sys.exit(main())
"""
INTERRUPTIBLE = ("-c", INTERRUPTIBLE_MAIN)


def plain(text: str) -> list[str]:
    """Return the lines on the screen at the end, without those that were erased."""
    lines, row = [""], 0
    for part in re.split(r"(\x1b\[[0-9;?]*[A-Za-z]|[\r\n])", text):
        if part == "\n":
            row += 1
            lines += [""] * (row == len(lines))
        elif part == "\x1b[1A":
            row -= 1
        elif part == "\x1b[2K":
            lines[row] = ""
        elif not part.startswith(("\x1b", "\r")):
            lines[row] += part
    return [line.rstrip() for line in "\n".join(lines).rstrip().splitlines()]

"""Command line in tests: in this process with a simulator in memory, or outside."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
from functools import partial
from typing import Any

import pytest
from attrs import frozen

from chainapi import Session
from chainapi.cli import run
from chainapi.cli.terminal import Terminal
from chainapi.simulator import Simulator
from chainapi.testing import VirtualLoop
from chainapi.transport import Request, Response, Transport

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

    def __init__(self, error: OSError) -> None:
        super().__init__()
        self._error = error

    def write(self, text: str) -> int:
        """Fail."""
        raise self._error


class Fixed:
    """A transport with one constant response."""

    def __init__(self, status: int, body: object) -> None:
        self._response = Response(status, {"content-type": "application/json"}, json.dumps(body).encode())

    async def send(self, request: Request) -> Response:
        """Answer."""
        return self._response

    async def aclose(self) -> None:
        """Close nothing: no resource is open."""


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


def chainapi(*tokens: str, transport: Transport | None = None, tty: bool = False, at: float = 0.0) -> Outcome:
    """Run a command in this process, in virtual time, against a simulator in memory."""
    out, err = Stream(terminal=tty), Stream(terminal=tty)
    session = partial(Session, transport=transport or Simulator(seed=1).transport())
    code = run(tokens, terminal=Terminal(out, err, session), loop_factory=lambda: VirtualLoop(at))
    return Outcome(code, out.getvalue(), err.getvalue())


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

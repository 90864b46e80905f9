"""`chainapi.run`: a session for a script, closed in the end, with a clean Ctrl-C."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
from typing import Any

import pytest

import chainapi
from chainapi import Session
from chainapi.errors import ConfigurationError, SessionClosedError
from chainapi.simulator import Simulator
from chainapi.testing import VirtualLoop


def settings(simulator: Simulator) -> dict[str, Any]:
    """Return the arguments of a session that reaches the simulator in memory."""
    return {
        "data_base_url": simulator.data_base_url,
        "api_key": simulator.api_key,
        "transport": simulator.transport(),
    }


def test_run_returns_the_result() -> None:
    """`run` opens the session, returns what the function returns, and closes the session behind it."""
    kept: list[Session] = []

    async def main(session: Session) -> int:
        kept.append(session)
        return len(await session.data.evm.blocks(43114).collect(limit=150))

    assert chainapi.run(main, loop_factory=VirtualLoop, **settings(Simulator())) == 150

    async def after() -> None:
        with pytest.raises(SessionClosedError):
            await kept[0].data.chains().first()

    asyncio.run(after())


def test_the_collector_runs_rarely_meanwhile() -> None:
    """The garbage collector has higher thresholds while a program runs, unless they were higher before."""

    async def thresholds(_: Session) -> tuple[int, int, int]:
        return gc.get_threshold()

    before = gc.get_threshold()
    try:
        for own, meanwhile in (((700, 10, 10), (50_000, 20, 100)), ((90_000, 5, 5), (90_000, 5, 5))):
            gc.set_threshold(*own)
            assert chainapi.run(thresholds, **Simulator().arguments()) == meanwhile
            assert gc.get_threshold() == own
    finally:
        gc.set_threshold(*before)


async def test_a_running_loop_is_refused_with_advice() -> None:
    """Inside a running loop, as in a notebook, `run` raises and says to await."""

    async def main(session: Session) -> None:
        raise AssertionError

    with pytest.raises(ConfigurationError, match=r"notebook.*await"):
        chainapi.run(main)


def test_wrong_arguments_are_refused() -> None:
    """What is no async function of a session, or an unknown argument of the session, raises at once."""

    async def main(session: Session | None = None) -> None:
        raise AssertionError

    coroutine: Any = main()
    with pytest.raises(ConfigurationError, match=r"not run\(main\(\)\)"):
        chainapi.run(coroutine)
    coroutine.close()
    with pytest.raises(ConfigurationError, match="max_atempts"):
        chainapi.run(main, max_atempts=3)

    async def lonely() -> None:
        raise AssertionError

    wrong: list[Any] = [lonely, print_nothing]
    for function in wrong:
        with pytest.raises(ConfigurationError, match=r"write `async def main\(session\)`"):
            chainapi.run(function, **settings(Simulator()))


def print_nothing(_: Session) -> None:
    """Return nothing, and no coroutine."""


def test_errors_of_the_function_pass() -> None:
    """An error of the function passes unchanged."""

    async def main(session: Session) -> None:
        raise LookupError("mine")

    with pytest.raises(LookupError, match="mine"):
        chainapi.run(main, **settings(Simulator()))


PROGRAM = """
import asyncio, os, signal, chainapi
signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job ignores it
async def main(session):
    asyncio.get_running_loop().call_later(0.05, os.kill, os.getpid(), signal.SIGINT)
    try:
        await asyncio.sleep(60)
    finally:
        print("closed", session.connection.closed)
chainapi.run(main, data_base_url="https://x.test", api_key="k")
"""


@pytest.mark.adapter
@pytest.mark.program
def test_an_interrupt_ends_the_program_cleanly() -> None:
    """Ctrl-C runs the `finally` blocks, prints no traceback and exits with 130."""
    ended = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, "closed False\n", "")

"""Whole programs that use sessions: warnings, silence, forks and signals."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import textwrap

import pytest

from chainapi.simulator import Simulator

pytestmark = [pytest.mark.adapter, pytest.mark.real_time, pytest.mark.program]


PROGRAM = """
import asyncio, gc, sys
from chainapi import Session
from chainapi.simulator import Simulator

async def main():
    # A busy machine is slow, and development mode would say so.
    asyncio.get_running_loop().slow_callback_duration = 60
    async with Simulator(points=250, limit=1, window=3600) as sim:
        {body}

asyncio.run(main())
print("done")
"""


def program(body: str, *options: str) -> subprocess.CompletedProcess[str]:
    """Run a program that has a simulator `sim` on a port, in a process of its own."""
    indented = textwrap.indent(textwrap.dedent(body), " " * 8).strip()
    return subprocess.run(
        [sys.executable, *options, "-c", PROGRAM.format(body=indented)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


CLEAN = """
    async with Session(metrics_base_url=sim.metrics_base_url) as session:
        assert len(await session.metrics.avg_tps(43114).collect()) == 250
        async for row in session.metrics.avg_tps(43114).items():
            break
        async for page in session.metrics.avg_tps(43114):
            break
    try:
        async with Session(metrics_base_url=sim.metrics_base_url) as session:
            async for row in session.metrics.avg_tps(43114).items():
                raise LookupError
    except LookupError:
        pass
    session = Session(metrics_base_url=sim.metrics_base_url)
    rows = session.metrics.avg_tps(43114).items()
    await anext(rows)
    await session.aclose()
    Session(metrics_base_url=sim.metrics_base_url)
    async with Session(data_base_url=sim.data_base_url, api_key=sim.api_key) as session:
        tasks = [asyncio.create_task(session.data.get("/v1/chains/43114")) for _ in range(5)]
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
"""


def test_clean_programs_make_no_noise() -> None:
    """However streams and sessions are left, development mode with warnings as errors prints nothing."""
    done = program(CLEAN, "-X", "dev", "-W", "error")
    assert (done.returncode, done.stderr, done.stdout) == (0, "", "done\n")


proof = pytest.mark.proof


@pytest.mark.parametrize(
    ("after", "development"),
    [
        ("", True),
        pytest.param("", False, marks=proof),
        *(
            pytest.param(after, development, marks=proof)
            for after in (
                "del session, rows; gc.collect(); await asyncio.sleep(0.01)",
                "sys.modules['kept'] = session",
            )
            for development in (False, True)
        ),
    ],
)
def test_session_that_is_never_closed_costs_one_warning(after: str, development: bool) -> None:
    """A session never closed is closed with its loop, with one ResourceWarning in development mode."""
    body = f"""
        session = Session(metrics_base_url=sim.metrics_base_url)
        rows = session.metrics.avg_tps(43114).items()
        await anext(rows)
        {after}
    """
    done = program(body, *(["-X", "dev"] if development else []))
    assert (done.returncode, done.stdout) == (0, "done\n")
    assert done.stderr.count("ResourceWarning: ") == development, done.stderr
    assert ("a Session was not closed" in done.stderr) == development
    assert "Traceback" not in done.stderr
    assert "nclosed" not in done.stderr


@proof
def test_unclosed_session_is_one_line_where_warnings_are_errors() -> None:
    """An unclosed session prints one line where warnings are errors, as nobody can catch an error there."""
    body = """
        session = Session(metrics_base_url=sim.metrics_base_url)
        await anext(session.metrics.avg_tps(43114))
    """
    done = program(body, "-W", "error")
    assert (done.returncode, done.stdout) == (0, "done\n")
    (line,) = done.stderr.splitlines()
    assert "ResourceWarning: a Session was not closed: use async with, or aclose()" in line


@proof
async def test_fork_that_ends_leaves_the_session_of_its_parent_alone() -> None:
    """A forked child that ends closes nothing of its parent's, and prints nothing."""
    source = """
        import asyncio, os, sys
        from chainapi import Session

        session = Session(metrics_base_url=sys.argv[1])
        pages = session.metrics.avg_tps(43114)
        loop = asyncio.new_event_loop()
        read = pages.__anext__
        loop.run_until_complete(read())
        child = os.fork()
        if not child:
            sys.exit()
        assert os.waitpid(child, 0)[1] == 0
        loop.run_until_complete(read())
        loop.run_until_complete(session.aclose())
        loop.close()
    """
    async with Simulator(points=1_000) as simulator:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", textwrap.dedent(source), simulator.metrics_base_url),
            stderr=asyncio.subprocess.PIPE,
        )
        _, errors = await asyncio.wait_for(process.communicate(), 60)
    assert (process.returncode, errors) == (0, b"")


@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=proof)])
def test_signal_during_a_wait_ends_the_program(number: signal.Signals) -> None:
    """Ctrl-C or SIGTERM ends a program that waits an hour for quota."""
    body = """
        async with Session(data_base_url=sim.data_base_url, api_key=sim.api_key) as session:
            await session.data.get("/v1/chains/43114")
            waiting = asyncio.create_task(session.data.get("/v1/chains/43114"))
            while not session.data.quota.waiting and not sim.stats.refused:
                await asyncio.sleep(0.01)
            print("waiting", flush=True)
            await waiting
    """
    # A job that a shell runs in the background ignores Ctrl-C, and so do its children.
    heeds = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
    source = heeds + PROGRAM.format(body=textwrap.indent(textwrap.dedent(body), " " * 8).strip())
    command = [sys.executable, "-c", source]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "waiting\n"
            process.send_signal(number)
            _, errors = process.communicate(timeout=30)
        finally:
            process.kill()  # if it did not end, the test would wait for it
    assert process.returncode in (-number, 130, 1)
    assert errors.rstrip().endswith("KeyboardInterrupt") == (number == signal.SIGINT)

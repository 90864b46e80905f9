"""Carrier between the processes of one machine: real processes that are killed, stopped and forked."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest
from attrs import define

pytestmark = [
    pytest.mark.real_time,
    pytest.mark.skipif(sys.platform == "win32", reason="Windows has neither these signals nor fork"),
]

PATIENT, IMPATIENT = "60", "0.05"  # seconds of a tick: a host that is silent is replaced after 7 of them
LONGEST = 30  # seconds that a step may take on a busy machine


@define(eq=False)
class Other:
    """Another process."""

    process: asyncio.subprocess.Process
    hosts: bool = False

    @property
    def pid(self) -> int:
        """Number of the process."""
        return self.process.pid

    async def line(self) -> str:
        """Return the next line that it writes."""
        assert self.process.stdout is not None
        line = await asyncio.wait_for(self.process.stdout.readline(), LONGEST)
        return line.decode().strip()

    async def hosted_by(self) -> int:
        """Wait until a host answers it, and return the number of the host."""
        while (line := await self.line()) == "hosts":
            self.hosts = True
        assert line.startswith("hosted by "), line
        return int(line.removeprefix("hosted by "))

    async def fork(self) -> int:
        """Let it fork a child, and return the number of the child."""
        assert self.process.stdin is not None
        self.process.stdin.write(b"f")
        line = await self.line()
        assert line.startswith("forked "), line
        return int(line.removeprefix("forked "))

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal."""
        self.process.send_signal(number)


@asynccontextmanager
async def started(directory: Path, tick: str, *options: str) -> AsyncIterator[Other]:
    """Run a process; at the end it is not there any more, nor are its children."""
    pipe = asyncio.subprocess.PIPE
    command = [sys.executable, "-m", f"{__package__}.process", str(directory), tick, *options]
    process = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe)
    try:
        yield Other(process)
    finally:
        if process.returncode is None:
            process.kill()
        assert process.stdin is not None
        process.stdin.close()  # its children end
        await process.communicate()


@asynccontextmanager
async def many(directory: Path, count: int, tick: str, *options: str) -> AsyncIterator[list[Other]]:
    """Run some processes at the same time."""
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(started(directory, tick, *options)) for _ in range(count)]


async def elected(processes: list[Other]) -> Other:
    """Wait until all have the same host, and return it."""
    numbers = [await process.hosted_by() for process in processes]
    assert len(set(numbers)) == 1
    host = next(process for process in processes if process.pid == numbers[0])
    assert [process for process in processes if process.hosts] == [host]
    return host


@pytest.mark.parametrize("options", [(), ("--tcp",)], ids=["unix", "tcp"])
async def test_a_killed_host_is_replaced(options: tuple[str, ...], directory: Path) -> None:
    """Of four processes one becomes the host; whenever it is killed, one of the others does."""
    loop = asyncio.get_running_loop()
    async with many(directory, 4, PATIENT, *options) as processes:
        host = await elected(processes)
        while len(processes) > 1:
            began = loop.time()
            host.signal(signal.SIGKILL)
            processes.remove(host)
            host = await elected(processes)
            print(f"hosted again after {(loop.time() - began) * 1000:.0f} ms")


async def test_a_stopped_host_is_replaced(directory: Path) -> None:
    """A host that is stopped loses its place, and finds its successor when it continues."""
    async with many(directory, 3, IMPATIENT) as processes:
        host = await elected(processes)
        others = [process for process in processes if process is not host]
        host.signal(signal.SIGSTOP)
        successor = await elected(others)
        host.signal(signal.SIGCONT)
        assert await host.hosted_by() == successor.pid


async def test_a_forked_child_keeps_nothing(directory: Path) -> None:
    """A killed host is replaced although a child that it forked lives."""
    async with many(directory, 2, PATIENT) as processes:
        host = await elected(processes)
        child = await host.fork()
        host.signal(signal.SIGKILL)
        processes.remove(host)
        assert (await elected(processes)).hosts
        os.kill(child, 0)  # it lived all the time

"""Members of a shared quota, which do what a test says: in the loop of the test, or in a process each.

`python -m tests.share.members` imports the package and then forks a process for each line of its input, so
that a process costs a few milliseconds. Each takes commands as lines of JSON from a Unix socket of the test,
and lives until that is closed.
"""

from __future__ import annotations

import asyncio
import atexit
import gc
import json
import os
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any, Protocol, TypeAlias

from attrs import define, field

from chainapi import LimiterOptions, Session
from chainapi.errors import ChainAPIError
from chainapi.share.redis import RedisCarrier
from chainapi.simulator import Simulator

__all__ = ["PATH", "Member", "Outcome", "ProcessMember", "Processes", "Worker"]

PATH = "/v1/chains/43114"
_control: list[int] = []  # the socket by which this process gets its commands
Outcome: TypeAlias = tuple[str, float | None]  # "ok" or the name of an error, and its `retry_after`


class Member(Protocol):
    """Member of a shared quota."""

    async def get(self, calls: int = 1, path: str = PATH, rounds: int = 1, **options: Any) -> list[Outcome]:
        """Make some calls at once, with options of `Session.with_options`; return their outcomes.

        Each call is made `rounds` times, one after the other; the last outcome counts.
        """
        ...

    async def quota(self) -> dict[str, Any]:
        """Return what the session shows of the quota."""
        ...

    async def cancel(self) -> None:
        """Cancel the calls under way."""
        ...

    async def close(self) -> dict[str, int]:
        """Close the session; return how many tasks and sockets are left."""
        ...

    async def kill(self) -> None:
        """End the member without a word."""
        ...


def opened(limiter: dict[str, Any] | None = None, **arguments: Any) -> Session:
    """Return a session with these options of its limiter, which a process gets as JSON."""
    return Session(limiter=LimiterOptions(**limiter or {}), **arguments)


@define(eq=False)
class Worker:
    """Session that carries out what a `Member` offers."""

    session: Session
    _calls: set[asyncio.Task[Outcome]] = field(factory=set[asyncio.Task[Outcome]])

    async def get(self, calls: int = 1, path: str = PATH, rounds: int = 1, **options: Any) -> list[Outcome]:
        """See `Member.get`."""
        tasks = [asyncio.create_task(self._call(path, options, rounds)) for _ in range(calls)]
        self._calls.update(tasks)
        try:
            return await asyncio.gather(*tasks)
        finally:
            self._calls.difference_update(tasks)

    async def _call(self, path: str, options: dict[str, Any], rounds: int = 1) -> Outcome:
        view = self.session.with_options(**options)
        try:
            for _ in range(rounds):
                await view.data.get(path)
        except asyncio.CancelledError:
            return "CancelledError", None
        except ChainAPIError as error:
            return type(error).__name__, getattr(error, "retry_after", None)
        return "ok", None

    async def quota(self) -> dict[str, Any]:
        """See `Member.quota`."""
        shown = self.session.quota["data"]
        tags: dict[str, int] = {}
        for one in shown.spenders:
            if one.requests:
                tags[one.tag] = tags.get(one.tag, 0) + round(one.units)
        names = ("limit", "remaining", "waiting", "in_flight", "stopped_for")
        return {"tags": tags, **{name: getattr(shown, name) for name in names}}

    async def cancel(self) -> None:
        """See `Member.cancel`."""
        tasks = list(self._calls)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def close(self) -> dict[str, int]:
        """See `Member.close`."""
        mine = asyncio.current_task()
        await self.session.aclose()
        await asyncio.sleep(0)
        tasks = [task for task in asyncio.all_tasks() if task is not mine]
        return {"tasks": len(tasks), "sockets": _sockets()}

    async def fork(self) -> tuple[str, int]:
        """Fork a child that tries a call and then sleeps; return the outcome and its number."""
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            self._live_on(writing)
        os.close(writing)
        outcome = await asyncio.to_thread(os.read, reading, 100)
        os.close(reading)
        return outcome.decode(), child

    def _live_on(self, writing: int) -> None:
        """Try a call in this child, report its outcome, and sleep."""
        os.close(_control[0])
        asyncio.events._set_running_loop(None)
        outcome, _ = asyncio.run(self._call(PATH, {}))
        os.write(writing, outcome.encode())
        time.sleep(60.0)
        os._exit(0)


def _sockets() -> int:
    """Return how many sockets this process has open."""
    found = 0
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208 - gone before it could be asked as a path
        with suppress(OSError):
            found += stat.S_ISSOCK(os.fstat(int(name)).st_mode)
    return found


# --- in a process of its own --------------------------------------------------------------------


async def _live(place: str, number: int, arguments: dict[str, Any]) -> None:
    """Be a member until the test closes the socket."""
    reader, writer = await asyncio.open_unix_connection(place)
    writer.write(json.dumps([number, os.getpid()]).encode() + b"\n")
    _control.append(writer.get_extra_info("socket").fileno())
    worker, idle = Worker(opened(**arguments)), {"tasks": len(asyncio.all_tasks()), "sockets": _sockets()}
    tasks = set[asyncio.Task[None]]()

    async def carry_out(call: int, what: str, options: dict[str, Any]) -> None:
        result = await getattr(worker, what)(**options)
        if what == "close":
            result = {name: result[name] - idle[name] for name in idle}
        writer.write(json.dumps([call, result]).encode() + b"\n")

    while line := await reader.readline():
        task = asyncio.create_task(carry_out(*json.loads(line)))
        tasks.add(task)
        task.add_done_callback(tasks.discard)
    os._exit(0)


async def _import_all() -> None:
    """Import what members need, also at their first calls."""
    RedisCarrier("redis://127.0.0.1:1")
    with tempfile.TemporaryDirectory(prefix="warm") as folder:
        os.environ["CHAINAPI_SHARE_DIR"] = str(Path(folder, "chainapi"))
        async with Simulator() as sim:
            worker = Worker(Session(data_base_url=sim.data_base_url, api_key=sim.api_key, share=True))
            await worker.get()
            await worker.quota()
            await worker.session.aclose()


def _reap(*_: object) -> None:
    """Wait for the processes that ended, which counts their time as ours."""
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def main() -> None:
    """Fork a process for each line of the standard input."""
    asyncio.run(_import_all())
    gc.freeze()
    signal.signal(signal.SIGCHLD, _reap)
    for line in sys.stdin:
        place, number, variables, arguments = json.loads(line)
        if os.fork() == 0:
            sys.stdin.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            os.environ.update(variables)
            asyncio.run(_live(place, number, arguments))
    _reap()


@cache
def _forking() -> subprocess.Popen[bytes]:
    """Return the program that forks the processes of this test run; it ends with its input."""
    program = subprocess.Popen([sys.executable, "-m", __name__], stdin=subprocess.PIPE)

    def end() -> None:
        with suppress(OSError):
            program.communicate()

    atexit.register(end)
    return program


@define(eq=False)
class ProcessMember:
    """Member in a process of its own; see `Member`."""

    pid: int
    _reader: asyncio.StreamReader
    _writer: asyncio.StreamWriter
    _results: dict[int, asyncio.Future[Any]] = field(factory=dict[int, "asyncio.Future[Any]"])
    _numbers: count[int] = field(factory=count)
    _reading: asyncio.Task[None] = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._reading = asyncio.create_task(self._read())

    async def _read(self) -> None:
        """Take results until the process has ended."""
        with suppress(ConnectionError):
            while line := await self._reader.readline():
                call, result = json.loads(line)
                self._results.pop(call).set_result(result)
        for future in self._results.values():
            future.cancel()

    async def _do(self, what: str, **options: Any) -> Any:
        call = next(self._numbers)
        self._results[call] = asyncio.get_running_loop().create_future()
        self._writer.write(json.dumps([call, what, options]).encode() + b"\n")
        return await self._results[call]

    async def get(self, calls: int = 1, path: str = PATH, rounds: int = 1, **options: Any) -> list[Outcome]:
        """See `Member.get`."""
        outcomes = await self._do("get", calls=calls, path=path, rounds=rounds, **options)
        return [(name, again) for name, again in outcomes]

    async def quota(self) -> dict[str, Any]:
        """See `Member.quota`."""
        shown: dict[str, Any] = await self._do("quota")
        return shown

    async def cancel(self) -> None:
        """See `Member.cancel`."""
        await self._do("cancel")

    async def close(self) -> dict[str, int]:
        """See `Member.close`."""
        left: dict[str, int] = await self._do("close")
        if self._results:  # of calls that the close has ended
            await asyncio.wait(self._results.values(), timeout=5.0)
        await self.kill()
        return left

    async def fork(self) -> tuple[str, int]:
        """See `Worker.fork`."""
        outcome, child = await self._do("fork")
        return outcome, child

    def freeze(self) -> None:
        """Suspend the process."""
        os.kill(self.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        """Let a suspended process continue."""
        os.kill(self.pid, signal.SIGCONT)

    async def kill(self) -> None:
        """See `Member.kill`; without effect on a process that has ended."""
        if not self._reading.done():
            os.kill(self.pid, signal.SIGKILL)
        await asyncio.wait([self._reading])
        self._writer.close()


@define(eq=False)
class Processes:
    """Processes that a test starts."""

    _place: str
    _variables: dict[str, str]
    members: list[ProcessMember] = field(factory=list[ProcessMember])
    _arrivals: dict[int, asyncio.Future[ProcessMember]] = field(
        factory=dict[int, "asyncio.Future[ProcessMember]"]
    )
    _numbers: count[int] = field(factory=count)

    @classmethod
    @asynccontextmanager
    async def started(cls, **variables: str) -> AsyncIterator[Processes]:
        """Start none yet; at the end, kill those that live. `variables` are those of their environment."""
        with tempfile.TemporaryDirectory(prefix="members") as folder:
            processes = cls(str(Path(folder, "socket")), variables)
            server = await asyncio.start_unix_server(processes._arrived, processes._place)
            try:
                yield processes
            finally:
                for member in processes.members:
                    await member.kill()
                server.close()
                await server.wait_closed()

    async def _arrived(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        number, pid = json.loads(await reader.readline())
        self._arrivals.pop(number).set_result(ProcessMember(pid, reader, writer))

    async def start(self, directory: str = "", **arguments: Any) -> ProcessMember:
        """Start a process that has a session with these arguments.

        It meets others in a directory, if that is given.
        """
        variables = {**self._variables, **({"CHAINAPI_SHARE_DIR": directory} if directory else {})}
        number, program = next(self._numbers), _forking()
        arrival = self._arrivals[number] = asyncio.get_running_loop().create_future()
        assert program.stdin is not None
        program.stdin.write(json.dumps([self._place, number, variables, arguments]).encode() + b"\n")
        program.stdin.flush()
        self.members.append(await arrival)
        return self.members[-1]


if __name__ == "__main__":
    main()

"""Processes that use one key: how they share its quota, and what that costs.

`python -m tests.bench.processes` runs eight processes of eight tasks each against one simulated service, once
for each way to share: 600 requests in 10 seconds, a round trip of 50 ms, 2,400 requests, so 30 seconds at
best. The time is real, because processes cannot share a virtual clock: one run takes half a minute.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from attrs import define, field

from chainapi import Limit, Session
from chainapi.errors import ChainAPIError
from chainapi.simulator import Simulator
from tests.share.redis.server import RedisServer

PROCESSES, TASKS = 8, 8
LIMIT, WINDOW, ROUND_TRIP = 600, 10.0, 0.05
REQUESTS = 2_400


# --- a worker: one of the processes ---------------------------------------------------------------


def options(way: str, place: str, api_key: str) -> dict[str, Any]:
    """Return the arguments of a session for a way to share."""
    if way == "a gate each":
        return {}
    if way == "a static eighth each":
        return {"rate": Limit(LIMIT / PROCESSES, per=WINDOW)}
    if way == "local":
        return {"share": True}
    from chainapi.share.redis import RedisCarrier

    return {"share": RedisCarrier(place, secret=api_key.encode())}


async def work(
    way: str, place: str, base: str, api_key: str, tasks_each: str, timeout: str = "30", blocked: str = "3"
) -> None:
    """Fetch one resource again and again with some tasks, until the process is told to end.

    The signal SIGUSR1 blocks its loop for `blocked` seconds.
    """
    logging.basicConfig(stream=sys.stdout, format="log %(message)s")
    ended, loop, sockets = asyncio.Event(), asyncio.get_running_loop(), open_sockets()
    loop.add_signal_handler(signal.SIGTERM, ended.set)
    loop.add_signal_handler(signal.SIGUSR1, time.sleep, float(blocked))
    answered = [loop.time()] * int(tasks_each)
    arguments = options(way, place, api_key)
    async with Session(data_base_url=base, api_key=api_key, timeout=float(timeout), **arguments) as session:

        async def fetch(number: int) -> None:
            while True:
                try:
                    await session.data.get("/v1/chains/43114")
                except ChainAPIError as error:
                    print("failed", repr(error), flush=True)
                    await asyncio.sleep(0.1)
                else:
                    answered[number] = loop.time()

        began = time.process_time()
        tasks = [asyncio.create_task(fetch(number)) for number in range(int(tasks_each))]
        while not ended.is_set():
            print("silent", loop.time() - min(answered), flush=True)
            with suppress(TimeoutError):
                await asyncio.wait_for(ended.wait(), 1.0)
        print("cpu", time.process_time() - began, flush=True)
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        for task in tasks:
            if not task.cancelled() and task.exception() is not None:
                print("failed", repr(task.exception()), flush=True)
    await asyncio.sleep(0.05)  # the transports close their sockets
    if open_sockets() > sockets:
        print("failed to close", open_sockets() - sockets, "sockets", flush=True)


def open_sockets(process: int | str = "self") -> int:
    """Return how many sockets a process has open."""
    found = 0
    for path in Path(f"/proc/{process}/fd").iterdir():
        with suppress(FileNotFoundError):  # the one of this listing
            found += str(path.readlink()).startswith("socket:")
    return found


# --- the job --------------------------------------------------------------------------------------


@define
class Worker:
    """Process of a job, and what it printed.

    Attributes:
        silent: longest time in seconds for which one of its tasks had no answer.
        heard: time of the loop at which the process printed last.

    """

    process: asyncio.subprocess.Process
    killed: bool = False
    cpu: float = 0.0
    silent: float = 0.0
    heard: float = field(factory=lambda: asyncio.get_running_loop().time())
    reader: asyncio.Task[None] | None = None
    failures: list[str] = field(factory=list[str])
    warnings: list[str] = field(factory=list[str])

    async def read(self) -> None:
        """Read what the process prints."""
        assert self.process.stdout is not None
        async for line in self.process.stdout:
            self.heard = asyncio.get_running_loop().time()
            if not line.endswith(b"\n"):  # it was killed
                return
            word, _, rest = line.decode().strip().partition(" ")
            if word == "cpu":
                self.cpu = float(rest)
            elif word == "silent":
                self.silent = max(self.silent, float(rest))
            elif word == "log":
                self.warnings.append(rest)
            else:
                self.failures.append(line.decode().strip())

    def kill(self) -> None:
        """End the process at once."""
        self.killed = True
        self.process.kill()


@define
class Outcome:
    """Outcome of a job."""

    seconds: float
    refusals: int
    sent_in_stops: int
    cpu: float  # microseconds a request, of all processes together
    failures: list[str]

    def row(self, way: str) -> str:
        """Return a row of the table."""
        return (
            f"| {way} | {self.seconds:.1f} s | {self.refusals} | {self.sent_in_stops} | {self.cpu:,.0f} |"
            + "".join(f"\n{failure}" for failure in self.failures)
        )


async def start(
    way: str, place: str, sim: Simulator, tasks: int, directory: str, *settings: object
) -> Worker:
    """Start one process, which meets others in a directory; `settings` are the last arguments of `work`."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.bench.processes", "work", way, place, sim.data_base_url, sim.api_key),
        *map(str, (tasks, *settings)),
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "CHAINAPI_SHARE_DIR": directory},
    )
    worker = Worker(process)
    worker.reader = asyncio.create_task(worker.read())
    return worker


Event = tuple[float, str]  # seconds after the first response, and "participant", "host" or "redis"


async def job(
    way: str,
    place: str,
    events: Sequence[Event] = (),
    restart: Callable[[], Any] | None = None,
    processes: int = PROCESSES,
) -> Outcome:
    """Run the job once."""
    sim = Simulator(limit=LIMIT, window=WINDOW, latency=ROUND_TRIP)
    with tempfile.TemporaryDirectory() as folder:
        async with sim:
            machines = processes if way == "redis" else 1  # over Redis each process has a machine of its own
            directories = [f"{folder}/{number % machines}" for number in range(processes)]
            tasks = PROCESSES * TASKS // processes
            workers = [await start(way, place, sim, tasks, directory) for directory in directories]
            hosts = Hosts(directories[:machines] if way in ("local", "redis") else [])
            try:
                return await _run(sim, workers, list(events), restart, hosts)
            finally:
                for worker in workers:
                    with suppress(ProcessLookupError):
                        worker.process.kill()
                    await worker.process.wait()


@define
class Hosts:
    """Host processes of machines, each with its directory."""

    directories: list[str]
    cpu: float = 0.0  # seconds of those that were killed

    def used(self) -> float:
        """Return the seconds of CPU that all hosts have used."""
        return self.cpu + sum(self._about(process)[0] for process in self.processes())

    def kill(self) -> None:
        """Kill the host process that is the oldest: over Redis it has most likely been elected."""
        oldest = min(self.processes(), key=lambda process: self._about(process)[1])
        self.cpu += self._about(oldest)[0]
        os.kill(oldest, signal.SIGKILL)

    def processes(self) -> list[int]:
        """Return the ids of the hosts that live."""
        locks = [Path(one, "host.lock") for one in self.directories]
        found = [int(lock.read_text("ascii")) for lock in locks if lock.exists()]
        return [process for process in found if lives(process)]

    def _about(self, process: int) -> tuple[float, int]:
        """Return the seconds of CPU that a process has used, and when it began."""
        return cpu_of(process), int(_status(process)[19])


def cpu_of(process: int) -> float:
    """Return the seconds of CPU that a process has used."""
    return (int(_status(process)[11]) + int(_status(process)[12])) / os.sysconf("SC_CLK_TCK")


def lives(process: int) -> bool:
    """Return whether a process has not ended; its parent may not know yet."""
    with suppress(OSError):
        return _status(process)[0] != "Z"
    return False


def _status(process: int) -> list[str]:
    return Path(f"/proc/{process}/stat").read_text("ascii").rpartition(")")[2].split()


async def _run(
    sim: Simulator,
    workers: list[Worker],
    events: list[Event],
    restart: Callable[[], Any] | None,
    hosts: Hosts,
) -> Outcome:
    while not sim.stats.answered[200]:  # noqa: ASYNC110 - other processes change it
        await asyncio.sleep(0.005)
    began = time.monotonic()
    while sim.stats.answered[200] < REQUESTS:
        await asyncio.sleep(0.01)
        if events and time.monotonic() - began >= events[0][0]:
            _, kind = events.pop(0)
            if kind == "redis":
                assert restart is not None
                await restart()
            elif kind == "host":
                hosts.kill()
            else:
                next(one for one in workers if not one.killed).kill()
    seconds, stats, cpu = time.monotonic() - began, sim.stats, hosts.used()
    for worker in workers:
        with suppress(ProcessLookupError):
            worker.process.send_signal(signal.SIGTERM)
    for worker in workers:
        assert worker.reader is not None
        await asyncio.wait_for(worker.reader, 20)
    cpu += sum(worker.cpu for worker in workers)
    failures = [failure for worker in workers for failure in worker.failures]
    answered = sum(stats.answered.values())
    return Outcome(seconds, stats.answered[429], stats.sent_while_stopped, 1e6 * cpu / answered, failures)


@asynccontextmanager
async def delayed(host: str, port: int, seconds: float) -> AsyncIterator[int]:
    """Run a proxy on loopback that delays each way by `seconds`, and return its port."""
    loop = asyncio.get_running_loop()

    async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while data := await reader.read(65_536):
                loop.call_later(seconds, writer.write, data)
        loop.call_later(seconds, writer.close)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            far_reader, far_writer = await asyncio.open_connection(host, port)
            await asyncio.wait(
                [
                    asyncio.ensure_future(copy(reader, far_writer)),
                    asyncio.ensure_future(copy(far_reader, writer)),
                ]
            )

    server = await asyncio.start_server(serve, "127.0.0.1")
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


async def load(session: Session, requests: int) -> None:
    """Send requests from one worker of a cluster, with sixteen tasks."""
    left = requests

    async def fetch() -> None:
        nonlocal left
        while left > 0:
            left -= 1
            await session.data.get("/v1/chains/43114")

    await asyncio.gather(*(fetch() for _ in range(16)))


async def load_shared(requests: int) -> None:
    """Send requests through the gate of the scheduler."""
    import chainapi.dask

    await load(chainapi.dask.session(), requests)


async def load_alone(requests: int) -> None:
    """Send requests through a gate of the worker alone."""
    async with Session() as session:
        await load(session, requests)


async def cluster_job(*, shared: bool) -> Outcome:
    """Run the job on four workers of a Dask cluster, with or without the scheduler's gate."""
    import distributed

    import chainapi.dask

    async with Simulator(limit=LIMIT, window=WINDOW, latency=ROUND_TRIP) as sim:
        os.environ.update(sim.environment())
        async with (
            distributed.LocalCluster(
                n_workers=4, threads_per_worker=1, dashboard_address="127.0.0.1:0", asynchronous=True
            ) as cluster,
            distributed.Client(cluster, asynchronous=True) as client,
        ):
            if shared:
                await chainapi.dask.register(client)
            began = time.monotonic()
            tasks = client.map(load_shared if shared else load_alone, [REQUESTS // 4] * 4, pure=False)
            await client.gather(tasks)  # pyright: ignore[reportGeneralTypeIssues]
            seconds, stats = time.monotonic() - began, sim.stats
    return Outcome(seconds, stats.answered[429], stats.sent_while_stopped, 0.0, [])


async def report(only: Sequence[str]) -> None:
    """Print the table."""
    print("| way to share | time | 429s | sent in stops | CPU us a request |\n|---|---|---|---|---|")
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))

        async def show(name: str, way: str, place: str, events: Sequence[Event] = (), **rest: Any) -> None:
            if not only or any(word in name for word in only):
                print((await job(way, place, events, **rest)).row(name), flush=True)

        await show("one process of 64 tasks", "a gate each", "", processes=1)
        await show("a gate each", "a gate each", "")
        await show("a static eighth each", "a static eighth each", "")
        await show("local", "local", "")
        await show("local, two killed", "local", "", [(5.0, "participant"), (15.0, "participant")])
        hosts = [(5.0, "host"), (15.0, "host")]
        await show("local, host killed twice", "local", "", hosts)
        server = await asyncio.to_thread(RedisServer(folder).start)
        stack.callback(server.stop)
        port = await stack.enter_async_context(delayed("127.0.0.1", server.port, 0.001))
        away = f"redis://127.0.0.1:{port}"

        async def restart() -> None:
            server.stop()
            await asyncio.to_thread(server.start)

        await show("Redis, 2 ms away", "redis", f"{away}/0")
        await show("Redis, two killed", "redis", f"{away}/1", [(5.0, "participant"), (15.0, "participant")])
        await show("Redis, host killed twice", "redis", f"{away}/2", hosts)
        await show("Redis, restarted", "redis", f"{away}/3", [(5.0, "redis")], restart=restart)
    for name, shared in (("Dask, a gate each", False), ("Dask", True)):
        if not only or any(word in name for word in only):
            print((await cluster_job(shared=shared)).row(name), flush=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["work"]:
        asyncio.run(work(*sys.argv[2:9]))
    else:
        os.environ.setdefault("PYTHONUNBUFFERED", "1")
        asyncio.run(report(sys.argv[1:]))

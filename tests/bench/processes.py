"""Processes that use one key: how they share its quota, and what that costs.

`python -m tests.bench.processes` runs eight processes of eight tasks each against one simulated service, once
for each way to share: 600 requests in 10 seconds, a round trip of 50 ms, 2,400 requests, so 30 seconds at
best. The time is real, because processes cannot share a virtual clock: one run takes half a minute.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

from attrs import define, field

from chainapi import Limit, Session
from chainapi.errors import ChainAPIError
from chainapi.simulator import Simulator
from tests.bench.figures import row
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


async def work(way: str, place: str, base: str, api_key: str, tasks_each: str) -> None:
    """Fetch one resource again and again with some tasks, until the process is told to end."""
    ended, loop, sockets = asyncio.Event(), asyncio.get_running_loop(), open_sockets()
    loop.add_signal_handler(signal.SIGTERM, ended.set)
    async with Session(data_base_url=base, api_key=api_key, **options(way, place, api_key)) as session:

        async def fetch() -> None:
            while True:
                try:
                    await session.data.get("/v1/chains/43114")
                except ChainAPIError as error:
                    print("failed", repr(error), flush=True)
                    await asyncio.sleep(0.1)

        began = time.process_time()
        tasks = [asyncio.create_task(fetch()) for _ in range(int(tasks_each))]
        await ended.wait()
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


def open_sockets() -> int:
    """Return how many sockets this process has open."""
    found = 0
    for path in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # the one of this listing
            found += str(path.readlink()).startswith("socket:")
    return found


# --- the job --------------------------------------------------------------------------------------


@define
class Worker:
    """Process of a job, and what it printed."""

    process: asyncio.subprocess.Process
    killed: bool = False
    cpu: float = 0.0
    reader: asyncio.Task[None] | None = None
    failures: list[str] = field(factory=list[str])

    async def read(self) -> None:
        """Read what the process prints."""
        assert self.process.stdout is not None
        async for line in self.process.stdout:
            if not line.endswith(b"\n"):  # it was killed
                return
            word, _, rest = line.decode().strip().partition(" ")
            if word == "cpu":
                self.cpu = float(rest)
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

    def show(self, way: str) -> None:
        """Print a row of the table, and the failures."""
        row(way, f"{self.seconds:.1f} s", self.refusals, self.sent_in_stops, f"{self.cpu:,.0f}")
        print(*self.failures, sep="\n", end="\n" if self.failures else "")


async def start(way: str, place: str, sim: Simulator, tasks: int, directory: str) -> Worker:
    """Start one process, which meets others in a directory."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.bench.processes", "work", way, place, sim.data_base_url, sim.api_key),
        str(tasks),
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
        return self.cpu + sum(map(_cpu, self._living()))

    def kill(self) -> None:
        """Kill the host process that is the oldest: over Redis it has most likely been elected."""
        oldest = min(self._living(), key=lambda host: int(host[19]))
        self.cpu += _cpu(oldest)
        os.kill(int(oldest[-1]), signal.SIGKILL)

    def _living(self) -> list[list[str]]:
        """Return the statuses of the hosts that live, each with its process at the end."""
        locks = [Path(one, "host.lock") for one in self.directories]
        found = [_status(lock.read_text("ascii")) for lock in locks if lock.exists()]
        return [status for status in found if status]


def _status(process: str) -> list[str]:
    with suppress(OSError):
        status = Path(f"/proc/{process}/stat").read_text("ascii").rpartition(")")[2].split()
        if status[0] != "Z":  # its parent does not know yet that it has ended
            return [*status, process]
    return []


def _cpu(status: list[str]) -> float:
    return (int(status[11]) + int(status[12])) / os.sysconf("SC_CLK_TCK")


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
        await worker.process.wait()
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


async def load(requests: int, *, shared: bool) -> None:
    """Send requests from one worker with sixteen tasks, through the gate of the scheduler or its own."""
    import chainapi.dask

    left = requests

    async def fetch(session: Session) -> None:
        nonlocal left
        while left > 0:
            left -= 1
            await session.data.get("/v1/chains/43114")

    async with nullcontext(chainapi.dask.session()) if shared else Session() as session:
        await asyncio.gather(*(fetch(session) for _ in range(16)))


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
            tasks = client.map(load, [REQUESTS // 4] * 4, shared=shared, pure=False)
            await client.gather(tasks)  # pyright: ignore[reportGeneralTypeIssues]
            seconds, stats = time.monotonic() - began, sim.stats
    return Outcome(seconds, stats.answered[429], stats.sent_while_stopped, 0.0, [])


async def report(only: Sequence[str]) -> None:
    """Print the table."""
    row("way to share", "time", "429s", "sent in stops", "CPU us a request", head=True)
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))

        async def show(name: str, way: str, place: str, events: Sequence[Event] = (), **rest: Any) -> None:
            if not only or any(word in name for word in only):
                (await job(way, place, events, **rest)).show(name)

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
            (await cluster_job(shared=shared)).show(name)


if __name__ == "__main__":
    if sys.argv[1:2] == ["work"]:
        asyncio.run(work(*sys.argv[2:7]))
    else:
        os.environ.setdefault("PYTHONUNBUFFERED", "1")
        asyncio.run(report(sys.argv[1:]))

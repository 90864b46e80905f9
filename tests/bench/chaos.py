"""What disturbs processes that share a quota on one machine, and what a short process costs.

`python -m tests.bench.chaos faults [SECONDS]` meets eight processes of eight tasks with one fault a second.
`hang`, `blocked` and `costs` print a table each. The time is real, as in `tests.bench.processes`.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from random import Random
from typing import TypeAlias

from attrs import define, field

from chainapi.simulator import Fault, Simulator
from tests.bench.processes import (
    LIMIT,
    PROCESSES,
    ROUND_TRIP,
    TASKS,
    WINDOW,
    Hosts,
    Worker,
    lives,
    open_sockets,
    start,
)

SECONDS, SEED = 600, 1
FAULTS = ("host killed", "host frozen", "member killed", "member ended", "member frozen", "member blocked")
HANG = 30.0  # seconds without an answer
PAUSE, FROZEN = 3.0, 5.0  # seconds of a member that does nothing, and of a host
KEPT = ("host.lock", "start.lock")  # files of a directory without a host, beside those of quotas
HOST_SOCKETS = 4  # of a host without a link: a listener, two of its loop, and one more of a link that begins
AWAY, AFTER, TIMEOUT = 12.0, 12.0, 5.0  # of a service that hangs, and of the requests to it
STRETCH = 5.0  # seconds of a blocked loop
HANGING = (
    ("one session of 64 tasks", "a gate each", 1),
    ("local, one process of 64 tasks", "local", 1),
    ("local, eight of eight", "local", PROCESSES),
)
Job: TypeAlias = tuple[Simulator, list[Worker]]
REPEATS = 10
SHORT = """
import asyncio
from chainapi import Session

async def main():
    async with Session(share={share}, data_base_url={base!r}, api_key={key!r}) as session:
        await session.data.get("/v1/chains/43114")

asyncio.run(main())
"""


@define(eq=False)
class Chaos:
    """Job that meets faults at random."""

    sim: Simulator
    directory: str
    members: list[Worker] = field(factory=list[Worker])
    ended: list[Worker] = field(factory=list[Worker])
    faults: Counter[str] = field(factory=Counter[str])
    frozen: set[str] = field(factory=set[str])  # ids of hosts
    hangs: list[str] = field(factory=list[str])
    _later: set[asyncio.Task[None]] = field(factory=set["asyncio.Task[None]"])

    async def run(self, seconds: int) -> None:
        """Have one fault a second."""
        random = Random(SEED)
        for _ in range(PROCESSES):
            await self.add()
        for _ in range(seconds):
            await asyncio.sleep(1.0)
            fault = random.choice(FAULTS)
            self.faults[fault] += 1
            await self.meet(fault, random.choice(self.members))
            self.find_hangs()
        await asyncio.sleep(FROZEN)
        sockets = max(map(open_sockets, self.hosts()), default=0)
        if sockets > HOST_SOCKETS + PROCESSES:
            self.hangs.append(f"the host has {sockets} sockets")
        for member in [*self.members]:
            self.end(member, signal.SIGTERM)
        await asyncio.wait(self._later)

    async def meet(self, fault: str, member: Worker) -> None:
        """Let a fault happen."""
        match fault:
            case "host killed":
                for host in self.hosts():
                    send(host, signal.SIGKILL)
            case "host frozen":
                for host in self.hosts():
                    self.frozen.add(str(host))
                    self.freeze(host, FROZEN)
            case "member frozen":
                self.freeze(member.process.pid, PAUSE)
            case "member blocked":
                if member.silent:  # it has begun, and handles the signal
                    send(member.process.pid, signal.SIGUSR1)
            case _:
                self.end(member, signal.SIGKILL if fault == "member killed" else signal.SIGTERM)
                await self.add()

    def hosts(self) -> list[int]:
        """Return the id of the host, if it lives."""
        return Hosts([self.directory]).processes()

    def find_hangs(self) -> None:
        """Record members that ended, print nothing, or have a task without an answer, for too long."""
        now = asyncio.get_running_loop().time()
        for one in self.members:
            silent = max(one.silent, now - one.heard)
            if silent > HANG or one.process.returncode is not None:
                self.hangs.append(f"process {one.process.pid}: {silent:.0f} s, {one.process.returncode}")
                one.silent, one.heard = 0.0, now

    async def add(self) -> None:
        """Start a member."""
        self.members.append(await start("local", "", self.sim, TASKS, self.directory))

    def end(self, member: Worker, number: signal.Signals) -> None:
        """End a member, and look later whether it did."""
        send(member.process.pid, number)
        self.members.remove(member)
        self.ended.append(member)
        self._do(self._await_end(member))

    def freeze(self, process: int, seconds: float) -> None:
        """Suspend a process for a while."""
        send(process, signal.SIGSTOP)
        self._do(_continue(process, seconds))

    def _do(self, what: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(what)
        self._later.add(task)
        task.add_done_callback(self._later.discard)

    async def _await_end(self, member: Worker) -> None:
        try:
            await asyncio.wait_for(member.process.wait(), HANG)
        except TimeoutError:
            self.hangs.append(f"process {member.process.pid} did not end")
            member.process.kill()


async def _continue(process: int, seconds: float) -> None:
    """Let a suspended process continue after a while."""
    await asyncio.sleep(seconds)
    if lives(process):
        send(process, signal.SIGCONT)


def send(process: int, number: signal.Signals) -> None:
    """Send a signal to a process, which may have ended."""
    with suppress(ProcessLookupError):
        os.kill(process, number)


async def report_faults(seconds: int) -> None:
    """Print what a job did that met faults, and what it left."""
    with tempfile.TemporaryDirectory() as folder:
        async with Simulator(limit=LIMIT, window=WINDOW, latency=ROUND_TRIP) as sim:
            job = Chaos(sim, f"{folder}/chaos")
            try:
                await job.run(seconds)
            finally:
                for one in job.members:
                    send(one.process.pid, signal.SIGKILL)
            began = time.monotonic()
            while job.hosts() and time.monotonic() < began + 90.0:  # noqa: ASYNC110 - other processes
                await asyncio.sleep(0.5)
        left = [*_left(folder)]
    hosts = job.faults["host killed"] + job.faults["host frozen"]
    stats, failures, warnings = sim.stats, Counter[str](), Counter[str]()
    for one in job.ended:
        failures.update(one.failures)
        for text in one.warnings:
            expected = "is replaced" in text and not job.frozen.isdisjoint(re.findall(r"\d+", text))
            warnings["a frozen host is replaced" if expected else text] += 1
    print(f"faults: {dict(job.faults)}\nanswered: {dict(stats.answered)} of {stats.requests}")
    print(f"sent in stops: {stats.sent_while_stopped}; hosts killed or frozen: {hosts}")
    print(f"longest time without an answer: {max(one.silent for one in job.ended):.1f} s")
    for name, lines in (("hangs", job.hangs), ("left", left), ("failures", failures), ("warnings", warnings)):
        print(f"{name}: {len(lines)}", *sorted(Counter(lines).items()), sep="\n  ")


def _left(folder: str) -> Iterator[str]:
    """Yield the processes, files and sockets that a job left."""
    for about in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if folder.encode() in (about / "cmdline").read_bytes() + (about / "environ").read_bytes():
                yield f"process {about.name}"
    for path in Path(folder).rglob("*.*"):
        if path.name not in KEPT and (path.suffix != ".quota" or path.name.startswith(".")):
            yield f"file {path.name}"
    for line in Path("/proc/net/unix").read_text("ascii").splitlines():
        if folder in line:
            yield f"socket {line}"


@asynccontextmanager
async def members(way: str, processes: int, *settings: object, limit: int = LIMIT) -> AsyncIterator[Job]:
    """Run a job of 64 tasks; its windows are short, so that each stretch of time has several of them."""
    with tempfile.TemporaryDirectory() as folder:
        async with Simulator(limit=limit // 10, window=WINDOW / 10, latency=ROUND_TRIP) as sim:
            tasks = PROCESSES * TASKS // processes
            found = [await start(way, "", sim, tasks, f"{folder}/bench", *settings) for _ in range(processes)]
            await asyncio.sleep(WINDOW)
            try:
                yield sim, found
            finally:
                for one in found:
                    one.process.terminate()
                    await one.process.wait()
                await end_hosts(f"{folder}/bench")


async def end_hosts(*directories: str) -> None:
    """End the hosts of some directories."""
    hosts = Hosts([*directories])
    for host in hosts.processes():
        send(host, signal.SIGTERM)
    while hosts.processes():  # noqa: ASYNC110 - other processes
        await asyncio.sleep(0.01)


async def answers(sim: Simulator, seconds: float) -> int:
    """Return how many requests are answered in a stretch of time."""
    before = sim.stats.answered[200]
    await asyncio.sleep(seconds)
    return sim.stats.answered[200] - before


async def report_hang() -> None:
    """Print how fast jobs come back after the service hung."""
    print(
        f"| way to share | answers in {AFTER:g} s before | in {AWAY:g} s of the hang | in {AFTER:g} s after |"
    )
    print("|---|---|---|---|")
    for name, way, processes in HANGING:
        async with members(way, processes, TIMEOUT) as (sim, _):
            before = await answers(sim, AFTER)
            sim.faults = (Fault(every=1, stall=True),)
            away = await answers(sim, AWAY)
            sim.faults = ()
            print(f"| {name} | {before} | {away} | {await answers(sim, AFTER)} |", flush=True)


async def report_blocked() -> None:
    """Print what the others lose while one of eight processes blocks its loop for five seconds."""
    print("| limit | answers | answers of the others | while one is blocked |\n|---|---|---|---|")
    for limit in (LIMIT, 100 * LIMIT):
        async with members("local", PROCESSES, TIMEOUT, STRETCH, limit=limit) as (sim, found):
            for _ in range(3):
                usual = await answers(sim, STRETCH)
                found[0].process.send_signal(signal.SIGUSR1)
                blocked = await answers(sim, STRETCH)
                await asyncio.sleep(STRETCH)
                others = usual * (PROCESSES - 1) // PROCESSES
                print(f"| {limit} | {usual} | {others} | {blocked} |", flush=True)


async def report_costs() -> None:
    """Print the wall time and the CPU of a process that makes one call."""
    print("| a process of one call | wall | CPU | CPU of the host |\n|---|---|---|---|")
    async with Simulator() as sim:
        with tempfile.TemporaryDirectory() as folder:
            await asyncio.to_thread(_short, sim, f"{folder}/kept", share=True)
            kept, new = f"{folder}/kept", [f"{folder}/{number}" for number in range(REPEATS)]
            kinds: dict[str, list[tuple[float, float, float]]] = {}
            for one in new:  # one of each kind, again and again: other processes of the machine disturb them
                for name, place in (("alone", ""), ("beside a host", kept), ("starts a host", one)):
                    taken = await asyncio.to_thread(_short, sim, place, share=bool(place))
                    kinds.setdefault(name, []).append(taken)
            for name, repeats in kinds.items():
                wall, cpu, host = map(min, zip(*repeats, strict=True))
                print(f"| {name} | {wall:.0f} ms | {cpu:.0f} ms | {host:.0f} ms |")
            await end_hosts(kept, *new)


def _short(sim: Simulator, directory: str, *, share: bool) -> tuple[float, float, float]:
    """Run a process of one call; return its milliseconds, its CPU, and the CPU of its host."""
    code = SHORT.format(share=share, base=sim.data_base_url, key=sim.api_key)
    hosts = Hosts([directory])
    cpu, began = hosts.used(), time.perf_counter()
    process = os.spawnve(
        os.P_NOWAIT,
        sys.executable,
        [sys.executable, "-c", code],
        {**os.environ, "CHAINAPI_SHARE_DIR": directory},
    )
    _, status, used = os.wait4(process, 0)
    wall = time.perf_counter() - began
    assert status == 0
    time.sleep(0.2)
    return 1e3 * wall, 1e3 * (used.ru_utime + used.ru_stime), 1e3 * (hosts.used() - cpu)


async def main(what: str = "faults", seconds: str = str(SECONDS)) -> None:
    """Measure one thing."""
    if what == "faults":
        await report_faults(int(seconds))
    else:
        await {"hang": report_hang, "blocked": report_blocked, "costs": report_costs}[what]()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))

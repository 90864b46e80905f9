"""Virtual loop: waits take no time, threads do, and a deadlock names its tasks."""

from __future__ import annotations

import asyncio
import threading

import pytest

from chainapi.testing import Clock, run


def test_waits_take_no_real_time() -> None:
    """A year of sleeping ends at once, and the clock shows it."""

    async def main() -> float:
        await asyncio.sleep(365 * 86_400.0)
        return Clock().now()

    assert run(main()) == 365 * 86_400.0


def test_timers_fire_in_order() -> None:
    """Timers fire by their times, whatever the order of their tasks."""
    fired: list[float] = []

    async def sleep(seconds: float) -> None:
        await asyncio.sleep(seconds)
        fired.append(Clock().now())

    async def main() -> None:
        await asyncio.gather(*(sleep(seconds) for seconds in (30.0, 10.0, 20.0)))

    run(main())
    assert fired == [10.0, 20.0, 30.0]


@pytest.mark.parametrize("in_thread", [asyncio.to_thread, None], ids=["to_thread", "executor"])
def test_no_time_passes_while_a_thread_works(in_thread: object) -> None:
    """A timer does not overtake a function in a thread of the loop."""
    release = threading.Event()

    async def main() -> tuple[bool, float]:
        asyncio.get_running_loop().call_later(1e6, release.set)  # would end the wait if time passed
        threading.Timer(0.02, release.set).start()
        if in_thread is None:
            found = await asyncio.get_running_loop().run_in_executor(None, release.wait)
        else:
            found = await asyncio.to_thread(release.wait)
        return found, Clock().now()

    assert run(main()) == (True, 0.0)


def test_loop_waits_for_a_thread_that_it_does_not_know() -> None:
    """A thread of another library may wake a loop without timers."""

    async def main() -> str:
        future = asyncio.get_running_loop().create_future()
        threading.Timer(
            0.02, asyncio.get_running_loop().call_soon_threadsafe, (future.set_result, "woken")
        ).start()
        result: str = await future
        return result

    assert run(main()) == "woken"


def test_deadlock_names_its_tasks() -> None:
    """Tasks that wait for ever raise RuntimeError with their names and lines."""

    async def stuck() -> None:
        await asyncio.get_running_loop().create_future()

    async def main() -> None:
        tasks = [asyncio.create_task(stuck(), name=f"reader {number}") for number in range(9)]
        await asyncio.wait(tasks)

    with pytest.raises(RuntimeError, match=r"deadlock: .*Task-\d+ at .*test_loops.py:\d+.*; \.\.\."):
        run(main())


def test_clock_begins_where_it_is_told() -> None:
    """start= is the time of the loop at its beginning; a jump adds to it."""

    async def main() -> tuple[float, float]:
        clock = Clock(epoch=1_000.0)
        clock.jump(2.5)
        return clock.now(), clock.wall()

    assert run(main(), start=7.0) == (9.5, 1_009.5)


async def test_clock_does_not_go_backwards() -> None:
    """A jump below 0 raises ValueError."""
    with pytest.raises(ValueError, match="backwards"):
        Clock().jump(-1.0)


def test_clock_of_another_loop_says_what_to_do() -> None:
    """The clock raises RuntimeError with the remedy in a loop that is not virtual."""

    async def main() -> None:
        Clock().now()

    with pytest.raises(RuntimeError, match="request the fixture chainapi_clock"):
        asyncio.run(main())

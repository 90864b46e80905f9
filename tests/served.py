"""Simulator on a port, in a thread, for code that runs a loop of its own in this process."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from chainapi.simulator import Simulator

__all__ = ["served"]


@contextmanager
def served(simulator: Simulator) -> Iterator[dict[str, str]]:
    """Serve a simulator in a thread; yield the variables that point to it."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        asyncio.run_coroutine_threadsafe(simulator.__aenter__(), loop).result(10)
        yield simulator.environment()
        asyncio.run_coroutine_threadsafe(simulator.__aexit__(None, None, None), loop).result(10)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()

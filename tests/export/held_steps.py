"""Steps of a thread that are held until the export that waits for them is cancelled."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any

import pytest
from attrs import field, frozen

__all__ = ["HeldStep"]


@frozen(eq=False)
class HeldStep:
    """Step of a thread that waits until `cancel` has cancelled its export."""

    _begun: threading.Event = field(factory=threading.Event, init=False)
    _go: threading.Event = field(factory=threading.Event, init=False)

    def wait(self) -> None:
        """Hold the step; called in its thread."""
        self._begun.set()
        assert self._go.wait(20)

    async def cancel(self, export: Coroutine[Any, Any, object]) -> None:
        """Run an export, cancel it during the step, and wait for its end."""
        run = asyncio.create_task(export)
        await asyncio.to_thread(self._begun.wait, 20)
        run.cancel()
        await asyncio.sleep(0)
        self._go.set()
        with pytest.raises(asyncio.CancelledError):
            await run

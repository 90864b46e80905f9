"""Event loop for sockets, whose clock jumps on command."""

from __future__ import annotations

import asyncio


class RealLoop(asyncio.SelectorEventLoop):
    """Loop for sockets on the machine's clock, plus the time it was set to skip."""

    def __init__(self) -> None:
        self._skipped = 0.0
        super().__init__()

    def time(self) -> float:
        """Return the time in seconds."""
        return super().time() + self._skipped

    def jump(self, seconds: float) -> None:
        """Let `seconds` pass at once: what was due meanwhile is due now."""
        self._skipped += seconds

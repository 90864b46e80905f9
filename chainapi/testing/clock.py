"""Clock of a test in virtual time."""

from __future__ import annotations

import asyncio

from attrs import frozen

from chainapi.testing.loops import VirtualLoop

__all__ = ["Clock"]


@frozen
class Clock:
    """Clock of a test whose event loop runs in virtual time.

    Attributes:
        epoch: Unix time in seconds at the beginning of the loop.

    """

    epoch: float = 1_767_225_600.0

    def now(self) -> float:
        """Return the virtual time in seconds since the loop began, to the microsecond.

        Raises RuntimeError outside of a virtual loop.
        """
        return round(_loop().time(), 6)  # each turn of the loop takes a nanosecond

    def wall(self) -> float:
        """Return the virtual time as Unix seconds; pass it to a session as ``now=``.

        Raises RuntimeError outside of a virtual loop.
        """
        return self.epoch + self.now()

    def jump(self, seconds: float) -> None:
        """Let seconds pass without running anything, as a suspended machine does.

        `asyncio.sleep` lets time pass while other tasks run. Raises RuntimeError outside of a virtual loop,
        ValueError below 0.
        """
        if not seconds >= 0:
            raise ValueError(f"the clock cannot go backwards by {seconds!r} seconds: give at least 0")
        _loop().jump(seconds)


def _loop() -> VirtualLoop:
    loop = asyncio.get_running_loop()
    if not isinstance(loop, VirtualLoop):
        raise RuntimeError(  # noqa: TRY004 - the caller gave no argument
            f"this code runs in a {type(loop).__name__}, not in virtual time: request the fixture"
            " chainapi_clock in the test itself (not with getfixturevalue), or use chainapi.testing.run"
        )
    return loop

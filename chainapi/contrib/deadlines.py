"""Deadline over several calls, such as the pages of a list in a web handler."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from chainapi.core.arguments import seconds_of
from chainapi.errors import DeadlineExceededError

__all__ = ["within"]


@asynccontextmanager
async def within(seconds: float) -> AsyncIterator[None]:
    """Deadline in seconds over all calls of a block.

    ``async with within(10.0): rows = await pages.collect(limit=1_000)``. It cancels what the block awaits, as
    `asyncio.timeout` does, whose plain TimeoutError a web framework answers with 500. Each call of the block
    keeps the deadline of its session or view.

    Raises:
        DeadlineExceededError: the block takes longer; a response 504 by `add_exception_handlers`.
        ConfigurationError: `seconds` is no positive number.

    """
    scope = asyncio.timeout(seconds_of("seconds", seconds))
    try:
        async with scope:
            yield
    except TimeoutError as error:
        if not scope.expired() or isinstance(error, DeadlineExceededError):
            raise  # an error of the block itself
        raise DeadlineExceededError(seconds, elapsed=seconds) from None

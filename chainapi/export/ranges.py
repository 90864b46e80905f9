"""Ranges of the sources of an export, and opening several sources at once."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Coroutine
from contextlib import aclosing
from typing import Any, TypeVar

from attrs import frozen

from chainapi._text import quoted
from chainapi.client.pages import Pages
from chainapi.client.split import Split, Widths
from chainapi.core.numbers import is_whole
from chainapi.errors import ArgumentError, ConfigurationError

__all__ = ["RangesOfSources", "ahead", "checked_ranges"]

T = TypeVar("T")


@frozen
class RangesOfSources:
    """Number of the ranges of each source, or their width (see `Pages.split`)."""

    ranges: int | None = None
    blocks: int | None = None
    days: float | None = None

    def of(self, pages: Pages[Any]) -> Split[Pages[Any]]:
        """Return the ranges of an unread list; nothing is sent.

        Raises:
            ConfigurationError: the list cannot be split.

        """
        return pages.split(self.ranges, blocks=self.blocks, days=self.days)


def checked_ranges(given: object, limit: int | None = None) -> RangesOfSources | None:
    """Return the argument ``ranges=``: their number, or the width of each as a string.

    Raises:
        ConfigurationError: it is neither, or there is a limit too.

    """
    if given is None:
        return None
    if limit is not None:
        raise ConfigurationError(
            "ranges= does not apply with a limit: its rows are the first ones of the list, which one walk"
            " fetches; leave one of them out"
        )
    try:
        made = _read(given)
        Widths(made.ranges, made.blocks, made.days)
    except (ArgumentError, ValueError):
        raise ArgumentError(
            f"ranges={quoted(given)} must be a number of ranges, such as 8, or the width of each, such as"
            " '100000 blocks' or '7 days'"
        ) from None
    return made


def _read(given: object) -> RangesOfSources:
    if is_whole(given):
        return RangesOfSources(given)
    match = _WORDS.fullmatch(given) if isinstance(given, str) else None
    if match is None:
        raise ValueError(given)
    number, unit = match.groups()
    if unit in ("d", "day", "days"):
        return RangesOfSources(days=float(number))
    return RangesOfSources(blocks=int(number)) if unit else RangesOfSources(int(number))


_WORDS = re.compile(r"([0-9]+(?:\.[0-9]+)?) ?(blocks?|days?|d)?", re.ASCII)


async def ahead(work: AsyncGenerator[Coroutine[Any, Any, T], None], count: int) -> AsyncGenerator[T, None]:
    """Run `count` coroutines at once, and yield their results in order.

    The next coroutine is taken only when there is room for it.

    Raises:
        Exception: the error of a coroutine, or of `work`; the others are cancelled.

    """
    tasks, room = asyncio.Queue[asyncio.Task[T] | None](), asyncio.Semaphore(count)
    begun: list[asyncio.Task[Any]] = []

    async def begin() -> None:
        try:
            async with aclosing(work):
                await room.acquire()
                async for one in work:
                    task = asyncio.create_task(one)
                    begun.append(task)
                    tasks.put_nowait(task)
                    await room.acquire()
        finally:
            tasks.put_nowait(None)

    beginning = asyncio.create_task(begin())
    try:
        while (task := await tasks.get()) is not None:
            result = await task
            begun.remove(task)
            yield result
            room.release()
        await beginning
    finally:
        left = [beginning, *begun]
        for one in left:
            one.cancel()
        await asyncio.gather(*left, return_exceptions=True)

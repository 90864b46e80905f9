"""Measurements spread over processes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from multiprocessing import current_process, get_context
from typing import TypeVar

__all__ = ["over_processes"]

A = TypeVar("A")
R = TypeVar("R")


def over_processes(function: Callable[[A], R], arguments: Iterable[A], processes: int = 2) -> list[R]:
    """Return the results in order; one of these processes has none of its own."""
    if processes == 1 or current_process().daemon:
        return [*map(function, arguments)]
    with get_context("fork").Pool(processes) as pool:
        return pool.map(function, arguments, chunksize=1)

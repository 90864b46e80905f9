"""Helpers of the benchmarks: rows of tables, figures as text, and processes with one result."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from statistics import median
from typing import Any

__all__ = ["child", "row", "shown"]


def shown(figures: Sequence[float], digits: int = 2) -> str:
    """Return the median of the rounds, with the least and the greatest figure."""
    return f"{median(figures):.{digits}f} ({min(figures):.{digits}f} to {max(figures):.{digits}f})"


def row(*cells: object, head: bool = False) -> None:
    """Print a row of a table; its head has a line below it."""
    print(f"| {' | '.join(map(str, cells))} |" + (f"\n|{'---|' * len(cells)}" if head else ""), flush=True)


@contextmanager
def child(
    work: Callable[..., None], *arguments: object, meanwhile: Callable[[], object] | None = None
) -> Iterator[Any]:
    """Run `work` in a process of its own, return its result, and end it.

    Until the result is there, `meanwhile` is called again and again.
    """
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=work, args=(there, *arguments), daemon=True)
    process.start()
    there.close()  # so that the end of the process is the end of what it sends
    try:
        while meanwhile is not None and not here.poll(0.2):
            meanwhile()
        yield here.recv()
    finally:
        process.terminate()
        process.join()

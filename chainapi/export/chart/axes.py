"""Ticks of axes, and their labels: plain numbers with separators, times in UTC.

Numbers from 1e12 on, and those below 0.0001, have an exponent that is a multiple of three.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import pairwise

from chainapi.core.duration import DAY, HOUR

__all__ = [
    "EARLIEST",
    "LATEST",
    "linear_axis",
    "linear_ticks",
    "log_axis",
    "log_ticks",
    "number_labels",
    "time_label",
    "time_ticks",
]

LARGE, SMALL = 1e12, 1e-4  # numbers from LARGE on and below SMALL have an exponent
DIGITS = 15  # of a float that are exact
EARLIEST, LATEST = -62_135_596_800, 253_402_300_799  # first and last second of the calendar, in Unix time


def linear_axis(low: float, high: float, most: int) -> tuple[list[float], list[str]]:
    """Return the ticks of a linear axis (see `linear_ticks`), and their labels."""
    ticks = linear_ticks(low, high, most)
    return ticks, number_labels(ticks)


def log_axis(low: float, high: float, most: int) -> tuple[list[float], list[str]]:
    """Return the ticks of a logarithmic axis (see `log_ticks`), and their labels."""
    ticks = log_ticks(low, high, most)
    return ticks, [number_labels([tick])[0] for tick in ticks]


def linear_ticks(low: float, high: float, most: int) -> list[float]:
    """Return at most `most` multiples of 1, 2 or 5 times a power of ten."""
    power = 10.0 ** math.floor(math.log10((high - low) / (most + 1)))
    tried = (_multiples(low, high, factor * power) for factor in (1, 2, 5, 10, 20, 50))
    return next((ticks for ticks in tried if len(ticks) <= most), []) or [low]


def _multiples(low: float, high: float, step: float) -> list[float]:
    """Return the multiples of `step` from `low` to `high`."""
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [number * step for number in range(first, last + 1)]


def log_ticks(low: float, high: float, most: int) -> list[float]:
    """Return at most `most` powers of ten, with 2 and 5 times them if there is room."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    choices = (((1, 2, 5), 1), *(((1,), step) for step in range(1, last - first + 2)))
    tried = (
        [
            factor * 10.0**power
            for power in range(first, last + 1, step)
            for factor in factors
            if low * (1 - 1e-9) <= factor * 10.0**power <= high * (1 + 1e-9)
        ]
        for factors, step in choices
    )
    return next((ticks for ticks in tried if len(ticks) <= most), []) or linear_ticks(low, high, most)


def number_labels(ticks: Sequence[float]) -> list[str]:
    """Return the labels of an axis of numbers, all with the same number of digits."""
    largest = max(map(abs, ticks))
    exponent = 0 if SMALL <= largest < LARGE or not largest else 3 * math.floor(math.log10(largest) / 3)
    values = [tick / 10.0**exponent for tick in ticks]
    nearest = min((abs(b - a) for a, b in pairwise(values)), default=max(map(abs, values)))
    digits = next(
        (n for n in range(DIGITS) if all(abs(round(v, n) - v) <= nearest / 100 for v in values)), DIGITS
    )
    end = f"e{exponent}" if exponent else ""
    return [f"{value + 0.0:,.{digits}f}{end if value else ''}" for value in values]


def time_ticks(begin: float, end: float, count: int) -> list[float]:
    """Return times of equal distance, the first and the last among them."""
    return [begin + (end - begin) * number / (count - 1) for number in range(count)]


def time_label(value: float, length: float) -> str:
    """Return a time in UTC, as fine as an axis of `length` seconds needs it."""
    # The axis of a single time extends beyond it.
    time = datetime.fromtimestamp(min(max(value, EARLIEST), LATEST), UTC)
    if length > 3 * DAY:
        return time.date().isoformat()
    return time.strftime("%m-%d %H:%M" if length > HOUR else "%H:%M:%S")

"""Row of the table of targets."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import zip_longest
from statistics import median

from attrs import frozen

__all__ = ["Row", "numbers", "row", "spread"]

ROUNDING = 1e-6


@frozen
class Row:
    """Target: subject, wanted value, measured value, and whether that is enough."""

    what: str
    target: str
    figure: str
    met: bool


def numbers(text: str) -> list[list[float]]:
    """Return the numbers of a target or a figure: of each part between commas, those between slashes."""
    parts = text.split(", ")
    return [[float(one.replace(",", "")) for one in re.findall(r"-?[\d.]+|inf", part)] for part in parts]


def spread(values: Sequence[float]) -> tuple[float, float]:
    """Return median and least of percentages."""
    return median(values), min(values)


def row(what: str, target: str, *figures: float | tuple[float, ...]) -> Row:
    """Return a row of figures, one for each part of the target; whole ones are counts.

    A part is `>=` or `<=` a bound, or the number itself; several figures may have a bound each, or one.
    """
    shown, met = [], True
    for part, bounds, figure in zip(target.split(", "), numbers(target), figures, strict=True):
        several = figure if isinstance(figure, tuple) else (figure,)
        for one, bound in zip_longest(several, bounds, fillvalue=bounds[-1]):
            met &= part.startswith(">=") or one <= bound + ROUNDING
            met &= part.startswith("<=") or one >= bound - ROUNDING
        text = " / ".join(f"{one}" if isinstance(one, int) else f"{one:.2f}" for one in several)
        shown.append(text + (part[-2:] if part[-1] in "%s" else ""))
    return Row(what, target, ", ".join(shown), met)

"""Ranges of the sources of an export."""

from __future__ import annotations

import re
from typing import Any

from attrs import frozen

from chainapi._text import quoted
from chainapi.client.pages import Pages
from chainapi.client.split import Split, Widths
from chainapi.core.numbers import is_whole
from chainapi.core.paging.ranges import MAX_RANGES
from chainapi.errors import ArgumentError, ConfigurationError

__all__ = ["RangesOfSources", "checked_ranges"]


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
        try:
            return pages.split(self.ranges, blocks=self.blocks, days=self.days)
        except ConfigurationError as error:  # it names arguments of split(), or none
            raise type(error)(f"ranges= does not apply: {error}") from None


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
            f" '100000 blocks' or '7 days'; there can be {MAX_RANGES:,}"
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

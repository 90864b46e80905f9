"""Validation of the values in the path and the query of a request."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from chainapi.simulator.matching import Match

if TYPE_CHECKING:
    from chainapi._api.parameters import Parameter

__all__ = ["HTTPError", "chain_id", "check_path", "checked_query", "whole_number"]


class HTTPError(Exception):
    """Error answer: its status, and the messages in its body."""

    def __init__(self, status: int, *messages: str) -> None:
        self.status = status
        self.messages = messages


@lru_cache(maxsize=1_024)
def whole_number(name: str, text: str, least: float, most: float | None) -> int:
    """Return the whole number of a parameter.

    Raises HTTPError for other strings, and out of bounds.
    """
    if not re.fullmatch("-?[0-9]{1,18}", text):
        raise HTTPError(400, f"{name} must be an integer number")
    if int(text) < least:
        raise HTTPError(400, f"{name} must not be less than {least:g}")
    if most is not None and int(text) > most:
        raise HTTPError(400, f"{name} must not be greater than {most:g}")
    return int(text)


def chain_id(match: Match, chains: Sequence[int]) -> int:
    """Return the chain that a path names.

    Raises HTTPError for a chain that does not exist.
    """
    text = match.values["chainId"]
    if not re.fullmatch("[0-9]{1,18}", text):
        raise HTTPError(400, "chainId must be a number string")
    chain = int(text)
    if chain not in chains or str(chain) != text:
        raise HTTPError(404, f"chain {text} does not exist")
    return chain


def check_path(match: Match, chains: Sequence[int]) -> None:
    """Check the parameters of a path.

    Raises:
        HTTPError: one of them is empty or not a value that the route takes, or the chain does not exist.

    """
    if not match.complete:
        raise HTTPError(404, "Cannot GET /" + "/".join(match.segments[1:]))
    for parameter in match.endpoint.parameters:
        if parameter.in_path:
            _check(parameter, match.values[parameter.wire])
    if "chainId" in match.values:
        chain_id(match, chains)


def checked_query(match: Match, query: Mapping[str, str]) -> dict[str, str]:
    """Return the parameters of a query that the route has, except for the page size.

    Raises:
        HTTPError: a required parameter is missing, or a value is not one that the route takes.

    """
    checked: dict[str, str] = {}
    for parameter in match.endpoint.parameters:
        if parameter.in_path or parameter.wire == "pageSize":
            continue
        if parameter.wire in query:
            checked[parameter.wire] = query[parameter.wire]
            _check(parameter, checked[parameter.wire])
        elif parameter.required:
            raise HTTPError(400, f"{parameter.wire} should not be empty")
    return checked


def _check(parameter: Parameter, text: str) -> None:
    values = text.split(",") if parameter.many else [text]
    if parameter.choices and not set(values) <= set(parameter.choices):
        listed = ", ".join(parameter.choices)
        raise HTTPError(400, f"{parameter.wire} must be one of the following values: {listed}")
    # A parameter that takes strings or decimals, too, takes any string.
    if int in parameter.kinds and not {str, float} & set(parameter.kinds):
        least, most = -math.inf, None
        if parameter.bounds is not None:
            least, most = parameter.bounds.least, parameter.bounds.most
        whole_number(parameter.wire, text, least, most)

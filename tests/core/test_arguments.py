"""Checks of arguments: values that pass, and the messages of those that do not."""

from __future__ import annotations

from collections.abc import Callable
from math import inf, nan
from typing import Any

import pytest

from chainapi.core.arguments import (
    boolean,
    function,
    mapping_of,
    one_of,
    refuse_unknown,
    seconds_of,
    whole_number,
)
from chainapi.errors import ConfigurationError

pytestmark = pytest.mark.rule

SECRET: Any = ["k3y"]
NUMBERED: Any = {1: "k3y"}


@pytest.mark.parametrize(
    ("check", "message"),
    [
        (lambda: whole_number("n", 0), "n=0 must be a whole number, 1 or more"),
        (lambda: whole_number("n", True), "n=True must be a whole number, 1 or more"),
        (lambda: whole_number("n", 17, 0, 16), "n=17 must be a whole number from 0 to 16"),
        (lambda: whole_number("n", "3", None), "n='3' must be a whole number"),
        (lambda: seconds_of("s", 0), "s=0 must be a finite number of seconds, above 0"),
        (lambda: seconds_of("s", nan, zero=True), "s=nan must be a finite number of seconds, 0 or more"),
        (lambda: seconds_of("s", 2e9), "s=2000000000.0 must be a finite number of seconds, above 0"),
        (lambda: seconds_of("s", True), "s=True must be a finite number of seconds, above 0"),
        (lambda: seconds_of("s", inf), "s=inf must be a finite number of seconds, above 0"),
        (lambda: boolean("b", 1), "b=1 must be True or False"),
        (lambda: one_of("o", "c", ("a", "b")), "o='c' must be 'a' or 'b'"),
        (lambda: function("f", None), "f=None must be callable"),
        (lambda: mapping_of("m", SECRET), "m= must be a mapping, such as a dict, not 'list'"),
        (lambda: mapping_of("m", NUMBERED), "m= must have strings as keys"),
    ],
)
def test_invalid_argument_is_named_with_its_value(check: Callable[[], object], message: str) -> None:
    """The error has the argument, its value, and the values that are allowed."""
    with pytest.raises(ConfigurationError) as caught:
        check()
    assert str(caught.value) == message


def test_valid_arguments_are_returned() -> None:
    """A check returns the value, seconds as a float."""
    assert (whole_number("n", 1), whole_number("n", 16, 0, 16), whole_number("n", -5, None)) == (1, 16, -5)
    assert (seconds_of("s", 3), seconds_of("s", 0, zero=True)) == (3.0, 0.0)
    assert (boolean("b", False), one_of("o", "a", ("a", "b")), function("f", len)) == (False, "a", len)
    assert (mapping_of("m", {"a": 1}), mapping_of("m", None)) == ({"a": 1}, {})


def test_unknown_arguments_leave_no_values_behind() -> None:
    """Unknown arguments are cleared before the error, so no traceback shows the key."""
    given = {"api_kye": "secret"}
    with pytest.raises(ConfigurationError, match="unknown argument 'api_kye'; did you mean 'api_key'"):
        refuse_unknown(given, ("api_key", "timeout"), "Session", given)
    assert given == {}

"""Tiers of the tests, and the promises that they are about."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from tests import tiers

pytestmark = pytest.mark.rule

PROMISES: dict[str, dict[str, Any]] = tomllib.loads(
    Path(__file__).with_name("promises.toml").read_text("utf-8")
)
DROPPED = PROMISES.pop("dropped", {})


def promises() -> dict[str, list[str]]:
    """Return the tests of each promise by its id: functions, or whole modules."""
    return {
        f"{section}.{name}": one["tests"]
        for section, names in PROMISES.items()
        for name, one in names.items()
    }


def test_outside_of_tier_1_documented_names_are_imported() -> None:
    """A test imports what users import; the list of exceptions shrinks with the rooms."""
    found, allowed = tiers.undocumented(), tiers.allowed()
    new = {file: [*{*names} - {*allowed.get(file, ())}] for file, names in found.items()}
    assert {file: names for file, names in new.items() if names} == {}, "import documented names instead"
    gone = {file: [*{*names} - {*found.get(file, ())}] for file, names in allowed.items()}
    assert {file: names for file, names in gone.items() if names} == {}, (
        "run `python -m tests.tiers --record`"
    )


def test_each_promise_has_a_sentence_and_a_test() -> None:
    """A promise is a sentence, and names tests that exist."""
    known = {str(test) for module in tiers.test_modules() for test in module.tests}
    known |= {module.file for module in tiers.test_modules() if module.tests}
    failures = [
        f"{name}: no such test: {test}"
        for name, tests in promises().items()
        for test in tests
        if test not in known
    ]
    failures += [f"{name}: has no test" for name, tests in promises().items() if not tests]
    failures += [
        f"{section}.{name}: is no sentence of at most 160 characters"
        for section, names in PROMISES.items()
        for name, one in names.items()
        if not (one["says"].endswith(".") and len(one["says"]) <= 160)
    ]
    assert failures == []


def test_each_test_is_about_a_promise() -> None:
    """Each test of the tiers 2 to 4 belongs to a promise, itself or with its module."""
    named = {test for tests in promises().values() for test in tests}
    tests = [test for module in tiers.test_modules() for test in module.tests if test.tier > 1]
    assert [str(test) for test in tests if not {str(test), test.file} & named] == []


def test_a_dropped_promise_says_what_its_users_do() -> None:
    """A dropped promise keeps its sentence, and says what its users do instead; its tests are gone."""
    assert [name for name, one in DROPPED.items() if one.keys() != {"says", "instead"}] == []
    assert DROPPED.keys() & promises().keys() == set()

"""Mutants of the walk: `mutants.toml` names functions of the package, and code to replace in them.

This is the one place where parts of chainapi are patched, because that is its point: a promise that a broken
walk keeps as well is no promise.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from importlib import import_module
from inspect import getsource
from operator import attrgetter
from pathlib import Path
from textwrap import dedent
from typing import Any
from unittest.mock import patch

__all__ = ["MUTANTS", "mutated"]

MUTANTS: Mapping[str, Mapping[str, Any]] = tomllib.loads(Path(__file__).with_name("mutants.toml").read_text())


@contextmanager
def mutated(name: str) -> Iterator[None]:
    """Put a mutant in force."""
    with ExitStack() as stack:
        for place, pieces in MUTANTS[name]["code"].items():
            module, owners, function = place.rsplit(":", 2)
            found: Any = import_module(f"chainapi.{module}")
            owner = attrgetter(owners)(found) if owners else found
            stack.enter_context(patch.object(owner, function, _changed(vars(owner)[function], pieces)))
        yield


def _changed(found: Any, pieces: Mapping[str, str]) -> Any:
    """Return a function or a property with some pieces of its code replaced."""
    function: Any = found.fget if isinstance(found, property) else found
    code = dedent(getsource(function))
    for old, new in pieces.items():
        assert code.count(old) == 1, f"give this mutant a place in the code of today: {old}"
        code = code.replace(old, new)
    made: dict[str, Any] = {}
    exec(compile(code, function.__qualname__, "exec"), function.__globals__, made)
    return made[function.__name__]

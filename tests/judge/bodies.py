"""Bodies of responses, made from a table of our own: names and kinds of fields, route by route.

The table, `routes.json`, is edited by hand: it must not follow the package that it judges. A kind is `text`,
`int`, `time`, `amount`, `float`, `decimal`, `bool`, `any`, or the name of a record, a union or a list of
choices; `[kind]` is a list, `{kind}` an object with any names, `a|b` one of two, `?kind` may be missing.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import chainapi.models

__all__ = ["ODD", "ROUTES", "Maker", "arguments", "encode", "odd", "route_at"]

_TABLE: Mapping[str, Any] = json.loads(Path(__file__).with_name("routes.json").read_bytes())
ROUTES: Mapping[str, Any] = _TABLE["routes"]
CHOICES: Mapping[str, list[str]] = _TABLE["choices"]
RECORDS: Mapping[str, Mapping[str, str]] = _TABLE["records"]
UNIONS: Mapping[str, list[tuple[str, str | None, str]]] = _TABLE["unions"]

# JSON of values that a field of any kind may have by mistake, or for a good reason.
_ODD = r"""
-1 9007199254740993 9223372036854775808 18446744073709551616 -1180591620717411303424 -0 -0.0 1.0 1e3 0.1 1e400
-1e400 0.1234567890123456789 12345678901234567890.5 true false null [] {} [""] {"a":1} "" "0" "12" "-7" "1.50"
"1e5" "0x1f" "NaN" "Infinity" "true" "novel" "\u00e9" "\ud83d" "\u002012"
"""
ODD = (*_ODD.split(), str(2**256), "9" * 4_000, "9" * 5_000, f'"{"9" * 5_000}"')
_MARK = "\0"  # before JSON that `encode` inserts as it stands


class Maker:
    """Maker of JSON values by kind, equal for equal seeds; `missing` is the share of optional fields."""

    def __init__(self, seed: object, *, missing: float = 0.5) -> None:
        self.draw = random.Random(str(seed))
        self.missing = missing

    def value(self, kind: str, name: str = "") -> Any:
        """Return a value of a kind, for a field of that name."""
        kind = kind.removeprefix("?")
        if kind in RECORDS:
            return self.record(kind)
        if kind in UNIONS:
            return self.tagged(*self.draw.choice(UNIONS[kind]))
        if kind in CHOICES:
            return self.draw.choice(CHOICES[kind])
        if len(kinds := re.split(r"\|(?![^\[{]*[\]}])", kind)) > 1:
            return self.value(self.draw.choice(kinds), name)
        if kind[0] == "[":
            return [self.value(kind[1:-1], name) for _ in range(self.draw.randrange(3))]
        if kind[0] == "{":
            return {f"key{number}": self.value(kind[1:-1], name) for number in range(2)}
        return self._scalar(kind, name)

    def record(self, kind: str) -> dict[str, Any]:
        """Return an object with the fields of a record; some optional ones are missing or null."""
        made: dict[str, Any] = {}
        for name, of in RECORDS[kind].items():
            if of[0] == "?" and self.draw.random() < self.missing:
                if self.draw.random() < 0.3:
                    made[name] = None
            else:
                made[name] = self.value(of, name)
        return made

    def tagged(self, path: str, value: str | None, kind: str) -> dict[str, Any]:
        """Return a row of one kind of a union, with the field that says so."""
        made = self.record(kind)
        inside, names = made, path.split(".")
        for name, of in zip(names, _kinds(kind, names), strict=True):
            if inside.get(name) is None:
                inside[name] = self.value(of, name)
            if name is names[-1] and value is not None:
                inside[name] = value
            inside = inside[name]
        return made

    def _scalar(self, kind: str, name: str) -> Any:
        number = self.draw.randrange(10**9)
        match kind:
            case "text":
                return f"{name}-{number}"
            case "int":
                return number % 2**31 if number % 3 else str(number)
            case "time":
                return 1_600_000_000 + number % 10**8
            case "amount":
                return str(number**3) if number % 3 else number
            case "float":
                return number / 7 if number % 3 else number
            case "decimal":
                return f"{number}.{number:018}"
            case "bool":
                return number % 2 == 0
        assert kind == "any", kind
        return {"config": {"chainId": number}}


def _kinds(kind: str, names: list[str]) -> list[str]:
    """Return the kind of each field on a path into a record."""
    found: list[str] = []
    for name in names:
        found.append(RECORDS[kind][name])
        kind = found[-1].removeprefix("?")
    return found


def odd(draw: random.Random) -> str:
    """Return a text that `encode` replaces by an odd value."""
    return _MARK + draw.choice(ODD)


def encode(value: Any) -> bytes:
    """Return JSON, with the odd values in it as they stand."""
    text, marked = json.dumps(value), r'"\\u0000((?:[^"\\]|\\.)*)"'
    return re.sub(marked, lambda found: str(json.loads(f'"{found[1]}"')), text).encode()


def arguments(table: Mapping[str, Any]) -> dict[str, Any]:
    """Return arguments of a call: records of the package where the table names one."""
    return {name: _argument(value) for name, value in table.items() if name != "$"}


def _argument(value: Any) -> Any:
    if isinstance(value, list):
        return [_argument(entry) for entry in value]
    return getattr(chainapi.models, value["$"])(**arguments(value)) if isinstance(value, dict) else value


@lru_cache(maxsize=4_096)
def route_at(method: str, path: str) -> str:
    """Return the name of the route that a request reaches; empty without one."""
    for name, pattern in _patterns(method, path.count("/")):
        if pattern.fullmatch(path):
            return name
    return ""


@lru_cache
def _patterns(method: str, depth: int) -> list[tuple[str, re.Pattern[str]]]:
    """Return the patterns of the paths with so many segments, those with fewer names first."""
    found = [
        (route["path"], name)
        for name, route in ROUTES.items()
        if route.get("method", "GET") == method and route["path"].count("/") == depth
    ]
    found.sort(key=lambda one: (one[0].count("{"), one[0]))
    return [(name, re.compile(re.sub(r"\\{\w+\\}", "[^/:]+", re.escape(path)))) for path, name in found]

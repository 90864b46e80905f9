"""Structured field values (RFC 9651): a small reader that never raises.

It reads all well-formed values by the RFC, and accepts a few harmless deviations of real services: blanks
around ``;`` and ``=``, empty list elements, upper-case keys, numbers with more digits than the RFC allows.
Anything else makes the whole field malformed, and the result is None.
"""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Callable, Iterator, Mapping
from math import isfinite
from typing import TypeAlias, TypeVar
from urllib.parse import unquote

from attrs import field, frozen

__all__ = ["Date", "Item", "Value", "parse_dictionary", "parse_list", "parse_number"]

_T = TypeVar("_T")


class Date(int):
    """Date such as ``@1659578233``: Unix time in seconds.

    A type of its own, so that no code uses it as an amount.
    """


@frozen
class Item:
    """Member of a list or dictionary: a bare value or inner list, and parameters."""

    value: Value
    params: Mapping[str, Value] = field(factory=dict[str, "Value"])


# Decimals are floats; tokens, strings and display strings are all str: no code here distinguishes them.
Value: TypeAlias = bool | int | float | str | bytes | Date | tuple[Item, ...]


def parse_number(text: str) -> float | None:
    """Read an integer or a decimal of any length; None otherwise, or above all floats."""
    if _NUMBER.fullmatch(text) is None:
        return None
    number = float(text)
    return number if isfinite(number) else None


def parse_list(text: str) -> tuple[Item, ...] | None:
    """Read a List (RFC 9651, section 3.1), or one Item as a list; None if malformed."""
    scanner = _Scanner(text)
    try:
        return tuple(scanner.members(scanner.item_or_inner_list))
    except _MalformedError:
        return None


def parse_dictionary(text: str) -> tuple[tuple[str, Item], ...] | None:
    """Read a Dictionary (RFC 9651, section 3.2); None if malformed.

    Returns pairs, not a dict, because a field that was sent twice has keys twice. By the RFC the last one
    counts.
    """
    scanner = _Scanner(text)
    try:
        return tuple(scanner.members(scanner.pair))
    except _MalformedError:
        return None


class _MalformedError(ValueError):
    """Malformed field; raised and caught inside this module only."""


_NUMBER = re.compile(r"-?[0-9]+(?:\.[0-9]+)?")
_KEY = re.compile(r"[A-Za-z*][A-Za-z0-9_.*-]*")
_BLANKS = re.compile(r"[ \t]*")
_ESCAPED = re.compile(r'\\(["\\])')
# The name of the matching group is the type of the value.
_BARE = re.compile(
    r"""(?P<number> -?[0-9]+ (?:\.[0-9]+)? )
    | "(?P<string> (?: [ !\#-\[\]-~] | \\["\\] )* )"
    | (?P<token> [A-Za-z*][A-Za-z0-9:/!\#$%&'*+.^_`|~-]* )
    | :(?P<binary> [A-Za-z0-9+/]* ) ={0,2}:
    | \?(?P<boolean> [01] )
    | @(?P<date> -?[0-9]{1,15} )
    | %"(?P<display> (?: [ !\#$&-~] | %[0-9a-f]{2} )* )"
    """,
    re.VERBOSE,
)


class _Scanner:
    """Scanner with a position in the text, and the grammar as methods that move it."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def members(self, member: Callable[[], _T]) -> Iterator[_T]:
        """Read members with commas between them, to the end of the text."""
        self._blanks()
        while self._at < len(self._text):
            if not self._next_is(","):  # an empty element: RFC 9110, section 5.6.1.2
                yield member()
                self._blanks()
                if self._at < len(self._text):
                    self._expect(",")
            self._blanks()

    def pair(self) -> tuple[str, Item]:
        """Read ``key=value``, or a key by itself, which means true."""
        key = self._key()
        self._blanks()
        if self._next_is("="):
            self._blanks()
            return key, self.item_or_inner_list()
        return key, Item(True, self._params())

    def item_or_inner_list(self) -> Item:
        """Read an item, or items in parentheses, with the parameters."""
        return self._inner_list() if self._next_is("(") else self._item()

    def _inner_list(self) -> Item:
        items = list[Item]()
        self._blanks()
        while not self._next_is(")"):
            items.append(self._item())
            self._blanks()
        return Item(tuple(items), self._params())

    def _item(self) -> Item:
        return Item(self._bare(), self._params())

    def _params(self) -> dict[str, Value]:
        params = dict[str, Value]()
        self._blanks()
        while self._next_is(";"):
            self._blanks()
            key = self._key()
            self._blanks()
            if self._next_is("="):
                self._blanks()
                params[key] = self._bare()
            else:
                params[key] = True
            self._blanks()
        return params

    def _key(self) -> str:
        return self._match(_KEY).group().lower()

    def _bare(self) -> Value:
        match = self._match(_BARE)
        kind = str(match.lastgroup)
        return _READERS[kind](match[kind])

    def _match(self, pattern: re.Pattern[str]) -> re.Match[str]:
        match = pattern.match(self._text, self._at)
        if match is None:
            raise _MalformedError
        self._at = match.end()
        return match

    def _blanks(self) -> None:
        self._match(_BLANKS)

    def _next_is(self, character: str) -> bool:
        found = self._text.startswith(character, self._at)
        self._at += found
        return found

    def _expect(self, character: str) -> None:
        if not self._next_is(character):
            raise _MalformedError


def _number(text: str) -> Value:
    # int() rejects thousands of digits; an integer of the RFC has at most 15, and a sign.
    if len(text) <= 16 and "." not in text:
        return int(text)
    number = parse_number(text)
    if number is None:
        raise _MalformedError
    return number


def _binary(text: str) -> Value:
    try:
        return b64decode(text + "==")  # the padding may be missing, and b64decode ignores excess padding
    except ValueError as error:
        raise _MalformedError from error


def _display(text: str) -> Value:
    try:
        return unquote(text, errors="strict")
    except UnicodeDecodeError as error:
        raise _MalformedError from error


_READERS: Mapping[str, Callable[[str], Value]] = {
    "number": _number,
    "string": lambda text: _ESCAPED.sub(r"\1", text),
    "token": str,
    "binary": _binary,
    "boolean": lambda text: text == "1",
    "date": Date,
    "display": _display,
}

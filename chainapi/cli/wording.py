"""Text for people: counts, shell commands, errors in the terms of a command."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from chainapi.errors import DecodeError

__all__ = ["counted", "shell_words", "worded"]


def counted(number: int, noun: str) -> str:
    """Return the number with its noun: 1 page, 2,000 pages."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def worded(error: object, advice: str = "") -> object:
    """Return an error with the advice for a command in place of that for Python."""
    if not isinstance(error, DecodeError):
        return error
    return error.changed(advice="" if error.row is None else advice)


def shell_words(words: Sequence[str]) -> str:
    """Return words as a shell reads them back, without anything that a terminal acts on."""
    return " ".join(map(_shell_word, words))


def _shell_word(word: str) -> str:
    if word.isprintable():
        return shlex.quote(word)
    escaped = word.replace("\\", r"\\").replace("'", r"\'")
    return "$'" + "".join(char if char.isprintable() else _shell_escape(ord(char)) for char in escaped) + "'"


def _shell_escape(code: int) -> str:
    """Return a character as an escape of bash, zsh and ksh; a byte that is no UTF-8 stays that byte."""
    if 0xDC80 <= code <= 0xDCFF:
        return f"\\x{code - 0xDC00:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"

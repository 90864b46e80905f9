"""Text in messages: escapes, length, masked API keys, similar names."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from urllib.parse import quote

__all__ = [
    "closest",
    "contains",
    "did_you_mean",
    "masked",
    "name_text",
    "nearest",
    "notation",
    "printable",
    "printable_ends",
    "quoted",
]

MASK = "***"
LONGEST_VALUE = 80  # characters of a value in an error message
SHORTEST_KEY = 16  # characters; names of settings are shorter
SHORT = 8  # characters; a shorter secret may be part of other words: only whole words are masked


def printable(text: str, most: int | None = None) -> str:
    r"""Return a string that can be printed safely, cut to `most` characters.

    Escapes such as ``\x1b`` replace characters that act on a terminal or mislead a reader: control
    characters, line ends, marks of writing direction, lone surrogates.
    """
    if most is not None:
        text = text[: most + 1]
    if not text.isprintable():
        text = "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)
    return text if most is None or len(text) <= most else text[: most - 1] + "…"


def printable_ends(text: str, most: int) -> str:
    """Return a string that can be printed safely, cut in the middle to `most`."""
    text = printable(text)
    if len(text) <= most:
        return text
    first = most // 2
    last = most - first - 1
    return f"{text[:first]}…{text[len(text) - last :]}"


def quoted(value: object) -> str:
    """Return a value as its ASCII literal for an error message, cut to 80 characters."""
    if isinstance(value, list | dict):  # its literal may be as deep as the stack
        return f"a {type(value).__name__}"
    if isinstance(value, int) and abs(value) >= 10**100:  # Python refuses to write the longest ones
        return "a number of more than 100 digits"
    return printable(ascii(value), LONGEST_VALUE)


def name_text(name: str) -> str:
    """Return a wrong name as its literal for an error message, or `MASK`.

    A long word without spaces may be a key in the wrong place.
    """
    return MASK if len(name) >= SHORTEST_KEY and " " not in name else quoted(name)


def closest(name: str, known: Iterable[str], *, cutoff: float = 0.6) -> str | None:
    """Return the known name that is most like `name`, or None.

    None means that the similarity of every name is below `cutoff`, a number from 0 to 1.
    """
    return next(iter(nearest(name, known, count=1, cutoff=cutoff)), None)


def nearest(name: str, known: Iterable[str], *, count: int = 3, cutoff: float = 0.6) -> list[str]:
    """Return at most `count` known names like `name`, the most similar one first."""
    from difflib import get_close_matches

    return get_close_matches(name, [*known], n=count, cutoff=cutoff)


def did_you_mean(name: str, known: Iterable[str], otherwise: str) -> str:
    """Return "did you mean" with the name most like `name`, else `otherwise`."""
    found = closest(name, known)
    return otherwise if found is None else f"did you mean {found!r}?"


def masked(text: str, secret: str) -> str:
    """Return a string with a secret masked, in its JSON, HTML and URL forms too."""
    return _notations(secret).sub(MASK, text) if secret else text


def contains(text: str, secret: str) -> bool:
    """Return whether a string has a part that `masked` would mask."""
    return bool(secret) and _notations(secret).search(text) is not None


@lru_cache(maxsize=1_024)
def _notations(secret: str) -> re.Pattern[str]:
    """Return a pattern of a secret, each letter of it in any notation."""
    pattern = "".join(map(notation, secret))
    return re.compile(rf"(?<!\w){pattern}(?!\w)" if len(secret) < SHORT else pattern)


def notation(letter: str) -> str:
    r"""Return a pattern of a letter as it is, and in JSON, HTML and URLs.

    It finds a slash as ``\/``, ``\u002f``, ``&#47;`` and ``%2f``, among others.
    """
    if letter.isalnum() and letter.isascii():
        return letter
    import html
    import json

    code, in_url = ord(letter), quote(letter, safe="")
    in_json = json.dumps(letter)[1:-1], f"\\u{code:04x}", f"\\u{code:04X}", f"\\{letter}"
    in_html = html.escape(letter), html.escape(letter, quote=False), f"&#{code};", f"&#x{code:x};"
    forms = {letter, *in_json, *in_html, in_url, in_url.lower(), f"%{code:02X}", f"%{code:02x}"}
    return f"(?:{'|'.join(map(re.escape, sorted(forms, key=len, reverse=True)))})"

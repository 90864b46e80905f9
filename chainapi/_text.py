"""Text that somebody else wrote, as it may be shown: printable, cut, the API key masked."""

from __future__ import annotations

import re
from urllib.parse import quote

__all__ = ["masked", "printable"]

MASK = "***"
SHORT = 8  # characters; a shorter secret may be part of any word, and is masked only where it stands alone


def printable(text: str, most: int | None = None) -> str:
    r"""Return a text as it may be printed, cut to `most` characters.

    Escapes such as ``\x1b`` take the place of everything that steers a terminal or its reader: control
    characters, line ends, marks that turn the direction of writing, halves of characters.
    """
    if most is not None:
        text = text[: most + 1]
    if not text.isprintable():
        text = "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)
    return text if most is None or len(text) <= most else text[: most - 1] + "…"


def masked(text: str, secret: str) -> str:
    """Return a text with a secret masked in it, also as JSON, HTML and URLs write it."""
    for form in _forms(secret) if secret else ():
        if len(secret) < SHORT:
            text = re.sub(rf"(?<!\w){re.escape(form)}(?!\w)", MASK, text)
        else:
            text = text.replace(form, MASK)
    return text


def _forms(secret: str) -> tuple[str, ...]:
    import html
    import json

    in_html = (html.escape(secret), html.escape(secret, quote=False))
    return tuple(dict.fromkeys((secret, json.dumps(secret)[1:-1], *in_html, quote(secret, safe=""))))

"""Text in messages: printable, cut, masked; values and suggestions."""

from __future__ import annotations

import html
import json
import re
from urllib.parse import quote

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from chainapi._text import closest, contains, did_you_mean, masked, printable, printable_ends, quoted

pytestmark = pytest.mark.rule

NASTY = {
    "\x1b]8;;http://evil\x1b\\": r"\x1b]8;;http://evil\x1b" + "\\",
    "\x9b31m": r"\x9b31m",
    "a\u202eb\u2066c": r"a\u202eb\u2066c",
    "a\r\n\tb": r"a\r\n\tb",
    "\x07\x08\x7f\x00": r"\x07\x08\x7f\x00",
    "\ud800\udc80": r"\ud800\udc80",
    "\U000e0041": r"\U000e0041",
    "\u2028\u2029\u200b\ufeff": r"\u2028\u2029\u200b\ufeff",
    "Zürich 語 🎉 [/x]": "Zürich 語 🎉 [/x]",
}


def test_what_steers_a_terminal_is_shown_as_an_escape() -> None:
    """OSC, CSI, C1, marks of direction, line ends and lone surrogates become escapes."""
    assert {text: printable(text) for text in NASTY} == NASTY


@settings(max_examples=50)
@given(st.text(), st.none() | st.integers(1, 20))
def test_any_text_is_printable_and_as_short_as_requested(text: str, most: int | None) -> None:
    """Printable text has printable characters only, marks a cut, and is idempotent."""
    shown = printable(text, most)
    assert shown.isprintable()
    assert printable(shown, most) == shown
    if most is None:
        assert len(shown) >= len(text)
    else:
        assert len(shown) <= most
        assert shown == printable(text) or shown.endswith("…")


@settings(max_examples=50)
@given(st.text(max_size=50), st.integers(2, 30))
@example("\x1b…", 20)
def test_a_long_text_shows_both_of_its_ends(text: str, most: int) -> None:
    """A text that fits is shown whole, and a longer one with its first and last characters."""
    whole, shown = printable(text), printable_ends(text, most)
    if len(whole) <= most:
        assert shown == whole
        return
    first, last = shown[: most // 2], shown[most // 2 + 1 :]
    assert shown == f"{first}…{last}"
    assert len(shown) == most
    assert whole.startswith(first)
    assert whole.endswith(last)


@settings(max_examples=50)
@given(st.text(st.characters(min_codepoint=0x21, max_codepoint=0x7E), min_size=8, max_size=40), st.text())
@example("ab/cd+ef", "")
def test_a_key_is_masked_in_every_form(key: str, beside: str) -> None:
    """A key of 8 characters or more is masked in every encoding, even within a word."""
    in_json, in_url = json.dumps(key)[1:-1], quote(key, "")
    lower = re.sub("%..", lambda code: code[0].lower(), in_url)
    slashed = in_json.replace("/", r"\/")
    for form in (key, in_json, slashed, html.escape(key), html.escape(key, quote=False), in_url, lower):
        text = masked(f"{beside}a{form}b", key)
        assert form not in text.replace("***", " ")
        assert contains(f"a{form}b", key)


@pytest.mark.parametrize(
    ("key", "text", "shown"),
    [
        ("k", "$.blocks[3].token", "$.blocks[3].token"),
        ("k", "the key 'k' is wrong: k", "the key '***' is wrong: ***"),
        ("abc", "abc abcd dabc ABC _abc x-abc-y {abc}", "*** abcd dabc ABC _abc x-***-y {***}"),
        ("a&b", "a&b a&amp;b a%26b xa&b", "*** *** *** xa&b"),
        ("7 chars"[:7].replace(" ", "-"), "7-chars7", "7-chars7"),
        ("8-chars!", "x8-chars!x", "x***x"),
        ("", "nothing", "nothing"),
    ],
)
def test_a_short_key_is_masked_only_where_it_stands_alone(key: str, text: str, shown: str) -> None:
    """A short key is masked as a separate word only, so other words stay readable."""
    assert masked(text, key) == shown


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("a\x1b", "'a\\x1b'"),
        ("é" * 50, "'" + "\\xe9" * 19 + "\\x…"),
        (-(10**100), "a number of more than 100 digits"),
        (10**99, "1" + "0" * 78 + "…"),
        ([[[]]], "a list"),
        ({}, "a dict"),
        (None, "None"),
    ],
)
def test_a_value_is_quoted_in_80_characters(value: object, shown: str) -> None:
    """Quoted values are ASCII literals of at most 80 characters.

    Containers and long numbers have the name of their type instead.
    """
    assert quoted(value) == shown
    assert len(shown) <= 80


def test_the_closest_name_is_suggested() -> None:
    """A similar known name is suggested as a question, else the given text is used."""
    assert closest("bloks", iter(("block", "blocks", "chains"))) == "blocks"
    assert closest("bloks", ("blocks",), cutoff=0.99) is None
    assert did_you_mean("bloks", ("blocks",), "see the list") == "did you mean 'blocks'?"
    assert did_you_mean("zzz", ("blocks",), "see the list") == "see the list"

"""Text for people: counts, shell commands, errors in the terms of a command."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Sequence

from cyclopts import CycloptsError, UnusedCliTokensError

from chainapi._text import MASK, SHORTEST_KEY
from chainapi.errors import APIStatusError, DecodeError

__all__ = ["again", "counted", "option_text", "worded"]


def counted(number: int, noun: str) -> str:
    """Return the number with its noun: 1 page, 2,000 pages."""
    return f"{number:,} {noun}{'' if number == 1 else 'es' if noun.endswith('s') else 's'}"


def worded(error: Exception, advice: str = "") -> str:
    """Return the message of an error in the terms of the command line.

    Options stand in place of arguments, and `advice` in place of that for Python.
    """
    if isinstance(error, UnusedCliTokensError) and error.unused_tokens:
        return f"{error.unused_tokens[0]!r} is one value too many, see --help"
    if isinstance(error, CycloptsError):
        return _LIKE_KEY.sub(MASK, str(error))
    if isinstance(error, APIStatusError):  # in the words of the service
        return str(error)
    if isinstance(error, DecodeError):
        error = error.changed(advice="" if error.row is None else advice)
    if isinstance(error, OSError) and error.filename is not None:
        return f"{os.fsdecode(error.filename)} cannot be opened: {error.strerror}"
    text = str(error)
    for advice_in_python in _PYTHON_ALONE:
        text = text.replace(advice_in_python, "")
    return _ARGUMENT.sub(_option, _PARAMETER.sub(r"pass --param \1=VALUE", text))


# A value in the message of a command that may be a key: after an option that is not there, or a wrong name.
_LIKE_KEY = re.compile(rf'(?<=[="])[^\s"=]{{{SHORTEST_KEY},}}')

# Advice that has no option: others could see a key, and a command has no class and no timedelta.
_PYTHON_ALONE = (
    "give api_key= or ",
    ", or give ssl_context= to AiohttpTransport",
    " to AiohttpTransport",
    "with storage_options=, or ",
    " pass model= with an attrs class, a dataclass or a Struct,",
    ", or pass model= with an attrs class, a dataclass or a Struct",
    " or a timedelta",
)

_PARAMETER = re.compile(r"\bpass ((?:start|end)_(?:block|timestamp))=")

# An argument in a message of Python, such as "max_wait=5 s", "name one with items= (a, b)"; not in a path,
# such as "lake/format=csv", nor in a quoted value.
_ARGUMENT = re.compile(
    r"(?<!--param )(?<![-/'\\])\b(?:(metrics_base_url|data_base_url)\b=?|(provider|max_wait"
    r"|timeout|deadline|max_body|proxy|items|page_size|limit|format|amounts|fields|lookback|ranges|partition"
    r"|escape_formulas|compression|compression_level|row_group_rows|commit_seconds|wait|compact)=)"
)


def _option(match: re.Match[str]) -> str:
    name = match[1] or match[2]
    value = match[2] and match.string[match.end() : match.end() + 1] not in ("", " ", ",")
    return f"--{name.replace('_', '-')}{' ' if value else ''}"


def option_text(error: ValueError) -> str:
    """Return the message of a class about an attribute, as one about its option."""
    return re.sub(r"^'?(\w+)'?(?= must| is no)", lambda found: f"--{found[1].replace('_', '-')}", str(error))


def again(words: Sequence[str], **options: object) -> str:
    """Return the command of `words` for a shell, with other values of options."""
    end = words.index("--") if "--" in words else len(words)
    named, left = {f"--{name.replace('_', '-')}": value for name, value in options.items()}, iter(words[:end])
    kept = ["chainapi"]
    for word in left:
        name, equals, _ = word.partition("=")
        if name not in named:
            kept.append(word)
        elif not equals:
            next(left)  # its value
    given = [word for name, value in named.items() for word in (name, str(value))]
    return shlex.join([*kept, *given, *words[end:]])

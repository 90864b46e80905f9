"""The query of a request: a checked path and its parameters, percent-encoded once."""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import Enum
from urllib.parse import quote, urlencode

from attrs import Factory, field, frozen

from chainapi.errors import ConfigurationError

__all__ = ["MAX_PAGE_SIZE", "Query", "checked_page_size", "checked_path", "path_segment"]

MAX_PAGE_SIZE = 10_000  # the largest that any known route takes; most take 100
MAX_SEGMENT = 1_024  # characters

_PATH_SAFE = "/:@!$&'()*+,;=~-._"
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


@frozen
class Query:
    """What is asked of a service, page token apart.

    `route` names the requests that cost alike, `cost` is what one is thought to cost in quota units.
    """

    path: str
    params: tuple[tuple[str, str], ...] = ()
    route: str = ""
    cost: float | None = None
    _encoded: str = field(
        init=False, repr=False, eq=False, default=Factory(lambda self: self._encode(), True)
    )

    def _encode(self) -> str:
        encoded = quote(self.path, safe=_PATH_SAFE)
        return f"{encoded}?{urlencode(self.params)}" if self.params else encoded

    def url(self, base_url: str, page_token: str | None = None) -> str:
        """Return the whole URL, with the page token as one parameter."""
        if page_token is None:
            return base_url + self._encoded
        joint = "&" if self.params else "?"
        return f"{base_url}{self._encoded}{joint}pageToken={quote(page_token, safe='')}"

    @property
    def where(self) -> str:
        """How errors and events name it."""
        return f"GET {self.path}"


def query_params(values: Mapping[str, object]) -> tuple[tuple[str, str], ...]:
    """Return parameters as they are sent: None is left out, a list is joined with commas.

    Raises:
        ConfigurationError: a value has no form in a query, or the name is one that the walk sets itself.

    """
    if "pageToken" in values:
        raise ConfigurationError("pageToken is set by the walk: give a checkpoint to resume= instead")
    if "pageSize" in values:
        raise ConfigurationError("pageSize is an argument of its own: give page_size=")
    return tuple((name, _text(name, value)) for name, value in values.items() if value is not None)


def _text(name: str, value: object) -> str:
    if isinstance(value, Enum):
        value = value.value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str | int | float):
        return str(value)
    if isinstance(value, list | tuple | set | frozenset):
        return ",".join(_text(name, entry) for entry in value)
    raise ConfigurationError(f"{name}={value!r} cannot be sent as a query parameter")


def path_segment(name: str, value: object) -> str:
    """Return `value` as one segment of a path.

    Raises:
        ConfigurationError: it is not a whole number or a text that can be one segment.

    """
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise ConfigurationError(f"{name} must be an int or a str, not {type(value).__name__}")
    if isinstance(value, int) and value < 0:
        raise ConfigurationError(f"{name}={value} is negative")
    text = str(value)
    if not text or len(text) > MAX_SEGMENT:
        raise ConfigurationError(f"{name} must have 1 to {MAX_SEGMENT} characters, not {len(text)}")
    if re.search(r"[/?#%\\\s]", text) or text in (".", "..") or _CONTROL.search(text):
        raise ConfigurationError(f"{name}={text[:60]!r} cannot be part of a path: it has a separator in it")
    return text


def checked_path(path: object) -> str:
    """Return a path below the base address, as it was given.

    Raises:
        ConfigurationError: it does not begin with "/", or it would lead to another place than it shows.

    """
    if not isinstance(path, str) or not path.startswith("/"):
        raise ConfigurationError(f"path={path!r} must be a str that begins with '/', such as '/v1/chains'")
    for segment in path[1:].split("/"):
        if not segment or segment.lower().replace("%2e", ".") in (".", ".."):
            raise ConfigurationError(f"path={path!r} has an empty or a dotted segment")
    if re.search(r"[?#\\\s]", path) or _CONTROL.search(path):
        raise ConfigurationError(
            f"path={path!r} has a separator or white space in it; give query parameters as keywords"
        )
    return path


def checked_page_size(page_size: object) -> int | None:
    """Return the page size, None for the service's default.

    Raises:
        ConfigurationError: it is not a whole number from 1 to 10,000.

    """
    if page_size is None:
        return None
    if isinstance(page_size, bool) or not isinstance(page_size, int):
        raise ConfigurationError(f"page_size={page_size!r} must be a whole number")
    if not 1 <= page_size <= MAX_PAGE_SIZE:
        raise ConfigurationError(f"page_size={page_size} is not from 1 to {MAX_PAGE_SIZE}")
    return page_size

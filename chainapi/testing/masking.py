"""Masks of secrets, and names of page tokens, in recorded exchanges."""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections.abc import Iterator, Mapping
from functools import lru_cache
from urllib.parse import parse_qsl, quote, urlencode, urlsplit, urlunsplit

import msgspec
from attrs import define, field

from chainapi._config import Secret
from chainapi._text import MASK, SHORT, masked, notation

__all__ = ["TOKEN_NAME", "PageTokenNames", "Secrets"]

# Request headers whose values are no secrets; every other value is one: an API key may be in any header.
HARMLESS = frozenset(
    {"accept", "accept-encoding", "accept-language", "connection", "content-length", "content-type", "host"}
    | {"baggage", "traceparent", "tracestate", "user-agent", "x-request-id"}
)
# Names of headers whose short values are secrets, too: masking a "7" of another header would damage bodies.
CREDENTIALS = re.compile("auth|cookie|key|pass|secret|session|sign|token")
SCHEMED = frozenset({"authorization", "proxy-authorization"})  # a scheme comes before their credentials
TOKEN_NAME = re.compile(r"page-token-[0-9]+")
# The field of a page, or of a request's body, at any depth.
_FIELD = re.compile(rb'("(?:nextPageToken|pageToken)"\s*:\s*)("(?:[^"\\]|\\.)+")')


@define(eq=False)
class Secrets:
    """Secrets of the requests so far, and strings without them."""

    _known: dict[int, Secret] = field(factory=dict[int, Secret], repr=False)

    def learn(self, headers: Mapping[str, str]) -> None:
        """Take the value of each request header that may be a credential for a secret."""
        for name, value in headers.items():
            if name in HARMLESS:
                continue
            if name in SCHEMED:  # "Basic" and "Bearer" are words of rows, too
                value = value.partition(" ")[2].strip() or value
            for part in {value, *value.split()}:
                if len(part) >= SHORT or CREDENTIALS.search(name):
                    self._known.setdefault(hash(part), Secret(part))

    def masked(self, text: str) -> str:
        """Return a string with every secret masked.

        It is masked as it is, cut short, and in JSON, HTML, URLs and base64.
        """
        for secret in self._known.values():
            key = secret.reveal()
            if len(key) < SHORT:
                text = masked(text, key)
                continue
            for form in (key, *_in_base64(key)):
                text = _without(text, form)
        return text

    def masked_bytes(self, body: bytes) -> bytes:
        """Return a body with every secret masked; all other bytes stay."""
        return self.masked(body.decode("latin-1")).encode("latin-1")


def _without(text: str, secret: str) -> str:
    """Mask each place where a secret begins, as far as it continues, in any notation."""
    begin, rest = _notations(secret)
    pieces: list[str] = []
    start = 0
    while (found := begin.search(text, start)) is not None:
        pieces += text[start : found.start()], MASK
        start = found.end()
        for letter in rest:
            more = letter.match(text, start)
            if more is None:
                break
            start = more.end()
    return "".join([*pieces, text[start:]])


@lru_cache(maxsize=64)
def _notations(secret: str) -> tuple[re.Pattern[str], list[re.Pattern[str]]]:
    """Return the patterns of a secret's beginning, and of each letter after it."""
    letters = [notation(letter) for letter in secret]
    begin = re.compile("".join(letters[:SHORT]), re.IGNORECASE)
    return begin, [re.compile(letter, re.IGNORECASE) for letter in letters[SHORT:]]


def _in_base64(secret: str) -> Iterator[str]:
    """Yield the parts of base64 that a secret alone decides.

    There are three: it may begin anywhere in the encoded bytes.
    """
    for before in range(3):
        encoded = b64encode(b"\0" * before + secret.encode()).decode().rstrip("=")
        part = encoded[(before * 8 + 5) // 6 : (before + len(secret)) * 8 // 6]
        if len(part) >= SHORT:
            yield from {part, part.replace("+", "-").replace("/", "_")}


@define(eq=False)
class PageTokenNames:
    """Names of page tokens: ``page-token-1`` and so on.

    They are numbered in the order of their appearance. A name stands for its token in requests and answers
    alike, so a recorded walk stays a walk.
    """

    _names: dict[str, str] = field(factory=dict[str, str], repr=False)

    def name(self, token: str) -> str:
        """Return the name of a token."""
        return self._names.setdefault(token, f"page-token-{len(self._names) + 1}")

    def in_url(self, url: str) -> str:
        """Return a URL with the names of its page tokens."""
        parts = urlsplit(url)
        query = parse_qsl(parts.query, keep_blank_values=True)
        if not any(name == "pageToken" for name, _ in query):
            return url
        named = [
            (name, self.name(value) if name == "pageToken" and value else value) for name, value in query
        ]
        return urlunsplit(parts._replace(query=urlencode(named)))

    def in_body(self, body: bytes) -> bytes:
        """Return a page, or the body of a request, with the names of its page tokens."""
        return _FIELD.sub(self._named, body)

    def anywhere(self, text: str) -> str:
        """Return a string with the names of the tokens wherever it has them.

        An error may name the token that it refuses. A short token stays: it may be any other value. So may a
        token in a page: it can be the hash of a row.
        """
        for token, name in self._names.items():
            if len(token) >= SHORT:
                for form in {token, json.dumps(token)[1:-1], quote(token), quote(token, safe="")}:
                    text = text.replace(form, name)
        return text

    def anywhere_in(self, body: bytes) -> bytes:
        """Return a body with the names of the tokens wherever it has them."""
        return self.anywhere(body.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")

    def _named(self, found: re.Match[bytes]) -> bytes:
        try:
            token: str = msgspec.json.decode(found[2], type=str)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            return found[0]
        return found[1] + b'"' + self.name(token).encode() + b'"'

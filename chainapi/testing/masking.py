"""Masks of secrets, and names of page tokens, in recorded exchanges."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import msgspec
from attrs import define, field

from chainapi._text import MASK, SHORT, masked
from chainapi.client.config import Secret

__all__ = ["TOKEN_NAME", "PageTokenNames", "Secrets"]

# Request headers whose values are no secrets; every other value is one: an API key may be in any header.
HARMLESS = frozenset(
    {"accept", "accept-encoding", "accept-language", "connection", "content-length", "content-type", "host"}
    | {"baggage", "traceparent", "tracestate", "user-agent", "x-request-id"}
)
# Names of headers whose short values are secrets, too: masking a "7" of another header would damage bodies.
CREDENTIALS = re.compile("auth|cookie|key|pass|secret|session|sign|token")
TOKEN_NAME = re.compile(r"page-token-[0-9]+")
_NEXT, _SENT = "nextPageToken", "pageToken"  # fields of a page, and of a request's body


@define(eq=False)
class Secrets:
    """Secrets of the requests so far, and strings without them."""

    _known: dict[int, Secret] = field(factory=dict[int, Secret], repr=False)

    def learn(self, headers: Mapping[str, str]) -> None:
        """Take the value of each request header that may be a credential for a secret."""
        for name, value in headers.items():
            if name in HARMLESS:
                continue
            for part in {value, *value.split()}:
                if len(part) >= SHORT or CREDENTIALS.search(name):
                    self._known.setdefault(hash(part), Secret(part))

    def masked(self, text: str) -> str:
        """Return a string with every secret masked.

        It is masked as it is, cut short, and in JSON, HTML, URLs and base64.
        """
        for secret in self._known.values():
            key = secret.reveal()
            text = masked(text, key)
            if len(key) >= SHORT:
                for form in (key, *_in_base64(key)):
                    text = _without(text, form)
        return text

    def masked_bytes(self, body: bytes) -> bytes:
        """Return a body with every secret masked; all other bytes stay."""
        return self.masked(body.decode("latin-1")).encode("latin-1")


def _without(text: str, secret: str) -> str:
    """Mask each place where a secret begins, in any case, as far as it continues."""
    lower, start, places = secret.lower(), 0, text.lower()
    if len(places) != len(text):  # some letters change their length
        lower, places = secret, text
    pieces: list[str] = []
    while (found := places.find(lower[:SHORT], start)) >= 0:
        pieces += text[start:found], MASK
        start = found
        for letter in lower:
            if not places.startswith(letter, start):
                break
            start += 1
    return "".join([*pieces, text[start:]])


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
        return urlunsplit(parts._replace(query=urlencode([*self._renamed(query)])))

    def in_page(self, body: bytes) -> bytes:
        """Return a page with the name of the next page's token; any other body stays."""
        return self._in_field(_NEXT, body)

    def in_request(self, body: bytes) -> bytes:
        """Return the body of a request with the name of its page token in its place."""
        return self._in_field(_SENT, body)

    def _in_field(self, field: str, body: bytes) -> bytes:
        try:
            raw = bytes(msgspec.json.decode(body, type=dict[str, msgspec.Raw]).get(field, b""))
            token = msgspec.json.decode(raw) if raw else None
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return body
        if not token or not isinstance(token, str):
            return body
        place = rf'("{field}"\s*:\s*)'.encode() + re.escape(raw)
        return re.sub(place, rb'\1"' + self.name(token).encode() + b'"', body)

    def _renamed(self, query: Iterable[tuple[str, str]]) -> Iterator[tuple[str, str]]:
        for name, value in query:
            yield name, self.name(value) if name == "pageToken" and value else value

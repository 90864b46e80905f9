"""Canonical JSON of the rows of a page, as the service sent them."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import msgspec

from chainapi.models.sizes import LARGE

__all__ = ["canonical_rows", "first_bytes", "scan"]

# Errors of a decoder: not JSON, not Unicode (a lone surrogate), nested too deeply.
_REFUSED = (msgspec.MsgspecError, UnicodeError, RecursionError)

# A number with a point or an exponent keeps its digits; a whole number has them in any case.
_PLAIN: msgspec.json.Decoder[object] = msgspec.json.Decoder(float_hook=msgspec.Raw)
_encode = msgspec.json.Encoder(order="sorted").encode


@lru_cache(maxsize=256)
def _lists(items: str) -> tuple[msgspec.json.Decoder[Any], msgspec.json.Decoder[Any]]:
    """Return the decoders of a list field: to JSON values, and to bytes of rows."""
    plain, raw = (
        msgspec.defstruct("Lists", [("rows", rows, msgspec.field(name=items, default=None))])
        for rows in (list[Any] | None, list[msgspec.Raw] | None)
    )
    return msgspec.json.Decoder(plain, float_hook=msgspec.Raw), msgspec.json.Decoder(raw)


def canonical_rows(body: bytes, items: str) -> list[bytes]:
    """Return canonical JSON of each row of the list field `items`, in order.

    Keys are sorted, white space is left out, and numbers keep the digits that were sent. A row that cannot
    be read by itself (a lone surrogate, too deep a nesting) is returned as its bytes in the body.
    """
    plain, _ = _lists(items)
    try:
        if len(body) > LARGE:
            return [_canonical(row) for row in _split(body, items)]
        return [_encode(row) for row in plain.decode(body).rows or ()]
    except _REFUSED:
        return [_canonical(row) for row in _split(body, items)]


def _canonical(row: bytes | msgspec.Raw) -> bytes:
    try:
        return _encode(_PLAIN.decode(row))
    except _REFUSED:
        return bytes(row)


def _split(body: bytes, items: str) -> Sequence[bytes | msgspec.Raw]:
    _, raw = _lists(items)
    try:
        return raw.decode(body).rows or ()
    except _REFUSED:
        return scan(body, items)[0]


# A string, whole or cut off at the end of the body, or a bracket, colon or comma.
_TOKEN = re.compile(rb'"(?:[^"\\]++|\\.)*+"?|[][{},:]', re.DOTALL)


def scan(body: bytes, items: str) -> tuple[list[bytes], bytes]:
    """Return the bytes of each row of the field `items`, and the body without them.

    It reads the brackets, colons and commas alone, at any depth, and no values.
    """
    rows: list[bytes] = []
    depth, begin, text, key, rest = 0, 0, b"", "", (0, 0)
    for match in _TOKEN.finditer(body):
        token = match[0]
        if token[0] == 0x22:
            text = token
        elif token == b":":
            key = _text(text) if depth == 1 else key
        elif token in b"[{":
            depth += 1
            if depth == 2 and key == items and token == b"[":
                rows, begin, rest = [], match.end(), (match.end(), match.end())
        elif begin and depth == 2 and token in b",]":
            row = body[begin : match.start()].strip()
            rows += [row] if row else []
            begin, rest = (match.end() if token == b"," else 0), (rest[0], match.start())
        if token in b"]}":
            depth -= 1
    return rows, body[: rest[0]] + body[rest[1] :]


def first_bytes(body: bytes) -> dict[str, bytes]:
    """Return the fields of an object, each with the first byte of its value.

    It goes by the signs of the structure alone, as `scan` does.
    """
    fields: dict[str, bytes] = {}
    depth, text = 0, b""
    for match in _TOKEN.finditer(body):
        token = match[0]
        if token[0] == 0x22:
            text = token
        elif token == b":" and depth == 1 and (value := _VALUE.match(body, match.end())):
            fields[_text(text)] = value[1]
        depth += (token in b"[{") - (token in b"]}")
    return fields


_VALUE = re.compile(rb"\s*(\S)")


def _text(token: bytes) -> str:
    try:
        return str(json.loads(token))
    except ValueError:
        return ""

"""Mutated answers of every route: decoded, or a DecodeError, and nothing else."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from chainapi import Checkpoint
from chainapi.api.catalogue import ROUTES
from chainapi.api.endpoint import Endpoint
from chainapi.api.identity import deduplicator, identity_of
from chainapi.errors import DecodeError
from chainapi.models import Invalid
from chainapi.models.codec import PageDecoder, decode_resource
from chainapi.models.error_body import decode_error
from chainapi.models.exact_json import encode_json
from tests.documents import Maker

ROUNDS = 30  # mutated answers of each route
DEEP = 975  # levels: a decoder that gets there by several calls runs out of stack, the first one does not


def answer(declared: Endpoint, seed: int) -> bytes:
    """Return a good answer of a route."""
    maker = Maker(seed)
    if declared.single:
        return json.dumps(maker.value(declared.rows)).encode()
    return json.dumps(maker.page(declared, 3, token="t")).encode()


def place(body: bytes, pattern: bytes, draw: random.Random) -> tuple[int, int]:
    """Return the span of one match of a pattern, or any place without a match."""
    found = [match.span() for match in re.finditer(pattern, body)]
    at = draw.randrange(len(body))
    return draw.choice(found) if found else (at, at)


def put(body: bytes, at: tuple[int, int], new: bytes) -> bytes:
    """Replace a part of a body."""
    return body[: at[0]] + new + body[at[1] :]


STRING = rb'(?<=")[^"]+(?=")'
TEXT = rb'(?<=[:\[] ")[^"]*(?=")'
NUMBER = rb"(?<=[ \[])-?\d[\d.]*"
VALUE = rb'(?<=: )("[^"]*"|null|true|false|-?\d[\d.]*)'
NUMBERS = (b"0", b"-1", b"1.5", b"1e400", b"1e-400", b"9" * 25, b"9" * 4_400, b"0.1" + b"7" * 30, b'""')
WORDS = (b"\xff", b"\xc3", b"\\ud800", b"\\u0000", b"\\udc00\\ud800", b"x" * 5_000, b"\xed\xa0\x80")
VALUES = (b"null", b"true", b"{}", b"[]", b'{"":""}', b"[null]", b'"\\ud83d"', b"NaN", b'[{"a":[0.10]}]')

MUTATIONS: tuple[Callable[[bytes, random.Random], bytes], ...] = (
    lambda body, draw: put(body, (at := draw.randrange(len(body)), at + 1), bytes([draw.randrange(256)])),
    lambda body, draw: put(body, (at := draw.randrange(len(body)), at + draw.randrange(1, 20)), b""),
    lambda body, draw: put(body, (at := draw.randrange(len(body)), at), bytes([draw.randrange(256)])),
    lambda body, draw: body[: draw.randrange(len(body))],
    lambda body, draw: put(body, place(body, NUMBER, draw), draw.choice(NUMBERS)),
    lambda body, draw: put(body, place(body, STRING, draw), draw.choice(WORDS)),
    lambda body, draw: put(body, place(body, TEXT, draw), draw.choice(WORDS)),
    lambda body, draw: put(body, place(body, VALUE, draw), draw.choice(VALUES)),
    lambda body, draw: put(body, place(body, VALUE, draw), nested(DEEP + draw.randrange(30))),
    lambda body, draw: put(body, place(body, rb"(?<={)", draw), b'"new\\u0000":' + nested(5) + b","),
)


def nested(levels: int) -> bytes:
    """Return nested lists and objects."""
    return b'[{"a":' * (levels // 2) + b"0" + b"}]" * (levels // 2)


def mutated(name: str) -> Iterator[bytes]:
    """Yield mutated answers of a route, the same ones each time."""
    draw = random.Random(name)
    good = [answer(ROUTES[name], seed) for seed in range(3)]
    for number in range(ROUNDS):
        body = draw.choice(good)
        for mutate in (MUTATIONS[number % len(MUTATIONS)], *draw.choices(MUTATIONS, k=number % 2)):
            body = mutate(body, draw) if body else body
        yield body


@pytest.mark.parametrize("name", ROUTES)
def test_mutated_answers_are_decoded_or_refused(name: str) -> None:
    """Mutated answers raise DecodeError only: changed bytes, other values, any depth."""
    declared = ROUTES[name]
    decode = resource_of(declared) if declared.single else page_of(declared)
    refused = 0
    for body in mutated(name):
        try:
            decode(body)
        except DecodeError as error:
            refused += 1
            assert error.path.startswith("$")  # noqa: PT017 - some mutations do no harm
        decode_error(body, "key")
    assert 0 < refused < ROUNDS


def resource_of(declared: Endpoint) -> Callable[[bytes], Any]:
    """Return a function that decodes a resource in all ways."""

    def decode(body: bytes) -> None:
        decode_resource(body, declared.rows)
        decode_resource(body)

    return decode


def page_of(declared: Endpoint) -> Callable[[bytes], Any]:
    """Return a function that decodes a page in both modes and reads all of it."""
    route = declared.route
    tolerant = PageDecoder(route.model, route.items, route.extra, shown=lambda fault: fault)
    strict = PageDecoder(route.model, route.items, route.extra)

    def decode(body: bytes) -> None:
        page = tolerant.decode(body)
        assert len(page.canonical_rows()) == len(page.rows)
        for row in page.rows:
            if isinstance(row, Invalid):
                json.loads(encode_json(row.raw))
            elif row is not None and not isinstance(row, str):
                _ = row.extra
        seen = deduplicator(route, Checkpoint("query", "path"), identity_of(route, declared=True))
        seen.start_counting()
        for _ in range(2):
            seen.add(page)
            seen.restart()
        decode_resource(page.body)
        assert strict.decode(body).rows == page.rows

    return decode

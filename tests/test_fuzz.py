"""Mutated answers of every route: decoded, or a DecodeError, and nothing else."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Iterator

import pytest

import chainapi.json
from chainapi import ROUTES
from chainapi.errors import DecodeError
from tests.answers import called, failure_of
from tests.documents import Maker

DEEP = 975  # levels: a decoder that gets there by several calls runs out of stack, the first one does not


def answer(name: str, seed: int) -> bytes:
    """Return a good answer of a route."""
    declared, maker = ROUTES[name], Maker(seed)
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


def mutated(name: str, rounds: int) -> Iterator[bytes]:
    """Yield mutated answers of a route, the same ones each time."""
    draw = random.Random(name)
    good = [answer(name, seed) for seed in range(3)]
    for number in range(rounds):
        body = draw.choice(good)
        first = MUTATIONS[(number + len(name)) % len(MUTATIONS)]
        for mutate in (first, *draw.choices(MUTATIONS, k=number % 2)):
            body = mutate(body, draw) if body else body
        yield body


def check(rounds: int) -> None:
    """Check that mutated responses of every route are rows, or raise DecodeError and nothing else."""
    made = refused = 0
    for name, body in ((route, body) for route in ROUTES for body in mutated(route, rounds)):
        for options in ({},) if ROUTES[name].single else ({}, {"on_invalid": "raw"}):
            try:
                found = called(name, body, **options)
            except DecodeError as error:
                refused += 1
                assert error.path.startswith("$"), (name, body[:200])  # noqa: PT017 - some do no harm
            else:
                made += 1
                chainapi.json.dumps(found if ROUTES[name].single else [*found])
    assert made > rounds * len(ROUTES) / 4 < refused


def test_mutated_responses_are_decoded_or_refused() -> None:
    """Mutated responses of every route raise DecodeError only: changed bytes, other values, any depth."""
    check(3)


@pytest.mark.proof
def test_many_mutated_responses_are_decoded_or_refused() -> None:
    """More of them, with several mutations each, do as well."""
    check(60)


MENTIONED = {"message": ["bad"], "error": "Bad Request", "statusCode": 400}


def test_mutated_error_bodies_have_messages() -> None:
    """A mutated error body raises the error of its status, with messages that are safe to print."""
    draw = random.Random(1)
    for number in range(300):
        body = json.dumps(MENTIONED).encode()
        for mutate in (MUTATIONS[number % len(MUTATIONS)], *draw.choices(MUTATIONS, k=number % 2)):
            body = mutate(body, draw) if body else body
        error = failure_of(body)
        assert error.status == 400
        assert str(error).isprintable()
        assert all(len(message) <= 301 for message in error.messages)

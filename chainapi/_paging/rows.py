"""Rows of a page with their keys, descending numbers and digests."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable, Hashable, Sequence
from collections.abc import Set as AbstractSet
from functools import cached_property, lru_cache
from itertools import chain, repeat
from operator import attrgetter
from typing import Any, Protocol, TypeAlias

from attrs import frozen

__all__ = [
    "DIGEST_SIZE",
    "Column",
    "Content",
    "EmptyPage",
    "Identity",
    "PageRows",
    "RowsOfPage",
    "column_of",
    "hash_digests",
    "key_digest",
]


Column: TypeAlias = Callable[[Sequence[Any]], list[Any]]  # reads an attribute, or several, of each row
_Split: TypeAlias = Callable[[bytes], tuple[bytes, ...]]


def column_of(*names: str) -> Column:
    """Return a reader of one attribute of many rows, or of several as tuples.

    Dots in a name lead into objects.
    """
    if names == ("timestamp",):
        return _timestamps
    read = attrgetter(*names)
    return lambda rows: list(map(read, rows))


def _timestamps(rows: Sequence[Any]) -> list[Any]:
    # Pages of points are long, and this is nearly twice as fast as an attrgetter.
    return [row.timestamp for row in rows]


class Content(Protocol):
    """Content of the rows of a page, as the service sent it."""

    def canonical_rows(self) -> Sequence[bytes]:
        """Return the canonical JSON of each row."""
        ...


class RowsOfPage(Content, Protocol):
    """Rows of a page, and the content of each as the service sent it."""

    @property
    def rows(self) -> Sequence[Any]:
        """Rows of the page."""
        ...

    @property
    def digest(self) -> int:
        """Hash of the rows."""
        ...

    @property
    def content(self) -> Content:
        """Content of the rows, without the rows."""
        ...


@frozen(eq=False)
class Identity:
    """Readers of what identifies a row of a list.

    Attributes:
        key: returns the key of a row, or None for a row that lacks one; None for a list without a key.
        number: returns the number that never rises from row to row, or None for a row that lacks one.
        number_field: name of the field with that number, as the service spells it.
        unique: the number is the key.
        stable: returns the immutable part of a row without a key, or None; several rows may share it. None
            where rows are counted by their content.
        frozen: rows cannot be changed by their reader.
        hashed: the key is a cryptographic hash (see `hash_digests`).
        plain_key: reader of the keys of all rows without the checks of `key` (see `column_of`).
        plain_number: reader of the numbers of all rows without the checks of `number`.

    """

    key: Callable[[Any], Hashable] | None = None
    number: Callable[[Any], int | None] | None = None
    number_field: str = ""
    unique: bool = False
    stable: Callable[[Any], Hashable] | None = None
    frozen: bool = False
    hashed: bool = False
    plain_key: Column | None = None
    plain_number: Column | None = None

    def keys_of(self, rows: Sequence[Any]) -> tuple[Sequence[Hashable], AbstractSet[Hashable]]:
        """Return the key of each row, None if it lacks one; and the distinct keys."""
        if self.key is None:
            return (None,) * len(rows), _NO_KEYS
        plain = None if self.plain_key is None else _plain_keys(self.plain_key, rows)
        if plain is not None:
            return plain
        keys = tuple(map(self.key, rows))
        return keys, {*keys}

    def numbers_of(self, rows: Sequence[Any]) -> Sequence[int | None]:
        """Return the number of each row; nothing for a list without numbers.

        It is None for a row that lacks one. Numbers that fall by equal steps are a range.
        """
        if self.number is None:
            return ()
        try:
            plain = None if self.plain_number is None else self.plain_number(rows)
        except (AttributeError, TypeError):  # a row lacks the attribute
            plain = None
        if plain is not None and (run := _run_of(plain)) is not None:
            return run
        if plain is None or not {*map(type, plain)} <= {int}:
            return list(map(self.number, rows))
        return plain


def _run_of(numbers: list[Any]) -> range | None:
    """Return numbers that fall by equal steps, such as points of time, as a range.

    An object for each number of the range would take twice as long. Numbers of 32 bits are the digits of one
    large number; for a range, that number is a sum of two products.
    """
    count = len(numbers)
    if count < 2 or type(first := numbers[0]) is not int or type(second := numbers[1]) is not int:
        return None
    step = second - first
    run = range(first, first + step * count, step) if step < 0 else range(0)
    if not run or numbers[-1] != run[-1]:
        return None
    pack, ones, places = _powers(count)
    try:
        digits = int.from_bytes(pack(*numbers), "little")
    except struct.error:  # one of them is negative, larger, or no whole number
        return None
    return run if digits == first * ones + step * places else None


@lru_cache(maxsize=32)  # pages of a list have the same size, but for the last one
def _powers(count: int) -> tuple[Callable[..., bytes], int, int]:
    """Return the packer of digits, and the numbers of digits 1, 1, 1 and 0, 1, 2."""
    pack = struct.Struct(f"<{count}I").pack
    ones = int.from_bytes(pack(*repeat(1, count)), "little")
    return pack, ones, int.from_bytes(pack(*range(count)), "little")


def _plain_keys(read: Column, rows: Sequence[Any]) -> tuple[Sequence[Any], AbstractSet[Any]] | None:
    """Return the keys of rows that all have one, and the distinct ones; else None."""
    try:
        keys = tuple(read(rows))
        distinct = {*keys}
    except (AttributeError, TypeError):  # one of them lacks an attribute, or has no hash
        return None
    if None in distinct:
        return None
    if tuple in {*map(type, keys)} and None in chain.from_iterable(k for k in keys if type(k) is tuple):
        return None
    return keys, distinct


DIGEST_SIZE = 12  # bytes
HASH = 66  # characters of a hash of 32 bytes: 0x, and its digits
MANY = 1_000  # hashes that are read at once

_NO_KEYS = frozenset[Hashable]()
_NO_INDICES = frozenset[int]()


class PageRows:
    """Rows of one page, as they were on arrival: a reader may change them later.

    Attributes:
        size: number of the rows.
        keyed: whether the key, if there is one, identifies rows.
        numbers: descending number of each row; empty for a list without one.
        keys: key of each row, None for a row that lacks one.
        repeated: indices of the rows that a neighboring page of this pass had.

    """

    def __init__(self, page: RowsOfPage, identity: Identity, *, keyed: bool) -> None:
        rows = page.rows
        self.size: int = len(rows)
        self.keyed = keyed
        self._identity = identity
        self._page = page
        self.numbers: Sequence[int | None] = identity.numbers_of(rows)
        self.repeated: AbstractSet[int] = _NO_INDICES
        self.keys: Sequence[Hashable] = self.numbers
        self._distinct: AbstractSet[Hashable] | None = None
        if not identity.unique:
            self.keys, self._distinct = identity.keys_of(rows)
        self._rows: Sequence[Any] = () if identity.stable is None else tuple(rows)
        if self._rows and not identity.frozen:
            _ = self.stable

    @property
    def distinct(self) -> AbstractSet[Hashable]:
        """The distinct keys."""
        if self._distinct is None:
            self._distinct = {*self.keys}
        return self._distinct

    def read(self, number: Callable[[Any], int | None]) -> list[int | None]:
        """Return another number of each row; the reader of the page must not have it yet."""
        return list(map(number, self._page.rows))

    @cached_property
    def stable(self) -> Sequence[Hashable]:
        """Immutable part of each row; empty where rows are counted by their content."""
        stable = self._identity.stable
        return () if stable is None else list(map(stable, self._rows))

    @property
    def signature(self) -> int:
        """Hash of the keys if they identify rows, else of the content.

        If all rows of a page belong to neighbors of a range, it is a hash of the content too.
        """
        if self.keyed and isinstance(self.keys, range):
            return hash(self.keys)
        if not self.keyed or not self.size or None in self.keys:
            return self._page.digest
        return hash(tuple(self.keys))

    @cached_property
    def contents(self) -> Sequence[bytes]:
        """Canonical JSON of each row."""
        return self._page.canonical_rows()

    @property
    def content(self) -> Content:
        """Content of the rows, without the rows."""
        return self._page.content

    @cached_property
    def hashes(self) -> Sequence[int]:
        """Hash of each row, in this process: of what identifies it."""
        keys: Sequence[Any] = self.keys
        kinds = {*map(type, keys)} if self.keyed else set[type]()
        if kinds == {int}:
            return keys
        if kinds == {str}:
            return list(map(hash, keys))
        return [hash(self._identified_by(index)) for index in range(self.size)]

    def _identified_by(self, index: int) -> str | bytes:
        # Python hashes -1 and -2 alike, also inside of tuples.
        if self.keyed and (key := self.keys[index]) is not None:
            return key if isinstance(key, str) else repr(key)
        if self.stable and (part := self.stable[index]) is not None:
            return repr(part)
        return self.contents[index]

    def digest(self, index: int) -> bytes:
        """Return the digest of what identifies a row, the same in every process."""
        if self.keyed and (key := self.keys[index]) is not None:
            return hash_digests((key,))[0] if self._identity.hashed else key_digest(key)
        if self.stable and (part := self.stable[index]) is not None:
            return _digest(b"s", repr(part).encode("utf-8", "surrogatepass"))
        return self.content_digest(index)

    def digests(self, indices: Sequence[int]) -> Sequence[bytes]:
        """Return the digests of rows."""
        if self._identity.hashed and self.keyed and None not in self.distinct:
            return hash_digests([self.keys[index] for index in indices])
        return [self.digest(index) for index in indices]

    def content_digest(self, index: int) -> bytes:
        """Return the digest of a row's content."""
        return _digest(b"c", self.contents[index])

    def has_key(self, index: int) -> bool:
        """Check whether a row has a key that identifies it."""
        return self.keyed and self.keys[index] is not None

    def mark(self, index: int) -> str:
        """Return the mark of a row: half the digest of its key, or of its content.

        That is enough among neighboring pages. It is hexadecimal.
        """
        key = self.keys[index] if self.keyed else None
        return (self.digest(index) if key is None else key_digest(key))[:8].hex()

    def marks(self, index: int) -> str:
        """Return the marks of a row: of its content, and of its key or immutable part.

        The second is there only if the row is counted by that.
        """
        content, mark = self.content_digest(index)[:8].hex(), self.mark(index)
        return content if mark == content else content + mark


class EmptyPage:
    """Empty page, open before the first page arrives."""

    rows: list[Any] = []  # noqa: RUF012 - never filled
    next_page_token = None
    extra = ()
    body = b"{}"
    digest = 0

    @property
    def content(self) -> EmptyPage:
        """The page itself, which has nothing."""
        return self

    def canonical_rows(self) -> Sequence[bytes]:
        """Return nothing."""
        return ()


def key_digest(key: Hashable) -> bytes:
    """Return the digest of a key."""
    return _digest(b"k", repr(key).encode("utf-8", "surrogatepass"))


def hash_digests(keys: Sequence[Any]) -> list[bytes]:
    """Return the digests of keys that are hashes: their last bytes.

    These are as good as a digest of the text, and made of a whole page at once. A key of another form has
    its `key_digest`.
    """
    if len(keys) > MANY:
        parts = (keys[place : place + MANY] for place in range(0, len(keys), MANY))
        return [*chain.from_iterable(map(hash_digests, parts))]
    try:
        lengths = {*map(len, keys)}
        if lengths == {HASH}:
            ends, digests = _splitters(len(keys))
            packed = bytes.fromhex(b"".join(ends("".join(keys).encode("ascii"))).decode())
            if len(packed) == DIGEST_SIZE * len(keys):  # without white space, which is skipped
                return [*digests(packed)]
    except (TypeError, ValueError):  # a key is no string, or not hexadecimal
        lengths = {HASH}
    if HASH not in lengths or len(keys) == 1:
        return [*map(key_digest, keys)]
    return [digest for key in keys for digest in hash_digests((key,))]


@lru_cache(maxsize=32)  # pages of a list have the same size, but for the last one
def _splitters(count: int) -> tuple[_Split, _Split]:
    """Return splitters of joined hashes, to their last digits, and of joined digests."""
    digits = 2 * DIGEST_SIZE
    last = struct.Struct(f"{HASH - digits}x{digits}s" * count)
    return last.unpack, struct.Struct(f"{DIGEST_SIZE}s" * count).unpack


def _digest(kind: bytes, content: bytes) -> bytes:
    made = _HASHES[kind].copy()  # twice as fast as making it
    made.update(content)
    return made.digest()


_HASHES = {kind: hashlib.blake2b(digest_size=DIGEST_SIZE, person=kind) for kind in (b"c", b"k", b"s")}

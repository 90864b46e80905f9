"""Rows of a page with their keys, descending numbers and digests."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import cached_property, lru_cache
from itertools import chain
from operator import attrgetter
from typing import Any, Protocol, TypeAlias, overload

from attrs import frozen

from chainapi.core.paging.digests import DIGEST_SIZE
from chainapi.core.paging.order import Rows, Run, with_run

__all__ = [
    "Column",
    "Content",
    "EmptyPage",
    "Identity",
    "PageRows",
    "RowsOfPage",
    "RunDigests",
    "column_of",
    "hash_digests",
    "key_digest",
    "mark_digest",
    "number_digest",
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
        """Return the key of each row, None where it lacks one; and the distinct keys."""
        if self.key is None:
            return (None,) * len(rows), _NO_KEYS
        plain = None if self.plain_key is None else _plain_keys(self.plain_key, rows)
        if plain is not None:
            return plain
        keys = tuple(map(self.key, rows))
        return keys, {*keys}

    def numbers_of(self, rows: Sequence[Any]) -> tuple[Sequence[int | None] | None, Run | None]:
        """Return the number of each row, and their run; None for a list without numbers.

        The numbers of a run are a `range`.
        """
        if self.number is None:
            return None, None
        try:
            plain = None if self.plain_number is None else self.plain_number(rows)
        except (AttributeError, TypeError):  # a row lacks the attribute
            plain = None
        if plain is None:
            return with_run(list(map(self.number, rows)))
        numbers, run = with_run(plain)
        if run is not None or not {*map(type, plain)} - {int}:
            return numbers, run
        return with_run(list(map(self.number, rows)))


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


HASH = 66  # characters of a hash of 32 bytes: 0x, and its digits
MANY = 1_000  # hashes that are read at once

_NO_KEYS = frozenset[Hashable]()
_NO_INDICES = frozenset[int]()
_NO_ROWS = Rows()  # never changed


class PageRows:
    """Rows of one page, as they were on arrival: a reader may change them later."""

    def __init__(self, page: RowsOfPage, identity: Identity, *, keyed: bool) -> None:
        rows = page.rows
        self.size = len(rows)
        self.keyed = keyed  # the key, where there is one, identifies rows
        self._identity = identity
        self._page = page
        self.numbers, self.run = identity.numbers_of(rows)
        self.repeated: AbstractSet[int] = _NO_INDICES
        self.ordered = _NO_ROWS  # those that keep the order of the list
        # Key of each row, None for a row that lacks one; and the distinct keys.
        self.keys: Sequence[Hashable]
        self.distinct: AbstractSet[Hashable]
        if identity.unique and self.numbers is not None:
            self.keys, self.distinct = self.numbers, {*(() if self.run else self.numbers)}
        else:
            self.keys, self.distinct = identity.keys_of(rows)
        self._rows: Sequence[Any] = () if identity.stable is None else tuple(rows)
        if self._rows and not identity.frozen:
            _ = self.stable

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
        """Hash of the keys where those identify rows, else of the content.

        That of a page whose rows all belong to neighbors of a range is of its content, too.
        """
        if not self.keyed or not self.size:
            return self._page.digest
        if self.run is not None and self._identity.unique:
            return hash(self.run)
        return hash(tuple(self.keys)) if None not in self.distinct else self._page.digest

    @cached_property
    def contents(self) -> Sequence[bytes]:
        """Canonical JSON of each row."""
        return self._page.canonical_rows()

    @property
    def content(self) -> Content:
        """Content of the rows, without the rows."""
        return self._page.content

    def digest(self, index: int) -> bytes:
        """Return the digest under which a row is counted: of its key, else of its content."""
        if self.keyed and (key := self.keys[index]) is not None:
            return self._key_digests((key,))[0]
        if self.stable and (part := self.stable[index]) is not None:
            return _digest(b"s", repr(part).encode("utf-8", "surrogatepass"))
        return self.content_digest(index)

    def digests(self, indices: Sequence[int]) -> Sequence[bytes]:
        """Return the digests of rows; those of a run are made when they are read."""
        if not self.keyed and not self.stable:
            return [_digest(b"c", self.contents[index]) for index in indices]
        keys = self.keys
        if self.keyed and isinstance(keys, range) and isinstance(indices, range):
            return RunDigests(keys[indices.start : indices.stop])  # their step is 1
        if not self.keyed or None in keys:
            return [self.digest(index) for index in indices]
        whole = len(indices) == len(keys)
        return self._key_digests(keys if whole else [keys[index] for index in indices])

    def _key_digests(self, keys: Sequence[Hashable]) -> Sequence[bytes]:
        return hash_digests(keys) if self._identity.hashed else [*map(key_digest, keys)]

    def content_digest(self, index: int) -> bytes:
        """Return the digest of a row's content."""
        return _digest(b"c", self.contents[index])

    def mark(self, index: int) -> str:
        """Return the mark of a row: half the digest of its key, or of its content.

        That is enough among neighboring pages. It is hexadecimal.
        """
        key = self.keys[index] if self.keyed else None
        return (self.digest(index) if key is None else key_digest(key))[:8].hex()

    def late_mark(self, index: int) -> Mapping[str, int]:
        """Return the mark of a row, counted once; that of a key is made when it is read."""
        key = self.keys[index] if self.keyed else None
        return {self.mark(index): 1} if key is None else KeyMark(key)

    def marks(self, index: int) -> str:
        """Return the mark of a row's content, then that of its key or its immutable part.

        The second is there only if the row is counted by that.
        """
        content, mark = self.content_digest(index)[:8].hex(), self.mark(index)
        return content if mark == content else content + mark


class KeyMark(Mapping[str, int]):
    """Mark of a row by its key, counted once; it is made when it is first read."""

    __slots__ = ("_key", "_mark")

    def __init__(self, key: Hashable) -> None:
        self._key = key
        self._mark = ""

    @property
    def mark(self) -> str:
        """The mark."""
        if not self._mark:  # several places of a checkpoint have the same one
            self._mark = key_digest(self._key)[:8].hex()
        return self._mark

    def __getitem__(self, mark: str) -> int:
        """Return the number of rows with a mark."""
        if mark != self.mark:
            raise KeyError(mark)
        return 1

    def __iter__(self) -> Iterator[str]:
        yield self.mark

    def __len__(self) -> int:
        return 1


class RunDigests(Sequence[bytes]):
    """Digests of rows whose keys are a run of numbers; each is made when it is read.

    Attributes:
        numbers: the keys.

    """

    __slots__ = ("numbers",)

    def __init__(self, numbers: range) -> None:
        self.numbers = numbers

    @overload
    def __getitem__(self, index: int) -> bytes: ...
    @overload
    def __getitem__(self, index: slice) -> RunDigests: ...
    def __getitem__(self, index: int | slice) -> bytes | RunDigests:
        """Return the digest of a row, or those of some rows."""
        found = self.numbers[index]
        return RunDigests(found) if isinstance(found, range) else key_digest(found)

    def __len__(self) -> int:
        return len(self.numbers)


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


def number_digest(number: int) -> bytes:
    """Return the digest of a number."""
    return _digest(b"n", str(number).encode())


def mark_digest(number: int, mark: str) -> bytes:
    """Return the digest of a number and the mark of one row that has it."""
    return _digest(b"m", f"{number} {mark}".encode())


def _digest(kind: bytes, content: bytes) -> bytes:
    made = _HASHES[kind].copy()  # twice as fast as making it
    made.update(content)
    return made.digest()


_HASHES = {
    kind: hashlib.blake2b(digest_size=DIGEST_SIZE, person=kind) for kind in (b"c", b"k", b"m", b"n", b"s")
}

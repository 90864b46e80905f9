"""Counts of digests in 15 to 28 bytes each; a dict of Python takes two hundred."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

__all__ = ["DIGEST_SIZE", "DigestCounter", "DigestLog"]

DIGEST_SIZE = 12  # bytes
CELL = 16  # bytes: the digest, then two counts of two bytes each
LARGEST = 0xFFFF  # of a count in a cell; larger ones are kept in a dict
EMPTY = bytes(CELL)
TABLES = 64
FIRST_SLOTS = 8
FEW = 4_096  # digests of a log with one shard
BUCKET = 64  # digests that a bucket has on average, before there are more buckets
MORE = 8  # times as many


class DigestLog:
    """Digests, each as often as it was added, in about 15 bytes each.

    They lie one after the other in buckets: adding one takes no search. The buckets of a long log are in
    many shards, so that growing one of them copies little.
    """

    def __init__(self) -> None:
        self._shards = [[bytearray()]]
        self._counts = [0]

    def __contains__(self, digest: bytes) -> bool:
        return next(self._places(digest), None) is not None

    def count(self, digest: bytes) -> int:
        """Return how often a digest was added."""
        return sum(1 for _ in self._places(digest))

    def _places(self, digest: bytes) -> Iterator[int]:
        """Yield the places of a digest in its bucket."""
        buckets = self._shards[digest[0] % len(self._shards)]
        bucket = buckets[int.from_bytes(digest[1:4], "little") % len(buckets)]
        at = bucket.find(digest)
        while at >= 0:
            if not at % DIGEST_SIZE:  # else the end of one digest and the beginning of the next
                yield at
            at = bucket.find(digest, at + 1)

    def __iter__(self) -> Iterator[bytes]:
        for buckets in self._shards:
            for bucket in buckets:
                for at in range(0, len(bucket), DIGEST_SIZE):
                    yield bytes(bucket[at : at + DIGEST_SIZE])

    def extend(self, digests: Sequence[bytes]) -> None:
        """Add digests."""
        if self._counts[0] > FEW and len(self._shards) == 1:
            self._share()
        shards, counts = self._shards, self._counts
        many = len(shards)
        for digest in digests:
            index = digest[0] % many
            buckets = shards[index]
            buckets[int.from_bytes(digest[1:4], "little") % len(buckets)] += digest
            counts[index] += 1
            if counts[index] > BUCKET * len(buckets):
                shards[index] = _split(buckets)

    def _share(self) -> None:
        """Distribute the digests to many shards."""
        few = list(self)
        self._shards, self._counts = [[bytearray()] for _ in range(TABLES)], [0] * TABLES
        self.extend(few)


def _split(buckets: list[bytearray]) -> list[bytearray]:
    """Return more buckets with the same digests."""
    more = [bytearray() for _ in range(MORE * len(buckets))]
    for bucket in buckets:
        for at in range(0, len(bucket), DIGEST_SIZE):
            digest = bucket[at : at + DIGEST_SIZE]
            more[int.from_bytes(digest[1:4], "little") % len(more)] += digest
    return more


class DigestCounter:
    """Two counts for each digest: given in all passes, and met in this pass.

    In the first pass both are the same, and a log is enough. Digests that come in a later pass are in tables
    with open addressing, in byte arrays. Many small tables, so that growing one of them copies little; a
    table is made when its first digest comes.
    """

    def __init__(self) -> None:
        self.first_pass = True  # no restart came yet: nothing was given more often than it was met
        self._log = DigestLog()  # given in the first pass
        self._tables: list[bytearray | None] = []  # made with the second pass, as the counts are
        self._used: list[int] = []
        self._large: dict[bytes, tuple[int, int]] = {}

    def __contains__(self, digest: bytes) -> bool:
        return digest in self._log or self._get(digest) != (0, 0)

    def meet(self, digest: bytes) -> bool:
        """Count a meeting with a digest that was given more often than met.

        Return False for any other digest.
        """
        if self.first_pass:
            return False
        given, met = self._get(digest)
        if met >= given:
            return False
        self._put(digest, given, met + 1)
        return True

    def give(self, digest: bytes) -> None:
        """Count a digest as given, and as met in this pass."""
        if self.first_pass:
            self._log.extend((digest,))
            return
        given, met = self._get(digest)
        self._put(digest, given + 1, met + 1)

    def give_new(self, digests: Sequence[bytes]) -> bool:
        """Count digests as given in the first pass; return whether one of them is new."""
        log = self._log
        new = any(digest not in log for digest in digests)  # of nearly all pages the first one is
        log.extend(digests)
        return new

    def restart(self) -> None:
        """Begin another pass: nothing was met in it yet."""
        if self.first_pass:
            self.first_pass = False
            self._tables, self._used = list[bytearray | None]([None] * TABLES), [0] * TABLES
        for table in self._tables:
            if table is not None:
                zeros = bytes(len(table) // CELL)
                table[14::CELL], table[15::CELL] = zeros, zeros
        self._large = {digest: (given, 0) for digest, (given, _) in self._large.items()}

    def _get(self, digest: bytes) -> tuple[int, int]:
        if self._large and digest in self._large:
            return self._large[digest]
        table = self._tables[digest[0] % TABLES] if self._tables else None
        cell = EMPTY
        if table is not None:
            at = _find(table, digest)
            cell = bytes(table[at : at + CELL])
        if cell == EMPTY:
            return self._log.count(digest), 0
        return int.from_bytes(cell[12:14], "little"), int.from_bytes(cell[14:], "little")

    def _put(self, digest: bytes, given: int, met: int) -> None:
        if given > LARGEST:
            self._large[digest] = given, met
            return
        index = digest[0] % TABLES
        table = self._tables[index]
        if table is None:
            table = self._tables[index] = bytearray(CELL * FIRST_SLOTS)
        at = _find(table, digest)
        if table[at : at + CELL] == EMPTY:
            self._used[index] += 1
        table[at : at + CELL] = digest + given.to_bytes(2, "little") + met.to_bytes(2, "little")
        if self._used[index] * CELL * 4 > len(table) * 3:
            self._tables[index] = _doubled(table)


def _find(table: bytearray, digest: bytes) -> int:
    """Return the offset of the digest, or of the free cell for it."""
    mask = len(table) // CELL - 1
    slot = int.from_bytes(digest[4:], "little") & mask
    while True:
        at = slot * CELL
        cell = table[at : at + DIGEST_SIZE]
        if cell == digest or table[at : at + CELL] == EMPTY:
            return at
        slot = (slot + 1) & mask


def _doubled(table: bytearray) -> bytearray:
    grown = bytearray(2 * len(table))
    for at in range(0, len(table), CELL):
        cell = bytes(table[at : at + CELL])
        if cell != EMPTY:
            to = _find(grown, cell[:DIGEST_SIZE])
            grown[to : to + CELL] = cell
    return grown

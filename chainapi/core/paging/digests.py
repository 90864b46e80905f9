"""Counts of digests in about 28 bytes each; a dict of Python takes two hundred."""

from __future__ import annotations

__all__ = ["DIGEST_SIZE", "DigestCounter"]

DIGEST_SIZE = 12  # bytes
CELL = 16  # bytes: the digest, then two counts of two bytes each
LARGEST = 0xFFFF  # of a count in a cell; larger ones are kept in a dict
EMPTY = bytes(CELL)
TABLES = 64
FIRST_SLOTS = 8


class DigestCounter:
    """Two counts for each digest: given in all passes, and met in this pass.

    Open addressing in byte arrays. Many small tables, so that growing one of them copies little; a table is
    made when its first digest comes.
    """

    def __init__(self) -> None:
        self._tables: list[bytearray | None] = [None] * TABLES
        self._used = [0] * TABLES
        self._large: dict[bytes, tuple[int, int]] = {}

    def __contains__(self, digest: bytes) -> bool:
        return self._get(digest) != (0, 0)

    def meet(self, digest: bytes) -> bool:
        """Count a meeting with a digest that was given more often than met.

        Return False for any other digest.
        """
        given, met = self._get(digest)
        if met >= given:
            return False
        self._put(digest, given, met + 1)
        return True

    def give(self, digest: bytes) -> None:
        """Count a digest as given, and as met in this pass."""
        given, met = self._get(digest)
        self._put(digest, given + 1, met + 1)

    def restart(self) -> None:
        """Begin another pass: nothing was met in it yet."""
        for table in self._tables:
            if table is not None:
                zeros = bytes(len(table) // CELL)
                table[14::CELL], table[15::CELL] = zeros, zeros
        self._large = {digest: (given, 0) for digest, (given, _) in self._large.items()}

    def _get(self, digest: bytes) -> tuple[int, int]:
        if self._large and digest in self._large:
            return self._large[digest]
        table = self._tables[digest[0] % TABLES]
        if table is None:
            return 0, 0
        at = _find(table, digest)
        cell = table[at : at + CELL]
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

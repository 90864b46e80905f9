"""Rows of the specification's routes, which refer to each other, and series.

Each row is computed from the seed and its number alone.
"""

from __future__ import annotations

from hashlib import blake2b
from math import pi, sin
from struct import unpack_from

from attrs import frozen

from chainapi.simulator.names import METHODS
from chainapi.simulator.rows import DAY, Draw, Row, Rows, Timed

__all__ = [
    "Blocks",
    "Points",
    "Transactions",
]

SEARCHED = 1_000  # blocks in which a hash is searched
BASE_FEE = 25_000_000_000
WORDS = 16  # in a draw: several points share one, as a page may have thousands

# Level of a day's week and half-year, until both begin again.
_RHYTHM = [1 + 0.18 * sin(2 * pi * day / 7) + 0.3 * sin(2 * pi * day / 181) for day in range(7 * 181)]


@frozen(cache_hash=True)
class Points(Timed):
    """Series of points: each chain has a level, a weekly rhythm, a swell, and noise.

    Attributes:
        draw: random bytes of each point.
        scale: factor of the values, which are whole numbers then; None for values with two decimals.
        cumulative: whether each value is the sum of those before it.

    """

    draw: Draw
    scale: int | None = None
    cumulative: bool = False

    def row(self, number: int) -> Row:
        """Return a point."""
        row: Row = self.rows(number, number + 1)[0]
        return row

    def rows(self, start: int, stop: int) -> list[Row]:
        """Return the points `stop - 1` down to `start`, newest first."""
        level = 0.8 + int.from_bytes(self.draw(-1)[:2], "little") / 8_000
        drawn = b"".join(map(self.draw, range(start // WORDS, -(-stop // WORDS))))
        words = unpack_from(f"<{stop - start}I", drawn, start % WORDS * 4)
        first, step = self.time(start), self.step
        points = [
            self._point(number, first + (number - start) * step, word / 2**32, level)
            for number, word in enumerate(words, start)
        ]
        return points[::-1]

    def _point(self, number: int, time: int, noise: float, level: float) -> Row:
        if self.cumulative:
            scale = self.scale or 1
            return {"timestamp": time, "value": number * scale + int(noise * scale)}
        value = level * (_RHYTHM[time // DAY % len(_RHYTHM)] + 0.4 * (noise - 0.5))
        return {"timestamp": time, "value": int(value * self.scale) if self.scale else round(value, 2)}


@frozen(cache_hash=True)
class Blocks(Timed):
    """Blocks of one chain, each with the hash of its parent."""

    chain: int
    draw: Draw

    @property
    def first_number(self) -> int:
        """Height of the oldest block."""
        return 10_000_000 + 1_000 * self.chain % 40_000_000

    def total(self, number: int) -> int:
        """Return the number of transactions up to and including block `number`.

        It is two for each block, plus 0 to 2 for this block alone, so that no sum over the blocks is needed.
        """
        return 2 * number + self.draw(number)[63] % 3

    def find(self, name: str, size: int) -> int:
        """Return the number of a block by height or hash, in a list of `size` blocks.

        A hash that is not among the newest blocks stands for an older block.
        """
        if name.isdecimal():
            return int(name[:18]) - self.first_number
        for number in range(size - 1, max(size - 1 - SEARCHED, -1), -1):
            if self.hash(number) == name:
                return number
        return -1 - int.from_bytes(blake2b(name.encode()).digest()[:3], "little") % 1_000_000

    def hash(self, number: int) -> str:
        """Return the hash of block `number`."""
        return "0x" + self.draw(number)[:32].hex()

    def row(self, number: int) -> Row:
        """Return a block."""
        before, own = self.draw(number - 1), self.draw(number)
        transactions = 2 + own[63] % 3 - before[63] % 3  # the difference of both totals
        gas = transactions and transactions * 21_000 + int.from_bytes(own[32:35], "little") % 180_000
        return {
            "chainId": str(self.chain),
            "blockNumber": str(self.first_number + number),
            "blockTimestamp": self.time(number),
            "blockHash": "0x" + own[:32].hex(),
            "txCount": transactions,
            "baseFee": str(BASE_FEE),
            "gasUsed": str(gas),
            "gasLimit": "15000000",
            "gasCost": "0",
            "parentHash": "0x" + before[:32].hex(),
            "feesSpent": str(gas * (BASE_FEE + own[35])),
            "cumulativeTransactions": str(10 * self.first_number + 2 * number + own[63] % 3),
        }


@frozen(cache_hash=True)
class Transactions(Rows):
    """Transactions of one chain, in its blocks.

    Both lists begin with the same newest block.
    """

    blocks: Blocks
    size: int
    draw: Draw

    def span(self, block: int) -> tuple[int, int]:
        """Return the numbers of a block's first transaction and of the next block's."""
        return self.blocks.total(block - 1) - self._shift, self.blocks.total(block) - self._shift

    @property
    def _shift(self) -> int:
        return self.blocks.total(self.blocks.size - 1) - self.size

    def row(self, number: int) -> Row:
        """Return a transaction."""
        blocks, position = self.blocks, number + self._shift
        # The block is the first one whose total exceeds the position on the chain. It is one of two, because
        # the total of block n lies between 2n and 2n + 2.
        block = position // 2 + (blocks.total(position // 2) <= position)
        drawn = self.draw(number)
        gas = 21_000 + int.from_bytes(drawn[32:35], "little") % 180_000
        call, method, name = METHODS[drawn[35] % len(METHODS)]
        return {
            "chainId": str(blocks.chain),
            "blockNumber": str(blocks.first_number + block),
            "blockTimestamp": blocks.time(block),
            "blockHash": blocks.hash(block),
            "blockIndex": position - blocks.total(block - 1),
            "txHash": "0x" + drawn[:32].hex(),
            "txStatus": "0" if drawn[36] < 5 else "1",
            "txType": 2,
            "gasLimit": str(gas + drawn[37] * 100),
            "gasUsed": str(gas),
            "gasPrice": str(BASE_FEE + drawn[38]),
            "nonce": str(int.from_bytes(drawn[39:41], "little")),
            "from": {"address": "0x" + drawn[22:42].hex()},
            "to": {"address": "0x" + drawn[44:64].hex()},
            "method": {"callType": call, "methodHash": method, "methodName": name},
            "value": str(int.from_bytes(drawn[41:49], "little")),
        }

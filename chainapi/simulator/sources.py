"""Sources of linked rows: chains, blocks, transactions, outputs, and series.

Each row is computed from the seed and its number alone.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from functools import cached_property, lru_cache
from hashlib import blake2b
from itertools import pairwise
from math import floor, pi, sin
from typing import Any

from attrs import frozen
from msgspec import Struct
from msgspec.json import decode

from chainapi.simulator.names import METHODS, PRIMARY_CHAINS, bech32, chain_names, identifier
from chainapi.simulator.rows import Draw, EncodedRows, Row, RowSource, encode

__all__ = [
    "DAY",
    "Addresses",
    "Blocks",
    "Chains",
    "Composite",
    "Fixed",
    "MetricsChains",
    "Part",
    "Points",
    "Sums",
    "TpsPoints",
    "Transactions",
    "Utxos",
    "to_hundredths",
]

DAY = 86_400
BLOCK_SECONDS = 2
SEARCHED = 1_000  # blocks in which a hash is searched
BLOCK_GAS_LIMIT = "15000000"
BASE_FEE = 25_000_000_000

_TESTNETS = frozenset({43113, 335, 432201, 13337})
_ASSET_ID = "FvwEAhmxKfeiG8SnEvq42hc6whRyY3EFYAvebMqDNDGCgxN5Z"


class _Point(Struct, gc=False):
    """Point, as it is encoded in a third less time than a dict."""

    timestamp: int
    value: float


@frozen(cache_hash=True)
class Points(EncodedRows):
    """Series of points: each chain has a level, a weekly rhythm, a swell, and noise.

    `step` is the number of seconds between two points; `scale`, a multiple of 100, multiplies the values,
    which are whole numbers then.
    """

    size: int
    epoch: int
    draw: Draw
    step: int = DAY
    scale: int | None = None

    def timestamp(self, number: int) -> int:
        """Return the Unix time of point `number`.

        The last point at the beginning is of the epoch's day.
        """
        return (self.epoch // self.step - (self.size - 1 - number)) * self.step

    def first_at(self, timestamp: int) -> int:
        """Return the number of the first point that is not older than a Unix time."""
        return self.size - 1 - self.epoch // self.step + -(-timestamp // self.step)

    def rows(self, start: int, stop: int) -> list[Row]:
        """Return the points `stop - 1` down to `start`, newest first."""
        return [{"timestamp": point.timestamp, "value": point.value} for point in self._points(start, stop)]

    def encoded(self, start: int, stop: int, *, ascending: bool) -> bytes:
        """Return the same points as a JSON array, oldest first if `ascending`."""
        points = self._points(start, stop)
        return encode(points[::-1] if ascending else points)

    def _points(self, start: int, stop: int) -> list[_Point]:
        times = range(self.timestamp(stop - 1), self.timestamp(start - 1), -self.step)
        return list(map(_Point, times, self.values(times, start, stop)))

    def values(self, times: range, start: int, stop: int) -> list[float]:
        """Return the values of the points `stop - 1` down to `start`, at `times`."""
        level, noise = 80 + int.from_bytes(self.draw(-1)[:2], "little") / 80, 0.4 / 2**32
        drawn = zip(_rhythms(times), self.words(start, stop), strict=True)
        if self.scale is None:
            return [floor(level * (rhythm + word * noise)) / 100 for rhythm, word in drawn]
        factor = self.scale // 100
        return [floor(level * (rhythm + word * noise)) * factor for rhythm, word in drawn]

    def words(self, start: int, stop: int) -> tuple[int, ...]:
        """Return random numbers below 2^32 for the points `stop - 1` down to `start`."""
        first, behind = start // WORDS, -(-stop // WORDS)  # one draw has the words of several points
        drawn = b"".join(self.draw.many(first, behind))
        skipped = (start - first * WORDS) * 4
        return struct.unpack_from(f"<{stop - start}I", drawn, skipped)[::-1]


WORDS = 16  # in a draw

# Level of a week and of a half-year, for each day until both begin again; noise adds up to 0.4.
_RHYTHM = [0.8 + 0.18 * sin(2 * pi * day / 7) + 0.3 * sin(2 * pi * day / 181) for day in range(7 * 181)]
_FALLING = _RHYTHM[::-1]


def _rhythms(times: range) -> list[float]:
    """Return the level of the day of each time."""
    days = len(_RHYTHM)
    if times.step != -DAY:
        return [_RHYTHM[time // DAY % days] for time in times]
    first = days - 1 - times.start // DAY % days
    return (_FALLING * (len(times) // days + 2))[first : first + len(times)]


@frozen(cache_hash=True)
class TpsPoints(Points):
    """Series of the specification's route: its values stay the same in all versions.

    Each point has a draw of its own, which takes three times as long as the words of other series.
    """

    def values(self, times: range, start: int, stop: int) -> list[float]:
        """Return the values of the points `stop - 1` down to `start`, at `times`."""
        level = 0.8 + int.from_bytes(self.draw(-1)[:2], "little") / 8_000
        words = [word for (word,) in struct.iter_unpack("<I60x", b"".join(self.draw.many(start, stop)))]
        values: list[float] = []
        for time, word in zip(times, reversed(words), strict=True):
            value = to_hundredths(level * (_tps_rhythm(time) + 0.4 * (word / 2**32 - 0.5)))
            values.append(max(value, 0.01))
        return values


@lru_cache(4_096)
def _tps_rhythm(time: int) -> float:
    """Return the level of a Unix time; many series share their times."""
    day = time / DAY
    return 1 + 0.18 * sin(2 * pi * day / 7) + 0.3 * sin(2 * pi * day / 181)


def to_hundredths(value: float) -> float:
    """Round a number to two decimals, four times as fast as `round(value, 2)`."""
    hundredths = value * 100
    whole = floor(hundredths)
    # A quotient of whole numbers is the float closest to it, as a rounded number is. Only beside a half could
    # the error of the product round it wrongly.
    return round(value, 2) if abs(hundredths - whole - 0.5) < 1e-6 else floor(hundredths + 0.5) / 100


@frozen(cache_hash=True)
class Sums(Points):
    """Series of a cumulative sum, whose values never fall."""

    def values(self, times: range, start: int, stop: int) -> list[float]:
        """Return the values of the points `stop - 1` down to `start`, at `times`."""
        scale, words = self.scale or 1, self.words(start, stop)
        numbers = range(stop - 1, start - 1, -1)
        return [number * scale + (word * scale >> 32) for number, word in zip(numbers, words, strict=True)]


@frozen(cache_hash=True)
class Chains(EncodedRows):
    """List of chains, in the order of the setting."""

    chains: tuple[int, ...]
    draw: Draw

    @property
    def size(self) -> int:
        """Number of chains."""
        return len(self.chains)

    def rows(self, start: int, stop: int) -> list[Row]:
        """Return the chains numbered `stop - 1` down to `start`.

        The first chain has the highest number.
        """
        return [self.chain(chain) for chain in self.chains[self.size - stop : self.size - start]]

    def chain(self, chain: int) -> Row:
        """Return the record of one chain."""
        name, token, symbol = chain_names(chain)
        host = f"https://chain-{chain}.invalid"
        drawn = self.draw(chain)
        return {
            "chainId": str(chain),
            "status": "OK",
            "chainName": name,
            "description": f"{name}, an EVM chain with the native token {symbol}.",
            "platformChainId": identifier(drawn[:49]),
            "subnetId": identifier(drawn[15:64]),
            "vmName": "EVM",
            "explorerUrl": f"{host}/explorer",
            "rpcUrl": f"{host}/rpc",
            "wsUrl": f"wss://chain-{chain}.invalid/ws",
            "isTestnet": chain in _TESTNETS,
            "networkToken": {
                "name": token,
                "symbol": symbol,
                "decimals": 18,
                "description": f"{token} pays the fees of {name}.",
            },
            "private": False,
            "enabledFeatures": ["nftIndexing", "webhooks"],
        }


@frozen(cache_hash=True)
class MetricsChains(Chains):
    """Chains as the Metrics API describes them."""

    def chain(self, chain: int) -> Row:
        """Return the record of one chain."""
        row = super().chain(chain)
        return {
            "evmChainId": chain,
            "chainName": row["chainName"],
            "blockchainId": row["platformChainId"],
            "subnetId": row["subnetId"],
            "network": "testnet" if row["isTestnet"] else "mainnet",
        }


@frozen(cache_hash=True)
class Blocks(EncodedRows):
    """Blocks of one chain, each with the hash of its parent."""

    chain: int
    size: int
    epoch: int
    draw: Draw

    @cached_property
    def first_number(self) -> int:
        """Height of the oldest block."""
        return 10_000_000 + 1_000 * self.chain % 40_000_000

    def timestamp(self, number: int) -> int:
        """Return the Unix time of block `number`."""
        return self.epoch - (self.size - 1 - number) * BLOCK_SECONDS

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
            if "0x" + self.draw(number)[:32].hex() == name:
                return number
        return -1 - int.from_bytes(blake2b(name.encode()).digest()[:3], "little") % 1_000_000

    def rows(self, start: int, stop: int) -> list[Row]:
        """Return the blocks `stop - 1` down to `start`, newest first."""
        rows: list[Row] = decode(self.encoded(start, stop, ascending=False))
        return rows

    def encoded(self, start: int, stop: int, *, ascending: bool) -> bytes:
        """Return the same blocks as a JSON array, oldest first if `ascending`."""
        head, first, time = f'{{"chainId":"{self.chain}"', self.first_number, self.timestamp(0)
        rows: list[str] = []
        pairs = pairwise(self._drawn(start - 1, stop))
        for number, ((parent, _, before), (own, word, total)) in enumerate(pairs, start):
            gas = (total - before) * 21_000 + (word & 0xFFFFFF) % 180_000 if total > before else 0
            rows.append(
                f'{head},"blockNumber":"{first + number}","blockTimestamp":{time + number * BLOCK_SECONDS},'
                f'"blockHash":"0x{own}","txCount":{total - before},"baseFee":"{BASE_FEE}",'
                f'"gasUsed":"{gas}","gasLimit":"{BLOCK_GAS_LIMIT}","gasCost":"0","parentHash":"0x{parent}",'
                f'"feesSpent":"{gas * (BASE_FEE + (word >> 24))}",'
                f'"cumulativeTransactions":"{10 * first + total}"}}'
            )
        return f"[{','.join(rows if ascending else reversed(rows))}]".encode()

    def _drawn(self, start: int, stop: int) -> list[tuple[str, int, int]]:
        """Return hash, random word and `total` of the blocks `start` to `stop - 1`."""
        drawn = _BLOCK.iter_unpack(b"".join(self.draw.many(start, stop)))
        return [
            (own.hex(), word, 2 * number + last % 3) for number, (own, word, last) in enumerate(drawn, start)
        ]


_BLOCK = struct.Struct("<32sI27xB")  # of a draw


@frozen(cache_hash=True)
class Transactions(EncodedRows):
    """Transactions of one chain, in its blocks.

    Both lists begin with the same newest block.
    """

    blocks: Blocks
    size: int
    draw: Draw

    def rows(self, start: int, stop: int) -> list[Row]:
        """Return the transactions `stop - 1` down to `start`, newest first."""
        shift = self._shift
        return [self._transaction(number, number + shift) for number in range(stop - 1, start - 1, -1)]

    def span(self, block: int) -> tuple[int, int]:
        """Return the numbers of a block's first transaction and of the next block's."""
        return self.blocks.total(block - 1) - self._shift, self.blocks.total(block) - self._shift

    @property
    def _shift(self) -> int:
        return self.blocks.total(self.blocks.size - 1) - self.size

    def _transaction(self, number: int, position: int) -> Row:
        # The block is the first one whose total exceeds the position on the chain. It is one of two, because
        # the total of block n lies between 2n and 2n + 2.
        block = position // 2
        if self.blocks.total(block) <= position:
            block += 1
        drawn = self.draw(number)
        gas = 21_000 + int.from_bytes(drawn[32:35], "little") % 180_000
        call, method, name = METHODS[drawn[35] % len(METHODS)]
        return {
            "chainId": str(self.blocks.chain),
            "blockNumber": str(self.blocks.first_number + block),
            "blockTimestamp": self.blocks.timestamp(block),
            "blockHash": "0x" + self.blocks.draw(block)[:32].hex(),
            "blockIndex": position - self.blocks.total(block - 1),
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


@frozen(cache_hash=True)
class Part(EncodedRows):
    """Rows of a source from row `first` on, as a list of their own."""

    source: RowSource
    first: int
    size: int

    def rows(self, start: int, stop: int) -> list[Row]:
        """Return the rows `stop - 1` down to `start`, newest first."""
        return self.source.rows(self.first + start, self.first + stop)


@frozen(cache_hash=True)
class Utxos(EncodedRows):
    """Unspent outputs of one of the three chains of a network."""

    network: str
    blockchain: str
    size: int
    epoch: int
    draw: Draw

    def rows(self, start: int, stop: int) -> list[Row]:
        """Return the outputs `stop - 1` down to `start`, newest first."""
        return [self._utxo(number) for number in range(stop - 1, start - 1, -1)]

    def _utxo(self, number: int) -> Row:
        drawn = self.draw(number)
        amount = str(int.from_bytes(drawn[:5], "little"))
        prefix = "avax1" if self.network == "mainnet" else "fuji1"
        home = PRIMARY_CHAINS[self.blockchain]
        return {
            "addresses": [prefix + bech32(drawn[:38])],
            "asset": {
                "assetId": _ASSET_ID,
                "name": "Avalanche",
                "symbol": "AVAX",
                "denomination": 9,
                "type": "secp256k1",
                "amount": amount,
            },
            "consumedOnChainId": home,
            "createdOnChainId": home,
            "utxoId": identifier(drawn[:49]),
            "amount": amount,
            "assetId": _ASSET_ID,
            "blockNumber": str(9_000_000 + number),
            "blockTimestamp": self.epoch - (self.size - 1 - number) * 7,
            "outputIndex": drawn[63] % 4,
            "platformLocktime": 0,
            "threshold": 1,
            "txHash": identifier(drawn[15:64]),
            "utxoType": "TRANSFER",
            "staked": False,
        }


@frozen(eq=False)
class Fixed(EncodedRows):
    """Rows that are there as they are, newest first."""

    kept: tuple[Any, ...]

    @property
    def size(self) -> int:
        """Number of rows."""
        return len(self.kept)

    def rows(self, start: int, stop: int) -> list[Any]:
        """Return the rows `stop - 1` down to `start`, newest first."""
        return list(self.kept[self.size - stop : self.size - start])


SELECTED = 160  # of 256 addresses that a subquery selects


@frozen(eq=False)
class Addresses(EncodedRows):
    """Addresses among which the subqueries of a composite query select."""

    size: int
    draw: Draw

    def rows(self, start: int, stop: int) -> list[Any]:
        """Return the addresses `stop - 1` down to `start`."""
        return ["0x" + self.draw(number)[:20].hex() for number in range(stop - 1, start - 1, -1)]

    def composite(self, queries: list[Row], operator: str) -> Composite:
        """Return the addresses that all (AND) or any (OR) of the subqueries select.

        A subquery selects the same addresses in every composite query.
        """
        chosen = {str(query["id"]): self._chosen(query) for query in queries}
        sets = list(chosen.values())
        found = set.intersection(*sets) if operator == "AND" else set.union(*sets)
        rows = [row for number in sorted(found, reverse=True) for row in self.rows(number, number + 1)]
        return Composite(tuple(rows), {name: len(numbers) for name, numbers in chosen.items()})

    def _chosen(self, query: Row) -> set[int]:
        condition = json.dumps([query["type"], query["params"]], sort_keys=True).encode()
        return {
            number
            for number in range(self.size)
            if blake2b(self.draw(number) + condition, digest_size=1).digest()[0] < SELECTED
        }


@frozen(eq=False)
class Composite(Fixed):
    """Addresses of a composite query, with the numbers of each subquery's."""

    sub_counts: Mapping[str, int]

    def counts(self) -> Row:
        """Return what a page holds besides its addresses."""
        return {"subQueryCounts": dict(self.sub_counts), "totalCount": self.size}

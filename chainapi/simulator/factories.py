"""Rows made from models: what a field holds follows from its type, its name and a draw.

A model is turned into a function once; that function makes a row from its `Origin`, the same row for the same
origin. The tables below say what a name stands for: hashes, addresses and identifiers look like those of the
services, whole numbers are texts where the services send texts, times and heights fall from row to row.
"""

from __future__ import annotations

import re
import types
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from functools import cache
from random import Random
from typing import Annotated, Any, Literal, TypeAlias
from uuid import UUID

import attrs
from attrs import define, frozen

from chainapi.models.unions import Tag, tags_of, wire_name
from chainapi.simulator.names import CHAIN_NAMES, METHODS, bech32, identifier
from chainapi.simulator.rows import Draw, Row
from chainapi.simulator.sources import DAY

__all__ = ["FIRST_HEIGHT", "Made", "Origin", "maker"]

FIRST_HEIGHT = 9_000_000  # the block of row 0
MISSING = 0.2  # how often a field is missing that may be


@define
class Origin:
    """What a row is made from.

    Attributes:
        random: what is drawn for it.
        number: its place in its list, counted from the oldest row.
        time: Unix time in seconds.
        chains: the chain ids that exist.
        echoes: values of the request, by their names on the wire, that the row repeats.
        shared: those of them that the records inside of the row repeat too.
        kind: index of the token, or whatever has a name, that is being made.

    """

    random: Random
    number: int
    time: int
    chains: tuple[int, ...]
    echoes: Mapping[str, str]
    shared: Mapping[str, str]
    kind: int = 0

    def below(self, limit: int) -> int:
        """Draw a whole number from 0 to `limit - 1`."""
        return int(self.random.random() * limit)

    def one_of(self, choices: Sequence[Any]) -> Any:
        """Draw one of the choices."""
        return choices[int(self.random.random() * len(choices))]


Make: TypeAlias = Callable[[Origin], Any]
Table: TypeAlias = Sequence[tuple[str, Make]]  # patterns of names, the first that fits counts

_UNIONS = (typing.Union, types.UnionType)

# Values of the request that hold at any depth; all others hold for the row itself.
SHARED = frozenset({"chainId", "chainName", "network", "currencyCode"})
# Fields that are the row itself, under a name.
WRAPPERS = frozenset({"nativeTransaction", "nativeTokenBalance", "result", "chainInfo"})
# Fields that the services always send, although their models do not insist on them.
ALWAYS: Mapping[str, frozenset[str]] = {
    **dict.fromkeys(("EvmBlock", "NativeTransaction", "FullNativeTransaction"), frozenset({"chainId"})),
    **dict.fromkeys(("Erc20TokenBalance", "Erc20TokenV2"), frozenset({"tokenReputation"})),
    "ActiveValidator": frozenset({"geolocation"}),
    "NetworkToken": frozenset({"name", "symbol", "decimals"}),
    "ChainInfo": frozenset(
        {"chainId", "status", "chainName", "description", "vmName", "rpcUrl", "isTestnet", "networkToken"}
    ),
}
# Whole numbers that are texts in these records only; `Page` stands for what a page holds besides its rows.
IN_DIGITS = frozenset({"Utxo.outputIndex", "Page.blockHeight"})
# Two names of one network: a field holds the one that its record lists.
SYNONYMS = {"fuji": "testnet", "testnet": "fuji"}


@frozen
class Made:
    """A list of rows that are made from their model; a single resource is the one row of its list.

    Attributes:
        make: what makes a row.
        size: how many rows the list had at the beginning.
        epoch: Unix time in seconds of the newest of them.
        step: seconds between two rows.
        draw: what is drawn for each row.
        chains: the chain ids that exist.
        echoes: what the rows repeat of the request, as pairs.

    """

    make: Make
    size: int
    epoch: int
    step: int
    draw: Draw
    chains: tuple[int, ...]
    echoes: tuple[tuple[str, str], ...]

    def first_at(self, timestamp: int) -> int:
        """Return the number of the first row that is not older than a Unix time."""
        return self.size - 1 - self.epoch // self.step + -(-timestamp // self.step)

    def rows(self, start: int, stop: int) -> list[Row]:
        """Return the rows `stop - 1` down to `start`, newest first."""
        return [self.make(origin) for origin in self.origins(start, stop)]

    def origins(self, start: int, stop: int) -> Iterator[Origin]:
        """Yield what the rows `stop - 1` down to `start` are made from."""
        echoes = dict(self.echoes)
        shared = {name: text for name, text in self.echoes if name in SHARED}
        for number in range(stop - 1, start - 1, -1):
            time = (self.epoch // self.step - (self.size - 1 - number)) * self.step
            random = Random(self.draw(number))  # noqa: S311 - a simulation is to be repeatable, not secret
            yield Origin(random, number, time, self.chains, echoes, shared)


# From types to functions


@cache
def maker(
    hint: Any, name: str = "", *, owner: Any = None, outer: bool = True, without: frozenset[str] = frozenset()
) -> Make:
    """Return what makes values of a type, for a field of this name on the wire.

    `owner` is the record that has the field, `outer` says that the value is the row itself, and `without`
    names the kinds of a union that are not made.
    """
    if tags := tags_of(hint):
        return _of_kinds([tag for tag in tags if tag.kind.__name__ not in without], outer=outer)
    if attrs.has(hint):
        return _record(hint, outer=outer)
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is Annotated:
        return maker(arguments[1], name)
    if origin is Literal:
        return lambda made: made.one_of(arguments)
    if origin in _UNIONS:
        return maker(arguments[0], name, owner=owner, outer=outer)
    if origin is list:
        return _several(maker(arguments[0], name, owner=owner, outer=False))
    if origin is dict:
        return _mapping(arguments[1])
    return _scalar(hint, name, owner)


def _of_kinds(tags: Sequence[Tag], *, outer: bool) -> Make:
    """Make one of several kinds: one that the request asks for, where it asks for one."""
    kinds = [(tag, maker(tag.kind, outer=outer)) for tag in tags]

    def fits(tag: Tag, echoes: Mapping[str, str]) -> bool:
        if tag.value is not None:
            return echoes.get(tag.path[0], tag.value) == tag.value
        # Kinds of the Primary Network have the letter of their chain: PChainTransaction is of the p-chain.
        return echoes.get("chainName", tag.kind.__name__)[0].upper() == tag.kind.__name__[0]

    def make(origin: Origin) -> Any:
        wanted = [one for one in kinds if fits(one[0], origin.echoes)] or kinds
        return origin.one_of(wanted)[1](origin)

    return make


def _record(model: Any, *, outer: bool) -> Make:
    """Make objects with the fields of a record; those that may be missing are missing at times."""
    hints = typing.get_type_hints(model, include_extras=True)
    always = ALWAYS.get(model.__name__, frozenset[str]())
    fields: list[tuple[str, bool, Make, Callable[[str], Any] | None]] = []
    for field in attrs.fields(model):
        name = wire_name(field.name)
        hint = hints[field.name]
        make = maker(hint, name, owner=model, outer=outer and name in WRAPPERS)
        fields.append((name, field.default is None and name not in always, make, _echo(hint, name)))

    def record(origin: Origin) -> Row:
        origin.kind = origin.below(256)
        echoes = origin.echoes if outer else origin.shared
        made: Row = {}
        for name, may_miss, make, echo in fields:
            if echo is not None and name in echoes and (text := echo(echoes[name])) is not None:
                made[name] = text
            elif not may_miss or origin.random.random() >= MISSING:
                made[name] = make(origin)
        return made

    return record


def _echo(hint: Any, name: str) -> Callable[[str], Any] | None:
    """Return how a value of the request is repeated in a field; None for a field that repeats none."""
    if typing.get_origin(hint) in _UNIONS:
        hint = typing.get_args(hint)[0]
    if hint is int:
        kind = str if _find(_WHOLE_TEXTS, name) else int
        return lambda text: kind(text) if re.fullmatch("0|[1-9][0-9]{0,77}", text) else None
    if typing.get_origin(hint) is Annotated:
        choices = typing.get_args(typing.get_args(hint)[1])
        return lambda text: text if text in choices else SYNONYMS.get(text, text)
    return str if hint is str else None


def _several(make: Make) -> Make:
    """Make one or two values, the second one as of the day before."""

    def several(origin: Origin) -> list[Any]:
        made = [make(origin)]
        if origin.below(2):
            origin.time -= DAY
            made.append(make(origin))
            origin.time += DAY
        return made

    return several


def _mapping(hint: Any) -> Make:
    if hint is Any:
        return lambda origin: {"publicKey": _hex(48)(origin), "proofOfPossession": _hex(96)(origin)}
    value = maker(hint, outer=False)
    return lambda origin: {"database": value(origin)}


# From names to values


def _find(table: Table, name: str) -> Make | None:
    return next((make for pattern, make in table if re.fullmatch(pattern, name)), None)


def _text(name: str, owner: Any) -> Make:
    primary = owner is not None and owner.__module__.endswith(".primary_network")
    return (_find(_PRIMARY_TEXTS, name) if primary else None) or _find(_TEXTS, name) or _WORD


def _whole(name: str, owner: Any) -> Make:
    make = _find(_WHOLE_TEXTS, name)
    in_digits = make is not None or f"{getattr(owner, '__name__', 'Page')}.{name}" in IN_DIGITS
    make = make or _find(_WHOLE_NUMBERS, name) or _below(20)
    return (lambda origin: str(make(origin))) if in_digits else make


def _scalar(hint: Any, name: str, owner: Any) -> Make:
    if hint is str:
        return _text(name, owner)
    if hint is int:
        return _whole(name, owner)
    if hint is Decimal:
        return _find(_DECIMALS, name) or _supply
    if hint is float:
        return _find(_FLOATS, name) or (lambda origin: round(origin.random.random() * 10_000, 2))
    if hint is bool:
        return lambda origin: origin.random.random() < 0.5
    return lambda origin: {"config": {"chainId": _chain_id(origin)}}  # a genesis, which has no type


def _hex(size: int) -> Make:
    return lambda origin: "0x" + origin.random.randbytes(size).hex()


def _words(*choices: Any) -> Make:
    return lambda origin: origin.one_of(choices)


def _named(*choices: Any) -> Make:
    """Give what belongs to the thing that is being made, so that its name goes with its symbol."""
    return lambda origin: choices[origin.kind % len(choices)]


def _below(limit: int, least: int = 0) -> Make:
    return lambda origin: least + origin.below(limit)


def _address_at(web: str) -> Make:
    return lambda origin: f"https://{web}.invalid/{origin.random.randbytes(4).hex()}"


def _node(origin: Origin) -> str:
    return "NodeID-" + identifier(origin.random.randbytes(32))


def _id(origin: Origin) -> str:
    return identifier(origin.random.randbytes(49))


def _uuid(origin: Origin) -> str:
    return str(UUID(bytes=origin.random.randbytes(16), version=4))


def _bech32(origin: Origin) -> str:
    prefix = "avax1" if origin.shared.get("network", "mainnet") == "mainnet" else "fuji1"
    return prefix + bech32(origin.random.randbytes(38))


def _bech32_of_chain(origin: Origin) -> str:
    return f"{origin.one_of('PX')}-{_bech32(origin)}"


def _chain_id(origin: Origin) -> int:
    return int(origin.one_of(origin.chains))


def _time(origin: Origin) -> int:
    return origin.time


def _later(origin: Origin) -> int:
    return origin.time + DAY * (1 + origin.below(300))


def _milliseconds(origin: Origin) -> int:
    return origin.time * 1_000 + origin.below(1_000)


def _moment(origin: Origin) -> str:
    return datetime.fromtimestamp(origin.time, UTC).strftime("%Y-%m-%dT%H:%M:%S.000Z")


def _height(origin: Origin) -> int:
    return FIRST_HEIGHT + origin.number


def _amount(origin: Origin) -> int:
    """Draw an amount of 4 to 30 digits, each length as often as any other."""
    power: int = 10 ** (3 + origin.below(27))
    return power * (1 + origin.below(9)) + origin.below(1_000)


def _supply(origin: Origin) -> str:
    return f"{1 + origin.below(400_000_000)}.{origin.below(10**15):018}"


_HASH, _EVM_ADDRESS, _WORD = _hex(32), _hex(20), _words("alpha", "beta", "gamma", "delta")
_NODES = ("(.*[nN]ode)Ids?", _node)

_PRIMARY_TEXTS: Table = (
    _NODES,
    ("(contract|from|to)Address", _EVM_ADDRESS),
    ("address", _bech32_of_chain),
    (".*[aA]ddresses", _bech32),
    (".*(Id|Hash(es)?)|hash|transactions", _id),
)
_TEXTS: Table = (
    _NODES,
    (".*[eE]vmChainId|chainId|unindexedChains", lambda origin: str(_chain_id(origin))),
    (".*([bB]lockchain|[cC]hain|[sS]ubnet|asset|vm)Ids?", _id),
    ("id|(org|log|apiKey|operation)Id", _uuid),
    (".*(Hex|Hash|[mM]essageId)|eventSignatures", _HASH),
    ("ipAddress", lambda origin: f"192.0.2.{origin.below(256)}"),
    ("to|from|.*[aA]ddress(es)?|rewardRedeemer|multicall|keys", _EVM_ADDRESS),
    ("publicKey|signature", _hex(48)),
    ("proofOfPossession|signedMessage", _hex(96)),
    ("input|data|payload|utxoBytes|secret|memo", _hex(36)),
    ("methodName", _named(*(name for _, _, name in METHODS))),
    ("name|nftCollectionName", _named("Avalanche", "USD Coin", "Joe", "Dexalot", "Beam", "Wrapped Ether")),
    ("symbol|nftSymbol", _named("AVAX", "USDC", "JOE", "ALOT", "BEAM", "WETH.e")),
    (".*[cC]hainName", _named(*(name for name, _ in CHAIN_NAMES.values()))),
    (".*(Uri|Url)|url|officialSite", _address_at("files")),
    (".*Date|lastUpdated", _moment),
    (".*Chain", _words("p-chain", "x-chain", "c-chain")),
    ("txStatus", _words("1", "1", "1", "1", "0")),
    ("utxoType", _words("TRANSFER", "STAKE")),
    ("blockType", _words("StandardBlock", "CommitBlock", "ProposalBlock")),
    ("(avalancheGoV|v)ersion", _words("avalanchego/1.13.4", "avalanchego/1.14.0")),
    ("color", lambda origin: "#" + origin.random.randbytes(3).hex()),
    ("email", _words("hello@token.invalid", "team@token.invalid")),
    ("host", _words("data.invalid", "rpc.invalid")),
    ("userAgent", _words("chainapi", "curl/8.9", "Mozilla/5.0")),
    ("requestPath|groupValue", _words("/v1/chains", "/v1/chains/43114/blocks", "/ext/bc/C/rpc")),
    ("rpcMethod", _words("eth_call", "eth_getLogs", "eth_blockNumber")),
    ("aggregateDuration", _words("daily")),
    ("city", _named("Frankfurt", "Ashburn", "Singapore")),
    ("country", _named("Germany", "United States", "Singapore")),
    ("countryCode", _named("DE", "US", "SG")),
    ("hostRegion", _named("eu-central-1", "us-east-1", "ap-southeast-1")),
)

# Whole numbers that the services send as texts, because they may be longer than 64 bits, and all others.
_WHOLE_TEXTS: Table = (
    ("blockNumber|createBlock(Number|Index)", _height),
    ("consumingBlockNumber", lambda origin: _height(origin) + 1 + origin.below(1_000)),
    ("chainId", _chain_id),
    ("tokenId", lambda origin: origin.number),
    ("gasLimit", _below(8_000_000, 8_000_000)),
    ("gas(Used|Spent)", _below(7_900_000, 21_000)),
    ("gasCost", _words(0)),
    ("(base|max).*Fee.*|gasPrice", _below(10**10, 25 * 10**9)),
    ("nonce|.*Nonce", _below(100_000)),
    ("cumulativeTransactions", lambda origin: 2 * _height(origin)),
    ("amount.*|balance(Threshold)?|value|currentSupply|feesSpent", _amount),
    (".*(Amount|Reward|AmountStaked|Capacity|FeeBalanceThreshold)", _amount),
)
_WHOLE_NUMBERS: Table = (
    ("(consumed|consuming|utxoEnd|end|remove|updatedAt|metadata).*Timestamp", _later),
    (".*TimestampMilliseconds", _milliseconds),
    (".*[tT]imestamp|createdAt", _time),
    (".*[hH]eight", _height),
    ("evmChainId", _chain_id),
    ("total(Addresses|Holders|Tokens)", lambda origin: origin.number + 1),
    ("decimals", _named(18, 6)),
    ("denomination", _words(9)),
    ("threshold|txType", _words(1)),
    (".*[lL]ocktime", _words(0)),
    ("responseCode", _words(200, 200, 200, 404, 429)),
    ("weight|remainingBalance|balanceChange|.*Fees", _below(10**12)),
    ("totalRequests|.*Bytes", _below(100_000, 1)),
)
_FLOATS: Table = (
    ("latitude", lambda origin: round(origin.random.random() * 180 - 90, 4)),
    ("longitude", lambda origin: round(origin.random.random() * 360 - 180, 4)),
    (".*Percent(age)?|progress|uptimePerformance", lambda origin: round(origin.random.random() * 100, 2)),
)
_DECIMALS: Table = (
    ("value", lambda origin: round(0.01 + origin.random.random() * 100, 2)),
    ("delegationFee.*", lambda origin: f"{2 + origin.below(18)}.{origin.below(10_000):04}"),
    ("stakingRatio", lambda origin: f"0.{1 + origin.below(9)}{origin.below(10**12):012}"),
    # A list that is ranked has its greatest number first.
    ("sortKey", lambda origin: f"{origin.number}.{origin.below(10**12):012}"),
)

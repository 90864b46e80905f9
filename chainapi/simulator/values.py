"""Values of fields by the names of the fields.

The tables below map patterns of names to values: hashes, addresses and identifiers look like the services',
whole numbers are strings if the services send strings, times and heights fall from row to row.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from random import Random
from typing import Any, TypeAlias
from uuid import UUID

from attrs import define

from chainapi.models.schema import Kind
from chainapi.simulator.names import COLLECTIONS, METHODS, TOKENS, bech32, chain_names, identifier
from chainapi.simulator.sources import DAY

__all__ = ["FIRST_HEIGHT", "Context", "Factory", "is_text", "scalar"]

FIRST_HEIGHT = 9_000_000  # height of the block of row 0
# Records of the native token of a chain.
NATIVE = frozenset({"NetworkToken", "NativeTokenBalance", "WebhookNetworkToken"})
# Whole numbers that are strings in these records only; `Page` stands for what a page holds besides its rows.
IN_DIGITS = frozenset({"Utxo.outputIndex", "Page.blockHeight"})


@define
class Context:
    """Inputs of a row.

    Attributes:
        random: random generator of the row.
        number: its position in its list, counted from the oldest row.
        time: Unix time in seconds.
        chains: the chain ids that exist.
        echoes: values of the request, by their names on the wire, that the row repeats.
        shared: the ones that the records in the row repeat, too.
        index: index of the token, or of another thing with a name, so that its name and symbol match.
        chain: chain of the row.

    """

    random: Random
    number: int
    time: int
    chains: tuple[int, ...]
    echoes: Mapping[str, str]
    shared: Mapping[str, str]
    index: int = 0
    chain: int = 0

    def begin(self, number: int, time: int) -> None:
        """Begin a row, whose random generator has its seed."""
        self.number, self.time, self.index = number, time, 0
        text = self.shared.get("chainId", "")
        self.chain = int(text) if text.isdecimal() else self.one_of(self.chains or (0,))

    def below(self, limit: int) -> int:
        """Return a random whole number from 0 to `limit - 1`."""
        return int(self.random.random() * limit)

    def bytes(self, size: int) -> bytes:
        """Return random bytes."""
        return self.random.getrandbits(size * 8).to_bytes(size, "little")

    def one_of(self, choices: Sequence[Any]) -> Any:
        """Return one of the choices at random."""
        return choices[int(self.random.random() * len(choices))]


Factory: TypeAlias = Callable[[Context], Any]
Table: TypeAlias = Sequence[tuple[str, Factory]]  # patterns of names; the first one that fits counts


def scalar(kind: Kind, name: str, owner: Any) -> Factory:
    """Return the factory of a string, a number, a boolean, or any JSON.

    `owner` is the class of the record that has the field, None for a field of a page.
    """
    match kind:
        case "text":
            return _text(name, owner)
        case "integer":
            return _whole(name, owner)
        case "decimal":
            return _find(_DECIMALS, name) or _supply
        case "float":
            return _find(_FLOATS, name) or (lambda context: round(context.random.random() * 10_000, 2))
        case "boolean":
            return lambda context: context.random.random() < 0.5
        case _:
            return lambda context: {"config": {"chainId": _chain_id(context)}}  # a genesis, which has no type


def is_text(name: str) -> bool:
    """Return whether the services send a whole number of this name as a string."""
    return _find(_WHOLE_TEXTS, name) is not None


def _find(table: Table, name: str) -> Factory | None:
    return next((factory for pattern, factory in table if re.fullmatch(pattern, name)), None)


def _text(name: str, owner: Any) -> Factory:
    of = getattr(owner, "__name__", "")
    tables = [_TEXTS]
    if owner is not None and owner.__module__.endswith(".primary_network"):
        tables.insert(0, _PRIMARY_TEXTS)
    elif of in NATIVE:
        tables.insert(0, _NATIVE_TEXTS)
    elif "721" in of or "1155" in of:
        tables.insert(0, _COLLECTION_TEXTS)
    elif "Webhook" in of:
        tables.insert(0, _WEBHOOK_TEXTS)
    return next((factory for table in tables if (factory := _find(table, name))), _WORD)


def _whole(name: str, owner: Any) -> Factory:
    if "ecimals" in name and getattr(owner, "__name__", "") in NATIVE:
        return _words(18)
    factory = _find(_WHOLE_TEXTS, name) or _find(_WHOLE_NUMBERS, name) or _below(20)
    if is_text(name) or f"{getattr(owner, '__name__', 'Page')}.{name}" in IN_DIGITS:
        return lambda context: str(factory(context))
    return factory


def _hex(size: int) -> Factory:
    bits = size * 8
    return lambda context: "0x" + context.random.getrandbits(bits).to_bytes(size, "little").hex()


def _words(*choices: Any) -> Factory:
    return lambda context: context.one_of(choices)


def _named(*choices: Any) -> Factory:
    """Return the choice of the context's index.

    The name of a token thus matches its symbol.
    """
    return lambda context: choices[context.index % len(choices)]


def _below(limit: int, least: int = 0) -> Factory:
    return lambda context: least + int(context.random.random() * limit)


def _address_at(web: str) -> Factory:
    return lambda context: f"https://{web}.invalid/{context.bytes(4).hex()}"


def _node(context: Context) -> str:
    return "NodeID-" + identifier(context.bytes(32))


def _id(context: Context) -> str:
    return identifier(context.bytes(49))


def _uuid(context: Context) -> str:
    return str(UUID(bytes=context.bytes(16), version=4))


def _bech32(context: Context) -> str:
    prefix = "avax1" if context.shared.get("network", "mainnet") == "mainnet" else "fuji1"
    return prefix + bech32(context.bytes(38))


def _bech32_of_chain(context: Context) -> str:
    return f"{context.one_of('PX')}-{_bech32(context)}"


def _chain_id(context: Context) -> int:
    return int(context.one_of(context.chains))


def _native(part: int) -> Factory:
    """Return a name of the row's chain, or of its native token (see `chain_names`)."""
    return lambda context: chain_names(context.chain)[part]


def _time(context: Context) -> int:
    return context.time


def _later(context: Context) -> int:
    return context.time + DAY * (1 + context.below(300))


def _milliseconds(context: Context) -> int:
    return context.time * 1_000 + context.below(1_000)


def _iso_time(context: Context) -> str:
    return datetime.fromtimestamp(context.time, UTC).strftime("%Y-%m-%dT%H:%M:%S.000Z")


def _height(context: Context) -> int:
    return FIRST_HEIGHT + context.number


def _amount(context: Context) -> int:
    """Return a random amount of 4 to 30 digits, each length as often as any other."""
    random = context.random.random
    power: int = 10 ** (3 + int(random() * 27))
    return power * (1 + int(random() * 9)) + int(random() * 1_000)


def _supply(context: Context) -> str:
    return f"{1 + context.below(400_000_000)}.{context.below(10**15):018}"


_HASH, _EVM_ADDRESS, _WORD = _hex(32), _hex(20), _words("alpha", "beta", "gamma", "delta")
_NODES = ("(.*[nN]ode)Ids?", _node)

_PRIMARY_TEXTS: Table = (
    _NODES,
    ("(contract|from|to)Address", _EVM_ADDRESS),
    ("address", _bech32_of_chain),
    ("name", _words("Avalanche")),
    ("symbol", _words("AVAX")),
    (".*[aA]ddresses", _bech32),
    (".*(Id|Hash(es)?)|hash|transactions", _id),
)
_NATIVE_TEXTS: Table = (
    ("name|tokenName", _native(1)),
    ("symbol|tokenSymbol", _native(2)),
    ("description", lambda context: "{1} pays the fees of {0}.".format(*chain_names(context.chain))),
)
_COLLECTION_TEXTS: Table = (
    ("name", _named(*(name for name, _ in COLLECTIONS))),
    ("symbol", _named(*(symbol for _, symbol in COLLECTIONS))),
    ("description", _named(*(f"A piece of {name}." for name, _ in COLLECTIONS))),
)
_WEBHOOK_TEXTS: Table = (
    ("name", _words("Treasury", "Hot wallet", "Deposits", "Validators")),
    ("description", _words("Calls the ledger service.", "Alerts the operators.", "Credits deposits.")),
    ("type", _words("Transfer")),
)
_TEXTS: Table = (
    _NODES,
    ("chainId", lambda context: str(context.chain)),
    (".*[eE]vmChainId|unindexedChains", lambda context: str(_chain_id(context))),
    (".*([bB]lockchain|[cC]hain|[sS]ubnet|asset|vm)Ids?", _id),
    ("id|(org|log|apiKey|operation|webhook)Id", _uuid),
    (".*(Hex|Hash|[mM]essageId)|eventSignatures|topic[0-3]|storageKeys|receiptRoot", _HASH),
    ("ipAddress", lambda context: f"192.0.2.{context.below(256)}"),
    ("to|from|.*[aA]ddress(es)?|rewardRedeemer|multicall|keys", _EVM_ADDRESS),
    ("publicKey|signature", _hex(48)),
    ("proofOfPossession|signedMessage", _hex(96)),
    ("input|data|payload|utxoBytes|memo", _hex(36)),
    ("secret", lambda context: context.bytes(32).hex()),
    ("methodName", _named(*(name for _, _, name in METHODS))),
    ("nftCollectionName", _named(*(name for name, _ in COLLECTIONS))),
    ("nftSymbol", _named(*(symbol for _, symbol in COLLECTIONS))),
    ("name", _named(*(name for name, _, _ in TOKENS))),
    ("symbol", _named(*(symbol for _, symbol, _ in TOKENS))),
    ("description", _named(*(f"{name}, a token on Avalanche." for name, _, _ in TOKENS))),
    ("coingeckoCoinId", _named(*(name.lower().replace(" ", "-") for name, _, _ in TOKENS))),
    ("valueWithDecimals", lambda context: f"{context.below(10_000)}.{context.below(10**6):06}"),
    ("tags", _words("stablecoin", "defi", "bridge", "gaming")),
    (".*[cC]hainName", _native(0)),
    (".*(Uri|Url)|url|officialSite", _address_at("files")),
    (".*Date|lastUpdated", _iso_time),
    (".*Chain", _words("p-chain", "x-chain", "c-chain")),
    ("txStatus", _words("1", "1", "1", "1", "0")),
    ("utxoType", _words("TRANSFER", "STAKE")),
    ("blockType", _words("StandardBlock", "CommitBlock", "ProposalBlock")),
    ("(avalancheGoV|v)ersion", _words("avalanchego/1.13.4", "avalanchego/1.14.0")),
    ("attributes", _words('[{"trait_type":"Level","value":"3"}]', '[{"trait_type":"Eyes","value":"Green"}]')),
    ("properties", _words('{"rarity":"common"}', '{"rarity":"rare"}')),
    ("background", _words("Dawn", "Forest", "Ocean")),
    ("internalTxType", _words("CALL", "CREATE", "DELEGATECALL")),
    ("message", _words("the export is complete")),
    ("status", _words("unlocked")),
    ("apiKeyAlias", _words("production", "staging", "analytics")),
    ("color", lambda context: "#" + context.bytes(3).hex()),
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

# Whole numbers that the services send as strings, because they may be longer than 64 bits, and all others.
_WHOLE_TEXTS: Table = (
    ("blockNumber|createBlock(Number|Index)", _height),
    ("consumingBlockNumber", lambda context: _height(context) + 1 + context.below(1_000)),
    ("chainId", lambda context: context.chain),
    ("tokenId", lambda context: context.number),
    ("gasLimit", _below(8_000_000, 8_000_000)),
    ("gas(Used|Spent)", _below(7_900_000, 21_000)),
    ("gasCost", _words(0)),
    ("(base|max).*Fee.*|gasPrice", _below(10**10, 25 * 10**9)),
    ("nonce|.*Nonce", _below(100_000)),
    ("cumulativeTransactions", lambda context: 2 * _height(context)),
    ("amount.*|balance(Threshold)?|value|currentSupply|feesSpent", _amount),
    (".*(Amount|Reward|AmountStaked|Capacity|FeeBalanceThreshold)", _amount),
)
_WHOLE_NUMBERS: Table = (
    ("(consumed|consuming|utxoEnd|end|remove|updatedAt|metadata).*Timestamp", _later),
    (".*TimestampMilliseconds", _milliseconds),
    (".*[tT]imestamp|createdAt", _time),
    (".*[hH]eight", _height),
    ("evmChainId", _chain_id),
    ("total(Addresses|Holders|Tokens)", lambda context: context.number + 1),
    ("decimals", _named(*(decimals for _, _, decimals in TOKENS))),
    ("denomination", _words(9)),
    ("threshold|txType", _words(1)),
    (".*[lL]ocktime", _words(0)),
    ("responseCode", _words(200, 200, 200, 404, 429)),
    ("weight|remainingBalance|balanceChange|.*Fees", _below(10**12)),
    ("totalRequests|.*Bytes", _below(100_000, 1)),
)
_FLOATS: Table = (
    ("latitude", lambda context: round(context.random.random() * 180 - 90, 4)),
    ("longitude", lambda context: round(context.random.random() * 360 - 180, 4)),
    (".*Percent(age)?|progress|uptimePerformance", lambda context: round(context.random.random() * 100, 2)),
)
_DECIMALS: Table = (
    ("value", lambda context: round(0.01 + context.random.random() * 100, 2)),
    ("delegationFee.*", lambda context: f"{2 + context.below(18)}.{context.below(10_000):04}"),
    ("stakingRatio", lambda context: f"0.{1 + context.below(9)}{context.below(10**12):012}"),
    # A list that is ranked has its greatest number first.
    ("sortKey", lambda context: f"{context.number}.{context.below(10**12):012}"),
)

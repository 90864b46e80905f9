"""Values of the fields of all records: one table, and the context of a row.

Hashes, addresses and identifiers look like the services', times and heights fall from row to row. Equal
contexts give equal values.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from random import Random
from typing import Any, TypeAlias
from uuid import UUID

from attrs import define, field

from chainapi.models.schema import Kind, Type
from chainapi.simulator.names import COLLECTIONS, METHODS, TESTNETS, TOKENS, bech32, chain_names, identifier
from chainapi.simulator.rows import DAY, Draw

__all__ = ["FIRST_HEIGHT", "Context", "Factory", "value_of"]

FIRST_HEIGHT = 9_000_000  # height of the block of row 0


@define
class Context:
    """Inputs of a row.

    Attributes:
        seed: seed of the simulator.
        random: random generator of the row.
        number: its position in its list, counted from the oldest row.
        time: Unix time in seconds.
        chains: the chain ids that exist.
        echoes: values of the request, by their names on the wire, that the row repeats.
        shared: the ones that the records in the row repeat, too.
        index: index of the token, or of another thing with a name, so that its name and symbol match.
        chain: chain of the row.

    """

    seed: int
    random: Random
    number: int
    time: int
    chains: tuple[int, ...]
    echoes: Mapping[str, str]
    shared: Mapping[str, str]
    index: int = 0
    chain: int = field(init=False)

    def __attrs_post_init__(self) -> None:
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


def value_of(of: Type, name: str, owner: Any) -> Factory:
    """Return the factory of a string, a number, a boolean, or any JSON.

    `owner` is the class of the record that has the field, None for a field of a page. A number becomes
    a string if the services send one.
    """
    record = "Page" if owner is None else f"{owner.__module__.rpartition('.')[2]}.{owner.__name__}"
    fitting = (make for pattern, make in _COMPILED if pattern.fullmatch(f"{record}.{name}"))
    make = next(fitting, None) or _OTHERS[of.kind]
    # Every service sends the height of a page as a string, which no schema of a page says.
    if of.as_text or of.kind == "text" or (owner is None and name == "blockHeight"):
        return lambda context: str(make(context))
    return make


def _hex(size: int) -> Factory:
    bits = size * 8
    return lambda context: "0x" + context.random.getrandbits(bits).to_bytes(size, "little").hex()


def _words(*choices: Any) -> Factory:
    return lambda context: context.one_of(choices)


def _named(choices: Iterable[Any]) -> Factory:
    """Return the choice of the context's index.

    The name of a token thus matches its symbol.
    """
    found = tuple(choices)
    return lambda context: found[context.index % len(found)]


def _below(limit: int, least: int = 0) -> Factory:
    return lambda context: least + context.below(limit)


def _rounded(limit: float, digits: int, least: float = 0) -> Factory:
    return lambda context: round(least + context.random.random() * limit, digits)


def _fraction(limit: int, digits: int, least: int = 0) -> Factory:
    """Return a decimal with this number of digits, as a string."""
    return lambda context: f"{least + context.below(limit)}.{context.below(10**digits):0{digits}}"


def _node(context: Context) -> str:
    return "NodeID-" + identifier(context.bytes(32))


def _id(context: Context) -> str:
    return identifier(context.bytes(49))


def _uuid(context: Context) -> str:
    return str(UUID(bytes=context.bytes(16), version=4))


def _bech32(context: Context) -> str:
    prefix = "avax1" if context.shared.get("network", "mainnet") == "mainnet" else "fuji1"
    return prefix + bech32(context.bytes(38))


def _chain_id(context: Context) -> int:
    return int(context.one_of(context.chains))


def _native(form: str) -> Factory:
    """Return a text with names of the row's chain and its token, see `chain_names`."""
    return lambda context: form.format(*chain_names(context.chain))


def _of_chain(what: str) -> Factory:
    """Return an identifier of the row's chain, the same in each record."""
    return lambda context: identifier(Draw(context.seed, what)(context.chain)[:49])


def _iso_time(context: Context) -> str:
    return datetime.fromtimestamp(context.time, UTC).strftime("%Y-%m-%dT%H:%M:%S.000Z")


def _height(context: Context) -> int:
    return FIRST_HEIGHT + context.number


def _amount(context: Context) -> int:
    """Return a random amount of 4 to 30 digits, each length as often as any other."""
    random = context.random.random
    power: int = 10 ** (3 + int(random() * 27))
    return power * (1 + int(random() * 9)) + int(random() * 1_000)


_HASH, _EVM_ADDRESS = _hex(32), _hex(20)
_NATIVE = "(NetworkToken|NativeTokenBalance|WebhookNetworkToken)"  # records of the native token of a chain

# Values of the fields of all records. The first pattern counts that fits a field, or its record and its name,
# or its module, record and name.
FIELDS: Sequence[tuple[str, Factory]] = (
    ("(.*[nN]ode)Ids?", _node),
    # Numbers
    ("evmChainId", _chain_id),
    ("tokenId", lambda context: context.number),
    ("blockNumber|createBlock(Number|Index)|.*[hH]eight", _height),
    ("consumingBlockNumber", lambda context: _height(context) + 1 + context.below(1_000)),
    ("cumulativeTransactions", lambda context: 2 * _height(context)),
    ("gasLimit", _below(8_000_000, 8_000_000)),
    ("gas|.*[gG]as(Used|Spent)", _below(7_900_000, 21_000)),
    ("gasCost", _words(0)),
    ("(base|max).*Fee.*|.*[gG]asPrice", _below(10**10, 25 * 10**9)),
    ("nonce|.*Nonce", _below(100_000)),
    ("Money.value", _rounded(100, 2, 0.01)),
    ("(Metric|Icm)Point.value", _rounded(10_000, 2)),
    ("amount.*|balance(Threshold)?|value|currentSupply|feesSpent", _amount),
    (".*(Amount|Reward|AmountStaked|Capacity|FeeBalanceThreshold)", _amount),
    (
        "(consumed|consuming|utxoEnd|end|remove|updatedAt|metadata).*Timestamp",
        lambda context: context.time + DAY * (1 + context.below(300)),
    ),
    (".*TimestampMilliseconds", lambda context: context.time * 1_000 + context.below(1_000)),
    (".*[tT]imestamp|createdAt", lambda context: context.time),
    ("total(Addresses|Holders|Tokens)", lambda context: context.number + 1),
    (f"{_NATIVE}.(decimals|tokenDecimals)", _words(18)),
    ("decimals", _named(decimals for _, _, decimals in TOKENS)),
    ("denomination", _words(9)),
    ("groupId", _below(20)),
    ("threshold|txType", _words(1)),
    (".*[lL]ocktime", _words(0)),
    ("responseCode", _words(200, 200, 200, 404, 429)),
    ("weight|remainingBalance|balanceChange|l1ValidatorsAccruedFees", _below(10**12)),
    ("totalRequests|.*(?<!utxo)Bytes", _below(100_000, 1)),
    ("latitude", _rounded(180, 4, -90)),
    ("longitude", _rounded(360, 4, -180)),
    ("delegationFee.*", _fraction(18, 4, 2)),
    (".*Percent(age)?|progress|uptimePerformance", _rounded(100, 2)),
    ("stakingRatio", lambda context: f"0.{1 + context.below(9)}{context.below(10**12):012}"),
    # A list that is ranked has its greatest number first.
    ("sortKey", lambda context: f"{context.number}.{context.below(10**12):012}"),
    # Texts of the Primary Network
    ("primary_network.*(contract|from|to)Address", _EVM_ADDRESS),
    ("primary_network.*.address", lambda context: f"{context.one_of('PX')}-{_bech32(context)}"),
    ("primary_network.*.name", _words("Avalanche")),
    ("primary_network.*.symbol", _words("AVAX")),
    ("primary_network.*[aA]ddresses", _bech32),
    (r"primary_network\..*(Id|Hash(es)?|\.hash|transactions)", _id),
    # Chains and names
    ("(ChainInfo|MetricsChain).subnetId", _of_chain("subnet")),
    ("ChainInfo.platformChainId|MetricsChain.blockchainId", _of_chain("blockchain")),
    ("ChainInfo.isTestnet", lambda context: context.chain in TESTNETS),
    ("ChainInfo.description", _native("{0}, an EVM chain with the native token {2}.")),
    (f"{_NATIVE}.(name|tokenName)", _native("{1}")),
    (f"{_NATIVE}.(symbol|tokenSymbol)", _native("{2}")),
    (f"{_NATIVE}.description", _native("{1} pays the fees of {0}.")),
    (".*(721|1155).*.name|nftCollectionName", _named(name for name, _ in COLLECTIONS)),
    (".*(721|1155).*.symbol|nftSymbol", _named(symbol for _, symbol in COLLECTIONS)),
    (".*(721|1155).*.description", _named(f"A piece of {name}." for name, _ in COLLECTIONS)),
    (".*Webhook.*.name", _words("Treasury", "Hot wallet", "Deposits", "Validators")),
    (
        ".*Webhook.*.description",
        _words("Calls the ledger service.", "Alerts the operators.", "Credits deposits."),
    ),
    ("WebhookErcTransfer.type", _words("Transfer")),
    ("name", _named(name for name, _, _ in TOKENS)),
    ("symbol", _named(symbol for _, symbol, _ in TOKENS)),
    ("description", _named(f"{name}, a token on Avalanche." for name, _, _ in TOKENS)),
    ("coingeckoCoinId", _named(name.lower().replace(" ", "-") for name, _, _ in TOKENS)),
    ("methodName", _named(name for _, _, name in METHODS)),
    (".*[cC]hainName", _native("{0}")),
    # Identifiers, hashes, addresses
    ("chainId", lambda context: context.chain),
    (".*[eE]vmChainId|unindexedChains", _chain_id),
    (".*([bB]lockchain|[cC]hain|[sS]ubnet|asset|vm)Ids?", _id),
    ("id|(org|log|apiKey|operation|webhook)Id", _uuid),
    (".*(Hex|Hash|[mM]essageId)|eventSignatures|topic[0-3]|storageKeys|receiptRoot", _HASH),
    ("ipAddress", lambda context: f"192.0.2.{context.below(256)}"),
    ("to|from|.*[aA]ddress(es)?|rewardRedeemer|multicall|keys", _EVM_ADDRESS),
    ("publicKey|signature", _hex(48)),
    ("proofOfPossession|signedMessage", _hex(96)),
    ("input|data|payload|utxoBytes|memo", _hex(36)),
    ("secret", lambda context: context.bytes(32).hex()),
    # Other texts
    (".*(Uri|Url)|url|officialSite", lambda context: f"https://files.invalid/{context.bytes(4).hex()}"),
    (".*Date|lastUpdated", _iso_time),
    ("valueWithDecimals", _fraction(10_000, 6)),
    ("tags", _words("stablecoin", "defi", "bridge", "gaming")),
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
    ("PChainSharedAsset.status", _words("unlocked")),
    ("apiKeyAlias", _words("production", "staging", "analytics")),
    ("color", lambda context: "#" + context.bytes(3).hex()),
    ("email", _words("hello@token.invalid", "team@token.invalid")),
    ("host", _words("data.invalid", "rpc.invalid")),
    ("userAgent", _words("chainapi", "curl/8.9", "Mozilla/5.0")),
    ("requestPath|groupValue", _words("/v1/chains", "/v1/chains/43114/blocks", "/ext/bc/C/rpc")),
    ("rpcMethod", _words("eth_call", "eth_getLogs", "eth_blockNumber")),
    ("aggregateDuration", _words("daily")),
    ("city", _named(("Frankfurt", "Ashburn", "Singapore"))),
    ("country", _named(("Germany", "United States", "Singapore"))),
    ("countryCode", _named(("DE", "US", "SG"))),
    ("hostRegion", _named(("eu-central-1", "us-east-1", "ap-southeast-1"))),
)
_COMPILED = [(re.compile(rf"(.*\.)?({pattern})"), make) for pattern, make in FIELDS]
# All other fields, by the kinds of their types.
_OTHERS: Mapping[Kind, Factory] = {
    "text": _words("alpha", "beta", "gamma", "delta"),
    "integer": _below(20),
    "float": _rounded(10_000, 2),
    "decimal": _fraction(400_000_000, 18, 1),
    "boolean": lambda context: context.random.random() < 0.5,
    # A genesis, which has no type.
    "any": lambda context: {"config": {"chainId": _chain_id(context)}},
}

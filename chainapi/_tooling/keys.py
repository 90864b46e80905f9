"""Keys of rows and orders of lists.

A key is the attributes that identify a row; an order is by a number that descends.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from attrs import field, frozen

from chainapi._tooling.files import COMMAND, GeneratorError


@frozen
class Identity:
    """Identity of the rows of a list.

    Attributes:
        key: attributes that no two rows of the whole list share; dots lead into objects.
        why: the evidence in the document, or the reason for no key: "no key: ...".
        kinds: keys by class of row, for unions whose classes have different keys; other classes have no key.
        immutable: attributes that never change, by which rows without a key are counted.
        needs: name of a query parameter; the key holds only in walks with that parameter.

    """

    key: tuple[str, ...] = ()
    why: str = field(kw_only=True)
    kinds: Mapping[str, tuple[str, ...]] = field(factory=dict[str, tuple[str, ...]], kw_only=True)
    immutable: tuple[str, ...] = field(default=(), kw_only=True)
    needs: str | None = field(default=None, kw_only=True)


@frozen
class Order:
    """Descending order of a list, by a whole number.

    Attributes:
        attribute: name of the number; dots lead into objects.
        why: the evidence for the order.
        until: name of the query parameter that bounds the number from above.
        needs: a query parameter and its value; the order holds only in walks with that value.

    """

    attribute: str
    why: str = field(kw_only=True)
    until: str | None = field(default=None, kw_only=True)
    needs: tuple[str, str] | None = field(default=None, kw_only=True)


@frozen
class Cursor:
    """Number that shows a later export which rows of a list are new.

    Attributes:
        attributes: names of attributes with the number, the first that a row has counts; empty if it is the
            number of the list's range.
        why: the evidence that rows which come later have no lower number.
        needs: name of a parameter; the service accepts the start of the range only with it.

    """

    attributes: tuple[str, ...] = ()
    why: str = field(kw_only=True)
    needs: str | None = field(default=None, kw_only=True)


@frozen
class Ranges:
    """Range of a list with a start and an end.

    Attributes:
        number: attributes of a row with the number that start and end bound; the first that a row has counts.
        why: the evidence, or the reason for no ranges.
        days: whether a border has to be at 0:00 UTC.

    """

    number: tuple[str, ...] = ()
    why: str = field(kw_only=True)
    days: bool = field(default=False, kw_only=True)


DESCENDING = ("sort_order", "desc")

# Lists with an order: the documents state it, or a recorded answer shows it. A wrong order loses rows, so doubtful
# ones are left out:
# - ICM and Teleporter messages are "ordered by timestamp", but a message has up to two timestamps, and the
#   documents do not specify which.
# - Lists with a sortOrder parameter are sorted by timestamp if it is "desc"; no document specifies their default
#   order. They are declared only if every class of row has one timestamp of one name: not UTXOs and transactions of
#   the Primary Network (two names), staking transactions, rewards, validators and delegators (several timestamps).
ORDERS = {
    "data.evm.blocks": Order("block_timestamp", why="the route sorts by block timestamp, descending"),
    "data.evm.address_transactions": Order(
        "native_transaction.block_timestamp", needs=DESCENDING, why="sortOrder sorts by timestamp"
    ),
    "data.evm.address_transactions_v2": Order(
        "native_transaction.block_timestamp", needs=DESCENDING, why="sortOrder sorts by timestamp"
    ),
    "data.primary_network.vertices_at_height": Order(
        "vertex_timestamp", needs=DESCENDING, why="sortOrder sorts by timestamp"
    ),
    "data.primary_network.blockchains": Order(
        "create_block_timestamp", needs=DESCENDING, why="sortOrder sorts by timestamp"
    ),
    "data.primary_network.subnets": Order(
        "create_block_timestamp", needs=DESCENDING, why="sortOrder sorts by timestamp"
    ),
    "metrics.avg_tps": Order("timestamp", why="the specification, section 2: newest first"),
    "metrics.chains.metric": Order(
        "timestamp", until="endTimestamp", why="the recorded answer of activeAddresses is newest first"
    ),
    "metrics.networks.metric": Order(
        "timestamp", until="endTimestamp", why="it answers with the schema of metrics.chains.metric"
    ),
    **{
        f"metrics.l1_validators.{name}": Order(
            "timestamp", why="a metric series, which the specification, section 2, lists newest first"
        )
        for name in ("metric", "by_validation", "by_node", "by_subnet")
    },
}


# Numbers that show exports which rows are new, for lists that neither descend by one nor have RANGES. An export relies on a
# number only as long as the rows of the list come in its order, rising or falling; without a range they have to fall. So
# a wrong entry costs requests, not rows. Other lists have no such number: chains, balances, tokens, holders, contracts,
# webhooks; or their rows change or leave the list: rewards, validators, delegators; or they never gain a row:
# transactions of a block.
LATEST = "the route lists the latest ones"
MESSAGE_TIME = Cursor(
    ("source_transaction.timestamp", "destination_transaction.timestamp"),
    why="ordered by timestamp in descending order; the documents do not specify which of two",
)
UTXO_TIME = Cursor(
    ("block_timestamp", "timestamp"), why="sortOrder sorts by timestamp; an output keeps its own"
)
CREATED = Cursor(("create_block_timestamp",), why="sortOrder sorts by timestamp")

CURSORS = {
    "data.evm.transactions": Cursor(("block_number",), why=LATEST),
    **dict.fromkeys(
        (
            "data.evm.blocks_of_all_chains",
            "data.evm.transactions_of_all_chains",
            "data.evm.all_latest_blocks",
            "data.evm.all_latest_transactions",
        ),
        Cursor(("block_timestamp",), why=LATEST),
    ),
    "data.primary_network.transactions": Cursor(
        needs="addresses", why="without addresses, filtering by timestamps is not supported"
    ),
    "data.primary_network.vertices": Cursor(("vertex_timestamp",), why=LATEST),
    "data.primary_network.vertices_at_height": Cursor(
        ("vertex_timestamp",), why="sortOrder sorts by timestamp"
    ),
    "data.primary_network.blockchains": CREATED,
    "data.primary_network.subnets": CREATED,
    "data.primary_network.utxos": UTXO_TIME,
    "data.primary_network.utxos_v2": UTXO_TIME,
    "data.icm.messages": MESSAGE_TIME,
    "data.icm.address_messages": MESSAGE_TIME,
    "data.teleporter.messages": MESSAGE_TIME,
    "data.teleporter.address_messages": MESSAGE_TIME,
}


# Keys of all lists, by the documents. A wrong key loses rows; a missing key only costs memory, and repeats rows that
# changed before a restart. So a list has no key if the documents allow two equal rows, and `why` gives the reason.
# A key contains no attribute that may change between answers (prices, logos, balances, progress, the value of the
# latest point). The generator refuses a list route that has no entry here.
EVM_BLOCK = "the hash finds one block of a chain, at /v1/chains/{chainId}/blocks/{blockId}"
EVM_TRANSACTION = "the hash finds one transaction of a chain, at /v1/chains/{chainId}/transactions/{txHash}"
OVER_ALL_CHAINS = "; over all chains the chain belongs to it: one deployment has one hash on several chains"
ERC1155_BATCH = "one log of an ERC-1155 batch is several rows, and a batch may name a token twice: their logIndex is the same"
TOKEN = "the token's contract and its number; one address has one balance of it"
UTXO = "UTXO ID, which the documents give as the identifier of an output"
PRIMARY_BLOCK = "the hash finds one block, at .../blockchains/{blockchainId}/blocks/{blockId}"
PRIMARY_TRANSACTION = "the hash is the unique ID of a transaction of the chain that the path names"
VERTEX = "the hash finds one vertex, at .../vertices/{vertexHash}"
VALIDATOR = (
    "the transaction that added the validator, and the node: l1ValidatorDetails shows that one transaction may add"
    " several validators; rewards, uptime and status change"
)
MESSAGE = "the id finds one message of all chains, at .../messages/{messageId}; status and receipts change"
POINT = "one point for each timestamp of one series; the value of the latest point changes on each update"
HOLDER = "one row for each address; the amount beside it changes"

IDENTITIES = {
    "data.chains": Identity(
        ("chain_id",),
        why="the id finds one chain, at /v1/chains/{chainId}; the specification shows no field, so it may be missing",
    ),
    "data.evm.blocks_of_all_chains": Identity(("chain_id", "block_hash"), why=EVM_BLOCK + OVER_ALL_CHAINS),
    "data.evm.transactions_of_all_chains": Identity(
        ("chain_id", "tx_hash"), why=EVM_TRANSACTION + OVER_ALL_CHAINS
    ),
    "data.evm.blocks": Identity(("block_hash",), why=EVM_BLOCK),
    "data.evm.block_transactions": Identity(("tx_hash",), why=EVM_TRANSACTION),
    "data.evm.transactions": Identity(("tx_hash",), why=EVM_TRANSACTION),
    "data.evm.erc20_balances": Identity(
        ("address",), why="the token's contract; one address has one balance of it; price and balance change"
    ),
    "data.evm.erc721_balances": Identity(("address", "token_id"), why=TOKEN),
    "data.evm.erc1155_balances": Identity(("address", "token_id"), why=TOKEN),
    "data.evm.collectible_balances": Identity(
        ("erc_type", "address", "token_id"), why=TOKEN + "; a contract may follow both standards"
    ),
    "data.evm.deployments": Identity(
        ("address",), why="the address finds one contract, at /v1/chains/{chainId}/addresses/{address}"
    ),
    "data.evm.all_latest_transactions": Identity(
        ("chain_id", "tx_hash"), why=EVM_TRANSACTION + OVER_ALL_CHAINS
    ),
    "data.evm.all_latest_blocks": Identity(("chain_id", "block_hash"), why=EVM_BLOCK + OVER_ALL_CHAINS),
    "data.evm.transfers": Identity(
        kinds={
            "Erc20Transfer": ("tx_hash", "log_index"),
            "Erc721Transfer": ("tx_hash", "log_index", "erc721_token.token_id"),
        },
        immutable=("tx_hash", "log_index", "erc1155_token.token_id", "value"),
        why=f"as the lists of each kind; Erc1155Transfer has no key: {ERC1155_BATCH}",
    ),
    "data.evm.address_transactions": Identity(
        ("native_transaction.tx_hash",), why=EVM_TRANSACTION + "; prices of its tokens change"
    ),
    "data.evm.address_transactions_v2": Identity(
        ("native_transaction.tx_hash",), why=EVM_TRANSACTION + "; reputations of its tokens change"
    ),
    "data.evm.native_transactions": Identity(("tx_hash",), why=EVM_TRANSACTION),
    "data.evm.erc20_transactions": Identity(
        ("tx_hash", "log_index"), why="an ERC-20 transfer is one log of its transaction; the price changes"
    ),
    "data.evm.erc721_transactions": Identity(
        ("tx_hash", "log_index", "erc721_token.token_id"),
        why="a log of its transaction, and the token: one log may transfer a range of tokens (ERC-2309)",
    ),
    "data.evm.erc1155_transactions": Identity(
        immutable=("tx_hash", "log_index", "erc1155_token.token_id", "value"), why=f"no key: {ERC1155_BATCH}"
    ),
    "data.evm.internal_transactions": Identity(
        immutable=(
            "tx_hash",
            "from_.address",
            "to.address",
            "internal_tx_type",
            "value",
            "is_reverted",
            "gas_used",
            "gas_limit",
        ),
        why="no key: no field numbers the internal transactions of a transaction, and equal ones are ordinary",
    ),
    "data.nfts.tokens": Identity(
        ("address", "token_id"), why="both find one token, at /nfts/collections/{address}/tokens/{tokenId}"
    ),
    "data.primary_network.transactions": Identity(("tx_hash",), why=PRIMARY_TRANSACTION),
    "data.primary_network.staking_transactions": Identity(("tx_hash",), why=PRIMARY_TRANSACTION),
    "data.primary_network.pending_rewards": Identity(
        ("tx_hash", "reward_type", "start_timestamp", "end_timestamp"),
        why="a staking transaction has rewards of several types, which have no UTXO yet; their periods tell fees of"
        " several delegations apart, should they bear the validator's transaction; progress and estimate change",
    ),
    "data.primary_network.rewards": Identity(("utxo_id",), why=UTXO + ": the one that paid the reward"),
    "data.primary_network.utxos": Identity(("utxo_id",), why=UTXO + "; whether it is consumed changes"),
    "data.primary_network.utxos_v2": Identity(("utxo_id",), why=UTXO + "; whether it is consumed changes"),
    "data.primary_network.blocks": Identity(("block_hash",), why=PRIMARY_BLOCK),
    "data.primary_network.node_blocks": Identity(("block_hash",), why=PRIMARY_BLOCK),
    "data.primary_network.vertices": Identity(("vertex_hash",), why=VERTEX),
    "data.primary_network.vertices_at_height": Identity(("vertex_hash",), why=VERTEX),
    "data.primary_network.asset_transactions": Identity(("tx_hash",), why=PRIMARY_TRANSACTION),
    "data.primary_network.chain_ids": Identity(
        ("address",), why="one row for each address that was asked for"
    ),
    "data.primary_network.blockchains": Identity(
        ("blockchain_id",),
        why="the id finds one blockchain, at /v1/networks/{network}/blockchains/{blockchainId}",
    ),
    "data.primary_network.subnets": Identity(
        ("subnet_id",), why="the id finds one subnet, at /v1/networks/{network}/subnets/{subnetId}"
    ),
    "data.primary_network.validators": Identity(("tx_hash", "node_id"), why=VALIDATOR),
    "data.primary_network.validations": Identity(("tx_hash", "node_id"), why=VALIDATOR),
    "data.primary_network.delegators": Identity(
        ("tx_hash",), why="the transaction that added the one delegation; rewards and status change"
    ),
    "data.primary_network.l1_validators": Identity(
        ("validation_id",), why="the validation ID is unique over the network; balance and weight change"
    ),
    "data.icm.messages": Identity(("message_id",), why=MESSAGE),
    "data.icm.address_messages": Identity(("message_id",), why=MESSAGE),
    "data.teleporter.messages": Identity(("message_id",), why=MESSAGE),
    "data.teleporter.address_messages": Identity(("message_id",), why=MESSAGE),
    "data.usage.logs": Identity(("log_id",), why="logId is the unique log id of a request"),
    "data.webhooks.list": Identity(("id",), why="the id finds one webhook, at /v1/webhooks/{id}"),
    "data.webhooks.addresses": Identity(why="no key: a row is a string, which has no fields"),
    "metrics.avg_tps": Identity(("timestamp",), why=POINT),
    "metrics.chains.list": Identity(
        ("network", "blockchain_id"),
        why="the blockchain ID is unique; over both networks the network belongs to it",
    ),
    "metrics.chains.metric": Identity(("timestamp",), why=POINT),
    "metrics.chains.nft_holders": Identity(("address",), why=HOLDER),
    "metrics.chains.token_holders": Identity(("address",), why=HOLDER),
    "metrics.chains.btcb_bridgers": Identity(("address",), why=HOLDER),
    "metrics.icm.timeseries": Identity(
        ("timestamp", "src_blockchain_id", "dest_blockchain_id"),
        why="one count for each timestamp and pair of chains, however they are grouped; the latest count changes",
    ),
    "metrics.networks.metric": Identity(
        ("timestamp",),
        needs="subnet_id",
        why=POINT + "; without subnetId the list may be of all subnets, which no field of a point names",
    ),
    "metrics.l1_validators.metric": Identity(("timestamp",), why=POINT),
    "metrics.l1_validators.by_validation": Identity(("timestamp",), why=POINT),
    "metrics.l1_validators.by_node": Identity(("timestamp",), why=POINT),
    "metrics.l1_validators.by_subnet": Identity(("timestamp",), why=POINT),
    "metrics.subnets.validators": Identity(
        why="no key: one owner may begin several validations in one second, and nothing else is in a row"
    ),
    "metrics.looking_glass.composite_query": Identity(why="no key: a row is a string, which has no fields"),
    "metrics.looking_glass.composite_query_v1": Identity(
        why="no key: a row is a string, which has no fields"
    ),
}


def identity_of(dotted: str) -> Identity:
    """Return the identity of the rows of a list.

    Raises:
        GeneratorError: IDENTITIES has no entry for the list.

    """
    if dotted not in IDENTITIES:
        raise GeneratorError(
            f"{dotted}: the key of its rows is not decided. Read the schema of the row in the document, and add an"
            " entry to IDENTITIES in chainapi/_tooling/keys.py: the attributes that no two rows of the whole list"
            f' share, or none and a reason, why="no key: ..."; then run {COMMAND}'
        )
    return IDENTITIES[dotted]


# Ranges of the lists that take a start and an end. Each range sends bounds that hold whether the service counts its
# ends in or out, and a row far beyond them is an error: a wrong entry loses no row. Two lists have no ranges, because
# a row is about the whole time between start and end. The generator refuses a list with a start that has no entry.
BLOCKS = Ranges(("block_number",), why="startBlock is inclusive, endBlock exclusive, of the block of the row")
TIMES = "startTimestamp and endTimestamp are for items after and before a time"
SERIES = Ranges(
    ("timestamp",), days=True, why=TIMES + "; a point sums up an hour or a day, which a border must not cut"
)

RANGES = {
    "data.evm.transfers": BLOCKS,
    "data.evm.address_transactions": Ranges(("native_transaction.block_number",), why=BLOCKS.why),
    "data.evm.address_transactions_v2": Ranges(("native_transaction.block_number",), why=BLOCKS.why),
    "data.evm.native_transactions": BLOCKS,
    "data.evm.erc20_transactions": BLOCKS,
    "data.evm.erc721_transactions": BLOCKS,
    "data.evm.erc1155_transactions": BLOCKS,
    "data.evm.internal_transactions": BLOCKS,
    "data.primary_network.transactions": Ranges(
        ("block_timestamp", "timestamp"), why=TIMES + "; P-Chain rows have the time of their block"
    ),
    "data.primary_network.staking_transactions": Ranges(
        ("block_timestamp",), why=TIMES + "; that of the block, as in the list of all transactions"
    ),
    "data.primary_network.blocks": Ranges(("block_timestamp",), why=TIMES),
    "data.primary_network.node_blocks": Ranges(("block_timestamp",), why=TIMES),
    "data.primary_network.asset_transactions": Ranges(("timestamp",), why=TIMES),
    "data.usage.logs": Ranges(("event_timestamp",), days=True, why="both times are rounded down to 0:00 UTC"),
    "metrics.chains.metric": SERIES,
    "metrics.chains.token_holders": Ranges(
        why="no ranges: one row sums up what an address held in all the time"
    ),
    "metrics.icm.timeseries": SERIES,
    "metrics.networks.metric": SERIES,
    "metrics.l1_validators.metric": SERIES,
    "metrics.l1_validators.by_validation": SERIES,
    "metrics.l1_validators.by_node": SERIES,
    "metrics.l1_validators.by_subnet": SERIES,
    "metrics.subnets.validators": Ranges(why="no ranges: a row has addresses alone, and no time"),
}


def ranges_of(dotted: str, parameters: Collection[str]) -> Ranges | None:
    """Return the ranges of a list with these query parameters.

    Return None for a list without a start.

    Raises:
        GeneratorError: RANGES has no entry for a list with a start.

    """
    if not {"startBlock", "startTimestamp"} & set(parameters):
        return None
    if dotted not in RANGES:
        raise GeneratorError(
            f"{dotted}: whether the list can be walked in ranges is not decided. Add an entry to RANGES in"
            " chainapi/_tooling/keys.py: the attribute of a row that its start and end bound, or none and a reason,"
            f' why="no ranges: ..."; then run {COMMAND}'
        )
    return RANGES[dotted]

"""Names of routes and of their groups.

The documents lack these names.
"""

from __future__ import annotations

CHAIN = "Blocks, transactions, balances and contracts of EVM chains."
GROUPS = {
    "data.evm": ("EVM", CHAIN),
    "data.nfts": ("NFTs", "Tokens of ERC-721 and ERC-1155 collections."),
    "data.primary_network": (
        "PrimaryNetwork",
        "The P-, X- and C-Chain, their validators, subnets and blockchains.",
    ),
    "data.icm": ("ICM", "Messages between chains."),
    "data.teleporter": (
        "Teleporter",
        "Messages between chains, by their former name; deprecated, use `icm`.",
    ),
    "data.usage": ("Usage", "Usage of the services by an organization."),
    "data.webhooks": ("Webhooks", "The webhooks of the account."),
    "metrics.chains": ("MetricChains", "Metrics of EVM chains."),
    "metrics.icm": ("MetricICM", "Counts of messages between chains."),
    "metrics.networks": ("MetricNetworks", "Metrics of staking."),
    "metrics.l1_validators": ("MetricL1Validators", "Fees of validators of L1s."),
    "metrics.subnets": ("MetricSubnets", "Validators of subnets."),
    "metrics.looking_glass": ("MetricLookingGlass", "Addresses that several conditions select."),
}

# Path in the document, after the method unless that is GET -> dotted name of the method, and its docstring.
# Methods stand in this order.
ROUTES: dict[str, dict[str, tuple[str, str]]] = {
    "data": {
        "/v1/health-check": ("data.health_check", "Return the health of the service."),
        "/v1/live-check": ("data.live_check", "Return the health of the service for reads."),
        "/v1/chains": ("data.chains", "Walk the chains of the service (specification, section 4)."),
        "/v1/chains/{chainId}": ("data.chain", "Return a chain."),
        "/v1/avax/supply": ("data.avax_supply", "Return the supply of AVAX, in whole AVAX."),
        "/v1/operations/{operationId}": ("data.operation", "Return the state of a long-running operation."),
        "/v1/signatureAggregator/{network}/aggregateSignatures/{txHash}": (
            "data.aggregated_signatures",
            "Return the signatures gathered for a message of the P-Chain.",
        ),
        "POST /v1/signatureAggregator/{network}/aggregateSignatures": (
            "data.aggregate_signatures",
            "Gather signatures of validators for a message, and return the signed message.",
        ),
        "POST /v1/operations/transactions:export": (
            "data.export_transactions",
            "Begin an export of transactions; `operation` returns its state.",
        ),
        "/v1/blocks": ("data.evm.blocks_of_all_chains", "Walk the latest blocks of all chains."),
        "/v1/transactions": (
            "data.evm.transactions_of_all_chains",
            "Walk the latest transactions of all chains.",
        ),
        "/v1/address/{address}/chains": (
            "data.evm.address_chains",
            "Return the chains that an address is active on.",
        ),
        "/v1/chains/{chainId}/blocks": ("data.evm.blocks", "Walk the blocks of a chain, newest first."),
        "/v1/chains/{chainId}/blocks/{blockId}": (
            "data.evm.block",
            "Return a block, by its number or its hash.",
        ),
        "/v1/chains/{chainId}/blocks/{blockId}/transactions": (
            "data.evm.block_transactions",
            "Walk the transactions of a block.",
        ),
        "/v1/chains/{chainId}/transactions": (
            "data.evm.transactions",
            "Walk the latest transactions of a chain.",
        ),
        "/v1/chains/{chainId}/transactions/{txHash}": (
            "data.evm.transaction",
            "Return a transaction with all its transfers.",
        ),
        "/v1/chains/{chainId}/addresses/{address}/balances:getNative": (
            "data.evm.native_balance",
            "Return the balance of an address in the chain's own token.",
        ),
        "/v1/chains/{chainId}/addresses/{address}/balances:listErc20": (
            "data.evm.erc20_balances",
            "Walk the ERC-20 balances of an address.",
        ),
        "/v1/chains/{chainId}/addresses/{address}/balances:listErc721": (
            "data.evm.erc721_balances",
            "Walk the ERC-721 tokens of an address.",
        ),
        "/v1/chains/{chainId}/addresses/{address}/balances:listErc1155": (
            "data.evm.erc1155_balances",
            "Walk the ERC-1155 balances of an address.",
        ),
        "/v1/chains/{chainId}/addresses/{address}/balances:listCollectibles": (
            "data.evm.collectible_balances",
            "Walk the ERC-721 and ERC-1155 balances of an address.",
        ),
        "/v1/chains/{chainId}/contracts/{address}/transactions:getDeployment": (
            "data.evm.deployment",
            "Return the transaction that deployed a contract.",
        ),
        "/v1/chains/{chainId}/contracts/{address}/deployments": (
            "data.evm.deployments",
            "Walk the contracts that an address deployed.",
        ),
        "/v1/chains/{chainId}/addresses/{address}": (
            "data.evm.contract",
            "Return a contract.",
        ),
        "/v1/chains/address/{address}": (
            "data.evm.chains_of_address",
            "Return the chains of an address; deprecated.",
        ),
        "/v1/chains/allTransactions": (
            "data.evm.all_latest_transactions",
            "Walk the latest transactions of all chains; deprecated.",
        ),
        "/v1/chains/allBlocks": (
            "data.evm.all_latest_blocks",
            "Walk the latest blocks of all chains; deprecated.",
        ),
        "/v1/chains/{chainId}/tokens/{address}/transfers": (
            "data.evm.transfers",
            "Walk the transfers of a token's contract.",
        ),
        "/v1/chains/{chainId}/addresses/{address}/transactions": (
            "data.evm.address_transactions",
            "Walk the transactions of an address, with their transfers.",
        ),
        "/v2/chains/{chainId}/addresses/{address}/transactions": (
            "data.evm.address_transactions_v2",
            "Walk the transactions of an address, with the reputation of tokens.",
        ),
        "/v1/chains/{chainId}/addresses/{address}/transactions:listNative": (
            "data.evm.native_transactions",
            "Walk the native transactions of an address.",
        ),
        "/v1/chains/{chainId}/addresses/{address}/transactions:listErc20": (
            "data.evm.erc20_transactions",
            "Walk the ERC-20 transfers of an address.",
        ),
        "/v1/chains/{chainId}/addresses/{address}/transactions:listErc721": (
            "data.evm.erc721_transactions",
            "Walk the ERC-721 transfers of an address.",
        ),
        "/v1/chains/{chainId}/addresses/{address}/transactions:listErc1155": (
            "data.evm.erc1155_transactions",
            "Walk the ERC-1155 transfers of an address.",
        ),
        "/v1/chains/{chainId}/addresses/{address}/transactions:listInternals": (
            "data.evm.internal_transactions",
            "Walk the internal transactions of an address.",
        ),
        "/v1/chains/{chainId}/nfts/collections/{address}/tokens": (
            "data.nfts.tokens",
            "Walk the tokens of a collection.",
        ),
        "/v1/chains/{chainId}/nfts/collections/{address}/tokens/{tokenId}": (
            "data.nfts.token",
            "Return a token of a collection.",
        ),
        "POST /v1/chains/{chainId}/nfts/collections/{address}/tokens/{tokenId}:reindex": (
            "data.nfts.reindex",
            "Request the metadata of a token again; at most once an hour for each token.",
        ),
        "/v1/networks/{network}": (
            "data.primary_network.details",
            "Return totals of validators and delegators.",
        ),
        "/v1/networks/{network}/blockchains/{blockchainId}/transactions/{txHash}": (
            "data.primary_network.transaction",
            "Return a transaction.",
        ),
        "/v1/networks/{network}/blockchains/{blockchainId}/transactions": (
            "data.primary_network.transactions",
            "Walk the latest transactions, of some addresses or of all.",
        ),
        "/v1/networks/{network}/blockchains/{blockchainId}/transactions:listStaking": (
            "data.primary_network.staking_transactions",
            "Walk the active staking transactions of some addresses.",
        ),
        "/v1/networks/{network}/rewards:listPending": (
            "data.primary_network.pending_rewards",
            "Walk the pending rewards.",
        ),
        "/v1/networks/{network}/rewards": ("data.primary_network.rewards", "Walk the paid rewards."),
        "/v1/networks/{network}/blockchains/{blockchainId}/utxos": (
            "data.primary_network.utxos",
            "Walk the UTXOs of some addresses.",
        ),
        "/v1/networks/{network}/blockchains/{blockchainId}/lastActivityTimestampByAddresses": (
            "data.primary_network.last_activity",
            "Return the time of the last activity of some addresses.",
        ),
        "POST /v1/networks/{network}/blockchains/{blockchainId}/utxos": (
            "data.primary_network.utxos_v2",
            "Walk the UTXOs of many addresses, in larger pages.",
        ),
        "POST /v1/networks/{network}/blockchains/{blockchainId}/lastActivityTimestampByAddresses": (
            "data.primary_network.last_activity_v2",
            "Return the time of the last activity of many addresses.",
        ),
        "/v1/networks/{network}/blockchains/{blockchainId}/balances": (
            "data.primary_network.balances",
            "Return the balances of some addresses.",
        ),
        "/v1/networks/{network}/blockchains/{blockchainId}/blocks/{blockId}": (
            "data.primary_network.block",
            "Return a block, by its height or its hash.",
        ),
        "/v1/networks/{network}/blockchains/{blockchainId}/blocks": (
            "data.primary_network.blocks",
            "Walk the latest blocks.",
        ),
        "/v1/networks/{network}/blockchains/{blockchainId}/nodes/{nodeId}/blocks": (
            "data.primary_network.node_blocks",
            "Walk the latest blocks that a node proposed.",
        ),
        "/v1/networks/{network}/blockchains/{blockchainId}/vertices": (
            "data.primary_network.vertices",
            "Walk the latest vertices of the X-Chain.",
        ),
        "/v1/networks/{network}/blockchains/{blockchainId}/vertices/{vertexHash}": (
            "data.primary_network.vertex",
            "Return a vertex of the X-Chain.",
        ),
        "/v1/networks/{network}/blockchains/{blockchainId}/vertices:listByHeight": (
            "data.primary_network.vertices_at_height",
            "Walk the vertices of the X-Chain at a height.",
        ),
        "/v1/networks/{network}/blockchains/{blockchainId}/assets/{assetId}": (
            "data.primary_network.asset",
            "Return an asset of the X-Chain.",
        ),
        "/v1/networks/{network}/blockchains/{blockchainId}/assets/{assetId}/transactions": (
            "data.primary_network.asset_transactions",
            "Walk the transactions of an asset of the X-Chain.",
        ),
        "/v1/networks/{network}/addresses:listChainIds": (
            "data.primary_network.chain_ids",
            "Walk some addresses, with the chains that each is active on.",
        ),
        "/v1/networks/{network}/blockchains": ("data.primary_network.blockchains", "Walk the blockchains."),
        "/v1/networks/{network}/blockchains/{blockchainId}": (
            "data.primary_network.blockchain",
            "Return a blockchain.",
        ),
        "/v1/networks/{network}/subnets": ("data.primary_network.subnets", "Walk the subnets."),
        "/v1/networks/{network}/subnets/{subnetId}": ("data.primary_network.subnet", "Return a subnet."),
        "/v1/networks/{network}/validators": ("data.primary_network.validators", "Walk the validators."),
        "/v1/networks/{network}/validators/{nodeId}": (
            "data.primary_network.validations",
            "Walk the validation periods of a node.",
        ),
        "/v1/networks/{network}/delegators": ("data.primary_network.delegators", "Walk the delegators."),
        "/v1/networks/{network}/l1Validators": (
            "data.primary_network.l1_validators",
            "Walk the validators of L1s.",
        ),
        "/v1/teleporter/messages/{messageId}": ("data.teleporter.message", "Return a message; deprecated."),
        "/v1/teleporter/messages": (
            "data.teleporter.messages",
            "Walk the messages, newest first; deprecated.",
        ),
        "/v1/teleporter/addresses/{address}/messages": (
            "data.teleporter.address_messages",
            "Walk the messages of an address, newest first; deprecated.",
        ),
        "/v1/icm/messages/{messageId}": ("data.icm.message", "Return a message."),
        "/v1/icm/messages": ("data.icm.messages", "Walk the messages, newest first."),
        "/v1/icm/addresses/{address}/messages": (
            "data.icm.address_messages",
            "Walk the messages of an address, newest first.",
        ),
        "/v1/apiUsageMetrics": ("data.usage.api", "Return the usage of the Data API, by interval."),
        "/v1/apiLogs": ("data.usage.logs", "Walk the log of requests to the Data API."),
        "/v1/subnetRpcUsageMetrics": ("data.usage.subnet_rpc", "Return the usage of the RPC of subnets."),
        "/v1/rpcUsageMetrics": ("data.usage.rpc", "Return the usage of the RPC of subnets; deprecated."),
        "/v1/primaryNetworkRpcUsageMetrics": (
            "data.usage.primary_network_rpc",
            "Return the usage of the RPC of the Primary Network.",
        ),
        "/v1/webhooks": ("data.webhooks.list", "Walk the webhooks."),
        "/v1/webhooks/{id}": ("data.webhooks.get", "Return a webhook."),
        "/v1/webhooks/{id}/addresses": (
            "data.webhooks.addresses",
            "Walk the addresses that a webhook watches.",
        ),
        "/v1/webhooks:getSharedSecret": (
            "data.webhooks.shared_secret",
            "Return the secret that signs the webhooks' calls.",
        ),
        "POST /v1/webhooks": ("data.webhooks.create", "Create a webhook."),
        "PATCH /v1/webhooks/{id}": (
            "data.webhooks.update",
            "Change the given fields of a webhook, and return it.",
        ),
        "DELETE /v1/webhooks/{id}": (
            "data.webhooks.deactivate",
            "Deactivate a webhook, and return it; None if a lost attempt before did it.",
        ),
        "PATCH /v1/webhooks/{id}/addresses": (
            "data.webhooks.add_addresses",
            "Add addresses to a webhook of an EVM chain, and return it.",
        ),
        "DELETE /v1/webhooks/{id}/addresses": (
            "data.webhooks.remove_addresses",
            "Remove addresses from a webhook of an EVM chain, and return it.",
        ),
        "POST /v1/webhooks:generateOrRotateSharedSecret": (
            "data.webhooks.rotate_shared_secret",
            "Replace the secret that signs the webhooks' calls, and return the new one.",
        ),
    },
    "metrics": {
        "/v2/health-check": ("metrics.health_check", "Return the health of the service."),
        "/v2/live-check": ("metrics.live_check", "Return the health of the service for reads."),
        "/v2/chains": ("metrics.chains.list", "Walk the chains that have metrics."),
        "/v2/chains/{chainId}": ("metrics.chains.get", "Return a chain that has metrics."),
        "/v2/chains/{chainId}/metrics/{metric}": (
            "metrics.chains.metric",
            "Walk a metric of a chain, newest first.",
        ),
        "/v2/chains/{chainId}/rollingWindowMetrics/{metric}": (
            "metrics.chains.rolling",
            "Return a metric of a chain over windows that end now.",
        ),
        "/v2/chains/{chainId}/contracts/{address}/nfts:listHolders": (
            "metrics.chains.nft_holders",
            "Walk the holders of a collection.",
        ),
        "/v2/chains/{chainId}/contracts/{address}/balances": (
            "metrics.chains.token_holders",
            "Walk the addresses that held more of a token than `threshold`.",
        ),
        "/v2/chains/43114/btcb/bridged:getAddresses": (
            "metrics.chains.btcb_bridgers",
            "Walk the addresses that bridged more BTC.b than `threshold`.",
        ),
        "/v2/icm/timeseries": ("metrics.icm.timeseries", "Walk counts of messages over time."),
        "/v2/icm/summary": ("metrics.icm.summary", "Return counts of messages over windows that end now."),
        "/v2/networks/{network}/metrics/{metric}": (
            "metrics.networks.metric",
            "Walk a metric of staking, newest first.",
        ),
        "/v2/validators/metrics/{metric}": (
            "metrics.l1_validators.metric",
            "Walk a metric of all validators.",
        ),
        "/v2/validation/{l1ValidationId}/metrics/{metric}": (
            "metrics.l1_validators.by_validation",
            "Walk a metric of a validation.",
        ),
        "/v2/validator/{nodeId}/metrics/{metric}": (
            "metrics.l1_validators.by_node",
            "Walk a metric of a node.",
        ),
        "/v2/subnet/{subnetId}/metrics/{metric}": (
            "metrics.l1_validators.by_subnet",
            "Walk a metric of a subnet.",
        ),
        "/v2/subnets/{subnetId}/validators:getAddresses": (
            "metrics.subnets.validators",
            "Walk the addresses that ran validators of a subnet.",
        ),
        "POST /v2/lookingGlass/compositeQuery": (
            "metrics.looking_glass.composite_query",
            "Walk the addresses that all or any of several conditions select.",
        ),
        "POST /v1/lookingGlass/compositeQuery": (
            "metrics.looking_glass.composite_query_v1",
            "Walk the addresses of a composite query, by the route's former path.",
        ),
    },
}

# Routes with another method than GET that only read: they are repeated as a GET is.
READING = frozenset(
    {
        "data.aggregate_signatures",
        "data.primary_network.utxos_v2",
        "data.primary_network.last_activity_v2",
        "metrics.looking_glass.composite_query",
        "metrics.looking_glass.composite_query_v1",
    }
)
# Routes that change something in the service -> the route that shows whether they did; empty without one.
WRITES = {
    "data.export_transactions": "",
    "data.nfts.reindex": "data.nfts.token",
    "data.webhooks.create": "data.webhooks.list",
    "data.webhooks.update": "data.webhooks.get",
    "data.webhooks.deactivate": "data.webhooks.get",
    "data.webhooks.add_addresses": "data.webhooks.addresses",
    "data.webhooks.remove_addresses": "data.webhooks.addresses",
    "data.webhooks.rotate_shared_secret": "data.webhooks.shared_secret",
}
# Bodies that are one of several records -> the name of their parameter.
WHOLE_BODIES = {"TransactionExportRequest": "export", "WebhookRequest": "webhook"}

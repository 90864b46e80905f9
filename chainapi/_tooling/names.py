"""What no document says: names of ours, which numbers are whole, which deviations are wanted.

The generator writes by these tables, and the comparison explains by them.
"""

from __future__ import annotations

from collections.abc import Mapping

from attrs import field, frozen


@frozen
class Identity:
    """What identifies a row of a list.

    Attributes:
        key: attributes that no two rows of the whole list share, paths with dots among them.
        why: the evidence in the document, or why there is no key: "no key: ...".
        kinds: keys of kinds of rows by the names of their classes, where the kinds differ; others have none.
        immutable: of rows without a key, the attributes that never change, with which they can be counted.
        needs: name of a parameter; without it the key does not hold.

    """

    key: tuple[str, ...] = ()
    why: str = field(kw_only=True)
    kinds: Mapping[str, tuple[str, ...]] = field(factory=dict[str, tuple[str, ...]], kw_only=True)
    immutable: tuple[str, ...] = field(default=(), kw_only=True)
    needs: str | None = field(default=None, kw_only=True)


@frozen
class Order:
    """The order of a list: the whole number that does not rise from row to row.

    Attributes:
        attribute: name of that number, maybe a path with dots.
        why: where the order is stated or shown.
        until: name of the query parameter that bounds the number from above.
        needs: a parameter and its value; with any other one, or without it, the order does not hold.

    """

    attribute: str
    why: str = field(kw_only=True)
    until: str | None = field(default=None, kw_only=True)
    needs: tuple[str, str] | None = field(default=None, kw_only=True)


DESCENDING = ("sort_order", "desc")

# Names of classes, where the document's own is not good enough. Equal values make one class of several schemas.
CLASSES = {
    "HealthCheckResultDto": "HealthCheck",
    "HealthIndicatorResultDto": "HealthIndicator",
    "GetChainResponse": "ChainInfo",
    "ListAddressChainsResponse": "AddressChains",
    "Method": "ContractMethod",
    "GetEvmBlockResponse": "EvmBlock",
    "OperationStatusResponse": "Operation",
    "TransactionExportMetadata": "ExportMetadata",
    "L1ValidatorManagerDetails": "L1ValidatorManager",
    "L1ValidatorDetailsTransaction": "L1ValidatorChange",
    "SubnetOwnershipInfo": "SubnetOwnership",
    "XChainAssetDetails": "XChainAsset",
    "TransactionVertexDetail": "TransactionVertex",
    "EVMInput": "EvmInput",
    "EVMOutput": "EvmOutput",
    "PrimaryNetworkChainInfo": "PrimaryNetworkChain",
    "AssetWithPriceInfo": "PricedAsset",
    "LastActivityTimestamp": "LastActivity",
    "ListPChainBalancesResponse": "PChainBalances",
    "ListXChainBalancesResponse": "XChainBalances",
    "ListCChainAtomicBalancesResponse": "CChainAtomicBalances",
    "XChainBalances": "XChainBalance",
    "CChainAtomicBalances": "CChainAtomicBalance",
    "XChainSharedAssetBalance": "SharedAsset",
    "CChainSharedAssetBalance": "SharedAsset",
    "GetPrimaryNetworkBlockResponse": "PrimaryNetworkBlock",
    "ChainAddressChainIdMap": "AddressChainIds",
    "GetNetworkDetailsResponse": "NetworkDetails",
    "CompletedValidatorDetails": "CompletedValidator",
    "ActiveValidatorDetails": "ActiveValidator",
    "PendingValidatorDetails": "PendingValidator",
    "RemovedValidatorDetails": "RemovedValidator",
    "ValidatorHealthDetails": "ValidatorHealth",
    "CompletedDelegatorDetails": "CompletedDelegator",
    "ActiveDelegatorDetails": "ActiveDelegator",
    "PendingDelegatorDetails": "PendingDelegator",
    "L1ValidatorDetailsFull": "L1Validator",
    "IcmRewardDetails": "IcmReward",
    "TeleporterReceipt": "IcmReceipt",
    "TeleporterRewardDetails": "IcmReward",
    "TeleporterSourceTransaction": "IcmSourceTransaction",
    "TeleporterDestinationTransaction": "IcmDestinationTransaction",
    "UsageMetricsValueDTO": "UsageValue",
    "Metric": "UsageMetric",
    "UsageMetricsResponseDTO": "UsageMetrics",
    "LogsFormat": "ApiLog",
    "LogsFormatMetadata": "ApiLogMetadata",
    "RpcUsageMetricsValueAggregated": "RpcUsageValue",
    "RpcMetrics": "RpcUsageMetric",
    "SubnetRpcUsageMetricsResponseDTO": "SubnetRpcUsage",
    "PrimaryNetworkRpcUsageMetricsResponseDTO": "PrimaryNetworkRpcUsage",
    "EVMAddressActivityResponse": "EvmAddressWebhook",
    "AddressActivityMetadata": "EvmAddressWebhookMetadata",
    "PrimaryNetworkAddressActivityResponse": "PrimaryNetworkAddressWebhook",
    "PrimaryNetworkAddressActivityMetadata": "PrimaryNetworkAddressWebhookMetadata",
    "PrimaryNetworkAddressActivitySubEvents": "PrimaryNetworkAddressSubEvents",
    "PrimaryNetworkBalanceThresholdFilter": "BalanceThresholdFilter",
    "ValidatorActivityResponse": "ValidatorWebhook",
    "ValidatorActivityMetadata": "ValidatorWebhookMetadata",
    "ValidatorActivitySubEvents": "ValidatorSubEvents",
    "SharedSecretsResponse": "SharedSecret",
    "AvaxSupplyResponse": "AvaxSupply",
    "SignatureAggregationResponse": "AggregatedSignatures",
    "GetNativeBalanceResponse": "NativeBalance",
    "FullNativeTransactionDetails": "FullNativeTransaction",
    "GetTransactionResponse": "EvmTransaction",
    "ContractDeploymentDetails": "ContractDeployment",
    "TransactionDetails": "AddressTransaction",
    "TransactionDetailsV2": "AddressTransactionV2",
    "Chain": "MetricsChain",
    "MetricsValue": "MetricPoint",
    "ChainRollingWindowMetricsValue": "RollingWindow",
    "RollingWindowMetricsApiResponse": "RollingWindowMetrics",
    "ICMMetricsValue": "IcmPoint",
    "ICMRollingWindowMetricsValue": "IcmRollingWindow",
    "ICMRollingWindowMetricsApiResponse": "IcmSummary",
    "AddressDetails": "RankedAddress",
    "PChainAddressDetails": "RankedAddresses",
}

# Strings that are whole numbers of any size.
WHOLE_STRINGS = frozenset(
    (
        "amount amountDelegated amountStaked balance balanceThreshold baseFee baseFeePerGas blockHeight blockNumber"
        " consumingBlockNumber createBlockIndex createBlockNumber cumulativeTransactions currentSupply"
        " delegationCapacity delegationRewardAmount estimatedAnnualStakingReward estimatedGrossReward"
        " estimatedNetReward estimatedReward feesSpent gasCost gasLimit gasPrice gasSpent gasUsed grossReward"
        " l1ValidatorFeeBalanceThreshold maxFeePerGas maxPriorityFeePerGas messageNonce netReward nonce outputIndex"
        " receivedMessageNonce tokenId totalAmountStaked validationRewardAmount value"
    ).split()
)
# Chain ids are numbers in these; elsewhere a chain may have another name.
WHOLE_CHAIN_IDS = frozenset(
    (
        "ChainInfo EvmBlock NativeTransaction FullNativeTransaction NativeTokenBalance Erc20TokenBalance"
        " Erc721TokenBalance Erc1155TokenBalance"
    ).split()
)
# Strings, or numbers, that are exact decimals.
DECIMALS = frozenset(
    (
        "circulatingSupply delegationFee delegationFeePercent genesisUnlock l1ValidatorFees sortKey stakingRatio"
        " totalCBurned totalLocked totalPBurned totalRewards totalStaked totalSupply totalXBurned Money.value"
    ).split()
)
# Numbers that may have a fraction; all others are whole.
FLOATS = frozenset(
    (
        "allTime apiCreditsConsumed apiCreditsUsed apiCreditsWasted benchedCChainRequestsPercent"
        " benchedPChainRequestsPercent benchedXChainRequestsPercent last90Days lastDay lastHour lastMonth lastWeek"
        " lastYear latitude longitude medianResponseTimeMsecs progress reachabilityPercent requestDurationMsecs"
        " requestsPerSecond stakePercentage successRatePercent uptimePerformance value"
    ).split()
)
# Fields that the document requires and that need not be there; the reason is told by the comparison.
MAY_BE_MISSING = {
    "EvmBlock.chainId": "real answers lack it",
    "NativeTransaction.chainId": "real answers of the same kind lack it",
    "FullNativeTransaction.chainId": "real answers of the same kind lack it",
    "ActiveValidator.geolocation": "may be null",
    "Erc20TokenBalance.tokenReputation": "may be null",
    "Erc20TokenV2.tokenReputation": "may be null",
    "ChainInfo.*": "the specification shows no field of the chain record",
    "NetworkToken.*": "a chain record has one, of which the specification shows no field",
}
# Further fields of an envelope whose schema and whose example do not agree: both are taken.
ENVELOPE_TYPES = {"nftCollectionName": "list[str] | str", "nftSymbol": "list[str] | str"}
# Fields that are kept as plain JSON.
PLAIN = {
    "genesisData": "the genesis of a chain is in the form of its virtual machine, of which there are many"
}
SECRETS = frozenset({"SharedSecret.secret"})

# The tag of each union: what tells its classes apart, in the order in which it is looked for.
# "name=value" is a field of that value, "name" a field that is there; dots lead into objects.
UNIONS: dict[str, dict[str, str]] = {
    "NftToken": {"ercType=ERC-721": "Erc721Token", "ercType=ERC-1155": "Erc1155Token"},
    "CollectibleBalance": {
        "ercType=ERC-721": "Erc721TokenBalance",
        "ercType=ERC-1155": "Erc1155TokenBalance",
    },
    "Contract": {
        "ercType=ERC-20": "Erc20Contract",
        "ercType=ERC-721": "Erc721Contract",
        "ercType=ERC-1155": "Erc1155Contract",
        "ercType=UNKNOWN": "UnknownContract",
    },
    "Transfer": {
        "erc20Token": "Erc20Transfer",
        "erc721Token": "Erc721Transfer",
        "erc1155Token": "Erc1155Transfer",
    },
    "PrimaryNetworkTransaction": {
        "amountStaked": "PChainTransaction",
        "vertices": "XChainNonLinearTransaction",
        "evmInputs": "CChainExportTransaction",
        "evmOutputs": "CChainImportTransaction",
        "blockHeight": "XChainLinearTransaction",
    },
    "XChainTransaction": {
        "vertices": "XChainNonLinearTransaction",
        "blockHeight": "XChainLinearTransaction",
    },
    "PrimaryNetworkUtxo": {"creationTxHash": "Utxo", "txHash": "PChainUtxo"},
    "PrimaryNetworkBalances": {
        "balances.unlockedUnstaked": "PChainBalances",
        "balances.unlocked": "XChainBalances",
        "balances.atomicMemoryUnlocked": "CChainAtomicBalances",
    },
    "Validator": {
        "validationStatus=active": "ActiveValidator",
        "validationStatus=completed": "CompletedValidator",
        "validationStatus=pending": "PendingValidator",
        "validationStatus=removed": "RemovedValidator",
    },
    "Delegator": {
        "delegationStatus=active": "ActiveDelegator",
        "delegationStatus=completed": "CompletedDelegator",
        "delegationStatus=pending": "PendingDelegator",
    },
    "IcmMessage": {
        "status=pending": "PendingIcmMessage",
        "status=delivered": "DeliveredIcmMessage",
        "status=delivered_source_not_indexed": "DeliveredSourceNotIndexedIcmMessage",
    },
    "TeleporterMessage": {
        "status=pending": "PendingTeleporterMessage",
        "status=delivered": "DeliveredTeleporterMessage",
        "icmContractAddress": "DeliveredSourceNotIndexedIcmMessage",
        "status=delivered_source_not_indexed": "DeliveredSourceNotIndexedTeleporterMessage",
    },
    "Webhook": {
        "eventType=address_activity": "EvmAddressWebhook",
        "eventType=primary_network_address_activity": "PrimaryNetworkAddressWebhook",
        "eventType=validator_activity": "ValidatorWebhook",
    },
}

CHAIN = "Blocks, transactions, balances and contracts of EVM chains."
GROUPS = {
    "data.evm": ("EVM", CHAIN),
    "data.nfts": ("NFTs", "Tokens of ERC-721 and ERC-1155 collections."),
    "data.primary_network": (
        "PrimaryNetwork",
        "The P-, X- and C-Chain, their validators, subnets and blockchains.",
    ),
    "data.icm": ("ICM", "Messages between chains."),
    "data.teleporter": ("Teleporter", "Messages between chains, by their former name; use `icm`."),
    "data.usage": ("Usage", "What an organisation's own requests used."),
    "data.webhooks": ("Webhooks", "The webhooks of the account, to read."),
    "metrics.chains": ("MetricChains", "Metrics of EVM chains."),
    "metrics.icm": ("MetricICM", "Counts of messages between chains."),
    "metrics.networks": ("MetricNetworks", "Metrics of staking."),
    "metrics.l1_validators": ("MetricL1Validators", "Fees of validators of L1s."),
    "metrics.subnets": ("MetricSubnets", "Validators of subnets."),
}

# Path in the document -> name, what it gives, what to say about it, and what the route has beyond the document.
ROUTES: dict[str, dict[str, tuple[str, ...]]] = {
    "data": {
        "/v1/health-check": ("data.health_check", "Return the health of the service."),
        "/v1/live-check": ("data.live_check", "Return whether the service is alive, for reads."),
        "/v1/chains": ("data.chains", "Walk the chains that the service knows (specification, section 4)."),
        "/v1/chains/{chainId}": ("data.chain", "Return what is known of a chain."),
        "/v1/avax/supply": ("data.avax_supply", "Return the supply of AVAX, in whole AVAX."),
        "/v1/operations/{operationId}": ("data.operation", "Return the state of a long-running operation."),
        "/v1/signatureAggregator/{network}/aggregateSignatures/{txHash}": (
            "data.aggregated_signatures",
            "Return the signatures gathered for a message of the P-Chain.",
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
            "Return what is known of a contract.",
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
            "Walk the rewards to come.",
        ),
        "/v1/networks/{network}/rewards": ("data.primary_network.rewards", "Walk the rewards paid."),
        "/v1/networks/{network}/blockchains/{blockchainId}/utxos": (
            "data.primary_network.utxos",
            "Walk the UTXOs of some addresses.",
        ),
        "/v1/networks/{network}/blockchains/{blockchainId}/lastActivityTimestampByAddresses": (
            "data.primary_network.last_activity",
            "Return when some addresses were last active.",
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
        "/v1/apiUsageMetrics": ("data.usage.api", "Return how the Data API was used, by intervals."),
        "/v1/apiLogs": ("data.usage.logs", "Walk the log of requests to the Data API."),
        "/v1/subnetRpcUsageMetrics": ("data.usage.subnet_rpc", "Return how the RPC of subnets was used."),
        "/v1/rpcUsageMetrics": ("data.usage.rpc", "Return how the RPC of subnets was used; deprecated."),
        "/v1/primaryNetworkRpcUsageMetrics": (
            "data.usage.primary_network_rpc",
            "Return how the RPC of the Primary Network was used.",
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
    },
    "metrics": {
        "/v2/health-check": ("metrics.health_check", "Return the health of the service."),
        "/v2/live-check": ("metrics.live_check", "Return whether the service is alive, for reads."),
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
    },
}

# The lists whose order the documents state, or a recorded answer shows; all other lists are declared without one.
#
# Not declared, though stated: ICM and Teleporter messages are "ordered by timestamp", but a message has up to two
# (of its source and of its destination), and the documents do not say which. Lists with a sortOrder are sorted
# by timestamp where the caller asks for "desc"; the order they have otherwise is stated nowhere. It is declared
# only where every kind of row has one such timestamp, by one name: not for UTXOs and transactions of the Primary
# Network (two names), staking transactions, rewards, validators and delegators (several timestamps).
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

# Parameters: numbers that are sent as strings, times, identifiers, lists that are sent with commas.
WHOLE_PARAMETERS = frozenset(
    {"blockNumber", "maxDelegationCapacity", "minDelegationCapacity", "responseCode"}
)
LIST_PARAMETERS = frozenset({"addresses", "contractAddresses", "nodeIds", "rewardAddresses"})
RENAMED_PARAMETERS = {"from": "from_", "id": "webhook_id"}
PARAMETER_TYPES = {
    "chainId": "ChainId",
    "blockId": "int | str",
    "tokenId": "int | str",
    "threshold": "int | str",
    "subnetId": "str",
}

# What identifies a row of each list, by the documents. A wrong key loses rows, a missing one only costs memory and
# repeats rows that have changed by the time of a restart: where the documents leave room for two equal rows, a list has
# no key, and `why` says so. A key holds nothing that may change from answer to answer (prices, logos, balances,
# progress, the value of the latest point). A new list route is decided here before it can be generated.
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
    "data.webhooks.addresses": Identity(why="no key: a row is a text, which has no fields"),
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
}


def identity_of(dotted: str) -> Identity:
    """Return what identifies a row of a list.

    Raises:
        LookupError: the list is new, and nobody has decided yet.

    """
    if dotted not in IDENTITIES:
        raise LookupError(
            f"{dotted}: nobody has decided what identifies its rows. Read the schema of the row in the document; in"
            " chainapi/_tooling/names.py, give IDENTITIES the attributes that only one row of the whole list can have,"
            ' or none and a reason, why="no key: ..."; then run python -m chainapi._tooling.generate and'
            " python -m chainapi._tooling.pages"
        )
    return IDENTITIES[dotted]


# Names of enumerations that the documents do not name, or not well; by their values.
ENUMS = {
    "up down": "IndicatorStatus",
    "error ok shutting_down": "HealthStatus",
    "nftIndexing webhooks teleporter": "ChainFeature",
    "mainnet testnet": "NetworkType",
    "totalCumulativeFeesDaily totalValidatorFeesDaily totalPayingValidatorsDaily": "AllValidatorsMetric",
    "validationCumulativeFeesDaily validationFeesDaily": "ValidationMetric",
    "perNodeCumulativeFeesPaid perNodeDailyFeesPaid": "NodeMetric",
    "perSubnetDailyFeesPaid perSubnetCumulativeFeesPaid perSubnetPayingValidators": "SubnetMetric",
    "srcBlockchainId destBlockchainId srcBlockchainId,destBlockchainId": "IcmGroupBy",
    "non-linear linear": "XChainFormat",
    "ExportTx": "CChainExportType",
    "ImportTx": "CChainImportType",
    "ERC-20": "Erc20Type",
    "ERC-721": "Erc721Type",
    "ERC-1155": "Erc1155Type",
    "active inactive": "WebhookStatus",
    "requestPath responseCode chainId apiKeyId requestType None": "UsageGroupedBy",
    "rpcMethod responseCode rlBypassToken requestPath country continent userAgent None": "RpcGroupedBy",
    "validator_stake delegator_stake reward_distribution l1_validator_balance_increased l1_validator_disabled"
    " l1_validator_removed l1_validator_balance_threshold": "ValidatorActivitySubEvent",
}

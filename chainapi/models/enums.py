"""Values that the services list. Fields are open: other values are kept as they come."""

from __future__ import annotations

from typing import Literal, TypeAlias

AllValidatorsMetric: TypeAlias = Literal[
    "totalCumulativeFeesDaily", "totalValidatorFeesDaily", "totalPayingValidatorsDaily"
]
BlockchainId: TypeAlias = Literal[
    "11111111111111111111111111111111LpoYY",
    "2oYMBNV4eNHyqk2fjjV5nVQLDbtmNJzq5s3qs3Lo6ftnC6FByM",
    "2JVSBoinj9C2J33VntvzYtVJNZdN2NKiwwKjcumHUWEb5DbBrm",
    "2q9e4r6Mu3U68nU1fYjgbR6JvwrRx36CohpAX5UQxse55x1Q5",
    "yH8D7ThNJkxmtkuv2jgBa4P1Rn3Qpr4pPr7QYNfcdoS6k6HWp",
    "p-chain",
    "x-chain",
    "c-chain",
]
BlockchainIds: TypeAlias = Literal[
    "11111111111111111111111111111111LpoYY",
    "2oYMBNV4eNHyqk2fjjV5nVQLDbtmNJzq5s3qs3Lo6ftnC6FByM",
    "2JVSBoinj9C2J33VntvzYtVJNZdN2NKiwwKjcumHUWEb5DbBrm",
    "2q9e4r6Mu3U68nU1fYjgbR6JvwrRx36CohpAX5UQxse55x1Q5",
    "yH8D7ThNJkxmtkuv2jgBa4P1Rn3Qpr4pPr7QYNfcdoS6k6HWp",
]
CChainExportType: TypeAlias = Literal["ExportTx"]
CChainImportType: TypeAlias = Literal["ImportTx"]
ChainFeature: TypeAlias = Literal["nftIndexing", "webhooks", "teleporter"]
ChainMetric: TypeAlias = Literal[
    "activeAddresses",
    "activeSenders",
    "cumulativeTxCount",
    "cumulativeAddresses",
    "cumulativeContracts",
    "cumulativeDeployers",
    "contracts",
    "deployers",
    "gasUsed",
    "txCount",
    "avgGps",
    "maxGps",
    "avgTps",
    "maxTps",
    "avgGasPrice",
    "maxGasPrice",
    "feesPaid",
]
ChainRollingWindowMetric: TypeAlias = Literal[
    "gasUsed",
    "txCount",
    "avgGps",
    "maxGps",
    "avgTps",
    "maxTps",
    "avgGasPrice",
    "maxGasPrice",
    "feesPaid",
    "contracts",
    "deployers",
    "activeAddresses",
    "activeSenders",
]
ChainStatus: TypeAlias = Literal["OK", "UNAVAILABLE"]
CommonBalanceType: TypeAlias = Literal[
    "unlockedUnstaked",
    "unlockedStaked",
    "lockedPlatform",
    "lockedStakeable",
    "lockedStaked",
    "pendingStaked",
    "unlocked",
    "locked",
    "atomicMemoryUnlocked",
    "atomicMemoryLocked",
]
Currency: TypeAlias = Literal[
    "usd", "eur", "aud", "cad", "chf", "clp", "cny", "czk", "dkk", "gbp", "hkd", "huf", "jpy", "nzd"
]
DelegationStatusType: TypeAlias = Literal["completed", "active", "pending"]
Erc20Type: TypeAlias = Literal["ERC-20"]
HealthStatus: TypeAlias = Literal["error", "ok", "shutting_down"]
IcmGroupBy: TypeAlias = Literal["srcBlockchainId", "destBlockchainId", "srcBlockchainId,destBlockchainId"]
IndicatorStatus: TypeAlias = Literal["up", "down"]
InternalTransactionOpCall: TypeAlias = Literal[
    "UNKNOWN", "CALL", "CREATE", "CREATE2", "CREATE3", "CALLCODE", "DELEGATECALL", "STATICCALL"
]
Network: TypeAlias = Literal["mainnet", "fuji", "testnet"]
NetworkMetric: TypeAlias = Literal["delegatorCount", "delegatorWeight", "validatorCount", "validatorWeight"]
NetworkType: TypeAlias = Literal["mainnet", "testnet"]
NftTokenMetadataStatus: TypeAlias = Literal[
    "UNKNOWN",
    "MISSING_TOKEN",
    "INVALID_TOKEN_URI",
    "INVALID_TOKEN_URI_SCHEME",
    "UNREACHABLE_TOKEN_URI",
    "THROTTLED_TOKEN_URI",
    "METADATA_CONTENT_TOO_LARGE",
    "INVALID_METADATA",
    "INVALID_METADATA_JSON",
    "INDEXED",
    "UNINDEXED",
]
NodeMetric: TypeAlias = Literal["perNodeCumulativeFeesPaid", "perNodeDailyFeesPaid"]
OperationStatus: TypeAlias = Literal["RUNNING", "COMPLETED", "COMPLETED_WITH_WARNING", "FAILED"]
OperationStatusCode: TypeAlias = Literal["ErrInvalidRequest", "ErrInternal", "WarnTruncatedExport"]
OperationType: TypeAlias = Literal[
    "TRANSACTION_EXPORT_PRIMARY_NETWORK",
    "TRANSACTION_EXPORT_PRIMARY_NETWORK_STAKING",
    "TRANSACTION_EXPORT_PRIMARY_NETWORK_SIMPLE",
    "TRANSACTION_EXPORT_EVM",
]
PChainId: TypeAlias = Literal["11111111111111111111111111111111LpoYY", "p-chain"]
PChainTransactionType: TypeAlias = Literal[
    "AddValidatorTx",
    "AddSubnetValidatorTx",
    "AddDelegatorTx",
    "CreateChainTx",
    "CreateSubnetTx",
    "ImportTx",
    "ExportTx",
    "AdvanceTimeTx",
    "RewardValidatorTx",
    "RemoveSubnetValidatorTx",
    "TransformSubnetTx",
    "AddPermissionlessValidatorTx",
    "AddPermissionlessDelegatorTx",
    "BaseTx",
    "TransferSubnetOwnershipTx",
    "ConvertSubnetToL1Tx",
    "RegisterL1ValidatorTx",
    "SetL1ValidatorWeightTx",
    "DisableL1ValidatorTx",
    "IncreaseL1ValidatorBalanceTx",
    "UNKNOWN",
]
PlatformAddressActivityKeyType: TypeAlias = Literal["addresses"]
PrimaryNetworkAddressActivitySubEventType: TypeAlias = Literal[
    "balance_change", "balance_threshold", "reward_distribution"
]
PrimaryNetworkAssetCap: TypeAlias = Literal["fixed", "variable"]
PrimaryNetworkAssetType: TypeAlias = Literal["secp256k1", "nft"]
PrimaryNetworkChainName: TypeAlias = Literal["p-chain", "x-chain", "c-chain"]
PrimaryNetworkRpcMetricsGroupBy: TypeAlias = Literal[
    "rpcMethod", "requestPath", "responseCode", "country", "continent", "userAgent"
]
PrimaryNetworkTxType: TypeAlias = Literal[
    "AddValidatorTx",
    "AddSubnetValidatorTx",
    "AddDelegatorTx",
    "CreateChainTx",
    "CreateSubnetTx",
    "ImportTx",
    "ExportTx",
    "AdvanceTimeTx",
    "RewardValidatorTx",
    "RemoveSubnetValidatorTx",
    "TransformSubnetTx",
    "AddPermissionlessValidatorTx",
    "AddPermissionlessDelegatorTx",
    "BaseTx",
    "TransferSubnetOwnershipTx",
    "ConvertSubnetToL1Tx",
    "RegisterL1ValidatorTx",
    "SetL1ValidatorWeightTx",
    "DisableL1ValidatorTx",
    "IncreaseL1ValidatorBalanceTx",
    "UNKNOWN",
    "CreateAssetTx",
    "OperationTx",
]
PrimaryNetworkType: TypeAlias = Literal["mainnet", "fuji"]
RequestType: TypeAlias = Literal["data", "rpc"]
ResourceLinkType: TypeAlias = Literal[
    "Blog",
    "CoinGecko",
    "CoinMarketCap",
    "Discord",
    "Documentation",
    "Facebook",
    "Github",
    "Instagram",
    "LinkedIn",
    "Medium",
    "Reddit",
    "Support",
    "Telegram",
    "TikTok",
    "Twitter",
    "Website",
    "Whitepaper",
    "Youtube",
]
RewardType: TypeAlias = Literal["VALIDATOR", "DELEGATOR", "VALIDATOR_FEE"]
RpcGroupedBy: TypeAlias = Literal[
    "rpcMethod", "responseCode", "rlBypassToken", "requestPath", "country", "continent", "userAgent", "None"
]
RpcUsageMetricsGroupBy: TypeAlias = Literal["rpcMethod", "responseCode", "rlBypassToken"]
SortByOption: TypeAlias = Literal[
    "blockIndex", "delegationCapacity", "timeRemaining", "delegationFee", "uptimePerformance"
]
SortOrder: TypeAlias = Literal["asc", "desc"]
SubnetMetric: TypeAlias = Literal[
    "perSubnetDailyFeesPaid", "perSubnetCumulativeFeesPaid", "perSubnetPayingValidators"
]
SubnetRpcTimeIntervalGranularity: TypeAlias = Literal["hourly", "daily", "weekly", "monthly"]
TimeIntervalGranularity: TypeAlias = Literal["hour", "day", "week", "month"]
TimeIntervalGranularityExtended: TypeAlias = Literal["minute", "hourly", "daily", "weekly", "monthly"]
TokenReputation: TypeAlias = Literal["Malicious", "Benign"]
TransactionDirectionType: TypeAlias = Literal["SOURCE_TRANSACTION", "DESTINATION_TRANSACTION"]
TransactionMethodType: TypeAlias = Literal["NATIVE_TRANSFER", "CONTRACT_CALL", "CONTRACT_CREATION"]
TransactionStatus: TypeAlias = Literal["failed", "success"]
UsageGroupedBy: TypeAlias = Literal[
    "requestPath", "responseCode", "chainId", "apiKeyId", "requestType", "None"
]
UsageMetricsGroupBy: TypeAlias = Literal["requestPath", "responseCode", "chainId", "apiKeyId", "requestType"]
UtxoType: TypeAlias = Literal["STAKE", "TRANSFER"]
UtxosSortByOption: TypeAlias = Literal["timestamp", "amount"]
ValidationMetric: TypeAlias = Literal["validationCumulativeFeesDaily", "validationFeesDaily"]
ValidationStatusType: TypeAlias = Literal["completed", "active", "pending", "removed"]
ValidatorActivityKeyType: TypeAlias = Literal["nodeId", "subnetId"]
ValidatorActivitySubEvent: TypeAlias = Literal[
    "validator_stake",
    "delegator_stake",
    "reward_distribution",
    "l1_validator_balance_increased",
    "l1_validator_disabled",
    "l1_validator_removed",
    "l1_validator_balance_threshold",
]
VmName: TypeAlias = Literal["EVM", "BITCOIN", "ETHEREUM"]
WebhookStatus: TypeAlias = Literal["active", "inactive"]
XChainFormat: TypeAlias = Literal["non-linear", "linear"]
XChainId: TypeAlias = Literal[
    "2oYMBNV4eNHyqk2fjjV5nVQLDbtmNJzq5s3qs3Lo6ftnC6FByM",
    "2JVSBoinj9C2J33VntvzYtVJNZdN2NKiwwKjcumHUWEb5DbBrm",
    "x-chain",
]
XChainTransactionType: TypeAlias = Literal[
    "BaseTx", "CreateAssetTx", "OperationTx", "ImportTx", "ExportTx", "UNKNOWN"
]

"""What rows become: frozen records, and the decoder that makes them from the body of an answer.

The records of a group of routes are loaded when one of them is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from chainapi.models.hooks import converter as converter
from chainapi.models.invalid import Invalid as Invalid
from chainapi.models.metrics import MetricPoint as MetricPoint
from chainapi.models.unions import Unknown as Unknown

if TYPE_CHECKING:
    from chainapi.models.chain_metrics import *
    from chainapi.models.common import *
    from chainapi.models.evm import *
    from chainapi.models.icm import *
    from chainapi.models.primary_network import *
    from chainapi.models.usage import *
    from chainapi.models.webhooks import *

# What is in which module, for who runs this: type checkers look there.
_NAMES = {
    "common": """
        AggregatedSignatures AvaxSupply ChainInfo ExportMetadata HealthCheck HealthIndicator Money
        NetworkToken Operation UtilityAddresses
    """,
    "evm": """
        AddressChains AddressTransaction AddressTransactionV2 CollectibleBalance Contract ContractDeployment
        ContractMethod Erc1155Contract Erc1155Token Erc1155TokenBalance Erc1155TokenMetadata Erc1155Transfer
        Erc1155TransferDetails Erc20Contract Erc20Token Erc20TokenBalance Erc20TokenV2 Erc20Transfer
        Erc20TransferDetails Erc20TransferDetailsV2 Erc721Contract Erc721Token Erc721TokenBalance
        Erc721TokenMetadata Erc721Transfer Erc721TransferDetails EvmBlock EvmTransaction
        FullNativeTransaction ImageAsset InternalTransaction InternalTransactionDetails NativeBalance
        NativeTokenBalance NativeTransaction NetworkTokenDetails NftToken PricingProviders ResourceLink
        RichAddress TeleporterMessageInfo Transfer UnknownContract
    """,
    "primary_network": """
        ActiveDelegator ActiveValidator AddressChainIds AggregatedAssetAmount AssetAmount BalanceOwner
        Blockchain BlockchainInfo BlsCredentials CChainAtomicBalance CChainAtomicBalances
        CChainExportTransaction CChainImportTransaction CompletedDelegator CompletedValidator Delegator
        DelegatorsDetails EvmInput EvmOutput Geolocation HistoricalReward L1Validator L1ValidatorChange
        L1ValidatorManager LastActivity NetworkDetails PChainBalance PChainBalances PChainSharedAsset
        PChainTransaction PChainUtxo PendingDelegator PendingReward PendingValidator PricedAsset
        PrimaryNetworkBalances PrimaryNetworkBlock PrimaryNetworkChain PrimaryNetworkTransaction
        PrimaryNetworkUtxo ProposerDetails RemovedValidator Rewards SharedAsset StakingDistribution Subnet
        SubnetOwnership TransactionVertex Utxo UtxoCredential Validator ValidatorHealth ValidatorsDetails
        XChainAsset XChainBalance XChainBalances XChainLinearTransaction XChainNonLinearTransaction
        XChainTransaction XChainVertex
    """,
    "icm": """
        DeliveredIcmMessage DeliveredSourceNotIndexedIcmMessage DeliveredSourceNotIndexedTeleporterMessage
        DeliveredTeleporterMessage IcmDestinationTransaction IcmMessage IcmReceipt IcmReward
        IcmSourceTransaction PendingIcmMessage PendingTeleporterMessage TeleporterMessage
    """,
    "usage": """
        ApiLog ApiLogMetadata PrimaryNetworkRpcUsage RpcUsageMetric RpcUsageValue SubnetRpcUsage UsageMetric
        UsageMetrics UsageValue
    """,
    "webhooks": """
        BalanceThresholdFilter EvmAddressWebhook EvmAddressWebhookMetadata PrimaryNetworkAddressSubEvents
        PrimaryNetworkAddressWebhook PrimaryNetworkAddressWebhookMetadata SharedSecret ValidatorSubEvents
        ValidatorWebhook ValidatorWebhookMetadata Webhook
    """,
    "chain_metrics": """
        IcmPoint IcmRollingWindow IcmSummary MetricsChain RankedAddress RankedAddresses RollingWindow
        RollingWindowMetrics
    """,
}
_PLACES = {name: module for module, names in _NAMES.items() for name in names.split()}

_PUBLIC = sorted([*_PLACES, "Invalid", "MetricPoint", "Unknown", "converter"])
if not TYPE_CHECKING:
    __all__ = _PUBLIC


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_PLACES[name]}"), name)


def __dir__() -> list[str]:
    return _PUBLIC

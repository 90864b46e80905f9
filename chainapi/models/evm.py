"""Records of EVM chains and their NFT collections."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from attrs import frozen

from chainapi.models import enums
from chainapi.models.common import ChainInfo, Money, NetworkToken
from chainapi.models.records import Record
from chainapi.models.timestamps import MaybeMoment, Moment
from chainapi.models.unions import Unknown, tell

__all__ = [
    "AddressChains",
    "AddressTransaction",
    "AddressTransactionV2",
    "CollectibleBalance",
    "Contract",
    "ContractDeployment",
    "ContractMethod",
    "Erc20Contract",
    "Erc20Token",
    "Erc20TokenBalance",
    "Erc20TokenV2",
    "Erc20Transfer",
    "Erc20TransferDetails",
    "Erc20TransferDetailsV2",
    "Erc721Contract",
    "Erc721Token",
    "Erc721TokenBalance",
    "Erc721TokenMetadata",
    "Erc721Transfer",
    "Erc721TransferDetails",
    "Erc1155Contract",
    "Erc1155Token",
    "Erc1155TokenBalance",
    "Erc1155TokenMetadata",
    "Erc1155Transfer",
    "Erc1155TransferDetails",
    "EvmBlock",
    "EvmTransaction",
    "FullNativeTransaction",
    "ImageAsset",
    "InternalTransaction",
    "InternalTransactionDetails",
    "NativeBalance",
    "NativeTokenBalance",
    "NativeTransaction",
    "NetworkTokenDetails",
    "NftToken",
    "PricingProviders",
    "ResourceLink",
    "RichAddress",
    "TeleporterMessageInfo",
    "Transfer",
    "UnknownContract",
]


@frozen(kw_only=True)
class EvmBlock(Record):
    """An EVM block."""

    chain_id: int | None = None
    block_number: int
    block_timestamp: int
    block_timestamp_milliseconds: int | None = None
    block_min_delay_excess: int | None = None
    block_hash: str
    tx_count: int
    base_fee: int
    gas_used: int
    gas_limit: int
    gas_cost: int
    parent_hash: str
    fees_spent: int
    cumulative_transactions: int

    block_time = Moment("block_timestamp")


@frozen(kw_only=True)
class ContractMethod(Record):
    """A contract method."""

    call_type: Annotated[str, enums.TransactionMethodType]
    method_hash: str
    method_name: str | None = None


@frozen(kw_only=True)
class RichAddress(Record):
    """A rich address."""

    name: str | None = None
    symbol: str | None = None
    decimals: int | None = None
    logo_uri: str | None = None
    address: str


@frozen(kw_only=True)
class NativeTransaction(Record):
    """A native transaction."""

    block_number: int
    block_timestamp: int
    block_timestamp_milliseconds: int | None = None
    block_min_delay_excess: int | None = None
    block_hash: str
    chain_id: int | None = None
    block_index: int
    tx_hash: str
    tx_status: str
    tx_type: int
    gas_limit: int
    gas_used: int
    gas_price: int
    nonce: int
    from_: RichAddress
    to: RichAddress
    method: ContractMethod | None = None
    value: int

    block_time = Moment("block_timestamp")


@frozen(kw_only=True)
class AddressChains(Record):
    """The EVM chains that an address is active on."""

    indexed_chains: list[ChainInfo] | None = None
    unindexed_chains: list[str] | None = None


@frozen(kw_only=True)
class Erc1155TokenMetadata(Record):
    """ERC-1155 token metadata."""

    index_status: Annotated[str, enums.NftTokenMetadataStatus]
    metadata_last_updated_timestamp: int | None = None
    name: str | None = None
    symbol: str | None = None
    image_uri: str | None = None
    description: str | None = None
    animation_uri: str | None = None
    external_url: str | None = None
    background: str | None = None
    decimals: int | None = None
    properties: str | None = None

    metadata_last_updated_time = MaybeMoment("metadata_last_updated_timestamp")


@frozen(kw_only=True)
class Erc1155Token(Record):
    """An ERC-1155 token."""

    address: str
    erc_type: Annotated[str, Literal["ERC-1155"]]
    token_id: int
    token_uri: str
    metadata: Erc1155TokenMetadata


@frozen(kw_only=True)
class Erc1155TransferDetails(Record):
    """ERC-1155 transfer details."""

    from_: RichAddress
    to: RichAddress
    log_index: int
    value: int
    erc1155_token: Erc1155Token


@frozen(kw_only=True)
class Erc20Token(Record):
    """An ERC-20 token."""

    address: str
    name: str
    symbol: str
    decimals: int
    logo_uri: str | None = None
    erc_type: Annotated[str, enums.Erc20Type]
    price: Money | None = None


@frozen(kw_only=True)
class Erc20TransferDetails(Record):
    """ERC-20 transfer details."""

    from_: RichAddress
    to: RichAddress
    log_index: int
    value: int
    erc20_token: Erc20Token


@frozen(kw_only=True)
class Erc721TokenMetadata(Record):
    """ERC-721 token metadata."""

    index_status: Annotated[str, enums.NftTokenMetadataStatus]
    metadata_last_updated_timestamp: int | None = None
    name: str | None = None
    symbol: str | None = None
    image_uri: str | None = None
    description: str | None = None
    animation_uri: str | None = None
    external_url: str | None = None
    background: str | None = None
    attributes: str | None = None

    metadata_last_updated_time = MaybeMoment("metadata_last_updated_timestamp")


@frozen(kw_only=True)
class Erc721Token(Record):
    """An ERC-721 token."""

    address: str
    name: str
    symbol: str
    erc_type: Annotated[str, Literal["ERC-721"]]
    token_id: int
    token_uri: str
    metadata: Erc721TokenMetadata
    owner_address: str | None = None


@frozen(kw_only=True)
class Erc721TransferDetails(Record):
    """ERC-721 transfer details."""

    from_: RichAddress
    to: RichAddress
    log_index: int
    erc721_token: Erc721Token


@frozen(kw_only=True)
class FullNativeTransaction(Record):
    """A full native transaction."""

    block_number: int
    block_timestamp: int
    block_timestamp_milliseconds: int | None = None
    block_min_delay_excess: int | None = None
    block_hash: str
    chain_id: int | None = None
    block_index: int
    tx_hash: str
    tx_status: str
    tx_type: int
    gas_limit: int
    gas_used: int
    gas_price: int
    nonce: int
    from_: RichAddress
    to: RichAddress
    method: ContractMethod | None = None
    value: int
    input: str
    base_fee_per_gas: int
    max_fee_per_gas: int | None = None
    max_priority_fee_per_gas: int | None = None

    block_time = Moment("block_timestamp")


@frozen(kw_only=True)
class InternalTransactionDetails(Record):
    """Internal transaction details."""

    from_: RichAddress
    to: RichAddress
    internal_tx_type: Annotated[str, enums.InternalTransactionOpCall]
    value: int
    is_reverted: bool
    gas_used: int
    gas_limit: int


@frozen(kw_only=True)
class NetworkTokenDetails(Record):
    """Network token details."""

    network_token: NetworkToken
    current_price: Money | None = None
    historical_price: Money | None = None


@frozen(kw_only=True)
class TeleporterMessageInfo(Record):
    """A teleporter message info."""

    teleporter_message_id: str
    direction: Annotated[str, enums.TransactionDirectionType]
    source_chain_id: str | None = None
    destination_chain_id: str | None = None


@frozen(kw_only=True)
class EvmTransaction(Record):
    """An EVM transaction."""

    erc20_transfers: list[Erc20TransferDetails] | None = None
    erc721_transfers: list[Erc721TransferDetails] | None = None
    erc1155_transfers: list[Erc1155TransferDetails] | None = None
    internal_transactions: list[InternalTransactionDetails] | None = None
    network_token_details: NetworkTokenDetails
    native_transaction: FullNativeTransaction
    teleporter_message_info: TeleporterMessageInfo | None = None


@frozen(kw_only=True)
class NativeTokenBalance(Record):
    """A native token balance."""

    name: str
    symbol: str
    decimals: int
    logo_uri: str | None = None
    chain_id: int
    price: Money | None = None
    balance: int
    balance_value: Money | None = None


@frozen(kw_only=True)
class NativeBalance(Record):
    """A native balance."""

    native_token_balance: NativeTokenBalance


@frozen(kw_only=True)
class Erc20TokenBalance(Record):
    """An ERC-20 token balance."""

    address: str
    name: str
    symbol: str
    decimals: int
    logo_uri: str | None = None
    erc_type: Annotated[str, enums.Erc20Type]
    price: Money | None = None
    chain_id: int
    balance: int
    balance_value: Money | None = None
    token_reputation: Annotated[str, enums.TokenReputation] | None = None


@frozen(kw_only=True)
class Erc721TokenBalance(Record):
    """An ERC-721 token balance."""

    address: str
    name: str
    symbol: str
    erc_type: Annotated[str, Literal["ERC-721"]]
    token_id: int
    token_uri: str
    metadata: Erc721TokenMetadata
    owner_address: str | None = None
    chain_id: int


@frozen(kw_only=True)
class Erc1155TokenBalance(Record):
    """An ERC-1155 token balance."""

    address: str
    erc_type: Annotated[str, Literal["ERC-1155"]]
    token_id: int
    token_uri: str
    metadata: Erc1155TokenMetadata
    chain_id: int
    balance: int


@frozen(kw_only=True)
class ContractDeployment(Record):
    """A contract deployment."""

    tx_hash: str
    deployer_address: str
    deployer_contract_address: str | None = None


@frozen(kw_only=True)
class ImageAsset(Record):
    """An image asset."""

    asset_id: str | None = None
    image_uri: str | None = None


@frozen(kw_only=True)
class ResourceLink(Record):
    """A resource link."""

    type: Annotated[str, enums.ResourceLinkType]
    url: str


@frozen(kw_only=True)
class Erc721Contract(Record):
    """An ERC-721 contract."""

    name: str | None = None
    description: str | None = None
    official_site: str | None = None
    email: str | None = None
    logo_asset: ImageAsset | None = None
    banner_asset: ImageAsset | None = None
    color: str | None = None
    resource_links: list[ResourceLink] | None = None
    tags: list[str] | None = None
    address: str
    deployment_details: ContractDeployment | None = None
    erc_type: Annotated[str, Literal["ERC-721"]]
    symbol: str | None = None


@frozen(kw_only=True)
class PricingProviders(Record):
    """Pricing providers."""

    coingecko_coin_id: str | None = None


@frozen(kw_only=True)
class Erc1155Contract(Record):
    """An ERC-1155 contract."""

    name: str | None = None
    description: str | None = None
    official_site: str | None = None
    email: str | None = None
    logo_asset: ImageAsset | None = None
    banner_asset: ImageAsset | None = None
    color: str | None = None
    resource_links: list[ResourceLink] | None = None
    tags: list[str] | None = None
    address: str
    deployment_details: ContractDeployment | None = None
    erc_type: Annotated[str, Literal["ERC-1155"]]
    symbol: str | None = None
    pricing_providers: PricingProviders | None = None


@frozen(kw_only=True)
class Erc20Contract(Record):
    """An ERC-20 contract."""

    name: str | None = None
    description: str | None = None
    official_site: str | None = None
    email: str | None = None
    logo_asset: ImageAsset | None = None
    banner_asset: ImageAsset | None = None
    color: str | None = None
    resource_links: list[ResourceLink] | None = None
    tags: list[str] | None = None
    address: str
    deployment_details: ContractDeployment | None = None
    erc_type: Annotated[str, Literal["ERC-20"]]
    symbol: str | None = None
    decimals: int
    pricing_providers: PricingProviders | None = None


@frozen(kw_only=True)
class UnknownContract(Record):
    """An unknown contract."""

    name: str | None = None
    description: str | None = None
    official_site: str | None = None
    email: str | None = None
    logo_asset: ImageAsset | None = None
    banner_asset: ImageAsset | None = None
    color: str | None = None
    resource_links: list[ResourceLink] | None = None
    tags: list[str] | None = None
    address: str
    deployment_details: ContractDeployment | None = None
    erc_type: Annotated[str, Literal["UNKNOWN"]]


@frozen(kw_only=True)
class Erc20Transfer(Record):
    """An ERC-20 transfer."""

    block_number: int
    block_timestamp: int
    block_timestamp_milliseconds: int | None = None
    block_hash: str
    tx_hash: str
    from_: RichAddress
    to: RichAddress
    log_index: int
    value: int
    erc20_token: Erc20Token

    block_time = Moment("block_timestamp")


@frozen(kw_only=True)
class Erc721Transfer(Record):
    """An ERC-721 transfer."""

    block_number: int
    block_timestamp: int
    block_timestamp_milliseconds: int | None = None
    block_hash: str
    tx_hash: str
    from_: RichAddress
    to: RichAddress
    log_index: int
    erc721_token: Erc721Token

    block_time = Moment("block_timestamp")


@frozen(kw_only=True)
class Erc1155Transfer(Record):
    """An ERC-1155 transfer."""

    block_number: int
    block_timestamp: int
    block_timestamp_milliseconds: int | None = None
    block_hash: str
    tx_hash: str
    from_: RichAddress
    to: RichAddress
    log_index: int
    value: int
    erc1155_token: Erc1155Token

    block_time = Moment("block_timestamp")


@frozen(kw_only=True)
class AddressTransaction(Record):
    """A transaction of an address, with its transfers."""

    native_transaction: NativeTransaction
    erc20_transfers: list[Erc20TransferDetails] | None = None
    erc721_transfers: list[Erc721TransferDetails] | None = None
    erc1155_transfers: list[Erc1155TransferDetails] | None = None
    internal_transactions: list[InternalTransactionDetails] | None = None


@frozen(kw_only=True)
class Erc20TokenV2(Record):
    """An ERC-20 token v2."""

    address: str
    name: str
    symbol: str
    decimals: int
    logo_uri: str | None = None
    erc_type: Annotated[str, enums.Erc20Type]
    price: Money | None = None
    token_reputation: Annotated[str, enums.TokenReputation] | None = None


@frozen(kw_only=True)
class Erc20TransferDetailsV2(Record):
    """An ERC-20 transfer details v2."""

    from_: RichAddress
    to: RichAddress
    log_index: int
    value: int
    erc20_token: Erc20TokenV2


@frozen(kw_only=True)
class AddressTransactionV2(Record):
    """A transaction of an address, with its transfers and the reputation of tokens."""

    native_transaction: NativeTransaction
    erc20_transfers: list[Erc20TransferDetailsV2] | None = None
    erc721_transfers: list[Erc721TransferDetails] | None = None
    erc1155_transfers: list[Erc1155TransferDetails] | None = None
    internal_transactions: list[InternalTransactionDetails] | None = None


@frozen(kw_only=True)
class InternalTransaction(Record):
    """An internal transaction."""

    block_number: int
    block_timestamp: int
    block_timestamp_milliseconds: int | None = None
    block_hash: str
    tx_hash: str
    from_: RichAddress
    to: RichAddress
    internal_tx_type: Annotated[str, enums.InternalTransactionOpCall]
    value: int
    is_reverted: bool
    gas_used: int
    gas_limit: int

    block_time = Moment("block_timestamp")


NftToken: TypeAlias = Erc721Token | Erc1155Token | Unknown
tell(
    NftToken,
    {
        "ercType=ERC-721": Erc721Token,
        "ercType=ERC-1155": Erc1155Token,
    },
)
CollectibleBalance: TypeAlias = Erc721TokenBalance | Erc1155TokenBalance | Unknown
tell(
    CollectibleBalance,
    {
        "ercType=ERC-721": Erc721TokenBalance,
        "ercType=ERC-1155": Erc1155TokenBalance,
    },
)
Contract: TypeAlias = Erc20Contract | Erc721Contract | Erc1155Contract | UnknownContract | Unknown
tell(
    Contract,
    {
        "ercType=ERC-20": Erc20Contract,
        "ercType=ERC-721": Erc721Contract,
        "ercType=ERC-1155": Erc1155Contract,
        "ercType=UNKNOWN": UnknownContract,
    },
)
Transfer: TypeAlias = Erc20Transfer | Erc721Transfer | Erc1155Transfer | Unknown
tell(
    Transfer,
    {
        "erc20Token": Erc20Transfer,
        "erc721Token": Erc721Transfer,
        "erc1155Token": Erc1155Transfer,
    },
)

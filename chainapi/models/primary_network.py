"""Records of the Primary Network."""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated, Any, Literal, TypeAlias

from attrs import frozen

from chainapi.models import enums
from chainapi.models.common import Money
from chainapi.models.records import Record
from chainapi.models.timestamps import MaybeMoment, Moment
from chainapi.models.unions import Unknown, tell

__all__ = [
    "ActiveDelegator",
    "ActiveValidator",
    "AddressChainIds",
    "AggregatedAssetAmount",
    "AssetAmount",
    "BalanceOwner",
    "Blockchain",
    "BlockchainInfo",
    "BlsCredentials",
    "CChainAtomicBalance",
    "CChainAtomicBalances",
    "CChainExportTransaction",
    "CChainImportTransaction",
    "CompletedDelegator",
    "CompletedValidator",
    "Delegator",
    "DelegatorsDetails",
    "EvmInput",
    "EvmOutput",
    "Geolocation",
    "HistoricalReward",
    "L1Validator",
    "L1ValidatorChange",
    "L1ValidatorManager",
    "LastActivity",
    "NetworkDetails",
    "PChainBalance",
    "PChainBalances",
    "PChainSharedAsset",
    "PChainTransaction",
    "PChainUtxo",
    "PendingDelegator",
    "PendingReward",
    "PendingValidator",
    "PricedAsset",
    "PrimaryNetworkBalances",
    "PrimaryNetworkBlock",
    "PrimaryNetworkChain",
    "PrimaryNetworkTransaction",
    "PrimaryNetworkUtxo",
    "ProposerDetails",
    "RemovedValidator",
    "Rewards",
    "SharedAsset",
    "StakingDistribution",
    "Subnet",
    "SubnetOwnership",
    "TransactionVertex",
    "Utxo",
    "UtxoCredential",
    "Validator",
    "ValidatorHealth",
    "ValidatorsDetails",
    "XChainAsset",
    "XChainBalance",
    "XChainBalances",
    "XChainLinearTransaction",
    "XChainNonLinearTransaction",
    "XChainTransaction",
    "XChainVertex",
]


@frozen(kw_only=True)
class DelegatorsDetails(Record):
    """Delegators details."""

    delegator_count: int
    total_amount_staked: int


@frozen(kw_only=True)
class StakingDistribution(Record):
    """A staking distribution."""

    version: str
    amount_staked: int
    validator_count: int


@frozen(kw_only=True)
class ValidatorsDetails(Record):
    """Validators details."""

    validator_count: int
    total_amount_staked: int
    estimated_annual_staking_reward: int
    staking_distribution_by_version: list[StakingDistribution]
    staking_ratio: Decimal


@frozen(kw_only=True)
class NetworkDetails(Record):
    """Network details."""

    validator_details: ValidatorsDetails
    delegator_details: DelegatorsDetails


@frozen(kw_only=True)
class AssetAmount(Record):
    """An asset amount."""

    asset_id: str
    name: str
    symbol: str
    denomination: int
    type: Annotated[str, enums.PrimaryNetworkAssetType]
    amount: int


@frozen(kw_only=True)
class BlockchainInfo(Record):
    """A blockchain info."""

    chain_name: str
    vm_id: str
    genesis_data: Any = None


@frozen(kw_only=True)
class BlsCredentials(Record):
    """BLS keys."""

    public_key: str
    proof_of_possession: str


@frozen(kw_only=True)
class L1ValidatorChange(Record):
    """An L1 validator change."""

    validation_id: str
    validation_id_hex: str
    node_id: str
    subnet_id: str
    weight: int
    remaining_balance: int
    balance_change: int | None = None
    bls_credentials: dict[str, Any] | None = None


@frozen(kw_only=True)
class L1ValidatorManager(Record):
    """An L1 validator manager."""

    blockchain_id: str
    contract_address: str


@frozen(kw_only=True)
class PChainUtxo(Record):
    """A P-Chain UTXO."""

    addresses: list[str]
    asset: AssetAmount
    consumed_on_chain_id: str
    consuming_tx_hash: str | None = None
    created_on_chain_id: str
    utxo_id: str
    utxo_bytes: str | None = None
    amount: int
    asset_id: str
    block_number: int
    block_timestamp: int
    consuming_block_number: int | None = None
    consuming_block_timestamp: int | None = None
    platform_locktime: int | None = None
    output_index: int
    reward_type: Annotated[str, enums.RewardType] | None = None
    stakeable_locktime: int | None = None
    staked: bool | None = None
    threshold: int | None = None
    tx_hash: str
    utxo_end_timestamp: int | None = None
    utxo_start_timestamp: int | None = None
    utxo_type: Annotated[str, enums.UtxoType]

    block_time = Moment("block_timestamp")
    consuming_block_time = MaybeMoment("consuming_block_timestamp")
    utxo_end_time = MaybeMoment("utxo_end_timestamp")
    utxo_start_time = MaybeMoment("utxo_start_timestamp")


@frozen(kw_only=True)
class SubnetOwnership(Record):
    """A subnet ownership."""

    locktime: int
    threshold: int
    addresses: list[str]


@frozen(kw_only=True)
class PChainTransaction(Record):
    """A P-Chain transaction."""

    tx_hash: str
    tx_type: Annotated[str, enums.PChainTransactionType]
    block_timestamp: int
    block_number: int
    block_hash: str
    consumed_utxos: list[PChainUtxo]
    emitted_utxos: list[PChainUtxo]
    source_chain: str | None = None
    destination_chain: str | None = None
    value: list[AssetAmount]
    amount_burned: list[AssetAmount]
    amount_staked: list[AssetAmount]
    amount_l1_validator_balance_burned: list[AssetAmount]
    start_timestamp: int | None = None
    end_timestamp: int | None = None
    delegation_fee_percent: Decimal | None = None
    node_id: str | None = None
    subnet_id: str | None = None
    l1_validator_manager_details: L1ValidatorManager | None = None
    l1_validator_details: list[L1ValidatorChange] | None = None
    estimated_reward: int | None = None
    reward_tx_hash: str | None = None
    reward_addresses: list[str] | None = None
    memo: str | None = None
    staking_tx_hash: str | None = None
    subnet_ownership_info: SubnetOwnership | None = None
    bls_credentials: BlsCredentials | None = None
    blockchain_info: BlockchainInfo | None = None

    block_time = Moment("block_timestamp")
    start_time = MaybeMoment("start_timestamp")
    end_time = MaybeMoment("end_timestamp")


@frozen(kw_only=True)
class TransactionVertex(Record):
    """A transaction vertex."""

    hash: str
    height: int
    timestamp: int

    time = Moment("timestamp")


@frozen(kw_only=True)
class UtxoCredential(Record):
    """A UTXO credential."""

    signature: str | None = None
    public_key: str | None = None


@frozen(kw_only=True)
class Utxo(Record):
    """A UTXO."""

    addresses: list[str]
    asset: AssetAmount
    consumed_on_chain_id: str
    consuming_tx_hash: str | None = None
    created_on_chain_id: str
    utxo_id: str
    utxo_bytes: str | None = None
    consuming_tx_timestamp: int | None = None
    creation_tx_hash: str
    credentials: list[UtxoCredential] | None = None
    group_id: int | None = None
    locktime: int
    output_index: int
    payload: str | None = None
    threshold: int
    timestamp: int
    utxo_type: str

    consuming_tx_time = MaybeMoment("consuming_tx_timestamp")
    time = Moment("timestamp")


@frozen(kw_only=True)
class XChainAsset(Record):
    """An X-Chain asset."""

    asset_id: str
    name: str
    symbol: str
    denomination: int
    type: Annotated[str, enums.PrimaryNetworkAssetType]
    created_at_timestamp: int
    cap: Annotated[str, enums.PrimaryNetworkAssetCap]

    created_at_time = Moment("created_at_timestamp")


@frozen(kw_only=True)
class XChainNonLinearTransaction(Record):
    """An X-Chain non linear transaction."""

    tx_hash: str
    chain_format: Annotated[str, enums.XChainFormat]
    timestamp: int
    tx_type: Annotated[str, enums.XChainTransactionType]
    memo: str
    consumed_utxos: list[Utxo]
    emitted_utxos: list[Utxo]
    amount_unlocked: list[AssetAmount]
    amount_created: list[AssetAmount]
    source_chain: str | None = None
    destination_chain: str | None = None
    asset_created: XChainAsset | None = None
    vertices: list[TransactionVertex]

    time = Moment("timestamp")


@frozen(kw_only=True)
class XChainLinearTransaction(Record):
    """An X-Chain linear transaction."""

    tx_hash: str
    chain_format: Annotated[str, enums.XChainFormat]
    timestamp: int
    tx_type: Annotated[str, enums.XChainTransactionType]
    memo: str
    consumed_utxos: list[Utxo]
    emitted_utxos: list[Utxo]
    amount_unlocked: list[AssetAmount]
    amount_created: list[AssetAmount]
    source_chain: str | None = None
    destination_chain: str | None = None
    asset_created: XChainAsset | None = None
    block_height: int
    block_hash: str

    time = Moment("timestamp")


@frozen(kw_only=True)
class EvmInput(Record):
    """An EVM input."""

    from_address: str
    asset: AssetAmount
    credentials: list[UtxoCredential]


@frozen(kw_only=True)
class CChainExportTransaction(Record):
    """A C-Chain export transaction."""

    tx_hash: str
    block_height: int
    block_hash: str
    timestamp: int
    memo: str
    amount_unlocked: list[AssetAmount]
    amount_created: list[AssetAmount]
    source_chain: str
    destination_chain: str
    tx_type: Annotated[str, enums.CChainExportType]
    evm_inputs: list[EvmInput]
    emitted_utxos: list[Utxo]

    time = Moment("timestamp")


@frozen(kw_only=True)
class EvmOutput(Record):
    """An EVM output."""

    to_address: str
    asset: AssetAmount


@frozen(kw_only=True)
class CChainImportTransaction(Record):
    """A C-Chain import transaction."""

    tx_hash: str
    block_height: int
    block_hash: str
    timestamp: int
    memo: str
    amount_unlocked: list[AssetAmount]
    amount_created: list[AssetAmount]
    source_chain: str
    destination_chain: str
    tx_type: Annotated[str, enums.CChainImportType]
    evm_outputs: list[EvmOutput]
    consumed_utxos: list[Utxo]

    time = Moment("timestamp")


@frozen(kw_only=True)
class PrimaryNetworkChain(Record):
    """A Primary Network chain."""

    chain_name: Annotated[str, enums.PrimaryNetworkChainName]
    network: Annotated[str, enums.Network]


@frozen(kw_only=True)
class PendingReward(Record):
    """A pending reward."""

    addresses: list[str]
    tx_hash: str
    amount_staked: int
    node_id: str
    start_timestamp: int
    end_timestamp: int
    reward_type: Annotated[str, enums.RewardType]
    progress: float
    estimated_reward: AssetAmount

    start_time = Moment("start_timestamp")
    end_time = Moment("end_timestamp")


@frozen(kw_only=True)
class PricedAsset(Record):
    """A priced asset."""

    asset_id: str
    name: str
    symbol: str
    denomination: int
    type: Annotated[str, enums.PrimaryNetworkAssetType]
    amount: int
    historical_price: Money | None = None


@frozen(kw_only=True)
class HistoricalReward(Record):
    """A historical reward."""

    addresses: list[str]
    tx_hash: str
    amount_staked: int
    node_id: str
    start_timestamp: int
    end_timestamp: int
    reward_type: Annotated[str, enums.RewardType]
    utxo_id: str
    output_index: int
    reward: PricedAsset
    reward_tx_hash: str

    start_time = Moment("start_timestamp")
    end_time = Moment("end_timestamp")


@frozen(kw_only=True)
class LastActivity(Record):
    """A last activity."""

    timestamp: int
    block_number: int
    tx_hash: str
    utxo_id: str
    is_consumed: bool
    chain_name: Annotated[str, enums.PrimaryNetworkChainName]
    network: Annotated[str, enums.PrimaryNetworkType]

    time = Moment("timestamp")


@frozen(kw_only=True)
class AggregatedAssetAmount(Record):
    """An aggregated asset amount."""

    asset_id: str
    name: str
    symbol: str
    denomination: int
    type: Annotated[str, enums.PrimaryNetworkAssetType]
    amount: int
    utxo_count: int


@frozen(kw_only=True)
class PChainSharedAsset(Record):
    """A P-Chain shared asset."""

    asset_id: str
    name: str
    symbol: str
    denomination: int
    type: Annotated[str, enums.PrimaryNetworkAssetType]
    amount: int
    utxo_count: int
    shared_with_chain_id: str
    status: str


@frozen(kw_only=True)
class PChainBalance(Record):
    """A P-Chain balance."""

    unlocked_unstaked: list[AggregatedAssetAmount]
    unlocked_staked: list[AggregatedAssetAmount]
    locked_platform: list[AggregatedAssetAmount]
    locked_stakeable: list[AggregatedAssetAmount]
    locked_staked: list[AggregatedAssetAmount]
    pending_staked: list[AggregatedAssetAmount]
    atomic_memory_unlocked: list[PChainSharedAsset]
    atomic_memory_locked: list[PChainSharedAsset]


@frozen(kw_only=True)
class PChainBalances(Record):
    """P-Chain balances."""

    balances: PChainBalance
    chain_info: PrimaryNetworkChain


@frozen(kw_only=True)
class SharedAsset(Record):
    """A shared asset."""

    asset_id: str
    name: str
    symbol: str
    denomination: int
    type: Annotated[str, enums.PrimaryNetworkAssetType]
    amount: int
    utxo_count: int
    shared_with_chain_id: str


@frozen(kw_only=True)
class XChainBalance(Record):
    """An X-Chain balance."""

    locked: list[AggregatedAssetAmount]
    unlocked: list[AggregatedAssetAmount]
    atomic_memory_unlocked: list[SharedAsset]
    atomic_memory_locked: list[SharedAsset]


@frozen(kw_only=True)
class XChainBalances(Record):
    """X-Chain balances."""

    balances: XChainBalance
    chain_info: PrimaryNetworkChain


@frozen(kw_only=True)
class CChainAtomicBalance(Record):
    """A C-Chain atomic balance."""

    atomic_memory_unlocked: list[SharedAsset]
    atomic_memory_locked: list[SharedAsset]


@frozen(kw_only=True)
class CChainAtomicBalances(Record):
    """C-Chain atomic balances."""

    balances: CChainAtomicBalance
    chain_info: PrimaryNetworkChain


@frozen(kw_only=True)
class ProposerDetails(Record):
    """Proposer details."""

    proposer_id: str | None = None
    proposer_parent_id: str | None = None
    proposer_node_id: str | None = None
    proposer_p_chain_height: int | None = None
    proposer_timestamp: int | None = None

    proposer_time = MaybeMoment("proposer_timestamp")


@frozen(kw_only=True)
class PrimaryNetworkBlock(Record):
    """A Primary Network block."""

    block_number: int
    block_hash: str
    parent_hash: str
    block_timestamp: int
    block_type: str
    tx_count: int
    transactions: list[str]
    block_size_bytes: int
    l1_validators_accrued_fees: int | None = None
    active_l1_validators: int | None = None
    current_supply: int | None = None
    proposer_details: ProposerDetails | None = None

    block_time = Moment("block_timestamp")


@frozen(kw_only=True)
class XChainVertex(Record):
    """An X-Chain vertex."""

    vertex_hash: str
    parent_hashes: list[str]
    vertex_height: int
    vertex_index: int
    vertex_timestamp: int
    tx_count: int
    transactions: list[str]
    vertex_size_bytes: int

    vertex_time = Moment("vertex_timestamp")


@frozen(kw_only=True)
class AddressChainIds(Record):
    """An address of the Primary Network, and the chains that it is active on."""

    address: str
    blockchain_ids: list[Annotated[str, enums.BlockchainIds]]


@frozen(kw_only=True)
class Blockchain(Record):
    """A blockchain."""

    create_block_timestamp: int
    create_block_number: int
    blockchain_id: str
    vm_id: str
    subnet_id: str
    blockchain_name: str
    evm_chain_id: int | None = None
    genesis_data: Any = None

    create_block_time = Moment("create_block_timestamp")


@frozen(kw_only=True)
class Subnet(Record):
    """A subnet."""

    create_block_timestamp: int
    create_block_index: int
    subnet_id: str
    owner_addresses: list[str]
    threshold: int
    locktime: int
    subnet_ownership_info: SubnetOwnership
    is_l1: bool
    l1_conversion_transaction_hash: str | None = None
    l1_validator_manager_details: L1ValidatorManager | None = None
    blockchains: list[Blockchain]

    create_block_time = Moment("create_block_timestamp")


@frozen(kw_only=True)
class Rewards(Record):
    """Rewards."""

    validation_reward_amount: int
    delegation_reward_amount: int
    reward_addresses: list[str] | None = None
    reward_tx_hash: str | None = None


@frozen(kw_only=True)
class CompletedValidator(Record):
    """A completed validator."""

    tx_hash: str
    node_id: str
    subnet_id: str
    amount_staked: int
    delegation_fee: Decimal | None = None
    start_timestamp: int
    end_timestamp: int
    bls_credentials: BlsCredentials | None = None
    delegator_count: int
    amount_delegated: int | None = None
    rewards: Rewards
    validation_status: Annotated[str, Literal["completed"]]

    start_time = Moment("start_timestamp")
    end_time = Moment("end_timestamp")


@frozen(kw_only=True)
class Geolocation(Record):
    """A geolocation."""

    city: str
    country: str
    country_code: str
    latitude: float
    longitude: float


@frozen(kw_only=True)
class ValidatorHealth(Record):
    """A validator health."""

    reachability_percent: float
    benched_p_chain_requests_percent: float
    benched_x_chain_requests_percent: float
    benched_c_chain_requests_percent: float


@frozen(kw_only=True)
class ActiveValidator(Record):
    """An active validator."""

    tx_hash: str
    node_id: str
    subnet_id: str
    amount_staked: int
    delegation_fee: Decimal | None = None
    start_timestamp: int
    end_timestamp: int
    bls_credentials: BlsCredentials | None = None
    stake_percentage: float
    delegator_count: int
    amount_delegated: int | None = None
    uptime_performance: float
    avalanche_go_version: str | None = None
    delegation_capacity: int | None = None
    potential_rewards: Rewards
    validation_status: Annotated[str, Literal["active"]]
    validator_health: ValidatorHealth
    geolocation: Geolocation | None = None

    start_time = Moment("start_timestamp")
    end_time = Moment("end_timestamp")


@frozen(kw_only=True)
class PendingValidator(Record):
    """A pending validator."""

    tx_hash: str
    node_id: str
    subnet_id: str
    amount_staked: int
    delegation_fee: Decimal | None = None
    start_timestamp: int
    end_timestamp: int
    bls_credentials: BlsCredentials | None = None
    validation_status: Annotated[str, Literal["pending"]]

    start_time = Moment("start_timestamp")
    end_time = Moment("end_timestamp")


@frozen(kw_only=True)
class RemovedValidator(Record):
    """A removed validator."""

    tx_hash: str
    node_id: str
    subnet_id: str
    amount_staked: int
    delegation_fee: Decimal | None = None
    start_timestamp: int
    end_timestamp: int
    bls_credentials: BlsCredentials | None = None
    remove_tx_hash: str
    remove_timestamp: int
    validation_status: Annotated[str, Literal["removed"]]

    start_time = Moment("start_timestamp")
    end_time = Moment("end_timestamp")
    remove_time = Moment("remove_timestamp")


@frozen(kw_only=True)
class CompletedDelegator(Record):
    """A completed delegator."""

    tx_hash: str
    node_id: str
    reward_addresses: list[str]
    amount_delegated: int
    delegation_fee: Decimal
    start_timestamp: int
    end_timestamp: int
    gross_reward: int
    net_reward: int
    delegation_status: Annotated[str, Literal["completed"]]

    start_time = Moment("start_timestamp")
    end_time = Moment("end_timestamp")


@frozen(kw_only=True)
class ActiveDelegator(Record):
    """An active delegator."""

    tx_hash: str
    node_id: str
    reward_addresses: list[str]
    amount_delegated: int
    delegation_fee: Decimal
    start_timestamp: int
    end_timestamp: int
    estimated_gross_reward: int
    estimated_net_reward: int
    delegation_status: Annotated[str, Literal["active"]]

    start_time = Moment("start_timestamp")
    end_time = Moment("end_timestamp")


@frozen(kw_only=True)
class PendingDelegator(Record):
    """A pending delegator."""

    tx_hash: str
    node_id: str
    reward_addresses: list[str]
    amount_delegated: int
    delegation_fee: Decimal
    start_timestamp: int
    end_timestamp: int
    estimated_gross_reward: int
    estimated_net_reward: int
    delegation_status: Annotated[str, Literal["pending"]]

    start_time = Moment("start_timestamp")
    end_time = Moment("end_timestamp")


@frozen(kw_only=True)
class BalanceOwner(Record):
    """A balance owner."""

    addresses: list[str]
    threshold: int


@frozen(kw_only=True)
class L1Validator(Record):
    """An L1 validator."""

    validation_id: str
    validation_id_hex: str
    node_id: str
    subnet_id: str
    weight: int
    remaining_balance: int
    creation_timestamp: int
    bls_credentials: dict[str, Any]
    remaining_balance_owner: BalanceOwner
    deactivation_owner: BalanceOwner

    creation_time = Moment("creation_timestamp")


PrimaryNetworkTransaction: TypeAlias = (
    PChainTransaction
    | XChainNonLinearTransaction
    | CChainExportTransaction
    | CChainImportTransaction
    | XChainLinearTransaction
    | Unknown
)
tell(
    PrimaryNetworkTransaction,
    {
        "amountStaked": PChainTransaction,
        "vertices": XChainNonLinearTransaction,
        "evmInputs": CChainExportTransaction,
        "evmOutputs": CChainImportTransaction,
        "blockHeight": XChainLinearTransaction,
    },
)
XChainTransaction: TypeAlias = XChainNonLinearTransaction | XChainLinearTransaction | Unknown
tell(
    XChainTransaction,
    {
        "vertices": XChainNonLinearTransaction,
        "blockHeight": XChainLinearTransaction,
    },
)
PrimaryNetworkUtxo: TypeAlias = Utxo | PChainUtxo | Unknown
tell(
    PrimaryNetworkUtxo,
    {
        "creationTxHash": Utxo,
        "txHash": PChainUtxo,
    },
)
PrimaryNetworkBalances: TypeAlias = PChainBalances | XChainBalances | CChainAtomicBalances | Unknown
tell(
    PrimaryNetworkBalances,
    {
        "balances.unlockedUnstaked": PChainBalances,
        "balances.unlocked": XChainBalances,
        "balances.atomicMemoryUnlocked": CChainAtomicBalances,
    },
)
Validator: TypeAlias = ActiveValidator | CompletedValidator | PendingValidator | RemovedValidator | Unknown
tell(
    Validator,
    {
        "validationStatus=active": ActiveValidator,
        "validationStatus=completed": CompletedValidator,
        "validationStatus=pending": PendingValidator,
        "validationStatus=removed": RemovedValidator,
    },
)
Delegator: TypeAlias = ActiveDelegator | CompletedDelegator | PendingDelegator | Unknown
tell(
    Delegator,
    {
        "delegationStatus=active": ActiveDelegator,
        "delegationStatus=completed": CompletedDelegator,
        "delegationStatus=pending": PendingDelegator,
    },
)

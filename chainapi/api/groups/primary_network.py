"""The routes of `session.data.primary_network`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

from chainapi.api.binding import Group, gets, lists
from chainapi.api.parameters import REPEATED, Bounds, PageSize, PageSize10000, Texts, Timestamp
from chainapi.api.routes import Route
from chainapi.client.pages import OnInvalid, Pages
from chainapi.core.paging.checkpoint import Checkpoint

if TYPE_CHECKING:
    from chainapi.models import (
        AddressChainIds,
        Blockchain,
        Delegator,
        HistoricalReward,
        L1Validator,
        LastActivity,
        NetworkDetails,
        PChainTransaction,
        PendingReward,
        PrimaryNetworkBalances,
        PrimaryNetworkBlock,
        PrimaryNetworkTransaction,
        PrimaryNetworkUtxo,
        Subnet,
        Validator,
        XChainAsset,
        XChainTransaction,
        XChainVertex,
    )
    from chainapi.models.enums import (
        BlockchainId,
        Currency,
        DelegationStatusType,
        Network,
        PChainId,
        PrimaryNetworkTxType,
        SortByOption,
        SortOrder,
        UtxosSortByOption,
        ValidationStatusType,
        XChainId,
    )

__all__ = ["PrimaryNetwork"]


class PrimaryNetwork(Group):
    """The P-, X- and C-Chain, their validators, subnets and blockchains."""

    @gets(Route("/v1/networks/{network}", weight="xl"))
    async def details(
        self, network: Network, *, priority: int = 0, deadline: float | None = None
    ) -> NetworkDetails:
        """Return totals of validators and delegators."""
        ...

    @gets(Route("/v1/networks/{network}/blockchains/{blockchainId}/transactions/{txHash}", weight="medium"))
    async def transaction(
        self,
        network: Network,
        blockchain_id: BlockchainId,
        tx_hash: str,
        *,
        priority: int = 0,
        deadline: float | None = None,
    ) -> PrimaryNetworkTransaction:
        """Return a transaction."""
        ...

    @lists(
        Route(
            "/v1/networks/{network}/blockchains/{blockchainId}/transactions",
            "transactions",
            key=("tx_hash",),
            weight="xl",
            others=(("chain_info", "PrimaryNetworkChain"),),
        )
    )
    def transactions(
        self,
        network: Network,
        blockchain_id: BlockchainId,
        *,
        addresses: Texts | None = None,
        l1_validation_id: str | None = None,
        tx_types: Annotated[Sequence[PrimaryNetworkTxType], REPEATED] | None = None,
        start_timestamp: Timestamp | None = None,
        end_timestamp: Timestamp | None = None,
        sort_order: SortOrder | None = None,
        page_size: PageSize | None = 100,
        resume: Checkpoint | None = None,
        on_invalid: OnInvalid = "raise",
        prefetch: int = 0,
        priority: int = 0,
        deadline: float | None = None,
    ) -> Pages[PrimaryNetworkTransaction]:
        """Walk the latest transactions, of some addresses or of all."""
        ...

    @lists(
        Route(
            "/v1/networks/{network}/blockchains/{blockchainId}/transactions:listStaking",
            "transactions",
            key=("tx_hash",),
            weight="xl",
            others=(("chain_info", "PrimaryNetworkChain"),),
        )
    )
    def staking_transactions(
        self,
        network: Network,
        blockchain_id: PChainId,
        *,
        addresses: Texts | None = None,
        tx_types: Annotated[Sequence[PrimaryNetworkTxType], REPEATED] | None = None,
        start_timestamp: Timestamp | None = None,
        end_timestamp: Timestamp | None = None,
        sort_order: SortOrder | None = None,
        page_size: PageSize | None = 100,
        resume: Checkpoint | None = None,
        on_invalid: OnInvalid = "raise",
        prefetch: int = 0,
        priority: int = 0,
        deadline: float | None = None,
    ) -> Pages[PChainTransaction]:
        """Walk the active staking transactions of some addresses."""
        ...

    @lists(
        Route(
            "/v1/networks/{network}/rewards:listPending",
            "pendingRewards",
            key=("tx_hash", "reward_type", "start_timestamp", "end_timestamp"),
            weight="xl",
        )
    )
    def pending_rewards(
        self,
        network: Network,
        *,
        addresses: Texts | None = None,
        node_ids: Texts | None = None,
        sort_order: SortOrder | None = None,
        page_size: PageSize | None = 100,
        resume: Checkpoint | None = None,
        on_invalid: OnInvalid = "raise",
        prefetch: int = 0,
        priority: int = 0,
        deadline: float | None = None,
    ) -> Pages[PendingReward]:
        """Walk the rewards to come."""
        ...

    @lists(Route("/v1/networks/{network}/rewards", "historicalRewards", key=("utxo_id",), weight="xl"))
    def rewards(
        self,
        network: Network,
        *,
        addresses: Texts | None = None,
        node_ids: Texts | None = None,
        sort_order: SortOrder | None = None,
        currency: Currency | None = None,
        page_size: PageSize | None = 100,
        resume: Checkpoint | None = None,
        on_invalid: OnInvalid = "raise",
        prefetch: int = 0,
        priority: int = 0,
        deadline: float | None = None,
    ) -> Pages[HistoricalReward]:
        """Walk the rewards paid."""
        ...

    @lists(
        Route(
            "/v1/networks/{network}/blockchains/{blockchainId}/utxos",
            "utxos",
            key=("utxo_id",),
            weight="xl",
            others=(("chain_info", "PrimaryNetworkChain"),),
        )
    )
    def utxos(
        self,
        network: Network,
        blockchain_id: BlockchainId,
        *,
        addresses: Texts | None = None,
        asset_id: str | None = None,
        min_utxo_amount: Annotated[float, Bounds(0)] | None = None,
        include_spent: bool | None = None,
        sort_by: UtxosSortByOption | None = None,
        sort_order: SortOrder | None = None,
        page_size: PageSize | None = 100,
        resume: Checkpoint | None = None,
        on_invalid: OnInvalid = "raise",
        prefetch: int = 0,
        priority: int = 0,
        deadline: float | None = None,
    ) -> Pages[PrimaryNetworkUtxo]:
        """Walk the UTXOs of some addresses."""
        ...

    @gets(
        Route(
            "/v1/networks/{network}/blockchains/{blockchainId}/lastActivityTimestampByAddresses", weight="xl"
        )
    )
    async def last_activity(
        self,
        network: Network,
        blockchain_id: BlockchainId,
        *,
        addresses: Texts | None = None,
        priority: int = 0,
        deadline: float | None = None,
    ) -> LastActivity:
        """Return when some addresses were last active."""
        ...

    @gets(Route("/v1/networks/{network}/blockchains/{blockchainId}/balances", weight="xl"))
    async def balances(
        self,
        network: Network,
        blockchain_id: BlockchainId,
        *,
        block_timestamp: Timestamp | None = None,
        addresses: Texts | None = None,
        priority: int = 0,
        deadline: float | None = None,
    ) -> PrimaryNetworkBalances:
        """Return the balances of some addresses."""
        ...

    @gets(Route("/v1/networks/{network}/blockchains/{blockchainId}/blocks/{blockId}", weight="xl"))
    async def block(
        self,
        network: Network,
        blockchain_id: BlockchainId,
        block_id: int | str,
        *,
        priority: int = 0,
        deadline: float | None = None,
    ) -> PrimaryNetworkBlock:
        """Return a block, by its height or its hash."""
        ...

    @lists(
        Route(
            "/v1/networks/{network}/blockchains/{blockchainId}/blocks",
            "blocks",
            key=("block_hash",),
            weight="medium",
            others=(("chain_info", "PrimaryNetworkChain"),),
        )
    )
    def blocks(
        self,
        network: Network,
        blockchain_id: BlockchainId,
        *,
        start_timestamp: Timestamp | None = None,
        end_timestamp: Timestamp | None = None,
        page_size: PageSize | None = 100,
        resume: Checkpoint | None = None,
        on_invalid: OnInvalid = "raise",
        prefetch: int = 0,
        priority: int = 0,
        deadline: float | None = None,
    ) -> Pages[PrimaryNetworkBlock]:
        """Walk the latest blocks."""
        ...

    @lists(
        Route(
            "/v1/networks/{network}/blockchains/{blockchainId}/nodes/{nodeId}/blocks",
            "blocks",
            key=("block_hash",),
            weight="medium",
            others=(("chain_info", "PrimaryNetworkChain"),),
        )
    )
    def node_blocks(
        self,
        network: Network,
        blockchain_id: BlockchainId,
        node_id: str,
        *,
        start_timestamp: Timestamp | None = None,
        end_timestamp: Timestamp | None = None,
        page_size: PageSize | None = 100,
        resume: Checkpoint | None = None,
        on_invalid: OnInvalid = "raise",
        prefetch: int = 0,
        priority: int = 0,
        deadline: float | None = None,
    ) -> Pages[PrimaryNetworkBlock]:
        """Walk the latest blocks that a node proposed."""
        ...

    @lists(
        Route(
            "/v1/networks/{network}/blockchains/{blockchainId}/vertices",
            "vertices",
            key=("vertex_hash",),
            weight="medium",
            others=(("chain_info", "PrimaryNetworkChain"),),
        )
    )
    def vertices(
        self,
        network: Network,
        blockchain_id: XChainId,
        *,
        page_size: PageSize | None = 100,
        resume: Checkpoint | None = None,
        on_invalid: OnInvalid = "raise",
        prefetch: int = 0,
        priority: int = 0,
        deadline: float | None = None,
    ) -> Pages[XChainVertex]:
        """Walk the latest vertices of the X-Chain."""
        ...

    @gets(Route("/v1/networks/{network}/blockchains/{blockchainId}/vertices/{vertexHash}", weight="medium"))
    async def vertex(
        self,
        network: Network,
        blockchain_id: XChainId,
        vertex_hash: str,
        *,
        priority: int = 0,
        deadline: float | None = None,
    ) -> XChainVertex:
        """Return a vertex of the X-Chain."""
        ...

    @lists(
        Route(
            "/v1/networks/{network}/blockchains/{blockchainId}/vertices:listByHeight",
            "vertices",
            key=("vertex_hash",),
            weight="medium",
            descending_key="vertex_timestamp",
            holds_if=(("descending_key", "sort_order", "desc"),),
            others=(("chain_info", "PrimaryNetworkChain"),),
        )
    )
    def vertices_at_height(
        self,
        network: Network,
        blockchain_id: XChainId,
        *,
        vertex_height: Annotated[int, Bounds(0)],
        sort_order: SortOrder | None = None,
        page_size: PageSize | None = 100,
        resume: Checkpoint | None = None,
        on_invalid: OnInvalid = "raise",
        prefetch: int = 0,
        priority: int = 0,
        deadline: float | None = None,
    ) -> Pages[XChainVertex]:
        """Walk the vertices of the X-Chain at a height."""
        ...

    @gets(Route("/v1/networks/{network}/blockchains/{blockchainId}/assets/{assetId}", weight="xl"))
    async def asset(
        self,
        network: Network,
        blockchain_id: XChainId,
        asset_id: str,
        *,
        priority: int = 0,
        deadline: float | None = None,
    ) -> XChainAsset:
        """Return an asset of the X-Chain."""
        ...

    @lists(
        Route(
            "/v1/networks/{network}/blockchains/{blockchainId}/assets/{assetId}/transactions",
            "transactions",
            key=("tx_hash",),
            weight="xl",
            others=(("chain_info", "PrimaryNetworkChain"),),
        )
    )
    def asset_transactions(
        self,
        network: Network,
        blockchain_id: XChainId,
        asset_id: str,
        *,
        tx_types: Annotated[Sequence[PrimaryNetworkTxType], REPEATED] | None = None,
        start_timestamp: Timestamp | None = None,
        end_timestamp: Timestamp | None = None,
        page_size: PageSize | None = 100,
        resume: Checkpoint | None = None,
        on_invalid: OnInvalid = "raise",
        prefetch: int = 0,
        priority: int = 0,
        deadline: float | None = None,
    ) -> Pages[XChainTransaction]:
        """Walk the transactions of an asset of the X-Chain."""
        ...

    @lists(Route("/v1/networks/{network}/addresses:listChainIds", "addresses", key=("address",), weight="xl"))
    def chain_ids(
        self,
        network: Network,
        *,
        addresses: Texts,
        resume: Checkpoint | None = None,
        on_invalid: OnInvalid = "raise",
        prefetch: int = 0,
        priority: int = 0,
        deadline: float | None = None,
    ) -> Pages[AddressChainIds]:
        """Walk some addresses, with the chains that each is active on."""
        ...

    @lists(
        Route(
            "/v1/networks/{network}/blockchains",
            "blockchains",
            key=("blockchain_id",),
            weight="medium",
            descending_key="create_block_timestamp",
            holds_if=(("descending_key", "sort_order", "desc"),),
        )
    )
    def blockchains(
        self,
        network: Network,
        *,
        sort_order: SortOrder | None = None,
        page_size: PageSize10000 | None = 10000,
        resume: Checkpoint | None = None,
        on_invalid: OnInvalid = "raise",
        prefetch: int = 0,
        priority: int = 0,
        deadline: float | None = None,
    ) -> Pages[Blockchain]:
        """Walk the blockchains."""
        ...

    @gets(Route("/v1/networks/{network}/blockchains/{blockchainId}", weight="medium"))
    async def blockchain(
        self, network: Network, blockchain_id: str, *, priority: int = 0, deadline: float | None = None
    ) -> Blockchain:
        """Return a blockchain."""
        ...

    @lists(
        Route(
            "/v1/networks/{network}/subnets",
            "subnets",
            key=("subnet_id",),
            weight="medium",
            descending_key="create_block_timestamp",
            holds_if=(("descending_key", "sort_order", "desc"),),
        )
    )
    def subnets(
        self,
        network: Network,
        *,
        sort_order: SortOrder | None = None,
        page_size: PageSize10000 | None = 10000,
        resume: Checkpoint | None = None,
        on_invalid: OnInvalid = "raise",
        prefetch: int = 0,
        priority: int = 0,
        deadline: float | None = None,
    ) -> Pages[Subnet]:
        """Walk the subnets."""
        ...

    @gets(Route("/v1/networks/{network}/subnets/{subnetId}", weight="medium"))
    async def subnet(
        self, network: Network, subnet_id: str, *, priority: int = 0, deadline: float | None = None
    ) -> Subnet:
        """Return a subnet."""
        ...

    @lists(
        Route("/v1/networks/{network}/validators", "validators", key=("tx_hash", "node_id"), weight="medium")
    )
    def validators(
        self,
        network: Network,
        *,
        node_ids: Texts | None = None,
        sort_by: SortByOption | None = None,
        sort_order: SortOrder | None = None,
        validation_status: ValidationStatusType | None = None,
        min_delegation_capacity: int | None = None,
        max_delegation_capacity: int | None = None,
        min_time_remaining: Annotated[float, Bounds(0, 2147483647)] | None = None,
        max_time_remaining: Annotated[float, Bounds(0, 2147483647)] | None = None,
        min_fee_percentage: Annotated[float, Bounds(2, 100)] | None = None,
        max_fee_percentage: Annotated[float, Bounds(2, 100)] | None = None,
        min_uptime_performance: Annotated[float, Bounds(0, 100)] | None = None,
        max_uptime_performance: Annotated[float, Bounds(0, 100)] | None = None,
        subnet_id: str | None = None,
        page_size: PageSize | None = 100,
        resume: Checkpoint | None = None,
        on_invalid: OnInvalid = "raise",
        prefetch: int = 0,
        priority: int = 0,
        deadline: float | None = None,
    ) -> Pages[Validator]:
        """Walk the validators."""
        ...

    @lists(
        Route(
            "/v1/networks/{network}/validators/{nodeId}",
            "validators",
            key=("tx_hash", "node_id"),
            weight="medium",
        )
    )
    def validations(
        self,
        network: Network,
        node_id: str,
        *,
        validation_status: ValidationStatusType | None = None,
        sort_order: SortOrder | None = None,
        page_size: PageSize | None = 100,
        resume: Checkpoint | None = None,
        on_invalid: OnInvalid = "raise",
        prefetch: int = 0,
        priority: int = 0,
        deadline: float | None = None,
    ) -> Pages[Validator]:
        """Walk the validation periods of a node."""
        ...

    @lists(Route("/v1/networks/{network}/delegators", "delegators", key=("tx_hash",), weight="medium"))
    def delegators(
        self,
        network: Network,
        *,
        reward_addresses: Texts | None = None,
        sort_order: SortOrder | None = None,
        delegation_status: DelegationStatusType | None = None,
        node_ids: Texts | None = None,
        page_size: PageSize | None = 100,
        resume: Checkpoint | None = None,
        on_invalid: OnInvalid = "raise",
        prefetch: int = 0,
        priority: int = 0,
        deadline: float | None = None,
    ) -> Pages[Delegator]:
        """Walk the delegators."""
        ...

    @lists(
        Route(
            "/v1/networks/{network}/l1Validators",
            "validators",
            key=("validation_id",),
            weight="medium",
            others=(("block_height", "int"),),
        )
    )
    def l1_validators(
        self,
        network: Network,
        *,
        l1_validation_id: str | None = None,
        include_inactive_l1_validators: bool | None = None,
        node_id: str | None = None,
        subnet_id: str | None = None,
        page_size: PageSize | None = 100,
        resume: Checkpoint | None = None,
        on_invalid: OnInvalid = "raise",
        prefetch: int = 0,
        priority: int = 0,
        deadline: float | None = None,
    ) -> Pages[L1Validator]:
        """Walk the validators of L1s."""
        ...

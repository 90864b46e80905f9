"""The routes of the groups of `session.metrics`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chainapi.api.binding import Group, gets, lists
from chainapi.api.parameters import ChainId, PageSize2160, PageSize5000, Timestamp
from chainapi.api.routes import Route
from chainapi.client.pages import OnInvalid, Pages
from chainapi.core.paging.checkpoint import Checkpoint

if TYPE_CHECKING:
    from chainapi.models import (
        IcmPoint,
        IcmSummary,
        MetricPoint,
        MetricsChain,
        RankedAddress,
        RankedAddresses,
        RollingWindowMetrics,
    )
    from chainapi.models.enums import (
        AllValidatorsMetric,
        ChainMetric,
        ChainRollingWindowMetric,
        IcmGroupBy,
        Network,
        NetworkMetric,
        NodeMetric,
        SubnetMetric,
        TimeIntervalGranularity,
        ValidationMetric,
    )

__all__ = ["MetricChains", "MetricICM", "MetricL1Validators", "MetricNetworks", "MetricSubnets"]


class MetricChains(Group):
    """Metrics of EVM chains."""

    @lists(Route("/v2/chains", "chains", key=("network", "blockchain_id"), weight="free"))
    def list(
        self,
        *,
        network: Network | None = None,
        resume: Checkpoint | None = None,
        on_invalid: OnInvalid = "raise",
        prefetch: int = 0,
        priority: int = 0,
        deadline: float | None = None,
    ) -> Pages[MetricsChain]:
        """Walk the chains that have metrics."""
        ...

    @gets(Route("/v2/chains/{chainId}", weight="free"))
    async def get(
        self, chain_id: ChainId, *, priority: int = 0, deadline: float | None = None
    ) -> MetricsChain:
        """Return a chain that has metrics."""
        ...

    @lists(
        Route(
            "/v2/chains/{chainId}/metrics/{metric}",
            "results",
            key=("timestamp",),
            weight="small",
            descending_key="timestamp",
            until="endTimestamp",
        )
    )
    def metric(
        self,
        chain_id: ChainId,
        metric: ChainMetric,
        *,
        start_timestamp: Timestamp | None = None,
        end_timestamp: Timestamp | None = None,
        time_interval: TimeIntervalGranularity | None = None,
        page_size: PageSize2160 | None = 2160,
        resume: Checkpoint | None = None,
        on_invalid: OnInvalid = "raise",
        prefetch: int = 0,
        priority: int = 0,
        deadline: float | None = None,
    ) -> Pages[MetricPoint]:
        """Walk a metric of a chain, newest first."""
        ...

    @gets(Route("/v2/chains/{chainId}/rollingWindowMetrics/{metric}", weight="small"))
    async def rolling(
        self,
        chain_id: ChainId,
        metric: ChainRollingWindowMetric,
        *,
        priority: int = 0,
        deadline: float | None = None,
    ) -> RollingWindowMetrics:
        """Return a metric of a chain over windows that end now."""
        ...

    @lists(
        Route(
            "/v2/chains/{chainId}/contracts/{address}/nfts:listHolders",
            "addresses",
            key=("address",),
            weight="large",
            others=(
                ("nft_collection_name", "list[str] | str"),
                ("nft_symbol", "list[str] | str"),
                ("total_holders", "int"),
                ("total_tokens", "int"),
            ),
        )
    )
    def nft_holders(
        self,
        chain_id: ChainId,
        address: str,
        *,
        page_size: PageSize5000 | None = 5000,
        resume: Checkpoint | None = None,
        on_invalid: OnInvalid = "raise",
        prefetch: int = 0,
        priority: int = 0,
        deadline: float | None = None,
    ) -> Pages[RankedAddress]:
        """Walk the holders of a collection."""
        ...

    @lists(
        Route("/v2/chains/{chainId}/contracts/{address}/balances", "addresses", key=("address",), weight="xl")
    )
    def token_holders(
        self,
        chain_id: ChainId,
        address: str,
        *,
        threshold: int | str,
        start_timestamp: Timestamp | None = None,
        end_timestamp: Timestamp | None = None,
        page_size: PageSize5000 | None = 5000,
        resume: Checkpoint | None = None,
        on_invalid: OnInvalid = "raise",
        prefetch: int = 0,
        priority: int = 0,
        deadline: float | None = None,
    ) -> Pages[RankedAddress]:
        """Walk the addresses that held more of a token than `threshold`."""
        ...

    @lists(Route("/v2/chains/43114/btcb/bridged:getAddresses", "addresses", key=("address",), weight="large"))
    def btcb_bridgers(
        self,
        *,
        threshold: int | str,
        page_size: PageSize5000 | None = 5000,
        resume: Checkpoint | None = None,
        on_invalid: OnInvalid = "raise",
        prefetch: int = 0,
        priority: int = 0,
        deadline: float | None = None,
    ) -> Pages[RankedAddress]:
        """Walk the addresses that bridged more BTC.b than `threshold`."""
        ...


class MetricICM(Group):
    """Counts of messages between chains."""

    @lists(
        Route(
            "/v2/icm/timeseries",
            "results",
            key=("timestamp", "src_blockchain_id", "dest_blockchain_id"),
            weight="small",
        )
    )
    def timeseries(
        self,
        *,
        start_timestamp: Timestamp | None = None,
        end_timestamp: Timestamp | None = None,
        src_blockchain_id: str | None = None,
        dest_blockchain_id: str | None = None,
        time_interval: TimeIntervalGranularity | None = None,
        group_by: IcmGroupBy | None = None,
        network: Network | None = None,
        page_size: PageSize2160 | None = 2160,
        resume: Checkpoint | None = None,
        on_invalid: OnInvalid = "raise",
        prefetch: int = 0,
        priority: int = 0,
        deadline: float | None = None,
    ) -> Pages[IcmPoint]:
        """Walk counts of messages over time."""
        ...

    @gets(Route("/v2/icm/summary", weight="small"))
    async def summary(
        self,
        *,
        src_blockchain_id: str | None = None,
        dest_blockchain_id: str | None = None,
        group_by: IcmGroupBy | None = None,
        network: Network | None = None,
        priority: int = 0,
        deadline: float | None = None,
    ) -> IcmSummary:
        """Return counts of messages over windows that end now."""
        ...


class MetricNetworks(Group):
    """Metrics of staking."""

    @lists(
        Route(
            "/v2/networks/{network}/metrics/{metric}",
            "results",
            key=("timestamp",),
            weight="small",
            descending_key="timestamp",
            until="endTimestamp",
            holds_if=(("key", "subnet_id", None),),
        )
    )
    def metric(
        self,
        network: Network,
        metric: NetworkMetric,
        *,
        start_timestamp: Timestamp | None = None,
        end_timestamp: Timestamp | None = None,
        subnet_id: str | None = None,
        page_size: PageSize2160 | None = 2160,
        resume: Checkpoint | None = None,
        on_invalid: OnInvalid = "raise",
        prefetch: int = 0,
        priority: int = 0,
        deadline: float | None = None,
    ) -> Pages[MetricPoint]:
        """Walk a metric of staking, newest first."""
        ...


class MetricL1Validators(Group):
    """Fees of validators of L1s."""

    @lists(
        Route("/v2/validators/metrics/{metric}", "results", key=("timestamp",), descending_key="timestamp")
    )
    def metric(
        self,
        metric: AllValidatorsMetric,
        *,
        start_timestamp: Timestamp | None = None,
        end_timestamp: Timestamp | None = None,
        resume: Checkpoint | None = None,
        on_invalid: OnInvalid = "raise",
        prefetch: int = 0,
        priority: int = 0,
        deadline: float | None = None,
    ) -> Pages[MetricPoint]:
        """Walk a metric of all validators."""
        ...

    @lists(
        Route(
            "/v2/validation/{l1ValidationId}/metrics/{metric}",
            "results",
            key=("timestamp",),
            descending_key="timestamp",
        )
    )
    def by_validation(
        self,
        l1_validation_id: str,
        metric: ValidationMetric,
        *,
        start_timestamp: Timestamp | None = None,
        end_timestamp: Timestamp | None = None,
        resume: Checkpoint | None = None,
        on_invalid: OnInvalid = "raise",
        prefetch: int = 0,
        priority: int = 0,
        deadline: float | None = None,
    ) -> Pages[MetricPoint]:
        """Walk a metric of a validation."""
        ...

    @lists(
        Route(
            "/v2/validator/{nodeId}/metrics/{metric}",
            "results",
            key=("timestamp",),
            descending_key="timestamp",
        )
    )
    def by_node(
        self,
        node_id: str,
        metric: NodeMetric,
        *,
        start_timestamp: Timestamp | None = None,
        end_timestamp: Timestamp | None = None,
        resume: Checkpoint | None = None,
        on_invalid: OnInvalid = "raise",
        prefetch: int = 0,
        priority: int = 0,
        deadline: float | None = None,
    ) -> Pages[MetricPoint]:
        """Walk a metric of a node."""
        ...

    @lists(
        Route(
            "/v2/subnet/{subnetId}/metrics/{metric}",
            "results",
            key=("timestamp",),
            descending_key="timestamp",
        )
    )
    def by_subnet(
        self,
        subnet_id: str,
        metric: SubnetMetric,
        *,
        start_timestamp: Timestamp | None = None,
        end_timestamp: Timestamp | None = None,
        resume: Checkpoint | None = None,
        on_invalid: OnInvalid = "raise",
        prefetch: int = 0,
        priority: int = 0,
        deadline: float | None = None,
    ) -> Pages[MetricPoint]:
        """Walk a metric of a subnet."""
        ...


class MetricSubnets(Group):
    """Validators of subnets."""

    @lists(Route("/v2/subnets/{subnetId}/validators:getAddresses", "addresses", weight="large"))
    def validators(
        self,
        subnet_id: str,
        *,
        start_timestamp: Timestamp | None = None,
        end_timestamp: Timestamp | None = None,
        network: Network | None = None,
        page_size: PageSize5000 | None = 5000,
        resume: Checkpoint | None = None,
        on_invalid: OnInvalid = "raise",
        prefetch: int = 0,
        priority: int = 0,
        deadline: float | None = None,
    ) -> Pages[RankedAddresses]:
        """Walk the addresses that ran validators of a subnet."""
        ...

"""The routes of `session.data.usage`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chainapi.api.binding import Group, gets, lists
from chainapi.api.parameters import ChainId, PageSize, Timestamp
from chainapi.api.routes import Route
from chainapi.client.pages import OnInvalid, Pages
from chainapi.core.paging.checkpoint import Checkpoint

if TYPE_CHECKING:
    from chainapi.models import ApiLog, PrimaryNetworkRpcUsage, SubnetRpcUsage, UsageMetrics
    from chainapi.models.enums import (
        Network,
        PrimaryNetworkRpcMetricsGroupBy,
        RequestType,
        RpcUsageMetricsGroupBy,
        SubnetRpcTimeIntervalGranularity,
        TimeIntervalGranularityExtended,
        UsageMetricsGroupBy,
    )

__all__ = ["Usage"]


class Usage(Group):
    """What an organisation's own requests used."""

    @gets(Route("/v1/apiUsageMetrics", weight="xxl"))
    async def api(
        self,
        *,
        org_id: str | None = None,
        start_timestamp: Timestamp | None = None,
        end_timestamp: Timestamp | None = None,
        time_interval: TimeIntervalGranularityExtended | None = None,
        group_by: UsageMetricsGroupBy | None = None,
        chain_id: ChainId | None = None,
        response_code: int | None = None,
        request_type: RequestType | None = None,
        api_key_id: str | None = None,
        request_path: str | None = None,
        priority: int = 0,
        deadline: float | None = None,
    ) -> UsageMetrics:
        """Return how the Data API was used, by intervals."""
        ...

    @lists(Route("/v1/apiLogs", "logs", key=("log_id",), weight="xxl", others=(("org_id", "str"),)))
    def logs(
        self,
        *,
        org_id: str | None = None,
        start_timestamp: Timestamp | None = None,
        end_timestamp: Timestamp | None = None,
        chain_id: ChainId | None = None,
        response_code: int | None = None,
        request_type: RequestType | None = None,
        api_key_id: str | None = None,
        request_path: str | None = None,
        page_size: PageSize | None = 100,
        resume: Checkpoint | None = None,
        on_invalid: OnInvalid = "raise",
        prefetch: int = 0,
        priority: int = 0,
        deadline: float | None = None,
    ) -> Pages[ApiLog]:
        """Walk the log of requests to the Data API."""
        ...

    @gets(Route("/v1/subnetRpcUsageMetrics", weight="xxl"))
    async def subnet_rpc(
        self,
        *,
        time_interval: SubnetRpcTimeIntervalGranularity | None = None,
        start_timestamp: Timestamp | None = None,
        end_timestamp: Timestamp | None = None,
        group_by: RpcUsageMetricsGroupBy | None = None,
        chain_id: ChainId | None = None,
        response_code: int | None = None,
        rpc_method: str | None = None,
        rl_bypass_api_token: str | None = None,
        priority: int = 0,
        deadline: float | None = None,
    ) -> SubnetRpcUsage:
        """Return how the RPC of subnets was used."""
        ...

    @gets(Route("/v1/rpcUsageMetrics", weight="xxl", deprecated=True))
    async def rpc(
        self,
        *,
        time_interval: SubnetRpcTimeIntervalGranularity | None = None,
        start_timestamp: Timestamp | None = None,
        end_timestamp: Timestamp | None = None,
        group_by: RpcUsageMetricsGroupBy | None = None,
        chain_id: ChainId | None = None,
        response_code: int | None = None,
        rpc_method: str | None = None,
        rl_bypass_api_token: str | None = None,
        priority: int = 0,
        deadline: float | None = None,
    ) -> SubnetRpcUsage:
        """Return how the RPC of subnets was used; deprecated."""
        ...

    @gets(Route("/v1/primaryNetworkRpcUsageMetrics", weight="xxl"))
    async def primary_network_rpc(
        self,
        *,
        network: Network,
        time_interval: SubnetRpcTimeIntervalGranularity | None = None,
        start_timestamp: Timestamp | None = None,
        end_timestamp: Timestamp | None = None,
        group_by: PrimaryNetworkRpcMetricsGroupBy | None = None,
        response_code: int | None = None,
        request_path: str | None = None,
        country: str | None = None,
        continent: str | None = None,
        user_agent: str | None = None,
        rpc_method: str | None = None,
        priority: int = 0,
        deadline: float | None = None,
    ) -> PrimaryNetworkRpcUsage:
        """Return how the RPC of the Primary Network was used."""
        ...

"""Records of the use of the services."""

from __future__ import annotations

from typing import Annotated

from attrs import frozen

from chainapi.models import enums
from chainapi.models.records import Record
from chainapi.models.timestamps import Moment

__all__ = [
    "ApiLog",
    "ApiLogMetadata",
    "PrimaryNetworkRpcUsage",
    "RpcUsageMetric",
    "RpcUsageValue",
    "SubnetRpcUsage",
    "UsageMetric",
    "UsageMetrics",
    "UsageValue",
]


@frozen(kw_only=True)
class UsageValue(Record):
    """A usage value."""

    grouped_by: Annotated[str, enums.UsageGroupedBy]
    group_value: str | int | None = None
    total_requests: int
    requests_per_second: float
    success_rate_percent: float
    median_response_time_msecs: float
    invalid_requests: int
    api_credits_used: float
    api_credits_wasted: float


@frozen(kw_only=True)
class UsageMetric(Record):
    """A usage metric."""

    timestamp: int
    values: list[UsageValue]

    time = Moment("timestamp")


@frozen(kw_only=True)
class UsageMetrics(Record):
    """Usage metrics."""

    aggregate_duration: str
    org_id: str
    metrics: list[UsageMetric]


@frozen(kw_only=True)
class ApiLogMetadata(Record):
    """API log metadata."""

    ip_address: str
    host: str
    user_agent: str


@frozen(kw_only=True)
class ApiLog(Record):
    """An API log."""

    org_id: str
    log_id: str
    event_timestamp: int
    api_key_id: str
    api_key_alias: str
    host_region: str
    request_type: Annotated[str, enums.RequestType]
    request_path: str
    api_credits_consumed: float
    request_duration_msecs: float
    response_code: int
    chain_id: str | None = None
    rpc_method: str | None = None
    metadata: ApiLogMetadata

    event_time = Moment("event_timestamp")


@frozen(kw_only=True)
class RpcUsageValue(Record):
    """An RPC usage value."""

    total_requests: int
    api_credits_used: float
    requests_per_second: float
    success_rate_percent: float
    median_response_time_msecs: float
    invalid_requests: int
    api_credits_wasted: float
    grouped_by: Annotated[str, enums.RpcGroupedBy]
    group_value: str | int | None = None


@frozen(kw_only=True)
class RpcUsageMetric(Record):
    """An RPC usage metric."""

    timestamp: int
    values: list[RpcUsageValue]

    time = Moment("timestamp")


@frozen(kw_only=True)
class SubnetRpcUsage(Record):
    """A subnet RPC usage."""

    aggregate_duration: str
    metrics: list[RpcUsageMetric]
    chain_id: str


@frozen(kw_only=True)
class PrimaryNetworkRpcUsage(Record):
    """A Primary Network RPC usage."""

    aggregate_duration: str
    metrics: list[RpcUsageMetric]
    network: Annotated[str, enums.NetworkType]

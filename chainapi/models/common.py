"""Records that several groups of routes share."""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated

from attrs import frozen

from chainapi.models import enums
from chainapi.models.records import Record
from chainapi.models.timestamps import Moment

__all__ = [
    "AggregatedSignatures",
    "AvaxSupply",
    "ChainInfo",
    "ExportMetadata",
    "HealthCheck",
    "HealthIndicator",
    "Money",
    "NetworkToken",
    "Operation",
    "UtilityAddresses",
]


@frozen(kw_only=True)
class HealthIndicator(Record):
    """A health indicator."""

    status: Annotated[str, enums.IndicatorStatus] | None = None


@frozen(kw_only=True)
class HealthCheck(Record):
    """A health check."""

    status: Annotated[str, enums.HealthStatus] | None = None
    info: dict[str, HealthIndicator] | None = None
    error: dict[str, HealthIndicator] | None = None
    details: dict[str, HealthIndicator] | None = None


@frozen(kw_only=True)
class NetworkToken(Record):
    """A network token."""

    name: str | None = None
    symbol: str | None = None
    decimals: int | None = None
    logo_uri: str | None = None
    description: str | None = None


@frozen(kw_only=True)
class UtilityAddresses(Record):
    """Utility addresses."""

    multicall: str | None = None


@frozen(kw_only=True)
class ChainInfo(Record):
    """A chain; the specification shows none of its fields, so any may be missing."""

    chain_id: int | None = None
    status: Annotated[str, enums.ChainStatus] | None = None
    chain_name: str | None = None
    description: str | None = None
    platform_chain_id: str | None = None
    subnet_id: str | None = None
    vm_id: str | None = None
    vm_name: Annotated[str, enums.VmName] | None = None
    explorer_url: str | None = None
    rpc_url: str | None = None
    ws_url: str | None = None
    is_testnet: bool | None = None
    utility_addresses: UtilityAddresses | None = None
    network_token: NetworkToken | None = None
    chain_logo_uri: str | None = None
    private: bool | None = None
    enabled_features: list[Annotated[str, enums.ChainFeature]] | None = None


@frozen(kw_only=True)
class AvaxSupply(Record):
    """The supply of AVAX, in whole AVAX."""

    circulating_supply: Decimal
    total_supply: Decimal
    total_p_burned: Decimal
    total_c_burned: Decimal
    total_x_burned: Decimal
    total_staked: Decimal
    total_locked: Decimal
    total_rewards: Decimal
    last_updated: str
    genesis_unlock: Decimal
    l1_validator_fees: Decimal


@frozen(kw_only=True)
class ExportMetadata(Record):
    """Export metadata."""

    code: Annotated[str, enums.OperationStatusCode] | None = None
    download_url: str | None = None
    next_date: str | None = None


@frozen(kw_only=True)
class Operation(Record):
    """An operation."""

    operation_id: str
    operation_type: Annotated[str, enums.OperationType]
    operation_status: Annotated[str, enums.OperationStatus]
    message: str | None = None
    metadata: ExportMetadata | None = None
    created_at_timestamp: int
    updated_at_timestamp: int

    created_at_time = Moment("created_at_timestamp")
    updated_at_time = Moment("updated_at_timestamp")


@frozen(kw_only=True)
class AggregatedSignatures(Record):
    """Aggregated signatures."""

    signed_message: str


@frozen(kw_only=True)
class Money(Record):
    """An amount of money, exact."""

    currency_code: Annotated[str, enums.Currency]
    value: Decimal

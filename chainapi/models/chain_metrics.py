"""Records of the Metrics API, data points apart."""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated

from attrs import frozen

from chainapi.models import enums
from chainapi.models.records import Record
from chainapi.models.timestamps import Moment

__all__ = [
    "IcmPoint",
    "IcmRollingWindow",
    "IcmSummary",
    "MetricsChain",
    "RankedAddress",
    "RankedAddresses",
    "RollingWindow",
    "RollingWindowMetrics",
]


@frozen(kw_only=True)
class MetricsChain(Record):
    """A metrics chain."""

    evm_chain_id: int
    chain_name: str
    blockchain_id: str
    subnet_id: str
    network: Annotated[str, enums.NetworkType]


@frozen(kw_only=True)
class RollingWindow(Record):
    """A metric over windows that end now."""

    last_hour: float | None = None
    last_day: float | None = None
    last_week: float | None = None
    last_month: float | None = None
    last90_days: float | None = None
    last_year: float | None = None
    all_time: float | None = None


@frozen(kw_only=True)
class RollingWindowMetrics(Record):
    """Rolling window metrics."""

    result: RollingWindow


@frozen(kw_only=True)
class RankedAddress(Record):
    """An address, and the number by which the list is sorted."""

    address: str
    sort_key: Decimal


@frozen(kw_only=True)
class IcmPoint(Record):
    """A count of messages at a time."""

    value: float
    timestamp: int
    src_blockchain_id: str
    dest_blockchain_id: str

    time = Moment("timestamp")


@frozen(kw_only=True)
class IcmRollingWindow(Record):
    """An ICM rolling window."""

    last_hour: float | None = None
    last_day: float | None = None
    last_week: float | None = None
    last_month: float | None = None
    last90_days: float | None = None
    last_year: float | None = None
    all_time: float | None = None
    src_blockchain_id: str
    dest_blockchain_id: str


@frozen(kw_only=True)
class IcmSummary(Record):
    """An ICM summary."""

    result: IcmRollingWindow


@frozen(kw_only=True)
class RankedAddresses(Record):
    """Addresses of one owner, and the number by which the list is sorted."""

    addresses: list[str]
    sort_key: Decimal

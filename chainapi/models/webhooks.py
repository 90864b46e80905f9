"""Records of webhooks."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from attrs import field, frozen

from chainapi.models import enums
from chainapi.models.records import Record
from chainapi.models.unions import Unknown, tell

__all__ = [
    "BalanceThresholdFilter",
    "EvmAddressWebhook",
    "EvmAddressWebhookMetadata",
    "PrimaryNetworkAddressSubEvents",
    "PrimaryNetworkAddressWebhook",
    "PrimaryNetworkAddressWebhookMetadata",
    "SharedSecret",
    "ValidatorSubEvents",
    "ValidatorWebhook",
    "ValidatorWebhookMetadata",
    "Webhook",
]


@frozen(kw_only=True)
class EvmAddressWebhookMetadata(Record):
    """EVM address webhook metadata."""

    event_signatures: list[str] | None = None
    addresses: list[str]


@frozen(kw_only=True)
class EvmAddressWebhook(Record):
    """An EVM address webhook."""

    id: str
    url: str
    chain_id: str
    status: Annotated[str, enums.WebhookStatus]
    created_at: int
    name: str
    description: str
    event_type: Annotated[str, Literal["address_activity"]]
    metadata: EvmAddressWebhookMetadata
    include_internal_txs: bool | None = None
    include_logs: bool | None = None


@frozen(kw_only=True)
class BalanceThresholdFilter(Record):
    """A balance threshold filter."""

    balance_type: Annotated[str, enums.CommonBalanceType]
    balance_threshold: int


@frozen(kw_only=True)
class PrimaryNetworkAddressSubEvents(Record):
    """Primary Network address sub events."""

    address_activity_sub_events: list[Annotated[str, enums.PrimaryNetworkAddressActivitySubEventType]]


@frozen(kw_only=True)
class PrimaryNetworkAddressWebhookMetadata(Record):
    """Primary Network address webhook metadata."""

    event_signatures: list[str] | None = None
    key_type: Annotated[str, enums.PlatformAddressActivityKeyType]
    keys: list[str]
    sub_events: PrimaryNetworkAddressSubEvents
    balance_threshold_filter: BalanceThresholdFilter | None = None


@frozen(kw_only=True)
class PrimaryNetworkAddressWebhook(Record):
    """A Primary Network address webhook."""

    id: str
    url: str
    chain_id: str
    status: Annotated[str, enums.WebhookStatus]
    created_at: int
    name: str
    description: str
    event_type: Annotated[str, Literal["primary_network_address_activity"]]
    metadata: PrimaryNetworkAddressWebhookMetadata


@frozen(kw_only=True)
class ValidatorSubEvents(Record):
    """Validator sub events."""

    validator_activity_sub_events: list[Annotated[str, enums.ValidatorActivitySubEvent]]


@frozen(kw_only=True)
class ValidatorWebhookMetadata(Record):
    """Validator webhook metadata."""

    event_signatures: list[str] | None = None
    key_type: Annotated[str, enums.ValidatorActivityKeyType]
    keys: list[str]
    sub_events: ValidatorSubEvents
    node_ids: list[str] | None = None
    subnet_ids: list[str] | None = None
    l1_validator_fee_balance_threshold: int | None = None


@frozen(kw_only=True)
class ValidatorWebhook(Record):
    """A validator webhook."""

    id: str
    url: str
    chain_id: str
    status: Annotated[str, enums.WebhookStatus]
    created_at: int
    name: str
    description: str
    event_type: Annotated[str, Literal["validator_activity"]]
    metadata: ValidatorWebhookMetadata


@frozen(kw_only=True)
class SharedSecret(Record):
    """The secret that signs the webhooks' calls; no repr shows it."""

    secret: str = field(repr=False)


Webhook: TypeAlias = EvmAddressWebhook | PrimaryNetworkAddressWebhook | ValidatorWebhook | Unknown
tell(
    Webhook,
    {
        "eventType=address_activity": EvmAddressWebhook,
        "eventType=primary_network_address_activity": PrimaryNetworkAddressWebhook,
        "eventType=validator_activity": ValidatorWebhook,
    },
)

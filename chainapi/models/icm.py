"""Records of messages between chains."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from attrs import frozen

from chainapi.models import enums
from chainapi.models.common import Money
from chainapi.models.records import Record
from chainapi.models.timestamps import Moment
from chainapi.models.unions import Unknown, tell

__all__ = [
    "DeliveredIcmMessage",
    "DeliveredSourceNotIndexedIcmMessage",
    "DeliveredSourceNotIndexedTeleporterMessage",
    "DeliveredTeleporterMessage",
    "IcmDestinationTransaction",
    "IcmMessage",
    "IcmReceipt",
    "IcmReward",
    "IcmSourceTransaction",
    "PendingIcmMessage",
    "PendingTeleporterMessage",
    "TeleporterMessage",
]


@frozen(kw_only=True)
class IcmReceipt(Record):
    """An ICM receipt."""

    received_message_nonce: int
    relayer_reward_address: str


@frozen(kw_only=True)
class IcmReward(Record):
    """An ICM reward."""

    address: str
    name: str
    symbol: str
    decimals: int
    logo_uri: str | None = None
    erc_type: Annotated[str, enums.Erc20Type]
    price: Money | None = None
    value: int


@frozen(kw_only=True)
class IcmSourceTransaction(Record):
    """An ICM source transaction."""

    tx_hash: str
    timestamp: int
    gas_spent: int

    time = Moment("timestamp")


@frozen(kw_only=True)
class PendingTeleporterMessage(Record):
    """A pending teleporter message."""

    message_id: str
    teleporter_contract_address: str
    source_blockchain_id: str
    destination_blockchain_id: str
    source_evm_chain_id: str
    destination_evm_chain_id: str
    message_nonce: int
    from_: str
    to: str
    data: str | None = None
    message_executed: bool
    receipts: list[IcmReceipt]
    receipt_delivered: bool
    reward_details: IcmReward
    source_transaction: IcmSourceTransaction
    status: Annotated[str, Literal["pending"]]


@frozen(kw_only=True)
class IcmDestinationTransaction(Record):
    """An ICM destination transaction."""

    tx_hash: str
    timestamp: int
    gas_spent: int
    reward_redeemer: str
    deliverer_address: str

    time = Moment("timestamp")


@frozen(kw_only=True)
class DeliveredTeleporterMessage(Record):
    """A delivered teleporter message."""

    message_id: str
    teleporter_contract_address: str
    source_blockchain_id: str
    destination_blockchain_id: str
    source_evm_chain_id: str
    destination_evm_chain_id: str
    message_nonce: int
    from_: str
    to: str
    data: str | None = None
    message_executed: bool
    receipts: list[IcmReceipt]
    receipt_delivered: bool
    reward_details: IcmReward
    source_transaction: IcmSourceTransaction
    destination_transaction: IcmDestinationTransaction
    status: Annotated[str, Literal["delivered"]]


@frozen(kw_only=True)
class DeliveredSourceNotIndexedTeleporterMessage(Record):
    """A delivered source not indexed teleporter message."""

    message_id: str
    teleporter_contract_address: str
    source_blockchain_id: str
    destination_blockchain_id: str
    source_evm_chain_id: str
    destination_evm_chain_id: str
    message_nonce: int
    from_: str
    to: str
    data: str | None = None
    message_executed: bool
    receipts: list[IcmReceipt]
    receipt_delivered: bool
    reward_details: IcmReward
    destination_transaction: IcmDestinationTransaction
    status: Annotated[str, Literal["delivered_source_not_indexed"]]


@frozen(kw_only=True)
class DeliveredSourceNotIndexedIcmMessage(Record):
    """A delivered source not indexed ICM message."""

    message_id: str
    icm_contract_address: str
    source_blockchain_id: str
    destination_blockchain_id: str
    source_evm_chain_id: str
    destination_evm_chain_id: str
    message_nonce: int
    from_: str
    to: str
    data: str | None = None
    message_executed: bool
    receipts: list[IcmReceipt]
    receipt_delivered: bool
    reward_details: IcmReward
    destination_transaction: IcmDestinationTransaction
    status: Annotated[str, Literal["delivered_source_not_indexed"]]


@frozen(kw_only=True)
class PendingIcmMessage(Record):
    """A pending ICM message."""

    message_id: str
    icm_contract_address: str
    source_blockchain_id: str
    destination_blockchain_id: str
    source_evm_chain_id: str
    destination_evm_chain_id: str
    message_nonce: int
    from_: str
    to: str
    data: str | None = None
    message_executed: bool
    receipts: list[IcmReceipt]
    receipt_delivered: bool
    reward_details: IcmReward
    source_transaction: IcmSourceTransaction
    status: Annotated[str, Literal["pending"]]


@frozen(kw_only=True)
class DeliveredIcmMessage(Record):
    """A delivered ICM message."""

    message_id: str
    icm_contract_address: str
    source_blockchain_id: str
    destination_blockchain_id: str
    source_evm_chain_id: str
    destination_evm_chain_id: str
    message_nonce: int
    from_: str
    to: str
    data: str | None = None
    message_executed: bool
    receipts: list[IcmReceipt]
    receipt_delivered: bool
    reward_details: IcmReward
    source_transaction: IcmSourceTransaction
    destination_transaction: IcmDestinationTransaction
    status: Annotated[str, Literal["delivered"]]


IcmMessage: TypeAlias = (
    PendingIcmMessage | DeliveredIcmMessage | DeliveredSourceNotIndexedIcmMessage | Unknown
)
tell(
    IcmMessage,
    {
        "status=pending": PendingIcmMessage,
        "status=delivered": DeliveredIcmMessage,
        "status=delivered_source_not_indexed": DeliveredSourceNotIndexedIcmMessage,
    },
)
TeleporterMessage: TypeAlias = (
    PendingTeleporterMessage
    | DeliveredTeleporterMessage
    | DeliveredSourceNotIndexedIcmMessage
    | DeliveredSourceNotIndexedTeleporterMessage
    | Unknown
)
tell(
    TeleporterMessage,
    {
        "status=pending": PendingTeleporterMessage,
        "status=delivered": DeliveredTeleporterMessage,
        "icmContractAddress": DeliveredSourceNotIndexedIcmMessage,
        "status=delivered_source_not_indexed": DeliveredSourceNotIndexedTeleporterMessage,
    },
)

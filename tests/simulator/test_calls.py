"""Calls of simulated webhooks: signatures, doubled events, delays."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from chainapi import Session, validate_webhook
from chainapi.errors import WebhookSignatureError
from chainapi.models import (
    AddressActivityEvent,
    EvmAddressWebhookMetadata,
    EvmAddressWebhookRequest,
    ValidatorSubEvents,
    ValidatorWebhookMetadata,
    ValidatorWebhookRequest,
)
from chainapi.simulator import Simulator

WATCHED = ["0x9702230a8ea53601f5cd2dc00fdbc13d4df4a8c7", "0x71c7656ec7ab88b098defb751b7401b5f6d8976f"]


class Receiver:
    """Application that keeps the events of the calls that it gets, with their times."""

    def __init__(self, secret: Any) -> None:
        self.secret = secret
        self.events: list[AddressActivityEvent] = []
        self.times: list[float] = []

    async def post(self, body: bytes, headers: Mapping[str, str]) -> None:
        """Take a call."""
        event = validate_webhook(body, headers["x-signature"], self.secret)
        assert isinstance(event, AddressActivityEvent)
        self.events.append(event)
        self.times.append(asyncio.get_running_loop().time())


async def created(session: Session) -> str:
    """Create a webhook, and return its identifier."""
    metadata = EvmAddressWebhookMetadata(addresses=WATCHED)
    request = EvmAddressWebhookRequest(url="https://hook.invalid", chain_id="43113", metadata=metadata)
    return (await session.data.webhooks.create(request)).id


async def test_calls_are_signed_and_of_the_watched_addresses() -> None:
    """A call has the signature of the shared secret, also of a rotated one, and the webhook's addresses."""
    sim = Simulator()
    async with Session(**sim.arguments()) as session:
        webhook = await created(session)
        receiver = Receiver(await session.data.webhooks.shared_secret())
        await sim.send_webhook_calls(webhook, receiver.post, events=20)
        receiver.secret = await session.data.webhooks.rotate_shared_secret()
        calls = await sim.send_webhook_calls(webhook, receiver.post, events=20)
        with pytest.raises(WebhookSignatureError):
            validate_webhook(calls[0].body, "forged", receiver.secret)
    transactions = [event.event.transaction for event in receiver.events]
    assert {event.webhook_id for event in receiver.events} == {webhook}
    assert {transaction.to for transaction in transactions} == set(WATCHED)
    assert {transaction.chain_id for transaction in transactions} <= {"43113", None}
    assert len({event.message_id for event in receiver.events}) == 40


async def test_calls_come_twice_late_and_out_of_order() -> None:
    """Doubled events come twice with one message id, and late ones overtake each other, by the seed."""
    sim = Simulator()
    async with Session(**sim.arguments()) as session:
        webhook = await created(session)
        receiver = Receiver(await session.data.webhooks.shared_secret())
    calls = await sim.send_webhook_calls(webhook, receiver.post, events=50, doubled=0.5, late=600.0)
    sent = [event.message_id for event in receiver.events]
    assert sent == [call.message_id for call in calls]
    assert receiver.times == pytest.approx([call.after for call in calls])
    assert 60 <= len(sent) <= 90
    assert len(set(sent)) == 50
    numbers = [event.event.transaction.block_number or 0 for event in receiver.events]
    assert numbers != sorted(numbers)
    assert 500 < receiver.times[-1] < 650


async def test_other_webhooks_get_no_calls() -> None:
    """A webhook that is inactive, or whose events no document describes, is refused with a remedy."""
    sim = Simulator()
    async with Session(**sim.arguments()) as session:
        webhook = await created(session)
        await session.data.webhooks.deactivate(webhook)
        other = await session.data.webhooks.create(
            ValidatorWebhookRequest(
                url="https://hook.invalid",
                network="fuji",
                metadata=ValidatorWebhookMetadata(
                    key_type="nodeId",
                    keys=["NodeID-1"],
                    sub_events=ValidatorSubEvents(validator_activity_sub_events=["validator_stake"]),
                ),
            )
        )
    receiver = Receiver("")
    for refused in (webhook, other.id):
        with pytest.raises(ValueError, match="create one of type address_activity"):
            await sim.send_webhook_calls(refused, receiver.post)
    assert receiver.events == []

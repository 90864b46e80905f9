"""Calls of a webhook: signed events of its addresses, some twice and some late."""

from __future__ import annotations

import asyncio
import hmac
import json
from base64 import b64encode
from collections.abc import Awaitable, Callable, Iterable, Mapping
from random import Random
from typing import Any, TypeAlias
from uuid import UUID

from attrs import frozen

from chainapi.simulator.factories import factory
from chainapi.simulator.handlers import shared_secret, webhook_of
from chainapi.simulator.rows import Row
from chainapi.simulator.state import Lookup, State, matched
from chainapi.simulator.values import Context

__all__ = ["Post", "WebhookCall", "calls_of", "send_calls"]

Post: TypeAlias = Callable[[bytes, Mapping[str, str]], Awaitable[Any]]


@frozen
class WebhookCall:
    """Call of a webhook.

    Attributes:
        message_id: identifier of its event; both calls of a doubled event have it.
        after: seconds after which it is sent.
        body: body of the request.
        headers: headers of the request, with the signature.

    """

    message_id: str
    after: float
    body: bytes
    headers: Mapping[str, str]


def calls_of(state: State, name: str, *, events: int, doubled: float, late: float) -> list[WebhookCall]:
    """Return new calls of a webhook for a number of events, in the order of sending.

    An event happens each second. `doubled` is the share of events with two calls; each call is late by up to
    `late` seconds. Raises ValueError for a webhook that gets no calls.
    """
    from chainapi.models import AddressActivityEvent

    lookup = Lookup(matched("data", "v1", "webhooks", name), {}, state)
    webhook, key = webhook_of(lookup, name), bytes.fromhex(shared_secret(lookup))
    make, watched, time = factory(AddressActivityEvent), _watched(webhook), state.time
    random = Random(state.draw())  # noqa: S311 - a simulation is to be repeatable, not secret
    calls: list[WebhookCall] = []
    for number in range(events):
        message_id = str(UUID(int=random.getrandbits(128), version=4))
        known = {"webhookId": str(webhook["id"]), "messageId": message_id, "chainId": str(webhook["chainId"])}
        context = Context(state.settings.seed, random, number, time, (), known, {"chainId": known["chainId"]})
        event = make(context)
        event["event"]["transaction"]["to"] = random.choice(watched)
        # Canonical as it is (RFC 8785): the event has neither fractions nor names that are not ASCII.
        body = json.dumps(event, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
        signature = b64encode(hmac.digest(key, body, "sha256"))
        headers = {"content-type": "application/json", "x-signature": signature.decode()}
        delays = [random.random() * late for _ in range(1 + (random.random() < doubled))]
        calls += [WebhookCall(message_id, number + delay, body, headers) for delay in delays]
    return sorted(calls, key=lambda call: call.after)


def _watched(webhook: Row) -> list[str]:
    """Return the addresses that a webhook watches."""
    if webhook["eventType"] != "address_activity" or webhook["status"] != "active":
        raise ValueError(
            f"webhook {webhook['id']} gets no calls, because it is of type {webhook['eventType']} and"
            f" {webhook['status']}: create one of type address_activity, and keep it active"
        )
    metadata: Any = webhook["metadata"]
    return list(metadata["addresses"])


async def send_calls(calls: Iterable[WebhookCall], post: Post) -> None:
    """Post each call when it is due, and when the one before is answered."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    for call in calls:
        await asyncio.sleep(began + call.after - loop.time())
        await post(call.body, call.headers)

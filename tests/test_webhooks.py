"""Calls of webhooks: signatures, events, and what no error shows."""

from __future__ import annotations

import hmac
import json
import traceback
from base64 import b64encode
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import chainapi
from chainapi.errors import ConfigurationError, DecodeError, WebhookSignatureError
from chainapi.models import AddressActivityEvent, SharedSecret, Unknown
from chainapi.webhooks import validate_webhook
from tests.documents import Maker

SECRET = "c13cc017c4ed63bcc842c8edfb49df37512280326a32826de3b885340b8a3d53"


def small(value: Any) -> Any:
    """Return a value with small numbers, which Python writes in the canonical form."""
    if isinstance(value, dict):
        return {name: small(one) for name, one in value.items()}
    if isinstance(value, list):
        return [*map(small, value)]
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return int(value) % 1_000 if is_number else value


EVENT: dict[str, Any] = small(Maker(seed=3, whole=True).record(AddressActivityEvent))
EVENT["eventType"] = "address_activity"
BODY = json.dumps(EVENT).encode()


def signed(body: bytes, secret: str = SECRET) -> str:
    """Return the signature of a body as the service makes it, of JSON in its canonical form (RFC 8785)."""
    canonical = json.dumps(json.loads(body), sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return b64encode(hmac.digest(bytes.fromhex(secret), canonical.encode(), "sha256")).decode()


def test_a_signed_call_is_an_event() -> None:
    """A signed body becomes a typed event, with the secret as a text or as a record."""
    for secret in (SECRET, SECRET.upper(), f" {SECRET}\n", SharedSecret(secret=SECRET)):
        event = chainapi.validate_webhook(BODY, signed(BODY), secret)
        assert isinstance(event, AddressActivityEvent)
        assert event.message_id == EVENT["messageId"]
        assert event.event.transaction.tx_hash == EVENT["event"]["transaction"]["txHash"]


def test_a_known_signature_stays_valid() -> None:
    """A signature that was computed elsewhere, with openssl, is accepted."""
    body = b'{ "eventType": "later", "n": 1.0, "a": [2e2] }'
    event = validate_webhook(body, "ggKSwI64o7VNhjMS8DBA7Y4afe9zSL5Fr9x+MjGI7iU=", SECRET)
    assert isinstance(event, Unknown)
    assert event.raw == {"a": [200], "eventType": "later", "n": 1}


def test_the_form_of_the_json_does_not_matter() -> None:
    """White space, the order of names and escapes change nothing: the canonical JSON is signed."""
    event = {**EVENT, "webhookId": "h\u00f6ok"}
    for body in (
        json.dumps(event, indent=2),
        json.dumps(event, sort_keys=True),
        json.dumps(event, ensure_ascii=False),
    ):
        made = validate_webhook(body.encode(), signed(json.dumps(event).encode()), SECRET)
        assert isinstance(made, AddressActivityEvent)
        assert made.webhook_id == event["webhookId"]


@settings(max_examples=30)
@given(st.data())
def test_any_change_is_refused(data: st.DataObject) -> None:
    """A changed value, signature or secret is refused, and never an event."""
    what = data.draw(st.sampled_from(["body", "signature", "secret"]))
    body, signature, secret = BODY, signed(BODY), SECRET
    if what == "body":
        name = data.draw(st.sampled_from(["webhookId", "messageId"]))
        body = json.dumps({**EVENT, name: EVENT[name] + data.draw(st.text(min_size=1))}).encode()
    elif what == "signature":
        signature = data.draw(st.text().filter(lambda text: text.strip() != signature))
    else:
        secret = data.draw(st.binary(min_size=1).map(bytes.hex).filter(lambda text: text != SECRET))
    with pytest.raises(WebhookSignatureError, match=r"check that the secret .*answer it with 401"):
        validate_webhook(body, signature, secret)


def test_a_body_that_is_no_json_is_refused() -> None:
    """Bodies that no service signs are refused with the same class of error."""
    for body in (b"", b"{", b"\xff", b"[1e999]", b"[" * 100_000):
        with pytest.raises(WebhookSignatureError, match=r"no JSON.*whole and unchanged.*answer it with 401"):
            validate_webhook(body, "x", SECRET)


def test_a_call_without_a_signature_is_refused() -> None:
    """A call without the header is refused, by its name."""
    with pytest.raises(
        WebhookSignatureError, match=r"no header x-signature: check that no proxy removes it; .*401"
    ):
        validate_webhook(BODY, None, SECRET)


def test_missing_fields_are_none() -> None:
    """A signed event may lack fields, at any depth, and have others: only a wrong signature is refused."""
    sent = {
        "eventType": "address_activity",
        "event": {
            "transaction": {"txHash": "0x1", "erc20Transfers": [{"value": "5"}], "later": 1},
            "logs": [{}],
        },
    }
    body = json.dumps(sent).encode()
    event = validate_webhook(body, signed(body), SECRET)
    assert isinstance(event, AddressActivityEvent)
    transaction = event.event.transaction
    assert (event.message_id, transaction.tx_hash, transaction.block_time) == (None, "0x1", None)
    assert [transfer.value for transfer in transaction.erc20_transfers or ()] == [5]
    assert transaction.extra == {"later": 1}


@pytest.mark.parametrize("event", [{}, None, {"transaction": {"type": "0x2"}}, [1]])
def test_a_signed_event_of_another_form_is_unknown(event: Any) -> None:
    """A signed object that does not fit the event is kept as it came."""
    body = json.dumps({**EVENT, "event": event}).encode()
    made = validate_webhook(body, signed(body), SECRET)
    assert isinstance(made, Unknown)
    assert (made.message_id, made.raw["event"]) == (EVENT["messageId"], event)


def test_a_signed_body_that_is_no_object_is_a_decode_error() -> None:
    """A signed list is no event, and no bad signature either."""
    with pytest.raises(DecodeError, match="the signed call of a webhook is a list, no object"):
        validate_webhook(b"[1]", signed(b"[1]"), SECRET)


def test_arguments_of_another_type_are_refused() -> None:
    """A parsed body, or a secret of another form, is the receiver's fault, and its value is not shown."""
    cases: list[tuple[Any, str]] = [
        ((BODY.decode(), "x", SECRET), "body must be bytes, as the call arrived, not a str"),
        ((EVENT, "x", SECRET), "body must be bytes, as the call arrived, not a dict"),
        ((BODY, b"x", SECRET), "signature must be the text of the header x-signature, or None, not a bytes"),
        *(
            ((BODY, "x", secret), "hexadecimal")
            for secret in (SECRET.encode(), None, "", "no digits", "abc", "h\u00e9x")
        ),
    ]
    for arguments, message in cases:
        with pytest.raises(ConfigurationError, match=message) as caught:
            validate_webhook(*arguments)
        assert SECRET not in str(caught.value)
        assert not arguments[2] or str(arguments[2]) not in str(caught.value)


def test_no_error_shows_the_secret() -> None:
    """No error has the secret or the expected signature in its text or its chain."""
    wrong = b"[1]"
    for body, signature in ((BODY, "wrong"), (b"{", "wrong"), (wrong, signed(wrong))):
        with pytest.raises((WebhookSignatureError, DecodeError)) as caught:
            validate_webhook(body, signature, SECRET)
        error = caught.value
        shown = "".join(traceback.format_exception(error)) + repr(error) + repr(vars(error))
        assert SECRET not in shown
        assert signed(BODY) not in shown
    assert SECRET not in repr(SharedSecret(secret=SECRET))

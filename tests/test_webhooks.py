"""Calls of webhooks: signatures, events, and what no error shows."""

from __future__ import annotations

import hmac
import json
import traceback
from base64 import b64encode
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import chainapi
from chainapi.core.canonical_json import canonical_json
from chainapi.errors import ConfigurationError, DecodeError, WebhookSignatureError
from chainapi.models import AddressActivityEvent, SharedSecret, Unknown
from chainapi.webhooks import validate_webhook
from tests.documents import Maker

SECRET = "c13cc017c4ed63bcc842c8edfb49df37512280326a32826de3b885340b8a3d53"
EVENT: dict[str, Any] = Maker(seed=3, whole=True).record(AddressActivityEvent)
EVENT["eventType"] = "address_activity"
BODY = json.dumps(EVENT).encode()


def signed(body: bytes, secret: str = SECRET) -> str:
    """Return the signature of a body as the service makes it."""
    return b64encode(hmac.digest(bytes.fromhex(secret), canonical_json(body), "sha256")).decode()


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


@pytest.mark.parametrize("form", [{"indent": 2}, {"sort_keys": True}, {"ensure_ascii": False}])
def test_the_form_of_the_json_does_not_matter(form: dict[str, Any]) -> None:
    """White space, the order of names and escapes change nothing: the canonical JSON is signed."""
    event = {**EVENT, "webhookId": "h\u00f6ok"}
    body = json.dumps(event, **form).encode()
    made = validate_webhook(body, signed(json.dumps(event).encode()), SECRET)
    assert isinstance(made, AddressActivityEvent)
    assert made.webhook_id == event["webhookId"]


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


@pytest.mark.parametrize("body", [b"", b"{", b"\xff", b"[1e999]", b"[" * 100_000])
def test_a_body_that_is_no_json_is_refused(body: bytes) -> None:
    """Bodies that no service signs are refused with the same class of error."""
    with pytest.raises(WebhookSignatureError, match=r"no JSON.*whole and unchanged.*answer it with 401"):
        validate_webhook(body, "x", SECRET)


def test_a_call_without_a_signature_is_refused() -> None:
    """A call without the header is refused, by its name."""
    with pytest.raises(
        WebhookSignatureError, match=r"no header x-signature: check that no proxy removes it; .*401"
    ):
        validate_webhook(BODY, None, SECRET)


def test_a_signed_event_of_a_wrong_form_is_a_decode_error() -> None:
    """A signed body that does not fit the event is DecodeError with its place, not a bad signature."""
    body = json.dumps({**EVENT, "event": {}}).encode()
    with pytest.raises(DecodeError, match=r"signed call of a webhook; .*read the body as JSON") as caught:
        validate_webhook(body, signed(body), SECRET)
    assert caught.value.path == "$.event.transaction"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((BODY.decode(), "x", SECRET), "body must be bytes, as the call arrived, not a str"),
        ((EVENT, "x", SECRET), "body must be bytes, as the call arrived, not a dict"),
        ((BODY, b"x", SECRET), "signature must be the text of the header x-signature, or None, not a bytes"),
        ((BODY, "x", SECRET.encode()), "hexadecimal"),
        ((BODY, "x", None), "hexadecimal"),
    ],
)
def test_arguments_of_another_type_are_refused(arguments: Any, message: str) -> None:
    """A parsed body, or a variable that is not set, is the receiver's fault, and its value is not shown."""
    with pytest.raises(ConfigurationError, match=message) as caught:
        validate_webhook(*arguments)
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize("secret", ["", "not hexadecimal", "abc", "h\u00e9x"])
def test_a_secret_of_another_form_is_refused(secret: str) -> None:
    """Secrets without hexadecimal digits are ConfigurationError, and are not shown."""
    with pytest.raises(ConfigurationError, match="hexadecimal") as caught:
        validate_webhook(BODY, signed(BODY), secret)
    assert not secret or secret not in str(caught.value)


@pytest.mark.parametrize("body", [BODY, b"{", json.dumps({**EVENT, "event": {}}).encode()])
def test_no_error_shows_the_secret(body: bytes) -> None:
    """No error has the secret or the expected signature in its text or its chain."""
    signature = signed(body) if body.endswith(b"}") and b'"event": {}' in body else "wrong"
    with pytest.raises((WebhookSignatureError, DecodeError)) as caught:
        validate_webhook(body, signature, SECRET)
    shown = "".join(traceback.format_exception(caught.value)) + repr(caught.value) + repr(vars(caught.value))
    assert SECRET not in shown
    assert signed(BODY) not in shown
    assert SECRET not in repr(SharedSecret(secret=SECRET))

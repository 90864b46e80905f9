"""Webhooks on the receiving side: the signature of a call, and its event."""

from __future__ import annotations

import binascii
import hmac
from base64 import b64encode
from typing import TYPE_CHECKING

from chainapi.core.canonical_json import canonical_json
from chainapi.errors import ConfigurationError, DecodeError, WebhookSignatureError

if TYPE_CHECKING:
    from chainapi.models.webhooks import SharedSecret, WebhookEvent

__all__ = ["SIGNATURE_HEADER", "validate_webhook"]

SIGNATURE_HEADER = "x-signature"
_REFUSE = "if so, the call is not from the service: answer it with 401"


def validate_webhook(body: bytes, signature: str | None, secret: str | SharedSecret) -> WebhookEvent:
    """Return the event of a webhook's call, if the service signed it.

    The signature is the HMAC-SHA256 of the canonical JSON of the body (RFC 8785), in base64. It is compared
    in constant time, and the event is read from the text that was signed. The signature has no time in it:
    skip an event whose `message_id` you know.

    Args:
        body: body of the call, as it arrived.
        signature: value of its header ``x-signature``; None if it has none.
        secret: shared secret of the account, as `session.data.webhooks.shared_secret` returns it, or its
            text in hexadecimal digits.

    Returns:
        An `AddressActivityEvent`, whose missing fields are None, or `Unknown` for an event of another kind or
        form.

    Raises:
        WebhookSignatureError: the service did not sign this body.
        DecodeError: it did, and the body is no JSON object.
        ConfigurationError: an argument has another type, or the secret no hexadecimal digits.

    """
    key = _key(secret)
    _check_types(body, signature)
    try:
        signed = canonical_json(body)
    except (ValueError, RecursionError):
        raise WebhookSignatureError(
            "the body of the call is no JSON that a service can sign: check that it is whole and unchanged;"
            f" {_REFUSE}"
        ) from None
    expected = b64encode(hmac.digest(key, signed, "sha256"))
    if signature is None:
        raise WebhookSignatureError(
            f"the call has no header {SIGNATURE_HEADER}: check that no proxy removes it; {_REFUSE}"
        )
    if not hmac.compare_digest(expected, signature.strip().encode("utf-8", "replace")):
        raise WebhookSignatureError(
            "the signature does not belong to this body and the shared secret: check that the secret is what"
            f" session.data.webhooks.shared_secret() returns, and the body the bytes that arrived; {_REFUSE}"
        )
    return _event(signed)


def _check_types(body: object, signature: object) -> None:
    """Refuse a body that was read already, and a signature that is no text."""
    if not isinstance(body, bytes | bytearray):
        raise ConfigurationError(f"body must be bytes, as the call arrived, not a {type(body).__name__}")
    if signature is not None and not isinstance(signature, str):
        raise ConfigurationError(
            f"signature must be the text of the header {SIGNATURE_HEADER}, or None,"
            f" not a {type(signature).__name__}"
        )


def _key(secret: object) -> bytes:
    text = getattr(secret, "secret", secret)
    try:
        key = binascii.unhexlify(text.strip()) if isinstance(text, str) else b""
    except ValueError:
        key = b""
    if not key:
        raise ConfigurationError(
            "secret= must be the shared secret in hexadecimal digits: session.data.webhooks.shared_secret()"
            " returns it"
        )
    return key


def _event(signed: bytes) -> WebhookEvent:
    from chainapi.models.codec import decode_resource
    from chainapi.models.unions import Unknown
    from chainapi.models.webhooks import WebhookEvent

    try:
        event: WebhookEvent = decode_resource(signed, WebhookEvent)
    except DecodeError:
        raw = decode_resource(signed, None)
        if not isinstance(raw, dict):
            raise DecodeError(f"the signed call of a webhook is a {type(raw).__name__}, no object") from None
        return Unknown(raw)
    return event

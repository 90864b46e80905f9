"""Error bodies of the services: their error type and messages, safe to print."""

from __future__ import annotations

import msgspec

from chainapi._text import masked, printable
from chainapi.models.decode_errors import DECODING_ERRORS
from chainapi.models.sizes import LARGE, refuse_dense

__all__ = ["EXCERPT", "decode_error", "excerpt"]

EXCERPT = 300  # characters of a string that is quoted in an error
MESSAGES = 20  # messages of one error body that are kept


def decode_error(body: bytes, secret: str = "") -> tuple[str, tuple[str, ...]]:
    """Read an error body (specification, section 2): its error type and its messages.

    `message` may be a string or a list. An excerpt stands for a body of another shape. Strings are cut to
    300 characters, control characters are shown as escapes, and `secret` is masked.
    """
    try:
        refuse_dense(body)
        fields = msgspec.json.decode(body)
    except DECODING_ERRORS:
        fields = None
    if not isinstance(fields, dict):
        # Masked before it is cut: the cut could go through the secret.
        text = masked(body[:LARGE].decode("utf-8", "replace"), secret)[: 2 * EXCERPT].strip()
        return "", (excerpt(text),) if text else ()
    message = fields.get("message")
    messages = message if isinstance(message, list) else [] if message is None else [message]
    error = fields.get("error")
    return excerpt(error, secret) if isinstance(error, str) else "", tuple(
        excerpt(_as_text(entry), secret) for entry in messages[:MESSAGES]
    )


def _as_text(entry: object) -> str:
    if isinstance(entry, str):
        return entry
    try:
        return msgspec.json.encode(entry).decode()
    except RecursionError:
        return "nested too deeply"


def excerpt(text: str, secret: str = "") -> str:
    """Cut a string of the service to 300 characters, and mask `secret`.

    Control characters become escapes.
    """
    return printable(masked(text, secret), EXCERPT + 1)

"""Envelope of a page: list field with rows, next page token, further fields."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import msgspec

from chainapi.errors import DecodeError
from chainapi.models.canonical import first_bytes
from chainapi.models.decode_errors import DECODING_ERRORS, to_decode_error
from chainapi.models.exact_json import is_json
from chainapi.models.records import NULL
from chainapi.models.rows import RowDecoder
from chainapi.models.schema import list_of
from chainapi.models.unions import wire_name

__all__ = ["Envelope", "envelope_of", "find_list"]


class Envelope:
    """Decoder of the bodies of a route, into rows or into the JSON of each row."""

    def __init__(self, items: str, rows: RowDecoder, extra: tuple[str, ...]) -> None:
        def body(kind: Any) -> Any:
            fields: list[Any] = [
                ("rows", kind, msgspec.field(name=items)),
                ("next_page_token", str | None, msgspec.field(name="nextPageToken", default=None)),
            ]
            further = [
                (name, msgspec.Raw, msgspec.field(name=wire_name(name), default=NULL)) for name in extra
            ]
            return msgspec.defstruct("Body", fields + further, gc=False)

        self._whole = rows.of(lambda wire: body(list_of(wire)))
        self._split = msgspec.json.Decoder(body(list[msgspec.Raw] | None))

    def read(self, content: bytes) -> Any:
        """Decode a body and its rows.

        Raises:
            MsgspecError, UnicodeError, RecursionError, DecodeError: it does not fit the route, its list is
                null, or a row has a field that no record names.

        """
        page = self._whole.decode(content)
        page.rows = self._whole.finish(page.rows)
        return page

    def split(self, content: bytes) -> Any:
        """Decode a body; its rows stay JSON.

        Raises:
            DecodeError: it does not fit the route.

        """
        try:
            page = self._split.decode(content)
        except DECODING_ERRORS as error:
            raise to_decode_error(error) from None
        page.rows = page.rows or []
        return page


@lru_cache(maxsize=256)
def envelope_of(items: str, rows: RowDecoder, extra: tuple[str, ...]) -> Envelope:
    """Return the page decoder for this list field, shared by a route's streams."""
    return Envelope(items, rows, extra)


_TOP: msgspec.json.Decoder[dict[str, msgspec.Raw]] = msgspec.json.Decoder(dict[str, msgspec.Raw])
_KINDS = {"{": "dict", "[": "list", '"': "str", "n": "NoneType", "t": "bool", "f": "bool"}


def _first_bytes(body: bytes) -> dict[str, bytes]:
    """Return the fields of an object, each with the first byte of its value."""
    try:
        return {name: bytes(value)[:1] for name, value in _TOP.decode(body).items()}
    except msgspec.ValidationError:
        kind = _KINDS.get(body.lstrip()[:1].decode(), "int")
        raise DecodeError(f"expected an object, got {kind}") from None
    except DECODING_ERRORS as error:
        if body.lstrip()[:1] == b"{" and is_json(body):
            return first_bytes(body)
        raise to_decode_error(error) from None


def find_list(body: bytes, likely: str) -> str:
    """Return the name of the only field with a list (or, on an empty page, null).

    Of several it is the one named `likely`.
    """
    fields = _first_bytes(body)
    if "statusCode" in fields and ("message" in fields or "error" in fields):
        raise DecodeError("an error body (specification, section 2) in a successful answer")
    fields.pop("nextPageToken", None)
    for first in (b"[", b"n"):
        candidates = [name for name, value in fields.items() if value == first]
        if likely in candidates:
            return likely
        if len(candidates) == 1:
            return candidates[0]
        if candidates:
            named = ", ".join(candidates)
            raise DecodeError(f"several fields could hold the rows: choose one with items= ({named})")
    raise DecodeError(f"no field holds a list; the fields are: {', '.join(fields) or 'none'}")

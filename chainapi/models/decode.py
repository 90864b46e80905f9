"""From the body of an answer to rows: the envelope of a page, a single resource, an error."""

from __future__ import annotations

import re
import types
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import msgspec
from attrs import frozen

from chainapi.errors import ConfigurationError, DecodeError
from chainapi.models.contents import canonical_rows
from chainapi.models.convert import DIGITS, NULL, RowType, row_type, several_of
from chainapi.models.unions import wire_name
from chainapi.text import masked, printable

__all__ = ["DecodedPage", "PageDecoder", "decode_error", "decode_resource", "excerpt"]

EXCERPT = 300  # characters of a text that is quoted in an error
MAX_TOKEN = 4_096  # characters; it has to fit into a URL
MESSAGES = 20  # messages of one error body that are kept


@frozen(eq=False, repr=False)
class DecodedPage:
    """The rows of a page, the token to the next one, and what else its route names.

    `items` is the name of the list field of `body`.
    """

    rows: list[Any]
    next_page_token: str | None
    others: tuple[Any, ...] = ()
    body: bytes = b"{}"
    items: str = ""

    @property
    def digest(self) -> int:
        """A hash of the body from the first ``[`` to the last ``]``, for this process.

        Another page token or another `lastRun` does not change it where they stand outside of all lists.
        """
        body = self.body
        return hash(body[body.find(b"[") : body.rfind(b"]") + 1])

    def contents(self) -> list[bytes]:
        """Return canonical JSON of each row, in order, as the service sent it; made at each call.

        Keys are sorted, white space is left out, numbers keep their digits; fields that no model names are
        in it. A row that has no canonical form (with a lone surrogate, or nested too deeply) is returned
        as its bytes in the body. It raises nothing for a page that was decoded.
        """
        return canonical_rows(self.body, self.items)


@frozen(eq=False, repr=False)
class _Envelope:
    """What decodes the bodies of a route, and the short way, with the makers of what else is there."""

    decoder: msgspec.json.Decoder[Any]
    quick: msgspec.json.Decoder[Any] | None
    makers: tuple[tuple[str, Callable[[list[Any]], list[Any]]], ...]


@lru_cache(maxsize=256)
def _envelope(items: str, rows: RowType, others: tuple[tuple[str, RowType], ...]) -> _Envelope:
    """Return what decodes pages with a list field of this name: made once for all streams of a route."""
    token: Any = ("next_page_token", str | None, msgspec.field(name="nextPageToken", default=None))
    fields: list[Any] = [
        ("rows", list[rows.wire] | None, msgspec.field(name=items)),  # type: ignore[name-defined]
        token,
    ]
    for name, kind in others:
        fields.append((name, kind.wire | None, msgspec.field(name=wire_name(name), default=None)))
    decoder = msgspec.json.Decoder(msgspec.defstruct("Body", fields))
    if rows.quick is None:
        return _Envelope(decoder, None, ())
    several: Any = types.GenericAlias(list, (rows.quick[0],))
    fields = [("rows", several, msgspec.field(name=items)), token]
    fields += [(name, msgspec.Raw, msgspec.field(name=wire_name(name), default=NULL)) for name, _ in others]
    makers = tuple((name, several_of(kind)) for name, kind in others)
    return _Envelope(decoder, msgspec.json.Decoder(msgspec.defstruct("Body", fields), strict=False), makers)


class PageDecoder:
    """Decodes the pages of one route into rows of `model`, or into plain JSON values without one.

    `items` names the list field. Where it is None the first page decides: the only field that holds a list.
    `others` are further fields of the envelope to hand out, each with its type; they may be missing.

    Raises:
        ConfigurationError: `items` is no name of a list field, or no rows can be made of `model`.

    """

    def __init__(
        self, model: Any = None, items: str | None = None, others: Sequence[tuple[str, Any]] = ()
    ) -> None:
        self._rows = row_type(model)
        self._others = tuple((name, row_type(kind)) for name, kind in others)
        self.items = items
        try:
            self._envelope = None if items is None else _envelope(items, self._rows, self._others)
        except (TypeError, ValueError):
            raise ConfigurationError(f"items={ascii(items)[:80]} is no name of a list field") from None

    def decode(self, body: bytes) -> DecodedPage:
        """Decode one page; null stands for an empty list.

        Raises:
            DecodeError: the body is not JSON, not of the route's shape, or its list field cannot be told.

        """
        if self._envelope is None:
            items = _find_list(_parse(body))
            try:
                self._envelope = _envelope(items, self._rows, self._others)
            except ValueError:  # with a control character or a quotation mark in its name
                raise DecodeError(f"no usable name of a list field: {items}") from None
            self.items = items
        envelope = self._envelope
        rows, token, others = self._quickly(body, envelope) or self._thoroughly(body, envelope)
        if token is not None and len(token) > MAX_TOKEN:
            raise DecodeError(f"longer than {MAX_TOKEN} characters", path="$.nextPageToken")
        return DecodedPage(rows, token, others, body, self.items or "")

    def _quickly(
        self, body: bytes, envelope: _Envelope
    ) -> tuple[list[Any], str | None, tuple[Any, ...]] | None:
        """Decode the short way; None where there is none, and where it does not go."""
        if envelope.quick is None or self._rows.quick is None:
            return None
        try:
            page = envelope.quick.decode(body)
            others = tuple(
                None if (raw := getattr(page, name)) == NULL else make([raw])[0]
                for name, make in envelope.makers
            )
            return self._rows.quick[1](page.rows), page.next_page_token or None, others
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return None

    def _thoroughly(self, body: bytes, envelope: _Envelope) -> tuple[list[Any], str | None, tuple[Any, ...]]:
        page = _guarded(envelope.decoder, body)
        rows = page.rows or []
        if rows and self._rows.finish is not None:
            rows = _finished(self._rows.finish, rows, f"$.{self.items}")
        others = tuple(self._other(name, kind, page) for name, kind in self._others)
        return rows, page.next_page_token or None, others

    @staticmethod
    def _other(name: str, kind: RowType, page: Any) -> Any:
        value = getattr(page, name)
        if value is None or kind.finish is None:
            return value
        return _finished(kind.finish, [value], f"$.{wire_name(name)}", single=True)[0]


def decode_resource(body: bytes, model: Any = None) -> Any:
    """Decode a single resource, into `model` or into plain JSON values.

    Raises:
        DecodeError: the body is not JSON or not of the model's shape.

    """
    rows = row_type(model)
    value = _guarded(msgspec.json.Decoder(rows.wire), body)
    return value if rows.finish is None else _finished(rows.finish, [value], "$", single=True)[0]


def _finished(
    finish: Callable[[list[Any]], list[Any]], rows: list[Any], place: str, *, single: bool = False
) -> list[Any]:
    """Make the objects; what is wrong with one is told with its JSON path below `place`."""
    try:
        return finish(rows)
    except msgspec.ValidationError as error:
        reason, path = _explain(error)
        # Objects are made from private Structs, by the names of Python.
        path = re.sub(r"(?<=\.)\w+", lambda name: wire_name(name[0]), path)
    except DecodeError as error:
        reason, path = error.reason, error.path
    path = path.removeprefix("$")
    raise DecodeError(reason, path=place + (path.removeprefix("[0]") if single else path))


def decode_error(body: bytes, secret: str = "") -> tuple[str, tuple[str, ...]]:
    """Read an error body (specification, section 2): its error type and its messages.

    `message` may be a text or a list; what is no error body is kept as an excerpt. Texts are cut to
    300 characters, control characters are shown as escapes, and `secret` is masked.
    """
    try:
        fields = msgspec.json.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        fields = None
    if not isinstance(fields, dict):
        # Masked before it is cut: the cut could go through the secret.
        text = masked(body.decode("utf-8", "replace"), secret)[: 2 * EXCERPT].strip()
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
    """Cut a text of the service to 300 characters, show control characters as escapes, mask `secret`."""
    return printable(masked(text, secret), EXCERPT + 1)


def _parse(body: bytes) -> Any:
    return _guarded(_ANYTHING, body)


_ANYTHING: msgspec.json.Decoder[Any] = msgspec.json.Decoder()


def _guarded(decoder: msgspec.json.Decoder[Any], body: bytes) -> Any:
    """Decode, and turn everything that can be wrong with a body into a DecodeError."""
    try:
        return decoder.decode(body)
    except msgspec.ValidationError as error:
        reason, path = _explain(error)
        raise DecodeError(reason, path=path) from None
    except msgspec.DecodeError as error:
        raise DecodeError(f"no valid JSON: {error}", malformed=True) from None
    except UnicodeDecodeError:
        raise DecodeError("no valid JSON: not UTF-8", malformed=True) from None
    except RecursionError:
        raise DecodeError("nested too deeply") from None


_MISSING = re.compile(r"Object missing required field `(?P<field>[^`]*)`")


def _explain(error: msgspec.ValidationError) -> tuple[str, str]:
    """Return what msgspec found wrong, and its JSON path."""
    reason, _, place = str(error).partition(" - at `")
    path = place.rstrip("`") or "$"
    if missing := _MISSING.fullmatch(reason):
        return "missing", f"{path}.{missing['field']}"
    if DIGITS in reason.replace("\\\\", "\\"):
        reason = "Expected `int`, got `str`"
    return reason, path


def _find_list(body: Any) -> str:
    """Return the name of the only field that holds a list (or, on an empty page, null)."""
    if not isinstance(body, dict):
        raise DecodeError(f"expected an object, got {type(body).__name__}")
    if "statusCode" in body and ("message" in body or "error" in body):
        raise DecodeError("an error body (specification, section 2) in a successful answer")
    fields: dict[str, Any] = {name: value for name, value in body.items() if name != "nextPageToken"}
    for kind in (list, type(None)):
        candidates = [name for name, value in fields.items() if isinstance(value, kind)]
        if len(candidates) == 1:
            return candidates[0]
        if candidates:
            named = ", ".join(candidates)
            raise DecodeError(f"several fields could hold the rows: name one with items= ({named})")
    raise DecodeError(f"no field holds a list; the fields are: {', '.join(fields) or 'none'}")

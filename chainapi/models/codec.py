"""Decoders of response bodies: pages of rows, and single resources."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Any, Generic, Literal, TypeAlias, TypeVar, cast

import msgspec

from chainapi._paging.checkpoint import MAX_TOKEN
from chainapi._text import quoted
from chainapi.core.private import Private
from chainapi.errors import ConfigurationError, DecodeError
from chainapi.models.canonical import canonical_rows, scan
from chainapi.models.decode_errors import (
    DECODING_ERRORS,
    TOO_DEEP,
    below,
    is_unknown_field,
    to_decode_error,
)
from chainapi.models.envelope import Envelope, envelope_of, find_list
from chainapi.models.exact_json import decode_leniently, has_half_pair, is_json
from chainapi.models.invalid import Invalid
from chainapi.models.records import NULL
from chainapi.models.rows import row_decoder
from chainapi.models.sizes import LARGE, refuse_dense, refuse_many
from chainapi.models.unions import wire_name

__all__ = [
    "DecodedPage",
    "OnInvalid",
    "PageDecoder",
    "ResourceDecoder",
    "Stepwise",
    "checked_json",
    "decode_resource",
]

OnInvalid: TypeAlias = Literal["raise", "raw"]
T = TypeVar("T")

_AS_RAW = 'resume=error.checkpoint with on_invalid="raw" continues and returns this row as an Invalid record'
_UNTYPED = "; without a model, list() of the same path and parameters continues with JSON values"
_GET = "get() of the same path and parameters, without a model, returns the resource as JSON values"
PART = 256  # rows of a large body that are decoded in one step


class DecodedPage(Private, msgspec.Struct, frozen=True, eq=False):
    """Rows of a page, the next page token, and further fields of the envelope.

    `items` is the name of the list field of `body`, `extra` has the further fields of the route. `kept` has
    the indices of the rows of the body that are rows of the page; None for all.
    """

    rows: list[Any]
    next_page_token: str | None
    extra: tuple[Any, ...] = ()
    body: bytes = b"{}"
    items: str = ""
    kept: Sequence[int] | None = None

    @property
    def digest(self) -> int:
        """Hash of the body from the first ``[`` to the last ``]``, for this process.

        A page token or `lastRun` before or after all lists does not change it.
        """
        body = self.body
        return hash(memoryview(body)[body.find(b"[") : body.rfind(b"]") + 1])  # without a copy

    @property
    def content(self) -> DecodedPage:
        """The page without its rows: its body has their content."""
        return DecodedPage([], None, (), self.body, self.items, self.kept)

    def canonical_rows(self) -> Sequence[bytes]:
        """Return canonical JSON of each row, in order, as the service sent it.

        Keys are sorted, white space is left out, numbers keep their digits, fields that no model names are
        included. A row without a canonical form (a lone surrogate, nested too deeply) keeps its bytes.
        """
        rows = canonical_rows(self.body, self.items)
        return rows if self.kept is None else [rows[index] for index in self.kept]

    def keep(self, indices: Sequence[int]) -> DecodedPage:
        """Return the page with some of its rows alone."""
        rows = [self.rows[index] for index in indices]
        return DecodedPage(rows, self.next_page_token, self.extra, self.body, self.items, indices)


class Stepwise(Generic[T]):
    """Decoder of bodies, in steps if a body is large.

    Other tasks run between two steps.
    """

    def steps(self, body: bytes) -> Generator[None, None, T]:
        """Decode a body; yield between two steps."""
        raise NotImplementedError

    def __call__(self, body: bytes) -> T:
        """Decode a body at once.

        Raises:
            DecodeError: the body is not JSON, or of another shape.

        """
        steps = self.steps(body)
        while True:
            try:
                next(steps)
            except StopIteration as end:
                return cast("T", end.value)


class _FurtherField:
    """Further field of an envelope.

    A number that is the same on each page is decoded once.
    """

    def __init__(self, name: str, kind: Any) -> None:
        self.name = name
        self._decoder = row_decoder(kind)
        self._last: tuple[msgspec.Raw, Any] = NULL, None

    def read(self, raw: msgspec.Raw) -> Any:
        """Return the value; None for null, and if it is missing.

        Raises:
            DecodeError: it is of another type.

        """
        last, value = self._last
        if raw in (last, NULL):
            return value if raw == last else None
        try:
            value = self._decoder.one(raw)
        except DecodeError as fault:
            raise below(f"$.{wire_name(self.name)}", fault.path[1:], fault) from None
        if isinstance(value, int):
            self._last = raw.copy(), value  # without the body
        return value


class PageDecoder(Stepwise[DecodedPage]):
    """Decoder of a route's pages into rows of `model`, or into JSON values.

    `items` names the list field; if it is None, it is the only field with a list of the first page, or of
    several the one named `likely`.
    `extra` are further fields of the envelope, each with its type; they may be missing. A row that does not
    fit the model raises `DecodeError`; with `shown`, an `Invalid` takes its place, with the error that
    `shown` returns.

    Raises:
        ConfigurationError: `items` cannot be the name of a field, or `model` cannot be made from JSON.

    """

    def __init__(
        self,
        model: Any = None,
        items: str | None = None,
        extra: Sequence[tuple[str, Any]] = (),
        *,
        shown: Callable[[DecodeError], DecodeError] | None = None,
        likely: str = "",
    ) -> None:
        self._rows = row_decoder(model)
        self._likely = likely
        self._extra = [_FurtherField(name, kind) for name, kind in extra]
        self._further = tuple(name for name, _ in extra)
        self._shown = shown
        self._advice = _AS_RAW if model is None else _AS_RAW + _UNTYPED
        self.items = items
        try:
            self._envelope = None if items is None else envelope_of(items, self._rows, self._further)
        except (TypeError, ValueError):
            raise ConfigurationError(f"items={quoted(items)} is not the name of a list field") from None

    def decode(self, body: bytes) -> DecodedPage:
        """Decode one page at once; null stands for an empty list.

        Raises:
            DecodeError: the body is not JSON, not of the route's shape, or its list field is ambiguous.

        """
        return self(body)

    def steps(self, body: bytes) -> Generator[None, None, DecodedPage]:
        """Decode one page, a large one in steps of some rows.

        Raises:
            DecodeError: the body is not JSON, not of the route's shape, or its list field is ambiguous.

        """
        refuse_dense(body)
        envelope, unnamed = self._envelope or self._find_envelope(body), False
        if len(body) <= LARGE:
            try:
                return self._page(envelope.read(body), body)
            except DECODING_ERRORS as error:  # the parts name the fault
                unnamed = is_unknown_field(error)
        page = yield from self._in_parts(envelope, body, unnamed=unnamed)
        return self._page(page, body)

    def _page(self, page: Any, body: bytes) -> DecodedPage:
        """Return a page of a decoded body."""
        token = page.next_page_token
        if token is not None and len(token) > MAX_TOKEN:
            raise DecodeError(f"longer than {MAX_TOKEN} characters", path="$.nextPageToken")
        extra: tuple[Any, ...] = ()
        if self._extra:
            extra = tuple([further.read(getattr(page, further.name)) for further in self._extra])
        return DecodedPage(page.rows, token or None, extra, body, self.items or "")

    def _find_envelope(self, body: bytes) -> Envelope:
        items = find_list(body, self._likely)
        try:
            self._envelope = envelope_of(items, self._rows, self._further)
        except ValueError:  # with a control character or a quotation mark in its name
            raise DecodeError(f"the name of the list field cannot be used: {items}") from None
        self.items = items
        return self._envelope

    def _in_parts(self, envelope: Envelope, body: bytes, *, unnamed: bool) -> Generator[None, None, Any]:
        """Decode some rows at a time; if one of them is invalid, each by itself."""
        page = self._split(envelope, body)
        refuse_many("rows", len(page.rows), body)
        rows: list[Any] = []
        for start in range(0, len(page.rows), PART):
            yield
            rows += self._part(page.rows[start : start + PART], start, unnamed=unnamed)
        page.rows = rows
        return page

    def _split(self, envelope: Envelope, body: bytes) -> Any:
        try:
            return envelope.split(body)
        except DecodeError as fault:
            # JSON that cannot be decoded (a lone surrogate, nested too deeply) is the fault of a row.
            if not is_json(body):
                raise fault from None
        rows, rest = scan(body, self.items or "")
        page = envelope.split(rest)
        page.rows = rows
        return page

    def _part(self, raws: list[bytes | msgspec.Raw], start: int, *, unnamed: bool) -> list[Any]:
        try:
            return self._rows.several(raws, unnamed=unnamed)
        except DecodeError:
            return [self._row(raw, number) for number, raw in enumerate(raws, start)]

    def _row(self, raw: bytes | msgspec.Raw, number: int) -> Any:
        try:
            return self._rows.one(raw)
        except DecodeError as error:
            advice = _AS_RAW if _is_unreadable(error) else self._advice
            if error.malformed and has_half_pair(bytes(raw)):  # the service would send it again
                error = error.changed(reason="half of a surrogate pair", malformed=False)
            path = f"$.{self.items}[{number}]{error.path[1:]}"
            if self._shown is None:
                raise error.changed(path=path, row=number, advice=advice) from None
            return Invalid(decode_leniently(bytes(raw)), self._shown(error.changed(path=path, row=number)))


def _is_unreadable(fault: DecodeError) -> bool:
    """Check for a fault of JSON that no decoder reads, with a model or without one."""
    return fault.malformed or fault.reason == TOO_DEEP


class ResourceDecoder(Stepwise[Any]):
    """Decoder of single resources, into `model` or into JSON values.

    Raises:
        ConfigurationError: `model` cannot be made from JSON.

    """

    def __init__(self, model: Any = None) -> None:
        self._rows = row_decoder(model)
        self._advice = "" if model is None else _GET

    def steps(self, body: bytes) -> Generator[None, None, Any]:
        """Decode a resource in one step.

        Raises:
            DecodeError: the body is not JSON or does not fit the model.

        """
        refuse_dense(body)
        yield from ()
        try:
            return self._rows.one(body)
        except DecodeError as fault:
            raise fault if fault.malformed else fault.changed(advice=self._advice) from None


def decode_resource(body: bytes, model: Any = None) -> Any:
    """Decode a single resource, into `model` or into JSON values.

    Raises:
        DecodeError: the body is not JSON or does not fit the model.

    """
    return ResourceDecoder(model)(body)


def checked_json(body: bytes) -> bytes:
    """Return a body that is JSON, as it is.

    Raises:
        DecodeError: the body is not JSON.

    """
    refuse_dense(body)
    try:
        _CHECK.decode(body)
        body.decode()
    except DECODING_ERRORS as error:
        if not is_json(body):
            raise to_decode_error(error) from None
    return body


_CHECK = msgspec.json.Decoder(msgspec.Raw)

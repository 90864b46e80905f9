"""From the body of an answer to rows: the envelope of a page, a single resource, an error."""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Sequence
from typing import Any, Generic, Literal, TypeAlias, TypeVar, cast

import msgspec
from attrs import frozen

from chainapi._text import quoted
from chainapi.core.paging.checkpoint import MAX_TOKEN
from chainapi.errors import ConfigurationError, DecodeError
from chainapi.models.canonical import canonical_rows, scan
from chainapi.models.decode_errors import UNKNOWN_FIELD, below
from chainapi.models.envelope import Envelope, envelope_of, find_list, lists_of
from chainapi.models.exact_json import decode_leniently, is_json
from chainapi.models.invalid import Invalid
from chainapi.models.records import NULL
from chainapi.models.rows import RowDecoder
from chainapi.models.sizes import LARGE, refuse_dense, refuse_many
from chainapi.models.unions import wire_name

__all__ = ["DecodedPage", "OnInvalid", "PageDecoder", "ResourceDecoder", "Stepwise", "decode_resource"]

OnInvalid: TypeAlias = Literal["raise", "raw"]
T = TypeVar("T")

_AS_RAW = 'resume=error.checkpoint with on_invalid="raw" goes on and gives this row as an Invalid record'
_UNTYPED = "; without a model, list() of the same path and parameters goes on with plain JSON"
_GET = "get() of the same path and parameters, without a model, gives the resource as plain JSON"
PART = 256  # rows of a large body that are decoded in one step


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
        return hash(lists_of(self.body))

    def canonical_rows(self) -> list[bytes]:
        """Return canonical JSON of each row, in order, as the service sent it.

        It is made at each call. Keys are sorted, white space is left out, numbers keep their digits; fields
        that no model names are in it. A row that has no canonical form (with a lone surrogate, or nested too
        deeply) is returned as its bytes in the body. It raises nothing for a page that was decoded.
        """
        return canonical_rows(self.body, self.items)


class Stepwise(Generic[T]):
    """Decodes bodies, a large one in steps between which others can run."""

    def steps(self, body: bytes) -> Generator[None, None, T]:
        """Decode a body; between two steps nothing is held."""
        raise NotImplementedError

    def __call__(self, body: bytes) -> T:
        """Decode a body at once.

        Raises:
            DecodeError: the body is not what it should be.

        """
        steps = self.steps(body)
        while True:
            try:
                next(steps)
            except StopIteration as end:
                return cast("T", end.value)


class PageDecoder(Stepwise[DecodedPage]):
    """Decodes the pages of one route into rows of `model`, or into plain JSON values without one.

    `items` names the list field. Where it is None the first page decides: the only field that holds a list.
    `others` are further fields of the envelope to hand out, each with its type; they may be missing.
    A row that cannot be made is a `DecodeError`; with `shown` it is an `Invalid` in its place, whose error
    is as `shown` returns it.

    Raises:
        ConfigurationError: `items` is no name of a list field, or no rows can be made of `model`.

    """

    def __init__(
        self,
        model: Any = None,
        items: str | None = None,
        others: Sequence[tuple[str, Any]] = (),
        *,
        shown: Callable[[DecodeError], DecodeError] | None = None,
    ) -> None:
        self._maker = RowDecoder(model)
        self._others = [(name, RowDecoder(kind)) for name, kind in others]
        self._shown = shown
        self._advice = _AS_RAW if model is None else _AS_RAW + _UNTYPED
        self.items = items
        try:
            self._envelope = None if items is None else self._envelope_of(items)
        except (TypeError, ValueError):
            raise ConfigurationError(f"items={quoted(items)} is no name of a list field") from None

    def decode(self, body: bytes) -> DecodedPage:
        """Decode one page at once; null stands for an empty list.

        Raises:
            DecodeError: the body is not JSON, not of the route's shape, or its list field cannot be told.

        """
        return self(body)

    def steps(self, body: bytes) -> Generator[None, None, DecodedPage]:
        """Decode one page, a large one some rows at a step.

        Raises:
            DecodeError: the body is not JSON, not of the route's shape, or its list field cannot be told.

        """
        refuse_dense(body)
        envelope = self._envelope or self._find_envelope(body)
        page, unnamed = (None, False) if len(body) > LARGE else self._whole(envelope, body)
        if page is None:
            page = yield from self._in_parts(envelope, body, unnamed=unnamed)
        token = page.next_page_token
        if token is not None and len(token) > MAX_TOKEN:
            raise DecodeError(f"longer than {MAX_TOKEN} characters", path="$.nextPageToken")
        others = tuple(self._other(name, maker, getattr(page, name)) for name, maker in self._others)
        return DecodedPage(page.rows, token or None, others, body, self.items or "")

    def _envelope_of(self, items: str) -> Envelope:
        return envelope_of(items, self._maker.strict, tuple(name for name, _ in self._others))

    def _find_envelope(self, body: bytes) -> Envelope:
        items = find_list(body, loosely=self._shown is not None)
        try:
            self._envelope = self._envelope_of(items)
        except ValueError:  # with a control character or a quotation mark in its name
            raise DecodeError(f"no usable name of a list field: {items}") from None
        self.items = items
        return self._envelope

    def _whole(self, envelope: Envelope, body: bytes) -> tuple[Any, bool]:
        """Decode all rows at once; None where they have to be decoded in parts.

        The second value says whether a field that no record names is the reason.
        """
        try:
            return envelope.read(body), False
        except DecodeError as fault:
            unnamed = fault.reason.startswith(UNKNOWN_FIELD)
            if self._shown is None and not unnamed:
                raise self._of_row(fault) from None
            return None, unnamed

    def _of_row(self, fault: DecodeError) -> DecodeError:
        """Return the same fault with the number of the row that it is in, if it is in one."""
        found = re.match(rf"\$\.{re.escape(self.items or '')}\[(\d+)\]", fault.path)
        return fault if found is None else fault.changed(row=int(found[1]), advice=self._advice)

    def _in_parts(self, envelope: Envelope, body: bytes, *, unnamed: bool) -> Generator[None, None, Any]:
        """Decode some rows at a time, and each by itself where one of them is invalid."""
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
            # What is JSON and cannot be decoded (half of a character, too deep a nesting) is a row's fault.
            if self._shown is None or not is_json(body):
                raise fault from None
        rows, rest = scan(body, self.items or "")
        page = envelope.split(rest)
        page.rows = rows
        return page

    def _part(self, raws: list[bytes | msgspec.Raw], start: int, *, unnamed: bool) -> list[Any]:
        try:
            return self._maker.several(raws, unnamed=unnamed)
        except DecodeError:
            return [self._row(raw, number) for number, raw in enumerate(raws, start)]

    def _row(self, raw: bytes | msgspec.Raw, number: int) -> Any:
        try:
            return self._maker.one(raw)
        except DecodeError as error:
            path = f"$.{self.items}[{number}]{error.path[1:]}"
            if self._shown is None:
                raise error.changed(path=path, row=number, advice=self._advice) from None
            return Invalid(decode_leniently(bytes(raw)), self._shown(error.changed(path=path, row=number)))

    @staticmethod
    def _other(name: str, maker: RowDecoder, raw: msgspec.Raw) -> Any:
        if raw == NULL:
            return None
        try:
            return maker.one(raw)
        except DecodeError as fault:
            raise below(f"$.{wire_name(name)}", fault.path[1:], fault) from None


class ResourceDecoder(Stepwise[Any]):
    """Decodes single resources, into `model` or into plain JSON values.

    Raises:
        ConfigurationError: nothing can be made of `model`.

    """

    def __init__(self, model: Any = None) -> None:
        self._maker = RowDecoder(model)
        self._advice = "" if model is None else _GET

    def steps(self, body: bytes) -> Generator[None, None, Any]:
        """Decode a resource, at once.

        Raises:
            DecodeError: the body is not JSON or not of the model's shape.

        """
        refuse_dense(body)
        yield from ()
        try:
            return self._maker.one(body)
        except DecodeError as fault:
            raise fault if fault.malformed else fault.changed(advice=self._advice) from None


def decode_resource(body: bytes, model: Any = None) -> Any:
    """Decode a single resource, into `model` or into plain JSON values.

    Raises:
        DecodeError: the body is not JSON or not of the model's shape.

    """
    return ResourceDecoder(model)(body)

"""Checkpoint: the one position of a walk; its text resumes it in another process."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from itertools import pairwise
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import replace

from chainapi._paging.ranges import Interval
from chainapi._text import quoted
from chainapi.core.numbers import is_whole
from chainapi.errors import CheckpointError

__all__ = ["MAX_TOKEN", "Checkpoint", "Watermark", "query_fingerprint"]

FORMAT = 3
MAX_TOKEN = 4_096  # characters: it has to fit into a URL; no longer one is taken from a page either

# No number in a checkpoint is as large; a larger one may be no float, or no index.
Count = Annotated[int, Meta(ge=0, lt=2**53)]
Seconds = Annotated[float, Meta(ge=0, lt=2**53)]
Mark = Annotated[str, Meta(pattern="^([0-9a-f]{16}){1,2}$")]
Spans = tuple[tuple[int, int], ...]


class Watermark(Struct, frozen=True, omit_defaults=True):
    """Numbers of the rows given of a list in descending order.

    Attributes:
        number_field: name of the field with the number, as the service spells it.
        spans: newest and oldest number of each span, both included, from new to old. A walk has given all
            rows inside a span, and nothing between two spans. Rows at its ends may share their number with
            rows that were not given.
        at: number of the row before the page to fetch next; None for the first page.
        ties: for each end of a span where rows may share a number, the marks of the rows given there.
        met: the marks of the rows with the number `at` that this pass has met.

    """

    number_field: str = ""
    spans: Spans = ()
    at: int | None = None
    ties: tuple[tuple[int, tuple[Mark, ...]], ...] = ()
    met: tuple[Mark, ...] = ()

    @property
    def newest(self) -> int:
        """Greatest number given."""
        return self.spans[0][0]

    @property
    def oldest(self) -> int:
        """Least number given."""
        return self.spans[-1][1]


class Checkpoint(Struct, frozen=True, omit_defaults=True):
    """Position of a stream, small enough to keep after every row.

    `dumps` makes it a line of text. Its page token opens pages only together with the credentials of the
    query; the API key is not in it.

    Attributes:
        query: fingerprint of the query it belongs to.
        path: path of that query, for people who read the checkpoint; after the method, if that is not GET.
        token: token of the page to fetch next; None for the first page.
        minted_at: Unix time in seconds when the request that returned the token was sent.
        offset: rows of that page that were already given.
        pages: pages received since the stream began or restarted, that page not counted.
        rows: rows given in all.
        restarts: number of restarts at the first page.
        watermark: the numbers already given, if the list is in descending order of a number.
        unordered: True where a page broke that order.
        keyless: True where two rows of a page shared the key that should identify a row.
        bound: the upper end of the query's range since a restart from the watermark; None without one.
        head: marks of the rows given of the begun page: of the content of each, and of its key if it has
            one. After a resume as many rows are left out as have these marks, wherever they stand by then.
        done: True when nothing is left.
        following: True for a position of `follow`: the watermark has the newest rows alone.
        range: interval of the rows, if the stream is one range of a list; None for a whole list.

    """

    query: str
    path: str = ""
    token: str | None = None
    minted_at: Seconds | None = None
    offset: Count = 0
    pages: Count = 0
    rows: Count = 0
    restarts: Count = 0
    watermark: Watermark | None = None
    unordered: bool = False
    keyless: bool = False
    bound: int | None = None
    head: tuple[Mark, ...] = ()
    done: bool = False
    following: bool = False
    range: Interval | None = None

    def at_first_page(self, query: str) -> Checkpoint:
        """Return the position at the first page of the same list, for another query.

        The stream restarts there, as it does when its page token has died.

        Args:
            query: fingerprint of that query, such as one with another page size.

        """
        mark = self.watermark
        return replace(
            self,
            query=query,
            token=None,
            minted_at=None,
            offset=0,
            pages=0,
            restarts=self.restarts + 1,
            watermark=None if mark is None else replace(mark, at=None, met=()),
            head=(),
        )

    def dumps(self) -> str:
        """Return the checkpoint as one line of JSON."""
        fields = {"chainapi_checkpoint": FORMAT, **msgspec.to_builtins(self)}
        return json.dumps(fields, separators=(",", ":"))

    @classmethod
    def loads(cls, text: str) -> Checkpoint:
        """Read a checkpoint back.

        Raises:
            CheckpointError: the text is damaged or has the format of another version.

        """
        try:
            fields = json.loads(text)
        except (ValueError, RecursionError, TypeError):
            raise CheckpointError(
                "the checkpoint is damaged: it is not JSON; store the text of checkpoint.dumps()"
            ) from None
        if not isinstance(fields, dict) or "chainapi_checkpoint" not in fields:
            raise CheckpointError("this is no checkpoint of chainapi")
        _check_format(fields.pop("chainapi_checkpoint"))
        try:
            checkpoint = msgspec.convert(fields, Checkpoint)
        except msgspec.ValidationError as error:
            raise CheckpointError(f"the checkpoint is damaged: {error}") from None
        _check(checkpoint)
        return checkpoint


def _check_format(version: Any) -> None:
    if not is_whole(version) or version < 1:
        raise CheckpointError(f"the checkpoint is damaged: its format is {quoted(version)}")
    if version != FORMAT:
        advice = "upgrade chainapi to resume from it" if version > FORMAT else "begin again"
        raise CheckpointError(
            f"the checkpoint has format {quoted(version)}, this version of chainapi reads format {FORMAT}:"
            f" {advice}"
        )


def _check(checkpoint: Checkpoint) -> None:
    """Refuse a checkpoint whose fields contradict each other."""
    token, watermark, fault = checkpoint.token, checkpoint.watermark, ""
    if (token is None) != (checkpoint.minted_at is None):
        fault = "token and minted_at belong together"
    elif token is not None and checkpoint.done:
        fault = "it is done, and has a token"
    elif token is not None and not (1 <= len(token) <= MAX_TOKEN and _is_unicode(token)):
        fault = "its token cannot be sent"
    elif watermark is not None and not _descends(watermark):
        fault = "the spans of its watermark are not in descending order, or empty"
    elif watermark is None and checkpoint.following:
        fault = "it follows a list, and has no watermark"
    if fault:
        raise CheckpointError(f"the checkpoint is damaged: {fault}")


def _is_unicode(text: str) -> bool:
    """Check whether a string is valid Unicode, which a URL can carry.

    JSON can name halves of characters, which no URL can carry.
    """
    return not any("\ud800" <= char <= "\udfff" for char in text)


def _descends(watermark: Watermark) -> bool:
    """Check that spans descend, and that one of them has the number `at`."""
    spans, at = watermark.spans, watermark.at
    ends = [end for span in spans for end in span]
    placed = at is None or any(newest >= at >= oldest for newest, oldest in spans)
    return bool(spans) and placed and all(above >= below for above, below in pairwise(ends))


_canonical = json.JSONEncoder(sort_keys=True).encode  # json.dumps would make an encoder at each call


def query_fingerprint(
    origin: str,
    path: str,
    params: Sequence[tuple[str, str]],
    method: str = "GET",
    body: bytes | None = None,
) -> str:
    """Return 32 hexadecimal digits that identify a query.

    They do not depend on the API key, nor on the order of the parameters and of the fields of the body.
    """
    content = [] if method == "GET" else [method, None if body is None else json.loads(body)]
    text = _canonical([origin, path, sorted(params), *content])
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()

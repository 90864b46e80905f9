"""Checkpoint: the position of a walk as a small record, to save and resume."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, TypeGuard

from attrs import evolve, frozen

from chainapi._text import quoted
from chainapi.core.numbers import is_of, is_whole
from chainapi.core.paging.order import Watermark
from chainapi.core.paging.ranges import Interval
from chainapi.errors import CheckpointError

__all__ = ["MAX_TOKEN", "Checkpoint", "query_fingerprint"]

CHECKPOINT_VERSION = 2


@frozen
class Checkpoint:
    """Position of a walk, small enough to keep after every row.

    `dumps` makes it a line of text. Its page token opens pages only together with the credentials of the
    query; the API key is not in it.

    Attributes:
        query: fingerprint of the query it belongs to.
        path: path of that query, for people who read the checkpoint; after the method, if that is not GET.
        token: token of the page to fetch next; None for the first page.
        minted_at: Unix time in seconds when the request that returned the token was sent.
        offset: rows of that page that were already given.
        pages: pages received since the walk began or restarted, that page not counted.
        rows: rows given in all.
        restarts: number of restarts at the first page.
        watermark: the numbers already given, where the list is in descending order of a number.
        unordered: True where a page broke that order.
        keyless: True where two rows of a page shared the key that should identify a row.
        bound: the upper end of the query's range since a restart from the watermark; None without one.
        head: marks of the rows given of the begun page: of the content of each, and of its key where it has
            one. After a resume as many rows are left out as have these marks, wherever they stand by then.
        done: True when nothing is left.
        following: True for a position of `follow`: the watermark has the newest rows alone.
        range: interval of the rows, where the stream is one range of a list; None for a whole list.

    """

    query: str
    path: str = ""
    token: str | None = None
    minted_at: float | None = None
    offset: int = 0
    pages: int = 0
    rows: int = 0
    restarts: int = 0
    watermark: Watermark | None = None
    unordered: bool = False
    keyless: bool = False
    bound: int | None = None
    head: tuple[str, ...] = ()
    done: bool = False
    following: bool = False
    range: Interval | None = None

    def at_first_page(self, query: str) -> Checkpoint:
        """Return the position at the first page of the same list, for another query.

        The walk restarts there, as it does when its page token has died.

        Args:
            query: fingerprint of that query, such as one with another page size.

        """
        mark = self.watermark
        return evolve(
            self,
            query=query,
            token=None,
            minted_at=None,
            offset=0,
            pages=0,
            restarts=self.restarts + 1,
            watermark=None if mark is None else evolve(mark, at=None, met=()),
            head=(),
        )

    def dumps(self) -> str:
        """Return the checkpoint as one line of JSON."""
        fields: dict[str, Any] = {"chainapi_checkpoint": CHECKPOINT_VERSION, "query": self.query}
        for name in _CHECKPOINT_FIELDS:
            fields[name] = getattr(self, name)
        if self.watermark is not None:
            fields["watermark"] = _watermark_fields(self.watermark)
        if self.head:
            fields["head"] = self.head
        if self.following:
            fields["following"] = True
        if self.range is not None:
            fields["range"] = [self.range.start, self.range.end]
        return json.dumps(fields, separators=(",", ":"))

    @classmethod
    def loads(cls, text: str) -> Checkpoint:
        """Read a checkpoint back.

        Raises:
            CheckpointError: the text is damaged or was written by a newer version.

        """
        try:
            fields = json.loads(text)
        except (ValueError, RecursionError, TypeError):
            raise CheckpointError("the checkpoint is damaged: it is not JSON") from None
        if not isinstance(fields, dict) or "chainapi_checkpoint" not in fields:
            raise CheckpointError("this is no checkpoint of chainapi")
        version = fields.pop("chainapi_checkpoint")
        if not is_whole(version) or version < 1:
            raise CheckpointError(f"the checkpoint is damaged: its format is {_shown(version)}")
        if version != CHECKPOINT_VERSION:
            advice = "upgrade chainapi to resume from it" if version > CHECKPOINT_VERSION else "begin again"
            raise CheckpointError(
                f"the checkpoint has format {_shown(version)}, this version of chainapi reads format"
                f" {CHECKPOINT_VERSION}: {advice}"
            )
        return cls(**_checked_fields(fields))


_CHECKPOINT_FIELDS: Mapping[str, tuple[type, ...]] = {
    "path": (str,),
    "token": (str, type(None)),
    "minted_at": (int, float, type(None)),
    "offset": (int,),
    "pages": (int,),
    "rows": (int,),
    "restarts": (int,),
    "unordered": (bool,),
    "keyless": (bool,),
    "bound": (int, type(None)),
    "done": (bool,),
}


# No number in a checkpoint is as large; a larger one may be no float, or no index.
_TOO_LARGE = 2**53
MAX_TOKEN = 4_096  # characters: it has to fit into a URL; no longer one is taken from a page either


def _checked_fields(fields: dict[str, Any]) -> dict[str, Any]:
    """Refuse a checkpoint with fields of wrong types or with negative numbers."""
    expected = {**_CHECKPOINT_FIELDS, "query": (str,)}
    checked: dict[str, Any] = {}
    for name, types in expected.items():
        value = fields.get(name, _MISSING)
        wrong = not is_of(value, types)
        # A bound is a row key: of either sign and any size, as the keys of the watermark are.
        counted = isinstance(value, int | float) and name != "bound"
        if wrong or (counted and not 0 <= value < _TOO_LARGE):
            raise CheckpointError(f"the checkpoint is damaged: {name} is {_shown(value)}")
        checked[name] = value
    _check_token(checked)
    checked["watermark"] = _checked_watermark(fields.get("watermark"))
    checked["head"] = _checked_head(fields.get("head", []))
    checked["following"] = _checked_following(fields.get("following", False), checked["watermark"])
    checked["range"] = _checked_range(fields.get("range"))
    return checked


def _check_token(fields: Mapping[str, Any]) -> None:
    token: str | None = fields["token"]
    if (token is None) != (fields["minted_at"] is None):
        raise CheckpointError("the checkpoint is damaged: token and minted_at belong together")
    if token is not None and fields["done"]:
        raise CheckpointError("the checkpoint is damaged: it is done, and has a token")
    if token is not None and not (1 <= len(token) <= MAX_TOKEN and _is_unicode(token)):
        raise CheckpointError("the checkpoint is damaged: its token cannot be sent")


def _is_unicode(text: str) -> bool:
    """Check whether a string is valid Unicode, which a URL can carry.

    JSON can name halves of characters, which no URL can carry.
    """
    return not any("\ud800" <= char <= "\udfff" for char in text)


def _watermark_fields(watermark: Watermark) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "field": watermark.number_field,
        "spans": [watermark.newest, *(number for gap in watermark.gaps for number in gap), watermark.oldest],
        "at": watermark.at,
    }
    if watermark.ties:
        fields["ties"] = [[number, *marks] for number, marks in watermark.ties]
        fields["met"] = watermark.met
    return fields


def _checked_watermark(value: object) -> Watermark | None:
    """Read the span ends, from new to old, and the marks at them.

    A gap lies between two spans.
    """
    if value is None:
        return None
    try:
        fields: Any = value
        name, ends, at = fields["field"], fields["spans"], fields["at"]
        ties = tuple((number, _checked_marks(marks)) for number, *marks in fields.get("ties", ()))
        met = _checked_marks(fields.get("met", []))
    except (AttributeError, KeyError, TypeError, ValueError):
        raise CheckpointError(f"the checkpoint is damaged: watermark is {_shown(value)}") from None
    if (
        not isinstance(name, str)
        or not _are_spans(ends)
        or not is_of(at, (int, type(None)))
        or not _was_given(at, ends)
        or not all(is_whole(n) for n, _ in ties)
    ):
        raise CheckpointError(f"the checkpoint is damaged: watermark is {_shown(value)}")
    gaps = tuple(zip(ends[1:-1:2], ends[2:-1:2], strict=False))
    return Watermark(ends[0], ends[-1], gaps, at, ties, met, name)


def _are_spans(ends: object) -> bool:
    if not isinstance(ends, list) or len(ends) < 2 or len(ends) % 2:
        return False
    if not all(map(is_whole, ends)):
        return False
    return all(above >= below for above, below in pairwise(ends))


def _was_given(number: int | None, ends: list[int]) -> bool:
    """Check whether a number lies in one of the spans; None stands for no number."""
    return number is None or any(
        above >= number >= below for above, below in zip(ends[::2], ends[1::2], strict=True)
    )


def _checked_marks(marks: object) -> tuple[str, ...]:
    if not isinstance(marks, list) or not all(isinstance(m, str) and _MARK.fullmatch(m) for m in marks):
        raise ValueError(marks)
    return tuple(marks)


def _checked_head(value: object) -> tuple[str, ...]:
    try:
        return _checked_marks(value)
    except ValueError:
        raise CheckpointError(f"the checkpoint is damaged: head is {_shown(value)}") from None


def _checked_following(value: object, watermark: Watermark | None) -> bool:
    if not isinstance(value, bool) or (value and watermark is None):
        raise CheckpointError(f"the checkpoint is damaged: following is {_shown(value)}")
    return value


def _checked_range(value: object) -> Interval | None:
    if value is None:
        return None
    match value:
        case [start, end] if _is_end(start) and _is_end(end):
            return Interval(start, end)
        case _:
            raise CheckpointError(f"the checkpoint is damaged: range is {_shown(value)}")


def _is_end(value: object) -> TypeGuard[int | None]:
    return value is None or is_whole(value)


_MARK = re.compile(r"([0-9a-f]{16}){1,2}")
_MISSING = object()


def _shown(value: object) -> str:
    return "missing" if value is _MISSING else quoted(value)


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

"""The checkpoint: where a walk stands, as a small record that can be written down and read back."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from attrs import frozen

from chainapi.core.dedupe import Watermark
from chainapi.errors import CheckpointError

__all__ = ["Checkpoint", "query_fingerprint"]

CHECKPOINT_VERSION = 1


@frozen
class Checkpoint:
    """Where a walk stands, small enough to keep after every row; `dumps` makes it a line of text.

    Its page token opens pages only together with the credentials of the query; the API key is not in it.

    Attributes:
        query: fingerprint of the query it belongs to.
        path: path of that query, for people who read it.
        token: token of the page to fetch next; None for the first page.
        minted_at: Unix time in seconds when the request that returned the token was sent.
        offset: rows of that page that were already given.
        pages: pages received since the walk began or restarted, that page not counted.
        rows: rows given in all.
        restarts: how often the walk began again.
        watermark: the span of row keys already given, where the route's order allows to keep it.
        done: True when nothing is left.

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
    done: bool = False

    def dumps(self) -> str:
        """Return the checkpoint as one line of JSON."""
        fields: dict[str, Any] = {"chainapi_checkpoint": CHECKPOINT_VERSION, "query": self.query}
        for name in _CHECKPOINT_FIELDS:
            fields[name] = getattr(self, name)
        if self.watermark is not None:
            fields["watermark"] = [self.watermark.newest, self.watermark.oldest]
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
        if version != CHECKPOINT_VERSION:
            raise CheckpointError(
                f"the checkpoint has format {version!r}, this version of chainapi reads format"
                f" {CHECKPOINT_VERSION}: upgrade chainapi to resume from it"
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
    "done": (bool,),
}


def _checked_fields(fields: dict[str, Any]) -> dict[str, Any]:
    """Refuse a checkpoint whose fields are not of their types; numbers are never negative."""
    expected = {**_CHECKPOINT_FIELDS, "query": (str,)}
    checked: dict[str, Any] = {}
    for name, types in expected.items():
        value = fields.get(name, _MISSING)
        wrong = not isinstance(value, types) or (isinstance(value, bool) and bool not in types)
        if wrong or (isinstance(value, int | float) and not 0 <= value < math.inf):
            raise CheckpointError(f"the checkpoint is damaged: {name} is {_shown(value)}")
        checked[name] = value
    if (checked["token"] is None) != (checked["minted_at"] is None):
        raise CheckpointError("the checkpoint is damaged: token and minted_at belong together")
    checked["watermark"] = _checked_watermark(fields.get("watermark"))
    return checked


def _checked_watermark(value: object) -> Watermark | None:
    if value is None:
        return None
    numbers = value if isinstance(value, list) else []
    if len(numbers) != 2 or not all(type(number) is int for number in numbers) or numbers[0] < numbers[1]:
        raise CheckpointError(f"the checkpoint is damaged: watermark is {_shown(value)}")
    return Watermark(numbers[0], numbers[1])


_MISSING = object()


def _shown(value: object) -> str:
    return "missing" if value is _MISSING else repr(value)[:40]


def query_fingerprint(origin: str, path: str, params: Sequence[tuple[str, str]]) -> str:
    """Return 32 hexadecimal digits that tell one query from another; the API key has no part in it."""
    text = json.dumps([origin, path, sorted(params)])
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()

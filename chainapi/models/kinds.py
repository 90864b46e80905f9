"""Kinds of the rows of a union, read from their JSON."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec

from chainapi.models.exact_json import json_list
from chainapi.models.records import NULL
from chainapi.models.schema import list_of
from chainapi.models.unions import Tag, Unknown

__all__ = ["KindReader", "grouped"]


class KindReader:
    """Reader of the kinds of rows by `tags`: the first one that fits, or `Unknown`."""

    def __init__(self, tags: Sequence[Tag]) -> None:
        heads = {head: f"f{number}" for number, head in enumerate(dict.fromkeys(tag.path[0] for tag in tags))}
        # The value of a field that only has to be present is skipped.
        read = {tag.path[0] for tag in tags if tag.value is not None or len(tag.path) > 1}
        fields = [
            (name, Any if head in read else msgspec.Raw, msgspec.field(name=head, default=None))
            for head, name in heads.items()
        ]
        look = msgspec.defstruct("Look", fields)
        self._rules = [(heads[tag.path[0]], tag) for tag in tags]
        self._looks: msgspec.json.Decoder[list[Any]] = msgspec.json.Decoder(list_of(look))
        # One field with a text names the kind: no rule has to be tried.
        by_text = len(heads) == 1 and all(len(tag.path) == 1 and tag.value is not None for tag in tags)
        self._by_text = {tag.value: tag.kind for tag in reversed(tags)} if by_text else None

    def __call__(self, raws: Iterable[bytes | msgspec.Raw]) -> list[type]:
        """Return the kind of each row.

        Raises:
            MsgspecError, UnicodeError, RecursionError: a row is no JSON object.

        """
        looks = self._looks.decode(json_list(raws))
        if (kinds := self._by_text) is None:
            return [*map(self._kind, looks)]
        return [kinds.get(look.f0, Unknown) if type(look.f0) is str else Unknown for look in looks]

    def _kind(self, look: Any) -> type:
        for name, tag in self._rules:
            head = getattr(look, name)
            if head is None or head == NULL:
                continue
            if tag.fits({tag.path[0]: head}) if len(tag.path) > 1 else tag.value in (None, head):
                return tag.kind
        return Unknown


def grouped(
    rows: Sequence[Any], kinds: Iterable[Any], make: Callable[[Any, list[Any]], list[Any]]
) -> list[Any]:
    """Make the rows of each kind together and return them in their order."""
    kinds = [*kinds]
    if kinds and kinds.count(kinds[0]) == len(kinds):
        return make(kinds[0], [*rows])
    numbers: dict[Any, list[int]] = {}
    for number, kind in enumerate(kinds):
        numbers.setdefault(kind, []).append(number)
    made: list[Any] = [None] * len(rows)
    for kind, places in numbers.items():
        for number, row in zip(places, make(kind, [rows[place] for place in places]), strict=True):
            made[number] = row
    return made

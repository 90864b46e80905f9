"""Anomalies of lists: settings of their order, their rows and their page tokens."""

from __future__ import annotations

from typing import Any, Literal

from attrs import Attribute, field, frozen
from attrs.validators import and_, ge, in_, le

from chainapi.simulator.matching import check_route

__all__ = ["Anomalies", "Changing", "Order", "Paging"]

ORDERS = ("descending", "swapped", "shuffled", "ascending")

Order = Literal["descending", "swapped", "shuffled", "ascending"]
Paging = Literal["cursor", "offset"]
Changing = Literal["never", "pass", "answer"]


def _last_or_count(_: object, attribute: Attribute[Any], value: Any) -> None:
    if value not in (None, "last") and not (isinstance(value, int) and value >= 1):
        raise ValueError(f'{attribute.name} must be "last" or a number of pages, at least 1, not {value!r}')


@frozen(kw_only=True)
class Anomalies:
    """Anomalies of lists, which follow from the seed.

    A share is a number from 0 to 1, of all rows. A pass is a walk over a list from its first page on; the
    first pass over a list is without `moved` and `changing`.

    Attributes:
        route: route of the lists, as a name, a pattern of names such as ``data.evm.*``, or a path in which
            ``{...}`` and ``*`` match any one segment; None for every list.
        ties: number of different rows that share one block number, time or height.
        equal: number of neighboring rows that are the same row, byte for byte.
        replays: number of chains that have a transaction of one hash, in lists over all chains.
        order: of the rows: newest first; with some neighbors swapped; shuffled, in runs of 10,000 rows
            and the ones added later; or oldest first.
        moved: share of rows that stand elsewhere in each pass but the first.
        changing: when prices, logos, index statuses, progress and uptimes change: from pass to pass, or from
            answer to answer. A row without any of these has a number of confirmations that changes.
        malformed: share of rows that cannot be read: a field has the wrong type, is null, or is missing.
        unknown_fields: share of rows with fields that no document names; each page has one, too.
        unknown_values: share of rows in which a field with listed values has another value.
        paging: meaning of a page token: the position after a row, or a count of rows, so that the next page
            repeats rows after the list has grown at its head.
        repeat_pages: pages that are repeated for ever under new tokens: the last one, or the pages up to this
            number.

    """

    route: str | None = field(default=None, validator=check_route)
    ties: int = field(default=1, validator=ge(1))
    equal: int = field(default=1, validator=ge(1))
    replays: int = field(default=1, validator=ge(1))
    order: Order = field(default="descending", validator=in_(ORDERS))
    moved: float = field(default=0.0, validator=and_(ge(0), le(1)))
    changing: Changing = field(default="never", validator=in_(("never", "pass", "answer")))
    malformed: float = field(default=0.0, validator=and_(ge(0), le(1)))
    unknown_fields: float = field(default=0.0, validator=and_(ge(0), le(1)))
    unknown_values: float = field(default=0.0, validator=and_(ge(0), le(1)))
    paging: Paging = field(default="cursor", validator=in_(("cursor", "offset")))
    repeat_pages: int | Literal["last"] | None = field(default=None, validator=_last_or_count)

"""Page tokens and positions of a walk; a checkpoint is made of them on access."""

from __future__ import annotations

from typing import ClassVar, TypeAlias

from msgspec import Struct

from chainapi.core.paging.checkpoint import Checkpoint, query_fingerprint
from chainapi.core.paging.order import Given
from chainapi.core.private import Private
from chainapi.core.url import Query

__all__ = ["Beginning", "PagePosition", "PageToken", "Position", "Start", "checkpoint_of"]


class PageToken(Struct, frozen=True):
    """Page token and when the request that returned it was sent, in seconds.

    `minted` is on the loop's clock, which no change of the wall clock moves; None where the token comes from
    a checkpoint. `minted_at` is Unix time.
    """

    value: str
    minted: float | None
    minted_at: float


class Beginning(Private, Struct, eq=False):
    """Position before the first page of a list.

    It reads as its checkpoint does. Few walks need that one, and its fingerprint takes long.

    Attributes:
        address: base address of the service.
        query: query of the list.

    """

    address: str
    query: Query
    _checkpoint: Checkpoint | None = None  # made at the first access

    token: ClassVar[None] = None
    minted_at: ClassVar[None] = None
    offset: ClassVar[int] = 0
    pages: ClassVar[int] = 0
    rows: ClassVar[int] = 0
    restarts: ClassVar[int] = 0
    watermark: ClassVar[None] = None
    unordered: ClassVar[bool] = False
    keyless: ClassVar[bool] = False
    bound: ClassVar[None] = None
    head: ClassVar[tuple[str, ...]] = ()
    done: ClassVar[bool] = False
    following: ClassVar[bool] = False
    range: ClassVar[None] = None

    def checkpoint(self) -> Checkpoint:
        """Return the checkpoint."""
        if self._checkpoint is None:
            query = self.query
            fingerprint = query_fingerprint(self.address, query.path, query.params, query.method, query.body)
            self._checkpoint = Checkpoint(fingerprint, query.path if query.method == "GET" else query.where)
        return self._checkpoint


class PagePosition(Private, Struct, frozen=True, eq=False):
    """Position after a whole page: what its checkpoint is made of.

    Nothing in it changes when the walk moves on. See `Checkpoint` for the other attributes.

    Attributes:
        begin: position at which the walk began: its query, path and range are those of all.
        given: numbers given, where the list is in descending order of a number.
        number_field: name of the field with that number.

    """

    begin: Start
    token: PageToken | None
    pages: int
    rows: int
    restarts: int
    given: Given | None
    number_field: str
    unordered: bool
    keyless: bool
    head: tuple[str, ...]
    bound: int | None
    done: bool

    offset: ClassVar[int] = 0

    def checkpoint(self) -> Checkpoint:
        """Return the checkpoint."""
        begin, token, given = checkpoint_of(self.begin), self.token, self.given
        return Checkpoint(
            query=begin.query,
            path=begin.path,
            token=None if token is None else token.value,
            minted_at=None if token is None else token.minted_at,
            pages=self.pages,
            rows=self.rows,
            restarts=self.restarts,
            watermark=None if given is None else given.watermark(self.number_field),
            unordered=self.unordered,
            keyless=self.keyless,
            bound=self.bound,
            head=self.head,
            done=self.done,
            range=begin.range,
        )


Start: TypeAlias = Beginning | Checkpoint
Position: TypeAlias = PagePosition | Start


def checkpoint_of(position: Position) -> Checkpoint:
    """Return the checkpoint of a position."""
    return position if isinstance(position, Checkpoint) else position.checkpoint()

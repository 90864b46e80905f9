"""Position after a page; a checkpoint is made of it on access."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, TypeAlias

from msgspec import Struct

from chainapi.core.paging.checkpoint import Checkpoint
from chainapi.core.paging.order import Given
from chainapi.core.private import Private

if TYPE_CHECKING:
    from chainapi.core.paging.states import PageToken

__all__ = ["PagePosition", "Position", "checkpoint_of"]


class PagePosition(Private, Struct, frozen=True, eq=False):
    """Position after a whole page: what its checkpoint is made of.

    Nothing in it changes when the walk moves on. See `Checkpoint` for the other attributes.

    Attributes:
        begin: checkpoint at which the walk began: its query, path and range are those of all.
        given: numbers given, where the list is in descending order of a number.
        number_field: name of the field with that number.

    """

    begin: Checkpoint
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
        begin, token, given = self.begin, self.token, self.given
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


Position: TypeAlias = PagePosition | Checkpoint


def checkpoint_of(position: Position) -> Checkpoint:
    """Return the checkpoint of a position."""
    return position if isinstance(position, Checkpoint) else position.checkpoint()

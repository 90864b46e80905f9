"""Mixin of Structs whose values are in no repr."""

from __future__ import annotations

from typing import Any

__all__ = ["Private"]


class Private:
    """Mixin of Structs whose values are in no repr: they may be secrets, or large.

    It stands before `Struct`. A class may have a repr of its own.
    """

    __slots__ = ()

    def __repr__(self) -> str:
        return object.__repr__(self)

    def __rich_repr__(self) -> Any:
        """Return None: `rich` shows the repr then, and all values of another Struct."""
        return None

"""Pages decoded to Structs of their columns, without objects of the model.

The decoder takes the fast path of the model to its private Structs (`chainapi.models.structs`), and msgspec
checks them while it converts them into the Structs of a codec. A page that does not pass is decoded to rows
of the model, which names the fault: both ways accept the same bodies.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from attrs import evolve

from chainapi.models.codec import PageDecoder
from chainapi.models.convert import fast_path, row_type
from chainapi.models.envelope import Envelope, envelope_of
from chainapi.models.in_place import taking_class
from chainapi.models.metrics import MetricPoint
from chainapi.models.row_type import FastPath, Maker, RowType
from chainapi.models.structs import direct_type

__all__ = ["StructDecoder", "struct_rows"]


def struct_rows(model: Any, maker_of: Callable[[Any], Maker]) -> RowType | None:
    """Return the row type whose fast path ends at Structs; None without a fast path.

    Args:
        model: the model.
        maker_of: returns the maker of the Structs of rows of a class.

    """
    if model is MetricPoint:
        fast: FastPath | None = _of_points(maker_of(model).struct)
    else:
        fast = fast_path(model, maker_of, strict=True)
    return None if fast is None else evolve(row_type(model, strict=True), fast=fast)


def _of_points(struct: Any) -> FastPath:
    """Return the fast path of points, whose numbers never come as strings."""
    return FastPath(direct_type(struct, MetricPoint, strict=True), taking_class(struct), lax=False)


class StructDecoder(PageDecoder):
    """Decoder of a route's pages: to Structs if it can, else to rows of the model.

    Its other arguments are those of `PageDecoder`. A page has rows of one kind alone.

    Raises:
        ConfigurationError: as `PageDecoder` raises.

    """

    def __init__(
        self, structs: RowType, model: Any, items: str | None = None, *args: Any, **options: Any
    ) -> None:
        self._structs = structs
        super().__init__(model, items, *args, **options)

    def _envelope_of(self, items: str) -> Envelope:
        return envelope_of(items, self._structs, self._further)

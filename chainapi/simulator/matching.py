"""Routes that a fault or an anomaly is aimed at: by a name, a pattern of names, or a path."""

from __future__ import annotations

from fnmatch import fnmatchcase
from functools import lru_cache
from typing import TypeAlias

from attrs import Attribute, frozen

__all__ = ["Target", "is_route", "target"]

# The service, and the segments of a path; None stands for any.
_Shape: TypeAlias = tuple[str | None, ...]


@frozen
class Target:
    """Some routes, each as the places that it has."""

    shapes: tuple[_Shape, ...]

    def __contains__(self, place: tuple[str, ...]) -> bool:
        return any(
            len(shape) == len(place)
            and all(wanted in (None, given) for wanted, given in zip(shape, place, strict=True))
            for shape in self.shapes
        )


@lru_cache(maxsize=256)
def target(text: str) -> Target:
    """Return the routes that a text means.

    It is a path such as ``/v1/chains/43114/blocks`` or ``/v1/chains/{chainId}/blocks``, where ``{...}`` and
    ``*`` stand for any one segment, or a name such as ``data.evm.blocks``, where ``*`` stands for any text.

    Raises:
        ValueError: no route has such a name.

    """
    if text.startswith("/"):
        return Target((_shape(None, text),))
    from chainapi.simulator import handlers

    paths = [(name, path) for name, path in handlers.paths() if fnmatchcase(name, text)]
    if not paths:
        raise ValueError(f"no route is named {text!r}: give a name such as data.evm.blocks, or a path")
    return Target(tuple(_shape(name.partition(".")[0], path) for name, path in paths))


def _shape(service: str | None, path: str) -> _Shape:
    segments = path.split("/")[1:]
    return (service, *(None if name == "*" or name[:1] == "{" else name for name in segments))


def is_route(_: object, __: Attribute[str | None], value: str | None) -> None:
    """Refuse what names no route. Raises ValueError."""
    if value is not None:
        target(value)

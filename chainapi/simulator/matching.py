"""Routes of both services, matched by a path, a name or a pattern.

The catalog of the routes is loaded with the first path or name, so that importing the simulator is fast.
"""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from functools import cache, lru_cache
from typing import TYPE_CHECKING, TypeAlias

from attrs import Attribute, frozen

if TYPE_CHECKING:
    from chainapi._api.endpoint import Endpoint

__all__ = ["Match", "Segments", "check_route", "first_segment", "match_path", "route_has"]

# The service, after the method unless that is GET, and the decoded segments of a path.
Segments: TypeAlias = tuple[str, ...]


@frozen
class Match:
    """Route that a path matches.

    Attributes:
        name: name of the route, such as ``data.evm.blocks``.
        endpoint: the route.
        segments: the service, after the method unless that is GET, and the segments of the path.
        values: values of the path's parameters, by their names on the wire.

    """

    name: str
    endpoint: Endpoint
    segments: Segments
    values: Mapping[str, str]

    @property
    def items(self) -> str:
        """Name of the field that holds the rows of a page."""
        return self.endpoint.record.items or "chains"


@lru_cache(maxsize=1_024)
def match_path(segments: Segments) -> Match | None:
    """Return the route that a path matches, None for no route.

    Of several routes the one with the fewest parameters counts, then the one declared first.
    """
    for name, shape in _shapes().items():
        if _fits(shape, segments):
            pairs = zip(shape, segments, strict=True)
            values = dict(_value(expected, given) for expected, given in pairs if expected[:1] == "{")
            return Match(name, _declared()[name], segments, values)
    return None


def _fits(shape: Segments, segments: Segments) -> bool:
    """Return whether segments have a shape.

    A verb may follow a parameter: ``{tokenId}:reindex``.
    """
    return len(shape) == len(segments) and all(
        given.endswith(expected.partition("}")[2]) if expected[:1] == "{" else expected in ("*", given)
        for expected, given in zip(shape, segments, strict=True)
    )


def _value(expected: str, given: str) -> tuple[str, str]:
    """Return the parameter of a segment, and its value."""
    name, _, verb = expected[1:].partition("}")
    return name, given.removesuffix(verb)


@cache
def _declared() -> Mapping[str, Endpoint]:
    """Return the routes by their names."""
    from chainapi._api.catalogue import ROUTES, WRITES

    return {**ROUTES, **WRITES}


@cache
def _shapes() -> Mapping[str, Segments]:
    """Return the segments of each route by name, those with few parameters first."""
    records = ((name, endpoint.record) for name, endpoint in _declared().items())
    return {
        name: (first_segment(name.partition(".")[0], record.method), *_split(record.path))
        for name, record in sorted(records, key=lambda entry: entry[1].path.count("{"))
    }


def route_has(text: str, segments: Segments) -> bool:
    """Return whether a path belongs to a route, or to one of the routes of a pattern.

    `text` is a path such as ``/v1/chains/43114/blocks`` or ``/v1/chains/{chainId}/blocks``, in which
    ``{...}`` and ``*`` match any one segment, with any method, or a name such as ``data.evm.blocks``, in
    which ``*`` matches any string. Raises ValueError if no route has such a name.
    """
    return any(_fits(shape, segments) for shape in _shapes_of(text))


@lru_cache(maxsize=256)
def _shapes_of(text: str) -> list[Segments]:
    if text.startswith("/"):
        return [("*", *_split(text))]
    found = [shape for name, shape in _shapes().items() if fnmatchcase(name, text)]
    if not found:
        raise ValueError(f"no route is named {text!r}: give a name such as data.evm.blocks, or a path")
    return found


def _split(path: str) -> list[str]:
    return path.split("/")[1:]


def first_segment(service: str, method: str) -> str:
    """Return the first of the `Segments` of a request."""
    return service if method == "GET" else f"{method} {service}"


def check_route(_: object, __: Attribute[str | None], value: str | None) -> None:
    """Raise ValueError for a name that no route has; a validator of attrs."""
    if value is not None:
        _shapes_of(value)

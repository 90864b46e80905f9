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

__all__ = ["Match", "Pattern", "Segments", "check_route", "first_segment", "match_path", "parse_pattern"]

# The service, after the method unless that is GET, and the decoded segments of a path.
Segments: TypeAlias = tuple[str, ...]

# Segments of a route's path; None matches any string.
_Shape: TypeAlias = tuple[str | None, ...]


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
    def complete(self) -> bool:
        """Check whether every parameter of the path has a value."""
        return "" not in self.values.values()


@lru_cache(maxsize=1_024)
def match_path(segments: Segments) -> Match | None:
    """Return the route that a path matches, None for no route.

    Of several routes the one with the fewest parameters counts, then the one declared first.
    """
    for name, shape, endpoint in _routes_of_length().get((segments[0], len(segments)), ()):
        pairs = list(zip(shape, segments, strict=True))
        if all(map(_fits, shape, segments)):
            values = dict(_value(expected, given) for expected, given in pairs if expected[:1] == "{")
            return Match(name, endpoint, segments, values)
    return None


def _fits(expected: str, given: str) -> bool:
    """Return whether a segment is the expected one.

    A verb may follow a parameter: ``{tokenId}:reindex``.
    """
    if expected[:1] != "{":
        return expected == given
    return given.endswith(expected.partition("}")[2])


def _value(expected: str, given: str) -> tuple[str, str]:
    """Return the parameter of a segment, and its value."""
    name, _, verb = expected[1:].partition("}")
    return name, given.removesuffix(verb)


@cache
def _routes_of_length() -> Mapping[tuple[str, int], list[tuple[str, Segments, Endpoint]]]:
    """Return the routes by service and number of segments.

    Those with the fewest parameters are first.
    """
    from chainapi._api.catalogue import ROUTES, WRITES

    routes: dict[tuple[str, int], list[tuple[str, Segments, Endpoint]]] = {}
    declared = [*ROUTES.items(), *WRITES.items()]
    for name, endpoint in sorted(declared, key=lambda entry: entry[1].record.path.count("{")):
        first = first_segment(name.partition(".")[0], endpoint.record.method)
        shape = (first, *endpoint.record.path.split("/")[1:])
        routes.setdefault((shape[0], len(shape)), []).append((name, shape, endpoint))
    return routes


@frozen
class Pattern:
    """Pattern of routes, by the shapes of their paths."""

    shapes: tuple[_Shape, ...]

    def matches(self, segments: Segments) -> bool:
        """Return whether a path belongs to one of the routes."""
        return any(
            len(shape) == len(segments)
            and all(expected in (None, given) for expected, given in zip(shape, segments, strict=True))
            for shape in self.shapes
        )


@lru_cache(maxsize=256)
def parse_pattern(text: str) -> Pattern:
    """Return the routes that a path or a name means.

    The text is a path such as ``/v1/chains/43114/blocks`` or ``/v1/chains/{chainId}/blocks``, in which
    ``{...}`` and ``*`` match any one segment, with any method, or a name such as ``data.evm.blocks``, in
    which ``*`` matches any string.

    Raises:
        ValueError: no route has such a name.

    """
    if text.startswith("/"):
        return Pattern((_shape(None, text),))
    from chainapi._api.catalogue import ROUTES, WRITES

    declared = {**ROUTES, **WRITES}
    matching = {name: endpoint for name, endpoint in declared.items() if fnmatchcase(name, text)}
    if not matching:
        raise ValueError(f"no route is named {text!r}: give a name such as data.evm.blocks, or a path")
    return Pattern(
        tuple(
            _shape(first_segment(name.partition(".")[0], endpoint.record.method), endpoint.record.path)
            for name, endpoint in matching.items()
        )
    )


def first_segment(service: str, method: str) -> str:
    """Return the first of the `Segments` of a request."""
    return service if method == "GET" else f"{method} {service}"


def _shape(service: str | None, path: str) -> _Shape:
    segments = path.split("/")[1:]
    return (service, *(None if name == "*" or name[:1] == "{" else name for name in segments))


def check_route(_: object, __: Attribute[str | None], value: str | None) -> None:
    """Raise ValueError for a name that no route has; a validator of attrs."""
    if value is not None:
        parse_pattern(value)

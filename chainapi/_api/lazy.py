"""Groups that are loaded at their first access, and the routes below a class."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from typing import TYPE_CHECKING, Any, cast

from chainapi._text import closest

if TYPE_CHECKING:
    from chainapi._api.endpoint import Endpoint

__all__ = ["LazyGroup", "misnamed", "routes_below"]

LIKE = 0.75  # similarity, from 0 to 1, of a name that was meant


class LazyGroup:
    """Descriptor of a group, whose module is loaded at the first access."""

    def __init__(self, path: str) -> None:
        self._path = path

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @property
    def kind(self) -> type[Any]:
        """Class of the group."""
        module, _, name = self._path.rpartition(".")
        return cast("type[Any]", getattr(import_module(module), name))

    def __get__(self, service: Any, owner: type) -> Any:
        if service is None:
            return self
        found = vars(service)[self._name] = self.kind(service)
        return found


def routes_below(prefix: str, kind: type) -> Iterator[tuple[str, Endpoint]]:
    """Yield the endpoints of a class, then of its groups, by dotted names."""
    members = [member for base in reversed(kind.__mro__) for member in vars(base).items()]
    for name, value in members:
        if hasattr(value, "endpoint"):
            yield f"{prefix}.{name}", value.endpoint
    for name, value in members:
        if isinstance(value, LazyGroup):
            yield from routes_below(f"{prefix}.{name}", value.kind)


_SERVICES = {
    "metrics": LazyGroup("chainapi._api.metrics.MetricsAPI"),
    "data": LazyGroup("chainapi._api.data.DataAPI"),
}


def misnamed(owner: object, name: str) -> AttributeError:
    """Return the error of an attribute that a session, a service or a group lacks.

    It names the paths that were meant, first the ones of the same service.
    """
    text = f"{type(owner).__name__} has no attribute {name!r}"
    if name.startswith("_"):  # Python asks for such names by itself, also before the object has any
        return AttributeError(text)
    paths, own = dict[str, None](), ""
    for prefix, service in _SERVICES.items():
        for path, declared in routes_below(prefix, service.kind):
            group, _, last = path.rpartition(".")
            paths |= dict.fromkeys((path, group))
            if getattr(getattr(type(owner), last, None), "endpoint", None) is declared:
                own = group
    names = {path.rpartition(".")[2] for path in paths}
    meant = name if name in names else closest(name, names, cutoff=LIKE)
    found = [path for path in paths if path.rpartition(".")[2] == meant]
    near = [path for path in found if path == f"{own}.{meant}"] or found
    near.sort(key=lambda path: path.partition(".")[0] != own.partition(".")[0])
    hint = " or ".join(f"session.{path}" for path in near[:3])
    return AttributeError(f"{text}: did you mean {hint}?" if hint else text)

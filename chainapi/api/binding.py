"""Methods of services and groups, declared by their signatures alone."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from importlib import import_module
from typing import Any, TypeVar, cast

from chainapi.api.endpoint import Endpoint
from chainapi.api.routes import Route
from chainapi.api.service import ServiceAPI

__all__ = ["Group", "endpoints_in", "gets", "group", "groups_of", "lists"]

F = TypeVar("F", bound=Callable[..., Any])


class Group:
    """Some routes of a service, under one name."""

    def __init__(self, service: ServiceAPI) -> None:
        self._service_api = service

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._service_api!r}>"

    @property
    def service(self) -> ServiceAPI:
        """The service that the routes belong to."""
        return self._service_api


class _GroupAt:
    """Makes a group when it is first asked for; its module is not loaded before."""

    def __init__(self, place: str) -> None:
        self._place = place

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @property
    def kind(self) -> type[Group]:
        """The class of the group."""
        module, _, name = self._place.rpartition(".")
        return cast("type[Group]", getattr(import_module(module), name))

    def __get__(self, service: ServiceAPI | None, owner: type) -> Any:
        if service is None:
            return self
        made = vars(service)[self._name] = self.kind(service)
        return made


def group(place: str) -> Any:
    """Declare a group of a service by the place of its class, such as ``"chainapi.api.groups.evm.EVM"``."""
    return _GroupAt(place)


def lists(route: Route) -> Callable[[F], F]:
    """Declare a method that walks a list; its signature ends with `NOT_SENT`."""

    def declare(function: F) -> F:
        declared = Endpoint(route, function, single=False)

        @wraps(function)
        def walk(self: Any, *args: Any, **kwargs: Any) -> Any:
            given = declared.bind((self, *args), kwargs)
            return _api(self).walk_route(declared.for_call(given), given)

        walk.endpoint = declared  # type: ignore[attr-defined]
        return cast("F", walk)

    return declare


def gets(route: Route) -> Callable[[F], F]:
    """Declare a coroutine method that returns a single resource.

    Its signature ends with ``priority`` and ``deadline``.
    """

    def declare(function: F) -> F:
        declared = Endpoint(route, function, single=True)

        @wraps(function)
        async def get(self: Any, *args: Any, **kwargs: Any) -> Any:
            given = declared.bind((self, *args), kwargs)
            return await _api(self).get_route(declared, given)

        get.endpoint = declared  # type: ignore[attr-defined]
        return cast("F", get)

    return declare


def endpoints_in(kind: type) -> dict[str, Endpoint]:
    """Return the routes that a class declares, by the names of their methods."""
    return {name: value.endpoint for name, value in vars(kind).items() if hasattr(value, "endpoint")}


def groups_of(kind: type) -> dict[str, type[Group]]:
    """Return the groups that a service declares, by the names of its attributes."""
    return {name: value.kind for name, value in vars(kind).items() if isinstance(value, _GroupAt)}


def _api(place: Any) -> ServiceAPI:
    return cast("ServiceAPI", place.service)

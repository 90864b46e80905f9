"""Methods of services and groups, declared by their signatures alone."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from importlib import import_module
from typing import Any, TypeVar, cast

from chainapi.api.endpoint import Endpoint
from chainapi.api.routes import Route
from chainapi.api.service import ServiceAPI

__all__ = ["Group", "LazyGroup", "gets", "group", "lists", "writes"]

F = TypeVar("F", bound=Callable[..., Any])


class Group:
    """Group of routes of a service."""

    def __init__(self, service: ServiceAPI) -> None:
        self._service_api = service

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._service_api!r}>"

    @property
    def service(self) -> ServiceAPI:
        """Service that the routes belong to."""
        return self._service_api


class LazyGroup:
    """Descriptor of a group, whose module is loaded at the first access."""

    def __init__(self, path: str) -> None:
        self._path = path

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @property
    def kind(self) -> type[Group]:
        """Class of the group."""
        module, _, name = self._path.rpartition(".")
        return cast("type[Group]", getattr(import_module(module), name))

    def __get__(self, service: ServiceAPI | None, owner: type) -> Any:
        if service is None:
            return self
        found = vars(service)[self._name] = self.kind(service)
        return found


def group(path: str) -> Any:
    """Declare a group by the path of its class.

    An example is ``"chainapi.api.groups.evm.EVM"``.
    """
    return LazyGroup(path)


def lists(route: Route) -> Callable[[F], F]:
    """Declare a method that walks a list; the last parameters are those of `NOT_SENT`."""

    def declare(function: F) -> F:
        endpoint = Endpoint(route, function, single=False)

        @wraps(function)
        def walk(self: Any, *args: Any, **kwargs: Any) -> Any:
            given = endpoint.bind((self, *args), kwargs)
            return self.service.walk_route(endpoint.for_call(given), given)

        walk.endpoint = endpoint  # type: ignore[attr-defined]
        return cast("F", walk)

    return declare


def gets(route: Route) -> Callable[[F], F]:
    """Declare a coroutine method that returns a single resource.

    Its last parameters are ``priority``, ``deadline`` and ``tag``.
    """

    def declare(function: F) -> F:
        endpoint = Endpoint(route, function, single=True)

        @wraps(function)
        async def get(self: Any, *args: Any, **kwargs: Any) -> Any:
            given = endpoint.bind((self, *args), kwargs)
            return await self.service.get_route(endpoint, given)

        get.endpoint = endpoint  # type: ignore[attr-defined]
        return cast("F", get)

    return declare


writes = gets  # `Route.idempotency` decides after which faults a write is repeated

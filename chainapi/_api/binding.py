"""Methods of services and groups, declared by their signatures alone."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from importlib import import_module
from typing import Any, TypeVar, cast

from chainapi._api.endpoint import Endpoint
from chainapi._api.routes import Route
from chainapi._api.service import ServiceAPI

__all__ = ["Group", "LazyGroup", "endpoint", "group"]

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

    An example is ``"chainapi._api.groups.evm.EVM"``.
    """
    return LazyGroup(path)


def endpoint(route: Route) -> Callable[[F], F]:
    """Declare a method: a coroutine returns a resource, any other walks a list.

    Its last parameters are the options in `NOT_SENT`; a resource has only the last three.
    """

    def declare(function: F) -> F:
        declared = Endpoint(route, function)

        @wraps(function)
        async def get(self: Any, *args: Any, **kwargs: Any) -> Any:
            given = declared.bind((self, *args), kwargs)
            return await self.service.get_route(declared, given)

        @wraps(function)
        def walk(self: Any, *args: Any, **kwargs: Any) -> Any:
            given = declared.bind((self, *args), kwargs)
            return self.service.walk_route(declared.for_call(given), given)

        method: Any = get if declared.single else walk
        method.endpoint = declared
        return cast("F", method)

    return declare

"""SessionView: both services of a session, with options for its calls."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal, Never, NoReturn

from chainapi._hints import ByService
from chainapi.core.arguments import refuse_unknown

if TYPE_CHECKING:
    from chainapi._api.data import DataAPI
    from chainapi._api.metrics import MetricsAPI
    from chainapi._http.cache import Cache
    from chainapi._http.connection import Connection
    from chainapi._http.options import CallOptions
    from chainapi._limits.view import QuotaSnapshot

__all__ = ["SessionView"]


class SessionView:
    """Both services of a session, with options for the calls made through it.

    A view uses the connections and the quota of its session and lives as long as that. It costs a few
    microseconds, so a web backend can make one for each request.
    """

    connection: Connection
    _options: CallOptions

    def __init__(self, connection: Connection, options: CallOptions) -> None:
        from chainapi._api import parts

        self.connection = connection
        self._options = options
        self._metrics = parts.MetricsAPI(connection, "metrics", options)
        self._data = parts.DataAPI(connection, "data", options)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            from chainapi._api.lazy import misnamed

            raise misnamed(self, name)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.connection.describe()}>"

    @property
    def metrics(self) -> MetricsAPI:
        """The Metrics API."""
        return self._metrics

    @property
    def data(self) -> DataAPI:
        """The Data API."""
        return self._data

    @property
    def quota(self) -> dict[str, QuotaSnapshot]:
        """Snapshot of the quota of each configured service; inside a running event loop.

        Sessions that share a gate have the same quota.
        """
        connection = self.connection
        return ByService({service.name: connection.snapshot(service) for service in connection.configured})

    def with_options(
        self,
        /,
        *,
        timeout: float | None = None,
        max_attempts: int | None = None,
        max_wait: float | None = None,
        max_waiting: float | None = None,
        deadline: float | None = None,
        priority: int | None = None,
        tag: str | None = None,
        headers: Mapping[str, str] | None = None,
        coalesce: bool | None = None,
        cache: Cache | Literal[False] | None = None,
        **unknown: Never,
    ) -> SessionView:
        """Return a view of the same session with other options.

        An option that is not given, or None, stays as it is here. A call or a stream can have a priority, a
        deadline and a tag of its own.

        Args:
            timeout: seconds for one attempt, from sending to the last byte.
            max_attempts: requests for one call; 1 disables retries.
            max_wait: seconds that a call may wait for quota; `math.inf` sets no limit.
            max_waiting: calls of this view that may wait for the quota of a service at once; one more that
                would have to wait raises QueueFullError. Views made of this one without the option are
                counted with it, and so are those with the same options, but for the headers; `math.inf` sets
                no limit.
            deadline: seconds for a call with its waits, retries and decoding; `math.inf` sets none.
            priority: calls with a higher one go first in the queue for quota; 0 by default.
            tag: name of the spender in `quota.spenders`.
            headers: further headers of each request to both services, such as ``traceparent``. They are added
                to this view's; a header of the same name is replaced.
            coalesce: whether identical GET requests in flight are one: a call then waits for the response to
                the request that another one sent. Requests are identical if URL, key, headers and options
                are the same; tag and tracing headers do not count.
            cache: answers calls with responses of earlier ones (see `Cache`); False switches it off.

        Raises:
            ConfigurationError: an option is invalid.

        """
        from chainapi._api.options import OPTIONS, changed_options

        given = {
            "timeout": timeout,
            "max_attempts": max_attempts,
            "max_wait": max_wait,
            "max_waiting": max_waiting,
            "deadline": deadline,
            "priority": priority,
            "tag": tag,
            "headers": headers,
            "coalesce": coalesce,
            "cache": cache,
        }
        refuse_unknown(unknown, OPTIONS, "with_options", unknown)
        return SessionView(self.connection, changed_options(self.connection, self._options, given))

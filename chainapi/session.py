"""Session: the checked configuration of both services, and its connection."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import inf
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Never, NoReturn, Self

from attrs import fields

from chainapi._api.view import SessionView
from chainapi._config import (
    LimiterOptions,
    Provider,
    Secret,
    Unconfigured,
    plans,
    resolve,
)
from chainapi._hints import AsyncContextOnly
from chainapi._http.transport import AiohttpTransport, Transport, leads_to_network
from chainapi._text import quoted
from chainapi.core.arguments import (
    function,
    one_of,
    refuse_unknown,
    seconds_of,
    tag_of,
    whole_number,
)
from chainapi.errors import ConfigurationError

if TYPE_CHECKING:
    from aiolimiter import AsyncLimiter

    from chainapi._http.service import Service
    from chainapi._http.telemetry import Telemetry
    from chainapi._limits.gates import Gates
    from chainapi._limits.view import Limit
    from chainapi.events import Event
    from chainapi.share.link import Carrier

__all__ = ["Session"]

DEFAULT_TIMEOUT = 30.0  # seconds
DEFAULT_MAX_ATTEMPTS = 5
DEFAULT_LIMITER = LimiterOptions()


class Session(AsyncContextOnly, SessionView):
    """Client of both services, for any number of tasks of one event loop.

    It can be made before a loop runs, and belongs to the loop of its first use. Leave its ``async with``
    block, or await `aclose`, to close it. Nothing is sent before the first page is requested. `with_options`
    returns views of the session, with other options for some of its calls.

    Args:
        provider: a deployment of the services, or its name: "public" is `Provider.PUBLIC`. By default the
            variable CHAINAPI_PROVIDER, or else the specification's, whose addresses you give. The next two
            arguments take precedence. It has the lifetime of page tokens too, and the header of the key.
        metrics_base_url: address of the Metrics API; by default the variable CHAINAPI_METRICS_BASE_URL.
        data_base_url: address of the Data API, https or loopback; by default CHAINAPI_DATA_BASE_URL.
        api_key: key of the Data API, sent to its origin only; by default CHAINAPI_API_KEY. The public service
            answers without a key too, at a lower rate.
        timeout: seconds for one attempt, from sending to the last byte.
        max_attempts: requests for one call; 1 disables retries.
        max_wait: seconds that a call may wait for quota; None waits as long as the service requires.
        max_waiting: calls that may wait for the quota of a service at once; one more that would have to wait
            raises QueueFullError. None sets no limit.
        deadline: seconds for a call with its waits, attempts, retries and decoding; then it raises
            DeadlineExceededError. None sets no deadline. Each page of a stream is a call; a call or a stream
            can have a deadline of its own.
        on_expired: "restart" begins a stream again when a token expires, "raise" raises
            PageTokenExpiredError.
        rate: your own limit for each service: a `Limit` of requests, of units with ``units=True``, or an
            `aiolimiter.AsyncLimiter`, which other parts of your program can share.
        max_in_flight: requests to each service that may be without a response at once; 100 by default, which
            the sessions of one gate share.
        limits: known limits of "metrics" or "data", for services that send no RateLimit fields.
        plan: your published plan: "unauthenticated", "free", "base", "growth" or "pro", for both services, or
            by service as in ``{"data": "free"}``; by default the variable CHAINAPI_PLAN. It sets the units of
            a minute and a day, until responses contradict it.
        limiter: seldom-used options of the rate limiter.
        priority: calls with a higher one go first in the queue for quota.
        tag: name of the spender in `quota.spenders`; a call or a stream can have a tag of its own.
        headers: further headers of each request to both services.
        share: True shares the quotas with all processes of this user and machine that do so too, the address
            of a Redis server (``redis://``) with all that name it; by default the variable CHAINAPI_SHARE.
            Processes share a quota if they have the same origin and key.
        transport: sends the requests, and stays open after the session; None uses an `AiohttpTransport` of
            its own. An `AiohttpTransport` takes the largest response, certificates and a proxy.
        now: the wall clock in Unix seconds, for the age of checkpoints and for dates in headers.
        on_event: called with each event of `chainapi.events`; it must return quickly and not raise.
        telemetry: traces and metrics, a `chainapi.otel.OpenTelemetry`. None uses the ones of the process, if
            `chainapi.otel.ChainAPIInstrumentor` set them; False uses none.

    Raises:
        ConfigurationError: an argument or a variable is invalid.

    """

    def __init__(
        self,
        *,
        provider: Provider | str | None = None,
        metrics_base_url: str | None = None,
        data_base_url: str | None = None,
        api_key: str | None = None,
        timeout: float = DEFAULT_TIMEOUT,
        max_attempts: int = DEFAULT_MAX_ATTEMPTS,
        max_wait: float | None = None,
        max_waiting: int | None = None,
        deadline: float | None = None,
        on_expired: Literal["restart", "raise"] = "restart",
        rate: Limit | AsyncLimiter | None = None,
        max_in_flight: int | None = None,
        limits: Mapping[str, Sequence[Limit]] | None = None,
        plan: str | Mapping[str, str] | None = None,
        limiter: LimiterOptions = DEFAULT_LIMITER,
        priority: int = 0,
        tag: str = "",
        headers: Mapping[str, str] | None = None,
        share: bool | str | Carrier | None = None,
        transport: Transport | None = None,
        now: Callable[[], float] = time.time,
        on_event: Callable[[Event], None] | None = None,
        telemetry: Telemetry | Literal[False] | None = None,
        **unknown: Never,
    ) -> None:
        from chainapi._api import parts

        key = None if api_key is None else Secret(api_key)
        del api_key  # later tracebacks do not show it among the variables
        _refuse_unknown(unknown)
        observer = parts.telemetry_of(telemetry)
        emit = parts.Emitter(
            *(() if observer is None else (observer.on_event,)),
            *(() if on_event is None else (function("on_event", on_event),)),
        )
        one_of("on_expired", on_expired, ("restart", "raise"))
        reached = _transport(transport)
        if not isinstance(limiter, LimiterOptions):
            raise ConfigurationError(f"limiter={quoted(limiter)} must be a chainapi.LimiterOptions")
        longest = inf if limiter.max_stop is None else limiter.max_stop
        retries = parts.Retries(random.random, longest)
        given = {
            "timeout": seconds_of("timeout", timeout),  # of a view, None is the session's
            "max_attempts": whole_number("max_attempts", max_attempts),
            "max_wait": max_wait,
            "max_waiting": max_waiting,
            "deadline": deadline,
            "priority": priority,
            "headers": headers,
        }
        options = parts.call_options(parts.CallOptions(), given)
        make_service = partial(parts.Service, transport=reached, telemetry=observer)
        make_member = partial(
            parts.Member,
            rate=_rate(rate),
            max_in_flight=None if max_in_flight is None else whole_number("max_in_flight", max_in_flight),
            probe=limiter.probe,
            max_stop=longest,
            now=function("now", now),
            tag=tag_of(tag),
            timeout=options.timeout,
        )
        known = _limits(limits, plans(plan))
        try:
            configs = resolve(
                provider,
                metrics_base_url=metrics_base_url,
                data_base_url=data_base_url,
                api_key=None if key is None else key.reveal(),
            )
        except ConfigurationError as error:
            raise error.with_traceback(None) from None  # its frames have the key
        services: dict[str, Service | Unconfigured] = {}
        for name, config in zip(("metrics", "data"), configs, strict=True):
            if isinstance(config, Unconfigured):
                services[name] = config
            else:
                events = parts.ServiceEvents(name, emit)
                member = make_member(
                    on_wait=events.on_wait, on_plan=events.on_plan, limits=known.get(name, ())
                )
                services[name] = make_service(config, member=member, events=events)
        gates = _gates(transport, limiter, share, rate)
        connection = parts.Connection(services, reached, transport is None, retries, gates, on_expired)
        super().__init__(connection, options)
        if observer is not None:
            observer.observe(connection)

    def __repr__(self) -> str:
        if "connection" not in vars(self):  # refused arguments: a traceback shows it too
            return "<Session without a service>"
        return super().__repr__()

    def __reduce__(self) -> NoReturn:
        self.connection.__reduce__()

    async def __aenter__(self) -> Self:
        self.connection.enter()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the session and its connections.

        Calls under way raise SessionClosedError. A transport passed by the user stays open. Closing a session
        again does nothing.

        Raises:
            ConfigurationError: the session belongs to another event loop, which still runs.

        """
        await self.connection.aclose()


_ARGUMENTS = tuple(name for name in Session.__init__.__annotations__ if name not in ("unknown", "return"))
# Arguments of the values of some arguments.
_INNER = {
    "provider": (Provider, [one.name for one in fields(Provider)]),
    "transport": (AiohttpTransport, AiohttpTransport.__init__.__annotations__),
    "limiter": (LimiterOptions, [one.name for one in fields(LimiterOptions)]),
}


def _refuse_unknown(unknown: dict[str, Any]) -> None:
    for argument, (owner, names) in _INNER.items():
        for name in unknown.keys() & {*names}:
            unknown.clear()  # a traceback shows it
            raise ConfigurationError(
                f"Session got an unknown argument {name!r}; {owner.__name__} takes it: write"
                f" Session({argument}={owner.__name__}({name}=...))"
            )
    refuse_unknown(unknown, _ARGUMENTS, "Session", unknown)


def _gates(
    transport: Transport | None,
    limiter: LimiterOptions,
    share: bool | str | Carrier | None,
    rate: Limit | AsyncLimiter | None,
) -> Gates:
    from chainapi._api import parts

    if limiter.isolated and share:
        raise ConfigurationError("isolated=True and share= contradict each other: leave one of them out")
    if limiter.isolated:
        return parts.OwnGates()
    own = None if leads_to_network(transport) else transport
    if share is None and not os.environ.get("CHAINAPI_SHARE"):
        return parts.LoopGates(own)
    from chainapi.share.participant import rate_of  # imported here: most sessions share nothing
    from chainapi.share.registry import SharedGates, chosen

    choice = chosen(share)
    if choice is None:
        return parts.LoopGates(own)
    if rate is not None:
        rate_of(rate)  # raises now what would otherwise fail at the first request
    return SharedGates(choice, limiter.on_unavailable)


def _rate(value: Limit | AsyncLimiter | None) -> Limit | AsyncLimiter | None:
    from chainapi._api import parts

    if value is not None and not parts.is_rate(value):
        raise ConfigurationError(
            f"rate={quoted(value)} must be a Limit, such as Limit(50, per=1.0), or an aiolimiter.AsyncLimiter"
        )
    return value


def _transport(given: Transport | None) -> Transport:
    if given is None:
        return AiohttpTransport()
    if not callable(getattr(given, "send", None)):
        raise ConfigurationError(
            f"transport={quoted(given)} must have the methods of a chainapi.transport.Transport"
        )
    return given


def _limits(limits: object, plans: Mapping[str, str]) -> Mapping[str, Sequence[Limit]]:
    if limits is None and not plans:
        return {}
    from chainapi._limits.view import limits_of, plan_limits

    given = {} if limits is None else limits
    if not isinstance(given, Mapping) or not set(given) <= {"metrics", "data"}:
        raise ConfigurationError("limits must map 'metrics' or 'data' to a sequence of Limit")
    known = {name: limits_of(f"limits[{name!r}]", own) for name, own in given.items()}
    published = {name: plan_limits(name, plan) for name, plan in plans.items()}
    return {name: (*known.get(name, ()), *published.get(name, ())) for name in ("metrics", "data")}

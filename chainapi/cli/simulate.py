"""``chainapi simulate``: both services on this machine."""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from cyclopts import Parameter, default_name_transform
from cyclopts.validators import Number

from chainapi._http.message import is_header_name
from chainapi.cli.common import Amount, Flag, Hidden, Many, Seconds, on_signal
from chainapi.errors import ConfigurationError
from chainapi.simulator import Anomalies, Fault, Simulator

__all__ = ["simulate"]


def _header_name(_: object, value: object) -> None:
    if not is_header_name(value):
        raise ValueError("Must be the name of a header.")


def _option_of(name: str) -> str:
    return "anomalies-in" if name == "route" else default_name_transform(name)


async def simulate(
    *command: str,
    port: Annotated[int, Parameter(validator=Number(gte=0, lte=65_535))] = 0,
    limit: Annotated[int | None, Parameter(validator=Number(gte=0))] = None,
    window: Seconds = 60.0,
    weighted: Flag = False,
    metrics_limit: Annotated[int | None, Parameter(validator=Number(gte=0))] = None,
    metrics_window: Seconds = 60.0,
    chains: Annotated[list[int] | None, Parameter(negative=(), consume_multiple=True)] = None,
    points: Amount = 1_000,
    rows: Amount = 1_000,
    grow_every: Seconds | None = None,
    token_lifetime: Seconds = 86_400.0,
    expired_status: Annotated[int, Parameter(validator=Number(gte=400, lte=599))] = 400,
    api_key_header: Annotated[str, Parameter(validator=_header_name)] = "x-data-api-key",
    api_key_required: bool = True,
    latency: Annotated[float, Parameter(validator=Number(gte=0))] = 0.0,
    fault: Many = None,
    seed: int = 0,
    anomalies: Annotated[
        Anomalies | None, Parameter(name="*", group="Anomalies", name_transform=_option_of)
    ] = None,
    terminal: Hidden,
) -> int:
    """Simulate both services on this machine until Ctrl-C, or while a command runs.

    The variables with their addresses are printed first. A command after `--` has them set instead, and its
    exit code is the exit code.

    A fault is ROUTE=PART,PART,... such as data.evm.blocks=status:503,every:3.
    ROUTE is the name of a route, a path, or * for every request; a * in a name or
    a path stands for any part of it. The parts are the fault:
      status:CODE with message:TEXT and retry-after:SECONDS, an error;
      disconnect, stall (no response), truncate and stall-body (half of the body);
      expire (of the page token), malformed (one row);
      slow:SECONDS, alone or with one of these;
    and when: at:N, the N-th request to ROUTE; every:N, each N-th one; times:N, at
    most N of them; share:S, a share of them; page:N, those for page N; after-page:N,
    those for a page beyond page N. Without at, every and share, it happens to each
    request.

    Args:
        command: Command to run, with its arguments, after `--`.
        port: Port on the loopback interface; 0 chooses a free one.
        limit: Requests per window of the Data API; unlimited by default.
        window: Seconds of that window.
        weighted: Count compute units instead of requests, by the weight of each route.
        metrics_limit: Requests per window of the Metrics API, which sends no RateLimit fields.
        metrics_window: Seconds of that window.
        chains: Ids of the chains, in the order of their list.
        points: Daily points of each chain.
        rows: Rows of every other list.
        grow_every: Seconds between new rows at the head of each list; none by default.
        token_lifetime: Seconds until a page token expires.
        expired_status: Status of the response to an expired page token.
        api_key_header: Header with the key of the Data API.
        api_key_required: Refuse requests to the Data API without a key.
        latency: Seconds before each response.
        fault: Fault of the requests to a route, as above; may be repeated.
        seed: Seed of everything random.
        anomalies: Anomalies of lists.
        terminal: The streams of the command.

    """
    settings: dict[str, Any] = {} if chains is None else {"chains": chains}
    settings |= {"faults": [_fault(text) for text in fault or ()]}
    try:
        simulator = Simulator(
            seed,
            port=port,
            limit=limit,
            window=window,
            weighted=weighted,
            metrics_limit=metrics_limit,
            metrics_window=metrics_window,
            points=points,
            rows=rows,
            grow_every=grow_every,
            token_lifetime=token_lifetime,
            expired_status=expired_status,
            api_key_header=api_key_header,
            api_key_required=api_key_required,
            latency=latency,
            anomalies=[] if anomalies is None else [anomalies],
            **settings,
        )
    except ValueError as error:  # of the chains: the options have checks of their own
        raise ConfigurationError(f"--{error}") from None
    async with simulator:
        if command:
            return await _run(command, simulator.environment())
        for name, value in simulator.environment().items():
            terminal.out.write(f"{name}={shlex.quote(value)}\n")
        terminal.out.flush()
        await asyncio.get_running_loop().create_future()
    return 0


async def _run(command: Sequence[str], variables: Mapping[str, str]) -> int:
    """Run a command to its end, and return its exit code as a shell does.

    Raises:
        ConfigurationError: there is no such command.

    """
    try:
        process = await asyncio.create_subprocess_exec(*command, env={**os.environ, **variables})
    except OSError as error:
        raise ConfigurationError(f"{command[0]} cannot be run: {error.strerror}; check its path") from None
    try:
        # The terminal sends Ctrl-C to the command too, and that decides what it means.
        with on_signal(signal.SIGINT, lambda: None), on_signal(signal.SIGTERM, process.terminate):
            code = await process.wait()
    finally:
        if process.returncode is None:
            process.terminate()
            await process.wait()
    return code if code >= 0 else 128 - code


def _fault(text: str) -> Fault:
    try:
        return Fault.parse(text)
    except ValueError as error:
        raise ConfigurationError(f"--fault: {error}") from None

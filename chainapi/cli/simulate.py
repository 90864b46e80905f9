"""``chainapi simulate``: both services on this machine."""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
from collections.abc import Mapping, Sequence
from typing import Annotated

from attrs import asdict, field, frozen
from cyclopts import Parameter, default_name_transform
from cyclopts.types import NonNegativeFloat, NonNegativeInt, Port, PositiveFloat
from cyclopts.validators import Number

from chainapi.cli.common import Flag, Hidden, on_signal
from chainapi.cli.wording import option_text
from chainapi.errors import ConfigurationError
from chainapi.simulator import Anomalies, Fault, Simulator
from chainapi.simulator.settings import API_KEY_HEADER, CHAINS

__all__ = ["simulate"]


def _option_of(name: str) -> str:
    return "anomalies-in" if name == "route" else default_name_transform(name)


@Parameter(name="*")
@frozen(kw_only=True)
class SimulatorOptions:
    """Settings of the simulator.

    Attributes:
        port: Port on the loopback interface; 0 chooses a free one.
        limit: Requests per window of the Data API; unlimited by default.
        window: Seconds of that window.
        day_limit: Requests per day of the Data API.
        metrics_limit: Requests per window of the Metrics API, which sends no RateLimit fields.
        metrics_window: Seconds of that window.
        metrics_day_limit: Requests per day of the Metrics API.
        weighted: Count compute units instead of requests, by the weight of each route.
        block: Seconds for which a key is refused after three requests during a wait.
        chains: Ids of the chains, in the order of their list.
        points: Daily points of each chain.
        rows: Rows of every other list.
        grow_every: Seconds between new rows at the head of each list; none by default.
        token_lifetime: Seconds until a page token expires.
        expired_status: Status of the response to an expired page token.
        api_key_header: Header with the key of the Data API.
        api_key_required: Refuse requests to the Data API without a key.
        latency: Seconds before each response.
        faults: Fault of the requests to a route, as above; may be repeated.
        seed: Seed of everything random.

    """

    port: Port = 0
    limit: NonNegativeInt | None = None
    window: PositiveFloat = 60.0
    day_limit: NonNegativeInt | None = None
    metrics_limit: NonNegativeInt | None = None
    metrics_window: PositiveFloat = 60.0
    metrics_day_limit: NonNegativeInt | None = None
    weighted: Flag = False
    block: PositiveFloat | None = None
    chains: Annotated[tuple[int, ...], Parameter(negative=(), consume_multiple=True)] = CHAINS
    points: NonNegativeInt = 1_000
    rows: NonNegativeInt = 1_000
    grow_every: PositiveFloat | None = None
    token_lifetime: PositiveFloat = 86_400.0
    expired_status: Annotated[int, Parameter(validator=Number(gte=400, lte=599))] = 400
    api_key_header: str = API_KEY_HEADER
    api_key_required: bool = True
    latency: NonNegativeFloat = 0.0
    faults: Annotated[list[str], Parameter(name="--fault", negative=())] = field(factory=list)
    seed: int = 0


DEFAULT = SimulatorOptions()


async def simulate(
    *command: str,
    options: SimulatorOptions = DEFAULT,
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
        options: Settings of the simulator.
        anomalies: Anomalies of lists.
        terminal: The streams of the command.

    """
    settings = asdict(options)
    try:
        settings["faults"] = [Fault.parse(text) for text in options.faults]
    except ValueError as error:
        raise ConfigurationError(f"--fault: {error}") from None
    try:
        simulator = Simulator(**settings, anomalies=[] if anomalies is None else [anomalies])
    except ValueError as error:  # of the chains or the header: the options have checks of their own
        raise ConfigurationError(option_text(error)) from None
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

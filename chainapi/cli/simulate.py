"""``chainapi simulate``: both services on this machine."""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
from collections.abc import Iterable, Mapping, Sequence  # noqa: F401 - cyclopts reads the types of Settings here
from typing import Annotated

from attrs import define, field, fields
from cyclopts import CoercionError, Parameter, Token, default_name_transform
from cyclopts.types import NonNegativeFloat, Port

from chainapi.cli.common import Hidden, on_signal
from chainapi.errors import ConfigurationError
from chainapi.simulator import Anomalies, Fault, Simulator
from chainapi.simulator.settings import Settings

__all__ = ["simulate"]


def _option_of(name: str) -> str:
    return "anomalies-in" if name == "route" else default_name_transform(name)


def _faults(_: object, tokens: Sequence[Token]) -> tuple[Fault, ...]:
    try:
        return tuple(Fault.parse(token.value) for token in tokens)
    except ValueError as error:
        raise CoercionError(msg=f"--fault: {error}") from None


@Parameter(name="*", consume_multiple=True, negative_iterable=())
@define(eq=False)
class SimulatorOptions(Settings):
    """Settings of the simulator, and of its server.

    Attributes:
        port: port on the loopback interface; 0 chooses a free one.
        latency: seconds before each response.
        faults: fault of the requests to a route, as above; may be repeated.

    """

    port: Port = field(default=0, kw_only=True)
    latency: NonNegativeFloat = field(default=0.0, kw_only=True)
    # Types for cyclopts, of fields that Settings converts.
    faults: Annotated[  # pyright: ignore[reportIncompatibleVariableOverride]
        tuple[Fault, ...], Parameter(name="--fault", converter=_faults, n_tokens=1, negative=())
    ] = ()
    anomalies: Annotated[tuple[Anomalies, ...], Parameter(parse=False)] = ()  # pyright: ignore[reportIncompatibleVariableOverride]


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
    settings = {one.name: getattr(options, one.name) for one in fields(SimulatorOptions)}
    if anomalies is not None:
        settings["anomalies"] = anomalies
    async with Simulator(**settings) as simulator:
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

"""Scripts in one line: `run` makes the session, runs a function and closes it."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Awaitable, Callable, Coroutine
from inspect import signature
from typing import Any, TypeVar, cast

from chainapi.errors import ConfigurationError
from chainapi.session import Session

__all__ = ["check_main", "refuse_running_loop", "run"]

T = TypeVar("T")
_MAIN = "`async def main(session)`"
RARE_COLLECTIONS = (50_000, 20, 100)  # thresholds of the garbage collector


def run(
    main: Callable[[Session], Coroutine[Any, Any, T]],
    *,
    loop_factory: Callable[[], asyncio.AbstractEventLoop] | None = None,
    **arguments: Any,
) -> T:
    """Run an async function with a session of its own, and return its result.

    The session is closed when it returns. Ctrl-C cancels the function, closes the session, and ends the
    program with exit status 130 and without a traceback. Meanwhile the garbage collector runs after 50,000
    new objects, unless `gc.set_threshold` set more: thousands of streams at once have many, and few
    of them are garbage.

    Args:
        main: the function; its argument is the session.
        loop_factory: makes the event loop, such as ``uvloop.new_event_loop``; None for asyncio's.
        arguments: arguments of `Session`.

    Raises:
        ConfigurationError: an argument is invalid, or an event loop runs already, as in a notebook.
        SystemExit: Ctrl-C was pressed.

    """
    refuse_running_loop("run() makes one of its own")
    check_main(main)

    async def with_session() -> T:
        async with Session(**arguments) as session:
            work: Any = main(session)
            if not isinstance(work, Awaitable):
                raise ConfigurationError(f"run() takes an async function: write {_MAIN}")
            return cast("T", await work)

    thresholds = gc.get_threshold()
    if thresholds[0] < RARE_COLLECTIONS[0]:
        gc.set_threshold(*RARE_COLLECTIONS)
    try:
        with asyncio.Runner(loop_factory=loop_factory) as runner:
            return runner.run(with_session())
    except KeyboardInterrupt:
        raise SystemExit(130) from None  # 128 and the number of the signal, as shells have it
    finally:
        gc.set_threshold(*thresholds)


def check_main(main: Callable[[Session], object]) -> None:
    """Refuse what cannot be called with a session.

    Raises:
        ConfigurationError: it is no function, or one without that argument.

    """
    if not callable(main):
        raise ConfigurationError(
            "run() takes a function: run(main), not run(main()), or run(lambda session: export(...))"
        )
    try:
        signature(main).bind(None)
    except ValueError:  # Python does not know the signature of some built-in functions
        return
    except TypeError:
        raise ConfigurationError(f"run() passes the session to the function: write {_MAIN}") from None


def refuse_running_loop(why: str) -> None:
    """Refuse a call inside of a running event loop.

    Raises:
        ConfigurationError: one runs in this thread; the message has the reason.

    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise ConfigurationError(
        f"an event loop runs in this thread, as in a notebook or an async view, and {why}: use"
        " `async with Session() as session:` and await its methods"
    )

"""Process that shares a quota through the carrier of one machine; for tests that kill and stop it.

It writes ``hosts`` when it becomes the host, and ``hosted by PID`` when a host answered. With ``--fork`` it
then forks a child that lives until the standard input ends. It ends with its standard input.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import sys

from chainapi.share.link import Link, Serve
from chainapi.share.local import LocalCarrier


def make_host(memory: bytes, age: float) -> Serve:
    """Host: return the number of this process for each frame."""
    print("hosts", flush=True)

    def serve(link: Link) -> None:
        link.start(lambda _: link.send(str(os.getpid()).encode()), lambda: None)

    return serve


async def hosted(carrier: LocalCarrier) -> None:
    """Connect, and connect again whenever the link breaks."""
    while True:
        link = await carrier.connect("q", make_host)
        broken = asyncio.Event()
        link.start(lambda frame: print("hosted by", frame.decode(), flush=True), broken.set)
        link.send(b"?")
        await broken.wait()


def outlive(descriptor: int) -> None:
    """Wait until the input ends."""
    print("forked", os.getpid(), flush=True)
    os.read(descriptor, 1)


async def main(directory: str, tick: str, *options: str) -> None:
    """Run until the standard input ends, or this process is killed."""
    carrier = LocalCarrier(directory, tcp="--tcp" in options, tick=float(tick))
    connected = asyncio.create_task(hosted(carrier))
    command = asyncio.get_running_loop().run_in_executor
    while await command(None, os.read, 0, 1):
        # A child of its own, as a pool of workers has it.
        multiprocessing.get_context("fork").Process(target=outlive, args=(os.dup(0),)).start()
    connected.cancel()
    await carrier.aclose("q")
    os._exit(0)  # without waiting for children


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))

"""Process that shares a quota over Redis, and prints what happens.

`python -m tests.share.redis.host_process URL NAME TTL` ends when its standard input does. As the host it
prints each frame that it serves, and echoes it. A child that it forks does nothing, and ends in the same way.
"""

from __future__ import annotations

import asyncio
import os
import sys

from chainapi.share.link import Link, Serve
from chainapi.share.redis import RedisCarrier


def _say(*words: str) -> None:
    print(*words, flush=True)


def _make_host(memory: bytes, _: float) -> Serve:
    _say("elected", memory.decode())

    def serve(link: Link) -> None:
        def answer(frame: bytes) -> None:
            _say("served", frame.decode())
            link.send(frame)

        link.start(answer, lambda: _say("host's end broken"))

    return serve


async def main(url: str, name: str, ttl: float) -> None:
    """Share the quota until standard input ends."""
    carrier = RedisCarrier(url, ttl=ttl, silence=ttl)
    link = await carrier.connect(name, _make_host)
    link.start(lambda frame: _say("received", frame.decode()), lambda: _say("broken"))
    if os.fork() == 0:
        while os.read(0, 1):
            pass
        os._exit(0)
    _say("connected")
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    await carrier.aclose(name)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], float(sys.argv[3])))

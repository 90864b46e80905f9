"""Participant in a quota over Redis: a process that elects or becomes the host."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from functools import partial
from typing import TypeAlias

from chainapi.core.share.packets import (
    NONCE,
    Incoming,
    Kind,
    Outgoing,
    Packet,
    link_keys,
    link_of,
    open_packet,
    seal,
)
from chainapi.errors import ShareUnavailableError
from chainapi.share.link import Link, Serve
from chainapi.share.redis.election import Election, Elsewhere
from chainapi.share.redis.links import RedisLink
from chainapi.share.redis.term import Term, Times, lock_clock
from chainapi.share.redis.wire import Answer, LostError, RefusedError, Wire, resolve

__all__ = ["Participant"]

_REPLICA = ("READONLY", "MASTERDOWN")  # codes of errors of a server that is not the primary (any more)

MakeHost: TypeAlias = Callable[[bytes, float], Serve]


class Participant:
    """This process in one quota, as long as one connection to Redis lasts.

    It has an id, and a channel of that id from which it receives the packets of its link to the host, or as
    the host those of all links.
    """

    def __init__(self, wire: Wire, election: Election, key: bytes, times: Times) -> None:
        self._wire, self._election, self._key, self._times = wire, election, key, times
        self._loop = asyncio.get_running_loop()
        self._me = os.urandom(16).hex().encode()
        self._term: Term | None = None
        self._electing = asyncio.Lock()
        self._joining: dict[bytes, _Joining] = {}  # by the names of links
        self._links: dict[bytes, RedisLink] = {}  # likewise
        self._timer: asyncio.TimerHandle | None = None
        self.ended = False

    async def connect(self, make_host: MakeHost) -> Link:
        """Return a link to the host, or become it; see `Carrier.connect`."""
        until = self._loop.time() + 2 * max(self._times.ttl, self._times.silence)
        while self._loop.time() < until:
            async with self._electing:
                if self._timer is None:
                    await self._begin()
                result = await self._elect()
            if isinstance(result, Term):
                return _own_link(result, make_host)
            link = await self._join(result)
            if link is not None:
                return link
        raise ShareUnavailableError(
            "the process that hosts the quota does not answer over Redis: look whether it uses the same "
            "secret, and the same version of chainapi"
        )

    async def observe(self) -> Link | None:
        """Return a link to the host without becoming it; None if no process hosts."""
        if self._timer is None:
            await self._begin()
        until = self._loop.time() + self._times.silence
        while self._loop.time() < until:
            answered: asyncio.Future[Answer] = self._loop.create_future()
            self._election.find(self._wire, partial(resolve, answered))
            host = self._election.found(self._wire.checked(await self._answer(answered)))
            if host is None:
                return None
            link = await self._join(host)
            if link is not None:
                return link
            await asyncio.sleep(self._times.beat)  # it ended, or is busy
        return None

    def store(self, memory: bytes) -> None:
        """Store the memory of the quota, if this process is the host."""
        if self._term is not None and not self._term.ended:
            self._term.store(memory)

    def end(self) -> None:
        """End this part: break all links, and leave the quota to others."""
        if self.ended:
            return
        self.ended = True
        if self._timer is not None:
            self._timer.cancel()
        for joining in self._joining.values():
            joining.fail(LostError())
        if self._term is not None:
            self._term.end()
        for link in self._links.values():
            link.end()
        self._wire.unsubscribe(self._election.channel(self._me))

    # --- candidate ------------------------------------------------------------------------------

    async def _begin(self) -> None:
        answered: asyncio.Future[Answer] = self._loop.create_future()
        channel = self._election.channel(self._me)
        self._wire.subscribe(channel, self._receive, lambda answer: resolve(answered, answer))
        self._wire.checked(await self._answer(answered))
        self._timer = self._loop.call_later(self._times.beat, self._tick)

    async def _elect(self) -> Term | Elsewhere:
        if self._term is not None and self._term.may_serve():
            return self._term
        sent = lock_clock()
        answered: asyncio.Future[Answer] = self._loop.create_future()
        self._election.elect(self._wire, self._me, lambda answer: self._elected(answer, sent, answered))
        answer: Answer = await self._answer(answered)
        if isinstance(answer, RefusedError) and answer.code in _REPLICA:
            self._wire.abort()  # connect again: the address may lead to the primary by then
        result: Term | Elsewhere = self._wire.checked(answer)
        return result

    def _elected(self, answer: Answer, sent: float, answered: asyncio.Future[Answer]) -> None:
        """Begin the term at once: requests for links may follow in the same data."""
        if not isinstance(answer, Exception):
            answer = self._election.result(answer)
            if not isinstance(answer, Elsewhere):
                answer = Term(self._wire, self._election, answer, sent, self._key, self._times)
                if self.ended or answered.done():
                    answer.end()
                else:
                    self._term = answer
        resolve(answered, answer)

    async def _answer(self, answered: asyncio.Future[Answer]) -> Answer:
        """Return an answer of Redis; without one in time the connection is of no use."""
        try:
            async with asyncio.timeout(self._times.timeout):
                return await answered
        except TimeoutError:
            self._wire.abort()
            raise self._wire.silent(self._times.timeout) from None

    # --- its link -------------------------------------------------------------------------------

    async def _join(self, host: Elsewhere) -> RedisLink | None:
        """Return a link to the host; None if it ended, or does not answer within one beat."""
        joining = _Joining(host.term, os.urandom(NONCE), self._election.channel(host.host))
        self._joining[joining.link] = joining
        packet = seal(self._key, Packet(Kind.OPEN, host.term, joining.link, 0, self._me))
        self._wire.call(joining.published, b"PUBLISH", joining.channel, packet)
        try:
            async with asyncio.timeout(self._times.beat):
                link: RedisLink | None = self._wire.checked(await joining.joined)
                return link
        except TimeoutError:
            return None
        finally:
            del self._joining[joining.link]

    def _accepted(self, joining: _Joining, data: bytes) -> None:
        packet = open_packet(self._key, data)
        if (
            packet is None
            or (packet.kind, packet.term) != (Kind.ACCEPT, joining.term)
            or joining.joined.done()
        ):
            return
        term, link = packet.term, packet.link
        to_host, to_participant = link_keys(self._key, term, link, packet.payload)
        directions = Outgoing(to_host, term, link), Incoming(to_participant, term, link)
        made = RedisLink(self._wire, link, joining.channel, directions, self._times.silence)
        self._links[link] = made
        made.beat()  # the host serves the link from then on
        joining.joined.set_result(made)

    # --- all ------------------------------------------------------------------------------------

    def _receive(self, data: bytes) -> None:
        """Take a packet of any link, or of one to be."""
        name = link_of(data)
        if (link := self._links.get(name)) is not None:
            link.receive(data)
        elif (joining := self._joining.get(name)) is not None and not joining.joined.done():
            self._accepted(joining, data)
        elif self._term is not None and not self._term.receive(name, data):
            packet = open_packet(self._key, data)
            if packet is not None and packet.kind == Kind.OPEN:
                self._term.request(packet)

    def _tick(self) -> None:
        self._timer = self._loop.call_later(self._times.beat, self._tick)
        if self._term is not None:
            self._term.tick()
        for link in self._links.values():
            link.tick(self._times.idle)
        self._links = {name: link for name, link in self._links.items() if link.open}


class _Joining:
    """Request for a link that is under way.

    `joined` gets the link, None without a host, or an exception.
    """

    def __init__(self, term: int, link: bytes, channel: bytes) -> None:
        self.term, self.link, self.channel = term, link, channel
        self.joined: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()

    def published(self, receivers: Answer) -> None:
        """Note how many processes received the request."""
        if isinstance(receivers, Exception):
            self.fail(receivers)
        elif receivers == 0:
            resolve(self.joined, None)

    def fail(self, error: Exception) -> None:
        """Give up the request."""
        resolve(self.joined, error)


def _own_link(term: Term, make_host: MakeHost) -> Link:
    """Return the link of a host to itself, which makes the host first."""
    if not term.begun:
        try:
            term.begin(make_host(*term.memory))
        except BaseException:
            term.end()
            raise
    return term.own_link()

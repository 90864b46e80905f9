"""Election of a host in Redis, by Redis's clock, and the memory for later hosts.

Three keys for each quota: the lock with the host and its term, the number of the last term, and the memory of
the quota. Scripts read and write them in one step. `{...}` in a key puts all three on one node of a cluster.
"""

from __future__ import annotations

import re

from attrs import frozen

from chainapi.share.redis.wire import Answer, OnAnswer, Wire

__all__ = ["Elected", "Election", "Elsewhere"]

KEEP = 7 * 86_400  # seconds: memory of a quota that no process has used for so long is of no use

# Value of the lock: a term that fits into a packet, and the id of a participant. Any other counts for none.
_HELD = re.compile(rb"(\d{1,18}):([0-9a-f]{32})")

# A lock whose host no longer listens is free: the host ended, or it lost its connection and serves no link.
# Terms count microseconds of Redis's clock, so a server that lost its data does not repeat them. A last term
# that is no exact number counts for none: two hosts would have one term, or a lock that nobody can read.
_ELECT = """
local held = redis.call('GET', KEYS[1]) or ''
local id = #held <= 51 and string.match(held, '^%d+:(%x+)$')
if id and #id == 32 and id ~= ARGV[1] and redis.call('PUBSUB', 'NUMSUB', ARGV[2] .. id)[2] > 0 then
  return {0, held}
end
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local last = tonumber(redis.call('GET', KEYS[2])) or 0
if not (last > 0 and last < 2 ^ 53) then last = 0 end
local term = string.format('%.0f', math.max(now, last + 1))
redis.call('SET', KEYS[1], term .. ':' .. ARGV[1], 'PX', ARGV[3])
redis.call('SET', KEYS[2], term, 'PX', ARGV[4])
local memory = redis.call('HMGET', KEYS[3], 'data', 'at')
local age = math.max(0, now - (tonumber(memory[2] or now) or now))
return {1, term .. ':' .. ARGV[1], memory[1] or '', string.format('%.0f', age)}
"""

_RENEW = """
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
return redis.call('PEXPIRE', KEYS[1], ARGV[2])
"""

_RESIGN = """
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
return redis.call('DEL', KEYS[1])
"""

_STORE = """
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
local time = redis.call('TIME')
redis.call('HSET', KEYS[2], 'data', ARGV[2], 'at', string.format('%.0f', time[1] * 1000000 + time[2]))
return redis.call('PEXPIRE', KEYS[2], ARGV[3])
"""


@frozen
class Elected:
    """Result of an election that this process won.

    Term, value of the lock, memory of the quota, and the age of the memory in seconds.
    """

    term: int
    value: bytes
    memory: bytes
    age: float


@frozen
class Elsewhere:
    """Another process is the host: its id and its term."""

    host: bytes
    term: int


class Election:
    """Keys and channels of one quota, and the scripts on them."""

    def __init__(self, prefix: str, name: str, ttl: float) -> None:
        base = f"{prefix}:{{{name}}}:"
        self._lock, self._terms, self._memory = base + "host", base + "term", base + "memory"
        self._channels = base + "to:"
        self._ttl = round(ttl * 1000)

    def channel(self, participant: bytes) -> bytes:
        """Return the channel of a participant, by its id."""
        return self._channels.encode() + participant

    def elect(self, wire: Wire, me: bytes, on_answer: OnAnswer) -> None:
        """Become the host, unless another process is; see `result` for the answer."""
        keys = (self._lock, self._terms, self._memory)
        wire.call(on_answer, "EVAL", _ELECT, 3, *keys, me, self._channels, self._ttl, KEEP * 1000)

    def find(self, wire: Wire, on_answer: OnAnswer) -> None:
        """Read who the host is; see `found` for the answer."""
        wire.call(on_answer, "GET", self._lock)

    def found(self, answer: Answer) -> Elsewhere | None:
        """Return the host from the answer to `find`; None without one."""
        held = None if answer is None else _HELD.fullmatch(answer)
        return None if held is None else Elsewhere(held[2], int(held[1]))

    def result(self, answer: Answer) -> Elected | Elsewhere:
        """Return the result of an election from the answer to it."""
        term, _, host = answer[1].partition(b":")
        if answer[0]:
            return Elected(int(term), answer[1], answer[2], int(answer[3]) / 1e6)
        return Elsewhere(host, int(term))

    def renew(self, wire: Wire, value: bytes, on_answer: OnAnswer) -> None:
        """Renew the lock of the host; the answer is 0 if it lost it."""
        wire.call(on_answer, "EVAL", _RENEW, 1, self._lock, value, self._ttl)

    def resign(self, wire: Wire, value: bytes) -> None:
        """Give up being the host."""
        wire.call(lambda _: None, "EVAL", _RESIGN, 1, self._lock, value)

    def store(self, wire: Wire, value: bytes, memory: bytes) -> None:
        """Store the memory of the quota, if the host still is the host."""
        wire.call(lambda _: None, "EVAL", _STORE, 2, self._lock, self._memory, value, memory, KEEP * 1000)

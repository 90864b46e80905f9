"""One quota over Redis, for processes on several machines (extra ``redis``)."""

from chainapi.share.redis.carrier import RedisCarrier

__all__ = ["RedisCarrier"]

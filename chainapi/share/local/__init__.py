"""One quota for the processes of one user on one machine."""

from chainapi.share.local.carrier import LocalCarrier

__all__ = ["LocalCarrier"]

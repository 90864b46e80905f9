"""Names of shared quotas: keyed digests, which show neither API key nor origin."""

from __future__ import annotations

from hashlib import blake2b

__all__ = ["derived_key", "frame_key", "quota_name"]


def quota_name(origin: str, api_key: str | None) -> str:
    """Return the name of the quota of a key at an origin: 32 hexadecimal digits.

    It is the same in every process, and does not reveal the key: the key is the digest's key, after a
    digest of its own because BLAKE2 takes 64 bytes at most.
    """
    return blake2b(
        origin.encode(), key=derived_key(api_key), digest_size=16, person=b"chainapi quota"
    ).hexdigest()


def frame_key(origin: str, api_key: str | None) -> bytes:
    """Return the secret that authenticates the frames of a quota: 32 bytes.

    Without an API key everybody can derive it.
    """
    key = derived_key(api_key)
    return blake2b(origin.encode(), key=key, digest_size=32, person=b"chainapi frames").digest()


def derived_key(api_key: str | None) -> bytes:
    """Return a digest of an API key, as the key of other digests: 64 bytes."""
    return blake2b((api_key or "").encode(), digest_size=64, person=b"chainapi key").digest()

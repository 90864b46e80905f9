"""Transport in memory that records requests: for services that no test may reach."""

from __future__ import annotations

from tests.cli.terminal import ADDRESSES, Fixed

KEY = ADDRESSES["CHAINAPI_API_KEY"]


class Recorder(Fixed):
    """Public services, as far as a request reaches them: records it, and answers the same to each."""

    def __init__(self, body: object, status: int = 200) -> None:
        super().__init__(status, body)

    @property
    def places(self) -> list[str]:
        """Origins and paths of the requests."""
        return [request.url.partition("?")[0] for request in self.requests]

    @property
    def keys(self) -> list[dict[str, str]]:
        """Headers of each request that hold the key."""
        return [{name: value for name, value in one.headers.items() if KEY in value} for one in self.requests]

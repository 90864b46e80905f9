"""The routes of `session.data.icm`, and of its former name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chainapi.api.binding import Group, gets, lists
from chainapi.api.parameters import PageSize
from chainapi.api.routes import Route
from chainapi.client.pages import OnInvalid, Pages
from chainapi.core.paging.checkpoint import Checkpoint

if TYPE_CHECKING:
    from chainapi.models import IcmMessage, TeleporterMessage
    from chainapi.models.enums import Network

__all__ = ["ICM", "Teleporter"]


class Teleporter(Group):
    """Messages between chains, by their former name; use `icm`."""

    @gets(Route("/v1/teleporter/messages/{messageId}", weight="medium", deprecated=True))
    async def message(
        self, message_id: str, *, priority: int = 0, deadline: float | None = None
    ) -> TeleporterMessage:
        """Return a message; deprecated."""
        ...

    @lists(
        Route("/v1/teleporter/messages", "messages", key=("message_id",), weight="medium", deprecated=True)
    )
    def messages(
        self,
        *,
        source_blockchain_id: str | None = None,
        destination_blockchain_id: str | None = None,
        blockchain_id: str | None = None,
        to: str | None = None,
        from_: str | None = None,
        network: Network | None = None,
        page_size: PageSize | None = 100,
        resume: Checkpoint | None = None,
        on_invalid: OnInvalid = "raise",
        prefetch: int = 0,
        priority: int = 0,
        deadline: float | None = None,
    ) -> Pages[TeleporterMessage]:
        """Walk the messages, newest first; deprecated."""
        ...

    @lists(
        Route(
            "/v1/teleporter/addresses/{address}/messages",
            "messages",
            key=("message_id",),
            weight="medium",
            deprecated=True,
        )
    )
    def address_messages(
        self,
        address: str,
        *,
        network: Network | None = None,
        page_size: PageSize | None = 100,
        resume: Checkpoint | None = None,
        on_invalid: OnInvalid = "raise",
        prefetch: int = 0,
        priority: int = 0,
        deadline: float | None = None,
    ) -> Pages[TeleporterMessage]:
        """Walk the messages of an address, newest first; deprecated."""
        ...


class ICM(Group):
    """Messages between chains."""

    @gets(Route("/v1/icm/messages/{messageId}", weight="medium"))
    async def message(
        self, message_id: str, *, priority: int = 0, deadline: float | None = None
    ) -> IcmMessage:
        """Return a message."""
        ...

    @lists(Route("/v1/icm/messages", "messages", key=("message_id",), weight="medium"))
    def messages(
        self,
        *,
        source_blockchain_id: str | None = None,
        destination_blockchain_id: str | None = None,
        blockchain_id: str | None = None,
        to: str | None = None,
        from_: str | None = None,
        network: Network | None = None,
        page_size: PageSize | None = 100,
        resume: Checkpoint | None = None,
        on_invalid: OnInvalid = "raise",
        prefetch: int = 0,
        priority: int = 0,
        deadline: float | None = None,
    ) -> Pages[IcmMessage]:
        """Walk the messages, newest first."""
        ...

    @lists(Route("/v1/icm/addresses/{address}/messages", "messages", key=("message_id",), weight="medium"))
    def address_messages(
        self,
        address: str,
        *,
        network: Network | None = None,
        page_size: PageSize | None = 100,
        resume: Checkpoint | None = None,
        on_invalid: OnInvalid = "raise",
        prefetch: int = 0,
        priority: int = 0,
        deadline: float | None = None,
    ) -> Pages[IcmMessage]:
        """Walk the messages of an address, newest first."""
        ...

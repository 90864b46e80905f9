"""The routes of `session.data.webhooks`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from chainapi.api.binding import Group, gets, lists
from chainapi.api.parameters import PageSize, Wire
from chainapi.api.routes import Route
from chainapi.client.pages import OnInvalid, Pages
from chainapi.core.paging.checkpoint import Checkpoint

if TYPE_CHECKING:
    from chainapi.models import SharedSecret, Webhook
    from chainapi.models.enums import WebhookStatus

__all__ = ["Webhooks"]


class Webhooks(Group):
    """The webhooks of the account, to read."""

    @lists(Route("/v1/webhooks", "webhooks", key=("id",), weight="small"))
    def list(
        self,
        *,
        status: WebhookStatus | None = None,
        page_size: PageSize | None = 100,
        resume: Checkpoint | None = None,
        on_invalid: OnInvalid = "raise",
        prefetch: int = 0,
        priority: int = 0,
        deadline: float | None = None,
    ) -> Pages[Webhook]:
        """Walk the webhooks."""
        ...

    @gets(Route("/v1/webhooks/{id}", weight="small"))
    async def get(
        self, webhook_id: Annotated[str, Wire("id")], *, priority: int = 0, deadline: float | None = None
    ) -> Webhook:
        """Return a webhook."""
        ...

    @lists(
        Route(
            "/v1/webhooks/{id}/addresses", "addresses", weight="medium", others=(("total_addresses", "int"),)
        )
    )
    def addresses(
        self,
        webhook_id: Annotated[str, Wire("id")],
        *,
        page_size: PageSize | None = 100,
        resume: Checkpoint | None = None,
        on_invalid: OnInvalid = "raise",
        prefetch: int = 0,
        priority: int = 0,
        deadline: float | None = None,
    ) -> Pages[str]:
        """Walk the addresses that a webhook watches."""
        ...

    @gets(Route("/v1/webhooks:getSharedSecret", weight="small"))
    async def shared_secret(self, *, priority: int = 0, deadline: float | None = None) -> SharedSecret:
        """Return the secret that signs the webhooks' calls."""
        ...

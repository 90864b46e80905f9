"""Options of a walk and of a call: the arguments that are not sent."""

from __future__ import annotations

from attrs import frozen

from chainapi._text import closest
from chainapi.client.pages import OnInvalid
from chainapi.core.arguments import deadline_of, one_of, refuse_unknown, tag_of, whole_number
from chainapi.core.paging.checkpoint import Checkpoint

__all__ = ["NOT_SENT", "Options", "own_tag", "priority_of", "refuse_misspelt"]

NOT_SENT = ("resume", "on_invalid", "prefetch", "priority", "deadline", "tag")
MAX_PREFETCH = 16  # pages; more would be memory that waits for its reader


@frozen
class Options:
    """Options of a walk: the arguments that are not sent (`NOT_SENT`)."""

    resume: Checkpoint | None
    on_invalid: OnInvalid
    prefetch: int
    priority: int
    deadline: float | None
    tag: str | None

    def __attrs_post_init__(self) -> None:
        one_of("on_invalid", self.on_invalid, ("raise", "raw"))
        whole_number("prefetch", self.prefetch, 0, MAX_PREFETCH)
        priority_of(self.priority)
        deadline_of(self.deadline)
        own_tag(self.tag)


def priority_of(priority: object) -> int:
    """Return the argument ``priority=``.

    Raises:
        ConfigurationError: it is not a whole number.

    """
    return whole_number("priority", priority, least=None)


def own_tag(tag: object) -> str | None:
    """Return the argument ``tag=`` of a call; None for the tag of its session.

    Raises:
        ConfigurationError: it is not a text of at most 64 printable characters.

    """
    return None if tag is None else tag_of(tag)


def refuse_misspelt(params: dict[str, object], what: str) -> None:
    """Refuse a query parameter that was meant as an argument of the method `what`.

    Query parameters of the services have no underscore.

    Raises:
        ConfigurationError: there is one; the message names the argument.

    """
    for name in params:
        if "_" in name or closest(name, _LIST_ARGUMENTS, cutoff=0.8):
            known = _LIST_ARGUMENTS if what == "list" else _GET_ARGUMENTS
            refuse_unknown([name], known, what, params)


_GET_ARGUMENTS = ("path", "model", "priority", "deadline", "tag")
_LIST_ARGUMENTS = (
    *_GET_ARGUMENTS,
    "items",
    "page_size",
    "key",
    "descending_key",
    "until",
    "resume",
    "on_invalid",
    "prefetch",
)

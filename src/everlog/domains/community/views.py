"""What is kept of a community: how it stands, and what was said of each post, thread, file and document.

All of them are in causal order: they say the same on every node, whatever arrived first. `community.manifest` has
judged what it holds. The others hold what was said, each with its author, node and place; whether it counts is
decided when somebody asks (`rules.tell`), from the manifest of that moment. One revocation can so change the verdict
on any number of rows, and none has to be written again.
"""

from __future__ import annotations

from datetime import date
from typing import Any

import msgspec

from everlog.core.event import Event
from everlog.core.ids import id_time_ms
from everlog.domains.community import rights
from everlog.domains.community.events import (
    COMMUNITY,
    DOCUMENT,
    FILE,
    GOVERNANCE,
    POST,
    THREAD,
    MessageDelivered,
    community_of,
)
from everlog.domains.community.said import said_of
from everlog.domains.community.standing import Standing, nothing_said
from everlog.views.view import CAUSAL, View

DAY_MS = 24 * 60 * 60 * 1000
LAST_DAY = (date.max - date(1970, 1, 1)).days
RECENT = 10
"""Messages that a thread's row has at hand, so that a list of threads can show the last one that counts."""


class Manifest(View):
    """One row a community: members and their roles, policy, nodes, and what was said without a right to it."""

    name = "community.manifest"
    types = GOVERNANCE
    kind = COMMUNITY
    order = CAUSAL
    uses = (rights, Standing, said_of)

    def initial(self) -> dict[str, Any]:
        return nothing_said()

    def apply(self, state: dict[str, Any], event: Event) -> dict[str, Any]:
        return rights.take(state, said_of(event), community_of(event.stream))


class _Said(View):
    """One row a subject: what was said of it."""

    order = CAUSAL
    uses = (said_of,)

    def initial(self) -> dict[str, Any]:
        return {"said": []}

    def apply(self, state: dict[str, Any], event: Event) -> dict[str, Any]:
        state["said"].append(msgspec.to_builtins(said_of(event)))
        return state


class Market(_Said):
    """One row a post on the market: what was said of it."""

    name = "community.market"
    types = ("market.post.created", "market.post.updated", "market.post.expired")
    kind = POST


class Files(_Said):
    """One row a file: who said that they keep it, and who does not any more."""

    name = "community.files"
    types = ("file.cid.advertised", "file.cid.unpinned")
    kind = FILE


class Documents(_Said):
    """One row a document: when it was made searchable, and how."""

    name = "community.documents"
    types = ("rag.document.ingested",)
    kind = DOCUMENT


class Chats(_Said):
    """One row a thread and day: the messages of that day, and who got and read them. So no row grows for ever."""

    name = "community.chats"
    types = ("chat.message.sent", "chat.message.delivered", "chat.message.read")
    kind = THREAD

    def key(self, event: Event) -> str | None:
        return f"{event.stream}/{day_of(event)}"


class Threads(View):
    """One row a thread: the days on which something was sent, and the newest messages."""

    name = "community.threads"
    types = ("chat.message.sent",)
    kind = THREAD
    order = CAUSAL
    uses = (said_of,)

    def initial(self) -> dict[str, Any]:
        return {"days": {}, "recent": []}

    def apply(self, state: dict[str, Any], event: Event) -> dict[str, Any]:
        day = day_of(event)
        state["days"][day] = state["days"].get(day, 0) + 1
        state["recent"] = [*state["recent"], msgspec.to_builtins(said_of(event))][-RECENT:]
        return state


VIEWS = (Manifest, Market, Threads, Chats, Files, Documents)


def day_of(event: Event) -> str:
    """The day of the message that an event is about, as the message's id says it."""
    if event.type == "chat.message.sent":
        return day_of_message(event.id)
    said = event.payload.get("message")
    try:
        return day_of_message(msgspec.convert({"message": said}, MessageDelivered).message)
    except msgspec.ValidationError:
        return "unreadable"


def day_of_message(message: str) -> str:
    days = min(id_time_ms(message) // DAY_MS, LAST_DAY)
    return date.fromordinal(date(1970, 1, 1).toordinal() + days).isoformat()

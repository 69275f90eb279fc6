"""The views of a community: its standing, and the acts on each post, thread, file and document.

All of them are in causal order: they are the same on every node, whatever arrived first. `community.manifest` has
judged its acts. The others hold acts, each with its author, node and place; whether they count is decided when a
question is answered (`rules.fold_subject`), from the manifest of that moment. So one revocation can change the
verdict on any number of rows, and none has to be written again.
"""

from __future__ import annotations

from datetime import date
from typing import Any

import msgspec

from everlog.core.event import Event
from everlog.core.ids import id_time_ms
from everlog.programs.community import rights
from everlog.programs.community.events import (
    COMMUNITY,
    DOCUMENT,
    FILE,
    GOVERNANCE,
    POST,
    THREAD,
    MessageDelivered,
    community_of,
)
from everlog.programs.community.membership import Standing, no_acts
from everlog.programs.community.reading import ACTS, act_of
from everlog.views.view import CAUSAL, View

DAY_MS = 24 * 60 * 60 * 1000
LAST_DAY = (date.max - date(1970, 1, 1)).days
RECENT = 10
"""Messages that a thread's row has at hand, so that a list of threads can show the last one that counts."""


class Manifest(View):
    """One row per community: members and their roles, policy, nodes, and the acts that do not count."""

    name = "community.manifest"
    types = GOVERNANCE
    kind = COMMUNITY
    order = CAUSAL
    uses = (rights, Standing, act_of)

    def initial(self) -> dict[str, Any]:
        return no_acts()

    def apply(self, state: dict[str, Any], event: Event) -> dict[str, Any]:
        return rights.take(state, act_of(event), community_of(event.stream))


class _Acts(View):
    """One row per subject: the acts on it."""

    order = CAUSAL
    uses = (act_of,)

    def initial(self) -> dict[str, Any]:
        return {ACTS: []}

    def apply(self, state: dict[str, Any], event: Event) -> dict[str, Any]:
        state[ACTS].append(msgspec.to_builtins(act_of(event)))
        return state


class Market(_Acts):
    """One row per post on the market: the acts on it."""

    name = "community.market"
    types = ("market.post.created", "market.post.updated", "market.post.expired")
    kind = POST


class Files(_Acts):
    """One row per file: who announced that they keep it, and who does not any more."""

    name = "community.files"
    types = ("file.cid.advertised", "file.cid.unpinned")
    kind = FILE


class Documents(_Acts):
    """One row per document: when it was made searchable, and how."""

    name = "community.documents"
    types = ("rag.document.ingested",)
    kind = DOCUMENT


class Chats(_Acts):
    """One row per thread and day: the messages of that day, and who received and read them."""

    name = "community.chats"
    types = ("chat.message.sent", "chat.message.delivered", "chat.message.read")
    kind = THREAD

    def key(self, event: Event) -> str | None:
        return f"{event.stream}/{day_of(event)}"


class Threads(View):
    """One row per thread: the days on which something was sent, and the newest messages."""

    name = "community.threads"
    types = ("chat.message.sent",)
    kind = THREAD
    order = CAUSAL
    uses = (act_of,)

    def initial(self) -> dict[str, Any]:
        return {"days": {}, "recent": []}

    def apply(self, state: dict[str, Any], event: Event) -> dict[str, Any]:
        day = day_of(event)
        state["days"][day] = state["days"].get(day, 0) + 1
        state["recent"] = [*state["recent"], msgspec.to_builtins(act_of(event))][-RECENT:]
        return state


VIEWS = (Manifest, Market, Threads, Chats, Files, Documents)


def day_of(event: Event) -> str:
    """Return the day of the message that an event is about, by the time in the message's id."""
    if event.type == "chat.message.sent":
        return day_of_message(event.id)
    act = event.payload.get("message")
    try:
        return day_of_message(msgspec.convert({"message": act}, MessageDelivered).message)
    except msgspec.ValidationError:
        return "unreadable"


def day_of_message(message: str) -> str:
    days = min(id_time_ms(message) // DAY_MS, LAST_DAY)
    return date.fromordinal(date(1970, 1, 1).toordinal() + days).isoformat()

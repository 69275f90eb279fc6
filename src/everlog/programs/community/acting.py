"""What the commands of the community program share: their answers, and how an act is judged before it is recorded."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import msgspec
from msgspec import Meta

from everlog.errors import EverlogError, InvalidField
from everlog.programs.command import By, Command
from everlog.programs.community import questions, rules
from everlog.programs.community.membership import Standing
from everlog.programs.community.reading import Act, act_to_be

if TYPE_CHECKING:
    from everlog.log.log import Log

R = TypeVar("R")

Member = Annotated[str, Meta(description="The member, such as user:bob.")]
Why = Annotated[str, Meta(description="Why.")]
Thread = Annotated[str, Meta(description="The thread, such as general.")]
Cid = Annotated[str, Meta(description="The CID of the file.")]
Days = Annotated[Annotated[int, Meta(ge=1, le=3650)] | None, Meta(description="How long it is open.")]
Messages = Annotated[list[str], Meta(description="The messages; all recent ones, if none is named.")]


class CommunityResult(msgspec.Struct, frozen=True, kw_only=True):
    """What was done, and its name: a community, a member, a post …"""

    kind: str
    name: str
    community: str

    def facts(self) -> dict[str, Any]:
        return {self.kind: self.name, "community": self.community}


class Sent(msgspec.Struct, frozen=True, kw_only=True):
    """A message that was sent."""

    message: str
    thread: str
    community: str


class Marked(msgspec.Struct, frozen=True, kw_only=True):
    """How many messages of a thread were marked."""

    thread: str
    count: int
    community: str


class Expired(msgspec.Struct, frozen=True, kw_only=True):
    """The posts that were ended."""

    posts: list[str]
    community: str


class CommunityCommand(Command[R], frozen=True, kw_only=True):
    """What all commands of this program share."""

    shared = ("community",)
    judged = True
    community: Annotated[str, Meta(description="The community, if there are several.")] = ""

    def named(self, log: Log, by: By) -> str:
        """Return the community that this command is about."""
        return questions.meant(log, named=self.community, within=by.within)


def here(log: Log) -> str:
    """Return the node that this log is. A clone without an origin gets one, as with its first write."""
    return log.identity.origin or log.writer.write(lambda writer: log.identity.origin)


def insist(log: Log, standing: Standing, act: Act, tried: str, **about: Any) -> None:
    try:
        rules.insist(standing, act, tried, **about)
    except EverlogError as error:
        alone = len(questions.communities(log)) < 2
        if error.hint.startswith("everlog community ") and "--scope" not in error.hint and not alone:
            # Without it, the command would not know which one is meant. What follows it is no part of the command.
            typed, semicolon, note = error.hint.partition("; ")
            error.hint = f"{typed} --scope {standing.community}{semicolon}{note}"
        raise


def in_days(days: int, by: By) -> datetime:
    return (by.at or datetime.now(UTC)) + timedelta(days=days)


def act_now(log: Log, payload: Any, by: By) -> Act:
    # A time without a zone is refused by the log itself; it must get there.
    at = by.at.astimezone(UTC) if by.at is not None and by.at.tzinfo is not None else datetime.now(UTC)
    return act_to_be(payload, by=by.actor, origin=here(log), at=rules.text(at))


def chain_ends(log: Log, nodes: Iterable[str]) -> dict[str, int]:
    """Return how far the chains of some nodes are known here."""
    wanted: Sequence[str] = list(nodes)
    return log.writer.write(lambda writer: {node: writer.link(node).origin_seq for node in wanted})


def require_shape_of(pattern: str, field: str, found: str, example: str) -> None:
    if re.fullmatch(pattern, found) is None:
        raise InvalidField(
            f"the {field} is {found!r:.80}",
            why="it is made of letters, digits, dots, dashes and underscores, and begins with one of the first two",
            hint=f"give it as in {example}",
            field=field,
        )

"""`log.purge`: remove the events of a stream for good, after an exact confirmation."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Annotated, Any, ClassVar

import msgspec
from msgspec import Meta

from everlog.application.operations.fields import StreamName
from everlog.core.event import Purge as PurgeRecord
from everlog.core.fields import require_shape, require_text
from everlog.core.query import Query, in_scope
from everlog.core.text import counted
from everlog.errors import ConfirmationNeeded, NotFound
from everlog.log.log import Log
from everlog.programs.command import Action, By, Done
from everlog.programs.policy import Policy


class Removed(msgspec.Struct, frozen=True, kw_only=True):
    """What a purge removed, or would remove."""

    stream: str
    events: int
    reserved: int  # the position that keeps the record of the purge; 0 for a dry run
    reason: str
    actor: str
    dry_run: bool
    scopes: tuple[str, ...]  # that the events were in
    sequence: int = 0  # of the last event of the stream
    purged_at: datetime | None = None


class Purge(Action[Removed], frozen=True, kw_only=True):
    """Remove the events of a stream for good. Their positions, their hashes and the record of the purge remain."""

    verb = "purge"
    policy = Policy(role="admin", scope="within", destructive=True, idempotent=False)
    problems = ("confirmation_needed", "not_found", "invalid_field", "read_only", "storage_full", "writer_stopped")
    example: ClassVar[dict[str, Any]] = {
        "stream": "note/1",
        "reason": "erasure request 17",
        "confirm": "purge note/1",
    }

    stream: StreamName
    reason: Annotated[str, Meta(description="Why; it is recorded.", min_length=1, max_length=1000)]
    confirm: Annotated[str, Meta(description="The exact words: purge KIND/ID.", max_length=600)] = ""
    dry_run: Annotated[bool, Meta(description="Count what would be removed, and remove nothing.")] = False

    def check(self) -> None:
        require_shape("stream", self.stream)
        require_text("reason", self.reason)

    def run(self, log: Log, by: By, progress: Callable[[int], None] = lambda position: None) -> Done[Removed]:
        scopes = [one.event.scope for one in log.stored.read(Query(stream=self.stream))]
        if not scopes or not all(in_scope(scope, by.within) for scope in scopes):
            raise NotFound(
                f"{self.stream} has no events to purge",
                why="it never had any, or they were purged before",
                hint="everlog log --purges",
                stream=self.stream,
            )
        if self.dry_run or by.dry_run:
            return Done(self._would_remove(scopes, by.actor))
        words = f"purge {self.stream}"
        if self.confirm != words:
            raise ConfirmationNeeded(
                f"purging {self.stream} removes {counted(len(scopes), 'event')} permanently",
                why=f"the exact words are required: {words}",
                hint=f"if that is what you want, send them as the field confirm: {words}",
                confirm=words,
                events=len(scopes),
            )
        done: PurgeRecord = log.purge(self.stream, actor=by.actor, reason=self.reason)
        return Done(
            Removed(
                stream=done.stream,
                events=done.count,
                reserved=done.reserved,
                reason=done.reason,
                actor=done.actor,
                dry_run=False,
                scopes=done.scopes,
                sequence=done.sequence,
                purged_at=done.purged_at,
            )
        )

    def _would_remove(self, scopes: list[str], actor: str) -> Removed:
        return Removed(
            stream=self.stream,
            events=len(scopes),
            reserved=0,
            reason=self.reason,
            actor=actor,
            dry_run=True,
            scopes=tuple(sorted({scope for scope in scopes if scope})),
        )

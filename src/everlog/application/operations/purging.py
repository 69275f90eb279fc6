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
from everlog.log.write.purge import earlier_purge
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
    keyed = True
    problems = (
        *("confirmation_needed", "not_found", "invalid_field", "read_only", "storage_full", "writer_stopped"),
        "idempotency_key_reuse",
    )
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
        before = self._earlier(log, by)
        try:
            return self._purged(log, by) if before is None else before
        except NotFound:
            since = self._earlier(log, by)  # an equal request under this key may have been faster
            if since is None:
                raise
            return since

    def _request(self) -> dict[str, str]:
        return {"stream": self.stream, "reason": self.reason}

    def _earlier(self, log: Log, by: By) -> Done[Removed] | None:
        if not by.key or self.dry_run or by.dry_run:
            return None
        actor = by.actor or log.actor
        done = earlier_purge(log.writer, log.stored, by.key, self._request(), actor=actor, scope=by.within)
        return None if done is None else Done(_removed(done), replayed=True)

    def _purged(self, log: Log, by: By) -> Done[Removed]:
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
        done: PurgeRecord = log.purge(
            self.stream,
            actor=by.actor,
            reason=self.reason,
            key=by.key,
            request=self._request(),
            key_scope=by.within,
        )
        return Done(_removed(done))

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


def _removed(done: PurgeRecord) -> Removed:
    return Removed(
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

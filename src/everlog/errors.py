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

import re
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

_ADDRESS = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*://[^\s/:@\"'<>]*:)[^\s/@\"']+(?=@)")
_OPTION = re.compile(r"([?&][^=&\s]*password[^=&\s]*=)[^&\s\"']+", re.IGNORECASE)
HIDDEN = "***"


def hide_passwords(text: str) -> str:
    """Return the text with *** in place of every password of a URL."""
    if "://" not in text:
        return text
    return _OPTION.sub(rf"\g<1>{HIDDEN}", _ADDRESS.sub(rf"\g<1>{HIDDEN}", text))


_hide: Callable[[str], str] = hide_passwords


def hide_with(hide: Callable[[str], str]) -> None:
    """Make every error hide more than passwords. `everlog.log.secrets`, which recognizes secrets, calls this."""
    global _hide  # errors are at the bottom of all layers, and this applies to all of them
    _hide = hide


def hidden(value: Any) -> Any:
    """Return the same value without any secret in its texts: errors are printed, logged and recorded."""
    match value:
        case str():
            return _hide(value)
        case dict():
            return {key: hidden(item) for key, item in value.items()}
        case list():
            return [hidden(item) for item in value]
        case tuple() if type(value) is tuple:
            return tuple(map(hidden, value))
        case _:
            return value


def shown(value: Any, chars_max: int = 80) -> str:
    """Return the beginning of a value, as an error quotes it. Secrets are hidden before the text is cut."""
    return repr(hidden(value))[:chars_max]


class EverlogError(Exception):
    """Something that everlog refuses or cannot do: what happened, why, and what to do. It never contains a secret."""

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
    """The event itself is not acceptable, now or later."""

    code = "rejected"
    exit_code = 3


class UnknownType(RejectedEvent):
    code = "unknown_type"


class InvalidPayload(RejectedEvent):
    """The payload does not fit its model; `defects` lists every (path, reason)."""

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
    code = "invalid_field"


class NotCanonical(RejectedEvent):
    """A value that has no single JSON form (RFC 8785), named by its path."""

    code = "not_canonical"

    def __init__(self, path: str, reason: str, *, hint: str = "send it as a string, or leave it out") -> None:
        self.path = path
        self.reason = reason
        what = f"the value at {path} cannot be stored" if path != "$" else "this cannot be stored"
        super().__init__(what, why=reason, hint=hint, path=path)


class EventTooLarge(RejectedEvent):
    code = "event_too_large"


class SecretFound(RejectedEvent):
    code = "secret_found"


class TransitionRefused(RejectedEvent):
    code = "transition_refused"


class RuleRefused(RejectedEvent):
    """A rule of a program refuses; the details have the name of the rule, what was tried and what is allowed."""

    code = "rule_refused"

    def __init__(
        self, what: str, *, rule: str, tried: Any, allowed: Any = (), why: str = "", hint: str = "", **details: Any
    ) -> None:
        super().__init__(what, why=why, hint=hint, rule=rule, tried=tried, allowed=allowed, **details)


class IdFromTheFuture(RejectedEvent):
    code = "id_from_the_future"


class ClockJump(RejectedEvent):
    code = "clock_jump"


class CommitmentMismatch(RejectedEvent):
    code = "commitment_mismatch"


class InvalidSignature(RejectedEvent):
    """An event of an origin that is a key, and the key did not sign it in this log."""

    code = "invalid_signature"


class SchemaBroken(EverlogError):
    """The event types changed in a way that old events cannot follow."""

    code = "schema_broken"
    exit_code = 3


class BadFile(EverlogError):
    """A file that is not what it should be; `problems` names every line that is wrong. The file was not changed."""

    code = "bad_file"
    exit_code = 3


class RejectedMessage(EverlogError):
    """A message of a peer that cannot be read, or that is larger than the protocol allows."""

    code = "rejected_message"
    exit_code = 3


class NotFound(EverlogError):
    code = "not_found"
    exit_code = 4


class NoLogHere(NotFound):
    code = "no_log"


class NotALog(NotFound):
    code = "not_a_log"


class NewerFormat(NotFound):
    code = "newer_format"


class OlderFormat(NotFound):
    code = "older_format"


class NoSuchSubject(NotFound):
    """A command names a work package, an issue, a member … that does not exist."""

    code = "no_such_subject"


class Conflict(EverlogError):
    """The log is not in the state that the caller expects."""

    code = "conflict"
    exit_code = 5


class WrongSequence(Conflict):
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
    code = "query_matched"


class IdConflict(Conflict):
    code = "id_conflict"


class KeyReuse(Conflict):
    code = "idempotency_key_reuse"


class AlreadyPurged(Conflict):
    code = "already_purged"


class LookAlike(Conflict):
    """Something very similar exists already; the details list the candidates."""

    code = "look_alike"


class LeaseLost(Conflict):
    """A consumer lost its lease: what it wanted to acknowledge belongs to another consumer now."""

    code = "lease_lost"


class GroupDiffers(Conflict):
    """A group of consumers exists already, with a different definition."""

    code = "group_differs"


class HistoryChanged(Conflict):
    """A purge or a restore changed what was read before; the details say where a reader continues."""

    code = "history_changed"


class OtherCode(Conflict):
    """A build of a view was derived by other code of the same version, so this code could derive something else."""

    code = "other_code"


class ConfirmationNeeded(EverlogError):
    code = "confirmation_needed"
    exit_code = 6


class Unavailable(EverlogError):
    """The log cannot be used right now; the request itself may be fine."""

    code = "unavailable"
    exit_code = 7
    retryable = True


class Busy(Unavailable):
    code = "busy"


class StorageFull(Unavailable):
    code = "storage_full"


class ReadOnly(Unavailable):
    code = "read_only"
    retryable = False


class WriterStopped(Unavailable):
    """A flush failed. What reached the disk is unknown, so this writer never acknowledges again (G12)."""

    code = "writer_stopped"
    retryable = False


class LogClosed(Unavailable):
    code = "log_closed"
    retryable = False


class NoKey(Unavailable):
    """A key that is needed for signing, sealing or opening is not here. The log can be read."""

    code = "no_key"
    retryable = False


class ViewBehind(Unavailable):
    """A view has not applied a position yet; the details have the position that it has reached."""

    code = "view_behind"


class ViewStopped(Unavailable):
    """A view has stopped at an event that it cannot apply."""

    code = "view_stopped"
    retryable = False


class PeerUnavailable(Unavailable):
    """A peer did not answer, or not in time."""

    code = "peer_unavailable"


class NotAuthorized(Unavailable):
    """A peer does not answer this node: its request is not signed, or by a key that is not known there."""

    code = "not_authorized"
    retryable = False


class NotSignedIn(Unavailable):
    """A server does not know the caller: there is no token, or it is not valid any more."""

    code = "not_signed_in"
    retryable = False


class Forbidden(Unavailable):
    """A server knows the caller, and the caller's role does not allow the request."""

    code = "forbidden"
    retryable = False


class TooManyRequests(Unavailable):
    """A caller sends more than a server takes from one token; the details have the seconds to wait."""

    code = "too_many_requests"


class OnlyLocal(Unavailable):
    """What is asked for needs the files or the keys of a log, and the log is behind a server."""

    code = "only_local"
    retryable = False


class NotReady(Unavailable):
    """A server answers no requests now: it starts, it stops, or it has too many connections."""

    code = "not_ready"


class NoJava(Unavailable):
    """Spark needs Java, and no suitable version was found."""

    code = "no_java"
    retryable = False


class SparkFailed(Unavailable):
    """Spark did not start, or one of its jobs failed for a reason that is not in the log."""

    code = "spark_failed"


class Damaged(EverlogError):
    code = "damaged"
    exit_code = 8


class BadRequest(EverlogError):
    """A request over HTTP that cannot be read."""

    code = "bad_request"
    exit_code = 3


class NoSuchRoute(BadRequest):
    code = "no_such_route"


class WrongMethod(BadRequest):
    code = "wrong_method"


class BodyTooLarge(BadRequest):
    code = "body_too_large"


class HeadersTooLarge(BadRequest):
    code = "headers_too_large"


class QueryTooLong(BadRequest):
    code = "query_too_long"


class RequestTimedOut(BadRequest):
    """The last byte of a request did not come in time."""

    code = "request_timed_out"
    retryable = True


class UnknownHost(BadRequest):
    """A request was sent to a name that is not this server's."""

    code = "unknown_host"


class WrongContentType(BadRequest):
    code = "wrong_content_type"


class CursorConflict(BadRequest):
    """A request names two cursors, and only one can apply."""

    code = "cursor_conflict"


class InvalidSettings(EverlogError):
    code = "invalid_settings"
    exit_code = 2

"""Errors as they cross HTTP: RFC 9457 problem documents, with the same code, hint and details on both sides.

    {"type": "urn:everlog:problem:wrong_sequence", "title": "customer/41 is at sequence 3, …", "status": 409,
     "detail": "another writer …", "code": "wrong_sequence", "hint": "…", "details": {…}, "retryable": false,
     "request_id": "…"}

`title` is what happened, `detail` is why, and `hint` is what to do next. The status follows from the class of the
error, so that a new error has one without further work.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from everlog import errors
from everlog.errors import EverlogError, InvalidPayload, NotCanonical, WrongSequence
from everlog.hiding import hidden

CONTENT_TYPE = "application/problem+json"
TYPE_PREFIX = "urn:everlog:problem:"
HINTS = "everlog-hints"
"""A header: a caller that sends `commands` gets hints with commands of everlog, in place of routes and fields."""


class Problem(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An error as it crosses HTTP."""

    type: str
    title: str
    status: int
    code: str
    detail: str = ""
    hint: str = ""
    details: dict[str, Any] = {}
    retryable: bool = False
    request_id: str = ""


STATUS: dict[type[EverlogError], int] = {
    errors.BadRequest: 400,
    errors.NotSignedIn: 401,
    errors.Forbidden: 403,
    errors.NoSuchRoute: 404,
    errors.WrongMethod: 405,
    errors.RequestTimedOut: 408,
    errors.BodyTooLarge: 413,
    errors.QueryTooLong: 414,
    errors.WrongContentType: 415,
    errors.UnknownHost: 421,
    errors.TooManyRequests: 429,
    errors.HeadersTooLarge: 431,
    errors.InvalidField: 400,
    errors.NotCanonical: 400,
    errors.EventTooLarge: 413,
    errors.RejectedEvent: 422,
    errors.SchemaBroken: 422,
    errors.BadFile: 400,
    errors.RejectedMessage: 400,
    errors.NotFound: 404,
    errors.Conflict: 409,
    errors.ConfirmationNeeded: 412,
    errors.StorageFull: 507,
    errors.NotAuthorized: 401,
    errors.Unavailable: 503,
    errors.Damaged: 503,
    errors.InvalidSettings: 503,
    EverlogError: 500,
}
"""The status of each class of errors; a class without a line has that of the class it derives from."""


def status_of(error: EverlogError | type[EverlogError]) -> int:
    kind = error if isinstance(error, type) else type(error)
    return next(STATUS[parent] for parent in kind.__mro__ if parent in STATUS)


def problem_of(error: EverlogError, *, request_id: str = "") -> Problem:
    return Problem(
        type=TYPE_PREFIX + error.code,
        title=error.what,
        status=status_of(error),
        code=error.code,
        detail=error.why,
        hint=error.hint,
        details=msgspec.to_builtins(error.details, enc_hook=str),
        retryable=error.retryable,
        request_id=request_id,
    )


def every_error() -> Iterator[type[EverlogError]]:
    """Yield every class of errors with a separate code."""
    waiting: list[type[EverlogError]] = [EverlogError]
    while waiting:
        kind = waiting.pop()
        waiting.extend(sorted(kind.__subclasses__(), key=lambda one: one.__name__, reverse=True))
        if kind.__module__ == errors.__name__ and "code" in vars(kind):
            yield kind


_BY_CODE = {kind.code: kind for kind in every_error()}


def error_of(problem: Problem) -> EverlogError:
    """Return the error that a server reports, as the class that the same log would raise in this process."""
    kind = _BY_CODE.get(problem.code, EverlogError)
    error = EverlogError.__new__(kind)
    EverlogError.__init__(error, problem.title, why=problem.detail, hint=problem.hint)
    # Not as arguments: a server may send any names.
    details: Any = hidden(dict(problem.details))
    error.details = details
    # What some classes have beside their details.
    if isinstance(error, InvalidPayload):
        error.defects = [(one["path"], one["reason"]) for one in details.get("defects", ())]
    elif isinstance(error, NotCanonical):
        error.path, error.reason = str(details.get("path", "$")), problem.detail
    elif isinstance(error, WrongSequence):
        error.stream, error.expected = str(details.get("stream", "")), str(details.get("expected", ""))
        error.actual = int(details.get("actual", 0))
    return error

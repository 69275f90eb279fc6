"""Answers that report a problem."""

from __future__ import annotations

import msgspec

from everlog.errors import EverlogError, NotSignedIn, WrongMethod
from everlog.server.routes.hints import hint_for_api
from everlog.server.routes.route import Response
from everlog.wire import problems


def problem_for(error: EverlogError, request_id: str, *, commands: bool = False) -> problems.Problem:
    """Return an error as RFC 9457 has it. Its hint names routes and fields; with `commands`, commands and options."""
    problem = problems.problem_of(error, request_id=request_id)
    hint = problem.hint if commands else hint_for_api(problem.hint)
    return problem if hint == problem.hint else msgspec.structs.replace(problem, hint=hint)


def problem_response(error: EverlogError, request_id: str, *, commands: bool = False) -> Response:
    """Return an error as an answer, with the headers that belong to it."""
    problem = problem_for(error, request_id, commands=commands)
    headers = []
    if isinstance(error, WrongMethod) and "allow" in error.details:
        headers.append(("allow", error.details["allow"]))
    if isinstance(error, NotSignedIn):
        headers.append(("www-authenticate", 'Bearer realm="everlog"'))
    if "retry_after_s" in error.details or (problem.status == 503 and error.retryable):
        headers.append(("retry-after", str(int(error.details.get("retry_after_s", 1)) or 1)))
    return Response(
        msgspec.json.encode(problem), status=problem.status, content_type=problems.CONTENT_TYPE, headers=headers
    )


def defect_problem(request_id: str) -> problems.Problem:
    """Return the problem of a defect of the server itself, without its text."""
    error = EverlogError("the server has a defect", why="it is in the server's log", hint="report the request id")
    return problem_for(error, request_id)


def defect_response(request_id: str) -> Response:
    problem = defect_problem(request_id)
    return Response(msgspec.json.encode(problem), status=problem.status, content_type=problems.CONTENT_TYPE)

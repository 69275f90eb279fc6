"""Requests of a peer as HTTP: paths, headers, and how an error travels.

GET  /sync/v1/heads      what the node has
POST /sync/v1/wants      fetch events by number or by hash
POST /sync/v1/events     send events
POST /sync/v1/ranges     compare sets (negentropy version 1)
POST /sync/v1/keys       exchange keys of persons, sealed to the node that needs them
POST /sync/v1/views      exchange signed statements about views; fetch the rows of one
"""

from __future__ import annotations

import zlib

import msgspec

from everlog import errors
from everlog.errors import EverlogError, PeerUnavailable, RejectedMessage
from everlog.sync.exchange import HEADS, RANGES, REQUESTS
from everlog.sync.wire import MESSAGE_BYTES_MAX

PREFIX = "/sync/v1/"
JSON, BYTES = "application/json", "application/octet-stream"

STATUS = {
    "rejected_message": 400,
    "not_authorized": 401,
    "conflict": 409,
    "busy": 503,
}


class Problem(msgspec.Struct, omit_defaults=True):
    """An error as it travels: what happened, why, and what to do."""

    code: str
    message: str = ""
    why: str = ""
    hint: str = ""
    node: str = ""  # the key of the node that refuses, so that a request can be signed for it


def method_of(request: str) -> str:
    return "GET" if request == HEADS else "POST"


def request_of(method: str, path: str) -> str | None:
    """Return the request that a method and a path are; None for anything else."""
    request = path.removeprefix(PREFIX)
    known = path.startswith(PREFIX) and request in REQUESTS and method == method_of(request)
    return request if known else None


def content_type(request: str) -> str:
    return BYTES if request == RANGES else JSON


def problem_of(error: EverlogError) -> tuple[int, bytes]:
    """Return the status and the body that report an error."""
    status = STATUS.get(error.code, 503 if error.retryable else 400)
    node = str(error.details.get("node", ""))
    return status, msgspec.json.encode(Problem(error.code, error.what, error.why, error.hint, node))


def error_of(status: int, body: bytes, peer: str) -> EverlogError:
    """Return the error that a peer reports."""
    try:
        problem = msgspec.json.decode(body, type=Problem)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, ValueError):
        problem = Problem("", f"it answered with status {status}")
    message = f"{peer}: {problem.message[:500]}"
    if status >= 500 or status == 429:
        return PeerUnavailable(message, why=problem.why[:500], hint="try again later; everlog peers list")
    kind = {"conflict": errors.Conflict, "not_authorized": errors.NotAuthorized}.get(problem.code, RejectedMessage)
    hint = problem.hint[:500] or "everlog peers list"
    return kind(message, why=problem.why[:500], hint=hint, node=problem.node[:64])


def unpacked(body: bytes, encoding: str) -> bytes:
    """Return a body without its compression; refuse one that would be larger than a message."""
    if encoding in ("", "identity"):
        return body
    if encoding != "gzip":
        raise RejectedMessage(
            "a peer compressed a message in an unknown way", why=encoding[:40], hint="use gzip, or no compression"
        )
    unpack = zlib.decompressobj(wbits=31)
    try:
        found = unpack.decompress(body, MESSAGE_BYTES_MAX + 1)
    except zlib.error as error:
        raise RejectedMessage("a peer sent a damaged message", why=str(error), hint="everlog peers list") from error
    if len(found) > MESSAGE_BYTES_MAX or not unpack.eof:
        raise RejectedMessage(
            "a peer sent a message that is too large",
            why=f"it unpacks to more than {MESSAGE_BYTES_MAX:,} bytes, or it ends too early",
            hint="everlog peers list",
        )
    return found

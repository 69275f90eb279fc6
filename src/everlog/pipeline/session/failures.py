"""Errors that pass through Spark: an everlog error raised in a worker is raised again in the driver.

Between Python, the JVM and Python only text survives, wrapped in messages of both. So a worker adds a line of JSON,
as base64, to the message of its error, and the driver decodes it:

    with own_errors("reading the log"):
        frame.count()
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import unquote

import msgspec

from everlog import errors
from everlog.errors import Damaged, EverlogError, SparkFailed, StorageFull

_MARK = "everlog-error:"
_CARRIED = re.compile(re.escape(_MARK) + r"([A-Za-z0-9+/=]+)")
# A file of the lake that Spark could not read; its path names the table.
_UNREADABLE = re.compile(
    r"FAILED_READ_FILE\S* .*?file://(?P<path>\S*?/(?P<table>(?:silver|gold|letters)/[^/\s]+|events|quarantine|buckets)/data/"
    r"\S+?\.parquet)",
    re.DOTALL,
)
_PYTHON_ERROR = re.compile(r"^\s*(?:[\w.]*\.)?(\w+(?:Error|Exception|Warning)): (.+)$", re.MULTILINE)


class CarriedError(Exception):
    """An everlog error in a form that survives a JVM."""


class _Carried(msgspec.Struct):
    code: str
    what: str
    why: str
    hint: str
    details: dict[str, object]


@contextmanager
def carried() -> Iterator[None]:
    """In a worker: raise everlog errors in a form that the driver can decode."""
    try:
        yield
    except EverlogError as error:
        facts = _Carried(error.code, error.what, error.why, error.hint, error.details)
        raise CarriedError(f"{error} [{_MARK}{_encoded(facts)}]") from error


@contextmanager
def own_errors(doing: str) -> Iterator[None]:
    """In the driver: convert what Spark raises inside, or a full disk, to an everlog error."""
    try:
        yield
    except EverlogError:
        raise
    except Exception as error:
        if not _is_sparks(error) and not (isinstance(error, OSError) and "No space left" in str(error)):
            raise
        raise everlog_error(error, doing) from error


def everlog_error(error: BaseException, doing: str) -> EverlogError:
    """Return the everlog error that Spark's error carries, or one with the reason that Spark gave."""
    text = str(error)
    found = _CARRIED.search(text)
    if found is not None:
        return _decoded(found[1])
    if "No space left on device" in text:
        return StorageFull(
            f"the disk became full while {doing}",
            why="Spark and its workers write to the lake and to their own temporary folders",
            hint="free some space and run it again; no table has changed",
        )
    damaged = _UNREADABLE.search(text)
    if damaged is not None:
        return Damaged(
            f"{unquote(damaged['path'])} cannot be read",
            why="it is there with the right size, and its content is not what was written",
            hint="everlog pipeline verify --heal",
            table=damaged["table"],
        )
    reasons = _PYTHON_ERROR.findall(text)
    why = f"{reasons[-1][0]}: {reasons[-1][1]}" if reasons else text.strip().partition("\n")[0]
    return SparkFailed(f"Spark failed while {doing}", why=why[:500], hint="everlog pipeline check")


def _is_sparks(error: Exception) -> bool:
    return type(error).__module__.partition(".")[0] in ("pyspark", "py4j", "grpc")


def _encoded(facts: _Carried) -> str:
    # Base64, because Spark's messages go through formats that change quotes and line ends.
    return msgspec.to_builtins(msgspec.json.encode(facts, enc_hook=str))  # type: ignore[no-any-return]


def _decoded(text: str) -> EverlogError:
    facts = msgspec.json.decode(msgspec.convert(text, bytes), type=_Carried)
    kind = next((kind for kind in _kinds(EverlogError) if kind.code == facts.code), EverlogError)
    found = kind.__new__(kind)
    # Some classes take other arguments; what they made of them is all here.
    EverlogError.__init__(found, facts.what, why=facts.why, hint=facts.hint, **facts.details)
    return found


def _kinds(kind: type[EverlogError]) -> Iterator[type[EverlogError]]:
    if kind.__module__ == errors.__name__:
        yield kind
    for below in kind.__subclasses__():
        yield from _kinds(below)

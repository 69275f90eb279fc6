"""Errors on their way through Spark: everlog's own cross from a worker to the driver and are themselves again there.

Between Python, the JVM and Python again only text survives, wrapped in the words of both. So a worker puts a line of
JSON into its message, as base64, and whoever started the job finds it there:

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
# A file of a table of the lake that Spark gave up on; which table it is says its path.
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
    """In a worker: let errors of everlog leave so that the driver finds them again."""
    try:
        yield
    except EverlogError as error:
        said = _Carried(error.code, error.what, error.why, error.hint, error.details)
        raise CarriedError(f"{error} [{_MARK}{_encoded(said)}]") from error


@contextmanager
def own_errors(doing: str) -> Iterator[None]:
    """In the driver: what Spark raises inside leaves as an everlog error."""
    try:
        yield
    except EverlogError:
        raise
    except Exception as error:
        if not _is_sparks(error):
            raise
        raise told(error, doing) from error


def told(error: BaseException, doing: str) -> EverlogError:
    """The everlog error that Spark's error carries, or one that says what Spark said."""
    text = str(error)
    found = _CARRIED.search(text)
    if found is not None:
        return _decoded(found[1])
    if "No space left on device" in text:
        return StorageFull(
            f"the disk became full while {doing}",
            why="Spark and its workers write to the lake and to their own temporary folders",
            hint="free some space and run it again; every table stands as it was",
        )
    damaged = _UNREADABLE.search(text)
    if damaged is not None:
        return Damaged(
            f"{unquote(damaged['path'])} cannot be read",
            why="it is there with the right size, and its content is not what was written",
            hint=f"everlog pipeline run --rebuild {damaged['table']}",
            table=damaged["table"],
        )
    reasons = _PYTHON_ERROR.findall(text)
    why = f"{reasons[-1][0]}: {reasons[-1][1]}" if reasons else text.strip().partition("\n")[0]
    return SparkFailed(f"Spark failed while {doing}", why=why[:500], hint="everlog pipeline check")


def _is_sparks(error: Exception) -> bool:
    return type(error).__module__.partition(".")[0] in ("pyspark", "py4j", "grpc")


def _encoded(said: _Carried) -> str:
    # Base64, because Spark's messages go through formats that change quotes and line ends.
    return msgspec.to_builtins(msgspec.json.encode(said, enc_hook=str))  # type: ignore[no-any-return]


def _decoded(text: str) -> EverlogError:
    said = msgspec.json.decode(msgspec.convert(text, bytes), type=_Carried)
    kind = next((kind for kind in _kinds(EverlogError) if kind.code == said.code), EverlogError)
    found = kind.__new__(kind)
    # Some kinds are made from other arguments; what they became is all here.
    EverlogError.__init__(found, said.what, why=said.why, hint=said.hint, **said.details)
    return found


def _kinds(kind: type[EverlogError]) -> Iterator[type[EverlogError]]:
    if kind.__module__ == errors.__name__:
        yield kind
    for below in kind.__subclasses__():
        yield from _kinds(below)

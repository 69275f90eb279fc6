"""A lake in a bucket: `s3://BUCKET/KEY`, at Amazon or any server with its interface. No jar is needed.

Files are read and written by PyArrow, tables are committed by `deltalake` with conditional puts. A place in a bucket
is a `Path` that begins with `s3:/`, so tables and files have the same names as in a folder. The environment says
where the server is and who calls it: AWS_ENDPOINT_URL, AWS_REGION, AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY,
AWS_SESSION_TOKEN, or what Amazon's library finds.

One pipeline at a time holds the lease, a table without rows: each commit to it is a conditional put, so of two that
take it at the same moment one wins. It is renewed until it is given back; after a kill it expires.
"""

from __future__ import annotations

import os
import socket
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from everlog.errors import Busy, EverlogError, NotFound, ReadOnly, Unavailable
from everlog.files import DiskFiles, Stamp

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.fs

PREFIX = "s3:/"
LEASE_S = 60
RENEW_S = 15


def is_remote(path: str | Path) -> bool:
    return str(path).startswith(PREFIX)


def url_of(path: Path) -> str:
    """Return a place as a URL, or as a path if it is on this machine."""
    return "s3://" + _key(path) if is_remote(path) else str(path)


def options() -> dict[str, str]:
    """Return what `deltalake` needs to know."""
    found = {"aws_conditional_put": "etag", "AWS_REGION": _region(), "max_retries": "4", "retry_timeout": "20s"}
    if endpoint := os.environ.get("AWS_ENDPOINT_URL"):
        found |= {"AWS_ENDPOINT_URL": endpoint, "AWS_ALLOW_HTTP": str(endpoint.startswith("http:")).lower()}
    return found


@lru_cache(maxsize=1)
def file_system() -> pyarrow.fs.FileSystem:
    from pyarrow.fs import S3FileSystem

    endpoint = os.environ.get("AWS_ENDPOINT_URL", "")
    scheme, _, host = endpoint.rpartition("://")
    place: dict[str, Any] = {"endpoint_override": host, "scheme": scheme or "https"} if endpoint else {}
    return S3FileSystem(region=_region(), **place)


def _region() -> str:
    return os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or "us-east-1"


def content_of(path: Path | str) -> pa.Buffer:
    """Return the bytes of an object. `FileNotFoundError` if there is none."""
    with _explained("read", path), file_system().open_input_file(_key(path)) as source:
        return source.read_buffer()


def _key(path: Path | str) -> str:
    return str(path)[len(PREFIX) :]


class BucketFiles(DiskFiles):
    """The operations that a lake uses, on objects. Folders exist as long as something is in them."""

    def exists(self, path: Path) -> bool:
        return self.stamp(path) is not None

    def stamp(self, path: Path) -> Stamp | None:
        from pyarrow.fs import FileType

        with _explained("look at", path):
            found = file_system().get_file_info(_key(path))
        if found.type is not FileType.File:
            return None
        return Stamp(found.size, found.mtime_ns or 0, 0)

    def walk(self, folder: Path) -> list[Path]:
        from pyarrow.fs import FileSelector, FileType

        chosen = FileSelector(_key(folder), recursive=True, allow_not_found=True)
        with _explained("list", folder):
            found = file_system().get_file_info(chosen)
        return sorted(Path(PREFIX + one.path) for one in found if one.type is FileType.File)

    def names(self, directory: Path) -> list[str]:
        return [path.name for path in self.walk(directory) if path.parent == directory]

    def read_all(self, path: Path) -> bytes:
        content: bytes = content_of(path).to_pybytes()
        return content

    def put(self, path: Path, data: bytes) -> None:
        with _explained("write", path), file_system().open_output_stream(_key(path)) as target:
            target.write(data)

    def upload(self, source: Path, path: Path) -> None:
        """Copy a file of this machine to an object."""
        files, piece = DiskFiles(), 16 * 1024 * 1024
        handle = files.open(source)
        try:
            with _explained("write", path), file_system().open_output_stream(_key(path)) as target:
                for at in range(0, files.size(handle), piece):
                    target.write(files.read(handle, piece, at=at))
        finally:
            files.close(handle)

    def unlink(self, path: Path) -> None:
        with _explained("remove", path):
            file_system().delete_file(_key(path))


class Lease:
    """The right to write to a lake in a bucket, until it expires."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._mine = f"{socket.gethostname()}:{os.getpid()}:{uuid.uuid4().hex[:8]}"
        self._number = 0
        self._lost = ""
        self._over = threading.Event()
        self._guard = threading.Lock()
        self._thread: threading.Thread | None = None

    def acquire(self, timeout: float | None = None) -> None:
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            number, holder, until = self._held()
            left = until - time.time()
            if holder and left > 0:
                if deadline is not None and time.monotonic() + min(left, 1) > deadline:
                    raise self._busy(f"{holder} holds it for another {left:.0f} s")
                time.sleep(min(left, 1))
                continue
            with suppress(_Taken):
                self._commit(number, time.time() + LEASE_S)
                break
        self._thread = threading.Thread(target=self._renew, daemon=True)
        self._thread.start()

    def require(self) -> None:
        """Refuse to go on if somebody else holds it now."""
        with self._guard:
            try:
                if self._lost:
                    raise _Taken(self._lost)
                self._commit(self._number, time.time() + LEASE_S)
            except _Taken as taken:
                self._lost = str(taken)
                raise self._busy("it expired, and another pipeline took it: this one was stopped") from taken

    def close(self) -> None:
        self._over.set()
        if self._thread is not None:
            self._thread.join()
            with self._guard, suppress(_Taken):
                if not self._lost:
                    self._commit(self._number, 0)

    def _renew(self) -> None:
        while not self._over.wait(RENEW_S):
            with suppress(EverlogError):  # the next `require` reports it
                self.require()

    def _busy(self, why: str) -> Busy:
        return Busy(
            f"another pipeline writes to {url_of(self._path.parent)}",
            why=why,
            hint="wait for it, or stop it; nothing was lost, and the last version of every table is whole",
        )

    def _held(self) -> tuple[int, str, float]:
        """Return the number of the lease, and who holds it until when."""
        from deltalake import DeltaTable

        uri = url_of(self._path)
        with _explained("look at", self._path):
            if not DeltaTable.is_deltatable(uri, options()):
                return 0, "", 0
            table = DeltaTable(uri, storage_options=options())
            found = table.history(1)[0]
        number = table.transaction_version(_LEASE) or 0
        return number, found.get("holder", ""), float(found.get("until", 0))

    def _commit(self, number: int, until: float) -> None:
        """Take the lease with this number, or renew it. `_Taken` if somebody else did so since."""
        import pyarrow as pa
        from deltalake import CommitProperties, DeltaTable, Schema, Transaction
        from deltalake.exceptions import DeltaError
        from deltalake.transaction import create_table_with_add_actions

        uri = url_of(self._path)
        properties = CommitProperties(
            app_transactions=[Transaction(_LEASE, number + 1)],
            custom_metadata={"holder": self._mine if until else "", "until": str(until)},
            max_commit_retries=0,
        )
        with _explained("take", self._path):
            if not DeltaTable.is_deltatable(uri, options()):
                schema = Schema.from_arrow(pa.schema([("nothing", pa.int64())]))
                try:
                    create_table_with_add_actions(
                        uri, schema, [], storage_options=options(), commit_properties=properties
                    )
                except DeltaError as error:
                    raise _Taken(str(error)) from error
            else:
                table = DeltaTable(uri, storage_options=options())
                if (table.transaction_version(_LEASE) or 0) != number:
                    raise _Taken("the number of the lease has changed")
                try:
                    table.create_write_transaction([], "append", table.schema(), commit_properties=properties)
                except DeltaError as error:
                    raise _Taken(str(error)) from error
        self._number = number + 1


_LEASE = "everlog:lease"


def remove_bucket(lake: Path, *, wait_s: float) -> bool:
    """Remove everything in a lake, and return whether there was something. The next run derives it again."""
    files = BucketFiles()
    if not files.exists(lake / "lake.json"):
        return False
    lease = Lease(lake / "lock")
    lease.acquire(wait_s)
    try:
        files.unlink(lake / "lake.json")  # first the file without which there is no lake
        for path in files.walk(lake):
            if not path.is_relative_to(lake / "lock"):
                files.unlink(path)
    finally:
        lease.close()
    return True


class _Taken(Exception):
    """Somebody else holds the lease."""


@contextmanager
def _explained(doing: str, path: Path | str) -> Iterator[None]:
    """Convert what a server of objects answers to an everlog error."""
    from deltalake.exceptions import DeltaError

    try:
        yield
    except FileNotFoundError:
        raise
    except (DeltaError, OSError) as error:
        raise explained(error, doing, path) from error


def explained(error: Exception, doing: str, path: Path | str) -> Exception:
    text = str(error)
    url = url_of(Path(path))
    if any(word in text for word in ("ACCESS_DENIED", "AccessDenied", "Forbidden", "403", "InvalidAccessKeyId")):
        return ReadOnly(
            f"cannot {doing} {url}",
            why="the bucket does not allow it to these credentials",
            hint="set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY of somebody who may do so; no table has changed",
        )
    if "NO_SUCH_BUCKET" in text or "NoSuchBucket" in text:
        return NotFound(f"cannot {doing} {url}", why="there is no such bucket", hint="create it, or name another one")
    return Unavailable(
        f"cannot {doing} {url}",
        why=text.partition("\n")[0][:300],
        hint="see whether the server answers: AWS_ENDPOINT_URL, AWS_REGION; the last versions are whole",
    )

"""Every byte that a log owns, to be searched for values that must be gone.

    the store        its file or folder, with its index, journals and temporary files
    beside it        snapshots, the lake, keys, refusals that wait: what has its name with an ending
    a .everlog       all of it

What is packed (gzip, Zstandard, Parquet) is unpacked first. A log in PostgreSQL has no files here: its events are
searched as they are stored.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path

import msgspec

from everlog.application.folder.open import Location
from everlog.application.lake import lake_path
from everlog.core.codec import Packed
from everlog.errors import EverlogError
from everlog.files import DiskFiles, replace_file
from everlog.log.log import Log
from everlog.pipeline.lake.bucket import is_remote, remove_bucket
from everlog.pipeline.lake.folders import remove_tree
from everlog.settings import FOLDER
from everlog.store_urls import store_path
from everlog.transfer.exporting import HEAD, line_of

_CHUNK = 1024 * 1024
_LAKE_WAIT_S = 10.0


class Searched(msgspec.Struct, frozen=True):
    """What was searched, and where something was found."""

    files: int
    bytes: int
    found: list[str]
    unreadable: list[str] = []


class Owned(msgspec.Struct, frozen=True):
    """Where the bytes of a log are."""

    roots: list[Path] = []
    lake: Path | None = None
    folder: Path | None = None  # where its exports are looked for

    def files(self) -> Iterator[Path]:
        """Return every file, each once."""
        seen: set[Path] = set()
        for root in self.roots:
            for path in sorted(root.rglob("*")) if root.is_dir() else [root]:
                if path.is_file() and path not in seen:
                    seen.add(path)
                    yield path

    def has_journal(self) -> bool:
        """Return whether a journal of SQLite has bytes that are not in its database yet."""
        try:
            return any(path.stat().st_size for path in self.files() if path.name.endswith("-wal"))
        except FileNotFoundError:
            return True  # it was removed meanwhile: look again


def owned_at(url: str, base: Path, *, own: bool) -> Owned:
    """Return where the bytes of a log are: with `own`, of that of the .everlog folder `base`."""
    return owned_by(Location(work_in=base.parent) if own else Location(url=url, work_in=base))


def owned_by(location: Location) -> Owned:
    """Return where the bytes of a log are."""
    settings = location.settings().settings
    base = location.directory if location.url else location.folder()
    path = store_path(settings.store, base=base)
    roots: list[Path] = []
    if path is not None and path.parent.is_dir():
        roots += [one for one in path.parent.iterdir() if one.name == path.name or one.name.startswith(path.name)]
    folder = None if location.url else location.folder()
    if folder is not None:
        roots.append(folder)
    roots += [base / named for named in (settings.snapshots, settings.keys_folder) if named]
    try:
        lake: Path | None = lake_path(location)
    except EverlogError:
        lake = None  # a log without a folder, for which nobody named a lake
    if lake is not None:
        roots.append(lake)
    if folder is None and path is not None:
        folder = path.parent
    return Owned([root.absolute() for root in roots if root.exists()], lake, folder)


# ---- searching


def search(owned: Owned, log: Log, forms: Sequence[bytes]) -> Searched:
    """Search every byte for values; return the names of the files that have one, never the values."""
    found, unreadable, files, size = [], [], 0, 0
    if not forms:
        return Searched(0, 0, [])
    for path in owned.files():
        try:
            held, read = _search_file(path, forms)
        except FileNotFoundError:
            continue  # a temporary file that is gone by now
        except (OSError, ValueError, zlib.error, EverlogError, ImportError):
            unreadable.append(str(path))
            continue
        files, size = files + 1, size + read
        if held:
            found.append(str(path))
    if not files:
        for slot in log.stored.slots():
            if isinstance(slot, Packed):
                size += len(slot.payload)
                if any(form in slot.payload for form in forms):
                    found.append(f"#{slot.position}")
    return Searched(files, size, found, unreadable)


def _search_file(path: Path, forms: Sequence[bytes]) -> tuple[bool, int]:
    overlap, rest, read = max(map(len, forms)) - 1, b"", 0
    for chunk in _UNPACKED.get(path.suffix, _plain)(path):
        read += len(chunk)
        data = rest + chunk
        if any(form in data for form in forms):
            return True, read
        rest = data[len(data) - overlap :] if overlap else b""
    return False, read


def _plain(path: Path) -> Iterator[bytes]:
    files = DiskFiles()
    handle, at = files.open(path), 0
    try:
        while chunk := files.read(handle, _CHUNK, at=at):
            at += len(chunk)
            yield chunk
    finally:
        files.close(handle)


def _gzip(path: Path) -> Iterator[bytes]:
    unpacker = zlib.decompressobj(wbits=31)
    for chunk in _plain(path):
        while chunk:
            yield unpacker.decompress(chunk, _CHUNK)
            chunk = unpacker.unconsumed_tail


def _zstd(path: Path) -> Iterator[bytes]:
    from everlog.wiring import unpacked_archive

    return unpacked_archive(path)


def _parquet(path: Path) -> Iterator[bytes]:
    from everlog.pipeline.lake.parquet_bytes import column_bytes

    yield from _plain(path)  # its statistics are not packed
    yield from column_bytes(path)


_UNPACKED: dict[str, Callable[[Path], Iterator[bytes]]] = {".gz": _gzip, ".zst": _zstd, ".parquet": _parquet}


# ---- exports


def rewrite_exports(owned: Owned, log: Log, gone: set[str]) -> list[str]:
    """Write the exports in the folder of a log again, with what is left of events whose payloads were erased."""
    if not gone or owned.folder is None:
        return []
    done, files = [], DiskFiles()
    store = {path for path in owned.folder.rglob("*") if path.is_dir() and path.name in ("keys", "ring", "lake")}
    for path in sorted(owned.folder.rglob("*")):
        if not path.is_file() or not store.isdisjoint(path.parents) or not _is_export(files, path):
            continue
        lines = files.read_all(path).split(b"\n")
        new = [_without_payload(log, line, gone) for line in lines]
        if new != lines:
            _replace_bytes(files, path, b"\n".join(new))
            done.append(str(path))
    return done


def exports_beside(owned: Owned, gone: Collection[str]) -> list[str]:
    """Return the exports beside a .everlog folder that have payloads which were erased. They are not the log's."""
    if not gone or owned.folder is None or owned.folder.name != FOLDER:
        return []
    files, found = DiskFiles(), []
    for path in sorted(owned.folder.parent.iterdir()):
        if path.is_file() and _is_export(files, path):
            lines = files.read_all(path).split(b"\n")
            found += [str(path)] if any(_id_in(line) in gone for line in lines) else []
    return found


def _is_export(files: DiskFiles, path: Path) -> bool:
    start = b'{"%b"' % HEAD.encode()
    handle = files.open(path)
    try:
        return files.read(handle, len(start), at=0) == start
    finally:
        files.close(handle)


def _without_payload(log: Log, line: bytes, gone: set[str]) -> bytes:
    event_id = _id_in(line)
    recorded = log.stored.get(event_id) if event_id in gone else None  # type: ignore[arg-type]
    return line if recorded is None else line_of(recorded).rstrip(b"\n")


def _id_in(line: bytes) -> str:
    """Return the id of the event in a line; nothing if there is none, or its payload is not there."""
    try:
        found = msgspec.json.decode(line, type=_Line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return ""
    return found.id if found.salt else ""


class _Line(msgspec.Struct):
    id: str = ""
    salt: str = ""


def _replace_bytes(files: DiskFiles, path: Path, data: bytes) -> None:
    """Replace a file, and overwrite the bytes of the old one."""
    old = files.open(path, write=True)
    try:
        replace_file(files, path, data)
        files.write_all(old, bytes(files.size(old)), at=0)
        files.fsync(old)
    finally:
        files.close(old)


# ---- the lake


_LAKE = (
    "lake.json",
    "events",
    "quarantine",
    "silver",
    "buckets",
    "gold",
    "answers",
    "letters",
    "checkpoints",
    "scratch",
)


def remove_lake(owned: Owned) -> bool:
    """Remove everything in the lake, and return whether there was something. The next run derives it again."""
    files, lake = DiskFiles(), owned.lake
    if lake is not None and is_remote(lake):
        return remove_bucket(lake, wait_s=_LAKE_WAIT_S)
    if lake is None or not any((lake / name).exists() for name in _LAKE):
        return False
    lock = files.lock(lake / "lock")
    lock.acquire(_LAKE_WAIT_S)
    try:
        for name in _LAKE:  # first the file without which there is no lake
            if (lake / name).is_file():
                files.unlink(lake / name)
            remove_tree(files, lake / name)
    finally:
        lock.close()
    return True

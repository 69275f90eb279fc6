"""The folder of snapshots: list, load, write, protect and remove them.

VIEW@POSITION-ID.json.gz     a snapshot; see `everlog.views.snapshots.file`
VIEW@POSITION-ID.keep        it is protected, and why
lock  lock.queue             held while anything here is written or removed
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from everlog.core.event import Position
from everlog.errors import Damaged, EverlogError, InvalidSettings, NotFound
from everlog.files import DiskFiles, Files, leftover_temps, replace_file
from everlog.views.snapshots.body import body_digest
from everlog.views.snapshots.file import PEEKED_BYTES, Signer, SnapshotHeader, body_of, pack, peek, unpack
from everlog.views.snapshots.patch import Body, apply_patch

PART_CHARS_MIN = 6
_LOCK_S = 30.0
_FILE = re.compile(r"([a-z0-9][a-z0-9._-]*)@(\d+)-([0-9A-Z]{26})\.json\.gz")


class SnapshotEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A snapshot file. Without a header it is damaged."""

    path: Path
    id: str
    view: str
    position: Position
    header: SnapshotHeader | None
    file_bytes: int
    protected: str = ""  # the reason; empty if it is not protected
    problem: str = ""


class Loaded(msgspec.Struct, frozen=True):
    entry: SnapshotEntry
    header: SnapshotHeader
    body: Body
    sha256: str


class SnapshotFolder:
    def __init__(self, path: Path | None, files: Files | None = None, signer: Signer | None = None) -> None:
        self.path = path
        self.files = files or DiskFiles()
        self.signer = signer

    @property
    def is_there(self) -> bool:
        return self.path is not None and self.files.exists(self.path)

    # ---- reading

    def entries(self, view: str = "") -> list[SnapshotEntry]:
        """Return all snapshots, or those of one view; the one with the highest position first."""
        if self.path is None or not self.files.exists(self.path):
            return []
        names = self.files.names(self.path)
        kept = {name.removesuffix(".keep") for name in names if name.endswith(".keep")}
        found = []
        for name in names:
            parts = _FILE.fullmatch(name)
            if parts is not None and (not view or parts[1] == view):
                found.append(self._entry(self.path / name, parts, name.removesuffix(".json.gz") in kept))
        return sorted(found, key=lambda entry: (entry.position, entry.id), reverse=True)

    def find(self, name: str) -> SnapshotEntry:
        """Return the snapshot with this id, or the one whose id ends with it."""
        found = [
            entry
            for entry in self.entries()
            if entry.id == name.upper() or (len(name) >= PART_CHARS_MIN and entry.id.endswith(name.upper()))
        ]
        if len(found) == 1:
            return found[0]
        raise NotFound(
            f"there is no snapshot {name}" if not found else f"more than one snapshot ends with {name}",
            why="a snapshot is named by its id, or by 6 or more characters of its end",
            hint="everlog snapshot list",
            snapshot=name,
        )

    def load(self, entry: SnapshotEntry) -> Loaded:
        """Return a snapshot with its full body, checked against its hashes; Damaged if it is not what was written."""
        header, content, sha256 = self._unpacked(entry.path)
        body = self._on_base(header, content) if header.base else body_of(content)
        if body_digest(body) != header.digest or len(body["rows"]) != header.keys:
            raise self._damaged(entry.path, "its digest is not that of its states")
        return Loaded(entry, header, body, sha256)

    # ---- writing

    def write(self, header: SnapshotHeader, content: bytes) -> SnapshotEntry:
        """Write a snapshot, all of it or nothing. The caller holds the lock."""
        folder = self.own()
        path = folder / f"{header.view}@{header.position:012}-{header.id}.json.gz"
        replace_file(self.files, path, pack(header, content, self.signer))
        return next(entry for entry in self.entries(header.view) if entry.id == header.id)

    def protect(self, entry: SnapshotEntry, reason: str | None) -> None:
        """Exclude a snapshot from thinning; with None include it again."""
        path = _keep_file(entry)
        with self.locked():
            if reason is not None:
                replace_file(self.files, path, (reason or "protected").encode())
            elif self.files.exists(path):
                self.files.unlink(path)
                self.files.fsync_dir(path.parent)

    def remove_leftovers(self) -> None:
        """Remove temporary files of processes that were killed. The caller holds the lock."""
        for path in leftover_temps(self.files, self.own()):
            self.files.unlink(path)

    def remove(self, entries: list[SnapshotEntry]) -> None:
        for entry in entries:
            self.files.unlink(entry.path)
            if self.files.exists(_keep_file(entry)):
                self.files.unlink(_keep_file(entry))
        if entries:
            self.files.fsync_dir(self.own())

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other processes from writing or removing a snapshot until the block ends."""
        lock = self.files.lock(self.own() / "lock")
        lock.acquire(_LOCK_S)
        try:
            yield
        finally:
            lock.release()
            lock.close()

    def own(self) -> Path:
        """Return the folder, created if it does not exist yet."""
        if self.path is None:
            raise InvalidSettings(
                "there is no folder for snapshots",
                why="this log is not a file on this machine, and the setting snapshots names no folder",
                hint="everlog config set snapshots snapshots",
            )
        if not self.files.exists(self.path):
            self.files.make_dir(self.path)
        return self.path

    # ---- inside

    def _entry(self, path: Path, parts: re.Match[str], is_kept: bool) -> SnapshotEntry:
        header, problem, size = None, "", 0
        try:
            handle = self.files.open(path)
            try:
                size = self.files.size(handle)
                header = peek(self.files.read(handle, PEEKED_BYTES, at=0))
            finally:
                self.files.close(handle)
            if (header.view, header.position, header.id) != (parts[1], int(parts[2]), parts[3]):
                header, problem = None, "its header does not match the name of the file"
        except (EverlogError, OSError) as error:
            problem = str(error)
        kept = path.with_name(path.name.removesuffix(".json.gz") + ".keep")
        reason = self.files.read_all(kept).decode(errors="replace") or "protected" if is_kept else ""
        return SnapshotEntry(
            path=path,
            id=parts[3],
            view=parts[1],
            position=Position(int(parts[2])),
            header=header,
            file_bytes=size,
            protected=reason,
            problem=problem,
        )

    def _unpacked(self, path: Path) -> tuple[SnapshotHeader, bytes, str]:
        try:
            header, content, seal = unpack(self.files.read_all(path), self.signer)
        except Damaged as error:
            raise self._damaged(path, str(error)) from error
        except FileNotFoundError as error:
            raise self._damaged(path, "it does not exist any more") from error
        return header, content, seal.sha256

    def _on_base(self, header: SnapshotHeader, patch: bytes) -> Body:
        base = next((entry for entry in self.entries(header.view) if entry.id == header.base), None)
        if base is None:
            raise Damaged(f"the snapshot {header.id} has no base", why=f"{header.base} does not exist")
        found, content, sha256 = self._unpacked(base.path)
        if found.base or sha256 != header.base_sha256:
            raise self._damaged(base.path, f"it is not the base of {header.id}")
        return apply_patch(body_of(content), patch)

    @staticmethod
    def _damaged(path: Path, why: str) -> Damaged:
        return Damaged(
            f"the snapshot {path.name} is damaged",
            why=why,
            hint="everlog snapshot create makes a new one; until then the one before it is used",
        )


def _keep_file(entry: SnapshotEntry) -> Path:
    return entry.path.with_name(entry.path.name.removesuffix(".json.gz") + ".keep")

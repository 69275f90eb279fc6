"""A JVM that starts in half the time: what loading Spark's classes came to is kept in a file, and used from then on.

Java can write down the classes that a process has loaded (17, 21: a class-data archive; 25: an ahead-of-time cache).
The file is bound to one Java and one Spark; with any other the JVM starts as if there were none. It is about 200 MB,
made at the end of the first command that uses Spark, which takes some seconds more for it, and may be deleted.
"""

from __future__ import annotations

import hashlib
import os
import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from everlog.errors import EverlogError
from everlog.files import DiskFiles
from everlog.pipeline.java import Java

KEPT_MAX = 3
FREE_BYTES_MIN = 2 * 1024**3
_SUFFIXES = (".aot", ".jsa", ".none")
_DRAFT = re.compile(r"[0-9a-f]+\.(?:aot|jsa)\.[0-9]+(?:\..*)?")  # one of a Java that trains has a name behind it
_DRAFT_NS_MAX = 24 * 3600 * 10**9  # a process id says little: it may be another process by now


class WarmStart(NamedTuple):
    """Where the file of this Java and this Spark is, or would be."""

    path: Path
    java: Java

    @property
    def is_there(self) -> bool:
        return DiskFiles().exists(self.path)

    @property
    def may_be_made(self) -> bool:
        """False if it is there, or making it failed once already, or the disk has no room for it."""
        if self.is_there or DiskFiles().exists(self._failed):
            return False
        room = os.statvfs(self.path.parent)
        return room.f_bavail * room.f_frsize >= FREE_BYTES_MIN

    @property
    def options_to_use(self) -> str:
        # A file that does not fit is passed over; the JVM must not print so.
        kind = "AOTCache" if self.path.suffix == ".aot" else "SharedArchiveFile"
        return f"-XX:{kind}={self.path} -Xlog:disable"

    @property
    def options_to_make(self) -> str:
        kind = "AOTCacheOutput" if self.path.suffix == ".aot" else "ArchiveClassesAtExit"
        return f"-XX:{kind}={self._draft} -Xlog:disable"

    def keep(self, *, ended_well: bool) -> bool:
        """Put what a JVM left at its end into place; True if there is something. A failure is remembered."""
        files = DiskFiles()
        try:
            if ended_well and files.exists(self._draft):
                files.rename(self._draft, self.path)
                self._remove_old(files)
                return True
            if files.exists(self._draft):
                files.unlink(self._draft)
            files.close(files.open(self._failed, create=True))
        except (OSError, EverlogError):
            return False  # a start is only slower without it
        return False

    @property
    def _draft(self) -> Path:
        return self.path.with_name(f"{self.path.name}.{os.getpid()}")

    @property
    def _failed(self) -> Path:
        return self.path.with_suffix(".none")

    def _remove_old(self, files: DiskFiles) -> None:
        """Of other Javas and other Sparks, the newest few stay; drafts of processes that were killed go."""
        folder = self.path.parent
        there = [folder / name for name in files.names(folder)]
        stamps = {path: stamp.changed_ns for path in there if (stamp := files.stamp(path)) is not None}
        kept = [path for path in stamps if path.name.endswith(_SUFFIXES)]
        old = sorted(kept, key=lambda path: -stamps[path])[KEPT_MAX:]
        dead_ns = time.time_ns() - _DRAFT_NS_MAX
        old += [path for path in stamps if _DRAFT.fullmatch(path.name) and stamps[path] < dead_ns]
        for path in old:
            files.unlink(path)


def warm_start_of(java: Java, environment: Mapping[str, str] = os.environ) -> WarmStart | None:
    """The start-up file of a Java with the installed Spark; None where none can be kept."""
    base = environment.get("XDG_CACHE_HOME") or str(Path(environment.get("HOME") or Path.home()) / ".cache")
    folder = Path(base).absolute() / "everlog" / "spark"
    if any(character.isspace() for character in str(folder)):
        return None  # the options of a JVM are words in one line
    files = DiskFiles()
    try:
        for parent in reversed([folder, *folder.parents]):
            if not files.exists(parent):
                files.make_dir(parent)
    except (OSError, EverlogError):
        return None
    if not os.access(folder, os.W_OK):
        return None
    suffix = ".aot" if java.major >= 25 else ".jsa"
    return WarmStart(folder / f"{_key(files, java)}{suffix}", java)


def _key(files: DiskFiles, java: Java) -> str:
    """What a file is bound to: the Java by its place and date, the Spark by its version and that of its jars."""
    import pyspark

    path = Path(java.path).resolve()
    jars = Path(pyspark.__file__).parent / "jars"
    parts = [str(path), files.stamp(path), pyspark.__version__, str(jars), files.stamp(jars)]
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]

"""A JVM that starts in half the time: the result of loading Spark's classes is kept in a file and used again.

Java can store the classes that a process has loaded (17, 21: a class-data archive; 25: an ahead-of-time cache). The
file belongs to one Java and one Spark; with any other the JVM starts as if there were none. It is about 200 MB, is
made at the end of the first command that uses Spark, which takes some seconds longer, and may be deleted.
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
from everlog.pipeline.session.java import Java

KEPT_MAX = 3
FREE_BYTES_MIN = 2 * 1024**3
_SUFFIXES = (".aot", ".jsa", ".none")
_DRAFT = re.compile(r"[0-9a-f]+\.(?:aot|jsa)\.[0-9]+(?:\..*)?")  # Java 25 appends a name while it records
_DRAFT_NS_MAX = 24 * 3600 * 10**9  # by age, because the process id may belong to another process now


class WarmStart(NamedTuple):
    """The file of this Java and this Spark, whether it exists or not."""

    path: Path
    java: Java

    @property
    def is_there(self) -> bool:
        return DiskFiles().exists(self.path)

    @property
    def may_be_made(self) -> bool:
        """False if it exists, or making it failed before, or the disk has no room for it."""
        if self.is_there or DiskFiles().exists(self._failed):
            return False
        room = os.statvfs(self.path.parent)
        return room.f_bavail * room.f_frsize >= FREE_BYTES_MIN

    @property
    def options_to_use(self) -> str:
        # The JVM ignores a file that does not fit; it must not print that.
        kind = "AOTCache" if self.path.suffix == ".aot" else "SharedArchiveFile"
        return f"-XX:{kind}={self.path} -Xlog:disable"

    @property
    def options_to_make(self) -> str:
        kind = "AOTCacheOutput" if self.path.suffix == ".aot" else "ArchiveClassesAtExit"
        return f"-XX:{kind}={self._draft} -Xlog:disable"

    def keep(self, *, ended_well: bool) -> bool:
        """Move what a JVM wrote at its end into place; return True if there is something. A failure is recorded."""
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
            return False  # without it, a start is only slower
        return False

    @property
    def _draft(self) -> Path:
        return self.path.with_name(f"{self.path.name}.{os.getpid()}")

    @property
    def _failed(self) -> Path:
        return self.path.with_suffix(".none")

    def _remove_old(self, files: DiskFiles) -> None:
        """Keep the newest few files of other Javas and Sparks; remove drafts of killed processes."""
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
    """Return the start-up file of a Java with the installed Spark; None where none can be kept."""
    base = environment.get("XDG_CACHE_HOME") or str(Path(environment.get("HOME") or Path.home()) / ".cache")
    folder = Path(base).absolute() / "everlog" / "spark"
    if any(character.isspace() for character in str(folder)):
        return None  # options of a JVM are separated by spaces
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
    """Return a hash of what a file belongs to: the Java by path and date, Spark by its version and its jars."""
    import pyspark

    path = Path(java.path).resolve()
    jars = Path(pyspark.__file__).parent / "jars"
    parts = [str(path), files.stamp(path), pyspark.__version__, str(jars), files.stamp(jars)]
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]

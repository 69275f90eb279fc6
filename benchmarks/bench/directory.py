"""Where to measure: a directory on a disk. In memory a flush does nothing, and a ratio to it would mean nothing."""

from __future__ import annotations

import tempfile
from pathlib import Path

from everlog.errors import InvalidSettings

IN_MEMORY = frozenset(("tmpfs", "ramfs", "devtmpfs"))
_MOUNTS = Path("/proc/self/mounts")


def choose_directory(given: Path | None, *, mounts: Path = _MOUNTS) -> Path:
    """The given directory, or the first usual one that is on a disk; refuses one that is in memory."""
    candidates = [given] if given is not None else [Path(tempfile.gettempdir()), Path("/var/tmp"), Path.cwd()]
    for candidate in candidates:
        if candidate.is_dir() and file_system(candidate, mounts=mounts) not in IN_MEMORY:
            return candidate
    names = ", ".join(str(candidate) for candidate in candidates)
    if given is not None and not given.is_dir():
        raise InvalidSettings(
            f"{given} is not a directory", why="the benchmark makes its files in one", hint="name one that exists"
        )
    raise InvalidSettings(
        f"{names} is in memory",
        why="an append is measured against the flush of a disk, and memory has none",
        hint="name a directory on a disk",
    )


def file_system(directory: Path, *, mounts: Path = _MOUNTS) -> str:
    """The kind of file system below a directory; "" where the system does not tell."""
    if not mounts.exists():
        return ""
    place = directory.resolve()
    best, kind = -1, ""
    for line in mounts.read_text(encoding="utf-8", errors="surrogateescape").splitlines():
        _, point, found, *_ = line.split(" ")
        mounted = Path(point.replace("\\040", " "))
        # The last of two mounts on one point hides the first, hence >=.
        if (place == mounted or mounted in place.parents) and len(mounted.parts) >= best:
            best, kind = len(mounted.parts), found
    return kind

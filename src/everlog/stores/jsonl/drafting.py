"""An index that is made beside the one in use and gets its name when it is whole."""

from __future__ import annotations

from pathlib import Path

from everlog.files import Files
from everlog.stores.jsonl.index import Index


def draft_of(path: Path) -> Path:
    return path.with_name(f"{path.name}.new")


def clear_draft(files: Files, path: Path) -> None:
    """Remove what a crash left of another one."""
    draft = draft_of(path)
    for suffix in ("", "-wal", "-shm", "-journal"):
        name = draft.with_name(draft.name + suffix)
        if files.exists(name):
            files.unlink(name)


def put_in_place(files: Files, path: Path, index: Index, *, origin: str) -> Index:
    """Give the drafted index the name by which all others find it."""
    draft = draft_of(path)
    index.close()
    for suffix in ("-wal", "-shm"):
        for name in (path.name + suffix, draft.name + suffix):
            if files.exists(path.with_name(name)):
                files.unlink(path.with_name(name))
    handle = files.open(draft, write=True)
    try:
        files.fsync(handle)
    finally:
        files.close(handle)
    files.rename(draft, path)
    return Index.open(path, origin=origin)

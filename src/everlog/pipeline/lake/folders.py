"""Folders of the lake, made, listed and removed: in a bucket, or by the file layer that crash tests watch."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from everlog.files import DiskFiles, replace_file
from everlog.pipeline.lake.bucket import BucketFiles, is_remote


def files_for(path: Path) -> DiskFiles:
    """Return the operations on files at a place."""
    return BucketFiles() if is_remote(path) else DiskFiles()


def make_folders(files: DiskFiles, folder: Path) -> None:
    """Create a folder, and those above it that are missing."""
    if is_remote(folder):
        return
    missing = [parent for parent in (folder, *folder.parents) if not parent.is_dir()]
    for parent in reversed(missing):
        files.make_dir(parent)


def put_file(files: DiskFiles, path: Path, data: bytes) -> None:
    """Replace the content of a file: a reader sees the old or the new one."""
    if isinstance(files, BucketFiles):
        files.put(path, data)
    else:
        replace_file(files, path, data)


def walk(files: DiskFiles, folder: Path) -> list[Path]:
    """Return all files below a folder, which need not be there."""
    if isinstance(files, BucketFiles):
        return files.walk(folder)
    return sorted(above / name for above, _, files_in in _folders_in(folder) for name in files_in)


def _folders_in(folder: Path) -> Iterator[tuple[Path, list[str], list[str]]]:
    """Yield a folder and those below it, the innermost first, each with the folders and the files in it.

    A folder that somebody removes meanwhile, as Spark does with those of a write, has nothing in it.
    """

    def refuse(error: OSError) -> None:
        if not isinstance(error, FileNotFoundError):
            raise error

    for above, folders, names in os.walk(folder, topdown=False, onerror=refuse):
        yield Path(above), folders, names


def remove_tree(files: DiskFiles, folder: Path) -> None:
    """Remove a folder with all that is in it, if it is there."""
    if isinstance(files, BucketFiles):
        for path in files.walk(folder):
            files.unlink(path)
        return
    if not folder.is_dir():
        return
    for path in sorted(folder.rglob("*"), reverse=True):
        if path.is_dir():
            files.remove_dir(path)
        else:
            files.unlink(path)
    files.remove_dir(folder)


def remove_empty_folders(files: DiskFiles, folder: Path, unchanged_s: float = 0.0) -> None:
    """Remove the folders in a folder that are empty, and have not changed for so long.

    A write that runs meanwhile makes folders before it puts files into them, and removes folders itself.
    """
    if is_remote(folder) or not folder.is_dir():
        return
    until = time.time() - unchanged_s
    for path, _, _ in _folders_in(folder):
        with suppress(FileNotFoundError):
            is_old = not unchanged_s or path.stat().st_mtime <= until
            if path != folder and is_old and not any(path.iterdir()):
                files.remove_dir(path)

"""Folders of the lake, made, listed and removed: in a bucket, or by the file layer that crash tests watch."""

from __future__ import annotations

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
    return sorted(path for path in folder.rglob("*") if not path.is_dir()) if folder.is_dir() else []


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


def remove_empty_folders(files: DiskFiles, folder: Path) -> None:
    if is_remote(folder) or not folder.is_dir():
        return
    for path in sorted(folder.rglob("*"), reverse=True):
        if path.is_dir() and not any(path.iterdir()):
            files.remove_dir(path)

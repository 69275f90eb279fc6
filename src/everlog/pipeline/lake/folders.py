"""Folders of the lake, made and removed through the file layer, which the crash tests watch."""

from __future__ import annotations

from pathlib import Path

from everlog.files import DiskFiles


def make_folders(files: DiskFiles, folder: Path) -> None:
    """Create a folder, and those above it that are missing."""
    missing = [parent for parent in (folder, *folder.parents) if not parent.is_dir()]
    for parent in reversed(missing):
        files.make_dir(parent)


def remove_tree(files: DiskFiles, folder: Path) -> None:
    """Remove a folder with all that is in it, if it is there."""
    if not folder.is_dir():
        return
    for path in sorted(folder.rglob("*"), reverse=True):
        if path.is_dir():
            files.remove_dir(path)
        else:
            files.unlink(path)
    files.remove_dir(folder)


def remove_empty_folders(files: DiskFiles, folder: Path) -> None:
    for path in sorted(folder.rglob("*"), reverse=True):
        if path.is_dir() and not any(path.iterdir()):
            files.remove_dir(path)

"""The folder of the demo: created with its event types, and replaced by the next demo."""

from __future__ import annotations

from pathlib import Path

from everlog.application.create_folder import create_folder
from everlog.demo.programs.customers import TYPES
from everlog.errors import Conflict
from everlog.files import DiskFiles
from everlog.settings import load

# A demo may remove these files of a folder with demo = true in its settings, and nothing else. Lock files stay.
OWN_FILES = (
    "log.db",
    "log.db-wal",
    "log.db-shm",
    "types.toml",
    "schema.lock.json",
    ".gitignore",
    "report.html",
    "everlog.toml",
)


def create_demo(folder: Path, *, url: str = "sqlite:log.db") -> str:
    """Create the folder of a demo with an empty log, and return a line about it. An earlier demo is replaced."""
    files = DiskFiles()
    for parent in reversed([folder.parent, *folder.parent.parents]):
        if not files.exists(parent):
            files.make_dir(parent)
    replaced = files.exists(folder) and _remove_demo(folder)
    create_folder(folder, store=url, types=TYPES, demo=True)
    done = "replaced the demo in" if replaced else "created"
    kept = "log.db" if url == "sqlite:log.db" else "and a schema in the database"
    return f"{done} {folder}: everlog.toml, types.toml, {kept}"


def _remove_demo(folder: Path) -> bool:
    """Remove an earlier demo, and return whether there was one. Any other log is refused."""
    files = DiskFiles()
    if not set(files.names(folder)) & {"everlog.toml", "log.db"}:
        return False
    settings = load(folder, environment={}).settings
    if not settings.demo or settings.store != "sqlite:log.db":
        raise Conflict(
            f"there is a log in {folder} that is not a demo",
            why="the demo replaces only an earlier demo",
            hint="everlog demo --dir DIR",
            path=str(folder),
        )
    if files.exists(folder / "lake"):
        from everlog.pipeline.lake.folders import remove_tree

        remove_tree(files, folder / "lake")
    # The settings are removed last: while they exist, the next demo can replace an interrupted one.
    for name in OWN_FILES:
        if files.exists(folder / name):
            files.unlink(folder / name)
    files.fsync_dir(folder)
    return True

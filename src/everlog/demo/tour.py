"""The demo as a whole: its folder, which the next demo replaces, its log, and the answers shown at its end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from everlog import wiring
from everlog.application.folder.create import create_folder
from everlog.demo.programs.customers import TYPES
from everlog.errors import Conflict, NotFound
from everlog.files import DiskFiles
from everlog.log.log import Log
from everlog.programs.controlplane.questions import Audit
from everlog.programs.issues.questions import List
from everlog.programs.perform import ask
from everlog.programs.workpackages.questions import Board
from everlog.settings import FOLDER, load

ROWS = 6
"""The number of rows that are shown of each answer."""

# A demo may remove these files of a folder with demo = true in its settings, and nothing else. Lock files stay.
OWN_FILES = (
    "log.db",
    "log.db-wal",
    "log.db-shm",
    "log.db-refusals",
    "types.toml",
    "schema.lock.json",
    ".gitignore",
    "report.html",
    "everlog.toml",
)


def demo_folder(directory: Path) -> Path:
    return directory / FOLDER


def open_demo(folder: Path) -> Log:
    return wiring.open_folder(folder, actor="user:ada")


def create_demo(folder: Path, *, url: str = "sqlite:log.db") -> str:
    """Create the folder of a demo with an empty log, and return a line about it. An earlier demo is replaced."""
    files = DiskFiles()
    for parent in reversed([folder.parent, *folder.parent.parents]):
        if not files.exists(parent):
            files.make_dir(parent)
    replaced = files.exists(folder) and _remove_demo(folder)
    create_folder(folder, store=url, types=TYPES, demo=True)
    done = "an earlier demo was replaced in" if replaced else "a new log in"
    return f"{done} {folder.name}/"


def require_demo(folder: Path) -> None:
    """Raise if there is no demo in a folder."""
    if not DiskFiles().exists(folder / "everlog.toml") or not load(folder, environment={}).settings.demo:
        raise NotFound(
            f"there is no demo in {folder}",
            why="the second act goes on with the log of the first",
            hint="everlog demo",
        )


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


# ---- what is shown at the end


def shown_answers(log: Log) -> dict[str, list[dict[str, Any]]]:
    """Return the rows of each answer."""
    from everlog.demo.programs import community as street
    from everlog.demo.programs import issues as reports
    from everlog.demo.programs import workpackages as plan
    from everlog.programs.agents.questions import Trace
    from everlog.programs.community import questions as community

    feature = list(plan.FEATURES)[-1]
    session = _busiest(log)
    return {
        "board": ask(log, Board(feature=feature)),
        "issues": ask(log, List(project=reports.SCOPE, limit=ROWS)),
        "members": community.members(log, street.HEARTH),
        "audit": [
            {
                "position": entry.position,
                "at": f"{entry.occurred_at:%m-%d %H:%M}",
                "actor": entry.actor,
                "actor_type": entry.actor_type,
                "type": entry.type,
                "stream": entry.stream,
            }
            for entry in ask(log, Audit(place="acme", actor_type="user", limit=None), within="acme")[-ROWS:]
        ],
        "trace": [{"session": session, **step} for step in ask(log, Trace(session=session))[: 2 * ROWS]],
    }


def _busiest(log: Log) -> str:
    """Return the session of a work package with the most steps."""
    from everlog.demo.programs import workpackages as plan
    from everlog.programs.agents.views import Trace

    rows = ((key, len(state["steps"])) for key, state in log.view(Trace).items())
    return max((row for row in rows if row[0] in plan.names()), key=lambda row: (row[1], row[0]))[0]

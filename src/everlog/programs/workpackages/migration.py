"""Migrate the activity.yaml of 1.x to events with the tag `migrated`, and rename the file.

The events are made from the entries alone: ids, clocks (the place in the file), salts and the chain are the same on
every machine and at every run. So running it again adds nothing, clones that migrate the same file agree, and a file
that has grown since adds only its new entries. Migrated events never override a real event: see `package.py`.
The file is renamed only after the events are on the disk, and never over another one.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from everlog.core.event import Event
from everlog.core.fields import actor_of, moment_of
from everlog.errors import Conflict, EverlogError, NotFound
from everlog.files import DiskFiles, Files
from everlog.log.admit.events import refuse_unacceptable
from everlog.log.log import Log
from everlog.log.secrets.find import refuse_secrets
from everlog.programs.workpackages.activity import ActivityEntry, Wrong, read_entries, refuse
from everlog.programs.workpackages.events import CATALOG, KIND, SPEC_KIND
from everlog.transfer.fill import Filler, stable_bytes
from everlog.transfer.foreign import Foreign

SUFFIX = ".migrated"
TAGS = {"migrated": "true"}

_FIELDS = {
    "SpecCreated": ("feature_slug", "title", "mission"),
    "WPCreated": ("work_package_id", "title", "dependencies", "feature_slug", "subtasks"),
    "WPStatusChanged": ("work_package_id", "feature_slug", "old_status", "new_status", "reason"),
    "WorkspaceCreated": ("work_package_id", "worktree_path", "branch_name"),
    "SubtaskCompleted": ("work_package_id", "subtask_index", "subtask_text"),
    "GateCreated": ("work_package_id", "gate_type", "gate_id"),
    "GateResultChanged": ("work_package_id", "gate_id", "old_status", "new_status", "result_data"),
}
"""What an entry of each type may say, besides `timestamp`, `event` and `actor`."""


class Migrated(msgspec.Struct, frozen=True, kw_only=True):
    """What a migration found and did."""

    entries: int
    new: int  # how many were not in the log
    archive: str  # where the file is now


def migrate(
    log: Log,
    path: Path,
    *,
    dry_run: bool = False,
    files: Files | None = None,
    now_us: Callable[[], int] = lambda: time.time_ns() // 1000,
) -> Migrated:
    """Record what a file says, all of it or nothing, and rename it to FILE.migrated."""
    files = files or DiskFiles()
    found, waiting = _source(files, path)
    events = _events(read_entries(files.read_all(found), found.name), found.name, now_ms=now_us() // 1000)
    new = sum(log.get(event.id) is None for event in events)
    if dry_run:
        return Migrated(entries=len(events), new=new, archive=str(found))
    if new:
        _admit(log, events, found.name)
    if waiting:
        found = _put_aside(files, path)
    return Migrated(entries=len(events), new=new, archive=str(found))


def _source(files: Files, path: Path) -> tuple[Path, bool]:
    """Return the file to read, and whether it is still to be renamed."""
    if files.exists(path):
        return path, True
    archive = path.with_name(path.name + SUFFIX)
    if files.exists(archive):
        return archive, False
    raise NotFound(
        f"there is no file {path}",
        why=f"nor is there {archive.name}, which an earlier migration would have left",
        hint="everlog wp migrate .kittify/activity.yaml",
    )


def _put_aside(files: Files, path: Path) -> Path:
    names = (
        path.with_name(f"{path.name}{SUFFIX}{f'.{number}' if number > 1 else ''}") for number in range(1, 10_000)
    )
    target = next(name for name in names if not files.exists(name))
    files.rename(path, target)
    files.fsync_dir(path.parent)
    return target


def _admit(log: Log, events: list[Event], name: str) -> None:
    try:
        log.admit(events)
    except Conflict as error:
        raise Conflict(
            f"{name} is not the file that was migrated before",
            why=f"it says something else where the log has it already ({error})",
            hint="only what was added at its end can be migrated later; put the old entries back as they were",
        ) from error


# ---- entries to events


def _events(entries: list[ActivityEntry], name: str, *, now_ms: int) -> list[Event]:
    """Return one event per entry. BadFile names every line that does not fit."""
    filler, problems, events = Filler(), [], []
    seen: Counter[bytes] = Counter()
    for entry in entries:
        try:
            foreign = _foreign(entry)
            content = stable_bytes(entry.fields)
            seen[content] += 1
            # The same entry twice is two events: the number distinguishes them.
            event = filler.fill(foreign, content + b" %d" % seen[content]).event
            refuse_unacceptable(event, now_ms=now_ms)
            refuse_secrets(event.type, event.payload)
            events.append(event)
        except Wrong as wrong:
            problems.append(f"{name}:{wrong.line}: {wrong}")
        except EverlogError as error:
            problems.append(f"{name}:{entry.line}: {error}")
    refuse(problems, name)
    return events


def _foreign(entry: ActivityEntry) -> Foreign:
    fields = dict(entry.fields)
    moment = _moment(entry, fields.pop("timestamp", None))
    actor = actor_of(fields.pop("actor", "system"), "agent")
    if "event" not in fields and "lane" in fields:
        fields = {"event": "WPStatusChanged", "new_status": fields.pop("lane"), **fields}
    event_type = fields.pop("event", "")
    known = _FIELDS.get(event_type)
    if known is None:
        raise Wrong(entry.line, f"event is {event_type or 'missing'}; it is one of {', '.join(_FIELDS)}")
    unknown = sorted(fields.keys() - set(known))
    if unknown:
        raise Wrong(entry.line, f"{event_type} has no field {unknown[0]}; it has {', '.join(known)}")
    subject = "feature_slug" if event_type == "SpecCreated" else "work_package_id"
    if not isinstance(fields.get(subject), str):
        raise Wrong(entry.line, f"it has no {subject}")
    kind = SPEC_KIND if event_type == "SpecCreated" else KIND
    version, payload = _payload(entry, event_type, fields)
    return Foreign(
        type=event_type,
        version=version,
        stream=f"{kind}/{fields[subject]}",
        payload=payload,
        actor=actor,
        occurred_at=moment,
        tags=TAGS,
    )


def _moment(entry: ActivityEntry, text: Any) -> Any:
    try:
        return moment_of(text)
    except (TypeError, ValueError):
        raise Wrong(entry.line, f"timestamp is {text or 'missing'}; it is a time in ISO 8601") from None


def _payload(entry: ActivityEntry, event_type: str, fields: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    """Return the payload in the latest version of its type: 1.x had the first version's fields and words."""
    old = dict(fields)
    if "subtask_index" in old and str(old["subtask_index"]).isdigit():
        old["subtask_index"] = int(old["subtask_index"])
    if event_type in ("WPStatusChanged", "GateResultChanged"):
        old.pop("work_package_id")  # the stream says it
    for _, latest, upcasters in CATALOG.readings([event_type]):
        for _, upcaster in upcasters:
            old = dict(upcaster(old))
        try:
            return latest, CATALOG.validate(event_type, old)[1]
        except EverlogError as error:
            raise Wrong(entry.line, error.why) from error
    raise AssertionError(f"{event_type} is in the catalog")

"""Work packages as a person reads them in a terminal: the board, one package, and its history."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby, zip_longest
from typing import Any

from everlog.cli.output import Output, fitted, places, safe, terminal_width
from everlog.core.text import counted

GAP = 2
COLUMN_MAX = 40
DONE_SHOWN = 8
"""Packages in the last lane that are shown by name; the others are counted."""

_WAY = (
    "planned",
    "claimed",
    "doing",
    "in_progress",
    "for_review",
    "in_review",
    "approved",
    "done",
    "blocked",
    "canceled",
)
"""Our lanes and those of spec-kitty, in the order in which a package goes through them."""


def marks(package: dict[str, Any]) -> list[tuple[str, str]]:
    """Return what is worth knowing of a package besides its lane, with a colour; what needs somebody comes first."""
    found = [("conflict", "red")] if package["conflict"] else []
    found += [(f"{gate} failed", "red") for gate, status in package["closed_gates"].items() if status == "failed"]
    if package["lane"] == "planned" and package["waits_for"]:
        found.append((f"waits for {', '.join(package['waits_for'])}", "yellow"))
    if package["lane"] == "for_review":
        open_gates = [gate for gate, status in package["closed_gates"].items() if status != "failed"]
        found += [(f"{gate} pending", "yellow") for gate in open_gates]
    done = sum(bool(one["done_at"]) for one in package["subtasks"])
    if package["subtasks"] and package["lane"] != "done":
        found.append((f"{done}/{counted(len(package['subtasks']), 'subtask')}", "blue"))
    if package["migrated"]:
        found.append(("migrated", "blue"))
    return found


# ---- the board


def board_lines(
    out: Output, packages: Sequence[dict[str, Any]], specs: dict[str, dict[str, Any]], *, everything: bool
) -> list[str]:
    """Return a table for each feature, a column for each lane."""
    lines: list[str] = []
    for feature, some in groupby(packages, key=lambda package: package["feature"]):
        lines += [""] * bool(lines)
        lines += _feature_lines(out, feature, specs.get(feature, {}).get("title", ""), list(some), everything)
    return lines


def _feature_lines(
    out: Output, feature: str, title: str, packages: list[dict[str, Any]], everything: bool
) -> list[str]:
    from everlog.programs.workpackages.events import LANES

    # A lane of another program gets its place too: nothing is left off the board.
    found = {one["lane"] for one in packages} - set(LANES)
    known = [lane for lane in _WAY if lane in LANES or lane in found]
    lanes = [*known, *sorted(found - set(known))]
    columns = [_lines_of([one for one in packages if one["lane"] == lane], everything) for lane in lanes]
    names = [f"{safe(lane)} {sum(one['lane'] == lane for one in packages)}" for lane in lanes]
    texts = [*names, *(text for column in columns for text, _ in column)]
    room = terminal_width()
    width = min(COLUMN_MAX, (room + GAP) // len(lanes) - GAP, max(map(places, texts)))
    done = f"{sum(one['lane'] == 'done' for one in packages)} of {len(packages)} done"
    named = f"{feature}  {title}" if feature and title else feature or title or "(no feature)"
    whole = max(len(lanes) * (width + GAP) - GAP, min(room, places(named) + GAP + len(done)))
    rows = zip_longest(*columns, fillvalue=("", ""))
    return [
        out.paint(fitted(safe(named), whole - len(done) - GAP) + " " * GAP + done, "cyan"),
        _joined([_colored(out, fitted(name, width), "dim") for name in names]),
        *(_joined([_colored(out, fitted(text, width), color) for text, color in row]) for row in rows),
    ]


def _lines_of(packages: list[dict[str, Any]], everything: bool) -> list[tuple[str, str]]:
    """Return the lines of a lane, each with a colour."""
    hidden = 0
    if packages and packages[0]["lane"] == "done" and not everything:
        newest = sorted(packages, key=lambda package: package["moved_at"], reverse=True)[:DONE_SHOWN]
        hidden = len(packages) - len(newest)
        packages = [package for package in packages if package in newest]
    lines: list[tuple[str, str]] = []
    for package in packages:
        color = "green" if package["lane"] == "done" else ""
        lines.append((f"{safe(package['id'])} {safe(package['title'])}".rstrip(), color))
        lines += [(f"  {safe(text)}", tone) for text, tone in marks(package)]
    return [*lines, (f"… {hidden} more (--all)", "blue")] if hidden else lines


def _colored(out: Output, text: str, color: str) -> str:
    """Return a text in its colour, without the blanks that fill it up."""
    words = text.rstrip()
    shown = out.dim(words) if color == "dim" else out.paint(words, color) if color and words else words
    return shown + text[len(words) :]


def _joined(cells: Sequence[str]) -> str:
    return (" " * GAP).join(cells).rstrip()


# ---- one package


def status_lines(out: Output, found: dict[str, Any]) -> list[str]:
    """Return one line per fact about a package: a label and its text."""
    title = f"{safe(found['id'])}  {safe(found['title'])}".rstrip()
    of = f"  ({safe(found['feature'])})" if found["feature"] else ""
    lines = [out.paint(title, "cyan") + of]
    for label, texts in _facts(found):
        for place, (text, color) in enumerate(texts):
            lines.append(f"{label if place == 0 else '':12}{out.paint(safe(text), color) if color else safe(text)}")
    return lines


def _facts(found: dict[str, Any]) -> list[tuple[str, list[tuple[str, str]]]]:
    waiting = set(found["waits_for"])
    since = f", since {_time(found['moved_at'])} by {found['moved_by']}" if found["moved_at"] else ""
    because = f": {found['reason']}" if found["reason"] else ""
    facts = [
        ("lane", [(found["lane"] + since + because + ("  (migrated)" if found["migrated"] else ""), "")]),
        ("may go to", [(_ways(found), "")]),
        (
            "depends on",
            [
                (f"{one['id']} ({one['lane'] or 'not there yet'})", "yellow" if one["id"] in waiting else "")
                for one in found["depends_on"]
            ],
        ),
        (
            "subtasks",
            [(f"[{'x' if one['done_at'] else ' '}] {one['index']} {one['text']}", "") for one in found["subtasks"]],
        ),
        (
            "gates",
            [
                (f"{name} {one['status']}", {"passed": "green", "failed": "red"}.get(one["status"], "yellow"))
                for name, one in sorted(found["gates"].items())
            ],
        ),
        ("workspace", [(_place(found["workspace"]), "")] if found["workspace"] else []),
        ("conflict", _conflict(found["conflict"] or [])),
        ("refused", [(_refusal(one), "yellow") for one in found["refused"]]),
    ]
    return [(label, texts) for label, texts in facts if texts]


def _ways(found: dict[str, Any]) -> str:
    from everlog.programs.workpackages.rules import is_back

    ways = [
        f"{lane} (with --reason)" if is_back(found["lane"], lane) else lane for lane in found["valid_transitions"]
    ]
    if found["waits_for"] and found["lane"] == "planned":
        ways = [f"doing when {', '.join(found['waits_for'])} is done"]
    if found["closed_gates"] and found["lane"] == "for_review":
        ways[0] = f"done when {', '.join(found['closed_gates'])} passed"
    return ", ".join(ways)


def _place(workspace: dict[str, Any]) -> str:
    return f"{workspace['path']} on {workspace['branch']}" if workspace["branch"] else str(workspace["path"])


def _refusal(one: dict[str, Any]) -> str:
    often = f" ({one['times']} times)" if one["times"] > 1 else ""
    return f"{one['actor']} at {one['last_at']}{often}: {one['reason']}"


def _conflict(heads: list[dict[str, Any]]) -> list[tuple[str, str]]:
    if not heads:
        return []
    moves = [(f"{head['from'] or '?'} -> {head['lane']}  {head['by']}  {_time(head['at'])}", "red") for head in heads]
    counts = "neither knew of the other; the last one counts, and the next move settles it"
    return [*moves, (counts, "")]


# ---- history


def describe_step(step: dict[str, Any]) -> tuple[str, str, str, str, str, str]:
    """Return a step as the row of a table."""
    marked = [name for name, is_so in (("migrated", step["migrated"]), ("conflict", step["conflicts_with"])) if is_so]
    reason = str(step["payload"].get("reason") or "")
    return (step["at"], step["actor"], _what(step["type"], step["payload"]), reason, ", ".join(marked), step["id"])


def _what(type_: str, payload: dict[str, Any]) -> str:
    def text(name: str) -> str:
        value = payload.get(name)
        return "" if value is None else str(value)

    match type_:
        case "WPCreated":
            return f"created: {text('title')}"
        case "WPStatusChanged":
            return f"{text('old_status') or '?'} -> {text('new_status') or '?'}"
        case "workpackage.status_changed":
            return f"{text('from_lane') or '?'} -> {text('to_lane') or '?'}"
        case "workpackage.annotated":
            return f"annotated: {', '.join(sorted(payload.get('delta') or {}))}"
        case "WPDependenciesChanged":
            return f"depends on {', '.join(map(str, payload.get('new_dependencies') or ['nothing']))}"
        case "WorkspaceCreated":
            return f"workspace {text('worktree_path')}"
        case "SubtaskCompleted":
            return f"subtask {text('subtask_index')} done {text('subtask_text')}".rstrip()
        case "GateCreated":
            return f"gate {text('gate_id')}"
        case "GateResultChanged":
            return f"gate {text('gate_id')}: {text('old_status')} -> {text('new_status')}"
        case "WPClaimed":
            return f"claimed until {text('until')}"
        case "WPReleased":
            return f"the claim of {text('holder')} ended"
        case _:
            return type_


def history_lines(out: Output, rows: Sequence[tuple[str, str, str, str, str, str]]) -> list[str]:
    lines = []
    actors = max((len(row[1]) for row in rows), default=0)
    for at, actor, what, reason, marked, _ in rows:
        because = f"  {reason}" if reason else ""
        note = "  " + out.paint(safe(marked), "red" if "conflict" in marked else "blue") if marked else ""
        lines.append(f"{_time(at)}  {safe(actor):{actors}}  {safe(what)}{safe(because)}{note}")
    return lines


def _time(at: str) -> str:
    return f"{at[:19]}Z"

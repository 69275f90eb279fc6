"""Logs of spec-kitty on the board: the lanes are those of that program, whatever the order of the lines."""

from __future__ import annotations

import json
import os
import random
from pathlib import Path
from typing import Any

import pytest
from tests.transfer.foreign import text
from tests.transfer.test_exporting import bytes_of, source

from everlog.errors import BadFile, TransitionRefused
from everlog.log.log import Log
from everlog.programs.command import By
from everlog.programs.perform import perform
from everlog.programs.workpackages.commands import Create, Move
from everlog.programs.workpackages.views import Board
from everlog.transfer.import_pass import Options, Source
from everlog.transfer.importing import Imported, import_files
from everlog.wiring import open

ROOT = Path(__file__).resolve().parents[2]
DATA = Path(os.environ.get("EVERLOG_TEST_DATA", ROOT / ".." / "shared" / "data")) / "spec-kitty"
"""Real logs. They are no part of the project: where they are not, only the fixtures below are tested."""

MISSION = "034-login-01KZYV3C"


def moved(number: int, package: str, to: str, at: str, **fields: Any) -> dict[str, Any]:
    return {
        "actor": "claude:opus:renata:reviewer",
        "at": at,
        "event_id": f"01KJ5V38J9{number:016d}",
        "evidence": None,
        "execution_mode": "worktree",
        "force": False,
        "from_lane": "planned",
        "mission_id": "01KN2371WNZX28ME4MN97B67PJ",
        "mission_slug": MISSION,
        "policy_metadata": None,
        "reason": None,
        "review_ref": None,
        "review_result": None,
        "to_lane": to,
        "wp_id": package,
        **fields,
    }


def annotated(id: str, package: str, at: str, **delta: Any) -> dict[str, Any]:
    actor = {"model": None, "profile": None, "role": "reviewer", "tool": "user"}
    return {"actor": actor, "at": at, "delta": delta, "event_id": id, "kind": "annotation", "wp_id": package}


def created(number: int, package: str, *needs: str) -> dict[str, Any]:
    said = {"mission_slug": MISSION, "wp_id": package, "wp_title": f"Do {package}", "depends_on": list(needs)}
    return {
        "aggregate_id": package,
        "aggregate_type": "WorkPackage",
        "event_id": f"01KJ5V38J8{number:016d}",
        "event_type": "WPCreated",
        "payload": said,
        "project_slug": None,
        "project_uuid": None,
        "schema_version": "5.0.0",
        "timestamp": "2026-02-01T08:00:00+00:00",
    }


SUBTASKS = {"T001": "done", "T002": "planned"}
LINES = [
    annotated("4BTZT0KZEF20A5RYTZSRV85WXH", "WP01", "2026-02-03T08:00:00Z", subtasks=SUBTASKS),
    created(1, "WP01"),
    created(2, "WP02", "WP01"),
    moved(9, "WP01", "approved", "2026-02-03T09:00:00Z", actor={"tool": "user", "role": "reviewer", "model": None}),
    moved(1, "WP01", "claimed", "2026-02-01T09:00:00+00:00"),
    moved(2, "WP01", "in_progress", "2026-02-01T10:00:00.5Z"),
    moved(3, "WP02", "done", "2026-02-04T09:00:00Z", event_id="ZFA8D081884C7D659A2FEAA0C5"),
    moved(4, "WP02", "blocked", "2026-02-03T09:00:00Z", event_id="7FA8D081884C7D659A2FEAA0C5"),
]


def log_of(*lines: Any) -> Log:
    log = open("memory:")
    imported(log, *lines)
    return log


def imported(log: Log, *lines: Any) -> Imported:
    return import_files(log, [source(text(*lines))], Options(new_ids=True))


def lanes(log: Log) -> dict[str, str]:
    return {key.partition("/")[2]: row["lane"] for key, row in log.view(Board).items()}


def package(log: Log, name: str) -> dict[str, Any]:
    found = log.view(Board).get(f"workpackage/{MISSION}:{name}")
    assert found is not None
    state: dict[str, Any] = found.state
    return state


def test_the_board_shows_the_lanes_of_the_file() -> None:
    log = log_of(*LINES)
    assert lanes(log) == {f"{MISSION}:WP01": "approved", f"{MISSION}:WP02": "done"}
    assert log.verify().ok


@pytest.mark.parametrize("seed", range(5))
def test_the_order_of_the_lines_does_not_matter(seed: int) -> None:
    """That program sorts by time and id; a merge of its branches leaves the lines in any order."""
    shuffled = random.Random(seed).sample(LINES, len(LINES))
    assert lanes(log_of(*shuffled)) == lanes(log_of(*LINES))


def test_two_lines_of_one_moment_are_ordered_by_the_ids_that_stood_there() -> None:
    at = "2026-02-01T09:00:00Z"
    lines = [moved(1, "WP01", "done", at, event_id="zz-late"), moved(2, "WP01", "claimed", at, event_id="aa-early")]
    assert lanes(log_of(*lines)) == {f"{MISSION}:WP01": "done"}


def test_without_new_ids_every_line_that_needs_one_is_named() -> None:
    with pytest.raises(BadFile) as caught:
        import_files(open("memory:"), [source(text(*LINES))])
    assert [number for number in (1, 7, 8) if f"file:{number}: " not in caught.value.why] == []
    assert "--new-ids" in caught.value.why


def test_an_annotation_finds_its_mission_in_the_lines_below_it() -> None:
    log = log_of(*LINES)
    subtasks = package(log, "WP01")["subtasks"]
    assert [(one["text"], bool(one["done_at"])) for one in subtasks] == [("T001", True), ("T002", False)]


def test_a_file_that_never_says_its_mission_is_not_searched_for_every_line() -> None:
    lines = text(*(annotated(f"evt-{number}", "WP01", "2026-02-03T08:00:00Z", note="x") for number in range(50)))
    reads = 0

    def read(size: int, at: int) -> bytes:
        nonlocal reads
        reads += 1
        return lines[at : at + size]

    log = open("memory:")
    assert import_files(log, [Source("file", len(lines), read)], Options(new_ids=True)).new == 50
    assert reads < 20
    assert {recorded.event.stream for recorded in log.read()} == {"workpackage/WP01"}


def test_a_later_annotation_counts_and_an_earlier_one_does_not() -> None:
    late = annotated("evt-1", "WP01", "2026-02-05T08:00:00Z", subtasks={"T001": "planned", "T002": "done"})
    for lines in ([*LINES, late], [late, *LINES]):
        subtasks = package(log_of(*lines), "WP01")["subtasks"]
        assert [(one["text"], bool(one["done_at"])) for one in subtasks] == [("T001", False), ("T002", True)]


def test_actors_that_are_objects_are_named_as_their_text_form_is() -> None:
    log = log_of(*LINES)
    events = [recorded.event for recorded in log.read()]
    assert events[3].actor == "user:reviewer"
    assert events[3].payload["_imported"] == {"actor": {"tool": "user", "role": "reviewer"}}
    assert events[4].actor == "claude:opus:renata:reviewer"


def test_what_was_created_has_its_title_its_mission_and_what_it_needs() -> None:
    state = package(log_of(*LINES), "WP02")
    assert (state["title"], state["feature"], state["dependencies"]) == ("Do WP02", MISSION, [f"{MISSION}:WP01"])


def test_packages_of_two_missions_are_apart() -> None:
    log = open("memory:")
    other = [
        {**line, "mission_slug": "035-logout", "event_id": f"x{number}"} for number, line in enumerate(LINES[3:6])
    ]
    import_files(log, [source(text(*LINES), "one"), source(text(*other), "other")], Options(new_ids=True))
    assert {name.partition(":")[0] for name in lanes(log)} == {MISSION, "035-logout"}


def test_work_goes_on_after_an_import() -> None:
    """A lane of another program leads to planned, with a reason; from there on our own moves count."""
    log, name, by = log_of(*LINES), f"{MISSION}:WP01", By(actor="user:ada")
    with pytest.raises(TransitionRefused):
        perform(log, Move(id=name, to="done"), by)
    perform(log, Move(id=name, to="planned", reason="moved to this board"), by)
    perform(log, Move(id=name, to="doing"), by)
    assert lanes(log)[name] == "doing"
    assert package(log, "WP01")["heads"][-1]["by"] == "user:ada"
    imported(log, *LINES)
    assert lanes(log)[name] == "doing"


def test_a_move_of_our_own_is_not_undone_by_an_import_with_greater_clocks() -> None:
    """The clocks of an import are made up, so that they say nothing about what came first."""
    log, name, by = open("memory:"), f"{MISSION}:WP01", By(actor="user:ada")
    perform(log, Create(id=name, title="Ours"), by)
    perform(log, Move(id=name, to="doing"), by)
    imported(log, *[moved(number, "WP09", "claimed", "2026-01-01T09:00:00Z") for number in range(20, 40)], *LINES)
    assert lanes(log)[name] == "doing"


def test_a_grown_file_moves_the_board_on() -> None:
    log = log_of(*LINES)
    assert imported(log, *LINES, moved(5, "WP01", "done", "2026-02-09T09:00:00Z")).new == 1
    assert lanes(log)[f"{MISSION}:WP01"] == "done"


def test_many_files_are_imported_again_by_one_command_when_any_of_them_has_grown() -> None:
    """Every file is a log of its own: what is added to the first changes nothing of the others."""
    others = [
        {**line, "mission_slug": "035-logout", "event_id": f"x{number}"} for number, line in enumerate(LINES[3:])
    ]
    more = moved(5, "WP01", "done", "2026-02-09T09:00:00Z")

    def again(log: Log, *first: Any, namespace: str = "") -> Imported:
        files = [source(text(*first), "one"), source(text(*others), "two")]
        return import_files(log, files, Options(new_ids=True, namespace=namespace))

    for namespace in ("", "kitty"):
        log = open("memory:")
        assert again(log, *LINES, namespace=namespace).origins == 2
        assert again(log, *LINES, more, namespace=namespace).new == 1
        assert again(log, *LINES, more, namespace=namespace).new == 0
        assert lanes(log)[f"{MISSION}:WP01"] == "done"
        assert log.verify().ok


def test_files_imported_together_or_one_by_one_are_the_same_events() -> None:
    others = [
        {**line, "mission_slug": "035-logout", "event_id": f"x{number}"} for number, line in enumerate(LINES[3:])
    ]
    together, apart = open("memory:"), open("memory:")
    files = [source(text(*LINES), "one"), source(text(*others), "two")]
    import_files(together, files, Options(new_ids=True))
    for file in reversed(files):
        import_files(apart, [file], Options(new_ids=True))
    assert sorted(map(str, bytes_of(together._store))) == sorted(map(str, bytes_of(apart._store)))


# ---- the real ones


@pytest.mark.skipif(not DATA.is_dir(), reason=f"no real logs in {DATA}; EVERLOG_TEST_DATA names their folder")
@pytest.mark.parametrize("store", ["memory:", "sqlite:{}/log.db"])
def test_the_real_logs_have_the_lanes_of_their_status_json(store: str, tmp_path: Path) -> None:
    """All of them in one import, nothing set aside. A package that was created and never moved is planned."""
    folders = sorted(path.parent for path in DATA.glob("*/status.events.jsonl"))
    assert len(folders) >= 60
    sources = [file_source(folder / "status.events.jsonl") for folder in folders]
    log = open(store.format(tmp_path))
    result = import_files(log, sources, Options(new_ids=True))
    assert import_files(log, sources, Options(new_ids=True)).new == 0
    found = lanes(log)
    wanted: dict[str, str] = {}
    never_moved: set[str] = set()
    for folder in folders:
        status = json.loads((folder / "status.json").read_text())["work_packages"]
        wanted |= {f"{folder.name}:{name}": row["lane"] for name, row in status.items()}
        rows = [json.loads(line) for line in (folder / "status.events.jsonl").read_text().splitlines()]
        made = {row["aggregate_id"] for row in rows if row.get("event_type") == "WPCreated"}
        never_moved |= {f"{folder.name}:{name}" for name in made - status.keys()}
    assert {name: lane for name, lane in found.items() if name not in never_moved} == wanted
    assert {found[name] for name in never_moved} <= {"planned"}
    assert result.new == sum(result.shapes.values()) > 2_000
    log.close()


def file_source(path: Path) -> Source:
    data = path.read_bytes()
    return Source(f"{path.parent.name}/{path.name}", len(data), lambda size, at: data[at : at + size])

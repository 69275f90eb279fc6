"""From activity.yaml of 1.x to events."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import everlog
from everlog.errors import BadFile, Conflict, NotFound, Unavailable
from everlog.files import DiskFiles
from everlog.log.log import Log
from everlog.programs.command import By
from everlog.programs.perform import ask, perform
from everlog.programs.workpackages.commands import Create, Move
from everlog.programs.workpackages.migration import migrate
from everlog.programs.workpackages.questions import Board, PackageHistory, Specs, Status
from everlog.programs.workpackages.views import Board as BoardView

ACTIVITY = """\
version: 1
activity:
  - timestamp: 2026-01-12T09:00:00Z
    event: SpecCreated
    feature_slug: 025-log
    title: Event log
  - timestamp: 2026-01-12T09:05:00Z
    event: WPCreated
    actor: claude-planner
    work_package_id: WP01
    feature_slug: 025-log
    title: 2026
  - timestamp: 2026-01-12 09:06:00
    event: WPCreated
    work_package_id: WP02
    title: yes
    dependencies: [WP01]
  - {timestamp: 2026-01-13T10:00:00+01:00, actor: builder, work_package_id: WP01, lane: in_progress}
  - timestamp: 2026-01-13T10:00:00+01:00
    event: GateCreated
    work_package_id: WP01
    gate_id: ci
    gate_type: pipeline
  - timestamp: 2026-01-13T11:00:00Z
    event: GateResultChanged
    work_package_id: WP01
    gate_id: ci
    new_status: success
    result_data: {run: 17, ok: true, note: null, took: 1.5, odd: 0x1F}
  - timestamp: 2026-01-13T11:30:00Z
    event: SubtaskCompleted
    work_package_id: WP01
    subtask_index: 1
    subtask_text:
  - timestamp: 2026-01-13T12:00:00Z
    event: WPStatusChanged
    work_package_id: WP01
    old_status: doing
    new_status: for_review
    reason: "it works: see run 17"
  - timestamp: 2026-01-13T12:01:00Z
    event: WorkspaceCreated
    work_package_id: WP01
    worktree_path: trees/WP01
"""


@pytest.fixture(params=["sqlite", "jsonl"])
def log(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Log]:
    with everlog.open(f"{request.param}:{tmp_path / 'log'}", actor="user:ada") as opened:
        yield opened


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / ".kittify" / "activity.yaml"
    path.parent.mkdir()
    path.write_text(ACTIVITY)
    return path


def names(file: Path) -> list[str]:
    return sorted(path.name for path in file.parent.iterdir())


def test_a_file_becomes_events_and_is_put_aside(log: Log, file: Path) -> None:
    done = migrate(log, file)
    assert (done.entries, done.new, Path(done.archive).name) == (9, 9, "activity.yaml.migrated")
    assert names(file) == ["activity.yaml.migrated"]
    assert (file.parent / "activity.yaml.migrated").read_text() == ACTIVITY
    first, second = ask(log, Board())
    assert (first["lane"], first["title"], first["feature"], first["migrated"]) == (
        "for_review",
        "2026",
        "025-log",
        True,
    )
    assert (first["closed_gates"], first["workspace"]["path"]) == ({}, "trees/WP01")
    assert (second["title"], second["dependencies"], second["lane"]) == ("yes", ["WP01"], "planned")
    assert ask(log, Specs())["025-log"]["title"] == "Event log"
    events = [recorded.event for recorded in log.read()]
    assert {event.tags["migrated"] for event in events} == {"true"}
    assert [event.lamport for event in events] == list(range(1, 10))
    assert [event.actor for event in events][:4] == ["system", "agent:claude-planner", "system", "agent:builder"]
    assert events[2].occurred_at.isoformat() == "2026-01-12T09:06:00+00:00"
    assert events[3].occurred_at.isoformat() == "2026-01-13T09:00:00+00:00"
    assert events[5].payload["result_data"] == {"run": 17, "ok": True, "note": None, "took": 1.5, "odd": "0x1F"}
    assert log.verify().ok


def test_running_it_again_adds_nothing_also_when_only_the_archive_is_left(log: Log, file: Path) -> None:
    migrate(log, file)
    again = migrate(log, file)
    assert (again.entries, again.new, Path(again.archive).name) == (9, 0, "activity.yaml.migrated")
    file.write_text(ACTIVITY)
    once_more = migrate(log, file)
    assert (once_more.new, Path(once_more.archive).name) == (0, "activity.yaml.migrated.2")
    assert log.head() == 9
    assert names(file) == ["activity.yaml.migrated", "activity.yaml.migrated.2"]


def test_two_clones_that_migrate_the_same_file_make_the_same_events(log: Log, file: Path, tmp_path: Path) -> None:
    migrate(log, file)
    file.write_text(ACTIVITY.replace("version: 1\n", "# the same\n"))
    with everlog.open(f"sqlite:{tmp_path / 'other.db'}", actor="user:bob") as other:
        migrate(other, file)
        theirs = [recorded.event for recorded in other.read()]
        assert theirs == [recorded.event for recorded in log.read()]
        assert log.admit(theirs) == []


def test_what_was_added_at_the_end_of_a_file_is_added_and_what_was_changed_is_refused(log: Log, file: Path) -> None:
    migrate(log, file)
    file.write_text(ACTIVITY + "  - {timestamp: 2026-01-14T12:00:00Z, work_package_id: WP01, lane: done}\n")
    assert (migrate(log, file).new, ask(log, Status(id="WP01"))["lane"]) == (1, "done")
    file.write_text(ACTIVITY.replace("new_status: for_review", "new_status: done"))
    with pytest.raises(Conflict, match="is not the file that was migrated before"):
        migrate(log, file)
    assert (log.head(), file.exists()) == (10, True)


def test_the_same_entry_twice_is_two_events(log: Log, file: Path) -> None:
    entry = "- {timestamp: 2026-01-14T12:00:00Z, work_package_id: WP01, lane: doing}\n"
    file.write_text(entry + entry)
    assert (migrate(log, file).new, migrate(log, file).new) == (2, 0)


def test_synthetic_events_never_beat_real_ones_whatever_was_first(log: Log, file: Path) -> None:
    """The real move has a smaller clock than the synthetic ones, in both orders of arrival."""
    perform(log, Create(id="WP01", title="Real"))
    perform(log, Move(id="WP01", to="doing"))
    migrate(log, file)
    shown = ask(log, Status(id="WP01"))
    assert (shown["lane"], shown["title"], shown["migrated"], shown["conflict"]) == ("doing", "Real", False, None)
    assert shown["closed_gates"] == {}, "nothing real was said of the gate, so the old word counts"
    perform(log, Move(id="WP01", to="planned", reason="begin anew"), By(actor="user:bob"))
    assert ask(log, Status(id="WP01"))["lane"] == "planned"
    told = [(step["migrated"], step["lane"]) for step in ask(log, PackageHistory(id="WP01"))]
    assert [lane for migrated, lane in told if migrated][-1] == "doing"
    live = log.view(BoardView).digest()
    assert log.view(BoardView).rebuild().digest == live


def test_after_a_migration_work_goes_on_from_the_old_lane(log: Log, file: Path) -> None:
    migrate(log, file)
    perform(log, Move(id="WP01", to="done"))
    perform(log, Move(id="WP02", to="doing"))
    assert [one["lane"] for one in ask(log, Board())] == ["done", "doing"]
    assert ask(log, Status(id="WP01"))["conflict"] is None
    clocks = [recorded.event.lamport for recorded in log.read()]
    assert clocks == sorted(clocks), "what is new comes after what was migrated"


def test_a_dry_run_checks_and_leaves_everything_as_it_was(log: Log, file: Path) -> None:
    assert migrate(log, file, dry_run=True).new == 9
    assert (log.head(), names(file)) == (0, ["activity.yaml"])
    file.write_text("- {}")
    with pytest.raises(BadFile):
        migrate(log, file, dry_run=True)


@pytest.mark.parametrize(
    ("text", "line", "what"),
    [
        ("version: 2\nactivity: []", 1, "only 1 can be read"),
        ("entries: []", 1, "entries is not known here"),
        ("version: 1", 1, "there is no list named activity"),
        ("activity: 5", 1, "activity is not a list"),
        ("just text", 1, "activity is not a list"),
        ("- 5", 1, "an entry is a mapping"),
        ("- timestamp: 2026-01-12T09:00:00Z\n  event: WPCreated\n  event: WPCreated", 3, "event stands twice"),
        ("- {event: WPCreated, work_package_id: WP01, title: x}", 1, "timestamp is missing"),
        ("\n- {timestamp: yesterday, event: WPCreated}", 2, "timestamp is yesterday"),
        ("- {timestamp: 2026-01-12T09:00:00Z}", 1, "event is missing; it is one of SpecCreated, WPCreated"),
        ("- {timestamp: 2026-01-12T09:00:00Z, event: Exploded}", 1, "event is Exploded"),
        ("- {timestamp: 2026-01-12T09:00:00Z, event: WPCreated, title: x}", 1, "it has no work_package_id"),
        (
            "- {timestamp: 2026-01-12T09:00:00Z, event: WPCreated, work_package_id: 'a b', title: x}",
            1,
            "$.work_package_id",
        ),
        ("- {timestamp: 2026-01-12T09:00:00Z, event: WPCreated, work_package_id: WP01}", 1, "title"),
        ("- {timestamp: 2026-01-12T09:00:00Z, work_package_id: WP01, lane: blocked}", 1, "new_status"),
        ("- {timestamp: 2026-01-12T09:00:00Z, work_package_id: WP01, lane: done, mood: good}", 1, "no field mood"),
        ("- {timestamp: 2996-01-12T09:00:00Z, work_package_id: WP01, lane: done}", 1, "claims the time"),
        (
            "- {timestamp: 2026-01-12T09:00:00Z, work_package_id: WP01, lane: done, reason: AKIA"
            + "ABCDEFGHIJKLMNOP}",
            1,
            "would record a secret",
        ),
        ("- {timestamp: 2026-01-12T09:00:00Z, work_package_id: [WP01], lane: done}", 1, "it has no work_package_id"),
        ("- &a {timestamp: 2026-01-12T09:00:00Z}\n- *a", 1, "anchors and aliases are not taken"),
        ("- {timestamp: !!python/name:os.system x}", 1, "the tag"),
        ("- {timestamp: !when 2026-01-12T09:00:00Z}", 1, "the tag"),
        ("a: [1\nb: 2", 2, ""),
        ("\tx", 1, ""),
        ("- {}\n---\n- {}", 3, "a second document begins here"),
        ("[" * 100_000, 1, "too deep"),
    ],
)
def test_a_file_of_another_shape_is_refused_by_line_and_nothing_happens(
    log: Log, file: Path, text: str, line: int, what: str
) -> None:
    file.write_text(text)
    with pytest.raises(BadFile) as error:
        migrate(log, file)
    problem = error.value.details["problems"][0]
    assert problem.startswith(f"activity.yaml:{line}: ")
    assert what in problem
    assert (log.head(), names(file)) == (0, ["activity.yaml"])


def test_every_line_that_is_wrong_is_named(log: Log, file: Path) -> None:
    file.write_text("- {timestamp: x}\n" * 30)
    with pytest.raises(BadFile) as error:
        migrate(log, file)
    assert [problem.partition(": ")[0] for problem in error.value.details["problems"]] == [
        f"activity.yaml:{line}" for line in range(1, 31)
    ]
    assert "30 lines are wrong" in error.value.what


def test_bytes_that_are_no_text_are_refused(log: Log, file: Path) -> None:
    file.write_bytes(b"- {timestamp: \xff\xfe}")
    with pytest.raises(BadFile):
        migrate(log, file)


def test_an_empty_file_is_put_aside(log: Log, file: Path) -> None:
    file.write_text("")
    assert (migrate(log, file).entries, names(file)) == (0, ["activity.yaml.migrated"])


def test_a_file_that_is_not_there_is_told(log: Log, tmp_path: Path) -> None:
    with pytest.raises(NotFound, match=r"nor is there nothing\.yaml\.migrated"):
        migrate(log, tmp_path / "nothing.yaml")


def test_without_the_library_it_says_what_to_install(log: Log, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "yaml", None)
    with pytest.raises(Unavailable) as error:
        migrate(log, file)
    assert "everlog[yaml]" in error.value.hint
    assert names(file) == ["activity.yaml"]


def test_the_file_is_renamed_only_after_the_events_are_on_the_disk(log: Log, file: Path) -> None:
    seen: list[int] = []

    class Watched(DiskFiles):
        def rename(self, source: Path, target: Path) -> None:
            seen.append(log.head())
            super().rename(source, target)

    migrate(log, file, files=Watched())
    assert seen == [9]

"""Clones of a log in git: what they append apart comes together with plain git, and nothing is lost or repeated."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.transfer.git.conftest import Clone

from everlog.core.event import Position
from everlog.errors import BadFile, InvalidSettings
from everlog.files import DiskFiles
from everlog.stores.jsonl.lines import event_line
from everlog.testing.builders import NOON, Chain
from everlog.transfer import git
from everlog.wiring import merge_day_files

CloneOf = Callable[..., Clone]
DAY_US = 24 * 3600 * 1_000_000


def the_same(*clones: Clone) -> None:
    """Every clone has the same bytes and folds to the same state, and each of them proves itself."""
    for clone in clones:
        assert clone.problems() == []
        assert clone.status() == ""
    assert all(clone.day_files() == clones[0].day_files() for clone in clones)
    assert all(clone.values() == clones[0].values() for clone in clones)


# ---- coming together


@pytest.mark.parametrize("way", [Clone.pull, Clone.pull_rebase, Clone.pick])
def test_two_clones_that_appended_to_the_same_day_come_together(
    first: Clone, second: Clone, way: Callable[[Clone, Clone], None]
) -> None:
    first.say_and_commit("a1")
    second.say_and_commit("b1")
    second.say_and_commit("b2", "b3")
    first.say_and_commit("a2", "a3", "a4")

    way(first, second)
    way(second, first)

    assert sorted(map(str, first.values())) == ["a1", "a2", "a3", "a4", "b1", "b2", "b3", "base"]
    the_same(first, second)


def test_days_that_only_one_clone_has_come_together(first: Clone, second: Clone) -> None:
    first.clock.us += DAY_US
    second.clock.us += 2 * DAY_US
    first.say_and_commit("a1")
    second.say_and_commit("b1")
    first.pull(second)
    first.say_and_commit("a2")  # to the file of its own day, though there is one of a day to come
    second.say_and_commit("b2")
    second.pull(first)
    first.pull(second)

    assert len(first.day_files()) == 3
    assert first.values() == ["base", "a1", "b1", "a2", "b2"]  # a2 knew b1, whatever their clocks said
    the_same(first, second)


def test_batches_of_two_clones_stay_whole(first: Clone, second: Clone) -> None:
    first.say_and_commit(*range(10))
    second.say_and_commit(*range(10, 20))
    first.pull(second)
    second.pull(first)
    the_same(first, second)
    assert sorted(value for value in first.values() if value != "base") == list(range(20))  # type: ignore[type-var]


def test_a_reverted_commit_takes_no_event_away(first: Clone) -> None:
    """History is not rewritten, not even by the tool that keeps it."""
    first.say_and_commit("a1")
    first.say_and_commit("a2")
    first.git("revert", "--no-edit", "HEAD~1", check=False)
    first.git("revert", "--skip", check=False)  # it came to nothing, and git asks what to do with that
    assert first.values() == ["base", "a1", "a2"]
    assert first.problems() == []


def test_clones_never_share_an_origin(first: Clone, second: Clone, clone_of: CloneOf) -> None:
    third = clone_of(first, "third")
    assert second.origin() == third.origin() == ""  # until they write
    second.say_and_commit("b1")
    third.say_and_commit("c1")
    assert len({first.origin(), second.origin(), third.origin()}) == 3
    assert [record.event.origin for record in second.records()] == [first.origin(), second.origin()]
    assert first.git("ls-files").split() == [
        ".everlog/.gitattributes",
        ".everlog/.gitignore",
        ".everlog/events/2027-01-15.jsonl",
        ".everlog/log.json",
    ]


def test_a_log_that_was_open_before_the_first_write_of_its_clone_has_its_origin_then(second: Clone) -> None:
    with second.open() as one, second.open() as other:
        assert one.identity.origin == ""
        ids = [log.append("thing.said", stream="thing/1", payload={"value": 1}).event for log in (one, other, one)]
        assert {event.origin for event in ids} == {one.identity.origin} == {other.identity.origin}
        assert [event.origin_seq for event in ids] == [1, 2, 3]
        assert one.verify().ok


def test_a_second_working_tree_is_an_origin_of_its_own_and_knows_the_driver(first: Clone, tmp_path: Path) -> None:
    first.git("worktree", "add", "-q", "-b", "side", str(tmp_path / "side"))
    side = Clone(tmp_path / "side", first.clock)
    assert not git.merges_as_text(DiskFiles(), side.folder)
    side.say_and_commit("s1")
    first.say_and_commit("a1")
    first.git("merge", "-q", "--no-edit", "side")
    assert sorted(map(str, first.values())) == ["a1", "base", "s1"]
    assert side.origin() != first.origin()
    assert first.problems() == []


# ---- purging


def test_a_purge_of_one_clone_wins_over_what_the_other_still_has(
    first: Clone, second: Clone, clone_of: CloneOf
) -> None:
    first.say_and_commit("secret-one", "secret-two", stream="person/1")
    second.pull(first)
    third = clone_of(first, "third")
    second.say_and_commit("later", stream="person/1")  # it does not know of the purge
    third.say_and_commit("c1")
    with first.open() as log:
        log.purge("person/1", actor="user:ada", reason="asked to")
    first.commit("purge")
    first.say_and_commit("after", stream="person/1")

    for clone, other in [(second, first), (third, second), (first, third), (second, first), (third, first)]:
        clone.pull(other)

    the_same(first, second, third)
    assert sorted(map(str, first.values())) == ["after", "base", "c1", "later"]
    for clone in (first, second, third):
        assert b"secret" not in b"".join(clone.day_files().values())
        with clone.open() as log:
            assert [purge.count for purge in log.stored.purges()] == [2]
            log._store.rebuild_index()  # type: ignore[attr-defined]
            assert log.verify().ok


def test_two_clones_that_purge_the_same_come_together(first: Clone, second: Clone) -> None:
    first.say_and_commit("secret", stream="person/1")
    second.pull(first)
    for clone in (first, second):
        with clone.open() as log:
            log.purge("person/1", actor="user:ada", reason="asked to")
        clone.commit("purge")
    first.pull(second)
    second.pull(first)
    the_same(first, second)
    with second.open() as log:
        assert sum(purge.count for purge in log.stored.purges()) == 1
        assert len(log.stored.purges()) == 2


# ---- readers


def test_a_cursor_from_before_a_merge_finds_what_came_at_the_end(first: Clone, second: Clone) -> None:
    """What was said long ago elsewhere is new here: it stands behind everything that was read (G3, F53)."""
    old = second.say_and_commit("b1", "b2")
    for number in range(5):
        first.say_and_commit(f"a{number}")
    with first.open() as log:
        before = {record.event.id: record.position for record in log.read()}
        page = log.page_after(Position(0))
        assert len(page.events) == 6

        first.pull(second)

        following = log.page_after(page.next_cursor)
        assert following.reset is None
        assert [record.event.id for record in following.events] == old
        assert [record.position for record in following.events] == [7, 8]
        assert {record.event.id: record.position for record in log.read(upto=Position(6))} == before
    with first.open() as log:  # and so it is for whoever opens it next
        assert [record.event.id for record in log.page_after(page.next_cursor).events] == old


def test_a_rebuilt_index_resets_old_cursors(first: Clone, second: Clone) -> None:
    second.say_and_commit("b1")
    first.say_and_commit("a1")
    with first.open() as log:
        cursor = log.page_after(Position(0)).next_cursor
        first.pull(second)
        log._store.rebuild_index()  # type: ignore[attr-defined]
        assert log.page_after(cursor).reset is not None


def test_routine_reads_leave_the_tree_clean(first: Clone, second: Clone) -> None:
    first.say_and_commit("a1")
    second.say_and_commit("b1")
    first.pull(second)
    (event_id, *_) = [record.event.id for record in first.records()]
    for command in (["log"], ["show", event_id], ["verify"], ["errors"], [], ["log", "--json"], ["doctor"]):
        first.everlog("--log", f"jsonl:{first.folder}", *command)
        assert first.status() == ""
    tail = subprocess.Popen(
        [sys.executable, "-P", "-m", "everlog", "--log", f"jsonl:{first.folder}", "tail"], stdout=subprocess.PIPE
    )
    assert tail.stdout is not None
    with tail.stdout as lines:
        assert b"b1" in lines.readline() + lines.readline() + lines.readline()
        tail.send_signal(signal.SIGINT)
        tail.wait(timeout=60)
    assert first.status() == ""


# ---- without the driver


def test_a_clone_without_the_driver_is_warned_and_can_resolve_its_conflict(
    first: Clone, clone_of: CloneOf, caplog: pytest.LogCaptureFixture
) -> None:
    plain = clone_of(first, "plain", registered=False)
    first.say_and_commit("a1")
    plain.say_and_commit("b1")
    plain.git("pull", "-q", "--no-rebase", "--no-edit", str(first.path), "main", check=False)
    assert "UU .everlog/events/" in plain.status()
    url = f"jsonl:{plain.folder}"

    assert "everlog git install" in plain.everlog("--log", url, "log", code=8)
    assert "conflict_marker" in plain.everlog("--log", url, "verify", code=8)
    told = plain.everlog("--log", url, "doctor", "--json", code=8)
    assert "this clone's git does not know how to unite day files" in told
    assert "git checkout --merge" in told

    plain.everlog("--log", url, "git", "install")
    plain.git("checkout", "--merge", "--", ".everlog/events")
    plain.commit("merged")

    assert sorted(map(str, plain.values())) == ["a1", "b1", "base"]
    first.pull(plain)
    the_same(first, plain)


def test_lines_that_stand_twice_after_a_union_of_text_are_one_event(first: Clone, second: Clone) -> None:
    (second.path / ".git" / "info" / "attributes").write_text("*.jsonl merge=union\n")
    for clone in (first, second):  # the same events by way of both
        with clone.open() as log:
            log.admit([sealed.event for sealed in ADMITTED])
        clone.commit("admit")
    second.say_and_commit("b1")
    second.git("pull", "-q", "--no-rebase", "--no-edit", str(first.path), "main")
    assert b"".join(second.day_files().values()).count(ADMITTED[0].event.id.encode()) == 2
    assert second.values() == [1, "base", 2, "b1"]
    assert second.problems() == []
    with second.open() as log:
        log._store.rebuild_index()  # type: ignore[attr-defined]
    assert second.values() == [1, "base", 2, "b1"]


def test_the_same_events_by_way_of_two_clones_are_united(first: Clone, second: Clone) -> None:
    for clone in (first, second):
        clone.clock.us += 1_000_000 if clone is first else 5_000_000
        with clone.open() as log:
            log.admit([sealed.event for sealed in ADMITTED])
        clone.commit("admit")
    first.pull(second)
    second.pull(first)
    the_same(first, second)
    assert b"".join(first.day_files().values()).count(ADMITTED[0].event.id.encode()) == 1


_admitted = Chain("01TESTORGN0000000000000009")
ADMITTED = [_admitted.next(type="thing.said", stream="thing/9", payload={"value": value}) for value in (1, 2)]


@pytest.mark.parametrize("broken", ["refused", "no program", "no package"])
def test_a_merge_that_cannot_be_made_keeps_both_sides_and_is_a_conflict(
    first: Clone, second: Clone, broken: str
) -> None:
    """If git were left with one side, the next commit would drop the other."""
    first.say_and_commit("a1")
    second.say_and_commit("b1")
    if broken == "refused":
        path = next((second.folder / "events").iterdir())
        path.write_bytes(path.read_bytes() + b'{"colour":"blue"}\n')
        second.commit("by hand")
    else:
        python = "/no/such/python" if broken == "no program" else _python_without_everlog(first.path.parent)
        first.git("config", "merge.everlog.driver", git.driver_command(python))

    told = first.git("pull", "-q", "--no-rebase", "--no-edit", str(second.path), "main", check=False)

    assert "CONFLICT" in told
    assert first.status().startswith("UU ")
    text = b"".join(first.day_files().values())
    assert text.count(b"<<<<<<< ours\n") == text.count(b">>>>>>> theirs\n") == 1
    for value in (b'"base"', b'"a1"', b'"b1"'):
        assert value in text
    if broken == "refused":
        assert "(theirs):3: Object contains unknown field `colour`" in told


def _python_without_everlog(place: Path) -> str:
    script = place / "python"
    script.write_text("#!/bin/sh\necho 'No module named everlog' >&2\nexit 1\n")
    script.chmod(0o755)
    return str(script)


def test_a_refused_merge_changes_no_file(tmp_path: Path) -> None:
    good = event_line(Chain().next(), NOON)
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    ours.write_bytes(good)
    theirs.write_bytes(b"<<<<<<< HEAD\n" + good)
    with pytest.raises(BadFile, match="conflict marker"):
        git.drive(DiskFiles(), merge_day_files, ours=ours, theirs=theirs, name="events/x.jsonl")
    assert (ours.read_bytes(), sorted(tmp_path.iterdir())) == (good, [ours, theirs])


# ---- telling git


def test_git_changes_no_byte_of_a_line_whatever_is_configured(first: Clone, tmp_path: Path) -> None:
    subprocess.run(
        ["git", "clone", "-q", "-c", "core.autocrlf=true", str(first.path), str(tmp_path / "crlf")], check=True
    )
    clone = Clone(tmp_path / "crlf", first.clock)
    assert clone.day_files() == first.day_files()
    assert clone.problems() == []


def test_installing_twice_changes_nothing(first: Clone) -> None:
    done = git.install(DiskFiles(), first.folder, python=sys.executable)
    assert done is not None
    assert done.changed == []
    assert first.status() == ""


def test_lines_of_others_in_the_same_files_stay(first: Clone) -> None:
    (first.folder / ".gitattributes").write_text("*.png binary")
    (first.folder / ".gitignore").write_text("mine\nlocal/\n")
    done = git.install(DiskFiles(), first.folder, python=sys.executable)
    assert done is not None
    assert done.changed == [".gitattributes", ".gitignore"]
    assert (first.folder / ".gitattributes").read_text().startswith("*.png binary\n")
    assert (first.folder / ".gitignore").read_text().split("\n")[:2] == ["mine", "local/"]
    assert (first.folder / ".gitignore").read_text().count("local/") == 1
    assert "merge: everlog" in first.git("check-attr", "merge", ".everlog/events/2027-01-15.jsonl")


def test_a_log_outside_a_repository_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "log").mkdir()
    assert git.install(DiskFiles(), tmp_path / "log", python=sys.executable) is None
    assert git.findings(DiskFiles(), tmp_path / "log") is None
    assert list((tmp_path / "log").iterdir()) == []


def test_a_repository_that_git_does_not_accept_is_reported(tmp_path: Path) -> None:
    (tmp_path / "log").mkdir()
    (tmp_path / ".git").mkdir()
    with pytest.raises(InvalidSettings, match="git config did not work"):
        git.install(DiskFiles(), tmp_path / "log", python=sys.executable)


def test_the_driver_is_found_though_its_path_is_unusual(first: Clone, second: Clone, tmp_path: Path) -> None:
    odd = tmp_path / "a 100%O 'place'"
    odd.mkdir()
    (odd / "python").write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    (odd / "python").chmod(0o755)
    first.git("config", "merge.everlog.driver", git.driver_command(str(odd / "python")))
    first.say_and_commit("a1")
    second.say_and_commit("b1")
    first.pull(second)
    assert sorted(map(str, first.values())) == ["a1", "b1", "base"]
    assert git.findings(DiskFiles(), first.folder) == []


def test_doctor_finds_a_program_that_is_gone_and_files_that_must_not_be_shared(first: Clone) -> None:
    def told() -> list[tuple[bool, str]]:
        return [(finding.grave, finding.what) for finding in git.findings(DiskFiles(), first.folder) or []]

    assert told() == []
    first.git("config", "merge.everlog.driver", git.driver_command("/no/such/python"))
    first.git("add", "-f", ".everlog/local/origin.json")
    assert told() == [
        (False, "git is to unite day files with /no/such/python, which is not there"),
        (True, "local/origin.json is in git, so that clones share what must be their own"),
    ]
    (first.folder / ".gitattributes").unlink()
    assert told()[0] == (False, "git merges the day files as plain text")

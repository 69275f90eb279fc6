"""Branches of git: the log is the events of the checked-out branch, for reads, cursors, views and writes."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.conftest import CATALOG
from tests.stores.jsonl.test_checkouts import ReadOnlyFiles
from tests.transfer.git.conftest import Clone

from everlog.core.query import Cursor
from everlog.errors import Damaged
from everlog.log.log import Log
from everlog.stores.jsonl.store import JsonlStore

DAY_US = 24 * 3600 * 1_000_000


class Handles:
    """One log that stays open, and others that are opened for one question."""

    def __init__(self, clone: Clone) -> None:
        self.clone = clone
        self.open = clone.open()

    def values(self) -> list[object]:
        """What both of them read; they agree."""
        kept = [recorded.event.payload["value"] for recorded in self.open.read()]
        with self.clone.open() as other:
            assert [recorded.event.payload["value"] for recorded in other.read()] == kept
            assert other.identity.epoch == self.open.identity.epoch
        return kept

    def say(self, value: object) -> None:
        self.open.append("thing.said", stream="thing/1", payload={"value": value})


@pytest.fixture(params=["the open handle looks first", "another handle looks first"])
def handles(first: Clone, request: pytest.FixtureRequest) -> Iterator[Handles]:
    handles = Handles(first)
    if request.param.startswith("another"):
        git = first.git

        def git_and_look(*arguments: str, check: bool = True) -> str:
            done = git(*arguments, check=check)
            with first.open() as other:
                list(other.read())
            return done

        first.git = git_and_look  # type: ignore[method-assign]
    yield handles
    handles.open.close()


def test_the_log_is_what_is_checked_out(first: Clone, handles: Handles) -> None:
    first.git("checkout", "-q", "-b", "feat")
    handles.say("of feat")
    first.commit()
    assert handles.values() == ["base", "of feat"]
    first.git("checkout", "-q", "main")
    assert handles.values() == ["base"]
    first.git("checkout", "-q", "feat")
    assert handles.values() == ["base", "of feat"]
    first.git("checkout", "-q", "main")
    handles.say("of main")
    first.commit()
    assert handles.values() == ["base", "of main"]
    first.git("checkout", "-q", "feat")
    handles.say("more of feat")
    first.commit()
    assert handles.values() == ["base", "of feat", "more of feat"]
    first.git("merge", "-q", "--no-edit", "main")
    assert sorted(map(str, handles.values())) == ["base", "more of feat", "of feat", "of main"]
    handles.say("together")
    assert handles.open.verify().ok
    assert first.problems() == []


def test_an_empty_git_folder_beside_the_log_does_not_hide_the_repository(first: Clone) -> None:
    """Git itself passes over it, too."""
    first.git("checkout", "-q", "-b", "feat")
    (first.folder / ".git").mkdir()
    with first.open() as log:
        store = log._store
        assert isinstance(store, JsonlStore)
        checkout = store.checkout()
    assert checkout is not None
    assert checkout.branch == "feat"


def test_the_variables_of_a_git_hook_do_not_select_another_repository(
    first: Clone, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = first.git("rev-parse", "HEAD").strip()
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "elsewhere" / ".git"))
    with first.open() as log:
        store = log._store
        assert isinstance(store, JsonlStore)
        checkout = store.checkout()
    assert checkout is not None
    assert checkout.commit == commit


def test_a_branch_has_an_epoch_of_its_own_and_gets_it_back(first: Clone, handles: Handles) -> None:
    """Cursors of a branch hold when it is checked out again, and are reset on another."""
    first.git("checkout", "-q", "-b", "feat")
    handles.say("of feat")
    first.commit()
    feat = handles.open.page_after(Cursor()).next_cursor
    first.git("checkout", "-q", "main")
    handles.say("of main")
    first.commit()
    main = handles.open.page_after(Cursor()).next_cursor
    assert main.epoch != feat.epoch
    store = handles.open._store
    assert isinstance(store, JsonlStore)
    for _ in range(2):
        first.git("checkout", "-q", "feat")
        assert handles.open.page_after(feat).reset is None
        assert feat.epoch not in store.other_epochs()
        assert main.epoch in store.other_epochs()
        reset = handles.open.page_after(main).reset
        assert reset is not None
        assert reset.reason == "restored"
        first.git("checkout", "-q", "main")
        assert handles.open.page_after(main).reset is None
        reset = handles.open.page_after(feat).reset
        assert reset is not None
        assert reset.reason == "restored"
    first.git("checkout", "-q", "feat")
    handles.say("later")
    page = handles.open.page_after(feat)
    assert (page.reset, [each.event.payload["value"] for each in page.events]) == (None, ["later"])
    assert handles.open.verify().ok


def test_a_branch_that_begins_at_another_does_not_take_its_epoch(first: Clone, handles: Handles) -> None:
    main = handles.open.page_after(Cursor()).next_cursor
    first.git("checkout", "-q", "-b", "one")
    handles.say("one")
    first.commit()
    first.git("checkout", "-q", "-b", "two", "main")
    assert handles.values() == ["base"]
    handles.say("two")
    first.commit()
    assert handles.open.page_after(main).reset is not None
    first.git("checkout", "-q", "main")
    page = handles.open.page_after(main)
    assert (page.reset, page.events) == (None, ())
    handles.say("of main")
    assert [each.event.payload["value"] for each in handles.open.page_after(main).events] == ["of main"]


def test_no_number_of_an_origin_is_given_out_twice(first: Clone, handles: Handles) -> None:
    """F11: each branch goes on as an origin of its own, so that they can be merged."""
    for branch in ("one", "two", "three"):
        first.git("checkout", "-q", "-b", branch, "main")
        handles.say(branch)
        first.commit()
    for _ in range(2):
        for branch in ("one", "two", "three"):
            first.git("checkout", "-q", branch)
            handles.say(f"more of {branch}")
            first.commit()
    first.git("checkout", "-q", "main")
    for branch in ("one", "two", "three"):
        first.git("merge", "-q", "--no-edit", branch)
    events = [recorded.event for recorded in handles.open.read()]
    assert len({(event.origin, event.origin_seq) for event in events}) == len(events) == 10
    assert handles.open.verify().ok


def stash(clone: Clone) -> None:
    clone.git("stash", "-q")


def reset(clone: Clone) -> None:
    clone.git("reset", "-q", "--hard")


def checkout_file(clone: Clone) -> None:
    clone.git("checkout", "-q", "--", ".everlog/events")


def restore(clone: Clone) -> None:
    clone.git("restore", ".everlog/events")


@pytest.mark.parametrize("act", [stash, reset, checkout_file, restore])
def test_uncommitted_lines_that_git_throws_away_are_gone_and_writing_goes_on(
    first: Clone, handles: Handles, act: Callable[[Clone], None]
) -> None:
    handles.say("thrown away")
    before = handles.open.page_after(Cursor()).next_cursor
    act(first)
    assert handles.values() == ["base"]
    assert handles.open.page_after(before).reset is not None
    handles.say("after")
    assert handles.values() == ["base", "after"]
    assert handles.open.verify().ok
    assert first.problems() == []


def test_a_stash_comes_back(first: Clone, handles: Handles) -> None:
    handles.say("stashed")
    first.git("stash", "-q")
    assert handles.values() == ["base"]
    first.git("stash", "pop", "-q")
    assert handles.values() == ["base", "stashed"]
    handles.say("after")
    assert handles.open.verify().ok


def test_a_stash_that_is_popped_on_another_branch(first: Clone, handles: Handles) -> None:
    """Nobody looks in between. As a cherry-pick does, it brings the whole day file."""
    first.git("checkout", "-q", "-b", "feat")
    handles.say("of feat")
    first.commit()
    handles.say("on its way")
    assert handles.values() == ["base", "of feat", "on its way"]
    for arguments in (("stash", "-q"), ("checkout", "-q", "main"), ("stash", "pop", "-q")):
        Clone.git(first, *arguments)
    assert handles.values() == ["base", "of feat", "on its way"]
    handles.say("after")
    assert handles.open.verify().ok


def test_a_line_that_was_carried_to_another_branch_by_hand(first: Clone, handles: Handles) -> None:
    """The file is not what git wrote, but it has all of that, and what it lacks is in a commit."""
    first.git("checkout", "-q", "-b", "feat")
    handles.say("of feat")
    first.commit()
    handles.say("on its way")
    (name,) = first.day_files()
    day = first.folder / "events" / name
    line = day.read_bytes().splitlines(keepends=True)[-1]
    Clone.git(first, "stash", "-q")
    Clone.git(first, "checkout", "-q", "main")
    with day.open("ab") as file:
        file.write(line)
    assert handles.values() == ["base", "on its way"]
    handles.say("after")
    assert handles.open.verify().ok


def test_days_that_git_cleans_away(first: Clone, handles: Handles) -> None:
    first.clock.us += DAY_US
    handles.say("in a new file that git does not track")
    assert len(first.day_files()) == 2
    first.git("clean", "-q", "-f", "-d")
    assert handles.values() == ["base"]
    handles.say("after")
    assert handles.values() == ["base", "after"]
    assert handles.open.verify().ok


def test_a_commit_that_is_reset_away_and_found_again(first: Clone, handles: Handles) -> None:
    handles.say("committed")
    first.commit()
    first.git("reset", "-q", "--hard", "HEAD~1")
    assert handles.values() == ["base"]
    handles.say("instead")
    first.commit()
    first.git("reset", "-q", "--hard", "HEAD@{2}")
    assert handles.values() == ["base", "committed"]
    handles.say("after")
    assert handles.open.verify().ok


def test_a_branch_is_rebased_and_picked_from(first: Clone, handles: Handles) -> None:
    first.git("checkout", "-q", "-b", "feat")
    handles.say("of feat")
    first.commit("feat")
    first.git("checkout", "-q", "main")
    handles.say("of main")
    first.commit("main")
    first.git("checkout", "-q", "feat")
    first.git("rebase", "-q", "main")
    assert sorted(map(str, handles.values())) == ["base", "of feat", "of main"]
    handles.say("more")
    first.commit("more")
    first.git("checkout", "-q", "main")
    assert handles.values() == ["base", "of main"]
    first.git("cherry-pick", "feat")
    assert sorted(map(str, handles.values())) == ["base", "more", "of feat", "of main"]
    handles.say("after")
    assert handles.open.verify().ok


def test_a_worktree_is_a_log_of_its_own(first: Clone, handles: Handles, tmp_path: Path) -> None:
    first.git("worktree", "add", "-q", "-b", "feat", str(tmp_path / "tree"))
    tree = Clone(tmp_path / "tree", first.clock)
    other = Handles(tree)
    other.say("in the tree")
    tree.commit()
    assert (handles.values(), other.values()) == (["base"], ["base", "in the tree"])
    handles.say("here")
    first.commit()
    tree.git("checkout", "-q", "--detach", "main")
    assert other.values() == ["base", "here"]
    other.say("detached")
    tree.git("checkout", "-q", "--", ".everlog")
    tree.git("checkout", "-q", "feat")
    assert other.values() == ["base", "in the tree"]
    first.git("merge", "-q", "--no-edit", "feat")
    assert sorted(map(str, handles.values())) == ["base", "here", "in the tree"]
    assert handles.open.verify().ok
    assert other.open.verify().ok
    other.open.close()


# ---- what is not git's doing


def rm(clone: Clone, day: Path) -> None:
    day.unlink()


def cut(clone: Clone, day: Path) -> None:
    day.write_bytes(b"".join(day.read_bytes().splitlines(keepends=True)[:-1]))


def flip(clone: Clone, day: Path) -> None:
    day.write_bytes(day.read_bytes().replace(b"second", b"sec0nd"))


def cut_to_what_is_committed(clone: Clone, day: Path) -> None:
    """The bytes of git's version, in the very second in which git wrote it, but git did not write them."""
    Clone.git(clone, "config", "core.trustctime", "false")
    staged = Clone.git(clone, "ls-files", "--debug", "--", f".everlog/events/{day.name}")
    seconds, rest = next(line for line in staged.splitlines() if "mtime" in line).split()[1].split(":")
    committed = Clone.git(clone, "show", f"HEAD:.everlog/events/{day.name}")
    day.write_bytes(committed.encode())
    moment = int(seconds) * 10**9 + (int(rest) + 1) % 10**9
    os.utime(day, ns=(moment, moment))


def cut_a_committed_line(clone: Clone, day: Path) -> None:
    """It is in a commit, but git's version of this file has it, too."""
    day.write_bytes(b"".join(line for line in day.read_bytes().splitlines(keepends=True) if b'"first"' not in line))


def rm_on_another_branch(clone: Clone, day: Path) -> None:
    Clone.git(clone, "checkout", "-q", "-b", "feat")
    day.unlink()


@pytest.mark.parametrize("act", [rm, cut, flip, cut_to_what_is_committed, cut_a_committed_line, rm_on_another_branch])
def test_lines_that_disappear_without_git_are_damage(
    first: Clone, handles: Handles, act: Callable[[Clone, Path], None]
) -> None:
    handles.say("first")
    first.commit()
    handles.say("second")
    assert handles.values() == ["base", "first", "second"]  # every handle knows them, by the index
    (name,) = first.day_files()
    day = first.folder / "events" / name
    good = day.read_bytes()
    act(first, day)
    for log in (handles.open, first.open()):
        with log if log is not handles.open else _kept_open():
            with pytest.raises(Damaged) as raised:
                list(log.read())
            assert raised.value.details["file"] == f"events/{name}"
            with pytest.raises(Damaged):
                log.append("thing.said", stream="thing/1", payload={"value": 1})
            assert not log.verify().ok
    day.write_bytes(good)
    assert handles.values() == ["base", "first", "second"]
    handles.say("third")
    assert handles.open.verify().ok


class _kept_open:  # noqa: N801 - used as nullcontext
    def __enter__(self) -> None: ...

    def __exit__(self, *about: object) -> None: ...


@pytest.mark.parametrize("lost", ["committed", "not committed"])
def test_lines_that_are_cut_by_hand_and_added_are_damage(first: Clone, handles: Handles, lost: str) -> None:
    """`git add` makes a version that no commit has: git did not remove the lines."""
    handles.say("committed")
    first.commit()
    handles.say("not committed")
    handles.say("nor this")
    assert handles.values() == ["base", "committed", "not committed", "nor this"]
    (file,) = (first.folder / "events").iterdir()
    lines = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(b"".join(line for line in lines if f'"{lost}"'.encode() not in line))
    Clone.git(first, "add", "-A")
    with pytest.raises(Damaged):
        list(handles.open.read())
    assert "log_cut_off" in "".join(first.problems())
    with pytest.raises(Damaged):
        handles.say("no")
    file.write_bytes(b"".join(lines))
    first.git("add", "-A")
    assert handles.values() == ["base", "committed", "not committed", "nor this"]


def test_a_rebase_that_stops_half_way_has_taken_lines_away(first: Clone, handles: Handles) -> None:
    """What is staged then is in no commit yet. The lines are in the commits that are still to come."""
    first.git("branch", "feat")
    handles.say("of main")
    (first.path / "text").write_text("main")
    first.commit()
    first.git("checkout", "-q", "feat")
    handles.say("of feat")
    (first.path / "text").write_text("feat")
    first.commit()
    handles.say("later of feat")
    first.commit()
    assert handles.values() == ["base", "of feat", "later of feat"]
    first.git("rebase", "-q", "main", check=False)
    assert sorted(map(str, handles.values())) == ["base", "of feat", "of main"]
    first.git("checkout", "-q", "--theirs", "text")
    first.git("add", "text")
    first.git("-c", "core.editor=true", "rebase", "--continue")
    assert sorted(map(str, handles.values())) == ["base", "later of feat", "of feat", "of main"]
    assert first.problems() == []


def test_damage_that_is_given_up_through_git_is_none_any_more(first: Clone, handles: Handles) -> None:
    handles.say("first")
    first.commit()
    handles.say("never committed")
    (name,) = first.day_files()
    (first.folder / "events" / name).unlink()
    with pytest.raises(Damaged):
        list(handles.open.read())
    first.git("checkout", "-q", "--", ".everlog/events")
    assert handles.values() == ["base", "first"]
    handles.say("after")
    assert handles.open.verify().ok


def test_without_the_program_git_a_log_is_read_and_written(
    first: Clone, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    log: Log = first.open()
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    assert shutil.which("git") is None
    log.append("thing.said", stream="thing/1", payload={"value": "more"})
    assert [recorded.event.payload["value"] for recorded in log.read()] == ["base", "more"]
    (name,) = first.day_files()
    (first.folder / "events" / name).unlink()
    with pytest.raises(Damaged):
        list(log.read())
    log.close()


@pytest.mark.parametrize("kind", ["read-only", "in memory"])
def test_without_an_index_on_the_disk_the_log_is_what_is_checked_out(first: Clone, kind: str) -> None:
    first.git("checkout", "-q", "-b", "feat")
    first.say_and_commit("of feat")
    if kind == "read-only":
        store = JsonlStore(first.folder, files=ReadOnlyFiles(), now_us=first.clock)
    else:
        store = JsonlStore(first.folder, index_in_memory=True, now_us=first.clock)
    before = {file: file.read_bytes() for file in (first.folder / "local").rglob("*") if file.is_file()}
    with Log(store, CATALOG, actor="user:ada", now_us=first.clock) as log:

        def values() -> list[object]:
            return [recorded.event.payload["value"] for recorded in log.read()]

        epochs = {log.identity.epoch}
        for _ in range(2):
            assert values() == ["base", "of feat"]
            first.git("checkout", "-q", "main")
            assert values() == ["base"]
            epochs.add(log.identity.epoch)
            first.git("checkout", "-q", "feat")
        assert len(epochs) > 1
        assert log.verify().ok
        if kind == "read-only":
            assert {file: file.read_bytes() for file in before} == before
        else:
            log.append("thing.said", stream="thing/1", payload={"value": "more"})
            assert values() == ["base", "of feat", "more"]
            assert log.verify().ok
    if kind == "in memory":
        assert first.problems() == []


def test_a_reader_that_looks_in_the_middle_of_a_checkout_gets_on_when_git_is_done(first: Clone) -> None:
    """Git writes the files first. Until it has written what is checked out, their lines are lost."""
    first.git("checkout", "-q", "-b", "feat")
    with first.open() as log:
        log.append("thing.said", stream="thing/1", payload={"value": "of feat"})
        first.commit()
        (name,) = first.git("ls-files", "--full-name", "*events/*.jsonl").split()
        top = Path(first.git("rev-parse", "--show-toplevel").strip())
        assert [recorded.event.payload["value"] for recorded in log.read()] == ["base", "of feat"]
        (top / name).write_text(first.git("show", f"main:{name}"))
        for _ in range(2):
            with pytest.raises(Damaged):
                list(log.read())
        first.git("symbolic-ref", "HEAD", "refs/heads/main")
        first.git("reset", "-q")
        assert [recorded.event.payload["value"] for recorded in log.read()] == ["base"]
        log.append("thing.said", stream="thing/1", payload={"value": "of main"})
        assert log.verify().ok

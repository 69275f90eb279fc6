"""Acknowledged lines that the index never had, and that are gone: the lock file knows how far the own chain went."""

from __future__ import annotations

import shutil
import subprocess
from contextlib import closing
from pathlib import Path

import pytest
from tests.stores.jsonl.own import day_files, texts
from tests.stores.jsonl.test_lagging_index import child, end

from everlog.catalog.builtin import BUILT_IN
from everlog.errors import Damaged
from everlog.log.log import Log
from everlog.log.verify.verify import verify
from everlog.stores.jsonl.store import JsonlStore


def written(path: Path, count: int = 5) -> None:
    """Have another process append events and be killed before it brings the index up to date."""
    end(child(path, f"for number in range({count}): add(str(number))"))


def say(store: JsonlStore, text: str) -> None:
    Log(store, BUILT_IN, actor="user:ada").append("note.added", stream="note/1", payload={"text": text})


def cut(file: Path, *, kept: int, new: bool) -> bytes:
    """Remove lines from the end of a file, as an editor does, or in place. Return what it held."""
    whole = file.read_bytes()
    left = b"".join(whole.splitlines(keepends=True)[:kept])
    if new:
        file.unlink()
    file.write_bytes(left)
    return whole


def assert_told(store: JsonlStore, first: int, last: int) -> None:
    read: list[str] = []
    with pytest.raises(Damaged) as told:
        read.extend(recorded.event.payload["text"] for recorded in store.read())
    assert read == [str(number) for number in range(first - 1)]
    assert (told.value.details["position"], told.value.details["after"]) == (first, last)
    problems = verify(store).problems
    assert {problem.code for problem in problems} == {"log_cut_off"}
    assert problems[0].position == first
    with pytest.raises(Damaged, match="takes no writes"):
        say(store, "more")


@pytest.mark.parametrize(
    ("index", "new", "kept"),
    [("lags", True, 3), ("lags", False, 4), ("empty", False, 3), ("gone", True, 0)],
)
def test_lines_that_only_a_killed_writer_knew_are_missed(path: Path, index: str, new: bool, kept: int) -> None:
    written(path)
    (file,) = day_files(path)
    whole = cut(file, kept=kept, new=new)
    if index == "empty":
        (path / "local" / "index.db").write_bytes(b"")
    elif index == "gone":
        for part in (path / "local").glob("index.db*"):
            part.unlink()
    for _ in range(2):
        with closing(JsonlStore(path)) as store, closing(JsonlStore(path)) as other:
            for each in (store, other):
                assert_told(each, kept + 1, 5)
            (problem,) = store.check()
            assert ("event 5 of" if kept == 4 else f"events {kept + 1} to 5 of") in problem.reason
            assert problem.file == f"events/{file.name}"
    with closing(JsonlStore(path)) as store, closing(JsonlStore(path)) as other:
        with pytest.raises(Damaged):
            store.rebuild_index()
        epoch = store.identity.epoch
        file.write_bytes(whole)
        assert texts(store) == texts(other) == list("01234")
        assert store.identity.epoch == epoch
        say(other, "5")
        assert texts(store) == list("012345")
        assert verify(store).problems == ()


def test_a_day_file_of_which_the_index_had_one_event_is_missed_with_the_others(path: Path) -> None:
    written(path)
    for file in day_files(path):
        file.unlink()
    with closing(JsonlStore(path)) as store:
        assert_told(store, 1, 5)


def test_the_loss_can_be_accepted_and_the_log_continues_under_a_new_origin(path: Path) -> None:
    written(path)
    cut(day_files(path)[0], kept=3, new=True)
    with closing(JsonlStore(path)) as store, closing(JsonlStore(path)) as other:
        origin = store.identity.origin
        assert store.rebuild_index(accept_missing=True) == 3
        for each in (store, other):
            say(each, "more")
        assert texts(store) == texts(other) == ["0", "1", "2", "more", "more"]
        assert store.identity.origin != origin
        assert verify(other).problems == ()
    with closing(JsonlStore(path)) as store:
        assert verify(store).problems == ()


@pytest.mark.parametrize("new", [True, False])
def test_a_living_writer_and_its_readers_agree_on_what_is_gone(path: Path, new: bool) -> None:
    with closing(JsonlStore(path)) as writer:
        for number in range(5):
            say(writer, str(number))
        (file,) = day_files(path)
        whole = cut(file, kept=3, new=new)
        with closing(JsonlStore(path)) as reader:
            assert_told(reader, 4, 5)
            assert_told(writer, 4, 5)
            assert_told(reader, 4, 5)
            file.write_bytes(whole)
            assert texts(reader) == texts(writer) == list("01234")
            assert verify(reader).problems == ()


def test_a_copy_of_the_folder_that_was_put_back_has_lost_nothing(path: Path, tmp_path: Path) -> None:
    written(path, 3)
    shutil.copytree(path, tmp_path / "backup")
    written(path, 2)
    shutil.rmtree(path)
    shutil.copytree(tmp_path / "backup", path)
    with closing(JsonlStore(path)) as store:
        assert texts(store) == list("012")
        origin = store.identity.origin
        say(store, "more")
        assert store.identity.origin != origin
        assert verify(store).problems == ()


@pytest.mark.parametrize("tracked", [True, False])
def test_in_git_lines_are_missed_only_if_git_does_not_track_the_log(path: Path, tracked: bool) -> None:
    if shutil.which("git") is None:
        pytest.skip("there is no git here")

    def git(*arguments: str) -> None:
        who = ["-c", "user.name=Ada", "-c", "user.email=ada@example.org"]
        subprocess.run(["git", "-C", str(path.parent), *who, *arguments], check=True, capture_output=True)

    git("init", "-q", "-b", "main")
    written(path, 3)
    if tracked:
        git("add", "-A")
        git("commit", "-q", "-m", "three")
    written(path, 2)
    (file,) = day_files(path)
    if tracked:
        git("checkout", "-q", "--", ".")
        with closing(JsonlStore(path)) as store, closing(JsonlStore(path)) as other:
            assert texts(store) == texts(other) == list("012")
            say(store, "3")
            assert texts(other) == list("0123")
            assert verify(other).problems == ()
    else:
        cut(file, kept=3, new=True)
        with closing(JsonlStore(path)) as store:
            assert_told(store, 4, 5)

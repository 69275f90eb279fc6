"""`everlog init`, `git` and `merge-driver` in a repository, and what a clone is told that git does not know."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from tests.cli.conftest import Run

from everlog.stores.jsonl.lines import event_line
from everlog.testing.builders import NOON, Chain

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="there is no git here")


def git(*arguments: str) -> str:
    who = ["-c", "user.name=Ada", "-c", "user.email=ada@example.org"]
    return subprocess.run(["git", *who, *arguments], check=True, capture_output=True, text=True).stdout


@pytest.fixture
def repository(place: Path) -> Path:
    git("init", "-q", "-b", "main")
    return place


def test_init_in_a_repository_makes_the_log_known_to_git(everlog: Run, repository: Path) -> None:
    assert everlog("init", "--store", "jsonl:.").code == 0
    assert everlog("append", "note.added", "-s", "note/1", "text=hello").code == 0
    git("add", "-A")
    git("commit", "-qm", "a log")

    assert git("ls-files").split() == [
        ".everlog/.gitattributes",
        ".everlog/.gitignore",
        *(f".everlog/events/{path.name}" for path in (repository / ".everlog/events").iterdir()),
        ".everlog/everlog.toml",
        ".everlog/log.json",
        ".everlog/types.toml",
    ]
    assert "merge: everlog" in git("check-attr", "merge", ".everlog/events/2026-11-15.jsonl")
    assert "merge-driver %O %A %B %P" in git("config", "--local", "merge.everlog.driver")
    doctor = {check["id"]: check["status"] for check in everlog("doctor", "--json").data}
    assert doctor["git"] == "ok"
    assert everlog("init").code == 0
    assert everlog("git", "install", "--json").data["changed"] == []
    assert git("status", "--porcelain") == ""


def test_init_elsewhere_does_not_ask_git(everlog: Run, place: Path) -> None:
    assert everlog("init", "--store", "jsonl:.").code == 0
    assert not (place / ".everlog" / ".gitattributes").exists()
    assert "git" not in {check["id"] for check in everlog("doctor", "--json").data}


def test_a_log_that_git_cannot_merge_leaves_git_alone(everlog: Run, repository: Path) -> None:
    assert everlog("init").code == 0
    assert not (repository / ".everlog" / ".gitattributes").exists()
    assert "git" not in {check["id"] for check in everlog("doctor", "--json").data}
    refused = everlog("git", "install", "--json")
    assert (refused.code, refused.error["code"]) == (2, "invalid_settings")


def test_a_fresh_clone_is_told_what_to_type_and_init_is_enough(
    everlog: Run, repository: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    everlog("init", "--store", "jsonl:.")
    git("add", "-A")
    git("commit", "-qm", "a log")
    git("clone", "-q", ".", str(tmp_path / "clone"))
    monkeypatch.chdir(tmp_path / "clone")

    assert "everlog git install" in everlog("log").err
    (check,) = [check for check in everlog("doctor", "--json").data if check["id"] == "git"]
    assert (check["status"], check["fix"]) == ("warn", "everlog git install")

    done = everlog("init")
    assert (done.code, "git install" in done.err) == (0, False)
    assert "git install" not in everlog("log").err
    assert git("status", "--porcelain") == ""


def test_installing_where_nothing_is_says_so(everlog: Run, place: Path) -> None:
    assert everlog("git", "install", "--json").error["code"] == "no_log"
    refused = everlog("git", "install", "--json", "--log", "jsonl:nowhere")
    assert (refused.code, refused.error["code"]) == (4, "not_found")
    everlog("init", "--store", "jsonl:.")
    refused = everlog("git", "install", "--json")
    assert (refused.code, refused.error["hint"]) == (4, "git init")


def test_the_driver_unites_two_files_and_says_nothing(everlog: Run, place: Path) -> None:
    chain, other = Chain(), Chain("01TESTORGN000000000000000B")
    ours, theirs = event_line(chain.next(), NOON), event_line(other.next(lamport=2), NOON)
    (place / "ours").write_bytes(ours)
    (place / "theirs").write_bytes(theirs)

    done = everlog("merge-driver", "base", "ours", "theirs", "events/2026-11-15.jsonl")

    assert (done.code, done.out, done.err) == (0, "", "")
    assert (place / "ours").read_bytes() == ours + theirs
    assert sorted(path.name for path in place.iterdir()) == ["ours", "theirs"]


def test_the_driver_refuses_and_leaves_our_side_alone(everlog: Run, place: Path) -> None:
    ours = event_line(Chain().next(), NOON)
    (place / "ours").write_bytes(ours)
    (place / "theirs").write_bytes(b"=======\n")
    done = everlog("merge-driver", "base", "ours", "theirs", "events/2026-11-15.jsonl", "--json")
    assert (done.code, done.error["code"]) == (3, "bad_file")
    assert done.error["why"].startswith("events/2026-11-15.jsonl (theirs):1: it is a conflict marker")
    assert (place / "ours").read_bytes() == ours

    assert 0 < everlog("merge-driver", "base", "ours", "no-such-file", "events/2026-11-15.jsonl").code < 128
    assert (place / "ours").read_bytes() == ours


def test_who_finds_conflict_markers_is_told_which_lines_to_delete_and_what_stays(everlog: Run, place: Path) -> None:
    everlog("init", "--store", "jsonl:.")
    for number in (1, 2):
        everlog("append", "note.added", "-s", f"note/{number}", "text=hello")
    (file,) = (place / ".everlog" / "events").glob("*.jsonl")
    first, second = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(b"<<<<<<< HEAD\n" + first + b"=======\n" + second + b">>>>>>> theirs\n")

    done = everlog("verify")
    assert (done.code, done.out.count("delete this line")) == (8, 3)
    assert "both sides are events and both stay; then: everlog verify" in done.err
    assert "backup" not in done.err  # nothing is lost
    (check,) = [check for check in everlog("doctor", "--json").data if check["id"] == "structure"]
    assert check["fix"] == done.err.strip()
    for asked in (["log"], ["log", "-s", "note/1"], ["log", "--to-end"], ["tail", "--no-follow"], ["show", "1"]):
        shown = everlog(*asked)
        assert shown.code == (0 if asked[0] == "show" else 8), asked
        assert shown.err.count("warning: ") == 1, asked
        assert f"conflict_marker: events/{file.name} line 1: " in shown.err
        assert f"; and 2 more; {done.err}" in shown.err  # the same words as the others have for what to do
        if asked[0] != "show":
            assert "has conflict markers of git" in shown.err
    refused = everlog("append", "note.added", "-s", "note/3", "text=hello", "--json")
    assert (refused.code, refused.error["code"], refused.error["details"]["lines"]) == (8, "damaged", [1, 3, 5])

    file.write_bytes(first.replace(b"hello", b"other") + b"=======\n" + second)  # and this is lost
    told = everlog("verify").err
    assert "both stay; then: everlog verify; for the rest: keep this file" in told

    file.write_bytes(first + second)
    assert everlog("verify").code == 0
    assert everlog("append", "note.added", "-s", "note/3", "text=hello").code == 0


def test_conflict_markers_stop_boards_and_lists(everlog: Run, place: Path) -> None:
    everlog("init", "--store", "jsonl:.")
    everlog("wp", "create", "WP01", "first")
    everlog("issue", "create", "first")
    (file,) = (place / ".everlog" / "events").glob("*.jsonl")
    good = file.read_bytes()
    first, *rest = good.splitlines(keepends=True)
    file.write_bytes(b"<<<<<<< HEAD\n" + first + b"=======\n" + b"".join(rest) + b">>>>>>> theirs\n")
    for asked in (
        ["wp", "board"],
        ["wp", "board", "--json"],
        ["issue", "list"],
        ["log", "--json"],
        ["export", "out"],
    ):
        done = everlog(*asked)
        assert done.code == 8, asked
        assert f"events/{file.name}" in done.err + done.out, asked
        assert "line 1" in done.err + done.out, asked
    file.write_bytes(good)
    assert everlog("wp", "board").code == 0


def test_the_board_is_that_of_the_checked_out_branch(everlog: Run, repository: Path) -> None:
    everlog("init", "--store", "jsonl:.")
    everlog("wp", "create", "WP01", "first")
    git("add", "-A")
    git("commit", "-q", "-m", "base")
    git("checkout", "-q", "-b", "feat")
    everlog("wp", "create", "WP02", "second")
    git("commit", "-q", "-a", "-m", "more")

    def board() -> set[str]:
        done = everlog("wp", "board")
        assert done.code == 0
        return {name for name in ("WP01", "WP02", "WP03") if name in done.out}

    for _ in range(2):
        git("checkout", "-q", "main")
        assert board() == {"WP01"}
        git("checkout", "-q", "feat")
        assert board() == {"WP01", "WP02"}
    of = everlog("verify", "--json").data["events_of"]
    assert (of["branch"], len(of["commit"])) == ("feat", 40)
    assert "events_of\tfeat at " in everlog("verify").out
    git("checkout", "-q", "main")
    assert everlog("wp", "create", "WP03", "third").code == 0
    assert board() == {"WP01", "WP03"}
    other = everlog("verify", "--json").data
    assert (other["events"], other["events_of"]["branch"]) == (2, "main")
    assert other["events_of"]["epoch"] != of["epoch"]


def test_doctor_names_a_file_that_is_dated_in_the_future(everlog: Run, place: Path) -> None:
    everlog("init", "--store", "jsonl:.")
    everlog("append", "note.added", "-s", "note/1", "text=hello")
    (file,) = (place / ".everlog" / "events").glob("*.jsonl")
    file.rename(file.with_name("2999-01-01.jsonl"))
    (check,) = [check for check in everlog("doctor", "--json").data if check["id"] == "future"]
    assert "events/2999-01-01.jsonl is dated in the future" in check["detail"]
    everlog("append", "note.added", "-s", "note/1", "text=hello")
    assert len(list((place / ".everlog" / "events").glob("*.jsonl"))) == 2
    assert everlog("verify").code == 0

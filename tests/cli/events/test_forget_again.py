"""After a forget: what git brings back is erased again, and a killed forget is finished by the next write."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from tests.application.trust.forgetting import OPEN, SEALED, STAYS, files_with, fill, open_shop
from tests.application.trust.test_forget import forget_in_a_process
from tests.cli.conftest import Run

from everlog.application.trust.forget import STEPS, is_unfinished, status


def git(folder: Path, *command: str) -> None:
    who = ["-c", "user.name=ada", "-c", "user.email=ada@localhost"]
    subprocess.run(["git", *who, *command], cwd=folder, check=True, capture_output=True)


@pytest.mark.parametrize("same_file", [True, False])
def test_what_git_brings_back_is_erased_by_the_next_command(everlog: Run, place: Path, same_file: bool) -> None:
    """Another clone received the event on another day, or a text merge kept both lines."""
    git(place, "init", "-q")
    assert everlog("init", "--store", "jsonl:log").code == 0
    assert everlog("schema", "add", "customer.registered", "customer:str", "email:str").code == 0
    assert everlog("append", "customer.registered", "-s", "customer/1", "customer=c/1", f"email={OPEN}").code == 0
    events = next(place.rglob("events"))
    (day,) = events.glob("*.jsonl")
    full = next(line for line in day.read_text().splitlines(keepends=True) if OPEN in line)
    types = Path(".everlog/types.toml")
    types.write_text(types.read_text().replace('email = "str"', 'email = "str personal of customer"'))
    git(place, "add", "-A")
    git(place, "commit", "-qm", "events")
    assert everlog("forget", "c/1", "--confirm", "forget c/1").code == 0
    assert files_with(events, OPEN) == []
    if same_file:
        day.write_text(full + day.read_text())
    else:
        (events / "2020-01-01.jsonl").write_text(full)
    git(place, "add", "-A")
    git(place, "commit", "-qm", "merged")
    shown = everlog("log", "--json")
    assert shown.code == 0
    assert OPEN not in shown.out
    assert files_with(events, OPEN) == []
    assert everlog("verify").code == 0


@pytest.mark.parametrize("step", STEPS[1:])
@pytest.mark.parametrize("url", ["sqlite:log.db", "jsonl:log", "segments:log"])
def test_the_next_write_finishes_a_killed_forget(everlog: Run, place: Path, url: str, step: str) -> None:
    fill(url, signed=True)
    assert forget_in_a_process(url, step, place).returncode == -9
    assert everlog("--log", url, "log").code == 0
    with open_shop(url) as log:
        assert is_unfinished(log)  # a command that only reads leaves it
    assert everlog("--log", url, "append", "note.added", "-s", "note/1", "text=hello").code == 0
    assert files_with(place, OPEN, SEALED) == []
    with open_shop(url) as log:
        assert not is_unfinished(log)
        (asked,) = status(log)
        assert "\nfound 0\n" in asked.receipt
        assert (log.verify().ok, log.verify().erased) == (True, 1)
        assert [one.event.type for one in log.read()][-1] == "note.added"


def test_an_export_beside_the_log_is_named_and_not_changed(everlog: Run, place: Path) -> None:
    assert everlog("init").code == 0
    assert everlog("schema", "add", "customer.registered", "customer:str", "email:str").code == 0
    assert everlog("append", "customer.registered", "-s", "customer/1", "customer=c/1", f"email={OPEN}").code == 0
    assert everlog("append", "customer.registered", "-s", "customer/2", "customer=c/2", f"email={STAYS}").code == 0
    assert everlog("export", "all.jsonl").code == 0
    assert everlog("export", "other.jsonl", "--stream", "customer/2").code == 0
    types = Path(".everlog/types.toml")
    types.write_text(types.read_text().replace('email = "str"', 'email = "str personal of customer"'))
    done = everlog("forget", "c/1", "--confirm", "forget c/1")
    assert done.code == 0
    (warning,) = (line for line in done.err.splitlines() if "an export outside the log" in line)
    assert "all.jsonl" in warning
    assert "other.jsonl" not in warning
    assert files_with(place, OPEN) == ["all.jsonl"]
    assert everlog("export", "again.jsonl").code == 0
    assert everlog("forget", "c/2", "--confirm", "forget c/2", "--json").out.count("again.jsonl") == 1

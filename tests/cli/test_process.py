"""The command as a process: start-up, pipes, signals, terminals, and what happens when something is broken."""

from __future__ import annotations

import json
import os
import pty
import select
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

import pytest
from tests.cli.conftest import Run, clean_environment

from everlog.cli.main import main

HEAVY = (
    "everlog.log",
    "everlog.catalog",
    "everlog.wiring",
    "everlog.stores",
    "sqlite3",
    "rich",
    "asyncio",
    "msgspec",
)


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "everlog", *arguments]


def on_terminal(
    place: Path,
    *arguments: str,
    typed: bytes = b"",
    interrupt_at: bytes = b"",
    environment: Mapping[str, str] = MappingProxyType({}),
) -> tuple[int, str]:
    """Run on a terminal of its own; all that appears on it. `interrupt_at` sends Ctrl-C's signal at these words."""
    try:
        parent, child = pty.openpty()
    except OSError as error:
        pytest.skip(f"no terminal can be had here: {error}")
    process = subprocess.Popen(
        command(*arguments),
        cwd=place,
        env={**clean_environment(place), "COLUMNS": "100", **environment},
        stdin=child,
        stdout=child,
        stderr=child,
        start_new_session=True,
    )
    os.close(child)
    try:
        if typed:
            os.write(parent, typed)
        shown = b""
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            part = _read(parent, timeout_s=0.3)
            if part == b"":
                break
            shown += part or b""
            if part is None and interrupt_at and interrupt_at in shown:
                # Again and again: one that arrives just before Python waits for a line is seen only after that line.
                process.send_signal(signal.SIGINT)
        return process.wait(timeout=20), shown.decode()
    finally:
        process.kill()
        process.wait()
        os.close(parent)


def _read(terminal: int, *, timeout_s: float) -> bytes | None:
    """What appeared, None if nothing did yet, nothing at the end."""
    poll = select.poll()  # select() takes no descriptor above 1023, and many logs are open in this process
    poll.register(terminal, select.POLLIN)
    ready = poll.poll(timeout_s * 1000)
    try:
        return os.read(terminal, 65536) if ready else None
    except OSError:  # the terminal's other end is closed: the process has ended
        return b""


def imported(place: Path, *arguments: str) -> set[str]:
    found = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "everlog", *arguments],
        cwd=place,
        env=clean_environment(place),
        capture_output=True,
        text=True,
        check=True,
    )
    return {line.rpartition("|")[2].strip() for line in found.stderr.splitlines() if line.startswith("import time:")}


def among(modules: set[str], names: Sequence[str]) -> set[str]:
    return {module for module in modules for name in names if module == name or module.startswith(name + ".")}


# ---- start-up


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["help", "exit-codes"], ["append", "--help"]])
def test_help_loads_nothing_heavy(place: Path, arguments: list[str]) -> None:
    assert among(imported(place, *arguments), HEAVY) == set()


def test_help_beside_programs_that_are_on_reads_the_settings_and_no_more(notes: Run, place: Path) -> None:
    found = imported(place, "--help")
    assert "everlog.settings" in found
    assert among(found, ("everlog.catalog", "everlog.log", "everlog.cli.output", "everlog.programs.command")) == set()
    assert among(imported(place, "log"), ("everlog.transfer.git",)) == set()


def test_a_piped_log_loads_neither_rich_nor_asyncio(notes: Run, place: Path) -> None:
    assert among(imported(place, "log"), ("rich", "asyncio")) == set()


# ---- pipes and signals


def test_stdout_carries_the_data_and_stderr_the_rest(notes: Run, place: Path) -> None:
    found = subprocess.run(
        command("log", "--after", "0", "--limit", "2", "--type", "note.added", "--type", "note.aded"),
        cwd=place,
        env=clean_environment(place),
        capture_output=True,
        text=True,
        check=True,
    )
    assert [line.split("\t")[0] for line in found.stdout.splitlines()] == ["1", "2"]
    assert "warning: no event of type note.aded" in found.stderr
    assert "next: everlog log --type note.added" in found.stderr
    assert "\x1b" not in found.stdout + found.stderr


def in_shell(line: str, place: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        line, shell=True, cwd=place, env=clean_environment(place), capture_output=True, text=True, check=False
    )


def test_a_reader_that_leaves_early_ends_it_without_a_word(log: Run, place: Path) -> None:
    draft = {"type": "note.added", "stream": "n/1", "payload": {"text": "x" * 500}}
    assert log("append", "--batch", "-", stdin=b"\n".join([json.dumps(draft).encode()] * 500)).code == 0
    found = in_shell(f"{sys.executable} -m everlog log --to-end | head -n 1", place)
    assert found.returncode == 0
    assert found.stdout.startswith("1\t")
    assert found.stderr == ""


_AS_WITH_SPARK = """
import signal
from everlog.cli import main

really = main.main

def with_spark() -> int:
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    return really()

main.main = with_spark
main.run()
"""


@pytest.mark.parametrize(
    ("started", "code"), [(["-m", "everlog"], -signal.SIGPIPE), (["-c", _AS_WITH_SPARK], 128 + signal.SIGPIPE)]
)
def test_a_reader_that_leaves_early_is_told_by_the_exit_code_alone(
    log: Run, place: Path, started: list[str], code: int
) -> None:
    """Also where SIGPIPE is not heeded, because Java may end at any time."""
    draft = {"type": "note.added", "stream": "n/1", "payload": {"text": "x" * 500}}
    assert log("append", "--batch", "-", stdin=b"\n".join([json.dumps(draft).encode()] * 500)).code == 0
    with subprocess.Popen(
        [sys.executable, *started, "log", "--to-end"],
        cwd=place,
        env=clean_environment(place),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline().startswith(b"1\t")
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(20) == code


def test_the_exit_code_reaches_the_shell(place: Path) -> None:
    for arguments, code in ((["log"], 4), (["lgo"], 2), (["--version"], 0), (["config", "get", "x"], 2)):
        found = subprocess.run(command(*arguments), cwd=place, env=clean_environment(place), capture_output=True)
        assert found.returncode == code, arguments


def test_the_launcher_is_named_in_hints_when_it_started_this(place: Path) -> None:
    environment = {**clean_environment(place), "EVERLOG_LAUNCHER": "./everlog"}
    found = subprocess.run(command("log"), cwd=place, env=environment, capture_output=True, text=True)
    assert "fix: ./everlog init" in found.stderr
    assert found.returncode == 4


@pytest.mark.parametrize(
    ("line", "code", "told"),
    [
        ("append note.added -s n/1 - <&-", 3, "it is not JSON"),
        ("log >&-", 0, ""),
        ("lgo >&- 2>&-", 2, ""),
        ("log > /dev/full", 7, "No space left"),
    ],
)
def test_closed_and_full_streams_are_borne(notes: Run, place: Path, line: str, code: int, told: str) -> None:
    found = in_shell(f"{sys.executable} -m everlog {line}", place)
    assert found.returncode == code
    assert told in found.stderr
    assert "Traceback" not in found.stderr


def test_a_directory_that_was_removed_meanwhile_is_told(notes: Run, place: Path) -> None:
    (place / "gone").mkdir()
    found = in_shell(f"cd gone && rmdir ../gone && {sys.executable} -m everlog log", place)
    assert found.returncode == 4
    assert "does not exist any more" in found.stderr


# ---- a terminal


def test_a_terminal_gets_aligned_lines_in_colour(notes: Run, place: Path) -> None:
    code, shown = on_terminal(place, "log", "-n", "2")
    assert code == 0
    first, second = shown.splitlines()
    assert "\x1b[36mnote.added\x1b[0m" in first
    assert first.index("note.added") == second.index("note.added")
    assert "text=other" in second


@pytest.mark.parametrize("environment", [{"NO_COLOR": "1"}, {"TERM": "dumb"}])
def test_colour_can_be_had_away(notes: Run, place: Path, environment: dict[str, str]) -> None:
    _, shown = on_terminal(place, "log", "-n", "2", environment=environment)
    assert "\x1b" not in shown
    assert "note.added" in shown


def test_a_payload_cannot_steer_the_terminal_and_the_width_is_honoured(log: Run, place: Path) -> None:
    payload = json.dumps({"text": "\x1b]0;owned\x07" + "long " * 100}).encode()
    log("append", "note.added", "-s", "n/1", "-", stdin=payload)
    _, shown = on_terminal(place, "log", "--no-color", environment={"COLUMNS": "120"})
    assert "\x1b" not in shown
    assert "\x07" not in shown
    assert [110 < len(line) <= 120 for line in shown.splitlines()] == [True]
    assert shown.rstrip().endswith("…")


def test_a_terminal_shows_one_event_and_the_state_in_words(notes: Run, place: Path) -> None:
    _, shown = on_terminal(place, "show", "5", "--no-color")
    assert '"text": "other"' in shown
    assert "#5, note/2 sequence 1" in shown
    _, shown = on_terminal(place, "--no-color")
    assert "head        #5" in shown
    _, shown = on_terminal(place, "verify", "--no-color")
    assert "problems  none" in shown


def test_a_purge_on_a_terminal_asks_for_the_exact_words(notes: Run, place: Path) -> None:
    code, shown = on_terminal(place, "purge", "note/2", "--reason", "r", typed=b"yes\n")
    assert code == 6
    assert "It cannot be undone" in shown
    assert len(notes("log").rows) == 5
    code, shown = on_terminal(place, "purge", "note/2", "--reason", "r", typed=b"purge note/2\n")
    assert code == 0
    assert "removed 1 event of note/2 permanently" in shown
    assert "Undo" not in shown
    assert len(notes("log").rows) == 4


def test_ctrl_c_at_a_question_exits_130(notes: Run, place: Path) -> None:
    code, _ = on_terminal(place, "purge", "note/2", "--reason", "r", interrupt_at=b"to continue")
    assert code == 130
    assert len(notes("log").rows) == 5


# ---- mistakes


def test_an_unknown_command_exits_2_with_the_nearest(everlog: Run) -> None:
    found = everlog("lgo")
    assert found.code == 2
    assert found.out == ""
    assert found.err.splitlines() == ["error: No such command 'lgo'", "  fix: did you mean log? see everlog --help"]


def test_a_usage_error_is_json_when_json_is_wanted(everlog: Run) -> None:
    found = everlog("log", "--jsno", "--json")
    assert found.code == 2
    assert found.error["code"] == "usage"
    assert "--json" in found.error["hint"]


def test_agents_get_err_lines(everlog: Run) -> None:
    found = everlog("log", "--agent")
    assert found.code == 4
    assert found.err.startswith('ERR code=no_log message="there is no log in ')
    assert "exit=4 retryable=false" in found.err


def test_what_nobody_foresaw_is_written_to_a_file_and_told(
    notes: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from everlog.log.log import Log

    def break_down(self: Log) -> int:
        raise RuntimeError("the moon is full")

    monkeypatch.setattr(Log, "head", break_down)
    found = notes("verify", "--json")
    assert found.code == 1
    assert found.out == ""
    report = Path(found.error["details"]["report"])
    assert report.is_relative_to(tmp_path / "home/.local/state/everlog")
    assert "the moon is full" in report.read_text()
    assert "Traceback" in report.read_text()
    assert report.stat().st_mode & 0o777 == 0o600
    told = notes("verify")
    assert "Traceback" not in told.err
    assert told.err.startswith("error: everlog failed because of a defect\n  why: RuntimeError: the moon is full\n")
    monkeypatch.setenv("EVERLOG_DEBUG", "1")
    assert "Traceback" in notes("verify").err


def test_a_report_that_cannot_be_written_is_told_too(
    notes: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from everlog.log.log import Log

    def break_down(self: Log) -> int:
        raise RuntimeError("the moon is full")

    (tmp_path / "file").touch()
    monkeypatch.setattr(Log, "head", break_down)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    found = notes("verify")
    assert found.code == 1
    assert "could not be written" in found.err


def test_an_interrupt_exits_130(notes: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    from everlog.log.log import Log

    def interrupt(self: Log) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(Log, "head", interrupt)
    assert main(["verify"]) == 130


def test_the_logger_is_left_as_it_was(notes: Run) -> None:
    import logging

    before = logging.getLogger("everlog").handlers
    notes("log")
    assert logging.getLogger("everlog").handlers is before
    assert logging.getLogger("everlog").propagate is True

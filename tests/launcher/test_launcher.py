"""The launcher, without network and without pip: its programs are played by a recorder or by small scripts.

What only a bare machine can show is in tests/fresh_machine.sh.
"""

from __future__ import annotations

import ast
import io
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from tests.launcher.script import SCRIPT, launcher, program

# The script itself


def test_an_old_python_can_parse_it() -> None:
    ast.parse(SCRIPT.read_text(), feature_version=(3, 6))


def test_it_is_executable() -> None:
    assert os.access(SCRIPT, os.X_OK)


def test_a_run_with_nothing_to_do_imports_nothing_that_is_slow() -> None:
    show = (
        "import sys; before = set(sys.modules); import importlib.machinery as m, importlib.util as u\n"
        f"loader = m.SourceFileLoader('launcher', {str(SCRIPT)!r}); sys.dont_write_bytecode = True\n"
        "module = u.module_from_spec(u.spec_from_loader('launcher', loader)); before = set(sys.modules)\n"
        "loader.exec_module(module)\n"
        "module.is_ready(module.locate('/nowhere', {'EVERLOG_VENV': '/nowhere/venv'}, ()), ())\n"
        "print(*sorted(set(sys.modules) - before))"
    )
    result = subprocess.run([sys.executable, "-c", show], capture_output=True, text=True, check=True)

    assert not {"subprocess", "typing", "json", "shutil", "tempfile", "glob"} & set(result.stdout.split())


@pytest.mark.parametrize("command", ["test", "check"])
def test_help_needs_no_set_up(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert launcher.main([command, "--help"]) == 0
    assert f"./everlog {command}" in capsys.readouterr().out


@pytest.mark.parametrize("command", ["demo", "pipeline"])
def test_a_command_of_the_command_line_answers_with_its_own_help(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[list[str]] = []
    monkeypatch.setattr(launcher, "is_ready", lambda checkout, needed: True)

    def start(checkout: Any, argv: list[str]) -> int:
        asked.append(argv)
        return 0

    monkeypatch.setattr(launcher, "start", start)
    assert launcher.main([command, "--help"]) == 0
    assert asked == [[command, "--help"]]
    assert capsys.readouterr().out == ""


def test_the_demo_brings_every_library_of_its_stages() -> None:
    """It runs the pipeline and writes its report, and syncs two laptops: it needs no less than they do."""
    assert set(launcher.EXTRAS["demo"]) == {*launcher.EXTRAS["pipeline"], *launcher.EXTRAS["sync"]}


# Finding a Python


def test_the_running_python_is_taken_when_it_is_new_enough() -> None:
    assert launcher.find_python((3, 11), sys.executable, {"PATH": ""}, "/v") == sys.executable


def test_a_shim_that_fails_is_passed_over_for_the_real_python_behind_it(tmp_path: Path) -> None:
    program(tmp_path / "shims" / "python3.12", "echo 'pyenv: python3.12: command not found' >&2; exit 127")
    program(tmp_path / "shims" / "python3.11", "exit 127")
    real = program(tmp_path / "real" / "python3.11", f'exec "{sys.executable}" "$@"')
    path = f"{tmp_path / 'shims'}:{tmp_path / 'real'}"

    assert launcher.find_python((3, 8), "/usr/bin/python3.8", {"PATH": path}, "/v") == str(real)


def test_the_environment_that_is_to_be_made_is_not_what_it_is_made_with(tmp_path: Path) -> None:
    program(tmp_path / "venv" / "bin" / "python3.11", f'exec "{sys.executable}" "$@"')
    path = str(tmp_path / "venv" / "bin")

    with pytest.raises(launcher.SetupError):
        launcher.find_python((3, 8), "/usr/bin/python3.8", {"PATH": path}, str(tmp_path / "venv"))


def test_an_old_python_alone_is_told_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(launcher.SetupError) as caught:
        launcher.find_python((3, 8), "/usr/bin/python3.8", {"PATH": str(tmp_path)}, "/v")

    text = str(caught.value)
    assert "Python 3.11 or newer is needed" in text
    assert "why: this is Python 3.8" in text
    assert "fix: " in text


# Starting


@pytest.fixture
def started(checkout: Any, commands: list[list[str]], monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The command that would replace the process, and the directory it would run in."""
    seen: list[Any] = []
    launcher.set_up(checkout, ("test",))
    monkeypatch.setattr(launcher, "locate", lambda *_: checkout)
    monkeypatch.setattr(launcher.os, "execv", lambda path, command: seen.extend([command, str(Path.cwd())]))
    monkeypatch.chdir("/")
    return seen


def test_a_command_runs_in_the_users_directory_and_imports_nothing_from_it(started: list[Any], checkout: Any) -> None:
    with pytest.raises(AssertionError):
        launcher.main(["log", "--stream", "a/b"])

    assert started == [[checkout.python, "-P", "-m", "everlog", "log", "--stream", "a/b"], "/"]


def test_the_suite_runs_at_the_top_of_the_checkout(started: list[Any], checkout: Any) -> None:
    with pytest.raises(AssertionError):
        launcher.main(["test", "-k", "clock"])

    assert started[0][:3] == [checkout.python, "-m", "pytest"]
    assert started[0][-2:] == ["-k", "clock"]
    assert started[1] == checkout.root


def test_the_crash_table_is_a_program_of_its_own(started: list[Any], checkout: Any) -> None:
    with pytest.raises(AssertionError):
        launcher.main(["test", "--crash", "--json", "kills"])

    assert started == [[checkout.python, "-m", "tests.crash.table", "--json", "kills"], checkout.root]


def test_two_cores_get_three_processes_unless_the_caller_decides(
    root: Path, checkout: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    (root / ".venv" / "lib" / "python3.11" / "site-packages" / "xdist").mkdir(parents=True)
    monkeypatch.setattr(launcher, "cores", lambda: 2)
    three = ["-n", "3", "--dist", "loadgroup"]

    assert launcher.pytest_command(checkout, [])[3:] == three
    assert launcher.pytest_command(checkout, ["-n0"])[3:] == ["-n0"]
    assert launcher.pytest_command(checkout, ["--pdb"])[3:] == ["--pdb"]
    monkeypatch.setattr(launcher, "cores", lambda: 1)
    assert launcher.pytest_command(checkout, [])[3:] == []


def test_fast_leaves_out_and_full_is_passed_on(checkout: Any) -> None:
    assert launcher.pytest_command(checkout, ["--fast"])[3:] == ["-m", "not (slow or spark)"]
    declared = tomllib.loads((SCRIPT.parent / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]
    assert sorted(one.partition(":")[0] for one in declared["markers"]) == ["slow", "spark"], "pytest refuses others"
    assert launcher.pytest_command(checkout, ["--full", "-x"])[3:] == ["--full", "-x"]


def test_check_stops_at_the_first_stage_that_fails_and_shows_why(
    checkout: Any, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    good, bad = [sys.executable, "-c", "print('chatter')"], [sys.executable, "-c", "exit('a defect')"]
    found = [("first", [good, good]), ("second", [good, bad]), ("third", [good])]
    monkeypatch.setattr(launcher, "stages", lambda *_: found)

    assert launcher.check(checkout, []) == 1

    lines = capfd.readouterr().out.splitlines()
    assert lines[0].startswith("ok  first  ")
    assert lines[1] == "a defect"
    assert lines[2].startswith("FAIL  second  ")
    assert len(lines) == 3


def test_check_runs_the_tests_last_or_not_at_all(checkout: Any) -> None:
    names = [name for name, _ in launcher.stages(checkout, [])]

    assert names == ["ruff format", "ruff check", "mypy", "lint-imports", "pytest"]
    assert [name for name, _ in launcher.stages(checkout, ["--no-tests"])] == names[:-1]


# The demo in two acts


@pytest.fixture
def acts(checkout: Any, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What happens in a checkout where nothing is installed: set-ups, and commands of everlog."""
    seen: list[str] = []
    ready: set[str] = set()

    def set_up(checkout: Any, needed: tuple[str, ...]) -> None:
        seen.append(f"set up {' '.join(needed)}")
        ready.update(needed)

    def call(command: list[str]) -> int:
        seen.append("run " + " ".join(command[command.index("everlog") + 1 :]))
        return 3 if "broken" in command else 0

    monkeypatch.setattr(launcher, "locate", lambda root, environ, needed: checkout)
    monkeypatch.setattr(launcher, "is_ready", lambda checkout, needed: bool(needed) and ready.issuperset(needed))
    monkeypatch.setattr(launcher, "set_up", set_up)
    monkeypatch.setattr(launcher, "has_java", lambda environ: True)
    monkeypatch.setattr(launcher, "replace_process", call)
    monkeypatch.setattr(subprocess, "call", call)
    monkeypatch.delenv("EVERLOG_EXTRAS", raising=False)
    return seen


def test_the_demo_shows_its_first_act_before_spark_is_installed(
    acts: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert launcher.main(["demo", "--dir", "tour"]) == 0
    assert acts == [
        "set up client",
        "run demo --dir tour --no-spark",
        "set up client spark",
        "run demo --dir tour --spark-only",
    ]
    announced = capsys.readouterr().err
    assert "430 MB" in announced
    assert max(map(len, announced.splitlines())) <= 78
    acts.clear()
    assert launcher.main(["demo"]) == 0
    assert acts == ["run demo"]


@pytest.mark.parametrize("option", ["--json", "--quiet", "--spark-only"])
def test_a_demo_for_a_program_is_one_command(option: str, acts: list[str]) -> None:
    assert launcher.main(["demo", option]) == 0
    assert acts == ["set up client spark", f"run demo {option}"]


def test_without_spark_there_is_no_second_act(acts: list[str]) -> None:
    assert launcher.main(["demo", "--no-spark"]) == 0
    assert acts == ["set up client", "run demo --no-spark"]


def test_a_first_act_that_fails_ends_the_demo(acts: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert launcher.main(["demo", "broken"]) == 3
    assert acts == ["set up client", "run demo broken --no-spark"]
    assert "430 MB" not in capsys.readouterr().err


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_shows_what_the_installer_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    log = tmp_path / "log"
    with log.open("wb") as file:
        runner = launcher.Runner(file, {"PATH": os.defpath}, launcher.Progress("everlog: adding spark ...", str(log)))
        assert runner.run(["sh", "-c", "echo Downloading pyspark-4.tar.gz 434.9 MB; sleep 0.8"])
        assert not runner.run(["sh", "-c", "exit 3"])
    lines = terminal.getvalue().split("\r\033[K")
    assert any(re.fullmatch(r"everlog: +\d+ s  Downloading pyspark-4.tar.gz", line) for line in lines)
    assert lines[-1] == "everlog: adding spark ..."


def test_in_a_pipe_there_is_no_progress(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with (tmp_path / "log").open("wb") as file:
        runner = launcher.Runner(file, {"PATH": os.defpath}, launcher.Progress("...", str(tmp_path / "log")))
        assert runner.run(["sh", "-c", "sleep 0.7"])
    assert capsys.readouterr().err == ""

"""The launcher, without network and without pip: its programs are played by a recorder or by small scripts.

What only a bare machine can show is in tests/fresh_machine.sh.
"""

from __future__ import annotations

import ast
import fcntl
import importlib.machinery
import importlib.util
import io
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any, ClassVar

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "everlog"


def load() -> Any:
    loader = importlib.machinery.SourceFileLoader("everlog_launcher", str(SCRIPT))
    spec = importlib.util.spec_from_loader(loader.name, loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    before = sys.dont_write_bytecode
    sys.dont_write_bytecode = True  # or an "everlogc" would appear beside the script
    try:
        loader.exec_module(module)
    finally:
        sys.dont_write_bytecode = before
    return module


launcher = load()


class FakeRunner:
    """Plays the installer: notes each command, fails those that contain a given word, makes what venv makes."""

    def __init__(self, log: Any, environ: Any) -> None:
        self.log = log
        self.environ = {"PATH": "", **{name: environ[name] for name in ("EVERLOG_WHEELS",) if name in environ}}

    commands: ClassVar[list[list[str]]]
    failing: ClassVar[tuple[str, ...]]

    def run(self, command: list[str]) -> bool:
        self.commands.append(command)
        self.log.write((" ".join(command) + "\n").encode())
        if any(word in command for word in self.failing):
            self.log.write(b"the reason it failed\n")
            self.log.flush()
            return False
        if "venv" in command:
            make_environment(Path(command[-1]))
        return True


def make_environment(venv: Path) -> None:
    (venv / "bin").mkdir(parents=True, exist_ok=True)
    (venv / "bin" / "python").symlink_to(sys.executable)
    (venv / "pyvenv.cfg").write_text("version = 3.11.2\n")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    tree = tmp_path / "checkout"
    (tree / "src" / "everlog").mkdir(parents=True)
    (tree / "pyproject.toml").write_text("[project]\n")
    (tree / "constraints.txt").write_text("click==1\n")
    return tree


@pytest.fixture
def checkout(root: Path) -> Any:
    return launcher.Checkout(str(root), str(root / ".venv"))


@pytest.fixture
def commands(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """What the set-up ran."""
    ran: list[list[str]] = []
    monkeypatch.setattr(FakeRunner, "commands", ran, raising=False)
    monkeypatch.setattr(FakeRunner, "failing", (), raising=False)
    monkeypatch.setattr(launcher, "Runner", FakeRunner)
    monkeypatch.delenv("EVERLOG_WHEELS", raising=False)
    return ran


def make_fail(monkeypatch: pytest.MonkeyPatch, *words: str) -> None:
    monkeypatch.setattr(FakeRunner, "failing", words)


def installs(commands: list[list[str]]) -> list[list[str]]:
    return [command for command in commands if "install" in command]


def program(path: Path, body: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return path


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
    """It runs the pipeline and writes its report: it needs no less than they do."""
    assert set(launcher.EXTRAS["demo"]) == set(launcher.EXTRAS["pipeline"])


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


# Where the environment lives


def test_it_lives_beside_the_script(root: Path) -> None:
    assert launcher.locate(str(root), {}, ()).venv == str(root / ".venv")


def test_a_named_place_wins(root: Path, tmp_path: Path) -> None:
    assert launcher.locate(str(root), {"EVERLOG_VENV": str(tmp_path / "v")}, ()).venv == str(tmp_path / "v")


def refuse_writes_to(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a read-only mount would; the mode bits alone do not stop root."""
    real = os.access
    monkeypatch.setattr(launcher.os, "access", lambda path, mode: str(path) != str(place) and real(path, mode))


def test_a_read_only_checkout_uses_the_cache_directory(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuse_writes_to(root, monkeypatch)

    found = launcher.locate(str(root), {"XDG_CACHE_HOME": str(tmp_path / "cache")}, ())

    assert Path(found.venv).parent == tmp_path / "cache" / "everlog"
    other = launcher.locate(str(root) + "2", {"XDG_CACHE_HOME": str(tmp_path / "cache")}, ())
    assert other.venv != found.venv


def test_a_read_only_checkout_with_a_finished_environment_uses_that(
    root: Path, checkout: Any, commands: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    launcher.set_up(checkout, ())
    refuse_writes_to(root, monkeypatch)

    assert launcher.locate(str(root), {"XDG_CACHE_HOME": "/c"}, ()).venv == str(root / ".venv")
    assert launcher.locate(str(root), {"XDG_CACHE_HOME": "/c"}, ("test",)).venv.startswith("/c/everlog/")


def test_without_a_home_the_cache_is_a_directory_of_ones_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    place = Path(launcher.cache_directory({"HOME": ""}))

    assert place.parent == tmp_path
    assert place.stat().st_mode & 0o077 == 0
    place.chmod(0o777)
    with pytest.raises(launcher.SetupError, match="no place"):
        launcher.cache_directory({"HOME": ""})


def test_a_read_only_tree_is_installed_through_links(
    root: Path, tmp_path: Path, commands: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    refuse_writes_to(root, monkeypatch)
    checkout = launcher.Checkout(str(root), str(tmp_path / "v"))

    launcher.set_up(checkout, ())

    source = Path(installs(commands)[0][-1])
    assert source == tmp_path / "v" / "source"
    assert (source / "src" / "everlog").resolve() == root / "src" / "everlog"


# The stamp


def test_a_finished_set_up_is_not_done_again(checkout: Any, commands: list[list[str]]) -> None:
    assert not launcher.is_ready(checkout, ())

    launcher.set_up(checkout, ())

    assert launcher.is_ready(checkout, ())
    assert len(installs(commands)) == 1


@pytest.mark.parametrize(
    ("command", "environ", "extras"),
    [
        ("log", {}, ()),
        ("test", {}, ("test",)),
        ("demo", {"JAVA_HOME": "{java}"}, ("report", "spark")),
        ("demo", {"PATH": ""}, ("jre", "report", "spark")),
        ("demo --no-spark", {"PATH": ""}, ()),
        ("demo --help", {"PATH": ""}, ()),
        ("demo --no-spark", {"EVERLOG_EXTRAS": "spark", "JAVA_HOME": "{java}"}, ("spark",)),
        ("test tests/core --help", {}, ("test",)),
        ("demo --store postgres", {"JAVA_HOME": "{java}"}, ("pgserver",)),
        ("demo --store=postgres", {"JAVA_HOME": "{java}"}, ("pgserver",)),
        ("pipeline check", {"PATH": "{java}/bin"}, ("report", "spark")),
        ("pipeline check", {"PATH": "", "JAVA_HOME": "{old}"}, ("jre", "report", "spark")),
        ("pipeline check", {"PATH": "{old}/bin:{java}/bin"}, ("report", "spark")),
        ("pipeline --help", {"PATH": ""}, ()),
        ("pipeline run -h", {"PATH": ""}, ()),
        ("views rebuild streams --engine spark", {"PATH": "{java}/bin"}, ("spark",)),
        ("views rebuild streams --engine=spark", {"PATH": ""}, ("jre", "spark")),
        ("views rebuild streams", {"PATH": ""}, ()),
        ("wp migrate .kittify/activity.yaml", {}, ("yaml",)),
        ("wp board", {}, ()),
        ("log --log postgresql://host/db", {}, ("pg",)),
        ("log", {"EVERLOG_STORE": "postgresql://host/db"}, ("pg",)),
        ("log", {"EVERLOG_EXTRAS": "pg, pydantic"}, ("pg", "pydantic")),
    ],
)
def test_a_command_brings_the_extras_it_needs(
    command: str, environ: dict[str, str], extras: tuple[str, ...], tmp_path: Path
) -> None:
    """{java} is one that Spark takes, {old} one that it does not."""
    made = {"java": tmp_path / "java", "old": tmp_path / "old"}
    for name, version in (("java", "21.0.2"), ("old", "1.8.0_392")):
        program(made[name] / "bin" / "java", "exit 1")
        (made[name] / "release").write_text(f'IMPLEMENTOR="x"\nJAVA_VERSION="{version}"\n')
    known = {name: value.format(**made) for name, value in environ.items()}
    assert launcher.extras_of(command.split(), known) == extras


def test_a_java_without_its_release_file_is_asked(tmp_path: Path) -> None:
    java = program(tmp_path / "bin" / "java", """echo 'openjdk version "17.0.15" 2025-04-15' >&2""")
    assert launcher.java_major(str(java), {}) == "17"
    assert launcher.java_major(str(program(tmp_path / "no" / "bin" / "java", "exit 3")), {}) == ""
    assert launcher.java_major(str(tmp_path / "none"), {}) == ""


def test_more_extras_satisfy_fewer(checkout: Any, commands: list[list[str]]) -> None:
    launcher.set_up(checkout, ("test",))

    assert launcher.is_ready(checkout, ())
    assert launcher.is_ready(checkout, ("test",))
    assert not launcher.is_ready(checkout, ("test", "spark"))


def test_extras_accumulate(checkout: Any, commands: list[list[str]]) -> None:
    launcher.set_up(checkout, ())
    launcher.set_up(checkout, ("test",))
    launcher.set_up(checkout, ("spark",))

    assert [command[-1] for command in installs(commands)] == [
        checkout.root,
        f"{checkout.root}[test]",
        f"{checkout.root}[spark,test]",
    ]
    assert launcher.is_ready(checkout, ("spark", "test"))
    assert sum("venv" in command for command in commands) == 1


@pytest.mark.parametrize("name", ["pyproject.toml", "constraints.txt"])
def test_changed_requirements_are_installed_into_the_same_environment(
    name: str, root: Path, checkout: Any, commands: list[list[str]]
) -> None:
    launcher.set_up(checkout, ("test",))
    (root / name).write_text("changed\n")
    assert not launcher.is_ready(checkout, ())

    launcher.set_up(checkout, ())

    assert launcher.is_ready(checkout, ("test",))
    assert sum("venv" in command for command in commands) == 1
    assert installs(commands)[-1][-1].endswith("[test]")


def test_another_python_below_it_makes_the_environment_anew(
    root: Path, checkout: Any, commands: list[list[str]], tmp_path: Path
) -> None:
    launcher.set_up(checkout, ())
    (root / ".venv" / "lib").mkdir()
    python = root / ".venv" / "bin" / "python"
    python.unlink()
    python.symlink_to(tmp_path / "a python that was removed")
    assert not launcher.is_ready(checkout, ())

    launcher.set_up(checkout, ())

    assert launcher.is_ready(checkout, ())
    assert not (root / ".venv" / "lib").exists()


def test_a_moved_checkout_is_not_ready(root: Path, checkout: Any, commands: list[list[str]]) -> None:
    launcher.set_up(checkout, ())

    moved = root.rename(root.with_name("moved"))

    assert not launcher.is_ready(launcher.Checkout(str(moved), str(moved / ".venv")), ())


def test_a_torn_stamp_counts_as_none(root: Path, checkout: Any, commands: list[list[str]]) -> None:
    launcher.set_up(checkout, ("test",))
    stamp = root / ".venv" / "everlog-stamp"
    stamp.write_bytes(stamp.read_bytes()[:-1])

    assert not launcher.is_ready(checkout, ())


def test_a_set_up_that_was_cut_short_begins_again(
    root: Path, checkout: Any, commands: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    make_fail(monkeypatch, "-e")
    with pytest.raises(launcher.SetupError):
        launcher.set_up(checkout, ())
    (root / ".venv" / "half-written").touch()
    make_fail(monkeypatch)

    launcher.set_up(checkout, ())

    assert launcher.is_ready(checkout, ())
    assert not (root / ".venv" / "half-written").exists()


# Directories of others


def test_a_directory_with_other_files_is_left_alone(root: Path, checkout: Any, commands: list[list[str]]) -> None:
    (root / ".venv").mkdir()
    (root / ".venv" / "diary.txt").write_text("dear diary")

    with pytest.raises(launcher.SetupError, match="is not a virtual environment"):
        launcher.set_up(checkout, ())

    assert list((root / ".venv").iterdir()) == [root / ".venv" / "diary.txt"]
    assert commands == []


def test_a_virtual_environment_of_the_users_own_is_installed_into_and_never_emptied(
    root: Path, checkout: Any, commands: list[list[str]]
) -> None:
    make_environment(root / ".venv")
    (root / ".venv" / "theirs").touch()

    launcher.set_up(checkout, ())

    assert (root / ".venv" / "theirs").exists()
    assert not any("venv" in command for command in commands)
    assert len(installs(commands)) == 1


def test_a_broken_virtual_environment_of_the_users_own_is_reported(
    root: Path, checkout: Any, commands: list[list[str]]
) -> None:
    (root / ".venv").mkdir()
    (root / ".venv" / "pyvenv.cfg").touch()

    with pytest.raises(launcher.SetupError, match="does not run"):
        launcher.set_up(checkout, ())

    assert (root / ".venv" / "pyvenv.cfg").exists()


# The installers


def test_without_ensurepip_pip_is_run_from_outside(
    checkout: Any, commands: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    real = launcher.Runner.run

    def run(self: Any, command: list[str]) -> bool:
        bare_venv_has_no_pip = command[:3] == [checkout.python, "-m", "pip"]
        return bool(real(self, command)) and not bare_venv_has_no_pip

    monkeypatch.setattr(launcher.Runner, "run", run)
    make_fail(monkeypatch, "import ensurepip")

    launcher.set_up(checkout, ())

    assert any(command[1:4] == ["-m", "venv", "--without-pip"] for command in commands)
    (last,) = installs(commands)
    assert last[0] == launcher.this_python()
    assert last[1:6] == ["-m", "pip", "--python", checkout.python, "install"]


def test_where_nothing_can_install_it_says_what_to_install(
    checkout: Any, commands: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    make_fail(monkeypatch, "import ensurepip", "pip")

    with pytest.raises(launcher.SetupError) as caught:
        launcher.set_up(checkout, ())

    assert "apt install python3-venv" in str(caught.value)


def test_uv_is_used_when_it_runs_and_pip_when_it_fails(tmp_path: Path, checkout: Any) -> None:
    program(tmp_path / "broken" / "uv", "exit 1")
    uv = program(tmp_path / "good" / "uv", "exit 0")
    runner = launcher.Runner(io.BytesIO(), {"PATH": f"{tmp_path / 'broken'}:{tmp_path / 'good'}"})
    runner.run = lambda command: command[0] == str(uv) or "--python" in command

    ways = launcher.installers(checkout, runner, "/usr/bin/python3")

    assert ways[0][:2] == [str(uv), "pip"]
    assert ways[1][:3] == ["/usr/bin/python3", "-m", "pip"]


def test_uv_is_not_used_when_pip_was_told_where_to_look(tmp_path: Path) -> None:
    program(tmp_path / "uv", "exit 0")
    environ = {"PATH": str(tmp_path), "PIP_INDEX_URL": "file:///srv/packages"}
    runner = launcher.Runner(io.BytesIO(), environ)
    runner.run = lambda command: True

    assert launcher.find_uv(runner) is None


def test_nothing_in_the_environment_can_send_packages_elsewhere() -> None:
    environ = {"PIP_TARGET": "/usr", "PIP_USER": "1", "PYTHONPATH": "/x", "PIP_CERT": "/c", "HOME": "/h"}

    assert launcher.Runner(io.BytesIO(), environ).environ == {"PIP_USER": "0", "PIP_CERT": "/c", "HOME": "/h"}


def test_what_the_programs_print_goes_to_the_log(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    noisy = program(tmp_path / "noisy", "echo told; echo complained >&2; exit 3")
    with (tmp_path / "log").open("wb") as log:
        runner = launcher.Runner(log, os.environ)
        assert not runner.run([str(noisy)])
        assert not runner.run([str(tmp_path / "absent")])
        assert runner.run(["/bin/sh", "-c", "true"])

    lines = (tmp_path / "log").read_text().splitlines()
    assert lines[:3] == [f"$ {noisy}", "told", "complained"]
    assert "No such file" in lines[4]
    assert capfd.readouterr() == ("", "")


def test_the_pinned_versions_are_always_in_force(checkout: Any, commands: list[list[str]]) -> None:
    launcher.set_up(checkout, ())

    (install,) = installs(commands)
    assert install[install.index("-c") + 1] == f"{checkout.root}/constraints.txt"


def test_a_directory_of_wheels_replaces_every_index(
    tmp_path: Path, checkout: Any, commands: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EVERLOG_WHEELS", str(tmp_path / "wheels"))

    launcher.set_up(checkout, ())

    (install,) = installs(commands)
    assert install[-3:] == ["--no-index", "--find-links", str(tmp_path / "wheels")]


# What the user sees


def test_a_failed_install_shows_the_end_of_the_log_and_exits_69(
    root: Path,
    commands: list[list[str]],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    make_fail(monkeypatch, "-e")
    monkeypatch.setenv("EVERLOG_VENV", str(root / "v"))

    assert launcher.main(["log"]) == 69

    shown = capsys.readouterr().err
    assert "everlog: cannot install into" in shown
    assert "    | the reason it failed" in shown
    assert "fix: " in shown
    assert not (root / "v" / "everlog-stamp").exists()


def test_a_place_that_cannot_be_written_to_is_a_sentence_not_a_traceback(
    root: Path,
    commands: list[list[str]],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("EVERLOG_VENV", str(root / "pyproject.toml" / "v"))

    assert launcher.main(["log"]) == 69
    assert f"why: {root / 'pyproject.toml'}" in capsys.readouterr().err


def test_one_line_says_that_it_sets_up_and_nothing_is_said_when_it_need_not(
    checkout: Any, commands: list[list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    launcher.set_up(checkout, ())
    first = capsys.readouterr()
    launcher.set_up(checkout, ())
    second = capsys.readouterr()

    assert first.err.startswith("everlog: setting up .venv")
    assert first.err.count("\n") == 1
    assert first.err.endswith(" s\n")
    assert (first.out, second.out, second.err) == ("", "", "")


def test_a_second_shell_waits_for_the_first_and_then_has_nothing_to_do(
    root: Path, checkout: Any, commands: list[list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    launcher.set_up(checkout, ())
    stamp = root / ".venv" / "everlog-stamp"
    finished = stamp.read_bytes()
    stamp.unlink()
    with (root / ".venv" / "everlog-setup.lock").open("r+b") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        second = threading.Thread(target=launcher.set_up, args=(checkout, ()))
        second.start()
        said = ""
        for _ in range(200):  # a busy machine takes its time to find a Python first
            second.join(timeout=0.1)
            said += capsys.readouterr().err
            if "another process is setting up .venv" in said:
                break
        assert second.is_alive(), said
        stamp.write_bytes(finished)  # the first shell is done
    second.join(timeout=20)

    assert not second.is_alive()
    assert "another process is setting up .venv" in said
    assert len(installs(commands)) == 1


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


def test_two_cores_get_two_processes_unless_the_caller_decides(
    root: Path, checkout: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    (root / ".venv" / "lib" / "python3.11" / "site-packages" / "xdist").mkdir(parents=True)
    monkeypatch.setattr(launcher, "cores", lambda: 2)
    two = ["-n", "2", "--dist", "loadgroup"]

    assert launcher.pytest_command(checkout, [])[3:] == two
    assert launcher.pytest_command(checkout, ["-n0"])[3:] == ["-n0"]
    assert launcher.pytest_command(checkout, ["--pdb"])[3:] == ["--pdb"]
    monkeypatch.setattr(launcher, "cores", lambda: 1)
    assert launcher.pytest_command(checkout, [])[3:] == []


def test_fast_leaves_out_and_full_is_passed_on(checkout: Any) -> None:
    assert launcher.pytest_command(checkout, ["--fast"])[3:] == ["-m", "not (slow or spark or browser)"]
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

"""Setting up: when there is something to do, who installs it, and what is said meanwhile."""

from __future__ import annotations

import errno
import fcntl
import io
import os
import threading
import tomllib
from pathlib import Path
from typing import Any

import pytest
from tests.launcher.script import SCRIPT, installs, launcher, make_fail, program

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
        ("test", {"PATH": ""}, ("pg", "pydantic", "server", "spark", "test", "yaml")),
        ("demo", {"JAVA_HOME": "{java}"}, ("client", "spark")),
        ("demo", {"PATH": ""}, ("client", "jre", "spark")),
        ("demo --no-spark", {"PATH": ""}, ("client",)),
        ("demo --help", {"PATH": ""}, ()),
        ("demo --no-spark", {"EVERLOG_EXTRAS": "spark", "JAVA_HOME": "{java}"}, ("client", "spark")),
        ("test tests/core --help", {}, ("pg", "pydantic", "server", "spark", "test", "yaml")),
        ("demo --store postgres", {"JAVA_HOME": "{java}"}, ("client", "pg", "pgserver")),
        ("demo --store=postgres", {"JAVA_HOME": "{java}"}, ("client", "pg", "pgserver")),
        ("pipeline check", {"PATH": "{java}/bin"}, ("spark",)),
        ("pipeline check", {"PATH": "", "JAVA_HOME": "{old}"}, ("jre", "spark")),
        ("pipeline check", {"PATH": "{old}/bin:{java}/bin"}, ("spark",)),
        ("pipeline --help", {"PATH": ""}, ()),
        ("pipeline run -h", {"PATH": ""}, ()),
        ("views rebuild streams --engine spark", {"PATH": "{java}/bin"}, ("spark",)),
        ("views rebuild streams --engine=spark", {"PATH": ""}, ("jre", "spark")),
        ("views rebuild streams", {"PATH": ""}, ()),
        ("wp migrate .kittify/activity.yaml", {}, ("yaml",)),
        ("wp board", {}, ()),
        ("log --log postgresql://host/db", {}, ("pg",)),
        ("log", {"EVERLOG_STORE": "postgresql://host/db"}, ("pg",)),
        ("serve --port 0", {}, ("server",)),
        ("serve --help", {}, ()),
        ("sync http://127.0.0.1:7474", {}, ("client",)),
        ("log --url https://log.example", {}, ("client",)),
        ("wp board", {"EVERLOG_URL": "https://log.example"}, ("client",)),
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


def test_a_dependency_group_is_installed_by_any_pip(root: Path, checkout: Any, commands: list[list[str]]) -> None:
    (root / "pyproject.toml").write_text(
        '[project]\n[dependency-groups]\nlint = ["ruff==1"]\ntest = ["pytest>=9", {include-group = "lint"}]\n'
    )
    launcher.set_up(checkout, ("pg", "test"))
    (command,) = installs(commands)
    assert f"{root}[pg]" in command
    assert command[-2:] == ["pytest>=9", "ruff==1"]


def test_the_groups_and_extras_of_the_launcher_are_those_of_the_project() -> None:
    found = tomllib.loads((SCRIPT.parent / "pyproject.toml").read_text())
    extras = set(found["project"]["optional-dependencies"])
    assert extras == {"client", "cloud", "mcp", "pg", "pydantic", "server", "spark", "yaml"}
    assert {name for names in launcher.EXTRAS.values() for name in names} <= extras | set(found["dependency-groups"])


@pytest.mark.parametrize("part", ["dependencies", "optional-dependencies", "dependency-groups"])
def test_no_requirement_has_an_upper_bound(part: str) -> None:
    found = tomllib.loads((SCRIPT.parent / "pyproject.toml").read_text())
    table = found if part == "dependency-groups" else found["project"]
    stated = table[part] if isinstance(table[part], list) else [one for some in table[part].values() for one in some]
    texts = [one.partition(";")[0] for one in stated if isinstance(one, str)]
    assert [one for one in texts if "<" in one] == []
    pinned = {
        "pyspark[sql]",
        "eventsourcing",
        "ruff",
        "mypy",
    }  # Spark: a cluster has one version; the others are tools
    assert {one.partition("==")[0] for one in texts if "==" in one} <= pinned


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

    assert launcher.Runner(io.BytesIO(), environ).environ == {
        "PIP_USER": "0",
        "PIP_CERT": "/c",
        "HOME": "/h",
        "PIP_RETRIES": "1",
    }
    assert launcher.Runner(io.BytesIO(), {"PIP_RETRIES": "9"}).environ["PIP_RETRIES"] == "9"


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


@pytest.mark.parametrize(
    ("printed", "why"),
    [
        (
            "ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device",
            "the disk is full",
        ),
        ("Retrying after connection broken by 'NewConnectionError(...)'", "the package index cannot be reached"),
        ("error: dns error: failed to lookup address", "the package index cannot be reached"),
        ("ERROR: something else", "the installer failed; below are the last lines of"),
    ],
)
def test_a_failed_install_says_why_in_three_lines_before_what_was_printed(
    printed: str, why: str, root: Path, checkout: Any
) -> None:
    (root / ".venv").mkdir()
    (root / ".venv" / launcher.LOG).write_text(f"Collecting click\n{printed}\n")
    lines = str(launcher.failed_install(checkout)).splitlines()
    assert lines[0] == "everlog: cannot install into .venv"
    assert lines[1].startswith(f"  why: {why}")
    assert lines[2].startswith("  fix: ")
    assert lines[-1] == f"    | {printed}"


def test_a_full_disk_is_three_lines(
    checkout: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(*given: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", "/there")

    monkeypatch.setattr(launcher, "set_up", full)
    monkeypatch.setattr(launcher, "locate", lambda *given: checkout)
    assert launcher.main(["log"]) == launcher.EXIT_UNAVAILABLE
    assert capsys.readouterr().err.splitlines()[1:] == [
        "  why: the disk is full",
        "  fix: free some room, or name another place with EVERLOG_VENV",
    ]


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

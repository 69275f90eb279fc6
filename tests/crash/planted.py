"""Every bug that the suite plants, gathered: without them a green table means nothing (R2)."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import xml.etree.ElementTree
from pathlib import Path

from tests.crash.rows import Row
from tests.crash.victims import ROOT

WORD = "planted_bug"  # in the name of every test that plants one
PLACES = ("tests/crash", "tests/testing", "tests/stores", "tests/transfer")


def catch_planted_bugs(row: Row) -> None:
    """Run the tests that plant a bug and must see it, wherever they stand."""
    with tempfile.TemporaryDirectory(prefix="everlog-planted-") as folder:
        said = Path(folder) / "results.xml"
        environ = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])}
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", WORD, f"--junitxml={said}"]
        places = [place for place in PLACES if (ROOT / place).exists()]
        done = subprocess.run([*command, *places], cwd=ROOT, env=environ, capture_output=True, text=True)
        if not said.exists():
            row.broken(f"pytest did not run: {done.stdout[-500:]}{done.stderr[-500:]}")
            return
        tests = xml.etree.ElementTree.parse(said).getroot().iter("testcase")
        caught = skipped = planted = 0
        for test in tests:
            planted += 1
            if test.find("skipped") is not None:
                skipped += 1
            elif test.find("failure") is None and test.find("error") is None:
                caught += 1
            else:
                row.broken(f"not caught: {test.get('classname')}.{test.get('name')}")
    row.count = caught
    row.remark = f"caught {caught} of {planted}" + (f", {skipped} could not be run here" if skipped else "")

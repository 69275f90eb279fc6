"""kill -9 during a rebuild, a switch or an inline append leaves a view that is whole, and goes on (F33, F41)."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import everlog
from everlog.views.builtin import Streams, Types
from everlog.views.fold import fold_all
from everlog.views.states import active_build, build_digest, builds_of
from everlog.views.view import digest

REBUILDER = Path(__file__).with_name("rebuilder.py")
KILLS, KILLS_FULL = 8, 100
EVENTS = 300


@pytest.mark.parametrize("url", ["sqlite:{}/log.db", "jsonl:{}/log", "segments:{}/log"])
def test_a_killed_rebuild_leaves_the_old_view_or_the_new_one(
    url: str, tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    kills = KILLS_FULL if pytestconfig.getoption("--full") else KILLS
    chance = random.Random(11)
    place = url.format(tmp_path)
    with everlog.open(place) as log:
        log.append_batch(
            [
                everlog.Draft(type="note.added", stream=f"note/{number % 7}", payload={"text": str(number)})
                for number in range(EVENTS)
            ]
        )
    half_way = 0
    for _ in range(kills):
        process = subprocess.Popen(
            [sys.executable, str(REBUILDER), place], stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        for _ in range(chance.randrange(400)):
            assert process.stdout.readline() == b"step\n"
        process.send_signal(signal.SIGKILL)
        _, errors = process.communicate()
        assert process.returncode == -signal.SIGKILL, errors.decode()
        half_way += require_whole(place)
    assert half_way, "no rebuild was ever met half-way: the kills came too late to mean anything"


def require_whole(place: str) -> bool:
    """The views as they were left are right, and go on; True if a rebuild was under way."""
    under_way = False
    with everlog.open(place, create=False) as log:
        for view in (Streams, Types):
            under_way |= any(build.position and not build.complete for build in builds_of(log.views.shelf, view.name))
            build = active_build(log.views.shelf, view.name)
            if build is None:
                continue  # killed before the first build was whole
            # As it lies there, without reading on: it says exactly what the events up to its cursor say.
            found = build_digest(log.views.shelf, build)
            assert found == digest(fold_all(view(), log.read(upto=build.position)).items()), (view.name, build)
            assert log.view(view).audit().ok
            assert len(builds_of(log.views.shelf, view.name)) <= 3
            assert log.view(view).digest() == digest(fold_all(view(), log.read()).items())
    return under_way

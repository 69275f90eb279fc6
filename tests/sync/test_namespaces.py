"""Nodes in network namespaces, with cables that can be pulled: the tests of seed 002 with real processes."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

NAMES = ("everlog-test-1", "everlog-test-2", "everlog-test-3")
PORT = 7474


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, timeout=10)


class Town:
    """Three namespaces. The first one has a cable to each of the others."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def lay(self) -> None:
        for name in NAMES:
            ip("netns", "add", name)
            ip("-n", name, "link", "set", "lo", "up")
        for place in (1, 2):
            near, far = f"evt{place}a", f"evt{place}b"
            ip("link", "add", near, "netns", NAMES[0], "type", "veth", "peer", "name", far, "netns", NAMES[place])
            for name, link, end in ((NAMES[0], near, 1), (NAMES[place], far, 2)):
                ip("-n", name, "addr", "add", f"10.213.{76 + place}.{end}/24", "dev", link)
                ip("-n", name, "link", "set", link, "up")

    def cable(self, place: int, state: str) -> None:
        ip("-n", NAMES[place], "link", "set", f"evt{place}b", state)

    def url(self, place: int) -> str:
        """Return where a node reaches the first one."""
        return f"http://10.213.{76 + place}.1:{PORT}"

    def command(self, place: int, *words: str) -> list[str]:
        folder = self.folder / f"n{place}"
        folder.mkdir(exist_ok=True)
        return ["ip", "netns", "exec", NAMES[place], sys.executable, "-m", "everlog", "-C", str(folder), *words]

    def everlog(self, place: int, *words: str, code: int = 0) -> Any:
        command = self.command(place, *words, "--json")
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == code, done.stdout + done.stderr
        return json.loads(done.stdout)["data"] if code == 0 else json.loads(done.stderr)["error"]

    def write(self, place: int, text: str) -> None:
        self.everlog(place, "append", "note.added", "-s", "note/1", f"text={text}")

    def texts(self, place: int) -> list[str]:
        return sorted(one["payload"]["text"] for one in self.everlog(place, "log", "--type", "note.added"))

    @contextmanager
    def listening(self) -> Iterator[None]:
        """The first node listens on all of its addresses."""
        command = self.command(0, "sync", "--listen", f"0.0.0.0:{PORT}")
        process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        assert process.stderr is not None
        try:
            assert "listening" in process.stderr.readline()
            yield
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(timeout=30)
            process.stderr.close()

    def join(self, place: int, *options: str) -> Any:
        refused = self.everlog(place, "join", self.url(place), *options, code=7)
        key = re.search(r"peers add (z6Mk\w+)", refused["hint"])
        assert key is not None, refused
        self.everlog(0, "peers", "add", key[1])
        return self.everlog(place, "join", self.url(place), *options)


@pytest.fixture
def town(tmp_path: Path) -> Iterator[Town]:
    if shutil.which("ip") is None or os.geteuid() != 0:
        pytest.skip("network namespaces need root and the program ip")
    made = Town(tmp_path)
    try:
        try:
            made.lay()
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
            stated = error.stderr.decode().strip() if error.stderr else str(error)
            pytest.skip(f"this machine makes no network namespaces: {stated}")
        made.everlog(0, "init", "--signed", "--program", "community")
        yield made
    finally:
        for name in NAMES:
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True, timeout=10)


def test_two_node_sync_converges(town: Town) -> None:
    town.write(0, "over the cable")
    with town.listening():
        joined = town.join(1)
        assert (joined["received"], joined["equal"]) == (1, True)
        town.write(1, "and back")
        (done,) = town.everlog(1, "sync")
        assert (done["sent"], done["equal"]) == (2, True)  # with `origin.knows`
    assert town.texts(0) == town.texts(1) == ["and back", "over the cable"]


def test_three_way_partition_then_heal(town: Town) -> None:
    town.write(0, "before")
    with town.listening():
        town.join(1)
        town.join(2)
        town.cable(2, "down")
        for place in range(3):
            town.write(place, f"apart {place}")
        assert town.everlog(2, "sync", code=7)["code"] == "peer_unavailable"
        assert town.everlog(1, "sync")[0]["equal"]
        town.cable(2, "up")
        assert town.everlog(2, "sync")[0]["equal"]
        assert town.everlog(1, "sync")[0]["equal"]
    wanted = ["apart 0", "apart 1", "apart 2", "before"]
    assert [town.texts(place) for place in range(3)] == [wanted] * 3


def test_snapshot_assisted_join(town: Town) -> None:
    town.everlog(0, "community", "create", "hearth", "--sealed", "--actor", "user:ada")
    town.everlog(0, "community", "post", "lamp", "A lamp", "--actor", "user:ada")
    with town.listening():
        town.join(1)
        for place in (0, 1):
            town.everlog(place, "snapshot", "share", "community.market")
        assert town.everlog(1, "sync")[0]["equal"]
        (shared,) = town.everlog(1, "snapshot", "share")
        assert len(shared["signed_by"]) == 2
        joined = town.join(2, "--authors", ",".join(shared["signed_by"]))
        assert (joined["snapshots"], joined["equal"]) == (["community.market"], True)
    assert town.everlog(2, "community", "posts") == town.everlog(0, "community", "posts")
    (verdict,) = town.everlog(2, "snapshot", "verify", "community.market", "--all-keys")
    assert verdict["ok"]

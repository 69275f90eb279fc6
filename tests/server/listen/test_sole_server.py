"""One server per log in files; the others may still use it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from tests.server.running import NOTE, new_log, running

import everlog
from everlog.errors import Busy
from everlog.server.listen.holder import sole_server


def test_a_second_server_is_refused_with_the_address_of_the_first(tmp_path: Path) -> None:
    """As processes; the other kinds of log have the same lock, and the test below opens each."""
    url = new_log(tmp_path, "jsonl")
    with running(url) as first:
        second = subprocess.run(
            [sys.executable, "-m", "everlog", "serve", "--log", url, "--port", "0", "--json"],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert second.returncode != 0
        assert second.stdout == ""
        problem = json.loads(second.stderr)["error"]
        assert problem["code"] == "busy"
        assert first.url in problem["message"]
        assert str(first.process.pid) in problem["hint"]
        with first.client() as client:
            assert client.post("/v1/events", json=NOTE).status_code == 201
        with everlog.open(url) as log:  # the log itself is open to others
            assert log.head() == 1
        first.kill()
    with running(url) as next_one, next_one.client() as client:  # the lock ended with its holder
        assert client.get("/v1/events").json()["head"] == 1


def test_a_log_without_files_has_no_lock() -> None:
    with everlog.open("memory:") as log, sole_server(log), sole_server(log):
        pass


@pytest.mark.parametrize("kind", ["sqlite", "jsonl", "segments"])
def test_the_lock_is_released_at_the_end(tmp_path: Path, kind: str) -> None:
    url = new_log(tmp_path, kind)
    with everlog.open(url) as log, everlog.open(url) as other:
        with sole_server(log) as holder:
            holder.answers_at("http://127.0.0.1:1")
            with pytest.raises(Busy, match=r"127\.0\.0\.1:1"), sole_server(other):
                pass
            log.append("note.added", stream="note/1", payload={"text": "the log itself is open to others"})
            assert other.head() == 1
        with sole_server(other):
            pass

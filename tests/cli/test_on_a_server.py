"""Commands on a server: --url, EVERLOG_URL, and --log with the URL of a server."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.cli.conftest import Run
from tests.remote.serving import Served, served

import everlog as library


@pytest.fixture
def run(everlog: Run) -> Run:
    return everlog


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Run) -> Iterator[Served]:
    """A server, which the environment names. The current folder has no log."""
    with library.open(f"sqlite:{tmp_path}/behind.db", actor="user:host") as log, served(log) as found:
        monkeypatch.setenv("EVERLOG_URL", found.url)
        monkeypatch.setenv("EVERLOG_TOKEN", found.token())
        yield found


def test_events_are_appended_and_shown(run: Run, server: Served) -> None:
    made = run("append", "note.added", "-s", "note/1", "text=hello", "--json").data
    assert (made["position"], made["actor"], made["status"]) == (1, "user:ada", "recorded")
    run("append", "note.added", "-s", "note/1", "text=bye", "--key", "k", "--expect", "1")
    again = run("append", "note.added", "-s", "note/1", "text=bye", "--key", "k", "--expect", "1")
    assert "already recorded" in again.err
    assert [row[0] for row in run("log").rows] == ["1", "2"]
    assert [row[0] for row in run("log", "-n", "1", "--reverse").rows] == ["2"]
    assert [row[0] for row in run("log", "--to-end", "--by", "user:ada").rows] == ["1", "2"]
    assert [row[0] for row in run("tail", "--no-follow", "-n", "1").rows] == ["2"]
    page = run("log", "--after", "0", "--limit", "1", "--json")
    assert ([one["position"] for one in page.data], page.next["at_head"]) == ([1], False)
    assert run("log", "--after", page.next["cursor"], "--wait", "30", "--json").data[0]["position"] == 2
    assert run("log", "--after", "2", "--wait", "0.1", "--json").data == []
    assert [row[0] for row in run("tail", "--no-follow", "--after", "1").rows] == ["2"]
    assert run("show", made["id"][-8:], "--json").data["payload"]["text"] == "hello"
    assert run("show", "#2", "--json").data["position"] == 2
    assert server.log.head() == 2


def test_a_batch_of_drafts(run: Run, server: Served, tmp_path: Path) -> None:
    draft = {"type": "note.added", "payload": {"text": "x"}}
    lines = [json.dumps({**draft, "stream": f"note/{number}"}) for number in (1, 2)]
    (tmp_path / "drafts.ndjson").write_text("\n".join(lines))
    assert [row[0] for row in run("append", "--batch", str(tmp_path / "drafts.ndjson")).rows] == ["1", "2"]
    assert run("append", "--batch", str(tmp_path / "drafts.ndjson"), "--dry-run").code == 0
    assert server.log.head() == 2


def test_states_and_views(run: Run, server: Served) -> None:
    for text in ("hello", "bye"):
        run("append", "note.added", "-s", "note/1", f"text={text}")

    def here(*words: str) -> Any:
        return run(*words, "--json").data

    assert here("state", "note/1")["state"]["text"] == "bye"
    assert here("state", "note/1", "--as-of", "v1")["state"]["text"] == "hello"
    assert here("state", "note/1", "--as-of", "#1")["events"] == 1
    assert here("state", "streams", "note/1")["state"]["events"] == 2
    changes = here("diff", "note/1", "v1", "v2")
    assert changes["changes"] == [{"path": "$.text", "was": "hello", "now": "bye"}]
    assert [one["position"] for one in changes["events"]] == [2]
    reasons = here("why", "note/1", "text")["events"]
    assert [(one.get("was"), one["now"], one["event"]["position"]) for one in reasons] == [
        (None, "hello", 1),
        ("hello", "bye", 2),
    ]
    assert here("views", "get", "streams", "note/1")["position"] == 2
    assert list(here("views", "get", "streams")["states"]) == ["note/1"]
    assert "streams" in [one["view"] for one in here("views", "list")]
    assert run("state", "note/9").code == 4


def test_the_answers_are_those_of_the_log_itself(run: Run, server: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    run("append", "note.added", "-s", "note/1", "text=hello", "--correlation", "c")
    run("append", "note.added", "-s", "note/1", "text=7", "--expect", "9")
    run("agent", "propose", "pytest", "--agent-id", "b", "--id", "c1")
    store = f"sqlite:{server.log.stored.path}"  # type: ignore[attr-defined]
    for words in (
        ("log", "--json"),
        ("show", "1", "--json"),
        ("state", "note/1", "--json"),
        ("diff", "note/1", "#0", "--json"),
        ("why", "note/1", "text", "--json"),
        ("views", "get", "streams", "--json"),
        ("errors", "--json"),
        ("agent", "list", "--json"),
        ("agent", "show", "c1", "--json"),
        ("agent", "show", "none", "--json"),
        ("state", "note/9", "--json"),
        ("show", "99", "--json"),
    ):
        there, here = run(*words), run(*words, "--log", store)
        assert (there.code, there.out) == (here.code, here.out), words
        if there.code and words[:2] != ("show", "99"):
            assert there.error == here.error, words


def test_commands_of_programs(run: Run, server: Served) -> None:
    assert run("wp", "spec", "f1", "A feature").code == 0
    assert run("wp", "create", "WP01", "A package", "--feature", "f1").code == 0
    assert [one["id"] for one in run("wp", "board", "--json").data] == ["WP01"]
    assert run("community", "create", "garden").code == 0
    assert run("community", "show", "--json").data["community"] == "garden"
    assert run("issue", "create", "hello", "--json").data["status"] == "recorded"
    assert len(run("issue", "list").rows) == 1
    assert run("control", "org", "create", "acme").code == 0
    refused = run("agent", "approve", "none", "--json")
    assert (refused.code, refused.error["code"]) == (4, "no_such_subject")


def test_purge_errors_verify_doctor_and_the_status(run: Run, server: Served) -> None:
    run("append", "note.added", "-s", "note/1", "text=hello")
    assert run("purge", "note/1", "--reason", "x", "--dry-run", "--json").data["events"] == 1
    assert run("purge", "note/1", "--reason", "x").code == 6
    purged = run("purge", "note/1", "--reason", "x", "--confirm", "purge note/1", "--json").data
    assert (purged["events"], purged["reserved"], purged["actor"]) == (1, 2, "user:ada")
    assert run("append", "no.such", "-s", "note/1").code == 3
    assert [row[1] for row in run("errors").rows] == ["unknown_type"]
    assert run("verify", "--json").data["ok"]
    assert run("doctor", "--json").data[0]["id"] == "server"
    status = run("--json").data
    assert (status["log"], status["head"]) == (server.url, 2)


def test_the_options_say_which_log_and_both_at_once_are_refused(
    run: Run, server: Served, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("EVERLOG_URL")
    assert run("--url", server.url, "log").code == 0
    assert run("log", "--log", server.url).code == 0
    assert run("log", "--url", server.url, "--log", "sqlite:x.db").code == 2
    monkeypatch.setenv("EVERLOG_URL", "https://127.0.0.1:9")
    library.open(f"sqlite:{tmp_path}/here.db").close()
    assert run("log", "--log", f"sqlite:{tmp_path}/here.db").code == 0


@pytest.mark.parametrize(
    "words",
    [
        ("keys", "list"),
        ("snapshot", "list"),
        ("consumers", "list"),
        ("log", "--purges"),
        ("log", "--past-damage"),
        ("show", "1", "--raw"),
        ("export", "x.jsonl"),
        ("serve",),
        ("tokens", "list"),
        ("config", "path"),
        ("views", "rebuild", "streams"),
        ("schema", "list"),
        ("keys", "new"),
        ("segments", "archive"),
        ("dump",),
        ("git", "install"),
        ("upgrade",),
        ("pipeline", "audit"),
    ],
)
def test_a_command_that_needs_the_log_itself_says_so(run: Run, server: Served, words: tuple[str, ...]) -> None:
    refused = run(*words, "--json")
    assert (refused.code, refused.error["code"]) == (7, "only_local")
    assert "EVERLOG_URL" in refused.error["hint"]


def test_a_new_log_beside_a_server_is_not_what_commands_work_on(
    run: Run, server: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = run("init")
    assert (made.code, server.url in made.err) == (0, True)
    assert "EVERLOG_URL applies" in made.err
    monkeypatch.delenv("EVERLOG_URL")
    assert run("init", "--url", server.url).code == 2
    assert "EVERLOG_URL" not in run("init").err


def test_the_token_decides_who_acts(run: Run, server: Served) -> None:
    refused = run("append", "note.added", "-s", "note/1", "text=x", "--actor", "user:eve", "--json")
    assert (refused.code, refused.error["details"]["field"]) == (3, "actor")
    refused = run("agent", "propose", "t", "--agent-id", "b", "--actor", "user:eve", "--json")
    assert (refused.code, refused.error["details"]["field"]) == (3, "actor")
    assert run("append", "note.added", "-s", "note/1", "text=x", "--actor", "user:ada").code == 0


def test_a_wrong_token_and_a_server_that_is_gone(run: Run, server: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVERLOG_TOKEN", "evl_wrong")
    refused = run("log", "--json")
    assert (refused.code, refused.error["code"]) == (7, "not_signed_in")
    monkeypatch.setenv("EVERLOG_URL", "http://127.0.0.1:9")
    gone = run("log", "--json")
    assert (gone.code, gone.error["code"]) == (7, "peer_unavailable")
    monkeypatch.setenv("EVERLOG_URL", "http://log.example.com")
    assert run("log", "--json").error["code"] == "invalid_settings"
    assert "evl_wrong" not in refused.err + gone.err

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.cli.conftest import Run


def test_an_event_is_recorded_and_its_place_printed(log: Run) -> None:
    found = log("append", "note.added", "-s", "note/1", "text=hello")
    assert found.code == 0
    assert found.err == ""
    position, event_id, stream, sequence, status = found.rows[0]
    assert (position, stream, sequence, status) == ("1", "note/1", "1", "recorded")
    assert len(event_id) == 26


def test_quiet_prints_the_id_and_nothing_else(log: Run) -> None:
    found = log("append", "note.added", "-s", "note/1", "text=hello", "-q")
    assert len(found.out.strip()) == 26
    assert found.err == ""


def test_agents_get_one_ok_line(log: Run) -> None:
    found = log("append", "note.added", "-s", "note/1", "text=hello", "--agent")
    assert found.out.startswith("OK position=1 id=")
    assert found.out.endswith("stream=note/1 sequence=1 status=recorded\n")


def test_json_holds_the_whole_event(log: Run) -> None:
    data = log("append", "note.added", "-s", "note/1", "text=hello", "--json").data
    assert data["payload"] == {"text": "hello", "topic": ""}
    assert data["status"] == "recorded"


def test_a_global_option_may_stand_before_the_command(log: Run) -> None:
    assert log("--json", "append", "note.added", "-s", "note/1", "text=hello").data["position"] == 1


def test_text_that_looks_like_a_number_stays_text_where_the_model_wants_text(log: Run) -> None:
    assert log("append", "note.added", "-s", "note/1", "text=42", "--json").data["payload"]["text"] == "42"


def test_values_are_read_as_json_where_the_model_wants_something_else(log: Run) -> None:
    assert (
        log("schema", "add", "build.done", "seconds:float", "passed:bool", "files:list[str]", "note:str?").code == 0
    )
    found = log(
        "append", "build.done", "-s", "build/1", "seconds=1.5", "passed=true", 'files=["a"]', "note=hi", "--json"
    )
    assert found.data["payload"] == {"seconds": 1.5, "passed": True, "files": ["a"], "note": "hi"}


def test_a_number_that_cannot_be_stored_is_not_taken_for_text(log: Run) -> None:
    assert log("schema", "add", "thing.said", "value:any").code == 0
    found = log("append", "thing.said", "-s", "thing/1", "value=12345678901234567890")
    assert found.code == 3
    assert "2^53" in found.err
    assert log("append", "thing.said", "-s", "thing/1", "value=plain words", "--json").data["payload"] == {
        "value": "plain words"
    }


def test_a_payload_may_be_one_json_object(log: Run) -> None:
    found = log("append", "note.added", "-s", "note/1", '{"text": "a=b"}', "--json")
    assert found.data["payload"]["text"] == "a=b"


def test_a_payload_may_come_from_stdin(log: Run) -> None:
    found = log("append", "note.added", "-s", "note/1", "-", "--json", stdin='{"text": "grüße"}'.encode())
    assert found.data["payload"]["text"] == "grüße"


def test_everything_about_an_event_can_be_said(log: Run) -> None:
    cause = log("append", "note.added", "-s", "note/1", "text=cause", "-q").out.strip()
    data = log(
        *("append", "note.added", "-s", "note/1", "text=effect", "--actor", "agent:builder", "--scope", "acme/shop"),
        *("--tag", "team=core", "--causation", cause, "--correlation", "c1", "--request-id", "r1"),
        *("--at", "2026-01-02T03:04:05Z", "--key", "k1", "--json"),
    ).data
    assert data["actor"] == "agent:builder"
    assert data["scope"] == "acme/shop"
    assert data["tags"] == {"team": "core"}
    assert data["causation_id"] == cause
    assert (data["correlation_id"], data["request_id"], data["idempotency_key"]) == ("c1", "r1", "k1")
    assert data["occurred_at"] == "2026-01-02T03:04:05Z"


def test_the_scope_of_the_settings_is_used_when_none_is_named(log: Run) -> None:
    assert log("config", "set", "scope", "acme").code == 0
    assert log("append", "note.added", "-s", "note/1", "text=x", "--json").data["scope"] == "acme"


def test_a_retry_with_the_same_key_says_so_and_records_nothing(log: Run) -> None:
    first = log("append", "note.added", "-s", "note/1", "text=x", "--key", "k")
    again = log("append", "note.added", "-s", "note/1", "text=x", "--key", "k")
    assert (again.code, again.out) == (first.code, first.out)
    assert (first.err, again.err) == ("", "already recorded; nothing new was recorded\n")
    assert len(log("log").rows) == 1


def test_another_request_under_the_same_key_is_a_conflict(log: Run) -> None:
    log("append", "note.added", "-s", "note/1", "text=x", "--key", "k")
    found = log("append", "note.added", "-s", "note/1", "text=y", "--key", "k", "--json")
    assert found.code == 5
    assert found.out == ""
    assert found.error["code"] == "idempotency_key_reuse"


def test_a_repeated_id_is_a_retry_and_with_other_content_a_conflict(log: Run) -> None:
    event_id = log("append", "note.added", "-s", "note/1", "text=x", "-q").out.strip()
    again = log("append", "note.added", "-s", "note/1", "text=x", "--id", event_id)
    assert (again.rows[0][1], again.rows[0][4]) == (event_id, "recorded")
    assert again.err == "already recorded; nothing new was recorded\n"
    found = log("append", "note.added", "-s", "note/1", "text=y", "--id", event_id)
    assert found.code == 5
    assert "other content" in found.err


def test_a_dry_run_checks_and_records_nothing(log: Run) -> None:
    assert log("append", "note.added", "-s", "note/1", "text=x", "--dry-run").rows[0][4] == "dry_run"
    assert log("append", "note.added", "-s", "note/1", "--dry-run").code == 3
    assert log("log").out == ""
    assert log("errors").out == ""


# ---- refusals


def test_an_unknown_type_exits_3_and_names_the_nearest(log: Run) -> None:
    found = log("append", "note.aded", "-s", "note/1", "text=x")
    assert found.code == 3
    what, why, fix = found.err.splitlines()
    assert what == "error: the event type note.aded is not known"
    assert why.startswith("  why: ")
    assert fix.startswith("  fix: did you mean note.added?")


def test_every_defect_of_a_payload_is_told_at_once_with_its_path(log: Run) -> None:
    found = log("append", "note.added", "-s", "note/1", "text=", "topik=x")
    assert found.code == 3
    assert "$.text" in found.err
    assert "$.topik" in found.err
    paths = [
        defect["path"]
        for defect in log("append", "note.added", "-s", "n/1", "--json", "topik=1").error["details"]["defects"]
    ]
    assert sorted(paths) == ["$.text", "$.topik"]


@pytest.mark.parametrize("stream", ["", "nothing", "Note/1", "note/", "note/a b", "note/\x1b[31m"])
def test_a_stream_of_the_wrong_shape_exits_3(log: Run, stream: str) -> None:
    found = log("append", "note.added", "-s", stream, "text=x")
    assert found.code == 3
    assert "a stream is kind/id" in found.err
    assert "\x1b" not in found.err


def test_a_payload_that_is_too_large_exits_3_with_both_sizes(log: Run) -> None:
    log("schema", "add", "blob.kept", "data:str")
    payload = json.dumps({"data": "x" * 1_100_000}).encode()
    found = log("append", "blob.kept", "-s", "blob/1", "-", "--json", stdin=payload)
    assert found.code == 3
    assert found.error["details"] == {"size": 1_100_011, "limit": 1_048_576}


def test_a_large_payload_is_warned_of_and_recorded(log: Run) -> None:
    log("schema", "add", "blob.kept", "data:str")
    payload = json.dumps({"data": "x" * 70_000}).encode()
    found = log("append", "blob.kept", "-s", "blob/1", "-", stdin=payload)
    assert found.code == 0
    assert found.err.startswith("warning: the payload of blob.kept on blob/1 has 70,011 bytes")
    assert (
        len(json.loads(log("append", "blob.kept", "-s", "blob/1", "-", "--json", stdin=payload).out)["warnings"]) == 1
    )


def test_a_secret_exits_3_and_is_not_quoted(log: Run) -> None:
    secret = "ghp_" + "a1B2c3D4e5" * 4
    found = log("append", "note.added", "-s", "note/1", f"text={secret}")
    assert found.code == 3
    assert "secret" in found.err
    assert secret not in found.err


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        ('{"text": "a", "text": "b"}', "appears twice"),
        ('{"text": NaN}', "NaN"),
        ('{"text": 12345678901234567890}', "2^53"),
        ('{"text": "a"', "not JSON"),
        ('["text"]', "not valid"),
    ],
)
def test_json_that_two_readers_could_read_differently_exits_3(log: Run, payload: str, reason: str) -> None:
    found = log("append", "note.added", "-s", "note/1", payload)
    assert found.code == 3
    assert reason in found.err


def test_a_wrong_expectation_exits_5_and_tells_the_real_sequence(notes: Run) -> None:
    found = notes("append", "note.added", "-s", "note/1", "text=x", "--expect", "2", "--json")
    assert found.code == 5
    assert found.error["code"] == "wrong_sequence"
    assert found.error["details"] == {"stream": "note/1", "expected": "2", "actual": 4}
    assert notes("append", "note.added", "-s", "note/1", "text=x", "--expect", "4").code == 0


@pytest.mark.parametrize(("expect", "stream", "code"), [
    ("none", "note/9", 0),
    ("none", "note/1", 5),
    ("exists", "note/1", 0),
    ("exists", "note/9", 5),
    ("0", "note/9", 0),
    ("-1", "note/1", 3),
    ("some", "note/1", 2),
])  # fmt: skip
def test_expectations_without_a_number(notes: Run, expect: str, stream: str, code: int) -> None:
    assert notes("append", "note.added", "-s", stream, "text=x", "--expect", expect).code == code


@pytest.mark.parametrize("arguments", [
    ["note.added", "text=x"],
    ["-s", "note/1"],
    ["note.added", "-s", "note/1", "text"],
    ["note.added", "-s", "note/1", "text=x", "text=y"],
    ["note.added", "-s", "note/1", "text=x", "--tag", "team"],
    ["note.added", "-s", "note/1", "text=x", "--at", "yesterday"],
    ["note.added", "-s", "note/1", "text=x", "--batch", "-"],
    ["note.added", "-s", "note/1", "text=x", "--streem", "x"],
])  # fmt: skip
def test_a_command_line_that_makes_no_sense_exits_2(log: Run, arguments: list[str]) -> None:
    found = log("append", *arguments)
    assert found.code == 2
    assert found.out == ""
    assert found.err.startswith("error: ")
    assert "everlog append --help" in found.err


# ---- batches


def draft(stream: str, **fields: object) -> str:
    return json.dumps({"type": "note.added", "stream": stream, "payload": {"text": "x"}, **fields})


def test_a_batch_is_recorded_as_a_whole(log: Run) -> None:
    lines = "\n".join([draft("note/1"), "", draft("note/2", actor="user:ada", tags={"a": "b"}), draft("note/1")])
    found = log("append", "--batch", "-", stdin=lines.encode())
    assert [row[2:] for row in found.rows] == [
        ["note/1", "1", "recorded"],
        ["note/2", "1", "recorded"],
        ["note/1", "2", "recorded"],
    ]


def test_options_stand_in_for_what_the_lines_of_a_batch_leave_out(log: Run) -> None:
    lines = "\n".join([draft("note/1"), draft("note/1", scope="own", correlation_id="c2", request_id="r2")])
    options = ["--scope", "acme", "--correlation", "c1", "--request-id", "r1", "--actor", "user:ada"]
    first, second = log("append", "--batch", "-", *options, "--json", stdin=lines.encode()).data
    fields = ("scope", "correlation_id", "request_id", "actor")
    assert [first[name] for name in fields] == ["acme", "c1", "r1", "user:ada"]
    assert [second[name] for name in fields] == ["own", "c2", "r2", "user:ada"]


def test_a_batch_may_come_from_a_file_and_be_retried(log: Run, place: Path) -> None:
    (place / "drafts.ndjson").write_text(draft("note/1") + "\n" + draft("note/1", expect=1))
    first = log("append", "--batch", "drafts.ndjson", "--key", "b")
    again = log("append", "--batch", "drafts.ndjson", "--key", "b")
    assert (first.code, again.code, again.out) == (0, 0, first.out)
    assert again.err == "already recorded; nothing new was recorded\n"


def test_one_bad_draft_undoes_the_batch_and_is_named(log: Run) -> None:
    lines = "\n".join([draft("note/1"), draft("note/1", payload={}), draft("note/1", type="note.aded")])
    found = log("append", "--batch", "-", stdin=lines.encode())
    assert found.code == 3
    assert "warning: draft 2, note.added on note/1" in found.err
    assert "warning: draft 3, note.aded on note/1" in found.err
    assert log("log").out == ""


def test_every_line_that_is_no_draft_is_named(log: Run) -> None:
    lines = "\n".join(
        [draft("note/1"), "{", '{"type": "note.added"}', draft("note/1", strem="x"), draft("n/1", expect="x")]
    )
    found = log("append", "--batch", "-", stdin=lines.encode())
    assert found.code == 3
    for number in (2, 3, 4, 5):
        assert f"line {number}: " in found.err
    assert log("log").out == ""


def test_an_empty_batch_and_a_missing_file_are_told(log: Run) -> None:
    assert log("append", "--batch", "-").code == 3
    assert log("append", "--batch", "nowhere.ndjson").code == 4


SECRET = "ghp_" + "a1B2" * 9


@pytest.mark.parametrize("form", [(), ("--json",), ("--agent",)])
@pytest.mark.parametrize(
    "command",
    [
        ("append", SECRET, "-s", "note/1", "text=x"),
        ("append", "note.added", "-s", f"note/{SECRET}", "text=x"),
        ("append", "note.added", "-s", SECRET, "text=x"),
        ("append", "note.added", "-s", "note/1", f"text=the key is {SECRET}"),
        ("append", "note.added", "-s", "note/1", "text=x", "--actor", SECRET),
        ("append", "note.added", "-s", "note/1", "text=x", "--id", SECRET),
        ("log", "--type", SECRET, "--since", SECRET),
        ("show", SECRET),
        ("--log", "postgresql://ada:hunter2@127.0.0.1:1/db", "log"),
        ("--log", "postgresq://ada:hunter2@h/db", "log"),
        ("copy", "postgresql://ada:hunter2@127.0.0.1:1/db", "sqlite:copy.db"),
        ("init", "--store", "mysql://ada:hunter2@h/db", "other"),
    ],
)
def test_no_message_tells_a_secret_that_was_typed(log: Run, command: tuple[str, ...], form: tuple[str, ...]) -> None:
    result = log(*command, *form)
    assert result.code != 0
    assert SECRET not in result.out + result.err
    assert "hunter2" not in result.out + result.err


def test_the_report_of_an_unforeseen_error_tells_no_password(
    log: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("no connection to postgresql://ada:hunter2@db/x")

    monkeypatch.setattr("everlog.log.log.Log.append", broken)
    monkeypatch.setattr("everlog.log.write.writer.Writer.commit", broken)
    result = log("append", "note.added", "-s", "note/1", "text=x", "--json")
    assert result.error["code"] == "internal"
    report = Path(result.error["details"]["report"]).read_text(encoding="utf-8")
    assert "RuntimeError: no connection to postgresql://ada:***@db/x" in report
    assert "hunter2" not in report + result.err


@pytest.mark.parametrize("form", ["--json", "--agent"])
def test_a_program_gets_the_same_answer_to_a_retry(log: Run, form: str) -> None:
    command = ("append", "note.added", "-s", "note/1", "text=x", "--key", "k", form)
    first, again = log(*command), log(*command)
    assert (first.code, first.out, first.err) == (again.code, again.out, again.err)

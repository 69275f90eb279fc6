"""Bad lines are set aside and the others imported; known types and secrets are checked as an append checks them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.transfer.foreign import CLI, CONTROL, LIFECYCLE, STATUS, text
from tests.transfer.test_exporting import a_log, bytes_of, imported, source, text_of

from everlog.errors import BadFile
from everlog.log.log import Log
from everlog.testing.copy_contract import a_full_log
from everlog.transfer import lines
from everlog.transfer.import_pass import Options
from everlog.transfer.importing import Imported, import_files
from everlog.wiring import open

NOTE = {**CLI, "event_type": "note.added", "entity_id": "n1", "entity_type": "Note", "event_version": 2}


def note(number: int, payload: dict[str, Any], **fields: Any) -> dict[str, Any]:
    event_id = f"01HN3R5K8D12345678{number:08d}"
    return {**NOTE, "event_id": event_id, "lamport_clock": number + 1, "payload": payload, **fields}


def set_aside(log: Log, data: bytes, **options: Any) -> tuple[Imported, list[dict[str, Any]]]:
    """Import a file and return what was set aside of it."""
    written: list[bytes] = []
    dry_run = options.pop("dry_run", False)
    result = import_files(log, [source(data)], Options(**options), dry_run=dry_run, set_aside=written.extend)
    return result, [json.loads(line) for line in written]


# ---- as an append


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        ({"text": 5}, "$.text"),
        ({"topic": "x"}, "it is missing"),
        ({"text": "x", "colour": "blue"}, "colour"),
        ({"text": "x", "topic": "ghp_" + "a1B2" * 9}, "would record a secret"),
    ],
)
def test_a_payload_that_an_append_refuses_is_refused(payload: dict[str, Any], reason: str) -> None:
    log = a_log()
    with pytest.raises(BadFile) as caught:
        imported(log, text(note(1, {"text": "fine"}), note(2, payload)))
    assert "file:2: " in caught.value.why
    assert reason in caught.value.why
    assert log.head() == 0


@pytest.mark.parametrize("field", ["actor", "correlation_id", "causation_id", "entity_id", "event_type", "was"])
def test_a_secret_outside_of_the_payload_is_refused_and_not_quoted(field: str) -> None:
    secret = "ghp_" + "a1B2" * 9
    log = a_log()
    with pytest.raises(BadFile) as caught:
        imported(log, text(note(1, {"text": "x"}, **{field: secret})))
    told = " ".join((str(caught.value), caught.value.hint, json.dumps(caught.value.details)))
    assert "would record a secret" in told or "is not known" in told
    assert secret not in told
    assert log.head() == 0


def test_an_older_version_is_judged_by_its_own_model_or_by_what_it_becomes() -> None:
    log = a_log()
    assert imported(log, text(note(1, {"body": "old"}, event_version=1))).new == 1
    with pytest.raises(BadFile, match="1 line is wrong"):
        imported(log, text(note(2, {"nothing": "old"}, event_version=1)))


def test_a_newer_version_and_an_unknown_type_are_kept() -> None:
    log = a_log()
    assert imported(log, text(note(1, {"new": True}, event_version=9), CONTROL)).new == 2


def test_what_was_exported_is_imported_without_being_judged_again() -> None:
    """It was checked where it was recorded; a log must be able to take back what it once held."""
    store = a_full_log()  # its payloads fit no model
    assert imported(a_log(), text_of(store)).new > 0


# ---- set aside


def test_one_bad_line_does_not_reject_the_others() -> None:
    log = a_log()
    good, bad = [note(1, {"text": "a"}), note(3, {"text": "c"})], note(2, {"text": 5})
    data = text(good[0]) + b"<<<<<<< HEAD\n" + text(bad) + b"\n" + b'{"broken\n' + text(good[1]) + b"\xff\n"
    result, aside = set_aside(log, data)

    assert (result.new, result.set_aside, log.head()) == (2, 4, 2)
    assert [(line["file"], line["line"], line["code"]) for line in aside] == [
        ("file", 2, "bad_line"),
        ("file", 3, "invalid_payload"),
        ("file", 5, "bad_line"),
        ("file", 7, "bad_line"),
    ]
    assert [line.get("text") for line in aside] == ["<<<<<<< HEAD", json.dumps(bad), '{"broken', None]
    assert aside[3]["base64"] == "/w=="
    assert all(line["reason"] for line in aside)
    assert log.verify().ok


def test_a_retry_records_nothing_twice_and_sets_the_same_lines_aside() -> None:
    log = a_log()
    data = text(note(1, {"text": "a"}), note(2, {"text": 5}), CONTROL, {"odd": 1}, note(3, {"text": "c"}))
    first, aside = set_aside(log, data)
    again, aside_again = set_aside(log, data)
    assert (first.new, again.new, again.known) == (3, 0, 3)
    assert aside == aside_again
    assert first.digest == again.digest


def test_every_line_is_recorded_or_set_aside() -> None:
    """Whichever are bad, for whatever reason."""
    lines_ = [
        text(note(number, {"text": "x"} if number % 3 else {"text": number})) if number % 7 else b"{\n"
        for number in range(1, 1300)
    ]
    log = a_log()
    result, aside = set_aside(log, b"".join(lines_))
    taken = {int(recorded.event.id[-8:]) for recorded in log.read()}
    left = {line["line"] for line in aside}
    assert taken | left == set(range(1, 1300))
    assert not taken & left
    assert len(left) == result.set_aside > 100


def test_what_the_log_itself_refuses_is_set_aside_too() -> None:
    log = a_log()
    imported(log, text(note(1, {"text": "a"})))
    result, aside = set_aside(log, text(note(1, {"text": "other"}), note(2, {"text": "b"})))
    assert (result.new, [line["code"] for line in aside]) == (1, ["id_conflict"])


def test_nothing_is_recorded_before_the_bad_lines_are_written() -> None:
    log = a_log()

    def full_disk(lines: Any) -> None:
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space"):
        import_files(log, [source(text(note(1, {"text": "a"})) + b"{\n")], set_aside=full_disk)
    assert log.head() == 0


def test_a_dry_run_writes_nothing_and_names_the_lines() -> None:
    log = a_log()
    result, aside = set_aside(log, text(note(1, {"text": "a"})) + b"{\n", dry_run=True)
    assert (log.head(), aside, result.set_aside) == (0, [], 1)
    assert result.problems[0].startswith("file:2: ")


def test_a_good_file_sets_nothing_aside() -> None:
    log = a_log()

    def unwanted(lines: Any) -> None:
        raise AssertionError(list(lines))

    assert import_files(log, [source(text(STATUS, LIFECYCLE))], set_aside=unwanted).set_aside == 0


def test_a_line_that_is_too_long_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "LINE_BYTES_MAX", 2_000)
    monkeypatch.setattr(lines, "_CHUNK", 500)
    log = a_log()
    data = text(note(1, {"text": "a"})) + b'{"a":"' + b"x" * 9_000 + b'"}\n' + text(note(2, {"text": "b"}))
    result, aside = set_aside(log, data)
    assert (result.new, [(line["line"], line["reason"][:14]) for line in aside]) == (2, [(2, "it is longer t")])


def test_an_export_with_a_changed_line_sets_it_aside_with_its_count() -> None:
    exported = text_of(a_full_log())
    changed = exported.replace(b'"payload":{', b'"payload":{"more":1,', 1)
    log = a_log()
    result, aside = set_aside(log, changed)
    assert [line["code"] for line in aside] == ["commitment_mismatch"]
    assert result.new == imported(a_log(), exported).new - 1


def test_a_changed_line_does_not_shadow_the_intact_one_of_another_file() -> None:
    log = a_log()
    for number in range(3):
        log.append("note.added", stream="note/1", payload={"text": f"P{number}"})
    good = text_of(log._store)
    changed = good.replace(b'"text":"P0"', b'"text":"PX"')
    assert changed != good
    for files in ([changed, good], [good, changed]):
        other, written = a_log(), list[bytes]()
        result = import_files(other, [source(data) for data in files], Options(), set_aside=written.extend)
        assert sorted(one.event.payload["text"] for one in other.read()) == ["P0", "P1", "P2"]
        assert (result.new, len(written)) == (3, 1)
        assert b"PX" in written[0]
        assert other.verify().ok


def test_the_log_of_a_salvaged_file_verifies_on_disk(tmp_path: Path) -> None:
    """The lines that are left out leave a gap in the chain of the import, after a restart too."""
    data = b"".join(text(note(number, {"text": "x" if number % 5 else number})) for number in range(1, 40))
    with open(f"sqlite:{tmp_path}/log.db") as log:
        set_aside(log, data)
    with open(f"sqlite:{tmp_path}/log.db") as log:
        assert log.verify().ok
        assert set_aside(log, data)[0].new == 0
    assert bytes_of(log_of(data)._store) == bytes_of(log_of(data)._store)


def log_of(data: bytes) -> Log:
    log = a_log()
    set_aside(log, data)
    return log


def test_lines_of_one_unknown_shape_are_one_problem_and_each_is_set_aside() -> None:
    odd = [{"what": number, "when": "now"} for number in range(5_000)]
    data = text(note(1, {"text": "x"}), *odd, {"alone": 1}, *odd[:3])
    result, kept = set_aside(a_log(), data)
    assert (result.new, result.set_aside, len(kept)) == (1, 5_004, 5_004)
    assert [problem.partition(":")[2].partition(";")[0] for problem in result.problems] == [
        "2 and 5,002 more lines: it is of no known shape",
        "5002: it is of no known shape",
    ]
    # One object over many lines is one line that is wrong.
    document = json.dumps({"what": {"in": 1}, "when": [2]}, indent=2).encode()
    result, _ = set_aside(a_log(), document)
    assert result.problems == ["file:1: it is of no known shape; its fields are what, when"], (
        "one object of many lines"
    )
    with pytest.raises(BadFile, match="5,004 lines are wrong"):
        imported(a_log(), data)

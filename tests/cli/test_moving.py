"""copy, export and import as they are typed."""

from __future__ import annotations

import json
import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from everlog.store_urls import has_password, typed_url
from everlog.stores import formats

if TYPE_CHECKING:
    from tests.cli.conftest import Run

LOG = "sqlite:.everlog/log.db"


def test_a_copy_has_the_digest_of_its_log(notes: Run, place: Path) -> None:
    copied = notes("copy", LOG, "sqlite:copy.db", "--json")
    assert copied.code == 0
    assert sorted(path.name for path in place.iterdir()) == [".everlog", "copy.db"]
    found = notes("verify", "--log", "sqlite:copy.db", "--json").data

    assert (found["ok"], found["events"], found["digest"]) == (True, 5, copied.data["digest"])
    assert notes("verify", "--json").data["digest"] == found["digest"]


@pytest.mark.parametrize(
    ("source", "target", "code"),
    [
        (LOG, LOG, "conflict"),
        (LOG, "sqlite:.everlog/../.everlog/log.db", "conflict"),
        ("sqlite:nothing.db", "sqlite:copy.db", "not_found"),
        ("sqlite:text.db", "sqlite:copy.db", "not_a_log"),
        (LOG, "sqlite:text.db", "conflict"),
        (LOG, "sqlite:no/such/folder/copy.db", "not_found"),
        (LOG, "memory:", "invalid_settings"),
        ("memory:", "sqlite:copy.db", "invalid_settings"),
        (LOG, "copy.db", "invalid_settings"),
    ],
)
def test_what_cannot_be_copied_is_told_and_left_alone(
    notes: Run, place: Path, source: str, target: str, code: str
) -> None:
    (place / "text.db").write_text("hello")
    result = notes("copy", source, target, "--json")

    assert result.error["code"] == code
    assert result.error["hint"]
    assert (place / "text.db").read_text() == "hello"
    assert not (place / "copy.db").exists()
    assert notes("verify").code == 0


def test_a_log_of_a_newer_format_is_not_copied(notes: Run, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(formats, "FORMAT", 1)
    assert notes("copy", LOG, "sqlite:copy.db", "--json").error["code"] == "newer_format"


def test_copies_start_from_the_directory_that_is_named(notes: Run, place: Path) -> None:
    (place / "sub").mkdir()
    os.chdir(place / "sub")
    assert notes("copy", "-C", "..", LOG, "sqlite:copy.db").code == 0
    assert (place / "copy.db").exists()


def test_an_export_can_be_imported_elsewhere(notes: Run, place: Path) -> None:
    exported = notes("export", "all.jsonl", "--json").data
    (place / "other").mkdir()
    os.chdir(place / "other")
    assert notes("init").code == 0
    imported = notes("import", "../all.jsonl", "--json").data

    assert (imported["new"], imported["digest"]) == (exported["events"], exported["digest"])
    assert notes("verify", "--json").data["digest"] == exported["digest"]
    assert notes("import", "../all.jsonl", "--json").data["new"] == 0


def test_an_export_goes_to_standard_output_and_through_a_pipe(notes: Run) -> None:
    found = notes("export", "--stream", "note/1", "--since", "#2", "--until", "#3")
    lines = [json.loads(line) for line in found.out.splitlines()]

    assert [line.get("position") for line in lines] == [None, 2, 3, None]
    assert "2 events" in found.err
    again = notes("import", "-", "--json", stdin=found.out.encode())
    assert (again.data["known"], again.data["new"]) == (2, 0)


def test_cloudevents_go_out_and_come_back(notes: Run) -> None:
    for form in ("cloudevents", "cloudevents-batch"):
        found = notes("export", "--format", form)
        assert notes("import", "-", "--json", stdin=found.out.encode()).data["known"] == 5


def test_a_file_is_replaced_only_if_that_is_said(notes: Run, place: Path) -> None:
    (place / "all.jsonl").write_text("mine")
    assert notes("export", "all.jsonl", "--json").error["code"] == "conflict"
    assert (place / "all.jsonl").read_text() == "mine"
    assert notes("export", "all.jsonl", "--force").code == 0
    assert notes("import", "all.jsonl", "--dry-run").code == 0


def test_bad_lines_are_named_a_line_each(notes: Run, place: Path) -> None:
    (place / "bad.jsonl").write_text("{\n<<<<<<< HEAD\n")
    found = notes("import", "bad.jsonl")

    assert found.code == 3
    assert "bad.jsonl:1: " in found.err
    assert "bad.jsonl:2: '<<<<<<< HEAD' is the mark of an unresolved merge" in found.err
    assert (place / "bad.jsonl").read_text() == "{\n<<<<<<< HEAD\n"
    assert notes("import", "bad.jsonl", "--json").error["details"]["problems"][1].startswith("bad.jsonl:2")


def test_a_file_that_is_not_there_or_is_a_folder_is_told(notes: Run, place: Path) -> None:
    assert notes("import", "nothing.jsonl").code == 4
    assert notes("import", ".").code != 0
    assert "Traceback" not in notes("import", ".").err
    assert notes("import").code == 2


def test_lines_that_are_no_events_are_told(notes: Run, place: Path) -> None:
    (place / "kata.jsonl").write_text('{"kind":"meta","data":{}}\n')
    found = notes("import", "kata.jsonl")
    assert found.code == 0
    assert "left out: 1 line is no event but kata meta" in found.err


def test_standard_input_has_a_limit(notes: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("everlog.application.move_log.STDIN_BYTES_MAX", 10)
    assert notes("import", "-", "--json", stdin=b"x" * 11).error["code"] == "bad_file"


@pytest.mark.parametrize("target", ["sqlite:backup.db", "sqlite:a b?.db", "jsonl:away", "sqlite:{place}/whole.db"])
def test_what_is_said_about_using_a_copy_can_be_typed(notes: Run, place: Path, target: str) -> None:
    target = target.format(place=place)
    for start in ((), ("-C", str(place.parent / place.name))):
        copied = notes(*start, "copy", LOG, target + "." * bool(start))
        _, _, said = copied.err.strip().rpartition("to use the copy: ")
        use, _, keep = said.partition(", or ")
        assert len(notes(*shlex.split(use)[1:]).rows) == 5
        assert notes(*shlex.split(keep)[1:]).code == 0
        assert len(notes("log").rows) == 5
        assert notes("config", "get", "store").out.strip() != "sqlite:log.db"
        notes("config", "set", "store", "sqlite:log.db")


def test_a_url_for_a_hint_keeps_the_user_and_never_the_password() -> None:
    assert typed_url("postgresql://ada:pw@db/logs?schema=a&password=pw") == "'postgresql://ada@db/logs?schema=a'"
    assert typed_url("postgresql://ada:p/w?@x@db/logs") == "postgresql://ada@db/logs"
    assert typed_url("postgresql://db/logs") == "postgresql://db/logs"
    assert not has_password("postgresql://ada@db/logs?schema=a")
    assert has_password("postgres://db/logs?sslpassword=pw")


def test_a_password_in_a_url_is_not_printed(notes: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    url = "postgresql://ada:secret-word@127.0.0.1:1/logs"
    for result in (notes("copy", LOG, url), notes("copy", url, url), notes("copy", url, "sqlite:copy.db")):
        assert result.code != 0
        assert "secret-word" not in result.out + result.err


def test_an_export_past_damage_names_what_is_lost(everlog: Run, place: Path) -> None:
    everlog("init", "--store", "segments:data")
    for number in (1, 2, 3):
        everlog("append", "note.added", "-s", "note/1", f"text=note-{number}")
    (segment,) = (place / ".everlog" / "data" / "segments").glob("*.seg")
    segment.write_bytes(segment.read_bytes().replace(b"note-2", b"NOTE-2"))
    assert everlog("export", "all.jsonl").code == 8
    assert not (place / "all.jsonl").exists()
    found = everlog("export", "rest.jsonl", "--past-damage", "--json")
    assert (found.code, found.data["events"], found.data["lost"]) == (0, 2, [[2, 2]])
    assert json.loads(found.err)["left_out"]["positions"] == [[2, 2]]
    assert len((place / "rest.jsonl").read_text().splitlines()) == 4


GOOD = {
    "event_id": "01HN3R5K8D1234567890ABCDEF",
    "event_type": "note.added",
    "event_version": 2,
    "lamport_clock": 42,
    "entity_id": "n1",
    "timestamp": "2026-01-27T10:30:00Z",
    "payload": {"text": "hello"},
}


def test_bad_lines_are_set_aside_and_the_exit_code_says_so(notes: Run, place: Path) -> None:
    secret = "ghp_" + "a1B2" * 9
    bad = {**GOOD, "event_id": "01HN3R5K8D1234567890ABCDEG", "payload": {"text": f"the key is {secret}"}}
    (place / "in.jsonl").write_text(json.dumps(GOOD) + "\n" + json.dumps(bad) + "\n")
    assert notes("import", "in.jsonl").code == 3
    result = notes("import", "in.jsonl", "--set-aside", "bad.jsonl", "--json")

    assert (result.code, result.data["new"], result.data["set_aside"]) == (9, 1, 1)
    (line,) = map(json.loads, (place / "bad.jsonl").read_text().splitlines())
    assert (line["file"], line["line"], line["code"], line["text"]) == (
        "in.jsonl",
        2,
        "secret_found",
        json.dumps(bad),
    )
    assert secret not in result.out + result.err + line["reason"]
    assert (place / "bad.jsonl").stat().st_mode & 0o077 == 0
    again = notes("import", "in.jsonl", "--set-aside", "bad.jsonl", "--json")
    assert (again.code, again.data["new"], again.data["known"]) == (9, 0, 1)


def test_a_file_that_is_there_is_not_written_over_by_what_is_set_aside(notes: Run, place: Path) -> None:
    (place / "in.jsonl").write_text(json.dumps(GOOD) + "\n{\n")
    (place / "bad.jsonl").write_text("mine\n")
    head = notes("log", "--json").data
    result = notes("import", "in.jsonl", "--set-aside", "bad.jsonl", "--json")
    assert (result.code, result.error["code"]) == (5, "conflict")
    assert (place / "bad.jsonl").read_text() == "mine\n"
    assert notes("log", "--json").data == head
    assert not (place / "bad.jsonl.new").exists()


def test_an_import_without_bad_lines_writes_no_file(notes: Run, place: Path) -> None:
    (place / "in.jsonl").write_text(json.dumps({**GOOD, "event_id": "hash-1"}) + "\n")
    result = notes("import", "in.jsonl", "--set-aside", "bad.jsonl", "--new-ids", "--json")
    assert (result.code, result.data["new_ids"], (place / "bad.jsonl").exists()) == (0, 1, False)

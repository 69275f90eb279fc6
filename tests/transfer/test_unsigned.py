"""Imports of events whose origin is a key: they must be signed for this log, unless somebody saves what is left."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.transfer.test_exporting import source, text_of

import everlog
from everlog.errors import BadFile
from everlog.log.log import Log
from everlog.transfer.import_pass import Options
from everlog.transfer.importing import import_files


@pytest.fixture
def signed(tmp_path: Path) -> Log:
    log = everlog.open(f"sqlite:{tmp_path / 'signed.db'}", actor="user:ada", signed=True)
    log.append_batch([everlog.Draft("note.added", "note/1", {"text": str(number)}) for number in range(3)])
    log.append("note.added", stream="note/2", payload={"text": "alone"})
    return log


def copy_of(log: Log, path: Path, upto: int) -> Log:
    """Return a node of the same log that has only its first events."""
    from tests.support.nodes import open_node

    node = open_node("sqlite", path, log.identity.log_id, "other")
    node.log.admit_each([one.event for one in log.stored.read()][:upto])
    return node.log


def lines_of(log: Log) -> list[bytes]:
    return text_of(log._store).splitlines(keepends=True)


def without(line: bytes, *names: str) -> bytes:
    found = json.loads(line)
    for name in names:
        found.pop(name, None)
    return json.dumps(found).encode() + b"\n"


def test_an_export_of_the_same_log_is_imported_with_its_signatures(signed: Log, tmp_path: Path) -> None:
    other = copy_of(signed, tmp_path, upto=1)
    done = import_files(other, [source(text_of(signed._store))])
    assert (done.new, done.known) == (3, 1)
    assert [one.event.signature for one in other.stored.read()] == [
        one.event.signature for one in signed.stored.read()
    ]
    assert other.verify().ok


@pytest.mark.parametrize("names", [("signature", "path"), ("signature",), ("path",)])
def test_an_event_of_a_key_without_its_proof_is_refused_and_named(
    signed: Log, tmp_path: Path, names: tuple[str, ...]
) -> None:
    other = copy_of(signed, tmp_path, upto=0)
    lines = lines_of(signed)
    lines[2] = without(lines[2], *names)
    written: list[bytes] = []
    with pytest.raises(BadFile, match="is not signed by its origin"):
        import_files(other, [source(b"".join(lines))])
    assert other.head() == 0
    done = import_files(other, [source(b"".join(lines))], set_aside=written.extend)
    assert (done.new, [json.loads(line)["code"] for line in written]) == (3, ["invalid_signature"])
    assert other.verify().ok


def test_events_that_were_signed_for_another_log_are_refused(signed: Log, tmp_path: Path) -> None:
    other = everlog.open(f"sqlite:{tmp_path / 'other.db'}")
    with pytest.raises(BadFile, match="is not signed by its origin"):
        import_files(other, [source(text_of(signed._store))])
    assert other.head() == 0
    other.close()


def test_with_the_option_they_are_recorded_and_verify_reports_them(signed: Log, tmp_path: Path) -> None:
    other = copy_of(signed, tmp_path, upto=0)
    lines = lines_of(signed)
    lines[4] = without(lines[4], "signature", "path")
    done = import_files(other, [source(b"".join(lines))], Options(unsigned=True))
    assert done.new == 4
    report = other.verify()
    assert (report.ok, [problem.code for problem in report.problems]) == (False, ["signature_missing"])
    peer = copy_of(signed, tmp_path / "peer", upto=0)
    sent = [one.event for one in other.stored.read()]
    assert [one.code for one in peer.admit_each(sent)] == ["", "", "", "invalid_signature"]

"""Forgetting a person: their values are in no file, every hash still holds, and a killed forget is finished."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from tests.application.trust.forgetting import (
    OPEN,
    SEALED,
    STAYS,
    STORES,
    SUBJECT,
    ByEmail,
    Emails,
    files_with,
    fill,
    open_shop,
    owned,
    quote_everywhere,
    register,
)

import everlog
from everlog.application.trust import forget as forgetting
from everlog.application.trust.checkpoints import compare_with_log, make_checkpoint
from everlog.application.trust.forget import STEPS, check_receipt, find, finish, forget, is_unfinished, status
from everlog.application.trust.proofs import check_proof, prove
from everlog.core.codec import Packed
from everlog.errors import BadFile, NotFound
from everlog.log.log import Log
from everlog.log.records import FORGOTTEN, SubjectForgotten
from everlog.trust.keys import PrivateKey
from everlog.trust.notes import Note, parse_checkpoint, sign

ROOT = Path(__file__).parents[3]


@pytest.fixture(params=STORES)
def url(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    fill(request.param, signed=True)
    return str(request.param)


@pytest.fixture
def log(url: str) -> Iterator[Log]:
    with open_shop(url) as opened:
        yield opened


def test_the_values_are_in_no_file(url: str, tmp_path: Path) -> None:
    """Not in the log, its journal and index, nor in views, snapshots, refusals, responses and exports."""
    with open_shop(url) as log:
        for view in (Emails, ByEmail):
            log.view(view).catch_up()
            log.view(view).snapshot()
        quote_everywhere(log)
        export(log, tmp_path / "export.jsonl")
    with open_shop(url) as log, open_beside(url, log) as beside:
        for one in (log, beside):  # this process has the code of one view only; the rows of the others are removed
            assert one.view(Emails).get("customer/1").state == {"email": SEALED}
        assert files_with(tmp_path, OPEN, SEALED)
        (receipt,) = forget(log, SUBJECT, owned=owned(tmp_path))
        assert receipt.searched.found == []
        assert (receipt.forget.erased, len(receipt.forget.keys), receipt.exports) == (
            1,
            1,
            [str(tmp_path / "export.jsonl")],
        )
        assert files_with(tmp_path, OPEN, SEALED) == []
        for one in (log, beside):
            assert one.view(Emails).get("customer/1").state == {"email": "[sealed]"}
            assert one.view(Emails).get("customer/2").state == {"email": STAYS}
            assert dict(one.view(ByEmail).items())[STAYS] == ["customer/2", "customer/2"]
        assert files_with(tmp_path, OPEN, SEALED) == []
    assert files_with(tmp_path, OPEN, SEALED) == []
    assert files_with(tmp_path, STAYS)
    with open_shop(url) as log:
        report = log.verify()
        assert (report.ok, report.erased, report.tampered) == (True, 1, 0)
        assert log.view(Emails).audit().ok


def open_beside(url: str, log: Log) -> Log:
    """Open the log a second time. A segments log has one writer, which is also the reader beside itself."""
    return _Same(log) if url.startswith("segments:") else open_shop(url)  # type: ignore[return-value]


class _Same:
    def __init__(self, log: Log) -> None:
        self._log = log

    def __enter__(self) -> Log:
        return self._log

    def __exit__(self, *error: object) -> None: ...


def export(log: Log, path: Path) -> None:
    from everlog.transfer.exporting import Export, Format

    path.write_bytes(b"".join(Export(log.stored, Format.EVERLOG).pieces()))


@pytest.mark.parametrize(
    "line", [b'{"id":"\xff"}', b'{"x":' + b"[" * 100_000, b"\0"], ids=["bytes", "deep", "no JSON"]
)
def test_a_file_that_only_begins_like_an_export_stops_nothing(log: Log, tmp_path: Path, line: bytes) -> None:
    beside = tmp_path / "beside.jsonl"
    beside.write_bytes(b'{"everlog_export":1}\n' + line + b"\n")
    (receipt,) = forget(log, SUBJECT, owned=owned(tmp_path))
    assert (receipt.exports, receipt.searched.found) == ([], [])
    assert not is_unfinished(log)


def test_a_forget_that_cannot_be_finished_stops_no_append(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*given: object, **named: object) -> None:
        raise OSError("a disk that is not there")

    with monkeypatch.context() as patched:
        patched.setattr(forgetting, "_carry_out", fails)
        with open_shop(url) as log, pytest.raises(OSError, match="disk"):
            forget(log, SUBJECT, owned=owned(Path.cwd()))
        with open_shop(url) as log:
            register(log, "c/2", STAYS)
            assert is_unfinished(log)
    with open_shop(url) as log:
        register(log, "c/2", STAYS)
        assert not is_unfinished(log)


def test_the_record_names_keys_and_events_and_never_the_person(log: Log, tmp_path: Path) -> None:
    plain = next(log.stored.read())
    keys = find(log, SUBJECT).keys
    (receipt,) = forget(log, SUBJECT, owned=owned(tmp_path))

    (record,) = log.read(everlog.Query(types=frozenset((FORGOTTEN,))))
    payload = msgspec.convert(record.event.payload, type=SubjectForgotten)
    assert payload.keys == keys
    assert [(origin, [number for number, _ in listed]) for origin, listed in payload.erased.items()] == [
        (plain.event.origin, [plain.event.origin_seq])
    ]
    assert SUBJECT not in str(record.event.payload) + str(receipt.note)
    assert record.event.origin == log.identity.origin


def test_everything_from_before_still_verifies(log: Log, tmp_path: Path) -> None:
    old = make_checkpoint(log, log.signing_key())
    proofs = [msgspec.json.encode(prove(log, f"#{at}", log.signing_key(), payload=True)) for at in (1, 3)]
    forget(log, SUBJECT, owned=owned(tmp_path))

    assert compare_with_log(log, parse_checkpoint(old.text)) is None
    for proof in proofs:
        assert check_proof(proof).author == log.identity.origin
    again = check_proof(msgspec.json.encode(prove(log, "#1", log.signing_key(), payload=False)))
    assert again.proof.leaf == check_proof(proofs[0]).proof.leaf
    assert log.verify().ok


def test_the_receipt_is_signed(log: Log, tmp_path: Path) -> None:
    (receipt,) = forget(log, SUBJECT, owned=owned(tmp_path))
    data = str(receipt.note).encode()
    key = log.signing_key()
    assert key is not None
    checked = check_receipt(data, key.public)
    assert (checked.log_id, checked.signed_by) == (log.identity.log_id, log.identity.origin)
    assert (checked.facts["erased"], checked.facts["found"], checked.facts["keys"]) == ("1", "0", 1)
    forgetting.compare_receipt(log, checked)
    with pytest.raises(BadFile):
        check_receipt(data.replace(b"erased 1", b"erased 2"))
    with pytest.raises(BadFile):
        check_receipt(data.split(b"\n\n")[0] + b"\n", key.public)


def test_a_receipt_counts_only_from_the_node_that_it_names(log: Log, tmp_path: Path) -> None:
    (receipt,) = forget(log, SUBJECT, owned=owned(tmp_path))
    other = PrivateKey.new()
    forged = sign(Note(receipt.note.text), other.public.origin, other)
    for note in (forged, Note(receipt.note.text)):
        with pytest.raises(BadFile, match="not signed by z6Mk"):
            check_receipt(str(note).encode())


def test_an_unsigned_log_gives_an_unsigned_receipt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    fill("sqlite:log.db")
    with open_shop("sqlite:log.db") as log:
        (receipt,) = forget(log, SUBJECT, owned=owned(tmp_path))
        assert receipt.note.signatures == ()
        assert check_receipt(str(receipt.note).encode()).signed_by == ""
        assert (log.verify().ok, log.verify().erased) == (True, 1)
    assert files_with(tmp_path, OPEN, SEALED) == []


def test_nobody_is_forgotten_twice(log: Log, tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        forget(log, "c/9", owned=owned(tmp_path))
    forget(log, SUBJECT, owned=owned(tmp_path))
    head = log.head()
    with pytest.raises(NotFound):
        find(log, SUBJECT)
    assert log.head() == head


def test_a_person_who_comes_back_gets_a_new_key(log: Log, tmp_path: Path) -> None:
    forget(log, SUBJECT, owned=owned(tmp_path))
    register(log, SUBJECT, "new@example.org")
    assert [one.event.payload.get("email") for one in log.read(stream="customer/1")] == [
        None,
        "[sealed]",
        "[sealed]",
        "new@example.org",
    ]
    (again,) = forget(log, SUBJECT, owned=owned(tmp_path))
    assert (again.forget.number, again.forget.erased) == (2, 0)
    assert log.verify().ok


def test_status_lists_the_records(log: Log, tmp_path: Path) -> None:
    assert status(log) == []
    (receipt,) = forget(log, SUBJECT, owned=owned(tmp_path))
    (asked,) = status(log)
    assert (asked.record, asked.keys, asked.erased, asked.here) == (receipt.forget.records[0], 1, 1, True)
    assert asked.nodes == [log.identity.origin]
    assert asked.receipt == str(receipt.note)


@pytest.mark.parametrize("step", STEPS)
def test_a_killed_forget_is_finished_by_the_next_one(url: str, step: str, tmp_path: Path) -> None:
    with open_shop(url) as log:
        log.view(Emails).catch_up()
        log.view(Emails).snapshot()
        old = make_checkpoint(log, log.signing_key())
    killed = forget_in_a_process(url, step, tmp_path)
    assert killed.returncode == -9, killed.stderr
    with open_shop(url) as log:
        assert log.verify().ok
        assert is_unfinished(log) == (step != "note")
        done = finish(log, owned=owned(tmp_path)) if step != "note" else forget(log, SUBJECT, owned=owned(tmp_path))
        assert [(one.forget.erased, one.searched.found) for one in done] == [(1, [])]
        assert files_with(tmp_path, OPEN, SEALED) == []
        assert log.view(Emails).get("customer/1").state == {"email": "[sealed]"}
        assert (log.verify().ok, log.verify().erased) == (True, 1)
        assert compare_with_log(log, parse_checkpoint(old.text)) is None
        assert len(status(log)) == 1
        assert not is_unfinished(log)
    assert files_with(tmp_path, OPEN, SEALED) == []


def forget_in_a_process(url: str, until: str, folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.application.trust.forgetting", url, until]
    env = {"PYTHONPATH": f"{ROOT / 'src'}:{ROOT}", "PATH": "/usr/bin:/bin"}
    env |= {name: value for name, value in os.environ.items() if name == "EVERLOG_KEYS_FOLDER"}
    return subprocess.run(command, cwd=folder, env=env, timeout=120, capture_output=True, text=True)


@pytest.mark.parametrize("part", range(8))
def test_a_forget_that_is_killed_before_any_change_of_a_file_is_finished(url: str, part: int, tmp_path: Path) -> None:
    """At some of the changes that a whole forget makes. SQLite changes its own file by itself."""
    saved = tmp_path / "saved"
    shutil.copytree(tmp_path, saved, ignore=shutil.ignore_patterns("saved"))
    changes = int(forget_in_a_process(url, "", saved).stdout)
    shutil.rmtree(saved)
    # The copy takes a new key, which costs it some changes more.
    killed = forget_in_a_process(url, str(1 + part * changes // 10), tmp_path)
    assert killed.returncode == -9, killed.stderr
    with open_shop(url) as log:
        assert log.verify().ok
        if not finish(log, owned=owned(tmp_path)) and not status(log):
            forget(log, SUBJECT, owned=owned(tmp_path))
        (asked,) = status(log)
        assert (asked.erased, "\nfound 0\n" in asked.receipt) == (1, True)
        assert (log.verify().ok, log.verify().erased, len(status(log))) == (True, 1, 1)
    assert files_with(tmp_path, OPEN, SEALED) == []


def test_a_process_that_opens_the_log_warns_of_an_unfinished_forget(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.chdir(tmp_path)
    fill("sqlite:log.db")
    forget_in_a_process("sqlite:log.db", "record", tmp_path)
    with open_shop("sqlite:log.db") as log:
        assert "the next write finishes it" in caplog.text
        finish(log, owned=owned(tmp_path))
    caplog.clear()
    open_shop("sqlite:log.db").close()
    assert caplog.text == ""


@pytest.mark.parametrize("step", STEPS[1:])
def test_a_program_that_writes_finishes_a_killed_forget(url: str, step: str, tmp_path: Path) -> None:
    assert forget_in_a_process(url, step, tmp_path).returncode == -9
    with open_shop(url) as log:
        head = log.head()
        list(log.read())
        assert (is_unfinished(log), log.head()) == (True, head)  # a program that only reads leaves it
        register(log, "c/3", "somebody.else@example.org")
        assert not is_unfinished(log)
        (asked,) = status(log)
        assert "\nfound 0\n" in asked.receipt
        assert (log.verify().ok, log.verify().erased) == (True, 1)
    assert files_with(tmp_path, OPEN, SEALED) == []


@pytest.mark.parametrize("step", STEPS[1:])
def test_a_killed_forget_in_postgresql_is_finished_by_the_next_write(
    postgres_url: str, step: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("EVERLOG_KEYS_FOLDER", str(tmp_path / "keys"))
    fill(postgres_url, signed=True)
    assert forget_in_a_process(postgres_url, step, tmp_path).returncode == -9
    with open_shop(postgres_url) as log:
        register(log, "c/3", "somebody.else@example.org")
        assert not is_unfinished(log)
        (asked,) = status(log)
        assert "\nfound 0\n" in asked.receipt
        assert (log.verify().ok, log.verify().erased) == (True, 1)
        stored = [slot.payload for slot in log.stored.slots() if isinstance(slot, Packed)]
        assert stored
        assert not any(value.encode() in payload for value in (OPEN, SEALED) for payload in stored)
    assert files_with(tmp_path, OPEN, SEALED) == []


def test_a_task_that_writes_finishes_a_killed_forget(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    fill("sqlite:log.db")
    forget_in_a_process("sqlite:log.db", "record", tmp_path)
    payload = {"customer": "c/3", "email": "somebody.else@example.org"}
    with open_shop("sqlite:log.db") as log:
        asyncio.run(everlog.aio.append(log, "customer.registered", stream="customer/3", payload=payload))
        assert not is_unfinished(log)
    assert files_with(tmp_path, OPEN, SEALED) == []


def test_a_value_that_was_recorded_while_the_log_was_searched_is_in_no_view(log: Log, tmp_path: Path) -> None:
    """Another process goes on: what it seals with the key, on a stream that the search did not see, is followed."""
    late = "late.value@example.org"
    log.view(Emails).catch_up()

    def go_on(step: str) -> None:
        if step == "keys":
            log.append("customer.registered", stream="customer/77", payload={"customer": SUBJECT, "email": late})
            assert log.view(Emails).get("customer/77").state == {"email": late}

    (receipt,) = forget(log, SUBJECT, owned=owned(tmp_path), on_step=go_on)
    assert "customer/77" in receipt.forget.streams
    assert log.view(Emails).get("customer/77").state == {"email": "[sealed]"}
    assert not files_with(tmp_path, late)

"""Files of other programs: filled the same everywhere, refused with their line."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.transfer.foreign import CLI, CONTROL, EVERY, LIFECYCLE, STATUS, text
from tests.transfer.test_exporting import a_log, bytes_of, imported, source, text_of

from everlog.errors import BadFile, NewerFormat
from everlog.testing.copy_contract import a_full_log
from everlog.transfer import lines
from everlog.transfer.import_pass import Options, Source
from everlog.transfer.importing import import_files, passes
from everlog.wiring import open

SOURCE = Path(__file__).resolve().parents[2] / "src"


def refused(data: bytes, **options: Any) -> str:
    """Why a file is refused. Nothing of it may be in the log."""
    log = a_log()
    with pytest.raises(BadFile) as caught:
        imported(log, data, **options)
    assert (log.head(), log._store.ends().clock) == (0, 0)
    return caught.value.why


# ---- the same everywhere


def test_two_machines_import_the_same_events() -> None:
    """F71: same ids, same chain, same digest, however the file is written down."""
    one_, other = a_log(), a_log()
    first = imported(one_, text(*EVERY))
    pretty = b"[" + b",".join(json.dumps(dict(reversed(item.items())), indent=2).encode() for item in EVERY) + b"]"
    second = imported(other, pretty)

    assert first.digest == second.digest == one_.verify().digest == other.verify().digest
    assert bytes_of(one_._store) == bytes_of(other._store)


def test_the_fill_is_the_one_of_the_first_day() -> None:
    """It may never change: a log that was filled by another rule would be another history."""
    assert imported(a_log(), text(*EVERY)).digest == FILLED
    assert imported(a_log(), text(*EVERY), namespace="shop").digest == FILLED_IN_SHOP


FILLED = "9c63ec3ce4269f52f77d828de486754416acd8020721eeb676240678e3dbcbc4"
FILLED_IN_SHOP = "4bc7728b93becf0eefbce37f527ddb0c822ba9a80727d3223a9d1b5da83cb2b9"


def test_importing_twice_adds_nothing() -> None:
    log = a_log()
    first, again = imported(log, text(*EVERY)), imported(log, text(*EVERY))
    assert (first.new, again.new, again.known, log.head()) == (7, 0, 7, 7)


def test_a_file_that_grew_adds_what_is_new() -> None:
    log, at_once = a_log(), a_log()
    imported(log, text(*EVERY[:3]))
    assert imported(log, text(*EVERY)).new == 4
    imported(at_once, text(*EVERY))
    assert bytes_of(log._store) == bytes_of(at_once._store)


def test_files_are_imported_in_order_as_one() -> None:
    log, at_once = a_log(), a_log()
    import_files(log, [source(text(*EVERY[:3]), "a"), source(text(*EVERY[3:]), "b")])
    imported(at_once, text(*EVERY))
    assert bytes_of(log._store) == bytes_of(at_once._store)


def test_a_line_that_stands_there_twice_is_one_event() -> None:
    """A merge of two branches leaves such lines behind."""
    log = a_log()
    result = imported(log, text(STATUS, CONTROL, STATUS, CONTROL))
    assert (result.events, result.repeated, log.head()) == (2, 2, 2)
    assert bytes_of(log._store) == bytes_of(log_of(text(STATUS, CONTROL))._store)


def log_of(data: bytes) -> Any:
    log = a_log()
    imported(log, data)
    return log


def test_a_namespace_keeps_two_files_with_the_same_beginning_apart() -> None:
    log = a_log()
    imported(log, text(CONTROL))
    assert imported(log, text(CONTROL), namespace="other").new == 1
    assert len({recorded.event.origin for recorded in log.read()}) == 2


def test_a_dry_run_records_nothing_and_says_what_it_would() -> None:
    log = a_log()
    imported(log, text(STATUS))
    result = imported(log, text(*EVERY), dry_run=True)
    assert (result.dry_run, result.new, result.known, log.head()) == (True, 6, 1, 1)


@pytest.mark.parametrize("options", [{}, {"new_ids": True}, {"dry_run": True}])
def test_progress_grows_to_the_size_of_what_is_read(options: dict[str, Any]) -> None:
    data, seen = text(*EVERY) * 3, list[int]()
    dry_run = options.pop("dry_run", False)
    chosen = Options(**options)
    import_files(a_log(), [source(data)], chosen, dry_run=dry_run, progress=seen.append)
    assert seen == sorted(seen)
    assert seen[-1] == passes(chosen, dry_run=dry_run) * len(data)


# ---- refused


@pytest.mark.parametrize(
    ("line", "told"),
    [
        (b"<<<<<<< HEAD", "unresolved merge"),
        (b"=======", "unresolved merge"),
        (b">>>>>>> theirs", "unresolved merge"),
        (b"{", "not JSON"),
        (b'{"a":1,"a":2}', "appears twice"),
        (b'{"a":NaN}', "NaN"),
        (b"\xff\xfe", "not UTF-8"),
        (b"17", "not an object"),
        (b"[]", "not an object"),
        (b"{}", "no known shape"),
        (b'{"a":' * 5000 + b"1" + b"}" * 5000, "nested deeper"),
        (json.dumps({**CLI, "event_id": "nonsense"}).encode(), "neither a ULID nor a UUID"),
        (json.dumps({**CLI, "event_id": "7ZZZZZZZZZZZZZZZZZZZZZZZZZ"}).encode(), "claims the time"),
        (json.dumps({**CLI, "timestamp": "yesterday"}).encode(), "not a time"),
        (json.dumps({**CLI, "payload": [1]}).encode(), "not an object"),
        (json.dumps({**CLI, "lamport_clock": 2**40}).encode(), "clock value"),
        (json.dumps({**CLI, "lamport_clock": -1}).encode(), "clock value"),
        (json.dumps({**CLI, "entity_id": "x" * 300}).encode(), "stream"),
        (json.dumps({**STATUS, "at": 17}).encode(), "not a time"),
        (json.dumps({**STATUS, "to_lane": "done"}).encode(), "stands above with other content"),
        (json.dumps({"specversion": "1.0", "id": "1"}).encode(), "no source"),
        (json.dumps({"kind": "event", "data": {"uid": 3}}).encode(), "kata"),
    ],
)
def test_a_bad_line_is_named_and_nothing_is_imported(line: bytes, told: str) -> None:
    why = refused(text(STATUS, LIFECYCLE) + line + b"\n" + text(CONTROL))
    assert "file:3: " in why
    if told != "kata":
        assert told in why, why


def test_every_bad_line_is_named_at_once() -> None:
    why = refused(b"{\n" + text(STATUS) + b"17\n\n}\n")
    assert [word for word in ("file:1:", "file:3:", "file:5:") if word not in why] == []


def test_a_line_that_is_too_long_is_refused_before_it_is_held(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "LINE_BYTES_MAX", 2_000)
    asked = 0

    def read(size: int, at: int) -> bytes:
        nonlocal asked
        asked += 1
        assert asked < 4, "the whole file is read"
        return b'{"a":"' + b"x" * size

    with pytest.raises(BadFile, match="wrong") as caught:
        import_files(a_log(), [Source("bomb", 2**40, read)])
    assert "bomb:1: it is longer than" in caught.value.why


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (b"[", "cut off"),
        (b"[{}", "cut off"),
        (b'[{"a":"]', "cut off"),
        (b"[{},]", "missing"),
        (b"[,{}]", "missing"),
        (b"[{}]\n{}", "after the end"),
    ],
)
def test_an_array_that_is_none_is_refused(data: bytes, told: str) -> None:
    assert told in refused(data)


@settings(max_examples=60)
@given(
    st.lists(
        st.recursive(st.none() | st.integers(0, 9) | st.text('a"\\\\{[]},\\n ', max_size=8), st.lists, max_leaves=5)
    )
)
def test_the_elements_of_an_array_are_those_that_a_parser_finds(items: list[Any]) -> None:
    """However it is laid out and however it is cut into pieces."""
    for data in (json.dumps(items).encode(), json.dumps(items, indent=1).encode()):
        for size in (1, 3, 1000):
            chunks = (data[at : at + size] for at in range(0, len(data), size))
            found = list(lines._elements(chunks))
            assert [json.loads(piece.data) for piece in found] == items
            assert [piece.line for piece in found] == sorted(piece.line for piece in found)


def test_an_empty_file_and_an_empty_array_hold_nothing() -> None:
    for data in (b"", b"\n\n", b"[]", b" [\n] \n", b"\xef\xbb\xbf"):
        assert imported(a_log(), data).events == 0


def test_types_that_are_not_in_the_catalog_can_be_refused() -> None:
    assert "not in this log's catalog" in refused(text(STATUS), keep_unknown_types=False)


def test_a_clock_far_ahead_is_accepted_on_the_operators_word() -> None:
    log = a_log()
    imported(log, text({**CLI, "lamport_clock": 2**40}), trust_clock=True)
    assert log._store.ends().clock > 2**40


def test_an_id_that_is_taken_by_other_content_is_refused_with_its_line() -> None:
    log = a_log()
    imported(log, text(CLI))
    with pytest.raises(BadFile) as caught:
        imported(log, text(STATUS, {**CLI, "actor": "somebody"}))
    assert "file:2: the id" in caught.value.why
    assert log.head() == 1


def test_an_event_that_was_purged_does_not_come_back() -> None:
    log = a_log()
    imported(log, text(CLI, STATUS))
    log.purge("workpackage/WP03", reason="asked to")
    head = log.head()
    with pytest.raises(BadFile) as caught:
        imported(log, text(CLI, STATUS))
    assert "file:1:" in caught.value.why
    assert "purged" in caught.value.why
    assert log.head() == head


def test_a_file_that_changes_while_it_is_imported_is_noticed() -> None:
    versions = [text(STATUS), text(STATUS), text(STATUS, CLI), text(STATUS, CLI)]
    reads = iter(range(99))

    def read(size: int, at: int) -> bytes:
        return versions[min(next(reads), 3)][at : at + size]

    with pytest.raises(BadFile, match="changed"):
        import_files(a_log(), [Source("file", 1, read)])


@settings(max_examples=150)
@given(st.data())
def test_whatever_a_file_holds_it_is_imported_or_refused(data: st.DataObject) -> None:
    """A file with some bytes changed, cut or repeated never ends in anything but these two."""
    whole = bytearray(
        data.draw(st.sampled_from([text(*EVERY), text_of(a_full_log())[:3000], b"[" + text(CLI) + b"]"]))
    )
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(whole) - 1))
        match data.draw(st.sampled_from(["flip", "cut", "put"])):
            case "flip":
                whole[place] = data.draw(st.integers(0, 255))
            case "cut":
                del whole[place : place + data.draw(st.integers(1, 30))]
            case _:
                whole[place:place] = data.draw(
                    st.sampled_from([b"\n", b'"', b"{", b"]", b"\\u0000", b"1e999", b"\x00"])
                )
        if not whole:
            break
    log = a_log()
    try:
        imported(log, bytes(whole))
    except (BadFile, NewerFormat):
        assert log.head() == 0
    assert log.verify().ok


@pytest.mark.parametrize("round_", range(2))
def test_a_killed_import_is_finished_by_the_same_command(tmp_path: Path, round_: int) -> None:
    """kill -9 at any moment: the same log in the end as without it."""
    objects = [{**CONTROL, "event_id": number, "payload": {"n": number}} for number in range(2500)]
    file = tmp_path / "events.jsonl"
    file.write_bytes(text(*objects))
    log = a_log()
    digest = import_files(log, [source(file.read_bytes())]).digest
    url = f"sqlite:{tmp_path}/log.db"
    open(url).close()
    command = [sys.executable, "-P", "-m", "everlog", "--log", url, "import", str(file)]
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
    for _ in range(3):
        process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(random.Random(round_).uniform(0.4, 1.0))
        process.send_signal(signal.SIGKILL)
        process.wait()
    subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL)
    with open(url, create=False) as found:
        report = found.verify()
        assert (report.ok, report.digest, report.events) == (True, digest, 2500)


def test_options_have_safe_defaults() -> None:
    assert Options() == Options(namespace="", keep_unknown_types=True, trust_clock=False)

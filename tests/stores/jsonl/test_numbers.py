"""Numbers that no honest log writes: in a line that came with git, and in clock.json (F58)."""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime
from pathlib import Path

import pytest
from tests.stores.jsonl.test_merge import a_purge, purged

from everlog.core.clock import JUMP_MAX, LAMPORT_MAX
from everlog.errors import ClockJump, Damaged
from everlog.stores.contract import encode_event
from everlog.stores.jsonl.lines import BadLine, ended, event_line, purge_line, purged_line, read_line
from everlog.stores.jsonl.store import JsonlStore
from everlog.testing.builders import event, seal_any, stamped
from everlog.testing.filling import append, positions

NOW = datetime(2026, 11, 15, tzinfo=UTC)


def own(store: JsonlStore) -> None:
    with store.open_write() as writer:
        writer.append([stamped(writer, store.identity.origin)], fresh=True)


@pytest.mark.parametrize("field", ["lamport", "origin_seq", "version"])
@pytest.mark.parametrize("value", [LAMPORT_MAX + 1, 2**63, 2**64, -1])
def test_a_line_with_a_number_that_is_not_possible_is_set_aside_and_named(
    tmp_path: Path, field: str, value: int
) -> None:
    store = JsonlStore(tmp_path / "log")
    own(store)
    store.close()
    (file,) = (tmp_path / "log" / "events").iterdir()
    line = event_line(seal_any(), NOW).replace(b"\n", b"")
    said = {**json.loads(line), field: value}
    del said["xsum"]
    with file.open("ab") as handle:
        handle.write(_ended(said))

    again = JsonlStore(tmp_path / "log")
    assert positions(again.read(limit=1)) == [1]
    with pytest.raises(Damaged, match="damaged at position 2"):
        list(again.read())
    (problem,) = again.check()
    assert problem.code == "line_unreadable"
    assert problem.reason.startswith(f"events/{file.name} line 2: ")
    assert field in problem.reason
    with pytest.raises(Damaged, match="takes no writes"):
        own(again)
    again.close()


def _ended(said: dict[str, object]) -> bytes:
    return ended(json.dumps(said, separators=(",", ":"), sort_keys=True).encode())


@pytest.mark.parametrize(
    ("kind", "field"), [("purged", "origin_seq"), ("purged", "lamport"), ("purged", "sequence"), ("purge", "lamport")]
)
def test_so_is_what_a_purge_left(kind: str, field: str) -> None:
    line = purged_line(purged(seal_any())) if kind == "purged" else purge_line(a_purge())
    said = json.loads(line)
    del said["xsum"]
    said[kind][field] = 2**63
    with pytest.raises(BadLine, match="<= 9007199254740991"):
        read_line(_ended(said)[:-1])


@pytest.mark.parametrize("value", [JUMP_MAX + 3, LAMPORT_MAX, 2**63 - 1, 2**70])
def test_a_clock_file_that_is_too_far_ahead_is_ignored_and_told(
    tmp_path: Path, value: int, caplog: pytest.LogCaptureFixture
) -> None:
    store = JsonlStore(tmp_path / "log")
    append(store, seal_any(lamport=2))
    store.close()
    (tmp_path / "log" / "clock.json").write_text(f'{{"last_updated":"","value":{value}}}\n')
    again = JsonlStore(tmp_path / "log")
    with caplog.at_level(logging.WARNING, "everlog"), again.open_write() as writer:
        assert writer.tick() == 3
    assert f"says {value}, the log knows of 2: it is ignored" in caplog.text
    again.close()


def test_a_clock_file_that_is_a_little_ahead_counts(tmp_path: Path) -> None:
    """It keeps what was seen of others and stands in no event here."""
    store = JsonlStore(tmp_path / "log")
    append(store, seal_any(lamport=2))
    (tmp_path / "log" / "clock.json").write_text(f'{{"last_updated":"","value":{JUMP_MAX + 2}}}\n')
    assert store.ends().clock == JUMP_MAX + 2
    store.close()


def test_a_log_whose_clock_came_to_its_end_writes_nothing_that_it_could_not_read(tmp_path: Path) -> None:
    store = JsonlStore(tmp_path / "log")
    own(store)
    (file,) = (tmp_path / "log" / "events").iterdir()
    with file.open("ab") as handle:
        handle.write(event_line(encode_event(event(lamport=LAMPORT_MAX)), NOW))
    data = file.read_bytes()
    with pytest.raises(ClockJump, match="stands at its end"):
        own(store)
    assert (file.read_bytes(), positions(store.read()), list(store.check())) == (data, [1, 2], [])
    store.close()

"""What the index makes of files that git has merged: every line once, at its place, whatever the files look like."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.conftest import Clock

from everlog.core.event import Position
from everlog.core.ids import EventId
from everlog.log.verify.verify import verify
from everlog.stores.jsonl.lines import PurgedLine, PurgeLine, event_line, purge_line, purged_line, read_line
from everlog.stores.jsonl.merge import merge_day_files
from everlog.stores.jsonl.store import JsonlStore
from everlog.testing.builders import NOON, Chain, seal_any, stamped

DAY_US = 86_400_000_000


@pytest.fixture
def store(tmp_path: Path, clock: Clock) -> JsonlStore:
    return JsonlStore(tmp_path / "log", now_us=clock)


def own(store: JsonlStore, text: str, stream: str = "note/1") -> None:
    with store.open_write() as writer:
        made = stamped(writer, store.identity.origin, stream=stream, payload={"text": text})
        writer.append([made], fresh=True)


def texts(store: JsonlStore) -> list[str]:
    return [recorded.event.payload["text"] for recorded in store.read()]


def day_file(store: JsonlStore, number: int = 0) -> Path:
    return sorted((store.path / "events").iterdir())[number]


def problems(store: JsonlStore) -> list[str]:
    return [problem.code for problem in verify(store).problems]


def rewrite(path: Path, data: bytes) -> None:
    """In place: the file keeps its number, as a file that git puts in the place of another may get it again."""
    before = path.stat()
    path.write_bytes(data)
    assert path.stat().st_ino == before.st_ino


def test_a_merged_file_that_looks_as_if_it_only_grew_is_read_as_a_whole(store: JsonlStore) -> None:
    own(store, "a")
    own(store, "secret", stream="person/1")
    with store.open_write() as writer:
        writer.purge("person/1", actor="user:ada", reason="asked to")
    path = day_file(store)
    *before, ours = path.read_bytes().splitlines(keepends=True)
    said = read_line(ours[:-1])
    assert isinstance(said, PurgeLine)
    theirs = purge_line(
        PurgeLine(
            actor=said.actor,
            id=EventId(said.id[:-1] + ("1" if said.id[-1] == "0" else "0")),  # another one, of the same length
            origin="0" * 26,
            purged_at=said.purged_at,
            reason=said.reason,
            scopes=said.scopes,
            stream=said.stream,
            lamport=said.lamport,
        )
    )
    assert len(theirs) == len(ours)  # so a line ends where the file ended

    rewrite(path, b"".join([*before, theirs, ours]))

    assert len(store.purges()) == 2
    assert problems(store) == []


def test_a_file_that_only_grew_keeps_its_lines_while_another_one_is_merged(store: JsonlStore, clock: Clock) -> None:
    own(store, "a")
    clock.us += DAY_US
    own(store, "b")
    first, second = day_file(store, 0), day_file(store, 1)
    other = Chain("01TESTORGN000000000000000B")
    one, two = (event_line(other.next(payload={"text": text}), NOON) for text in ("x", "y"))

    rewrite(first, one + first.read_bytes())
    rewrite(second, second.read_bytes() + two)

    assert texts(store) == ["a", "b", "x", "y"]
    assert problems(store) == []
    own(store, "c")  # nothing is missed, so it takes writes


def test_a_line_that_came_twice_at_once_is_one_event(store: JsonlStore) -> None:
    own(store, "a")
    path = day_file(store)
    new = event_line(seal_any(payload={"text": "x"}), NOON)
    rewrite(path, path.read_bytes() + new + new)
    assert texts(store) == ["a", "x"]

    newer = event_line(seal_any(payload={"text": "y"}), NOON)
    rewrite(path, newer + path.read_bytes() + newer)
    assert texts(store) == ["a", "x", "y"]
    assert store.head() == Position(3)
    assert problems(store) == []


@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("purged_first", [False, True])
def test_what_a_purge_left_wins_over_the_event_that_a_merge_of_text_kept(
    store: JsonlStore, known: bool, purged_first: bool
) -> None:
    own(store, "a")
    path = day_file(store)
    sealed = seal_any(payload={"text": "secret"}, stream="person/1")
    event = sealed.event
    line = event_line(sealed, NOON)
    purge = PurgeLine(
        actor="user:ada",
        id="01HN3R5K8D000000000000000A",
        origin="0" * 26,
        purged_at=NOON,
        reason="asked to",
        scopes=("",),
        stream="person/1",
        lamport=event.lamport,
    )
    left = purged_line(
        PurgedLine(
            hash=sealed.hash,
            id=event.id,
            origin=event.origin,
            origin_seq=event.origin_seq,
            previous=event.previous,
            purge=purge.id,
            stream=event.stream,
            lamport=event.lamport,
        )
    )
    if known:
        rewrite(path, path.read_bytes() + line)
        assert texts(store) == ["a", "secret"]
    both = left + line if purged_first else line + left
    rewrite(path, path.read_bytes().replace(line, b"") + both + purge_line(purge))

    assert texts(store) == ["a"]
    assert problems(store) == ["purged_came_back"]

    rewrite(path, merge_day_files(path.name, path.read_bytes(), b""))  # the driver puts it right
    assert b"secret" not in path.read_bytes()
    assert texts(store) == ["a"]
    assert problems(store) == []


def test_the_clock_of_a_purge_comes_from_what_it_knew(store: JsonlStore) -> None:
    own(store, "a")
    own(store, "secret", stream="person/1")
    own(store, "b")
    with store.open_write() as writer:
        writer.purge("person/1", actor="user:ada", reason="asked to")
    own(store, "c")
    path = day_file(store)
    found = [read_line(line) for line in path.read_bytes().splitlines()]
    assert [line.lamport for line in found] == [1, 2, 3, 3, 4]
    assert merge_day_files(path.name, path.read_bytes(), b"") == path.read_bytes()  # it is in order as it is

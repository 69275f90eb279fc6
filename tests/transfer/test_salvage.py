"""What is left of a damaged log can be taken out of it, with the places of what is lost."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.postgres_schemas import Schemas
from tests.support.sqlite_edits import edit

import everlog
from everlog.catalog.builtin import BUILT_IN
from everlog.core.event import Position, Recorded
from everlog.errors import Damaged
from everlog.log.log import Log
from everlog.stores.memory import MemoryStore
from everlog.transfer.exporting import Export, Format
from everlog.wiring import open_store

EVENTS = 9
WORD = "damage-me"


def of_sqlite(path: Path) -> None:
    edit(path, f"UPDATE events SET header = substr(header, 1, 40) WHERE payload LIKE '%{WORD}%'")  # noqa: S608


def of_payload(path: Path) -> None:
    """A falsified event that can be read."""
    edit(path, f"UPDATE events SET payload = replace(payload, '{WORD}', '{WORD.upper()}')")  # noqa: S608


def of_jsonl(path: Path) -> None:
    """A line that the store sets aside, and passes over."""
    (day,) = (path / "events").glob("*.jsonl")
    day.write_bytes(day.read_bytes().replace(WORD.encode(), WORD.upper().encode()))


def of_segments(path: Path) -> None:
    (segment,) = (path / "segments").glob("*.seg")
    data = segment.read_bytes()
    segment.write_bytes(data.replace(WORD.encode(), WORD.upper().encode()))


DAMAGE: dict[str, tuple[str, Callable[[Path], None]]] = {
    "sqlite": ("sqlite:{}", of_sqlite),
    "sqlite, falsified": ("sqlite:{}", of_payload),
    "jsonl": ("jsonl:{}", of_jsonl),
    "segments": ("segments:{}", of_segments),
}


@pytest.fixture(params=sorted(DAMAGE))
def damaged(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of a log whose fifth event, and no other, cannot be read."""
    form, spoil = DAMAGE[request.param]
    url = form.format(tmp_path / "log")
    with everlog.open(url, actor="user:ada") as log:
        for number in range(1, EVENTS + 1):
            text = WORD if number == 5 else f"note {number}"
            log.append("note.added", stream=f"note/{number % 2}", payload={"text": text})
    spoil(tmp_path / "log")
    return url


def exported(url: str, *, past_damage: bool = False) -> tuple[list[int], Export, bytes]:
    store = open_store(url, base=Path(), create=False)
    try:
        export = Export(store, Format.EVERLOG, past_damage=past_damage)
        *lines, end = list(export.pieces())[1:]
        return [json.loads(line)["position"] for line in lines], export, end
    finally:
        store.close()


def test_a_damaged_log_is_not_exported_as_if_it_were_whole(damaged: str) -> None:
    with pytest.raises(Damaged):
        exported(damaged)


def test_what_can_be_read_on_both_sides_of_the_damage_is_exported_and_the_end_says_what_is_lost(damaged: str) -> None:
    positions, export, end = exported(damaged, past_damage=True)
    assert positions == [1, 2, 3, 4, 6, 7, 8, 9]
    assert export.lost == [(Position(5), Position(5))]
    assert json.loads(end)["everlog_end"]["lost"] == [[5, 5]]


def test_a_sound_log_has_lost_nothing_and_its_export_says_nothing_of_it(tmp_path: Path) -> None:
    url = f"sqlite:{tmp_path / 'log'}"
    with everlog.open(url) as log:
        log.append("note.added", stream="note/1", payload={"text": "hello"})
    assert exported(url, past_damage=True)[2] == exported(url)[2]


def test_damage_that_does_not_say_where_it_is_ends_the_export(damaged: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self: Export, after: Position) -> object:
        raise Damaged("the file cannot be opened")

    monkeypatch.setattr(Export, "_read", broken)
    with pytest.raises(Damaged):
        exported(damaged, past_damage=True)


@pytest.mark.parametrize(
    ("passed_over", "lost"),
    [
        ({1}, [(1, 1)]),
        ({EVENTS}, [(EVENTS, EVENTS)]),
        ({3, 4, 5}, [(3, 5)]),
        ({1, 4, 5, EVENTS}, [(1, 1), (4, 5), (EVENTS, EVENTS)]),
        (set(range(1, EVENTS + 1)), [(1, EVENTS)]),
    ],
)
def test_what_a_store_passes_over_is_lost_wherever_it_stands(
    passed_over: set[int], lost: list[tuple[int, int]]
) -> None:
    class PassesOver(MemoryStore):
        def read(self, *args: Any, **options: Any) -> Iterator[Recorded]:
            return (one for one in super().read(*args, **options) if one.position not in passed_over)

    store = PassesOver()
    with Log(store, BUILT_IN) as log:
        for number in range(EVENTS):
            log.append("note.added", stream="note/1", payload={"text": f"note {number}"})
        with pytest.raises(Damaged, match="damaged at position"):
            list(Export(store, Format.EVERLOG).pieces())
        export = Export(store, Format.EVERLOG, past_damage=True)
        list(export.pieces())
        assert (export.lost, export.count) == (lost, EVENTS - len(passed_over))


def test_a_falsified_event_of_postgres_is_not_exported(postgres_url: str, postgres_schemas: Schemas) -> None:
    with everlog.open(postgres_url, actor="user:ada") as log:
        for text in ("a", WORD, "c", "d"):
            log.append("note.added", stream="note/1", payload={"text": text})
    with postgres_schemas.connect(postgres_url) as owner:
        owner.execute("ALTER TABLE events DISABLE TRIGGER USER")
        owner.execute("UPDATE events SET payload = replace(payload::text, 'damage-me', 'DAMAGE-ME')")
        owner.execute("ALTER TABLE events ENABLE TRIGGER USER")
    with pytest.raises(Damaged):
        exported(postgres_url)
    positions, export, _ = exported(postgres_url, past_damage=True)
    assert (positions, export.lost) == ([1, 3, 4], [(2, 2)])


@pytest.mark.parametrize("form", ["sqlite:{}", "jsonl:{}", "segments:{}"])
def test_what_a_purge_took_away_is_not_lost(tmp_path: Path, form: str) -> None:
    url = form.format(tmp_path / "log")
    with everlog.open(url, actor="user:ada") as log:
        for number in range(6):
            log.append("note.added", stream=f"note/{number % 3}", payload={"text": f"note {number}"})
        log.purge("note/1", reason="asked to")
        log.append("note.added", stream="note/0", payload={"text": "after"})
        log.purge("note/2", reason="asked to")
    for past_damage in (False, True):
        positions, export, _ = exported(url, past_damage=past_damage)
        assert (positions, export.lost) == ([1, 4, 8], [])

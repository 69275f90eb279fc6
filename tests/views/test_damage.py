"""A view and a consumer stop before damage: no cursor passes it, and what is kept lacks nothing (G10)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.support import damage

from everlog import aio, wiring
from everlog.consumers.group import Group
from everlog.core.query import Query
from everlog.errors import Damaged, EverlogError
from everlog.log.log import Log

KINDS = {"sqlite": "sqlite:{}/log.db", "jsonl": "jsonl:{}/log", "segments": "segments:{}/log"}
LOST = 6
EVENTS = 10


def _fill(log: Log) -> None:
    for number in range(1, EVENTS + 1):
        text = "the-one-that-is-lost" if number == LOST else f"note {number}"
        log.append("note.added", stream=f"note/{number}", payload={"text": text})


def _hurt(folder: Path) -> Callable[[], None]:
    """Make one event unreadable, wherever it is; the answer makes it readable again."""
    found: list[tuple[Path, int]] = []
    for path in folder.rglob("*"):
        if path.is_file() and path.name not in ("views.db", "index.db"):
            place = path.read_bytes().find(b"the-one-that-is-lost")
            if place >= 0:
                found.append((path, place - 1))  # the quote before it, where there is one
    assert found

    def flip() -> None:
        for path, place in found:
            damage.flip(path, at=place, bit=1)

    flip()
    return flip


@pytest.fixture(params=KINDS)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    found = KINDS[request.param].format(tmp_path)
    with wiring.open(found) as log:
        _fill(log)
    return found


def test_a_view_keeps_what_comes_before_the_damage_and_says_that_it_is_stopped(url: str, tmp_path: Path) -> None:
    mend = _hurt(tmp_path)
    for _ in range(2):  # also when it is opened again
        with wiring.open(url) as log:
            with pytest.raises(Damaged) as raised:
                list(log.view("streams").items())
            assert raised.value.details["position"] == LOST
            assert raised.value.details["after"] == LOST
            assert log.view("streams").position() < LOST
            with pytest.raises(Damaged):
                log.view("streams").rebuild()
            with pytest.raises(Damaged):
                log.view("streams").get(f"note/{LOST}", as_of=EVENTS)
            with pytest.raises(EverlogError):
                log.view("streams").snapshot()
            assert log.view("streams").get("note/1", as_of=LOST - 1).found
    mend()
    with wiring.open(url) as log:
        assert len(list(log.view("streams").items())) == EVENTS


def test_what_is_folded_past_damage_is_not_kept(url: str, tmp_path: Path) -> None:
    _hurt(tmp_path)
    left_out: list[Damaged] = []
    with wiring.open(url, past_damage=left_out.append) as log:
        assert len(list(log.view("streams").items())) == EVENTS - 1
        assert {error.details["position"] for error in left_out} == {LOST}
        with pytest.raises(EverlogError):
            log.view("streams").snapshot()
    with wiring.open(url) as log, pytest.raises(Damaged):
        list(log.view("streams").items())


def test_a_consumer_gets_what_comes_before_and_its_cursor_does_not_pass(url: str, tmp_path: Path) -> None:
    mend = _hurt(tmp_path)
    seen: list[int] = []

    def take(log: Log) -> None:
        with Group(log, "readers", Query(kind="note")).member("one") as member:
            for delivery in member.deliveries(to_end=True):
                seen.append(delivery.recorded.position)
                delivery.ack()

    with wiring.open(url) as log, pytest.raises(EverlogError) as raised:
        take(log)
    assert raised.value.code == "damaged"
    assert all(position < LOST for position in seen)
    mend()
    with wiring.open(url) as log:
        take(log)
    assert sorted(seen) == list(range(1, EVENTS + 1))


def test_the_event_store_of_asyncio_gives_what_comes_before(url: str, tmp_path: Path) -> None:
    _hurt(tmp_path)

    async def replay(log: Log) -> list[int]:
        found: list[int] = []
        with pytest.raises(Damaged) as raised:
            async for recorded in aio.EventStore(log).replay_from():
                found += [recorded.position]
        assert raised.value.details["after"] == LOST
        return found

    with wiring.open(url) as log:
        assert asyncio.run(replay(log)) == list(range(1, LOST))

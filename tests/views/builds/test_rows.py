"""Rows and records of views carry checksums: what was damaged is noticed, folded again and reported."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace
from tests.views.conftest import ALL, ByActor, Causal, Everything, Said, Total
from tests.views.said import from_nothing, say

from everlog.errors import Damaged, ReadOnly
from everlog.log.log import Log
from everlog.views.builds.build import BUILDS, VIEWS, Build
from everlog.views.builds.content import put_rows
from everlog.views.builds.rows import Row, begin, kept_of, kept_parts, row_bytes, row_matches
from everlog.views.fold import fold_all
from everlog.views.live import LiveView
from everlog.views.registry import live_view, views_of
from everlog.views.snapshots.body import take
from everlog.views.view import Text, View

Hurt = Callable[[Log, Build, str], bytes]

every_store = pytest.mark.parametrize("kind", ["memory", "sqlite", "jsonl", "segments", "postgresql"])


@pytest.fixture(params=["sqlite", "jsonl"])
def kind(request: pytest.FixtureRequest) -> str:
    """The small_state in the log's own database, and as a file beside the log; some tests ask for `every_store`."""
    return str(request.param)


def _build(handle: LiveView) -> Build:
    found = handle.build()
    assert found is not None
    return found


def _raw(log: Log, space: str, key: str) -> bytes:
    found = log.views.small_state.get(space, key)
    assert found is not None
    return found


def put_raw(log: Log, space: str, key: str, data: bytes | None) -> None:
    with log.views.small_state.change() as change:
        change.put(space, {key: data})


def _in_the_state(log: Log, build: Build, key: str) -> bytes:
    data = bytearray(_raw(log, build.rows, key))
    at = data.index(b'"count":') + len(b'"count":')
    data[at] ^= 1
    return bytes(data)


def _in_the_count(log: Log, build: Build, key: str) -> bytes:
    data = bytearray(_raw(log, build.rows, key))
    data[1] ^= 1
    return bytes(data)


def _of_another_key(log: Log, build: Build, key: str) -> bytes:
    other = next(name for name, _ in log.views.small_state.scan(build.rows) if name != key)
    return _raw(log, build.rows, other)


def _of_another_build(log: Log, build: Build, key: str) -> bytes:
    row = kept_of(*kept_parts(_raw(log, build.rows, key))[:4], b'{"count":99,"values":[]}')
    with log.views.small_state.change() as change:
        put_rows(change, Said(), replace(build, number=77), {key: row})
    return _raw(log, f"{build.name}#77", key)


def _without_a_checksum(log: Log, build: Build, key: str) -> bytes:
    return kept_of(*kept_parts(_raw(log, build.rows, key))[:4], b'{"count":99,"values":[]}')


HURTS: dict[str, Hurt] = {
    "a bit of the state": _in_the_state,
    "a bit of the count": _in_the_count,
    "a row of another key": _of_another_key,
    "a row of another build": _of_another_build,
    "no checksum": _without_a_checksum,
    "cut off": lambda log, build, key: _raw(log, build.rows, key)[:-7],
    "longer": lambda log, build, key: _raw(log, build.rows, key) + b"\x00",
    "garbage": lambda log, build, key: b"\xff\x00garbage" * 5,
    "empty": lambda log, build, key: b"",
}

READS: dict[str, Callable[[LiveView, str], Any]] = {
    "get": lambda handle, key: {key: handle.get(key).state},
    "stale": lambda handle, key: {key: handle.get(key, fresh=False).state},
    "get_many": lambda handle, key: handle.get_many([key]),
    "items": lambda handle, key: dict(handle.items()),
    "digest": lambda handle, key: handle.digest() and {},
    "snapshot": lambda handle, key: take(handle._small_state, handle.current()) and {},
}


def _filled(log: Log, view: type[View] = Said) -> LiveView:
    for number in range(9):
        say(log, number, stream=f"thing/{number % 3}", actor=f"user:a{number % 2}")
    handle = live_view(log, view)
    handle.catch_up()
    return handle


def _true(log: Log, handle: LiveView) -> dict[str, Any]:
    return fold_all(handle.view, log._store.read(), upcast=log.catalog.upcast)


@pytest.mark.parametrize("hurt", HURTS.values(), ids=HURTS.keys())
def test_a_damaged_row_is_folded_again_and_reported(log: Log, hurt: Hurt, caplog: pytest.LogCaptureFixture) -> None:
    handle = _filled(log)
    put_raw(log, _build(handle).rows, "thing/1", hurt(log, _build(handle), "thing/1"))

    with caplog.at_level(logging.WARNING, "everlog"):
        assert handle.get("thing/1").state == _true(log, handle)["thing/1"]

    assert [record.getMessage() for record in caplog.records if "thing/1" in record.getMessage()]
    assert (_build(handle).mended, handle.audit().ok) == (1, True)
    assert [one.mended for one in log.views.overviews() if one.view == "said"] == [1]
    caplog.clear()
    assert handle.digest() == from_nothing(log, Said)
    assert not caplog.records, "it is reported once"


@pytest.mark.parametrize("read", READS.values(), ids=READS.keys())
@pytest.mark.parametrize("view", ALL, ids=lambda view: view.name)
def test_every_way_to_read_notices_a_damaged_row(
    make_log: Callable[..., Log], view: type[View], read: Callable[[LiveView, str], Any]
) -> None:
    log = make_log("sqlite")
    handle = _filled(log, view)
    key = next(handle.items())[0]
    put_raw(log, _build(handle).rows, key, b"\xff" * 40)

    true = _true(log, handle)
    assert [name for name, state in read(handle, key).items() if state != true[name]] == []
    assert _build(handle).mended == 1
    assert handle.digest() == from_nothing(log, view)


@pytest.mark.parametrize("view", ALL, ids=lambda view: view.name)
def test_no_event_is_folded_onto_a_damaged_row(log: Log, view: type[View]) -> None:
    handle = _filled(log, view)
    for key, _ in list(handle.items()):
        put_raw(log, _build(handle).rows, key, b"\xff" * 40)
    handle.current().reload()  # as another process would find it
    say(log, "later", stream="thing/1", actor="user:a0")
    assert handle.digest() == from_nothing(log, view)
    assert handle.audit().ok


def test_a_search_returns_no_damaged_state(make_log: Callable[..., Log]) -> None:
    class Found(Said):
        name = "found"

        def text(self, state: Any) -> Text | None:
            return Text(title=" ".join(map(str, state["values"])))

    log = make_log("sqlite")
    handle = _filled(log, Found)
    put_raw(log, _build(handle).rows, "thing/1", b"\xff" * 40)
    assert handle.search("7") == [("thing/1", _true(log, handle)["thing/1"])]


def test_an_inline_view_is_right_although_the_row_is_damaged(make_log: Callable[..., Log]) -> None:
    log = make_log("sqlite")
    _filled(log)
    handle = live_view(log, Said)
    put_raw(log, _build(handle).rows, "thing/1", b"\xff" * 40)
    log.views.close()
    inline = views_of(log).register(Said, mode="inline")
    say(log, "in a write", stream="thing/1")
    assert inline.get("thing/1", fresh=False).state == _true(log, inline)["thing/1"]
    assert inline.digest() == from_nothing(log, Said)


@pytest.mark.parametrize("bad", [b"", b"{}garbage", b'{"sum":"00000000","active":1}', b"\xff" * 30, b'{"name":7}'])
@pytest.mark.parametrize("space", [VIEWS, BUILDS, "letters"])
def test_a_damaged_record_makes_the_view_again(
    log: Log, space: str, bad: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    handle = _filled(log)
    say(log, "poison", stream="thing/2")
    handle.catch_up()
    build = _build(handle)
    place = {VIEWS: (VIEWS, "said"), BUILDS: (BUILDS, build.rows), "letters": (build.letters, f"{10:016}")}[space]
    assert _raw(log, *place)
    put_raw(log, *place, bad)
    log.views.close()

    assert [one.state for one in log.views.overviews() if one.view == "said"] == ["damaged"]
    again = live_view(log, Said)
    with caplog.at_level(logging.WARNING, "everlog"):
        answer = again.get("thing/2")
    assert (answer.state["count"], answer.parked) == (3, True)
    assert [record for record in caplog.records if "damaged" in record.getMessage()]
    assert [letter.position for letter in again.dead_letters()] == [10]
    assert again.audit().ok


def test_a_changed_cursor_is_noticed(log: Log) -> None:
    handle = _filled(log)
    build = _build(handle)
    record = _raw(log, BUILDS, build.rows)
    put_raw(log, BUILDS, build.rows, record.replace(b'"cursor":"9', b'"cursor":"10'))
    log.views.close()
    say(log, "would be skipped", stream="thing/1")
    assert live_view(log, Said).digest() == from_nothing(log, Said)


def test_a_rebuild_begins_again_after_a_damaged_record(log: Log) -> None:
    handle = _filled(log)
    put_raw(log, VIEWS, "said", b"\x00")
    assert handle.rebuild().switched
    assert handle.digest() == from_nothing(log, Said)


# ---- rows that are lost


@every_store
@pytest.mark.parametrize("view", [Said, ByActor], ids=lambda view: view.name)
def test_a_lost_row_is_detected_by_get_and_by_a_list(
    log: Log, view: type[View], caplog: pytest.LogCaptureFixture
) -> None:
    handle = _filled(log, view)
    true = _true(log, handle)
    for ask in (
        lambda key: handle.get(key).state == true[key],
        lambda key: dict(handle.items()) == true,
        lambda key: handle.count() == len(true),
        lambda key: handle.digest() == from_nothing(log, view),
    ):
        key = sorted(true)[-1]
        put_raw(log, _build(handle).rows, key, None)
        assert [one.state for one in log.views.overviews() if one.view == view.name] == ["damaged"]
        with caplog.at_level(logging.WARNING, "everlog"):
            assert ask(key)
        assert [record for record in caplog.records if "were stored" in record.getMessage()]
        caplog.clear()


@every_store
def test_a_row_in_a_build_that_has_none_is_detected(log: Log, caplog: pytest.LogCaptureFixture) -> None:
    """Its checksum is right, so only the number of rows shows it."""
    log.append("workpackage.moved", stream="workpackage/1", payload={"went_to": "doing"})
    handle = live_view(log, Said)
    asked: tuple[Callable[[], bool], ...] = (
        lambda: dict(handle.items()) == {},
        lambda: handle.count() == 0,
        lambda: handle.digest() == from_nothing(log, Said),
    )
    for ask in asked:
        handle.catch_up()
        assert _build(handle).keys == 0
        with log.views.small_state.change() as change:
            put_rows(change, handle.view, _build(handle), {"thing/1": row_bytes(Row({"count": 1}, count=1))})
        with caplog.at_level(logging.WARNING, "everlog"):
            assert ask()
        assert [record for record in caplog.records if "were stored" in record.getMessage()]
        caplog.clear()


def test_a_row_under_another_key_is_two_damaged_keys(log: Log) -> None:
    handle = _filled(log)
    data = _raw(log, _build(handle).rows, "thing/1")
    put_raw(log, _build(handle).rows, "thing/1", None)
    put_raw(log, _build(handle).rows, "thing/8", data)
    assert dict(handle.items()) == _true(log, handle)


def test_a_key_without_events_has_no_row_and_that_is_no_loss(log: Log, caplog: pytest.LogCaptureFixture) -> None:
    handle, others = _filled(log), live_view(log, ByActor)
    before = (_build(handle).number, others.catch_up())
    say(log, "poison", stream="thing/failed")
    log.purge("thing/0", reason="asked for")
    with caplog.at_level(logging.WARNING, "everlog"):
        asked = ("thing/none", "thing/0", "thing/failed", "", "no stream", "a\0b", "x" * 5000)
        assert [handle.get(key).found for key in asked] == [False] * len(asked)
        handle.skip(10, reason="a test")
        assert not handle.get("thing/failed").found
        assert not others.get("user:none").found
    assert (_build(handle).number, caplog.records) == (before[0], [])


@every_store
def test_the_number_of_rows_is_kept_through_everything_that_changes_them(log: Log, tmp_path: Path) -> None:
    handle = live_view(log, ByActor)

    def right() -> bool:
        build = _build(handle)
        return build.keys == log.views.small_state.count(build.rows) == len(dict(handle.items()))

    for number in range(6):
        say(log, number, stream=f"thing/{number}", actor=f"user:{number % 4}")
        handle.catch_up()
        assert right()
    say(log, "poison", stream="thing/new", actor="user:new")
    say(log, {1.5}.__len__(), stream="thing/new", actor="user:new")
    handle.catch_up()
    assert right()
    handle.skip(7, reason="a test")
    assert right()
    log.purge("thing/3", reason="the only one of user:3")
    handle.catch_up()
    assert right()
    assert not handle.get("user:3").found
    handle.rebuild()
    assert right()
    handle.rollback()
    handle.catch_up()
    assert right()


# ---- skipped events, purges, no write access


def test_a_row_that_is_folded_again_keeps_its_dead_letters(log: Log) -> None:
    handle = _filled(log)
    skipped = say(log, "poison", stream="thing/1")
    say(log, "behind", stream="thing/1")
    handle.catch_up()
    handle.skip(skipped, reason="a test", actor="user:ada")
    failed = say(log, "poison", stream="thing/1")
    waiting = say(log, "waits", stream="thing/1")
    handle.catch_up()
    state, letters = handle.get("thing/1").state, [(one.position, one.what) for one in handle.dead_letters()]
    assert letters == [(skipped, "skipped"), (failed, "failed"), (waiting, "waiting")]

    put_raw(log, _build(handle).rows, "thing/1", b"\xff" * 40)
    answer = handle.get("thing/1")
    assert (answer.state, answer.parked) == (state, True)
    assert [(one.position, one.what) for one in handle.dead_letters()] == letters
    assert handle.audit().ok


@pytest.mark.parametrize("view", [ByActor, Total, Causal], ids=lambda view: view.name)
def test_a_purge_reaches_a_view_with_damaged_rows(log: Log, view: type[View]) -> None:
    handle = _filled(log, view)
    say(log, "a secret word", stream="thing/secret", actor="user:a0")
    handle.catch_up()
    build = _build(handle)
    hurt = next(handle.items())[0]
    put_raw(log, build.rows, hurt, b"a secret word" * 3)
    log.purge("thing/secret", reason="asked for")
    assert not [key for key, data in log.views.small_state.scan(build.rows) if b"secret" in data]
    assert handle.digest() == from_nothing(log, view)


@pytest.mark.parametrize("place", [(VIEWS, "said"), (BUILDS, "said#1"), ("said#1 letters", f"{10:016}")])
def test_a_purge_removes_records_that_cannot_be_read(log: Log, place: tuple[str, str]) -> None:
    handle = _filled(log)
    say(log, "poison", stream="thing/0")
    say(log, "a secret word", stream="thing/secret")
    handle.catch_up()
    put_raw(log, *place, b"\x00")
    log.purge("thing/secret", reason="asked for")
    assert not [key for key, data in log.views.small_state.scan("said#1") if b"secret" in data]


@every_store
def test_a_reader_without_write_access_gets_the_right_answer(
    log: Log, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    handle = _filled(log)
    put_raw(log, _build(handle).rows, "thing/1", b"\xff" * 40)

    def refuse() -> Any:
        raise ReadOnly("this user may not write")

    monkeypatch.setattr(log.views.small_state, "change", refuse)
    true = _true(log, handle)
    with caplog.at_level(logging.WARNING, "everlog"):
        assert handle.get("thing/1").state == true["thing/1"]
        assert dict(handle.items()) == true
    assert [record for record in caplog.records if "thing/1" in record.getMessage()]
    with pytest.raises((Damaged, ReadOnly)):
        handle.digest()
    monkeypatch.undo()
    assert handle.digest() == from_nothing(log, Said)


# ---- builds of an earlier everlog


def _as_before(log: Log, build: Build) -> None:
    """Take every checksum away: rows of five values, records without a sum."""
    small_state = log.views.small_state
    rows = {key: kept_of(*kept_parts(data)) for key, data in small_state.scan(build.rows)}
    record = msgspec.to_builtins(build)
    for name in ("sealed", "keys", "mended", "mended_us"):
        del record[name]
    with small_state.change() as change:
        change.put(build.rows, rows)
        change.put(BUILDS, {build.rows: msgspec.json.encode(record)})
        change.put(VIEWS, {build.name: b'{"active":%d,"previous":0,"last":%d}' % (build.number, build.number)})


@every_store
@pytest.mark.parametrize("more", [False, True])
def test_a_build_of_an_earlier_everlog_is_read_and_gets_checksums(
    log: Log, more: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("everlog.views.builds.content.SEALED_AT_ONCE", 2)
    handle = _filled(log, Everything)
    build = _build(handle)
    _as_before(log, build)
    log.views.close()
    if more:
        say(log, "more", stream="thing/new")

    with caplog.at_level(logging.WARNING, "everlog"):
        again = live_view(log, Everything)
        assert again.get("thing/1", fresh=False).state == {"thing.said": 3}
        assert again.digest() == from_nothing(log, Everything)
    now = _build(again)
    assert (now.number, now.sealed, now.keys) == (build.number, True, 3 + more)
    rows = list(log.views.small_state.scan(now.rows))
    assert all(row_matches(begin(now.rows), key, data, sealed=True) for key, data in rows)
    assert (again.audit().ok, caplog.records) == (True, [])


def test_garbage_in_a_build_of_an_earlier_everlog_is_folded_again(log: Log) -> None:
    handle = _filled(log)
    _as_before(log, _build(handle))
    put_raw(log, _build(handle).rows, "thing/1", b"\x95garbage")
    log.views.close()
    assert live_view(log, Said).digest() == from_nothing(log, Said)


# ---- the audit


@pytest.mark.parametrize("view", ALL, ids=lambda view: view.name)
@pytest.mark.parametrize("at_once", [2, 200_000])
def test_the_audit_names_the_keys_whose_states_differ(
    log: Log, view: type[View], at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("everlog.views.audit.ROWS_AT_ONCE", at_once)
    handle = _filled(log, view)
    key, keys = next(handle.items())[0], handle.count()
    assert (handle.audit().ok, handle.audit().checked) == (True, keys)
    build = _build(handle)
    parts = kept_parts(_raw(log, build.rows, key))
    wrong = parts[4][:-1] + b',"zzz":1}'
    with log.views.small_state.change() as change:  # with a checksum that is right
        put_rows(change, handle.view, build, {key: kept_of(*parts[:4], wrong)})

    found = handle.audit()
    assert (found.ok, found.gap, found.wrong_counts) == (False, 0, ())
    assert (found.differing, found.damaged, found.checked) == ((key,), (), keys)
    every = handle.audit(sample=keys)
    assert (every.differing, every.checked) == ((key,), keys)
    one = handle.audit(sample=1)
    assert (one.checked, one.keys) == (1, keys)


def test_the_audit_names_damaged_rows_and_changes_nothing(log: Log) -> None:
    handle = _filled(log)
    put_raw(log, _build(handle).rows, "thing/1", b"\xff" * 40)
    found = handle.audit()
    assert (found.ok, found.damaged, found.differing, found.wrong_counts) == (False, ("thing/1",), (), ())
    assert log.views.damaged_rows() == {"said": {"thing/1"}}
    assert _raw(log, _build(handle).rows, "thing/1") == b"\xff" * 40


def test_the_audit_of_a_view_that_moves_on_finds_nothing_wrong(log: Log) -> None:
    handle = _filled(log)
    going = True

    def write() -> None:
        number = 0
        while going:
            number += 1
            say(log, number, stream=f"thing/{number % 50}")
            handle.catch_up()

    writer = threading.Thread(target=write)
    writer.start()
    try:
        assert all(handle.audit().ok for _ in range(15))
    finally:
        going = False
        writer.join()


@pytest.mark.parametrize("data", [b"", b"\x01" * 127, b"\xff" * 500])
def test_damaged_places_are_named_by_the_audit_and_raise_nothing(log: Log, data: bytes) -> None:
    handle = _filled(log)
    put_raw(log, _build(handle).places, f"{0:016}", data)
    assert handle.audit().gap == 9
    say(log, "more")
    assert handle.digest() == from_nothing(log, Said)
    handle.rebuild()
    assert handle.audit().ok

"""Proving a log from its bytes: every edit behind its back is found, with a fitting code and place (G10, S16)."""

from __future__ import annotations

import base64
import shutil
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from tests.support.sqlite_edits import let_edit

from everlog.core.codec import Packed, header_bytes, header_hash, unpack
from everlog.core.event import START, Position
from everlog.errors import Damaged, EverlogError
from everlog.log.log import Log
from everlog.log.verify import audit, spill, verify
from everlog.log.verify.audit import PartVerifier, Verifier, missing_between
from everlog.log.verify.verify import Report, in_ranges, with_those_of
from everlog.log.write.draft import Draft
from everlog.stores.contract import Problem, encode_event
from everlog.testing.builders import Chain

PEER = "01TESTPEER0000000000000000"

# The log that is edited, by position:
#    1  2  3  4  5  6    own events on thing/0, thing/1, thing/2, and again; scope acme
#    7  8                a peer's events 1 and 2
#    9 10                own, thing/0
#   11                   reserved: thing/2 was purged (3 and 6)
#   12 13 14             own: thing/2, thing/0 and note/1, the last one


@pytest.fixture(scope="module")
def pristine(make_log: Callable[..., Log], tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("pristine") / "log.db"
    peer = Chain(PEER)
    with make_log("sqlite", path) as log:
        for number in range(6):
            say(log, f"thing/{number % 3}", {"a": number, "b": [number]})
        log.admit([peer.next(type="peer.spoke", stream="peer/1").event for _ in range(2)])
        say(log, "thing/0", 9)
        say(log, "thing/0", 10)
        log.purge("thing/2", reason="test")
        say(log, "thing/2", 12)
        say(log, "thing/0", 13)
        log.append("note.added", stream="note/1", payload={"text": "the last one"})
        assert log.head() == 14
        assert log.verify().problems == ()
    return path


def say(log: Log, stream: str, value: Any) -> None:
    log.append("thing.said", stream=stream, payload={"value": value}, scope="acme", tags={"team": "a"})


@pytest.fixture
def edited(pristine: Path, tmp_path: Path) -> Path:
    shutil.copy(pristine, tmp_path / "log.db")
    return tmp_path / "log.db"


def edit(path: Path, script: str) -> None:
    """Run SQL with the triggers out of the way, and put them back, so that only the edit itself can be found.

    `events` has one row per event, and an event that is changed there gets the right checksum.
    """
    connection = sqlite3.connect(path)
    triggers = connection.execute("SELECT name, sql FROM sqlite_schema WHERE type = 'trigger'").fetchall()
    for name, _ in triggers:
        connection.execute(f"DROP TRIGGER {name}")
    let_edit(connection)
    connection.executescript(script)
    for _, sql in triggers:
        connection.execute(sql)
    connection.commit()
    connection.close()


def report_of(make_log: Callable[..., Log], path: Path) -> Report:
    with make_log("sqlite", path) as log:
        return log.verify()


def at(position: int, change: str) -> str:
    return f"UPDATE events SET {change} WHERE position = {position}"  # noqa: S608


def group(first: int, change: str) -> str:
    """A change of what a group has for all of its events, with the right checksum."""
    columns = "first, last, kept, received_us, origin, first_seq, count, previous, hash, signature, claims"
    checksum = f"UPDATE groups SET checksum = checksum_of({columns}, CAST(events AS BLOB)) WHERE first = {first}"  # noqa: S608
    return f"UPDATE groups SET {change} WHERE first = {first}; {checksum}"  # noqa: S608


def swap(one: int, other: int, columns: str) -> str:
    """The values of some columns of two rows, exchanged."""
    values = f"SELECT {columns} FROM kept WHERE position ="  # noqa: S608
    exchange = (at(one, f"({columns}) = ({values} {other})"), at(other, f"({columns}) = ({values} {one})"))
    return ";".join(("CREATE TEMP TABLE kept AS SELECT * FROM events", *exchange))


EDITS: dict[str, tuple[str, str]] = {
    # payloads and salts
    "a payload is changed": (at(1, "payload = replace(payload, '0', '7')"), "group_changed"),
    "a payload gets white space": (at(1, "payload = replace(payload, ':', ': ')"), "group_changed"),
    "a payload's keys change places": (at(1, """payload = '{"value":{"b":[0],"a":0}}'"""), "group_changed"),
    "a payload gets a key twice": (at(9, """payload = '{"value":9,"value":9}'"""), "group_changed"),
    "a number is written otherwise": (at(9, """payload = '{"value":9.0}'"""), "group_changed"),
    "a payload is no JSON": (at(1, "payload = 'x'"), "unreadable"),
    "a payload is an array": (at(1, "payload = '[1]'"), "group_changed"),
    "a payload is emptied": (at(1, "payload = ''"), "group_changed"),
    "a payload and its salt are emptied": (at(1, "payload = '', salt = x''"), "group_changed"),
    "the last payload and its salt are emptied": (at(14, "payload = '', salt = x''"), "group_changed"),
    "a salt is changed": (at(1, "salt = x'00112233445566778899aabbccddeeff'"), "group_changed"),
    "a salt is emptied": (at(1, "salt = x''"), "group_changed"),
    "two payloads are swapped": (swap(1, 2, "payload"), "group_changed"),
    "two payloads are swapped with their salts": (swap(1, 2, "payload, salt"), "group_changed"),
    "a peer's payload is changed": (at(7, """payload = '{"text":"other"}'"""), "group_changed"),
    "the last payload is changed": (at(14, """payload = '{"text":"other","topic":""}'"""), "group_changed"),
    # headers
    "a text gets white space": (
        "UPDATE groups SET events = replace(events, ',', ', ') WHERE first = 2",
        "unreadable",
    ),
    "a header gets another field": (at(2, "header = json_insert(header, '$[#]', 'more')"), "unreadable"),
    "a header gets a payload": (at(2, "header = json_insert(header, '$[#]', json('{}'))"), "unreadable"),
    "a header loses a field": (at(2, "header = json_remove(header, '$[16]')"), "unreadable"),
    "a header is no JSON": (at(2, "header = '['"), "unreadable"),
    "a header is emptied": (at(2, "header = ''"), "unreadable"),
    "two headers are swapped": (swap(1, 2, "header"), "chain_broken"),
    "the last header is changed": (at(14, "header = json_set(header, '$[8]', 'user:eve')"), "group_changed"),
    "a peer's last header is changed": (at(8, "header = json_set(header, '$[8]', 'user:eve')"), "group_changed"),
    "a peer's first header is changed": (at(7, "header = json_set(header, '$[8]', 'user:eve')"), "group_changed"),
    # rows
    "the first row is deleted": ("DELETE FROM events WHERE position = 1", "position_missing"),
    "a row in the middle is deleted": ("DELETE FROM events WHERE position = 5", "position_missing"),
    "the row before a reserved position is deleted": ("DELETE FROM events WHERE position = 10", "position_missing"),
    "a peer's row is deleted": ("DELETE FROM events WHERE position = 7", "position_missing"),
    "the last row is deleted": ("DELETE FROM events WHERE position = 14", "log_cut_off"),
    "the last three rows are deleted": ("DELETE FROM events WHERE position > 11", "log_cut_off"),
    "all rows are deleted": ("DELETE FROM events", "log_cut_off"),
    "two whole rows change places": (
        swap(1, 5, "header, payload, salt"),
        "chain_broken",
    ),
    "a row is moved to the end": (at(5, "position = 15"), "position_missing"),
    "a row is moved far away": (at(14, "position = 1000000000"), "position_missing"),
    "a row is put in for the reserved position": (at(10, "position = 11"), "position_missing"),
    "a row is added": (
        "INSERT INTO events SELECT 15, 2, json_set(header, '$[0]', '01K00000000000000000000000', '$[6]', 99),"
        " payload, salt, received_us, origin, 0 FROM events WHERE position = 14",
        "chain_broken",
    ),
    "a row is repeated": (
        "INSERT INTO events SELECT 15, 2, header, payload, salt, received_us, origin, 0 FROM events"
        " WHERE position = 14",
        "id_twice",
    ),
    "a purged row is put back": (
        "REPLACE INTO events SELECT 3, 77, header, payload, salt, received_us, origin, 0 FROM events"
        " WHERE position = 1",
        "out_of_order",
    ),
    # columns that queries use
    "a sequence is changed": (at(14, "sequence = 5"), "sequence_gap"),
    "two sequences are swapped": (
        at(1, "sequence = 99") + ";" + at(4, "sequence = 1") + ";" + at(1, "sequence = 2"),
        "sequence_gap",
    ),
    # what a group has for all of its events
    "a time of arrival is changed": (group(1, "received_us = received_us + 1"), "group_changed"),
    "an origin is changed": (group(1, "origin = 'other'"), "chain_broken"),
    "a first number is changed": (group(1, "first_seq = 5"), "chain_broken"),
    "a hash before is changed": (group(4, "previous = x'00'"), "chain_broken"),
    "a last hash is changed": (group(4, "hash = x'00'"), "group_changed"),
    "a text loses a byte": ("UPDATE groups SET events = substr(events, 2) WHERE first = 4", "unreadable"),
    "a checksum is changed": ("UPDATE groups SET checksum = checksum + 1 WHERE first = 4", "unreadable"),
    "a stream gets another name": ("UPDATE names SET name = 'thing/9' WHERE name = 'thing/1'", "index_disagrees"),
    "a type gets another name": ("UPDATE names SET name = 'thing.lied' WHERE name = 'thing.said'", "index_disagrees"),
    "a scope gets another name": ("UPDATE names SET name = 'other' WHERE name = 'acme'", "index_disagrees"),
    "a name is deleted": ("DELETE FROM names WHERE name = 'acme'", "index_disagrees"),
    "the marks are deleted": ("DELETE FROM marks", "index_disagrees"),
    "one mark is deleted": (
        "DELETE FROM marks WHERE family = 1 AND name_id = (SELECT name_id FROM names WHERE name = 'note.added')",
        "index_disagrees",
    ),
    # what the log remembers of itself
    "the end of the chain is changed": ("UPDATE state SET hash = x'00' WHERE name >= 'origin'", "state_disagrees"),
    "the place of the chain's end is changed": (
        "UPDATE state SET position = 1 WHERE name >= 'origin'",
        "state_disagrees",
    ),
    "the remembered position is put back": ("UPDATE state SET position = 9 WHERE name = 'clock'", "state_disagrees"),
    "the remembered clock is gone": ("DELETE FROM state WHERE name = 'clock'", "state_disagrees"),
    # purges
    "a purged place is deleted": ("DELETE FROM purged WHERE position = 3", "position_missing"),
    "a purged place is moved": ("UPDATE purged SET position = 30 WHERE position = 3", "position_missing"),
    "a purged hash is changed": ("UPDATE purged SET hash = x'00' WHERE position = 3", "chain_broken"),
    "a purged number is changed": ("UPDATE purged SET origin_seq = 50 WHERE position = 3", "chain_broken"),
    "a purge is deleted": ("DELETE FROM purges", "position_missing"),
    "a purge is moved": ("UPDATE purges SET reserved = 40", "position_missing"),
    "a purge says another sequence": ("UPDATE purges SET sequence = 1", "sequence_gap"),
    "a purge says another stream": ("UPDATE purges SET stream = 'thing/1'", "sequence_gap"),
    "a purge says another count": ("UPDATE purges SET count = 1", "purge_disagrees"),
}

HEADER_EDITS = {
    0: "'01K00000000000000000000000'",
    1: "'thing.lied'",
    2: "7",
    3: "'thing/9'",
    4: "77",
    5: f"'{PEER}'",
    6: "77",
    7: "'2020-01-01T00:00:00Z'",
    8: "'user:eve'",
    9: "'other'",
    10: "'r'",
    11: "'c'",
    12: "'c'",
    13: "'k'",
    14: """json('{"team":"b"}')""",
    15: "'AAAA'",
    16: "'AAAA'",
}


@pytest.mark.parametrize("name", EDITS)
def test_an_edit_behind_the_logs_back_is_found(name: str, edited: Path, make_log: Callable[..., Log]) -> None:
    script, code = EDITS[name]
    edit(edited, script)
    report = report_of(make_log, edited)
    assert not report.ok
    assert code in {problem.code for problem in report.problems}
    assert all(problem.reason for problem in report.problems)


@pytest.mark.parametrize("field", HEADER_EDITS)
def test_a_change_of_any_field_of_a_header_changes_the_hash_of_its_group(
    field: int, edited: Path, make_log: Callable[..., Log]
) -> None:
    """F61: also when the row's own columns are made to fit."""
    edit(edited, at(4, f"header = json_set(header, '$[{field}]', {HEADER_EDITS[field]})"))
    assert {"group_changed", "chain_broken"} & {problem.code for problem in report_of(make_log, edited).problems}


def test_a_change_of_the_event_before_a_purged_one_breaks_the_chain(
    edited: Path, make_log: Callable[..., Log]
) -> None:
    edit(edited, at(2, "header = json_set(header, '$[8]', 'user:eve')"))
    assert not report_of(make_log, edited).ok


@pytest.mark.parametrize(
    "script",
    [
        "DELETE FROM events WHERE position = 14; DELETE FROM state WHERE name >= 'origin'",
        "DELETE FROM state WHERE name >= 'origin'",
        "UPDATE state SET number = 1 WHERE name = 'clock'",
        "UPDATE state SET position = 99 WHERE name = 'clock'",
    ],
)
def test_a_log_that_forgot_its_own_end_is_told(script: str, edited: Path, make_log: Callable[..., Log]) -> None:
    """F09, F60: the next event would take a clock value or a place in the chain that was given before."""
    edit(edited, script)
    assert not report_of(make_log, edited).ok


def test_more_than_forty_kinds_of_edit_were_tried() -> None:
    assert len(EDITS) + len(HEADER_EDITS) >= 75


def test_an_untouched_log_has_no_problem_and_its_report_counts(pristine: Path, make_log: Callable[..., Log]) -> None:
    report = report_of(make_log, pristine)
    assert report.problems == ()
    assert (report.events, report.purged, report.head, report.unlisted) == (11, 2, 14, 0)


def test_problems_beyond_what_a_report_lists_are_counted(
    edited: Path, make_log: Callable[..., Log], monkeypatch: pytest.MonkeyPatch
) -> None:
    edit(edited, "UPDATE events SET sequence = 9")
    every = report_of(make_log, edited)
    assert (len(every.problems) > 2, every.unlisted) == (True, 0)
    for module in ("audit", "verify"):
        monkeypatch.setattr(f"everlog.log.verify.{module}.PROBLEMS_MAX", 2)
    some = report_of(make_log, edited)
    assert len(some.problems) == 2
    assert some.unlisted >= len(every.problems) - 2  # those that follow from others count, too


def test_a_missing_trigger_is_told(edited: Path, make_log: Callable[..., Log]) -> None:
    """G9."""
    connection = sqlite3.connect(edited)
    connection.execute("DROP TRIGGER groups_are_not_deleted")
    connection.commit()
    connection.close()
    problems = report_of(make_log, edited).problems
    assert [problem.code for problem in problems] == ["trigger_missing"]


def test_a_problem_names_its_position(edited: Path, make_log: Callable[..., Log]) -> None:
    edit(edited, at(5, "payload = replace(payload, '4', '7')"))
    assert [(problem.position, problem.code) for problem in report_of(make_log, edited).problems] == [
        (5, "group_changed"),
    ]


def test_a_payload_that_is_taken_out_like_an_erased_one_is_missed(edited: Path, make_log: Callable[..., Log]) -> None:
    """Its commitment is stored and all hashes hold, but no event allowed it."""
    with make_log("sqlite", edited) as log:
        event = next(log.read(after=4)).event
    commitment = base64.b64encode(event.commitment).decode()
    edit(edited, at(5, f"payload = '{{}}', salt = x'', header = json_set(header, '$[15]', '{commitment}')"))
    assert [(problem.position, problem.code) for problem in report_of(make_log, edited).problems] == [
        (5, "payload_missing")
    ]


def test_damage_is_not_written_over(edited: Path, make_log: Callable[..., Log]) -> None:
    """G10, F60: a log whose end was cut off takes no more writes, and can still be read."""
    edit(edited, "DELETE FROM events WHERE position = 14")
    with make_log("sqlite", edited) as log:
        with pytest.raises(Damaged):
            log.append("thing.said", stream="thing/1")
        left_out: list[Damaged] = []
        assert len(list(log.read(past_damage=left_out.append))) == 10
        assert [error.details["position"] for error in left_out] == [14]


def test_bytes_that_are_not_even_text_do_not_pass_in_silence(edited: Path, make_log: Callable[..., Log]) -> None:
    edit(edited, "UPDATE groups SET events = CAST(x'5bff5d' AS TEXT) WHERE first = 5")
    with make_log("sqlite", edited) as log:
        try:
            found = not log.verify().ok
        except EverlogError:
            found = True
    assert found


def test_a_log_damaged_everywhere_is_told_in_bounded_words(make_log: Callable[..., Log], tmp_path: Path) -> None:
    with make_log("sqlite", tmp_path / "log.db") as log:
        log.append("thing.said", stream="thing/1")
    edit(tmp_path / "log.db", at(1, "position = 2000000000"))
    assert len(report_of(make_log, tmp_path / "log.db").problems) <= 1000


def test_a_thousand_missing_events_are_one_problem_with_their_file(
    make_log: Callable[..., Log], tmp_path: Path
) -> None:
    with make_log("sqlite", tmp_path / "log.db") as log:
        log.append_batch([Draft(type="thing.said", stream=f"thing/{number % 7}") for number in range(1200)])
    edit(tmp_path / "log.db", "DELETE FROM events WHERE position BETWEEN 129 AND 1152")
    missing = [each for each in report_of(make_log, tmp_path / "log.db").problems if each.code == "position_missing"]
    assert [(each.position, each.upto, each.last, each.file) for each in missing] == [(129, 1152, 1152, "log.db")]


@pytest.mark.parametrize("name", ["none", *EDITS])
def test_what_does_not_fit_into_memory_is_compared_all_the_same(
    name: str, edited: Path, make_log: Callable[..., Log], monkeypatch: pytest.MonkeyPatch
) -> None:
    if name != "none":
        edit(edited, EDITS[name][0])
    expected = {(each.position, each.code) for each in report_of(make_log, edited).problems}
    monkeypatch.setattr(audit, "STREAMS_MAX", 1)
    monkeypatch.setattr(spill, "PIECE", 2)
    assert {(each.position, each.code) for each in report_of(make_log, edited).problems} == expected


def test_what_is_recorded_while_it_looks_is_left_for_the_next_time(log: Log) -> None:
    for _ in range(3):
        log.append("thing.said", stream="thing/1")
    store = log._store
    slots = store.slots

    def growing() -> Any:
        for place in slots():
            yield place
            if place.position == 2:
                log.append("thing.said", stream="thing/2")
                log.purge("thing/1", reason="test")

    object.__setattr__(store, "slots", growing)
    report = log.verify()
    assert (report.head, report.events, report.problems) == (3, 3, ())


def test_a_problem_that_a_second_look_does_not_find_was_none(log: Log) -> None:
    log.append("thing.said", stream="thing/1")
    found = [Problem(Position(1), "index_disagrees", "for a moment"), Problem(START, "schema_changed", "for good")]
    looks = []

    def check() -> Any:
        looks.append(log.append("thing.said", stream="thing/1"))
        return iter(found if len(looks) == 1 else found[1:])

    object.__setattr__(log._store, "check", check)
    assert [problem.code for problem in log.verify().problems] == ["schema_changed"]
    assert len(looks) == verify.LOOKS_MAX


def test_progress_is_told_now_and_then(make_log: Callable[..., Log]) -> None:
    log = make_log("memory")
    log.append_batch([Draft(type="thing.said", stream="thing/1")] * 2500)
    seen: list[int] = []
    log.verify(progress=seen.append)
    assert seen == [1000, 2000]


# ---- the digest: equal histories, equal digests


def test_equal_histories_have_equal_digests_on_every_store(make_log: Callable[..., Log]) -> None:
    chain = Chain()
    events = [chain.next(stream=f"note/{number % 3}").event for number in range(20)]
    memory, sqlite, other = make_log("memory"), make_log("sqlite"), make_log("memory")
    memory.admit(events)
    sqlite.admit(events)
    other.admit(events[:-1])
    assert memory.verify().digest == sqlite.verify().digest != other.verify().digest
    other.admit(events[-1:])
    assert other.verify().digest == memory.verify().digest


def test_a_purge_does_not_change_what_the_digest_stands_for(log: Log) -> None:
    """F62: the hashes of purged events stay, so an old digest can still be checked."""
    for number in range(6):
        log.append("thing.said", stream=f"thing/{number % 2}")
    before = log.verify()
    log.purge("thing/0", reason="test")
    after = log.verify()
    assert after.digest == before.digest
    assert (after.events, after.purged, after.ok) == (3, 3, True)


def test_purged_logs_verify_however_often_they_were_purged(log: Log) -> None:
    for round_number in range(4):
        for number in range(5):
            log.append("thing.said", stream=f"thing/{number % 2}")
        log.purge(f"thing/{round_number % 2}", reason="test")
        assert log.verify().problems == ()
    for stream in ("thing/0", "thing/1"):
        if any(log.read(stream=stream)):
            log.purge(stream, reason="test")
    report = log.verify()
    assert (report.problems, report.events, report.purged) == ((), 0, 20)


def test_the_chain_of_a_record_is_the_hash_of_the_one_before(log: Log) -> None:
    one, two = (log.append("thing.said", stream="thing/1").event for _ in range(2))
    assert two.previous == header_hash(header_bytes(one))


def test_bytes_that_are_no_text_any_more_are_named_by_their_place(edited: Path, make_log: Callable[..., Log]) -> None:
    """F03: a flipped bit in the middle of a character must not stop the look at everything else."""
    edit(edited, "UPDATE groups SET events = CAST(x'5b22ff225d' AS TEXT) WHERE first = 2")
    problems = report_of(make_log, edited).problems
    assert 2 in {problem.position for problem in problems}


# ---- a reader that sees some of the events


def test_a_reader_of_some_events_finds_a_broken_link_between_two_that_it_sees_and_misses_none(
    make_log: Callable[..., Log],
) -> None:
    log = make_log("memory")
    for number in range(5):
        say(log, "thing/1", number)
    slots = [slot for slot in log._store.slots() if isinstance(slot, Packed)]
    assert problems_of_part(log, [slots[1], slots[3], slots[4]]) == []

    forged = encode_event(replace(unpack(slots[3]).event, actor="user:eve"))
    slots[3] = replace(slots[3], header=forged.header)
    assert problems_of_part(log, [slots[1], slots[3], slots[4]]) == [(5, "chain_broken")]
    assert problems_of_part(log, [slots[1], slots[3]]) == []  # what follows it is not seen


def test_a_reader_of_some_events_finds_those_that_come_twice_or_backwards(
    make_log: Callable[..., Log], monkeypatch: pytest.MonkeyPatch
) -> None:
    log = make_log("memory")
    for number in range(4):
        say(log, f"thing/{number % 2}", number)
    slots = [slot for slot in log._store.slots() if isinstance(slot, Packed)]
    assert problems_of_part(log, slots) == []
    twice = problems_of_part(log, [slots[1], slots[1]])
    assert {(2, "out_of_order"), (2, "sequence_gap"), (2, "chain_broken"), (2, "id_twice")} == set(twice)
    assert (1, "out_of_order") in problems_of_part(log, [slots[2], slots[0]])
    again = replace(slots[2], sequence=1)
    assert problems_of_part(log, [slots[0], again]) == [(3, "sequence_gap")]
    monkeypatch.setattr("everlog.log.verify.audit.STREAMS_MAX", 1)
    assert problems_of_part(log, slots) == []  # it forgets streams, and compares with what it sees after that
    assert problems_of_part(log, [slots[0], again]) == [(3, "sequence_gap")]


def test_an_event_that_cannot_be_read_is_named_and_counted_by_a_reader_of_some(make_log: Callable[..., Log]) -> None:
    log = make_log("memory")
    say(log, "thing/1", 1)
    (slot,) = [slot for slot in log._store.slots() if isinstance(slot, Packed)]
    assert problems_of_part(log, [replace(slot, header=b"{")]) == [(1, "unreadable")]


def problems_of_part(log: Log, slots: list[Packed]) -> list[tuple[int, str]]:
    with closing(PartVerifier(log._store.identity.origin, [])) as audit:
        for slot in slots:
            audit.take(slot)
        audit.end(log.head())
        return [(problem.position, problem.code) for problem in audit.problems]


# ---- the order in which it is told


def test_a_cause_is_told_before_what_follows_from_it() -> None:
    told = [
        Problem(Position(3), "position_missing", ""),
        Problem(Position(4), "chain_broken", ""),
        Problem(Position(9), "payload_changed", ""),
        Problem(START, "index_disagrees", ""),
        Problem(START, "line_unreadable", ""),
        Problem(Position(3), "log_cut_off", ""),
    ]
    report = Report(events=0, purged=0, head=Position(9), digest="", problems=tuple(told))
    assert [problem.code for problem in report.problems] == [
        "payload_changed",
        "line_unreadable",
        "log_cut_off",
        "position_missing",
        "chain_broken",
        "index_disagrees",
    ]


def test_problems_that_are_found_at_the_end_are_listed_at_their_positions() -> None:
    with closing(Verifier("", [])) as audit_:
        for position in (5, 2, 9):
            audit_.report(Problem(Position(position), "chain_broken", ""))
        audit_.end(START)
        assert [problem.position for problem in audit_.problems] == [2, 5, 9]


# ---- where it is, and what is one problem


def lost(*ranges: tuple[int, int]) -> list[Problem]:
    return [missing_between(Position(first), Position(last)) for first, last in ranges]


def test_neighbours_of_which_the_same_is_wrong_are_one_problem() -> None:
    def at(position: int, reason: str = "", file: str = "") -> Problem:
        return Problem(Position(position), "payload_changed", reason, file=file)

    problems = [
        at(1),
        at(2),
        at(3),
        at(5),
        at(6, "b"),
        at(7, "b", "f"),
        at(8, "b", "f"),
        at(0, "b", "f"),
        at(0, "b", "f"),
    ]
    found = [(one.position, one.last, one.reason, one.file) for one in in_ranges(problems)]
    assert found == [
        (1, 3, "", ""),
        (5, 5, "", ""),
        (6, 6, "b", ""),
        (7, 8, "b", "f"),
        (0, 0, "b", "f"),
        (0, 0, "b", "f"),
    ]
    assert list(in_ranges(lost((2, 4), (5, 5), (7, 9)))) == lost((2, 5), (7, 9))
    assert list(in_ranges([])) == []


def test_what_a_store_explains_is_not_listed_as_missing_besides() -> None:
    def explained(first: int, last: int) -> Problem:
        return Problem(Position(first), "unreadable", "of the store", upto=Position(last))

    class Explaining:
        def __init__(self, *found: Problem) -> None:
            self.found = found

        def check(self) -> Sequence[Problem]:
            return self.found

    def left(missing: tuple[int, int], *found: Problem) -> list[Problem]:
        store: Any = Explaining(*found)
        listed = with_those_of(store, lost(missing))
        assert listed[len(listed) - len(found) :] == [*found]
        return listed[: len(listed) - len(found)]

    assert left((3, 8)) == lost((3, 8))
    assert left((3, 8), explained(3, 8)) == []
    assert left((3, 8), explained(1, 2), explained(9, 9)) == lost((3, 8))
    assert left((3, 8), explained(1, 3), explained(8, 9)) == lost((4, 7))
    assert left((3, 8), explained(6, 6), explained(4, 4)) == lost((3, 3), (5, 5), (7, 8))
    assert left((3, 8), Problem(Position(5), "index_disagrees", "")) == lost((3, 8))
    assert left((3, 8), Problem(START, "unreadable", "")) == lost((3, 8))


def test_positions_with_several_problems_are_counted_once() -> None:
    problems = [
        Problem(Position(2), "payload_changed", "", upto=Position(5)),
        Problem(Position(4), "chain_broken", "", upto=Position(6)),
        Problem(Position(6), "payload_changed", ""),
        Problem(START, "index_disagrees", ""),
        *lost((8, 9)),
    ]
    report = Report(events=7, purged=0, head=Position(9), digest="", problems=tuple(problems), erased=1)
    assert (report.tampered, report.present) == (7, 1)

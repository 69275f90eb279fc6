"""log, tail, show and errors."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.cli.conftest import Run, clean_environment
from tests.cli.test_keeping import damage

ESCAPE = "\x1b[31mred\x1b[0m\ttab\nline\u202eback\x9b31m"


def positions(found_rows: list[list[str]]) -> list[int]:
    return [int(row[0]) for row in found_rows]


# ---- log


def test_the_newest_events_come_last(notes: Run) -> None:
    assert positions(notes("log", "-n", "3").rows) == [3, 4, 5]
    assert positions(notes("log", "-n", "3", "--reverse").rows) == [5, 4, 3]


def test_a_piped_row_has_the_documented_columns(notes: Run) -> None:
    row = notes("log", "-n", "1").rows[0]
    assert len(row) == 9
    assert row[0] == "5"
    assert row[3:8] == ["note.added", "note/2", "1", "user:ada", ""]
    assert json.loads(row[8]) == {"text": "other", "topic": ""}


def test_log_shows_20_unless_a_time_is_named(log: Run) -> None:
    lines = "\n".join(
        json.dumps({"type": "note.added", "stream": "n/1", "payload": {"text": "x"}}) for _ in range(25)
    )
    assert log("append", "--batch", "-", stdin=lines.encode()).code == 0
    assert len(log("log").rows) == 20
    assert len(log("log", "--since", "10m").rows) == 25
    assert len(log("log", "--since", "#3").rows) == 23


def test_quiet_prints_ids_only(notes: Run) -> None:
    found = notes("log", "-n", "2", "-q")
    assert [len(line) for line in found.out.splitlines()] == [26, 26]


def test_agents_get_a_count_and_an_item_a_line(notes: Run) -> None:
    first, *items = notes("log", "-n", "2", "--agent").out.splitlines()
    assert first == "OK count=2 head=5"
    assert [item.split(" ")[:2] for item in items] == [["ITEM", "position=4"], ["ITEM", "position=5"]]


def test_an_empty_list_is_no_error(log: Run) -> None:
    found = log("log")
    assert (found.code, found.out) == (0, "")
    assert "no events yet" in found.err
    assert log("log", "--json").data == []


@pytest.mark.parametrize(("filters", "expected"), [
    (["--stream", "note/2"], [5]),
    (["--by", "user:ada"], [5]),
    (["--kind", "note"], [1, 2, 3, 4, 5]),
    (["--kind", "issue"], []),
    (["--type", "note.added", "-n", "1"], [5]),
    (["--since", "#2", "--until", "#3"], [2, 3]),
    (["--until", "1h"], []),
    (["--since", "2020-01-01"], [1, 2, 3, 4, 5]),
    (["--since", "2999-01-01T10:00Z"], []),
    (["--until", "2020-01-01T10:00:00+02:00"], []),
])  # fmt: skip
def test_filters(notes: Run, filters: list[str], expected: list[int]) -> None:
    found = notes("log", *filters)
    assert found.code == 0
    assert positions(found.rows) == expected


def test_scope_and_correlation_filter_too(log: Run) -> None:
    for scope, correlation in (("acme/shop", "a"), ("acme/shop/prod", "b"), ("acmecorp", "a")):
        log("append", "note.added", "-s", "n/1", "text=x", "--scope", scope, "--correlation", correlation)
    assert positions(log("log", "--scope", "acme").rows) == [1, 2]
    assert positions(log("log", "--correlation", "a").rows) == [1, 3]


def test_a_mistyped_type_is_warned_of_with_the_nearest(notes: Run) -> None:
    found = notes("log", "--type", "note.aded")
    assert (found.code, found.out) == (0, "")
    assert "warning: no event of type note.aded" in found.err
    assert "did you mean note.added?" in found.err
    assert len(json.loads(notes("log", "--type", "note.aded", "--json").out)["warnings"]) == 1


def test_a_filter_of_the_wrong_shape_is_refused(notes: Run) -> None:
    assert notes("log", "--stream", "note").code == 3
    assert notes("log", "--by", "ada").code == 3


@pytest.mark.parametrize("arguments", [
    ["--since", "soon"],
    ["--limit", "5"],
    ["--after", "0", "-n", "5", "--limit", "5"],
    ["--after", "0", "-n", "5", "--to-end"],
    ["--after", "0", "-n", "10001"],
    ["--wait", "1"],
    ["--after", "0", "--wait", "1", "--to-end"],
    ["--reverse", "--to-end"],
    ["-n", "0"],
    ["--after", "0", "--limit", "0"],
])  # fmt: skip
def test_options_that_do_not_fit_exit_2(notes: Run, arguments: list[str]) -> None:
    assert notes("log", *arguments).code == 2


def test_pages_follow_one_another_to_the_head(notes: Run) -> None:
    seen, cursor = [], "0"
    for _ in range(3):
        found = notes("log", "--after", cursor, "--limit", "2", "--json")
        seen += [event["position"] for event in found.data]
        cursor = found.next["cursor"]
    assert seen == [1, 2, 3, 4, 5]
    assert found.next["at_head"] is True


def test_a_piped_page_tells_the_next_cursor_on_stderr(notes: Run) -> None:
    found = notes("log", "--after", "0", "--limit", "2")
    assert positions(found.rows) == [1, 2]
    assert "there is more; next: everlog log --after 2@" in found.err


def test_a_page_waits_until_something_arrives_or_the_time_is_over(notes: Run, place: Path) -> None:
    for wait in ("0", "0.2"):
        began = time.monotonic()
        found = notes("log", "--after", "5", "--wait", wait, "--json")
        assert (found.data, found.next["at_head"]) == ([], True)
        assert time.monotonic() - began >= float(wait)
    cursor = found.next["cursor"]
    waiting = subprocess.Popen(
        [sys.executable, "-m", "everlog", "log", "--after", cursor, "-s", "note/9", "--wait", "60", "--json"],
        cwd=place,
        env=clean_environment(place),
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        for stream in ("note/1", "note/9"):  # one that it does not wait for, and one that it does
            with pytest.raises(subprocess.TimeoutExpired):
                waiting.wait(timeout=1)
            notes("append", "note.added", "-s", stream, "text=live")
        page = json.loads(waiting.communicate(timeout=30)[0])
    finally:
        waiting.kill()
        waiting.wait()
    assert [one["position"] for one in page["data"]] == [7]
    assert page["next"]["cursor"].startswith("7@")
    assert notes("log", "--after", "0", "--wait", "60", "--json").next["at_head"] is True  # not if there is something


def test_a_page_over_rare_events_moves_on(notes: Run) -> None:
    found = notes("log", "--after", "0", "--limit", "2", "--stream", "note/3", "--json")
    assert found.data == []
    assert found.next["cursor"].startswith("5@")


def test_a_cursor_from_before_a_purge_is_told_to_reset(notes: Run) -> None:
    cursor = notes("log", "--after", "0", "--limit", "2", "--json").next["cursor"]
    notes("purge", "note/2", "--reason", "test", "--confirm", "purge note/2")
    found = notes("log", "--after", cursor, "--json")
    assert found.data == []
    assert found.next["reset_required"] == "purged"
    assert notes("log", "--after", found.next["cursor"], "--json").next["reset_required"] is None
    assert "reset required" in notes("log", "--after", cursor).err


def test_a_cursor_beyond_the_head_is_told_to_reset(notes: Run) -> None:
    assert notes("log", "--after", "99", "--json").next["reset_required"] == "restored"


def test_a_cursor_that_is_none_exits_3(notes: Run) -> None:
    assert notes("log", "--after", "first").code == 3


def test_to_end_streams_one_object_a_line(notes: Run) -> None:
    found = notes("log", "--to-end", "--json")
    assert [json.loads(line)["position"] for line in found.out.splitlines()] == [1, 2, 3, 4, 5]
    assert positions(notes("log", "--after", "3", "--to-end").rows) == [4, 5]
    assert positions(notes("log", "--since", "#4", "--to-end").rows) == [4, 5]


def test_a_position_to_begin_at_holds_for_pages_and_streams_too(notes: Run) -> None:
    assert positions(notes("log", "--after", "0", "--since", "#3", "--limit", "2").rows) == [3, 4]
    assert positions(notes("log", "--after", "4", "--since", "#3").rows) == [5]
    assert positions(notes("log", "--after", "0", "--since", "#4", "--to-end").rows) == [4, 5]
    assert positions(notes("log", "--after", "0", "--until", "#2").rows) == [1, 2]


def test_purges_are_listed(notes: Run) -> None:
    assert notes("log", "--purges").out == ""
    notes("purge", "note/2", "--reason", "why not", "--confirm", "purge note/2", "--actor", "user:ada")
    assert [row[2:] for row in notes("log", "--purges").rows] == [["note/2", "1", "user:ada", "why not"]]
    assert notes("log", "--purges", "--json").data[0]["reserved"] == 6


def test_no_form_lets_a_payload_steer_the_terminal(log: Run) -> None:
    payload = json.dumps({"text": ESCAPE}).encode()
    assert log("append", "note.added", "-s", "n/1", "-", stdin=payload).code == 0
    for form in ([], ["--json"], ["--agent"]):
        for command in (["log"], ["show", "1"], ["show", "1", "--raw"], ["log", "--to-end"]):
            out = log(*command, *form).out
            assert not set(out) & set("\x1b\x9b\u202e\x07"), (command, form)
    assert json.loads(log("show", "1", "--json").out)["data"]["payload"]["text"] == ESCAPE
    assert len(log("log").out.splitlines()) == 1


# ---- tail


def test_tail_without_following_is_the_last_10(notes: Run) -> None:
    assert positions(notes("tail", "--no-follow", "-n", "2").rows) == [4, 5]
    assert notes("tail", "--no-follow", "-n", "0").out == ""


def test_tail_starts_after_a_cursor(notes: Run) -> None:
    assert positions(notes("tail", "--no-follow", "--after", "3").rows) == [4, 5]
    assert positions(notes("tail", "--no-follow", "--after", "0", "-s", "note/2").rows) == [5]
    assert notes("tail", "--after", "3", "-n", "1").code == 2


@pytest.mark.parametrize(
    "command",
    [["tail", "-n", "1"], ["log", "-f", "-n", "1"], ["log", "-f", "--after", "4"], ["tail", "--after", "4"]],
)
def test_a_follower_gets_what_another_process_appends(notes: Run, place: Path, command: list[str]) -> None:
    follower = subprocess.Popen(
        [sys.executable, "-m", "everlog", *command, "--json"],
        cwd=place,
        env=clean_environment(place),
        stdout=subprocess.PIPE,
        text=True,
    )
    assert follower.stdout is not None
    try:
        assert json.loads(follower.stdout.readline())["position"] == 5
        notes("append", "note.added", "-s", "note/1", "text=live")
        assert json.loads(follower.stdout.readline())["payload"]["text"] == "live"
        notes("purge", "note/2", "--reason", "r", "--confirm", "purge note/2")
        assert json.loads(follower.stdout.readline())["reset_required"] == "purged"
        follower.send_signal(2)
        assert follower.wait(timeout=10) == 130
    finally:
        follower.kill()
        follower.wait()
        follower.stdout.close()


# ---- show


def test_an_event_is_found_by_position_id_and_parts_of_its_id(notes: Run) -> None:
    data = notes("show", "3", "--json").data
    event_id = data["id"]
    for name in ("#3", event_id, event_id.lower(), data["uuid"], data["uuid"].replace("-", ""), event_id[-8:]):
        assert notes("show", name, "-q").out.strip() == event_id


def test_a_part_of_several_ids_exits_4_with_the_candidates(notes: Run) -> None:
    event_id = notes("show", "1", "-q").out.strip()
    found = notes("show", event_id[:6], "--json")
    assert found.code == 4
    assert len(found.error["details"]["candidates"]) == 5
    assert event_id in found.error["why"]


def test_what_is_not_there_exits_4_and_nothing_is_printed(notes: Run) -> None:
    for name in ("#99", "0", "ZZZZZZ", "01ZZZZZZZZZZZZZZZZZZZZZZZZ"):
        found = notes("show", name)
        assert (found.code, found.out) == (4, ""), name
    assert notes("show", "#99", "--missing-ok").code == 0


def test_what_names_no_event_at_all_exits_3(notes: Run) -> None:
    assert notes("show", "abc").code == 3
    assert notes("show", "abc", "--missing-ok").code == 3
    assert notes("show", "../etc/passwd").code == 3


def test_a_purged_event_is_said_to_be_purged(notes: Run) -> None:
    event_id = notes("show", "5", "-q").out.strip()
    notes("purge", "note/2", "--reason", "gdpr", "--confirm", "purge note/2")
    for name in ("5", event_id):
        found = notes("show", name)
        assert found.code == 4
        assert "purged" in found.err
    assert "gdpr" in notes("show", "6").err
    assert notes("show", "5", "--raw").code == 4


def test_the_causes_of_an_event_are_shown_back_to_the_first(log: Run) -> None:
    first = log("append", "note.added", "-s", "n/1", "text=1", "-q").out.strip()
    second = log("append", "note.added", "-s", "n/1", "text=2", "--causation", first, "-q").out.strip()
    log("append", "note.added", "-s", "n/1", "text=3", "--causation", second)
    assert [cause["id"] for cause in log("show", "3", "--json").data["causes"]] == [second, first]
    log("append", "note.added", "-s", "n/1", "text=4", "--causation", "ticket-17")
    assert ["because of", "ticket-17 (not in this log)"] in log("show", "4").rows


def test_an_event_that_names_itself_as_its_cause_is_shown(log: Run) -> None:
    event_id = "01HZZZZZZZ7ZZZ8ZZZZZZZZZZZ"
    assert log("append", "note.added", "-s", "n/1", "text=x", "--id", event_id, "--causation", event_id).code == 0
    assert log("show", "1", "--json").data["causes"] == []


def test_raw_shows_the_stored_bytes_and_computes_the_hashes_again(notes: Run) -> None:
    data = notes("show", "2", "--raw", "--json").data
    assert json.loads(data["payload"]) == {"text": "note 2", "topic": ""}
    assert data["sound"] is True
    assert data["header_hash"] == notes("show", "3", "--raw", "--json").data["previous"]


# ---- errors


def test_refusals_are_remembered_and_counted(log: Run) -> None:
    log("append", "note.aded", "-s", "note/1", "text=x")
    log("append", "note.added", "-s", "note/1", "--actor", "user:ada")
    log("append", "note.added", "-s", "note/1")
    rows = log("errors").rows
    assert [row[1] for row in rows] == ["unknown_type", "invalid_payload", "invalid_payload"]
    assert [row[4] for row in log("errors", "--by", "user:ada").rows] == ["user:ada"]
    assert len(log("errors", "-n", "1").rows) == 1
    assert log("errors", "--code", "unknown_type", "--json").data[0]["type"] == "note.aded"
    assert log("errors", "--stream", "note/7").out == ""
    assert log("errors", "--stats").rows == [
        ["2", "invalid_payload", "note.added", "note.added"],
        ["1", "unknown_type", "note.aded", "note.aded"],
    ]


def test_the_most_common_refusals_can_be_of_one_actor_or_operation_and_say_what_helps(log: Run) -> None:
    for _ in range(2):
        log("agent", "execute", "c1", "--actor", "agent:builder")
    log("agent", "approve", "c1", "--actor", "user:ada")
    assert [row[0::3] for row in log("errors", "--stats").rows] == [["2", "agent execute"], ["1", "agent approve"]]
    assert [row[0] for row in log("errors", "--stats", "--by", "user:ada").rows] == ["1"]
    assert len(log("errors", "--stats", "-n", "1").rows) == 1
    (common,) = log("errors", "--stats", "--operation", "agent execute", "--json").data
    assert common["count"] == 2
    assert common["last_hint"] == "everlog agent list"
    assert common["last_reason"] == "there is no command c1: nothing was proposed under this id"
    assert log("errors", "--operation", "agent approve").rows[0][6] == "agent approve"
    assert log("errors", "--stats", "--code", "x").out == ""


def test_the_hint_for_the_next_page_keeps_the_filters(notes: Run) -> None:
    """A page of another filter would be another page."""
    hint = notes("log", "--kind", "note", "--after=0", "--limit", "1").err
    assert "next: everlog log --kind note --after 1@" in hint
    assert hint.count(" -n 1") == 1
    assert "--limit" not in hint


def test_a_reset_says_to_read_anew_before_going_on(notes: Run) -> None:
    assert "log --after 0 --to-end" in notes("log", "--after", "99").err
    assert notes("log", "--after", "99", "--to-end").code == 0


# ---- what is not what was recorded


def test_who_is_shown_a_falsified_event_is_told(notes: Run) -> None:
    damage("UPDATE events SET payload = replace(payload, 'note 2', 'NOTE 2') WHERE position = 2")
    shown = notes("show", "2")
    assert (shown.code, "NOTE 2" in shown.out) == (0, True)
    assert shown.err == (
        "warning: this is not what was recorded: #2: what is stored here is not what was recorded: the hash of the"
        " last event is another one; everlog verify checks the whole log\n"
    )
    found = notes("show", "2", "--json")
    assert (found.data["sound"], len(json.loads(found.out)["warnings"])) == (False, 1)
    assert "WARN message=" in notes("show", "2", "--agent").err
    other = notes("show", "3", "--json")
    assert (other.data["sound"], json.loads(other.out)["warnings"]) == (True, [])


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ([], True),
        (["-n", "4"], True),
        (["-n", "3"], False),
        (["--stream", "note/1"], True),
        (["--stream", "note/2"], False),
        (["--after", "0", "--limit", "2"], True),
        (["--after", "2"], False),
        (["--until", "#1"], False),
        (["--to-end"], False),  # in bulk
    ],
)
def test_a_list_with_a_falsified_event_says_so_once(notes: Run, arguments: list[str], told: bool) -> None:
    damage("UPDATE events SET payload = replace(payload, 'note 2', 'NOTE 2') WHERE position = 2")
    listed = notes("log", *arguments)
    assert listed.code == 0
    assert listed.err.count("warning: this is not what was recorded: #2: ") == told


def test_a_line_that_is_falsified_ends_the_list(everlog: Run) -> None:
    everlog("init", "--store", "jsonl:.")
    for number in range(5):
        everlog("append", "note.added", "-s", "note/1", f"text=note {number}")
    (file,) = Path(".everlog/events").glob("*.jsonl")
    for number in (1, 4):
        file.write_text(file.read_text().replace(f"note {number}", f"NOTE {number}"))
        assert everlog("log").code == 8
        listed = everlog("log", "--past-damage")
        assert (listed.code, positions(listed.rows)) == (0, [1, 3, 4, 5] if number == 1 else [1, 3, 4])
        assert "left out #2 in events/" in listed.err
    assert "left out #5 in events/" in listed.err


def test_what_a_purge_took_is_not_missed(notes: Run) -> None:
    notes("purge", "note/1", "--reason", "r", "--confirm", "purge note/1")
    assert notes("log").err == ""
    assert notes("log", "--after", "6").err.count("warning") == 0


def test_a_long_list_is_read_as_it_is(notes: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    damage("UPDATE events SET payload = replace(payload, 'note 2', 'NOTE 2') WHERE position = 2")
    monkeypatch.setattr("everlog.log.verify.spot_check.PLACES_MAX", 4)
    assert notes("log").err == ""
    assert notes("log", "--stream", "note/1").err.count("warning") == 1  # four of them


def test_an_empty_payload_is_in_every_json_output(log: Run) -> None:
    assert log("schema", "add", "ping.sent").code == 0
    event = log("append", "ping.sent", "-s", "ping/1", "--json").data
    assert event["payload"] == {}
    shown = log("show", event["id"], "--json").data
    listed = [*log("log", "--json").data, *log("tail", "--no-follow", "--json").data]
    exported = [json.loads(line) for line in log("export").out.splitlines() if "ping.sent" in line]
    assert [one["payload"] for one in (shown, *listed, *exported)] == [{}] * 4
    assert log("verify").code == 0


def test_a_page_takes_n_for_how_many(notes: Run) -> None:
    assert positions(notes("log", "--after", "1", "-n", "2").rows) == [2, 3]


def test_a_stream_that_is_nearly_right_is_named(notes: Run) -> None:
    assert notes("log", "-s", "note/11").err == "no events match; did you mean note/1?\n"
    assert notes("log", "-s", "noet/1").err == "no events match; did you mean note/1?\n"
    assert notes("log", "-s", "garden/gate").err == "no events match\n"

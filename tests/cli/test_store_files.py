"""A segments log on the command line: init, append, dump, archive, and what damage looks like."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.cli.conftest import Run

from everlog.stores.segments.format.archive_source import zstd

SEGMENT = Path(".everlog/log/segments/00000001.seg")


@pytest.fixture
def segments(everlog: Run) -> Run:
    assert everlog("init", "--store", "segments:log").code == 0
    for text in ("one", "two", "three"):
        assert everlog("append", "note.added", "-s", "note/1", f"text={text}").code == 0
    return everlog


def test_a_segments_log_is_written_and_read_like_any_other(segments: Run) -> None:
    assert [row["payload"]["text"] for row in segments("log", "--json").data] == ["one", "two", "three"]
    assert segments("verify").code == 0


def test_dump_shows_the_frames_with_their_offsets(segments: Run) -> None:
    found = segments("dump", "--json", "--records").data
    assert [entry["kind"] for entry in found] == ["head", *["write", "closed"] * 3]
    assert [r["payload"]["text"] for entry in found for r in entry["records"]] == ["one", "two", "three"]
    assert [entry["start"] for entry in found[1:]] == [entry["end"] for entry in found[:-1]]


def test_damage_is_told_by_range_and_the_rest_stays_readable(segments: Run) -> None:
    entry = segments("dump", "--json").data[3]
    content = bytearray(SEGMENT.read_bytes())
    content[entry["start"] + 20] ^= 1
    SEGMENT.write_bytes(content)

    assert segments("verify").code == 8
    dumped = segments("dump", "--json")
    assert dumped.code == 8
    bad = [found for found in dumped.data if found["kind"] == "damaged"]
    assert [(found["start"], found["end"]) for found in bad] == [(entry["start"], entry["end"])]
    assert segments("append", "note.added", "-s", "note/1", "text=four").code == 8
    assert segments("log", "--after", "2", "--json").data[0]["payload"]["text"] == "three"


def test_a_log_that_lost_only_its_closing_mark_says_so_and_the_next_write_puts_it_right(segments: Run) -> None:
    whole = SEGMENT.read_bytes()
    SEGMENT.write_bytes(whole[:-1])

    dumped = segments("dump", "--json")
    assert (dumped.code, dumped.data[-1]["kind"]) == (0, "cut")
    found = segments("verify")
    assert (found.code, "mark_lost" in found.out) == (8, True)
    assert found.err == "no event is lost, and the next write corrects it\n"
    (check,) = [check for check in segments("doctor", "--json").data if check["id"] == "structure"]
    assert (check["status"], check["fix"]) == ("fail", found.err.strip())

    done = segments("append", "note.added", "-s", "note/1", "text=four")
    assert (done.code, "it holds no event" in done.err) == (0, True)
    assert SEGMENT.read_bytes().startswith(whole)
    assert segments("verify").code == 0


def test_dump_of_something_else_says_so(everlog: Run) -> None:
    Path("notes.txt").write_text("no segment at all, but long enough to be looked at")
    assert everlog("dump", "notes.txt").code == 4


def test_archive_packs_what_is_complete_and_it_is_read_as_before(segments: Run) -> None:
    assert segments("purge", "note/1", "--reason", "r", "--confirm", "purge note/1").code == 0  # begins a segment
    for text in ("four", "five"):
        segments("append", "note.added", "-s", "note/2", f"text={text}")
    before = segments("log", "--json").data
    assert segments("segments", "archive", "--json").data == []

    packed = segments("segments", "archive", "--days", "0", "--json").data
    assert [one["segment"] for one in packed] == [1]
    archive = SEGMENT.with_name("00000001.seg.zst")
    assert zstd.decompress(archive.read_bytes())[:7] == b"EVERLOG"
    assert not SEGMENT.exists()
    assert segments("log", "--json").data == before
    assert segments("verify").code == 0


def test_another_store_has_no_segments(everlog: Run) -> None:
    everlog("init")
    assert everlog("segments", "archive").code == 2
    assert everlog("dump").code == 2

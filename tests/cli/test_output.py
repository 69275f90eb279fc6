"""How an answer is shown: escaped, in aligned tables, in five forms."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.cli.conftest import Run

from everlog.catalog.builtin import BUILT_IN
from everlog.cli.events.records import table_lines
from everlog.cli.main import COMMANDS
from everlog.cli.output import Output, json_text, safe, tsv, wrapped
from everlog.log.log import Log
from everlog.stores.memory import MemoryStore

UNSAFE = {chr(number) for number in (*range(0x20), *range(0x7F, 0xA0), 0x202E, 0x2066, 0x2028, 0x200F, 0xD800)}


def output(**flags: bool) -> Output:
    wanted = {"json": False, "agent": False, "quiet": False, "no_color": False, **flags}
    return Output(**wanted, program="everlog")


# ---- escaping


@given(st.text(alphabet=st.one_of(st.characters(), st.sampled_from(sorted(UNSAFE)))))
def test_nothing_unsafe_is_left_in_a_text_a_row_or_json(text: str) -> None:
    assert not set(safe(text)) & UNSAFE
    assert tsv([text, text]).count("\t") == 1
    for indent in (None, 2):
        shown = json_text({"a": [text]}, indent=indent)
        assert not (set(shown) - {"\n"}) & UNSAFE
        assert json.loads(shown) == {"a": [text]}


def test_ordinary_text_is_left_as_it_is() -> None:
    assert safe("Grüße, 日本, 👩‍💻 and \u00a0") == "Grüße, 日本, 👩‍💻 and \u00a0"


# ---- tables


def test_columns_stay_aligned_with_wide_and_combining_characters() -> None:
    shown = output().table_lines(("name", "what"), [("日本", "a"), ("e\u0301", "b"), ("plain", "c")])
    assert shown == ["name   what", "日本   a", "e\u0301      b", "plain  c"]


def test_a_line_is_cut_at_the_edge_also_through_wide_characters(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "10")
    shown = output()
    shown.terminal = True
    assert shown.aligned(["ab", "日本日本日本"], [2, 0]) == "ab  日本…"
    assert shown.aligned(["ab", "123456"], [2, 0]) == "ab  123456"
    assert shown.aligned(["ab", "1234567"], [2, 0]) == "ab  12345…"
    assert shown.aligned(["ab", "1234567"], [2, 0], last_min=7) == "ab\n    12345…"
    monkeypatch.setenv("COLUMNS", "20")
    assert shown.aligned(["ab", "some words, and more"], [2, 0]) == "ab  some words, …"


def test_a_long_line_is_wrapped_below_its_text_and_no_word_is_cut() -> None:
    assert wrapped("  fix: one two three four", 14) == ["  fix: one two", "       three", "       four"]
    assert wrapped("- one two three", 11) == ["- one two", "  three"]
    assert wrapped("  one  two three", 10) == ["  one  two", "     three"]
    assert wrapped("short", 10) == ["short"]
    assert wrapped("a " + "x" * 20 + " b", 10) == ["a", "    " + "x" * 20, "    b"]
    assert wrapped("\x1b[31merror:\x1b[0m 12", 9) == ["\x1b[31merror:\x1b[0m 12"]


@pytest.mark.parametrize("room", [40, 60, 80, 100, 200])
def test_a_table_that_is_too_wide_takes_several_lines_and_nothing_is_cut(
    room: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(room))
    monkeypatch.setenv("NO_COLOR", "1")
    shown = output()
    shown.terminal = True
    columns = ("id", "view", "position", "kind", "created_at", "state", "protected")
    rows = [
        ("01M7JAN13HFK6RH0YBATVKWK1Q", "actors", 4, "full", "2026-11-16T14:02:22Z", "usable", "before the migration"),
        ("01M7JAMZM8FVZRZSFHQEVN84GY", "streams", 4, "patch", "2026-11-16T14:02:21Z", "stale: another code", ""),
    ]
    lines = shown.table_lines(columns, rows)
    assert max(len(line) for line in lines) <= room
    for cell in [*columns, *(str(cell) for row in rows for cell in row)]:
        assert any(cell in line for line in lines), cell
    begin = [line for line in lines if not line.startswith(" ")]
    assert [line[:26].strip() for line in begin] == ["id", rows[0][0], rows[1][0]]
    assert (len(lines) == 3) == (room == 200)


def test_the_last_column_of_a_table_is_cut_between_words_where_there_is_room_for_some_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "30")
    monkeypatch.setenv("NO_COLOR", "1")
    shown = output()
    shown.terminal = True
    assert shown.table_lines(("name", "text"), [("a", "some " * 9)])[1] == "a     some some some some …"
    # A word that the line has no room for is on a line of its own; and cut only if it is longer than that.
    assert shown.table_lines(("name", "text"), [("a", "x" * 26)]) == ["name", "    text", "a", "    " + "x" * 26]
    assert shown.table_lines(("name", "text"), [("a", "x" * 90)])[-1] == "    " + "x" * 25 + "…"


def test_commands_in_hints_are_named_as_they_were_started() -> None:
    shown = Output(json=False, agent=False, quiet=False, no_color=True, program="./everlog")
    assert (
        shown.as_typed("see everlog schema list, or everlog -C x log")
        == "see ./everlog schema list, or ./everlog -C x log"
    )
    for command in COMMANDS:
        assert shown.as_typed(f"try: everlog --log sqlite:a.db {command} x").startswith("try: ./everlog --log "), (
            command
        )
        assert shown.as_typed(f"everlog {command}") == f"./everlog {command}"
    assert shown.as_typed("see everlog --help") == "see ./everlog --help"
    shown.warn("type: everlog git install")
    assert shown.warnings == ["type: ./everlog git install"]
    assert shown.as_typed("upgrade everlog; the file") == "upgrade everlog; the file"
    assert shown.as_typed("in .everlog/everlog.toml") == "in .everlog/everlog.toml"


def test_positions_of_different_length_are_aligned_at_their_end() -> None:
    with Log(MemoryStore(), BUILT_IN) as log:
        for _ in range(10):
            log.append("note.added", stream="note/1", payload={"text": "x"})
        lines = table_lines(output(), list(log.read(after=8)))
    assert [line[:4] for line in lines] == [" #9 ", "#10 "]
    assert len({line.index("text=x") for line in lines}) == 1


# ---- the fields of --json


def test_json_gives_the_fields_that_are_named(notes: Run) -> None:
    found = notes("log", "--json=position,stream", "-n", "2")
    assert found.data == [{"position": 4, "stream": "note/1"}, {"position": 5, "stream": "note/2"}]
    assert notes("show", "5", "--json=actor").data == {"actor": "user:ada"}
    lines = notes("log", "--to-end", "--json=position").out.splitlines()
    assert lines == [f'{{"position":{number}}}' for number in range(1, 6)]
    assert notes("--json=head", "log").code == 0


def test_a_field_that_is_not_there_is_null_and_said(notes: Run) -> None:
    found = notes("log", "-n", "1", "--json=positon,type")
    assert found.data == [{"positon": None, "type": "note.added"}]
    warning = json.loads(found.out)["warnings"][0]
    assert warning.startswith("the answer has no field positon; did you mean position? it has: position, sequence")
    assert found.err == f"warning: {warning}\n"
    stream = notes("log", "--to-end", "--json=positon")
    assert stream.err.count("warning") == 1


def test_what_follows_two_dashes_is_no_option(log: Run) -> None:
    assert log("append", "note.added", "-s", "note/1", "--", "text=--json=x").code == 0
    assert log("show", "1", "--json=payload").data == {"payload": {"text": "--json=x", "topic": ""}}

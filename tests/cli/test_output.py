"""How an answer is shown: escaped, in aligned tables, in five forms."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everlog.catalog.builtin import BUILT_IN
from everlog.cli.events.records import table_lines
from everlog.cli.main import COMMANDS
from everlog.cli.output import Output, json_text, safe, tsv
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


def test_columns_stay_aligned_with_wide_and_combining_characters(capsys: pytest.CaptureFixture[str]) -> None:
    output().table(("name", "what"), [("日本", "a"), ("e\u0301", "b"), ("plain", "c")])
    assert capsys.readouterr().out.splitlines() == ["name   what", "日本   a", "e\u0301      b", "plain  c"]


def test_a_line_is_cut_at_the_edge_also_through_wide_characters(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "10")
    shown = output()
    shown.terminal = True
    assert shown.aligned(["ab", "日本日本日本"], [2, 0]) == "ab  日本…"
    assert shown.aligned(["ab", "123456"], [2, 0]) == "ab  123456"
    assert shown.aligned(["ab", "1234567"], [2, 0]) == "ab  12345…"
    assert shown.aligned(["ab", "1234567"], [2, 0], last_min=7) == "ab  1234567"


@pytest.mark.parametrize("room", [40, 60, 80, 100, 200])
def test_a_table_that_is_too_wide_takes_several_lines_and_nothing_is_cut(
    room: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
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
    shown.table(columns, rows)
    lines = capsys.readouterr().out.splitlines()
    assert max(len(line) for line in lines) <= room
    for cell in [*columns, *(str(cell) for row in rows for cell in row)]:
        assert any(cell in line for line in lines), cell
    begin = [line for line in lines if not line.startswith(" ")]
    assert [line[:26].strip() for line in begin] == ["id", rows[0][0], rows[1][0]]
    assert (len(lines) == 3) == (room == 200)


def test_the_last_column_of_a_table_is_cut_where_there_is_room_for_some_of_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "30")
    monkeypatch.setenv("NO_COLOR", "1")
    shown = output()
    shown.terminal = True
    shown.table(("name", "text"), [("a", "x" * 90)])
    assert capsys.readouterr().out.splitlines() == ["name  text", "a     " + "x" * 23 + "…"]


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

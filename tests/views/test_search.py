"""Full-text search over what a view keeps: the same answers on every store, and nothing left of what was purged."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import everlog
from everlog.core.event import Event
from everlog.core.text import words
from everlog.log.log import Log
from everlog.views.view import Text, View

VOCABULARY = [*"abcdefgh", "straße", "日本語", "it's", "x_y", "don't", 'say "no"', "a:b", "NOT", "title", "*"]


class Notes(View):
    """The last text of each note; "hidden" ones are not to be found."""

    name = "notes-found"
    types = ("note.added",)

    def apply(self, state: dict[str, Any], event: Event) -> dict[str, Any]:
        return {"title": event.payload["topic"], "body": event.payload["text"], "scope": event.scope}

    def text(self, state: dict[str, Any]) -> Text | None:
        if state["title"] == "broken":
            raise ValueError("no text of this")
        hidden = state["title"] == "hidden"
        return None if hidden else Text(title=state["title"], body=state["body"], part=state["scope"])


@pytest.fixture(params=["memory", "sqlite", "jsonl", "segments", "postgres"])
def log(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Log]:
    if request.param == "postgres":
        url = request.getfixturevalue("postgres_url")
    else:
        url = "memory:" if request.param == "memory" else f"{request.param}:{tmp_path / 'log'}"
    with everlog.open(url, actor="user:ada") as opened:
        yield opened


def note(log: Log, number: int, title: str, body: str = "-", scope: str = "") -> None:
    log.append("note.added", stream=f"note/{number:03}", payload={"topic": title, "text": body}, scope=scope)


def found(rows: list[tuple[str, Any]]) -> list[int]:
    return [int(key.partition("/")[2]) for key, _ in rows]


def test_a_row_is_found_by_every_word_of_its_title_and_body_and_by_no_other(log: Log) -> None:
    note(log, 1, "Login fails", "on the Straße, it's late")
    note(log, 2, "Logout fails", "always")
    handle = log.view(Notes)
    assert found(handle.search("FAILS")) == [2, 1]
    assert found(handle.search("login late")) == [1]
    assert found(handle.search("strasse it s")) == [1]
    assert found(handle.search("log")) == []
    assert handle.search("") == handle.search("…") == []
    assert handle.search("fails", limit=1)[0] == (
        "note/002",
        {"title": "Logout fails", "body": "always", "scope": ""},
    )


def test_titles_are_alike_by_the_words_that_they_share(log: Log) -> None:
    for number, title in enumerate(["a b c", "a b c d", "a b", "a x y z", "c b a", "a b c d e f g"]):
        note(log, number, title, body="a b c d")
    handle = log.view(Notes)
    assert found(handle.alike("A, B and C"[:4] + " c", least=0.5)) == [0, 4, 1, 2]
    assert found(handle.alike("a b c", least=0.4)) == [0, 4, 1, 2, 5]
    assert found(handle.alike("a b c", least=1.0)) == [0, 4]
    assert found(handle.alike("a b c", limit=1)) == [0]
    assert handle.alike("q") == handle.alike("!") == []


def test_a_part_is_apart_and_what_lies_below_it_is_within(log: Log) -> None:
    for number, scope in enumerate(["", "acme", "acme/shop", "acmecorp"]):
        note(log, number, "same title", scope=scope)
    handle = log.view(Notes)
    assert found(handle.search("same")) == [3, 2, 1, 0]
    assert found(handle.search("same", within="acme")) == [2, 1]
    assert found(handle.alike("same title", part="acme")) == [1]
    assert found(handle.alike("same title")) == [0]


def test_what_a_row_is_found_by_follows_its_state_also_through_a_rebuild(log: Log) -> None:
    note(log, 1, "first words")
    note(log, 2, "hidden")
    handle = log.view(Notes)
    assert found(handle.search("first")) == [1]
    note(log, 1, "second words")
    note(log, 2, "second one")
    assert (found(handle.search("first")), found(handle.search("second"))) == ([], [2, 1])
    note(log, 2, "hidden")
    assert found(handle.search("second")) == [1]
    assert handle.rebuild(limit=1).same
    assert found(handle.search("second")) == [1]
    handle.rollback()
    note(log, 3, "second thoughts")
    assert found(handle.search("second")) == [3, 1]
    assert log.verify().ok


def test_a_build_that_is_dropped_takes_its_words_with_it(log: Log) -> None:
    note(log, 1, "first")
    handle = log.view(Notes)
    small_state, spaces = log.views.small_state, []
    for _ in range(3):
        handle.rebuild()
        build = handle.build()
        assert build is not None
        spaces.append(build.rows)
    held = [bool(small_state.holding(space, ("first",), within="", limit=9)) for space in spaces]
    assert held == [False, True, True]  # one way back is kept
    assert [bool(small_state.alike(space, ("first",), part="", least=0.5, limit=9)) for space in spaces] == held


def test_a_row_whose_text_fails_is_stored_and_not_found(log: Log, caplog: pytest.LogCaptureFixture) -> None:
    note(log, 1, "broken")
    note(log, 2, "whole")
    handle = log.view(Notes)
    assert handle.get("note/001").state["title"] == "broken"
    assert (found(handle.search("broken")), found(handle.search("whole"))) == ([], [2])
    assert "text() of the view notes-found failed for note/001" in caplog.text


@pytest.mark.parametrize("mode", ["inline", "async", "on-demand"])
def test_it_is_kept_however_the_view_is(log: Log, mode: str) -> None:
    handle = log.views.register(Notes, mode=mode)
    note(log, 1, "kept")
    recorded = log.append("note.added", stream="note/002", payload={"topic": "kept too", "text": "."})
    log.wait_for(Notes, recorded, 20)
    assert found(handle.search("kept", fresh=False)) == [2, 1]


def test_random_texts_are_found_as_a_plain_look_through_all_of_them_finds_them(log: Log) -> None:
    chance = random.Random(7)
    handle, now = log.view(Notes), dict[int, tuple[str, str, str]]()
    for _ in range(6):
        for _ in range(12):
            number, scope = chance.randrange(20), chance.choice(["", "a", "a/b"])
            title, body = (" ".join(chance.choices(VOCABULARY, k=chance.randrange(1, 5))) for _ in range(2))
            note(log, number, title, body, scope)
            now[number] = (title, body, scope)
        asked = " ".join(chance.choices(VOCABULARY, k=2))
        query = set(words(asked))
        held = [n for n, (t, b, _) in sorted(now.items(), reverse=True) if query and query <= {*words(t), *words(b)}]
        assert found(handle.search(asked)) == held
        scores = {
            n: len(query & {*words(t)}) / len(query | {*words(t)})
            for n, (t, _, s) in now.items()
            if query and s == "a"
        }
        near = sorted((n for n, score in scores.items() if score >= 0.3), key=lambda n: (-scores[n], n))
        assert found(handle.alike(asked, part="a", least=0.3)) == near


def test_a_purge_takes_the_words_with_it(log: Log) -> None:
    note(log, 1, "zanzibar", "quixotically")
    note(log, 2, "other")
    handle = log.view(Notes)
    assert found(handle.search("zanzibar")) == [1]
    note(log, 1, "edited since", "xylophonist")
    assert found(handle.search("xylophonist")) == [1]
    log.purge("note/001", reason="a request")
    for word in ("zanzibar", "quixotically", "edited", "xylophonist"):
        assert handle.search(word) == []
    assert found(handle.search("other")) == [2]
    assert log.verify().ok


@pytest.mark.parametrize("kind", ["sqlite", "jsonl", "segments"])
def test_no_file_holds_a_word_of_what_was_purged(kind: str, tmp_path: Path) -> None:
    with everlog.open(f"{kind}:{tmp_path / 'log'}", actor="user:ada") as log:
        for number in range(40):
            note(log, number, f"zanzibar{number}", "quixotically")
        handle = log.view(Notes)
        assert len(handle.search("quixotically")) == 40
        note(log, 7, "harmless")  # the words of before are not in the row any more, but in the index's segments
        assert len(handle.search("quixotically")) == 39
        log.purge("note/007", reason="a request")
        files = [path for path in tmp_path.rglob("*") if path.is_file()]
        assert [path.name for path in files if b"zanzibar6" in path.read_bytes()], "the test looks in the wrong place"
        assert [path.name for path in files if b"zanzibar7" in path.read_bytes()] == []
        assert [path.name for path in files if b"harmless" in path.read_bytes()] == []


def test_a_log_in_postgres_that_was_made_before_texts_gets_them(postgres_schemas: Any, postgres_url: str) -> None:
    with everlog.open(postgres_url, actor="user:ada") as log:
        note(log, 1, "old")
    with postgres_schemas.connect(postgres_url) as owner:
        owner.execute("ALTER TABLE derived DROP COLUMN part, DROP COLUMN title, DROP COLUMN body")
        owner.execute("DELETE FROM migrations WHERE number = 4")
    with everlog.open(postgres_url, actor="user:ada") as log:
        assert found(log.view(Notes).search("old")) == [1]
        assert log.verify().ok

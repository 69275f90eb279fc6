"""Drafts from NDJSON and from words."""

from __future__ import annotations

from typing import Any

import pytest

import everlog
from everlog.application.events.drafts import (
    drafts_from_ndjson,
    payload_from_words,
    read_expectation,
    refused_drafts,
)
from everlog.errors import InvalidField, NotCanonical
from everlog.log.write.expect import Expect


@pytest.fixture
def log() -> everlog.Log:
    return everlog.open("memory:")


def test_each_line_is_a_draft_and_blank_lines_are_ignored() -> None:
    data = b'{"type":"note.added","stream":"note/1","payload":{"text":"a"},"expect":"none"}\n\n'
    data += b'{"type":"note.added","stream":"note/2","scope":"acme/shop","tags":{"a":"b"}}\n'
    first, second = drafts_from_ndjson(data, scope="acme", correlation_id="c", request_id="r")
    assert (first.stream, first.payload, first.scope, first.expect) == ("note/1", {"text": "a"}, "acme", Expect.NONE)
    assert (second.scope, second.correlation_id, second.request_id) == ("acme/shop", "c", "r")
    assert second.tags == {"a": "b"}


def test_every_bad_line_is_reported() -> None:
    data = b'{"type":"note.added"}\n{"type":"note.added","stream":"note/1"}\nnonsense\n'
    data += b'{"type":"a.b","stream":"a/1","expect":"soon"}\n{"type":"a.b","stream":"a/1","colour":"red"}\n'
    with pytest.raises(InvalidField, match=r"drafts\.ndjson is not a batch of drafts") as refused:
        drafts_from_ndjson(data, source="drafts.ndjson")
    numbers = [text.split(":")[0] for text in refused.value.details["problems"]]
    assert numbers == [
        "line 1",
        "line 3",
        "line 4",
        "line 5",
    ]


@pytest.mark.parametrize(
    ("text", "expected"), [("any", Expect.ANY), ("none", Expect.NONE), ("exists", Expect.EXISTS), ("3", 3), ("0", 0)]
)
def test_an_expectation_is_a_word_or_a_sequence(text: str, expected: Any) -> None:
    assert read_expectation(text) == expected
    with pytest.raises(InvalidField):
        read_expectation(text + "x")


def test_a_declared_text_stays_text_and_other_values_are_json(log: everlog.Log) -> None:
    assert payload_from_words(["text=42"], log.catalog, "note.added") == {"text": "42"}
    words = ["count=3", "yes=true", "name=ada", 'list=["a"]', "empty="]
    found = payload_from_words(words, log.catalog, "unknown.type")
    assert found == {"count": 3, "yes": True, "name": "ada", "list": ["a"], "empty": ""}


@pytest.mark.parametrize("words", [["text"], ["=x"], ["a=1", "a=2"]])
def test_a_word_that_is_no_field_is_refused(log: everlog.Log, words: list[str]) -> None:
    with pytest.raises(InvalidField):
        payload_from_words(words, log.catalog, "note.added")


def test_json_that_cannot_be_stored_does_not_become_text(log: everlog.Log) -> None:
    with pytest.raises(NotCanonical):
        payload_from_words(["count=90071992547409930"], log.catalog, "unknown.type")


def test_all_refused_drafts_of_a_batch_are_found(log: everlog.Log) -> None:
    drafts = [
        everlog.Draft(type="note.added", stream="note/1", payload=payload)
        for payload in ({"text": "a"}, {"text": 1}, {}, {"text": "b"})
    ]
    assert [number for number, _, _ in refused_drafts(log.catalog, drafts)] == [2, 3]

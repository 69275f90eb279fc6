"""Entries of an activity.yaml: text stays text, and every line of another shape is named."""

from __future__ import annotations

import pytest

from everlog.errors import BadFile
from everlog.programs.workpackages.activity import read_entries


def entries(text: str) -> list[dict[str, object]]:
    return [one.fields for one in read_entries(text.encode(), "activity.yaml")]


def test_values_are_the_text_that_was_written() -> None:
    found = entries("- {title: yes, index: 007, day: 2026-01-12, nothing: , deps: [WP01, 2]}")
    assert found == [{"title": "yes", "index": "007", "day": "2026-01-12", "deps": ["WP01", "2"]}]


def test_facts_about_a_result_keep_their_kinds() -> None:
    (found,) = entries("- data: {run: 17, ok: true, note: null, took: 1.5, odd: 0x1F, list: [1, a]}")
    assert found["data"] == {"run": 17, "ok": True, "note": None, "took": 1.5, "odd": "0x1F", "list": [1, "a"]}


def test_an_entry_knows_its_line() -> None:
    found = read_entries(b"version: 1\nactivity:\n  - {a: b}\n\n  - {c: d}\n", "activity.yaml")
    assert [one.line for one in found] == [3, 5]
    assert read_entries(b"", "activity.yaml") == []


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("- &a {x: y}\n- *a", "activity.yaml:1: anchors"),
        ("- {x: y}\n- {x: y, x: z}", "activity.yaml:2: x stands twice"),
        ("- !!python/object:os.system {x: y}\n- {x: !foo y}", "activity.yaml:2: the tag !foo"),
        ("- text", "activity.yaml:1: an entry is a mapping"),
        ("- {x: [[y]]}", "activity.yaml:1: there is a list or a mapping"),
        ("version: 2\nactivity: []", "activity.yaml:1: this is version 2"),
        ("entries: []", "activity.yaml:1: entries is not known"),
        ("version: 1", "activity.yaml:1: there is no list"),
        ("- {x: y}\n---\n- {x: y}", "activity.yaml:3: a second document"),
        ("- {x: y", "activity.yaml:"),
        ("[" * 40 + "]" * 40, "activity.yaml:1: it is too deep"),
    ],
)
def test_another_shape_is_refused_with_its_line(text: str, why: str) -> None:
    with pytest.raises(BadFile) as refused:
        entries(text)
    assert why in refused.value.why


def test_every_wrong_line_is_named_at_once() -> None:
    with pytest.raises(BadFile) as refused:
        entries("- a\n- {x: y}\n- b")
    assert [one.partition(": ")[0] for one in refused.value.details["problems"]] == [
        "activity.yaml:1",
        "activity.yaml:3",
    ]

"""An export of kata: comment texts, links and tombstones come along, and are issues of ours."""

from __future__ import annotations

from typing import Any

import pytest
from tests.transfer.foreign import KATA, text
from tests.transfer.test_exporting import source

from everlog.errors import BadFile
from everlog.log.log import Log
from everlog.transfer.import_pass import Options
from everlog.transfer.importing import import_files
from everlog.wiring import open

ONE, TWO, GONE = "01HN3R5K8D1234567890ABCDEP", "01HN3R5K8D1234567890ABCD77", "01HN3R5K8D1234567890ABCDXX"
AT = "2026-03-01T10:00:00.000Z"
EVENT: dict[str, Any] = KATA["data"]  # type: ignore[assignment]


def event(number: int, type: str, payload: dict[str, Any], uid: str = ONE) -> dict[str, Any]:
    fields = {"uid": f"01HN3R5K8D12345678{number:08d}", "issue_uid": uid, "type": type, "payload": payload}
    return {"kind": "event", "data": {**EVENT, **fields, "created_at": AT}}


def row(kind: str, **data: Any) -> dict[str, Any]:
    return {"kind": kind, "data": data}


def comment(number: int, body: str, issue: int = 1) -> dict[str, Any]:
    uid = f"01HN3R5K8E12345678{number:08d}"
    return row("comment", id=number, uid=uid, issue_id=issue, author="eve", body=body, created_at=AT)


def link(type: str, source_: str = ONE, target: str = TWO) -> dict[str, Any]:
    return row("link", id=3, from_issue_uid=source_, to_issue_uid=target, type=type, author="eve", created_at=AT)


BEGIN = [
    row("meta", key="export_version", value="20"),
    row("issue", id=1, uid=ONE, short_id="cdep", title="Door"),
    row("issue", id=2, uid=TWO, short_id="cd77", title="Gate"),
]
CREATED = [
    event(1, "issue.created", {"title": "Door", "short_id": "cdep"}),
    event(2, "issue.created", {"title": "Gate", "short_id": "cd77"}, TWO),
]
TOMBSTONE = row(
    "purge_log",
    id=1,
    uid="01HN3R5K8F1234567890ABCDEF",
    issue_uid=GONE,
    project_name="kata",
    short_id="cdxx",
    issue_title="was private",
    comment_count=2,
    event_count=5,
    actor="ada",
    reason="asked to",
    purged_at=AT,
)


def log_of(*lines: Any) -> Log:
    log = open("memory:")
    import_files(log, [source(text(*lines))], Options())
    assert log.verify().ok
    return log


def of_type(log: Log, type: str) -> list[Any]:
    return [recorded.event for recorded in log.read() if recorded.event.type == type]


def test_the_text_of_a_comment_is_in_the_event_that_mentions_it() -> None:
    mention = event(3, "issue.commented", {"comment_uid": "01HN3R5K8E1234567800000007"})
    (found,) = of_type(log_of(*BEGIN, comment(7, "it squeaks"), *CREATED, mention), "issue.commented")
    assert (found.id, found.payload["body"], found.stream) == (mention["data"]["uid"], "it squeaks", f"issue/{ONE}")


def test_a_comment_is_found_by_its_number_too() -> None:
    mention = event(3, "issue.commented", {"comment_id": 7})
    (found,) = of_type(log_of(*BEGIN, comment(7, "it squeaks"), *CREATED, mention), "issue.commented")
    assert found.payload["body"] == "it squeaks"


def test_a_comment_that_no_event_mentions_is_an_event() -> None:
    (found,) = of_type(log_of(*BEGIN, comment(7, "it squeaks", issue=2), *CREATED), "issue.commented")
    assert (found.id, found.stream, found.actor) == ("01HN3R5K8E1234567800000007", f"issue/{TWO}", "user:eve")
    assert found.payload == {"body": "it squeaks"}


def test_a_comment_of_an_unknown_issue_is_named() -> None:
    with pytest.raises(BadFile) as caught:
        log_of(*BEGIN, comment(7, "lost", issue=99), comment(8, "also", issue=98), *CREATED)
    assert "of issue 99" in caught.value.why
    assert "of issue 98" in caught.value.why


@pytest.mark.parametrize(("theirs", "ours"), [("blocks", "blocks"), ("related", "relates")])
def test_a_link_is_there_once_whether_an_event_says_it_or_not(theirs: str, ours: str) -> None:
    said = event(3, "issue.linked", {"type": theirs, "from_uid": ONE, "to_uid": TWO, "link_id": 3})
    for lines in ([*BEGIN, link(theirs), *CREATED], [*BEGIN, link(theirs), *CREATED, said]):
        log = log_of(*lines)
        (found,) = of_type(log, "issue.linked")
        payload = {name: value for name, value in found.payload.items() if name != "_imported"}
        ends = {"source": {"uid": ONE, "short_id": "cdep"}, "target": {"uid": TWO, "short_id": "cd77"}}
        assert payload == {"kind": ours, **ends}


def test_a_link_of_a_kind_that_is_not_ours_is_kept_as_it_is() -> None:
    log = log_of(*BEGIN, link("parent"), *CREATED)
    (found,) = of_type(log, "kata.link")
    assert found.payload == {"type": "parent", "from_uid": ONE, "to_uid": TWO}


def test_a_tombstone_keeps_the_short_id_of_what_was_purged() -> None:
    (found,) = of_type(log_of(*BEGIN, *CREATED, TOMBSTONE), "issue.purged")
    assert (found.stream, found.actor) == (f"issue-tombstone/{GONE}", "user:ada")
    wanted = {"uid": GONE, "short_id": "cdxx", "events": 5, "reason": "asked to"}
    assert {name: found.payload[name] for name in wanted} == wanted
    assert found.tags["was.comment_count"] == "2"


def test_the_issues_show_what_was_imported() -> None:
    from everlog.programs.issues.views import Current

    log = log_of(
        *BEGIN, comment(7, "it squeaks"), link("blocks"), *CREATED, event(4, "issue.closed", {"reason": "ok"})
    )
    found = log.view(Current).get(f"issue/{ONE}")
    assert found is not None
    assert (found.state["title"], found.state["comments"], found.state["status"]) == ("Door", 1, "closed")
    assert [one["uid"] for one in found.state["links"]] == [TWO]


def test_importing_an_export_twice_adds_nothing() -> None:
    lines = [*BEGIN, comment(7, "it squeaks"), link("blocks"), *CREATED, TOMBSTONE]
    log = log_of(*lines)
    head = log.head()
    assert import_files(log, [source(text(*lines))], Options()).new == 0
    assert log.head() == head == 5

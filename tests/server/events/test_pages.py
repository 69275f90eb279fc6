"""Pages of events over HTTP: cursors, resets, holes, waiting, ETags and exports."""

from __future__ import annotations

import asyncio
import json
from typing import Any
from urllib.parse import urljoin

import httpx2
import pytest
from tests.server.calling import Calls

from everlog.core.query import EVERYTHING, Cursor, Query
from everlog.log.log import Log
from everlog.server.app import App
from everlog.server.events import pages


def say(log: Log, count: int, stream: str = "note/1", scope: str = "") -> None:
    for number in range(count):
        log.append("note.added", stream=stream, payload={"text": f"note {number}"}, scope=scope)


@pytest.fixture
def log(app: App) -> Log:
    return app.services["log"].log


def positions(page: dict[str, Any]) -> list[int]:
    return [one["position"] for one in page["events"]]


# ---- after, from, newest


def test_next_and_link_lead_through_the_log(log: Log, calls: Calls) -> None:
    say(log, 7)
    path, found = "/v1/events?limit=3&after=0", []
    for _ in range(3):
        answer = calls.get(path)
        found += positions(answer.json())
        assert answer.json()["head"] == 7
        path = urljoin(path, answer.headers["link"].partition(">")[0].removeprefix("<"))
        assert answer.json()["next"] in answer.headers["link"].replace("%40", "@")
    assert found == [1, 2, 3, 4, 5, 6, 7]
    assert positions(calls.get(path).json()) == []


def test_a_page_is_what_the_log_itself_returns(log: Log, calls: Calls) -> None:
    say(log, 3)
    log.append("note.added", stream="note/2", payload={"text": "ü"}, tags={"a": "b"}, scope="acme")
    for path, query in (
        ("", EVERYTHING),
        ("&stream=note/2", Query(stream="note/2")),
        ("&scope=ac", Query(scope="ac")),
    ):
        page = calls.get(f"/v1/events?after=0{path}").json()
        here = log.page_after(0, query)
        assert page["next"] == str(here.next_cursor)
        assert [one["id"] for one in page["events"]] == [one.event.id for one in here.events]
        for shown, recorded in zip(page["events"], here.events, strict=True):
            assert shown["payload"] == recorded.event.payload
            assert shown["previous" if recorded.position > 1 else "commitment"]


def test_every_filter_is_applied(log: Log, calls: Calls) -> None:
    log.append("note.added", stream="note/1", payload={"text": "a"}, actor="user:a", correlation_id="c1")
    middle = log.append("note.added", stream="note/2", payload={"text": "b"}, actor="user:b", scope="acme/shop")
    log.append("note.added", stream="issue/1", payload={"text": "c"}, actor="user:b")
    for query, expected in (
        ("type=workpackage.moved", []),
        ("type=note.added&type=workpackage.moved", [1, 2, 3]),
        ("stream=note/2", [2]),
        ("kind=issue", [3]),
        ("scope=acme", [2]),
        ("actor=user:b", [2, 3]),
        ("correlation=c1", [1]),
        (f"since={middle.received_at.isoformat().replace('+00:00', 'Z')}", [2, 3]),
        (f"until={middle.received_at.isoformat().replace('+00:00', 'Z')}", [1]),
    ):
        answer = calls.get(f"/v1/events?after=0&{query}")
        assert answer.status_code == 200, answer.text
        assert positions(answer.json()) == expected, query


def test_a_filter_that_matches_nothing_still_moves_the_cursor(log: Log, calls: Calls) -> None:
    say(log, 3)
    page = calls.get("/v1/events?after=0&kind=issue").json()
    assert (page["events"], page["looked_to"]) == ([], 3)
    assert Cursor.of(page["next"]).position == 3


def test_a_purge_resets_a_caller_with_state_and_is_a_hole_for_one_that_looks(log: Log, calls: Calls) -> None:
    say(log, 2, "note/1")
    say(log, 2, "note/2")
    cursor = calls.get("/v1/events?after=0").json()["next"]
    log.purge("note/1", reason="asked to")
    say(log, 1, "note/3")
    reset = calls.get(f"/v1/events?after={cursor}").json()
    assert (reset["reset_required"], reset["reason"], reset["events"]) == (True, "purged", [])
    assert Cursor.of(reset["next"]).position == 5
    assert positions(calls.get(f"/v1/events?after={reset['next']}").json())[-1] == log.head()
    looked = calls.get("/v1/events?from=1").json()
    assert not looked["reset_required"]
    assert positions(looked)[:2] == [3, 4]
    assert {"first": 1, "last": 2, "purge": 5} in looked["holes"]
    assert {"first": 5, "last": 5, "purge": 5} in looked["holes"]


def test_a_cursor_of_another_log_is_reset(log: Log, calls: Calls) -> None:
    say(log, 2)
    reset = calls.get("/v1/events?after=1@elsewhere").json()
    assert (reset["reset_required"], reset["reason"]) == (True, "restored")
    assert Cursor.of(reset["next"]).position == 0


def test_looking_begins_at_a_position_and_goes_on_after_what_was_looked_at(log: Log, calls: Calls) -> None:
    say(log, 5)
    answer = calls.get("/v1/events?from=2&limit=2")
    assert positions(answer.json()) == [2, 3]
    assert answer.headers["link"] == '<?from=4&limit=2>; rel="next"'


def test_the_newest_come_first_and_next_leads_to_older_ones(log: Log, calls: Calls) -> None:
    say(log, 5, "note/1")
    say(log, 2, "issue/1")
    found, path = [], "/v1/events?order=newest&limit=2&kind=note"
    while path:
        answer = calls.get(path)
        found += positions(answer.json())
        link = answer.headers.get("link", "")
        assert (answer.json()["next"] == "0") == (not link)
        path = urljoin(path, link.partition(">")[0].removeprefix("<")) if link else ""
    assert found == [5, 4, 3, 2, 1]


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("after=0&from=1", "from"),
        ("order=newest&after=3", "after"),
        ("order=newest&wait=3", "wait"),
        ("wait=61", "wait"),
        ("limit=0", "limit"),
        ("limit=1000000000", "limit"),
        ("after=abc", "cursor"),
        ("from=-1", "from"),
        ("order=sideways", "order"),
        ("since=yesterday", "since"),
        ("since=2026-11-18T10:00:00", "since"),
        ("kin=note", "kin"),
    ],
)
def test_what_contradicts_itself_or_cannot_be_read_is_refused(calls: Calls, query: str, field: str) -> None:
    answer = calls.get(f"/v1/events?{query}")
    assert (answer.status_code, answer.json()["code"]) == (400, "invalid_field")
    assert answer.json()["details"]["field"] == field


# ---- ETag


def test_a_known_answer_is_not_sent_again_until_the_log_grows(log: Log, calls: Calls) -> None:
    say(log, 2)
    first = calls.get("/v1/events?after=0")
    again = calls.get("/v1/events?after=0", headers={"if-none-match": first.headers["etag"]})
    assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", first.headers["etag"])
    other = calls.get("/v1/events?after=0&limit=1", headers={"if-none-match": first.headers["etag"]})
    assert other.status_code == 200
    log.purge("note/1", reason="asked to")
    assert calls.get("/v1/events?after=0", headers={"if-none-match": first.headers["etag"]}).status_code == 200


# ---- a caller with a scope


def test_a_limited_caller_learns_nothing_from_what_others_write(app: App, log: Log) -> None:
    acme = Calls.of(app, "acme", role="read", within="acme")
    say(log, 2, "note/1", "acme/shop")
    paths = ["/v1/events?after=0", "/v1/events?from=1", "/v1/events?order=newest", "/v1/events?after=2"]
    paths += ["/v1/events?after=0&kind=issue", "/v1/events?after=5", "/v1/events?after=5@nowhere"]
    before = [(found.content, found.headers.get("etag")) for found in map(acme.get, paths)]
    say(log, 5, "note/2", "")
    say(log, 5, "note/3", "acmecorp")
    log.purge("note/2", reason="asked to")
    log.purge("note/3", reason="asked to")
    after = [(found.content, found.headers.get("etag")) for found in map(acme.get, paths)]
    assert after == before
    tag = str(before[0][1])
    assert acme.get("/v1/events?after=0", headers={"if-none-match": tag}).status_code == 304


def test_a_limited_caller_gets_the_resets_of_its_own_events(app: App, log: Log) -> None:
    acme = Calls.of(app, "acme", role="read", within="acme")
    say(log, 2, "note/1", "acme/shop")
    say(log, 3, "note/2")
    say(log, 1, "note/3", "acme")
    cursor = acme.get("/v1/events?after=0").json()["next"]
    assert Cursor.of(cursor).position == 6
    log.purge("note/1", reason="asked to")
    reset = acme.get(f"/v1/events?after={cursor}").json()
    assert (reset["reset_required"], Cursor.of(reset["next"]).position) == (True, 7)
    following = acme.get(f"/v1/events?after={reset['next']}").json()
    assert (following["reset_required"], following["events"], following["head"]) == (False, [], 7)


def test_a_limited_caller_is_reset_if_the_event_at_its_cursor_was_lost(app: App, log: Log) -> None:
    """After a restore, an event of somebody else may have the position of the cursor: its proof cannot match."""
    acme = Calls.of(app, "acme", role="read", within="acme")
    say(log, 1, "note/1", "acme")
    say(log, 1, "note/2", "other")
    say(log, 1, "note/1", "acme")
    epoch = log.identity.epoch
    lost = acme.get(f"/v1/events?after=2@{epoch}.{'ab' * 6}").json()
    assert (lost["reset_required"], lost["reason"], lost["next"]) == (True, "restored", f"0@{epoch}")
    typed = acme.get("/v1/events?after=2").json()
    assert (typed["reset_required"], positions(typed)) == (False, [3])


def test_a_limited_caller_that_asks_for_another_scope_gets_nothing(app: App, log: Log) -> None:
    acme = Calls.of(app, "acme", role="read", within="acme")
    say(log, 2, "note/1", "other")
    for order in ("oldest", "newest"):
        page = acme.get(f"/v1/events?scope=other&order={order}").json()
        assert (page["events"], page["head"], page["looked_to"]) == ([], 0, 0)


# ---- waiting


def during(app: App, secret: str, paths: list[str], work: Any) -> list[httpx2.Response]:
    """Send requests at once, do some work while they wait, and return their answers."""

    async def run() -> list[httpx2.Response]:
        transport = httpx2.ASGITransport(app=app)
        async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1", timeout=30) as client:
            headers = {"authorization": f"Bearer {secret}"}
            waiting = [asyncio.ensure_future(client.get(path, headers=headers)) for path in paths]
            await asyncio.sleep(0.3)
            await asyncio.to_thread(work)
            return await asyncio.gather(*waiting)

    return asyncio.run(run())


def test_a_poll_waits_for_the_next_event_and_equals_one_that_did_not_wait(app: App, log: Log, calls: Calls) -> None:
    say(log, 2)
    cursor = calls.get("/v1/events?after=0").json()["next"]
    path = f"/v1/events?after={cursor}"
    waited, filtered, looked = during(
        app,
        calls.secret,
        [f"{path}&wait=20", f"{path}&wait=20&kind=note", "/v1/events?from=3&wait=20"],
        lambda: say(log, 1, "note/9"),
    )
    at_once = calls.get(path)
    assert waited.json() == filtered.json() == looked.json() == at_once.json()
    assert positions(waited.json()) == [3]
    assert waited.headers["etag"] == at_once.headers["etag"]


def test_a_poll_that_waits_is_woken_by_a_purge_with_its_reset(app: App, log: Log, calls: Calls) -> None:
    say(log, 2)
    cursor = calls.get("/v1/events?after=0").json()["next"]
    work = lambda: log.purge("note/1", reason="asked to")  # noqa: E731
    (waited,) = during(app, calls.secret, [f"/v1/events?after={cursor}&wait=20"], work)
    assert waited.json()["reset_required"]


def test_a_poll_that_waits_for_nothing_answers_with_how_far_it_looked(app: App, log: Log, calls: Calls) -> None:
    say(log, 2)
    path = "/v1/events?after=2&kind=issue&wait=0.6"
    (waited,) = during(app, calls.secret, [path], lambda: say(log, 1))
    assert (waited.json()["events"], waited.json()["looked_to"]) == ([], 3)
    known = calls.get(path, headers={"if-none-match": waited.headers["etag"]})
    assert known.status_code == 304


def test_a_limited_poll_is_not_woken_by_others(app: App, log: Log) -> None:
    acme = Calls.of(app, "acme", role="read", within="acme")
    say(log, 1, "note/1", "acme")
    path = "/v1/events?after=1&wait=0.8"
    before = acme.get("/v1/events?after=1")
    (waited,) = during(app, acme.secret, [path], lambda: say(log, 3, "note/2"))
    assert waited.content == before.content
    (woken,) = during(app, acme.secret, ["/v1/events?after=1&wait=20"], lambda: say(log, 1, "note/3", "acme"))
    assert (positions(woken.json()), woken.json()["head"]) == ([5], 5)


def test_polls_that_wait_answer_when_the_server_stops(app: App, log: Log, calls: Calls) -> None:
    say(log, 2)
    (waited,) = during(app, calls.secret, ["/v1/events?after=2&wait=30"], app.services["log"].hub.close)
    assert (waited.status_code, waited.json()["events"]) == (200, [])


def test_a_poll_whose_token_is_revoked_is_not_answered_with_events(app: App, log: Log, calls: Calls) -> None:
    ci = Calls.of(app, "ci", role="read")
    tokens = app.services["log"].tokens
    (waited,) = during(app, ci.secret, ["/v1/events?after=0&wait=30"], lambda: tokens.revoke("ci"))
    assert (waited.status_code, waited.json()["code"]) == (401, "not_signed_in")


# ---- exports


def exported(calls: Calls, query: str = "") -> tuple[list[dict[str, Any]], dict[str, Any]]:
    answer = calls.get(f"/v1/events{query}", headers={"accept": "application/x-ndjson"})
    assert answer.headers["content-type"] == "application/x-ndjson"
    *lines, last = [json.loads(line) for line in answer.content.splitlines()]
    return lines, last[pages.END]


def test_an_export_has_every_event_and_says_where_it_ended(
    log: Log, calls: Calls, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pages, "EXPORT_PAGE", 3)
    say(log, 10)
    lines, end = exported(calls, "?after=0")
    assert [line["position"] for line in lines] == list(range(1, 11))
    assert lines == calls.get("/v1/events?after=0").json()["events"]
    assert (end["count"], end["head"]) == (10, 10)
    say(log, 2)
    more, _ = exported(calls, f"?after={end['next']}")
    assert [line["position"] for line in more] == [11, 12]
    newest, end = exported(calls, "?order=newest&limit=4")
    assert ([line["position"] for line in newest], end["next"]) == ([12, 11, 10, 9], "8")
    some, end = exported(calls, "?from=2&limit=5&kind=note")
    assert [line["position"] for line in some] == [2, 3, 4, 5, 6]


def test_an_export_of_history_that_changed_meanwhile_ends_with_a_reset(
    log: Log, calls: Calls, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pages, "EXPORT_PAGE", 2)
    say(log, 6)
    read = pages._Export.read

    def purge_first(self: Any) -> bytes:
        found = read(self)
        if self._count == 2 and not log.stored.purges():
            log.purge("note/1", reason="asked to")
        return found

    monkeypatch.setattr(pages._Export, "read", purge_first)
    lines, end = exported(calls, "?after=0")
    assert [line["position"] for line in lines] == [1, 2]
    assert (end["reset_required"], end["reason"]) == (True, "purged")


def test_an_export_that_fails_on_the_way_ends_with_the_problem(
    log: Log, calls: Calls, monkeypatch: pytest.MonkeyPatch
) -> None:
    from everlog.errors import Damaged

    monkeypatch.setattr(pages, "EXPORT_PAGE", 2)
    say(log, 6)
    read = pages._Export.read

    def fail(self: Any) -> bytes:
        if self._count:
            raise Damaged("position 3 is lost", position=3, after=3)
        return read(self)

    monkeypatch.setattr(pages._Export, "read", fail)
    lines, end = exported(calls, "?after=0")
    assert (len(lines), end["count"], end["problem"]["code"]) == (2, 2, "damaged")

"""`everlog views`: derived state on the command line."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.cli.conftest import Run, clean_environment

OWN = """
from everlog import View

class Texts(View):
    name = "texts"
    types = ("note.added",)

    def initial(self):
        return {"texts": []}

    def apply(self, state, event):
        if event.payload["text"] == "note 3":
            raise ValueError("no third note")
        return {"texts": [*state["texts"], event.payload["text"]]}

VIEWS = [Texts]
"""

STUCK = """
class Where(Texts):
    name = "where"

    def key(self, event):
        if event.payload["text"] == "note 3":
            raise ValueError("nowhere")
        return event.payload["text"]

VIEWS = [Texts, Where]
"""


@pytest.fixture
def own(notes: Run, place: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Notes, and a view of one's own that cannot take the third of them."""
    (place / "own_views.py").write_text(OWN)
    monkeypatch.syspath_prepend(str(place))
    sys.modules.pop("own_views", None)
    assert notes("config", "set", "views", "own_views:VIEWS").code == 0
    return notes


def test_listing_runs_nothing(notes: Run) -> None:
    found = notes("views")
    assert [row[:2] for row in found.rows] == [
        ["actors", "never run"],
        ["streams", "never run"],
        ["types", "never run"],
    ]
    assert notes("views", "list", "--json").data[0]["lag"] == 5


def test_a_state_is_shown_and_says_how_old_it_is(notes: Run) -> None:
    data = notes("views", "get", "streams", "note/1", "--json").data
    assert (data["state"]["events"], data["position"], data["lag"]) == (4, 5, 0)
    notes("append", "note.added", "-s", "note/1", "text=new")
    stale = notes("views", "get", "streams", "note/1", "--stale")
    assert '"events":4' in stale.out
    assert "1 position ahead" in stale.err
    assert notes("views", "get", "streams", "-q").out == "note/1\nnote/2\n"
    assert notes("views", "get", "streams", "--limit", "1", "--json").next == {"after": "note/1"}
    assert notes("views", "get", "streams", "--after", "note/1", "-q").out == "note/2\n"


def test_a_key_or_a_view_that_is_not_there_is_not_found(notes: Run) -> None:
    assert notes("views", "get", "streams", "note/9").code == 4
    assert notes("views", "get", "streams", "note/9", "--missing-ok").code == 0
    found = notes("views", "get", "stream", "--json")
    assert (found.code, found.error["hint"]) == (4, "did you mean streams?")


def test_views_are_brought_up_to_date_and_listed_so(notes: Run) -> None:
    assert notes("views", "run", "--to-end").rows == [["actors", "5"], ["streams", "5"], ["types", "5"]]
    assert {row[1] for row in notes("views").rows} == {"ok"}


def test_a_rebuild_compares_and_can_be_taken_back(notes: Run) -> None:
    notes("views", "run", "--to-end")
    done = notes("views", "rebuild", "streams", "--json").data
    assert (done["same"], done["switched"], done["build"], done["keys"]) == (True, True, 2, 2)
    assert notes("views", "rollback", "streams", "--json").data["build"] == 1
    kept = notes("views", "rebuild", "types", "--keep-old", "--json").data
    assert (kept["switched"], notes("views", "list", "--json").data[2]["build"]) == (False, 1)
    assert notes("views", "rollback", "actors").code == 4


def test_who_asks_for_the_past_of_a_view_is_told_that_its_code_changed(own: Run, place: Path) -> None:
    """What is folded by the new code may differ from what is kept, so both ways of asking say so."""
    own("views", "run", "texts", "--to-end")
    (place / "own_views.py").write_text(OWN.replace('"texts": [*', '"texts": ["new", *'))
    sys.modules.pop("own_views")
    for asked in (
        ("views", "get", "texts", "note/2"),
        ("state", "texts", "note/2"),
        ("diff", "note/2", "#0", "--view", "texts"),
        ("why", "note/2", "texts", "--view", "texts"),
    ):
        told = own(*asked).err
        assert told.count("the code of the view texts changed and its version did not") == 1, asked
    (place / "own_views.py").write_text(OWN)
    sys.modules.pop("own_views")


def test_a_snapshot_of_a_view_whose_code_changed_is_refused_and_the_hint_works(own: Run, place: Path) -> None:
    own("views", "run", "texts", "streams", "--to-end")
    (place / "own_views.py").write_text(OWN.replace('"texts": [*', '"texts": ["new", *'))
    sys.modules.pop("own_views")
    refused = own("snapshot", "create", "texts", "--json")
    assert (refused.code, refused.out) == (5, "")
    assert refused.error["code"] == "other_code"
    assert refused.error["hint"] == "everlog views rebuild texts, then everlog snapshot create texts"
    of_all = own("snapshot", "create")
    assert (of_all.code, [row[1] for row in of_all.rows]) == (5, ["streams"])  # the others are kept all the same
    assert own("views", "rebuild", "texts").code == 0
    assert own("snapshot", "create", "texts").rows[0][7] == "usable"
    (place / "own_views.py").write_text(OWN)
    sys.modules.pop("own_views")


def test_a_rollback_to_older_code_says_who_answers_until_that_is_put_back(own: Run, place: Path) -> None:
    own("views", "run", "texts", "--to-end")
    own("views", "rebuild", "texts")
    assert "answers from its own build" not in own("views", "rollback", "texts").err
    newer = OWN.replace('name = "texts"', 'name = "texts"\n    version = 2').replace('"texts": [*', '"twice": 2 * [*')
    (place / "own_views.py").write_text(newer.replace('state["texts"]', 'state.get("twice", [])'))
    sys.modules.pop("own_views")
    own("views", "rebuild", "texts")
    told = own("views", "rollback", "texts")
    assert "the code here has version 2, and answers from its own build until version 1 is restored" in told.err
    assert own("views", "get", "texts", "note/2", "--json").data["state"] == {"twice": ["other", "other"]}
    (place / "own_views.py").write_text(OWN)
    sys.modules.pop("own_views")
    assert own("views", "get", "texts", "note/2", "--json").data["state"] == {"texts": ["other"]}


@pytest.mark.parametrize(("keys", "more"), [(19, False), (20, True), (21, True)])
def test_a_rebuild_shows_some_of_what_differs_and_says_that_there_may_be_more(
    log: Run, keys: int, more: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    from everlog import open as open_log
    from everlog.views.builds.build import active_build

    drafts = [{"type": "note.added", "stream": f"note/{number}", "payload": {"text": "a"}} for number in range(keys)]
    log("append", "--batch", "-", stdin="\n".join(map(json.dumps, drafts)).encode())
    log("views", "run", "streams", "--to-end")
    with open_log() as opened:
        build = active_build(opened.views.small_state, "streams")
        assert build is not None
        rows = {key: None for key, _ in opened.views.small_state.scan(build.rows)}
        with opened.views.small_state.change() as change:
            change.put(build.rows, rows)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    shown = log("views", "rebuild", "streams").out
    assert shown.count("differs: note/") == min(keys, 20)
    assert ("(there may be more)" in shown) == more


def test_ctrl_c_during_a_rebuild_says_what_it_leaves(notes: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    from everlog.views import live

    def interrupted(*args: object, **options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(live, "rebuild", interrupted)
    stopped = notes("views", "rebuild", "streams")
    assert stopped.code == 130
    assert "the view answers as before, and the same command continues the rebuild" in stopped.err


def test_the_audit_ends_with_8_when_something_is_missing(notes: Run) -> None:
    from everlog import open as open_log
    from everlog.views.builds.build import active_build

    notes("views", "run", "--to-end")
    assert notes("views", "audit").code == 0
    with open_log() as log:
        build = active_build(log.views.small_state, "streams")
        assert build is not None
        with log.views.small_state.change() as change:
            change.put(build.places, {f"{0:016}": bytes(128)})
    found = notes("views", "audit", "streams")
    assert found.code == 8
    assert "streams misses #1, note.added on note/1" in found.err
    assert notes("views", "audit", "--json").data[1]["gap"] == 5


def test_a_damaged_row_is_reported_everywhere_and_the_answer_is_right(notes: Run) -> None:
    from everlog import open as open_log
    from everlog.views.builds.build import active_build

    notes("views", "run", "--to-end")
    right = notes("views", "get", "streams", "note/1", "--json").data["state"]
    with open_log() as log:
        build = active_build(log.views.small_state, "streams")
        assert build is not None
        with log.views.small_state.change() as change:
            change.put(build.rows, {"note/1": b"garbage"})

    def doctor() -> list[str]:
        return next(row for row in notes("doctor").rows if row[1] == "views")

    assert doctor()[0] == "warn"
    assert "1 row of streams does not match the checksum, such as note/1" in doctor()[2]
    audit = notes("views", "audit", "streams")
    assert (audit.code, "streams: the row of note/1 does not match its checksum" in audit.err) == (8, True)
    answered = notes("views", "get", "streams", "note/1", "--json")
    assert (answered.code, answered.data["state"]) == (0, right)
    assert "did not match the checksum: 'note/1'" in answered.out  # among the warnings
    assert "1 row of streams did not match the checksum since build 1 was made" in notes("views").err
    assert "1 row of streams did not match the checksum and was computed again" in doctor()[2]
    assert notes("views", "audit").code == 0
    notes("views", "rebuild", "streams")
    assert doctor()[0] == "ok"


def test_the_audit_names_a_state_that_is_not_what_the_events_say(notes: Run) -> None:
    from everlog import open as open_log
    from everlog.views.builds.build import active_build
    from everlog.views.builds.content import put_rows
    from everlog.views.builds.rows import kept_of, kept_parts

    notes("views", "run", "--to-end")
    with open_log() as log:
        build = active_build(log.views.small_state, "types")
        assert build is not None
        count, lamport, event, sources, _ = kept_parts(log.views.small_state.get(build.rows, "note.added") or b"")
        with log.views.small_state.change() as change:
            wrong = kept_of(count, lamport, event, sources, b"{}")
            put_rows(change, log.view("types").view, build, {"note.added": wrong})
    found = notes("views", "audit", "types")
    assert (found.code, found.rows[0][-2:]) == (8, ["1", "0"])
    assert "types: the state of note.added differs from its events" in found.err
    assert notes("views", "audit", "types", "--sample", "1", "--json").data[0]["checked"] == 1


def test_dead_letters_are_shown_retried_and_skipped(own: Run) -> None:
    own("views", "run", "texts", "--to-end")
    assert [row[:2] for row in own("views", "dead-letters", "texts").rows] == [["3", "failed"], ["4", "waiting"]]
    assert [row[0] for row in own("views", "list").rows if row[1] == "parked"] == ["texts"]
    assert "dead-letters texts" in own("views", "get", "texts", "note/1").err
    assert [row[:2] for row in own("views", "retry", "texts").rows] == [["3", "failed"]]
    assert own("views", "skip", "texts", "4").code == 2
    assert own("views", "skip", "texts", "3", "--reason", "it is the third").rows == []
    state = own("views", "get", "texts", "note/1", "--json").data["state"]
    assert state == {"texts": ["note 1", "note 2", "note 4"]}
    (letter,) = own("views", "dead-letters", "texts", "--json").data
    assert (letter["what"], letter["skipped_because"]) == ("skipped", "it is the third")
    assert own("views", "audit", "texts").code == 0


def test_a_process_keeps_views_up_to_date_until_it_is_interrupted(notes: Run, place: Path, tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "everlog", "views", "run", "streams"],
        cwd=place,
        env=clean_environment(tmp_path / "home"),
        stderr=subprocess.PIPE,
    )
    try:
        assert process.stderr is not None
        assert b"keeping streams" in process.stderr.readline()
        notes("append", "note.added", "-s", "note/7", "text=seen elsewhere")
        deadline = time.monotonic() + 20
        while "note/7" not in notes("views", "get", "streams", "--stale", "-q").out:
            assert time.monotonic() < deadline
            time.sleep(0.05)
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=20)
    assert process.returncode == 130


def test_the_doctor_points_out_a_view_that_waits_for_somebody(own: Run) -> None:
    own("views", "run", "--to-end")
    (found,) = [row for row in own("doctor").rows if row[1] == "views"]
    assert found[0] == "warn"
    assert found[2].startswith("texts ")
    assert own(*found[3].split()[1:]).rows, found


def test_the_doctor_tells_of_the_view_that_stands_still_first(own: Run, place: Path) -> None:
    """Where the key itself cannot be told, nothing after it can be applied."""
    stuck = OWN.replace("VIEWS = [Texts]", STUCK)
    (place / "own_views.py").write_text(stuck)
    sys.modules.pop("own_views", None)
    own("views", "run", "--to-end")
    assert [row[1] for row in own("views").rows if row[0] in ("texts", "where")] == ["parked", "stopped"]
    found = own("doctor")
    (row,) = [row for row in found.rows if row[1] == "views"]
    assert row[0] == "fail"
    assert row[2].startswith("where ")
    assert found.code != 0


# ---- where there is nothing


def test_who_asks_for_nothing_is_told_so(notes: Run) -> None:
    audit = notes("views", "audit")
    assert (audit.code, audit.out) == (0, "")
    assert "everlog views run --to-end" in audit.err
    assert notes("views", "audit", "--json").data == []
    assert notes("views", "dead-letters", "streams").err == "there are no dead letters\n"
    assert "everlog views get streams brings it" in notes("views", "get", "streams", "--stale").err
    assert notes("views", "get", "streams", "--after", "zzz").err == "streams has no key above zzz\n"
    assert notes("views", "dead-letters", "streams", "--json").data == []

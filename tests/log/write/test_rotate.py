"""Rotation: the old chain ends, the log continues under the new key, and no handle signs with the old one again."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.trust.signing import Author

import everlog
from everlog.core.event import Event
from everlog.errors import Conflict, NoKey
from everlog.log.admit.admission import Gate
from everlog.log.log import Log
from everlog.testing.signing import unsigned_events
from everlog.trust.key_files import KeyFolder
from everlog.trust.keys import PrivateKey
from everlog.trust.standing import Pinned
from everlog.trust.succession import SUCCEEDED, succeeded_by, succession_of

ROTATE = """
import sys, everlog
with everlog.open(sys.argv[1]) as log:
    print(log.rotate_key().event.payload["successor"])
"""
URLS = ["sqlite:log.db", "jsonl:log", "segments:log"]


@pytest.fixture(params=URLS)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return str(request.param).replace(":", f":{tmp_path}/")


def note(log: Log, text: str = "x") -> Event:
    return log.append("note.added", stream="note/1", payload={"text": text}).event


def events(log: Log) -> list[Event]:
    return [recorded.event for recorded in log.stored.read()]


def test_the_old_chain_ends_and_the_log_continues_under_the_new_key(url: str) -> None:
    with everlog.open(url, signed=True) as log:
        first = note(log)
        last = log.rotate_key().event
        assert (last.type, last.origin, last.origin_seq) == (SUCCEEDED, first.origin, 2)
        after = note(log)
        assert after.origin == last.payload["successor"] != first.origin
        assert after.origin_seq == 1
        assert succession_of(log.identity.log_id, last) is not None
    with everlog.open(url) as log:
        again = note(log)
        assert (again.origin, again.origin_seq) == (after.origin, 2)
        assert log.identity.former == (first.origin,)
        assert unsigned_events(log.stored) == []
        assert log.verify().ok
        assert not log.verdicts()


def test_a_handle_that_was_open_before_writes_with_the_new_key(url: str) -> None:
    """Two handles, and a process that rotates while both are open."""
    if url.startswith("segments:"):
        pytest.skip("a segments log has one writer: see the next test")
    with everlog.open(url, signed=True) as one, everlog.open(url) as other:
        old = note(one).origin
        note(other)
        ran = subprocess.run([sys.executable, "-c", ROTATE, url], check=True, capture_output=True, text=True)
        new = ran.stdout.strip()
        found = [note(other), note(one)]
        assert [(event.origin, event.origin_seq) for event in found] == [(new, 1), (new, 2)]
        assert old != new
        assert not one.verdicts()
        assert unsigned_events(one.stored) == []


def test_a_second_writer_of_a_segments_log_is_refused_until_the_first_is_closed(tmp_path: Path) -> None:
    url = f"segments:{tmp_path}/log"
    with everlog.open(url, signed=True) as one:
        note(one)
        new = one.rotate_key().event.payload["successor"]
        with everlog.open(url) as other, pytest.raises(everlog.EverlogError):
            note(other)
    with everlog.open(url) as other:
        assert note(other).origin == new


def test_a_handle_that_was_open_before_signs_checkpoints_with_the_new_key(tmp_path: Path) -> None:
    url = f"sqlite:{tmp_path}/log.db"
    with everlog.open(url, signed=True) as one, everlog.open(url) as other:
        note(one)
        new = other.rotate_key().event.payload["successor"]
        key = one.signing_key()
        assert key is not None
        assert key.public.origin == one.identity.origin == new


def test_the_event_that_names_the_successor_is_not_purged(tmp_path: Path) -> None:
    with everlog.open(f"sqlite:{tmp_path}/log.db", signed=True) as log:
        last = log.rotate_key().event
        with pytest.raises(Conflict, match="decide whose events count"):
            log.purge(last.stream, reason="x")


def test_a_rotation_that_another_process_made_first_is_refused(tmp_path: Path) -> None:
    url = f"sqlite:{tmp_path}/log.db"
    with everlog.open(url, signed=True) as one, everlog.open(url) as other:
        note(one)
        other.rotate_key()
        with pytest.raises(Conflict, match="by another process"):
            one.rotate_key()
        one.rotate_key()
        assert [event.type for event in events(one)] == ["note.added", SUCCEEDED, SUCCEEDED]


def test_a_log_rotates_to_a_key_that_it_has_and_to_none_that_has_signed_here(tmp_path: Path) -> None:
    url = f"sqlite:{tmp_path}/log.db"
    with everlog.open(url, signed=True) as log:
        first = note(log).origin
        mine = PrivateKey.new()
        with pytest.raises(NoKey):
            log.rotate_key(to=mine.public.origin)
        KeyFolder(tmp_path / "log.db.keys").keep(mine)
        log.rotate_key(to=mine.public.origin)
        assert note(log).origin == mine.public.origin
        for used in (first, mine.public.origin):
            with pytest.raises(Conflict, match="signed events of this log before"):
                log.rotate_key(to=used)
    with everlog.open(f"sqlite:{tmp_path}/plain.db") as log, pytest.raises(NoKey, match="not signed"):
        log.rotate_key()


def test_nobody_else_appends_a_succession(tmp_path: Path) -> None:
    with everlog.open(f"sqlite:{tmp_path}/log.db", signed=True) as log:
        note(log)
        payload = succeeded_by(log.identity.log_id, log.identity.origin, PrivateKey.new())
        with pytest.raises(everlog.EverlogError, match=r"origin\.succeeded"):
            log.append(SUCCEEDED, stream="origin/x", payload={"successor": payload.successor, "proof": payload.proof})


# ---- on another node


def succeed(author: Author, successor: Author) -> list[Event]:
    payload = succeeded_by(author.log_id, author.origin, successor.key)
    return author.write(
        1,
        type=SUCCEEDED,
        stream=f"origin/{author.origin}",
        payload={"successor": payload.successor, "proof": payload.proof},
    )


@pytest.mark.parametrize("order", ["old first", "new first", "at once"])
def test_the_standing_of_a_pinned_key_passes_to_its_successor(make_log: Callable[..., Log], order: str) -> None:
    log = make_log("memory")
    old, new, third = (Author(seed, log.identity.log_id) for seed in (1, 2, 3))
    log.writer._made_gate = Gate(Pinned([old.origin]))
    chain = [*old.write(2), *succeed(old, new)]
    later = [*new.write(2), *succeed(new, third)]
    last = third.write(1)
    batches = {
        "old first": [chain, later, last],
        "new first": [last, later, chain],
        "at once": [chain + later + last],
    }
    for batch in batches[order]:
        log.admit_each(batch)
    assert {event.id for event in events(log)} == {event.id for event in (*chain, *later, *last)}
    assert not log.verdicts()
    # Nothing follows in the old chain.
    (outcome,) = log.admit_each(old.write(1))
    assert (outcome.kind, outcome.code) == ("held", "revoked_author")


def test_what_follows_a_succession_in_one_batch_is_not_recorded(make_log: Callable[..., Log]) -> None:
    log = make_log("memory")
    old, new = Author(1, log.identity.log_id), Author(2, log.identity.log_id)
    sent = [*old.write(1), *succeed(old, new), *old.write(3)]
    assert [one.kind for one in log.admit_each(sent)] == ["recorded"] * 2 + ["held"] * 3
    assert len(events(log)) == 2


def test_a_succession_that_the_successor_did_not_sign_is_nothing(make_log: Callable[..., Log]) -> None:
    log = make_log("memory")
    old, new, eve = (Author(seed, log.identity.log_id) for seed in (1, 2, 3))
    log.writer._made_gate = Gate(Pinned([old.origin]))
    wrong = succeeded_by("another log", old.origin, new.key)
    for payload in (
        {"successor": new.origin, "proof": succeeded_by(old.log_id, old.origin, eve.key).proof},
        {"successor": new.origin, "proof": succeeded_by(old.log_id, eve.origin, new.key).proof},
        {"successor": new.origin, "proof": wrong.proof},
        {"successor": f"did:key:{new.origin}", "proof": succeeded_by(old.log_id, old.origin, new.key).proof},
        {"successor": old.origin, "proof": succeeded_by(old.log_id, old.origin, old.key).proof},
        {"successor": "z6Mk", "proof": ""},
        {"successor": 7},
    ):
        sent = old.write(1, type=SUCCEEDED, stream="origin/x", payload=payload)
        assert [one.kind for one in log.admit_each(sent)] == ["recorded"]
    assert [one.code for one in log.admit_each(new.write(1))] == ["unknown_author"]
    assert [one.kind for one in log.admit_each(old.write(1))] == ["recorded"]  # its chain did not end


def test_a_fork_below_a_succession_ends_it(make_log: Callable[..., Log]) -> None:
    log = make_log("memory")
    old, new = Author(1, log.identity.log_id), Author(2, log.identity.log_id)
    log.writer._made_gate = Gate(Pinned([old.origin]))
    shared = old.write(1)
    twin = old.twin()
    log.admit_each([*shared, *old.write(1), *succeed(old, new), *new.write(2)])
    assert len(events(log)) == 5
    log.admit_each(twin.write(1, payload={"text": "other"}))
    assert [log.verdicts().counts(event) for event in events(log)] == [True, False, False, False, False]


# ---- restored copies


@pytest.mark.parametrize("moment", ["closed", "before a rotation"])
def test_a_copy_that_was_put_back_takes_a_new_key_before_it_writes(url: str, tmp_path: Path, moment: str) -> None:
    path = Path(url.partition(":")[2])
    with everlog.open(url, signed=True) as log:
        note(log)
        old = log.identity.origin
    saved = tmp_path / "saved"
    _copy(path, saved)
    with everlog.open(url) as log:
        if moment == "closed":
            note(log, "lost")
        else:
            log.rotate_key()
            note(log, "lost")
    _remove(path)
    _copy(saved, path)
    with everlog.open(url) as log:
        again = note(log, "other")
        assert again.origin != old
        assert again.origin_seq == 1
        assert note(log).origin == again.origin
        assert unsigned_events(log.stored) == []
        assert log.verify().ok
        numbers = {(event.origin, event.origin_seq) for event in events(log)}
        assert len(numbers) == 3


def _copy(source: Path, target: Path) -> None:
    """As `cp -r`, with the lock file and all: nothing but the number beside the key shows it."""
    if source.is_dir():
        shutil.copytree(source, target)
    else:
        target.write_bytes(source.read_bytes())


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        for file in (path, *path.parent.glob(f"{path.name}-*")):
            file.unlink(missing_ok=True)

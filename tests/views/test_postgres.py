"""Views in PostgreSQL: in the log's own schema, in the transaction of the events."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import everlog
from everlog.errors import InvalidSettings
from everlog.log.log import Log
from everlog.stores.small_state import MemoryState
from everlog.views.builtin import Streams, Types
from everlog.views.fold import fold_all
from everlog.views.view import View, digest


@pytest.fixture
def log(postgres_url: str) -> Iterator[Log]:
    with everlog.open(postgres_url) as opened:
        yield opened


def fill(log: Log, count: int = 20) -> None:
    log.append_batch(
        [
            everlog.Draft(type="note.added", stream=f"note/{number % 3}", payload={"text": str(number)})
            for number in range(count)
        ]
    )


@pytest.mark.parametrize("view", [Streams, Types])
@pytest.mark.parametrize("mode", ["on-demand", "async", "inline"])
def test_a_view_is_kept_with_the_log(postgres_url: str, log: Log, view: type[View], mode: str) -> None:
    fill(log)
    handle = log.views.register(view, mode=mode)
    recorded = log.append("note.added", stream="note/9", payload={"text": "last"})
    log.wait_for(view, recorded, 20)
    if mode == "inline":
        assert handle.get("note/9" if view is Streams else "note.added", fresh=False).position == recorded.position
    expected = digest(fold_all(view(), log.read()).items())
    assert handle.digest() == expected
    assert handle.rebuild(limit=7).same
    assert handle.rollback().number == 1
    assert handle.audit().ok
    assert log.verify().ok
    with everlog.open(postgres_url) as other:
        assert other.view(view).position() == recorded.position
        assert other.view(view).digest() == expected


def test_a_purge_reaches_the_views(log: Log) -> None:
    fill(log)
    streams, types = log.view(Streams), log.view(Types)
    for handle in (streams, types):
        handle.catch_up()
        handle.rebuild()
    log.purge("note/1", reason="a request")
    for handle in (streams, types):
        assert handle.digest() == digest(fold_all(handle.view, log.read()).items())
        assert handle.audit().ok
    assert not streams.get("note/1").found


def test_a_role_that_may_not_keep_views_has_them_in_memory(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    from everlog.stores.postgres.small_state import DerivedTable

    fill(log)
    monkeypatch.setattr(DerivedTable, "may_write", lambda self: False)
    assert isinstance(log.writer.small_state.derived, MemoryState)
    assert log.view(Types).get("note.added").state["events"] == 20


@pytest.mark.parametrize("view", [Streams, Types])
def test_snapshot_roundtrip(
    postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, view: type[View]
) -> None:
    """A log elsewhere has its snapshots where the setting says; without one there is no place for them."""
    with everlog.open(postgres_url) as log:
        fill(log)
        with pytest.raises(InvalidSettings):
            log.view(view).snapshot()
    monkeypatch.setenv("EVERLOG_SNAPSHOTS", str(tmp_path / "snapshots"))
    with everlog.open(postgres_url) as log:
        log.view(view).snapshot()
        fill(log, 7)
        expected = digest(fold_all(view(), log.read()).items())
        restored = log.view(view).restore()
        assert (restored.covered, restored.position, restored.digest) == (20, 27, expected)
        assert log.view(view).audit().ok
        log.purge("note/1", reason="a request")
        assert log.views.snapshots.folder.entries() == []
        assert log.view(view).digest() == digest(fold_all(view(), log.read()).items())

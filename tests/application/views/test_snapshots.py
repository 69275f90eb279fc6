"""Snapshots of views, as people create, list, verify, protect and remove them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import everlog
from everlog.application.folder.create import create_folder
from everlog.application.folder.open import Location
from everlog.application.views import snapshots
from everlog.errors import NotFound


@pytest.fixture
def log(tmp_path: Path) -> Iterator[everlog.Log]:
    create_folder(tmp_path / ".everlog")
    with Location(work_in=tmp_path).open() as log:
        for number in (1, 2, 3):
            log.append("note.added", stream=f"note/{number}", payload={"text": "x"})
        yield log


def test_a_snapshot_is_created_listed_verified_and_restored(log: everlog.Log) -> None:
    (made,) = snapshots.create_snapshots(log, ["streams"]).made
    assert (made.view, made.position, made.kind, made.keys, made.state) == ("streams", 3, "full", 3, "usable")
    assert snapshots.list_snapshots(log) == [made]
    (verdict,) = snapshots.verify_snapshots(log, [], sample=None)
    assert (verdict.replayed, snapshots.describe_verdict(verdict)) == (3, "ok")
    log.append("note.added", stream="note/4", payload={"text": "x"})
    done = snapshots.restore_view(log, "streams", made.id)
    assert (done.covered, done.position) == (3, 4)


def test_without_names_the_views_that_were_run_are_saved(log: everlog.Log) -> None:
    with pytest.raises(NotFound, match="no view has been run"):
        snapshots.create_snapshots(log, [])
    log.view("types").catch_up()
    assert [one.view for one in snapshots.create_snapshots(log, []).made] == ["types"]


def test_a_damaged_snapshot_is_listed_and_judged(log: everlog.Log, tmp_path: Path) -> None:
    (made,) = snapshots.create_snapshots(log, ["streams"]).made
    (path,) = tmp_path.rglob(made.file)
    path.write_bytes(path.read_bytes()[:40])
    (found,) = snapshots.list_snapshots(log, "streams")
    assert (found.id, found.state, found.kind) == (made.id, "damaged", "")
    (verdict,) = snapshots.verify_snapshots(log, ["streams"], sample=0)
    assert not verdict.ok
    assert snapshots.describe_verdict(verdict).startswith("damaged: ")


def test_a_protected_snapshot_has_its_reason_until_that_ends(log: everlog.Log) -> None:
    (made,) = snapshots.create_snapshots(log, ["streams"]).made
    assert snapshots.protect_snapshot(log, made.id, "before the move").protected == "before the move"
    assert snapshots.protect_snapshot(log, made.id, None).protected == ""
    assert snapshots.prune_snapshots(log, dry_run=True) == []


def test_a_mistyped_view_is_not_a_view_without_snapshots(log: everlog.Log) -> None:
    assert snapshots.list_snapshots(log, "streams") == []
    assert "everlog snapshot create streams" in snapshots.how_to_create_one(log, "streams")
    with pytest.raises(NotFound):
        snapshots.list_snapshots(log, "streamz")

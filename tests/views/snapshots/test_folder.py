"""The folder of snapshots: without one there are none; a patch needs its base there."""

from __future__ import annotations

import gzip
import logging
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.views.conftest import Said, Total
from tests.views.snapshots.logs import files_below, fill, say

from everlog.errors import Damaged, InvalidSettings, NotFound
from everlog.log.log import Log


def test_a_log_without_a_folder_has_no_snapshots(make_log: Callable[..., Log]) -> None:
    log = make_log("memory")
    say(log, 1)
    with pytest.raises(InvalidSettings):
        log.view(Said).snapshot()
    assert log.views.snapshots.folder.entries() == []
    assert log.views.snapshots.prune() == []
    assert log.views.snapshots.sweep() == []


def test_a_patch_without_its_base_is_not_used(slog: Log, folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    for number in range(50):
        say(slog, number, stream=f"thing/{number}")
    base = slog.view(Said).snapshot()
    say(slog, "new")
    patch = slog.view(Said).snapshot()
    base.path.unlink()
    with pytest.raises(Damaged):
        slog.views.snapshots.folder.load(patch)
    with caplog.at_level(logging.WARNING, "everlog"):
        assert slog.views.snapshots.newest(Said()) is None
    assert patch.id in caplog.text


def test_a_protected_snapshot_is_listed_with_the_reason(slog: Log, folder: Path) -> None:
    made = []
    for number in range(3):
        say(slog, number)
        made.append(slog.view(Said).snapshot(full=True))
    kept = slog.views.snapshots.folder
    kept.protect(made[0], "the audit of 2026")
    kept.protect(made[1], "")
    kept.protect(made[2], "soon over")
    kept.protect(made[2], None)
    kept.protect(made[2], None)  # it is not protected: nothing to do
    assert {entry.id: entry.protected for entry in kept.entries()} == {
        made[0].id: "the audit of 2026",
        made[1].id: "protected",
        made[2].id: "",
    }
    kept.remove([made[0], made[2]])
    left = made[1].path.name
    assert {path.name for path in files_below(folder) if "@" in path.name} == {
        left,
        left.replace(".json.gz", ".keep"),
    }


def test_snapshots_are_listed_from_the_highest_position_down_and_by_view(slog: Log, folder: Path) -> None:
    made = []
    for number in range(9, 12):
        fill(slog, number)
        made += [slog.view(view).snapshot() for view in (Said, Total)]
    (folder / "notes.txt").write_text("not of a snapshot")
    (folder / f"said@12-{made[0].id}.json.gz.tmp").write_text("not of a snapshot")
    found = slog.views.snapshots.folder
    listed = [(entry.position, entry.view) for entry in found.entries()]
    assert listed == [(30, "total"), (30, "said"), (19, "total"), (19, "said"), (9, "total"), (9, "said")]
    assert {entry.id for entry in found.entries("said")} == {entry.id for entry in made[::2]}
    assert {entry.file_bytes for entry in found.entries()} == {entry.path.stat().st_size for entry in made}


def test_a_snapshot_is_found_by_its_id_or_six_characters_of_its_end(slog: Log, folder: Path) -> None:
    fill(slog, 3)
    one = slog.view(Said).snapshot()
    found = slog.views.snapshots.folder
    for name in (one.id, one.id.lower(), one.id[-6:], one.id[-6:].lower(), one.id[-20:]):
        assert found.find(name).id == one.id
    for name in (one.id[-5:], one.id[:6], "", "000000"):
        with pytest.raises(NotFound, match="there is no snapshot"):
            found.find(name)
    twin = one.path.with_name(one.path.name.replace(one.id, "0" * 20 + one.id[-6:]))
    twin.write_bytes(one.path.read_bytes())
    assert found.find(one.id).id == one.id
    with pytest.raises(NotFound, match="more than one"):
        found.find(one.id[-6:])


@pytest.mark.parametrize("part", ["view", "position", "id"])
def test_a_file_under_the_name_of_another_snapshot_is_damaged(slog: Log, folder: Path, part: str) -> None:
    fill(slog, 3)
    one = slog.view(Said).snapshot()
    other = {"view": ("said@", "other@"), "position": ("003-", "004-"), "id": (one.id, "0" * 26)}[part]
    one.path.rename(one.path.with_name(one.path.name.replace(*other)))
    (entry,) = slog.views.snapshots.folder.entries()
    assert entry.header is None
    assert entry.problem == "its header does not match the name of the file"


def test_a_snapshot_that_is_gone_or_stands_on_another_base_is_damaged(slog: Log, folder: Path) -> None:
    for number in range(50):
        say(slog, number, stream=f"thing/{number}")
    base = slog.view(Said).snapshot()
    say(slog, "new")
    patch = slog.view(Said).snapshot()
    assert patch.header is not None
    assert patch.header.base == base.id
    assert len(slog.views.snapshots.folder.load(patch).body["rows"]) == 50
    base.path.write_bytes(
        gzip.compress(gzip.decompress(base.path.read_bytes()).replace(b'"reason":"by hand"', b'"reason":"by head"'))
    )
    with pytest.raises(Damaged):
        slog.views.snapshots.folder.load(patch)
    patch.path.unlink()
    with pytest.raises(Damaged, match="does not exist any more"):
        slog.views.snapshots.folder.load(patch)

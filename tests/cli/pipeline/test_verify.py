"""`everlog pipeline verify`, as a user types it: what is wrong has a place and exit code 8, and can be healed."""

from __future__ import annotations

from pathlib import Path

from tests.cli.conftest import Run, everlog, place

__all__ = ["everlog", "place"]


def test_a_changed_file_is_named_and_healed(everlog: Run, place: Path) -> None:
    everlog("init")
    everlog("append", "note.added", "-s", "note/1", "text=first")
    assert everlog("pipeline", "run").code == 0
    sound = everlog("pipeline", "verify", "--all", "--json")
    assert (sound.code, sound.data["damages"], sound.data["events"], sound.data["typed"]) == (0, [], 1, 1)

    (file,) = (place / ".everlog" / "lake" / "events").rglob("*.parquet")
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    wrong = everlog("pipeline", "verify", "--json")
    assert wrong.code == 8
    (damage,) = wrong.data["damages"]
    assert (damage["table"], Path(damage["path"]).name) == ("events", file.name)
    assert (damage["first"], damage["last"]) == (1, 1)
    assert "everlog pipeline verify --heal" in everlog("pipeline", "verify").err

    assert everlog("pipeline", "verify", "--heal").code == 0
    assert everlog("pipeline", "verify", "--all").code == 0

"""Every damage that is listed changes its file, and nothing but that file."""

from __future__ import annotations

from pathlib import Path

from tests.support.damage import additions, cuts, flips, older_copy, swap


def test_every_damage_changes_the_file_and_no_other(tmp_path: Path) -> None:
    content = bytes(range(1, 201)) * 5
    damages = {}
    for name, size in (("large", 1000), ("small", 3), ("empty", 0)):
        path = tmp_path / name
        path.write_bytes(content[:size])
        for what, damage in {**cuts(path), **additions(path), **flips(path, count=10)}.items():
            damages[f"{name}: {what}"] = True
            damage(path)
            assert not path.exists() or path.read_bytes() != content[:size], what
            path.write_bytes(content[:size])
    assert len(damages) > 40
    assert {path.name for path in tmp_path.iterdir()} == {"large", "small", "empty"}


def test_a_swap_exchanges_two_files_and_an_older_copy_comes_back(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    one.write_bytes(b"1")
    two.write_bytes(b"2")
    swap(one, two)
    assert (one.read_bytes(), two.read_bytes()) == (b"2", b"1")
    older_copy(one, content=b"0")
    assert one.read_bytes() == b"0"

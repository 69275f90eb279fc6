"""Every file of every store, damaged in every way, read in every way: the whole answer or an error, never a part.

The short form takes a few damages of each file and a few ways of reading for each; `--full` takes all of them.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from tests.damage.world import KINDS, PATHS, Refused, World, copied, in_a_clean_place, make_world, run
from tests.support import damage

from everlog.errors import EverlogError

OLDER = "older copy"
DAMAGES_SAMPLED = {"sqlite": 10, "sqlite with a journal": 10, "jsonl": 3, "segments": 3}  # of each file
PATHS_SAMPLED = 4


@pytest.fixture(scope="module", params=KINDS)
def world(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with pytest.MonkeyPatch.context() as patch:
        in_a_clean_place(patch, tmp_path_factory.mktemp("home"))
        yield make_world(request.param, tmp_path_factory.mktemp("world"))


def damages_of(world: World, name: str, *, flips: int) -> dict[str, damage.Damage]:
    path = world.folder / name
    found = {**damage.cuts(path), **damage.additions(path), **damage.flips(path, count=flips)}
    older = world.older / name
    if older.exists() and older.read_bytes() != path.read_bytes():  # else it was not there yet: the same as deleted
        found[OLDER] = partial(damage.older_copy, content=older.read_bytes())
    for other in world.files():
        if (Path(other).parent, Path(other).suffix) == (Path(name).parent, Path(name).suffix) and other > name:
            found[f"swapped with {other}"] = partial(_swap, other=Path(other).name)
    return found


def _swap(path: Path, *, other: str) -> None:
    damage.swap(path, path.with_name(other))


def cells_of(world: World, *, full: bool) -> Iterator[tuple[str, str, damage.Damage, list[str]]]:
    """(file, damage, what does it, the ways of reading to try)."""
    chance = random.Random(world.kind)
    for name in world.files():
        found = damages_of(world, name, flips=60 if full else 6)
        chosen = list(found) if full else chance.sample(sorted(found), min(DAMAGES_SAMPLED[world.kind], len(found)))
        for one in chosen:
            paths = list(PATHS) if full else chance.sample(list(PATHS), PATHS_SAMPLED)
            yield name, one, found[one], paths


def test_no_read_of_a_damaged_log_is_incomplete_without_an_error(
    world: World, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    wrong: list[str] = []
    tried = errors = 0
    for name, said, hurt, paths in cells_of(world, full=bool(request.config.getoption("--full"))):
        for path in paths:
            tried += 1
            place = copied(world.folder, tmp_path / "log")
            hurt(place / name)
            try:
                found = PATHS[path](place)
            except (EverlogError, Refused):
                errors += 1
            except Exception as error:
                wrong.append(f"{name} {said}: {path}: {type(error).__name__}: {error}")
            else:
                if found != world.expected[path] and not _known(world, name, said, found, path, tmp_path, hurt):
                    wrong.append(f"{name} {said}: {path}: {_difference(found, world.expected[path])}")
    print(f"{world.kind}: {tried} reads, {errors} ended with an error, {len(wrong)} were wrong")
    assert not wrong, "\n".join(wrong[:40])
    assert errors


def _difference(found: object, expected: object) -> str:
    if isinstance(found, list) and isinstance(expected, list):
        return f"{len(found)} of {len(expected)}: {[one for one in expected if one not in found][:3]}"
    return f"{found!r:.80} instead of {expected!r:.80}"


def _known(world: World, name: str, said: str, found: object, path: str, tmp_path: Path, hurt: damage.Damage) -> bool:
    """What docs/guarantees.md says of SQLite: an older database, or one that lost its journal, is a whole log of an
    earlier moment; and verify finds a row whose columns were changed."""
    if not name.startswith(".everlog/log.db") or "snapshots" in name:
        return False
    if said == OLDER and found == world.older_expected[path]:
        return True
    place = copied(world.folder, tmp_path / "log")
    hurt(place / name)
    if name.endswith("-wal"):
        return _is_whole(place) and _is_beginning(found, world.expected[path])
    return "flipped" in said and run(place, "verify")[0] == 8


def _is_whole(place: Path) -> bool:
    return run(place, "verify")[0] == 0


def _is_beginning(found: object, whole: object) -> bool:
    """True if what was found are the first, or backwards the last, of what is expected."""
    if not (isinstance(found, list) and isinstance(whole, list)):
        return False
    return whole[: len(found)] == found or whole[len(whole) - len(found) :] == found or len(found) == len(whole)

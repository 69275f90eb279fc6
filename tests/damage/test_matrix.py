"""Every file of every store, damaged in every way, read in every way: the whole answer or an error, never a part.

The short form takes a few damages of each file and a few ways of reading for each; `--full` takes all of them.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from tests.damage.paths import PATHS, Refused, run
from tests.damage.world import KINDS, World, copied, in_a_clean_place, make_world
from tests.support import damage

from everlog import wiring
from everlog.errors import EverlogError

OLDER = "older copy"
DAMAGES_SAMPLED = {"sqlite": 10, "sqlite with a journal": 10, "jsonl": 3, "segments": 3}  # of each file
PATHS_SAMPLED = 4
FLIPS_FULL = 32
SHARES = {"flipped": 4, "cut": 2, "zeros": 2, "longer": 2}
"""In the long form, each way of reading meets one in so many of the damages of a file that are of one sort."""


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
    """(file, damage, what does it, the ways of reading to try). In the long form every way of reading meets every
    sort of damage of every file."""
    chance = random.Random(world.kind)
    for name in world.files():
        found = damages_of(world, name, flips=FLIPS_FULL if full else 6)
        chosen = list(found) if full else chance.sample(sorted(found), min(DAMAGES_SAMPLED[world.kind], len(found)))
        for number, one in enumerate(chosen):
            share = next((share for sort, share in SHARES.items() if sort in one.split()), 1)
            paths = list(PATHS)[number % share :: share] if full else chance.sample(list(PATHS), PATHS_SAMPLED)
            yield name, one, found[one], paths


def test_no_read_of_a_damaged_log_is_incomplete_without_an_error(
    world: World, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    wrong: list[str] = []
    tried = errors = known = 0
    began, files = time.monotonic(), set()
    for name, harm, hurt, paths in cells_of(world, full=bool(request.config.getoption("--full"))):
        files.add(name)
        for path in paths:
            tried += 1
            place = copied(world.folder, tmp_path / "log")
            hurt(place / name)
            try:
                found = PATHS[path](place)
            except (EverlogError, Refused) as error:
                errors += 1
                if not _is_reported_as_damage(error, place):
                    wrong.append(f"{name} {harm}: {path}: {error}")
            except Exception as error:
                wrong.append(f"{name} {harm}: {path}: {type(error).__name__}: {error}")
            else:
                if found == world.expected[path]:
                    continue
                if _known(world, name, harm, found, path, tmp_path, hurt):
                    known += 1
                else:
                    wrong.append(f"{name} {harm}: {path}: {_difference(found, world.expected[path])}")
    took = f"{len(files)} files, {time.monotonic() - began:.0f} s"
    print(
        f"{world.kind}: {tried} reads, {errors} ended with an error, {len(wrong)} were wrong, {known} known; {took}"
    )
    assert not wrong, "\n".join(wrong[:40])
    assert errors


def _is_reported_as_damage(error: EverlogError | Refused, place: Path) -> bool:
    """Whether an error has exit code 8, or is the one of a log that does not open at all."""
    if error.exit_code == 8:
        return True
    try:
        with wiring.open_folder(place / ".everlog"):
            return False
    except EverlogError as opening:
        return opening.exit_code == error.exit_code


def _difference(found: object, expected: object) -> str:
    if isinstance(found, list) and isinstance(expected, list):
        return f"{len(found)} of {len(expected)}: {[one for one in expected if one not in found][:3]}"
    return f"{found!r:.80} instead of {expected!r:.80}"


def _known(world: World, name: str, harm: str, found: object, path: str, tmp_path: Path, hurt: damage.Damage) -> bool:
    """What docs/why/guarantees.md says of SQLite.

    An older database, or one that lost its journal or a part of it, is a whole log of an earlier moment. A backup
    that somebody restored consists of the same bytes, and must be readable: no read can tell them apart. And verify
    finds a row of an index, such as a name, in which a bit was flipped; the rows of events have checksums.
    """
    if name == ".everlog/log.db" and harm == OLDER:
        return bool(found == world.older_expected[path])
    if name == ".everlog/log.db-wal":
        return any(found == answers[path] for answers in world.moments)
    if name != ".everlog/log.db" or "flipped" not in harm:
        return False
    place = copied(world.folder, tmp_path / "log")
    hurt(place / name)
    return run(place, "verify")[0] == 8

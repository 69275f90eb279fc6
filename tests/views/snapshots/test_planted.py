"""Planted bugs in snapshots: the check of random histories must notice each of them, or it proves nothing."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.views.conftest import ByActor, Said
from tests.views.snapshots.logs import files_below, from_nothing
from tests.views.snapshots.test_histories import OPS, History

from everlog.views.advance import Advance
from everlog.views.snapshots import body as body_of_build
from everlog.views.snapshots import patch as patching
from everlog.views.snapshots import snapshots
from everlog.views.view import View

HISTORIES = 12


def sound(folder: Path, view: type[View]) -> bool:
    """Whether some random histories come out right, and nothing purged is left in a file."""
    for number in range(HISTORIES):
        history = History(folder / str(number), view, number)
        try:
            for _ in range(40):
                history.step(history.chance.choice(OPS))
            history.restart()
        except (AssertionError, KeyError, ValueError, TypeError):
            return False
        if any(history.log.views.snapshots.purged(loaded) for loaded in _all(history)):
            return False
        if history.log.view(view).digest() != from_nothing(history.log, view):
            return False
    return bool(files_below(folder))


def _all(history: History) -> list[Any]:
    folder = history.log.views.snapshots.folder
    found = []
    for entry in folder.entries():
        try:
            found.append(folder.load(entry))
        except Exception:  # damaged on purpose
            continue
    return found


Patch = pytest.MonkeyPatch


def a_hash_is_not_compared(patch: Patch) -> None:
    class Agreeable:
        def __init__(self, data: bytes) -> None:
            self._data = data

        def hexdigest(self) -> str:
            return ""

        def digest(self) -> bytes:
            return hashlib.sha256(self._data).digest()

    patch.setattr("everlog.views.snapshots.file._seal", lambda data: _Seal())
    patch.setattr("everlog.views.snapshots.file.hashlib.sha256", Agreeable)
    patch.setattr("everlog.views.snapshots.file.gzip.decompress", _leniently)
    patch.setattr("everlog.views.snapshots.folder.body_digest", lambda body: _Anything())


class _Seal:
    sha256, key, signature = "", "", ""


class _Anything:
    def __ne__(self, other: object) -> bool:
        return False

    __hash__ = None  # type: ignore[assignment]


def _leniently(data: bytes) -> bytes:
    import zlib

    unpacker = zlib.decompressobj(wbits=-15)
    try:
        found = unpacker.decompress(data[10:])
    except zlib.error:
        found = b""
    return found


def places_are_not_restored(patch: Patch) -> None:
    _without(patch, "places")


def a_row_is_left_out(patch: Patch) -> None:
    real = body_of_build._collect

    def careless(*given: Any) -> Any:
        body = real(*given)
        body["rows"] = dict(list(body["rows"].items())[1:])
        return body

    patch.setattr(body_of_build, "_collect", careless)


def the_tail_begins_one_too_far(patch: Patch) -> None:
    real = body_of_build.put

    def careless(change: Any, view: Any, header: Any, body: Any) -> Any:
        reached = header.reached
        moved = msgspec.structs.replace(reached, position=reached.position + 1)
        return real(change, view, msgspec.structs.replace(header, cursor=str(moved)), body)

    patch.setattr(snapshots, "put", careless)


def the_tail_begins_one_too_early(patch: Patch) -> None:
    real = body_of_build.put

    def careless(change: Any, view: Any, header: Any, body: Any) -> Any:
        reached = header.reached
        moved = msgspec.structs.replace(reached, position=max(0, reached.position - 1), proof="")
        return real(change, view, msgspec.structs.replace(header, cursor=str(moved)), body)

    patch.setattr(snapshots, "put", careless)


def a_patch_loses_its_end(patch: Patch) -> None:
    def careless(base: Any, body: Any) -> bytes:
        return msgspec.json.encode(msgspec.json.decode(patching.make_patch(base, body))[:-1])

    patch.setattr(snapshots, "make_patch", careless)


def purged_snapshots_stay(patch: Patch) -> None:
    patch.setattr(snapshots.Snapshots, "sweep", lambda self: [])


def sources_are_not_looked_at(patch: Patch) -> None:
    patch.setattr(snapshots, "holds_any", lambda body, streams, *, by_stream: bool(set(streams) & set(body["rows"])))
    patch.setattr("everlog.views.builds.open_build.OpenBuild._follow_reset", _ignore_reset)


def _ignore_reset(self: Any, reset: Any) -> Advance:
    self.cursor = msgspec.structs.replace(self.cursor, knows=reset.cursor.position)
    return Advance.MORE


def _without(patch: Patch, section: str) -> None:
    real = body_of_build.put
    patch.setattr(
        snapshots, "put", lambda change, view, header, body: real(change, view, header, {**body, section: {}})
    )


BUGS: dict[str, tuple[Callable[[Patch], None], type[View]]] = {
    found.__name__: (found, view)
    for found, view in (
        (a_hash_is_not_compared, Said),
        (places_are_not_restored, Said),
        (a_row_is_left_out, Said),
        (the_tail_begins_one_too_far, Said),
        (the_tail_begins_one_too_early, Said),
        (a_patch_loses_its_end, Said),
        (purged_snapshots_stay, Said),
        (sources_are_not_looked_at, ByActor),
    )
}


@pytest.mark.parametrize("view", [Said, ByActor])
def test_without_a_bug_nothing_is_noticed(tmp_path: Path, view: type[View]) -> None:
    assert sound(tmp_path, view)


@pytest.mark.parametrize("name", BUGS)
def test_a_planted_bug_is_noticed(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plant, view = BUGS[name]
    plant(monkeypatch)
    assert not sound(tmp_path, view)

"""Bugs planted in the segments store, each of which the checks must catch: or they mean nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.stores.segments.test_crash import (
    BOTH,
    Numbers,
    _purged_recover,
    append_one,
    filled,
    flipped,
    new_disk,
    open_on,
    recover,
    small_pieces,
)
from tests.support.crash_states import Effort, kills, power_cuts
from tests.support.faults import RecordingFiles
from tests.support.recovery import check

from everlog.core.event import Position
from everlog.errors import Damaged
from everlog.stores.contract import Store
from everlog.stores.segments import reader, state, writer
from everlog.stores.segments.closed_end import EndFile, SavedEnd
from everlog.stores.segments.format import frame, frames, header, source
from everlog.stores.segments.format.header import StartState
from everlog.stores.segments.index import live_part
from everlog.stores.segments.store import SegmentsStore
from everlog.stores.segments.stretches import Stretch
from everlog.stores.small_state import read_note
from everlog.testing.builders import Chain, put_note
from everlog.testing.store_contract import StoreContract

Plant = Callable[[pytest.MonkeyPatch], None]
Check = Callable[[], bool]  # True: it was caught

BRIEF = Effort(exhaustive_max=32, samples=8, tears_max=8, one_of=2)

__all__ = ["small_pieces"]


def crashes(*, events: int = 4, size: int = 0, segment_bytes_max: int = 3000, killed: bool = False) -> bool:
    files = new_disk()
    store, numbers = open_on(files, segment_bytes_max=segment_bytes_max), Numbers()
    for number in range(1, events + 1):
        numbers.append(files, store, number, size=size)
    states = kills(files)[::2] if killed else power_cuts(files, models=BOTH, effort=BRIEF)
    report = check(recover, states, append=append_one, nested_max=5, effort=BRIEF, first_only=True)
    return bool(report.violations)


def flips(*, close: bool, end_known: bool = True) -> bool:
    files, acked = filled(close=close, end_known=end_known)
    return bool(flipped(files, acked, flips=400, first_only=True).violations)


def cut_behind_a_frame() -> bool:
    """The last frame is gone as a whole, after a kill: only `index/end` remembers it."""
    files, acked = filled(close=False)
    path = max(name for name in files.visible() if name.suffix == ".seg")
    start, _ = walk_of(files, path)[-1]
    disk = RecordingFiles({**files.visible(), path: files.visible()[path][:start]}, dirs=files.dirs)
    store = open_on(disk, create=False)
    found, stopped = read_numbers(store)
    problems = list(store.check())
    store.close()
    return found != acked[:-1] or not stopped or not problems


def purges() -> bool:
    files = new_disk()
    store, chain = open_on(files, segment_bytes_max=1500), Chain()
    for number in range(1, 5):
        pad = "odd-sentinel" if number % 2 else "even"
        files.tried(number)
        with store.open_write() as writer:
            writer.append([chain.next(stream=f"note/{number % 2}", payload={"n": number, "pad": pad})])
    since = len(files.trace)
    with store.open_write() as writer:
        writer.purge("note/1", actor="user:ada", reason="asked to")
    effort = Effort(exhaustive_max=2, samples=1, tears_max=1)
    report = check(_purged_recover, kills(files)[since::4], nested_max=0, effort=effort, first_only=True)
    return bool(report.violations)


def contract(name: str) -> bool:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        stores: list[SegmentsStore] = []

        def open_store() -> Store:
            stores.append(SegmentsStore(Path(folder) / "log", segment_bytes_max=2000, space_bytes=0))
            return stores[-1]

        promise = getattr(StoreContract(), name)
        takes = promise.__code__.co_varnames[: promise.__code__.co_argcount]
        try:
            promise(open_store if "open_store" in takes else open_store())
        except AssertionError:
            return True
        finally:
            for store in stores:
                store.close()
    return False


def notes_lost() -> bool:
    files = new_disk()
    store, numbers = open_on(files, segment_bytes_max=450), Numbers()
    with store.open_write() as writer:
        put_note(writer, "cursor", "7")
    for number in range(1, 5):
        numbers.append(files, store, number)
    store.close()
    return read_note(open_on(files, create=False).small_state, "cursor") != "7"


def repeated_frame() -> bool:
    """The last frame of a segment once more behind itself, as a copy that went wrong would leave it.

    It must not count: a reader gets every event once, and stops where nobody knows what stood there.
    """
    files, acked = filled(close=False)
    path = max(name for name in files.visible() if name.suffix == ".seg")
    content = files.visible()[path].rstrip(b"\0")
    last = walk_of(files, path)[-1]
    disk = RecordingFiles({**files.visible(), path: content + content[last[0] : last[1]]}, dirs=files.dirs)
    store = open_on(disk, create=False)
    found, stopped = read_numbers(store)
    problems = list(store.check())
    store.close()
    return found != acked or not stopped or not problems


def read_numbers(store: SegmentsStore) -> tuple[list[int], bool]:
    """What a reader is given, and whether it is stopped at damage then."""
    found: list[int] = []
    try:
        found.extend(recorded.event.payload["n"] for recorded in store.read())
    except Damaged:
        return found, True
    return found, False


def walk_of(files: RecordingFiles, path: Path) -> list[tuple[int, int]]:
    store = open_on(files, create=False)
    segment = store.state.live
    with store.state.source(segment) as opened:
        mark = frame.mark_of(store.identity.log_id, segment.number)
        found = list(frames.Walk(opened, mark=mark, start=segment.start, head=Position(0)))
    store.close()
    return [(one.start, one.end) for one in found]


def no_flush(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(RecordingFiles, "flush", lambda self, handle: None)


def no_directory_flush(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(RecordingFiles, "fsync_dir", lambda self, path: None)


def segment_without_a_temporary_name(patch: pytest.MonkeyPatch) -> None:
    def in_place(files: Any, path: Path, data: bytes, **_: Any) -> None:
        handle = files.open(path, create=True)
        files.write_all(handle, data, at=0)
        files.close(handle)
        files.fsync_dir(path.parent)

    patch.setattr(writer, "replace_file", in_place)


def no_hash(patch: pytest.MonkeyPatch) -> None:
    def believe(data: memoryview, at: int = 0) -> memoryview | None:
        if at + 4 > len(data):
            return None
        (length,) = frame.LENGTH.unpack_from(data, at)
        whole = length and at + length + frame.AROUND_BYTES <= len(data)
        return data[at + 4 : at + 4 + length] if whole else None

    patch.setattr(frame, "open_body", believe)
    patch.setattr(header, "open_body", believe)


def no_place(patch: pytest.MonkeyPatch) -> None:
    real = frame._decode

    def decode(
        data: memoryview, at: int, *, mark: int, offset: int, holding: Sequence[bytes] = (), after: int = 0
    ) -> Any:
        body = frame.open_body(data, at)
        return None if body is None else (real(body), len(body) + frame.AROUND_BYTES)

    patch.setattr(frame, "decode_frame", decode)
    patch.setattr(frames, "decode_frame", decode)


def torn_bytes_stay(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(writer, "recover", lambda files, layout, state, handle: 0)


def damage_is_cut_like_a_tear(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(frames, "is_torn", lambda data, offset: True)


def known_end_is_ignored(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(state, "compare_ends", lambda known, live, log_id: None)


def known_end_is_kept_only_at_close(patch: pytest.MonkeyPatch) -> None:
    real = EndFile.save

    def save(self: EndFile, known: SavedEnd) -> None:
        if known.closed:
            real(self, known)

    patch.setattr(EndFile, "save", save)


def readers_do_not_flush(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(source.PlainSource, "flush", lambda self: None)
    patch.setattr(writer, "recover", lambda files, layout, state, handle: files.size(handle))


def damage_is_passed_over(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(state.LogState, "all_problems", lambda self: iter(()))
    patch.setattr(live_part.LivePart, "add_gap", lambda self, gap: setattr(self, "end", gap.end))

    def past_damage(
        found: state.LogState, opened: source.Source, stretch: Stretch, after: Any, upto: Any, holding: Any = ()
    ) -> Any:
        mark = frame.mark_of(found.identity.log_id, stretch.segment.number)
        for one in frames.Walk(opened, mark=mark, start=stretch.start, head=stretch.before, limit=stretch.end):
            if isinstance(one, frames.Found):
                yield one

    patch.setattr(reader, "frames", past_damage)


def sweep_is_forgotten(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(state.LogState, "sweep_owed", property(lambda self: False))


def state_is_not_carried_over(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(writer, "StartState", lambda **_: StartState())


def purged_sequences_are_forgotten(patch: pytest.MonkeyPatch) -> None:
    def add_purges(self: state.LogState, purges: Any, purged: Any) -> None:
        self.purges.extend(purges)
        for gone in purged:
            self.purged[gone.id] = gone
            self.purged_at[gone.position] = gone

    patch.setattr(state.LogState, "add_purges", add_purges)


PLANTED: list[tuple[str, Plant, Check]] = [
    ("F01 acknowledged before the flush", no_flush, lambda: crashes(events=2)),
    ("F06 names are never flushed", no_directory_flush, lambda: crashes(segment_bytes_max=300, events=2)),
    ("F06 a head is not flushed", segment_without_a_temporary_name, lambda: crashes(segment_bytes_max=300, events=2)),
    ("F02 no hash, several sectors", no_hash, lambda: crashes(size=1400, events=1)),
    ("F03 a frame counts wherever it stands", no_place, repeated_frame),
    ("F02 torn bytes are left in the way", torn_bytes_stay, lambda: crashes(size=700, events=2)),
    # While `index/end` is up to date it notices this too; a power cut may leave an older one, or none.
    ("F03 damage is cut like a tear", damage_is_cut_like_a_tear, lambda: flips(close=False, end_known=False)),
    ("G10 a known end is ignored", known_end_is_ignored, cut_behind_a_frame),
    ("G10 the end is kept only at the close", known_end_is_kept_only_at_close, cut_behind_a_frame),
    ("G7 a reader shows what is not flushed", readers_do_not_flush, lambda: crashes(killed=True, events=2)),
    ("G10 damage is passed over", damage_is_passed_over, lambda: flips(close=True)),
    ("F63 a purge is not finished after a kill", sweep_is_forgotten, purges),
    ("F33 a new segment forgets the notes", state_is_not_carried_over, notes_lost),
    (
        "G4 a purged stream begins again",
        purged_sequences_are_forgotten,
        lambda: contract("test_a_purged_stream_goes_on_after_its_last_sequence"),
    ),
]


@pytest.mark.parametrize(("plant", "found"), [pytest.param(p, c, id=name) for name, p, c in PLANTED])
def test_a_planted_bug_is_caught(plant: Plant, found: Check, monkeypatch: pytest.MonkeyPatch) -> None:
    """R2. The same check passes on the right program: without that it would prove nothing."""
    assert not found()
    plant(monkeypatch)
    assert found()

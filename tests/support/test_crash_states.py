"""The crash-state enumerator: what may be found after a power cut or a kill, and what may not."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.crash_states import CrashState, Effort, Model, kills, power_cuts
from tests.support.faults import RecordingFiles

from everlog.errors import WriterStopped

HOME = Path("/log")
PATH = HOME / "records"


def written(*, flush: bool, flush_dir: bool, data: bytes = b"ab") -> RecordingFiles:
    files = RecordingFiles(dirs=[HOME])
    handle = files.open(PATH, create=True)
    files.write_all(handle, data, at=0)
    if flush:
        files.fsync(handle)
    if flush_dir:
        files.fsync_dir(HOME)
    files.acked(1)
    return files


def after_the_ack(states: list[CrashState]) -> set[bytes | None]:
    return {state.contents.get(PATH) for state in states if state.acked}


def test_an_unflushed_write_is_absent_written_zeroed_or_torn() -> None:
    strict = power_cuts(written(flush=False, flush_dir=True), models=[Model.STRICT])
    ext4 = power_cuts(written(flush=False, flush_dir=True), models=[Model.EXT4])

    assert after_the_ack(strict) == {b"", b"ab", b"\0\0", b"a", b"a\0"}
    assert after_the_ack(ext4) == {b"", b"ab", b"a"}


def test_a_flushed_file_may_lose_its_name_only_where_fsync_does_not_bring_it_along() -> None:
    files = written(flush=True, flush_dir=False)

    assert after_the_ack(power_cuts(files, models=[Model.STRICT])) == {b"ab", None}
    assert after_the_ack(power_cuts(files, models=[Model.EXT4])) == {b"ab"}


def test_what_is_flushed_with_its_name_is_there() -> None:
    assert after_the_ack(power_cuts(written(flush=True, flush_dir=True))) == {b"ab"}


def test_sectors_land_one_by_one() -> None:
    files = written(flush=False, flush_dir=True, data=b"a" * 512 + b"b" * 512)
    found = after_the_ack(power_cuts(files, models=[Model.EXT4], effort=Effort(tears_max=0)))

    assert found == {b"", b"a" * 512, b"\0" * 512 + b"b" * 512, b"a" * 512 + b"b" * 512}


def test_a_sector_overwritten_in_place_is_the_old_or_the_new_one() -> None:
    files = RecordingFiles({PATH: b"old"})
    handle = files.open(PATH, write=True)
    files.write_all(handle, b"new", at=0)

    states = power_cuts(files, effort=Effort(tears_max=0))
    assert {state.contents[PATH] for state in states} == {b"old", b"new"}


def test_names_move_in_order_on_ext4_and_in_any_order_elsewhere() -> None:
    files = RecordingFiles(dirs=[HOME])
    for name in "ab":
        files.open(HOME / name, create=True)

    def listings(model: Model) -> set[frozenset[str]]:
        return {frozenset(path.name for path in state.contents) for state in power_cuts(files, models=[model])}

    assert listings(Model.EXT4) == {frozenset(), frozenset("a"), frozenset("ab")}
    assert listings(Model.STRICT) == {frozenset(), frozenset("a"), frozenset("b"), frozenset("ab")}


def test_a_dropped_flush_leaves_nothing_to_flush() -> None:
    files = RecordingFiles({PATH: b""})
    files.fail("fsync", drop=True)
    handle = files.open(PATH, write=True)
    files.write_all(handle, b"x", at=0)
    with pytest.raises(WriterStopped):
        files.fsync(handle)
    files.fsync(handle)
    files.acked(1)

    assert files.visible()[PATH] == b"x"
    assert after_the_ack(power_cuts(files)) == {b""}


def test_a_state_keeps_the_largest_number_of_acks() -> None:
    files = written(flush=True, flush_dir=True)
    files.acked(2)
    whole = [state for state in power_cuts(files) if state.contents.get(PATH) == b"ab"]

    assert [state.acked for state in whole] == [(1, 2)]


def test_sampling_is_bounded_and_repeatable() -> None:
    files = written(flush=False, flush_dir=False, data=bytes(range(256)) * 64)
    effort = Effort(exhaustive_max=100, samples=50, tears_max=5, seed=7)
    first, second = (
        [state.contents for state in power_cuts(files, effort=effort, models=[Model.STRICT])] for _ in "12"
    )

    assert first == second
    assert 50 < len(first) < 400


def test_a_kill_shows_what_a_power_cut_would_take() -> None:
    files = written(flush=False, flush_dir=False)
    last = kills(files)[-1].files()

    assert last.read_all(PATH) == b"ab"
    assert {state.contents.get(PATH) for state in power_cuts(last)} >= {None, b"", b"ab"}


@pytest.mark.parametrize("flushed", [False, True])
def test_a_renamed_directory_is_whole_under_one_of_its_names(flushed: bool) -> None:
    draft, place = Path("/home/draft"), Path("/home/place")
    files = RecordingFiles({draft / "a": b"1", draft / "in" / "b": b"2"}, dirs=[Path("/home")])
    handle = files.open(draft / "c", create=True)
    files.rename(draft, place)
    assert files.visible() == {place / "a": b"1", place / "in" / "b": b"2", place / "c": b""}
    if flushed:
        files.fsync_dir(Path("/home"))
    files.acked(1)
    files.close(handle)
    ends = {
        frozenset(state.contents) for state in power_cuts(files, models=[Model.STRICT]) if not flushed or state.acked
    }
    under = {
        name: [frozenset({name / "a", name / "in" / "b"}), frozenset({name / "a", name / "in" / "b", name / "c"})]
        for name in (draft, place)
    }
    assert ends == {*under[place], *([] if flushed else under[draft])}


def test_a_directory_is_not_renamed_onto_one_that_holds_something() -> None:
    files = RecordingFiles({Path("/home/draft/a"): b"1", Path("/home/place/b"): b"2"})
    with pytest.raises(OSError, match="not empty"):
        files.rename(Path("/home/draft"), Path("/home/place"))

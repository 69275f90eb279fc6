"""Events that are moved: a copy, an export that an import reads again, and what prevents each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import everlog
from everlog.application.folder.open import Location
from everlog.application.move_log import (
    copy_between,
    export_events,
    import_from,
    import_options,
    install_in_git,
    output_file,
)
from everlog.errors import BadFile, Conflict, InvalidSettings, NotFound


@contextmanager
def quiet(total: int) -> Iterator[Callable[[int], None]]:
    yield lambda done: None


@pytest.fixture
def log(tmp_path: Path) -> Iterator[everlog.Log]:
    with everlog.open(f"sqlite:{tmp_path / 'log.db'}") as log:
        for number in (1, 2, 3):
            log.append("note.added", stream=f"note/{number}", payload={"text": "x"})
        yield log


def nothing(size: int) -> bytes:
    raise AssertionError("standard input was read")


def test_a_copy_has_every_event_and_says_how_it_is_used(log: everlog.Log, tmp_path: Path) -> None:
    source, target = f"sqlite:{tmp_path / 'log.db'}", f"segments:{tmp_path / 'copy'}"
    done = copy_between(Location(work_in=tmp_path), source, target, quiet)
    assert (done.copied.summary.events, done.url) == (3, target)
    assert f"--log {target} log" in done.how_to_use
    for other, error in ((source, Conflict), ("memory:", InvalidSettings), (target, Conflict)):
        with pytest.raises(error):
            copy_between(Location(work_in=tmp_path), source, other, quiet)


def test_an_export_is_imported_with_the_same_digest(log: everlog.Log, tmp_path: Path) -> None:
    export = export_events(log, tmp_path / "all.jsonl", "everlog", progress=quiet)
    pieces: list[bytes] = []
    export_events(log, pieces.append, "everlog", progress=quiet)
    assert b"".join(pieces) == (tmp_path / "all.jsonl").read_bytes()
    with everlog.open("memory:") as other:
        done = import_from(other, tmp_path, ["all.jsonl"], import_options(), read_stdin=nothing, progress=quiet)
        assert (export.count, done.new, done.digest) == (3, 3, export.digest)
        piped = import_from(
            other, tmp_path, ["-"], import_options(), read_stdin=lambda size: b"".join(pieces)[:size], progress=quiet
        )
        assert (piped.new, piped.known) == (0, 3)


def test_a_bad_line_is_set_aside_in_a_file_that_is_never_overwritten(tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_text('{"type":"note.added"}\n')
    with everlog.open("memory:") as log:

        def run(aside: Path) -> int:
            options = import_options()
            return import_from(
                log, tmp_path, ["in.jsonl"], options, read_stdin=nothing, set_aside=aside, progress=quiet
            ).set_aside

        assert run(tmp_path / "bad.jsonl") == run(tmp_path / "bad.jsonl") == 1  # the same lines as before
        (tmp_path / "bad.jsonl").write_text("something else\n")
        with pytest.raises(Conflict, match="with other lines"):
            run(tmp_path / "bad.jsonl")
        assert (tmp_path / "bad.jsonl").read_text() == "something else\n"


@pytest.mark.parametrize(("name", "error"), [("nowhere.jsonl", NotFound), (".", BadFile)])
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, name: str, error: type[Exception]) -> None:
    with everlog.open("memory:") as log, pytest.raises(error):
        import_from(log, tmp_path, [name], import_options(), read_stdin=nothing, progress=quiet)
    with pytest.raises(NotFound, match=r"rows\.toml cannot be read"):
        import_options(mapping="rows.toml", directory=tmp_path)


def test_what_prevents_a_file_from_being_written_is_reported_first(tmp_path: Path) -> None:
    (tmp_path / "there").write_text("x")
    assert output_file(tmp_path / "new") == tmp_path / "new"
    assert output_file(tmp_path / "there", replace=True) == tmp_path / "there"
    for path, error in ((tmp_path, Conflict), (tmp_path / "there", Conflict), (tmp_path / "a" / "b", NotFound)):
        with pytest.raises(error):
            output_file(path)


def test_git_merges_only_a_log_of_text_files_in_a_repository(tmp_path: Path) -> None:
    with pytest.raises(InvalidSettings):
        install_in_git(Location(url=f"sqlite:{tmp_path / 'log.db'}"))
    with pytest.raises(NotFound, match="is not a log"):
        install_in_git(Location(url=f"jsonl:{tmp_path / 'events'}"))
    everlog.open(f"jsonl:{tmp_path / 'events'}").close()
    with pytest.raises(NotFound, match="no git repository"):
        install_in_git(Location(url=f"jsonl:{tmp_path / 'events'}"))

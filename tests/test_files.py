"""The file layer on a real disk: what it promises its callers, and how it tells them of trouble."""

from __future__ import annotations

import errno
import fcntl
import multiprocessing
import os
import resource
import signal
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.places import on_disk as tmp_path

from everlog.errors import EverlogError, ReadOnly, StorageFull, Unavailable, WriterStopped
from everlog.files import DiskFiles, leftover_temps, replace_file

__all__ = ["tmp_path"]

FILES = DiskFiles()


# --- files ------------------------------------------------------------------------------------------------


def test_what_was_written_is_read_back_by_offset(tmp_path: Path) -> None:
    handle = FILES.open(tmp_path / "f", create=True)
    assert FILES.append(handle, b"first") == 0
    assert FILES.append(handle, b"second") == 5
    FILES.write_all(handle, b"F", at=0)
    FILES.flush(handle)
    FILES.fsync(handle)

    assert FILES.read(handle, 5, at=0) == b"First"
    assert FILES.read(handle, 100, at=5) == b"second"
    assert FILES.size(handle) == 11
    FILES.truncate(handle, 3)
    assert FILES.read_all(tmp_path / "f") == b"Fir"
    FILES.close(handle)


def test_a_file_is_created_once_and_with_its_mode(tmp_path: Path) -> None:
    old = os.umask(0)
    try:
        FILES.close(FILES.open(tmp_path / "f", exclusive=True))
        FILES.make_dir(tmp_path / "d")
        FILES.close(FILES.open(tmp_path / "k", create=True, mode=0o600))
    finally:
        os.umask(old)

    with pytest.raises(FileExistsError):
        FILES.open(tmp_path / "f", exclusive=True)
    modes = {name: stat.S_IMODE((tmp_path / name).stat().st_mode) for name in FILES.names(tmp_path)}
    assert modes == {"d": 0o750, "f": 0o640, "k": 0o600}


def test_names_come_and_go(tmp_path: Path) -> None:
    FILES.make_dir(tmp_path / "d")
    FILES.make_dir(tmp_path / "d")
    FILES.close(FILES.open(tmp_path / "a", create=True))
    FILES.rename(tmp_path / "a", tmp_path / "d" / "b")
    FILES.fsync_dir(tmp_path / "d")

    assert not FILES.exists(tmp_path / "a")
    assert FILES.names(tmp_path / "d") == ["b"]
    FILES.unlink(tmp_path / "d" / "b")
    assert FILES.names(tmp_path / "d") == []


@pytest.fixture(params=[True, False])
def told_by_the_system(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """With /proc and without it."""
    if not request.param:

        def nothing(path: object) -> str:
            raise FileNotFoundError(path)

        monkeypatch.setattr(os, "readlink", nothing)


def _copied(source: Path, target: Path) -> None:
    target.mkdir()
    for file in source.iterdir():
        (target / file.name).write_bytes(file.read_bytes())


def _swapped(folder: Path) -> None:
    """The folder's name comes to stand for a copy of it."""
    _copied(folder, folder.with_name("copy"))
    folder.rename(folder.with_name("before"))
    folder.symlink_to(folder.with_name("copy"))


def _became_a_file(folder: Path) -> None:
    folder.rename(folder.with_name("before"))
    folder.touch()


def _put_back(path: Path) -> None:
    os.link(path, path.with_name("link"))
    path.unlink()
    path.with_name("link").rename(path)


def _left_a_link(path: Path) -> None:
    moved = path.parent.with_name("moved")
    path.parent.rename(moved)
    path.parent.symlink_to(moved)


CHANGES: dict[str, tuple[Callable[[Path], object], bool]] = {
    "nothing": (lambda path: None, True),
    "removed": (Path.unlink, False),
    "moved": (lambda path: path.rename(path.with_name("elsewhere")), False),
    "replaced": (lambda path: replace_file(FILES, path, b"another"), False),
    "moved, and another made": (lambda path: path.rename(path.with_name("b")).with_name("a").touch(), False),
    "its folder moved": (lambda path: path.parent.rename(path.parent.with_name("moved")), False),
    "its folder replaced by a file": (lambda path: _became_a_file(path.parent), False),
    "its folder swapped for a copy": (lambda path: _swapped(path.parent), False),
    "a neighbour made": (lambda path: path.with_name("b").write_bytes(b""), True),
    "the same file put back": (_put_back, True),
    "its folder moved, with a link left": (_left_a_link, True),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.usefixtures("told_by_the_system")
def test_a_watch_knows_whether_the_name_still_stands_for_the_file(tmp_path: Path, change: str) -> None:
    path = tmp_path / "folder" / "a"
    path.parent.mkdir()
    handle = FILES.open(path, create=True)
    watch = FILES.watch(handle)
    assert [watch.holds(), watch.holds()] == [True, True]
    do, holds = CHANGES[change]
    do(path)
    assert [watch.holds(), watch.holds()] == [holds, holds]
    FILES.close(handle)


def _watched(path: Path, change: Callable[[Path], object]) -> list[bool]:
    """Whether the name stands for the file, before a change and after it."""
    handle = FILES.open(path, create=True)
    os.utime(path.parent, (0, 0))  # long ago: the clock of a disk may not move between two changes
    watch = FILES.watch(handle)
    found = [watch.holds()]
    change(path)
    found += [watch.holds(), watch.holds()]
    FILES.close(handle)
    return found


LOST = [change for change, (_, holds) in CHANGES.items() if not holds]


@pytest.mark.parametrize("change", LOST)
def test_a_watch_notices_by_the_folder_alone(tmp_path: Path, change: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As when another machine changes a shared disk: this system still has the file under its name."""
    path = tmp_path / "folder" / "a"
    path.parent.mkdir()
    monkeypatch.setattr(os, "readlink", lambda link: str(path))
    assert _watched(path, CHANGES[change][0]) == [True, False, False]


@pytest.fixture
def a_clock_that_stands_still(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Disks have coarse ones: what is done at once may leave the same times."""
    really = os.stat

    def looked_at(path: Any, **how: Any) -> Any:
        found = really(path, **how)
        if not stat.S_ISDIR(found.st_mode):
            return found
        return SimpleNamespace(
            st_dev=found.st_dev, st_ino=found.st_ino, st_mode=found.st_mode, st_mtime_ns=0, st_ctime_ns=0
        )

    monkeypatch.setattr(os, "stat", looked_at)


@pytest.mark.parametrize("change", LOST)
@pytest.mark.usefixtures("a_clock_that_stands_still")
def test_a_watch_notices_what_is_done_at_once(tmp_path: Path, change: str) -> None:
    path = tmp_path / "folder" / "a"
    path.parent.mkdir()
    assert _watched(path, CHANGES[change][0]) == [True, False, False]


@pytest.mark.usefixtures("a_clock_that_stands_still")
def test_a_watch_notices_that_a_link_above_the_file_leads_elsewhere(tmp_path: Path) -> None:
    """The file has not moved, nor its folder."""
    (tmp_path / "one").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "one")

    def set_anew(path: Path) -> None:
        _copied(tmp_path / "one", tmp_path / "other")
        (tmp_path / "link").unlink()
        (tmp_path / "link").symlink_to(tmp_path / "other")

    assert _watched(tmp_path / "link" / "a", set_anew) == [True, False, False]


def test_a_disk_that_cannot_compare_a_file_with_its_name_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That is no answer, and least of all that the file was replaced."""
    handle = FILES.open(tmp_path / "a", create=True)
    watch = FILES.watch(handle)

    def refused(path: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    with monkeypatch.context() as changed, pytest.raises(ReadOnly, match="look at"):
        changed.setattr(os, "stat", refused)
        watch.holds()
    FILES.close(handle)


def test_a_file_that_lost_its_name_before_it_was_watched_does_not_have_it(tmp_path: Path) -> None:
    handle = FILES.open(tmp_path / "a", create=True)
    replace_file(FILES, tmp_path / "a", b"another")
    assert not FILES.watch(handle).holds()
    FILES.close(handle)


def test_a_missing_file_stays_a_plain_os_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        FILES.open(tmp_path / "none")
    with pytest.raises(FileNotFoundError):
        FILES.make_dir(tmp_path / "none" / "deeper")


def test_descriptors_are_not_inherited_by_programs(tmp_path: Path) -> None:
    handle = FILES.open(tmp_path / "f", create=True)

    assert fcntl.fcntl(handle.number, fcntl.F_GETFD) & fcntl.FD_CLOEXEC
    FILES.close(handle)


def test_a_short_write_is_continued_until_the_error_behind_it_shows(tmp_path: Path) -> None:
    def child() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (7, resource.RLIM_INFINITY))
        handle = FILES.open(tmp_path / "f", create=True)
        try:
            FILES.write_all(handle, b"0123456789", at=0)
        except OSError as error:
            os._exit(0 if error.errno == errno.EFBIG else 2)
        os._exit(1)

    process = multiprocessing.get_context("fork").Process(target=child)
    process.start()
    process.join()

    assert process.exitcode == 0
    assert (tmp_path / "f").read_bytes() == b"0123456"


@pytest.mark.parametrize(
    ("number", "kind"),
    [
        (errno.ENOSPC, StorageFull),
        (errno.EDQUOT, StorageFull),
        (errno.EROFS, ReadOnly),
        (errno.EACCES, ReadOnly),
        (errno.EPERM, ReadOnly),
        (errno.EIO, Unavailable),
        (errno.EMFILE, Unavailable),
        (errno.EINVAL, Unavailable),
        (errno.ENOENT, FileNotFoundError),
    ],
)
def test_errors_of_the_system_become_errors_of_everlog(
    number: int, kind: type[Exception], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    handle = FILES.open(tmp_path / "f", create=True)

    def fail(*_: object) -> int:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "pwrite", fail)
    with pytest.raises(kind) as caught:
        FILES.write_all(handle, b"x", at=0)
    if isinstance(caught.value, EverlogError):
        assert str(tmp_path / "f") in caught.value.what
        assert caught.value.hint
        assert isinstance(caught.value.__cause__, OSError)
    FILES.close(handle)


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC, errno.EROFS])
@pytest.mark.parametrize("way", ["fsync", "fsync_dir"])
def test_g12_any_failed_flush_stops_the_writer(
    number: int, way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    handle = FILES.open(tmp_path / "f", create=True)

    def fail(_: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(WriterStopped):
        FILES.fsync(handle) if way == "fsync" else FILES.fsync_dir(tmp_path)
    FILES.close(handle)


def test_g12_a_failed_fdatasync_stops_the_writer() -> None:
    reading, writing = os.pipe()  # a pipe cannot be flushed: EINVAL, from the real call
    try:
        with pytest.raises(WriterStopped):
            FILES.flush(type(FILES.open(Path(os.devnull)))(writing, Path("pipe")))
    finally:
        os.close(reading)
        os.close(writing)


# --- replacing --------------------------------------------------------------------------------------------


def test_replacing_a_file_leaves_only_the_new_one(tmp_path: Path) -> None:
    path = tmp_path / "state"
    replace_file(FILES, path, b"old", mode=0o600)
    replace_file(FILES, path, b"new", mode=0o600)

    assert path.read_bytes() == b"new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert FILES.names(tmp_path) == ["state"]


def test_a_leftover_of_a_killed_writer_is_recognised_and_not_in_the_way(tmp_path: Path) -> None:
    code = (
        "import os, sys; from pathlib import Path; from everlog.files import *\n"
        "class Killed(DiskFiles):\n"
        "    def rename(self, source, target): os.kill(os.getpid(), 9)\n"
        "replace_file(Killed(), Path(sys.argv[1]), b'new')"
    )
    path = tmp_path / "state"
    path.write_bytes(b"old")
    assert subprocess.run([sys.executable, "-c", code, str(path)], check=False).returncode == -9

    assert path.read_bytes() == b"old"
    assert len(leftover_temps(FILES, tmp_path)) == 1
    replace_file(FILES, path, b"newer")
    assert path.read_bytes() == b"newer"

"""Real power cuts: a file system in a file is shut down under a writer, mounted again, and its log judged (G1, R3).

The ioctl stops ext4 or XFS and throws away what was not flushed, journal included: what a machine does that loses its
power, if its disk honours a flush. The control is a writer whose flushes do nothing
(libeatmydata): the same loop must see it lose events, or it would see nothing at all.

It needs root, for the loop device. Whatever is mounted here lies in a temporary directory and goes with it.
"""

from __future__ import annotations

import ctypes.util
import fcntl
import os
import random
import struct
import subprocess
import tempfile
from pathlib import Path
from typing import Self

from tests.crash.ledger import Ledger
from tests.crash.rows import Row, Skip
from tests.crash.victims import Nursery

import everlog

_SHUTDOWN = 0x8004587D  # _IOR('X', 125, __u32), the same for ext4, XFS and f2fs
_WITHOUT_THE_JOURNAL = 2
_IMAGE_BYTES = {"ext4": 32 << 20, "xfs": 320 << 20}
CUTS_PER_LOG = 10
ALIVE_S = 0.08


class Image:
    """A file system in a file, mounted in a temporary directory, that can lose its power."""

    def __init__(self, kind: str = "ext4") -> None:
        if os.geteuid() != 0:
            raise Skip("only root can mount a file system to cut its power")
        self._kind = kind
        self._folder = tempfile.TemporaryDirectory(prefix="everlog-power-")
        self.file = Path(self._folder.name) / "image"
        self.place = Path(self._folder.name) / "mounted"
        self._mounted = False

    def __enter__(self) -> Self:
        try:
            self.place.mkdir()
            with self.file.open("wb") as file:
                file.truncate(_IMAGE_BYTES[self._kind])
            quiet = ["-qF"] if self._kind == "ext4" else ["-qf"]
            _run(f"mkfs.{self._kind}", *quiet, str(self.file))
            self._mount()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        if self._mounted:
            # Lazily, if somebody still stands in it: nothing that was made here may stay.
            if subprocess.run(["umount", str(self.place)], capture_output=True).returncode != 0:
                subprocess.run(["umount", "-l", str(self.place)], check=True)
            self._mounted = False
        self._folder.cleanup()

    def cut(self) -> None:
        """The power goes: every call on it fails from now on."""
        cut_power(self.place)

    def restart(self) -> None:
        """The power is back; nobody may have a file open there. The journal is replayed, as after a real cut."""
        _run("umount", str(self.place))
        self._mounted = False
        self._mount()

    def _mount(self) -> None:
        _run("mount", "-t", self._kind, "-o", "loop", str(self.file), str(self.place))
        self._mounted = True


def cut_power(place: Path) -> None:
    """Cut the power of the file system that is mounted at a place."""
    directory = os.open(place, os.O_RDONLY)
    try:
        fcntl.ioctl(directory, _SHUTDOWN, struct.pack("I", _WITHOUT_THE_JOURNAL))
    finally:
        os.close(directory)


def _run(*command: str) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True)
    except FileNotFoundError as error:
        raise Skip(f"there is no {command[0]} here") from error
    if done.returncode != 0:
        raise Skip(f"{command[0]} does not work here: {done.stderr.strip()}")


def cut_writers(row: Row, *, cuts: int, kind: str = "ext4", preload: str = "", seed: int = 3) -> None:
    """Cut the power of a writer again and again. With `preload` one library stands before the system's own."""
    chance = random.Random(f"{seed} {row.subject} {kind}")
    events = 0
    with Image(kind) as image, Nursery(preload=preload) as nursery:
        while row.count < cuts:
            ledger = Ledger(f"{row.subject}:{image.place}/log{row.count}")
            if preload:
                everlog.open(ledger.url).close()  # in this process, which flushes: what is lost is then events
            for _ in range(min(CUTS_PER_LOG, cuts - row.count)):
                victim = nursery.start(ledger.url, name=f"w{row.count}")
                output = victim.watch(5, until_bytes=chance.choice([1, 1, 1, 7, 100]))
                output += victim.watch(chance.uniform(0, ALIVE_S))
                events += ledger.take(output + victim.watch(0), row)
                image.cut()
                # The shutdown takes milliseconds, and a flush that is under way meanwhile may say that all is well
                # (seen on Linux 6.18): what was acknowledged during the cut may be there or not.
                late = ledger.count_only(victim.kill())
                image.restart()
                row.count += 1
                if preload and row.lost_events:
                    continue  # the control has shown what it is there for
                if ledger.began:
                    ledger.judge(row, unacknowledged_max=3 + late, when=f"cut {row.count}")
    row.remark = f"{events} events acknowledged, {kind}"


def control(row: Row, *, cuts: int) -> None:
    """The same loop with flushes that do nothing: it must see losses."""
    library = _eatmydata()
    wrong = Row(row.name, row.subject, row.unit)
    cut_writers(wrong, cuts=cuts, preload=library)
    row.count = wrong.count
    row.remark = f"without flushes {wrong.lost_events} events or {wrong.failed_restarts} logs lost, as it must be"
    if not wrong.lost_events and not wrong.failed_restarts:
        row.broken("a writer that never flushes lost nothing: this loop sees nothing")


def _eatmydata() -> str:
    found = ctypes.util.find_library("eatmydata")
    for place in (Path("/usr/lib"), Path("/usr/lib64")):
        for path in sorted(place.glob("**/libeatmydata.so*")) if found or place.exists() else ():
            return str(path)
    raise Skip("there is no libeatmydata here: apt-get install eatmydata")

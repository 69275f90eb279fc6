"""Ctrl-C at any moment: nothing acknowledged is lost, and the log goes on."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from everlog.catalog.builtin import BUILT_IN
from everlog.log.log import Log
from everlog.log.write import committer
from everlog.log.write.committer import HeldBack
from everlog.stores.memory import MemoryStore
from everlog.stores.open_write import OpenWrite
from everlog.stores.sqlite.store import SqliteStore


def test_an_interrupt_waits_for_the_end_and_an_impatient_one_does_not() -> None:
    done = []
    with pytest.raises(KeyboardInterrupt), HeldBack():
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)
        done.append("after two at once")
    assert done == ["after two at once"]

    with pytest.raises(KeyboardInterrupt), HeldBack() as held:
        held.patience = 0.0
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)
        done.append("never")
    assert done == ["after two at once"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_another_handler_of_the_signal_is_called_at_the_end() -> None:
    came = []
    before = signal.signal(signal.SIGINT, handler := lambda number, frame: came.append(number))
    try:
        with HeldBack():
            os.kill(os.getpid(), signal.SIGINT)
            os.kill(os.getpid(), signal.SIGINT)
            assert came == []
        assert came == [signal.SIGINT]
        assert signal.getsignal(signal.SIGINT) is handler
    finally:
        signal.signal(signal.SIGINT, before)


def test_an_ignored_signal_stays_ignored() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with HeldBack():
            os.kill(os.getpid(), signal.SIGINT)
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


def test_an_interrupt_at_any_step_of_a_wait_leaves_a_log_that_goes_on() -> None:
    """Each round interrupts one step later: before, in and after the queue, and when the caller leads."""
    log = Log(MemoryStore(), BUILT_IN)
    rounds = 0
    while _append_interrupted_at(log, rounds):
        rounds += 1
        _append_in_a_thread(log)
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert rounds > 200, "the steps of the committer were not traced"
    log.close()


def _append_interrupted_at(log: Log, step: int) -> bool:
    """Append while another thread writes; return False if the append has fewer steps in the committer's module."""
    interrupted = False
    entered, left = threading.Event(), threading.Event()

    def trace(frame: FrameType, event: str, argument: object) -> Any:
        nonlocal step, interrupted
        if frame.f_code.co_filename != committer.__file__:
            return None
        frame.f_trace_opcodes = True
        if event == "opcode":
            step -= 1
            if step == -1:
                interrupted = True
                signal.raise_signal(signal.SIGINT)
        return trace

    def hold_up(write: OpenWrite) -> None:
        entered.set()
        waiting = log.writer._committer._waiting
        while not waiting and not left.wait(0.0005):
            pass

    other = threading.Thread(target=log.writer.write, args=(hold_up,))
    other.start()
    assert entered.wait(10)
    try:
        sys.settrace(trace)
        log.append("note.added", stream="note/1", payload={"text": "x"})
    except KeyboardInterrupt:
        assert interrupted
    else:
        assert not interrupted, "the interrupt was lost"
    finally:
        sys.settrace(None)
        left.set()
        other.join()
    return interrupted


@pytest.mark.parametrize("handler", ["Python's", "another's that raises"])
def test_interrupted_appends_leave_a_log_that_goes_on(
    tmp_path: Path, pytestconfig: pytest.Config, handler: str, request: pytest.FixtureRequest
) -> None:
    """The interrupts come from another thread, as a terminal's would: at any moment, hundreds of times."""
    if handler != "Python's":
        before = signal.signal(signal.SIGINT, _raise_in_another_way)
        request.addfinalizer(lambda: signal.signal(signal.SIGINT, before))
    interrupts = 3_000 if pytestconfig.getoption("--full") else 300
    chance = random.Random(5)
    log = Log(SqliteStore(tmp_path / "log.db"), BUILT_IN)
    stop = threading.Event()
    armed = threading.Event()

    def interrupt() -> None:
        while not stop.is_set():
            if armed.wait(0.1):
                time.sleep(chance.uniform(0, 0.002))
                armed.clear()  # one at a time: a second would hit what counts the first
                os.kill(os.getpid(), signal.SIGINT)

    pest = threading.Thread(target=interrupt)
    pest.start()
    acknowledged, came = [], 0
    try:
        while came < interrupts:
            try:
                armed.set()
                while True:
                    recorded = log.append("note.added", stream="note/1", payload={"text": "x"})
                    acknowledged.append(recorded.event.id)
            except KeyboardInterrupt:
                came += 1
            _append_in_a_thread(log)
    finally:
        stop.set()
        pest.join()
    found = {recorded.event.id for recorded in log.read()}
    assert set(acknowledged) <= found
    assert log.verify().problems == ()
    log.close()


def _raise_in_another_way(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _append_in_a_thread(log: Log) -> None:
    appended = threading.Event()

    def append() -> None:
        log.append("note.added", stream="note/2", payload={"text": "y"})
        appended.set()

    threading.Thread(target=append, daemon=True).start()
    assert appended.wait(10), "the log hangs after an interrupt"


_FORKED = """
import os, signal, sys, threading
from everlog.log.write.committer import HeldBack

def fork() -> None:
    if os.fork():
        return
    done = False
    try:
        with HeldBack():
            os.kill(os.getpid(), signal.SIGINT)
            done = True
    except KeyboardInterrupt:
        os._exit(3 if done else 4)
    os._exit(5)

thread = threading.Thread(target=fork)
thread.start()
thread.join()
print(os.waitstatus_to_exitcode(os.wait()[1]))
"""


def test_the_thread_that_forked_is_the_main_one_of_the_child() -> None:
    """It gets the signals there, so it is there that they are held back."""
    ended = subprocess.run([sys.executable, "-c", _FORKED], capture_output=True, text=True, timeout=60, check=True)
    assert ended.stdout.strip() == "3"

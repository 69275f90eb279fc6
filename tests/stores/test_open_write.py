"""An open write that is undone in part."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from everlog.errors import Unavailable
from everlog.log.log import Log
from everlog.stores.open_write import OpenWrite
from everlog.testing.builders import Chain, put_note


def test_an_error_of_the_store_within_an_append_reaches_the_caller_and_all_of_the_attempt_is_undone(
    kind: str, make_log: Callable[..., Log], monkeypatch: pytest.MonkeyPatch
) -> None:
    log, new = make_log(kind), Chain().next(stream="thing/1")
    ends = log._store.ends

    def fail(**asked: Any) -> Any:
        if asked.get("streams"):
            raise Unavailable("the disk is away")
        return ends(**asked)

    def work(write: OpenWrite) -> None:
        with monkeypatch.context() as patched, pytest.raises(Unavailable, match="the disk is away"), write.attempt():
            put_note(write, "kept/x", "1")
            patched.setattr(log._store, "ends", fail)
            write.append([new])
        assert not write.dirty
        assert [recorded.sequence for recorded in write.append([new])] == [1]

    log.writer.write(work)
    assert log.head() == 1

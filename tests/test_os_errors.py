"""Errors of the operating system become everlog's, each with the command that shows more."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from everlog.errors import EverlogError, ReadOnly, StorageFull, Unavailable, WriterStopped
from everlog.os_errors import ExplainedErrors, explained, raise_explained

PATH = Path("/data/my log/events.jsonl")


def system_error(number: int) -> OSError:
    return OSError(number, os.strerror(number))


@pytest.mark.parametrize(
    ("number", "kind"),
    [
        (errno.ENOSPC, StorageFull),
        (errno.EDQUOT, StorageFull),
        (errno.EROFS, ReadOnly),
        (errno.EACCES, ReadOnly),
        (errno.EPERM, ReadOnly),
        (errno.EMFILE, Unavailable),
        (errno.EIO, Unavailable),
    ],
)
def test_an_error_gets_its_kind_its_reason_and_a_hint(number: int, kind: type[EverlogError]) -> None:
    found = explained(system_error(number), f"cannot write {PATH}", verb="write", path=PATH)
    assert type(found) is kind
    assert found.why == os.strerror(number)
    assert found.hint


def test_an_error_that_everlog_cannot_explain_passes_as_it_is() -> None:
    assert explained(system_error(errno.ENOTDIR), "cannot read") is None
    with pytest.raises(NotADirectoryError), ExplainedErrors("read", PATH):
        raise system_error(errno.ENOTDIR)


@pytest.mark.parametrize(
    ("verb", "path", "ending"),
    [
        ("read", PATH, "shows their permissions"),
        ("write", PATH, "shows their permissions; reading may still work"),
        ("make", PATH, "shows its permissions"),
        ("write", PATH.with_name("x.everlog-tmp"), "shows its permissions"),
    ],
)
def test_a_missing_permission_names_the_command_that_shows_it(verb: str, path: Path, ending: str) -> None:
    found = explained(system_error(errno.EACCES), "cannot", verb=verb, path=path)
    assert found is not None
    assert found.hint.startswith("ls -ld '/data/my log'")
    assert found.hint.endswith(ending)


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC, errno.EACCES])
def test_a_failed_flush_stops_the_writer_whatever_the_reason(number: int) -> None:
    with pytest.raises(WriterStopped) as stopped:
        raise_explained(system_error(number), "flush", PATH)
    assert not stopped.value.retryable
    with pytest.raises(WriterStopped), ExplainedErrors("flush", PATH):
        raise system_error(number)

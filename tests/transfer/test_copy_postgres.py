"""Copies into a database, which has no name to be renamed: the note of an unfinished copy stands in for the draft."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import pytest
from tests.transfer.conftest import Open, target_in
from tests.transfer.test_copy import Stop, a_log_with_state, everything, stopped_after

from everlog.cli.main import main
from everlog.cli.output import Output
from everlog.errors import Conflict, NotALog
from everlog.log.verify.verify import verify
from everlog.stores.contract import Store
from everlog.stores.small_state import read_note
from everlog.transfer import copy as copying
from everlog.transfer.copy import UNFINISHED, copy_log
from everlog.wiring import open, open_store


@pytest.fixture(autouse=True)
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copying, "BATCH", 17)


def test_a_copy_keeps_everything(tmp_path: Path, postgres_url: str, opened: Open) -> None:
    source = a_log_with_state()
    copied = copy_log(source, target_in(tmp_path, postgres_url))
    store = opened(postgres_url)

    assert everything(store) == everything(source)
    assert store.identity == copied.identity
    report = verify(store)
    assert report.digest == verify(source).digest
    assert {problem.code for problem in report.problems} == {"signature_unexpected"}  # one is made up


@pytest.mark.parametrize("places", [1, 60, 200, 300])
def test_a_copy_that_was_stopped_goes_on_where_it_was(
    tmp_path: Path, postgres_url: str, opened: Open, places: int
) -> None:
    source = a_log_with_state()
    with pytest.raises(Stop):
        copy_log(source, target_in(tmp_path, postgres_url), progress=stopped_after(places))
    with pytest.raises(NotALog, match="unfinished"):
        open(postgres_url, create=False)

    copied = copy_log(source, target_in(tmp_path, postgres_url))
    assert copied.resumed_at >= min(places, source.head())
    assert everything(opened(postgres_url)) == everything(source)
    open(postgres_url, create=False).close()


def test_a_database_that_has_events_takes_no_copy(tmp_path: Path, postgres_url: str, opened: Open) -> None:
    source = a_log_with_state()
    copy_log(source, target_in(tmp_path, postgres_url))
    before = everything(opened(postgres_url))
    for other in (source, a_log_with_state()):
        with pytest.raises(Conflict, match="is a log already"):
            copy_log(other, target_in(tmp_path, postgres_url))
    assert everything(opened(postgres_url)) == before
    assert read_note(opened(postgres_url).small_state, UNFINISHED) is None


def test_one_log_through_every_store_has_one_digest(tmp_path: Path, postgres_url: str, opened: Open) -> None:
    """SQLite, segments, PostgreSQL, JSONL, SQLite."""
    source: Store = a_log_with_state()
    first, digest = everything(source), verify(source).digest
    for url in ("sqlite:one.db", "segments:two", postgres_url, "jsonl:three", "sqlite:four.db"):
        copy_log(source, target_in(tmp_path, url))
        source = open_store(url, base=tmp_path, create=False)
        report = verify(source)
        assert (report.digest, {problem.code for problem in report.problems}) == (digest, {"signature_unexpected"}), (
            url
        )
        assert everything(source) == first, url
        source.close()
        source = opened(url)


def test_the_command_prints_no_password(
    tmp_path: Path, postgres_url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    open("sqlite:log.db").close()
    parts = urlsplit(postgres_url)
    user, _, place = parts.netloc.rpartition("@")
    name = user.partition(":")[0] or "postgres"
    url = urlunsplit(parts._replace(netloc=f"{name}:secret-word@{place}"))
    monkeypatch.setattr(Output, "__init__", as_on_a_terminal(Output.__init__))
    assert main(["copy", "sqlite:log.db", url]) == 0
    printed = capsys.readouterr()
    assert "copied " in printed.out
    assert "secret-word" not in printed.out + printed.err


def as_on_a_terminal(make: Callable[..., None]) -> Callable[..., None]:
    def made(self: Output, **options: Any) -> None:
        make(self, **options)
        self.terminal = self.human = True

    return made

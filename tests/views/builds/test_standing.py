"""Views and the verdicts on chains: a state holds the events that count, and no others."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.views.conftest import Said, Total
from tests.views.said import say
from tests.views.snapshots.logs import forget_states, with_snapshots

from everlog.log.log import Log
from everlog.trust.standing import Limit
from everlog.trust.verdicts import Verdicts, put_verdicts
from everlog.views.registry import live_view


def count_upto(log: Log, number: int) -> None:
    """Of the log's own chain, events up to this number count."""
    with log._store.open_write() as write:
        put_verdicts(write, Verdicts({log.identity.origin: Limit(number, "fork")}))


def values(log: Log) -> list[int]:
    found: list[int] = live_view(log, Total).get("all").state["values"]
    return found


@pytest.fixture
def log(kind: str, make_log: Callable[..., Log], tmp_path: Path) -> Iterator[Log]:
    with make_log(kind, tmp_path / "log", **with_snapshots(tmp_path / "snapshots")) as opened:
        yield opened


def test_a_view_leaves_out_what_does_not_count_and_follows_each_change(log: Log) -> None:
    for number in range(5):
        say(log, number)
    assert values(log) == [0, 1, 2, 3, 4]
    for upto in (3, 4, 2):
        count_upto(log, upto)
        for sample in (None, 1):
            assert live_view(log, Total).audit(sample=sample).ok  # of states that follow the verdicts before
        assert values(log) == [*range(upto)]
        assert live_view(log, Total).audit().ok
    say(log, 5)
    assert values(log) == [0, 1]
    done = live_view(log, Total).rebuild(fresh=True)
    assert (done.same, done.applied) == (True, 2)
    assert live_view(log, Total).audit().ok


def test_an_answer_has_no_event_that_did_not_count_at_its_position(
    make_log: Callable[..., Log], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another handle writes after this one has read the verdicts: an event, and that it does not count."""
    with make_log("sqlite", tmp_path / "log") as log, make_log("sqlite", tmp_path / "log") as other:
        say(log, 1)
        assert values(log) == [1]
        read = log.verdicts

        def overtaken() -> Verdicts:
            found = read()
            monkeypatch.undo()  # once
            say(other, 2)
            count_upto(other, 1)
            return found

        monkeypatch.setattr(log, "verdicts", overtaken)
        assert values(log) == [1]
        assert live_view(log, Total).position(fresh=True) == 2
        assert values(log) == [1]


def test_a_snapshot_is_used_only_under_the_verdicts_that_it_was_made_under(log: Log) -> None:
    for number in range(3):
        say(log, number)
    live_view(log, Said).snapshot()
    live_view(log, Total).snapshot()
    say(log, 3)
    count_upto(log, 1)
    assert live_view(log, Total).get("all", as_of=4).state["values"] == [0]
    forget_states(log)
    assert values(log) == [0]
    live_view(log, Total).snapshot()
    say(log, 4)
    assert live_view(log, Total).restore().position == 5
    assert values(log) == [0]

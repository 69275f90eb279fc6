"""A laptop that was offline: it brings its own events home, each once, and both logs agree or it is noticed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import everlog
from everlog.demo.laptop import Laptop, same
from everlog.log.log import Log
from everlog.views.builtin import Streams, Types


@pytest.fixture
def home() -> Iterator[Log]:
    with everlog.open("memory:", actor="user:ada") as log:
        yield log


@pytest.fixture
def laptop() -> Iterator[Laptop]:
    made = Laptop()
    yield made
    made.close()


def note(log: Log, name: str) -> None:
    log.append("note.added", stream=f"note/{name}", payload={"text": name})


def test_it_takes_what_is_new_at_home_and_brings_back_only_its_own(home: Log, laptop: Laptop) -> None:
    note(home, "a")
    laptop.fetch(home)
    note(home, "b")
    laptop.fetch(home)
    note(laptop.log, "c")
    assert laptop.log.head() == 3
    assert [event.stream for event in laptop.own()] == ["note/c"]
    for _ in range(2):  # a second time adds nothing
        home.admit(laptop.own())
    assert home.head() == 3
    assert set(same(home, laptop.log, (Streams, Types))) == {"streams", "types"}


def test_logs_that_differ_are_not_the_same(home: Log, laptop: Laptop) -> None:
    note(home, "a")
    with pytest.raises(AssertionError, match="streams is"):
        same(home, laptop.log, (Streams,))

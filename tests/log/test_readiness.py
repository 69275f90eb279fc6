"""Who makes a request ready: its caller, or whoever commits it together with others who wait."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
import pytest

from everlog.catalog.catalog import Catalog
from everlog.errors import InvalidPayload, SecretFound
from everlog.log import requests
from everlog.log.drafts import Draft, prepare
from everlog.log.log import Log
from everlog.stores.memory import MemoryStore

CATALOG = Catalog()
PATIENCE_S = 20
checked_by: list[str] = []


@CATALOG.event("thing.said")
class Said(msgspec.Struct):
    text: str


@CATALOG.event("thing.weighed")
class Weighed(msgspec.Struct):
    grams: int

    def __post_init__(self) -> None:
        checked_by.append(threading.current_thread().name)


class HeldUp(MemoryStore):
    """A store whose first write waits until it is told to go on."""

    def __init__(self) -> None:
        super().__init__()
        self.entered = threading.Event()
        self.go_on = threading.Event()

    @contextmanager
    def write(self) -> Iterator[Any]:
        with super().write() as staged:
            self.entered.set()
            assert self.go_on.wait(PATIENCE_S)
            yield staged


class Crowd:
    """Callers in threads of their own, who all wait for one write."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.store = HeldUp()
        self.log = Log(self.store, CATALOG)
        self.outcomes: dict[str, Any] = {}
        self.prepared_by: list[tuple[str, int]] = []
        self._threads: list[threading.Thread] = []
        monkeypatch.setattr(requests, "prepare", self._noted)
        for type, payload in (("thing.said", {"text": "known"}), ("thing.weighed", {"grams": 1})):
            CATALOG.validate(type, payload)  # a type is quick from its first use on
        self.calls("first", "thing.said", {"text": "first"})
        assert self.store.entered.wait(PATIENCE_S)
        checked_by.clear()
        self.prepared_by.clear()

    def _noted(self, drafts: Any, *args: Any, **options: Any) -> Any:
        self.prepared_by.append((threading.current_thread().name, len(drafts)))
        return prepare(drafts, *args, **options)

    def calls(self, name: str, type: str, payload: dict[str, Any], *, drafts: int = 1) -> None:
        def call() -> None:
            try:
                made = [Draft(type, f"thing/{name}", payload) for _ in range(drafts)]
                self.outcomes[name] = self.log.append_batch(made, key=name)
            except Exception as error:
                self.outcomes[name] = error

        thread = threading.Thread(target=call, name=name)
        thread.start()
        self._threads.append(thread)

    def wait_for(self, waiting: int) -> None:
        """Until so many wait behind the write that is held up."""
        committer = self.log._committer
        pause = threading.Event()
        for _ in range(int(PATIENCE_S / 0.005)):
            if len(committer._waiting) == waiting:
                return
            pause.wait(0.005)
        raise AssertionError(f"{len(committer._waiting)} wait, not {waiting}")

    def end(self) -> None:
        self.store.go_on.set()
        for thread in self._threads:
            thread.join(PATIENCE_S)
        assert not any(thread.is_alive() for thread in self._threads)


@pytest.fixture
def crowd(monkeypatch: pytest.MonkeyPatch) -> Iterator[Crowd]:
    crowd = Crowd(monkeypatch)
    yield crowd
    crowd.end()
    crowd.log.close()


def test_those_who_wait_are_made_ready_together_by_one_of_them(crowd: Crowd) -> None:
    for name in ("a", "b", "c"):
        crowd.calls(name, "thing.said", {"text": name})
    crowd.wait_for(3)
    assert crowd.prepared_by == []
    crowd.end()
    ((leader, together),) = crowd.prepared_by
    assert leader in {"a", "b", "c"}
    assert together == 3
    said = {recorded.event.stream: recorded.event.payload["text"] for recorded in crowd.log.read()}
    assert said == {"thing/first": "first", "thing/a": "a", "thing/b": "b", "thing/c": "c"}


def test_who_is_refused_among_those_who_wait_is_refused_alone_and_remembered(crowd: Crowd) -> None:
    crowd.calls("a", "thing.said", {"text": "fine"})
    crowd.calls("wrong", "thing.said", {"txt": "oops"})
    crowd.calls("secret", "thing.said", {"text": "AKIA" + "Q" * 16})
    crowd.calls("b", "thing.said", {"text": "fine too"})
    crowd.wait_for(4)
    crowd.end()
    assert isinstance(crowd.outcomes["wrong"], InvalidPayload)
    assert isinstance(crowd.outcomes["secret"], SecretFound)
    assert [crowd.outcomes[name][0].event.payload["text"] for name in ("a", "b")] == ["fine", "fine too"]
    assert {refusal.code for refusal in crowd.log.refusals()} == {"invalid_payload", "secret_found"}
    assert crowd.log.head() == 3


def test_when_all_who_wait_are_refused_nothing_is_written_and_all_are_told(crowd: Crowd) -> None:
    crowd.calls("wrong", "thing.said", {"txt": "oops"})
    crowd.calls("worse", "thing.said", {})
    crowd.wait_for(2)
    crowd.end()
    assert isinstance(crowd.outcomes["wrong"], InvalidPayload)
    assert isinstance(crowd.outcomes["worse"], InvalidPayload)
    assert crowd.log.head() == 1


def test_a_model_with_code_of_its_own_is_run_by_its_caller(crowd: Crowd) -> None:
    crowd.calls("heavy", "thing.weighed", {"grams": 5})
    crowd.calls("light", "thing.said", {"text": "light"})
    crowd.wait_for(2)
    assert checked_by == ["heavy"]
    crowd.end()
    assert checked_by == ["heavy"]


def test_a_large_batch_is_made_ready_by_its_caller(crowd: Crowd) -> None:
    crowd.calls("batch", "thing.said", {"text": "many"}, drafts=requests._QUICK_DRAFTS_MAX + 1)
    crowd.wait_for(1)
    assert crowd.prepared_by == [("batch", requests._QUICK_DRAFTS_MAX + 1)]


def test_what_is_no_dict_is_made_ready_by_its_caller(crowd: Crowd) -> None:
    said: Any = Said("as a struct")
    crowd.calls("struct", "thing.said", said)
    crowd.wait_for(1)
    assert crowd.prepared_by == [("struct", 1)]


def test_a_new_version_of_a_type_with_code_is_not_taken_for_quick() -> None:
    catalog = Catalog()
    catalog.event("thing.said")(Said)
    catalog.validate("thing.said", {"text": "a"})
    assert "thing.said" in catalog.quick
    catalog.upcaster("thing.said", from_version=1)(lambda old: {"grams": 1})
    catalog.event("thing.said", version=2)(Weighed)
    catalog.validate("thing.said", {"grams": 1})
    assert "thing.said" not in catalog.quick


def test_a_waiting_request_under_a_used_key_is_answered_again(crowd: Crowd) -> None:
    crowd.calls("first", "thing.said", {"text": "first"})
    crowd.wait_for(1)
    crowd.end()
    assert crowd.log.head() == 1

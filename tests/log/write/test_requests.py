"""Who makes a request ready: its caller, or whoever commits it together with others who wait."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from enum import Enum
from typing import Any, Literal

import msgspec
import pytest
from tests.log.write.held_up import PATIENCE_S, HeldUp

from everlog.catalog.catalog import Catalog
from everlog.errors import InvalidField, InvalidPayload, SecretFound
from everlog.log.log import Log
from everlog.log.write import requests
from everlog.log.write.committer import Committer
from everlog.log.write.draft import Draft
from everlog.log.write.group import Item
from everlog.log.write.prepare import is_quick, prepare
from everlog.stores.memory import MemoryStore

CATALOG = Catalog()
checked_by: list[str] = []


@CATALOG.event("thing.said")
class Said(msgspec.Struct):
    text: str


@CATALOG.event("thing.weighed")
class Weighed(msgspec.Struct):
    grams: int

    def __post_init__(self) -> None:
        checked_by.append(threading.current_thread().name)


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

    def calls(self, name: str, type: str, payload: dict[str, Any], *, drafts: int = 1, dry_run: bool = False) -> None:
        def call() -> None:
            try:
                made = [Draft(type, f"thing/{name}", payload) for _ in range(drafts)]
                self.outcomes[name] = self.log.append_batch(made, key=name, dry_run=dry_run)
            except Exception as error:
                self.outcomes[name] = error

        thread = threading.Thread(target=call, name=name)
        thread.start()
        self._threads.append(thread)

    def wait_for(self, waiting: int) -> None:
        """Until so many wait behind the write that is held up."""
        committer = self.log.writer._committer
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


class Shade(Enum):
    DARK = "dark"


class Guessed(Enum):
    DARK = "dark"

    @classmethod
    def _missing_(cls, value: object) -> Guessed:
        return cls.DARK


class Inner(msgspec.Struct):
    text: str


class Plain(msgspec.Struct):
    text: str
    size: int | None = None
    shade: Shade = Shade.DARK
    kind: Literal["a", "b"] = "a"


class WithAFactory(msgspec.Struct):
    tenant: str = msgspec.field(default_factory=lambda: "whose?")


class WithAGuess(msgspec.Struct):
    shade: Guessed


class WithAGuessAtTimes(msgspec.Struct):
    shade: Guessed | None = None


class Nested(msgspec.Struct):
    inner: Inner


class WithAList(msgspec.Struct):
    texts: list[str]


@pytest.mark.parametrize(
    ("model", "payload", "quick"),
    [
        (Plain, {"text": "a"}, True),
        (WithAFactory, {}, False),
        (WithAGuess, {"shade": "dim"}, False),
        (WithAGuessAtTimes, {}, False),
        (Nested, {"inner": {"text": "a"}}, False),
        (WithAList, {"texts": []}, False),
        (Weighed, {"grams": 1}, False),
    ],
)
def test_only_a_model_that_calls_nobody_is_quick(model: type[Any], payload: dict[str, Any], quick: bool) -> None:
    catalog = Catalog()
    catalog.event("thing.made")(model)
    catalog.validate("thing.made", payload)
    assert ("thing.made" in catalog.quick) == quick


def test_a_pydantic_model_is_not_quick() -> None:
    pydantic = pytest.importorskip("pydantic")
    catalog = Catalog()
    catalog.event("thing.made")(pydantic.create_model("Made", text=(str, ...)))
    catalog.validate("thing.made", {"text": "a"})
    assert catalog.quick == set()


class Text(str):
    """A text with a mind of its own."""


class Named(Draft, frozen=True):
    """A draft with a mind of its own."""


ORDINARY: dict[str, Any] = {"type": "thing.said", "stream": "thing/1", "payload": {"text": "a"}}


@pytest.mark.parametrize(
    ("made", "quick"),
    [
        (Draft(**ORDINARY), True),
        (Named(**ORDINARY), False),
        (ORDINARY, False),
        (Draft(**{**ORDINARY, "type": ["thing.said"]}), False),
        (Draft(**{**ORDINARY, "payload": {"text": Text("a")}}), False),
        (Draft(**{**ORDINARY, "payload": {Text("text"): "a"}}), False),
        (Draft(**{**ORDINARY, "payload": {"text": ["a"]}}), False),
        (Draft(**{**ORDINARY, "payload": {"text": "a" * 5000}}), False),
        (Draft(**{**ORDINARY, "payload": {"a" * 5000: None}}), False),
        (Draft(**{**ORDINARY, "payload": Said("a")}), False),
        (Draft(**{**ORDINARY, "tags": {"team": "core"}}), False),
        (Draft(**{**ORDINARY, "tags": None}), False),
        (Draft(**{**ORDINARY, "occurred_at": datetime.now(UTC)}), False),
    ],
)
def test_only_a_small_and_plain_draft_is_quick(made: Any, quick: bool) -> None:
    assert is_quick(made, {"thing.said"}) == quick


@pytest.mark.parametrize(
    ("more", "left"), [({}, True), ({"request": {"a": [1]}}, False), ({"response": {"a": [1]}}, False)]
)
def test_who_says_what_was_asked_or_is_to_be_answered_makes_that_ready_himself(
    more: dict[str, Any], left: bool
) -> None:
    """It may be of any size, and may be changed by its caller meanwhile."""
    CATALOG.validate("thing.said", {"text": "known"})
    log = Log(MemoryStore(), CATALOG)
    made = requests.Request(log.writer._recorder, (Draft(**ORDINARY),), "key", "say", **more)
    assert log.writer._recorder.leave_to_others(made) == left
    assert made.ready != left
    log.close()


def busy_log(monkeypatch: pytest.MonkeyPatch) -> Log:
    """A log in which somebody seems to write, and is done the next moment."""
    commit = Committer.commit

    def done_by_now(committer: Committer, item: Item) -> Any:
        committer.busy = False
        try:
            return commit(committer, item)
        finally:
            committer.busy = True

    monkeypatch.setattr(Committer, "commit", done_by_now)
    CATALOG.validate("thing.said", {"text": "known"})
    log = Log(MemoryStore(), CATALOG)
    monkeypatch.setattr(log.writer._committer, "busy", True)
    return log


def test_who_need_not_wait_after_all_makes_ready_what_he_left_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    log = busy_log(monkeypatch)
    made = log.append_batch([Draft("thing.said", "thing/1", {"text": text}) for text in "ab"])
    assert [recorded.event.payload["text"] for recorded in made] == ["a", "b"]
    with pytest.raises(InvalidPayload):
        log.append("thing.said", stream="thing/1", payload={"txt": "oops"})
    with pytest.raises(SecretFound):
        log.append("thing.said", stream="thing/1", payload={"text": "AKIA" + "Q" * 16})
    assert log.head() == 2
    assert len(log.refusals()) == 2
    wrong: Any = ["thing.said"]
    with pytest.raises(InvalidField):
        log.append(wrong, stream="thing/1", payload={"text": "a"})


def test_what_is_left_to_others_is_what_was_said_at_the_call(crowd: Crowd) -> None:
    said = {"text": "as it was"}
    crowd.calls("a", "thing.said", said)
    crowd.wait_for(1)
    said["text"] = "as it is now"
    crowd.end()
    assert [recorded.event.payload["text"] for recorded in crowd.outcomes["a"]] == ["as it was"]


def test_one_refusal_does_not_carry_the_refusal_of_another(crowd: Crowd) -> None:
    crowd.calls("a", "thing.said", {"of_a": "oops"})
    crowd.calls("b", "thing.said", {"of_b": "oops"})
    crowd.wait_for(2)
    crowd.end()
    for name, other in (("a", "of_b"), ("b", "of_a")):
        error: BaseException | None = crowd.outcomes[name]
        while error is not None:
            assert other not in str(error)
            error = error.__context__


def test_who_is_refused_by_his_key_leaves_nothing_in_the_write_of_the_others(crowd: Crowd) -> None:
    crowd.calls("\n", "thing.said", {"text": "refused"})
    crowd.calls("b", "thing.said", {"text": "b"})
    crowd.wait_for(2)
    crowd.end()
    assert isinstance(crowd.outcomes["\n"], InvalidField)
    assert [recorded.event.payload["text"] for recorded in crowd.log.read()] == ["first", "b"]
    assert [recorded.event.lamport for recorded in crowd.log.read()] == [1, 2]


def test_an_interrupt_while_others_are_made_ready_is_told_to_all_and_the_log_goes_on(
    crowd: Crowd, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Ended(BaseException):
        """As a thread is ended from outside."""

    def ended(*args: Any, **options: Any) -> Any:
        raise Ended

    for name in ("a", "b", "c"):
        crowd.calls(name, "thing.said", {"text": name})
    crowd.wait_for(3)
    monkeypatch.setattr(requests, "prepare", ended)
    monkeypatch.setattr(threading, "excepthook", lambda told: None)
    crowd.end()
    told = [crowd.outcomes.get(name) for name in ("a", "b", "c")]
    assert sorted(type(one).__name__ for one in told) == ["NoneType", "Unavailable", "Unavailable"]
    monkeypatch.setattr(requests, "prepare", prepare)
    crowd.log.append("thing.said", stream="thing/1", payload={"text": "on"})
    assert crowd.log.head() == 2


def test_a_write_that_asks_for_another_is_refused_and_does_not_wait_for_itself() -> None:
    log = Log(MemoryStore(), CATALOG)
    with pytest.raises(RuntimeError, match="this thread already has an open write"):
        log.writer.write(lambda writer: log.append("thing.said", stream="thing/1", payload={"text": "a"}))
    log.append("thing.said", stream="thing/1", payload={"text": "b"})
    assert log.head() == 1


def test_dry_runs_among_those_that_wait_record_nothing(crowd: Crowd) -> None:
    names = ["dry1", "dry2", "real1", "dry3", "real2"]
    for waiting, name in enumerate(names, start=1):
        crowd.calls(name, "thing.said", {"text": name}, dry_run=name.startswith("dry"))
        crowd.wait_for(waiting)  # so that they are neighbours in this order
    crowd.end()
    assert [len(crowd.outcomes[name]) for name in names] == [1] * 5
    assert [recorded.event.stream for recorded in crowd.log.read()] == ["thing/first", "thing/real1", "thing/real2"]


def test_a_waiting_request_under_a_used_key_is_answered_again(crowd: Crowd) -> None:
    crowd.calls("first", "thing.said", {"text": "first"})
    crowd.wait_for(1)
    crowd.end()
    assert crowd.log.head() == 1

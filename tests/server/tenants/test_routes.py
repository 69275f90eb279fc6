"""What a caller that is limited to a scope can learn about others from any route: nothing. The probes follow from the
table.

For a caller in each scope, and for every request that a route can be asked about a subject of every scope:

    Does an answer change when others write, purge and are refused?  Asked before and after: the same bytes.
    Does a foreign subject differ from a missing one?                Asked about both: the same bytes but the name.
    Does the caller see its own, and what is below its scope?        Every route that reads answers with it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import pytest
from tests.server.calling import Calls
from tests.server.tenants.probes import DIGITS, ROUTES, Answered, Probe, Subject, answer_to, probes, recorded

import everlog
from everlog.application.operations import appending
from everlog.core.query import in_scope
from everlog.errors import EverlogError
from everlog.log.log import Log
from everlog.log.read.own_events import OwnEvents
from everlog.server.app import App
from everlog.server.callers import confined
from everlog.server.serve import make_app

SCOPES = {"acme": "ownr", "acme/shop": "belo", "acmecorp": "corp", "acm": "shrt", "elsewhere": "else", "": "none"}
"""Own, below, two whose names begin alike, another tenant, and none; each with the label of its subject."""

CALLERS = (
    "acme",
    "acme/shop",
    pytest.param("acmecorp", marks=pytest.mark.slow),
    pytest.param("elsewhere", marks=pytest.mark.slow),
)
SHARED = ("stream", "id", "expect")
"""Names that a log has once, so that a caller learns that one is taken: see docs/how-to/server/server.md."""


class World:
    """A server over a log with a subject in every scope, and one caller."""

    def __init__(self, within: str) -> None:
        self.within = within
        self.log: Log = everlog.open("memory:", actor="user:host")
        foreign = [scope for scope in SCOPES if not in_scope(scope, within)]
        own = [scope for scope in SCOPES if in_scope(scope, within)]
        first = {scope: recorded(self.log, SCOPES[scope], scope) for scope in foreign}
        self.subjects = {}
        for scope in own:  # each is caused by an event that the caller must not see
            cause = next(iter(first.values())).id
            self.subjects[scope] = recorded(self.log, SCOPES[scope], scope, cause=cause, count=2)
        recorded(self.log, "fill", "elsewhere2")  # so that none of the following has the position after the own head
        for scope in foreign:
            self.subjects[scope] = recorded(self.log, SCOPES[scope], scope)
        self.app: App = make_app({"log": self.log})
        self.calls = Calls.of(self.app, "prober", role="admin", within=within)

    @property
    def foreign(self) -> list[Subject]:
        return [one for scope, one in self.subjects.items() if not in_scope(scope, self.within)]

    @property
    def own(self) -> list[Subject]:
        return [one for scope, one in self.subjects.items() if in_scope(scope, self.within)]

    def others_act(self) -> None:
        """Others record, are refused, make views run, and purge all that a probe may have named."""
        for subject in self.foreign:
            for n in range(3):
                self.log.append(
                    "note.added", stream=f"{subject.stream}-{n}", payload={"text": "x"}, scope=subject.scope
                )
            self.log.append("note.added", stream=subject.stream, payload={"text": "x"}, scope=subject.scope)
            with pytest.raises(EverlogError):
                self.log.append("note.unknown", stream=subject.stream, payload={}, scope=subject.scope)
        Calls.of(self.app, "host", role="admin").get("/v1/views/streams")
        for subject in self.foreign[:-1]:
            self.log.purge(subject.stream, reason="asked to")
        self.log.append("note.added", stream="note/last", payload={"text": "x"}, scope="elsewhere2")

    def ask_all(
        self, subject: Subject, choose: Callable[[Probe], bool] = lambda probe: True
    ) -> Iterator[tuple[Probe, Answered]]:
        for probe in filter(choose, probes(subject, dry_run=True)):
            if probe.route.policy.scope == "within" and probe.route.policy.role != "read":
                assert "dry_run" in str((probe.path, probe.body)), (
                    f"{probe.route.name} cannot be probed without effect"
                )
            yield probe, answer_to(self.calls, probe)

    def close(self) -> None:
        self.app.close()
        self.log.close()


@pytest.fixture(params=CALLERS)
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    made = World(request.param)
    yield made
    made.close()


def some_of(subjects: list[Subject], full: bool) -> Iterator[tuple[Subject, Callable[[Probe], bool]]]:
    """Yield subjects, and which probes ask about each. In the short form every probe asks about two of them."""
    places: dict[str, int] = {}

    def asks(nth: int, probe: Probe) -> bool:
        at = places.setdefault(f"{probe.route.name} {probe.field} {probe.accept}", len(places))
        return full or (at + nth) % len(subjects) < 2

    for nth, subject in enumerate(subjects):
        yield subject, partial(asks, nth)


def changed_answers(world: World, *, full: bool = False) -> Iterator[str]:
    """Yield the probes whose answer changes when others act."""
    asked = [*some_of(world.own, full), *some_of(world.foreign, full)]
    before = [list(world.ask_all(subject, choose)) for subject, choose in asked]
    world.others_act()
    for (subject, choose), known in zip(asked, before, strict=True):
        for (probe, was), (_, now) in zip(known, world.ask_all(subject, choose), strict=True):
            if was != now and not (_is_shared(probe) and probe.field == "id" and was.status >= 400):
                yield f"{probe.name}\n   was {was}\n   now {now}"


def told_apart(world: World, *, full: bool = False) -> Iterator[str]:
    """Yield the probes that are answered differently about a foreign subject and about a missing one."""
    for subject, choose in some_of(world.foreign, full):
        missing = Subject.named("zqzq", subject.scope, world.log.identity.epoch)
        both = zip(world.ask_all(subject, choose), world.ask_all(missing, choose), strict=True)
        for (probe, about), (_, other) in both:
            headers = tuple((name, subject.replaced(text.encode(), missing).decode()) for name, text in other.headers)
            expected = Answered(other.status, headers, subject.replaced(other.body, missing))
            if _plain(about) != _plain(expected) and not (_is_shared(probe) and about.status >= 400):
                yield f"{probe.name}\n   foreign {about}\n   missing {expected}"


def _is_shared(probe: Probe) -> bool:
    policy = probe.route.policy
    return probe.field in SHARED and (policy.role, policy.scope) == ("append", "within")


def _plain(answer: Answered) -> Answered:
    """An ETag names the query with a hash, so it differs with the name; so does nothing else."""
    return answer._replace(headers=tuple(one for one in answer.headers if one[0] != "etag"))


def test_what_others_do_changes_no_answer(world: World, full: bool) -> None:
    assert list(changed_answers(world, full=full)) == []


def test_a_foreign_subject_is_answered_as_a_missing_one(world: World, full: bool) -> None:
    assert list(told_apart(world, full=full)) == []
    assert world.log.head() == sum(1 for _ in world.log.read()), "and nothing was recorded"


def test_a_taken_name_says_nothing_about_who_has_it(world: World) -> None:
    answers = set()
    for subject in world.foreign:
        missing = Subject.named("zqzq", subject.scope, world.log.identity.epoch)
        for probe, answer in world.ask_all(subject, lambda probe: _is_shared(probe) and probe.field == "stream"):
            answers.add((probe.route.name, answer.status, missing.replaced(answer.body, subject)))
    assert len(answers) == len({name for name, _, _ in answers})
    assert {status for _, status, _ in answers} == {404}


def test_a_name_stays_taken_after_its_purge(world: World) -> None:
    subject = world.foreign[0]
    (taken,) = (
        one for one in probes(subject, dry_run=False) if (one.route.name, one.field) == ("events.append", "stream")
    )
    before = answer_to(world.calls, taken)
    world.log.purge(subject.stream, reason="asked to")
    assert (before.status, answer_to(world.calls, taken)) == (404, before)


def test_a_caller_sees_its_own_and_what_is_below(world: World) -> None:
    for subject in world.own:
        for probe, answer in world.ask_all(subject, _names_the_subject):
            assert answer.status == 200, probe.name


def _names_the_subject(probe: Probe) -> bool:
    policy, operation = probe.route.policy, probe.route.operation
    if policy.role != "read" or policy.scope != "within" or (operation == "log.get" and "%2F" in probe.path):
        return False
    return probe.field in (("",) if probe.route.from_path else _NAMES.get(operation, ("",)))


_NAMES = {"log.history": ("stream",), "log.state": ("stream",), "log.diff": ("stream",), "log.why": ("stream",)}
_NAMES |= {"log.get": ("event",), "log.causes": ("event",), "view.get": ("key",)}
"""The field that names the subject, where the query string has it."""


def test_every_route_is_probed(world: World) -> None:
    asked = [probe for subject in world.subjects.values() for probe in probes(subject, dry_run=True)]
    assert {probe.route.name for probe in asked} == {route.name for route in ROUTES}
    assert len(asked) >= 400
    assert int(DIGITS) > world.log.head()


def test_what_is_about_the_whole_log_needs_a_caller_without_a_limit(world: World) -> None:
    def is_limited(probe: Probe) -> bool:
        return probe.route.policy.scope == "log" and probe.route.policy.role != "none"

    found = {probe.name: answer.status for probe, answer in world.ask_all(world.own[0], is_limited)}
    assert set(found.values()) == {403}, found


# ---- leaks that the probes must find


def _leak_in_head(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(OwnEvents, "head", lambda self: self._stored.head())


def _leak_in_events(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(confined, "visible", lambda recorded, caller: recorded)


def _leak_in_expectations(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(appending, "_own_expectation", lambda log, expect, within: expect)


def _leak_in_dry_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(confined, "without_place", lambda log, receipt, within: receipt)


@pytest.mark.parametrize("plant", [_leak_in_head, _leak_in_events, _leak_in_expectations, _leak_in_dry_runs])
def test_a_planted_leak_is_found(
    monkeypatch: pytest.MonkeyPatch, plant: Callable[[pytest.MonkeyPatch], None]
) -> None:
    plant(monkeypatch)
    world = World("acme")
    try:
        assert next(told_apart(world), "") or next(changed_answers(world), "")
    finally:
        world.close()

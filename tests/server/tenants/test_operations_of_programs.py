"""What a caller that is limited to a scope can learn about others: nothing. The probes follow from the operations.

Two questions, for every operation:

    Does an answer change when others write?        Asked before and after: the same bytes.
    Does a foreign subject differ from a missing one?   Asked about both: the same bytes, but for the name.
"""

from __future__ import annotations

import itertools
import random
import re
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest
from tests.programs.random_commands import random_value
from tests.programs.samples import SCOPE, sample, world
from tests.server.calling import Calls

import everlog
from everlog import programs
from everlog.core.query import in_scope
from everlog.errors import EverlogError
from everlog.log.log import Log
from everlog.log.read.own_events import OwnEvents
from everlog.programs import scoped
from everlog.programs.command import By
from everlog.programs.operations import Operation, operations
from everlog.programs.perform import perform
from everlog.programs.program import program_of
from everlog.server.app import App
from everlog.server.serve import make_app

OUTSIDE = ("elsewhere", f"{SCOPE}corp", SCOPE[:-1], f"{SCOPE}/below", "zeta/acme")
"""Foreign scopes: another tenant, two whose names begin alike, one inside, and one with the name further down."""

OF_PROGRAMS = [one for one in operations() if one.name.partition(".")[0] in programs.TYPES]
ASKED = [pytest.param(one, id=one.name) for one in OF_PROGRAMS if not one.records]
DONE = [pytest.param(one, id=one.name) for one in OF_PROGRAMS if one.records]
# The caller's own counts: how often it was refused itself.
_VOLATILE = re.compile(rb'"request_id":"[^"]*"|,?"refused_before":[0-9]+|,?"refused_last":"[^"]*"|,?"details":[{][}]')


@pytest.fixture(scope="module")
def apps() -> Iterator[dict[str, App]]:
    """For each program, a server over a log with its subjects in one scope."""
    made = {name: _app(name) for name in programs.TYPES}
    yield made
    for app in made.values():
        _end(app)


def _app(name: str) -> App:
    log = everlog.open("memory:", actor="user:ada")
    _KNOWN[name] = world(log, name)
    return make_app({"log": log})


def _end(app: App) -> None:
    app.close()
    app.services["log"].log.close()


_KNOWN: dict[str, dict[str, Any]] = {}


def caller(app: App, within: str) -> Calls:
    """Return the calls of a token with this scope; made once per server."""
    name = f"of {within.replace('/', '-')}"
    tokens = app.services["log"].tokens
    secret = _SECRETS.get((id(app), name))
    if secret is None:
        secret = _SECRETS[id(app), name] = tokens.new(name, actor="user:ada", role="append", within=within)
    return Calls(app, secret)


_SECRETS: dict[tuple[int, str], str] = {}
_SEEDS = itertools.count(1)
"""Others do something else each time."""


def fields_of(operation: Operation, known: dict[str, Any]) -> dict[str, Any]:
    value = sample(program_of(operation.value), operation.value, known, every_field=False)
    found: dict[str, Any] = msgspec.to_builtins(value)
    return found


def answer_to(calls: Calls, operation: Operation, given: dict[str, Any], *, query: str = "") -> tuple[int, bytes]:
    """Return the status and the body, without what differs between any two requests."""
    if operation.records:
        found = calls.post(f"/v1/do/{operation.name}{query}", given)
    else:
        found = calls.get(f"/v1/ask/{operation.name}", params=[*_pairs(operation, given)])
    return found.status_code, _VOLATILE.sub(b"", _VOLATILE.sub(b"", found.content))


def _pairs(operation: Operation, given: dict[str, Any]) -> Iterator[tuple[str, str]]:
    defaults = msgspec.structs.fields(operation.value)
    plain = {field.name: field.default for field in defaults}
    for name, value in given.items():
        if value == plain.get(name) or value is None:
            continue
        for one in value if isinstance(value, list) else [value]:
            yield name, str(one).lower() if isinstance(one, bool) else str(one)


def others_write(log: Log, name: str, seed: int) -> int:
    """Let other tenants use the same program, with the same names if they can; return how much was recorded."""
    program, chance, before = programs.load(name), random.Random(seed), log.head()
    for _ in range(30):
        made = random_value(program, chance.choice(program.commands), log, chance)
        try:
            perform(log, made, By(actor=f"user:eve{seed}", within=chance.choice(OUTSIDE[:2])))
        except EverlogError:
            continue
    for n in range(5):
        log.append("note.added", stream=f"note/{seed}-{n}", payload={"text": "x"}, scope="elsewhere")
    return log.head() - before


@pytest.mark.parametrize("operation", ASKED)
def test_what_others_write_changes_no_answer(apps: dict[str, App], operation: Operation) -> None:
    name = operation.name.partition(".")[0]
    app, given = apps[name], fields_of(operation, _KNOWN[name])
    own = caller(app, SCOPE)
    before, page = answer_to(own, operation, given), own.get("/v1/events?after=0")
    assert others_write(app.services["log"].log, name, next(_SEEDS)) >= 5
    assert before[0] == 200
    assert answer_to(own, operation, given) == before
    again = own.get("/v1/events?after=0")
    assert again.content == page.content, "neither does the head, nor how far a page looked"
    assert again.headers.get("etag") == page.headers.get("etag")


@pytest.mark.parametrize("operation", DONE)
def test_what_others_write_changes_no_dry_run(apps: dict[str, App], operation: Operation) -> None:
    name = operation.name.partition(".")[0]
    app, given = apps[name], fields_of(operation, _KNOWN[name])
    own = caller(app, SCOPE)

    def answers() -> list[tuple[int, bytes]]:
        found = [
            answer_to(own, operation, given, query=query) for query in ("?dry_run=true", "?dry_run=true&full=true")
        ]
        return [(status, _MADE_ANEW.sub(b"", body)) for status, body in found]

    before = answers()
    assert others_write(app.services["log"].log, name, next(_SEEDS)) >= 5
    assert answers() == before


_MADE_ANEW = re.compile(
    rb'"(?:[a-z]+_at|until|salt|commitment|short_id|title|summary|next)":("[^"]*"|\[[^]]*\])'
    rb'|"id":"[0-9a-z]{4}"|[0-9A-HJKMNP-TV-Z]{26}'
)
"""What a dry run makes anew each time, such as ids and names that follow from them."""


@pytest.mark.parametrize("named", ["with its scope", "without its scope"])
@pytest.mark.parametrize("within", OUTSIDE)
@pytest.mark.parametrize("operation", [*ASKED, *DONE])
def test_a_foreign_subject_is_answered_as_a_missing_one(
    apps: dict[str, App], operation: Operation, within: str, named: str
) -> None:
    name = operation.name.partition(".")[0]
    app, known = apps[name], _KNOWN[name]
    if named == "without its scope":
        if operation.records and name in _NAMES_ARE_SHARED:
            # Callers choose these names, and a log has each once: one that is taken elsewhere cannot be used.
            given = fields_of(operation, {field: known[field] for field in known if field != "scope"})
            assert answer_to(caller(app, within), operation, given)[0] == 404
            return
        known = {field: value for field, value in known.items() if field not in ("scope", "project")}
    foreign = fields_of(operation, known)
    missing = {field: _missing(field, value, known, within) for field, value in foreign.items()}
    calls = caller(app, within)
    head = app.services["log"].log.head()
    about_foreign = answer_to(calls, operation, foreign)
    about_missing = answer_to(calls, operation, missing)
    for field, value in missing.items():
        if isinstance(value, str) and value != foreign[field]:
            about_missing = about_missing[0], about_missing[1].replace(value.encode(), foreign[field].encode())
    assert about_foreign == about_missing
    assert app.services["log"].log.head() == head


def _missing(field: str, value: Any, known: dict[str, Any], within: str) -> Any:
    """Return a name of the same length that nothing has, for a field that names a subject.

    A caller knows the names of the scopes around its own.
    """
    if field not in known or not isinstance(value, str) or field in _NOT_NAMES or in_scope(within, value):
        return value
    # Another letter for names of scopes: a short id of four letters must not become the same text as one of those.
    letter = "q" if value == SCOPE or value.startswith(f"{SCOPE}/") else "z"
    return "".join("9" if char.isdigit() else letter if char.isalpha() else char for char in value)


_NAMES_ARE_SHARED = ("agents", "workpackages")
_NOT_NAMES = {"to", "verdict", "kind", "event", "member", "cid", "artifact", "mount"}


def test_there_are_at_least_400_probes() -> None:
    assert len(ASKED) + len(OUTSIDE) * (len(ASKED) + len(DONE)) >= 400


# ---- leaks that the probes must find


def _finds(probe: Callable[[], None]) -> bool:
    try:
        probe()
    except AssertionError:
        return True
    return False


def _leak_in_head(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(OwnEvents, "head", lambda self: self._stored.head())


def _leak_in_refusals(monkeypatch: pytest.MonkeyPatch) -> None:
    all_of_them = Log.refusals
    monkeypatch.setattr(Log, "refusals", lambda self, *, within="", **given: all_of_them(self, **given))


def _leak_in_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of a view are answered from the stored ones, whoever asks."""
    monkeypatch.setattr(
        "everlog.programs.workpackages.questions.rows", lambda log, view, within: scoped.rows(log, view, "")
    )


@pytest.mark.parametrize("plant", [_leak_in_head, _leak_in_refusals, _leak_in_rows])
def test_a_planted_leak_is_found(monkeypatch: pytest.MonkeyPatch, plant: Any) -> None:
    plant(monkeypatch)
    apps = {"workpackages": _app("workpackages")}
    asked = [one.values[0] for one in ASKED if one.values[0].name.startswith("workpackages.")]  # type: ignore[union-attr]
    found = (_finds(lambda one=one: test_what_others_write_changes_no_answer(apps, one)) for one in asked * 8)  # type: ignore[misc]
    assert any(found), "others write something else each time, and not all of it shows in an answer"
    _end(apps["workpackages"])

"""Sequences of random commands, on two handles: the state is the fold of the history, a refusal leaves nothing, and a
direct append of the same payloads is accepted or refused as the command was."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import msgspec
import pytest
from msgspec.structs import replace
from tests.places import in_memory
from tests.programs.random_commands import random_caller, random_value
from tests.programs.samples import world

import everlog
from everlog import programs
from everlog.core.event import Recorded
from everlog.errors import EverlogError, KeyReuse, RejectedEvent
from everlog.log.log import Log
from everlog.log.write.draft import Draft
from everlog.programs.command import By, Command, Outcome
from everlog.programs.perform import perform
from everlog.programs.program import Program
from everlog.views.as_of import cut
from everlog.views.registry import live_view
from everlog.views.view import CAUSAL, View, digest

EVERY = pytest.mark.parametrize("name", sorted(programs.TYPES))
SHORT, LONG, STEPS = 20, 200, 40
PATIENCE = (1, 1, 8, 8, 8)
"""How many commands are looked at until one would record something: without it, few would."""


class Done(NamedTuple):
    """A command that was recorded, and the drafts that say the same."""

    command: Command[Any]
    by: By
    drafts: list[Draft]


class Run:
    """A sequence of commands of one program on one log, which is open twice."""

    def __init__(self, program: Program, handles: Sequence[Log], seed: int) -> None:
        self.program, self.handles, self.chance = program, handles, random.Random(seed)
        self.done: list[Done] = []
        self.seen: Counter[tuple[str, str]] = Counter()
        self.keys = 0

    def step(self) -> None:
        log, other = self.chance.sample(self.handles, 2)
        if self.done and self.chance.random() < 0.25:
            command, by, drafts = self.chance.choice(self.done)
            self.require_same_verdict(log, command, by, drafts)
            return
        head, patience = log.head(), self.chance.choice(PATIENCE)
        made = self.chance.choice(self.program.commands)
        for _ in range(patience):
            command = random_value(self.program, made, log, self.chance)
            by = random_caller(self.program, self.chance)
            would = attempt(log, command, replace(by, dry_run=True))
            if isinstance(would, Outcome) and would.records:
                break
        assert log.head() == head, "a dry run records nothing"
        if isinstance(would, Outcome) and would.records and not by.within and self.chance.random() < 0.3:
            self.append_directly(other, command, by, would)
        else:
            self.perform(other, log, command, by, would)

    def perform(self, log: Log, other: Log, command: Command[Any], by: By, would: Any) -> None:
        """Perform it on one handle, with a key or without; send it again on the other one."""
        key = f"k{self.keys}" if self.chance.random() < 0.5 else ""
        by, head, refusals = replace(by, key=key), log.head(), len(log.refusals(limit=None))
        made = attempt(log, command, by)
        self.seen[type(command).__name__, "refused" if isinstance(made, EverlogError) else made.status] += 1
        if isinstance(made, EverlogError):
            if isinstance(would, EverlogError):
                assert would.code == made.code, (command, by, would, made)
            else:
                assert made.code == "not_canonical", (command, by, made)
                assert key, "nothing was done, and it cannot be remembered under its key"
                assert not would.records
            assert not isinstance(made, KeyReuse), "a refused request leaves its key free"
            assert (log.head(), other.head()) == (head, head), (command, "a refusal leaves nothing")
            self.require_refusal_on_record(log, refusals, made)
            self.require_direct_append_refused(other, command, by)
            return
        assert not isinstance(would, EverlogError), (command, by, would)
        assert [one.type for one in would.events] == [one.type for one in made.events], (command, by)
        self.keys += 1
        purged = any(one.type == "issue.purged" for one in made.events)
        assert log.head() == head + len(made.records) + purged
        if key:
            again = perform(other, command, by)
            assert (again.records, again.replayed) == (made.records, True), (command, by)
            assert other.head() == log.head()
        if made.records and not by.within and not purged:
            self.done.append(Done(command, replace(by, key=""), drafts_of(made.records, by)))

    def append_directly(self, log: Log, command: Command[Any], by: By, would: Outcome[Any]) -> None:
        """Record what a command would, without it."""
        drafts, head = drafts_of(would.records, by), log.head()
        if only_by_command(drafts):
            with pytest.raises(RejectedEvent):
                log.append_batch(drafts)
            assert log.head() == head
            return
        made = log.append_batch(drafts)
        assert log.head() == head + len(made) == head + len(drafts), command
        self.done.append(Done(command, by, drafts))

    def require_same_verdict(self, log: Log, command: Command[Any], by: By, drafts: list[Draft]) -> None:
        """Judge a command that was recorded before once more, and the same payloads in a direct append."""
        if getattr(command, "community", "named") == "":
            return  # there may be a second community by now, and then the command does not know which is meant
        again = attempt(log, command, replace(by, dry_run=True))
        raw = attempt_raw(log, drafts)
        if isinstance(again, EverlogError):
            if again.code not in ASKED_OF_THE_COMMAND:
                assert isinstance(raw, RejectedEvent), (command, by, again, drafts)
        elif drafts_of(again.records, by) == drafts and not only_by_command(drafts):
            assert raw is None, (command, by, raw)

    def require_direct_append_refused(self, log: Log, command: Command[Any], by: By) -> None:
        """Append the one event of a refused command, if the command alone knows it."""
        if by.within or type(command).event is Command.event or getattr(command, "gates", None):
            return  # it records something else, or more
        try:
            payload, stream = command.event(), command.plan(log, by).stream
        except EverlogError:
            return
        type_, content = self.program.type_of(payload), msgspec.to_builtins(payload)
        draft = Draft(type_, stream, content, by.actor, command.label())
        raw = attempt_raw(log, [draft])
        assert raw is not None, (command, by, draft)

    def require_refusal_on_record(self, log: Log, before: int, error: EverlogError) -> None:
        if error.exit_code == 3:
            assert len(log.refusals(limit=None)) == before + 1, error

    def require_one_truth(self) -> None:
        """Compare the rows of every view on each handle, rebuilt, as of the head, and folded here."""
        first, second = self.handles
        for view in self.program.views:
            wanted = digest(folded(first, view).items())
            for log in self.handles:
                log.view(view).catch_up()
                assert live_view(log, view).digest() == wanted, (view.name, "live")
            handle = live_view(second, view)
            at = cut(second, second.head())
            assert digest((key, handle.was_at(key, at).rows[key].state) for key, _ in handle.items()) == wanted
            assert handle.rebuild().digest == wanted, (view.name, "rebuilt")
        assert first.verify().ok


ASKED_OF_THE_COMMAND = {"look_alike"}
"""Refusals that only a command knows: it asks before it opens an issue like another one. An append does not ask."""


def only_by_command(drafts: Sequence[Draft]) -> bool:
    """True for what only a command records: a purge, and a move back that resets gates."""
    types = [draft.type for draft in drafts]
    return "issue.purged" in types or types[:2] == ["WPStatusChanged", "GateResultChanged"]


def attempt(log: Log, command: Command[Any], by: By) -> Outcome[Any] | EverlogError:
    """Return the outcome or the refusal; anything else that is raised is a bug."""
    try:
        return perform(log, command, by)
    except EverlogError as error:
        return error


def attempt_raw(log: Log, drafts: Sequence[Draft]) -> EverlogError | None:
    """Return why a direct append would be refused; None if it would not."""
    head = log.head()
    try:
        log.writer.commit(drafts, dry_run=True)
    except EverlogError as error:
        return error
    finally:
        assert log.head() == head
    return None


def drafts_of(records: Sequence[Recorded], by: By) -> list[Draft]:
    """Return drafts that say what these events say."""
    events = [one.event for one in records]
    return [Draft(one.type, one.stream, one.payload, one.actor, one.scope, occurred_at=by.at) for one in events]


def folded(log: Log, view: type[View]) -> dict[str, Any]:
    """Fold the whole history, in the plainest way."""
    fold, states = view(), dict[str, Any]()
    events = [one.event for one in log.read(fold.query)]
    if fold.order is CAUSAL:
        events.sort(key=lambda event: event.causal_order)
    for event in events:
        key = fold.key(event)
        if key is not None:
            states[key] = fold.apply(states.get(key, fold.initial()), event)
    return states


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder in memory, if there is one: thousands of commits wait for the disk otherwise."""
    with TemporaryDirectory(dir=in_memory()) as found:
        yield Path(found)


@EVERY
@pytest.mark.parametrize("count", [SHORT, pytest.param(LONG, marks=pytest.mark.slow)])
def test_random_commands_keep_the_state_equal_to_the_fold(name: str, count: int, folder: Path) -> None:
    program = programs.load(name)
    seen: Counter[tuple[str, str]] = Counter()
    for seed in range(count):
        with ExitStack() as stack:
            url = f"sqlite:{folder / f'{seed}.db'}"
            handles = [stack.enter_context(everlog.open(url, actor="user:ada")) for _ in range(2)]
            world(handles[0], name)
            one = Run(program, handles, seed)
            for _ in range(STEPS):
                one.step()
            one.require_one_truth()
        seen += one.seen
    for command in program.commands:
        # The log of one node has no fork, of which a branch could be named.
        for status in ("recorded", "refused") if command.__name__ != "NameBranch" else ("refused",):
            assert seen[command.__name__, status], f"{command.__name__} was never {status}: {seen}"

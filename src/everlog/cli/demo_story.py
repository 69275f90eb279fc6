"""The demo's story: three days of a small team, the same at every run but for the calendar.

Pure: it makes drafts and appends nothing. Ids are made here, from the times of the story, so that one event can name
another as its cause before either is recorded.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import datetime, timedelta
from itertools import count
from typing import Any

from everlog.core.ids import IdSource
from everlog.log.drafts import Draft

TYPES = """\
# The event types of the demo. `everlog schema show workpackage.moved` explains one.

[types."workpackage.created"]
doc = "A work package was planned."
fields = { title = "str", size = "int = 1", issue = "str = ''" }

[types."workpackage.moved"]
doc = "A work package went to another lane."
fields = { went_to = "planned | doing | for_review | done", note = "str = ''" }

[types."workpackage.moved".transitions]
kind = "workpackage"
field = "went_to"
initial = "planned"
allowed = { planned = ["doing"], doing = ["for_review", "planned"], for_review = ["done", "doing"] }

[types."issue.opened"]
doc = "Somebody reported something."
fields = { title = "str", severity = "low | normal | high = 'normal'", labels = "list[str] = []" }

[types."issue.commented"]
doc = "Somebody said something about an issue."
fields = { text = "str" }

[types."issue.closed"]
doc = "An issue is settled."
fields = { resolution = "fixed | duplicate | declined" }

[types."agent.command_proposed"]
doc = "An agent wants to run a command."
fields = { command = "str", why = "str = ''", risk = "low | medium | high = 'low'" }

[types."agent.command_finished"]
doc = "A command that an agent proposed has run."
fields = { exit_code = "int", seconds = "float = 0" }

[types."customer.registered"]
doc = "A customer signed up."
fields = { name = "str", plan = "free | team = 'free'" }

[types."customer.note_taken"]
doc = "Support wrote something down about a customer."
fields = { text = "str" }
"""

SCOPES = ("acme/shop", "acme/billing", "acme/search")
PEOPLE = ("user:ada", "user:grace", "user:linus")
AGENTS = ("agent:builder", "agent:reviewer")
CUSTOMER = "customer/42"
LAST_MOVED = "workpackage/WP24"

_SUBJECTS = (
    "the cart",
    "invoices",
    "search results",
    "the login page",
    "exports",
    "the price list",
    "refunds",
    "mail",
)
_TROUBLES = (
    "{} show the wrong total",
    "{} are slow on Mondays",
    "{} forget the last entry",
    "{} fail without a message",
    "{} look odd on small screens",
)
_WORKS = ("Repair {}", "Speed up {}", "Write tests for {}", "Simplify {}", "Add a limit to {}")
_COMMENTS = (
    "I can reproduce it.",
    "Happens here too, since the last release.",
    "The cause is a rounding error.",
    "Please look at it before Friday.",
    "Fixed on my branch, review is welcome.",
)
_COMMANDS = ("pytest -q", "ruff check .", "git rebase main", "make docs", "npm run build")


def story(now: datetime) -> list[Draft]:
    """All drafts in the order of their times, all of them before now."""
    begin = now - timedelta(days=3)
    scenes = [*_workpackages(begin, now), *_issues(begin, now), *_customers(begin, now)]
    scenes.sort(key=lambda scene: scene.occurred_at or now)
    return scenes


class _Maker:
    """Drafts of one actor's thread of work, with ids of the time at which they happen."""

    def __init__(self, seed: str, scope: str, correlation: str, start: datetime, end: datetime) -> None:
        self.chance = random.Random(seed)
        self.time = start
        self._scope, self._correlation, self._end = scope, correlation, end
        self._ids = IdSource(now_ms=lambda: int(self.time.timestamp() * 1000))
        self._last = ""

    def __call__(self, event_type: str, stream: str, actor: str, minutes: int, **payload: Any) -> Draft:
        latest = self._end - timedelta(minutes=self.chance.randint(3, 30))
        self.time = min(self.time + timedelta(minutes=self.chance.randint(1, minutes)), latest)
        draft = Draft(
            type=event_type,
            stream=stream,
            payload=payload,
            actor=actor,
            scope=self._scope,
            id=self._ids.take(1)[0],
            occurred_at=self.time,
            causation_id=self._last,
            correlation_id=self._correlation,
        )
        self._last = draft.id
        return draft


def _workpackages(begin: datetime, end: datetime) -> Iterator[Draft]:
    for number in range(1, 25):
        chance = random.Random(number)
        stream, scope = f"workpackage/WP{number:02}", SCOPES[number % 3]
        start = begin + timedelta(minutes=number * 100)
        make = _Maker(stream, scope, f"plan-{number:02}", start, end)
        title = _WORKS[number % 5].format(_SUBJECTS[number % 8])
        yield make(
            "workpackage.created", stream, PEOPLE[number % 3], 30, title=title, size=chance.choice([1, 2, 3, 5])
        )
        if number >= 22:
            continue  # the newest ones wait in the first lane
        agent = AGENTS[0]
        yield make("workpackage.moved", stream, agent, 60, went_to="doing")
        for turn in count():
            command = _COMMANDS[(number + turn) % 5]
            yield make("agent.command_proposed", f"agent/run-{number}-{turn}", agent, 20, command=command, why=title)
            seconds = round(chance.uniform(0.5, 90), 1)
            failed = chance.random() < 0.15
            yield make(
                "agent.command_finished",
                f"agent/run-{number}-{turn}",
                agent,
                5,
                exit_code=int(failed),
                seconds=seconds,
            )
            if not failed and turn >= 1:
                break
        if number >= 19:
            continue
        yield make("workpackage.moved", stream, agent, 60, went_to="for_review", note="tests pass")
        if chance.random() < 0.25:
            yield make("workpackage.moved", stream, AGENTS[1], 90, went_to="doing", note="one case is missing")
            yield make("workpackage.moved", stream, agent, 90, went_to="for_review", note="added the case")
        if number < 17:
            yield make("workpackage.moved", stream, AGENTS[1], 120, went_to="done")


def _issues(begin: datetime, end: datetime) -> Iterator[Draft]:
    for number in range(101, 131):
        chance = random.Random(number)
        stream = f"issue/{number}"
        start = begin + timedelta(minutes=(number - 100) * 130)
        make = _Maker(stream, SCOPES[number % 3], f"issue-{number}", start, end)
        title = _TROUBLES[number % 5].format(_SUBJECTS[(number * 3) % 8]).capitalize()
        severity = chance.choice(["low", "normal", "normal", "high"])
        labels = sorted(chance.sample(["ui", "api", "data", "speed"], chance.randint(0, 2)))
        yield make("issue.opened", stream, PEOPLE[number % 3], 20, title=title, severity=severity, labels=labels)
        for turn in range(chance.randint(1, 4)):
            text = _COMMENTS[(number + turn) % 5]
            yield make("issue.commented", stream, PEOPLE[(number + turn + 1) % 3], 240, text=text)
        if number % 3:
            resolution = chance.choice(["fixed", "fixed", "fixed", "duplicate", "declined"])
            yield make("issue.closed", stream, PEOPLE[number % 3], 200, resolution=resolution)


def _customers(begin: datetime, end: datetime) -> Iterator[Draft]:
    for number, name in enumerate(("Ines", "Tomasz", "Yuki", "Olu", "Maren"), start=40):
        make = _Maker(name, "acme/billing", f"customer-{number}", begin + timedelta(minutes=number * 40), end)
        stream = f"customer/{number}"
        yield make(
            "customer.registered", stream, "service:signup", 30, name=name, plan="team" if number % 2 else "free"
        )
        yield make("customer.note_taken", stream, "user:grace", 300, text=f"{name} asked about the team plan.")

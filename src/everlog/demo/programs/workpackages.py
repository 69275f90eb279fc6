"""Four features in work packages: planned, done by an agent that asks for every command, reviewed, and done."""

from __future__ import annotations

from everlog.demo.programs import agents
from everlog.demo.week import BUILDER, PEOPLE, REVIEWER, Thread, Week, chance_of
from everlog.log.log import Log
from everlog.programs.perform import perform
from everlog.programs.workpackages.commands import Create, GateResult, Move, Spec, Subtask, Workspace

FEATURES = {
    "001-cart": "A cart that adds up",
    "002-invoices": "Invoices by mail",
    "003-search": "A search that forgives",
    "004-exports": "Exports for the tax office",
}
PACKAGES = 48
_BEGINS = (0, 1, 2, 4)
"""On which day work on each feature begins; the last one is under way when the week ends."""

SCOPE = "acme/shop"
_WORKS = ("Model of", "Storage of", "Rules for", "Page for", "Tests of", "Import of", "Limits of", "Export of")
_SUBJECTS = ("totals", "discounts", "addresses", "synonyms", "attachments", "currencies")


def names() -> list[str]:
    """Return the work packages, which are the names of their sessions, too."""
    return [f"WP{number:02}" for number in range(1, PACKAGES + 1)]


def threads(log: Log, week: Week) -> list[Thread]:
    done: set[str] = set()
    return [_features(log, week), *(_package(log, week, number, done) for number in range(1, PACKAGES + 1))]


def _features(log: Log, week: Week) -> Thread:
    for number, (slug, title) in enumerate(FEATURES.items()):
        yield week.on(_BEGINS[number], 8.2)
        perform(log, Spec(scope=SCOPE, slug=slug, title=title), week.by(PEOPLE[number], SCOPE))


def _package(log: Log, week: Week, number: int, done: set[str]) -> Thread:
    """Play one work package, by an agent, in a session that has its name."""
    chance, name = chance_of("package", number), f"WP{number:02}"
    feature = list(FEATURES)[(number - 1) // 12]
    before = f"WP{number - 1:02}" if (number - 1) % 12 and number % 3 else ""
    yield week.on(_BEGINS[(number - 1) // 12], 8.3 + (number - 1) % 12 * 0.2)
    planned = Create(
        id=name,
        title=f"{_WORKS[number % 8]} {_SUBJECTS[number % 6]}",
        feature=feature,
        depends_on=[before] if before else [],
        subtasks=["write it", "test it", "describe it"][: chance.randint(1, 3)],
        gates=["ci"],
        scope=SCOPE,
    )
    perform(log, planned, week.by(PEOPLE[number % 4], SCOPE, correlation_id=name))
    yield week.at_work(chance.uniform(30, 400))
    while before and before not in done:
        yield week.at_work(60)
    begun = perform(log, Move(scope=SCOPE, id=name, to="doing"), week.by(BUILDER, SCOPE, correlation_id=name)).events[
        -1
    ]
    by = week.by(BUILDER, SCOPE, correlation_id=name, causation_id=begun.id)
    perform(
        log, Workspace(scope=SCOPE, id=name, path=f"trees/{name.lower()}", branch=f"{feature}/{name.lower()}"), by
    )
    cause = begun.id
    for turn, _ in enumerate(planned.subtasks, start=1):
        yield week.after(chance.uniform(2, 50))
        tool = agents.TOOLS[(number + turn) % 4]
        last = yield from agents.run(log, week, chance, tool, session=name, cause=cause, agent=BUILDER, scope=SCOPE)
        cause = last.id if last is not None else cause
        by = week.by(BUILDER, SCOPE, correlation_id=name, causation_id=cause)
        perform(log, Subtask(scope=SCOPE, id=name, index=turn), by)
    rounds = 1 + (chance.random() < 0.3)
    for turn in range(rounds):
        yield week.after(chance.uniform(3, 20))
        passed = chance.random() < 0.8
        while not passed:
            perform(
                log,
                GateResult(scope=SCOPE, id=name, gate="ci", verdict="failed"),
                week.by("service:ci", SCOPE, correlation_id=name),
            )
            yield week.after(chance.uniform(10, 60))
            passed = chance.random() < 0.8
        judged = perform(
            log,
            GateResult(scope=SCOPE, id=name, gate="ci", verdict="passed", data={"tests": 180 + number}),
            week.by("service:ci", SCOPE, correlation_id=name),
        )
        cause = judged.events[-1].id if judged.records else cause
        by = week.by(BUILDER, SCOPE, correlation_id=name, causation_id=cause)
        perform(log, Move(scope=SCOPE, id=name, to="for_review"), by)
        yield week.at_work(chance.uniform(20, 300))
        if turn + 1 < rounds:
            by = week.by(REVIEWER, SCOPE, correlation_id=name)
            perform(log, Move(scope=SCOPE, id=name, to="doing", reason="one case is missing"), by)
    perform(log, Move(scope=SCOPE, id=name, to="done"), week.by(PEOPLE[(number + 1) % 4], SCOPE, correlation_id=name))
    done.add(name)

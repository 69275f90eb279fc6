"""What people report, talk about and settle; what comes up twice; and one issue that must be forgotten."""

from __future__ import annotations

from everlog.demo.week import PEOPLE, Thread, Week, chance_of
from everlog.errors import LookAlike
from everlog.log.log import Log
from everlog.programs.issues.commands import Close, Comment, Create, Edit, Label, Reopen
from everlog.programs.perform import perform

REPORTS = 96
SCOPE = "acme/shop"
PRIVATE = "A customer's address is in a screenshot"
"""The title of the issue that is purged."""

_WHERE = (
    "cart total",
    "invoice footer",
    "search result",
    "login page",
    "monthly export",
    "price list",
    "refund mail",
    "address form",
    "product photo",
    "opening time",
    "gift card",
    "newsletter",
)
_WHAT = (
    "rounds to the wrong cent",
    "takes ten seconds on Mondays",
    "forgets the last entry",
    "fails without any message",
    "overlaps the menu",
    "shows yesterday's figures",
    "cannot be reached by keyboard",
    "is empty for guests",
    "speaks two languages at once",
    "is too small to read",
    "comes twice",
    "ignores the time zone",
)
_HOW = (
    "Open it, wait, and look again.",
    "It needs more than ninety entries to be seen.",
    "Only with the old browser of the warehouse.",
    "A customer called about it this morning.",
    "Every time after the nightly import.",
    "Not always; mostly when two people work on it.",
    "The log has nothing about it.",
)
_COMMENTS = (
    "I can reproduce it.",
    "It happens here too, since the last release.",
    "The cause is a rounding error, twice on the way.",
    "Please look at it before Friday.",
    "Mended on my branch; a review is welcome.",
    "The customer says thank you.",
)
_LABELS = ("bug", "ui", "speed", "data", "p1")


def threads(log: Log, week: Week) -> list[Thread]:
    names: dict[int, str] = {}
    return [*(_issue(log, week, number, names) for number in range(REPORTS)), _private(log, week)]


def _issue(log: Log, week: Week, number: int, names: dict[int, str]) -> Thread:
    chance = chance_of("issue", number)
    reporter, owner = PEOPLE[number % 4], PEOPLE[chance.randrange(4)]
    yield week.at_work(number * 60)
    where, what = _WHERE[number % 12], _WHAT[(number // 12 + number) % 12]
    new = Create(
        project=SCOPE,
        title=f"The {where} {what}",
        body=_HOW[number % 7],
        owner=owner.partition(":")[2] if chance.random() < 0.6 else "",
        labels=chance.sample(_LABELS, chance.randint(0, 2)),
        links=[f"relates:{names[number - 7]}"] if number - 7 in names and chance.random() < 0.3 else [],
    )
    by = week.by(reporter, correlation_id=f"report-{number}")
    try:
        name = perform(log, new, by).result.short_id
    except LookAlike as error:
        # The reporter learns that the issue is known, and comments on it.
        known = error.details["candidates"][0]["short_id"]
        perform(log, Comment(project=SCOPE, issue=known, text=f"Again: {new.body}"), by)
        return
    names[number] = name
    for _ in range(chance.randint(1, 4)):
        yield week.at_work(chance.uniform(20, 500))
        perform(
            log,
            Comment(project=SCOPE, issue=name, text=_COMMENTS[chance.randrange(6)]),
            week.by(PEOPLE[chance.randrange(4)]),
        )
    if chance.random() < 0.3:
        perform(log, Label(project=SCOPE, issue=name, labels=[chance.choice(_LABELS)]), week.by(owner))
    if chance.random() < 0.2:
        perform(log, Edit(project=SCOPE, issue=name, title=f"{new.title}, again and again"), week.by(reporter))
    yield week.at_work(chance.uniform(60, 2000))
    if chance.random() < 0.75:
        perform(log, Close(project=SCOPE, issue=name, reason="mended"), week.by(owner))
        yield week.at_work(chance.uniform(300, 2000))
        if chance.random() < 0.12:
            perform(log, Reopen(project=SCOPE, issue=name, reason="it is back"), week.by(reporter))


def _private(log: Log, week: Week) -> Thread:
    yield week.on(2, 10)
    by = week.by("user:margaret")
    name = perform(
        log, Create(title=PRIVATE, body="It can be read in the attachment.", labels=["p1"], project=SCOPE), by
    )
    yield week.at_work(15)
    perform(
        log,
        Comment(project=SCOPE, issue=name.result.short_id, text="The attachment is removed."),
        week.by("user:grace"),
    )

"""A clone on a laptop, away from the network for two days: what happens there arrives late."""

from __future__ import annotations

from collections.abc import Sequence

from everlog import wiring
from everlog.core.event import START, Event
from everlog.demo.programs import community as street
from everlog.demo.programs import issues as reports
from everlog.demo.programs import workpackages as plan
from everlog.demo.week import Week
from everlog.log.log import Log
from everlog.programs.command import By
from everlog.programs.community.commands import DescribeNode, Say
from everlog.programs.issues.commands import Close, Comment, Create
from everlog.programs.issues.questions import List
from everlog.programs.perform import ask, perform
from everlog.programs.workpackages.commands import Move
from everlog.programs.workpackages.questions import Board, Status
from everlog.views.view import View

OWNER = "user:grace"
NEIGHBOUR = "user:bob"


class Laptop:
    """A separate log that admits the events of another."""

    def __init__(self) -> None:
        self.log = wiring.open("memory:", actor=OWNER)
        self._fetched = START

    def announce(self, home: Log, week: Week) -> None:
        """Record at home, before the laptop leaves, that a neighbour will act from this node, too."""
        origin = self.log.identity.origin
        node = DescribeNode(community=street.HEARTH, node=origin, name="a laptop", capabilities=["chat"])
        perform(home, node, week.by(NEIGHBOUR))

    def fetch(self, log: Log) -> None:
        """Take in what the other log has and this one lacks."""
        new = [recorded.event for recorded in log.stored.read(after=self._fetched)]
        self._fetched = log.head()
        self.log.admit(new)

    def own(self) -> list[Event]:
        """Return the events that were recorded here and nowhere else."""
        origin = self.log.identity.origin
        return [recorded.event for recorded in self.log.stored.read() if recorded.event.origin == origin]

    def close(self) -> None:
        self.log.close()


def work_offline(laptop: Laptop, week: Week) -> list[str]:
    """Work for two days on the train, and return the packages that were moved. They may be moved at home, too."""
    moved = [_move(laptop.log, package, week) for package in _in_lane(laptop.log, "for_review", "doing")[:4]]
    _talk_of_issues(laptop.log, week)
    _talk_to_neighbours(laptop.log, week)
    return moved


def _move(log: Log, package: str, week: Week) -> str:
    """Move a package where it may go next, as far as this log knows."""
    by = By(actor=OWNER, at=week.after(30), correlation_id=package)
    state = ask(log, Status(id=package))
    if state["lane"] == "for_review" and not state["waits_for"]:
        perform(log, Move(scope=plan.SCOPE, id=package, to="done"), by)
    else:
        back = "doing" if state["lane"] == "for_review" else "planned"
        perform(log, Move(scope=plan.SCOPE, id=package, to=back, reason="I read it on the train: not like this"), by)
    return package


def _in_lane(log: Log, *lanes: str) -> list[str]:
    return [one["id"] for lane in lanes for one in ask(log, Board()) if one["lane"] == lane]


def _talk_of_issues(log: Log, week: Week) -> None:
    known = ask(log, List(project=reports.SCOPE))[:8]
    for number, issue in enumerate(known):
        by = By(actor=OWNER, at=week.after(60 + number * 110))
        perform(log, Comment(issue=issue["id"], text="Seen on the train as well."), by)
        if number % 3 == 0:
            perform(log, Close(issue=issue["id"], reason="it is by design"), by)
    for number, title in enumerate(("No connection in the tunnel goes unnoticed", "Drafts are lost at a border")):
        by = By(actor=OWNER, at=week.after(700 + number * 300))
        perform(log, Create(title=title, labels=["bug"], project=reports.SCOPE), by)


def _talk_to_neighbours(log: Log, week: Week) -> None:
    for number in range(12):
        by = By(actor=NEIGHBOUR, at=week.after(90 + number * 120))
        perform(
            log,
            Say(community=street.HEARTH, thread="general", text=f"Greetings from the train, stop {number + 1}."),
            by,
        )


def same(one: Log, other: Log, views: Sequence[type[View]]) -> dict[str, str]:
    """Return the digests of views. Raise AssertionError if the two logs disagree on one."""
    found = {}
    for view in views:
        mine, theirs = one.view(view).digest(), other.view(view).digest()
        if mine != theirs:
            raise AssertionError(f"{view.name} is {mine[:12]} here and {theirs[:12]} there")
        found[view.name] = mine
    return found

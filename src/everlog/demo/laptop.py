"""A clone on a laptop, away from the network for two days: what happens there arrives late."""

from __future__ import annotations

from collections.abc import Sequence

from everlog import wiring
from everlog.core.event import START, Event
from everlog.demo import community as street
from everlog.demo import issues as reports
from everlog.demo import workpackages as plan
from everlog.demo.week import Week
from everlog.domains.community import commands as community
from everlog.domains.community.events import ManifestUpdated
from everlog.domains.deciding import By
from everlog.domains.issues import asking
from everlog.domains.issues import commands as issues
from everlog.domains.issues.commands import New
from everlog.domains.workpackages import commands as workpackages
from everlog.log.log import Log
from everlog.views.view import View

OWNER = "user:grace"
NEIGHBOUR = "user:bob"


class Laptop:
    """A log of its own that takes in the events of another."""

    def __init__(self) -> None:
        self.log = wiring.open("memory:", actor=OWNER)
        self._fetched = START

    def announce(self, home: Log, week: Week) -> None:
        """Say at home, before it is taken along, that a neighbour will speak from this node, too."""
        node = ManifestUpdated(node=self.log.identity.origin, name="a laptop", capabilities=["chat"])
        community.describe_node(home, street.HEARTH, node, by=week.by(NEIGHBOUR))

    def fetch(self, log: Log) -> None:
        """Take in what the other log has and this one lacks."""
        new = [recorded.event for recorded in log.store.read(after=self._fetched)]
        self._fetched = log.head()
        self.log.admit(new)

    def own(self) -> list[Event]:
        """What was recorded here and nowhere else."""
        origin = self.log.identity.origin
        return [recorded.event for recorded in self.log.store.read() if recorded.event.origin == origin]

    def close(self) -> None:
        self.log.close()


def work_offline(laptop: Laptop, week: Week) -> list[str]:
    """Two days on the train. The names of the work packages that are moved here, and may be moved at home too."""
    moved = [_move(laptop.log, package, week) for package in _in_lane(laptop.log, "for_review", "doing")[:4]]
    _talk_of_issues(laptop.log, week)
    _talk_to_neighbours(laptop.log, week)
    return moved


def _move(log: Log, package: str, week: Week) -> str:
    """Whatever may be done next with it, seen from here."""
    by = By(actor=OWNER, scope=plan.SCOPE, at=week.after(30), correlation_id=package)
    state = workpackages.status(log, package)
    if state["lane"] == "for_review" and not state["waits_for"]:
        workpackages.move(log, package, "done", by=by)
    else:
        back = "doing" if state["lane"] == "for_review" else "planned"
        workpackages.move(log, package, back, reason="I read it on the train: not like this", by=by)
    return package


def _in_lane(log: Log, *lanes: str) -> list[str]:
    return [one["id"] for lane in lanes for one in workpackages.board(log) if one["lane"] == lane]


def _talk_of_issues(log: Log, week: Week) -> None:
    known = asking.listed(log, scope=reports.SCOPE)[:8]
    for number, issue in enumerate(known):
        by = By(actor=OWNER, scope=reports.SCOPE, at=week.after(60 + number * 110))
        issues.comment(log, issue["id"], "Seen on the train as well.", by=by)
        if number % 3 == 0:
            issues.close(log, issue["id"], reason="it is by design", by=by)
    for number, title in enumerate(("No connection in the tunnel goes unnoticed", "Drafts are lost at a border")):
        by = By(actor=OWNER, scope=reports.SCOPE, at=week.after(700 + number * 300))
        issues.create(log, New(title=title, labels=("bug",)), by=by)


def _talk_to_neighbours(log: Log, week: Week) -> None:
    for number in range(12):
        by = By(actor=NEIGHBOUR, at=week.after(90 + number * 120))
        community.say(log, street.HEARTH, "general", f"Greetings from the train, stop {number + 1}.", by=by)


def same(one: Log, other: Log, views: Sequence[type[View]]) -> dict[str, str]:
    """The digests of views that two logs agree on; what they disagree on is an AssertionError."""
    found = {}
    for view in views:
        mine, theirs = one.view(view).digest(), other.view(view).digest()
        if mine != theirs:
            raise AssertionError(f"{view.name} is {mine[:12]} here and {theirs[:12]} there")
        found[view.name] = mine
    return found

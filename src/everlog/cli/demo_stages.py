"""The stages of the demo: each does something, checks it, and returns what a newcomer should see of it in a line.

Each stage checks what it shows: a demo that only prints would still print when the log is broken.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from everlog.demo.laptop import Laptop
    from everlog.demo.story import Story
    from everlog.errors import EverlogError
    from everlog.log.log import Log

SYNCED = ("workpackages.board", "issues.current", "community.manifest")
"""Views whose answer must be the same on both sides once all events are."""


class StageFailed(Exception):
    """A stage did not show what it should."""


class Stages:
    """One run of the demo on an open, empty log. The stages follow each other in the order of `names`."""

    def __init__(self, log: Log) -> None:
        self.log = log
        self.facts: dict[str, Any] = {}  # for programs that want more than a line
        self._story: Story | None = None
        self._laptop: Laptop | None = None
        self._moved_away: list[str] = []

    def all(self) -> list[tuple[str, Callable[[], str]]]:
        return [
            ("programs", self.programs),
            ("week", self.week),
            ("late-sync", self.late_sync),
            ("retry", self.retry),
            ("refusals", self.refusals),
            ("conflict", self.conflict),
            ("secret", self.secret),
            ("purge", self.purge),
            ("views", self.views),
            ("verify", self.verify),
            ("errors", self.errors),
        ]

    def close(self) -> None:
        for opened in (self._story, self._laptop):
            if opened is not None:
                opened.close()

    # ---- what happened

    def programs(self) -> str:
        from everlog import domains

        own = [info.type for info in self.log.catalog.types() if info.type.startswith("customer.")]
        count = sum(len(types) for types in domains.TYPES.values())
        _require(len(domains.TYPES) == 5, f"there are {len(domains.TYPES)} programs")
        return f"{', '.join(domains.TYPES)}: {count} event types, and {len(own)} of this log's own in types.toml"

    def week(self) -> str:
        """The week, with the views following; on Thursday a laptop is taken along."""
        from everlog.demo import laptop, truth
        from everlog.demo.story import NOON_OF_THURSDAY, Story

        self._laptop = away = laptop.Laptop()
        self._story = story = Story(self.log, datetime.now(UTC))
        week, recorded, took_s = story.week, [], 0.0
        noon = week.begin + NOON_OF_THURSDAY
        for until in sorted([*(week.on(day, 0) for day in range(1, 8)), noon]):
            started = time.monotonic()
            if until == noon:
                away.announce(story.rehearsal, week)
            recorded += story.go_on(until)
            took_s += time.monotonic() - started
            truth.follow(self.log)
            if until == noon:
                away.fetch(self.log)
                self._moved_away = laptop.work_offline(away, week)
        _require(
            self.log.head() == len(recorded), f"{len(recorded)} events were written, the head is {self.log.head()}"
        )
        _require(len(recorded) > 2_000, f"the week has only {len(recorded)} events")
        actors = len({event.actor for event in recorded})
        return (
            f"{len(recorded):,} events of 7 days by {actors} actors, decided by the rules and flushed, "
            f"{len(recorded) / took_s:,.0f} a second of writing"
        )

    def late_sync(self) -> str:
        from everlog.demo import laptop, truth

        assert self._laptop is not None
        away = self._laptop.own()
        before = self.log.head()
        self.log.admit(away)
        self._laptop.fetch(self.log)
        _require(self.log.head() == before + len(away), "not every event of the laptop arrived")
        again = self.log.admit(away)
        _require(not again, "what had arrived already arrived once more")
        truth.follow(self.log)
        chosen = [view for view in truth.every_view() if view.name in SYNCED]
        try:
            same = laptop.same(self.log, self._laptop.log, chosen)
        except AssertionError as error:
            raise StageFailed(str(error)) from error
        self.facts["synced"] = same
        contested = self._contested()
        return (
            f"{len(away)} events of two days on a laptop arrive as #{before + 1} to #{self.log.head()}; "
            f"{', '.join(contested) or 'nothing'} moved on both sides; both logs say the same in {len(same)} views"
        )

    def _contested(self) -> list[str]:
        from everlog.domains.workpackages import commands

        return [
            package
            for package in sorted(self._moved_away)
            if any(step["conflicts_with"] for step in commands.history(self.log, package))
        ]

    # ---- what a log says no to

    def retry(self) -> str:
        from everlog.domains.controlplane import commands
        from everlog.domains.controlplane.events import DeployRequested
        from everlog.domains.deciding import By
        from everlog.errors import KeyReuse

        by = By(actor="service:ci", scope="acme", key="build-1742")
        asked = DeployRequested(artifact="registry.acme.example/billing:2.0.0")
        first = commands.deploy(self.log, "acme/billing/test", asked, by=by)
        again = commands.deploy(self.log, "acme/billing/test", asked, by=by)
        _require(again.done.replayed and again.id == first.id, "a retry made a second deploy")
        other = DeployRequested(artifact="registry.acme.example/billing:2.0.1")
        self._refused(KeyReuse, lambda: commands.deploy(self.log, "acme/billing/test", other, by=by))
        place = first.done.records[0].position
        return f"a deploy asked for twice under one key is one event, #{place}; another one under that key is refused"

    def refusals(self) -> str:
        """Something of each program that its rules do not allow."""
        from everlog.demo import community as street
        from everlog.demo import issues as reports
        from everlog.domains.agents import commands as agents
        from everlog.domains.agents.events import Proposed
        from everlog.domains.community import commands as community
        from everlog.domains.controlplane import commands as control
        from everlog.domains.deciding import By
        from everlog.domains.issues import asking
        from everlog.domains.issues import commands as issues
        from everlog.domains.workpackages import commands as workpackages
        from everlog.errors import LookAlike, NoSuchSubject, RuleRefused, TransitionRefused

        log = self.log
        command = agents.propose(
            log, Proposed(agent_id="builder", tool_name="git_push", risk="high"), by=By(actor="agent:builder")
        )
        known = asking.show(log, asking.listed(log, scope=reports.SCOPE)[0]["id"], scope=reports.SCOPE)
        again = issues.New(title=known["title"], body=known["body"])
        done = next(one["id"] for one in workpackages.board(log) if one["lane"] == "done")
        errors = [
            self._refused(
                TransitionRefused, lambda: workpackages.move(log, done, "planned", by=By(actor="agent:builder"))
            ),
            self._refused(
                LookAlike,
                lambda: issues.create(log, again, by=By(scope=reports.SCOPE)),
            ),
            self._refused(
                RuleRefused,
                lambda: community.say(log, street.HEARTH, "general", "I am back", by=By(actor=street.TROUBLE)),
            ),
            self._refused(
                NoSuchSubject,
                lambda: control.scale(log, "acme/shop/prod", "web", count=0, by=By(actor="user:otto", scope="umbra")),
            ),
            self._refused(RuleRefused, lambda: agents.approve(log, command.id, by=By(actor="agent:builder"))),
        ]
        _require(all(error.hint for error in errors), "a refusal does not say what to do")
        self.facts["refused"] = [{"code": error.code, "message": str(error), "hint": error.hint} for error in errors]
        codes = ", ".join(error.code for error in errors)
        return f"one of each program, each with what to type instead: {codes}; the first: {errors[0].what}"

    def conflict(self) -> str:
        from everlog.errors import WrongSequence

        error = self._refused(
            WrongSequence,
            lambda: self.log.append(
                "customer.plan_changed", stream="customer/41", payload={"went_to": "team"}, expect=2
            ),
        )
        return f"refused: {error.what}"

    def secret(self) -> str:
        from everlog.domains.controlplane import commands
        from everlog.domains.deciding import By
        from everlog.errors import SecretFound

        made_up = "ghp_" + "Zx9Qw3Er7Ty1Ui5Op2As" + "8Df4Gh6Jk0LzXcVb"

        def take_note() -> None:
            text = f"try it with {made_up}"
            self.log.append("customer.note_taken", stream="customer/41", payload={"text": text})

        def give_value() -> None:
            by = By(actor="user:ada", scope="acme")
            commands.set_secret(self.log, "acme/shop/prod", "MAIL_KEY", version_id=made_up, by=by)

        errors = [self._refused(SecretFound, take_note), self._refused(SecretFound, give_value)]
        for error in errors:
            _require(made_up not in f"{error} {error.hint} {error.details}", "the refusal quotes the secret")
        return f"refused, and kept nowhere: {errors[0].what}; {errors[1].what}"

    def purge(self) -> str:
        """A customer who asks to be forgotten, and an issue whose name must never mean another one."""
        from everlog.demo import customers
        from everlog.demo import issues as reports
        from everlog.domains.deciding import By
        from everlog.domains.issues import asking, commands

        cursor = self.log.page_after(0, limit=200).next_cursor
        purge = self.log.purge(customers.ERASED, reason="erasure request 17")
        page = self.log.page_after(cursor)
        _require(page.reset is not None and page.reset.reason == "purged", "an old cursor was not told of the purge")
        _require(next(self.log.read(stream=customers.ERASED), None) is None, "a purged event can still be read")
        issue = next(one for one in asking.listed(self.log, scope=reports.SCOPE) if one["title"] == reports.PRIVATE)
        name = issue["id"]
        by = By(actor="user:margaret", scope=reports.SCOPE)
        commands.purge(self.log, name, force=True, confirm=f"purge {name}", reason="erasure request 18", by=by)
        left = asking.show(self.log, name, scope=reports.SCOPE)
        _require(left["status"] == "purged", f"the issue {name} is {left['status']}")
        _require("title" not in left, "what is left of a purged issue has its title")
        return (
            f"{purge.count} events of {customers.ERASED} are gone for good, #{purge.reserved} holds the record; "
            "a cursor of before gets one reset; an issue is gone too, and its short id stays taken"
        )

    # ---- the proof

    def views(self) -> str:
        from everlog.demo import truth

        found = truth.truths(self.log)
        apart = [one.view for one in found if not one.one]
        _require(not apart, f"live, rebuilt and as of the head differ: {', '.join(apart)}")
        _require(all(one.rows for one in found), f"empty: {[one.view for one in found if not one.rows]}")
        self.facts["views"] = [
            {
                "view": one.view,
                "rows": one.rows,
                "live": one.live,
                "rebuilt": one.rebuilt,
                "as_of_head": one.as_of_head,
            }
            for one in found
        ]
        return (
            f"{len(found)} views of 5 programs are the same live, rebuilt and as of #{self.log.head()}, "
            f"digest {truth.together(found)[:16]}..."
        )

    def verify(self) -> str:
        report = self.log.verify()
        _require(report.ok, f"{len(report.problems)} problems, the first: {report.problems[:1]}")
        return f"{report.events:,} events and {report.purged} purged places proved, digest {report.digest[:16]}..."

    def errors(self) -> str:
        counts = self.log.refusal_counts()
        codes = sorted({code for code, _, _ in counts})
        _require(len(codes) >= 6, f"refusals of 6 kinds should be on record, there are {counts}")
        return "on record: " + ", ".join(codes)

    def _refused(self, kind: type[EverlogError], attempt: Callable[[], object]) -> EverlogError:
        try:
            attempt()
        except kind as error:
            return error
        raise StageFailed(f"the log accepted what it should refuse ({kind.__name__})")


def _require(holds: bool, otherwise: str) -> None:
    if not holds:
        raise StageFailed(otherwise)

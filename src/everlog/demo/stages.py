"""The stages of the demo. Each does something, checks the result, and returns one line about it.

They check because a demo that only prints would still print if the log were broken.
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
"""Views that must be equal on both sides once both have all events."""


class StageFailed(Exception):
    """The result of a stage is not the expected one."""


class Stages:
    """One run of the demo on an open, empty log. `all` lists the stages in order."""

    def __init__(self, log: Log) -> None:
        self.log = log
        self.facts: dict[str, Any] = {}  # printed with --json
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
            ("trust", self.trust),
            ("errors", self.errors),
        ]

    def close(self) -> None:
        for opened in (self._story, self._laptop):
            if opened is not None:
                opened.close()

    # ---- what happened

    def programs(self) -> str:
        from everlog import programs

        own = [info.type for info in self.log.catalog.types() if info.type.startswith("customer.")]
        count = sum(len(types) for types in programs.TYPES.values())
        _require(len(programs.TYPES) == 5, f"there are {len(programs.TYPES)} programs")
        return f"{len(programs.TYPES)} programs, {count} event types, {len(own)} more in types.toml"

    def week(self) -> str:
        """Play the week while the views follow. On Thursday a laptop takes a copy and goes offline."""
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
        return f"{len(recorded):,} events by {actors} actors, flushed, {len(recorded) / took_s:,.0f} per second"

    def late_sync(self) -> str:
        from everlog.demo import laptop, truth

        assert self._laptop is not None
        away = self._laptop.own()
        before = self.log.head()
        self.log.admit(away)
        self._laptop.fetch(self.log)
        _require(self.log.head() == before + len(away), "not every event of the laptop arrived")
        again = self.log.admit(away)
        _require(not again, "an event was recorded twice")
        truth.follow(self.log)
        chosen = [view for view in truth.every_view() if view.name in SYNCED]
        try:
            same = laptop.same(self.log, self._laptop.log, chosen)
        except AssertionError as error:
            raise StageFailed(str(error)) from error
        self.facts["synced"] = same
        contested = self._contested()
        return f"{len(away)} events of a laptop, {len(contested)} in conflict; {len(same)} views agree"

    def _contested(self) -> list[str]:
        from everlog.programs.perform import ask
        from everlog.programs.workpackages.questions import PackageHistory

        return [
            package
            for package in sorted(self._moved_away)
            if any(step["conflicts_with"] for step in ask(self.log, PackageHistory(id=package)))
        ]

    # ---- what a log refuses

    def retry(self) -> str:
        from everlog.errors import KeyReuse
        from everlog.programs.command import By
        from everlog.programs.controlplane.commands import RequestDeploy
        from everlog.programs.perform import perform

        by = By(actor="service:ci", within="acme", key="build-1742")
        asked = RequestDeploy(environment="acme/billing/test", artifact="registry.acme.example/billing:2.0.0")
        first = perform(self.log, asked, by)
        again = perform(self.log, asked, by)
        _require(again.replayed and again.result == first.result, "a retry made a second deploy")
        other = RequestDeploy(environment="acme/billing/test", artifact="registry.acme.example/billing:2.0.1")
        self._refused(KeyReuse, lambda: perform(self.log, other, by))
        return f"a deploy sent twice with one key is one event, #{first.records[0].position}"

    def refusals(self) -> str:
        """Try something in each program that its rules refuse."""
        from everlog.demo.programs import community as street
        from everlog.demo.programs import issues as reports
        from everlog.errors import LookAlike, NoSuchSubject, RuleRefused, TransitionRefused
        from everlog.programs.agents.commands import Approve, Propose
        from everlog.programs.command import By
        from everlog.programs.community.commands import Say
        from everlog.programs.controlplane.commands import Scale
        from everlog.programs.issues.commands import Create
        from everlog.programs.issues.questions import List, Show
        from everlog.programs.perform import ask, perform
        from everlog.programs.workpackages.commands import Move
        from everlog.programs.workpackages.questions import Board

        log = self.log
        asked = Propose(agent_id="builder", tool_name="git_push", risk="high")
        command = perform(log, asked, By(actor="agent:builder")).result
        newest = ask(log, List(project=reports.SCOPE))[0]["id"]
        known = ask(log, Show(issue=newest, project=reports.SCOPE))
        again = Create(title=known["title"], body=known["body"], project=reports.SCOPE)
        back = Say(community=street.HEARTH, thread="general", text="I am back")
        off = Scale(environment="acme/shop/prod", process="web", count=0)
        done = next(one["id"] for one in ask(log, Board()) if one["lane"] == "done")
        errors = [
            self._refused(
                TransitionRefused, lambda: perform(log, Move(id=done, to="planned"), By(actor="agent:builder"))
            ),
            self._refused(
                LookAlike,
                lambda: perform(log, again),
            ),
            self._refused(
                RuleRefused,
                lambda: perform(log, back, By(actor=street.TROUBLE)),
            ),
            self._refused(
                NoSuchSubject,
                lambda: perform(log, off, By(actor="user:otto", within="umbra")),
            ),
            self._refused(RuleRefused, lambda: perform(log, Approve(id=command.id), By(actor="agent:builder"))),
        ]
        _require(all(error.hint for error in errors), "a refusal has no hint")
        self.facts["refused"] = [{"code": error.code, "message": str(error), "hint": error.hint} for error in errors]
        return f"{len(errors)}, one by each program, each with a hint"

    def conflict(self) -> str:
        from everlog.errors import WrongSequence

        error = self._refused(
            WrongSequence,
            lambda: self.log.append(
                "customer.plan_changed", stream="customer/41", payload={"went_to": "team"}, expect=2
            ),
        )
        return f"{error.what}"

    def secret(self) -> str:
        from everlog.errors import SecretFound
        from everlog.programs.command import By
        from everlog.programs.controlplane.commands import SetSecret
        from everlog.programs.perform import perform

        made_up = "ghp_" + "Zx9Qw3Er7Ty1Ui5Op2As" + "8Df4Gh6Jk0LzXcVb"

        def take_note() -> None:
            text = f"try it with {made_up}"
            self.log.append("customer.note_taken", stream="customer/41", payload={"text": text})

        def give_value() -> None:
            secret = SetSecret(environment="acme/shop/prod", name="MAIL_KEY", version_id=made_up)
            perform(self.log, secret, By(actor="user:ada", within="acme"))

        errors = [self._refused(SecretFound, take_note), self._refused(SecretFound, give_value)]
        for error in errors:
            _require(made_up not in f"{error} {error.hint} {error.details}", "the refusal quotes the secret")
        return f"{len(errors)} secrets in payloads are refused, stored nowhere"

    def purge(self) -> str:
        """Purge a customer on request, and an issue whose short id must never be used again."""
        from everlog.demo.programs import customers
        from everlog.demo.programs import issues as reports
        from everlog.programs.command import By
        from everlog.programs.issues.commands import Purge
        from everlog.programs.issues.questions import List, Show
        from everlog.programs.perform import ask, perform

        cursor = self.log.page_after(0, limit=200).next_cursor
        purge = self.log.purge(customers.ERASED, reason="erasure request 17")
        page = self.log.page_after(cursor)
        _require(
            page.reset is not None and page.reset.reason == "purged", "an old cursor got no reset after the purge"
        )
        _require(next(self.log.read(stream=customers.ERASED), None) is None, "a purged event can still be read")
        issue = next(
            one for one in ask(self.log, List(project=reports.SCOPE, limit=1000)) if one["title"] == reports.PRIVATE
        )
        name = issue["id"]
        erase = Purge(issue=name, force=True, confirm=f"purge {name}", reason="erasure request 18")
        perform(self.log, erase, By(actor="user:margaret"))
        left = ask(self.log, Show(issue=name, project=reports.SCOPE))
        _require(left["status"] == "purged", f"the issue {name} is {left['status']}")
        _require("title" not in left, "a purged issue still has its title")
        return f"{purge.count} events of {customers.ERASED} are gone; old cursors reset"

    # ---- the proof

    def views(self) -> str:
        from everlog.demo import truth

        found = truth.truths(self.log)
        apart = [one.view for one in found if not one.one]
        _require(not apart, f"live, rebuilt and as of the head differ: {', '.join(apart)}")
        # Nobody in the week claims anything.
        empty = [one.view for one in found if not one.rows and not one.view.endswith(".claims")]
        _require(not empty, f"empty: {empty}")
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
        return f"{len(found)} are equal live, rebuilt, as of #{self.log.head()}: {truth.together(found)[:8]}..."

    def verify(self) -> str:
        report = self.log.verify()
        _require(report.ok, f"{len(report.problems)} problems, the first: {report.problems[:1]}")
        return f"{report.events:,} events, {report.purged} purged, sound: digest {report.digest[:8]}..."

    def trust(self) -> str:
        """Sign on two laptops, sync them over HTTP, forget a customer on both, and check the proofs from before."""
        from everlog.errors import Unavailable

        try:
            from everlog.demo.two_laptops import FORGOTTEN, sync_and_forget

            seen = sync_and_forget()
        except Unavailable as error:  # the extra `client` is not installed
            return f"left out: {error.hint}"
        except AssertionError as error:
            raise StageFailed(str(error)) from error
        _require(not seen.found, f"the address of {FORGOTTEN} is still in {', '.join(seen.found)}")
        return f"{seen.events} signed events sync; {FORGOTTEN} is forgotten"

    def errors(self) -> str:
        counts = self.log.writer.refusals.counts()
        codes = sorted({code for code, _, _ in counts})
        _require(len(codes) >= 6, f"refusals of 6 kinds should be on record, there are {counts}")
        return f"refusals of {len(codes)} kinds are on record: everlog errors"

    def _refused(self, kind: type[EverlogError], attempt: Callable[[], object]) -> EverlogError:
        try:
            attempt()
        except kind as error:
            return error
        raise StageFailed(f"the log accepted what it should refuse ({kind.__name__})")


def _require(holds: bool, otherwise: str) -> None:
    if not holds:
        raise StageFailed(otherwise)

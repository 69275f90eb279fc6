"""Who works on a work package: claim, renew and release, and what is ready to be claimed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec

from everlog.errors import RuleRefused
from everlog.programs.command import By, Decision, Plan
from everlog.programs.leases import Attempt, Minutes, made_by, now
from everlog.programs.workpackages import rules
from everlog.programs.workpackages.commands import Id, Package, PackageCommand
from everlog.programs.workpackages.events import CLAIMS
from everlog.programs.workpackages.package import State, lanes_of, package_of
from everlog.programs.workpackages.views import Board

if TYPE_CHECKING:
    from everlog.log.log import Log
    from everlog.programs.perform import History


class PackageClaim(Package, frozen=True, kw_only=True):
    """A work package, who has claimed it, and until when."""

    claimed_by: str
    until: str


def unready(package: State, lanes: Mapping[str, str | None], *, lapsed: bool) -> str:
    """Return why nobody can begin to work on a package now; empty if one can. `lapsed`: its claim has expired."""
    if package["lane"] == "planned":
        return ", ".join(f"{one} is {lanes.get(one) or 'not there yet'}" for one in rules.waits_for(package, lanes))
    return "" if package["lane"] == "doing" and lapsed else f"it is in {package['lane']}"


def attempt(name: str, history: History, actor: str) -> Attempt:
    """Return what an actor can try with the claim of a package, from its events."""
    events = [one.event for one in history]
    package = package_of(one for one in events if one.type not in CLAIMS.types)
    held, at = CLAIMS.left_by(events), now()

    def require(verb: str) -> None:
        there = rules.require_package(package, name, verb)
        mine = held.holder == actor and held.is_live(at)
        begun = there["lane"] == "doing" and there["moved_by"] == actor
        if verb == "release" or begun or (mine and there["lane"] != "done"):
            return
        lanes, _ = lanes_of(there, name, "doing", history)
        if why := unready(there, lanes, lapsed=bool(held.holder)):
            raise RuleRefused(
                f"{name} is not ready",
                rule="a package is claimed when it is planned and what it depends on is done; in doing, by the actor"
                " that moved it there, or when its claim has expired",
                tried=f"{verb} {name}",
                why=why,
                hint="everlog wp next",
                current_status=there["lane"],
            )

    return Attempt(claims=CLAIMS, name=name, actor=actor, held=held, at=at, require=require)


class _OfClaim(PackageCommand[Package], frozen=True, kw_only=True):
    """A command of an actor who works, or wants to work, on a package."""

    types = frozenset((*Board.types, *CLAIMS.types))

    def plan(self, log: Log, by: By) -> Plan[Package]:
        plan = PackageCommand.plan(self, log, by)

        def result(decision: Decision) -> Package:
            found, claim = plan.result(decision), made_by(decision)
            return found if claim is None else PackageClaim(**msgspec.structs.asdict(found), **claim)

        return msgspec.structs.replace(plan, result=result)

    def wants(self, package: State | None, history: History, by: By) -> Iterable[Any]:
        return self.tries(attempt(self.package(), history, by.actor))

    def tries(self, attempt: Attempt) -> Iterable[Any]:
        raise NotImplementedError

    def fingerprint(self) -> Any:
        return {"id": self.package(), "minutes": getattr(self, "minutes", 0)}


class _ForMinutes(_OfClaim, frozen=True, kw_only=True):
    id: Id
    minutes: Minutes = 60


class Claim(_ForMinutes, frozen=True, kw_only=True):
    """Take a work package that is ready, for a limited time. Of several who try at once, one gets it.

    After that time anybody may claim it. Renew the claim while the work goes on.
    """

    verb = "claim"
    examples = ("claim WP03 --minutes 30 --actor agent:builder",)
    example: ClassVar[dict[str, Any]] = {"id": "WP03", "minutes": 30}

    def tries(self, attempt: Attempt) -> Iterable[Any]:
        return attempt.take(self.minutes)


class Renew(_ForMinutes, frozen=True, kw_only=True):
    """Extend your claim of a work package, before it expires."""

    verb = "renew"
    examples = ("renew WP03 --minutes 30 --actor agent:builder",)
    example: ClassVar[dict[str, Any]] = {"id": "WP03", "minutes": 30}

    def tries(self, attempt: Attempt) -> Iterable[Any]:
        return attempt.renew(self.minutes)


class Release(_OfClaim, frozen=True, kw_only=True):
    """Give up your claim of a work package, so that others can take it."""

    verb = "release"
    examples = ("release WP03 --actor agent:builder",)
    example: ClassVar[dict[str, Any]] = {"id": "WP03"}
    id: Id

    def tries(self, attempt: Attempt) -> Iterable[Any]:
        return attempt.release()


CLAIMING = (Claim, Renew, Release)

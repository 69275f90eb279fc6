"""A value of every command and every question, made from its fields; and a log in which they are about something."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Literal, get_args, get_origin

from everlog.cli.programs.spelling import Field, fields_of
from everlog.log.log import Log
from everlog.programs.agents.commands import Propose
from everlog.programs.command import By
from everlog.programs.community import commands as community
from everlog.programs.controlplane import commands as controlplane
from everlog.programs.issues import commands as issues
from everlog.programs.perform import perform
from everlog.programs.program import Program
from everlog.programs.workpackages import commands as workpackages

ADA, BOB, SERVICE = By(actor="user:ada"), By(actor="user:bob"), By(actor="service:deployer")
CID = "bafybeigdyrzt5sfp7udm7hu76uh7y26nf3efuylqabf3oclgtqy55fbzdi"
SCOPE = "acme"


def world(log: Log, program: str) -> dict[str, Any]:
    """Fill a log with subjects of a program, all of them in one scope; return what fields can name."""
    found: dict[str, Any] = _WORLDS[program](log)
    return found


def _agents(log: Log) -> dict[str, Any]:
    by = By(actor="agent:builder", correlation_id="session-7")
    perform(log, Propose(agent_id="builder", tool_name="pytest", id="c1", scope=SCOPE), by)
    return {"id": "c1", "session": "session-7", "event": "#1", "scope": SCOPE, "tool_name": "pytest"}


def _workpackages(log: Log) -> dict[str, Any]:
    perform(log, workpackages.Spec(slug="025", title="Log", scope=SCOPE), ADA)
    planned = workpackages.Create(id="WP01", title="Index", feature="025", gates=["ci"], scope=SCOPE)
    perform(log, planned, ADA)
    return {"id": "WP01", "slug": "025", "to": "doing", "gate": "ci", "verdict": "passed", "index": 1, "scope": SCOPE}


def _issues(log: Log) -> dict[str, Any]:
    one = perform(log, issues.Create(title="The door squeaks", project=SCOPE), ADA).result
    two = perform(log, issues.Create(title="Buy oil", project=SCOPE), ADA).result
    found = {"issue": one.short_id, "other": two.short_id, "kind": "blocks", "project": SCOPE}
    return {**found, "uid": one.uid, "other_uid": two.uid, "links": [f"blocks:{one.short_id}"], "words": ["door"]}


def _controlplane(log: Log) -> dict[str, Any]:
    place = "acme/shop/prod"
    perform(log, controlplane.CreateOrg(org="acme"), ADA)
    perform(log, controlplane.CreateApp(app="acme/shop"), ADA)
    perform(log, controlplane.CreateEnvironment(environment=place), ADA)
    perform(log, controlplane.RequestDeploy(environment=place, artifact="shop:1", id="d1"), ADA)
    perform(log, controlplane.SetRoute(host="www.example.org", environment=place), ADA)
    perform(log, controlplane.SetSecret(environment=place, name="KEY", version_id="1"), ADA)
    return {
        "org": "acme",
        "app": "acme/shop",
        "environment": place,
        "place": "acme",
        "deploy": "d1",
        "host": "www.example.org",
        "name": "KEY",
        "version_id": "1",
        "artifact": "shop:1",
        "mount": "/data",
    }


def _community(log: Log) -> dict[str, Any]:
    perform(log, community.Create(community=SCOPE, name="Acme"), ADA)
    perform(log, community.Invite(community=SCOPE, member="user:bob"), ADA)
    perform(log, community.Join(community=SCOPE), BOB)
    perform(log, community.Promote(community=SCOPE, member="user:bob", to="moderator"), ADA)
    perform(log, community.Post(community=SCOPE, name="lamp", title="A lamp"), ADA)
    sent = perform(log, community.Say(community=SCOPE, thread="general", text="hello"), BOB).result
    perform(log, community.Advertise(community=SCOPE, cid=CID), ADA)
    perform(log, community.Ingest(community=SCOPE, name="manual", title="The stove"), ADA)
    found = {"community": SCOPE, "member": "user:bob", "thread": "general", "messages": [sent.message], "cid": CID}
    return {**found, "name": "lamp", "reply_to": sent.message}


_WORLDS = {
    "agents": _agents,
    "workpackages": _workpackages,
    "issues": _issues,
    "controlplane": _controlplane,
    "community": _community,
}


def sample(program: Program, value: type[Any], known: dict[str, Any], *, every_field: bool) -> Any:
    """Return a value with its required fields (or all of them), from what is known or else from their types."""
    given = {}
    for field in fields_of(value):
        if field.name in known:
            given[field.name] = known[field.name]
        elif field.required or every_field:
            given[field.name] = _of_type(field)
    return value(**given)


_TIMES = {"as_of": 1, "since": datetime(2026, 11, 1, tzinfo=UTC), "until": datetime(2026, 11, 2, tzinfo=UTC)}


def _of_type(field: Field) -> Any:
    """Return a value that is not the default, so that a surface that loses the field is found out."""
    base = field.base
    if field.name in _TIMES:
        return _TIMES[field.name]
    if get_origin(base) is Literal:
        return next(one for one in get_args(base) if one != field.default)
    if get_origin(base) in (list, tuple):
        return ["one", "two"]
    if base is bool:
        return not field.default
    if base is int:
        return 2
    if base is float:
        return 2.5
    if base is dict or get_origin(base) is dict:
        return {"a": 1}
    return f"some {field.name}"

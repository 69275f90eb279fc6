"""Random commands of every program, made from the fields of their values: most of them fit, some do not.

A field takes its value from its type and its limits; a text takes it from the names that `NAMES` has for the field,
or from `TEXTS` if it is prose. A new command is covered as soon as it is in its program. A new field that is a text
needs a line in one of them: `value_of` asks for it.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import UTC, datetime
from functools import cache
from typing import Any, Literal, TypeVar, get_args, get_origin

from tests.programs.samples import CID

from everlog.cli.programs.spelling import Field, fields_of
from everlog.core.ids import new_id
from everlog.core.query import Query
from everlog.log.log import Log
from everlog.programs.command import By, Command, Question
from everlog.programs.issues.questions import List
from everlog.programs.issues.rules import words_for
from everlog.programs.perform import ask
from everlog.programs.program import Program

WRONG = 0.06  # how often a field gets a value that does not fit
GIVEN = 0.4  # how often a field that may be left out is given
NONSENSE = ("", " ", "no such thing!", "nobody-has-this", "a/b/c/d/e", "é" * 3, "a\0b", "\ud800", "x" * 3_000)
WORDS = ("door", "squeaks", "login", "fails", "page", "slow", "fix", "again", "on", "start")
LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)
TEXTS = {
    *("title", "body", "text", "reason", "note", "why", "summary", "error", "description", "price", "software"),
    *("findings", "subtasks", "mission", "source", "model", "media_type", "endpoints", "capabilities", "region"),
}
"""Fields that hold prose."""

Pools = dict[str, list[str]]


def _agents(log: Log) -> Pools:
    return {
        "id": ["", "c1", "c2", "c3"],
        "agent_id": ["builder"],
        "tool_name": ["pytest", "ruff"],
        "scope": ["", "acme", "acme/shop"],
        "session": ["session-1", "session-2"],
        "event": [one.event.id for one in log.read()],
        "status": ["proposed", "approved", "rejected"],
    }


def _workpackages(log: Log) -> Pools:
    packages = ["WP01", "WP02", "WP03", "WP04"]
    return {
        "slug": ["025", "026"],
        "id": packages,
        "feature": ["", "025", "026"],
        "depends_on": packages,
        "on": packages,
        "to": ["planned", "doing", "for_review", "done"],
        "gate": ["ci", "ci", "lint"],
        "gates": ["ci", "lint"],
        "type": ["", "check"],
        "verdict": ["passed", "passed", "failed", "pending"],
        "path": ["trees/a", "trees/b"],
        "branch": ["", "main"],
        "scope": ["", "acme", "acme/shop"],
    }


def _issues(log: Log) -> Pools:
    rows = ask(log, List(status="all"))
    names, uids = [row["id"] for row in rows], [row["uid"] for row in rows]
    return {
        "issue": [*names, *uids],
        "other": names,
        "uid": ["", *uids],
        "other_uid": ["", *uids],
        "owner": ["", "ada", "bob"],
        "labels": ["bug", "p1", "ui"],
        "kind": ["blocks", "relates", "duplicates"],
        "links": [f"{kind}:{name}" for kind in ("blocks", "relates") for name in names],
        "project": ["", "acme", "acme", "acme/shop"],
    }


def _controlplane(log: Log) -> Pools:
    made = [one.event.stream.partition("/")[2] for one in log.read(Query(kind="deploy"), newest_first=True, limit=6)]
    return {
        "org": ["acme", "umbra"],
        "app": ["acme/shop", "acme/cart", "acme/cart", "umbra/shop"],
        "environment": ["acme/shop/prod"] * 6 + ["acme/shop/test", "umbra/shop/prod"],
        "artifact": ["shop:1", "shop:2"],
        "id": ["", *(f"d{number}" for number in range(2, 40))],
        "deploy": made,
        "to": ["", *made],
        "host": ["www.example.org", "api.example.org"],
        "process": ["web", "db"],
        "name": ["KEY", "data"],
        "version_id": ["1", "2"],
        "mount": ["/data"],
    }


def _community(log: Log) -> Pools:
    people = ["user:ada", "user:bob", "user:cyd"]
    sent = [
        one.event.id for one in log.read(Query(types=frozenset({"chat.message.sent"})), newest_first=True, limit=5)
    ]
    return {
        "community": ["acme", "acme", "acme", ""],
        "member": people,
        "provider": ["", *people],
        "node": ["", "attic"],
        "name": ["lamp", "chair", "manual", ""],
        "thread": ["general", "help"],
        "messages": [*sent] or [new_id()],
        "reply_to": ["", *sent],
        "upto": ["", *sent],
        "cid": [CID, "QmYwAPJzv5CZsnA625s3Xf2nemtYgPpHdWEz79ojWnPbdG"],
    }


NAMES: dict[str, Callable[[Log], Pools]] = {
    "agents": _agents,
    "workpackages": _workpackages,
    "issues": _issues,
    "controlplane": _controlplane,
    "community": _community,
}
"""What the texts of a program's commands may name: mostly things that are there."""

ACTORS = {
    "agents": ["user:ada", "user:ada", "agent:builder"],
    "workpackages": ["user:ada", "agent:builder"],
    "issues": ["user:ada", "agent:builder"],
    "controlplane": ["user:ada", "service:deployer", *["system"] * 9, "agent:builder"],
    "community": ["user:ada", "user:ada", "user:bob", "user:cyd"],
}


V = TypeVar("V", Command[Any], Question[Any])


def random_value(program: Program, made: type[V], log: Log, chance: random.Random) -> V:
    """Return a command or a question of this class that might come next."""
    pools = NAMES[program.name](log)
    given: dict[str, Any] = {}
    for field in _fields(made):
        if field.name == "confirm":
            continue
        if field.required or field.name in ("community", "project") or chance.random() < GIVEN:
            given[field.name] = value_of(made, field, pools, chance)
    if "confirm" in made.__struct_fields__ and chance.random() > WRONG:
        shown = given["issue"] if len(given["issue"]) < len(new_id()) else _short_id(log, given["issue"])
        given |= {"force": True, "confirm": words_for(made.verb, shown)}
    return made(**given)


_fields = cache(fields_of)


def _short_id(log: Log, uid: str) -> str:
    return next((row["id"] for row in ask(log, List(status="all")) if row["uid"] == uid), uid)


def random_caller(program: Program, chance: random.Random) -> By:
    within = chance.choice([*[""] * 12, "acme", "acme/shop", "elsewhere"])
    at = LONG_AGO if chance.random() < 0.1 else None
    return By(actor=chance.choice(ACTORS[program.name]), within=within, at=at)


def value_of(made: type[Any], field: Field, pools: Pools, chance: random.Random) -> Any:
    """Return a value for a field; now and then one that does not fit."""
    base = field.base
    if field.many:
        element = Field(
            name=field.name, base=get_args(base)[0], description="", limits={}, required=True, default=None
        )
        return [value_of(made, element, pools, chance) for _ in range(chance.choice([0, 1, 1, 2]))]
    wrong = chance.random() < WRONG
    if base is bool:
        return chance.random() < 0.5
    if get_origin(base) is Literal:
        return "nonsense" if wrong else chance.choice(get_args(base))
    if base in (int, float):
        low, high = field.limits.get("ge", 0), field.limits.get("le", 5)
        return base(chance.choice([low - 1, high + 1])) if wrong else base(chance.randint(low, min(high, low + 5)))
    if base is dict or get_origin(base) is dict:
        return chance.choice([{}, {"run": 17}])
    if wrong:
        return chance.choice(NONSENSE)
    if pools.get(field.name):
        return chance.choice(pools[field.name])
    if field.name in TEXTS:
        return " ".join(chance.choices(WORDS, k=3))
    if field.name in pools:  # nothing is there yet
        return chance.choice(NONSENSE[2:4])
    raise AssertionError(
        f"say what {made.__name__}.{field.name} ({base}) may be: in NAMES, or in TEXTS if it is prose"
    )

"""Roles that exist for the length of a test, and a log in which each of them is tried."""

from __future__ import annotations

import secrets
from typing import Any

import psycopg
from psycopg import sql

import everlog
from everlog.log.log import Log
from everlog.testing.builders import put_note

Bare = psycopg.Connection[tuple[Any, ...]]

KINDS = ("owner", "writer", "runner", "reader", "purger", "tenant", "many", "stranger")
"""Every kind of role that docs/how-to/postgres.md defines, and one that was granted nothing.

`runner` is a writer with grant_views, `tenant` sees the scope acme, `many` serves many tenants and asks for acme.
"""
TENANTS = ("tenant", "many")
GRANTS: dict[str, list[tuple[str, ...]]] = {
    "owner": [],
    "writer": [("grant_writer",)],
    "runner": [("grant_writer",), ("grant_views",)],
    "reader": [("grant_reader",)],
    "purger": [("grant_purger",), ("grant_views",)],
    "tenant": [("grant_tenant", "acme")],
    "many": [("grant_tenant", "")],
    "stranger": [],
}
SCOPES = ["acme", "acme/shop", "acme/shop/prod", "acmecorp", "other", ""]
OWN = ["acme", "acme/shop", "acme/shop/prod"]
"""Those of the scopes that lie in acme."""
NOT_FOR_TENANTS = "not-for-tenants"
"""A word that is in everything that is not in the scope acme."""


class Roles:
    """Makes roles and URLs to come in by."""

    def __init__(self, owner: Bare, url: str) -> None:
        self._owner = owner
        self._url = url
        self._made: list[str] = []

    def make(self, grant: str, *arguments: str) -> str:
        return self._make(grant.rpartition("_")[2], [] if grant == "none" else [(grant, *arguments)])

    def of_kind(self, kind: str) -> str:
        """A new role of one of the kinds; the owner is the one that is there."""
        return "postgres" if kind == "owner" else self._make(kind, GRANTS[kind])

    def _make(self, prefix: str, grants: list[tuple[str, ...]]) -> str:
        name = f"{prefix}-{secrets.token_hex(4)}"  # a hyphen: names must be quoted on their way
        self._made.append(name)
        self._owner.execute(sql.SQL("CREATE ROLE {} LOGIN").format(sql.Identifier(name)))
        for grant, *arguments in grants:
            call = sql.SQL("SELECT {}({})").format(
                sql.Identifier(grant), sql.SQL(", ").join([sql.Literal(name), *map(sql.Literal, arguments)])
            )
            self._owner.execute(call)
        return name

    def join(self, role: str, other: str) -> None:
        """Make one role a member of another."""
        self._owner.execute(sql.SQL("GRANT {} TO {}").format(sql.Identifier(other), sql.Identifier(role)))

    def url(self, role: str, scope: str = "") -> str:
        return self._url.replace("postgres@", f"{role}@") + (f"&scope={scope}" if scope else "")

    def connect(self, role: str, scope: str = "") -> Bare:
        base, _, schema = self.url(role).rpartition("schema=")
        bare = psycopg.connect(base.rstrip("?&"), autocommit=True)
        bare.execute(sql.SQL("SET search_path TO {}, pg_temp").format(sql.Identifier(schema)))
        if scope:
            bare.execute("SELECT set_config('everlog.scope', %s, false)", (scope,))
        return bare

    def drop_all(self) -> None:
        for name in self._made:
            role = sql.Identifier(name)
            self._owner.execute(sql.SQL("DROP OWNED BY {} CASCADE").format(role))
            self._owner.execute(sql.SQL("DROP ROLE {}").format(role))
        self._made.clear()


def fill(log: Log) -> None:
    """Events, keys, notes, refusals and responses, in the scope of a tenant and outside of it."""
    for number, scope in enumerate(SCOPES):
        mark = "mine" if scope in OWN else NOT_FOR_TENANTS
        for turn in range(3):
            log.append(
                "note.added",
                stream=f"note/{mark}-{number}",
                payload={"text": f"{mark} {turn}"},
                actor="user:ada",
                scope=scope,
                key=f"{mark}-{number}-{turn}",
            )
    with log._store.open_write() as writer:
        put_note(writer, f"probe/{NOT_FOR_TENANTS}", NOT_FOR_TENANTS)


def purge_some(log: Log) -> None:
    """A purge in the tenant's scope, one outside of it, and one of a stream that lay in both."""
    both = [
        everlog.Draft(type="note.added", stream="note/both", payload={"text": "x"}, actor="user:ada", scope=scope)
        for scope in ("acme/shop", NOT_FOR_TENANTS)
    ]
    log.append_batch(both)
    for stream, reason in (("note/mine-1", "asked to"), (f"note/{NOT_FOR_TENANTS}-4", NOT_FOR_TENANTS)):
        log.purge(stream, actor="user:ada", reason=reason)
    log.purge("note/both", actor="user:ada", reason="asked to")

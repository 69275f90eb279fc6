"""What each kind of role may do with each table, view and function of a log: all of them, and nothing else."""

from __future__ import annotations

from tests.stores.postgres.roles import GRANTS, KINDS, Bare

VERBS = ("SELECT", "INSERT", "UPDATE", "DELETE", "TRUNCATE", "REFERENCES", "TRIGGER")

_READER = ("reader", "writer", "runner", "purger")
_WRITER = ("writer", "runner", "purger")
_TENANT = ("tenant", "many")
_RUNNER = ("runner", "purger")
_NOBODY: tuple[str, ...] = ()

# Of each relation: which roles have which privilege on it, or on a column of it. The owner has all of them.
RELATIONS: dict[str, dict[str, tuple[str, ...]]] = {
    "migrations": {"SELECT": (*_READER, *_TENANT)},
    "identity": {"SELECT": (*_READER, *_TENANT)},
    "state": {"SELECT": (*_READER, *_TENANT), "UPDATE": _WRITER},  # of the column "one" only: to lock the row
    "chains": {"SELECT": _READER},
    "forks": {"SELECT": _READER},
    "groups": {"SELECT": (*_READER, *_TENANT)},
    "chain_step": {},
    "events": {"SELECT": _READER, "INSERT": _WRITER},
    "purges": {"SELECT": _READER},
    "purged": {"SELECT": _READER},
    "claims": {"SELECT": _READER},
    "notes": {"SELECT": _READER},
    "projection_checkpoints": {"SELECT": _READER, "INSERT": _WRITER, "UPDATE": _WRITER},
    "tenants": {},
    "derived": dict.fromkeys(("SELECT", "INSERT", "UPDATE", "DELETE"), _RUNNER),
    "scoped_events": {"SELECT": _TENANT},
    "scoped_purges": {"SELECT": _TENANT},
    "scoped_purged": {"SELECT": _TENANT},
    "own_scopes": {"SELECT": _TENANT},
}
# Of each function: which roles may call it.
FUNCTIONS: dict[str, tuple[str, ...]] = {
    "events_follow_on": _NOBODY,
    "refuse": _NOBODY,
    "refuse_unless_purged": _NOBODY,
    "refuse_unless_erased": _NOBODY,
    "join_run": _NOBODY,
    "grant_reader": _NOBODY,
    "grant_writer": _NOBODY,
    "grant_purger": _NOBODY,
    "grant_tenant": _NOBODY,
    "grant_views": _NOBODY,
    "place_here": _NOBODY,
    "purge": ("purger",),
    "purge_some": ("purger",),
    "erase": ("purger",),
    "sign_groups": _WRITER,
    "signed_groups": (*_READER, *_TENANT),
    "claim": _WRITER,
    "move_clock": _WRITER,
    "forget_claims": _WRITER,
    "keep_notes": _WRITER,
    "forget_notes": _WRITER,
    "settle": _WRITER,
    "continue_as": _WRITER,
}


def relations(owner: Bare) -> set[str]:
    """Every table, view and sequence of the schema."""
    found = owner.execute(
        "SELECT relname FROM pg_class WHERE relnamespace = current_schema()::regnamespace"
        " AND relkind NOT IN ('i', 'I')"
    )
    return {name for (name,) in found.fetchall()}


def functions(owner: Bare) -> set[str]:
    found = owner.execute("SELECT proname FROM pg_proc WHERE pronamespace = current_schema()::regnamespace")
    return {name for (name,) in found.fetchall()}


def wrong_privileges(owner: Bare, names: dict[str, str]) -> list[str]:
    """Every privilege that a role has and should not have, or lacks and should have."""
    assert set(names) <= set(KINDS) == set(GRANTS)
    wrong = []
    for kind, role in names.items():
        if kind == "owner":
            continue
        for relation in sorted(relations(owner)):
            for verb in VERBS:
                ask = (
                    "has_any_column_privilege"
                    if verb in ("SELECT", "INSERT", "UPDATE", "REFERENCES")
                    else ("has_table_privilege")
                )
                row = owner.execute(f"SELECT {ask}(%s, %s::regclass, %s)".encode(), (role, relation, verb)).fetchone()
                wanted = kind in RELATIONS.get(relation, {}).get(verb, ())
                if row != (wanted,):
                    wrong.append(f"{kind} {'lacks' if wanted else 'has'} {verb} on {relation}")
        rows = owner.execute(
            "SELECT proname, has_function_privilege(%s, oid, 'EXECUTE') FROM pg_proc"
            " WHERE pronamespace = current_schema()::regnamespace",
            (role,),
        ).fetchall()
        wrong += [
            f"{kind} {'may' if may else 'may not'} call {name}"
            for name, may in rows
            if may != (kind in FUNCTIONS.get(name, ()))
        ]
    columns = owner.execute(
        "SELECT DISTINCT attname FROM pg_attribute, aclexplode(attacl) AS given"
        " WHERE attrelid = 'state'::regclass AND privilege_type = 'UPDATE'"
    ).fetchall()
    return wrong + [f"somebody may change state.{name}" for (name,) in columns if name != "one"]

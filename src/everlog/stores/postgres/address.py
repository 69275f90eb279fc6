"""The address of a log in PostgreSQL: a libpq URL with two options of everlog.

postgresql://user@host/database?schema=everlog&scope=acme/shop&sslmode=verify-full
                                |______________|___________| ours; the rest is libpq's
"""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import unquote

from everlog.core.fields import require_shape
from everlog.errors import InvalidSettings

SCHEMA = "everlog"
# Names have at most 63 bytes in PostgreSQL, and the channel for commits is named "everlog " and the schema.
_SCHEMA_BYTES_MAX = 55


class Address(NamedTuple):
    conninfo: str  # for libpq; may hold a password
    schema: str
    scope: str  # to which a tenant's session is limited, or empty
    shown: str  # for messages: no user, no password

    def __str__(self) -> str:
        return self.shown


def address_of(url: str) -> Address:
    base, _, query = url.partition("?")
    own = {"schema": SCHEMA, "scope": ""}
    left = []
    for part in query.split("&") if query else ():
        name, _, value = part.partition("=")
        if name in own:
            own[name] = unquote(value)
        else:
            left.append(part)
    schema, scope = own["schema"], own["scope"]
    if not schema or len(schema.encode()) > _SCHEMA_BYTES_MAX or not schema.isprintable() or schema.startswith("pg_"):
        raise InvalidSettings(
            f"{schema!r} is not a valid schema name",
            why=f"a schema's name has 1 to {_SCHEMA_BYTES_MAX} bytes and does not begin with pg_",
            hint=f"…?schema={SCHEMA}",
        )
    require_shape("scope", scope)
    scheme, _, place = base.partition("://")
    shown = f"{scheme}://{place.rpartition('@')[2]}?schema={schema}"
    return Address(base + ("?" + "&".join(left) if left else ""), schema, scope, shown)

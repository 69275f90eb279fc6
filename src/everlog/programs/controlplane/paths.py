"""Where something belongs: an org, an app of it, an environment of that; and the streams of what is there.

    acme               org/acme
    acme/shop          app/acme.shop
    acme/shop/prod     environment/acme.shop.prod
                       secret/acme.shop.prod.DATABASE_URL  volume/acme.shop.prod.data  scale/acme.shop.prod.web
    deploy/ID and route/HOST belong to an environment by their scope, which is the place's text.

A name has no dot, so that the name of a stream belongs to one place only.
"""

from __future__ import annotations

import re

import msgspec

from everlog.core.query import in_scope
from everlog.errors import InvalidField, NoSuchSubject

_NAME = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,38}[a-z0-9])?")
_PART = (_NAME, "of a-z, 0-9 and '-', at most 40 characters, such as web")
_SHAPES = {
    "host": (
        re.compile(r"(?=.{1,190}\Z)[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?(?:\.[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?)+"),
        "a name of hosts in lower case, such as shop.example.org",
    ),
    "secret": (
        re.compile(r"[A-Z][A-Z0-9_]{0,63}"),
        "of A-Z, 0-9 and '_', at most 64 characters, such as DATABASE_URL",
    ),
    "deploy": (re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}"), "of letters, digits, '.', '_' and '-', at most 64"),
    "volume": _PART,
    "scale": _PART,
}
KINDS = ("org", "app", "environment")
_FORMS = ("ORG", "ORG/APP", "ORG/APP/ENVIRONMENT")
_EXAMPLES = ("acme", "acme/shop", "acme/shop/prod")


WHERE_DEPLOYS_ARE = (
    "everlog control list for the environments; everlog control deploy history ENVIRONMENT for its deploys"
)


class ResourcePath(msgspec.Struct, frozen=True):
    """An org, an app or an environment, by its names."""

    names: tuple[str, ...]

    def __str__(self) -> str:
        return "/".join(self.names)

    @property
    def scope(self) -> str:
        return "/".join(self.names)

    @property
    def org(self) -> str:
        return self.names[0]

    @property
    def kind(self) -> str:
        return KINDS[len(self.names) - 1]

    @property
    def stream(self) -> str:
        return f"{self.kind}/{'.'.join(self.names)}"

    @property
    def around(self) -> ResourcePath | None:
        """What it is a part of."""
        return ResourcePath(self.names[:-1]) if len(self.names) > 1 else None

    def of(self, kind: str, name: str) -> str:
        """Return the stream of something that is here: a secret, a volume, the scale of a process."""
        return f"{kind}/{'.'.join(self.names)}.{name}"


def path_of(text: str, kind: str = "") -> ResourcePath:
    """Return the path that a text names. With a kind, a path of another kind is refused."""
    names = tuple(text.split("/"))
    wanted = KINDS.index(kind) + 1 if kind else 0
    right_length = len(names) == wanted if wanted else 1 <= len(names) <= len(KINDS)
    if not right_length or not all(_NAME.fullmatch(name) for name in names):
        forms = _FORMS[wanted - 1] if wanted else " or ".join(_FORMS)
        raise InvalidField(
            f"{text[:120]!r} is not {f'an {kind}' if kind else 'a place'}",
            why=f"it is written {forms}, each name of a-z, 0-9 and '-', at most 40 characters",
            hint=f"everlog control list shows what there is, such as {_EXAMPLES[wanted - 1]}",
            field="place",
        )
    return ResourcePath(names)


def names_environment(text: str) -> bool:
    names = text.split("/")
    return len(names) == len(KINDS) and all(_NAME.fullmatch(name) for name in names)


def require_name(what: str, name: str) -> str:
    """Return the name of something at a path. Refuse one of the wrong shape."""
    pattern, form = _SHAPES[what]
    if what == "deploy" and names_environment(name):
        raise InvalidField(
            f"{name} is an environment, and a deploy is wanted",
            why="an environment has many deploys, each with an id",
            hint=f"everlog control deploy history {name}",
            field=what,
        )
    if pattern.fullmatch(name) is None:
        # A name may be a secret that was typed in the wrong place, so it is not repeated.
        raise InvalidField(
            f"the name of the {what} is not one",
            why=f"it is {form}",
            hint=WHERE_DEPLOYS_ARE if what == "deploy" else "everlog control --help",
            field=what,
        )
    return name


def require_within(place: ResourcePath, fence: str) -> None:
    """Refuse a place outside of the caller's scope with the same words as a place that does not exist.

    A caller that may not change another org must not learn what is in it either.
    """
    if not in_scope(place.scope, fence):
        raise no_such(f"{place.kind} {place}", f"there is none in {fence}", within=fence)


def no_such(called: str, why: str, *, within: str = "", hint: str = "") -> NoSuchSubject:
    return NoSuchSubject(
        f"there is no {called}",
        why=why,
        hint=hint or f"everlog control list {within}".rstrip(),
        rule="a command stays within its own org, and names what is there",
        tried=f"use {called}",
    )

"""Find an issue by a reference: a short id, a uid, or the beginning of a uid that only one issue has.

What is outside of the caller's scope is not found. A purged issue is found by its name, too, so that anyone who meets
it in an old mail learns what became of it.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from itertools import takewhile
from typing import TYPE_CHECKING

from everlog.core.ids import parse_id
from everlog.core.query import in_scope
from everlog.errors import InvalidField, NoSuchSubject, RuleRefused
from everlog.programs.issues.events import KIND
from everlog.programs.issues.rules import no_such
from everlog.programs.issues.short_ids import LENGTH_MIN, Name, bucket_of, every_end, is_uid, names_in
from everlog.programs.issues.views import Current, ShortIds

if TYPE_CHECKING:
    from everlog.log.log import Log

PREFIX_MIN = 8
"""Shorter beginnings are too easily numbers, which name nothing here."""

_REFERENCE = re.compile(r"[0-9a-z-]{4,36}")
_ALIKE = str.maketrans("ilo", "110")  # as Crockford's alphabet has it: what is easily misread is read as meant


def reach(project: str, within: str, text: str) -> str:
    """Return the scope in which a caller finds issues: the project, or what the caller may see of it."""
    if in_scope(project, within):
        return project
    if in_scope(within, project):
        return within
    raise no_such(text, f"find {text}")


def taken_ends(log: Log, uid: str, scope: str) -> set[str]:
    """Return the short ids of a scope that end as this uid does, those of the purged included."""
    names = names_in(log.view(ShortIds).get(bucket_of(uid)).state)
    known = {name.uid for name in names}
    # A stream may have been purged past this program. Nobody knows how long its short id was: every end is taken.
    lost = [purge.stream.partition("/")[2] for purge in log.stored.purges() if scope in purge.scopes]
    lost = [other for other in lost if is_uid(other) and bucket_of(other) == bucket_of(uid) and other not in known]
    return {name.short_id for name in names if name.scope == scope} | every_end(lost)


def find(log: Log, text: str, *, scope: str, verb: str) -> Name:
    """Return the issue that a text names. Refuse it if there is none, or more than one."""
    asked = text.strip().lower()
    plain = asked.translate(_ALIKE)
    names = (_named(log, plain) or _begun_with(log, plain)) if _REFERENCE.fullmatch(plain) else []
    within = [name for name in names if in_scope(name.scope, scope)]
    exactly = [name for name in within if name.scope == scope]
    found = exactly if len(exactly) == 1 else within
    if len(found) == 1:
        return found[0]
    if not found:
        raise _unknown(log, text, asked, verb, scope)
    raise RuleRefused(
        f"{text} may be any of {len(found)} issues",
        rule="a reference names one issue",
        tried=f"{verb} {text}",
        allowed=[name.uid for name in found],
        why=", ".join(f"{name.uid} in {name.scope or 'no scope'}" for name in found),
        hint=f"everlog issue show {found[0].uid}",
    )


def name_of(log: Log, uid: str) -> Name | None:
    """Return the names of an issue by its uid."""
    return names_of(log, [uid]).get(uid)


def names_of(log: Log, uids: Collection[str]) -> dict[str, Name]:
    """Return the names of many issues. Unknown uids are left out."""
    buckets = log.view(ShortIds).get_many({bucket_of(uid) for uid in uids})
    wanted = set(uids)
    return {name.uid: name for bucket in buckets.values() for name in names_in(bucket) if name.uid in wanted}


def _named(log: Log, asked: str) -> list[Name]:
    uid = _uid(asked)
    if uid:
        found = name_of(log, uid)
        return [] if found is None else [found]
    bucket = log.view(ShortIds).get(asked[-LENGTH_MIN:]).state
    return [name for name in names_in(bucket) if name.short_id == asked]


def _begun_with(log: Log, asked: str) -> list[Name]:
    if len(asked) < PREFIX_MIN:
        return []
    start = f"{KIND}/{asked.upper()}"
    # All of them: whether one is in the caller's scope is not known before it is named.
    keys = takewhile(lambda key: key.startswith(start), (key for key, _ in log.view(Current).items(after=start)))
    purged = (purge.stream for purge in log.stored.purges() if purge.stream.startswith(start))
    return list(names_of(log, [stream.partition("/")[2] for stream in (*keys, *purged)]).values())


def _uid(asked: str) -> str:
    """Return the uid in its one spelling; empty if the text is not a uid."""
    try:
        uid = parse_id(asked)
    except InvalidField:
        return ""
    return uid if is_uid(uid) else ""


def _unknown(log: Log, text: str, asked: str, verb: str, scope: str) -> NoSuchSubject:
    tried = f"{verb} {text}"
    number = asked.lstrip("#")
    if number.isdigit() and len(number) < PREFIX_MIN:
        return no_such(text, tried, "numbers do not name issues here; a short id has a letter in it")
    end = asked.translate(_ALIKE).upper()
    if len(end) >= LENGTH_MIN and any(
        _is_issue(purge.stream) and purge.stream.endswith(end) and any(in_scope(one, scope) for one in purge.scopes)
        for purge in log.stored.purges()
    ):
        return no_such(
            text, tried, "the stream of an issue that ends so was purged, and nothing was left in its place"
        )
    return no_such(text, tried)


def _is_issue(stream: str) -> bool:
    return stream.startswith(f"{KIND}/")

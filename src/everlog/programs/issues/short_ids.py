"""The short id of an issue: the end of its uid in lower case, as long as it has to be. Pure.

    01M7Q2X4T9ZK3V5B8N6W1YHRAC   rac is too short for a start, so: hrac; if that is taken: yhrac, 1yhrac, …

A short id is a label for people, the uid is the identity. It is given when the issue is made, recorded in that event,
and holds for ever, also after a purge: what a purge leaves behind keeps it. It has a letter in it, so that a number
never names an issue by accident. Where two clones of a log gave out the same one before they met, the issue that
comes first in the causal order keeps it, and the other is known by a longer one: on every clone the same.

Two short ids are the same only if they end alike. So all that has to be known for one is what ends on the same four
characters: a bucket.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Mapping
from typing import Any

import msgspec

LENGTH_MIN = 4

_UID = re.compile(r"[0-7][0-9A-HJKMNP-TV-Z]{25}")


class Name(msgspec.Struct, frozen=True, kw_only=True):
    """An issue under both of its identities, and where it belongs."""

    uid: str
    short_id: str
    scope: str
    purged: bool = False


def is_uid(text: str) -> bool:
    return _UID.fullmatch(text) is not None


def bucket_of(uid: str) -> str:
    return uid[-LENGTH_MIN:].lower()


def short_id_of(uid: str, taken: Container[str], *, length_min: int = LENGTH_MIN) -> str:
    """Return the shortest end of a uid that is free and no number; all of it, if it must be."""
    text = uid.lower()
    for length in range(length_min, len(text)):
        found = text[-length:]
        if found not in taken and not found.isdigit():
            return found
    return text


def every_end(uids: Iterable[str]) -> set[str]:
    """Return every text that may have been the short id of one of these."""
    return {uid.lower()[-length:] for uid in uids for length in range(LENGTH_MIN, len(uid) + 1)}


def names_in(bucket: Mapping[str, Any] | None) -> list[Name]:
    """Return all names in a bucket of the view `issues.short_ids`, by the names that they have now."""
    if not bucket:
        return []
    found = [
        Name(uid=uid, short_id=gone["short_id"], scope=gone["scope"], purged=True)
        for uid, gone in sorted(bucket["purged"].items())
    ]
    taken = {(name.scope, name.short_id) for name in found}
    # As they were made, whatever order they came in; what was recorded holds unless an earlier one has it.
    living = sorted(bucket["issues"].items(), key=lambda item: (item[1]["lamport"], item[1]["event"]))
    for uid, issue in living:
        if uid in bucket["purged"]:
            continue
        scope, wanted = issue["scope"], issue["short_id"]
        there = {short for place, short in taken if place == scope}
        is_own = wanted != "" and uid.lower().endswith(wanted) and wanted not in there
        short = wanted if is_own else short_id_of(uid, there, length_min=max(LENGTH_MIN, len(wanted)))
        taken.add((scope, short))
        found.append(Name(uid=uid, short_id=short, scope=scope))
    return found

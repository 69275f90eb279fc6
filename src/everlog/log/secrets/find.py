"""No secret enters the log: a cheap first look at the bytes (`first_look`), then a precise one at the values.

    find_secrets(payload)  anchored patterns over every string and key, and key names that promise a secret
    refuse_secrets(...)    the refusal; it names places and kinds, and never quotes what it found

A log is for ever, so a secret in it can only be rotated, never taken back. Identifiers of secrets are welcome:
`secret_version_id`, `secret_name` and `password_changed_at` pass. There is no entropy rule, because ids, hashes
and slugs are as random as keys are.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from everlog.core.text import below
from everlog.errors import SecretFound
from everlog.hiding import HIDDEN, hide_passwords, hide_with
from everlog.log.secrets.assigned import (
    ASSIGNED_KIND,
    AWS_CHARS,
    AWS_KIND,
    assigns_a_secret,
    hide_assigned,
    holds_an_aws_secret,
)
from everlog.log.secrets.first_look import suspicious
from everlog.log.secrets.patterns import (
    ADDRESS,
    DENIED_KIND,
    PATTERNS,
    RUN_CHARS_MIN,
    SECRET_CHARS_MIN,
    is_placeholder,
    names_a_secret,
)

# Below a denied key these still only describe a secret: {"credentials": {"secret_name": …, "version_id": …}}.
_DESCRIBES = re.compile(r"(?:id|ids|name|names|version|at|ref|type|kind|status|count|arn|path|expires)\Z")
_SHORT_PATTERNS = tuple(pattern for pattern in PATTERNS if not pattern.long)


class Finding(msgspec.Struct, frozen=True):
    """Where a secret stands, and what it looks like. Never what it is."""

    path: str
    kind: str


def find_secrets(payload: Mapping[str, Any]) -> list[Finding]:
    """Every place of the payload, keys included, that holds what looks like a secret."""
    found = dict.fromkeys(_walk(payload, "$", denied=False))
    return list(found)


def refuse_secrets(event_type: str, payload: Mapping[str, Any]) -> None:
    """Raise SecretFound when the payload (or the tags) holds a secret; the error never quotes it."""
    findings = find_secrets(payload)
    if not findings:
        return
    places = "; ".join(f"{finding.path}: {finding.kind}" for finding in findings)
    raise SecretFound(
        f"{event_type} would record a secret",
        why=places,
        hint="keep the value in a secret manager and log its version id, such as secret_version_id",
        type=event_type,
        findings=[{"path": finding.path, "kind": finding.kind} for finding in findings],
    )


def _walk(value: Any, path: str, *, denied: bool) -> Iterator[Finding]:
    if isinstance(value, str):
        kinds = list(_kinds(value))
        for kind in kinds:
            yield Finding(path, kind)
        if denied and not kinds and not is_placeholder(value):
            yield Finding(path, DENIED_KIND)
    elif isinstance(value, Mapping):
        for key, item in value.items():
            if not isinstance(key, str):
                continue  # not JSON: the canonical form refuses it, and names it
            hidden = False
            for kind in _kinds(key):
                hidden = True
                yield Finding(f"{path}.<key>", kind)
            place = f"{path}.<key>" if hidden else below(path, key)
            inherits = denied and _DESCRIBES.search(key.lower()) is None
            yield from _walk(item, place, denied=inherits or names_a_secret(key))
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield from _walk(item, below(path, index), denied=denied)


def _kinds(text: str) -> Iterator[str]:
    if len(text) < SECRET_CHARS_MIN:  # as most strings are
        return
    for pattern in PATTERNS if len(text) >= RUN_CHARS_MIN else _SHORT_PATTERNS:
        if pattern.expression.search(text) is not None:
            yield pattern.kind
    if "://" in text and "@" in text:
        for match in ADDRESS.expression.finditer(text):
            if not is_placeholder(match[1]):
                yield ADDRESS.kind
                break
    if assigns_a_secret(text, is_placeholder=is_placeholder):
        yield ASSIGNED_KIND
    if len(text) >= AWS_CHARS and holds_an_aws_secret(text):
        yield AWS_KIND


def hide_secrets(text: str) -> str:
    """Return the text with *** in place of every secret in it."""
    text = hide_passwords(text)
    if not suspicious(f'"{text}"'.encode(errors="replace")) or not any(_kinds(text)):
        return text
    for pattern in PATTERNS:
        text = pattern.expression.sub(HIDDEN, text)
    return hide_assigned(text, HIDDEN, is_placeholder=is_placeholder)


hide_with(hide_secrets)

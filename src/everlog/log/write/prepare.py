"""From what a caller wants to say to what may be recorded: validated, canonical, within limits, free of secrets.

All of it happens before the log is locked, so that a slow or wrong draft holds nobody up.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Container, Mapping, Sequence
from datetime import UTC, datetime

import msgspec

from everlog.catalog.catalog import Catalog
from everlog.core.canonical import canonical_pair, encode_plain
from everlog.core.codec import SALT_BYTES, commitment
from everlog.core.fields import TEXT_CHARS_MAX, require_shape, require_tags, require_text
from everlog.core.ids import parse_id
from everlog.errors import EventTooLarge, InvalidField
from everlog.log.secrets.find import refuse_secrets
from everlog.log.secrets.first_look import (
    NUMBER_CHARS,
    familiar,
    innocent,
    innocent_words,
    known_clean,
    remember_clean,
    suspicious,
)
from everlog.log.write.draft import Draft, Limits, Prepared

_logger = logging.getLogger("everlog")


def prepare(
    drafts: Sequence[Draft], catalog: Catalog, *, actor: str, limits: Limits, keys: Sequence[str] = ()
) -> list[Prepared]:
    """Check and encode every draft, or raise the first refusal; the idempotency keys are checked for secrets."""
    prepared: list[Prepared] = []
    words = innocent_words
    checked_texts = [key for key in keys if key.rstrip(NUMBER_CHARS) not in words and not innocent(key)]
    doubtful: list[Prepared] = []
    checked = ("", "", "")  # the texts of the draft before: in a batch they are mostly the same
    streams, actors, scopes = _names_seen.values()
    validate = catalog.validate
    bytes_looked_at = min(limits.payload_bytes_warn, limits.payload_bytes_max)
    for draft, salt in zip(drafts, _salts.take(len(drafts)), strict=True):
        by = draft.actor or actor
        try:
            if draft.stream not in streams or by not in actors or draft.scope not in scopes:
                _require_names(draft.stream, by, draft.scope)
        except TypeError:  # past the type checker: a name that is no text at all
            _require_names(draft.stream, by, draft.scope)
            raise
        texts = (draft.request_id, draft.causation_id, draft.correlation_id)
        if texts != checked:
            try:
                together = "".join(texts)
            except TypeError:  # past the type checker: refused below, in words
                together = "\0"
            if len(together) > TEXT_CHARS_MAX or not together.isprintable():
                _require_texts(*texts)
            for text in texts:
                if text and text.rstrip(NUMBER_CHARS) not in words and not innocent(text):
                    checked_texts.append(text)  # noqa: PERF401 - a generator would cost more than the loop
            checked = texts
        if draft.tags != {} or draft.occurred_at is not None:
            draft = _owned(draft)
        version, payload = validate(draft.type, draft.payload)
        known = familiar(payload)
        body, payload = (encode_plain(payload), payload) if known else canonical_pair(payload)
        if len(body) > bytes_looked_at:
            _require_size(draft, body, limits)
        event_id = parse_id(draft.id) if draft.id else None
        item = Prepared(draft, version, payload, body, salt, commitment(salt, body), by, event_id)
        prepared.append(item)
        if not known:
            doubtful.append(item)
        if draft.tags:
            refuse_secrets(draft.type, draft.tags)
    if doubtful:
        _refuse_secrets(doubtful)
    if checked_texts and suspicious(
        '"{}"'.format('"\n"'.join(checked_texts)).encode()
    ):  # quoted, as texts are in a payload
        _refuse_secret_texts(drafts, keys)
    return prepared


_QUICK_CHARS_MAX = 4096
_PLAIN = frozenset((int, float, bool, type(None)))


def is_quick(draft: Draft, quick_types: Container[str]) -> bool:
    """Return True if preparing a draft takes very little time and runs no code of a user."""
    payload = draft.payload if type(draft) is Draft else None
    if type(payload) is not dict or type(draft.type) is not str or draft.type not in quick_types:
        return False
    if draft.occurred_at is not None or type(draft.tags) is not dict or draft.tags:
        return False
    chars = 0
    for key, value in payload.items():
        if type(value) is str:
            chars += len(value)
        elif type(value) not in _PLAIN:
            return False
        if type(key) is not str:
            return False
        chars += len(key)
    return chars <= _QUICK_CHARS_MAX


_NAMES_SEEN_MAX = 50_000
_names_seen: dict[str, set[str]] = {"stream": set(), "actor": set(), "scope": set()}


def _require_names(stream: str, actor: str, scope: str) -> None:
    for field, name in (("stream", stream), ("actor", actor), ("scope", scope)):
        seen = _names_seen[field]
        if isinstance(name, str) and name in seen:
            continue
        require_shape(field, name)
        if not innocent(name) and suspicious(f'"{name}"'.encode()):
            refuse_secrets("the envelope", {field: name})
        if len(seen) >= _NAMES_SEEN_MAX:
            seen.clear()
        seen.add(name)


class _Salts:
    """Random salts, fetched from the system many at a time. A forked child must not repeat its parent's."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._left: list[bytes] = []
        os.register_at_fork(after_in_child=self._left.clear)

    def take(self, count: int) -> list[bytes]:
        with self._lock:
            left = self._left
            if len(left) < count:
                size = max(count, _SALTS_AT_ONCE)
                random = os.urandom(SALT_BYTES * size)
                left.extend([random[start : start + SALT_BYTES] for start in range(0, len(random), SALT_BYTES)])
            kept = len(left) - count
            salts = left[kept:]
            del left[kept:]
            return salts


_SALTS_AT_ONCE = 256
_salts = _Salts()


def _require_texts(request: str, causation: str, correlation: str) -> None:
    require_text("request id", request)
    require_text("causation id", causation)
    require_text("correlation id", correlation)


def _refuse_secret_texts(drafts: Sequence[Draft], keys: Sequence[str]) -> None:
    for key in keys:
        refuse_secrets("the idempotency key", {"key": key})
    for draft in drafts:
        ids = {
            "request_id": draft.request_id,
            "causation_id": draft.causation_id,
            "correlation_id": draft.correlation_id,
        }
        refuse_secrets("the envelope", ids)


def _owned(draft: Draft) -> Draft:
    """Return the draft with a copy of its tags, which the caller cannot change, and its time in UTC."""
    if not isinstance(draft.tags, Mapping):
        raise InvalidField(
            f"the tags are {draft.tags!r:.60}",
            why="tags are names with texts",
            hint="give {'team': 'core'}",
            field="tags",
        )
    tags = dict(draft.tags)
    require_tags(tags)
    return msgspec.structs.replace(draft, tags=tags, occurred_at=draft.occurred_at and _in_utc(draft.occurred_at))


def _in_utc(moment: datetime) -> datetime:
    if isinstance(moment, datetime) and moment.tzinfo is not None:
        try:
            return moment.astimezone(UTC)
        except OverflowError:
            why = "in UTC it lies outside the years 1 to 9999"
    else:
        why = "a time without a zone means another moment on every machine"
    raise InvalidField(
        f"the time is {str(moment)[:60]}",
        why=why,
        hint="give it in UTC, such as 2026-11-15T12:00:00Z",
        field="occurred_at",
    )


def _require_size(draft: Draft, body: bytes, limits: Limits) -> None:
    if len(body) > limits.payload_bytes_max:
        raise EventTooLarge(
            f"the payload of {draft.type} has {len(body):,} bytes",
            why=f"a payload may have at most {limits.payload_bytes_max:,}; it stays in the log for ever",
            hint="store the content elsewhere and log its hash and address",
            size=len(body),
            limit=limits.payload_bytes_max,
        )
    if len(body) <= limits.payload_bytes_warn:
        return
    _logger.warning(
        "the payload of %s on %s has %s bytes; above %s an event makes every reader slower",
        draft.type,
        draft.stream,
        f"{len(body):,}",
        f"{limits.payload_bytes_warn:,}",
    )


def _refuse_secrets(prepared: Sequence[Prepared]) -> None:
    # Three looks, each for what the one before could not clear: known strings, literal markers, patterns.
    doubtful = [item for item in prepared if not known_clean(item.payload)]
    if doubtful and suspicious(b"\n".join([item.body for item in doubtful])):
        for item in doubtful:
            refuse_secrets(item.draft.type, item.payload)
    for item in doubtful:
        remember_clean(item.payload)

"""From what a caller wants to say to what may be recorded: validated, canonical, within limits, free of secrets.

All of it happens before the log is locked, so that a slow or wrong draft holds nobody up.
"""

from __future__ import annotations

import logging
import os
import struct
import threading
from collections.abc import Callable, Container, Mapping, Sequence
from datetime import UTC, datetime
from hashlib import sha256 as _sha256
from typing import Any

import msgspec
from msgspec.structs import astuple

from everlog.catalog.catalog import Catalog
from everlog.core.canonical import canonical, canonical_pair, encode_plain
from everlog.core.codec import SALT_BYTES, commitment
from everlog.core.fields import TEXT_CHARS_MAX, require_shape, require_tags, require_text
from everlog.core.ids import EventId, parse_id
from everlog.errors import EventTooLarge, InvalidField, NoKey
from everlog.log.secrets.find import refuse_secrets
from everlog.log.secrets.first_look import (
    NUMBER_CHARS,
    clear_texts,
    familiar,
    innocent,
    innocent_words,
    known_clean,
    remember_clean,
    suspicious,
)
from everlog.log.write.draft import Draft, Limits, Prepared, PreparedDraft
from everlog.trust.sealing import Sealing

_logger = logging.getLogger("everlog")


def prepare(
    drafts: Sequence[Draft],
    catalog: Catalog,
    *,
    actor: str,
    limits: Limits,
    keys: Sequence[str] = (),
    sealing: Sealing | None = None,
) -> Prepared:
    """Check and encode every draft, or raise the first refusal; the idempotency keys are checked for secrets."""
    try:
        found = _all_at_once(drafts, catalog, actor, limits, keys)
    except Exception:
        # Something is wrong with one of them, or only unusual. One by one, the first that is wrong is refused.
        found = None
    encode = encode_plain  # what was encoded all at once is plain, and stays so when texts take the place of values
    if found is None:
        encode, found = canonical, _one_by_one(drafts, catalog, actor, limits, keys)
    if catalog.personal and any(draft.type in catalog.personal for draft in drafts):
        _seal(found, catalog, limits, sealing, encode)
    return found


def _seal(
    prepared: Prepared, catalog: Catalog, limits: Limits, sealing: Sealing | None, encode: Callable[[Any], bytes]
) -> None:
    """Seal the personal fields of drafts. All checks were made on the values as they were given."""
    places: dict[str, list[int]] = {}
    for place, draft in enumerate(prepared.drafts):
        if draft.type in catalog.personal:
            places.setdefault(draft.type, []).append(place)
    stored = list(prepared.payloads)
    for event_type, mine in places.items():
        if sealing is None:
            raise NoKey(
                f"the personal fields of {event_type} cannot be sealed",
                why="this log was opened without a key ring",
                hint="open it with everlog.open; a log without files needs the setting keys_folder",
            )
        prepared.sealed_at = sealing.ring.count_destroyed()
        sealed = sealing.seal_all(event_type, catalog.personal[event_type], [stored[place] for place in mine])
        for place, payload in zip(mine, sealed, strict=True):
            stored[place], body = payload, encode(payload)
            if len(body) > limits.payload_bytes_max:
                _require_size(prepared.drafts[place], body, limits)
            prepared.bodies[place] = body
            prepared.commitments[place] = commitment(prepared.salts[place], body)
    prepared.stored = stored


_TYPE, _STREAM, _PAYLOAD, _ACTOR, _SCOPE, _EXPECT, _ID, _OCCURRED_AT, _REQUEST, _CAUSATION, _CORRELATION, _TAGS = (
    range(len(Draft.__struct_fields__))
)
_DICTS = {dict}


def _all_at_once(
    drafts: Sequence[Draft], catalog: Catalog, actor: str, limits: Limits, keys: Sequence[str]
) -> Prepared | None:
    """Check and encode drafts column by column: what the columns of many drafts have in common is checked once.

    Return None if a draft needs a closer look, and raise anything if one is not valid.
    """
    columns = list(zip(*map(astuple, drafts), strict=True))
    given, count = columns[_PAYLOAD], len(drafts)
    if columns[_TAGS].count({}) < count or columns[_OCCURRED_AT].count(None) < count:
        return None
    if set(map(type, given)) != _DICTS:
        return None
    actors = [by or actor for by in columns[_ACTOR]] if "" in columns[_ACTOR] else list(columns[_ACTOR])
    streams, known_actors, scopes = _names_seen.values()
    if not (streams.issuperset(columns[_STREAM]) and known_actors.issuperset(actors)):
        for stream, by, scope in zip(columns[_STREAM], actors, columns[_SCOPE], strict=True):
            _require_names(stream, by, scope)
    if not scopes.issuperset(columns[_SCOPE]):
        return None
    _check_texts((*columns[_REQUEST], *columns[_CAUSATION], *columns[_CORRELATION], *keys))
    types = columns[_TYPE]
    if types.count(types[0]) == count:
        version, check_all = catalog.at_once[types[0]]
        payloads, versions = check_all(list(given)), [version] * count
    else:
        payloads, versions = _checked_by_type(types, given, catalog)
    bodies = list(map(encode_plain, payloads))
    if max(map(len, bodies)) > min(limits.payload_bytes_warn, limits.payload_bytes_max):
        return None
    if not clear_texts(payloads, bodies):
        return None
    salts = _salts.take(count)
    commitments = [_sha256(salt + body).digest() for salt, body in zip(salts, bodies, strict=True)]
    ids: list[EventId | None] = [None] * count
    if any(columns[_ID]):
        ids = [parse_id(text) if text else None for text in columns[_ID]]
    return Prepared(drafts, versions, payloads, bodies, salts, commitments, actors, ids)


def _checked_by_type(
    types: Sequence[str], given: Sequence[Any], catalog: Catalog
) -> tuple[list[dict[str, Any]], list[int]]:
    """Return payloads of several types with their versions, each type checked with one call."""
    places: dict[str, list[int]] = {}
    for place, event_type in enumerate(types):
        places.setdefault(event_type, []).append(place)
    payloads: list[dict[str, Any]] = [{}] * len(types)
    versions = [0] * len(types)
    for event_type, mine in places.items():
        version, check_all = catalog.at_once[event_type]
        for place, payload in zip(mine, check_all([given[place] for place in mine]), strict=True):
            payloads[place], versions[place] = payload, version
    return payloads, versions


def _check_texts(texts: Sequence[str]) -> None:
    """Raise InvalidField if a text may be too long, not printable or a secret: then each is looked at alone."""
    if not "".join(texts).isprintable() or max(map(len, texts)) > TEXT_CHARS_MAX:
        raise InvalidField("a text needs a closer look")
    words, doubtful = innocent_words, []
    for text in texts:
        if text and text.rstrip(NUMBER_CHARS) not in words and not innocent(text):
            doubtful.append(text)  # noqa: PERF401 - a comprehension would be a call
    if doubtful and suspicious(_quoted(doubtful)):
        raise InvalidField("a text needs a closer look")


def _quoted(texts: Sequence[str]) -> bytes:
    """Return texts as they would be in a payload."""
    return '"{}"'.format('"\n"'.join(texts)).encode()


def _one_by_one(
    drafts: Sequence[Draft], catalog: Catalog, actor: str, limits: Limits, keys: Sequence[str]
) -> Prepared:
    prepared: list[PreparedDraft] = []
    words = innocent_words
    checked_texts = [key for key in keys if key.rstrip(NUMBER_CHARS) not in words and not innocent(key)]
    doubtful: list[PreparedDraft] = []
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
        item = PreparedDraft(draft, version, payload, body, salt, commitment(salt, body), by, event_id)
        prepared.append(item)
        if not known:
            doubtful.append(item)
        if draft.tags:
            refuse_secrets(draft.type, draft.tags)
    if doubtful:
        _refuse_secrets(doubtful)
    if checked_texts and suspicious(_quoted(checked_texts)):
        _refuse_secret_texts(drafts, keys)
    columns = [[getattr(item, name) for item in prepared] for name in PreparedDraft.__struct_fields__[:-1]]
    return Prepared(*columns)


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
                left.extend(struct.unpack(f"{SALT_BYTES}s" * size, os.urandom(SALT_BYTES * size)))
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


def _refuse_secrets(prepared: Sequence[PreparedDraft]) -> None:
    # Three looks, each for what the one before could not clear: known strings, literal markers, patterns.
    doubtful = [item for item in prepared if not known_clean(item.payload)]
    if doubtful and suspicious(b"\n".join([item.body for item in doubtful])):
        for item in doubtful:
            refuse_secrets(item.draft.type, item.payload)
    for item in doubtful:
        remember_clean(item.payload)

"""Forget a person: what a log has of them, and the one write that erases what their keys do not.

The values of personal fields are sealed, so destroying the keys of a person (`everlog.trust.ring`) makes them
unreadable everywhere. What is left for the log:

    payloads     of events that were recorded before a field of them was declared personal: erased
    what waits   of other nodes (`everlog.log.admit.quarantine`), with such a value: its payload is removed
    beside it    refusals, dead letters and stored responses, which may quote a value: removed
    a record     `subject.forgotten`, with the ids of the keys and the events that were erased; never the person

All of it is one write. Views and snapshots follow its note (`everlog.log.forgotten`).
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Collection, Iterable, Iterator
from typing import Any

import msgspec

from everlog.catalog.catalog import Catalog
from everlog.catalog.personal import Personal
from everlog.core.codec import header_bytes, header_hash
from everlog.core.event import START, Event, Position, Recorded
from everlog.core.ids import EventId
from everlog.core.query import Query
from everlog.errors import SchemaBroken
from everlog.log.admit.erased import Forgotten
from everlog.log.admit.quarantine import Quarantine, held_events
from everlog.log.dead_letters import blank_letters
from everlog.log.forgotten import Forget, count_forgets, forgets_in, put_forget
from everlog.log.log import Log
from everlog.log.records import (
    FORGETS,
    FORGOTTEN,
    LISTED_MAX,
    SubjectForgotten,
    events_listed,
    forgotten_in,
    listed,
)
from everlog.log.write.draft import Draft
from everlog.log.write.idempotency import forget_responses
from everlog.log.write.refusals import forget_refusals
from everlog.stores.contract import InGit
from everlog.stores.open_write import OpenWrite
from everlog.trust.sealing import key_id_of

VALUE_CHARS_MIN = 6
"""A shorter value is not searched for: it occurs by chance."""

VALUES_MAX = 1_000
_VALUE_CHARS_MAX = 500


class Concerned(msgspec.Struct, frozen=True, kw_only=True):
    """What a log has of a person."""

    subject: str
    keys: list[str] = []  # of the ring, and of envelopes
    events: list[EventId] = []  # with a personal field of theirs
    open: list[EventId] = []  # those of them that have a value which was never sealed
    held: list[tuple[str, int, bytes]] = []  # events that wait and have such a value: origin, number, hash
    gone: list[tuple[str, int, bytes]] = []  # events whose payload is gone with a record that does not count
    streams: list[str] = []
    values: list[str] = []  # texts to search for afterwards
    follows: str = ""  # the record of another node that asks for it
    upto: int = START  # the position up to which the log was searched

    def __bool__(self) -> bool:
        return bool(self.keys or self.events or self.held)


def find_subject(log: Log, subject: str) -> Concerned:
    """Find everything that the log has of a person in personal fields, whichever version declared them."""
    personal = log.catalog.personal_fields()
    ring = None if log.sealing is None else log.sealing.ring
    known = set() if ring is None else set(ring.ids_of(subject))
    keys, events, open_ones, streams = set(known), [], [], dict[str, None]()
    values: dict[str, None] = {}
    upto = log.head()
    waiting = {one.event.id: one for one in held_events(log.writer.small_state)} if personal else {}
    held = []
    if personal:
        recorded_events = (one.event for one in log.stored.read(Query(types=frozenset(personal)), upto=upto))
        for event in (*recorded_events, *(one.event for one in waiting.values() if one.event.type in personal)):
            shown = _opened(log, event)
            stored, is_open, found = event.payload, False, False
            for name, mark in personal[event.type].items():
                sealed_with = key_id_of(stored.get(name))
                if sealed_with not in known:
                    own_mark = log.catalog.personal_in(event.type, event.version).get(name, mark)
                    if subject not in (_named(shown, stored, mark), _named({}, stored, own_mark)):
                        continue
                    made_for = None if ring is None else ring.made_for(sealed_with)
                    if made_for is not None and made_for not in sealed_for(log.catalog, event, name):
                        continue  # somebody recorded a value of another person once more, as theirs
                value = shown.get(name, stored.get(name))
                if value is None or (ring is not None and ring.is_destroyed(sealed_with)):
                    continue
                found = True
                if sealed_with:
                    keys.add(sealed_with)
                else:
                    is_open = True
                if not sealed_with or (ring is not None and ring.key(sealed_with) is not None):
                    _gather(value, values)
            if found and event.id in waiting:
                if is_open:
                    held.append(_place(event))
            elif found:
                events.append(event.id)
                streams[event.stream] = None
                if is_open:
                    open_ones.append(event.id)
    return Concerned(
        subject=subject,
        keys=sorted(keys),
        events=events,
        open=open_ones,
        held=held,
        streams=list(streams),
        values=list(values)[:VALUES_MAX],
        upto=upto,
    )


def find_listed(log: Log, record: Recorded, followed: Iterable[Event]) -> Concerned:
    """Find what the log has of what a record of another node lists. That record does not name the person.

    It is also what is gone here if none of the records lists it that others follow.
    """
    accounted = {place for one in followed for place in events_listed(one)}
    ring = None if log.sealing is None else log.sealing.ring
    places = {(origin, number): hash for origin, number, hash in events_listed(record.event)}
    keys, events, open_ones, streams = set(forgotten_in(record.event).keys), [], [], dict[str, None]()
    values: dict[str, None] = {}
    personal = log.catalog.personal_fields()
    upto = log.head()
    held, gone = [], list[tuple[str, int, bytes]]()
    waiting = {one.event.id: one.event for one in held_events(log.writer.small_state)}
    for event in (*(one.event for one in log.stored.read(upto=upto)), *waiting.values()):
        hash = places.get((event.origin, event.origin_seq))
        is_listed = hash is not None and _place(event)[2] == hash
        if is_listed and not event.salt:
            gone += [] if _place(event) in accounted else [_place(event)]
            is_listed = False
        sealed = [name for name, value in event.payload.items() if key_id_of(value) in keys]
        if not is_listed and not sealed:
            continue
        shown = _opened(log, event)
        if event.id in waiting:
            held += [_place(event)] if is_listed else []
        else:
            events.append(event.id)
            streams[event.stream] = None
            open_ones += [event.id] if is_listed else []
        for name in personal.get(event.type, {}):
            sealed_with = key_id_of(event.payload.get(name))
            if (not sealed_with and is_listed) or (ring is not None and name in sealed and ring.key(sealed_with)):
                _gather(shown.get(name), values)
    return Concerned(
        subject="",
        keys=sorted(keys),
        events=events,
        open=open_ones,
        held=held,
        gone=gone,
        streams=list(streams),
        values=list(values)[:VALUES_MAX],
        follows=record.event.id,
        upto=upto,
    )


def find_unrecorded(log: Log) -> Concerned:
    """Find what is sealed with keys that were destroyed here, if no record in the log says so: it was put back from a
    copy that is older than the forget."""
    personal = log.catalog.personal_fields()
    destroyed = log.sealing.ring.destroyed if log.sealing is not None and personal else frozenset[str]()
    records = log.stored.read(Query(types=frozenset((FORGOTTEN,)))) if destroyed else ()
    keys = destroyed - {key for one in records for key in forgotten_in(one.event).keys}
    if not keys:
        return Concerned(subject="")
    upto, events, streams, found = log.head(), [], dict[str, None](), set[str]()
    for event in (one.event for one in log.stored.read(Query(types=frozenset(personal)), upto=upto)):
        sealed_with = {key_id_of(value) for value in event.payload.values()} & keys
        if sealed_with:
            events.append(event.id)
            streams[event.stream] = None
            found |= sealed_with
    return Concerned(subject="", keys=sorted(found), events=events, streams=list(streams), upto=upto)


def record_forgotten(log: Log, concerned: Concerned, *, actor: str, request: str) -> Forget:
    """Erase what was never sealed, and record it. The same `request` is recorded once, and then found again."""
    log.writer.refusals.write()  # those that wait, so that they are among those that are removed
    return log.writer.write(lambda write: _record(log, write, concerned, actor, request), exclusive=True)


def _record(log: Log, write: OpenWrite, concerned: Concerned, actor: str, request: str) -> Forget:
    before = forgets_in(write)
    done = next((one for one in before if one.request == request), None)
    if done is not None:
        return done
    concerned = _with_later(write, concerned)
    found = (write.get(event_id) for event_id in concerned.open)
    erasing = [recorded.event for recorded in found if recorded is not None and recorded.event.salt]
    quarantine = Quarantine(write)
    held = [place for place in concerned.held if quarantine.whole(place[0], place[2]) is not None]
    places = [*map(_place, erasing), *held, *concerned.gone]
    drafts = [
        Draft(FORGOTTEN, FORGETS, SubjectForgotten([] if part else concerned.keys, erased, concerned.follows), actor)
        for part, erased in enumerate(listed(places))
    ]
    if not drafts:
        drafts = [Draft(FORGOTTEN, FORGETS, SubjectForgotten(concerned.keys, {}, concerned.follows), actor)]
    asked = log.writer.request(drafts, "", "forget", decided=True)
    log.writer.prepare([asked])
    if asked.error is not None:
        raise asked.error
    records = [recorded.event.id for recorded in asked.do(write).records]
    for part, by in enumerate(records):
        mine = slice(part * LISTED_MAX, (part + 1) * LISTED_MAX)
        write.erase([event.id for event in erasing[mine]], by=by)
        for origin, _, hash in places[mine][len(erasing[mine]) :]:
            quarantine.forget(origin, hash, by)  # if it waits
    quarantine.save()
    write.scrubs = True  # what is removed beside the events leaves no bytes either
    forget_refusals(write, concerned.streams, byte_forms(concerned.values))
    blank_letters(write, concerned.streams)
    forget_responses(write, set(concerned.events))
    forget = Forget(
        number=1 + max((one.number for one in before), default=0),
        request=request,
        at_us=write.now_us,
        keys=tuple(concerned.keys),
        streams=tuple(concerned.streams),
        records=tuple(records),
        erased=len(erasing) + len(held),
    )
    put_forget(write, forget)
    return forget


def forget_again(log: Log) -> int:
    """Erase what was forgotten here and came back with a file or with git; return how many payloads had come back."""
    listed_here = Forgotten(log.stored).listed
    if not listed_here:
        return 0
    in_git = isinstance(log.stored, InGit) and log.stored.checkout() is not None
    numbers = {(origin, number) for origin, number, _ in listed_here}
    found: dict[str, list[Event]] = {}
    for event in (recorded.event for recorded in log.stored.read()):
        if (event.origin, event.origin_seq) in numbers and (event.salt or in_git):
            by = listed_here.get(_place(event))
            if by is not None:
                found.setdefault(by, []).append(event)
    if not found:
        return 0
    back = [event for events in found.values() for event in events if event.salt]

    def erase(write: OpenWrite) -> None:
        for by, events in found.items():
            write.erase([event.id for event in events], by=EventId(by), again=in_git)
        if back:
            number = 1 + count_forgets(write)
            streams = tuple({event.stream: None for event in back})
            request = f"again {number}"
            put_forget(
                write,
                Forget(number=number, request=request, at_us=write.now_us, keys=(), streams=streams, records=()),
            )

    log.writer.write(erase, exclusive=True)
    return len(back)


def _with_later(write: OpenWrite, concerned: Concerned) -> Concerned:
    """Return what is concerned with the events that were recorded since, sealed with a key that is destroyed by now.

    Their values are gone, but a view may have one: another process went on while the log was searched.
    """
    keys = set(concerned.keys)
    later = [
        recorded.event
        for recorded in write.read(after=Position(concerned.upto))
        if any(key_id_of(value) in keys for value in recorded.event.payload.values())
    ]
    return msgspec.structs.replace(
        concerned,
        events=list(dict.fromkeys((*concerned.events, *(event.id for event in later)))),
        streams=list(dict.fromkeys((*concerned.streams, *(event.stream for event in later)))),
    )


def _place(event: Event) -> tuple[str, int, bytes]:
    return event.origin, event.origin_seq, header_hash(header_bytes(event))


def _opened(log: Log, event: Event) -> dict[str, Any]:
    """Return the payload as a reader gets it; as it is stored, if no upcaster can convert it."""
    try:
        return log.catalog.upcast(event).payload
    except SchemaBroken:
        return log.catalog.opened(event.type, event.payload)


def sealed_for(catalog: Catalog, event: Event, field: str) -> set[str]:
    """Return whom a value may have been sealed for: the person whom the version of the event itself names, as it is
    stored. If that version is not declared here, it is any text or number of the payload."""
    mark = catalog.personal_in(event.type, event.version).get(field)
    named = event.payload.values() if mark is None else (event.payload.get(mark.of),)
    return {str(name) for name in named if type(name) in (str, int) and name != "" and not key_id_of(name)}


def _named(shown: dict[str, Any], stored: dict[str, Any], mark: Personal) -> str:
    return str(shown.get(mark.of, stored.get(mark.of, "")))


def _gather(value: Any, found: dict[str, None]) -> None:
    """Add the texts of a value that are long enough to be searched for."""
    for text in _texts(value):
        if len(text) >= VALUE_CHARS_MIN:
            found[text[:_VALUE_CHARS_MAX]] = None


def _texts(value: Any) -> Iterator[str]:
    match value:
        case str():
            yield value
        case dict():
            for item in value.values():
                yield from _texts(item)
        case list():
            for item in value:
                yield from _texts(item)


def byte_forms(values: Collection[str]) -> list[bytes]:
    """Return every form in which texts may be stored: as they are, as JSON with and without other characters, and
    within base64, as events that wait are stored."""
    forms: dict[bytes, None] = {}
    for text in values:
        forms[text.encode()] = None
        forms[msgspec.json.encode(text)[1:-1]] = None
        forms[json.dumps(text)[1:-1].encode()] = None
        forms.update(dict.fromkeys(_within_base64(text.encode())))
    return list(forms)


def _within_base64(text: bytes) -> Iterator[bytes]:
    """Return the characters that a text has within base64, for each of the three places at which it may begin. Those
    that also depend on its neighbours are left out."""
    for before in range(3):
        whole = (before + len(text)) // 3 * 4
        yield b64encode(bytes(before) + text)[4 if before else 0 : whole]

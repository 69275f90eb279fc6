"""The intake check: what is asked of events from elsewhere before the log is looked at.

An event is examined alone: shape, size, canonical form, commitment, time, and the id and signature of an origin that
is a key. A group that came whole is checked with one signature, and stored with it. An event whose group is not here
proves itself by its path, and is stored with that proof.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from everlog.core.clock import LAMPORT_MAX
from everlog.core.codec import proof
from everlog.core.event import Event, whole
from everlog.core.group import GROUP_MAX
from everlog.core.ids import id_matches
from everlog.core.merkle import path
from everlog.errors import EventTooLarge, EverlogError, IdConflict, InvalidField, InvalidSignature
from everlog.log.admit.events import refuse_unacceptable
from everlog.log.admit.outcomes import Outcome, refused
from everlog.stores.contract import Encoded, encode_event
from everlog.trust.group_signature import GroupSignature, event_is_signed, group_is_signed, proof_of
from everlog.trust.keys import is_key

PAYLOAD_BYTES_MAX = 64 * 1024 * 1024
"""No log can be set to accept a larger payload."""

_LAST_ONES_MAX = 8  # so many events with the last number of one group are tried


class WholeGroup(NamedTuple):
    """A signed group that came whole: its signature, and the hashes of its events in order."""

    signed: GroupSignature
    hashes: list[bytes]

    def proof(self, encoded: Encoded) -> Encoded:
        """Return one of its events with its proof, to be stored without the others."""
        event, group = encoded.event, self.signed
        signature = proof(group.signature, (group.first_seq, group.count))
        way = path(self.hashes, event.origin_seq - group.first_seq)
        return replace(encoded, event=replace(event, signature=signature, path=way))


class Intake(NamedTuple):
    """What passed the check and what did not, by the place of each event in the batch."""

    accepted: dict[int, Encoded]
    refused: dict[int, Outcome]
    groups: dict[bytes, WholeGroup]  # by the hash of each of their events


def take_in(
    events: Sequence[Event], groups: Sequence[GroupSignature], *, log_id: str, sent_for: str, now_ms: int
) -> Intake:
    """Check every event of a batch. `sent_for` is the id of the log that the sender names, if it names one."""
    accepted: dict[int, Encoded] = {}
    bad: dict[int, Outcome] = {}
    signed: dict[int, Encoded] = {}
    for place, event in enumerate(events):
        try:
            encoded = _encoded(event, now_ms=now_ms)
        except EverlogError as error:
            bad[place] = refused(str(event.id)[:64], error)
            continue
        if sent_for not in ("", log_id):
            bad[place] = Outcome(event.id, "refused", "replayed_elsewhere", f"it was sent for the log {sent_for:.64}")
        elif is_key(encoded.event.origin):
            signed[place] = encoded
        else:
            accepted[place] = encoded
    whole_groups: dict[bytes, WholeGroup] = {}
    if signed:
        whole_groups = _Signatures(log_id, signed).whole_groups(groups)
        for place, encoded in signed.items():
            if encoded.hash in whole_groups or _proves_itself(log_id, encoded):
                accepted[place] = encoded
            else:
                bad[place] = refused(encoded.event.id, _not_signed(encoded.event))
    return Intake(accepted, bad, whole_groups)


_FETCH_AGAIN = "fetch the event again, with its group or its path"


def refuse_unsigned(log_id: str, encoded: Sequence[Encoded], *, hint: str = _FETCH_AGAIN) -> None:
    """Refuse events of origins that are keys, unless each proves that its origin signed it in this log.

    The id of such an event must be one that its origin makes.
    """
    for one in encoded:
        if is_key(one.event.origin):
            _refuse_wrong_id(one.event)
            if not _proves_itself(log_id, one):
                raise _not_signed(one.event, hint)


def _not_signed(event: Event, hint: str = _FETCH_AGAIN) -> InvalidSignature:
    return InvalidSignature(
        f"event {event.id} is not signed by its origin {event.origin}",
        why="the signature is missing, or it covers another event, or it was made for another log",
        hint=hint,
        id=event.id,
    )


def _encoded(event: Event, *, now_ms: int) -> Encoded:
    event = whole(event)
    if event.erased_by:  # nothing covers it: this log finds the record itself
        event = replace(event, erased_by="")
    refuse_unacceptable(event, now_ms=now_ms)
    if not 1 <= event.lamport <= LAMPORT_MAX:
        raise InvalidField(
            f"the lamport of an event from outside is {event.lamport}",
            why="it counts from 1 and stays below 2^53",
            hint="fetch the event again from its origin",
            field="lamport",
        )
    _refuse_wrong_id(event)
    encoded = encode_event(event)
    if len(encoded.payload) > PAYLOAD_BYTES_MAX:
        raise EventTooLarge(
            f"the payload of event {event.id} has {len(encoded.payload):,} bytes",
            why=f"no log accepts more than {PAYLOAD_BYTES_MAX:,}",
            hint="keep large content elsewhere, and its hash in the event",
            id=event.id,
        )
    return encoded


def _refuse_wrong_id(event: Event) -> None:
    if is_key(event.origin):
        if not id_matches(event.id, event.origin, event.origin_seq):
            raise IdConflict(
                f"the id {event.id} is not that of event {event.origin_seq} of origin {event.origin}",
                why="an id of a signed log encodes its origin and its number, so that nobody takes the id of another"
                " event",
                hint="fetch the event again from its origin",
                id=event.id,
            )
    elif event.signature or event.path:
        raise InvalidSignature(
            f"event {event.id} has a signature, and its origin {event.origin} is not a key",
            why="only an origin that is a key signs",
            hint="fetch the event again from its origin",
            id=event.id,
        )


class _Signatures:
    """Finds the signed groups of a batch that came whole."""

    def __init__(self, log_id: str, signed: Mapping[int, Encoded]) -> None:
        self._log_id = log_id
        self._events = {encoded.hash: encoded.event for encoded in signed.values()}
        self._numbered: dict[tuple[str, int], list[bytes]] = {}
        for hash, event in self._events.items():
            self._numbered.setdefault((event.origin, event.origin_seq), []).append(hash)

    def whole_groups(self, named: Sequence[GroupSignature]) -> dict[bytes, WholeGroup]:
        """Return the groups of which every event is here and whose signatures are valid, by the hash of each event.

        Those that events carry count as well as those that are named. An event is in one of them.
        """
        carried = [
            GroupSignature(event.origin, first, count, signature)
            for event in self._events.values()
            for signature, first, count in (proof_of(event),)
            if count
        ]
        found: dict[bytes, WholeGroup] = {}
        for group in dict.fromkeys((*named, *carried)):
            if not 1 <= group.count <= GROUP_MAX or not is_key(group.origin):
                continue
            for hashes in self._chains(group):
                if not any(hash in found for hash in hashes) and _is_signed(self._log_id, group, hashes):
                    found.update(dict.fromkeys(hashes, WholeGroup(group, hashes)))
                    break
        return found

    def _chains(self, group: GroupSignature) -> Iterator[list[bytes]]:
        """Return the runs of linked events that may be the group: more than one if somebody added to the batch."""
        last = self._numbered.get((group.origin, group.first_seq + group.count - 1), ())
        for end in last[:_LAST_ONES_MAX]:
            hashes = [end]
            while len(hashes) < group.count:
                after = self._events[hashes[-1]]
                event = self._events.get(after.previous)
                if event is None or (event.origin, event.origin_seq) != (group.origin, after.origin_seq - 1):
                    break
                hashes.append(after.previous)
            else:
                yield hashes[::-1]


def _is_signed(log_id: str, group: GroupSignature, hashes: Sequence[bytes]) -> bool:
    try:
        return group_is_signed(log_id, group.origin, group.first_seq, hashes, group.signature)
    except EverlogError:  # the origin looks like a key, and is none
        return False


def _proves_itself(log_id: str, encoded: Encoded) -> bool:
    event = encoded.event
    signature, first, count = proof_of(event)
    try:
        return count > 0 and event_is_signed(
            log_id, event.origin, event.origin_seq, encoded.hash, (first, count), event.path, signature
        )
    except EverlogError:
        return False

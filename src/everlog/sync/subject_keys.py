"""Keys of persons on their way to the nodes of members: sealed to each node, beside the events and never as events.

A node asks for the keys that envelopes in its events name and that it does not have. The answer is a box that only
the key of that node opens (crypto_box_seal), so it does not matter who carries it. A key is taken only if it opens an
envelope that is here, and for the person whom that is about, so nobody can put a wrong one under its id. Anybody can
record an envelope of one person again, for another. So one that fits is enough, and a key that came only opens:
nothing is ever sealed with it (`everlog.trust.ring`). A key that was destroyed here, or that the record of a forget
lists, is neither asked for, nor given, nor taken.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from everlog.core.event import START, Event, Position
from everlog.core.query import Query
from everlog.errors import EverlogError, LogClosed, NoKey
from everlog.log.forget import sealed_for
from everlog.log.forgotten import derive_again
from everlog.log.log import Log
from everlog.log.records import FORGOTTEN, forgotten_in
from everlog.sync.wire import KEYS_MAX
from everlog.trust.keys import is_key, key_of
from everlog.trust.sealing import key_id_of, opened

if TYPE_CHECKING:
    from everlog.trust.ring import KeyRing, Travelling

_RECORDS = Query(types=frozenset((FORGOTTEN,)))


ENVELOPES_MAX = 4
"""How many envelopes of one key are kept per origin: one origin does not take the room of another."""


class _Envelope(NamedTuple):
    event_type: str
    field: str
    text: str
    subjects: set[str]  # whom it may be about

    def fits(self, key: Travelling) -> bool:
        if key.subject not in self.subjects:
            return False
        return opened(self.text, key=key.secret, event_type=self.event_type, field=self.field) is not msgspec.UNSET


class _Lacking:
    """A key that is not here: envelopes of it by origin, and the streams that it is needed in."""

    def __init__(self) -> None:
        self.envelopes: dict[str, list[_Envelope]] = {}
        self.streams: set[str] = set()

    def add(self, event: Event, envelope: _Envelope) -> None:
        self.streams.add(event.stream)
        known = self.envelopes.setdefault(event.origin, [])
        if len(known) < ENVELOPES_MAX and not any(envelope.subjects <= one.subjects for one in known):
            known.append(envelope)

    def fits(self, key: Travelling) -> bool:
        return any(one.fits(key) for envelopes in self.envelopes.values() for one in envelopes)


class SubjectKeys:
    """The keys of persons that one node lacks, has and may give."""

    def __init__(self, log: Log, may_have: Callable[[str], bool]) -> None:
        """`may_have` decides whether a node, by its key, is one of a member."""
        self._log = log
        self._may_have = may_have
        self._read: tuple[str, Position] = ("", START)
        self._lacking: dict[str, _Lacking] = {}

    @property
    def ring(self) -> KeyRing | None:
        """The ring of a signed log that has personal fields; None if nothing is exchanged."""
        if self._log.sealing is None or not is_key(self._log.identity.origin):
            return None
        if not self._log.catalog.personal_fields():
            return None
        try:
            return self._log.sealing.ring
        except NoKey:  # there is no place for one
            return None

    def lacking(self) -> list[str]:
        """Return the ids of keys that envelopes name and that are not here, though nobody has destroyed them.

        If there are too many to ask for, it is another part of them each time: some may be of no key at all.
        """
        lacking = self._all_lacking()
        return sorted(random.sample(lacking, KEYS_MAX) if len(lacking) > KEYS_MAX else lacking)

    def _all_lacking(self) -> list[str]:
        ring = self.ring
        if ring is None:
            return []
        self._look()
        gone = self._gone() if self._lacking else ()
        for key_id in list(self._lacking):
            if ring.key(key_id) is not None or ring.is_destroyed(key_id) or key_id in gone:
                del self._lacking[key_id]
        return list(self._lacking)

    def box_for(self, node: str, key_ids: Collection[str]) -> bytes:
        """Return keys in a box that only this node opens; nothing if it may have none of them."""
        ring = self.ring
        if ring is None or not key_ids or not is_key(node) or not self._may_have(node):
            return b""
        gone = self._gone()
        mine = [key_id for key_id in key_ids if key_id not in gone and ring.key(key_id) is not None]
        try:
            return ring.sealed_for(key_of(node), mine) if mine else b""
        except EverlogError:  # it looks like a key, and is none
            return b""

    def take_in(self, box: bytes) -> int:
        """Take the keys of a box that this node lacks, and that open what they are for; return how many."""
        ring = self.ring
        lacking = self._all_lacking() if box else ()
        if ring is None or not lacking:
            return 0

        def is_right(one: Travelling) -> bool:
            return one.id in self._lacking and self._lacking[one.id].fits(one)

        try:
            if (own := self._log.signing_key()) is not None:
                ring.add_node_key(own)  # the log may have taken a new one since the ring was opened
            came = ring.take_in(box, is_right)
        except (NoKey, msgspec.MsgspecError, RecursionError):  # it was sealed for another node, or it is not a box
            return 0
        streams = {stream for key_id in came for stream in self._lacking.pop(key_id).streams}
        if streams:
            # Views have stand-ins for these values.
            self._log.writer.write(lambda write: derive_again(write, streams, request=f"keys/{min(came)}"))
            with suppress(LogClosed):  # a log that was opened without views
                self._log.views.forget_missed()
        return len(came)

    def _look(self) -> None:
        """Look for envelopes in the events that came since the last time."""
        personal, ring = self._log.catalog.personal_fields(), self.ring
        assert ring is not None, "the caller has looked"
        head, (epoch, after) = self._log.head(), self._read
        if epoch != self._log.identity.epoch:
            after, self._lacking = START, {}
        if after == head:
            return
        for recorded in self._log.stored.read(Query(types=frozenset(personal)), after=after, upto=head):
            event = recorded.event
            for name, text in event.payload.items():
                key_id = key_id_of(text)
                if key_id and (key_id in self._lacking or ring.key(key_id) is None):
                    envelope = _Envelope(event.type, name, text, sealed_for(self._log.catalog, event, name))
                    self._lacking.setdefault(key_id, _Lacking()).add(event, envelope)
        self._read = (self._log.identity.epoch, head)

    def _gone(self) -> set[str]:
        """Return the keys that a forget lists which others follow, whether this node has followed it or not."""
        records = [
            one.event for one in self._log.counted(self._log.stored.read(_RECORDS)) if is_key(one.event.origin)
        ]
        if not records:
            return set()
        writer = self._log.writer
        allowed = writer.write(lambda write: [one for one in records if writer.may_remove(write, one)])
        return {key_id for one in allowed for key_id in forgotten_in(one).keys}

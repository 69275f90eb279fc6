"""The signed groups that came whole in a batch: their events are stored under one signature."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec.structs import force_setattr, replace

from everlog.core.group import GroupFacts, SignedGroup
from everlog.log.admit.intake import WholeGroup
from everlog.stores.contract import Encoded
from everlog.stores.open_write import OpenWrite
from everlog.trust.group_signature import proof_of


class SentGroups:
    """The groups of a batch, by the hash of each of their events."""

    def __init__(self, groups: Mapping[bytes, WholeGroup]) -> None:
        self._groups = groups

    def in_groups(self, write: OpenWrite, origin: str, run: Sequence[Encoded], *, whole: bool) -> list[Encoded]:
        """Return events that follow each other as they are stored: those of a group that is there whole without
        single proofs, unless `whole` is False."""
        kept: list[Encoded] = []
        place, last = 0, run[-1].event.origin_seq
        while place < len(run):
            signature, first, count = self._signed_with(run[place])
            some = run[place : place + count]
            is_whole = whole and first == some[0].event.origin_seq and first + count - 1 <= last
            if is_whole and all(self._signed_with(one) == (signature, first, count) for one in some):
                kept += _as_group(write, GroupFacts(0, origin, first, count, b"", b"", signature), some)
                place += count
            else:
                kept.append(self.with_proof(run[place]))
                place += 1
        return kept

    def with_proof(self, encoded: Encoded) -> Encoded:
        """Return an event with its own proof."""
        group = self._groups.get(encoded.hash)
        return encoded if group is None else group.proof(encoded)

    def _signed_with(self, encoded: Encoded) -> tuple[bytes, int, int]:
        group = self._groups.get(encoded.hash)
        if group is None:
            return proof_of(encoded.event)
        return group.signed.signature, group.signed.first_seq, group.signed.count


def _as_group(write: OpenWrite, facts: GroupFacts, events: Sequence[Encoded]) -> list[Encoded]:
    """Have events stored as one signed group; return them without proofs that they carry."""
    write.keep_signature(facts.origin, facts.first_seq, facts.signature, (facts.first_seq, facts.count))
    group = SignedGroup(facts, [encoded.hash for encoded in events])
    found = []
    for encoded in events:
        event = replace(encoded.event, signature=b"", path=())
        force_setattr(event, "group", group)
        found.append(replace(encoded, event=event))
    return found

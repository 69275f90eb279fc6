"""The stage `seal`: every group of new events is signed before the flush, and so before any receipt.

One signature per stored group (`everlog.trust.group_signature`), at most 128 events each, all under one flush.
"""

from __future__ import annotations

from everlog.core.merkle import root
from everlog.stores.open_write import OpenWrite
from everlog.trust.group_signature import signed_message
from everlog.trust.signer import Signer


class Seal:
    name = "seal"

    def __init__(self, signer: Signer) -> None:
        self._signer = signer
        self._ends: dict[str, int] = {}  # the last numbers that this write signs, by origin

    def run(self, write: OpenWrite) -> None:
        self._ends.clear()
        for group in write.own_groups():
            facts = group.facts
            message = signed_message(
                write.identity.log_id, facts.origin, facts.first_seq, facts.count, root(group.hashes)
            )
            write.sign(group, self._signer.key(facts.origin).sign(message))
            self._ends[facts.origin] = facts.first_seq + facts.count - 1

    def committed(self) -> None:
        for origin, number in self._ends.items():
            self._signer.has_signed(origin, number)

    def undone(self) -> None:
        self._ends.clear()

"""Check a log of format 1 from its bytes before anything is written: every bad row is named."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from everlog.core.event import START, Position, Purge
from everlog.core.text import counted
from everlog.errors import Damaged
from everlog.log.verify.audit import Verifier
from everlog.transfer.survey import position_of
from everlog.transfer.upgrade.format1 import model
from everlog.transfer.upgrade.format1.model import Bad, OldLog, Slot
from everlog.transfer.upgrade.rechain import Links

LISTED_MAX = 20


class Checked(NamedTuple):
    """A log that can be carried over. `digest` is the one that `verify` printed in format 1."""

    digest: str
    events: int
    purged: int
    purges: int
    head: Position
    known: dict[bytes, bytes]  # for `Rechain`


def check(old: OldLog, where: str, *, progress: Callable[[int], None] = lambda position: None) -> Checked:
    """Return what the log is; raise Damaged, with every bad row, if it cannot be carried over as a whole."""
    bad = [each for each in old.rows() if isinstance(each, Bad)]
    purges = old.purges()
    audit, links = Verifier(old.identity.origin, purges, hash=model.header_hash), Links()
    head = START
    try:
        for slot in old.slots():
            if isinstance(slot, Bad):
                bad.append(slot)
                continue
            head = position_of(slot)
            if head % 1000 == 0:
                progress(head)
            if not isinstance(slot, Purge):
                audit.take(slot)
                links.see(slot)
        audit.end(head)
        bad += [Bad(_place(each.position, each.upto), f"{each.code}: {each.reason}") for each in audit.problems]
    finally:
        audit.close()
    if bad:
        raise _refusal(where, bad, audit.unlisted)
    known = links.known(readable(old))
    return Checked(audit.digest.hexdigest(), audit.events, audit.purged, len(purges), head, known)


def readable(old: OldLog) -> Iterator[Slot]:
    """Return the slots of a log that was checked: none of them is bad."""
    for slot in old.slots():
        if isinstance(slot, Bad):
            raise Damaged(
                "the log has changed while it was upgraded",
                why=f"{slot.where}: {slot.why}",
                hint="end every program that uses it, and run everlog upgrade again",
            )
        yield slot


def _place(first: int, last: int) -> str:
    return f"positions {first} to {last}" if last > first else f"position {first}"


def _refusal(where: str, bad: list[Bad], unlisted: int) -> Damaged:
    rows = [f"{each.where}: {each.why}" for each in bad]
    more = len(rows) + unlisted - LISTED_MAX
    listed = rows[:LISTED_MAX] + ([f"and {more:,} more"] if more > 0 else [])
    return Damaged(
        f"{where} cannot be upgraded: {counted(len(rows) + unlisted, 'row is', 'rows are')} damaged",
        why="\n".join(listed),
        hint="nothing was changed; restore a backup, or export what can be read with the everlog that wrote the log",
        problems=rows,
    )

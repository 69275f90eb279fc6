"""Carry a log of format 1 over into a new store of the present format, and compare both sides.

    source     slots ── checked ── chains computed again ──┬── survey ──────────────┐
                                                           └── draft, in batches    ├── compared, then swapped
    draft      read again from its bytes ── survey ────────────────────────────────-┘

The draft has the identity, the positions, the times and the small state of the log. Nothing of the log is changed
before both sides are equal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec

from everlog.stores.contract import Store
from everlog.stores.formats import FORMAT, UPGRADED
from everlog.stores.small_state import CLAIMS, NOTES, read_note
from everlog.transfer.copy import BATCH, KEPT_BATCH, compare_with
from everlog.transfer.survey import BytesSurvey, Summary, batches
from everlog.transfer.upgrade.format1 import model
from everlog.transfer.upgrade.format1.model import Bad, OldLog, Slot
from everlog.transfer.upgrade.preflight import Checked, readable
from everlog.transfer.upgrade.rechain import Rechain

NOTE = UPGRADED

Progress = Callable[[int], None]


class Report(msgspec.Struct, frozen=True):
    """What an upgrade did. `old_digest` is the digest that the log had in the old format."""

    old_format: int
    format: int
    events: int
    purged: int
    purges: int
    head: int
    claims: int
    notes: int
    old_digest: str
    digest: str


def carry_over(old: OldLog, draft: Store, checked: Checked, *, progress: Progress = lambda slots: None) -> Report:
    """Fill an empty store with everything that the log has. Raise Damaged if it is not equal afterwards."""
    seen = BytesSurvey()
    for batch in batches(carried(old, checked), BATCH):
        seen.take_all(batch)
        with draft.open_write() as writer:
            writer.copy_in(batch)
        progress(seen.head)
    return finish(old, draft, checked, seen.end(), progress=progress)


def carried(old: OldLog, checked: Checked) -> Iterator[Slot]:
    """Return the slots as the present format has them."""
    rechain = Rechain(checked.known)
    return map(rechain.take, readable(old))


def finish(
    old: OldLog, draft: Store, checked: Checked, summary: Summary, *, progress: Progress = lambda slots: None
) -> Report:
    """Carry the small state and the clock over, compare both sides, and leave the report in the draft."""
    counts = _carry_rows(old, draft)
    with draft.open_write() as writer:
        if writer.clock < old.clock:
            writer.tick(seen=old.clock - 1)
    compare_with(summary, draft, lambda position: progress(checked.head + position))
    report = Report(
        old_format=model.FORMAT,
        format=FORMAT,
        events=checked.events,
        purged=checked.purged,
        purges=checked.purges,
        head=checked.head,
        claims=counts[CLAIMS],
        notes=counts[NOTES],
        old_digest=checked.digest,
        digest=summary.digest,
    )
    with draft.open_write() as writer:
        writer.put(NOTES, {NOTE: msgspec.json.encode(report)})
    return report


def report_of(store: Store) -> Report | None:
    """Return the report that an upgrade left in a log."""
    found = read_note(store.small_state, NOTE)
    return None if found is None else msgspec.json.decode(found, type=Report)


def _carry_rows(old: OldLog, draft: Store) -> dict[str, int]:
    counts = {CLAIMS: 0, NOTES: 0}
    there = {row.key for row in draft.small_state.every_row() if row.space == CLAIMS}  # in lines that were carried
    rows = (row for row in old.rows() if not isinstance(row, Bad))
    for some in batches(rows, KEPT_BATCH):
        with draft.open_write() as writer:
            writer.put(CLAIMS, {row.key: row.value for row in some if row.space == CLAIMS and row.key not in there})
            for row in some:
                counts[row.space] += 1
                if row.space == NOTES:
                    writer.put(NOTES, {row.key: row.value}, expires_us=row.expires_us)
    return counts

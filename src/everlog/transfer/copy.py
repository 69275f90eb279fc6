"""Copy a whole log into another store: every slot, and the small state beside the events.

The copy is written under a temporary name, in batches that are each on the disk before the next one begins. It is
renamed only when the counts and digests of both sides agree. A copy that was interrupted continues after its last
batch. It keeps the log's id, its positions and every byte; it gets a new origin and a new epoch, so that both logs
can be written to afterwards (docs/decisions/0014).

    source     snapshot of slots ──┬── survey ──────────────────────┐
                                   └── unfinished copy, in batches  ├── compared, then renamed
    the copy   read again from its bytes ── survey ─────────────────┘
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

import msgspec

from everlog.core.codec import Packed
from everlog.core.event import START, Purged
from everlog.errors import Busy, Conflict, Damaged, ReadOnly
from everlog.files import Files
from everlog.log.write.refusal_rows import every_note
from everlog.stores.contract import HidesEvents, Identity, InGit, Store
from everlog.stores.copied import decoded_slots
from everlog.stores.formats import COPIED
from everlog.stores.identity import new_identity
from everlog.stores.small_state import CLAIMS, NOTES, Row, claim_of, read_note
from everlog.stores.staged_group import Record
from everlog.transfer.survey import Slot, Summary, Survey, batches, position_of, slot_batches, slots_of, survey

UNFINISHED = "copy/unfinished"
"""The note of a log that is still being copied into. Opening such a log reports it."""

BATCH = 5_000
KEPT_BATCH = 5_000


@dataclass(frozen=True, kw_only=True)
class Target:
    """Where a copy goes: `open` the unfinished copy (created with the identity if it is missing), then `swap` it
    in."""

    name: str
    draft: str
    open: Callable[[Identity], Store]
    swap: Callable[[], None]


class Copied(msgspec.Struct, frozen=True):
    """What was copied, and from which position if a copy was continued."""

    summary: Summary
    identity: Identity
    notes: int
    claims: int
    resumed_at: int


class _From(msgspec.Struct, frozen=True):
    """The log of which an unfinished log is a copy."""

    log_id: str
    origin: str
    epoch: str


def copy_log(
    source: Store,
    target: Target,
    *,
    progress: Callable[[int], None] = lambda slots: None,
    now_us: Callable[[], int] = lambda: time.time_ns() // 1000,
) -> Copied:
    """Copy everything, compare both sides, then rename the copy. The source may be written to meanwhile.

    `progress` is called with slots out of twice the head: each is copied once and read again once.
    """
    if isinstance(source, HidesEvents) and source.hides_events:
        raise ReadOnly(
            "the log cannot be copied by this role",
            why="it sees only a part of the log, and a copy has every position",
            hint="copy it as its owner or a reader; everlog export writes what this role sees",
        )
    source.small_state.refuse_lost_notes()
    with closing(target.open(copied_identity(source.identity, now_us()))) as draft:
        resumed_at = _begin(source, draft, target)
        notes = [row for row in every_note(source.small_state, source.purges()) if row.key != UNFINISHED]
        clock, purges = source.ends().clock, source.purges()
        seen = Survey(source.identity.origin, purges)
        places = _past_what_is_there(slots_of(source, purges), draft, seen, target)
        for batch in slot_batches(places, BATCH):
            decoded = _decoded(batch)
            seen.take_all(batch, decoded)
            _refuse_damage(seen)
            with draft.open_write() as writer:
                writer.copy_in(batch, decoded)
            progress(seen.head)
        summary = seen.end()
        _refuse_damage(seen)
        claims = _copy_kept(source, draft, notes, clock=clock, summary=summary)
        if source.purges() != purges:
            raise _unfit(target, "something was purged from the log while it was copied")
        compare_with(summary, draft, progress)
        with draft.open_write() as writer:
            writer.put(NOTES, {UNFINISHED: None})
            if seen.last_old and isinstance(source, InGit):
                writer.put(NOTES, {COPIED: str(seen.last_old).encode()})
        identity = draft.identity
    target.swap()
    return Copied(summary, identity, len(notes), claims, resumed_at)


def _decoded(batch: Sequence[Slot]) -> list[Record] | None:
    """Return the records of a batch; None if one cannot be read, which the survey reports."""
    try:
        return decoded_slots([slot for slot in batch if isinstance(slot, Packed)])
    except Damaged:
        return None


def copied_identity(identity: Identity, now_us: int) -> Identity:
    """Return the identity of a copy: the same log id, with a new origin and a new epoch."""
    return msgspec.structs.replace(new_identity(now_us), log_id=identity.log_id, created_us=identity.created_us)


def _begin(source: Store, draft: Store, target: Target) -> int:
    """Claim an empty target for this source, or recognize an unfinished copy of it; return the position it has
    reached."""
    of_this = _From(source.identity.log_id, source.identity.origin, source.identity.epoch)
    found = read_note(draft.small_state, UNFINISHED)
    if found is None:
        # A target without the note is new, or complete: the copy was stopped just before it was renamed.
        whole = target.draft != target.name and draft.identity.log_id == source.identity.log_id
        if not whole and (draft.head() or next(draft.small_state.every_row(), None) is not None):
            raise Conflict(
                f"{target.draft} is a log already",
                why="a copy is always a new log, and never overwrites one",
                hint="name another slot, or move that one away",
            )
        with draft.open_write() as writer:
            writer.put(NOTES, {UNFINISHED: msgspec.json.encode(of_this)})
    elif msgspec.json.decode(found, type=_From) != of_this:
        raise Conflict(
            f"{target.draft} is an unfinished copy of another log",
            why="a copy can only be continued from the log that it was begun from",
            hint=f"continue it from there, or remove {target.draft} and copy again",
        )
    return draft.head()


def _past_what_is_there(places: Iterator[Slot], draft: Store, seen: Survey, target: Target) -> Iterator[Slot]:
    """Yield the slots that the copy lacks; those that it has must be the same, byte for byte."""
    head = draft.head()
    there = slots_of(draft, draft.purges())
    for mine, copied in zip_longest(_upto(places, head), there):
        if mine is None or _as_of(mine, head) != _as_of(copied, head):
            raise _unfit(target, "the log is not as it was when this copy was begun")
        seen.take(mine)
    return places


def _as_of(slot: Slot | None, head: int) -> Slot | None:
    """Return a slot as a log with this head has it: which purge removed it is known once that purge is there too."""
    if isinstance(slot, Purged) and slot.reserved > head:
        return msgspec.structs.replace(slot, reserved=START)
    return slot


def _upto(places: Iterator[Slot], head: int) -> Iterator[Slot]:
    """Yield the slots up to a position, and no further: the others are still to be copied."""
    for slot in places if head else ():
        yield slot
        if position_of(slot) >= head:
            return


def _refuse_damage(seen: Survey) -> None:
    if seen.problems:
        problem = seen.problems[0]
        raise Damaged(
            f"the log to be copied is damaged at position {problem.position}",
            why=f"{problem.code}: {problem.reason}",
            hint="everlog verify lists all problems; everlog export --past-damage writes what can be read",
            position=problem.position,
        )


def _copy_kept(source: Store, draft: Store, notes: list[Row], *, clock: int, summary: Summary) -> int:
    """Copy the notes, the claims and the clock.

    The notes were read before the slots, so that none refers to an event that was not copied; the claims are read
    after them, so that every copied event has its claim, and a retry finds it.
    """
    kept = {note.key for note in notes} | {UNFINISHED}
    with draft.open_write() as writer:
        for key, _ in draft.small_state.scan(NOTES):
            if key not in kept:  # of an earlier attempt: the log has removed it since, perhaps in a purge
                writer.put(NOTES, {key: None})
    for some in batches(notes, KEPT_BATCH):
        with draft.open_write() as writer:
            for note in some:
                writer.put(NOTES, {note.key: note.value}, expires_us=note.expires_us)
    count = 0
    here = (row for row in source.small_state.every_row() if row.space == CLAIMS and _is_here(row, summary.head))
    for claims in batches(here, KEPT_BATCH):
        with draft.open_write() as writer:
            writer.put(CLAIMS, {row.key: row.value for row in claims})
        count += len(claims)
    with draft.open_write() as writer:
        if writer.clock < clock:
            writer.tick(seen=clock - 1)
    return count


def _is_here(row: Row, head: int) -> bool:
    """Whether the events of a claim are copied."""
    claim = claim_of(row.value)
    return claim.first + claim.count - 1 <= head


def compare_with(summary: Summary, draft: Store, progress: Callable[[int], None]) -> None:
    """Read the copy again from its bytes, and refuse it unless it is the same."""
    found = survey(draft, progress=lambda position: progress(summary.head + position))
    problems = list(draft.check())
    if found == summary and not problems:
        return
    wrong = [
        f"{name} {getattr(found, name)} in slot of {getattr(summary, name)}"
        for name in Summary.__struct_fields__
        if getattr(found, name) != getattr(summary, name)
    ]
    wrong += [f"#{problem.position} {problem.code}: {problem.reason}" for problem in problems[:5]]
    raise Damaged(
        "the copy is not equal to the log",
        why="; ".join(wrong),
        hint="the log itself is untouched; check the disk, remove the unfinished copy and copy again",
    )


def put_into_place(files: Files, draft: Path, path: Path) -> None:
    """Rename a finished copy; it is not open any more."""
    beside = [draft.with_name(name) for name in files.names(draft.parent) if name.startswith(draft.name + "-")]
    for left in beside:
        if not left.name.startswith(draft.name + "-lock"):
            raise Busy(
                f"{draft} is finished, but somebody has it open",
                why=f"{left} belongs to it and cannot be renamed with it",
                hint="end that program and run the same everlog copy again",
            )
    if files.exists(path):
        raise Conflict(
            f"{path} has come to be there while it was copied",
            why="a copy never overwrites a log, and one was created under this name meanwhile",
            hint=f"move {path} away and run the same everlog copy again, or rename {draft}, which is complete",
        )
    files.rename(draft, path)
    files.fsync_dir(path.parent)
    for left in beside:
        files.unlink(left)


def _unfit(target: Target, why: str) -> Conflict:
    return Conflict(
        f"the unfinished copy {target.draft} cannot be continued",
        why=why,
        hint=f"remove {target.draft} and copy again",
    )

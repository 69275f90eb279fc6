"""A whole log into another store: every place as it stands, and what is kept beside them.

The copy is written under a name beside its own, in batches that are each on the disk before the next one begins; it
gets its own name only when counts and digests of both sides agree. A copy that was cut off goes on after its last
batch. It keeps the log's id, its positions and every byte; it gets an origin and an epoch of its own, so that both
may be written to afterwards (docs/decisions/0014).

    source   snapshot of places ──┬── survey ──────────────┐
                                  └── draft, batch by batch ├── compared, then renamed
    draft    read again from its bytes ── survey ──────────┘
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

import msgspec

from everlog.core.event import START, Purged
from everlog.cutover.survey import Place, Summary, Survey, batches, places_of, position_of, survey
from everlog.errors import Busy, Conflict, Damaged, ReadOnly
from everlog.files import Files
from everlog.stores.contract import Claimed, HidesEvents, Identity, Note, Store
from everlog.stores.identity import new_identity

UNFINISHED = "copy/unfinished"
"""The note of a log that is still being copied into. Whoever opens such a log is told so."""

BATCH = 2_000
_KEPT_BATCH = 5_000


@dataclass(frozen=True, kw_only=True)
class Target:
    """Where a copy goes: `open` the draft of it (made with the identity if it is not there), `swap` it into place."""

    name: str
    draft: str
    open: Callable[[Identity], Store]
    swap: Callable[[], None]


class Copied(msgspec.Struct, frozen=True):
    """What was copied, and from which position on if a copy was continued."""

    summary: Summary
    identity: Identity
    notes: int
    claims: int
    resumed_at: int


class _From(msgspec.Struct, frozen=True):
    """Of which log a draft is a copy."""

    log_id: str
    origin: str
    epoch: str


def copy_log(
    source: Store,
    target: Target,
    *,
    progress: Callable[[int], None] = lambda places: None,
    now_us: Callable[[], int] = lambda: time.time_ns() // 1000,
) -> Copied:
    """Copy everything, compare both sides, put the copy into place. The source may be written to meanwhile.

    `progress` is told places out of twice the head: each is copied once and read again once.
    """
    if isinstance(source, HidesEvents) and source.hides_events:
        raise ReadOnly(
            "the log cannot be copied by this role",
            why="it sees a part of the log, and a copy has every position",
            hint="copy it as its owner or a reader; everlog export writes what this role sees",
        )
    with closing(target.open(copied_identity(source.identity, now_us()))) as draft:
        resumed_at = _begin(source, draft, target)
        notes = [item for item in source.kept() if isinstance(item, Note) and item.key != UNFINISHED]
        clock, purges = source.clock(), source.purges()
        seen = Survey(source.identity.origin, purges)
        places = _past_what_is_there(places_of(source, purges), draft, seen, target)
        for batch in batches(places, BATCH):
            for place in batch:
                seen.take(place)
            _refuse_damage(seen)
            with draft.write() as writer:
                writer.place(batch)
            progress(seen.head)
        summary = seen.end()
        _refuse_damage(seen)
        claims = _copy_kept(source, draft, notes, clock=clock, summary=summary)
        if source.purges() != purges:
            raise _unfit(target, "something was purged from the log while it was copied")
        compare_with(summary, draft, progress)
        with draft.write() as writer:
            writer.note(UNFINISHED, None)
        identity = draft.identity
    target.swap()
    return Copied(summary, identity, len(notes), claims, resumed_at)


def copied_identity(identity: Identity, now_us: int) -> Identity:
    """Who a copy is: the same log, under an origin and an epoch of its own."""
    return msgspec.structs.replace(new_identity(now_us), log_id=identity.log_id, created_us=identity.created_us)


def _begin(source: Store, draft: Store, target: Target) -> int:
    """Claim an empty draft for this source, or recognise the draft of it; the position that is there already."""
    of_this = _From(source.identity.log_id, source.identity.origin, source.identity.epoch)
    found = draft.noted(UNFINISHED)
    if found is None:
        # A draft without the note is new, or whole: its maker was stopped just before giving it its name.
        whole = target.draft != target.name and draft.identity.log_id == source.identity.log_id
        if not whole and (draft.head() or next(draft.kept(), None) is not None):
            raise Conflict(
                f"{target.draft} is a log already",
                why="a copy goes into a new log, and never writes over one",
                hint="name another place, or move that one away",
            )
        with draft.write() as writer:
            writer.note(UNFINISHED, msgspec.json.encode(of_this).decode())
    elif msgspec.json.decode(found, type=_From) != of_this:
        raise Conflict(
            f"{target.draft} is an unfinished copy of another log",
            why="a copy can only be continued from the log that it was begun from",
            hint=f"continue it from there, or remove {target.draft} and copy again",
        )
    return draft.head()


def _past_what_is_there(places: Iterator[Place], draft: Store, seen: Survey, target: Target) -> Iterator[Place]:
    """The places that the draft lacks; those that it has must be the same, byte for byte."""
    head = draft.head()
    there = places_of(draft, draft.purges())
    for mine, copied in zip_longest(_upto(places, head), there):
        if mine is None or _as_of(mine, head) != _as_of(copied, head):
            raise _unfit(target, "the log is not as it was when this copy was begun")
        seen.take(mine)
    return places


def _as_of(place: Place | None, head: int) -> Place | None:
    """A place as a log with this head has it: by whom it was purged is known when that purge is there too."""
    if isinstance(place, Purged) and place.reserved > head:
        return msgspec.structs.replace(place, reserved=START)
    return place


def _upto(places: Iterator[Place], head: int) -> Iterator[Place]:
    """The places up to a position, and not one more: the others are still to be copied."""
    for place in places if head else ():
        yield place
        if position_of(place) >= head:
            return


def _refuse_damage(seen: Survey) -> None:
    if seen.problems:
        problem = seen.problems[0]
        raise Damaged(
            f"the log to be copied is damaged at position {problem.position}",
            why=f"{problem.code}: {problem.reason}",
            hint="everlog verify names all that is wrong; everlog export takes what can be read",
            position=problem.position,
        )


def _copy_kept(source: Store, draft: Store, notes: list[Note], *, clock: int, summary: Summary) -> int:
    """The notes, the claims and the clock.

    The notes were read before the places, so that none speaks of an event that is not there; the claims are read
    after them, so that every event that was copied has its claim, and a retry finds it.
    """
    kept = {note.key for note in notes} | {UNFINISHED}
    with draft.write() as writer:
        for key in draft.notes(""):
            if key not in kept:  # of an earlier attempt: the log has forgotten it since, perhaps by a purge
                writer.note(key, None)
    for some in batches(notes, _KEPT_BATCH):
        with draft.write() as writer:
            for note in some:
                writer.note(note.key, note.value, expires_us=note.expires_us)
    count = 0
    here = (
        item
        for item in source.kept()
        if isinstance(item, Claimed) and item.claim.first + item.claim.count - 1 <= summary.head
    )
    for claims in batches(here, _KEPT_BATCH):
        with draft.write() as writer:
            for item in claims:
                writer.claim(item.name, item.claim.first, item.claim.count)
        count += len(claims)
    with draft.write() as writer:
        if writer.clock < clock:
            writer.tick(seen=clock - 1)
    return count


def compare_with(summary: Summary, draft: Store, progress: Callable[[int], None]) -> None:
    """Read the copy again from its bytes, and refuse it unless it is the same."""
    found, problems = survey(draft, progress=lambda position: progress(summary.head + position))
    problems += draft.check()
    if found == summary and not problems:
        return
    wrong = [
        f"{name} {getattr(found, name)} in place of {getattr(summary, name)}"
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
    """Give a finished copy its own name; nobody has it open any more."""
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
            why="a copy never writes over a log, and somebody began one under this name meanwhile",
            hint=f"move {path} away and run the same everlog copy again, or rename {draft}, which is whole",
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

"""Forget a person: destroy their keys, erase what was never sealed, and prove it with a receipt.

    note       what is to be done, beside the keys, so that a process that is killed leaves nothing half done
    keys       are destroyed: from here on nobody can read what was sealed
    record     `subject.forgotten`, in the write that erases what was never sealed (`everlog.log.forget`)
    views      are derived again where they had something of the person; snapshots with it are removed
    exports    in the folder of the log are written again without what was erased
    lake       is removed, if it has what was erased: the next run derives it again
    search     every byte that the log owns is searched for the values
    receipt    is signed, and kept beside the log; then the note is removed

Each step finds nothing to do if it was done before. So an unfinished forget is repeated from its note, by the next
command that writes to the log.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from everlog.application.trust.owned_bytes import (
    Owned,
    Searched,
    exports_beside,
    remove_lake,
    rewrite_exports,
    search,
)
from everlog.core.event import Event, Recorded, moment
from everlog.core.ids import EventId, parse_id
from everlog.core.query import Query
from everlog.core.text import counted
from everlog.errors import BadFile, EverlogError, NoKey, NotFound
from everlog.log.forget import (
    Concerned,
    byte_forms,
    find_listed,
    find_subject,
    find_unrecorded,
    forget_again,
    record_forgotten,
)
from everlog.log.forgotten import Forget, forgets_in, put_forget
from everlog.log.log import Log
from everlog.log.records import FORGOTTEN, forgotten_in
from everlog.stores.contract import InGit
from everlog.stores.small_state import NOTES, read_note
from everlog.trust.keys import PublicKey, is_key
from everlog.trust.notes import FORGOTTEN as FIRST_LINE
from everlog.trust.notes import Note, parse_note, sign, who_signed
from everlog.trust.ring import KeyRing
from everlog.trust.unfinished import Unfinished

STEPS = ("note", "keys", "record", "views", "exports", "lake", "search", "receipt", "done")
"""The steps, each of which is announced when it begins."""

Step = Callable[[str], None]

_COMMIT = "forgotten-at"
"""The note with the commit of git for which everything that was forgotten here is known to be gone."""

_SEARCH_WAIT_S = 10.0

_logger = logging.getLogger("everlog")


class Receipt(msgspec.Struct, frozen=True, kw_only=True):
    """What a forget did."""

    forget: Forget
    note: Note
    exports: list[str] = []
    lake: bool = False
    searched: Searched
    beside: list[str] = []  # exports elsewhere that have what was erased, and that nobody changed
    git: bool = False  # git may have what was erased, and nobody changed that

    @property
    def is_clean(self) -> bool:
        return not self.searched.found


class _Request(msgspec.Struct, frozen=True):
    """The note of an unfinished forget."""

    id: str
    actor: str
    concerned: Concerned


def find(log: Log, subject: str) -> Concerned:
    """Find what the log has of a person. Nothing is changed."""
    _require_types(log)
    found = find_subject(log, subject)
    if not found:
        raise NotFound(
            f"there is nothing about {subject} in personal fields",
            why="no key of them is here, and no event names them in a field that a personal field refers to",
            hint="check the name, as the event has it; everlog purge KIND/ID removes a stream",
            subject=subject,
        )
    return found


def forget(
    log: Log, subject: str, *, owned: Owned, actor: str = "", on_step: Step = lambda name: None
) -> list[Receipt]:
    """Forget a person. The receipt of a forget that was not finished comes first, if there was one."""
    unfinished = _alone(log)
    with unfinished.alone():
        done = _finish(log, unfinished, owned, on_step)
        if not done or find_subject(log, subject):
            done += _begin(log, unfinished, find(log, subject), owned, actor, on_step)
        return done


def follow(
    log: Log, record_id: str, *, owned: Owned, actor: str = "", on_step: Step = lambda name: None
) -> list[Receipt]:
    """Do what the record of another node asks for, and record that this node has done it."""
    record = log.stored.get(parse_id(record_id))
    if record is None or record.event.type != FORGOTTEN:
        raise NotFound(
            f"{record_id} is not the record of a forget", why="it is not in this log", hint="everlog forget --status"
        )
    unfinished = _alone(log)
    with unfinished.alone():
        done = _finish(log, unfinished, owned, on_step)
        found = find_listed(log, record, _followed_by_others(log, _records(log)))
        before = any(one.record == record.event.id and log.identity.origin in one.nodes for one in status(log))
        if before and not found.gone:
            return done
        return done + _begin(log, unfinished, found, owned, actor, on_step)


def record_again(log: Log, *, owned: Owned) -> list[Receipt]:
    """Record what was forgotten here once more, if this log was put back and lost the record: the keys are beside it,
    and other nodes may not know."""
    concerned = find_unrecorded(log)
    if not concerned or is_unfinished(log):
        return []
    unfinished = _alone(log)
    with unfinished.alone():
        return _begin(log, unfinished, concerned, owned, "", lambda step: None)


def finish(log: Log, *, owned: Owned, on_step: Step = lambda name: None) -> list[Receipt]:
    """Finish a forget that was interrupted, if there is one."""
    unfinished = _alone(log)
    with unfinished.alone():
        return _finish(log, unfinished, owned, on_step)


def finish_interrupted(log: Log, owned: Owned) -> None:
    """Finish a forget that was interrupted, before the next write of this process.

    If that cannot be done now, such as beside a process that is forgetting, the write goes on.
    """
    try:
        done = finish(log, owned=owned)
    except Exception as error:  # nobody's append fails because of it
        why = error if isinstance(error, EverlogError) else f"{type(error).__name__}: {error}"
        _logger.warning("a forget is not finished: %s; to finish it: everlog forget --finish", why)
        return
    for one in done:
        _logger.warning("a forget that was interrupted is finished now: everlog forget --status")
        if one.searched.found:
            _logger.warning("a value is still there, in %s", ", ".join(one.searched.found))


def forget_what_git_brought(log: Log, stored: InGit) -> None:
    """Erase again what was forgotten here, if git has changed the files since the last time."""
    checkout = stored.checkout()
    if checkout is None or read_note(log.writer.small_state, _COMMIT) == checkout.commit:
        return
    try:
        if forget_again(log):
            log.views.snapshots.sweep()
            log.views.forget_missed()
            _logger.warning("git brought back what was forgotten here; it was erased again")
        log.writer.write(lambda write: write.put(NOTES, {_COMMIT: checkout.commit.encode()}))
    except EverlogError as error:
        _logger.warning("git may have brought back what was forgotten here, and it was not erased: %s", error)


def is_unfinished(log: Log) -> bool:
    return log.sealing is not None and Unfinished(_ring(log)).is_there()


def _alone(log: Log) -> Unfinished:
    """Return what is noted of a forget, for the one that is about to begin or to be finished."""
    log.writer.first = None
    _require_types(log)
    return Unfinished(_ring(log))


def _require_types(log: Log) -> None:
    log.catalog.left_out.require_none("a forget", "personal fields of its types are unknown here, and would stay")


def _ring(log: Log) -> KeyRing:
    if log.sealing is None:
        raise NoKey("nobody can be forgotten here", why="this log was opened without a key ring", hint="everlog.open")
    return log.sealing.ring


def _finish(log: Log, unfinished: Unfinished, owned: Owned, on_step: Step) -> list[Receipt]:
    data = unfinished.read()
    return (
        []
        if data is None
        else [_carry_out(log, unfinished, msgspec.json.decode(data, type=_Request), owned, on_step)]
    )


def _begin(
    log: Log, unfinished: Unfinished, concerned: Concerned, owned: Owned, actor: str, on_step: Step
) -> list[Receipt]:
    request = _Request(os.urandom(16).hex(), actor or log.actor, concerned)
    on_step("note")
    unfinished.write(msgspec.json.encode(request))
    return [_carry_out(log, unfinished, request, owned, on_step)]


def _carry_out(log: Log, unfinished: Unfinished, request: _Request, owned: Owned, on_step: Step) -> Receipt:
    concerned = request.concerned
    on_step("keys")
    _ring(log).destroy(concerned.keys)
    on_step("record")
    done = record_forgotten(log, concerned, actor=request.actor, request=request.id)
    on_step("views")
    log.views.snapshots.sweep()
    log.views.forget_missed()
    on_step("exports")
    exports = rewrite_exports(owned, log, set(concerned.open))
    on_step("lake")
    lake = bool(concerned.open) and remove_lake(owned)
    on_step("search")
    searched = _searched(log, owned, byte_forms(concerned.values))
    git = bool(concerned.open) and isinstance(log.stored, InGit) and log.stored.checkout() is not None
    on_step("receipt")
    note = _receipt(log, done, concerned, exports=len(exports), lake=lake, searched=searched, git=git)
    finished = msgspec.structs.replace(done, receipt=str(note))
    log.writer.write(lambda write: put_forget(write, finished))
    on_step("done")
    unfinished.remove()
    beside = exports_beside(owned, concerned.open)
    return Receipt(forget=finished, note=note, exports=exports, lake=lake, searched=searched, beside=beside, git=git)


def _searched(log: Log, owned: Owned, forms: Sequence[bytes]) -> Searched:
    """Search for the values. A journal that another process reads is emptied as soon as that process is done."""
    deadline = time.monotonic() + _SEARCH_WAIT_S
    while (searched := search(owned, log, forms)).found and owned.has_journal() and time.monotonic() < deadline:
        time.sleep(0.05)
        log.views.forget_missed()
        log.writer.write(lambda write: setattr(write, "scrubs", True))
    return searched


# ---- the receipt


def _receipt(
    log: Log, done: Forget, concerned: Concerned, *, exports: int, lake: bool, searched: Searched, git: bool
) -> Note:
    """Return the receipt. It never names the person, nor a value."""
    key = log.signing_key()
    lines = [
        FIRST_LINE,
        log.identity.log_id,
        log.identity.origin if key is None else key.public.origin,
        f"time {moment(done.at_us).isoformat()}",
        *(f"record {record}" for record in done.records),
        *([f"follows {concerned.follows}"] if concerned.follows else []),
        *(f"key {key} destroyed" for key in done.keys),
        f"events {len(concerned.events)}",
        f"erased {done.erased}",
        f"exports {exports}",
        f"lake {'removed' if lake else 'has none of it'}",
        f"searched {counted(searched.files, 'file')}, {counted(searched.bytes, 'byte')},"
        f" for {counted(len(concerned.values), 'value')}",
        f"found {len(searched.found)}",
        *(f"unreadable {name}" for name in searched.unreadable),
        *(["git holds earlier states of the files, and was not changed"] if git else []),
    ]
    note = Note("".join(f"{line}\n" for line in lines))
    return note if key is None else sign(note, key.public.origin, key)


class CheckedReceipt(msgspec.Struct, frozen=True):
    """A receipt whose signature was checked."""

    log_id: str
    origin: str
    signed_by: str
    facts: dict[str, Any]


def check_receipt(data: bytes, key: PublicKey | None = None) -> CheckedReceipt:
    """Check the signature of a receipt: that of the origin that it names, if that is a key. With `key`, that key must
    have signed it."""
    note = parse_note(data, unsigned=True)
    lines = note.text.splitlines()
    if len(lines) < 4 or lines[0] != FIRST_LINE:
        raise BadFile(
            "this is not a receipt", why=f"it does not begin with {FIRST_LINE}", hint="everlog forget --out FILE"
        )
    signed = who_signed(note).by
    if is_key(lines[2]) and signed != lines[2]:
        raise BadFile(
            f"the receipt is not signed by {lines[2]}, which it names",
            why=f"it is signed by {signed or 'nobody'}",
            hint="ask the node that made it for the receipt: everlog forget --status",
        )
    if key is not None and signed != key.origin:
        raise BadFile(
            f"the receipt is not signed by {key.origin}",
            why=f"it is signed by {signed or 'nobody'}",
            hint="check the key, and where the file comes from",
        )
    found: dict[str, Any] = {}
    for name, _, value in (line.partition(" ") for line in lines[3:]):
        found.setdefault(name, []).append(value)
    facts: dict[str, Any] = {
        "receipt": found.get("record", []),
        "of": f"{lines[1]} {lines[2]}",
        "signed_by": signed or "nobody",
        "keys": len(found.get("key", ())),
        **{name: found[name][0] for name in ("time", "events", "erased", "searched", "found") if name in found},
    }
    return CheckedReceipt(lines[1], lines[2], signed, facts)


def compare_receipt(log: Log, receipt: CheckedReceipt) -> None:
    """Raise if a receipt of this log names a record that the log does not have."""
    for record in receipt.facts["receipt"]:
        found = log.stored.get(EventId(record))
        if found is None or found.event.type != FORGOTTEN:
            raise BadFile(
                f"the log has no record {record}",
                why="the receipt names it, and there is no such record here",
                hint="everlog forget --status lists the records; sync with the node that made it",
            )


# ---- status


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """One record of a forget, and the nodes that have carried it out."""

    record: str
    position: int
    origin: str
    at: str
    keys: int
    erased: int
    nodes: list[str]  # origins, the one that asked first
    here: bool
    counts: bool  # if not, its author has no right to it, and no other node follows
    receipt: str = ""  # that of this node


def status(log: Log) -> list[Asked]:
    """Return every forget that a node asked for, with the nodes that have followed.

    A node that followed a record which does not count, or not any more, asks for the same by its own record.
    """
    records = _records(log)
    events = [one.event for one in records]
    carried_out = {one.event.id for one in log.counted(records)}
    counted = [event for event in events if event.id in carried_out]
    counting = {event.id for event in _followed_by_others(log, records)}
    follows = {event.id: forgotten_in(event).follows for event in events}
    asking = {event.id for event in counted if follows[event.id] not in counting}
    asking.update(event.id for event in events if not follows[event.id])
    done: dict[str, list[Event]] = {}  # by what was carried out: the record itself, and those that follow it
    for event in events:
        if event.id in carried_out or log.identity.made(event.origin):  # it was done here, whether it counts or not
            done.setdefault(event.id, []).insert(0, event)
            done.setdefault(follows[event.id], []).append(event)
    receipts = {record: forget for forget in forgets_in(log.writer.small_state) for record in forget.records}
    found = []
    for one in records:
        event, root = one.event, follows[one.event.id]
        if event.id in asking:
            with_it = [event, *done.get(event.id, ()), *(done.get(root, ()) if root else ())]
            found.append(_asked(log, one, with_it, receipts, counts=event.id in counting))
    return found


def _records(log: Log) -> list[Recorded]:
    return list(log.stored.read(Query(types=frozenset((FORGOTTEN,)))))


def _followed_by_others(log: Log, records: Sequence[Recorded]) -> list[Event]:
    """Return the records that count, and whose authors may remove."""
    counted, may_remove = [one.event for one in log.counted(records)], log.writer.may_remove
    return log.writer.write(lambda write: [one for one in counted if may_remove(write, one)]) if counted else []


def _asked(
    log: Log, one: Recorded, with_it: Sequence[Event], receipts: Mapping[str, Forget], *, counts: bool
) -> Asked:
    event, wanted = one.event, forgotten_in(one.event)
    nodes = list(dict.fromkeys(each.origin for each in with_it))
    mine = next((receipts[each.id] for each in with_it if each.id in receipts), None)
    return Asked(
        record=event.id,
        position=one.position,
        origin=event.origin,
        at=event.occurred_at.isoformat(),
        keys=len(wanted.keys),
        erased=sum(map(len, wanted.erased.values())),
        nodes=nodes,
        here=any(map(log.identity.made, nodes)),
        counts=counts,
        receipt="" if mine is None else mine.receipt,
    )


def pending(log: Log) -> Sequence[Asked]:
    """Return what other nodes have asked for and this one has not done."""
    return [one for one in status(log) if not one.here]

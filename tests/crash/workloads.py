"""What is under way when the crash comes: each workload leaves a trace, and says how its outcome is told.

An event is told by its number `n`, and belongs to a write of `of` events, which is there as a whole or not at all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from unittest import mock

from tests.crash.subjects import DAY_US, FOLDER, NOON_US, ROOT, Clock, Subject
from tests.support.faults import RecordingFiles

from everlog.catalog.builtin import BUILT_IN
from everlog.errors import Damaged
from everlog.log.log import Log
from everlog.log.verify.verify import verify
from everlog.stores.contract import Identity, Store
from everlog.stores.memory import MemoryStore
from everlog.stores.small_state import read_claim, read_note, read_notes
from everlog.testing.builders import put_claim, put_note, stamped
from everlog.transfer import import_pass, importing
from everlog.transfer.copy import UNFINISHED, Target, copy_log, put_into_place
from everlog.transfer.exporting import Export, Format

LATER_US = NOON_US + 9 * DAY_US
PURGED = 1000
SENTINEL = "odd-sentinel"


@dataclass(frozen=True)
class Work:
    """A trace, the steps of it that came before, and how to look at what a crash left."""

    files: RecordingFiles
    recover: Callable[[RecordingFiles], Sequence[int]]
    append: Callable[[RecordingFiles, int], None] | None = None
    finish: Callable[[RecordingFiles], None] | None = None  # what was cut short is done again, and is then whole
    since: int = 0


Workload = Callable[[Subject, Random], Work]


def new_disk(subject: Subject) -> RecordingFiles:
    """A disk with an empty log on it, all of it safe."""
    files = RecordingFiles(dirs=[FOLDER])
    subject.open(files).close()
    return settled(files)


def settled(files: RecordingFiles) -> RecordingFiles:
    """The same disk with everything safe and nothing behind it."""
    return RecordingFiles(files.visible(), dirs=files.dirs)


def put(store: Store, numbers: Sequence[int], *, width: int = 0, stream: str = "", text: str = "x") -> None:
    """One write of one event for each number, with a claim and a note that must come and go with it."""
    with store.open_write() as writer:
        for number in numbers:
            payload = {"n": number, "of": len(numbers), "text": text * max(width, 1)}
            made = stamped(writer, store.identity.origin, stream=stream or f"note/{number % 2}", payload=payload)
            (recorded,) = writer.append([made], fresh=True)
            put_claim(writer, _name(number), recorded.position, 1)
        if numbers[0] % 3 == 0:
            put_note(writer, f"n/{numbers[0]}", "noted")


def do(files: RecordingFiles, store: Store, numbers: Sequence[int], *, width: int = 0) -> None:
    for number in numbers:
        files.tried(number)
    put(store, numbers, width=width)
    for number in numbers:
        files.acked(number)


def found_in(store: Store, *, gapless: bool = True) -> list[int]:
    """The numbers of what is there, after looking at everything else that must be true of a log."""
    records = list(store.read())
    numbers = [recorded.event.payload["n"] for recorded in records]
    places = [recorded.position for recorded in records]
    if gapless and places != [1 + place for place in range(len(records))]:
        raise Damaged("positions are not gapless", why=str(places))
    at = 0
    while gapless and at < len(records):
        size = records[at].event.payload["of"]
        if [recorded.event.payload["of"] for recorded in records[at : at + size]] != [size] * size:
            raise Damaged("half of a batch", why=str(numbers))
        at += size
    for recorded, number in zip(records, numbers, strict=True):
        claim = read_claim(store.small_state, _name(number))
        if gapless and (claim is None or (claim.first, claim.count) != (recorded.position, 1)):
            raise Damaged("an event without its claim", why=f"{number}: {claim}")
    for key in read_notes(store.small_state, "n/"):
        if gapless and int(key[2:]) not in numbers:
            raise Damaged("a note without its event", why=key)
    report = verify(store)
    if report.problems:
        raise Damaged(f"verify found {report.problems[0].code}", why=report.problems[0].reason)
    return numbers


def recover_with(subject: Subject, *, create: bool = False) -> Callable[[RecordingFiles], Sequence[int]]:
    """What a reader is served, and what a writer finds after it: both the same."""

    def recover(files: RecordingFiles) -> Sequence[int]:
        store = subject.open(files, create=create)
        try:
            served = [recorded.event.payload["n"] for recorded in store.read()]
            with store.open_write():
                pass
            if (found := found_in(store)) != served:
                raise Damaged("a writer found other events than a reader", why=f"{served}, then {found}")
            return found
        finally:
            store.close()

    return recover


def append_with(subject: Subject) -> Callable[[RecordingFiles, int], None]:
    def append(files: RecordingFiles, number: int) -> None:
        store = subject.open(files, clock=Clock(LATER_US))
        try:
            put(store, [number])
        finally:
            store.close()

    return append


def _appending(subject: Subject, writes: Iterable[tuple[Sequence[int], int]], *, rotating: bool = False) -> Work:
    files = new_disk(subject)
    clock = Clock()
    store = subject.open(files, clock=clock, rotating=rotating)
    for numbers, width in writes:
        do(files, store, numbers, width=width)
        clock.us += DAY_US // 2 if rotating else 1000
    store.close()
    return Work(files, recover_with(subject), append_with(subject))


# ---- the workloads


def single_events(subject: Subject, chance: Random) -> Work:
    return _appending(subject, [([number], chance.randrange(1, 300)) for number in range(1, 7)])


def batches(subject: Subject, chance: Random) -> Work:
    """Groups of several sectors: torn ones go as a whole."""
    writes, first = [], 1
    for _ in range(3):
        size = chance.randrange(1, 5)
        writes.append((range(first, first + size), chance.randrange(100, 700)))
        first += size
    return _appending(subject, writes)


def rotation(subject: Subject, chance: Random) -> Work:
    return _appending(subject, [([number], chance.randrange(1, 60)) for number in range(1, 9)], rotating=True)


def making(subject: Subject, chance: Random) -> Work:
    """From nothing: the folder, the first file, the first event."""
    files = RecordingFiles(dirs=[FOLDER])
    store = subject.open(files)
    do(files, store, [1], width=chance.randrange(1, 300))
    do(files, store, [2, 3])
    store.close()
    return Work(files, recover_with(subject, create=True), append_with(subject))


def index_rebuild(subject: Subject, chance: Random) -> Work:
    """The derived files are gone, or of an older log; they are rebuilt while a writer goes on."""
    before = new_disk(subject)
    store = subject.open(before, rotating=True)
    put(store, [1], width=chance.randrange(1, 100))
    store.close()
    early = before.visible()
    store = subject.open(before, rotating=True)
    for number in range(2, 7):
        put(store, [number], width=chance.randrange(1, 100))
    store.close()
    derived = [path for path in before.by_name if path.parent.name == "index" or path.name == "clock.json"]
    kept = {path: data for path, data in before.visible().items() if path not in derived}
    if chance.randrange(2):
        kept.update({path: early[path] for path in derived if path in early})
    files = RecordingFiles(kept, dirs=before.dirs)
    for number in range(1, 7):
        files.tried(number)
        files.acked(number)
    since = len(files.trace)
    store = subject.open(files, clock=Clock(NOON_US + DAY_US), rotating=True)
    do(files, store, [7])
    do(files, store, [8, 9], width=chance.randrange(1, 300))
    store.close()
    return Work(files, recover_with(subject), append_with(subject), since=since)


def recovery(subject: Subject, chance: Random) -> Work:
    """A log whose last write was torn is opened and written to: the cut itself may be cut short."""
    before = new_disk(subject)
    store = subject.open(before)
    put(store, [1])
    safe = before.visible()
    put(store, [2, 3], width=400)
    torn = before.visible()
    (path,) = [path for path in torn if path.parent.name in ("events", "segments")]
    keep = len(safe[path].rstrip(b"\0")) + chance.randrange(1, 600)
    files = RecordingFiles({**safe, path: torn[path][:keep]}, dirs=before.dirs)
    for number in (1, 2, 3):
        files.tried(number)
    files.acked(1)
    since = len(files.trace)
    store = subject.open(files, clock=Clock(LATER_US))
    do(files, store, [4])
    do(files, store, [5, 6], width=chance.randrange(1, 300))
    store.close()
    return Work(files, recover_with(subject), append_with(subject), since=since)


def purge(subject: Subject, chance: Random) -> Work:
    """After any crash nothing was purged, or all of it is gone from every byte, and it is known that it was there."""
    files = new_disk(subject)
    clock = Clock()
    store = subject.open(files, clock=clock, rotating=True)
    for number in range(1, 7):
        files.tried(number)
        text = SENTINEL if number % 2 else "even"
        put(store, [number], stream=f"note/{number % 2}", text=text, width=chance.randrange(1, 6))
        clock.us += DAY_US // 2
    for number in (2, 4, 6):
        files.acked(number)
    since = len(files.trace)
    files.tried(PURGED)
    with store.open_write() as writer:
        writer.purge("note/1", actor="user:ada", reason="asked to")
    files.acked(PURGED)
    store.close()

    def recover(disk: RecordingFiles) -> Sequence[int]:
        opened = subject.open(disk, create=False, clock=Clock(LATER_US))
        try:
            with opened.open_write():
                pass
            numbers = found_in(opened, gapless=False)
            happened = [PURGED] if opened.purges() else []
        finally:
            opened.close()
        if numbers != ([2, 4, 6] if happened else [1, 2, 3, 4, 5, 6]):
            raise Damaged("half of a purge", why=str(numbers))
        if happened:
            left = [path for path, data in disk.visible().items() if SENTINEL.encode() in data]
            if left:
                raise Damaged("purged bytes are still there", why=str(left))
        return [*numbers, *happened]

    return Work(files, recover, since=since)


def copy(subject: Subject, chance: Random) -> Work:
    """The copy is whole, or has not got its name yet and can be continued."""
    source = _source(chance)
    wanted = verify(source)
    files = RecordingFiles(dirs=[FOLDER])

    def copied(disk: RecordingFiles) -> None:
        draft = Path(f"{ROOT}.copying")

        def open_draft(identity: Identity) -> Store:
            return subject.open(disk, draft, identity=identity, rotating=True)

        target = Target(name="it", draft="draft", open=open_draft, swap=lambda: put_into_place(disk, draft, ROOT))
        with mock.patch("everlog.transfer.copy.BATCH", 3):
            copy_log(source, target)

    files.tried(1)
    copied(files)
    files.acked(1)

    def recover(disk: RecordingFiles) -> Sequence[int]:
        if not disk.exists(ROOT):
            return []
        store = subject.open(disk, create=False)
        try:
            report = verify(store)
            if (report.digest, report.problems) != (wanted.digest, ()) or read_note(
                store.small_state, UNFINISHED
            ) is not None:
                raise Damaged("a copy has got its name and is not whole", why=str(report))
        finally:
            store.close()
        return [1]

    def finish(disk: RecordingFiles) -> None:
        if not recover(disk):
            copied(disk)
            recover(disk)

    return Work(files, recover, finish=finish)


def import_(subject: Subject, chance: Random) -> Work:
    """An import that was cut off leaves whole batches; the same again leaves the same log as one that was not."""
    data = b"".join(Export(_source(chance), Format.EVERLOG).pieces())
    files = new_disk(subject)

    def imported(disk: RecordingFiles) -> list[int]:
        store = subject.open(disk, rotating=True)
        try:
            source = import_pass.Source("file", len(data), lambda size, at: data[at : at + size])
            with mock.patch.object(importing, "BATCH", 3):
                importing.import_files(Log(store, BUILT_IN), [source], import_pass.Options())
            return [recorded.event.payload["n"] for recorded in store.read()]
        finally:
            store.close()

    for number in range(1, 9):
        files.tried(number)
    numbers = imported(files)
    for number in numbers:
        files.acked(number)

    def recover(disk: RecordingFiles) -> Sequence[int]:
        store = subject.open(disk, create=False)
        try:
            found = found_in(store, gapless=False)
        finally:
            store.close()
        if len(found) % 3 and len(found) != len(numbers):
            raise Damaged("half of a batch", why=str(found))
        return found

    def finish(disk: RecordingFiles) -> None:
        if imported(disk) != numbers:
            raise Damaged("importing again did not complete it")
        recover(disk)

    return Work(files, recover, finish=finish)


def _source(chance: Random) -> MemoryStore:
    store = MemoryStore()
    for number in range(1, 9):
        put(store, [number], width=chance.randrange(1, 200))
    return store


def _name(number: int) -> bytes:
    return number.to_bytes(16, "big")


WORKLOADS: dict[str, Workload] = {
    "append": single_events,
    "batches": batches,
    "rotation": rotation,
    "making": making,
    "recovery": recovery,
    "index": index_rebuild,
    "purge": purge,
    "copy": copy,
    "import": import_,
}

"""Import files into a log: everything is read and rehearsed first, and then written, batch by batch.

There are two passes over the same bytes, and neither holds more than a batch in memory. The first reads every line,
completes foreign events, applies the checks of `Log.admit`, and rehearses each batch in a write that is undone. So it
names every line that would be refused, for itself or because of what is in the log. The second pass writes. A file
that changed between them is detected. If ids are replaced, a third pass comes first, because a line may refer to an
id further down.

An import that was stopped can be repeated, and ends with the same log: events that are there already are left out.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing

import msgspec

from everlog.catalog.catalog import Catalog
from everlog.core.clock import JUMP_MAX, LAMPORT_MAX, refuse_clock_jump
from everlog.core.text import counted
from everlog.errors import BadFile, Conflict, RejectedEvent
from everlog.log.admit.events import append_foreign, refuse_secret, refuse_unacceptable
from everlog.log.admit.intake import refuse_unsigned
from everlog.log.forget import forget_again
from everlog.log.log import Log
from everlog.stores.open_write import OpenWrite
from everlog.transfer.foreign import Wrong
from everlog.transfer.import_pass import ImportPass, Options, ReadEvent, Seen, Source
from everlog.transfer.problems import Problems
from everlog.transfer.survey import batches

BATCH = 500


class Imported(msgspec.Struct, frozen=True, kw_only=True):
    """The result of an import. The digest is over the header hashes of the events in the files, in order."""

    events: int
    new: int
    known: int
    repeated: int
    digest: str
    origin: str
    shapes: dict[str, int]
    not_events: dict[str, int]
    dry_run: bool
    origins: int = 0  # chains of the events of spec-kitty files: one per file
    new_ids: int = 0  # events that got a new id
    set_aside: int = 0  # lines that were set aside
    problems: list[str] = []  # what is wrong with the first hundred of them


SetAside = Callable[[Iterator[bytes]], object]
"""Writes the lines that were set aside, each as a JSON object, before anything is recorded."""


def import_files(
    log: Log,
    sources: Sequence[Source],
    options: Options | None = None,
    *,
    dry_run: bool = False,
    set_aside: SetAside | None = None,
    progress: Callable[[int], None] = lambda done: None,
    now_us: Callable[[], int] = lambda: time.time_ns() // 1000,
) -> Imported:
    """Import files in order, as one. `progress` is called with bytes, out of `passes` times their size.

    With `set_aside`, a line that is wrong does not keep the others from being recorded.
    """
    chosen = options or Options()
    size = sum(source.size for source in sources)
    now_ms = now_us() // 1000
    passed = 0

    def reading(replaced: Seen | None = None) -> ImportPass:
        nonlocal passed
        before, passed = passed * size, passed + 1
        made = ImportPass(sources, chosen, lambda done: progress(before + done), go_on=set_aside is not None)
        made.now_ms, made.known, made.replaced = now_ms, lambda id: log.get(id) is not None, replaced
        return made

    with ExitStack() as open_readings:
        learnt = None
        if chosen.new_ids:
            learner = open_readings.enter_context(closing(reading()))
            learner.learn()
            learnt = learner.seen
        first = open_readings.enter_context(closing(reading(learnt)))
        new = _rehearse(log, first)
        if not dry_run:
            if first.bad and set_aside is not None:
                set_aside(first.seen.aside())
            second = open_readings.enter_context(closing(reading(learnt)))
            jump_max = LAMPORT_MAX if chosen.trust_clock else JUMP_MAX
            items = (item for item in second.items() if item.at.number not in first.bad)
            new = sum(
                len(log.writer.admit_encoded([item.sealed for item in batch], jump_max=jump_max))
                for batch in batches(items, BATCH)
            )
            _refuse_changed(first, second)
            if new:
                forget_again(log)  # a file may have had the record of a forget after the event
        return Imported(
            events=first.events,
            new=new,
            known=first.events - new,
            repeated=first.repeated,
            digest=first.digest.hexdigest(),
            origin=first.origin,
            shapes=dict(+first.shapes),
            not_events=dict(first.not_events),
            dry_run=dry_run,
            origins=first.origins,
            new_ids=first.new_ids,
            set_aside=len(first.bad),
            problems=first.problems.texts(),
        )


def passes(options: Options, *, dry_run: bool) -> int:
    """Return how often the files are read."""
    return 1 + options.new_ids + (not dry_run)


class _Undo(Exception):
    """End a rehearsal, so that its write is undone."""

    def __init__(self, new: int = 0) -> None:
        self.new = new


def _rehearse(log: Log, reading: ImportPass) -> int:
    """Return how many events would be new. Each refusal is reported with its line, and nothing is written."""
    clock, new = log.stored.ends().clock, 0
    for batch in batches(reading.items(), BATCH):
        good = []
        for item in batch:
            try:
                check(item, log.catalog, reading.options, now_ms=reading.now_ms)
                if not reading.options.unsigned:
                    refuse_unsigned(
                        log.identity.log_id, [item.sealed], hint="to save what is left of a log: --unsigned"
                    )
                if not reading.options.trust_clock:
                    refuse_clock_jump(clock, item.sealed.event.lamport)
            except Wrong as wrong:
                reading.refuse_event(item, str(wrong), "bad_line")
            except RejectedEvent as error:
                reading.refuse_event(item, str(error), error.code)
            else:
                good.append(item)
                clock = max(clock, item.sealed.event.lamport)
        new += _count_new(log, good, reading)
        for item in good:
            if item.at.number not in reading.bad:
                reading.digest.update(item.sealed.hash)
    refuse_unmatched(reading.options, reading.events + reading.repeated, reading.problems)
    if not reading.go_on:
        refuse(reading.problems, ", ".join(source.name for source in reading.sources))
    return new


_LOOSE = ("kata", "spec-kitty")
"""Rows of these programs have more fields than the event types that they become."""


def check(item: ReadEvent, catalog: Catalog, options: Options, *, now_ms: int) -> None:
    """Refuse an event that is not acceptable in any log with this catalog."""
    event = item.sealed.event
    refuse_unacceptable(event, now_ms=now_ms)
    if not options.keep_unknown_types and not catalog.knows(event.type):
        raise Wrong(f"the type {event.type} is not in this log's catalog")
    # An event of everlog was checked where it was recorded. An event without a salt was erased.
    if item.shape != "everlog" and event.salt:
        catalog.refuse_unfit(event, more_fields=item.shape in _LOOSE)
    refuse_secret(item.sealed)


def _count_new(log: Log, batch: list[ReadEvent], reading: ImportPass) -> int:
    """Record a batch in a write that is undone, and return how many events would be new."""

    def rehearse(write: OpenWrite) -> None:
        raise _Undo(_try(write, batch, reading))

    try:
        log.writer.write(rehearse)
    except _Undo as undo:
        return undo.new
    raise AssertionError("a rehearsal always ends with _Undo")


def _try(writer: OpenWrite, batch: list[ReadEvent], reading: ImportPass) -> int:
    """Refuse events that conflict with the log, and return how many are new."""
    try:
        with writer.attempt():
            return len(append_foreign(writer, [item.sealed for item in batch]))
    except Conflict:
        fresh = 0  # Some of them are refused: they are tried one by one, to name the lines.
    for item in batch:
        try:
            with writer.attempt():
                fresh += len(append_foreign(writer, [item.sealed]))
        except Conflict as error:
            reading.refuse_event(item, str(error), error.code)
    return fresh


def _refuse_changed(before: ImportPass, after: ImportPass) -> None:
    if before.bytes.digest() != after.bytes.digest():
        raise BadFile(
            f"{after.sources[0].name} changed while it was imported",
            why="the second pass read other bytes than the first, which checked them",
            hint="import it again: events that are in the log already are left out",
        )


def refuse(problems: Problems, names: str) -> None:
    if problems.lines:
        more = "or more " if problems.are_many else ""
        texts = problems.texts()
        shapes = "; --mapping FILE describes lines of no known shape" if problems.shapes else ""
        raise BadFile(
            f"{names[:200]} cannot be imported: {counted(problems.lines, 'line is', f'{more}lines are')} wrong",
            why="; ".join(texts[:20]),
            hint="nothing was imported and no file was changed; correct these lines and import again, or import the"
            f" others with --set-aside FILE{shapes}",
            problems=texts,
        )


def refuse_unmatched(options: Options, events: int, problems: Problems) -> None:
    """Refuse a mapping that fits no line: setting all of them aside would hide that it is wrong."""
    if options.mapping is not None and problems.lines and not events:
        raise BadFile(
            f"the mapping matches none of {counted(problems.lines, 'line')}",
            why=problems.texts()[0],
            hint="compare the names in the mapping with those in the file; nothing was imported",
            problems=problems.texts(),
        )

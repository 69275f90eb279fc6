"""Looking at every byte of a log: its segments without the help of an index, then the index against them."""

from __future__ import annotations

from collections.abc import Iterator

from everlog.core.event import START, Position
from everlog.files import Files
from everlog.stores.contract import Identity, Problem
from everlog.stores.segments.book import Book
from everlog.stores.segments.index import LivePart
from everlog.stores.segments.layout import Layout, read_manifest
from everlog.stores.segments.packed_index import columns_of, file_of, load_columns


def problems(files: Files, layout: Layout, identity: Identity) -> Iterator[Problem]:
    manifest = read_manifest(files, layout)
    if manifest is None and files.exists(layout.manifest):
        yield Problem(START, "manifest_damaged", "log.json is not what was written; the next write makes it again")
    book = Book(files, layout, identity, newest=0 if manifest is None else manifest.newest, trust_index=False)
    yield from book.what_is_wrong()
    yield from _lost_mark(book)
    yield from _fences(book)
    yield from _index_problems(files, layout, book)


def file_name_of(layout: Layout, book: Book, position: Position) -> str:
    """The segment that a position is in, or was in before its file was lost."""
    number = 1
    for segment in book.segments:
        if segment.header is not None and position <= segment.header.before:
            break  # in a segment that is not there any more
        number = segment.number
        if position <= segment.head:
            path = layout.archive(number) if segment.archived else layout.segment(number)
            return str(path.relative_to(layout.root))
        number += 1
    if book.segments and not any(problem.code == "segment_missing" for problem in book.problems):
        number = book.live.number  # it lost its end
    return str(layout.segment(number).relative_to(layout.root))


def _lost_mark(book: Book) -> Iterator[Problem]:
    """Somebody cut or changed the last bytes, which held nothing: worth telling, and no reason to refuse writes."""
    if book.segments and book.live.lost_mark:
        live = book.live
        reason = (
            f"{live.number:08}.seg lost the mark of its clean end, bytes {live.end} to"
            f" {live.end + len(live.lost_mark) - 1}; no event was in it, and the next write puts it back"
        )
        yield Problem(START, "mark_lost", reason)


def _fences(book: Book) -> Iterator[Problem]:
    """A writer that went on after another had taken over would show by its smaller number."""
    for part in book.parts:
        if isinstance(part, LivePart) and part.fence_back is not None:
            yield Problem(part.fence_back, "stale_writer", "it was written by a writer that had been replaced")


def _index_problems(files: Files, layout: Layout, book: Book) -> Iterator[Problem]:
    """Index files that say something else than the log. One that is damaged says nothing, and is made again."""
    known = layout.parts(files)
    for segment in book.segments:
        for part in segment.parts:
            if part.start not in known.get(segment.number, ()) or not isinstance(part, LivePart) or part.gaps:
                continue
            try:
                data = files.read_all(layout.part(segment.number, part.start))
            except FileNotFoundError:
                continue  # the writer has taken it away since they were listed: it says nothing either
            found = load_columns(
                data,
                log_id=book.identity.log_id,
                number=segment.number,
                generation=segment.generation,
                start=part.start,
            )
            if found is None or found.end != part.end:
                continue
            if data != file_of(columns_of(part, log_id=book.identity.log_id, generation=segment.generation)):
                reason = f"{layout.part(segment.number, part.start).name} does not say what the log says"
                yield Problem(START, "index_disagrees", reason)

"""The views of a log: registering, asking, waiting, rebuilding.

    log.views.register(Board, mode="async")
    log.view(Board).get("workpackage/WP03").state

Every answer says how old it is: up to which position, and how many positions the log is ahead of that.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from everlog.catalog.nearest import did_you_mean
from everlog.core.event import Position, Recorded
from everlog.core.words import words
from everlog.errors import Conflict, EverlogError, NotFound
from everlog.stores.shelf import MemoryShelf, OwnFile, Shelf, ShelfEmptied, Shelved
from everlog.views.as_of import Cut, Moment, Was, cut, events_to, fold_to, of_key, state_at
from everlog.views.audit import Audit, audit
from everlog.views.builder import BATCH, Builder, Gone
from everlog.views.builtin import BUILT_IN
from everlog.views.checksums import DamagedRecord, DamagedRows, LostRows
from everlog.views.fields import Fields
from everlog.views.filling import Derive
from everlog.views.letters import FAILED, SKIPPED, STOPPED, Letter
from everlog.views.overview import Overview, overview
from everlog.views.presence import require_none
from everlog.views.purging import forget_missed, forget_purged
from everlog.views.rebuild import Rebuilt, roll_back
from everlog.views.restoring import rows_of
from everlog.views.rows import parsed_kept, parsed_state
from everlog.views.runner import Mode, Restored, Runner
from everlog.views.snapshot_folder import Entry
from everlog.views.snapshots import Snapshots
from everlog.views.states import (
    Build,
    active_build,
    build_digest,
    every_name,
    letters_of,
    read_build,
    require_all,
    scan_kept,
)
from everlog.views.view import Order, State, View, view_of

if TYPE_CHECKING:
    from everlog.log.log import Log
    from everlog.stores.staging import Staged

WAIT_S = 5.0
_PAGE_ROWS, _PAGE_ROWS_MAX = 1000, 16_000  # growing: most want a few rows, and some want all of them
_WORDS_MAX = 256  # of a title that others are compared with; SQLite takes no more than 500 at once


_TRIES = 5

_Asked = TypeVar("_Asked")


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """A state, and how old it is."""

    view: str
    key: str
    state: State  # None: there is none under this key
    position: Position  # it includes every event up to here
    lag: int  # positions that the log is ahead of that
    parked: bool = False  # an event of this key could not be applied, and the later ones wait behind it
    stopped_at: int = 0  # the view as a whole goes no further than this event

    @property
    def found(self) -> bool:
        return self.state is not None


class Handle:
    """One view of a log."""

    def __init__(self, log: Log, shelf: Shelf, runner: Runner, snapshots: Snapshots) -> None:
        self._log = log
        self._shelf = shelf
        self._snapshots = snapshots
        self.runner = runner

    @property
    def view(self) -> View:
        return self.runner.view

    # ---- asking

    def get(self, key: str, *, fresh: bool = True, as_of: Moment | None = None) -> Answer:
        """The state of a key. With `fresh=False` as it was last kept, without reading on; with `as_of` as it was."""
        if as_of is not None:
            return self._get_as_of(key, as_of)
        return self._asked(fresh, lambda builder: self._answer(builder, key))

    def _answer(self, builder: Builder, key: str) -> Answer:
        found = builder.rows((key,)).get(key)
        if found is None:
            require_none(self._log, self._shelf, builder, key)
        return Answer(
            view=self.view.name,
            key=key,
            state=None if found is None else found.state,
            position=builder.cursor.position,
            lag=max(0, self._log.head() - builder.cursor.position),
            parked=builder.is_parked(key),
            stopped_at=builder.stopped_at,
        )

    def get_many(self, keys: Collection[str], *, fresh: bool = True) -> dict[str, State]:
        """The states of those of the keys that have one."""
        rows = self._asked(fresh, lambda builder: builder.rows(keys))
        return {key: row.state for key, row in rows.items()}

    def items(self, *, fresh: bool = True, after: str = "", limit: int | None = None) -> Iterator[tuple[str, State]]:
        """Keys and states, in order of the keys."""
        page, whole, count = _PAGE_ROWS, not after, 0
        begun: Build | None = None
        while limit is None or limit > 0:
            size = page if limit is None else min(limit, page)
            # Page by page, because whoever takes them may be slow, and nobody can move the view meanwhile.
            rows, build = self._asked(fresh, lambda builder: self._page(builder, after, size))  # noqa: B023
            fresh = False
            begun, count = begun or build, count + len(rows)
            for key, data in rows:
                yield key, parsed_state(parsed_kept(data).state)
            if len(rows) < size:
                if whole and begun == build:
                    require_all(build, count)
                return
            after, page = rows[-1][0], min(2 * page, _PAGE_ROWS_MAX)
            limit = None if limit is None else limit - size

    def _page(self, builder: Builder, after: str, size: int) -> tuple[list[tuple[str, bytes]], Build]:
        rows = builder.page(after, size)
        if not after and len(rows) < size:
            require_all(builder.build, len(rows))
        return rows, builder.build

    def search(self, text: str, *, within: str = "", limit: int = 50, fresh: bool = True) -> list[tuple[str, State]]:
        """The rows whose text holds every word of this one, the greatest key first; see `View.text`."""
        asked = words(text)
        return self._found(fresh, lambda rows: self._shelf.holding(rows, asked, within=within, limit=limit))

    def alike(
        self, title: str, *, part: str = "", least: float = 0.5, limit: int = 50, fresh: bool = True
    ) -> list[tuple[str, State]]:
        """The rows of a part whose title has at least this share of words in common with the given one, by Jaccard's
        measure, the most alike first."""
        asked = words(title)[:_WORDS_MAX]
        return self._found(fresh, lambda rows: self._shelf.alike(rows, asked, part=part, least=least, limit=limit))

    def count(self, *, fresh: bool = True) -> int:
        return self._asked(fresh, self._count)

    def _count(self, builder: Builder) -> int:
        found = self._shelf.count(builder.build.rows)
        require_all(builder.build, found)
        return found

    def digest(self, *, fresh: bool = True) -> str:
        """One hash over all states: equal wherever the same was derived."""
        return self._asked(fresh, lambda builder: build_digest(self._shelf, builder.build))

    def position(self, *, fresh: bool = False) -> Position:
        """Up to which position the view is."""
        return self._ready(fresh).cursor.position

    def lag(self) -> int:
        """How many positions the log is ahead of the view as it stands."""
        return max(0, self._log.head() - self.position())

    def build(self) -> Build | None:
        return active_build(self._shelf, self.view.name)

    # ---- keeping

    def catch_up(self, *, upto: int | None = None, limit: int = BATCH) -> Position:
        return self.runner.catch_up(upto=upto, limit=limit).cursor.position

    def wait_for(self, position: int | Recorded, timeout_s: float = WAIT_S) -> Position:
        """Until the view has seen a position; ViewBehind when the time is over."""
        wanted = position.position if isinstance(position, Recorded) else position
        return self.runner.wait_for(wanted, timeout_s)

    def rebuild(
        self,
        *,
        switch: bool = True,
        fresh: bool = False,
        progress: Callable[[int], None] = lambda position: None,
        limit: int = BATCH,
        derive: Derive | None = None,
    ) -> Rebuilt:
        """Derive everything anew beside what answers now, compare, and switch over.

        `derive` does it elsewhere up to a position, such as on Spark (`everlog.pipeline.handover`).
        """
        return self.runner.rebuild(switch=switch, fresh=fresh, progress=progress, limit=limit, derive=derive)

    def rollback(self) -> Build:
        """Let the build before the last rebuild answer again."""
        return roll_back(self._shelf, self.view.name)

    def audit(self, *, sample: int | None = None, progress: Callable[[int], None] = lambda position: None) -> Audit:
        """Recount the log against what the view has applied, fold it again, and compare the states.

        `sample` is the number of keys to fold again, chosen at random; without it all of them are.
        """
        builder = self.runner.builder()
        with builder.lock:
            builder.save()
            build = builder.build
        return audit(self._log, self._shelf, self.view, build, sample=sample, progress=progress)

    # ---- snapshots

    def snapshot(self, *, full: bool = False) -> Entry:
        """Keep all states as they are now in a file: a full one, or a patch on the last full one."""
        return self._snapshots.create(self.runner, full=full)

    def restore(self, entry: Entry | None = None) -> Restored:
        """Let a snapshot and what came after it answer, in place of the states that are kept."""
        return self.runner.restore(self._snapshots, entry)

    # ---- dead letters

    def dead_letters(self) -> list[Letter]:
        return self.runner.builder().letters()

    def retry(self) -> list[Letter]:
        """Try everything that waits once more; what still cannot be applied is returned."""
        self.runner.builder().retry()
        self.runner.catch_up()
        return [letter for letter in self.dead_letters() if letter.what in (FAILED, STOPPED)]

    def skip(self, position: int, *, reason: str, actor: str = "") -> list[Letter]:
        """Let the view do without an event, with the reason on record, and go on behind it."""
        builder = self.runner.builder()
        known = {letter.position: letter for letter in builder.letters()}
        if position not in known or known[position].what == SKIPPED:
            raise NotFound(
                f"the view {self.view.name} has no dead letter at position {position}",
                why="only an event that could not be applied can be skipped",
                hint=f"everlog views dead-letters {self.view.name}",
                view=self.view.name,
                position=position,
            )
        builder.retry(skip={position: (actor or self._log.actor, reason)})
        self.runner.catch_up()
        return [letter for letter in self.dead_letters() if letter.what in (FAILED, STOPPED)]

    def _get_as_of(self, key: str, moment: Moment) -> Answer:
        at = cut(self._log, moment, stream=key if self.view.by_stream else "")
        was = self.was_at(key, at)
        row = was.rows.get(key)
        return Answer(
            view=self.view.name,
            key=key,
            state=None if row is None else row.state,
            position=at.upto,
            lag=self._log.head() - at.upto,
            parked=key in was.parked,
            stopped_at=was.stopped_at,
        )

    def was_at(self, key: str, at: Cut) -> Was:
        """What the view said of a key at a moment, with what is known beside the state."""
        skipped = self.skipped()
        if self.view.by_stream or self.view.order is not Order.POSITION or at.lamport is not None:
            return state_at(self._log, self.view, key, at, skipped=skipped)
        # Its history may lie anywhere in the log: a snapshot spares reading all of it.
        loaded = self._snapshots.newest(self.view, upto=at.upto)
        if loaded is None or loaded.body["letters"] or any(place <= loaded.header.position for place in skipped):
            return state_at(self._log, self.view, key, at, skipped=skipped)
        tail = events_to(self._log, self.view.query, at=at, after=loaded.header.position)
        mine = of_key(self._log, self.view, key, tail)
        return fold_to(self._log, self.view, mine, skipped=skipped, start=Was(rows=rows_of(loaded.body, [key])))

    def skipped(self) -> set[int]:
        """The positions that somebody decided the view does without."""
        build = self.build()
        letters = () if build is None else letters_of(self._shelf, build)
        return {letter.position for letter in letters if letter.what == SKIPPED}

    def _found(self, fresh: bool, find: Callable[[str], list[str]]) -> list[tuple[str, State]]:
        """The states of the keys that are found in the rows that answer."""

        def ask(builder: Builder) -> list[tuple[str, State]]:
            keys = find(builder.build.rows)
            rows = builder.rows(keys)
            return [(key, rows[key].state) for key in keys if key in rows]

        return self._asked(fresh, ask)

    def _asked(self, fresh: bool, ask: Callable[[Builder], _Asked]) -> _Asked:
        """The answer of the build that answers, after rows that are damaged were folded again.

        Another process may put a newer build in its place any time, and remove the older ones with their rows: what
        was read of a build that is gone afterwards is asked again. So is what was read of a build that was emptied:
        a process without the view's code does that after a purge.
        """
        turns = 0
        asked_before = False
        while turns < _TRIES:
            # The record of the build is read once, behind the answer; and before it, where that was not as expected.
            builder = self.runner.catch_up(closely=asked_before) if fresh else self._ready(fresh)
            asked_before = True
            try:
                with builder.lock:  # a thread that keeps the view says how far it got before that is on the disk
                    answer = ask(builder)
                    kept = read_build(self._shelf, builder.build.name, builder.build.number)
                    if kept is not None and kept.position >= builder.build.position:
                        return answer
                    if kept is not None:
                        builder.reload()
                continue
            except Gone:
                continue
            except (DamagedRows, DamagedRecord, LostRows, ShelfEmptied) as damaged:
                problem: EverlogError = damaged
            turns += 1
            try:
                self.runner.heal(builder, problem)
                if turns == _TRIES // 2 + 1 and isinstance(self._shelf, OwnFile):
                    self._shelf.make_again(problem)  # rows cannot be replaced where the tree of rows is damaged
            except (DamagedRows, LostRows, ShelfEmptied) as damaged:
                problem = damaged
        raise problem

    def _ready(self, fresh: bool) -> Builder:
        while not fresh:
            builder = self.runner.builder()
            try:
                builder.settle()
            except (Gone, ShelfEmptied):  # a rebuild has put another in its place since
                continue
            return builder
        return self.runner.catch_up()


class Views:
    """All views of one open log."""

    def __init__(
        self,
        log: Log,
        known: Iterable[View | type[View]] = BUILT_IN,
        *,
        more: Callable[[str], View | type[View] | None] = lambda name: None,
        make_snapshots: Callable[[Log, Shelf], Snapshots] = lambda log, shelf: Snapshots(log, shelf, None),
    ) -> None:
        """`known` are the views that this log lists; `more` finds further ones by name, when they are asked for."""
        self._log = log
        self._more = more
        self._known = {view.name: view for view in map(view_of, known)}
        self.shelf: Shelf = log.store.shelf if isinstance(log.store, Shelved) else MemoryShelf()
        self._handles: dict[str, Handle] = {}
        self._inline: list[Runner] = []
        self.snapshots = make_snapshots(log, self.shelf)
        self.snapshots.sweep_quietly()  # a purge may have been killed before it came to this

    def register(self, given: View | type[View], *, mode: Mode | str = Mode.ON_DEMAND) -> Handle:
        """Have a view run in this process: on demand, by a thread of its own, or within every append."""
        view = view_of(given)
        known = self._handles.get(view.name)
        if known is not None:
            raise Conflict(
                f"the view {view.name} is registered twice",
                why="a view runs once in a process",
                hint="use log.view(…) to ask it",
                view=view.name,
            )
        runner = Runner(
            self._log,
            self.shelf,
            view,
            Mode(mode),
            seed=self.snapshots.seed,
            followed=self.snapshots.create_if_due,
        )
        handle = self._handles[view.name] = Handle(self._log, self.shelf, runner, self.snapshots)
        if runner.mode is Mode.INLINE and self.shelf.in_log:
            self._inline.append(runner)
            self._log.in_every_write(self._in_write, done=self._written, undone=self._undone)
        return handle

    def run(self, name: str, *, mode: Mode | str) -> Handle:
        """Have a view that is known by name run in this process."""
        return self._handles.get(name) or self.register(self._named(name), mode=mode)

    def of(self, given: View | type[View] | str) -> Handle:
        """The handle of a view, registered to run on demand if nobody did."""
        if isinstance(given, str):
            if given in self._handles:
                return self._handles[given]
            given = self._named(given)
        view = view_of(given)
        found = self._handles.get(view.name)
        if found is None:
            return self.register(view)
        if type(found.view) is not type(view) or found.view.version != view.version:
            raise Conflict(
                f"two views have the name {view.name}",
                why=f"{type(found.view).__qualname__} and {type(view).__qualname__}",
                hint="give one of them another name",
                view=view.name,
            )
        return found

    def names(self) -> list[str]:
        """The views that can be run here: those that are known, and those that have been run."""
        kept = (name for name in every_name(self.shelf) if self._code(name) is not None and name != Fields.name)
        return sorted({*self._handles, *self._known, *kept})

    def known(self) -> list[View]:
        """The code of the views that can be run here, by name."""
        return [self._named(name) for name in self.names()]

    def overviews(self) -> list[Overview]:
        """How every view stands that can be run here or has been. Nothing is run for it."""
        try:
            return self._overviews()
        except ShelfEmptied:
            return self._overviews()

    def _overviews(self) -> list[Overview]:
        head = self._log.head()
        names = sorted({*self.names(), *every_name(self.shelf)})
        return [overview(self.shelf, name, self._code(name), head) for name in names]

    def damaged_rows(self) -> dict[str, frozenset[str]]:
        """The keys whose rows do not match their checksums, by view. Nothing is run for it, or mended."""
        found = {}
        for name in every_name(self.shelf):
            try:
                build = active_build(self.shelf, name)
                for _ in () if build is None else scan_kept(self.shelf, build):
                    pass
            except DamagedRows as damaged:
                found[name] = damaged.keys
        return found

    def forget_purged(self, stream: str) -> None:
        """Take a stream that was purged out of everything that is kept here, whoever derived it."""
        self.snapshots.sweep_quietly()
        forget_purged(self._log, self.shelf, stream, self._code)

    def forget_missed(self) -> None:
        """The same for earlier purges, where it could not be done: also in states that nobody can run here."""
        forget_missed(self._log, self.shelf, self._code)

    def close(self) -> None:
        for handle in self._handles.values():
            handle.runner.close()
        self._handles.clear()
        self._inline.clear()

    def _named(self, name: str) -> View:
        found = self._code(name)
        if found is None:
            raise NotFound(
                f"there is no view {name}",
                why=f"the views here are {', '.join(self.names())}",
                hint=did_you_mean(name, self.names())
                or "everlog views list; one of your own: everlog config set views MODULE:NAME",
                view=name,
            )
        return found

    def _code(self, name: str) -> View | None:
        """The view of a name, if its code is here."""
        if name in self._handles:
            return self._handles[name].view
        if name == Fields.name:  # every stream has it; not listed, because keeping it doubles what the log says
            return Fields()
        if name in self._known:
            return self._known[name]
        found = self._more(name)
        return None if found is None else view_of(found)

    def _in_write(self, writer: Any) -> None:
        staged: Staged = writer
        for runner in self._inline:
            runner.in_write(staged)

    def _written(self) -> None:
        for runner in self._inline:
            runner.written()

    def _undone(self) -> None:
        for runner in self._inline:
            runner.undone()

"""One partition of a member: a bounded window of events between the stored cursor and the last position read.

    cursor ........ x ..d.. i ....... looked        x unfinished   d done out of order   i in flight

The cursor never passes an unfinished event. Of each key only the first unfinished event is delivered, so its order
holds however many events are in flight. An event that keeps failing becomes a dead letter, which finishes it, and the
others continue.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from everlog.consumers.checkin import Finished
from everlog.consumers.group_state import Progress
from everlog.core.event import Position, Recorded
from everlog.core.query import Cursor, proof_of
from everlog.log.dead_letters import (
    DONE,
    FAILED,
    OPEN,
    RETRYING,
    WAITING,
    GroupLetter,
    letter_of,
)


@dataclass(eq=False)
class PendingEvent:
    """One event in the window, or one dead letter that is tried again."""

    recorded: Recorded
    key: str
    attempts: int = 0
    not_before_us: int = 0
    in_flight: bool = False
    finished: bool = False
    stored: bool = False
    since: float = 0.0  # when it was delivered
    letter: GroupLetter | None = None


class Window:
    def __init__(
        self,
        group: str,
        partition: int,
        token: int,
        progress: Progress,
        letters: list[GroupLetter],
        *,
        proof_at: Callable[[Position], str],
        life_at: Callable[[Position], str],
        size: int,
        holds: bool,
        attempts_max: int,
    ) -> None:
        self.group = group
        self.partition = partition
        self.token = token
        self.lost = False
        self.draining = False
        self._proof_at = proof_at
        self._life_at = life_at
        self._size = size
        self._holds = holds
        self._attempts_max = attempts_max
        self._take_progress(progress)
        self._letters: dict[int, GroupLetter] = {}
        self._waiting: dict[str, list[int]] = {}  # key -> the dead letters that hold it, in order
        self._changed: dict[int, GroupLetter] = {}
        self._forgotten: dict[int, GroupLetter] = {}
        self.take_letters(letters)

    def _take_progress(self, progress: Progress) -> None:
        self._stored = progress
        self.cursor = Cursor.of(progress.cursor)
        self.looked = self.cursor.position
        self._done = set(progress.done)
        self._attempts = dict(progress.attempts)
        self._watched = progress.watched
        self._begun: set[int] = set()
        self._entries: dict[int, PendingEvent] = {}
        self._retries: dict[int, PendingEvent] = {}
        self._retried: list[PendingEvent] = []  # finished, and not stored yet

    # ---- filling

    @property
    def room(self) -> int:
        return self._size - len(self._entries)

    def add(self, recorded: Recorded, key: str, defect: str = "") -> None:
        """Add an event. One whose key cannot be computed becomes a dead letter at once, and holds no other event."""
        position = recorded.position
        if position in self._entries or position in self._done:
            return
        attempts, not_before_us = self._attempts.get(position, (0, 0))
        entry = self._entries[position] = PendingEvent(recorded, key, attempts, not_before_us)
        if defect:
            self._bury(entry, FAILED, defect, holds=False)

    def take_letters(self, letters: list[GroupLetter]) -> None:
        """Set the dead letters of this partition to those in the log, and apply what this owner has not stored
        yet."""
        found = {letter.position: letter for letter in letters}
        for position in self._forgotten:
            found.pop(position, None)
        found.update(self._changed)
        self._letters = {position: found[position] for position in sorted(found) if found[position].what in OPEN}
        self._waiting = {}
        for position, letter in self._letters.items():
            if letter.holds:
                self._waiting.setdefault(letter.key, []).append(position)

    # ---- delivering

    def next(self, now_us: int, read: Callable[[int], Recorded | None]) -> PendingEvent | None:
        """Return what may be handled now: dead letters to retry first, then the oldest event whose key is free."""
        if self.draining:
            return None
        busy = {entry.key for entry in (*self._entries.values(), *self._retries.values()) if entry.in_flight}
        for letter in self._ready_letters(now_us):
            if letter.key in busy:
                continue
            if letter.attempts >= self._attempts_max:
                self._change(msgspec.structs.replace(letter, what=FAILED, reason=_ended(letter.attempts)))
                continue
            recorded = read(letter.position)
            if recorded is None or recorded.event.id != letter.id:
                self._close(letter, None)  # it was purged
                continue
            entry = PendingEvent(recorded, letter.key, letter.attempts, letter=letter, in_flight=True)
            self._retries[letter.position] = entry
            return entry
        for position in sorted(self._entries):
            entry = self._entries[position]
            if entry.finished or entry.key in busy:
                continue
            if entry.key in self._waiting:
                self._bury(entry, WAITING, "an earlier event of its key failed", holds=True)
                continue
            if entry.attempts >= self._attempts_max:
                self._bury(entry, FAILED, _ended(entry.attempts), holds=self._holds)
                continue
            busy.add(entry.key)
            if entry.not_before_us <= now_us:
                entry.in_flight = True
                return entry
        return None

    def begin(self, entry: PendingEvent) -> bool:
        """Return whether this event must be recorded before it is delivered, because an owner of the partition
        vanished."""
        if not self._watched:
            return False
        self._watched -= 1
        self._begun.add(entry.recorded.position)
        return True

    def _ready_letters(self, now_us: int) -> list[GroupLetter]:
        firsts = [self._letters[positions[0]] for positions in self._waiting.values()]
        loose = [letter for letter in self._letters.values() if not letter.holds and letter.what == RETRYING]
        ready = [letter for letter in (*firsts, *loose) if letter.what != FAILED and letter.not_before_us <= now_us]
        return sorted(ready, key=lambda letter: letter.position)

    # ---- taking back

    def finish(self, entry: PendingEvent) -> None:
        entry.in_flight, entry.finished = False, True
        self._begun.discard(entry.recorded.position)
        if entry.letter is not None:
            self._retries.pop(entry.letter.position, None)
            self._retried.append(entry)
            self._close(entry.letter, msgspec.structs.replace(entry.letter, what=DONE, not_before_us=0))

    def fail(self, entry: PendingEvent, reason: str, *, again_us: int) -> None:
        """Record a failed attempt: try again at `again_us`, or make it a dead letter if it was the last attempt."""
        entry.in_flight = False
        entry.attempts += 1
        self._begun.discard(entry.recorded.position)
        last = entry.attempts >= self._attempts_max
        if entry.letter is not None:
            self._retries.pop(entry.letter.position, None)
            what = FAILED if last else RETRYING
            again = msgspec.structs.replace(
                entry.letter, what=what, reason=reason[:2000], attempts=entry.attempts, not_before_us=again_us
            )
            self._change(again)
        elif last:
            self._bury(entry, FAILED, reason, holds=self._holds)
        else:
            entry.not_before_us = again_us
            self._attempts[entry.recorded.position] = (entry.attempts, again_us)

    def give_back(self, entry: PendingEvent) -> None:
        """Take an event back that was neither handled nor failed: it may be delivered again."""
        entry.in_flight = False
        self._begun.discard(entry.recorded.position)
        if entry.letter is not None:
            self._retries.pop(entry.letter.position, None)

    def gave_out(self, entry: PendingEvent) -> bool:
        """Return whether this is still the entry that was delivered, and not one of an earlier history."""
        position = entry.recorded.position
        return self._entries.get(position) is entry or self._retries.get(position) is entry

    @property
    def in_flight(self) -> list[PendingEvent]:
        return [entry for entry in (*self._entries.values(), *self._retries.values()) if entry.in_flight]

    @property
    def unfinished(self) -> bool:
        """Whether anything waits to be handled, now or later; dead letters that wait for a person do not count."""
        ready = any(self._letters[positions[0]].what != FAILED for positions in self._waiting.values())
        loose = any(letter.what == RETRYING for letter in self._letters.values() if not letter.holds)
        return ready or loose or bool(self.in_flight) or any(not entry.finished for entry in self._entries.values())

    # ---- what is stored

    @property
    def mark(self) -> Position:
        """The position up to which everything is finished."""
        open_ = [position for position, entry in self._entries.items() if not entry.finished]
        return Position(min(self.looked, min(open_) - 1)) if open_ else self.looked

    def finished(self, *, lazy: bool = False) -> tuple[Finished, list[PendingEvent]]:
        """Return what to store, and the entries that are stored with it.

        With `lazy`, a cursor that only passed events of other partitions is stored later: a note would save little.
        """
        mark = max(self.mark, self.cursor.position)
        knows = self.cursor.knows if self.cursor.knows > mark else Position(0)
        closed = [entry for entry in self._entries.values() if entry.finished]
        done = {entry.recorded.position for entry in closed} | self._done
        attempts = {
            progress: held for progress, held in self._attempts.items() if progress > mark and progress not in done
        }
        progress = Progress(
            cursor=str(Cursor(mark, knows, self.cursor.epoch, self._proof(mark))),
            done=tuple(sorted(position for position in done if position > mark)),
            attempts=attempts,
            watched=self._watched,
            begun=tuple(sorted(self._begun)),
        )
        idle = lazy and not (closed or self._begun) and attempts == self._stored.attempts
        new = None if idle or progress == self._stored else progress
        return Finished(self.token, new, tuple(self._changed.values()), tuple(self._forgotten.values())), [
            *closed,
            *self._retried,
        ]

    def _proof(self, mark: Position) -> str:
        if mark == self.cursor.position:
            return self.cursor.proof
        entry = self._entries.get(mark)
        return self._proof_at(mark) if entry is None else proof_of(entry.recorded.event.id, self._life_at(mark))

    def was_stored(self, finished: Finished, closed: list[PendingEvent]) -> None:
        if finished.progress is not None:
            self._stored = finished.progress
            self.cursor = Cursor.of(finished.progress.cursor)
            self._done = set(finished.progress.done)
            self._attempts = {p: a for p, a in self._attempts.items() if p > self.cursor.position}
        for entry in closed:
            entry.stored = True
            if self._entries.get(entry.recorded.position) is entry:
                del self._entries[entry.recorded.position]
        self._retried = [entry for entry in self._retried if not entry.stored]
        for letter in finished.letters:
            if self._changed.get(letter.position) is letter:
                del self._changed[letter.position]
        for letter in finished.forgotten:
            self._forgotten.pop(letter.position, None)

    @property
    def letters_to_store(self) -> bool:
        return bool(self._changed or self._forgotten)

    # ---- history changed

    def know_of(self, purged: Position, epoch: str) -> None:
        """After a purge: keep the cursor, and read the buffered events again, without those that are gone."""
        self.cursor = Cursor(self.cursor.position, purged, epoch, self.cursor.proof)
        self.looked = self.mark
        self._entries = {
            position: entry for position, entry in self._entries.items() if entry.in_flight or entry.finished
        }

    def restart(self, cursor: Cursor) -> None:
        """Start over in another history: forget what is finished, and refuse acknowledgements of what is in
        flight."""
        for letter in self._letters.values():
            self._forgotten[letter.position] = letter
        self._letters, self._waiting, self._changed = {}, {}, {}
        stored = self._stored
        self._take_progress(Progress(cursor=str(cursor)))
        self._stored = stored

    # ---- letters

    def _bury(self, entry: PendingEvent, what: str, reason: str, *, holds: bool) -> None:
        entry.finished = True
        letter = letter_of(
            entry.recorded,
            what,
            group=self.group,
            partition=self.partition,
            key=entry.key,
            holds=holds,
            reason=reason,
            attempts=entry.attempts,
        )
        self._attempts.pop(letter.position, None)
        self._letters[letter.position] = self._changed[letter.position] = letter
        if holds:
            self._waiting.setdefault(entry.key, []).append(letter.position)

    def _change(self, letter: GroupLetter) -> None:
        self._letters[letter.position] = self._changed[letter.position] = letter

    def _close(self, letter: GroupLetter, decided: GroupLetter | None) -> None:
        self._letters.pop(letter.position, None)
        self._changed.pop(letter.position, None)
        if decided is None:
            self._forgotten[letter.position] = letter
        else:
            self._changed[letter.position] = decided
        positions = self._waiting.get(letter.key, [])
        if letter.position in positions:
            positions.remove(letter.position)
            if not positions:
                del self._waiting[letter.key]


def _ended(attempts: int) -> str:
    return f"{attempts} attempts failed, the last of them with the end of its consumer"

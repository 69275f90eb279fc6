"""Guards: the rules of a program, applied to every local writer of its event types.

    append, append_batch, commit, NDJSON drafts, aio     judged here
    perform                                              already decided by the same rule: not judged again
    admit, import, copy                                  facts from elsewhere: never judged

A guard runs after validation and before the write opens. It reads the history that matters, and the write then
requires that this history is unchanged. If it has changed, the request is judged again, as often as
`ATTEMPTS` says. A request that may be a replay (it has a key, or brings its own ids) is refused only after the write
has looked for the earlier one: a retry gets its first outcome, although the same change would be refused now.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import NamedTuple, Protocol

import msgspec

from everlog.core.event import Position, Recorded
from everlog.core.query import Looks, Newest, Query
from everlog.errors import EverlogError, QueryMatched
from everlog.log.write.draft import Draft, PreparedDraft
from everlog.log.write.expect import find_change
from everlog.stores.open_write import OpenWrite

ATTEMPTS = 20
"""How often a request is judged again when others keep adding to the history that its guard reads."""

PAUSE_S_MAX = 0.1


def pause_s(attempt: int) -> float:
    """Return how long to wait before the next attempt: longer each time, and at random, so that of many writers that
    overtake each other all get through."""
    return random.uniform(0, min(PAUSE_S_MAX, 0.001 * 2**attempt))


class ReadRecords(Protocol):
    """`Log.read`."""

    def __call__(
        self, query: Query, *, upto: int, limit: int | None = None, newest_first: bool = False
    ) -> Iterator[Recorded]: ...


class DecisionHistory(list[Recorded]):
    """The events that a decision is based on, up to a position."""

    def __init__(
        self,
        read: ReadRecords,
        looks: Looks | Sequence[Looks],
        upto: Position,
        already_read: dict[Looks, list[Recorded]] | None = None,
        shared: dict[str, object] | None = None,
    ) -> None:
        self.shared = {} if shared is None else shared  # for the guard, by all drafts of one request
        self._read = read
        self.upto = upto
        self.already_read = {} if already_read is None else already_read
        several = [looks] if isinstance(looks, Query | Newest) else looks
        self.queries = [look.query if isinstance(look, Newest) else look for look in several]
        found = {recorded.position: recorded for look in several for recorded in self._matching(look)}
        super().__init__(found[position] for position in sorted(found))

    def also(self, query: Query) -> list[Recorded]:
        """Return further events, for a rule that learns only from the first ones which others matter."""
        self.queries.append(query)
        return list(self._matching(query))

    def relies_on(self, query: Query) -> None:
        """Require that nothing is added to events that are not read here, because a view was or will be asked.

        If that view has seen events beyond `upto`, the decision is made again, so it may be asked at any time.
        """
        self.queries.append(query)

    def _matching(self, look: Looks) -> list[Recorded]:
        found = self.already_read.get(look)
        if found is None:
            if isinstance(look, Newest):
                found = list(self._read(look.query, upto=self.upto, limit=1, newest_first=True))
            else:
                found = list(self._read(look, upto=self.upto))
            self.already_read[look] = found
        return found


class Guard(NamedTuple):
    """The rules of one program."""

    looks_at: Callable[[Draft], Looks | Sequence[Looks]]
    """Return the history that matters for a draft."""

    judge: Callable[[DecisionHistory, Sequence[Draft], Draft], None]
    """Raise a refusal, or return: of the history, the earlier drafts of the same batch, and this draft.

    The drafts have validated payloads and their actor, which is never empty.
    """


Guards = Callable[[str], Guard | None]
"""Return the guard of an event type, if a program owns that type. The program is loaded no earlier than that."""


class Overtaken(QueryMatched):
    """The history that a guard had read has changed. The request is judged again."""


class Judged(NamedTuple):
    """What the guards of a request have read, and their refusal if there is one."""

    queries: tuple[Query, ...]
    upto: Position
    epoch: str
    refusal: EverlogError | None = None

    def require(self, write: OpenWrite) -> None:
        """Refuse the request inside the write: Overtaken if the history has changed, else what the guard refused."""
        change = find_change(write, self.queries, after=self.upto, epoch=self.epoch)
        if change is not None:
            raise Overtaken(
                change.what,
                why=f"the rules were applied {ATTEMPTS} times, and each time their history had changed",
                hint="try again",
                **change.details,
            )
        if self.refusal is not None:
            raise self.refusal


class Judge:
    """Applies the guards of one log."""

    def __init__(
        self, guards: Guards, read: ReadRecords, head: Callable[[], Position], epoch: Callable[[], str]
    ) -> None:
        self._guards = guards
        self._epoch = epoch
        self._read = read
        self._head = head

    def concerns(self, drafts: Sequence[Draft]) -> bool:
        """True if a draft has a type that a program owns. The drafts need not be valid."""
        last: object = None
        for draft in drafts:
            if isinstance(draft, Draft) and draft.type is not last:
                last = draft.type
                if isinstance(last, str) and self._guards(last) is not None:
                    return True
        return False

    def judge(self, prepared: Collection[PreparedDraft]) -> Judged | None:
        """Apply the guards to the drafts of one request; None if no program owns any of their types."""
        found = {event_type: self._guards(event_type) for event_type in {item.draft.type for item in prepared}}
        if not any(found.values()):
            return None
        epoch = self._epoch()  # first: what is read after a checkout must not count as read before it
        upto, refusal = self._head(), None
        earlier: list[Draft] = []
        queries: dict[Query, None] = {}
        already_read: dict[Looks, list[Recorded]] = {}  # the drafts of a batch often look at the same history
        shared: dict[str, object] = {}
        for item in prepared:
            draft = msgspec.structs.replace(item.draft, payload=item.payload, actor=item.actor)
            guard = found[draft.type]
            if guard is not None:
                history = DecisionHistory(self._read, guard.looks_at(draft), upto, already_read, shared)
                try:
                    guard.judge(history, earlier, draft)
                except EverlogError as error:
                    refusal = error
                queries.update(dict.fromkeys(history.queries))
                if refusal is not None:
                    break
            earlier.append(draft)
        return Judged(tuple(queries), upto, epoch, refusal)

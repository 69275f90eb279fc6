"""The claims and notes of a log, found in its state."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import Protocol, TypeVar

from everlog.stores.contract import Claim
from everlog.stores.segments.state import LogState
from everlog.stores.small_state import Beside, LostNotes, Row, claim_row, note_row

T = TypeVar("T")


class Asking(Protocol):
    """How the state of a log is asked: up to date, and again if a segment was rewritten meanwhile."""

    def __call__(self, ask: Callable[[LogState], T]) -> T: ...


class SmallRows:
    def __init__(self, ask: Asking, *, now_us: Callable[[], int], claims_kept_us: int) -> None:
        self._ask = ask
        self._now_us = now_us
        self._claims_kept_us = claims_kept_us

    def beside(self) -> Beside:
        return Beside(self._find_claims, self._find_note, self._find_notes, self._every_row, self._lost)

    def _find_claims(self, names: Collection[bytes]) -> dict[bytes, Claim]:
        since_us = self._now_us() - self._claims_kept_us
        return self._ask(lambda state: state.claims(names, since_us=since_us))

    def _find_note(self, key: str) -> str | None:
        value, expires = self._ask(lambda state: state.notes.get(key, (None, None)))
        return None if expires is not None and expires <= self._now_us() else value

    def _find_notes(self, prefix: str, limit: int | None, newest_first: bool) -> dict[str, str]:
        now = self._now_us()
        found = self._ask(
            lambda state: [
                (key, value)
                for key, (value, expires) in state.notes.items()
                if key.startswith(prefix) and (expires is None or expires > now)
            ]
        )
        return dict(sorted(found, reverse=newest_first)[:limit])

    def _lost(self) -> LostNotes | None:
        error, origins = self._ask(lambda state: (state.lost_end(), state.chains.keys()))
        return None if error is None else LostNotes(error, origins)

    def _every_row(self) -> Iterator[Row]:
        now = self._now_us()
        notes, claims = self._ask(
            lambda state: (
                [(key, *note) for key, note in state.notes.items()],
                {name: claim for part in state.parts for name, claim in part.claims()},
            )
        )
        yield from (claim_row(name, claim) for name, claim in claims.items())
        yield from (note_row(*note) for note in notes if note[2] is None or note[2] > now)

"""The whole week: decided ahead in memory by the rules of the programs, and recorded in batches.

A command of a program decides, flushes, and only then is the next one decided: right for people, and slow for a week
at once. So the week is rehearsed in a log in memory that takes itself for the real one, where each command is
decided as usual. What was recorded there is recorded here in the same order, many events per flush.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from everlog import wiring
from everlog.core.event import Event
from everlog.demo.programs import agents, community, controlplane, customers, issues, workpackages
from everlog.demo.week import Week
from everlog.log.log import Log
from everlog.log.write.draft import Draft

BATCH = 100
NOON_OF_THURSDAY = timedelta(days=3, hours=12)


class Story:
    def __init__(self, log: Log, today: datetime) -> None:
        self.week = Week(today)
        self.rehearsal = wiring.rehearsal(log)
        self._log = log
        self._recorded = 0
        for program in (workpackages, issues, community, controlplane, agents, customers):
            for thread in program.threads(self.rehearsal, self.week):
                self.week.join(thread)

    def go_on(self, until: datetime | None = None) -> list[Event]:
        """Play on to a moment, and record what happened."""
        self.week.play(until)
        new = [recorded.event for recorded in self.rehearsal.read(after=self._recorded)]
        self._recorded = self.rehearsal.head()
        record(self._log, new)
        return new

    def close(self) -> None:
        self.rehearsal.close()


def record(log: Log, events: Sequence[Event]) -> None:
    """Record events that were decided elsewhere as this log's own, with their ids, so that causes stay causes."""
    drafts = [
        Draft(
            type=event.type,
            stream=event.stream,
            payload=event.payload,
            actor=event.actor,
            scope=event.scope,
            id=event.id,
            occurred_at=event.occurred_at,
            request_id=event.request_id,
            causation_id=event.causation_id,
            correlation_id=event.correlation_id,
            tags=event.tags,
        )
        for event in events
    ]
    for start in range(0, len(drafts), BATCH):
        log.writer.commit(drafts[start : start + BATCH], operation="demo", decided=True)  # in the rehearsal

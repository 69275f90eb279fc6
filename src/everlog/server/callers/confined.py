"""The log as a caller sees it that is limited to a scope.

What is outside of the scope does not exist: it is not read, and the head, the cursors and the counts that the caller
gets are made of the events in it, so that they do not show how much others write. A stream belongs to the scope of
its first event. The work is done by the operations of the log, which every surface shares.
"""

from __future__ import annotations

from everlog.application.operations import appending
from everlog.application.operations.appending import claimed_streams as claimed_streams
from everlog.application.operations.appending import taken_meanwhile as taken_meanwhile
from everlog.core.event import Recorded
from everlog.core.query import in_scope
from everlog.core.query import narrowed as confined
from everlog.log.write.draft import Draft
from everlog.programs.perform import without_place as without_place
from everlog.server.routes.route import Caller

__all__ = ["claimed_streams", "confined", "own_draft", "taken_meanwhile", "visible", "without_place"]


def visible(recorded: Recorded | None, caller: Caller) -> Recorded | None:
    """Return a record if the caller may see it."""
    return recorded if recorded is not None and in_scope(recorded.event.scope, caller.within) else None


def own_draft(draft: Draft, caller: Caller) -> Draft:
    """Return a draft with the actor and the scope of the caller; refuse another actor or a scope outside."""
    return appending.own_draft(draft, caller.actor, caller.within)

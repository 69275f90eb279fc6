"""The answers that the demo shows at its end: a board, issues, members, an audit and a trace."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from everlog.programs.controlplane.questions import Audit
from everlog.programs.issues.questions import List
from everlog.programs.perform import ask
from everlog.programs.workpackages.questions import Board

if TYPE_CHECKING:
    from everlog.log.log import Log

ROWS = 6


def shown(log: Log) -> dict[str, list[dict[str, Any]]]:
    """Return the rows of each answer."""
    from everlog.demo.programs import community as street
    from everlog.demo.programs import issues as reports
    from everlog.demo.programs import workpackages as plan
    from everlog.programs.agents.questions import Trace
    from everlog.programs.community import questions as community

    feature = list(plan.FEATURES)[-1]
    session = _busiest(log)
    return {
        "board": ask(log, Board(feature=feature)),
        "issues": ask(log, List(project=reports.SCOPE, limit=ROWS)),
        "members": community.members(log, street.HEARTH),
        "audit": [
            {
                "position": entry.position,
                "at": f"{entry.occurred_at:%m-%d %H:%M}",
                "actor": entry.actor,
                "actor_type": entry.actor_type,
                "type": entry.type,
                "stream": entry.stream,
            }
            for entry in ask(log, Audit(place="acme", actor_type="user", limit=None), within="acme")[-ROWS:]
        ],
        "trace": [{"session": session, **step} for step in ask(log, Trace(session=session))[: 2 * ROWS]],
    }


def _busiest(log: Log) -> str:
    """Return the session of a work package with the most steps."""
    from everlog.demo.programs import workpackages as plan
    from everlog.programs.agents.views import Trace

    rows = ((key, len(state["steps"])) for key, state in log.view(Trace).items())
    return max((row for row in rows if row[0] in plan.names()), key=lambda row: (row[1], row[0]))[0]

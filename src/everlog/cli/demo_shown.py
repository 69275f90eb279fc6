"""What the demo shows at its end: a board, issues, members, an audit and a trace, as their programs show them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from everlog.cli.output import safe

if TYPE_CHECKING:
    from everlog.cli.output import Output
    from everlog.log.log import Log

ROWS = 6


def shown(log: Log) -> dict[str, list[dict[str, Any]]]:
    """The answers themselves, for programs."""
    from everlog.demo import community as street
    from everlog.demo import issues as reports
    from everlog.demo import workpackages as plan
    from everlog.domains.agents import commands as agents
    from everlog.domains.community import asking as community
    from everlog.domains.controlplane import asking as control
    from everlog.domains.issues import asking as issues
    from everlog.domains.workpackages import commands as workpackages

    feature = list(plan.FEATURES)[-1]
    session = _busiest(log)
    return {
        "board": workpackages.board(log, feature=feature),
        "issues": issues.listed(log, scope=reports.SCOPE, limit=ROWS),
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
            for entry in control.audit(log, "acme", actor_type="user", within="acme", limit=None)[-ROWS:]
        ],
        "trace": [{"session": session, **step} for step in agents.trace(log, session)[: 2 * ROWS]],
    }


def lines(log: Log, out: Output, found: dict[str, list[dict[str, Any]]]) -> Iterator[str]:
    """The same for people, a few lines each."""
    from everlog.cli.wp_board import board_lines
    from everlog.domains.workpackages import commands as workpackages

    yield "\nThe board of a feature (everlog wp board):"
    yield from _indented(board_lines(out, found["board"], workpackages.specs(log), everything=False))
    yield "\nThe newest open issues (everlog issue list):"
    yield from _table(out, ("id", "owner", "labels", "title"), found["issues"])
    yield "\nMembers (everlog community members):"
    yield from _table(out, ("member", "role", "status", "name"), found["members"][:ROWS])
    yield "\nThe end of an audit (everlog control audit acme --actor-type user):"
    yield from _table(out, ("position", "at", "actor", "actor_type", "type", "stream"), found["audit"])
    whose = found["trace"][0]["session"]
    yield f"\nWhat led to what in one work package, the first of it (everlog agent trace {whose}):"
    for step in found["trace"]:
        about = step.get("tool_name") or step["stream"]
        told = f"{safe(step['status'])}  {safe(about)}  {out.dim(safe(step['actor']))}"
        yield f"  {'  ' * step['depth']}{told}"


def _busiest(log: Log) -> str:
    """The session of a work package that has the most to tell."""
    from everlog.demo import workpackages as plan
    from everlog.domains.agents.views import Trace

    rows = ((key, len(state["steps"])) for key, state in log.view(Trace).items())
    return max((row for row in rows if row[0] in plan.names()), key=lambda row: (row[1], row[0]))[0]


def _table(out: Output, columns: Sequence[str], rows: Sequence[dict[str, Any]]) -> Iterator[str]:
    texts = [[_cell(row[name]) for name in columns] for row in rows]
    widths = [max(map(len, column)) for column in zip(columns, *texts, strict=True)]
    yield "  " + out.dim(out.aligned(columns, widths))
    for row in texts:
        yield "  " + out.aligned(row, widths)


def _cell(value: Any) -> str:
    return safe(", ".join(value) if isinstance(value, list) else str(value))


def _indented(texts: Sequence[str]) -> Iterator[str]:
    return (f"  {text}".rstrip() for text in texts)

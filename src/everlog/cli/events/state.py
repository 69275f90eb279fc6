"""`everlog state`, `diff` and `why`: the state of a stream or a view, now and at any earlier moment."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from everlog.cli.output import Answer, json_text, safe
from everlog.cli.session import Session, common_options, missing_ok_option, pass_session, past_damage_option
from everlog.cli.time_options import AS_OF, TakesMoments
from everlog.core.text import counted

if TYPE_CHECKING:
    from everlog.application.events.time_travel import Cut, Made, Moment
    from everlog.core.event import Recorded

SHOWN_MAX = 50

_as_of = click.option(
    "--as-of",
    "as_of",
    type=AS_OF,
    metavar="MOMENT",
    help="The moment: #105, a time, -10m, lamport:41 or v3 (a stream's third event).",
)
_view = click.option("--view", "view_name", metavar="VIEW", help="STREAM is a key of this view, not a stream.")


@click.command("state", cls=TakesMoments)
@click.argument("name", metavar="STREAM|VIEW")
@click.argument("key", required=False, default="", metavar="[KEY]")
@_as_of
@missing_ok_option
@past_damage_option
@common_options
@pass_session
def state_command(session: Session, name: str, key: str, as_of: Moment | None) -> None:
    """Show the state of a stream, or of a key of a view, now or as it was.

    The state of a stream is its row in the view that its program declares, such as the board for a work package, or
    else the last value of each of its fields (always: everlog state fields STREAM). A time means the state before the
    first event that arrived at that time or later.

    \b
    Examples:
      everlog state note/1
      everlog state note/1 --as-of -10m
      everlog state board WP03 --as-of '#105'
    """
    from everlog.application.anywhere import state_then
    from everlog.application.events.time_travel import describe
    from everlog.core.differences import leaves

    found = state_then(session.any_log(), name, key, moment=as_of)
    if found.incomplete:
        session.out.warn(f"an event of {found.key} could not be applied, so the state ends before it")
    data = {
        "view": found.view,
        "key": found.key,
        **_cut_object(found.at),
        "events": found.events,
        "state": found.state,
    }
    fields = list(leaves(found.state))
    lines = [f"{safe(path)} = {json_text(value)}" for path, value in fields]
    lines.append(session.out.dim(f"after {counted(found.events, 'event')}, {describe(found.at)}"))
    session.out.answer(Answer(data=data, ids=[found.key], rows=fields, lines=lines, facts=data))


@click.command("diff", cls=TakesMoments)
@click.argument("name", metavar="STREAM")
@click.argument("before", type=AS_OF, metavar="A")
@click.argument("after", type=AS_OF, required=False, metavar="[B]")
@_view
@past_damage_option
@common_options
@pass_session
def diff_command(session: Session, name: str, before: Moment, after: Moment | None, view_name: str | None) -> None:
    """Show what changed in a stream between two moments, and the events between them.

    A moment is #105, a time, -10m, lamport:41, or v3 for the third event of the stream. B is now by default.

    \b
    Examples:
      everlog diff note/1 v1 v2
      everlog diff note/1 -1h
      everlog diff WP03 '#100' '#105' --view board
    """
    from everlog.application.anywhere import change_between
    from everlog.cli.events.records import table_lines
    from everlog.core.codec import recorded_object

    found = change_between(session.any_log(), name, before, after, view_name=view_name or "")
    rows = [(one.path, _shown(one.was), _shown(one.now)) for one in found.changed]
    data = {
        "view": found.view,
        "key": found.key,
        "from": _cut_object(found.old),
        "to": _cut_object(found.new),
        "changes": [_change_object(one.path, one.was, one.now) for one in found.changed],
        "events": [recorded_object(recorded) for recorded in found.events],
    }
    lines = [f"{safe(path)}  {was or '(none)'} -> {now or '(none)'}" for path, was, now in rows]
    if found.events:
        lines += ["", *(["without"] if found.backwards else []), *table_lines(session.out, found.events)]
    elif not found.changed:
        lines.append("nothing changed")
    session.out.answer(
        Answer(
            data=data,
            ids=[path for path, _, _ in rows],
            columns=("path", "was", "now"),
            rows=rows,
            lines=lines,
            facts={"key": found.key, "changes": len(rows), "events": len(found.events)},
        )
    )


@click.command("why", cls=TakesMoments)
@click.argument("name", metavar="STREAM")
@click.argument("path", metavar="PATH")
@_as_of
@_view
@click.option(
    "-n",
    "--limit",
    type=click.IntRange(1),
    default=SHOWN_MAX,
    show_default=True,
    help="The maximum number of events.",
)
@missing_ok_option
@past_damage_option
@common_options
@pass_session
def why_command(
    session: Session, name: str, path: str, as_of: Moment | None, view_name: str | None, limit: int
) -> None:
    """Show which events set a value, the newest last, with their causes.

    \b
    Examples:
      everlog why note/1 text
      everlog why note/1 '$.owner.name' --as-of -1h
      everlog why WP03 lane --view board
    """
    from everlog.application.anywhere import reasons_for

    found = reasons_for(session.any_log(), name, path, moment=as_of, view_name=view_name or "", limit=limit)
    events = found.events[::-1]
    columns = ("position", "id", "type", "actor", "was", "now", "causes")
    data = {
        "view": found.view,
        "key": found.key,
        "path": found.path,
        "as_of": found.at.label,
        "events": [_made_object(one) for one in events],
    }
    session.out.answer(
        Answer(
            data=data,
            ids=[one.recorded.event.id for one in events],
            columns=columns,
            rows=[_row(one) for one in events],
            lines=[line for one in events for line in _lines(session, one)],
            facts={"key": found.key, "path": found.path, "events": len(events)},
        )
    )


# ---- how it is shown


def _cut_object(at: Cut) -> dict[str, Any]:
    return {"as_of": at.label, "position": at.upto, "lamport": at.lamport, "next": at.next}


def _shown(value: Any) -> str:
    import msgspec

    return "" if value is msgspec.UNSET else json_text(value)


def _change_object(path: str, was: Any, now: Any) -> dict[str, Any]:
    import msgspec

    return {
        "path": path,
        **{name: value for name, value in (("was", was), ("now", now)) if value is not msgspec.UNSET},
    }


def _row(made: Made) -> tuple[Any, ...]:
    event = made.recorded.event
    causes = " ".join([*(f"#{cause.position}" for cause in made.causes), *([made.unknown] if made.unknown else [])])
    return (made.recorded.position, event.id, event.type, event.actor, _shown(made.was), _shown(made.now), causes)


def _made_object(made: Made) -> dict[str, Any]:
    from everlog.core.codec import recorded_object

    return {
        **_change_object("", made.was, made.now),
        "event": recorded_object(made.recorded),
        "causes": [recorded_object(cause) for cause in made.causes],
        "unknown_cause": made.unknown or None,
    }


def _lines(session: Session, made: Made) -> list[str]:
    out = session.out
    lines = [f"{_shown(made.was) or '(none)'} -> {_shown(made.now) or '(none)'}", "  " + _event(out, made.recorded)]
    lines += [out.dim("    because of ") + _event(out, cause) for cause in made.causes]
    if made.unknown:
        lines.append(out.dim(f"    because of {safe(made.unknown)}, which is not an event of this log"))
    return lines


def _event(out: Any, recorded: Recorded) -> str:
    from everlog.cli.events.records import Lines

    found: str = Lines(out).line(recorded)
    return found

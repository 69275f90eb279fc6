"""`everlog state`, `diff` and `why`: what a stream or a view says, now and at any moment before."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from everlog.cli.output import Answer, json_text, safe
from everlog.cli.session import Session, common_options, missing_ok_option, pass_session, past_damage_option
from everlog.cli.times import AS_OF, TakesMoments
from everlog.core.counted import counted

if TYPE_CHECKING:
    from everlog.core.event import Recorded
    from everlog.errors import NotFound
    from everlog.log.log import Log
    from everlog.views.as_of import Cut, Moment
    from everlog.views.view import View
    from everlog.views.why import Made

SHOWN_MAX = 50
LIKE_EVENTS_MAX = 1000
"""Among so many of the newest events a name is looked for that a mistyped one may have been meant to be."""

_as_of = click.option(
    "--as-of",
    "as_of",
    type=AS_OF,
    metavar="MOMENT",
    help="Go back to #105, a time, -10m, lamport:41 or v3 (a stream's third event).",
)
_view = click.option("--view", "view_name", metavar="VIEW", help="A key of this view, not a stream.")


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

    The state of a stream is the last value of every field along it. A time stands for the state before the first
    event that arrived at that time or later.

    \b
    Examples:
      everlog state note/1
      everlog state note/1 --as-of -10m
      everlog state board WP03 --as-of '#105'
    """
    view, key = _named(session, name, key)
    log = session.log()
    from everlog.views.as_of import cut

    at = cut(log, as_of, stream=key if view.by_stream else "")
    was = log.view(view).was_at(key, at)
    row = was.rows.get(key)
    if row is None:
        raise _nothing(log, view, key, at)
    if key in was.parked or was.stopped_at:
        session.out.warn(f"an event of {key} could not be applied, so the state goes no further than that one")
    from everlog.views.differences import leaves

    data = {
        "view": view.name,
        "key": key,
        "as_of": at.said,
        "position": at.upto,
        "lamport": at.lamport,
        "next": at.next,
        "events": row.count,
        "state": row.state,
    }
    found = list(leaves(row.state))
    lines = [f"{safe(path)} = {json_text(value)}" for path, value in found]
    lines.append(session.out.dim(f"after {counted(row.count, 'event')}, {_told(at)}"))
    session.out.answer(Answer(data=data, ids=[key], rows=found, lines=lines, facts=data))


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

    A moment is #105, a time, -10m, lamport:41, or v3 for the third event of the stream. Without B it is now.

    \b
    Examples:
      everlog diff note/1 v1 v2
      everlog diff note/1 -1h
      everlog diff WP03 '#100' '#105' --view board
    """
    from everlog.cli.records import table_lines
    from everlog.core.codec import recorded_object
    from everlog.views.as_of import cut, history_of, state_at
    from everlog.views.differences import differences

    view, key = _named(session, view_name or name, name if view_name else "")
    log, skipped = session.log(), _skipped(session, view)
    stream = key if view.by_stream else ""
    old, new = cut(log, before, stream=stream), cut(log, after, stream=stream)
    was, now = (state_at(log, view, key, at, skipped=skipped).states().get(key) for at in (old, new))
    history = history_of(log, view, key, new)
    if not history and was is None:
        raise _nothing(session.log(), view, key, new)
    earlier = history_of(log, view, key, old)
    known = {recorded.position for recorded in earlier}
    between = [recorded for recorded in history if recorded.position not in known]
    backwards = not between and len(earlier) > len(history)  # asked for from the later to the earlier
    if backwards:
        left = {recorded.position for recorded in history}
        between = [recorded for recorded in earlier if recorded.position not in left]
    changed = list(differences({} if was is None else was, {} if now is None else now))
    rows = [(difference.path, _shown(difference.was), _shown(difference.now)) for difference in changed]
    data = {
        "view": view.name,
        "key": key,
        "from": {"as_of": old.said, "position": old.upto, "lamport": old.lamport, "next": old.next},
        "to": {"as_of": new.said, "position": new.upto, "lamport": new.lamport, "next": new.next},
        "changes": [_change(difference.path, difference.was, difference.now) for difference in changed],
        "events": [recorded_object(log_record) for log_record in between],
    }
    lines = [f"{safe(path)}  {was or '(none)'} -> {now or '(none)'}" for path, was, now in rows]
    if between:
        lines += ["", *(["without"] if backwards else []), *table_lines(session.out, between)]
    elif not changed:
        lines.append("nothing changed")
    session.out.answer(
        Answer(
            data=data,
            ids=[path for path, _, _ in rows],
            columns=("path", "was", "now"),
            rows=rows,
            lines=lines,
            facts={"key": key, "changes": len(rows), "events": len(between)},
        )
    )


@click.command("why", cls=TakesMoments)
@click.argument("name", metavar="STREAM")
@click.argument("path", metavar="PATH")
@_as_of
@_view
@click.option("-n", "--limit", type=click.IntRange(1), default=SHOWN_MAX, show_default=True, help="At most so many.")
@missing_ok_option
@past_damage_option
@common_options
@pass_session
def why_command(
    session: Session, name: str, path: str, as_of: Moment | None, view_name: str | None, limit: int
) -> None:
    """Show which events made a value what it is, newest first, with their causes.

    \b
    Examples:
      everlog why note/1 text
      everlog why note/1 '$.owner.name' --as-of -1h
      everlog why WP03 lane --view board
    """
    from everlog.core.paths import parse_path, path_of
    from everlog.errors import NotFound
    from everlog.views.as_of import cut
    from everlog.views.why import why

    view, key = _named(session, view_name or name, name if view_name else "")
    parts = parse_path(path)
    log = session.log()
    at = cut(log, as_of, stream=key if view.by_stream else "")
    made = why(log, view, key, parts, at, skipped=_skipped(session, view), limit=limit)
    if not made:
        raise NotFound(
            f"no event of {key} says anything of {path_of(parts)}",
            why=_told(at),
            hint=f"everlog state {key if view.by_stream else f'{view.name} {key}'}",
            key=key,
            path=path_of(parts),
        )
    columns = ("position", "id", "type", "actor", "was", "now", "causes")
    rows = [_row(one) for one in made]
    data = {
        "view": view.name,
        "key": key,
        "path": path_of(parts),
        "as_of": at.said,
        "events": [_made_object(one) for one in made],
    }
    lines = [line for one in made for line in _lines(session, one)]
    session.out.answer(
        Answer(
            data=data,
            ids=[one.recorded.event.id for one in made],
            columns=columns,
            rows=rows,
            lines=lines,
            facts={"key": key, "path": path_of(parts), "events": len(made)},
        )
    )


# ---- what is asked for


def _named(session: Session, name: str, key: str) -> tuple[View, str]:
    """A stream (the view of its fields), or a view and a key of it."""
    from everlog.errors import InvalidField
    from everlog.views.fields import Fields

    if "/" in name and not key:
        return Fields(), name
    handle = session.log().view(name)
    handle.runner.tell_of_other_code()  # what is kept may say something else than what is folded here
    view = handle.view
    if not key:
        raise InvalidField(
            f"{name} is a view",
            why="a view has a state for every key",
            hint=f"everlog state {name} KEY",
            field="key",
        )
    return view, key


def _skipped(session: Session, view: View) -> set[int]:
    return session.log().view(view).skipped()


def _nothing(log: Log, view: View, key: str, at: Cut) -> NotFound:
    from everlog.errors import NotFound

    what, why = f"{key} has no state", f"no event of it is there {_told(at)}"
    if not view.by_stream:
        return NotFound(what, why=why, hint=f"everlog views get {view.name}", key=key)
    purge = next((purge for purge in log.purges() if purge.stream == key), None)
    if next(log.read(stream=key, limit=1), None) is not None:
        hint = f"everlog log --stream {key}"
    elif purge is not None:
        why, hint = f"it was purged ({purge.reason})", "everlog log --purges"
    else:
        hint = _like(log, key)
    return NotFound(what, why=why, hint=hint, key=key)


def _like(log: Log, stream: str) -> str:
    """What to type about a stream that never was: it may be mistyped, and the log may have others of its kind."""
    from everlog.catalog.nearest import did_you_mean
    from everlog.core.query import Query

    kind, _, name = stream.partition("/")
    newest = log.read(Query(kind=kind), limit=LIKE_EVENTS_MAX, newest_first=True)
    others = {recorded.event.stream.partition("/")[2] for recorded in newest}
    meant = did_you_mean(name, others).replace("mean ", f"mean {kind}/")
    return f"{meant} {'everlog log --kind ' + kind if others else 'everlog log'}".strip()


def _told(at: Cut) -> str:
    before = "" if at.next is None else f", before the event #{at.next}"
    return f"as of {at.said}{before}" if at.said != f"#{at.upto}" else f"as of {at.said}"


# ---- how it is shown


def _shown(value: Any) -> str:
    import msgspec

    return "" if value is msgspec.UNSET else json_text(value)


def _change(path: str, was: Any, now: Any) -> dict[str, Any]:
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
        **_change("", made.was, made.now),
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
    from everlog.cli.records import Lines

    found: str = Lines(out).line(recorded)
    return found

"""`everlog` without a command: the state of the log in this folder, or how to create one."""

from __future__ import annotations

import click

from everlog.cli.output import Answer
from everlog.cli.session import Session


def show_status(context: click.Context) -> None:
    from everlog.errors import NoLogHere

    session = context.ensure_object(Session)
    out = session.out
    try:
        log = session.log()
    except NoLogHere:
        if session.url or session.work_in.name or session.json or session.agent or session.quiet:
            raise
        out.line(context.get_help())
        out.hint("\nThere is no log here yet. Create one: everlog init")
        return
    from everlog.cli.events.records import moment

    head = log.head()
    last = next(log.read(limit=1, newest_first=True), None)
    purged = sum(purge.count + 1 for purge in log.stored.purges())
    where = session.url or str(session.folder())
    events = head - purged
    facts = {
        "log": where,
        "log_id": log.identity.log_id,
        "head": head,
        "events": events,
        "last": moment(last.received_at) if last else None,
    }
    names = {"log": "log", "head": "head", "events": "events", "last": "last event"}
    shown = [(names[key], f"#{value}" if key == "head" else value) for key, value in facts.items() if key in names]
    shown = [(name, value) for name, value in shown if value is not None]
    lines = [f"{name:<11} {value}" for name, value in shown]
    data = {**facts, "last": None if last is None else last.received_at.isoformat()}
    out.answer(Answer.of_one(log.identity.log_id, facts, lines=lines, data=data))
    if events:
        out.hint("next: everlog log -n 5   everlog tail   everlog verify   everlog help")
    else:
        out.hint('next: everlog append note.added -s note/1 text="hello"   everlog schema list   everlog help')

"""`everlog schema`: the event types of a log, for people, programs and version control."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from everlog.cli.output import Answer, json_text, safe
from everlog.cli.session import Session, common_options, pass_session
from everlog.core.text import counted

if TYPE_CHECKING:
    from everlog.application.folder.event_types import DeclaredType, DescribedType, FieldInfo


@click.group("schema", invoke_without_command=True)
@common_options
@click.pass_context
def schema_command(context: click.Context) -> None:
    """Event types: list, show, export, check, lock, add, learn.

    Without a command it prints the JSON Schema (2020-12) of all events.

    \b
    Examples:
      everlog schema > events.schema.json
      everlog schema list
      everlog schema add deploy.finished service:str 'result:ok | failed' 'seconds:float = 0'
    """
    if context.invoked_subcommand is None:
        _export(context.ensure_object(Session), None)


@schema_command.command("list")
@click.option("--all", "everything", is_flag=True, help="Also list the types of the programs, such as work packages.")
@common_options
@pass_session
def list_types(session: Session, everything: bool) -> None:
    """List the event types of this log, and with --all those of the programs that every log can use.

    Columns when piped: type, version, fields, doc.

    \b
    Examples:
      everlog schema list
      everlog schema list --all
    """
    infos = session.catalog().types(lent=everything)
    cells = {"fields": lambda info: ", ".join(_field(field) for field in info.fields)}
    session.out.answer(Answer.of_many(infos, ("type", "version", "fields", "doc"), cells=cells))


@schema_command.command("show")
@click.argument("type")
@common_options
@pass_session
def show_type(session: Session, type: str) -> None:
    """Show one event type: its fields, their types, and the allowed transitions of a stream.

    Columns when piped: field, type, needed, default, doc.

    \b
    Example:
      everlog schema show note.added
    """
    import msgspec

    from everlog.application.folder.event_types import describe_type

    found = describe_type(session.catalog(), type)
    info = found.info
    session.out.answer(
        Answer.of_many(
            info.fields,
            ("field", "type", "needed", "default", "doc"),
            cells={
                "field": lambda field: field.name,
                "needed": lambda field: "yes" if field.required else "no",
                "default": _default,
            },
            ids=[info.type],
            lines=_type_lines(session, found),
            facts={"type": info.type, "version": info.version, "doc": info.doc},
            data={
                **msgspec.to_builtins(info),
                "schema": found.schema,
                "transitions": msgspec.to_builtins(found.rules),
            },
        )
    )
    required = " ".join(f"{field.name}=…" for field in info.fields if field.required)
    kind = found.rules[0].kind if found.rules else info.type.partition(".")[0]
    session.out.hint(f"to record one: everlog append {info.type} -s {kind}/ID {required}".rstrip())


@schema_command.command("export")
@click.argument("type", required=False)
@common_options
@pass_session
def export_types(session: Session, type: str | None) -> None:
    """Print the JSON Schema of all events, or of one type's payload.

    \b
    Examples:
      everlog schema export > events.schema.json
      everlog schema export note.added
    """
    _export(session, type)


@schema_command.command("check")
@click.option("--lock", "lock", metavar="FILE", type=click.Path(path_type=Path), help="The lock to compare with.")
@common_options
@pass_session
def check_types(session: Session, lock: Path | None) -> None:
    """Compare the event types with the schema lock.

    Exits 3 if a change would break old events, and lists every such change.

    \b
    Example:
      everlog schema check
    """
    from everlog.application.folder import event_types

    found = event_types.check_types(session.catalog(), _lock_path(session, lock))
    count, new = found.types, found.additions
    session.out.answer(
        Answer(
            data={"ok": True, "types": count, "additions": list(new)},
            rows=[("ok", counted(count, "type")), *(("added", change) for change in new)],
            lines=[
                f"{session.out.paint('ok', 'green')}  {counted(count, 'type keeps', 'types keep')} the locked fields",
                *(safe(f"  added: {change}") for change in new),
            ],
            facts={"types": count, "additions": len(new)},
        )
    )
    if new:
        session.out.hint("to lock these too: everlog schema lock")


@schema_command.command("lock")
@click.option("--lock", "lock", metavar="FILE", type=click.Path(path_type=Path), help="The file to write.")
@common_options
@pass_session
def lock_types(session: Session, lock: Path | None) -> None:
    """Record the current event types in a file, to be committed and compared with later.

    \b
    Example:
      everlog schema lock && git add .everlog/schema.lock.json
    """
    from everlog.application.folder import event_types

    done = event_types.lock_types(session.catalog(), _lock_path(session, lock))
    for breach in done.no_longer:
        session.out.warn(f"no longer locked: {breach}")
    path = str(done.lock)
    facts = {"lock": path, "types": done.types}
    lines = [f"locked {counted(done.types, 'type')} in {safe(path)}"]
    session.out.answer(Answer.of_row(path, facts, lines=lines))


@schema_command.command("add")
@click.argument("type")
@click.argument("fields", metavar="[NAME:TYPE ...]", nargs=-1)
@click.option("--doc", metavar="TEXT", default="", help="One sentence about it.")
@common_options
@pass_session
def add_type(session: Session, type: str, fields: tuple[str, ...], doc: str) -> None:
    """Declare an event type in types.toml.

    A field's TYPE is str, int, float, bool, object, list, list[str] or any, or a choice such as 'ok | failed'; with ?
    it may be null, with = it has a default.

    \b
    Examples:
      everlog schema add deploy.finished service:str 'result:ok | failed' 'seconds:float = 0'
      everlog schema add issue.commented text:str --doc "A comment on an issue."
    """
    from everlog.application.folder.event_types import declare_type

    wanted: dict[str, str] = {}
    for text in fields:
        name, colon, words = text.partition(":")
        if not colon or not name or not words.strip():
            raise click.UsageError(f"{text!r} is not NAME:TYPE, such as service:str")
        if name in wanted:
            raise click.UsageError(f"the field {name} is given twice")
        wanted[name] = words.strip()
    _declared(session, declare_type(session.catalog(), session.folder(), type, wanted, doc))


@schema_command.command("learn")
@click.argument("type")
@common_options
@pass_session
def learn_type(session: Session, type: str) -> None:
    """Declare an event type in types.toml as its events in this log are.

    It is for types of imported events. A field that was missing or null once may be left out; a time is a text. Check
    the declaration: from then on, an append must fit it.

    \b
    Example:
      everlog schema learn order.placed
    """
    from everlog.application.folder.event_types import learn_type

    _declared(session, learn_type(session.log(), session.folder(), type))


def _declared(session: Session, done: DeclaredType) -> None:
    file, type = str(done.file), done.type
    session.out.answer(
        Answer.of_row(
            type,
            {"type": type, "file": file, "made": done.made},
            lines=[f"declared {safe(type)} in {safe(file)}" if done.made else f"{safe(type)} is declared already"],
            row=(type, file, "made" if done.made else "there"),
            data={"type": type, "fields": done.fields, "file": file, "made": done.made},
        )
    )
    shown = " ".join(f"{name}=…" for name in done.fields)
    session.out.hint(f"next: everlog append {type} -s {type.partition('.')[0]}/1 {shown}".rstrip())


def _export(session: Session, event_type: str | None) -> None:
    schema = session.catalog().json_schema(event_type)
    if session.out.json:
        session.out.envelope(schema)
    else:
        session.out.line(json_text(schema, indent=2))


def _lock_path(session: Session, given: Path | None) -> Path:
    from everlog.application.folder.event_types import default_lock

    return default_lock(session.folder()) if given is None else session.directory / given


def _field(field: FieldInfo) -> str:
    return f"{field.name}: {field.type}" + ("" if field.required else f" = {_default(field)}")


def _default(field: FieldInfo) -> str:
    return "" if field.required else json_text(field.default)


def _type_lines(session: Session, found: DescribedType) -> list[str]:
    out, info = session.out, found.info
    lines = [f"{out.paint(safe(info.type), 'cyan')} version {info.version}"]
    if info.doc:
        lines.append(safe(info.doc))
    width = max((len(field.name) for field in info.fields), default=0)
    for field in info.fields:
        default = "" if field.required else f" = {_default(field)}"
        lines.append(
            safe(f"  {field.name:<{width}}  {field.type}{default}") + ("  " + field.doc if field.doc else "")
        )
    for rule in found.rules:
        lines.append(safe(f"streams of kind {rule.kind} start at {rule.initial}; {rule.field} names the next state:"))
        lines += [safe(f"  {state} -> {', '.join(targets)}") for state, targets in rule.allowed.items()]
    return lines

"""`everlog schema`: the event types of a log, for people, programs and version control."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from everlog.cli.output import Answer, json_text, safe
from everlog.cli.session import Session, common_options, pass_session
from everlog.core.text import counted

if TYPE_CHECKING:
    from everlog.catalog.catalog import TypeInfo
    from everlog.catalog.schema import FieldInfo


@click.group("schema", invoke_without_command=True)
@common_options
@click.pass_context
def schema_command(context: click.Context) -> None:
    """Event types: list, show, export, check, lock, add.

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
    import msgspec

    infos = session.catalog().types(lent=everything)
    rows = [(info.type, info.version, ", ".join(_field(field) for field in info.fields), info.doc) for info in infos]
    session.out.answer(
        Answer(
            data=[msgspec.to_builtins(info) for info in infos],
            ids=[info.type for info in infos],
            columns=("type", "version", "fields", "doc"),
            rows=rows,
            facts={"count": len(rows)},
        )
    )


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

    catalog = session.catalog()
    schema = catalog.json_schema(type)
    info = next(info for info in catalog.types(lent=True) if info.type == type)
    rules = [rule for rule in catalog.rules() if rule.type == type]
    rows = [
        (field.name, field.type, "yes" if field.required else "no", _default(field), field.doc)
        for field in info.fields
    ]
    session.out.answer(
        Answer(
            data={
                **msgspec.to_builtins(info),
                "schema": schema,
                "transitions": [msgspec.to_builtins(rule) for rule in rules],
            },
            ids=[info.type],
            columns=("field", "type", "needed", "default", "doc"),
            rows=rows,
            lines=_type_lines(session, info, rules),
            facts={"type": info.type, "version": info.version, "doc": info.doc},
        )
    )
    required = " ".join(f"{field.name}=…" for field in info.fields if field.required)
    kind = rules[0].kind if rules else info.type.partition(".")[0]
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
    from everlog.catalog.lock import additions, require_compatible
    from everlog.errors import NotFound, SchemaBroken
    from everlog.files import DiskFiles

    catalog = session.catalog()
    path = _lock_path(session, lock)
    files = DiskFiles()
    if not files.exists(path):
        raise NotFound(
            f"there is no schema lock at {path}",
            why="there is nothing to compare the types with",
            hint="everlog schema lock",
        )
    problems = catalog.check()
    if problems:
        raise SchemaBroken(
            "the event types do not fit together",
            why="; ".join(problems),
            hint="correct types.toml or the catalog's code",
            problems=problems,
        )
    text = files.read_all(path).decode(errors="replace")
    require_compatible(text, catalog)
    new = additions(text, catalog)
    count = len(catalog.types())
    session.out.answer(
        Answer(
            data={"ok": True, "types": count, "additions": [str(change) for change in new]},
            rows=[("ok", counted(count, "type")), *(("added", str(change)) for change in new)],
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
    from everlog.catalog.lock import compare, lock_text
    from everlog.files import DiskFiles, replace_file

    catalog = session.catalog()
    path = _lock_path(session, lock)
    files = DiskFiles()
    text = lock_text(catalog)
    if files.exists(path):
        for breach in compare(files.read_all(path).decode(errors="replace"), catalog):
            session.out.warn(f"no longer locked: {breach}")
    replace_file(files, path, text.encode())
    count = len(catalog.types())
    session.out.answer(
        Answer(
            data={"lock": str(path), "types": count},
            ids=[str(path)],
            rows=[(str(path), count)],
            lines=[f"locked {counted(count, 'type')} in {safe(str(path))}"],
            facts={"lock": str(path), "types": count},
        )
    )


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
    from everlog.catalog.builtin import BUILT_IN
    from everlog.catalog.declared import FILE_NAME, declare, read_types
    from everlog.errors import InvalidSettings
    from everlog.files import DiskFiles, replace_file

    wanted: dict[str, str] = {}
    for text in fields:
        name, colon, words = text.partition(":")
        if not colon or not name or not words.strip():
            raise click.UsageError(f"{text!r} is not NAME:TYPE, such as service:str")
        if name in wanted:
            raise click.UsageError(f"the field {name} is given twice")
        wanted[name] = words.strip()
    path = session.folder() / FILE_NAME
    if BUILT_IN.knows(type):
        raise InvalidSettings(
            f"{type} is one of everlog's own types", why="it is declared already", hint=f"everlog schema show {type}"
        )
    files = DiskFiles()
    before = files.read_all(path).decode() if files.exists(path) else ""
    after = declare(before, type, wanted, doc, source=str(path))
    read_types(after, source=str(path))
    if after != before:
        replace_file(files, path, after.encode())
    made = after != before
    session.out.answer(
        Answer(
            data={"type": type, "fields": wanted, "file": str(path), "made": made},
            ids=[type],
            rows=[(type, str(path), "made" if made else "there")],
            lines=[f"declared {safe(type)} in {safe(str(path))}" if made else f"{safe(type)} is declared already"],
            facts={"type": type, "file": str(path), "made": made},
        )
    )
    shown = " ".join(f"{name}=…" for name in wanted)
    session.out.hint(f"next: everlog append {type} -s {type.partition('.')[0]}/1 {shown}".rstrip())


def _export(session: Session, event_type: str | None) -> None:
    schema = session.catalog().json_schema(event_type)
    if session.out.json:
        session.out.envelope(schema)
    else:
        session.out.line(json_text(schema, indent=2))


def _lock_path(session: Session, given: Path | None) -> Path:
    from everlog.catalog.lock import LOCK_FILE

    return session.folder() / LOCK_FILE if given is None else session.directory / given


def _field(field: FieldInfo) -> str:
    return f"{field.name}: {field.type}" + ("" if field.required else f" = {_default(field)}")


def _default(field: FieldInfo) -> str:
    return "" if field.required else json_text(field.default)


def _type_lines(session: Session, info: TypeInfo, rules: list[Any]) -> list[str]:
    out = session.out
    lines = [f"{out.paint(safe(info.type), 'cyan')} version {info.version}"]
    if info.doc:
        lines.append(safe(info.doc))
    width = max((len(field.name) for field in info.fields), default=0)
    for field in info.fields:
        default = "" if field.required else f" = {_default(field)}"
        lines.append(
            safe(f"  {field.name:<{width}}  {field.type}{default}") + ("  " + field.doc if field.doc else "")
        )
    for rule in rules:
        lines.append(safe(f"streams of kind {rule.kind} start at {rule.initial}; {rule.field} names the next state:"))
        lines += [safe(f"  {state} -> {', '.join(targets)}") for state, targets in rule.allowed.items()]
    return lines

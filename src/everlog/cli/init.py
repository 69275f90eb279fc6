"""`everlog init`: a folder with a log in it, and files that explain themselves."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from everlog.cli.output import Answer
from everlog.cli.session import Session, common_options, pass_session

if TYPE_CHECKING:
    from everlog.files import DiskFiles
    from everlog.settings import Loaded

GITIGNORE = """\
# Derived or momentary: SQLite's side files and the locks. The log itself is not in this list.
*-wal
*-shm
*-lock*
*.everlog-tmp
# Of a JSONL log: the clock, and what is local to this copy.
clock.json
local/
"""

TYPES = """\
# The event types of this log. A field is: str int float bool object list list[str] any, or a choice a | b;
# with ? it may be null, with = it has a default. `everlog schema add` writes such blocks for you.
#
# [types."deploy.finished"]
# version = 1
# doc = "A service was deployed."
#
# [types."deploy.finished".fields]
# service = "str"
# result = "ok | failed"
# seconds = "float = 0"
"""

AGENTS_MARK = "<!-- everlog -->"
AGENTS = f"""\
{AGENTS_MARK}
## Event log

This project records what happens in an append-only log (`.everlog/`).

- Look first: `everlog log -n 20 --json`, `everlog show ID --json`, `everlog schema list`.
- Record: `everlog append TYPE -s KIND/ID field=value --key UNIQUE --actor agent:NAME`. A repeated `--key` is safe.
- A refusal says why and what to do; exit codes: `everlog help exit-codes`.
- Never edit files in `.everlog/` except `types.toml` and `everlog.toml`.
{AGENTS_MARK}
"""


def settings_text(*, store: str = "sqlite:log.db", demo: bool = False) -> str:
    """A settings file in which every setting stands with its meaning, commented out at its default."""
    from everlog.cli.toml_text import toml_value
    from everlog.settings import DOCS, Settings

    defaults = Settings()
    lines = ["# Settings of this log. `everlog config show` tells each value and where it comes from.", ""]
    for name in Settings.__struct_fields__:
        value = {"store": store, "demo": demo}.get(name, getattr(defaults, name))
        mark = "# " if value == getattr(defaults, name) and name != "store" else ""
        lines += [f"# {DOCS[name]}", f"{mark}{name} = {toml_value(value)}", ""]
    return "\n".join(lines)


def make_folder(
    folder: Path, *, store: str = "sqlite:log.db", types: str = TYPES, demo: bool = False, new: bool = False
) -> list[str]:
    """The folder with its files and its log; what is there already stays as it is. Returns the names of the new.

    The log is made before the settings that name it: one that cannot be made leaves nothing behind. Where settings
    are there already and their log is not, it was lost: only `new` makes another one in its place.
    """
    from everlog import wiring
    from everlog.cli.session import of_lost_store
    from everlog.errors import NotFound
    from everlog.files import DiskFiles, replace_file
    from everlog.settings import FILE_NAME

    files = DiskFiles()
    was_there = files.exists(folder)
    fresh = not files.exists(folder / FILE_NAME)
    files.make_dir(folder)
    try:
        wiring.open_folder(folder, create=new or fresh, loaded=_settings_to_be(store) if fresh else None).close()
    except NotFound as error:
        _give_up(files, [] if was_there else [folder])
        raise error if fresh else of_lost_store(error, folder) from error
    except BaseException:
        _give_up(files, [] if was_there else [folder])
        raise
    made = []
    for name, text in (
        (FILE_NAME, settings_text(store=store, demo=demo)),
        ("types.toml", types),
        (".gitignore", GITIGNORE),
    ):
        if not files.exists(folder / name):
            replace_file(files, folder / name, text.encode())
            made.append(name)
    return made


def _settings_to_be(store: str) -> Loaded:
    """The settings as they will be once the file is written: a variable or the user's own file may say otherwise."""
    import msgspec

    from everlog.settings import Loaded, load

    loaded = load(None)
    if loaded.origins["store"] != "default":
        return loaded
    return Loaded(msgspec.structs.replace(loaded.settings, store=store), loaded.origins)


def _give_up(files: DiskFiles, made: list[Path]) -> None:
    """Remove the directories that were made, inner ones first; what holds anything by now is somebody's and stays."""
    for directory in made:
        if files.exists(directory) and not files.names(directory):
            files.remove_dir(directory)


@click.command("init")
@click.argument("directory", required=False, type=click.Path(path_type=Path, file_okay=False))
@click.option("--store", metavar="URL", default="sqlite:log.db", help="Where the events go; a path is in .everlog/.")
@click.option("--new", is_flag=True, help="Begin a new log where the settings are there and their log is gone.")
@click.option("--agents-md", is_flag=True, help="Add a short block about the log to AGENTS.md.")
@common_options
@pass_session
def init_command(session: Session, directory: Path | None, store: str, new: bool, agents_md: bool) -> None:
    """Make a log in DIRECTORY, or in this one.

    It writes .everlog/ with settings, types and the log. Doing it twice does no harm. In a git repository, a jsonl:
    store is also made known to git (see everlog git install).

    \b
    Example:
      everlog init
      everlog init services/shop --agents-md
      everlog init --store jsonl:.
    """
    from everlog import wiring
    from everlog.cli.store_urls import PASSWORD_WARNING, has_password, typed_url, without_password
    from everlog.errors import InvalidSettings
    from everlog.files import DiskFiles
    from everlog.settings import FOLDER, load

    if session.url:
        raise click.UsageError(
            "init makes a folder with a log in it, and --log names a log without one;"
            " give --store URL for where the events go, or everlog.open(URL) in Python for a log alone"
        )
    place = (session.place / (directory or Path())).resolve()
    files = DiskFiles()
    folder = place / FOLDER
    if files.exists(folder) and not folder.is_dir():
        raise InvalidSettings(
            f"{folder} is a file", why="a log lives in a folder of that name", hint=f"move it away: mv {folder} ~/"
        )
    if files.exists(folder / "everlog.toml"):
        stated = load(folder).settings.store
        if stated != store and store != "sqlite:log.db":
            session.out.warn(
                f"the log there keeps its store {without_password(stated)}; --store is for new logs."
                f" To use the other one: everlog config set store {typed_url(store)}"
            )
        store = stated
    else:
        # A store that cannot be opened must not leave a folder behind that says it can.
        _refuse_unknown_store(store)
        if has_password(store):
            session.out.warn(PASSWORD_WARNING)
    applies = load(None)
    if applies.origins["store"] != "default" and applies.settings.store != store:
        session.out.warn(
            f"{applies.origins['store']} applies: the events go to {without_password(applies.settings.store)}, not to"
            f" {without_password(store)}, which the settings file of {folder} names"
        )
    _tell_git(session, folder, store)  # first, so that opening the log in a fresh clone finds nothing to warn of
    parents = [parent for parent in (place, *place.parents) if not files.exists(parent)]
    for parent in reversed(parents):
        files.make_dir(parent)
    try:
        made = make_folder(folder, store=store, new=new)
    except BaseException:
        _give_up(files, parents)
        raise
    in_git = _tell_git(session, folder, store)
    if agents_md and _add_agents_block(place / "AGENTS.md"):
        made.append("AGENTS.md")
    log = wiring.open_folder(folder)
    log_id = log.identity.log_id
    log.close()
    fresh = "everlog.toml" in made
    told = f"made a log in {folder}" if fresh else f"there is a log in {folder} already"
    facts = {"folder": str(folder), "log_id": log_id, "made": fresh}
    session.out.answer(
        Answer(
            data={**facts, "files": made},
            ids=[log_id],
            rows=[(str(folder), log_id, "made" if fresh else "there")],
            lines=[told, *in_git],
            facts=facts,
        )
    )
    session.out.hint(
        'next: everlog append note.added -s note/1 text="hello"\n'
        "      everlog log\n"
        "      everlog schema add deploy.finished service:str 'result:ok | failed'"
    )


def _tell_git(session: Session, folder: Path, store: str) -> list[str]:
    """In a git repository: events that are text files are united by git itself. Returns what to tell."""
    import sys

    from everlog import wiring
    from everlog.errors import InvalidSettings
    from everlog.files import DiskFiles
    from everlog.sync import git

    files = DiskFiles()
    log_folder = wiring.git_folder(store, base=folder)
    if log_folder is None or not files.exists(log_folder):
        return []
    try:
        done = git.install(files, log_folder, python=sys.executable)
    except InvalidSettings as error:
        session.out.warn(f"{error}; {error.hint}")
        return []
    return ["git merges its events in this clone"] if done is not None else []


def _refuse_unknown_store(store: str) -> None:
    from everlog import wiring
    from everlog.errors import InvalidSettings

    if store == "memory:":
        raise InvalidSettings(
            "'memory:' is not the URL of a log that stays",
            why="a store is sqlite:PATH, jsonl:PATH, segments:PATH or postgresql://HOST/DATABASE",
            hint="everlog init --store sqlite:log.db",
        )
    wiring.require_url(store)


def _add_agents_block(path: Path) -> bool:
    from everlog.files import DiskFiles, replace_file
    from everlog.lock_file import FILE_MODE

    files = DiskFiles()
    text = files.read_all(path).decode(errors="surrogateescape") if files.exists(path) else ""
    if AGENTS_MARK in text:
        return False
    joined = f"{text.rstrip()}\n\n{AGENTS}" if text.strip() else AGENTS
    mode = path.stat().st_mode & 0o777 if text else FILE_MODE
    replace_file(files, path, joined.encode(errors="surrogateescape"), mode=mode)
    return True

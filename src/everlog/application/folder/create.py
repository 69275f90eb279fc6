"""Create a `.everlog` folder: its log, its settings, its event types, and what git needs to merge it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from everlog import wiring
from everlog.application.folder.open import lost_store
from everlog.errors import InvalidSettings, NotFound
from everlog.files import DiskFiles, replace_file
from everlog.lock_file import FILE_MODE
from everlog.settings import FILE_NAME, FOLDER, Loaded, load, template, with_setting
from everlog.store_urls import PASSWORD_WARNING, has_password, require_url, typed_url, without_password
from everlog.transfer import git
from everlog.user_code import require_code

STORE = "sqlite:log.db"
Warn = Callable[[str], None]

GITIGNORE = """\
# Derived or temporary: SQLite's side files and the locks. The log itself is not in this list.
*-wal
*-shm
*-lock*
*-refusals*
*.everlog-tmp
# Of a JSONL log: the clock, and files that belong to this copy only.
clock.json
local/
# Private keys.
keys/
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
- Wait for news: `everlog log --after CURSOR --wait 60 --json`; `.next.cursor` is the next CURSOR.
- Share work: `everlog issue ready`, `claim`, `renew`, `release`; `everlog wp next` and the same three.
- A refusal states the reason and the next step; exit codes: `everlog help exit-codes`.
- Never edit files in `.everlog/` except `types.toml` and `everlog.toml`.
{AGENTS_MARK}
"""


def agents_text() -> str:
    """Return how an agent uses a log: what `everlog help agents` prints."""
    return AGENTS.replace(f"{AGENTS_MARK}\n", "").rstrip()


class CreatedLog(msgspec.Struct, frozen=True, kw_only=True):
    """A folder with a log. It may have existed before; `files` names those that are new."""

    folder: Path
    log_id: str
    origin: str
    files: Sequence[str]
    merged_by_git: bool

    @property
    def is_new(self) -> bool:
        return FILE_NAME in self.files


def create_log(
    directory: Path,
    *,
    store: str = STORE,
    new: bool = False,
    agents_md: bool = False,
    signed: bool = False,
    programs: Sequence[str] = (),
    warn: Warn,
) -> CreatedLog:
    """Create a folder with a log in a directory, and the directory itself if necessary. `programs` are switched on.

    A folder that exists keeps its store and all of its files. If the store cannot be created, nothing remains.
    """
    files, folder = DiskFiles(), directory / FOLDER
    if programs:
        require_code("programs", ",".join(programs))
    if files.exists(folder) and not folder.is_dir():
        raise InvalidSettings(
            f"{folder} is a file", why="a log needs a folder with that name", hint=f"move it away: mv {folder} ~/"
        )
    if files.exists(folder / FILE_NAME):
        stated = load(folder).settings.store
        if stated != store and store != STORE:
            warn(
                f"the log there keeps its store {without_password(stated)}; --store is for new logs."
                f" To use the other one: everlog config set store {typed_url(store)}"
            )
        store = stated
    else:
        # A store that cannot be opened must not leave a folder whose settings name it.
        _refuse_unknown_store(store)
        if has_password(store):
            warn(PASSWORD_WARNING)
    applies = load(None)
    if applies.origins["store"] != "default" and applies.settings.store != store:
        warn(
            f"{applies.origins['store']} applies: the events go to {without_password(applies.settings.store)}, not to"
            f" {without_password(store)}, which the settings file of {folder} names"
        )
    # Before the log is opened, so that opening it in a fresh clone has nothing to warn about.
    _install_in_git(folder, store, warn)
    missing = [parent for parent in (directory, *directory.parents) if not files.exists(parent)]
    for parent in reversed(missing):
        files.make_dir(parent)
    try:
        made = create_folder(folder, store=store, new=new, signed=signed, programs=programs)
    except BaseException:
        _remove_empty(files, missing)
        raise
    merged_by_git = _install_in_git(folder, store, warn)
    if agents_md and _add_agents_block(directory / "AGENTS.md"):
        made.append("AGENTS.md")
    with wiring.open_folder(folder) as log:
        identity = log.identity
    return CreatedLog(
        folder=folder, log_id=identity.log_id, origin=identity.origin, files=made, merged_by_git=merged_by_git
    )


def create_folder(
    folder: Path,
    *,
    store: str = STORE,
    types: str = TYPES,
    demo: bool = False,
    new: bool = False,
    signed: bool = False,
    programs: Sequence[str] = (),
) -> list[str]:
    """Create the folder with its files and its log, and return the names of the new files. Existing files are kept.

    The log is created before the settings that name it, so one that cannot be created leaves nothing behind. If
    settings exist and their log does not, the log was lost; only with `new` is another one created.
    """
    files = DiskFiles()
    existed = files.exists(folder)
    fresh = not files.exists(folder / FILE_NAME)
    files.make_dir(folder)
    try:
        loaded = _future_settings(store, signed=signed) if fresh else None
        wiring.open_folder(folder, create=new or fresh, loaded=loaded).close()
    except NotFound as error:
        _remove_empty(files, [] if existed else [folder])
        raise error if fresh else lost_store(error, folder) from error
    except BaseException:
        _remove_empty(files, [] if existed else [folder])
        raise
    made = []
    for name, text in (
        (FILE_NAME, template(store=store, demo=demo, sign=signed, programs=programs)),
        ("types.toml", types),
        (".gitignore", GITIGNORE),
    ):
        if not files.exists(folder / name):
            replace_file(files, folder / name, text.encode())
            made.append(name)
    if not fresh and programs:
        _switch_on(files, folder, programs)
    return made


def _switch_on(files: DiskFiles, folder: Path, programs: Sequence[str]) -> None:
    """Add programs to those that the settings of a folder name."""
    path = folder / FILE_NAME
    before = load(folder).settings.programs
    there = [word.strip() for word in before.split(",") if word.strip()]
    if more := [word for word in programs if word not in there]:
        text = with_setting(files.read_all(path).decode(), "programs", [*there, *more], source=str(path))
        replace_file(files, path, text.encode())


def _future_settings(store: str, *, signed: bool) -> Loaded:
    """Return the settings that apply once the file is written. A variable or the user's own file may override it."""
    loaded = load(None)
    changes: dict[str, str] = {"sign": "required"} if signed else {}
    if loaded.origins["store"] == "default":
        changes["store"] = store
    return Loaded(msgspec.structs.replace(loaded.settings, **changes), loaded.origins)


def _remove_empty(files: DiskFiles, directories: Sequence[Path]) -> None:
    """Remove the directories that were created, inner ones first. One that is not empty by now stays."""
    for directory in directories:
        if files.exists(directory) and not files.names(directory):
            files.remove_dir(directory)


def _install_in_git(folder: Path, store: str, warn: Warn) -> bool:
    """In a git repository, have git merge events that are text files. Returns whether it does."""
    files = DiskFiles()
    log_folder = wiring.git_folder(store, base=folder)
    if log_folder is None or not files.exists(log_folder):
        return False
    try:
        return git.install(files, log_folder, python=sys.executable) is not None
    except InvalidSettings as error:
        warn(f"{error}; {error.hint}")
        return False


def _refuse_unknown_store(store: str) -> None:
    if store == "memory:":
        raise InvalidSettings(
            "'memory:' is not the URL of a log that stays",
            why="a store is sqlite:PATH, jsonl:PATH, segments:PATH or postgresql://HOST/DATABASE",
            hint="everlog init --store sqlite:log.db",
        )
    require_url(store)


def _add_agents_block(path: Path) -> bool:
    files = DiskFiles()
    text = files.read_all(path).decode(errors="surrogateescape") if files.exists(path) else ""
    if AGENTS_MARK in text:
        return False
    joined = f"{text.rstrip()}\n\n{AGENTS}" if text.strip() else AGENTS
    mode = path.stat().st_mode & 0o777 if text else FILE_MODE
    replace_file(files, path, joined.encode(errors="surrogateescape"), mode=mode)
    return True

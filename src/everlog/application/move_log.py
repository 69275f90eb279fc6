"""Move a log: copy it, upgrade it, export its events, import those of files, and let git merge text files."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from shlex import quote

import msgspec

from everlog import upgrading, wiring
from everlog.application.folder.open import Location
from everlog.core.event import START, Position
from everlog.core.query import EVERYTHING, Query
from everlog.errors import BadFile, Conflict, InvalidSettings, NoLogHere, NotFound
from everlog.files import DiskFiles, replace_file_by
from everlog.log.log import Log
from everlog.settings import FOLDER, find_folder, load
from everlog.store_urls import shown_url as shown_url
from everlog.store_urls import store_path, typed_url, url_from_folder
from everlog.transfer import git
from everlog.transfer.copy import Copied, copy_log
from everlog.transfer.exporting import Export, chunks
from everlog.transfer.exporting import Format as Format
from everlog.transfer.import_pass import Options, Source
from everlog.transfer.importing import Imported as Imported
from everlog.transfer.importing import import_files, passes
from everlog.transfer.mapping import RowMapping, read_mapping
from everlog.upgrading import ProgressOf
from everlog.upgrading import Upgraded as Upgraded
from everlog.wiring import copy_target as copy_target

STDIN_BYTES_MAX = 64 * 1024 * 1024
Progress = Callable[[int], AbstractContextManager[Callable[[int], None]]]
"""Called with the total amount of work: it shows how far the work is."""


class CopiedLog(msgspec.Struct, frozen=True, kw_only=True):
    """A copy, its URL without a password, and the commands that use it."""

    copied: Copied
    url: str
    how_to_use: str


class MergedByGit(msgspec.Struct, frozen=True, kw_only=True):
    """A log that git merges in this clone, and what was changed for that."""

    folder: Path
    repository: Path
    changed: Sequence[str]


class Forgotten(msgspec.Struct, frozen=True):
    """Old files that are gone now, and how many bytes they took; 0 for tables."""

    kept: str
    bytes: int


class Named(msgspec.Struct, frozen=True):
    """A log as a command names it: its URL, and where its path begins."""

    url: str
    base: Path
    shown: str


# ---- copy


def copy_between(location: Location, source: str, target: str, progress: Progress) -> CopiedLog:
    """Copy the log at a URL to another URL. An interrupted copy continues."""
    base = location.work_in
    if "memory:" in (source, target):
        raise InvalidSettings(
            "a log in memory cannot be copied from here",
            why="it exists only in one process",
            hint="name a stored log, such as sqlite:log.db",
        )
    one, other = (store_path(url, base=base) for url in (source, target))
    if source == target or (one is not None and other is not None and one.resolve() == other.resolve()):
        raise Conflict(
            "FROM and TO are the same log",
            why=f"both are {shown_url(source)}",
            hint="name another place for the copy",
        )
    store = wiring.open_store(source, base=base, create=False)
    try:
        wiring.refuse_unfinished(store, shown_url(source))
        with progress(2 * store.head()) as show:
            copied = copy_log(store, copy_target(target, base=base), progress=show)
    finally:
        store.close()
    return CopiedLog(copied=copied, url=shown_url(target), how_to_use=_how_to_use(location, target))


def _how_to_use(location: Location, target: str) -> str:
    """Return the commands that use the copy. --log takes a path from here, the setting one from the folder."""
    there = f"-C {quote(str(location.work_in))} " if location.work_in != Path() else ""
    use = f"to use the copy: everlog {there}--log {typed_url(target)} log"
    try:
        folder = location.folder()
    except NoLogHere:
        return use
    stated = url_from_folder(target, base=location.directory, folder=folder)
    return f"{use}, or everlog {there}config set store {typed_url(stated)}"


# ---- upgrade


def named_log(location: Location, name: str) -> Named:
    """Return the log that a command names by a URL or by a folder; without a name, the log of the location."""
    if name and (location.directory / name).is_dir():
        folder = location.directory / name
        folder = folder if folder.name == FOLDER else find_folder(folder)
        url = load(folder).settings.store
        return Named(url, folder, shown_url(url))
    if name:
        return Named(name, location.directory, shown_url(name))
    if location.url:
        url = location.absolute_url()
        return Named(url, Path(), shown_url(url))
    url = location.settings().settings.store
    return Named(url, location.folder(), shown_url(url))


def upgrade_named(named: Named, progress: ProgressOf) -> Upgraded:
    """Bring a log to the present format. The old files are kept."""
    return upgrading.upgrade(named.url, base=named.base, progress=progress)


def forget_named(named: Named) -> Forgotten:
    """Remove the old files that an upgrade has kept."""
    return Forgotten(*upgrading.forget_old(named.url, base=named.base))


# ---- export


def output_file(path: Path, *, replace: bool = False) -> Path:
    """Return a path that a file can be written to. What prevents it is reported before the work starts."""
    if path.is_dir():
        raise Conflict(f"{path} is a folder", why="the output is a file", hint="name a file in it", path=str(path))
    if DiskFiles().exists(path) and not replace:
        raise Conflict(f"{path} exists already", hint="name another file, or replace it with --force", path=str(path))
    if not path.parent.is_dir():
        raise NotFound(
            f"{path} cannot be written",
            why=f"there is no folder {path.parent}",
            hint=f"mkdir -p {quote(str(path.parent))}",
            path=str(path),
        )
    return path


def export_events(
    log: Log,
    to: Path | Callable[[bytes], None],
    form: str,
    query: Query = EVERYTHING,
    *,
    after: int = START,
    upto: int | None = None,
    past_damage: bool = False,
    progress: Progress,
) -> Export:
    """Write events to a file, which gets its name when it is complete, or piece by piece to a function."""
    with progress(log.head()) as show:
        export = Export(
            log.stored,
            Format(form),
            query,
            after=Position(after),
            upto=None if upto is None else Position(upto),
            past_damage=past_damage,
            progress=show,
        )
        if isinstance(to, Path):
            replace_file_by(DiskFiles(), to, chunks(export.pieces()))
        else:
            for piece in chunks(export.pieces()):
                to(piece)
    return export


# ---- import


def import_options(
    *,
    namespace: str = "",
    keep_unknown_types: bool = True,
    trust_clock: bool = False,
    mapping: str = "",
    directory: Path = Path(),
    new_ids: bool = False,
    unsigned: bool = False,
) -> Options:
    """Return how files are read; a mapping is a file in the directory."""
    return Options(
        namespace,
        keep_unknown_types=keep_unknown_types,
        trust_clock=trust_clock,
        mapping=_mapping(directory, mapping) if mapping else None,
        new_ids=new_ids,
        unsigned=unsigned,
    )


def import_from(
    log: Log,
    directory: Path,
    names: Sequence[str],
    options: Options,
    *,
    read_stdin: Callable[[int], bytes],
    dry_run: bool = False,
    set_aside: Path | None = None,
    progress: Progress,
) -> Imported:
    """Record the events of files in order; `-` is what `read_stdin` returns, at most so many bytes.

    With `set_aside`, bad lines are written to that file, and the others are recorded.
    """
    aside = aside_writer(set_aside) if set_aside is not None else None
    with _opened(directory, names, read_stdin) as sources:
        size = sum(source.size for source in sources)
        with progress(passes(options, dry_run=dry_run) * size) as show:
            return import_files(
                log,
                sources,
                options,
                dry_run=dry_run,
                set_aside=aside,
                progress=show,
            )


def aside_writer(path: Path) -> Callable[[Iterator[bytes]], None]:
    """Return what writes the lines that are set aside to a file. What prevents it is reported at once."""
    # An existing file may be from an earlier run of the same command: its content decides.
    return partial(_write_aside, output_file(path, replace=True))


def _mapping(directory: Path, name: str) -> RowMapping:
    try:
        text = DiskFiles().read_all(directory / name).decode(errors="replace")
    except OSError as error:
        why = error.strerror or str(error)
        raise NotFound(f"{name} cannot be read", why=why, hint="check what follows --mapping") from error
    return read_mapping(text, source=name)


@contextmanager
def _opened(directory: Path, names: Sequence[str], read_stdin: Callable[[int], bytes]) -> Iterator[list[Source]]:
    files, handles, sources = DiskFiles(), [], []
    try:
        for name in names:
            if name == "-":
                sources.append(_stdin(read_stdin))
                continue
            if (directory / name).is_dir():
                raise BadFile(f"{name} is a directory", why="events are imported from files", hint="name its files")
            try:
                handle = files.open(directory / name)
            except OSError as error:
                why = error.strerror or str(error)
                raise NotFound(f"{name} cannot be read", why=why, hint="check its name") from error
            handles.append(handle)

            def read(size: int, at: int, handle=handle) -> bytes:  # type: ignore[no-untyped-def]
                return files.read(handle, size, at=at)

            sources.append(Source(name, files.size(handle), read))
        yield sources
    finally:
        for handle in handles:
            files.close(handle)


def _stdin(read: Callable[[int], bytes]) -> Source:
    data = read(STDIN_BYTES_MAX + 1)
    if len(data) > STDIN_BYTES_MAX:
        raise BadFile(
            f"standard input is longer than {STDIN_BYTES_MAX:,} bytes",
            why="it is read twice, so it must fit in memory",
            hint="write it to a file and import that",
        )
    return Source("stdin", len(data), lambda size, at: data[at : at + size])


def _write_aside(path: Path, lines: Iterator[bytes]) -> None:
    """Write the lines. A file that exists already must contain the same lines."""
    files = DiskFiles()
    draft = path.with_name(path.name + ".new") if files.exists(path) else path
    replace_file_by(files, draft, lines, mode=0o600)
    if draft == path:
        return
    same = files.read_all(draft) == files.read_all(path)
    files.unlink(draft)
    if not same:
        raise Conflict(
            f"{path} exists already, with other lines",
            why="nothing was imported and the file was not changed",
            hint="name another file for --set-aside",
            path=str(path),
        )


# ---- git


def install_in_git(location: Location) -> MergedByGit:
    """Have git merge a log of text files in this clone."""
    if location.url:
        folder = wiring.git_folder(location.absolute_url(), base=Path())
    else:
        folder = wiring.git_folder(location.settings().settings.store, base=location.folder())
    if folder is None:
        raise InvalidSettings(
            "git cannot merge this log",
            why="only a jsonl: log stores its events in text files",
            hint="everlog copy FROM jsonl:DIR creates such a copy of a log",
        )
    files = DiskFiles()
    if not files.exists(folder / "log.json"):
        raise NotFound(
            f"{folder} is not a log", why="there is no log.json", hint=f"everlog init --store jsonl:{folder}"
        )
    done = git.install(files, folder, python=sys.executable)
    if done is None:
        raise NotFound(
            f"{folder} is in no git repository", why="neither it nor a folder above has a .git", hint="git init"
        )
    return MergedByGit(folder=folder, repository=done.repository, changed=done.changed)


def merge_day_file(*, ours: Path, theirs: Path, name: str) -> None:
    """Merge two states of a day file into `ours`. A conflict changes nothing and raises an error."""
    git.drive(DiskFiles(), wiring.merge_day_files, ours=ours, theirs=theirs, name=name)

"""Find a log and open it: the log of a `.everlog` folder in a directory or above it, or the log at a URL."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from everlog import programs, wiring
from everlog.catalog.catalog import Catalog as Catalog
from everlog.core.query import Query
from everlog.errors import Damaged, InvalidSettings, NoLogHere, NotFound, OnlyLocal
from everlog.log.forgotten import count_forgets
from everlog.log.log import Log
from everlog.os_errors import survive_closed_connections
from everlog.programs.program import Program
from everlog.settings import FILE_NAME, FOLDER, find_folder, load
from everlog.settings import Loaded as Loaded
from everlog.store_urls import typed_url, url_below, url_from_folder, without_password
from everlog.stores.contract import InGit
from everlog.user_code import catalog_of, types_and_programs

if TYPE_CHECKING:
    from everlog.remote.log import RemoteLog as RemoteLog

AnyLog: TypeAlias = "Log | RemoteLog"
"""A log in this process, or one behind a server."""


def server_url(given: str, log_url: str, *, environment: Mapping[str, str] = os.environ) -> str:
    """Return the URL of the server that a caller means; empty for a log in this process.

    It is the given one, else the URL of the log if that is one of a server, else that of the environment.
    """
    from everlog.remote.address import URL_VARIABLE, is_server  # loaded when there may be a server

    if given:
        return given
    return (log_url if is_server(log_url) else "") if log_url else environment.get(URL_VARIABLE, "")


class Location(msgspec.Struct, frozen=True, kw_only=True):
    """Where a caller looks for a log, and who acts on it. Nothing is opened before it is needed."""

    work_in: Path = Path()  # as given: hints repeat it
    url: str = ""  # a log without a folder
    server: str = ""  # the URL of a server, which has the log
    actor: str = ""  # overrides the settings

    @property
    def directory(self) -> Path:
        """The directory that relative paths start from."""
        try:
            return Path.cwd() / self.work_in
        except FileNotFoundError as error:
            raise NoLogHere(
                "the current directory does not exist any more", why="it was removed", hint="cd to another directory"
            ) from error

    def folder(self) -> Path:
        """Return the .everlog folder. Raises NoLogHere if there is none, or if the location is a URL."""
        if self.server:
            raise only_local("this command")
        if self.url:
            raise NoLogHere(
                f"{without_password(self.url)} has no .everlog folder",
                why="settings, declared types and the schema lock are stored in that folder",
                hint="leave --log out, or everlog init",
            )
        if not self.directory.is_dir():
            raise NoLogHere(
                f"there is no directory {self.directory}", hint=f"check what follows -C, or create it: {self._init()}"
            )
        try:
            return find_folder(self.directory)
        except NoLogHere as error:
            raise NoLogHere(error.what, why=error.why, hint=self._init(), **error.details) from error

    def settings(self) -> Loaded:
        if self.server:
            return load(None, flags={"actor": self.actor})
        return load(None if self.url else self.folder(), flags={"actor": self.actor, "store": self.url})

    def catalog(self) -> Catalog:
        """Return the event types, without opening the log."""
        return catalog_of(self.settings().settings, None if self.url else self.folder())

    def own_programs(self) -> list[Program]:
        """Return the programs that the setting `programs` names, beside those of everlog."""
        return self._known()[1] if self.programs_setting() else []

    def unusable_programs(self) -> Mapping[str, InvalidSettings]:
        """Return why programs that the setting `programs` names cannot be used, by their words."""
        return self._known()[0].left_out if self.programs_setting() else {}

    def _known(self) -> tuple[Catalog, list[Program]]:
        return types_and_programs(self.settings().settings, None if self.url or self.server else self.folder())

    def programs_setting(self) -> str:
        """Return the setting `programs`; empty if there is no log here."""
        try:
            return self.settings().settings.programs
        except NotFound:  # no log here: no settings either
            return ""

    def is_on(self, name: str, log: Log) -> bool:
        """Return whether a program of everlog is on in a log: the setting names it, or the log has an event of it.

        So a log that was used before there was this setting stays as usable as it was.
        """
        used = Query(types=frozenset(programs.TYPES[name]))
        return programs.names(self.programs_setting(), name) or next(log.read(used, limit=1), None) is not None

    def require_on(self, word: str, log: Log) -> None:
        """Refuse a program of everlog that is not on in a log."""
        name, setting = programs.GROUPS[word], self.programs_setting()
        if self.is_on(name, log):
            return
        raise InvalidSettings(
            f"the program {word!r} is not on in this log",
            why="the setting programs does not name it, and the log has no event of it",
            hint=f"everlog config set programs {','.join(filter(None, (setting, word)))}"
            if not self.url
            else f"EVERLOG_PROGRAMS={','.join(filter(None, (setting, word)))} everlog {word} …",
        )

    def absolute_url(self) -> str:
        """Return the URL with its path relative to the current directory, not to `work_in`."""
        return self.url if self.work_in == Path() else url_below(self.url, self.work_in)

    def connect(self, *, environment: Mapping[str, str] = os.environ) -> RemoteLog:
        """Return the log behind the server."""
        from everlog.remote.address import ALLOW_HTTP_VARIABLE
        from everlog.remote.log import connect

        survive_closed_connections()
        return connect(self.server, allow_http=environment.get(ALLOW_HTTP_VARIABLE, "") in ("1", "true", "yes"))

    def open(self, *, past_damage: Callable[[Damaged], None] | None = None) -> Log:
        """Open the log. It is never created here: a log that is missing raises NotFound.

        What was forgotten here and came back with git is erased again.
        """
        log = self._open(past_damage)
        if isinstance(log.stored, InGit) and past_damage is None and count_forgets(log.writer.small_state):
            from everlog.application.trust.forget import forget_what_git_brought

            forget_what_git_brought(log, log.stored)
        return log

    def _open(self, past_damage: Callable[[Damaged], None] | None) -> Log:
        loaded = self.settings()
        actor = loaded.settings.actor or wiring.login_actor()
        if self.url:
            try:
                return wiring.open(self.absolute_url(), actor=actor, create=False, past_damage=past_damage)
            except NotFound as error:
                raise self._missing(error) from error
        folder = self.folder()
        try:
            return wiring.open_folder(folder, actor=actor, loaded=loaded, past_damage=past_damage)
        except NotFound as error:
            raise lost_store(error, folder) from error

    def _missing(self, error: NotFound) -> NotFound:
        """Return the error for a URL without a log: it is misspelt, or the log must be created first."""
        if not error.hint.startswith("everlog init"):
            return error
        try:
            folder = find_folder(self.directory)
            hint = f"check what follows --log; without it, the log in {folder} is used"
        except NoLogHere:
            url = url_from_folder(self.url, base=self.directory, folder=self.directory / FOLDER)
            hint = f"check what follows --log, or create it: {self._init()} --store {typed_url(url)}"
        return NotFound(error.what, why=error.why, hint=hint, **error.details)

    def _init(self) -> str:
        """Return the command that creates a log at this location."""
        return "everlog init" if self.work_in == Path() else f"everlog init {quote(str(self.work_in))}"


def only_local(what: str) -> OnlyLocal:
    """Return the error for something that a server does not offer."""
    from everlog.remote.address import URL_VARIABLE

    return OnlyLocal(
        f"{what} does not work on a server",
        why="it needs the files of the log, or the keys beside them",
        hint=f"run it on the machine of the server, without --url and without {URL_VARIABLE}",
    )


def lost_store(error: NotFound, folder: Path) -> NotFound:
    """Return the error for a store that settings name and that is missing. A new, empty log would hide the loss."""
    if not error.hint.startswith("everlog init"):  # the error is about something else, such as a missing database
        return error
    if not (folder / FILE_NAME).exists() and (folder / "keys").is_dir():
        return NotFound(
            error.what,
            why=f"{folder} has a key and no log: a join was begun, and the peer did not know the key yet",
            hint="everlog join URL, once more, when the peer has added the key",
            **error.details,
        )
    return NotFound(
        error.what,
        why=f"the settings in {folder} name it, and it is gone",
        hint="restore it from a backup or version control (git checkout), or move"
        f" {folder.name} away to start over; everlog init --new starts a new log with these settings",
        **error.details,
    )


def show_warnings(show: Callable[[str], None]) -> Callable[[], None]:
    """Pass the warnings that the library logs to `show`. Returns a function that ends it."""

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            show(record.getMessage())

    logger = logging.getLogger("everlog")
    before, propagated = logger.handlers, logger.propagate
    logger.handlers, logger.propagate = [Handler(logging.WARNING)], False

    def restore() -> None:
        logger.handlers, logger.propagate = before, propagated

    return restore

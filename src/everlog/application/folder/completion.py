"""What a shell may complete: the streams, types, views, ids and settings of the log here.

It answers before a person notices, so it reads the tables of names and opens no log; other stores than SQLite and
JSONL offer what the settings and declared types say.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from pathlib import Path

import msgspec

from everlog import programs
from everlog.errors import EverlogError
from everlog.files import DiskFiles
from everlog.settings import Loaded, Settings, find_folder, load
from everlog.store_urls import store_path
from everlog.stores.names import names_in, newest_ids_in

BUILT_IN_TYPES = ("note.added",)
BUILT_IN_VIEWS = ("actors", "streams", "types")


class Names:
    """The names of the log that a command line means."""

    def __init__(self, directory: Path, url: str) -> None:
        self._folder = None if url else find_folder(directory)
        self._loaded: Loaded = load(self._folder, flags={"store": url})
        path = store_path(self._loaded.settings.store, base=self._folder or directory)
        # The index of a JSONL log is local to its copy.
        self._database = path / "local" / "index.db" if path and path.is_dir() else path or Path()

    def streams(self, beginning: str, kind: str = "") -> list[str]:
        """Return names of streams; with a kind, without it."""
        before = f"{kind}/" if kind else ""
        return [name.removeprefix(before) for name in names_in(self._database, "streams", before + beginning)]

    def types(self, beginning: str) -> list[str]:
        known = {*names_in(self._database, "types", beginning), *BUILT_IN_TYPES, *self._declared()}
        known.update(name for program in self._on() for name in programs.TYPES[program])
        return sorted(name for name in known if name.startswith(beginning))

    def views(self, beginning: str) -> list[str]:
        known = [*BUILT_IN_VIEWS, *(name for program in self._on() for name in programs.VIEWS[program])]
        return sorted(name for name in known if name.startswith(beginning))

    def ids(self, beginning: str) -> list[str]:
        return newest_ids_in(self._database, beginning)

    def settings(self, beginning: str) -> list[str]:
        return [one.name for one in msgspec.structs.fields(Settings) if one.name.startswith(beginning)]

    def _on(self) -> list[str]:
        return [name for name in programs.TYPES if programs.names(self._loaded.settings.programs, name)]

    def _declared(self) -> list[str]:
        file = self._folder / "types.toml" if self._folder else None
        return (
            list(tomllib.loads(DiskFiles().read_all(file).decode()).get("types", {}))
            if file and file.is_file()
            else []
        )


def completions(directory: Path, url: str, what: Callable[[Names], list[str]]) -> list[str]:
    """Return what may be typed here; nothing where there is no log that can be used."""
    try:
        return what(Names(directory, url))
    except (EverlogError, OSError, ValueError):
        return []

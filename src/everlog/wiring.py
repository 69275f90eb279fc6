"""Opening a log by its URL: the only module that names a concrete store."""

from __future__ import annotations

import getpass
import importlib
import logging
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from everlog import domains
from everlog.catalog.builtin import BUILT_IN
from everlog.catalog.catalog import Catalog
from everlog.catalog.declared import FILE_NAME as TYPES_FILE
from everlog.catalog.declared import read_types
from everlog.cutover.copy import UNFINISHED, Target, put_into_place
from everlog.errors import Conflict, InvalidSettings, NotALog, Unavailable
from everlog.files import DiskFiles, Files
from everlog.log.drafts import Limits
from everlog.log.log import Log
from everlog.settings import Loaded, Settings, find_folder, load
from everlog.stores.contract import Identity, Store
from everlog.sync import git

_logger = logging.getLogger("everlog")

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from everlog.errors import Damaged
    from everlog.stores.segments.dump import Entry
    from everlog.views.view import View
    from everlog.views.views import Views


def open(
    url: str | None = None,
    *,
    catalog: Catalog | None = None,
    actor: str = "",
    create: bool = True,
    past_damage: Callable[[Damaged], None] | None = None,
) -> Log:
    """The log of a URL, made if it is not there; without one, the nearest .everlog.

    A URL is `sqlite:log.db`, `jsonl:log/`, `segments:log/`, `postgresql://host/database?schema=everlog` or `memory:`.
    `catalog` holds the event types that may be appended, beside the built-in ones and those of `types.toml`. With
    `past_damage` every read goes on behind damage and calls that with its error; such a log takes no writes, and its
    views keep nothing.
    """
    if url is None:
        return open_folder(find_folder(Path.cwd()), catalog=catalog, actor=actor, past_damage=past_damage)
    settings = load(None).settings
    return _log(
        open_store(url, base=Path(), create=create, **_of_store(settings)),
        _catalog(settings, None, catalog),
        settings,
        actor,
        _Beside(settings, url, Path()),
        past_damage,
    )


def rehearsal(log: Log) -> Log:
    """An empty log in memory that takes itself for another one: the same identity, types and actor. What is decided
    there from the beginning on can be recorded in the other in the same order, as if it had been decided in it."""
    settings = Settings()
    store = open_store("memory:", base=Path(), identity=log.identity)
    return _log(store, log.catalog, settings, log.actor, _Beside(settings, "memory:", Path()))


def open_folder(
    folder: Path,
    *,
    catalog: Catalog | None = None,
    actor: str = "",
    loaded: Loaded | None = None,
    create: bool = False,
    past_damage: Callable[[Damaged], None] | None = None,
) -> Log:
    """The log of a .everlog folder, with its settings and its declared types."""
    settings = (loaded or load(folder)).settings
    store = open_store(settings.store, base=folder, create=create, **_of_store(settings))
    beside = _Beside(settings, settings.store, folder, own=True)
    return _log(store, _catalog(settings, folder, catalog), settings, actor, beside, past_damage)


def open_store(
    url: str,
    *,
    base: Path,
    create: bool = True,
    claims_kept_us: int = 0,
    segment_mb_max: int = 100,
    segment_hours_max: int = 24,
    identity: Identity | None = None,
) -> Store:
    """The store of a URL; if it is made here, it is the log of this identity, or else a new one."""
    require_url(url)
    if url == "memory:":
        from everlog.stores.memory import MemoryStore

        return MemoryStore(identity=identity)
    if url.startswith("jsonl:"):
        from everlog.stores.jsonl.store import JsonlStore

        path = base / url.removeprefix("jsonl:").removeprefix("//")
        if git.merges_as_text(DiskFiles(), path):
            _logger.warning(
                "git merges the events of %s as plain text in this clone; once, type: everlog git install", path
            )
        return JsonlStore(path, create=create, identity=identity)
    if url.startswith("segments:"):
        from everlog.stores.segments.store import SegmentsStore

        return SegmentsStore(
            base / url.removeprefix("segments:").removeprefix("//"),
            create=create,
            identity=identity,
            claims_kept_us=claims_kept_us,
            segment_bytes_max=segment_mb_max * 1024 * 1024,
            segment_hours_max=segment_hours_max,
        )
    if _in_postgres(url):
        return _postgres_store(url, create=create, claims_kept_us=claims_kept_us, identity=identity)
    from everlog.stores.sqlite.store import SqliteStore

    return SqliteStore(
        base / url.removeprefix("sqlite:").removeprefix("//"),
        create=create,
        claims_kept_us=claims_kept_us,
        identity=identity,
    )


def git_folder(url: str, *, base: Path) -> Path | None:
    """The folder of a log whose events git can merge; None for a store that it cannot."""
    return store_path(url, base=base) if url.startswith("jsonl:") else None


def merge_day_files(name: str, ours: bytes, theirs: bytes) -> bytes:
    """Two states of one day file of a JSONL log, united."""
    from everlog.stores.jsonl import merging

    return merging.merge_day_files(name, ours, theirs)


def segment_files(url: str, *, base: Path) -> list[Path]:
    """The segment files of a log, in order."""
    from everlog.stores.segments.layout import Layout

    path = store_path(url, base=base)
    if path is None or not url.startswith("segments:"):
        raise InvalidSettings(
            f"{shown_url(url)} has no segment files",
            why="only a segments: log is kept in them",
            hint="name the files to look into",
        )
    layout = Layout(path)
    numbers = layout.numbers(DiskFiles())
    return [layout.archive(number) if packed else layout.segment(number) for number, packed in numbers.items()]


def segment_entries(path: Path) -> Iterator[Entry]:
    """What a segment file holds, damaged or not."""
    from everlog.stores.segments.dump import dump

    return dump(DiskFiles(), path)


def store_path(url: str, *, base: Path) -> Path | None:
    """The file or folder that holds the store of a URL; None for one that lives elsewhere."""
    require_url(url)
    scheme, _, rest = url.partition(":")
    return None if scheme == "memory" or _in_postgres(url) else base / rest.removeprefix("//")


def copy_target(url: str, *, base: Path, files: Files | None = None) -> Target:
    """Where a copy goes: into a draft beside its own name where it has one, else into the store itself."""
    path = store_path(url, base=base)
    if path is None:

        def open_itself(identity: Identity) -> Store:
            return open_store(url, base=base, identity=identity)

        return Target(name=shown_url(url), draft=shown_url(url), open=open_itself, swap=lambda: None)
    files = files or DiskFiles()
    if files.exists(path):
        raise Conflict(
            f"{path} is there already",
            why="a copy goes into a new log, and never writes over one",
            hint="name another place, or move that one away",
            path=str(path),
        )
    draft = path.with_name(path.name + ".copying")

    def open_draft(identity: Identity) -> Store:
        return open_store(f"{url.partition(':')[0]}:{draft}", base=Path(), identity=identity)

    return Target(name=str(path), draft=str(draft), open=open_draft, swap=lambda: put_into_place(files, draft, path))


def refuse_unfinished(store: Store, where: str) -> None:
    """Refuse a log that is still being copied into: it has not all of its events yet."""
    if store.noted(UNFINISHED) is not None:
        store.close()
        raise NotALog(
            f"{where} is an unfinished copy",
            why="everlog copy was stopped before it was whole",
            hint="run the same everlog copy again: it goes on where it was",
        )


_EXAMPLES = {
    "sqlite": "sqlite:log.db",
    "jsonl": "jsonl:events",
    "segments": "segments:data",
    "postgresql": "postgresql://HOST/DATABASE",
    "memory": "memory:",
}


def require_url(url: str) -> None:
    """Refuse what is not the URL of a log, and say what would be."""
    scheme, separator, rest = url.partition(":")
    if url == "memory:" or (scheme in ("sqlite", "jsonl", "segments") and rest) or _in_postgres(url):
        return
    if not url:
        meant = _EXAMPLES["sqlite"]
    elif not separator and url in _EXAMPLES:
        meant = _EXAMPLES[url]
    elif not separator or "/" in scheme or "." in scheme:
        meant = f"sqlite:{shown_url(url)}"
    else:
        meant = _EXAMPLES.get(scheme, f"there is no store {scheme}:; name one like {', '.join(_EXAMPLES.values())}")
    raise InvalidSettings(
        f"{shown_url(url)!r} is not the URL of a log",
        why="a URL is sqlite:PATH, jsonl:PATH, segments:PATH, postgresql://HOST/DATABASE or memory:",
        hint=meant,
        url=shown_url(url),
    )


def shown_url(url: str) -> str:
    """A URL for messages: without the user and the password that it may hold, however it is misspelt."""
    scheme, separator, rest = url.partition(":")
    if not separator or scheme in ("sqlite", "jsonl", "segments", "memory"):
        return url
    named = rest.lstrip("/")
    place, slash, path = named.partition("/")
    path, mark, options = path.partition("?")
    shown = "&".join(option for option in options.split("&") if "password" not in option.partition("=")[0].lower())
    slashes = "/" * (len(rest) - len(named))
    return f"{scheme}:{slashes}{place.rpartition('@')[2]}{slash}{path}{mark if shown else ''}{shown}"


def _in_postgres(url: str) -> bool:
    return url.startswith(("postgresql://", "postgres://"))


def _postgres_store(url: str, *, create: bool, claims_kept_us: int, identity: Identity | None) -> Store:
    try:
        from everlog.stores.postgres.store import PostgresStore
    except ImportError as error:
        if not (error.name or "").startswith("psycopg"):
            raise
        raise Unavailable(
            "logs in PostgreSQL need the library psycopg",
            why=str(error),
            hint="pip install 'everlog[pg]', or EVERLOG_EXTRAS=pg ./everlog …",
        ) from error
    return PostgresStore(url, create=create, claims_kept_us=claims_kept_us, identity=identity)


def folder_catalog(folder: Path | None, settings: Settings) -> Catalog:
    """Every event type that a folder's log knows."""
    return _catalog(settings, folder, None)


def _catalog(settings: Settings, folder: Path | None, given: Catalog | None) -> Catalog:
    catalog = Catalog()
    catalog.include(BUILT_IN)
    files = DiskFiles()
    if folder is not None and files.exists(folder / TYPES_FILE):
        catalog.include(read_types(_text(files, folder / TYPES_FILE), source=str(folder / TYPES_FILE)))
    if settings.catalog:
        catalog.include(_imported(settings.catalog))
    if given is not None:
        catalog.include(given)
    for name, types in domains.TYPES.items():
        catalog.include_later(types, partial(_domain_catalog, name))
    return catalog


def _domain_catalog(name: str) -> Catalog:
    return domains.load(name).catalog


def _domain_view(name: str) -> type[View] | None:
    domain = domains.of_view(name)
    return None if domain is None else domain.view(name)


def _text(files: Files, path: Path) -> str:
    try:
        return files.read_all(path).decode()
    except UnicodeDecodeError as error:
        raise InvalidSettings(
            f"{path} cannot be read", why=f"byte {error.start} is not UTF-8", hint=f"correct {path}"
        ) from error


def require_code(setting: str, name: str) -> str:
    """Refuse what can be no catalog, or no views. A module that is not found may be found elsewhere: that is told."""
    try:
        if setting == "catalog":
            _imported(name)
        elif wrong := _own_views(name)[1]:
            raise wrong[0]
    except InvalidSettings as error:
        if not isinstance(error.__cause__, ModuleNotFoundError):
            raise
        return f"the {setting} {name!r} cannot be loaded from here: {error.why}; {error.hint}"
    return ""


def _attribute(setting: str, name: str) -> Any:
    module, colon, attribute = name.partition(":")
    hint = f"give module:attribute of what is installed or in PYTHONPATH, or everlog config set {setting} ''"
    if not (module and colon and attribute):
        raise InvalidSettings(
            f"the {setting} {name!r} cannot be loaded", why="it is not of the form module:attribute", hint=hint
        )
    try:
        return getattr(importlib.import_module(module), attribute)
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # it runs somebody else's code, and whatever fails there must be told as theirs
        from everlog.views.own import told

        raise InvalidSettings(f"the {setting} {name!r} cannot be loaded", why=told(error), hint=hint) from error


def _imported(name: str) -> Catalog:
    found = _attribute("catalog", name)
    if not isinstance(found, Catalog):
        raise InvalidSettings(
            f"{name!r} is a {type(found).__name__}",
            why="it must be an everlog.Catalog",
            hint="give module:attribute of one, or everlog config set catalog ''",
        )
    return found


def _log(
    store: Store,
    catalog: Catalog,
    settings: Settings,
    actor: str,
    beside: _Beside,
    past_damage: Callable[[Damaged], None] | None = None,
) -> Log:
    refuse_unfinished(store, "this log")
    if past_damage is not None:
        from everlog.stores.past_damage import PastDamage

        store = PastDamage(store, past_damage)
        beside.snapshots = None  # what is folded past damage is not kept
    return Log(
        store,
        catalog,
        actor=actor or settings.actor or "system",
        limits=Limits(payload_bytes_max=settings.payload_bytes_max, payload_bytes_warn=settings.payload_bytes_warn),
        keys_kept_us=_claims_kept_us(settings),
        make_views=lambda log: _views(log, settings, beside),
    )


def _views(log: Log, settings: Settings, beside: _Beside) -> Views:
    from everlog.views.builtin import BUILT_IN as VIEWS  # most logs are opened for something else
    from everlog.views.snapshots import Snapshots
    from everlog.views.thinning import Due
    from everlog.views.views import Views

    return Views(
        log,
        (*VIEWS, *_views_found(settings.views)),
        more=_domain_view,
        make_snapshots=lambda log, shelf: Snapshots(
            log,
            shelf,
            beside.snapshots,
            due=Due(hours=settings.snapshot_hours, events=settings.snapshot_events, log_mb=settings.snapshot_log_mb),
            log_bytes=beside.log_bytes,
        ),
    )


def _views_found(name: str) -> list[View]:
    """The views of one's own that can be used here. Whatever is wrong with the others, all else must answer."""
    if not name:
        return []
    try:
        found, wrong = _own_views(name)
    except InvalidSettings as error:
        _logger.warning("%s, and are left out: %s; %s", error.what, error.why, error.hint)
        return []
    except SystemExit as end:  # it may mean this program, so it is heeded; but not without a word
        _logger.warning("the views %r end this program while they are loaded, with %r", name, end.code)
        raise
    for one in wrong:
        _logger.warning("%s, and is left out: %s; %s", one.what, one.why, one.hint)
    return found


def _own_views(name: str) -> tuple[list[View], list[InvalidSettings]]:
    from everlog.views.builtin import BUILT_IN as VIEWS
    from everlog.views.own import usable_views

    built_in = {view.name: view for view in VIEWS}
    return usable_views(_attribute("views", name), name, lambda other: built_in.get(other) or _domain_view(other))


class _Beside:
    """What lies beside a log: the folder of its views' snapshots, and how large the log is.

    `own`: the base is a .everlog folder, which has room for the snapshots of a log that is elsewhere.
    """

    def __init__(self, settings: Settings, url: str, base: Path, *, own: bool = False) -> None:
        self._path = store_path(url, base=base)
        self.snapshots: Path | None = None
        if settings.snapshots:
            self.snapshots = (base / settings.snapshots).absolute()
        elif self._path is None:
            self.snapshots = (base / "snapshots").absolute() if own and url != "memory:" else None
        elif url.startswith("sqlite:"):
            self.snapshots = self._path.with_name(self._path.name + ".snapshots").absolute()
        else:
            inside = self._path / "local" if url.startswith("jsonl:") else self._path
            self.snapshots = (inside / "snapshots").absolute()

    def log_bytes(self) -> int:
        """The size of the files that hold the events; 0 for a log that has none here."""
        files = DiskFiles()
        if self._path is None:
            return 0
        found = [self._path]
        for folder in (self._path / "events", self._path / "segments"):
            if files.exists(folder):
                found += [folder / name for name in files.names(folder)]
        return sum(stamp.size for stamp in map(files.stamp, found) if stamp is not None)


def _claims_kept_us(settings: Settings) -> int:
    return settings.keys_kept_hours * 3_600_000_000


def _of_store(settings: Settings) -> dict[str, Any]:
    """The settings that a store itself wants."""
    return {
        "claims_kept_us": _claims_kept_us(settings),
        "segment_mb_max": settings.segment_mb_max,
        "segment_hours_max": settings.segment_hours_max,
    }


def login_actor() -> str:
    """The person at this terminal as an actor: what the command line uses when nobody says otherwise."""
    try:
        return "user:" + getpass.getuser()
    except (KeyError, OSError):
        return "user:unknown"

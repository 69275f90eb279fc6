"""Open a log by its URL. Only this module names the concrete stores."""

from __future__ import annotations

import getpass
import logging
import time
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from everlog import programs as built_in
from everlog.catalog.catalog import Catalog
from everlog.core.ids import is_key
from everlog.errors import (
    Conflict,
    EverlogError,
    InvalidField,
    InvalidSettings,
    NewerFormat,
    NoKey,
    NotALog,
    NotFound,
    OlderFormat,
    Unavailable,
)
from everlog.files import DiskFiles, Files
from everlog.log.forgotten import forgets_in
from everlog.log.log import Log
from everlog.log.write.draft import Limits
from everlog.settings import Loaded, Settings, find_folder, load
from everlog.store_urls import in_postgres, require_url, shown_url, store_path
from everlog.stores.contract import Identity, Store
from everlog.stores.identity import new_identity
from everlog.transfer.copy import UNFINISHED, Target, put_into_place
from everlog.trust.ring import KeyRing, wrapped_for
from everlog.trust.sealing import Sealing
from everlog.trust.unfinished import note_in
from everlog.user_code import program_view, showing_view, types_and_programs, user_views

_logger = logging.getLogger("everlog")

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from everlog.errors import Damaged
    from everlog.log.write.guard import Guard, Guards
    from everlog.programs.program import Program
    from everlog.programs.registry import Own
    from everlog.stores.segments.dump import DumpEntry
    from everlog.trust.key_files import KeyFolder
    from everlog.trust.keys import PrivateKey
    from everlog.trust.signer import Keys, Signer
    from everlog.trust.standing import Standing
    from everlog.views.registry import Views


def open(
    url: str | None = None,
    *,
    catalog: Catalog | None = None,
    programs: Own = (),
    actor: str = "",
    create: bool = True,
    signed: bool = False,
    past_damage: Callable[[Damaged], None] | None = None,
) -> Log:
    """Return the log at a URL, created if it is missing; without a URL, the log of the nearest .everlog folder.

    A URL is `sqlite:log.db`, `jsonl:log/`, `segments:log/`, `postgresql://host/database?schema=everlog` or `memory:`.
    `catalog` holds the event types that may be appended, beside the built-in ones and those of `types.toml`.
    `programs` are your own, `[PROGRAM]`: the log has their event types and views, and every writer of this log meets
    their rules. With `past_damage` every read continues after damage and passes the error to that function; such a
    log takes no writes, and its views store nothing. With `signed`, as with the setting `sign`, the log signs every
    event that it makes; a log whose origin is a key always does.
    """
    if url is None:
        return open_folder(
            find_folder(Path.cwd()), catalog=catalog, programs=programs, actor=actor, past_damage=past_damage
        )
    settings = load(None).settings
    if signed:
        settings = msgspec.structs.replace(settings, sign="required")
    beside = _Beside(settings, url, Path())
    types, own = types_and_programs(settings, None, catalog, programs)
    return _log(
        _open_store(url, Path(), settings, beside, create=create),
        types,
        own,
        settings,
        actor,
        beside,
        past_damage,
    )


def rehearsal(log: Log) -> Log:
    """Return an empty log in memory with the identity, types and actor of another log. Events
    that are decided in it can be recorded in the other log in the same order, as if decided there."""
    settings = Settings()
    identity = log.identity
    if is_key(identity.origin):  # what is decided here is recorded there, and signed there
        identity = msgspec.structs.replace(identity, origin=identity.log_id)
    store = open_store("memory:", base=Path(), identity=identity)
    beside = _Beside(settings, "memory:", Path())
    return _log(store, log.catalog, (), settings, log.actor, beside, sealing=log.sealing)


def open_folder(
    folder: Path,
    *,
    catalog: Catalog | None = None,
    programs: Own = (),
    actor: str = "",
    loaded: Loaded | None = None,
    create: bool = False,
    past_damage: Callable[[Damaged], None] | None = None,
) -> Log:
    """Return the log of a .everlog folder, with its settings and its declared types."""
    settings = (loaded or load(folder)).settings
    types, own = types_and_programs(settings, folder, catalog, programs)
    beside = _Beside(settings, settings.store, folder, own=True)
    store = _open_store(settings.store, folder, settings, beside, create=create)
    return _log(store, types, own, settings, actor, beside, past_damage)


def _open_store(url: str, base: Path, settings: Settings, beside: _Beside, *, create: bool) -> Store:
    """Return the store at a URL. If it is created here and must be signed, its origin is a new key."""
    given = _of_store(settings)
    if not create or settings.sign == "off":
        return open_store(url, base=base, create=create, **given)
    if url != "memory:":
        try:
            return open_store(url, base=base, create=False, **given)
        except NotFound as error:
            if isinstance(error, NotALog | NewerFormat | OlderFormat):
                raise
    identity = new_identity(time.time_ns() // 1000, beside.own_keys().new().public.origin)
    return open_store(url, base=base, identity=identity, **given)


def create_store(url: str, *, base: Path, identity: Identity) -> None:
    """Create a store that has this identity: that of a node of a log that others have, too."""
    store = open_store(url, base=base, identity=identity)
    found = store.identity
    store.close()
    if found != identity:
        raise Conflict(
            f"there is a log at {shown_url(url)} already",
            why="a node that joins is a new log",
            hint="choose another directory, or another --store",
        )


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
    """Return the store at a URL. If it is created here, it gets this identity, or a new one."""
    require_url(url)
    if url == "memory:":
        from everlog.stores.memory import MemoryStore

        return MemoryStore(identity=identity)
    if url.startswith("jsonl:"):
        from everlog.stores.jsonl.store import JsonlStore
        from everlog.transfer import git  # it loads what starts processes

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
    if in_postgres(url):
        return _postgres_store(url, create=create, claims_kept_us=claims_kept_us, identity=identity)
    from everlog.stores.sqlite.store import SqliteStore

    return SqliteStore(
        base / url.removeprefix("sqlite:").removeprefix("//"),
        create=create,
        claims_kept_us=claims_kept_us,
        identity=identity,
    )


def git_folder(url: str, *, base: Path) -> Path | None:
    """Return the folder of a log whose events git can merge; None for a store that it cannot."""
    return store_path(url, base=base) if url.startswith("jsonl:") else None


def merge_day_files(name: str, ours: bytes, theirs: bytes) -> bytes:
    """Return two states of one day file of a JSONL log, merged."""
    from everlog.stores.jsonl import merge

    return merge.merge_day_files(name, ours, theirs)


def segment_files(url: str, *, base: Path) -> list[Path]:
    """Return the segment files of a log, in order."""
    from everlog.stores.segments.format.layout import Layout

    path = store_path(url, base=base)
    if path is None or not url.startswith("segments:"):
        raise InvalidSettings(
            f"{shown_url(url)} has no segment files",
            why="only a segments: log has such files",
            hint="name the files to read",
        )
    layout = Layout(path)
    numbers = layout.numbers(DiskFiles())
    return [layout.archive(number) if packed else layout.segment(number) for number, packed in numbers.items()]


def segment_entries(path: Path) -> Iterator[DumpEntry]:
    """Return the content of a segment file, damaged or not."""
    from everlog.stores.segments.dump import dump

    return dump(DiskFiles(), path)


def unpacked_archive(path: Path) -> Iterator[bytes]:
    """Return the content of a packed segment file, piece by piece."""
    from everlog.stores.segments.format.archive_source import PIECE_BYTES, ArchiveSource

    source = ArchiveSource(DiskFiles(), path)
    try:
        for at in range(0, source.size, PIECE_BYTES):
            yield source.read(at, PIECE_BYTES)
    finally:
        source.close()


def copy_target(url: str, *, base: Path, files: Files | None = None) -> Target:
    """Return where a copy goes: under a temporary name that is renamed at the end, or directly into the store."""
    path = store_path(url, base=base)
    if path is None:

        def open_itself(identity: Identity) -> Store:
            return open_store(url, base=base, identity=identity)

        return Target(name=shown_url(url), draft=shown_url(url), open=open_itself, swap=lambda: None)
    files = files or DiskFiles()
    if files.exists(path):
        raise Conflict(
            f"{path} is there already",
            why="a copy is always a new log, and never overwrites one",
            hint="choose another name, or move that log away",
            path=str(path),
        )
    draft = path.with_name(path.name + ".copying")

    def open_draft(identity: Identity) -> Store:
        return open_store(f"{url.partition(':')[0]}:{draft}", base=Path(), identity=identity)

    return Target(name=str(path), draft=str(draft), open=open_draft, swap=lambda: put_into_place(files, draft, path))


def refuse_unfinished(store: Store, where: str) -> None:
    """Refuse a log that is still being copied into: it does not have all of its events yet."""
    from everlog.stores.small_state import read_note

    if read_note(store.small_state, UNFINISHED) is not None:
        store.close()
        raise NotALog(
            f"{where} is an unfinished copy",
            why="everlog copy was stopped before it was complete",
            hint="run the same everlog copy again: it continues where it stopped",
        )


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


def _log(
    store: Store,
    catalog: Catalog,
    own: Sequence[Program],
    settings: Settings,
    actor: str,
    beside: _Beside,
    past_damage: Callable[[Damaged], None] | None = None,
    sealing: Sealing | None = None,
) -> Log:
    refuse_unfinished(store, "this log")
    is_interrupted = beside.keys is not None and note_in(DiskFiles(), beside.keys / "ring")
    if is_interrupted:
        _logger.warning("somebody is being forgotten, or it was interrupted; the next write finishes it")
    if past_damage is not None:
        from everlog.stores.past_damage import StorePastDamage

        store = StorePastDamage(store, past_damage)
        beside.snapshots = None  # A state that was folded past damage is not saved.
    log = Log(
        store,
        catalog,
        actor=actor or settings.actor or "system",
        limits=Limits(payload_bytes_max=settings.payload_bytes_max, payload_bytes_warn=settings.payload_bytes_warn),
        keys_kept_us=_claims_kept_us(settings),
        make_views=lambda log: _views(log, own, settings, beside),
        guards=_guards(catalog, own, lambda: log),
        sealing=sealing or Sealing(partial(_ring, store, beside)),
        signer=_signer(store, settings, beside),
        make_standing=partial(_standing, store, settings.authors) if settings.authors else None,
    )
    if is_interrupted:
        log.writer.first = partial(_finish_forget, log, beside)
    return log


def _finish_forget(log: Log, beside: _Beside) -> None:
    """Finish a forget that was interrupted, before the first write."""
    from everlog.application.trust.forget import finish_interrupted
    from everlog.application.trust.owned_bytes import owned_at

    finish_interrupted(log, owned_at(beside.url, beside.base, own=beside.own))


def _standing(store: Store, authors: str) -> Standing:
    """Return whose chains count, as the setting `authors` says. Those of this log's own keys always do."""
    if authors.startswith("community:"):
        from everlog.programs.community.standing import Members

        return Members(authors.removeprefix("community:"))
    from everlog.trust.standing import Pinned

    identity = store.identity
    own = filter(is_key, (identity.origin, *identity.former))
    try:
        return Pinned([*filter(None, map(str.strip, authors.split(","))), *own])
    except InvalidField as error:
        raise InvalidSettings(
            "the setting authors is not usable",
            why=f"{error.what}; {error.why}",
            hint="everlog config set authors z6Mk…,z6Mk… or community:ID",
        ) from error


def _signer(store: Store, settings: Settings, beside: _Beside) -> Signer | None:
    """Return what signs for a log: one that must be signed, or whose origin is a key already."""
    identity = store.identity
    if settings.sign == "off" and not is_key(identity.origin):
        return None
    from everlog.trust.signer import Signer  # imported only when it is needed

    return Signer(beside.own_keys(), identity.log_id)


def _ring(store: Store, beside: _Beside) -> KeyRing:
    """Return the key ring of a log: in its folder for keys, or in memory for a log in memory.

    The keys that the log has on record as destroyed are destroyed, also in an older copy of the ring.
    """
    if beside.keys is None and beside.url != "memory:":
        raise _no_place(shown_url(beside.url))
    gone = {key for forget in forgets_in(store.small_state) for key in forget.keys}
    ring = KeyRing(
        None if beside.keys is None else beside.keys / "ring", node_keys=_node_keys(store, beside), gone=gone
    )
    if came_back := ring.held(gone):
        try:
            ring.destroy(came_back)
        except EverlogError as error:  # they are not used all the same
            _logger.warning("keys that were destroyed are in %s again: %s", ring.folder, error)
    return ring


def _node_keys(store: Store, beside: _Beside) -> list[PrivateKey]:
    """Return the keys of a signed log that are here, the present one first. They wrap the keys of persons."""
    identity, found = store.identity, []
    # A log that was put back does not know the key that it took since, with which the ring was wrapped then.
    others = () if beside.keys is None else wrapped_for(beside.keys / "ring")
    for origin in dict.fromkeys((identity.origin, *reversed(identity.former), *others)):
        if is_key(origin):
            with suppress(NoKey):
                found.append(beside.own_keys().load(origin))
    return found


def _no_place(url: str) -> NoKey:
    return NoKey(
        f"there is no place for keys beside {url}",
        why="a log in memory, or in PostgreSQL and opened by its URL, has no folder",
        hint="everlog config set keys_folder FOLDER, or open it from a .everlog folder",
    )


def _guards(catalog: Catalog, own: Sequence[Program], log: Callable[[], Log]) -> Guards:
    """Return the guards of the programs whose types this log uses; a type that the log itself declares has no
    guard."""
    types: dict[str, Callable[[], Program]] = {}
    for name, owned in built_in.TYPES.items():
        if catalog.lends(owned[0]):
            types.update(dict.fromkeys(owned, partial(built_in.load, name)))
    for program in own:
        types.update({info.type: partial(_same, program) for info in program.types.types()})
    found: Guards | None = None

    def of_type(event_type: str) -> Guard | None:
        nonlocal found
        if event_type not in types:
            return None
        if found is None:
            from everlog.programs.guards import guards_of  # imported only when it is needed

            found = guards_of(types, log)
        return found(event_type)

    return of_type


def _same(program: Program) -> Program:
    return program


def _views(log: Log, own: Sequence[Program], settings: Settings, beside: _Beside) -> Views:
    from everlog.views.builtin import BUILT_IN as VIEWS  # imported only when it is needed
    from everlog.views.registry import Views
    from everlog.views.snapshots.policy import Due
    from everlog.views.snapshots.sign import signer_of
    from everlog.views.snapshots.snapshots import Snapshots

    return Views(
        log,
        (*VIEWS, *user_views(settings.views), *(view() for program in own for view in program.views)),
        more=program_view,
        showing=partial(showing_view, own),
        make_snapshots=lambda log, small_state: Snapshots(
            log,
            small_state,
            beside.snapshots,
            due=Due(hours=settings.snapshot_hours, events=settings.snapshot_events, log_mb=settings.snapshot_log_mb),
            signer=signer_of(log),
            log_bytes=beside.log_bytes,
        ),
    )


class _Beside:
    """What is beside a log: the folders of its keys and of the snapshots of its views, and the size of the log.

    `own`: the base is a .everlog folder, which has room for what belongs to a log that is elsewhere. Keys are never
    among the files of the log itself, so that a copy of these is not a copy of the keys.
    """

    def __init__(self, settings: Settings, url: str, base: Path, *, own: bool = False) -> None:
        self.url, self.base, self.own = url, base.absolute(), own
        path = store_path(url, base=base)
        self._path = None if path is None else path.absolute()
        self.keys: Path | None = None
        if settings.keys_folder:
            self.keys = (base / settings.keys_folder).absolute()
        elif own and url != "memory:":
            self.keys = (base / "keys").absolute()
        elif self._path is not None:
            self.keys = self._path.with_name(self._path.name + ".keys")
        self.passphrase_file = base / settings.passphrase_file if settings.passphrase_file else None
        self._made: Keys | None = None
        self.snapshots: Path | None = None
        if settings.snapshots:
            self.snapshots = (base / settings.snapshots).absolute()
        elif self._path is None:
            self.snapshots = (base / "snapshots").absolute() if own and url != "memory:" else None
        elif url.startswith("sqlite:"):
            self.snapshots = self._path.with_name(self._path.name + ".snapshots")
        else:
            inside = self._path / "local" if url.startswith("jsonl:") else self._path
            self.snapshots = inside / "snapshots"

    def own_keys(self) -> Keys:
        """Return the keys that the log signs with; those of a log in memory are in memory."""
        if self._made is None and self.keys is not None:
            self._made = key_folder(self.keys, self.passphrase_file)
        elif self._made is None:
            from everlog.trust.signer import KeysInMemory

            self._made = KeysInMemory()
        return self._made

    def log_bytes(self) -> int:
        """Return the size of the files with the events; 0 for a log without files here."""
        files = DiskFiles()
        if self._path is None:
            return 0
        found = [self._path]
        for folder in (self._path / "events", self._path / "segments"):
            if files.exists(folder):
                found += [folder / name for name in files.names(folder)]
        return sum(stamp.size for stamp in map(files.stamp, found) if stamp is not None)


def keys_of(settings: Settings, base: Path, *, own: bool) -> KeyFolder:
    """Return the private keys of the log that settings name. `own`: the base is its .everlog folder."""
    beside = _Beside(settings, settings.store, base, own=own)
    if beside.keys is None:
        raise _no_place(shown_url(beside.url))
    return key_folder(beside.keys, beside.passphrase_file)


def key_folder(path: Path, passphrase_file: Path | None = None) -> KeyFolder:
    """Return the private keys of a folder. A passphrase comes from a file, or from the terminal."""
    from everlog.trust.key_files import KeyFolder
    from everlog.trust.passphrases import asked_for

    ask, ask_twice = asked_for(passphrase_file)
    return KeyFolder(path, passphrase=ask, new_passphrase=ask_twice)


def _claims_kept_us(settings: Settings) -> int:
    return settings.keys_kept_hours * 3_600_000_000


def _of_store(settings: Settings) -> dict[str, Any]:
    """Return the settings of the store itself."""
    return {
        "claims_kept_us": _claims_kept_us(settings),
        "segment_mb_max": settings.segment_mb_max,
        "segment_hours_max": settings.segment_hours_max,
    }


def login_actor() -> str:
    """Return the login name as an actor: the default actor of the command line."""
    try:
        return "user:" + getpass.getuser()
    except (KeyError, OSError):
        return "user:unknown"

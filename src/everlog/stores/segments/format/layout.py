"""The names in the folder of a log, its manifest, and the creation of the folder.

log.json                      the identity of the log, and the number of its newest segment
lock                          held by the writer
refusals.jsonl                refusals that the next write takes into a frame; never flushed
segments/00000001.seg         the events; the one with the greatest number is the live one
segments/00000001.seg.zst     the same, packed
segments/00000003-5120.torn   bytes that a recovery cut off, for inspection
index/00000001-212.idx        derived: the index of a stretch that begins at this byte
index/end                     derived: where the live segment ends, and whether it was closed there
index/views.db                derived: rows of views; views.db.lock is held to open or remove it
"""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path

import msgspec

from everlog.errors import Damaged, EverlogError, NotALog, NotFound
from everlog.files import TEMP_SUFFIX, Files, replace_file
from everlog.stores.contract import Identity
from everlog.stores.formats import FORMAT, refuse_other_format
from everlog.stores.segments.format.header import HEAD_READ_BYTES, decode_header, head_size
from everlog.stores.segments.format.source import open_source

_SEGMENT = re.compile(r"(\d{8})\.seg(\.zst)?")
_INDEX = re.compile(r"(\d{8})-(\d+)\.idx")
TORN_SUFFIX = ".torn"


class Layout:
    def __init__(self, root: Path) -> None:
        self.root = root
        self.manifest = root / "log.json"
        self.lock = root / "lock"
        self.refusals = root / "refusals.jsonl"
        self.segments = root / "segments"
        self.index = root / "index"
        self.end = self.index / "end"
        self.views = self.index / "views.db"
        self._plain: dict[int, Path] = {}

    def segment(self, number: int) -> Path:
        found = self._plain.get(number)
        if found is None:  # asked for at every look at a segment
            found = self._plain[number] = self.segments / f"{number:08}.seg"
        return found

    def archive(self, number: int) -> Path:
        return self.segments / f"{number:08}.seg.zst"

    def torn(self, number: int, at: int) -> Path:
        return self.segments / f"{number:08}-{at}{TORN_SUFFIX}"

    def part(self, number: int, start: int) -> Path:
        return self.index / f"{number:08}-{start}.idx"

    def numbers(self, files: Files) -> dict[int, bool]:
        """The segments that are there, in order; True for one that is only there packed."""
        found: dict[int, bool] = {}
        for name in files.names(self.segments) if files.exists(self.segments) else []:
            match = _SEGMENT.fullmatch(name)
            if match is not None:
                number = int(match[1])
                found[number] = found.get(number, True) and match[2] is not None
        return dict(sorted(found.items()))

    def doubled(self, files: Files) -> set[int]:
        """The segments that are there plain and packed: a crash cut off the packing, or a purge of a packed one."""
        names = set(files.names(self.segments))
        return {
            number
            for number, archived in self.numbers(files).items()
            if not archived and self.archive(number).name in names
        }

    def parts(self, files: Files) -> dict[int, set[int]]:
        """The index files that are there: their starts, by segment."""
        found: dict[int, set[int]] = {}
        for name in files.names(self.index) if files.exists(self.index) else []:
            match = _INDEX.fullmatch(name)
            if match is not None:
                found.setdefault(int(match[1]), set()).add(int(match[2]))
        return found

    def torn_files(self, files: Files) -> list[Path]:
        return [self.segments / name for name in files.names(self.segments) if name.endswith(TORN_SUFFIX)]


class Manifest(msgspec.Struct, frozen=True):
    identity: Identity
    newest: int  # there is no log without this segment, whatever else is there
    place: str = ""  # the lock file that the log lives beside: see `everlog.stores.put_back`
    format: int = FORMAT


def write_manifest(files: Files, layout: Layout, manifest: Manifest) -> None:
    body = msgspec.to_builtins(manifest)
    text = json.dumps({**body, "sha256": _digest(body)}, indent=2) + "\n"
    replace_file(files, layout.manifest, text.encode())


def read_manifest(files: Files, layout: Layout) -> Manifest | None:
    """Return the content of log.json, or None if it is missing or damaged."""
    if not files.exists(layout.manifest):
        return None
    try:
        body = json.loads(files.read_all(layout.manifest))
        digest = body.pop("sha256")
        whole = digest == _digest(body)
    except (ValueError, AttributeError, KeyError, RecursionError):
        return None
    if not whole:
        return None
    refuse_other_format(str(layout.root), body.get("format", 0))
    return msgspec.convert(body, Manifest)


def _digest(body: object) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()


_OURS = {"log.json", "lock", "lock.queue", "refusals.jsonl", "segments", "index", "snapshots", "keys"}
"""What may be in the folder of a new log. The keys are made first, if the log is a .everlog folder itself."""


def identity_of(files: Files, layout: Layout) -> tuple[Identity, int]:
    """Return the identity of the log and its newest segment, from log.json or from the last readable head."""
    manifest = read_manifest(files, layout)
    if manifest is not None:
        return manifest.identity, manifest.newest
    for number, archived in reversed(layout.numbers(files).items()):  # the newest: the origin may have changed
        path = layout.archive(number) if archived else layout.segment(number)
        try:
            source = open_source(files, path, packed=archived)
        except EverlogError:
            continue  # a read of this segment reports it; here another head is enough
        try:
            data = source.read(0, HEAD_READ_BYTES)
            found = decode_header(source.read(0, max(head_size(data), len(data))), name=str(path))
        finally:
            source.close()
        if found is not None:
            return found[0].identity, 0
    raise Damaged(
        f"{layout.root} cannot be opened",
        why="neither log.json nor the head of any segment can be read",
        hint="restore a backup; everlog dump shows what is left of each file",
    )


def make_folders(files: Files, layout: Layout) -> None:
    """Create the folders of a new log. A folder with other files is refused."""
    root = layout.root
    if files.exists(root):
        try:
            foreign = [name for name in files.names(root) if name not in _OURS and not name.endswith(TEMP_SUFFIX)]
        except NotADirectoryError as error:
            raise NotALog(
                f"{root} is a file", why="a segments log is a folder", hint="name another folder"
            ) from error
        if foreign:
            raise NotALog(
                f"{root} is not the folder of a log",
                why=f"it holds other files, such as {foreign[0]}",
                hint="name an empty folder, or one that does not exist yet",
            )
    elif not files.exists(root.absolute().parent.parent) and not files.exists(root.absolute().parent):
        raise NotFound(
            f"{root} cannot be created",
            why=f"there is no folder {root.absolute().parent}",
            hint=f"mkdir -p {root.absolute().parent}",
        )
    if not files.exists(root.absolute().parent):
        files.make_dir(root.absolute().parent)
    files.make_dir(root)
    files.make_dir(layout.segments)
    files.make_dir(layout.index)

"""The names in the folder of a log, and the one small file that says what should be there.

log.json                      who the log is, and the number of its newest segment
lock                          held by the writer
segments/00000001.seg         the events; the one with the greatest number is the live one
segments/00000001.seg.gz      the same, packed
segments/00000003-5120.torn   bytes that a recovery cut off, for whoever wants to look
index/00000001-212.idx        derived: the index of a stretch that begins at this byte
index/end                     derived: where the live segment ends, and whether it was closed there
index/views.db                derived: what views keep; beside it views.db.lock, for those who open or remove it
"""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path

import msgspec

from everlog.errors import NewerFormat
from everlog.files import Files, replace_file
from everlog.stores.contract import FORMAT, Identity

_SEGMENT = re.compile(r"(\d{8})\.seg(\.gz)?")
_INDEX = re.compile(r"(\d{8})-(\d+)\.idx")
TORN_SUFFIX = ".torn"


class Layout:
    def __init__(self, root: Path) -> None:
        self.root = root
        self.manifest = root / "log.json"
        self.lock = root / "lock"
        self.segments = root / "segments"
        self.index = root / "index"
        self.end = self.index / "end"
        self.views = self.index / "views.db"

    def segment(self, number: int) -> Path:
        return self.segments / f"{number:08}.seg"

    def archive(self, number: int) -> Path:
        return self.segments / f"{number:08}.seg.gz"

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
    format: int = FORMAT


def write_manifest(files: Files, layout: Layout, manifest: Manifest) -> None:
    body = msgspec.to_builtins(manifest)
    text = json.dumps({**body, "sha256": _digest(body)}, indent=2) + "\n"
    replace_file(files, layout.manifest, text.encode())


def read_manifest(files: Files, layout: Layout) -> Manifest | None:
    """What log.json says, or None if it is not there or not what was written."""
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
    if body.get("format", 0) > FORMAT:
        raise NewerFormat(
            f"{layout.root} has format {body['format']}",
            why=f"this version reads formats up to {FORMAT}",
            hint="use a newer everlog",
        )
    return msgspec.convert(body, Manifest)


def _digest(body: object) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()

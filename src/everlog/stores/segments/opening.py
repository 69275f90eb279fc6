"""Whose log a folder holds, and the folders of a new one."""

from __future__ import annotations

from everlog.errors import Damaged, EverlogError, NotALog, NotFound
from everlog.files import TEMP_SUFFIX, Files
from everlog.stores.contract import Identity
from everlog.stores.segments.header import HEAD_READ_BYTES, decode_header, head_size
from everlog.stores.segments.layout import Layout, read_manifest
from everlog.stores.segments.source import ArchiveSource, PlainSource

_OURS = {"log.json", "lock", "lock.queue", "segments", "index", "snapshots"}


def identity_of(files: Files, layout: Layout) -> tuple[Identity, int]:
    """Who the log is and its newest segment: from log.json, or from the first head that can be read."""
    manifest = read_manifest(files, layout)
    if manifest is not None:
        return manifest.identity, manifest.newest
    for number, archived in layout.numbers(files).items():
        path = layout.archive(number) if archived else layout.segment(number)
        try:
            source = ArchiveSource(files, path) if archived else PlainSource(files, path)
        except EverlogError:
            continue  # told by whoever reads it; here another head may do
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
    """The folders of a new log. A folder of somebody else's is left alone."""
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
            f"{root} cannot be made",
            why=f"there is no folder {root.absolute().parent}",
            hint=f"mkdir -p {root.absolute().parent}",
        )
    if not files.exists(root.absolute().parent):
        files.make_dir(root.absolute().parent)
    files.make_dir(root)
    files.make_dir(layout.segments)
    files.make_dir(layout.index)

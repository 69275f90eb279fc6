"""The lake of a log: where it is, whether it still contains purged events, and its page with plots."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING
from urllib.parse import unquote

from everlog.application.folder.open import Location
from everlog.errors import EverlogError, InvalidSettings, NotFound
from everlog.files import DiskFiles, replace_file
from everlog.pipeline.lake.bucket import url_of
from everlog.pipeline.lake.folders import files_for
from everlog.store_urls import shown_url, store_path

if TYPE_CHECKING:
    from everlog.pipeline.lake.lake import Lake
    from everlog.pipeline.sql.definition import Definition


_URL = re.compile(r"([A-Za-z][\w+.-]*)://(.*)")


def lake_path(location: Location, given: str | None = None) -> Path:
    """Return the place of the lake, existing or not: the given one, else the setting, else beside the log."""
    if given is not None:
        return place_of(given, base=location.directory)
    named = location.settings().settings.lake
    if not location.url:
        return place_of(named or "lake", base=location.folder())
    if named:
        return place_of(named, base=location.directory)
    path = store_path(location.absolute_url(), base=Path())
    if path is None:
        raise InvalidSettings(
            f"where is the lake of {shown_url(location.url)}?",
            why="this log has no folder to put it beside",
            hint="name one: --lake PLACE, or EVERLOG_LAKE=PLACE",
        )
    return path.with_name(path.name + ".lake").absolute()


def place_of(text: str, *, base: Path) -> Path:
    """Return the place that a path or a URL names: `s3://BUCKET/KEY` begins with `s3:/` as a path."""
    url = _URL.fullmatch(text)
    if url is None:
        return base / text
    scheme, rest = url[1].lower(), url[2].strip("/")
    if scheme == "file" and url[2].startswith("/"):
        return Path(unquote(url[2]))
    if scheme == "s3" and rest:
        return Path(f"s3:/{rest}")
    raise InvalidSettings(
        f"a lake cannot be at {text}",
        why="it names no bucket" if scheme == "s3" else f"{scheme}:// is not supported",
        hint="name a folder, or s3://BUCKET/FOLDER",
    )


def open_lake(location: Location, given: str | None, *, log_id: str = "") -> Lake:
    """Return the lake, which must exist."""
    from everlog.pipeline.lake.lake import Lake

    try:
        return Lake.open(lake_path(location, given), log_id=log_id)
    except NotFound as error:
        if given is None:
            raise
        hint = f"everlog pipeline run --lake {quote(given)}"
        raise NotFound(error.what, why=error.why, hint=hint, **error.details) from error


def with_settings(lake: Lake, location: Location) -> Lake:
    """Set the size that files should have; return the lake."""
    lake.file_bytes = location.settings().settings.lake_file_mb * 1024 * 1024
    return lake


def defined_tables(location: Location) -> dict[str, Definition]:
    """Return the tables in SQL: ours, and those in the folder `tables` beside the settings."""
    from everlog.pipeline.sql.definition import FOLDER, read_definitions

    folder = None if location.url else location.folder() / FOLDER
    return read_definitions(folder, location.settings().settings)


def stale_lake(location: Location) -> str:
    """Return where the lake of a log is, if there is one: after a purge, it holds the purged events until a run."""
    try:
        lake = lake_path(location)
    except EverlogError:
        return ""  # the log is not in a folder, and its lake could be anywhere
    return url_of(lake) if files_for(lake).exists(lake / "lake.json") else ""


def write_page(lake: Lake, path: Path, definitions: Mapping[str, Definition] | None = None) -> int:
    """Write the lake as a page with plots, of our tables or of these, and return its size in bytes."""
    from everlog.pipeline.report.report import report

    page = report(lake, definitions).encode()
    replace_file(DiskFiles(), path, page)
    return len(page)

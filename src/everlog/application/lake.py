"""The lake of a log: where it is, whether it still contains purged events, and its page with plots."""

from __future__ import annotations

from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING

from everlog.application.folder.open import Location
from everlog.errors import EverlogError, InvalidSettings, NotFound
from everlog.files import DiskFiles, replace_file
from everlog.store_urls import shown_url, store_path

if TYPE_CHECKING:
    from everlog.pipeline.lake.lake import Lake


def lake_path(location: Location, given: Path | None = None) -> Path:
    """Return the folder of the lake, existing or not: the given one, else the setting, else beside the log."""
    if given is not None:
        return location.directory / given
    named = location.settings().settings.lake
    if not location.url:
        return location.folder() / (named or "lake")
    if named:
        return location.directory / named
    path = store_path(location.absolute_url(), base=Path())
    if path is None:
        raise InvalidSettings(
            f"where is the lake of {shown_url(location.url)}?",
            why="this log has no folder to put it beside",
            hint="name one: --lake DIR, or EVERLOG_LAKE=DIR",
        )
    return path.with_name(path.name + ".lake").absolute()


def open_lake(location: Location, given: Path | None, *, log_id: str = "") -> Lake:
    """Return the lake, which must exist."""
    from everlog.pipeline.lake.lake import Lake

    try:
        return Lake.open(lake_path(location, given), log_id=log_id)
    except NotFound as error:
        if given is None:
            raise
        hint = f"everlog pipeline run --lake {quote(str(given))}"
        raise NotFound(error.what, why=error.why, hint=hint, **error.details) from error


def stale_lake(location: Location) -> Path | None:
    """Return the lake of a log, if there is one: after a purge, it contains the purged events until its next run."""
    try:
        lake = lake_path(location)
    except EverlogError:
        return None  # the log is not in a folder, and its lake could be anywhere
    return lake if DiskFiles().exists(lake / "lake.json") else None


def write_page(lake: Lake, path: Path) -> int:
    """Write the lake as a page with plots, and return its size in bytes."""
    from everlog.pipeline.report.report import report

    page = report(lake).encode()
    replace_file(DiskFiles(), path, page)
    return len(page)

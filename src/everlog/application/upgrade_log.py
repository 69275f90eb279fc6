"""Upgrade the log at a location, or forget the old files that an upgrade has kept."""

from __future__ import annotations

from pathlib import Path

import msgspec

from everlog import upgrading, wiring
from everlog.application.open_folder import Location
from everlog.settings import FOLDER, find_folder, load
from everlog.upgrading import ProgressOf
from everlog.upgrading import Upgraded as Upgraded


class Forgotten(msgspec.Struct, frozen=True):
    """Old files that are gone now, and how many bytes they took; 0 for tables."""

    kept: str
    bytes: int


class Named(msgspec.Struct, frozen=True):
    """A log as a command names it: its URL, and where its path begins."""

    url: str
    base: Path
    shown: str


def named_log(location: Location, name: str) -> Named:
    """Return the log that a command names by a URL or by a folder; without a name, the log of the location."""
    if name and (location.directory / name).is_dir():
        folder = location.directory / name
        folder = folder if folder.name == FOLDER else find_folder(folder)
        url = load(folder).settings.store
        return Named(url, folder, wiring.shown_url(url))
    if name:
        return Named(name, location.directory, wiring.shown_url(name))
    if location.url:
        url = location.absolute_url()
        return Named(url, Path(), wiring.shown_url(url))
    url = location.settings().settings.store
    return Named(url, location.folder(), wiring.shown_url(url))


def upgrade_named(named: Named, progress: ProgressOf) -> Upgraded:
    return upgrading.upgrade(named.url, base=named.base, progress=progress)


def forget_named(named: Named) -> Forgotten:
    return Forgotten(*upgrading.forget_old(named.url, base=named.base))

"""Programs that come in other distributions: entry points of the group `everlog.programs`.

    [project.entry-points."everlog.programs"]
    shed = "shed:PROGRAM"

The name of an entry point is the word that the setting `programs` uses. The five programs of everlog are registered
in the same way, but they are found without a look at what is installed, which takes some milliseconds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP = "everlog.programs"


def plugins() -> dict[str, EntryPoint]:
    """Return the programs that are installed, by their words. Of two with the same word the first one counts."""
    from importlib.metadata import entry_points  # it takes 20 ms, and most runs need no plugin

    found: dict[str, EntryPoint] = {}
    for point in entry_points(group=GROUP):
        found.setdefault(point.name, point)
    return found


def distribution(point: EntryPoint) -> str:
    """Return the name and the version of what a plugin came with."""
    return f"{point.dist.name} {point.dist.version}" if point.dist else "an unknown distribution"

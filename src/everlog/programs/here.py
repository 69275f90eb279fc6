"""Which programs are on for a log, by their words. It loads no program of everlog: `everlog --help` stays quick."""

from __future__ import annotations

from pathlib import Path

from everlog import programs
from everlog.errors import NotFound
from everlog.settings import find_folder, load


def words_of(setting: str) -> list[str]:
    """Return the words of the setting `programs` that name no program of everlog: these are known to every log."""
    words = filter(None, map(str.strip, setting.split(",")))
    return [word for word in words if not programs.built_in(word)]


def groups_on(directory: Path, url: str = "") -> list[tuple[str, str]]:
    """Return the word and the description of each program that is on, for the log that is used in a directory, or at
    a URL. A program that cannot be used has its defect as its description.

    The code of a user is imported only if the setting `programs` names some. Without a log there are no settings.
    """
    try:
        setting = load(None if url else find_folder(directory)).settings.programs
    except NotFound:
        return []
    on = [(word, "") for word, name in programs.GROUPS.items() if programs.names(setting, name)]
    if not words_of(setting):
        return on
    from everlog.programs.registry import usable_programs

    found, wrong = usable_programs(setting)
    own = [(program.group, program.about) for program in found.values() if program.group]
    return [*on, *own, *(("(none)", str(one)) for one in wrong.values())]

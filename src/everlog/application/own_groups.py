"""The groups of commands of a user's own programs. Light to import: `everlog --help` lists them."""

from __future__ import annotations

from pathlib import Path

from everlog.errors import NotFound
from everlog.settings import find_folder, load


def own_groups(directory: Path, url: str = "") -> list[tuple[str, str]]:
    """Return the group and the description of each program that the setting `programs` names.

    The code of a user is imported only if that setting is not empty. Without a log there are no settings.
    """
    try:
        setting = load(None if url else find_folder(directory)).settings.programs
    except NotFound:
        return []
    if not setting:
        return []
    from everlog.user_code import user_programs  # imported only when it is needed

    return [(program.group, program.about) for program in user_programs(setting) if program.group]

"""Event types: declared, described, locked, and compared with the lock."""

from __future__ import annotations

from pathlib import Path

import pytest

from everlog.application.folder.create import create_folder
from everlog.application.folder.event_types import (
    check_types,
    declare_type,
    default_lock,
    describe_type,
    lock_types,
)
from everlog.application.folder.open import Location
from everlog.errors import InvalidSettings, NotFound, SchemaBroken, UnknownType


@pytest.fixture
def here(tmp_path: Path) -> Location:
    create_folder(tmp_path / ".everlog")
    return Location(work_in=tmp_path)


def test_a_declared_type_is_in_the_catalog_and_declaring_it_again_changes_nothing(here: Location) -> None:
    first = declare_type(here.catalog(), here.folder(), "deploy.finished", {"service": "str"}, "A deploy.")
    again = declare_type(here.catalog(), here.folder(), "deploy.finished", {"service": "str"}, "A deploy.")
    assert (first.made, again.made) == (True, False)
    found = describe_type(here.catalog(), "deploy.finished")
    assert (found.info.doc, [field.name for field in found.info.fields]) == ("A deploy.", ["service"])
    assert found.schema["required"] == ["service"]


def test_a_type_of_everlog_is_not_declared_again(here: Location) -> None:
    with pytest.raises(InvalidSettings, match="own types"):
        declare_type(here.catalog(), here.folder(), "note.added", {})
    with pytest.raises(UnknownType):
        describe_type(here.catalog(), "note.never")


def test_the_lock_reports_additions_and_refuses_what_breaks_old_events(here: Location) -> None:
    lock = default_lock(here.folder())
    with pytest.raises(NotFound, match="no schema lock"):
        check_types(here.catalog(), lock)
    declare_type(here.catalog(), here.folder(), "deploy.finished", {"service": "str", "seconds": "int"})
    locked = lock_types(here.catalog(), lock)
    assert (locked.lock, locked.no_longer) == (lock, [])
    declare_type(here.catalog(), here.folder(), "deploy.begun", {"service": "str"})
    found = check_types(here.catalog(), lock)
    assert found.types == locked.types + 1
    assert any("deploy.begun" in text for text in found.additions)
    types = here.folder() / "types.toml"
    types.write_text(types.read_text().replace('seconds = "int"', 'seconds = "str"'))
    with pytest.raises(SchemaBroken):
        check_types(here.catalog(), lock)
    assert any("seconds" in text for text in lock_types(here.catalog(), lock).no_longer)
    assert check_types(here.catalog(), lock).additions == []

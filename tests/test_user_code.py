"""Catalogs and views that users write: what is found, what is refused, and what is left out with a warning."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from everlog.catalog.catalog import Catalog
from everlog.errors import InvalidSettings
from everlog.settings import Settings
from everlog.user_code import catalog_of, program_view, require_code, user_views


class Sold(msgspec.Struct):
    price: int


@pytest.fixture(autouse=True)
def _modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "user_code_here.py").write_text(
        "import everlog, msgspec\n"
        "CATALOG = everlog.Catalog()\n"
        "@CATALOG.event('shop.opened')\n"
        "class Opened(msgspec.Struct):\n    name: str\n"
        "NOT_A_CATALOG = 7\n"
    )
    (tmp_path / "user_code_broken.py").write_text("1 / 0\n")
    monkeypatch.syspath_prepend(tmp_path)


def test_a_catalog_has_the_types_of_every_source(tmp_path: Path) -> None:
    (tmp_path / "types.toml").write_text('[types."shop.closed"]\n[types."shop.closed".fields]\nname = "str"\n')
    given = Catalog()
    given.event("shop.sold")(Sold)
    catalog = catalog_of(Settings(catalog="user_code_here:CATALOG"), tmp_path, given)
    known = ("note.added", "shop.opened", "shop.closed", "shop.sold", "WPCreated")
    assert [name for name in known if not catalog.knows(name)] == []


def test_types_that_are_not_utf_8_are_refused_with_the_byte(tmp_path: Path) -> None:
    (tmp_path / "types.toml").write_bytes(b"# \xff")
    with pytest.raises(InvalidSettings, match="byte 2 is not UTF-8"):
        catalog_of(Settings(), tmp_path)


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("user_code_here:NOT_A_CATALOG", "it must be an everlog.Catalog"),
        ("user_code_here", "it is not of the form module:attribute"),
        ("user_code_broken:CATALOG", "ZeroDivisionError: division by zero"),
    ],
)
def test_a_setting_that_is_no_catalog_is_refused(name: str, why: str) -> None:
    with pytest.raises(InvalidSettings) as refused:
        require_code("catalog", name)
    assert refused.value.why == why


def test_a_module_that_is_not_here_is_only_warned_of() -> None:
    assert "cannot be loaded from here" in require_code("catalog", "not_here_at_all:CATALOG")
    assert require_code("catalog", "user_code_here:CATALOG") == ""


def test_views_that_cannot_be_loaded_are_left_out_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    assert user_views("user_code_broken:VIEWS") == []
    (message,) = caplog.messages
    assert "and are left out: ZeroDivisionError" in message
    assert user_views("") == []


def test_a_view_of_a_program_is_found_by_its_name() -> None:
    assert program_view("no_such_view") is None

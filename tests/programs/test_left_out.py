"""A program that the settings name and that cannot be used: what works without it, and what is refused."""

from __future__ import annotations

import io
import logging
import sys
from pathlib import Path
from unittest.mock import patch

import pytest
from tests.cli.conftest import Run, everlog, place
from tests.programs.test_plugins import installed, off, site, template

__all__ = ["everlog", "off", "place", "site"]  # fixtures

PEOPLE = """
from typing import Annotated
import everlog, msgspec
from everlog.catalog.personal import Personal
from everlog.programs import Program
CATALOG = everlog.Catalog()
@CATALOG.event("shed.person.noted")
class Noted(msgspec.Struct):
    person: str
    text: FIELD
PROGRAM = Program(name="shed", group="shed", types=CATALOG)
"""
BEFORE, SINCE = (PEOPLE.replace("FIELD", field) for field in ("str", 'Annotated[str, Personal(of="person")]'))
OPEN = "grace.hopper@example.org"


def put(site: Path, code: str) -> None:
    """Install another version of the program."""
    (site / "__pycache__").mkdir(exist_ok=True)
    for file in (site / "__pycache__").iterdir():
        file.unlink()
    sys.modules.pop("shed_module", None)
    installed(site, "shed", code)


def require_refused(off: Run, *words: str) -> None:
    refused = off(*words, "--json")
    assert (refused.code, refused.error["code"]) == (2, "invalid_settings"), words
    assert "'shed' of shed-everlog 1.5 cannot be loaded" in refused.error["message"]
    assert "division by zero" in refused.error["message"]
    assert refused.error["hint"] == "install it or add its module to PYTHONPATH"


@pytest.fixture
def shed(off: Run, site: Path) -> Run:
    """A log with a value that was recorded before its field was personal; since then the program cannot be loaded."""
    put(site, BEFORE)
    assert off("config", "set", "programs", "shed").code == 0
    assert off("append", "shed.person.noted", "-s", "shed/1", "person=p/1", f"text={OPEN}").code == 0
    put(site, "1 / 0")
    return off


def test_nobody_is_forgotten_while_a_program_is_missing(shed: Run, site: Path) -> None:
    require_refused(shed, "forget", "p/1", "--dry-run")
    require_refused(shed, "forget", "p/1", "--confirm", "forget p/1")
    require_refused(shed, "forget", "--finish")
    assert shed("forget", "--status").code == 0
    assert OPEN in shed("log", "--json").out
    put(site, SINCE)
    done = shed("forget", "p/1", "--confirm", "forget p/1", "--json")
    assert (done.code, done.data["erased"]) == (0, 1)
    assert OPEN not in shed("log", "--json").out


def test_no_type_is_declared_while_a_program_is_missing(shed: Run, place: Path) -> None:
    require_refused(shed, "schema", "learn", "shed.person.noted")
    require_refused(shed, "schema", "add", "shed.person.noted", "person:str", "text:str")
    assert "shed.person" not in (place / ".everlog/types.toml").read_text()
    refused = shed("append", "shed.person.noted", "-s", "shed/1", "person=p/1", "text=x", "--json")
    assert (refused.code, refused.error["code"]) == (3, "unknown_type")
    assert "schema add" not in refused.error["hint"]
    assert "'shed' of shed-everlog 1.5" in refused.error["why"]
    assert shed("append", "note.added", "-s", "note/1", "text=x").code == 0


def test_no_type_of_a_program_is_declared_beside_it(off: Run, site: Path, place: Path) -> None:
    put(site, BEFORE)
    off("config", "set", "programs", "shed")
    refused = off("schema", "add", "shed.person.noted", "person:str", "--json")
    assert (refused.code, refused.error["code"]) == (2, "invalid_settings")
    assert "shed.person" not in (place / ".everlog/types.toml").read_text()


class Stderr(io.TextIOBase):
    """What is standard error at the time of the write."""

    def write(self, text: str) -> int:
        return sys.stderr.write(text)


@pytest.mark.parametrize("version", [1, 2])
def test_a_program_whose_type_is_declared_here_is_left_out(off: Run, site: Path, place: Path, version: int) -> None:
    installed(site, "barn", template(off, site, "barn"))
    sys.modules.pop("barn_module", None)
    off("config", "set", "programs", "barn")
    assert off("barn", "add", "1", "--text", "water").code == 0
    with (place / ".everlog/types.toml").open("a") as file:
        file.write(f'\n[types."barn.item.added"]\nversion = {version}\nfields = {{ text = "str" }}\n')
    listed = off("log")
    assert (listed.code, len(listed.rows)) == (0, 1)
    assert "the program 'barn' cannot be used (from barn-everlog 1.5), and is left out" in listed.err
    assert "barn.item.added is declared in types.toml" in listed.err
    assert "take its types out of types.toml" in listed.err
    for type in ("added", "finished"):
        refused = off("append", f"barn.item.{type}", "-s", "barn/1", *["text=again"] * (type == "added"), "--json")
        assert (refused.code, refused.error["code"]) == (3, "unknown_type")
        assert "'barn'" in refused.error["why"]
    with patch.object(logging.getLogger("everlog"), "handlers", [logging.StreamHandler(Stderr())]):
        named = off("barn", "list", "--json")
    assert (named.code, named.error["code"]) == (2, "invalid_settings"), "the error is all that is printed"
    assert "'barn'" in named.error["message"]
    assert off("verify").code == 0
    assert off("append", "note.added", "-s", "note/1", "text=x").code == 0
    assert off("forget", "p/1", "--dry-run").code == 2


@pytest.mark.parametrize(
    ("part", "why"),
    [
        ("types=None", "its types is None"),
        ("types=Catalog(), rules=3", "its rules is 3"),
        ("types=Catalog(), about=None", "its about is None"),
        ("types=Catalog(), group=['odd']", "its group is ['odd']"),
        ("types=Catalog(), views=(3,)", "3 is not a view"),
        ("types=Catalog(), views=None", "TypeError"),
        ("types=Catalog(), commands=(type('Add', (), {}),)", "is not a Command"),
    ],
)
def test_a_broken_program_affects_nothing_else(off: Run, site: Path, part: str, why: str) -> None:
    sys.modules.pop("shed_module", None)
    base = "from everlog import Catalog\nfrom everlog.programs import Program\n"
    installed(site, "shed", f"{base}PROGRAM = Program(**dict(dict(name='shed', group='shed'), {part}))")
    with patch.dict("os.environ", EVERLOG_PROGRAMS="wp,shed"):
        found = off("log")
        assert found.code == 0, found.err
        assert "the program 'shed' cannot be used (from shed-everlog 1.5), and is left out" in found.err
        assert why in found.err
        assert off("wp", "board").code == 0
        assert off("append", "note.added", "-s", "note/1", "text=x").code == 0
        assert off("--help").code == 0
        assert off("shed", "add").code == 2


def test_the_lake_is_not_derived_while_a_program_is_missing(shed: Run, place: Path) -> None:
    require_refused(shed, "pipeline", "run")
    require_refused(shed, "pipeline", "run", "--master", "local[1]")
    require_refused(shed, "pipeline", "stream")
    require_refused(shed, "pipeline", "verify")
    assert not list(place.rglob("bronze"))

"""The reference pages say what the program has and nothing else: commands, errors, settings, types, formats."""

from __future__ import annotations

import json
import re
import tomllib
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

import click
import pytest
from tests.docs import reference

from everlog._version import __version__
from everlog.application.checks.meanings import MEANINGS
from everlog.core.canonical import canonical
from everlog.core.codec import (
    HEADER_FIELDS,
    assemble,
    event_from_object,
    event_object,
    from_msgpack,
    header_bytes,
    to_msgpack,
)
from everlog.core.ids import id_uuid

if TYPE_CHECKING:
    from tests.docs.conftest import Page

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", reference.PAGES)
def test_a_reference_page_is_what_the_program_generates(name: str) -> None:
    shown = (reference.FOLDER / name).read_text(encoding="utf-8")
    assert shown == reference.page(name), "write it again: python -m tests.docs.reference"


@pytest.mark.parametrize(
    ("path", "command"),
    [pytest.param(p, c, id=p) for p, c in reference.every_command() if not isinstance(c, click.Group)],
)
def test_every_command_has_a_text_and_an_example_of_its_own(path: str, command: click.Command) -> None:
    text, examples = reference.parts_of_help(command)
    assert text
    assert re.search(rf"(^|[|&] *){re.escape(path)}\b", examples, re.MULTILINE), f"{path} has no example"
    for option in reference.options_of(command):
        assert option.help, f"{path} {option.opts[-1]} is not explained"


def test_every_error_states_its_meaning_and_what_to_do() -> None:
    for kind in reference.every_error():
        assert reference.DO in (kind.__doc__ or ""), f"{kind.__name__} does not state what to do"


def test_no_public_name_is_without_a_text() -> None:
    assert re.findall(r"^\| `([^`]+)` \| +\|$", reference.page("api.md"), re.MULTILINE) == []


def test_every_problem_that_verify_can_name_has_a_meaning() -> None:
    told = set()
    for name in (
        "src/everlog/application/trust/checkpoints.py",
        "src/everlog/log/verify/audit.py",
        "src/everlog/log/verify/signatures.py",
        "src/everlog/log/verify/stored_groups.py",
        "src/everlog/log/verify/verify.py",
        "src/everlog/stores/sqlite/check.py",
        "src/everlog/stores/jsonl/check.py",
        "src/everlog/stores/segments/state.py",
        "src/everlog/stores/segments/loading.py",
        "src/everlog/stores/segments/closed_end.py",
        "src/everlog/stores/segments/check.py",
    ):
        told |= set(
            re.findall(
                r"(?:Problem|_report)\([^,\"]+, \"(\w+)\"|yield \"(\w+)\"", (ROOT / name).read_text(encoding="utf-8")
            )
        )
    codes = {one or other for one, other in told}
    assert set(MEANINGS) == codes


def test_the_changelog_has_this_version(pages: dict[str, Page]) -> None:
    assert f"\n## {__version__}\n" in pages["CHANGELOG.md"].text


def test_the_documented_layers_are_those_that_are_checked(pages: dict[str, Page]) -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"][
        "contracts"
    ]
    (layers,) = [contract["layers"] for contract in contracts if contract["name"] == "Imports point down only"]
    shown = next(block for block in pages["CONTRIBUTING.md"].of("text") if block.text.startswith("cli\n"))
    assert [line.split("  ")[0] for line in shown.text.splitlines()] == layers


# ---- formats


def test_the_documented_header_is_the_one_that_is_hashed(pages: dict[str, Page]) -> None:
    rows = pages["docs/reference/formats.md"].rows("## The header")
    assert [(int(row[0]), row[1]) for row in rows] == list(enumerate(HEADER_FIELDS))


def test_the_worked_example_holds_by_its_own_text(pages: dict[str, Page]) -> None:
    """Every hash computed again from what the page shows, and the whole read by the program."""
    (block,) = [
        block for block in pages["docs/reference/formats.md"].of("text") if block.text.startswith("event 1\n")
    ]
    previous = b""
    for part in block.text.split("\n\n"):
        shown = dict(line.split(None, 1) for line in part.strip().splitlines()[1:])
        header, payload, salt = shown["header"].encode(), shown["payload"].encode(), bytes.fromhex(shown["salt"])
        event = assemble(header, payload, salt)

        assert sha256(salt + payload).hexdigest() == shown["commitment"] == event.commitment.hex()
        assert sha256(b"\0" + header).hexdigest() == shown["hash"]
        assert (event.previous, event.id, str(id_uuid(event.id))) == (previous, shown["id"], shown["uuid"])
        assert (header_bytes(event), canonical(event.payload)) == (header, payload)
        assert canonical(json.loads(header)) == header, "a header is RFC 8785 too"
        assert event_from_object(event_object(event)) == event == from_msgpack(to_msgpack(event))
        previous = bytes.fromhex(shown["hash"])


def test_the_shown_object_is_the_second_event_of_the_example(pages: dict[str, Page]) -> None:
    page = pages["docs/reference/formats.md"]
    (shown,) = page.of("json")
    (block,) = [block for block in page.of("text") if block.text.startswith("event 1\n")]
    event = event_from_object(json.loads(shown.text))
    assert header_bytes(event).decode() in block.text
    assert canonical(event.payload).decode() in block.text

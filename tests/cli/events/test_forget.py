"""`everlog forget` on the command line: the exact words, the receipt, the status, and what is still found."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.cli.conftest import Run
from tests.cli.test_process import on_terminal

from everlog.errors import CHECK_FAILED

FORGET = ("forget", "customer/41", "--confirm", "forget customer/41")


@pytest.fixture
def shop(everlog: Run) -> Run:
    assert everlog("init", "--signed").code == 0
    assert everlog("schema", "add", "customer.seen", "customer:str", "email:str").code == 0
    assert append(everlog, "old@example.org") == 0
    types = Path(".everlog/types.toml")
    types.write_text(types.read_text().replace('email = "str"', 'email = "str personal of customer"'))
    assert append(everlog, "new@example.org") == 0
    return everlog


def append(run: Run, email: str) -> int:
    code: int = run("append", "customer.seen", "-s", "customer/41", "customer=customer/41", f"email={email}").code
    return code


def test_the_exact_words_are_required(shop: Run) -> None:
    found = shop("forget", "customer/41", "--json")
    assert (found.code, found.error["details"]) == (6, {"confirm": "forget customer/41", "events": 2})
    assert shop("forget", "customer/41", "--confirm", "forget customer/4").code == 6
    assert shop("forget", "customer/41", "--dry-run", "--json").data == {
        "subject": "customer/41",
        "events": 2,
        "keys": 1,
        "erase": 1,
        "dry_run": True,
    }
    assert shop("log", "--json").out.count("@example.org") == 2
    assert shop("forget").code == 2
    assert shop("forget", "customer/41", "--status").code == 2


def test_a_receipt_is_written_and_checked(shop: Run, tmp_path: Path) -> None:
    file = tmp_path / "41.receipt"
    data = shop(*FORGET, "--out", str(file), "--json").data
    assert (data["keys"], data["erased"], data["found"], data["signed"]) == (1, 1, [], True)
    assert file.read_text() == data["note"]
    assert "example.org" not in shop("log", "--json").out

    found = json.loads(shop("verify", "--receipt", str(file), "--json").out)["data"]
    assert (found["ok"], found["receipt"], found["erased"], found["found"]) == (True, [data["record"]], "1", "0")
    key = found["signed_by"]
    assert shop("-C", "/", "verify", "--receipt", str(file), "--key", key).code == 0
    file.write_text(file.read_text().replace("erased 1", "erased 0"))
    assert shop("verify", "--receipt", str(file)).code != 0
    verified = json.loads(shop("verify", "--json").out)["data"]
    assert (verified["present"], verified["erased"], verified["purged"], verified["tampered"]) == (2, 1, 0, 0)
    (asked,) = json.loads(shop("forget", "--status", "--json").out)["data"]
    assert (asked["record"], asked["nodes"], asked["here"]) == (data["record"], [key], True)
    assert shop("forget", "--finish").code == 0
    assert shop(*FORGET).code == 4


def test_a_value_that_is_still_there_is_reported(shop: Run) -> None:
    assert shop("append", "note.added", "-s", "note/1", "text=old@example.org called").code == 0
    found = shop(*FORGET)
    assert found.code == CHECK_FAILED
    assert "a value is still there" in found.err


def test_a_terminal_asks_for_the_words_unless_force_is_given(shop: Run) -> None:
    place = Path.cwd()
    code, text = on_terminal(place, "purge", "customer/41", "--reason", "r", "--force")
    assert (code, "Type 'purge" in text) == (6, False)
    code, text = on_terminal(place, "forget", "customer/41", typed=b"forget customer/41\n")
    assert (code, "Type 'forget customer/41' to continue" in text) == (0, True)
    assert "It cannot be undone." in " ".join(text.split())

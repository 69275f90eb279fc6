"""The tree of errors: one code per error, a family per exit code, and no secret in any part of a message."""

from __future__ import annotations

from everlog import errors
from everlog.errors import EverlogError, InvalidPayload, NotCanonical, WrongSequence
from everlog.hiding import hide_passwords, shown


def every_error(kind: type[EverlogError] = EverlogError) -> list[type[EverlogError]]:
    return [kind, *(found for child in kind.__subclasses__() for found in every_error(child))]


HERE = [kind for kind in every_error() if kind.__module__ == errors.__name__]


def test_every_error_has_its_own_code() -> None:
    codes = [kind.code for kind in HERE]
    assert len(set(codes)) == len(codes)


def test_the_tree_in_the_docstring_has_every_error_with_its_code() -> None:
    tree = errors.__doc__ or ""
    families = {"EverlogError", "RejectedEvent", "Conflict", "Unavailable"}
    missing = [
        kind.__name__
        for kind in HERE
        if kind.__name__ not in tree or (kind.__name__ not in families and kind.code not in tree.split())
    ]
    assert missing == []


def test_a_message_has_what_happened_and_why() -> None:
    error = EverlogError("it failed", why="the disk is full", hint="free some space")
    assert str(error) == "it failed: the disk is full"
    assert str(EverlogError("it failed")) == "it failed"


def test_no_part_of_an_error_has_the_password_of_a_url() -> None:
    url = "postgresql://ada:swordfish@host/db?sslpassword=swordfish2"
    error = EverlogError(f"cannot open {url}", why=url, hint=url, urls=[url], more={"url": (url,)})
    parts = [str(error), error.hint, repr(error.details), shown(url)]
    assert [part for part in parts if "swordfish" in part] == []
    assert hide_passwords(url) == "postgresql://ada:***@host/db?sslpassword=***"


def test_every_defect_of_a_payload_is_in_the_message_and_the_details() -> None:
    error = InvalidPayload("note.added", [("$.text", "it is missing"), ("$.x", "there is no such field")])
    assert "$.text: it is missing; $.x: there is no such field" in str(error)
    assert error.details["defects"][1] == {"path": "$.x", "reason": "there is no such field"}
    assert error.hint == "everlog schema show note.added"


def test_a_wrong_sequence_names_both_numbers_and_the_next_command() -> None:
    error = WrongSequence("note/1", expected="0", actual=3)
    assert error.what == "note/1 is at sequence 3, the append expected 0"
    assert error.hint.endswith("everlog log --stream note/1")
    assert error.exit_code == 5


def test_a_value_without_a_json_form_is_named_by_its_path() -> None:
    assert NotCanonical("$.a", "NaN").what == "the value at $.a cannot be stored"
    assert NotCanonical("$", "NaN").what == "this cannot be stored"

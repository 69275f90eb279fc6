"""`everlog issue`: what a person sees of it; the rules are tested in tests/programs."""

from __future__ import annotations

from pathlib import Path

from tests.cli.conftest import Run
from tests.cli.test_process import on_terminal


def made(run: Run, title: str, *more: str) -> str:
    asked = run("issue", "create", title, *more)
    assert asked.code == 0, asked.err
    return asked.rows[0][0]


def test_an_issue_is_created_changed_listed_and_closed(log: Run) -> None:
    door = made(log, "The door squeaks", "--body", "Every night.", "--label", "bug", "--owner", "ada")
    oil = made(log, "Buy oil", "--link", f"blocks:{door}")
    assert log("issue", "comment", door, "Oil helps.").code == 0
    assert log("issue", "label", door, "p1", "P1").code == 0
    assert log("issue", "unlabel", door, "bug").code == 0
    assert log("issue", "edit", door, "--title", "The gate squeaks", "--owner", "").code == 0
    rows = log("issue", "list").rows
    assert [(row[0], row[1], row[2], row[3], row[5]) for row in rows] == [
        (door, "open", "", "p1", "The gate squeaks"),
        (oil, "open", "", "", "Buy oil"),
    ]
    closed = log("issue", "close", oil, "--reason", "bought", "--json").data
    assert (closed["id"], closed["becomes"], closed["status"]) == (oil, "closed", "recorded")
    assert log("issue", "close", oil, "--json").data["status"] == "unchanged"
    assert log("issue", "list", "--status", "closed", "-q").out == f"{oil}\n"
    assert log("issue", "list", "--status", "all", "--label", "P1", "-q").out == f"{door}\n"
    assert log("issue", "search", "gate", "night", "-q").out == f"{door}\n"
    assert log("issue", "reopen", oil).code == 0
    assert log("issue", "unlink", oil, "blocks", door).code == 0
    whats = [(row[3], row[4]) for row in log("issue", "history", door).rows]
    assert whats == [
        ("created", "The door squeaks"),
        ("commented", "Oil helps."),
        ("labeled", "p1"),
        ("unlabeled", "bug"),
        ("edited", "owner: 'ada' -> ''; title: 'The door squeaks' -> 'The gate squeaks'"),
    ]
    assert [row[4] for row in log("issue", "history", oil).rows] == [
        "Buy oil",
        f"blocks {door}",
        "bought",
        "",
        f"blocks {door}",
    ]


def test_an_issue_is_shown_as_a_person_reads_it(log: Run, place: Path) -> None:
    door = made(log, "The door squeaks", "--body", "Every\nnight.", "--label", "bug")
    oil = made(log, "Buy oil", "--link", f"blocks:{door}")
    log("issue", "comment", door, "Oil \x1b[31mhelps.")
    _, text = on_terminal(place, "issue", "show", door, "--no-color")
    shown = text.splitlines()
    assert shown[0] == f"{door}  open  The door squeaks"
    assert "labels         bug" in shown
    assert f"blocked by     {oil}  open  Buy oil" in shown
    assert shown[-4:-2] == ["  Every", "  night."]
    assert shown[-1] == "  Oil \\x1b[31mhelps."
    _, text = on_terminal(place, "issue", "list", "--no-color")
    lines = text.splitlines()
    assert lines[0].split() == ["id", "status", "owner", "labels", "changed_at", "title"]
    assert [line.split()[0] for line in lines[1:]] == [door, oil]
    assert lines[1].endswith("The door squeaks")


def test_a_look_alike_is_refused_with_its_title_and_what_to_type(log: Run) -> None:
    door = made(log, "The door squeaks", "--body", "every night")
    refused = log("issue", "create", "the door SQUEAKS", "--body", "Every night!")
    assert refused.code == 5
    assert f"{door} (open) by 100%: The door squeaks" in refused.err
    assert f"fix: everlog issue comment {door} TEXT; if it is another one, repeat with --force-new" in refused.err
    error = log("issue", "create", "the door SQUEAKS", "--body", "Every night!", "--json").error
    assert [(one["short_id"], one["score"]) for one in error["details"]["candidates"]] == [(door, 1.0)]
    assert made(log, "the door SQUEAKS", "--body", "Every night!", "--force-new") != door
    assert "door" not in log("errors").out


def test_a_key_makes_a_retry_safe(log: Run) -> None:
    first = made(log, "The door squeaks", "--key", "k1")
    again = log("issue", "create", "The  door squeaks", "--key", "k1", "--force-new", "--json").data
    assert (again["id"], again["status"]) == (first, "recorded")
    assert log("issue", "create", "Something else", "--key", "k1").code == 5


def test_deleting_and_purging_want_the_exact_words(log: Run) -> None:
    door = made(log, "The door squeaks")
    refused = log("issue", "delete", door)
    assert refused.code == 6
    assert f"repeat the command with --force --confirm 'delete {door}'" in refused.err
    assert log("issue", "delete", door, "--force").code == 6
    assert log("issue", "delete", door, "--confirm", f"delete {door}").code == 6
    assert log("issue", "delete", door, "--force", "--confirm", f"delete {door} ").code == 6
    assert log("issue", "list", "-q").out == f"{door}\n"
    assert log("issue", "delete", door, "--force", "--confirm", f"delete {door}").code == 0
    assert log("issue", "list", "-q").out == ""
    assert log("issue", "comment", door, "x").code == 3
    assert log("issue", "restore", door).code == 0
    assert log("issue", "purge", door, "--reason", "r", "--force", "--confirm", f"delete {door}").code == 6
    gone = log("issue", "purge", door, "--reason", "asked to", "--force", "--confirm", f"purge {door}", "--json").data
    assert (gone["becomes"], gone["events"][0]["type"]) == ("purged", "issue.purged")
    shown = log("issue", "show", door, "--json").data
    assert (shown["status"], shown["reason"]) == ("purged", "asked to")
    assert log("log", "--purges").code == 0
    assert log("verify").code == 0


def test_who_sits_at_a_terminal_is_asked_for_the_words(log: Run, place: Path) -> None:
    door = made(log, "The door squeaks")
    code, shown = on_terminal(place, "issue", "delete", door, "--force", typed=b"yes\n")
    assert code == 6
    assert f"Type 'delete {door}' to continue" in shown
    assert "The door squeaks" in shown
    assert on_terminal(place, "issue", "delete", door)[0] == 6  # nothing is asked without --force
    code, shown = on_terminal(place, "issue", "delete", door, "--force", typed=f"delete {door}\n".encode())
    assert code == 0
    assert shown.rstrip().endswith(f"deleted  {door}  The door squeaks")
    purge = ("issue", "purge", door, "--force", "--reason", "r")
    code, shown = on_terminal(place, *purge, typed=f"purge {door}\n".encode())
    assert code == 0
    assert shown.rstrip().endswith(f"purged  {door}")
    assert "cannot be undone" in shown
    assert on_terminal(place, "issue", "show", door)[1].splitlines()[0] == f"{door}  purged"


def test_an_edit_may_say_no_more_than_a_new_issue(log: Run) -> None:
    door = log("issue", "create", "The door squeaks", "-q").out.strip()
    for field, wrong in (
        ("title", ""),
        ("title", " "),
        ("title", "x" * 301),
        ("body", "x" * 50_001),
        ("owner", "x" * 201),
    ):
        refused = log("issue", "edit", door, f"--{field}", wrong, "--json")
        assert (refused.code, refused.error["code"]) == (3, "invalid_payload")
        assert refused.error["hint"] == f'everlog issue edit {door} --{field} "…"'
    assert log("issue", "show", door, "--json").data["title"] == "The door squeaks"
    assert len(log("errors").rows) == 5
    assert log("issue", "edit", door, "--owner", "", "--body", "").code == 0


def test_a_label_of_two_words_is_refused_in_words(log: Run) -> None:
    door = log("issue", "create", "The door squeaks", "-q").out.strip()
    refused = log("issue", "label", door, "big bug")
    assert refused.code == 3
    assert "$.label: it is not a label: one word of a-z, 0-9" in refused.err
    assert "one word of a-z, 0-9" in log("schema", "show", "issue.labeled").out


def test_a_search_that_finds_nothing_says_so(log: Run) -> None:
    found = log("issue", "search", "zebra")
    assert (found.code, found.out) == (0, "")
    assert "none has these words: everlog issue list --status all" in found.err


def test_a_table_on_a_terminal_shows_seconds_and_a_pipe_the_whole_time(log: Run, place: Path) -> None:
    log("issue", "create", "The door squeaks at night in winter")
    (row,) = log("issue", "list").rows
    assert len(row[4]) == len("2026-11-16T07:11:11.009754Z")
    _, text = on_terminal(place, "issue", "list", "--no-color")
    assert f"{row[4][:19]}Z  The door squeaks at night" in text


def test_an_option_is_guessed_by_its_name_and_not_by_its_dashes(log: Run) -> None:
    for wrong in ("--type", "--blocks"):
        assert "fix: see everlog issue link --help" in log("issue", "link", "a", "b", wrong, "c").err
    assert "fix: did you mean --label? see" in log("issue", "list", "--lable", "bug").err


def test_mistakes_of_usage(log: Run) -> None:
    assert log("issue", "create", "x", "--link", "hrac").code == 2
    assert log("issue", "edit", "hrac").code == 2
    assert log("issue", "link", "a", "hates", "b").code == 2
    assert log("issue", "show", "12").code == 4
    assert "numbers do not name issues here" in log("issue", "show", "12").err


def test_a_project_is_a_scope(log: Run) -> None:
    door = made(log, "The door squeaks", "--scope", "house")
    made(log, "The door squeaks", "--scope", "garden")
    assert log("issue", "list", "--scope", "house", "-q").out == f"{door}\n"
    assert len(log("issue", "list").rows) == 2
    assert log("issue", "show", door, "--scope", "garden").code == 4
    log("config", "set", "scope", "garden")
    assert log("issue", "comment", door, "x").code == 4
    assert log("issue", "comment", door, "x", "--scope", "house").code == 0

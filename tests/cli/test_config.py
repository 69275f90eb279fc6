"""Settings on the command line: shown with their origin, checked before they are written."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.cli.conftest import Run

from everlog.settings import Settings


def test_every_setting_is_shown_with_its_origin(log: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    user = tmp_path / "home/.config/everlog/everlog.toml"
    user.parent.mkdir(parents=True)
    user.write_text("[log]\nscope = 'acme'\n")
    monkeypatch.setenv("EVERLOG_PAYLOAD_BYTES_MAX", "1000")
    found = log("--actor", "user:flag", "config", "show", "--json").data
    assert set(found) == set(Settings.__struct_fields__)
    assert found["actor"] == {"value": "user:flag", "origin": "flag"}
    assert found["payload_bytes_max"] == {"value": 1000, "origin": "EVERLOG_PAYLOAD_BYTES_MAX"}
    assert found["scope"] == {"value": "acme", "origin": str(user)}
    assert found["keys_kept_hours"]["origin"] == "default"


def test_a_setting_is_written_where_it_stands_and_comments_stay(log: Run, place: Path) -> None:
    path = place / ".everlog/everlog.toml"
    before = path.read_text()
    assert log("config", "set", "actor", 'user:a"b').code == 3
    assert path.read_text() == before
    assert log("config", "set", "actor", "user:ada").code == 0
    assert log("config", "set", "payload_bytes_max", "5000").code == 0
    assert log("config", "set", "scope", "acme/shop").code == 0
    comments = [line for line in before.splitlines() if line.startswith("#")]
    assert [line for line in path.read_text().splitlines() if line.startswith("#")] == comments
    assert log("config", "get", "actor").out == "user:ada\n"
    assert log("config", "get", "payload_bytes_max", "--json").data["value"] == 5000
    assert log("append", "note.added", "-s", "note/1", "text=x", "--json").data["actor"] == "user:ada"


def test_unknown_settings_and_wrong_values_exit_2(log: Run) -> None:
    found = log("config", "set", "actr", "user:ada")
    assert found.code == 2
    assert "did you mean actor?" in found.err
    assert log("config", "get", "actr").code == 2
    assert log("config", "set", "payload_bytes_max", "big").code == 2
    assert log("config", "set", "demo", "maybe").code == 2


def test_a_setting_that_something_else_overrides_is_warned_of(log: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVERLOG_SCOPE", "other")
    found = log("config", "set", "scope", "acme")
    assert found.code == 0
    assert "warning: EVERLOG_SCOPE has another value" in found.err


def test_an_unknown_setting_in_the_environment_exits_2(log: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVERLOG_ACTR", "user:ada")
    found = log("log")
    assert found.code == 2
    assert "did you mean actor?" in found.err


def test_the_paths_of_the_settings_are_told(log: Run, place: Path) -> None:
    assert log("config", "path").rows[0] == ["project", str(place / ".everlog/everlog.toml"), "yes"]
    assert log("config", "path").rows[1][2] == "no"


def test_a_setting_that_cannot_be_used_is_not_written(log: Run) -> None:
    """Or every command, this one included, would be locked out."""
    for key, value in (
        ("keys_kept_hours", "3"),
        ("payload_bytes_max", "0"),
        ("store", "nonsense"),
        ("scope", "//x"),
    ):
        assert log("config", "set", key, value).code in (2, 3)
        assert log("log").code == 0


def test_a_settings_file_that_locks_everything_out_can_be_set_right(log: Run) -> None:
    path = Path(".everlog/everlog.toml")
    path.write_text(path.read_text().replace("[log]\n", "[log]\nkeys_kept_hours = 3\n"))
    found = log("log")
    assert found.code == 2
    assert "config set keys_kept_hours 24" in found.err
    assert log("config", "set", "keys_kept_hours", "24").code == 0
    assert log("log").code == 0


def test_who_sets_a_catalog_that_is_not_found_is_told_two_ways_out(log: Run) -> None:
    set_all_the_same = log("config", "set", "catalog", "nowhere.events:CATALOG")
    assert (set_all_the_same.code, "No module named 'nowhere'" in set_all_the_same.err) == (0, True)
    refused = log("log", "--json")
    assert refused.code == 2
    assert "in PYTHONPATH, or everlog config set catalog ''" in refused.error["hint"]
    assert log("config", "set", "catalog", "").code == 0
    assert log("log").code == 0


@pytest.mark.parametrize(
    ("key", "value", "why"),
    [
        ("views", "nonsense", "it is not of the form module:attribute"),
        ("views", "os:no_such_name", "module 'os' has no attribute 'no_such_name'"),
        ("views", "os:path", "it must be an everlog.View, or a list of them"),
        ("views", "broken_code:VIEWS", "ZeroDivisionError: division by zero"),
        ("catalog", "os:path", "it must be an everlog.Catalog"),
        ("catalog", ":CATALOG", "it is not of the form module:attribute"),
    ],
)
def test_what_can_be_no_views_or_catalog_is_refused_before_it_is_written(
    log: Run, place: Path, monkeypatch: pytest.MonkeyPatch, key: str, value: str, why: str
) -> None:
    (place / "broken_code.py").write_text("VIEWS = 1 / 0\n")
    monkeypatch.syspath_prepend(place)
    before = Path(".everlog/everlog.toml").read_text()
    refused = log("config", "set", key, value, "--json")
    assert (refused.code, refused.error["code"]) == (2, "invalid_settings")
    assert refused.error["why"] == why
    assert f"everlog config set {key} ''" in refused.error["hint"]
    assert Path(".everlog/everlog.toml").read_text() == before


def test_views_that_are_there_are_set_and_those_not_found_here_are_warned_of(log: Run) -> None:
    done = log("config", "set", "views", "everlog.views.builtin:BUILT_IN")
    assert (done.code, done.err) == (0, "")
    done = log("config", "set", "views", "not_yet_written:VIEWS")
    assert (done.code, "cannot be loaded from here: No module named" in done.err) == (0, True)


def test_a_file_without_sections_is_read_with_a_warning_and_set_in_sections(log: Run, place: Path) -> None:
    path = place / ".everlog/everlog.toml"
    path.write_text('store = "sqlite:log.db"\nscope = "acme"\n')
    found = log("config", "get", "log.scope")
    assert (found.code, found.out) == (0, "acme\n")
    assert "warning: " in found.err
    assert "move store to [log], scope to [log]" in found.err
    assert log("config", "set", "log.scope", "acme/shop").code == 0
    assert path.read_text() == 'store = "sqlite:log.db"\n\n[log]\nscope = "acme/shop"\n'
    assert log("config", "get", "scope", "--json").data["value"] == "acme/shop"

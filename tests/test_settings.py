"""Settings: a later source wins, each value knows where it came from, and a typo is an error."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import msgspec
import pytest

from everlog.errors import InvalidSettings, NoLogHere
from everlog.settings import DOCS, SECTIONS, Settings, find_folder, load, plain_name, template, with_setting


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "project" / ".everlog").mkdir(parents=True)
    return tmp_path / "project" / ".everlog"


@pytest.fixture
def home(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "config" / "everlog").mkdir(parents=True)
    return {"XDG_CONFIG_HOME": str(tmp_path / "config")}


def user_file(home: dict[str, str]) -> Path:
    return Path(home["XDG_CONFIG_HOME"]) / "everlog" / "everlog.toml"


def test_without_anything_the_defaults_hold(folder: Path, home: dict[str, str]) -> None:
    loaded = load(folder, environment=home)
    assert loaded.settings == Settings()
    assert set(loaded.origins.values()) == {"default"}
    assert loaded.settings.payload_bytes_max == 1024 * 1024
    assert load(None, environment=home).settings == Settings()


def test_a_later_source_wins_and_is_named(folder: Path, home: dict[str, str]) -> None:
    """project < user < environment < flags."""
    project = folder / "everlog.toml"
    project.write_text('actor = "user:project"\nscope = "project"\ncatalog = "a:b"\nkeys_kept_hours = 30\n')
    user_file(home).write_text('actor = "user:user"\nscope = "user"\ncatalog = "c:d"\n')
    environment = {**home, "EVERLOG_ACTOR": "user:environment", "EVERLOG_SCOPE": "environment"}
    loaded = load(folder, environment=environment, flags={"actor": "user:flag", "store": None, "scope": ""})
    found = loaded.settings
    assert (found.actor, found.scope, found.catalog, found.keys_kept_hours) == (
        "user:flag",
        "environment",
        "c:d",
        30,
    )
    assert loaded.origins["actor"] == "flag"
    assert loaded.origins["scope"] == "EVERLOG_SCOPE"
    assert loaded.origins["catalog"] == str(user_file(home))
    assert loaded.origins["keys_kept_hours"] == str(project)
    assert loaded.origins["store"] == "default"


def test_a_flag_that_is_false_counts(folder: Path, home: dict[str, str]) -> None:
    (folder / "everlog.toml").write_text("demo = true\npayload_bytes_warn = 5\n")
    found = load(folder, environment=home, flags={"demo": False, "payload_bytes_warn": 0}).settings
    assert (found.demo, found.payload_bytes_warn) == (False, 0)


def test_the_users_file_lies_in_the_home_directory_without_xdg(tmp_path: Path) -> None:
    place = tmp_path / ".config" / "everlog"
    place.mkdir(parents=True)
    (place / "everlog.toml").write_text('actor = "user:ada"')
    assert load(None, environment={"HOME": str(tmp_path)}).settings.actor == "user:ada"


@pytest.mark.parametrize(
    ("text", "value"),
    [("5", 5), (" 70000 ", 70000), ("1", 1)],
)
def test_numbers_of_the_environment_become_numbers(home: dict[str, str], text: str, value: int) -> None:
    assert load(None, environment={**home, "EVERLOG_PAYLOAD_BYTES_MAX": text}).settings.payload_bytes_max == value


@pytest.mark.parametrize("text", ["true", "True", "1", "yes", "false", "0", "NO"])
def test_words_of_the_environment_become_yes_and_no(home: dict[str, str], text: str) -> None:
    expected = text.lower() in ("true", "1", "yes")
    assert load(None, environment={**home, "EVERLOG_DEMO": text}).settings.demo is expected


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("EVERLOG_PAYLOAD_BYTES_MAX", "many"),
        ("EVERLOG_PAYLOAD_BYTES_MAX", "--5"),
        ("EVERLOG_PAYLOAD_BYTES_MAX", "\u00b2"),
        ("EVERLOG_PAYLOAD_BYTES_MAX", "1.5"),
        ("EVERLOG_PAYLOAD_BYTES_MAX", ""),
        ("EVERLOG_PAYLOAD_BYTES_MAX", "9" * 5000),
        ("EVERLOG_DEMO", "maybe"),
    ],
)
def test_what_does_not_fit_is_refused_and_its_source_named(home: dict[str, str], name: str, text: str) -> None:
    with pytest.raises(InvalidSettings) as refusal:
        load(None, environment={**home, name: text})
    assert name in str(refusal.value)


def test_a_value_of_the_wrong_type_in_a_file_is_refused_and_the_file_named(
    folder: Path, home: dict[str, str]
) -> None:
    (folder / "everlog.toml").write_text("actor = 5")
    with pytest.raises(InvalidSettings) as refusal:
        load(folder, environment=home)
    assert "actor" in str(refusal.value)
    assert str(folder / "everlog.toml") in str(refusal.value)


def test_an_unknown_key_is_an_error_with_what_was_meant(folder: Path, home: dict[str, str]) -> None:
    """A typo that is ignored is a setting that silently is not set."""
    (folder / "everlog.toml").write_text('aktor = "user:ada"')
    sources: list[tuple[dict[str, Any], str]] = [
        ({"folder": folder, "environment": home}, str(folder / "everlog.toml")),
        ({"folder": None, "environment": {**home, "EVERLOG_AKTOR": "x"}}, "EVERLOG_AKTOR"),
        ({"folder": None, "environment": home, "flags": {"aktor": "x"}}, "flag"),
    ]
    for arguments, origin in sources:
        with pytest.raises(InvalidSettings) as refusal:
            load(**arguments)
        assert origin in str(refusal.value)
        assert refusal.value.hint == "did you mean actor?"


def test_variables_of_the_launcher_and_of_others_are_not_settings(home: dict[str, str]) -> None:
    others = {"EVERLOG_VENV": "x", "EVERLOG_DEBUG": "1", "EVERLOG_TEST_ANYTHING": "x", "EVERLOGGER": "x", "PATH": "x"}
    assert load(None, environment={**home, **others}).settings == Settings()


@pytest.mark.parametrize("content", [b"actor = ", b"\xff\xfe"])
def test_a_broken_file_is_named(folder: Path, home: dict[str, str], content: bytes) -> None:
    (folder / "everlog.toml").write_bytes(content)
    with pytest.raises(InvalidSettings) as refusal:
        load(folder, environment=home)
    assert str(folder / "everlog.toml") in str(refusal.value)


def test_the_nearest_folder_above_is_found(folder: Path, tmp_path: Path) -> None:
    below = folder.parent / "a" / "b"
    below.mkdir(parents=True)
    assert find_folder(below) == find_folder(folder.parent) == folder
    (below / ".everlog").mkdir()
    assert find_folder(below) == below / ".everlog"
    assert find_folder(below.parent) == folder


def test_a_file_of_that_name_is_no_folder(folder: Path) -> None:
    below = folder.parent / "a"
    below.mkdir()
    (below / ".everlog").write_text("")
    assert find_folder(below) == folder


def test_without_a_log_the_next_step_is_named(tmp_path: Path) -> None:
    with pytest.raises(NoLogHere) as refusal:
        find_folder(tmp_path)
    assert refusal.value.hint == "everlog init"
    assert refusal.value.details["path"] == str(tmp_path)


def test_every_setting_is_explained() -> None:
    assert set(DOCS) == set(Settings.__struct_fields__)


# ---- sections


def test_every_setting_has_one_section() -> None:
    names = [name for section in SECTIONS.values() for name in section]
    assert sorted(names) == sorted(Settings.__struct_fields__)


def test_settings_are_read_from_their_sections(
    folder: Path, home: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    (folder / "everlog.toml").write_text(
        '[log]\nactor = "user:ada"\n[views]\nviews = "a:b"\nsnapshot_hours = 3\n[pipeline]\nlake = "x"\n'
    )
    loaded = load(folder, environment=home)
    found = loaded.settings
    assert (found.actor, found.views, found.snapshot_hours, found.lake) == ("user:ada", "a:b", 3, "x")
    assert loaded.origins["snapshot_hours"] == str(folder / "everlog.toml")
    assert caplog.messages == []


def test_settings_outside_of_sections_are_read_with_one_warning(
    folder: Path, home: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    (folder / "everlog.toml").write_text('actor = "user:ada"\nviews = "a:b"\n[segments]\nsegment_mb_max = 7\n')
    for _ in range(2):
        found = load(folder, environment=home).settings
        assert (found.actor, found.views, found.segment_mb_max) == ("user:ada", "a:b", 7)
    (message,) = caplog.messages
    assert "move actor to [log], views to [views]" in message


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('[views]\nactor = "user:ada"\n', "it belongs in [log]"),
        ('actor = "user:ada"\n[log]\nactor = "user:bob"\n', "once in [log] and once outside of any section"),
        ('[log]\naktor = "user:ada"\n', "the settings are "),
        ("[consumers]\nlease_s = 3\n", "the settings are "),
    ],
)
def test_a_setting_in_the_wrong_place_is_refused(
    folder: Path, home: dict[str, str], text: str, expected: str
) -> None:
    (folder / "everlog.toml").write_text(text)
    with pytest.raises(InvalidSettings) as refusal:
        load(folder, environment=home)
    assert expected in refusal.value.why
    assert str(folder / "everlog.toml") in str(refusal.value)


def test_a_setting_is_named_with_or_without_its_section() -> None:
    assert plain_name("log.actor") == plain_name("actor") == "actor"
    assert plain_name("views.actor") == "views.actor"


ODD = 'a"b\x7f'


@pytest.mark.parametrize(
    "text",
    [
        "",
        "# only a comment\n",
        "scope = 'x'\n",
        "scope='x' # why\nactor = 'user:a'\n",
        "actor = 'user:a'\n",
        "actor = 'user:a'",
        "[log]",
        "[log]\n# scope: what it is\n\n[views]\nsnapshots = 'x'\n",
        "[log]\nscope = 'x'\nactor = 'user:a'\n",
        "[views]\n# scope = 1\n",
    ],
)
def test_a_setting_is_changed_and_nothing_else(folder: Path, home: dict[str, str], text: str) -> None:
    path = folder / "everlog.toml"
    path.write_text(text)
    before = load(folder, environment=home).settings
    changed = with_setting(text, "scope", ODD, source="x")
    path.write_text(changed)
    assert load(folder, environment=home).settings == msgspec.structs.replace(before, scope=ODD)
    assert tomllib.loads(changed)["log"]["scope"] == ODD
    assert [line for line in text.splitlines() if line.startswith("#")] == [
        line for line in changed.splitlines() if line.startswith("#")
    ]


def test_a_setting_with_the_name_of_a_section_makes_room_for_it(folder: Path, home: dict[str, str]) -> None:
    changed = with_setting('views = "a:b"\n', "snapshot_hours", 3, source="x")
    assert tomllib.loads(changed) == {"views": {"views": "a:b", "snapshot_hours": 3}}


def test_a_file_that_is_not_toml_is_not_changed() -> None:
    with pytest.raises(InvalidSettings, match="is not a settings file"):
        with_setting("actor = ", "scope", "y", source="x")


def test_a_new_file_has_every_setting_as_a_comment_and_loads(folder: Path, home: dict[str, str]) -> None:
    text = template(store="jsonl:events", demo=True)
    (folder / "everlog.toml").write_text(text)
    assert load(folder, environment=home).settings == Settings(store="jsonl:events", demo=True)
    assert all(f"# {name}: " in text for name in Settings.__struct_fields__)
    assert tomllib.loads(template(store="sqlite:log.db", demo=False)) == {
        "log": {"store": "sqlite:log.db"},
        "segments": {},
        "views": {},
        "pipeline": {},
        "trust": {},
        "sync": {},
        "server": {},
    }

"""init, config, help, completion, bench and demo: the first five minutes."""

from __future__ import annotations

import importlib.util
import json
import re
import shlex
import tomllib
from pathlib import Path

import pytest
from tests.cli.conftest import Run

from everlog import domains
from everlog.cli.help import EXIT_CODES, TOPICS
from everlog.cli.main import COMMANDS
from everlog.settings import Settings
from everlog.testing.postgres_server import NoServer, start_server


def error_codes() -> dict[str, int]:
    """Every error of everlog: its code and its exit code."""
    from everlog.errors import EverlogError

    found, ahead = {}, [EverlogError]
    while ahead:
        kind = ahead.pop()
        found[kind.code] = kind.exit_code
        ahead += [sub for sub in kind.__subclasses__() if sub.__module__ == "everlog.errors"]
    return found


# ---- init


def test_init_makes_a_folder_that_explains_itself(everlog: Run, place: Path) -> None:
    found = everlog("init")
    assert found.code == 0
    assert "next: everlog append" in found.err
    names = {path.name for path in (place / ".everlog").iterdir()}
    assert {"everlog.toml", "types.toml", ".gitignore", "log.db"} <= names
    settings = (place / ".everlog/everlog.toml").read_text()
    assert tomllib.loads(settings) == {"store": "sqlite:log.db"}
    for name in Settings.__struct_fields__:
        assert f"{name} = " in settings
    assert "*-wal" in (place / ".everlog/.gitignore").read_text().splitlines()


def test_the_example_in_types_toml_can_be_taken_as_it_is(everlog: Run, place: Path) -> None:
    everlog("init")
    path = place / ".everlog/types.toml"
    _, _, example = path.read_text().partition("for you.\n#\n")
    path.write_text(example.replace("# ", "").replace("#", ""))
    assert everlog("append", "deploy.finished", "-s", "deploy/1", "service=shop", "result=ok").code == 0


def test_init_twice_does_no_harm(everlog: Run, place: Path) -> None:
    log_id = everlog("init", "-q").out
    everlog("append", "note.added", "-s", "note/1", "text=x")
    (place / ".everlog/types.toml").write_text("# mine\n")
    again = everlog("init")
    assert again.code == 0
    assert again.rows[0][1:] == [log_id.strip(), "there"]
    assert (place / ".everlog/types.toml").read_text() == "# mine\n"
    assert len(everlog("log").rows) == 1


def test_init_takes_a_directory_and_a_store(everlog: Run, place: Path) -> None:
    assert everlog("init", "a/b", "--store", "sqlite:events.db").code == 0
    assert (place / "a/b/.everlog/events.db").exists()
    assert everlog("-C", "a/b", "append", "note.added", "-s", "note/1", "text=x").code == 0
    assert len(everlog("log", "-C", "a/b").rows) == 1
    assert len(everlog("log", "--log", "sqlite:a/b/.everlog/events.db").rows) == 1
    assert len(everlog("log", "-C", "a", "--log", "sqlite:b/.everlog/events.db").rows) == 1


def test_a_store_that_cannot_be_leaves_nothing_behind(everlog: Run, place: Path) -> None:
    for store in ("redis:x", "memory:", "log.db", "sqlite:"):
        assert everlog("init", "--store", store).code == 2, store
    assert list(place.iterdir()) == []


@pytest.mark.parametrize("store", ["sqlite:/nowhere/at/all/log.db", "postgresql://ada:secret-word@127.0.0.1:1/logs"])
def test_a_store_that_does_not_open_leaves_nothing_behind(everlog: Run, place: Path, store: str) -> None:
    found = everlog("init", "deep/er", "--store", store)
    assert found.code in (4, 7)
    assert "secret-word" not in found.out + found.err
    assert list(place.iterdir()) == []


def test_giving_up_keeps_what_was_there(everlog: Run, place: Path) -> None:
    (place / ".everlog").mkdir()
    (place / ".everlog/types.toml").write_text("# mine\n")
    assert everlog("init", "--store", "sqlite:/nowhere/at/all/log.db").code == 4
    assert [path.name for path in (place / ".everlog").iterdir()] == ["types.toml"]


def test_a_password_on_its_way_into_a_settings_file_is_warned_of(log: Run, place: Path) -> None:
    url = "postgresql://ada:secret-word@127.0.0.1:1/logs?schema=a"
    for found in (log("init", "other", "--store", url), log("config", "set", "store", url)):
        assert "EVERLOG_STORE" in found.err
        assert "PGPASSWORD" in found.err
        assert "secret-word" not in found.out + found.err
    assert url in (place / ".everlog/everlog.toml").read_text()
    assert "warning" not in log("config", "set", "store", "postgresql://ada@127.0.0.1:1/logs").err


def test_a_password_is_not_shown_among_the_settings_and_messages(log: Run, place: Path) -> None:
    url = "postgresql://ada:secret-word@127.0.0.1:1/logs"
    log("config", "set", "store", url)
    shown = [log("config", "show"), log("config", "show", "--json"), log("schema", "add", "a.b", "--log", url)]
    shown += [log("dump", "--log", url), log("dump"), log("log"), log("doctor"), log()]
    for found in shown:
        assert "127.0.0.1" in found.out + found.err
        assert "secret-word" not in found.out + found.err
    assert log("config", "get", "store").out.strip() == url


def test_another_store_for_a_log_that_is_there_is_a_matter_of_config(log: Run) -> None:
    found = log("init", "--store", "postgresql://ada:secret-word@127.0.0.1:1/logs?schema=a")
    assert found.code == 0
    assert "everlog config set store 'postgresql://ada@127.0.0.1:1/logs?schema=a'" in found.err
    assert "secret-word" not in found.err


@pytest.mark.parametrize("store", ["sqlite:log.db", "jsonl:events", "segments:segments"])
def test_a_lost_log_is_not_replaced_by_an_empty_one(everlog: Run, place: Path, store: str) -> None:
    everlog("init", "--store", store)
    path = place / ".everlog" / store.partition(":")[2]
    path.rename(place / "lost")
    for side in path.parent.glob("log.db-*"):
        side.unlink()
    for words in (["log"], ["verify"], ["init"]):
        found = everlog(*words, "--json")
        assert (found.code, found.error["code"]) == (4, "not_found"), words
        assert found.error["hint"].startswith("restore it from a backup or version control (git checkout)")
        assert not path.exists()
    assert everlog("init", "--new").code == 0
    assert everlog("log").code == 0


def test_the_block_for_agents_is_added_once_and_keeps_what_was_there(everlog: Run, place: Path) -> None:
    (place / "AGENTS.md").write_text("# Mine\n")
    assert "AGENTS.md" in everlog("init", "--agents-md", "--json").data["files"]
    text = (place / "AGENTS.md").read_text()
    assert text.startswith("# Mine\n")
    assert "everlog append" in text
    everlog("init", "--agents-md")
    assert (place / "AGENTS.md").read_text() == text


def test_a_file_in_the_place_of_the_folder_is_told(everlog: Run, place: Path) -> None:
    (place / ".everlog").write_text("mine")
    found = everlog("init")
    assert found.code == 2
    assert "is a file" in found.err
    assert (place / ".everlog").read_text() == "mine"


# ---- without a command


def test_alone_without_a_log_it_shows_the_help_and_how_to_begin(everlog: Run) -> None:
    found = everlog()
    assert found.code == 0
    assert "Usage: everlog" in found.out
    assert "everlog init" in found.err
    assert everlog("--json").code == 4


def test_alone_in_a_log_it_shows_its_state(notes: Run, place: Path) -> None:
    found = dict(row for row in notes().rows)
    assert (found["log"], found["head"], found["events"]) == (str(place / ".everlog"), "5", "5")
    notes("purge", "note/1", "--reason", "r", "--confirm", "purge note/1")
    data = notes("--json").data
    assert (data["head"], data["events"]) == (6, 1)


def test_a_log_is_found_from_below_and_not_found_elsewhere(notes: Run, place: Path) -> None:
    (place / "deep/er").mkdir(parents=True)
    assert len(notes("-C", "deep/er", "log").rows) == 5
    found = notes("log", "-C", "/", "--json")
    assert found.code == 4
    assert found.error["code"] == "no_log"
    assert found.error["hint"] == "everlog init /"
    assert notes("log", "-C", "/", "--missing-ok").code == 0
    assert notes("log", "-C", "nowhere").code == 4


def test_a_log_is_never_made_by_a_typing_error(everlog: Run, place: Path) -> None:
    found = everlog("append", "--log", "sqlite:typo.db", "note.added", "-s", "note/1", "text=x")
    assert found.code == 4
    assert list(place.iterdir()) == []
    assert everlog("log", "--log", "log.db").code == 2


# ---- config


def test_every_setting_is_shown_with_its_origin(log: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    user = tmp_path / "home/.config/everlog/everlog.toml"
    user.parent.mkdir(parents=True)
    user.write_text("scope = 'acme'\n")
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
    assert path.read_text().count("\n") == before.count("\n")
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
    assert "warning: EVERLOG_SCOPE says otherwise" in found.err


def test_an_unknown_setting_in_the_environment_exits_2(log: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVERLOG_ACTR", "user:ada")
    found = log("log")
    assert found.code == 2
    assert "did you mean actor?" in found.err


def test_the_paths_of_the_settings_are_told(log: Run, place: Path) -> None:
    assert log("config", "path").rows[0] == ["project", str(place / ".everlog/everlog.toml"), "yes"]
    assert log("config", "path").rows[1][2] == "no"


# ---- help


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_with_an_example(everlog: Run, name: str) -> None:
    found = everlog(name, "--help")
    assert found.code == 0
    assert f"everlog {name}" in found.out.partition("Example")[2]
    assert everlog("help", name).out.strip() == found.out.strip()


@pytest.mark.parametrize("name", [*("list", "show", "export", "check", "lock", "add")])
def test_every_schema_command_has_an_example(everlog: Run, name: str) -> None:
    assert f"everlog schema {name}" in everlog("schema", name, "--help").out.partition("Example")[2]


def test_the_table_of_commands_says_what_each_command_says(everlog: Run) -> None:
    shown = everlog("--help").out
    for name, (_, _, short) in COMMANDS.items():
        assert short in shown
        assert everlog(name, "--help").code == 0


@pytest.mark.parametrize("topic", TOPICS)
def test_every_topic_is_explained(everlog: Run, topic: str) -> None:
    assert len(everlog("help", topic).out) > 200


def test_help_on_nothing_known_exits_2_with_the_nearest(everlog: Run) -> None:
    found = everlog("help", "exit-code")
    assert found.code == 2
    assert "exit-codes" in found.err
    assert everlog("help").code == 0
    assert everlog("help", "schema", "ad").code == 2
    assert everlog("help", "append", "x").code == 2
    assert "everlog schema add" in everlog("help", "schema", "add").out


def test_the_exit_codes_are_those_of_the_errors(everlog: Run) -> None:
    listed = {number for number, _, _ in EXIT_CODES}
    assert set(error_codes().values()) <= listed
    text = everlog("help", "exit-codes").out
    for number, _, codes in EXIT_CODES:
        assert f"{number:>4}  " in text
        for code in codes.replace(" ...", "").split(", "):
            if code and code != "usage":
                assert error_codes()[code] == number


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_completion_script_is_printed(everlog: Run, shell: str) -> None:
    found = everlog("completion", shell)
    assert found.code == 0
    assert "_EVERLOG_COMPLETE" in found.out


def test_an_unknown_shell_exits_2(everlog: Run) -> None:
    assert everlog("completion", "cmd").code == 2


@pytest.mark.skipif(importlib.util.find_spec("everlog.bench.run") is None, reason="the benchmark is not there")
def test_bench_prints_ratios(everlog: Run, place: Path) -> None:
    found = everlog("bench", "--quick", "--rounds", "1", "--on", str(place), "--json")
    assert found.code == 0
    assert found.err == ""
    assert all(ratio["value"] > 0 for ratio in found.data)
    assert list(place.iterdir()) == []


# ---- demo


def test_the_demo_shows_every_stage_and_leaves_a_log_to_play_with(everlog: Run, place: Path) -> None:
    found = everlog("demo", "--no-spark")
    assert found.code == 0
    stages = [line.split()[1] for line in found.out.splitlines() if line.startswith("ok ")]
    assert stages == [
        *("folder", "programs", "week", "late-sync", "retry", "refusals"),
        *("conflict", "secret", "purge", "views", "verify", "errors"),
    ]
    for told in ("The board of a feature", "issues", "Members", "audit", "What led to what"):
        assert told in found.out
    assert "FAIL" not in found.out
    assert everlog("config", "get", "demo").out == "true\n"
    assert int(everlog("--json").data["events"]) > 2_000
    assert everlog("verify").code == 0
    assert len(everlog("errors").rows) >= 8
    assert re.search(r"\(everlog agent trace WP\d+\)", found.out)

    # The next one takes the place of this one, and of what was derived from it.
    (place / ".everlog" / "lake" / "events").mkdir(parents=True)
    (place / ".everlog" / "lake" / "events" / "part.parquet").touch()
    (place / ".everlog" / "report.html").touch()
    assert everlog("demo", "--no-spark").code == 0
    assert not {"lake", "report.html"} & {path.name for path in (place / ".everlog").iterdir()}


def test_the_demo_tells_programs_what_it_shows_and_the_commands_that_it_ends_with_work(everlog: Run) -> None:
    answer = everlog("demo", "--dir", "tour", "--no-spark", "--json")
    found = answer.data
    assert list(found["shown"]) == ["board", "issues", "members", "audit", "trace"]
    assert {len(rows) > 3 for rows in found["shown"].values()} == {True}
    assert {one["view"].partition(".")[0] for one in found["views"]} == set(domains.TYPES)
    assert all(one["live"] == one["rebuilt"] == one["as_of_head"] for one in found["views"])
    assert [one["code"] for one in found["refused"]] == [
        "transition_refused",
        "look_alike",
        "rule_refused",
        "no_such_subject",
        "rule_refused",
    ]
    assert len(found["synced"]) == 3
    assert len(answer.next) == 9
    for command in answer.next:
        words = shlex.split(command)
        assert words[:3] == ["everlog", "-C", "tour"]
        told = everlog(*words[1:])
        assert (told.code, bool(told.out)) == (0, True), command


def test_the_demo_replaces_a_demo_and_nothing_else(everlog: Run, place: Path) -> None:
    assert everlog("demo", "--no-spark").code == 0
    first = everlog("--json").data
    (place / ".everlog/mine.txt").write_text("keep me")
    assert everlog("demo", "--no-spark").code == 0
    second = everlog("--json").data
    assert first["log_id"] != second["log_id"]
    assert first["events"] == second["events"]
    assert (place / ".everlog/mine.txt").exists()


def test_the_demo_leaves_a_real_log_alone(notes: Run) -> None:
    found = notes("demo", "--no-spark", "--json")
    assert found.code == 5
    assert found.error["hint"] == "everlog demo --dir DIR"
    assert len(notes("log").rows) == 5


def test_a_stage_that_does_not_hold_fails_the_demo(everlog: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    from everlog.log.log import Log

    monkeypatch.setattr(Log, "refusal_counts", lambda self: [])
    found = everlog("demo", "--no-spark")
    assert found.code == 1
    assert "FAIL  errors" in found.out
    assert json.loads(everlog("--json").out)["data"]["events"] > 2_000


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
    path.write_text(path.read_text() + "keys_kept_hours = 3\n")
    found = log("log")
    assert found.code == 2
    assert "config set keys_kept_hours 24" in found.err
    assert log("config", "set", "keys_kept_hours", "24").code == 0
    assert log("log").code == 0


def test_an_empty_url_is_no_url(log: Run) -> None:
    """It is mostly a shell variable that is not set."""
    assert log("append", "note.added", "-s", "note/1", "text=x", "--log", "").code == 2
    assert log("init", "--log", "sqlite:x.db").code == 2


def test_a_tag_given_twice_is_refused(log: Run) -> None:
    assert log("append", "note.added", "-s", "note/1", "text=x", "--tag", "a=1", "--tag", "a=2").code == 2


def test_the_demo_runs_on_a_postgres_of_its_own(everlog: Run) -> None:
    """The same stages, and nothing left behind."""
    try:
        start_server().remove()
    except NoServer as error:
        pytest.skip(f"no PostgreSQL: {error}")
    found = everlog("demo", "--store", "postgres", "--json")
    assert found.code == 0, found.err
    stages = {stage["stage"]: stage for stage in found.data["stages"]}
    assert {stage["status"] for stage in stages.values()} == {"ok"}
    assert {"server", "week", "late-sync", "purge", "views", "verify"} <= stages.keys()
    assert not Path(stages["server"]["shown"].split(" in ")[1].split(",")[0]).exists()


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


@pytest.mark.parametrize("group", ["pipeline", "config", "snapshot", "wp", "control org"])
def test_a_group_alone_prints_its_help_as_it_is(everlog: Run, group: str) -> None:
    alone = everlog(*group.split())
    assert (alone.code, alone.out) == (2, "")
    assert alone.err == everlog(*group.split(), "--help").out
    refused = everlog("--json", *group.split())
    assert (refused.code, refused.error["code"]) == (2, "usage")
    assert refused.error["why"].startswith("its commands are ")


def test_who_names_a_place_without_a_log_is_told_the_command_that_makes_one(everlog: Run, place: Path) -> None:
    (place / "a dir").mkdir()
    for where, code in (("a dir", "no_log"), ("not there", "no_log")):
        refused = everlog("-C", where, "log", "--json")
        assert (refused.error["code"], f"everlog init '{where}'" in refused.error["hint"]) == (code, True)
    assert everlog("log", "--json").error["hint"] == "everlog init"
    assert everlog("init", "not there").code == 0
    assert everlog("-C", "not there", "log").code == 0


@pytest.mark.parametrize("url", ["sqlite:new.db", "jsonl:new", "segments:new", "sqlite:in a/new.db"])
def test_a_log_that_a_url_names_is_made_by_the_command_that_the_hint_says(
    everlog: Run, place: Path, url: str
) -> None:
    (place / "in a").mkdir()
    refused = everlog("--log", url, "log", "--json")
    assert refused.code == 4
    told, _, command = refused.error["hint"].partition("or make it: everlog ")
    assert told == "check what follows --log, "
    assert everlog(*shlex.split(command)).code == 0
    assert everlog("--log", url, "log").code == 0

    mistyped = everlog("--log", "sqlite:other.db", "log", "--json")  # there is a log in this folder now
    assert "everlog init" not in mistyped.error["hint"]
    assert str(place / ".everlog") in mistyped.error["hint"]


@pytest.mark.parametrize(("word", "url"), [("jsonl", "jsonl:events"), ("postgresql", "postgresql://HOST/DATABASE")])
def test_who_names_a_kind_of_store_is_told_its_url(everlog: Run, word: str, url: str) -> None:
    assert everlog("init", "--store", word, "--json").error["hint"] == url

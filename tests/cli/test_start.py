"""init, config, help, completion, bench and demo: the first five minutes."""

from __future__ import annotations

import re
import shlex
import tomllib
from pathlib import Path

import click
import pytest
from tests.cli.conftest import Run

from everlog.cli.help import TOPICS
from everlog.cli.main import COMMANDS, cli
from everlog.errors import EXIT_CODES
from everlog.settings import Settings


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
    assert tomllib.loads(settings)["log"] == {"store": "sqlite:log.db"}
    for name in Settings.__struct_fields__:
        assert f"# {name}: " in settings
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


def test_help_prints_what_is_added_for_agents(everlog: Run, place: Path) -> None:
    printed = everlog("help", "agents").out
    everlog("init", "--agents")
    assert printed.strip() in (place / "AGENTS.md").read_text()
    assert "everlog append TYPE -s KIND/ID" in printed


def test_the_block_for_agents_is_added_once_and_keeps_what_was_there(everlog: Run, place: Path) -> None:
    (place / "AGENTS.md").write_text("# Mine\n")
    assert "AGENTS.md" in everlog("init", "--agents", "--json").data["files"]
    text = (place / "AGENTS.md").read_text()
    assert text.startswith("# Mine\n")
    assert "everlog append" in text
    everlog("init", "--agents")
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
    shown = " ".join(everlog("help", "--all").out.split())
    for name, (_, _, short) in COMMANDS.items():
        assert f" {name} {short.partition(':')[0].rstrip('.')}" in shown
        assert everlog(name, "--help").code == 0
    assert everlog("help", "--all", "append").code == 2


THIRTY = (
    "init append log tail show state diff why errors purge export import copy backup restore upgrade verify doctor"
    " repair schema.add schema.list schema.check views.list views.get views.rebuild views.audit config.show"
    " config.set serve help"
)


def test_the_first_page_has_the_commands_that_a_user_meets_first(everlog: Run) -> None:
    context = click.Context(cli)
    lines = everlog("--help").out.splitlines()
    assert len(lines) <= 40
    assert max(map(len, lines)) <= 80
    rows = [line.split() for line in lines if line.startswith("  ") and "-V" not in line]
    shown = [f"{name}.{word}" for name, words, *_ in rows if "|" in words for word in words.split("|")]
    shown += [name for name, words, *_ in rows if "|" not in words]
    there = [one for one in THIRTY.split() if one.partition(".")[0] in COMMANDS]  # the others do not exist yet
    assert sorted(shown) == sorted(there)
    for one in there:
        name, _, word = one.partition(".")
        command = cli.get_command(context, name)
        assert not word or (isinstance(command, click.Group) and word in command.commands)


def test_help_all_lists_every_word(everlog: Run) -> None:
    from tests.visible.world import commands

    listed: dict[str, str] = {}
    for line in everlog("help", "--all").out.splitlines():
        if found := re.match(r"  ([a-z-]+)  ", line):
            name = found[1]
            listed[name] = line
        elif line.startswith("   ") and listed:
            listed[name] += line
    for one in filter(None, commands()):
        group, _, rest = one.partition(" ")
        word = rest.partition(" ")[0]
        assert not word or re.search(rf"(?<![\w-]){word}[,.]", listed[group]), one
        assert group in listed


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
    shown: dict[str, int] = {}
    number = 0
    for line in everlog("help", "exit-codes").out.splitlines():
        if not line.startswith(" " * 6):
            number = int(line.split()[0])
            assert line == f"{number:>4}  {EXIT_CODES[number]}"
        else:
            shown |= dict.fromkeys(line.replace(",", "").split(), number)
    assert shown == {**error_codes(), "usage": 2}
    assert set(shown.values()) <= set(EXIT_CODES)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_completion_script_is_printed(everlog: Run, shell: str) -> None:
    found = everlog("completion", shell)
    assert found.code == 0
    assert "_EVERLOG_COMPLETE" in found.out


def test_an_unknown_shell_exits_2(everlog: Run) -> None:
    assert everlog("completion", "cmd").code == 2


def test_bench_prints_ratios(everlog: Run, on_disk: Path) -> None:
    found = everlog("bench", "--quick", "--rounds", "1", "--on", str(on_disk), "--json")
    assert found.code == 0
    assert found.err == ""
    assert all(ratio["value"] > 0 for ratio in found.data)
    assert list(on_disk.iterdir()) == []


def test_an_empty_url_is_no_url(log: Run) -> None:
    """It is mostly a shell variable that is not set."""
    assert log("append", "note.added", "-s", "note/1", "text=x", "--log", "").code == 2
    assert log("init", "--log", "sqlite:x.db").code == 2


def test_a_tag_given_twice_is_refused(log: Run) -> None:
    assert log("append", "note.added", "-s", "note/1", "text=x", "--tag", "a=1", "--tag", "a=2").code == 2


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
    told, _, command = refused.error["hint"].partition("or create it: everlog ")
    assert told == "check what follows --log, "
    assert everlog(*shlex.split(command)).code == 0
    assert everlog("--log", url, "log").code == 0

    mistyped = everlog("--log", "sqlite:other.db", "log", "--json")  # there is a log in this folder now
    assert "everlog init" not in mistyped.error["hint"]
    assert str(place / ".everlog") in mistyped.error["hint"]


@pytest.mark.parametrize(("word", "url"), [("jsonl", "jsonl:events"), ("postgresql", "postgresql://HOST/DATABASE")])
def test_who_names_a_kind_of_store_is_told_its_url(everlog: Run, word: str, url: str) -> None:
    assert everlog("init", "--store", word, "--json").error["hint"] == url


def test_init_reports_that_a_variable_applies_and_not_the_store_that_was_given(
    everlog: Run, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EVERLOG_STORE", f"jsonl:{place / 'there'}")
    found = everlog("init", "--store", "sqlite:here.db")
    assert found.code == 0
    assert f"EVERLOG_STORE applies: the events go to jsonl:{place / 'there'}, not to sqlite:here.db" in found.err
    assert (place / "there").is_dir()
    assert not (place / ".everlog/here.db").exists()
    assert "applies" not in everlog("init", "other", "--store", f"jsonl:{place / 'there'}").err
    monkeypatch.delenv("EVERLOG_STORE")
    assert "applies" not in everlog("init", "third", "--store", "sqlite:here.db").err


def test_init_never_shows_the_password_of_the_variable(
    everlog: Run, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EVERLOG_STORE", "postgresql://ada:secret-word@127.0.0.1:1/logs")
    found = everlog("init", "--store", "sqlite:here.db")
    assert "EVERLOG_STORE applies" in found.err
    assert "secret-word" not in found.out + found.err

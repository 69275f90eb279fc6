"""A log that an earlier version wrote opens, says what it said then, and its keys are replayed; and the same commands
write the same bytes today. `stored.py` describes the log."""

from __future__ import annotations

import difflib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import pytest
from tests.visible import stored, stories, world
from tests.visible.stored import FOLDER
from tests.visible.world import LOGS, World

FILES = ("sqlite", "jsonl", "segments")
STORES = (*FILES, "postgres")
OF_PEOPLE = ("everlog.toml", "types.toml")  # settings and types as people write them, with comments
GROWING = (".seg", "notes.jsonl")  # refusals are written into them, and what those say may change


@pytest.fixture(scope="module")
def postgres() -> Iterator[world.Server]:
    try:
        with world.postgres() as server:
            yield server
    except world.NoServer as error:
        pytest.skip(f"no PostgreSQL: {error}")


@pytest.fixture
def kept(tmp_path: Path, request: pytest.FixtureRequest) -> Callable[[str], World]:
    """Opens a copy of the log that was kept for a store."""

    def open_copy(store: str) -> World:
        if store != "postgres":
            return stored.reopen(store, tmp_path)
        server, schema = request.getfixturevalue("postgres"), f"kept_{abs(hash(str(tmp_path)))}"
        here = World(tmp_path / store, begin=stored.LATER)
        stories.LOG.prepare(here.place)
        here.must("init", "--store", server.url(schema))
        server.load(schema, stored.POSTGRES.read_text(encoding="utf-8"))
        for name in ("types.toml", "log.db.snapshots"):
            copy_of(LOGS / "sqlite" / name, here.place / FOLDER / name.replace("log.db.", ""))
        here.must("config", "set", "views", "own_views:VIEWS")
        return here

    return open_copy


# ---- opening


@pytest.mark.parametrize("store", STORES)
def test_a_kept_log_opens_and_gives_the_recorded_answers_digests_and_cursors(
    store: str, kept: Callable[[str], World]
) -> None:
    expected, found = stored.OPENED.read_text(encoding="utf-8"), stored.opened_text(kept(store))
    assert expected == found, difference(expected, found)


# ---- replays


@pytest.mark.parametrize("store", STORES)
def test_every_key_that_was_used_is_answered_with_its_replay(store: str, kept: Callable[[str], World]) -> None:
    here = kept(store)
    before = here.must("log", "-n", "1", "--json").data
    keyed = [call for call in stored.kept_calls() if "--key" in call[0]]
    assert len(keyed) > 75
    wrong = []
    for words, stdin, code, out in keyed:
        answer = here.run(*words, "--json", stdin=stdin)
        if (answer.code, same(answer.out)) != (code, same(out)):
            wrong.append((words, answer))
    assert wrong == []
    assert here.must("log", "-n", "1", "--json").data == before


@pytest.mark.parametrize("store", STORES)
def test_a_key_that_was_used_refuses_every_other_request(store: str, kept: Callable[[str], World]) -> None:
    here = kept(store)
    # A key belongs to an actor and a scope; these have the same as the calls below.
    own = [words for words, *_ in stored.kept_calls() if "--key" in words and not {"--actor", "--scope"} & {*words}]
    keys = {command(words): words[words.index("--key") + 1] for words in own}
    for words in (
        ["wp", "create", "WP77", "Another"],
        ["issue", "create", "Quite another title"],
        ["agent", "propose", "another", "--agent-id", "builder"],
        ["community", "say", "general", "another"],
        ["control", "app", "create", "acme/another"],
        ["append", "thing.seen", "-s", "thing/1", "where=elsewhere"],
    ):
        answer = here.run(*words, "--key", keys[command(words)], "--json")
        assert answer.code == 5, (words, answer)
        assert json.loads(answer.err)["error"]["code"] == "idempotency_key_reuse", words


def test_every_command_that_takes_a_key_is_in_the_kept_log() -> None:
    known = {
        name
        for name, found in world.commands().items()
        if any("--key" in parameter.opts for parameter in found.params if isinstance(parameter, click.Option))
    }
    assert len(known) > 55
    assert {command(words) for words, *_ in stored.kept_calls() if "--key" in words} == known


# ---- bytes


@pytest.mark.parametrize("store", STORES)
def test_the_same_commands_write_the_same_log_today(
    store: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """In a process of its own: salts are drawn ahead, and one that wrote before has others left."""
    server = request.getfixturevalue("postgres") if store == "postgres" else None
    url = stored.URLS[store] if server is None else server.url("today")
    place = tmp_path / store
    command = [sys.executable, "-m", "tests.visible.stored", url, str(place)]
    result = subprocess.run(command, cwd=world.ROOT, env=environment(), capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    require_same_answers(Path(f"{place}.calls"))
    if server is None:
        require_same_files(store, place)
        require_same_rows(store, place)
        require_same_snapshot(store, place)
    else:
        now = stored.plain_rows(server.rows("today"))
        World(tmp_path / "empty").must("init", "--store", server.url("kept_rows"))
        server.load("kept_rows", stored.POSTGRES.read_text(encoding="utf-8"))
        expected = stored.plain_rows(server.rows("kept_rows"))
        assert len(expected["events"]) > 80
        assert difference_of_rows(expected, now) == {}


def require_same_answers(path: Path) -> None:
    now = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    expected = stored.kept_calls()
    assert [call[0] for call in now] == [call[0] for call in expected]
    assert [(a, b) for a, b in zip(expected, now, strict=True) if plain_call(a) != plain_call(b)] == []


def require_same_files(store: str, place: Path) -> None:
    """The same bytes; of files in which refusals are written, the bytes before the first refusal."""
    expected, now = compared(stored.files_of(LOGS / store)), compared(stored.files_of(place / FOLDER))
    plain = compared(stored.files_of(place.with_name(f"{place.name}.plain")))
    assert list(now) == list(expected)
    assert [name for name in expected if exact(name) and now[name] != expected[name]] == []
    growing = [name for name in plain if name.endswith(GROWING)]
    assert len(growing) == {"sqlite": 0, "jsonl": 1, "segments": 3}[store]
    assert [name for name in growing if not expected[name].startswith(plain[name])] == []


def require_same_rows(store: str, place: Path) -> None:
    databases = sorted(path.relative_to(LOGS / store) for path in (LOGS / store).rglob("*.db"))
    assert len(databases) == {"sqlite": 1, "jsonl": 2, "segments": 1}[store]
    for name in databases:
        now, expected = stored.sqlite_rows(place / FOLDER / name), stored.sqlite_rows(LOGS / store / name)
        if name.name == "index.db":  # it knows its files by what the disk says of them
            assert len(now.pop("files")) == len(expected.pop("files"))
        assert difference_of_rows(expected, now) == {}, name


def require_same_snapshot(store: str, place: Path) -> None:
    (name,) = [path.relative_to(LOGS / store) for path in (LOGS / store).rglob("*.json.gz")]
    now, expected = (stored.snapshot((folder / name).read_bytes()) for folder in (place / FOLDER, LOGS / store))
    assert now == expected


# ---- what is compared


def compared(files: dict[str, bytes]) -> dict[str, bytes]:
    return {name: content for name, content in files.items() if not name.endswith((*OF_PEOPLE, ".db", ".json.gz"))}


def exact(name: str) -> bool:
    return not name.endswith((*GROWING, "index/end")) or name.endswith(("00000001.seg", "00000002.seg"))


def command(words: list[str]) -> str:
    return world.command_of(words)


def same(out: str) -> Any:
    """An answer without its warnings, because views have other code by now; it is empty if the call was refused."""
    return {**json.loads(out), "warnings": []} if out else None


def plain_call(call: list[Any]) -> list[Any]:
    """A call and its answer without the size of a packed file, which depends on a library."""
    words, stdin, code, out = call
    return [words, stdin, code, same(stored.without_proofs(re.sub(r'"bytes":\d+', '"bytes":0', out)))]


def difference_of_rows(expected: dict[str, list[str]], now: dict[str, list[str]]) -> dict[str, list[list[str]]]:
    """By table: the rows that are missing today, and those that are new."""
    return {
        table: [
            sorted(set(expected.get(table, [])) - set(now.get(table, []))),
            sorted(set(now.get(table, [])) - set(expected.get(table, []))),
        ]
        for table in sorted({*expected, *now})
        if expected.get(table) != now.get(table)
    }


def difference(expected: str, found: str) -> str:
    lines = difflib.unified_diff(expected.splitlines(), found.splitlines(), "recorded", "now", "", "", 4, "")
    return "\n".join(lines)


def environment() -> dict[str, str]:
    path = [str(world.ROOT), *sys.path]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, path))}


def copy_of(source: Path, target: Path) -> None:
    if source.is_dir():
        shutil.copytree(source, target)
    else:
        shutil.copyfile(source, target)

"""A log that an earlier version wrote is upgraded, answers as it did then, and its keys are replayed; and the same
commands record the same events today. `stored.py` describes the log."""

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
        server.load_format1(schema, stored.POSTGRES)
        here.must("upgrade")
        for name in ("types.toml", "log.db.snapshots"):
            copy_of(LOGS / "sqlite" / name, here.place / FOLDER / name.replace("log.db.", ""))
        here.must("config", "set", "views", "own_views:VIEWS")
        here.now_ns -= 2_000_000_000  # of the two commands that the files of other stores do not need
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
        and name != "verify"  # its --key is the key of a signature
        and name not in stories.OPTIONS_ONLY
        and name.partition(" ")[2] not in ("claim", "release", "renew")  # newer than the log that was kept
    }
    assert len(known) > 55
    assert {command(words) for words, *_ in stored.kept_calls() if "--key" in words} == known


# ---- the same commands


@pytest.mark.parametrize("store", STORES)
def test_the_same_commands_write_the_same_log_today(
    store: str, tmp_path: Path, request: pytest.FixtureRequest, kept: Callable[[str], World]
) -> None:
    """In a process of its own: salts are drawn ahead, and one that wrote before has others left."""
    server = request.getfixturevalue("postgres") if store == "postgres" else None
    url = stored.URLS[store] if server is None else server.url("today")
    place = tmp_path / "today"
    command = [sys.executable, "-m", "tests.visible.stored", url, str(place)]
    result = subprocess.run(command, cwd=world.ROOT, env=environment(), capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    require_same_answers(Path(f"{place}.calls"))
    today = World(place, begin=stored.LATER)
    expected, now = exported(kept(store)), exported(today)
    assert len(expected) > 80
    assert expected == now


def exported(here: World) -> list[dict[str, Any]]:
    """Every event without its chain, which continues from hashes of format 1 where events were purged in it."""
    here.must("export", "every.jsonl")
    lines = (here.place / "every.jsonl").read_text(encoding="utf-8").splitlines()
    events = [json.loads(line) for line in lines]
    return [{name: value for name, value in event.items() if name != "previous"} for event in events if "id" in event]


def require_same_answers(path: Path) -> None:
    now = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    expected = stored.kept_calls()
    assert [call[0] for call in now] == [call[0] for call in expected]
    assert [(a, b) for a, b in zip(expected, now, strict=True) if plain_call(a) != plain_call(b)] == []


def command(words: list[str]) -> str:
    return world.command_of(words)


def same(out: str) -> Any:
    """An answer without its warnings, because views have other code by now, and without the hashes of chains, which
    depend on the format; it is empty if the call was refused."""
    return {**without_hashes(json.loads(out)), "warnings": []} if out else None


def without_hashes(value: Any) -> Any:
    if isinstance(value, list):
        return [without_hashes(each) for each in value]
    if isinstance(value, dict):
        return {name: without_hashes(each) for name, each in value.items() if name not in ("previous", "digest")}
    return value


def plain_call(call: list[Any]) -> list[Any]:
    """A call and its answer without the size of a packed file, which depends on a library."""
    words, stdin, code, out = call
    return [words, stdin, code, same(stored.without_proofs(re.sub(r'"bytes":\d+', '"bytes":0', out)))]


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

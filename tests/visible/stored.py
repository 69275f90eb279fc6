"""The log that an earlier version wrote: kept in logs/ for each store, and written again to compare its bytes.

    stories/log.txt        every command that takes a key, at least once, each with a key of its own; two purges
    stories/log_more.txt   what has words in it: refusals, dead letters of a view and of a group; a snapshot
    stories/opened.txt     what is asked of the kept log; every store gives the same answers

`python -m tests.visible.stored` writes all of it again. Do that on purpose only: a log that this version writes says
nothing about the logs that people have.
"""

from __future__ import annotations

import gzip
import json
import re
import shutil
import sqlite3
import sys
import tempfile
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import click
from tests.visible import recording, stories, world
from tests.visible.recording import Line, Names, Stable, as_text
from tests.visible.world import BEGIN, LOGS, RECORDED, World

URLS = {"sqlite": "sqlite:log.db", "jsonl": "jsonl:log", "segments": "segments:log"}
FOLDER = ".everlog"
CALLS = LOGS / "calls.jsonl"
POSTGRES = LOGS / "postgres.txt"
OPENED = RECORDED / "opened.txt"
LATER = BEGIN + timedelta(hours=1)  # when the kept log is opened: keys are kept for a day
NOT_KEPT = re.compile(r"(^|/)(\.gitignore|.*lock|.*\.queue|.*-shm|.*-wal)$")


# ---- writing


def write(url: str, place: Path) -> list[list[Any]]:
    """Write the log. What it is after log.txt is left in PLACE.plain; the answers are returned."""
    here = World(place)
    here.must("init", "--store", url)
    known: dict[str, str] = {}
    calls = list(run(here, stories.LOG, known))
    for name, content in files_of(here.place / FOLDER).items():
        _write(place.with_name(f"{place.name}.plain") / name, content)
    return [*calls, *run(here, stories.LOG_MORE, known)]


def run(here: World, chapter: stories.Chapter, known: dict[str, str]) -> Iterator[list[Any]]:
    """[words, standard input, exit code, standard output] of each line. What takes a key gets one."""
    chapter.prepare(here.place)
    for number, line in enumerate(recording.lines(chapter), 1):
        if line.text == "! group":
            world.make_failing_group(here)
            continue
        words = line.said(known)
        if takes_key(line) and line.mark == "":
            words += ["--key", f"{chapter.name}-{number}"]
        answer = here.run(*words, "--json", stdin=line.stdin)
        assert (answer.code != 0) == line.refused, (line.text, answer)
        line.keep(answer, known)
        yield [words, line.stdin, answer.code, answer.out.replace(str(here.place), "<place>")]


def takes_key(line: Line) -> bool:
    found = world.commands()[world.command_of(line.words)]
    return any("--key" in parameter.opts for parameter in found.params if isinstance(parameter, click.Option))


def kept_calls() -> list[list[Any]]:
    return [json.loads(line) for line in CALLS.read_text(encoding="utf-8").splitlines()]


# ---- the kept log


def reopen(store: str, place: Path) -> World:
    """A copy of the kept log, an hour later, upgraded: it is in format 1."""
    here = World(place / store, begin=LATER)
    stories.LOG.prepare(here.place)
    shutil.copytree(LOGS / store, here.place / FOLDER)
    here.must("upgrade")
    return here


def opened_text(here: World) -> str:
    """What a kept log answers, with all ids, hashes and cursors. A warning may come: views have other code by now."""
    found = []
    for line in recording.lines(stories.OPENED):
        answer = here.run(*line.words, "--json")
        stable = Stable(world.command_of(line.words), Names({}, {str(here.place): "<place>"}, literal=True))
        text = as_text(answer, stable).replace("\nwarning", "")
        found.append(f"$ {line.text}\n{text}\n\n")
    return "".join(found)


def files_of(folder: Path) -> dict[str, bytes]:
    """What a log consists of: its files without locks and without what SQLite keeps while it is open."""
    found = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        assert not (name.endswith("-wal") and path.stat().st_size), "the log is still open"
        if path.is_file() and NOT_KEPT.search(name) is None:
            found[name] = path.read_bytes()
    return found


# ---- rows


def sqlite_rows(path: Path) -> dict[str, list[str]]:
    """Every row of every table, as it is compared. What SQLite keeps for a search by words is its own affair."""
    connection = sqlite3.connect(f"file:{path}?immutable=1", uri=True)  # leaves nothing beside the kept file
    try:
        asked = "SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name"
        tables = [name for (name,) in connection.execute(asked) if not name.startswith(("derived_words", "sqlite_"))]
        return plain_rows({name: connection.execute(f'SELECT * FROM "{name}"').fetchall() for name in tables})  # noqa: S608
    finally:
        connection.close()


def plain_rows(tables: dict[str, list[tuple[Any, ...]]]) -> dict[str, list[str]]:
    """Rows without what depends on the words of a message or on the source of a view."""
    return {name: sorted(without_proofs(repr(plain_row(row))) for row in rows) for name, rows in tables.items()}


def plain_row(row: tuple[Any, ...]) -> list[Any]:
    if str(row[0]).endswith(" letters"):  # the reason, and where in the source
        return ["..." if isinstance(value, (bytes, memoryview)) else value for value in row]
    return [plain_value(value) for value in row]


def plain_value(value: Any) -> Any:
    text = (
        bytes(value) if isinstance(value, (bytes, memoryview)) else value.encode() if isinstance(value, str) else b""
    )
    if text.startswith(b'{"sum":'):  # a state's own description: the fingerprint of its code, the checksum over that
        return {name: below for name, below in json.loads(text).items() if name not in ("sum", "code")}
    if text.startswith(b'{"id":') and b'"refused' in text:
        return {name: below for name, below in json.loads(text).items() if name not in ("reason", "hint", "context")}
    if isinstance(value, datetime):  # of the server's own clock
        return "..."
    return bytes(value) if isinstance(value, memoryview) else value


def without_proofs(text: str) -> str:
    """A text with cursors as the version had them that wrote the kept logs."""
    return re.sub(r"(\d@[0-9a-z]{8})\.[0-9a-f]{12}\b", r"\1", text)


def snapshot(content: bytes) -> list[Any]:
    """A snapshot without what depends on the source of a view, or on how many bytes a message has."""
    head, body, _seal = (json.loads(without_proofs(line.decode())) for line in gzip.decompress(content).splitlines())
    return [{name: below for name, below in head.items() if name not in ("code", "catalog", "log_bytes")}, body]


# ---- all of it again


def record() -> None:
    shutil.rmtree(LOGS, ignore_errors=True)
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        for store, url in URLS.items():
            calls = write(url, place / store)
            _write(CALLS, "".join(json.dumps(call, ensure_ascii=False) + "\n" for call in calls).encode())
            for name, content in files_of(place / store / FOLDER).items():
                _write(LOGS / store / name, content)
        _write(LOGS / ".gitattributes", b"* -text\n*.db binary\n*.gz binary\n*.seg binary\n*.idx binary\n")
        with world.postgres() as server:
            write(server.url("kept"), place / "postgres")
            _write(POSTGRES, server.dump("kept").encode())
        OPENED.write_text(opened_text(reopen("sqlite", place / "opened")), encoding="utf-8")


def _write(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def in_a_process_of_its_own(arguments: list[str]) -> None:
    """Write one log: URL PLACE. Salts are drawn ahead, so that a process that wrote before has other ones left."""
    url, place = arguments
    text = "".join(json.dumps(call, ensure_ascii=False) + "\n" for call in write(url, Path(place)))
    Path(f"{place}.calls").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    work: Callable[[], None] = record if len(sys.argv) == 1 else lambda: in_a_process_of_its_own(sys.argv[1:])
    work()

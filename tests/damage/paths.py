"""The ways of reading a log in files: each gives something that can be compared, or raises."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tests.damage import others

from everlog import aio, wiring
from everlog.cli.main import main
from everlog.consumers.group import Group
from everlog.core.event import Position, Recorded
from everlog.core.query import EVERYTHING, Query
from everlog.log.log import Log
from everlog.programs.workpackages.views import Board
from everlog.stores.contract import Block, Scanning

IDS = "ids.json"

Answer = Any


def run(work: Path, *arguments: str) -> tuple[int, str, str]:
    """A command in a folder, in this process."""
    out, err = io.TextIOWrapper(io.BytesIO()), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(["-C", str(work), *arguments])
        out.flush()
    return code, out.buffer.getvalue().decode(), err.getvalue()


def _facts(records: Any) -> list[tuple[int, str]]:
    return [(one.position, one.event.stream) for one in records]


def _with_log(read: Callable[[Log], Answer]) -> Callable[[Path], Answer]:
    def opened(work: Path) -> Answer:
        with wiring.open_folder(work / ".everlog") as log:
            return read(log)

    return opened


class Refused(Exception):
    """A command ended with a code of everlog's."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(f"{code}: {text}")
        self.exit_code = code


def _command(*arguments: str, shows: str) -> Callable[[Path], Answer]:
    """A command, and what of its output says which events it is about."""

    def ask(work: Path) -> Answer:
        code, out, err = run(work, *arguments)
        if code == 1 or "Traceback" in err:
            raise AssertionError(f"{arguments} failed in a way it should not: {err}")
        if code:
            raise Refused(code, err)
        return re.findall(shows, out)

    return ask


_POSITIONS = r'"position":(\d+)'


def _pages(log: Log) -> Answer:
    found: list[Recorded] = []
    cursor: Any = 0
    while True:
        page = log.page_after(cursor, limit=5)
        found += page.events
        cursor = page.next_cursor
        if page.at_head:
            return _facts(found)


def _async(log: Log) -> Answer:
    async def follow() -> Answer:
        return _facts([one async for one in aio.subscribe(log, 0, to_end=True)])

    return asyncio.run(follow())


def _slabs(log: Log) -> Answer:
    def rows(block: Block) -> Iterator[int]:
        return iter(block.positions)

    store = log._store
    assert isinstance(store, Scanning)
    return [position for block in store.blocks(EVERYTHING) for position in rows(block)]


def _ids(work: Path) -> Answer:
    with wiring.open_folder(work / ".everlog") as log:
        found = [log.get(name) for name in json.loads((work / IDS).read_text())]
    return [None if one is None else one.position for one in found]


def _consumer(log: Log) -> Answer:
    group = Group(log, "others", Query(kind="note"))
    with group.member("one") as member:
        found = []
        for delivery in member.deliveries(to_end=True):
            found.append(delivery.recorded)
            delivery.ack()
        return sorted(_facts(found))


def _board(log: Log) -> Answer:
    return [key for key, _ in log.view(Board).items()]


def _rebuilt(log: Log) -> Answer:
    log.view(Board).rebuild()
    return _board(log)


def _as_of(log: Log) -> Answer:
    head = log.head()
    return [log.view(Board).get(f"workpackage/WP{number}1", as_of=head).found for number in range(6)]


def _as_of_fields(log: Log) -> Answer:
    return [log.view("fields").get(f"note/{count}", as_of=log.head()).found for count in range(4)]


def _query(query: Query, **how: Any) -> Callable[[Log], Answer]:
    return lambda log: _facts(log.read(query, **how))


PATHS: dict[str, Callable[[Path], Answer]] = {
    "read": _with_log(_query(EVERYTHING)),
    "read backwards": _with_log(_query(EVERYTHING, newest_first=True)),
    "read a type": _with_log(_query(Query(types=frozenset(["note.added"])))),
    "read a stream": _with_log(_query(Query(stream="note/1"))),
    "read a scope": _with_log(_query(Query(scope="acme"))),
    "read a kind": _with_log(_query(Query(kind="workpackage"))),
    "read a part": _with_log(_query(EVERYTHING, after=Position(20), limit=10)),
    "pages": _with_log(_pages),
    "subscribe": _with_log(lambda log: _facts(log.subscribe(0, to_end=True))),
    "asyncio": _with_log(_async),
    "blocks": _with_log(_slabs),
    "get": _ids,
    "view": _with_log(_board),
    "rebuild": _with_log(_rebuilt),
    "as of": _with_log(_as_of),
    "fields as of": _with_log(_as_of_fields),
    "consumer": _with_log(_consumer),
    "log": _command("log", "--after", "0", "--limit", "1000", "--json", shows=_POSITIONS),
    "log to end": _command("log", "--to-end", "--json", shows=_POSITIONS),
    "tail": _command("tail", "--no-follow", "-n", "1000", shows=r"(?m)^(\d+)\t"),
    "show": _command("show", "#9", "--json", shows=_POSITIONS),
    "state": _command("state", "note/1", "--json", shows=r'"events":\d+'),
    "board": _command("wp", "board", shows=r"WP\d\d\tA"),
    "board in JSON": _command("wp", "board", "--json", shows=r'"id":"WP\d\d"'),
    "export": _command("export", "-q", shows=_POSITIONS),
    "conflicts": _command("conflicts", "--json", shows=r'"conflict":"([^"]+)"'),
    "checkpoint in JSON": _command("checkpoint", "--json", shows=r'"root":"\w+"'),
    "heads in JSON": _command("heads", "--json", shows=r'"end":\d+,"hash":"[^"]+"'),
    "prove": _command("prove", "#9", "--json", shows=r'"header":"(.*?[^\\])"'),
    **{name: _with_log(read) for name, read in others.READS.items()},
}

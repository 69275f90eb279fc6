"""What is called: every command, at least once so that it answers and once so that it refuses.

A chapter has a file in stories/ and an own folder. A line is a command line, without `everlog` and `--json`:

    # a heading
    door = issue create Squeak     the first fact of its answer is called $door from here on
    ? issue close nobody           it is refused, or finds something wrong: the exit code is not 0
    append --batch - <<< TEXT      TEXT is standard input
    ~ demo                         only the shape of its answer is compared, because its values cannot be fixed
    - purge note/1                 it gets no key, although it could have one (only in log.txt, where all others do)
    ! group                        a group of consumers is made that cannot take position 2 (see world.py)
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

OWN_VIEWS = """
from everlog import View

class Texts(View):
    name = "texts"
    types = ("note.added",)

    def initial(self):
        return {"texts": []}

    def apply(self, state, event):
        if event.payload["topic"] == "bad":
            raise ValueError("a topic that this view cannot take")
        return {"texts": [*state["texts"], event.payload["text"]]}

class Seen(View):
    name = "seen"
    types = ("thing.seen",)

    def apply(self, state, event):
        return {"times": state.get("times", 0) + 1}

VIEWS = [Texts, Seen]
"""

DRAFTS = (
    '{"type": "note.added", "stream": "note/7", "payload": {"text": "one"}}\n'
    '{"type": "note.added", "stream": "note/8", "payload": {"text": "two"}}\n'
)

CSV_MAPPING = """
type = "note.added"
stream = "note/{number}"
actor = "user:{who}"
occurred_at = "{at}"

[payload]
body = "text"
"""


class Chapter(NamedTuple):
    name: str
    prepare: Callable[[Path], None] = lambda place: None
    needs: str = ""  # a library or a program without which the chapter is left out

    @property
    def text(self) -> str:
        return (Path(__file__).parent / "stories" / f"{self.name}.txt").read_text(encoding="utf-8")


def _around(place: Path) -> None:
    (place / "drafts.ndjson").write_text(DRAFTS)
    (place / "rows.csv").write_text("number,at,who,text\n1,2025-01-01T10:00:00Z,ada,from a table\n")
    (place / "mapping.toml").write_text(CSV_MAPPING)


def _programs(place: Path) -> None:
    (place / "activity.yaml").write_text("- {timestamp: 2025-01-12T09:00:00Z, work_package_id: WP07, lane: doing}\n")


def _letters(place: Path) -> None:
    (place / "own_views.py").write_text(OWN_VIEWS)


def _day_files(place: Path) -> None:
    subprocess.run(["git", "init", "-q", "-b", "main", str(place)], check=True)
    (place / "ours.jsonl").write_text("")
    (place / "theirs.jsonl").write_text("")
    (place / "broken.jsonl").write_text("<<<<<<<\n")


CHAPTERS = (
    Chapter("around", _around),
    Chapter("programs", _programs),
    Chapter("letters", _letters),
    Chapter("day_files", _day_files, needs="git"),
    Chapter("segments"),
    Chapter("lake", needs="deltalake"),
    Chapter("demo"),
)
"""Chapters, in the order in which they are compared."""

LOG = Chapter("log", _letters)
LOG_MORE = Chapter("log_more")
OPENED = Chapter("opened")
"""The log that is kept in logs/, and what it answers: see stored.py."""

OPTIONS_ONLY = {
    "bench": "it measures this machine",
    "community branch": "it needs a key that signed two events with one number",
    "hooks run": "it runs until it is stopped",
    "join": "it needs a peer that listens",
    "mcp": "it reads messages until its input ends",
    "pipeline audit": "it needs Spark",
    "pipeline check": "it needs Spark",
    "pipeline compact": "it needs Spark",
    "pipeline export": "it needs Spark",
    "pipeline migrate": "it needs Spark",
    "pipeline stream": "it needs Spark, and runs until it is stopped",
    "serve": "it runs until it is stopped",
}
"""Commands without a call that succeeds, and why. Their options and their refusals are compared all the same."""

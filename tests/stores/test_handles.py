"""Two threads and a process on one log, in any order and at once: every answer is that of a log in memory.

120 sequences on each store, and 2,000 with --full."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import rule, run_state_machine_as_test
from tests.places import in_memory
from tests.stores.handle_logs import make_small, open_log
from tests.support.handles import Nursery, SteeredFiles
from tests.support.handles_machine import HandlesMachine
from tests.support.postgres_schemas import Schemas

from everlog.log.log import Log

SEQUENCES, SEQUENCES_FULL = 120, 2000
STEPS, STEPS_FULL = 8, 12
OPENER = "tests.stores.handle_logs:open_small"


class FileMachine(HandlesMachine):
    kind = ""

    def open_handle(self, place: str, files: SteeredFiles) -> Log:
        return open_log(place, files)

    def new_place(self) -> str:
        self.folder = tempfile.mkdtemp(prefix="everlog-handles-", dir=in_memory())
        return f"{self.kind}:{self.folder}/log"

    def copy_place(self, number: int) -> str:
        kind = ("sqlite", "jsonl", "segments")[number % 3]
        return f"{kind}:{self.folder}/copy{number}"

    def drop_place(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)


class SqliteMachine(FileMachine):
    kind = "sqlite"


class JsonlMachine(FileMachine):
    kind = "jsonl"
    maintenance = "rebuild_index"
    files_of_its_own = True

    @rule()
    def lose_the_clock_file(self) -> None:
        """It is not flushed: a crash may take it, and the log is asked instead."""
        self.asked.append("clock.json is lost")
        Path(self.folder, "log", "clock.json").unlink(missing_ok=True)


class SegmentsMachine(FileMachine):
    kind = "segments"
    maintenance = "archive"
    files_of_its_own = True
    one_writer = True


class PostgresMachine(FileMachine):
    kind = "postgresql"
    commits_die_with_their_process = False
    schemas: ClassVar[Schemas]
    new_log: ClassVar[dict[str, Any]] = {}  # the URL of a log, and the rows that a new one has

    def new_place(self) -> str:
        super().new_place()
        if not self.new_log:
            url = self.schemas.new()
            open_log(url, SteeredFiles()).close()
            self.new_log.update(url=url, rows=self.schemas.rows(url))
        else:
            self.schemas.reset(self.new_log["url"], self.new_log["rows"])
        return str(self.new_log["url"])


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    made = Nursery(OPENER)
    yield made
    HandlesMachine.end_processes()
    made.close()


@pytest.fixture(autouse=True)
def _small(nursery: Nursery, monkeypatch: pytest.MonkeyPatch) -> None:
    HandlesMachine.nursery = nursery
    make_small(monkeypatch)


@pytest.mark.parametrize("machine", [SqliteMachine, JsonlMachine, SegmentsMachine], ids=lambda machine: machine.kind)
def test_any_history_of_three_handles_is_that_of_one_in_memory(
    machine: type[HandlesMachine], pytestconfig: pytest.Config
) -> None:
    run(machine, full=pytestconfig.getoption("--full"))


def test_any_history_of_three_handles_in_postgres_is_that_of_one_in_memory(
    postgres_schemas: Schemas, pytestconfig: pytest.Config
) -> None:
    PostgresMachine.schemas = postgres_schemas
    PostgresMachine.new_log.clear()
    run(PostgresMachine, full=pytestconfig.getoption("--full"))


def run(machine: type[HandlesMachine], *, full: bool) -> None:
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=SEQUENCES_FULL if full else SEQUENCES,
            stateful_step_count=STEPS_FULL if full else STEPS,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )

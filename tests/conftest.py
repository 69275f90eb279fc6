"""Options and profiles of the whole suite."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import settings
from tests.places import in_memory, on_disk

from everlog.catalog.builtin import BUILT_IN
from everlog.catalog.catalog import Catalog
from everlog.log.log import Log
from everlog.stores.contract import Store
from everlog.stores.jsonl.store import JsonlStore
from everlog.stores.memory import MemoryStore
from everlog.stores.segments.store import SegmentsStore
from everlog.stores.sqlite.store import SqliteStore
from everlog.views.registry import Views

__all__ = ["on_disk"]

pytest_plugins = ["tests.schedule", "tests.spark_part", "tests.support.postgres_schemas"]
pytest.register_assert_rewrite(
    "everlog.testing.store_contract",
    "everlog.testing.copy_contract",
    "everlog.testing.purge_contract",
    "everlog.testing.scan_contract",
    "everlog.testing.store_machine",
    "tests.support.handles_machine",
)

settings.register_profile("everyday", deadline=None, derandomize=os.environ.get("CI") == "true")
settings.register_profile("full", deadline=None, max_examples=500)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--full", action="store_true", help="run the long forms: more kills, more events, more examples")


def pytest_configure(config: pytest.Config) -> None:
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # A job in the background of a shell ignores Ctrl-C, and so would every process that a test starts.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    settings.load_profile("full" if config.getoption("--full") else "everyday")
    if not config.getoption("--full") and (memory := in_memory()) is not None:
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(memory))  # where pytest makes `tmp_path`


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--full"):
        return
    for item in items:
        if item.get_closest_marker("slow"):
            item.add_marker(pytest.mark.skip(reason="long form: ./everlog test --full"))


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """Take the modules and the tests out of every later collection of garbage: they stay until the end. What tests
    make is mostly gone before it would be looked at, so that is done less often, too."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 10, 10)


def pytest_unconfigure() -> None:
    gc.unfreeze()  # or libraries report what is frozen as leaked


# ---- logs for the tests of the core, of the log and of its asyncio side


CATALOG = Catalog()


@CATALOG.event("thing.said")
class Said(msgspec.Struct):
    """Holds any JSON value, for the tests that are about values and not about models."""

    value: Any = None


@CATALOG.event("workpackage.moved", version=1)
class MovedV1(msgspec.Struct):
    new_status: str


@CATALOG.event("workpackage.moved", version=2)
class Moved(msgspec.Struct):
    went_to: str


@CATALOG.upcaster("workpackage.moved", from_version=1)
def name_the_lane(old: dict[str, Any]) -> dict[str, Any]:
    return {"went_to": old["new_status"]}


CATALOG.transitions(
    "workpackage",
    type="workpackage.moved",
    field="went_to",
    initial="planned",
    allowed={"planned": ["doing"], "doing": ["review", "planned"], "review": ["done", "doing"]},
)
CATALOG.include(BUILT_IN)


class Clock:
    """A wall clock that stands still until it is moved."""

    def __init__(self) -> None:
        self.us = 1_800_000_000_000_000

    def __call__(self) -> int:
        return self.us


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(scope="session")
def catalog() -> Catalog:
    return CATALOG


@pytest.fixture(scope="module")  # not for the whole run: hundreds of open logs are thousands of open files
def make_log(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Log]]:
    """Opens a log of a kind of store: `make_log("sqlite", path)`, with `now_us=` both in the store and in the log."""
    made: list[Log] = []

    def make(kind: str = "memory", path: Path | None = None, **options: Any) -> Log:
        timed = {"now_us": options["now_us"]} if "now_us" in options else {}
        store: Store
        if kind == "memory":
            store = MemoryStore(**timed)
        elif kind == "jsonl":
            store = JsonlStore(path or tmp_path_factory.mktemp("log") / "log", **timed)
        elif kind == "segments":
            store = SegmentsStore(path or tmp_path_factory.mktemp("log") / "log", **timed)
        else:
            store = SqliteStore(path or tmp_path_factory.mktemp("log") / "log.db", **timed)
        options.setdefault("catalog", CATALOG)
        options.setdefault("make_views", Views)
        log = Log(store, **options)
        made.append(log)
        return log

    yield make
    for log in made:
        log.close()


@pytest.fixture(params=["memory", "sqlite", "jsonl"])
def kind(request: pytest.FixtureRequest) -> str:
    """Each kind of store in turn; the log's own promises must hold on all of them."""
    return str(request.param)


@pytest.fixture
def log(kind: str, make_log: Callable[..., Log], clock: Clock) -> Iterator[Log]:
    with make_log(kind, now_us=clock) as opened:
        yield opened

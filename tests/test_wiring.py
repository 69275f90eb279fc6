"""Opening a log by its URL, and finding the one of a project."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import msgspec
import pytest

import everlog
from everlog.catalog.catalog import Catalog
from everlog.errors import EventTooLarge, InvalidSettings, NoLogHere, NotALog, NotFound, UnknownType
from everlog.settings import load
from everlog.stores.memory import MemoryStore
from everlog.stores.sqlite.store import SqliteStore
from everlog.user_code import catalog_of
from everlog.wiring import login_actor, open_folder, open_store


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the settings of whoever runs the tests nor a log above this directory may matter."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    for name in ("EVERLOG_ACTOR", "EVERLOG_STORE", "EVERLOG_CATALOG", "EVERLOG_SCOPE"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / ".everlog"
    made.mkdir()
    return made


def note(log: everlog.Log, text: str = "hello") -> everlog.Recorded:
    return log.append("note.added", stream="note/1", payload={"text": text})


def test_a_url_opens_its_store(tmp_path: Path) -> None:
    with everlog.open("memory:") as log:
        assert isinstance(log._store, MemoryStore)
        assert note(log).position == 1
    for url in ("sqlite:log.db", f"sqlite:{tmp_path}/log.db", f"sqlite://{tmp_path}/log.db", "sqlite:./log.db"):
        with everlog.open(url) as log:
            assert isinstance(log._store, SqliteStore)
            note(log)
    with everlog.open("sqlite:log.db") as log:
        assert log.head() == 4


@pytest.mark.parametrize(
    ("url", "hint"),
    [
        ("log.db", "sqlite:log.db"),
        ("data/log.db", "sqlite:data/log.db"),
        ("./x:y.db", "sqlite:./x:y.db"),
        ("sqlite:", "sqlite:log.db"),
        ("jsonl:", "jsonl:events"),
        ("postgresql:host/db", "postgresql://HOST/DATABASE"),
        ("memory:x", "memory:"),
        (
            "mysql://ada:pw@host/db",
            "there is no store mysql:; name one like sqlite:log.db, jsonl:events, segments:data,"
            " postgresql://HOST/DATABASE, memory:",
        ),
        ("memory", "memory:"),
        ("", "sqlite:log.db"),
    ],
)
def test_a_wrong_url_says_what_to_type(url: str, hint: str) -> None:
    with pytest.raises(InvalidSettings) as refusal:
        everlog.open(url)
    assert refusal.value.hint == hint
    assert "sqlite:PATH" in refusal.value.why
    with everlog.open("memory:"):
        pass


def test_a_log_is_not_made_where_none_is_wanted(tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        everlog.open("sqlite:log.db", create=False)
    assert not (tmp_path / "log.db").exists()


def test_another_programs_file_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "log.db").write_text("something else")
    with pytest.raises(NotALog):
        everlog.open("sqlite:log.db")
    assert (tmp_path / "log.db").read_text() == "something else"


def test_without_a_url_the_nearest_log_is_opened(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_folder(folder, create=True) as log:
        note(log)
    (tmp_path / "a" / "b").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "a" / "b")
    with everlog.open() as log:
        assert log.head() == 1


def test_without_any_log_the_next_step_is_named() -> None:
    with pytest.raises(NoLogHere) as refusal:
        everlog.open()
    assert refusal.value.hint == "everlog init"


def test_a_folder_gives_its_settings_and_types(folder: Path) -> None:
    (folder / "everlog.toml").write_text(
        'store = "sqlite:deep/own.db"\nactor = "user:ada"\npayload_bytes_max = 300\n'
    )
    (folder / "types.toml").write_text('[types."deploy.finished"]\nfields = { service = "str" }\n')
    with open_folder(folder, create=True) as log:
        assert (folder / "deep" / "own.db").exists()
        assert note(log).event.actor == "user:ada"
        log.append("deploy.finished", stream="deploy/1", payload={"service": "shop"})
        with pytest.raises(EventTooLarge):
            note(log, "x" * 300)
    with open_folder(folder, actor="user:bob") as log:
        assert note(log).event.actor == "user:bob"


def test_a_folder_without_its_log_is_not_filled_by_looking(folder: Path) -> None:
    with pytest.raises(NotFound):
        open_folder(folder)
    assert list(folder.iterdir()) == []


def test_types_may_be_given(tmp_path: Path) -> None:
    catalog = Catalog()

    @catalog.event("x.happened")
    class Happened(msgspec.Struct):
        pass

    with everlog.open("memory:", catalog=catalog) as log:
        log.append("x.happened", stream="x/1")
        note(log)
    with everlog.open("memory:") as log, pytest.raises(UnknownType):
        log.append("x.happened", stream="x/1")


@pytest.fixture
def installed() -> Iterator[ModuleType]:
    """A module that somebody else installed, with a catalog in it."""
    module = ModuleType("somebodys_types")
    catalog = Catalog()

    @catalog.event("y.happened")
    class Happened(msgspec.Struct):
        pass

    module.catalog, module.other = catalog, 5  # type: ignore[attr-defined]
    sys.modules["somebodys_types"] = module
    yield module
    del sys.modules["somebodys_types"]


def test_types_are_loaded_by_name(folder: Path, installed: ModuleType) -> None:
    (folder / "everlog.toml").write_text('catalog = "somebodys_types:catalog"\n')
    with open_folder(folder, create=True) as log:
        log.append("y.happened", stream="y/1")
        assert catalog_of(load(folder).settings, folder).knows("y.happened")


@pytest.mark.parametrize("name", ["no_such_module:x", "somebodys_types:missing", "somebodys_types", ":x", "json:"])
def test_types_that_cannot_be_loaded_say_how_to_name_them(
    installed: ModuleType, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv("EVERLOG_CATALOG", name)
    with pytest.raises(InvalidSettings) as refusal:
        everlog.open("memory:")
    assert "module:attribute" in refusal.value.hint


def test_what_is_loaded_must_be_a_catalog(installed: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVERLOG_CATALOG", "somebodys_types:other")
    with pytest.raises(InvalidSettings, match="int"):
        everlog.open("memory:")


def test_the_actor_is_the_system_unless_somebody_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with everlog.open("memory:") as log:
        assert note(log).event.actor == "system"
    with everlog.open("memory:", actor="user:ada") as log:
        assert note(log).event.actor == "user:ada"
    monkeypatch.setenv("EVERLOG_ACTOR", "user:eve")
    with everlog.open("memory:") as log:
        assert note(log).event.actor == "user:eve"


def test_the_person_at_the_terminal_is_an_actor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("getpass.getuser", lambda: "ada")
    assert login_actor() == "user:ada"

    def nobody() -> str:
        raise KeyError("no such user")

    monkeypatch.setattr("getpass.getuser", nobody)
    assert login_actor() == "user:unknown"


def test_a_store_is_opened_relative_to_its_base(tmp_path: Path) -> None:
    open_store("sqlite:sub/log.db", base=tmp_path).close()
    assert (tmp_path / "sub" / "log.db").exists()
    open_store(f"sqlite:{tmp_path}/log.db", base=Path("elsewhere")).close()
    assert (tmp_path / "log.db").exists()


def test_a_missing_folder_is_reported_with_the_command_that_makes_it(tmp_path: Path) -> None:
    with pytest.raises(NotFound) as refused:
        everlog.open(f"sqlite:{tmp_path}/a/b/log.db")
    assert refused.value.hint == f"mkdir -p {tmp_path}/a/b"


@pytest.mark.parametrize(
    ("url", "folder"),
    [
        ("sqlite:log.db", "log.db.snapshots"),
        ("jsonl:log", "log/local/snapshots"),
        ("segments:log", "log/snapshots"),
    ],
)
def test_snapshots_lie_beside_the_log_and_a_purge_reaches_them(
    url: str, folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with everlog.open(url, actor="user:ada") as log:
        log.append("note.added", stream="note/1", payload={"text": "a"})
        log.append("note.added", stream="note/2", payload={"text": "b"})
        log.view("fields").snapshot()
        digest = log.view("fields").digest()
    assert len(list((tmp_path / folder).glob("fields@*.json.gz"))) == 1
    with everlog.open(url, actor="user:ada") as log:
        assert log.view("fields").restore().digest == digest
        assert log.verify().ok
        log.purge("note/1", reason="a test")
    assert list((tmp_path / folder).glob("fields@*.json.gz")) == []

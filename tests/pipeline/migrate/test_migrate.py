"""Migration on Spark: the new log holds what an import would, and nothing is seen of it before it is whole."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.pipeline.migrate.test_chunks import line
from tests.transfer.foreign import text
from tests.transfer.test_exporting import source
from tests.transfer.test_spec_kitty import created, moved

import everlog
from everlog.errors import BadFile, ClockJump, Conflict, NotALog
from everlog.pipeline.migrate import migrate as module
from everlog.pipeline.migrate.migrate import Migrated, migrate
from everlog.testing.builders import put_note
from everlog.transfer.copy import UNFINISHED
from everlog.transfer.import_pass import Options
from everlog.transfer.importing import import_files
from everlog.transfer.mapping import RowMapping
from everlog.wiring import copy_target

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Migrate = Callable[..., Migrated]


@pytest.fixture
def history(tmp_path: Path) -> Path:
    """Two files of 60 lines each; ten lines of the first stand in the second too, as after a merge."""
    folder = tmp_path / "history"
    folder.mkdir()
    (folder / "1.jsonl").write_bytes(b"".join(map(line, range(60))))
    (folder / "2.jsonl").write_bytes(b"".join(map(line, range(50, 110))))
    return folder


@pytest.fixture
def run(spark: SparkSession, tmp_path: Path, history: Path) -> Migrate:
    def migrated(url: str, *paths: Path, options: Options | None = None, **more: Any) -> Migrated:
        target = copy_target(url, base=tmp_path)
        return migrate(spark, paths or [history], target, tmp_path / "staging", options, **more)

    return migrated


@pytest.mark.parametrize("url", ["segments:new", "sqlite:new.db", "jsonl:new"])
def test_the_new_log_holds_every_line_once_in_order_and_verifies(run: Migrate, tmp_path: Path, url: str) -> None:
    found = run(url, chunk_bytes=2_000)
    assert (found.files, found.events, found.repeated) == (2, 110, 10)
    scheme, _, name = url.partition(":")
    with everlog.open(f"{scheme}:{tmp_path / name}", create=False) as log:
        assert [recorded.event.payload["number"] for recorded in log.read()] == list(range(110))
        report = log.verify()
        assert (report.ok, report.digest) == (True, found.digest)
        new = log.append("note.added", stream="note/1", payload={"text": "it can be written to"})
        assert new.position == 111
        assert new.event.lamport > max(recorded.event.lamport for recorded in log.read(upto=110))


def test_the_same_files_give_the_same_log_whatever_it_is_cut_into_if_nothing_is_cut(run: Migrate) -> None:
    first, again = run("segments:one"), run("sqlite:two.db")
    assert first.digest == again.digest


def test_a_migration_that_was_stopped_goes_on_and_ends_at_the_same_log(
    run: Migrate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "BATCH", 25)
    whole = run("segments:whole")

    def stop(position: int) -> None:
        if position >= 50:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run("segments:new", progress=stop)
    assert not (tmp_path / "new").exists(), "what is not whole has not its name yet"
    with pytest.raises(NotALog):
        everlog.open(f"segments:{tmp_path / 'new.copying'}", create=False)
    found = run("segments:new")
    assert found.resumed_at == 50
    assert found.digest == whole.digest


def test_other_files_are_not_put_into_an_unfinished_log(run: Migrate, history: Path, tmp_path: Path) -> None:
    target = copy_target("segments:new", base=tmp_path)
    from everlog.stores.identity import new_identity

    draft = target.open(new_identity(1))
    with draft.open_write() as writer:
        put_note(writer, UNFINISHED, '{"migration":"of something else","received_us":1}')
    draft.close()
    with pytest.raises(Conflict, match="unfinished"):
        run("segments:new")


def test_a_bad_line_is_named_and_no_log_is_made(run: Migrate, history: Path, tmp_path: Path) -> None:
    with (history / "2.jsonl").open("ab") as file:
        file.write(b"{broken\n")
    with pytest.raises(BadFile) as error:
        run("segments:new")
    assert error.value.details["problems"][0].startswith("2.jsonl:61: ")
    assert not (tmp_path / "new").exists()


def test_bad_lines_are_set_aside_and_ids_replaced_as_in_an_import(run: Migrate, tmp_path: Path) -> None:
    """Two files of spec-kitty: a reference from the second to an id in the first, an id on two lines, no JSON, and
    a payload that no catalog fits."""
    folder = tmp_path / "kitty"
    first = [created(1, "WP01"), moved(1, "WP01", "claimed", "2026-02-01T09:00:00Z", event_id="evt-1"), {"odd": 1}]
    clash = moved(3, "WP02", "done", "2026-02-02T09:00:00Z")
    cause = {**created(5, "WP03"), "causation_id": "evt-1"}
    second = [clash, {**clash, "reason": "another"}, cause, {"odd": 2}]
    third = [{**clash, "reason": "a third"}]
    for number, lines in enumerate((first, second, third), 1):
        (folder / str(number)).mkdir(parents=True)
        ending = b"{broken\n" if number == 1 else b""
        (folder / str(number) / "status.events.jsonl").write_bytes(text(*lines) + ending)
    files = sorted(folder.rglob("*.jsonl"))
    kept: list[bytes] = []
    options = Options(new_ids=True)
    with everlog.open("memory:") as log:
        sources = [source(file.read_bytes(), file.relative_to(folder).as_posix()) for file in files]
        imported = import_files(log, sources, options, set_aside=kept.extend)
        expected = [(one.event.id, one.event.type, one.event.causation_id) for one in log.read()]
    aside: list[bytes] = []
    for dry_run in (True, False):
        found = run("sqlite:new.db", folder, options=options, set_aside=aside.extend, dry_run=dry_run)
        assert (found.set_aside, found.new_ids) == (imported.set_aside, imported.new_ids) == (5, 1)
        assert found.events == imported.events == len(expected)
        assert bool(aside) is not dry_run
    assert sorted(b"".join(aside).splitlines()) == sorted(b"".join(kept).splitlines())
    assert [one for one in found.problems if "2/status.events.jsonl:4" in one] == [], "one problem for all of a shape"
    with everlog.open(f"sqlite:{tmp_path / 'new.db'}", create=False) as log:
        assert [(one.event.id, one.event.type, one.event.causation_id) for one in log.read()] == expected
        assert log.verify().ok
    assert run("sqlite:new2.db", folder, options=options, set_aside=aside.extend).digest == found.digest


def test_one_id_on_two_lines_that_differ_is_refused(run: Migrate, tmp_path: Path) -> None:
    folder = tmp_path / "cli"
    folder.mkdir()
    for number in (1, 2):
        (folder / f"{number}.jsonl").write_text(
            '{"event_id":"01HN3R5K8D0000000000000001","event_type":"A","lamport_clock":1,"entity_id":"WP1",'
            f'"timestamp":"2026-01-27T10:30:00Z","payload":{{"n":{number}}}}}\n'
        )
    with pytest.raises(BadFile, match="ids occur on lines with different content"):
        run("segments:new", folder)


def test_clock_values_far_ahead_are_refused_unless_they_are_trusted(run: Migrate, tmp_path: Path) -> None:
    file = tmp_path / "far.jsonl"
    file.write_text(
        '{"event_id":"01HN3R5K8D0000000000000001","event_type":"A","lamport_clock":900000000,"entity_id":"WP1",'
        '"timestamp":"2026-01-27T10:30:00Z","payload":{}}\n'
    )
    with pytest.raises(ClockJump):
        run("sqlite:new.db", file)
    assert run("sqlite:new.db", file, options=Options(trust_clock=True)).events == 1


def test_csv_with_a_mapping_is_migrated_and_a_dry_run_only_counts(run: Migrate, tmp_path: Path) -> None:
    file = tmp_path / "orders.csv"
    file.write_text("number,status\n1,placed\n2,paid\n")
    options = Options(mapping=RowMapping(type="order.{status}", stream="order/{number}"))
    found = run("segments:new", file, options=options, dry_run=True)
    assert (found.dry_run, found.events, found.types) == (True, 2, {"order.paid": 1, "order.placed": 1})
    assert not (tmp_path / "new").exists()
    assert run("segments:new", file, options=options).events == 2


def test_a_log_that_is_there_is_never_written_into(run: Migrate, tmp_path: Path) -> None:
    with everlog.open(f"segments:{tmp_path / 'new'}") as log:
        log.append("note.added", stream="note/1", payload={"text": "mine"})
    with pytest.raises(Conflict):
        run("segments:new")

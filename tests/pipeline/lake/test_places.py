"""One contract for both kinds of places: a folder with a difficult name, and a bucket behind a stand-in for S3.

All other tests of the lake use folders with plain names."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.pipeline.audit.test_lake import Proven
from tests.pipeline.lake import bucket

from everlog.errors import Busy, Damaged, InvalidSettings, NotFound, ReadOnly
from everlog.pipeline.audit.lake import prove_lake
from everlog.pipeline.engines.spark import SparkEngine
from everlog.pipeline.lake import bucket as buckets
from everlog.pipeline.lake.data_file import opened
from everlog.pipeline.lake.folders import files_for, put_file, walk
from everlog.pipeline.lake.lake import Lake

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WAIT_S = 30.0


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with bucket.stand_in() as url:
        yield url


@pytest.fixture(params=["a folder with ü and spaces", "bucket"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    if request.param == "bucket":
        request.getfixturevalue("server")
        return bucket.place(uuid.uuid4().hex)
    return tmp_path / str(request.param)


@pytest.fixture
def make(place: Path, tmp_path: Path) -> Iterator[Callable[..., Proven]]:
    made: list[Proven] = []

    def world(spark: Any = None) -> Proven:
        made.append(Proven(spark, tmp_path))
        made[-1].lake = Lake.open(place, log_id=made[-1].log.identity.log_id, create=True)
        return made[-1]

    yield world
    for one in made:
        one.log.close()


def require_equal(one: Proven, tmp_path: Path) -> None:
    """The tables are those of a lake in a folder that is made at once."""
    other = Proven(None, tmp_path)
    other.log.close()
    other.log, other.url = one.log, one.url
    other.lake = Lake.open(tmp_path / uuid.uuid4().hex, log_id=one.log.identity.log_id, create=True)
    other.again()
    assert one.digests() == other.digests()
    assert one.lake.published().cursor == other.lake.published().cursor


def test_a_lake_grows_and_proves_itself(make: Callable[..., Proven], tmp_path: Path) -> None:
    world = make()
    world.bring(30)
    world.bring(20, first=30)
    require_equal(world, tmp_path)
    assert world.prove(everything=True).damages == ()

    table, file = world.data_files()[0]
    path, files = table.path / file.path, files_for(table.path)
    content = bytearray(files.read_all(path))
    content[len(content) // 2] ^= 4
    put_file(files, path, bytes(content))
    with pytest.raises(Damaged, match="not those that were committed"):
        opened(path)
    assert world.heal().damages[0].path == file.path
    require_equal(world, tmp_path)


def test_one_pipeline_writes_at_a_time(make: Callable[..., Proven]) -> None:
    lake = make().lake
    with lake.writing(), pytest.raises(Busy), Lake.open(lake.path).writing():
        pass
    with Lake.open(lake.path).writing():
        pass


def test_what_is_not_there_is_named(place: Path) -> None:
    with pytest.raises(NotFound, match="there is no lake"):
        Lake.open(place)


def test_on_spark_it_is_the_same(spark: SparkSession, make: Callable[..., Proven], tmp_path: Path) -> None:
    world = make(spark)
    world.bring(30)
    world.bring(20, first=30)
    require_equal(world, tmp_path)
    world.log.purge("note/1", reason="request")
    world.again()
    require_equal(world, tmp_path)
    for path in walk(files_for(world.lake.path), world.lake.path):
        if path.suffix == ".parquet" and "_delta_log" not in path.parts:
            assert "note/1" not in map(str, opened(path).read().to_pylist()), path
    proof = prove_lake(SparkEngine(spark), world.log, world.url, world.lake, world.views, everything=True)
    assert proof.damages == ()


# ---- what only a bucket has


@pytest.fixture
def held(server: str) -> Path:
    return bucket.place(uuid.uuid4().hex) / "lock"


def test_of_many_that_take_the_lease_one_gets_it(held: Path) -> None:
    taken: list[buckets.Lease] = []

    def take() -> None:
        lease = buckets.Lease(held)
        try:
            lease.acquire(0)
        except Busy:
            return
        taken.append(lease)

    threads = [threading.Thread(target=take) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_S)
    (winner,) = taken
    winner.require()
    winner.close()
    again = buckets.Lease(held)
    again.acquire(0)
    again.close()


def test_a_lease_that_was_lost_stops_its_run_before_it_publishes(
    make: Callable[..., Proven], place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not buckets.is_remote(place):
        return  # the lock of a folder ends with its holder
    world = make()
    world.bring(10)
    before = world.lake.published()
    monkeypatch.setattr(buckets, "LEASE_S", 0.2)
    monkeypatch.setattr(buckets, "RENEW_S", 60)
    with pytest.raises(Busy, match="it expired"), world.lake.writing():
        time.sleep(0.5)
        other = buckets.Lease(world.lake.path / "lock")
        other.acquire(0)
        world.lake.scrubbed(7)
    other.close()
    assert world.lake.published() == before


def test_a_bucket_that_is_not_there_is_named(server: str) -> None:
    with pytest.raises(NotFound, match="no such bucket"):
        Lake.open(Path("s3:/none-of-this-name/lake"), log_id="01X", create=True)


class _Refuses(BaseHTTPRequestHandler):
    def do_HEAD(self) -> None:  # PyArrow asks with HEAD first, and goes no further
        self.send_response(403)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *facts: object) -> None:
        return None


def test_a_bucket_without_permissions_is_named(server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    refusing = ThreadingHTTPServer(("127.0.0.1", 0), _Refuses)
    thread = threading.Thread(target=refusing.serve_forever)
    thread.start()
    monkeypatch.setenv(bucket.ENDPOINT, f"http://127.0.0.1:{refusing.server_port}")
    buckets.file_system.cache_clear()
    try:
        with pytest.raises(ReadOnly, match="cannot look at s3://lakes/x") as refused:
            Lake.open(bucket.place("x"), log_id="01X", create=True)
        assert "AWS_ACCESS_KEY_ID" in refused.value.hint
    finally:
        refusing.shutdown()
        refusing.server_close()
        thread.join(WAIT_S)
        buckets.file_system.cache_clear()


def test_an_unknown_scheme_is_refused_by_name(tmp_path: Path) -> None:
    from everlog.application.lake import place_of

    for text in ("gs://bucket/x", "hdfs://host/x", "s3://"):
        with pytest.raises(InvalidSettings, match=text.partition(":")[0]):
            place_of(text, base=tmp_path)
    assert place_of("S3://bucket/x/", base=tmp_path) == Path("s3:/bucket/x")
    assert place_of((tmp_path / "ü x").as_uri(), base=tmp_path) == tmp_path / "ü x"
    assert place_of("a/b", base=tmp_path) == tmp_path / "a/b"
    assert list(tmp_path.iterdir()) == []

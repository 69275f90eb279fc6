"""everlog on PostgreSQL beside bare COPY, Message DB and `eventsourcing`, on one server in one run.

    pip install 'everlog[pgserver,peers]'
    npm pack @eventide/message-db && tar xzf eventide-message-db-*.tgz          (for that peer; it needs pgcrypto)
    python -m benchmarks.postgres [--rounds 5] [--quick] [--message-db package/database] [--json]

The server is started for the run, with flushes on. All sides take turns in every round; see benchmarks/README.md.
"""

from __future__ import annotations

import argparse
import json
import sys
import threading
import uuid
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import psycopg
from benchmarks.bench.events import CATALOG, Pool
from benchmarks.bench.rounds import Contest, Sample, Spread, interleave, ratio, timed
from eventsourcing.application import Application
from eventsourcing.domain import Aggregate, event
from tests.support.postgres_schemas import Schemas

from everlog.core.ids import id_value
from everlog.demo.postgres_server import NoServer, PostgresServer, start_server
from everlog.log.log import Log
from everlog.log.write.draft import Draft
from everlog.stores.contract import Encoded
from everlog.testing.builders import Chain
from everlog.wiring import open_store

THREADS = 8
COLUMNS = "position, id, stream, sequence, type, scope, received_us, header, payload, salt, signature, path"
# In the order in which the package's own scripts install them.
MESSAGE_DB = [
    "roles/message-store",
    "schema/message-store",
    "extensions/pgcrypto",
    "tables/messages",
    "types/message",
    "functions/hash-64",
    "functions/acquire-lock",
    "functions/category",
    "functions/is-category",
    "functions/id",
    "functions/cardinal-id",
    "functions/stream-version",
    "functions/write-message",
    "indexes/messages-id",
    "indexes/messages-stream",
    "indexes/messages-category",
]


class Made:
    """Events that are made already and follow each other, as a copy or a peer brings them."""

    def __init__(self, pool: Pool) -> None:
        self._chain = Chain()
        self._pool = pool

    def batches(self, size: int, count: int) -> list[list[Encoded]]:
        return [[self._sealed(draft) for draft in self._pool.take(size)] for _ in range(count)]

    def _sealed(self, draft: Draft) -> Encoded:
        return self._chain.next(
            type=draft.type,
            stream=draft.stream,
            payload=draft.payload,
            actor=draft.actor,
            correlation_id=draft.correlation_id,
        )


class Ours:
    """A log on the server, through the whole product and through the store alone."""

    def __init__(self, schemas: Schemas, pool: Pool) -> None:
        self._log = Log(open_store(schemas.new(), base=Path()), CATALOG)
        self._store = open_store(schemas.new(), base=Path())
        self._made = Made(pool)
        self._pool = pool

    def batches(self, size: int, count: int) -> Sample:
        made = [self._pool.take(size) for _ in range(count)]
        return timed(size * count, lambda: [self._log.append_batch(batch, key=self._pool.key()) for batch in made])

    def stored_batches(self, size: int, count: int) -> Sample:
        """What the store itself costs."""
        made = self._made.batches(size, count)

        def work() -> None:
            for batch in made:
                with self._store.open_write() as writer:
                    writer.append(batch, fresh=True)

        return timed(size * count, work)

    def threads(self, each: int) -> Sample:
        def write(number: int, drafts: Sequence[Draft]) -> None:
            for draft in drafts:
                self._log.append(
                    draft.type,
                    stream=f"item/{number}",
                    payload=draft.payload,
                    actor=draft.actor,
                    correlation_id=draft.correlation_id,
                    causation_id=draft.causation_id,
                    key=self._pool.key(),
                )

        return in_threads(write, [self._pool.take(each) for _ in range(THREADS)])

    def close(self) -> None:
        self._log.close()
        self._store.close()


class Bare:
    """psycopg's COPY, as its documentation shows it, into the same table with the same indexes and triggers.

    Its events follow each other, as those of the store do: a trigger looks longer at events that fork a chain.
    """

    def __init__(self, schemas: Schemas, pool: Pool) -> None:
        url = schemas.new()
        open_store(url, base=Path()).close()
        self._connection = schemas.connect(url)
        self._made = Made(pool)
        self._position = 0
        self._sequences: Counter[str] = Counter()

    def batches(self, size: int, count: int) -> Sample:
        made = [[self._row(sealed) for sealed in batch] for batch in self._made.batches(size, count)]

        def work() -> None:
            for batch in made:
                with (
                    self._connection.transaction(),
                    self._connection.cursor() as cursor,
                    cursor.copy(f"COPY events ({COLUMNS}) FROM STDIN".encode()) as copy,
                ):
                    for row in batch:
                        copy.write_row(row)

        return timed(size * count, work)

    def _row(self, sealed: Encoded) -> tuple[Any, ...]:
        event = sealed.event
        self._position += 1
        self._sequences[event.stream] += 1
        return (
            self._position,
            uuid.UUID(int=id_value(event.id)),
            event.stream,
            self._sequences[event.stream],
            event.type,
            event.scope,
            1_800_000_000_000_000,
            sealed.header.decode(),
            sealed.payload.decode(),
            event.salt,
            b"",
            b"",
        )

    def require_one_chain(self) -> None:
        """Refuse a figure for which the triggers had other work than the store gives them."""
        counted = self._connection.execute("SELECT (SELECT count(*) FROM chains), (SELECT count(*) FROM forks)")
        if (found := counted.fetchone()) != (1, 0):
            raise RuntimeError(f"the copied events must be one chain without forks; chains and forks: {found}")

    def close(self) -> None:
        self._connection.close()


class MessageDb:
    """write_message on a connection for each thread, each with a stream of its own."""

    def __init__(self, server: PostgresServer, folder: Path, pool: Pool) -> None:
        with psycopg.connect(server.url, autocommit=True) as owner:
            owner.execute("CREATE DATABASE message_store")
        url = server.url_of("postgres", "message_store")
        with psycopg.connect(url, autocommit=True) as owner:
            owner.execute("SET search_path TO message_store, public; SET client_min_messages TO warning")
            for name in MESSAGE_DB:
                owner.execute((folder / f"{name}.sql").read_bytes())
        self._connections = [psycopg.connect(url, autocommit=True) for _ in range(THREADS)]
        for connection in self._connections:
            connection.execute("SET search_path TO message_store, public")
        self._pool = pool

    def threads(self, each: int) -> Sample:
        def write(number: int, drafts: Sequence[Draft]) -> None:
            connection = self._connections[number]
            for draft in drafts:
                about = {"actor": draft.actor, "correlation": draft.correlation_id, "causation": draft.causation_id}
                connection.execute(
                    "SELECT write_message(%s, %s, %s, %s::jsonb, %s::jsonb)",
                    (str(uuid.uuid4()), f"item-{number}", "Moved", json.dumps(draft.payload), json.dumps(about)),
                )

        return in_threads(write, [self._pool.take(each) for _ in range(THREADS)])

    def close(self) -> None:
        for connection in self._connections:
            connection.close()


class Item(Aggregate):
    @event("Opened")
    def __init__(self, code: str) -> None:
        self.lane = code

    @event("Moved")
    def move(self, feature: str, came_from: str, went_to: str, reason: str, actor: str) -> None:
        self.lane = went_to


class EventSourcing:
    """An application of that library with its PostgreSQL module and its defaults."""

    def __init__(self, server: PostgresServer, pool: Pool) -> None:
        settings = {
            "PERSISTENCE_MODULE": "eventsourcing.postgres",
            "POSTGRES_DBNAME": "postgres",
            "POSTGRES_HOST": str(server.folder),
            "POSTGRES_PORT": "5432",
            "POSTGRES_USER": "postgres",
            "POSTGRES_PASSWORD": "",
            "POSTGRES_POOL_SIZE": str(THREADS),
        }
        self._app: Application[uuid.UUID] = Application(env=settings)
        self._items = [Item(code=str(number)) for number in range(THREADS)]
        self._app.save(*self._items)
        self._pool = pool

    def threads(self, each: int) -> Sample:
        def write(number: int, drafts: Sequence[Draft]) -> None:
            item = self._items[number]
            for draft in drafts:
                item.move(**draft.payload, actor=draft.actor)
                self._app.save(item)

        return in_threads(write, [self._pool.take(each) for _ in range(THREADS)])

    def close(self) -> None:
        self._app.close()


def in_threads(write: Callable[[int, Sequence[Draft]], None], parts: Sequence[Sequence[Draft]]) -> Sample:
    barrier = threading.Barrier(len(parts) + 1)
    failures: list[BaseException] = []

    def run(number: int) -> None:
        barrier.wait()
        try:
            write(number, parts[number])
        except BaseException as error:
            failures.append(error)
            raise

    threads = [threading.Thread(target=run, args=(number,)) for number in range(len(parts))]
    for thread in threads:
        thread.start()

    def wait() -> None:
        barrier.wait()
        for thread in threads:
            thread.join()

    sample = timed(sum(map(len, parts)), wait)
    if failures:
        raise failures[0]
    return sample


class Figure(NamedTuple):
    name: str
    spread: Spread
    events_s: float  # ours, of the middle round
    target: float


def compare(
    server: PostgresServer, *, rounds: int, small: bool, message_db: Path | None, progress: Callable[[str], None]
) -> list[Figure]:
    schemas, pool = Schemas(server.url), Pool(2_000)
    ours = Ours(schemas, pool)
    bare = Bare(schemas, pool)
    for side in (ours.stored_batches, bare.batches):
        side(1000, 2)
    scale = 1 if small else 4
    peers: dict[str, Any] = {"eventsourcing": EventSourcing(server, pool)}
    if message_db is not None:
        peers["Message DB"] = MessageDb(server, message_db, pool)
    contests = [
        Contest(
            f"batch of {size}",
            {
                "bare COPY": lambda size=size, count=count: bare.batches(size, count),  # type: ignore[misc]
                "store": lambda size=size, count=count: ours.stored_batches(size, count),  # type: ignore[misc]
                "log": lambda size=size, count=count: ours.batches(size, count),  # type: ignore[misc]
            },
        )
        for size, count in ((100, 10 * scale), (1000, 2 * scale))
    ]
    writers = {name: (lambda peer=peer: peer.threads(25 * scale)) for name, peer in peers.items()}
    contests.append(Contest("8 threads", {"log": lambda: ours.threads(25 * scale), **writers}))
    try:
        results = interleave(contests, rounds=rounds, progress=progress)
        bare.require_one_chain()
    finally:
        for side in (ours, bare, *peers.values()):
            side.close()
    asked = [
        *((f"batch of {size}", side, "bare COPY", 0.7) for size in (100, 1000) for side in ("store", "log")),
        ("8 threads", "log", "eventsourcing", 5.0),
        *([("8 threads", "log", "Message DB", 2.0)] if message_db is not None else []),
    ]
    return [
        Figure(
            f"{name}: {over} / {under}",
            ratio(results[name], over, under),
            sorted(done[over].events_s for done in results[name])[rounds // 2],
            target,
        )
        for name, over, under, target in asked
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="fewer events a round")
    parser.add_argument("--message-db", type=Path, metavar="DIR", help="the package's folder `database`")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    try:
        server = start_server(shared_buffers="256MB", max_wal_size="4GB")
    except NoServer as error:
        print(f"postgres: {error}", file=sys.stderr)
        return 0
    with server:
        figures = compare(
            server,
            rounds=asked.rounds,
            small=asked.quick,
            message_db=asked.message_db,
            progress=lambda text: print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True),
        )
    print("\r\033[K", end="", file=sys.stderr)
    if asked.json:
        print(json.dumps([figure._asdict() for figure in figures]))
    else:
        for figure in figures:
            middle, low, high = figure.spread
            said = "met" if middle >= figure.target else "missed"
            print(
                f"{figure.name:<36} {middle:6.2f}  ({low:.2f} to {high:.2f})   at least {figure.target}, {said};"
                f" ours {figure.events_s:,.0f} events/s"
            )
    return 0 if all(figure.spread.middle >= figure.target for figure in figures) else 1


if __name__ == "__main__":
    sys.exit(main())

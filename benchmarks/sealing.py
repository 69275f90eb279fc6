"""What sealed fields cost, a part of `everlog bench trust`.

The sides take turns, so that other work on the machine changes both alike. What has no flush is measured in processor
time.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import partial
from statistics import median
from typing import Annotated, Any

import msgspec
from benchmarks.rows import Row, Setup, cpu_s, in_turns, ratio

import everlog
from everlog.catalog.personal import Personal
from everlog.log.log import Log
from everlog.log.write.draft import Draft
from everlog.trust.sealing import NONCE_BYTES, opened, seal

FIELD_US, SEALED_RATIO, PLAIN_RATIO = 10.0, 0.65, 0.97
BATCH = 100
CPU = "processor time"


class Plain(msgspec.Struct):
    customer: str
    email: str
    plan: str = "free"


class Sealed(msgspec.Struct):
    customer: str
    email: Annotated[str, Personal(of="customer")]
    plan: str = "free"


def _catalog(**types: type[Any]) -> everlog.Catalog:
    catalog = everlog.Catalog()
    for name, model in types.items():
        catalog.event(f"customer.{name}")(model)
    return catalog


def measure(setup: Setup) -> Iterator[Row]:
    """Sealing and opening a field, appends with a sealed field, and logs without one."""
    setup.progress("sealing: fields")
    yield from _fields(setup)
    for store in ("sqlite", "segments", "jsonl"):
        setup.progress(f"sealing: appends in {store}")
        yield from _appends(setup, store)


def _fields(setup: Setup) -> Iterator[Row]:
    count = 2_000 if setup.quick else 10_000
    key, nonce, value = os.urandom(32), os.urandom(NONCE_BYTES), b'"grace.hopper@example.org"'
    about = {"key": key, "event_type": "customer.registered", "field": "email"}
    envelope = seal(value, key_id="k" * 22, nonce=nonce, **about)  # type: ignore[arg-type]

    def do_seal() -> None:
        for _ in range(count):
            seal(value, key_id="k" * 22, nonce=nonce, **about)  # type: ignore[arg-type]

    def do_open() -> None:
        for _ in range(count):
            opened(envelope, **about)  # type: ignore[arg-type]

    for name, work in (("seal a field", do_seal), ("open a field", do_open)):
        took = median(cpu_s(work) for _ in range(setup.rounds))
        yield Row(name, "", took * 1e6 / count, "µs", FIELD_US)


def _appends(setup: Setup, store: str) -> Iterator[Row]:
    batches = 20 if setup.quick else 100
    catalogs = {
        "plain": _catalog(plain=Plain),
        "sealed": _catalog(sealed=Sealed),
        "beside": _catalog(plain=Plain, sealed=Sealed),  # it could seal, and has nothing to seal
    }
    logs = {
        name: everlog.open(f"{store}:{setup.directory / f'sealed-{store}-{name}'}", catalog=catalog, actor="user:ada")
        for name, catalog in catalogs.items()
    }
    try:
        took, cpu = in_turns([partial(_append, log, name) for name, log in logs.items()], setup.rounds, batches)
        note = f"batches of {BATCH}"
        yield Row("append with a sealed field", store, ratio(took, 1), "of plain", SEALED_RATIO, False, note)
        yield Row("the same, processor time", store, ratio(cpu, 1), "of plain", note=note)
        yield Row("append without one", store, ratio(cpu, 2), "of plain", PLAIN_RATIO, False, f"{note}, {CPU}")
        _, cpu = in_turns([partial(_read, log) for log in logs.values()], setup.rounds, 1)
        yield Row("read with a sealed field", store, ratio(cpu, 1), "of plain", note=CPU)
        yield Row("read without one", store, ratio(cpu, 2), "of plain", PLAIN_RATIO, False, CPU)
    finally:
        for log in logs.values():
            log.close()


def _append(log: Log, name: str) -> None:
    kind = "customer.sealed" if name == "sealed" else "customer.plain"
    log.append_batch(
        [
            Draft(kind, f"customer/{n}", {"customer": f"c/{n}", "email": f"customer.{n}@example.org", "plan": "free"})
            for n in range(BATCH)
        ]
    )


def _read(log: Log) -> None:
    for _ in log.read():
        pass

"""A shop with customers, for tests of forgetting: values that are sealed, and values from before they were."""

from __future__ import annotations

import gzip
import sys
from pathlib import Path
from typing import Annotated, Any

import msgspec

import everlog
from everlog.application.trust.owned_bytes import Owned
from everlog.catalog.personal import Personal
from everlog.log.dead_letters import FAILED, keep_letter, letter_of
from everlog.log.log import Log

SEALED = "ada.lovelace@example.org"
OPEN = "grace.hopper@example.org"
STAYS = "never-forgotten@example.org"
SUBJECT = "c/1"
STORES = ["sqlite:log.db", "jsonl:log", "segments:log"]

BEFORE, CATALOG = everlog.Catalog(), everlog.Catalog()


@BEFORE.event("customer.registered")
class Plain(msgspec.Struct):
    customer: str
    email: str


@CATALOG.event("customer.registered")
class Registered(msgspec.Struct):
    customer: str
    email: Annotated[str, Personal(of="customer")]


class Emails(everlog.View):
    """The newest address of each customer, found by its words."""

    name = "emails"
    version = 1
    types = frozenset(("customer.registered",))

    def apply(self, state: Any, event: everlog.Event) -> Any:
        return {"email": event.payload.get("email", "")}


class ByEmail(everlog.View):
    """The customers by their address: the key itself is personal."""

    name = "by-email"
    version = 1
    types = frozenset(("customer.registered",))
    by_stream = False

    def key(self, event: everlog.Event) -> str:
        return str(event.payload.get("email", "none"))

    def initial(self) -> Any:
        return []

    def apply(self, state: Any, event: everlog.Event) -> Any:
        return [*state, event.stream]


class Strict(everlog.View):
    """It accepts no address, and says which one."""

    name = "strict"
    version = 1
    types = frozenset(("customer.registered",))

    def apply(self, state: Any, event: everlog.Event) -> Any:
        raise ValueError(f"no customer has {event.payload.get('email')}")


def quote_everywhere(log: Log) -> None:
    """Have the value in everything beside the log that may quote one."""
    log.writer.refusals.keep(
        code="invalid_payload",
        reason=f"{SEALED} is taken",
        operation="append",
        stream="customer/9",
        type="customer.registered",
        actor="user:ada",
        context={"email": SEALED},
    )
    payload = {"customer": "c/1", "email": SEALED}
    draft = everlog.Draft("customer.registered", "customer/1", payload)
    made = log.writer.commit([draft], key="k", request={"a": 1}, response={"email": SEALED})
    letter = letter_of(
        made.records[0], FAILED, group="mail", partition=0, key="c/1", holds=True, reason=f"no {SEALED}", attempts=1
    )
    log.writer.write(lambda write: keep_letter(write, letter))
    log.view(Strict).catch_up()
    assert [one.reason for one in log.view(Strict).dead_letters()]


def owned(folder: Path) -> Owned:
    lake = folder / "lake"
    return Owned([folder], lake if lake.is_dir() else None, folder)


def fill(url: str, *, signed: bool = False) -> None:
    """Record values of two customers, before and after the field was declared personal."""
    with everlog.open(url, catalog=BEFORE, actor="user:ada", signed=signed) as log:
        register(log, "c/1", OPEN)
        register(log, "c/2", STAYS)
    with everlog.open(url, catalog=CATALOG, actor="user:ada") as log:
        register(log, "c/1", SEALED)
        register(log, "c/2", STAYS)
        register(log, "c/1", SEALED)


def register(log: Log, customer: str, email: str, **more: Any) -> everlog.Recorded:
    payload = {"customer": customer, "email": email}
    return log.append("customer.registered", stream=customer.replace("c/", "customer/"), payload=payload, **more)


def open_shop(url: str, **more: Any) -> Log:
    return everlog.open(url, catalog=CATALOG, actor="user:ada", **more)


def files_with(folder: Path, *values: str) -> list[str]:
    """Return the files that have one of the values. What is packed is unpacked."""
    found = []
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            data = path.read_bytes()
            if path.suffix == ".gz":
                data += gzip.decompress(data)
            if any(value.encode() in data for value in values):
                found.append(str(path.relative_to(folder)))
    return found


def main() -> None:
    """Forget the customer and be killed where a step begins, or before a change of a file: `python -m … URL STEP`."""
    import os
    import signal

    from everlog.application.trust.forget import forget
    from everlog.files import DiskFiles

    url, at = sys.argv[1:]
    changes = 0

    def die(step: str) -> None:
        if step == at:
            os.kill(os.getpid(), signal.SIGKILL)

    def counted(method: Any) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            nonlocal changes
            changes += 1
            die(str(changes))
            return method(*args, **kwargs)

        return call

    with open_shop(url) as log:
        for name in ("write", "truncate", "fsync", "fsync_dir", "rename", "unlink"):
            setattr(DiskFiles, name, counted(getattr(DiskFiles, name)))
        forget(log, SUBJECT, owned=owned(Path.cwd()), on_step=die)
        print(changes)


if __name__ == "__main__":
    main()

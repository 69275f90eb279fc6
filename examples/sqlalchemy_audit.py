"""An audit log next to SQLAlchemy: who changed which row, from what to what, provable and kept when rows are deleted.

    pip install everlog sqlalchemy
    python sqlalchemy_audit.py

The entry is on the disk before the row is committed. After a crash in between there can be an entry without a change,
never a change without an entry.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any
from uuid import uuid4

import msgspec
from sqlalchemy import create_engine, event, inspect
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

import everlog

catalog = everlog.Catalog()


@catalog.event("row.changed")
class Changed(msgspec.Struct):
    """A row was inserted, updated or deleted; `columns` has the values before and after."""

    change: str
    columns: dict[str, Any]
    transaction: str


class Base(DeclarativeBase):
    pass


class Customer(Base):
    __tablename__ = "customer"
    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str]
    city: Mapped[str]


def audit(session: Session, log: everlog.Log, actor: str) -> None:
    """Record every change of this session in the log, in one batch per flush."""

    def record(session: Session, context: object) -> None:
        transaction = session.info.setdefault("transaction", str(uuid4()))
        drafts = [
            everlog.Draft(
                type="row.changed",
                stream=f"{row.__tablename__}/{row.id}",
                actor=actor,
                payload={"change": change, "columns": changes(row, change), "transaction": transaction},
            )
            for change, rows in (("insert", session.new), ("update", session.dirty), ("delete", session.deleted))
            for row in rows
            if change != "update" or session.is_modified(row)
        ]
        if drafts:
            log.append_batch(drafts)

    event.listen(session, "after_flush", record)  # before the commit: keys are known, nothing is visible yet
    event.listen(session, "after_commit", lambda session: session.info.pop("transaction", None))


def changes(row: Base, change: str) -> dict[str, Any]:
    found = {}
    for column in inspect(row).attrs:
        if change == "update" and not column.history.has_changes():
            continue
        before = column.history.deleted[0] if column.history.deleted else None
        found[column.key] = [
            column.value if change == "delete" else before,
            None if change == "delete" else column.value,
        ]
    return found


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        engine = create_engine(f"sqlite:///{Path(folder) / 'shop.db'}")
        Base.metadata.create_all(engine)
        with everlog.open(f"sqlite:{Path(folder) / 'audit.db'}", catalog=catalog) as log, Session(engine) as session:
            audit(session, log, actor="user:ada")
            session.add(Customer(id=42, name="Bob", city="Bern"))
            session.commit()
            session.get_one(Customer, 42).city = "Basel"
            session.commit()
            session.delete(session.get_one(Customer, 42))
            session.commit()

            for entry in log.read(Changed):
                print(entry.record.sequence, entry.payload.change, entry.payload.columns)
            print("sound" if log.verify().ok else "damaged")
        engine.dispose()


if __name__ == "__main__":
    main()

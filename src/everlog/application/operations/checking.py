"""`log.verify`, `log.doctor` and `log.schema`: whether a log is what it should be, and which types it has."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, ClassVar

import msgspec
from msgspec import Meta

from everlog.application.checks.doctor import Check, checks_of_log
from everlog.application.folder.event_types import describe_type
from everlog.log.log import Log
from everlog.log.verify.verify import Report
from everlog.programs.command import Action, By, Done, Question
from everlog.programs.policy import Policy


class VerifyAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What a verification found."""

    ok: bool
    report: Report


class Verify(Action[VerifyAnswer], frozen=True, kw_only=True):
    """Verify the log from its bytes: every position, every hash, every chain."""

    verb = "verify"
    policy = Policy(role="read", scope="log")
    long = True
    problems = ("damaged",)

    def run(self, log: Log, by: By, progress: Callable[[int], None] = lambda position: None) -> Done[VerifyAnswer]:
        report = log.verify(progress=progress)
        return Done(VerifyAnswer(ok=report.ok, report=report))


class Doctor(Question[list[Check]], frozen=True, kw_only=True):
    """Return the checks of the log, each with how to fix what it found. They change nothing."""

    verb = "doctor"
    columns = ("status", "id", "detail", "fix")
    policy = Policy(role="admin", scope="log")

    def answer(self, log: Log, within: str) -> list[Check]:
        return list(checks_of_log(log))


class TypeObject(msgspec.Struct, frozen=True, kw_only=True):
    """An event type, with the JSON Schema of its payload."""

    type: str
    version: int
    versions: tuple[int, ...]
    doc: str
    schema: dict[str, Any]


class Schema(Question[list[TypeObject]], frozen=True, kw_only=True):
    """Return the event types of this log, with the JSON Schema of each payload."""

    verb = "schema"
    columns = ("type", "version", "doc")
    policy = Policy(role="read", scope="none")
    problems = ("unknown_type",)
    example: ClassVar[dict[str, Any]] = {"type": "note.added"}

    type: Annotated[str, Meta(description="Only this type.", max_length=200)] = ""
    all: Annotated[bool, Meta(description="Also the types of the programs that every log can use.")] = False

    def answer(self, log: Log, within: str) -> list[TypeObject]:
        infos = [describe_type(log.catalog, self.type).info] if self.type else log.catalog.types(lent=self.all)
        return [
            TypeObject(
                type=one.type,
                version=one.version,
                versions=one.versions,
                doc=one.doc,
                schema=log.catalog.json_schema(one.type),
            )
            for one in infos
        ]

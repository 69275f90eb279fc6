"""The list of all operations: those of the log itself, then those of the programs."""

from __future__ import annotations

from typing import Any

from everlog.application.operations import (
    appending,
    checking,
    groups,
    purging,
    reading,
    snapshots,
    states,
    views,
)
from everlog.programs import operations as of_programs
from everlog.programs.operations import Operation, Value
from everlog.programs.registry import Own

LOG: dict[str, tuple[type[Value], ...]] = {
    "log": (
        appending.Append,
        appending.AppendBatch,
        reading.ReadPage,
        reading.Head,
        reading.Get,
        reading.History,
        reading.Causes,
        states.State,
        states.Diff,
        states.Why,
        reading.Refusals,
        checking.Verify,
        checking.Doctor,
        checking.Schema,
        purging.Purge,
    ),
    "view": (views.List, views.Lag, views.Get, views.Rows, views.AuditViews, views.Rebuild),
    "group": (
        groups.List,
        groups.Lag,
        groups.DeadLetters,
        groups.Join,
        groups.Take,
        groups.Ack,
        groups.Nack,
        groups.Leave,
        groups.Retry,
        groups.Skip,
        groups.Reset,
    ),
    "snapshot": (snapshots.Create, snapshots.List, snapshots.Verify),
}
"""The operations of the log itself, by the first part of their names."""


def log_operations() -> list[Operation]:
    """Return the operations of the log itself."""
    return [Operation(group, value) for group, values in LOG.items() for value in values]


def operations(own: Own = "") -> list[Operation]:
    """Return every operation: of the log itself, of the built-in programs, and of your own programs."""
    return [*log_operations(), *of_programs.operations(own)]


def tools(own: Own = "") -> list[dict[str, Any]]:
    """Return all operations as tools for agents."""
    return of_programs.tools(own, more=log_operations())

"""Programs on the log. Each one is a folder with the same few files:

    events      payload models with their versions and upcasters, in a catalog
    rules       pure functions that judge an event by the history before it
    views       pure folds that answer questions; named `program.view`, so that a log finds them by name
    commands    values that request a change: `perform(log, command, by)`
    questions   values that request information: `ask(log, question)`

A log knows the types of every program by name and loads a program when one of its types, or one of its views, is
first needed. A log whose own catalog has a type of the same name keeps its own, and works without that program.

`__all__` has the public names, for a program of your own (docs/tutorial/your-own-program.md). They are loaded at
first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from everlog.programs.command import Command as Command
    from everlog.programs.command import Decision as Decision
    from everlog.programs.command import On as On
    from everlog.programs.command import Outcome as Outcome
    from everlog.programs.command import Question as Question
    from everlog.programs.perform import History as History
    from everlog.programs.program import Guard as Guard
    from everlog.programs.program import Program as Program
    from everlog.programs.program import guard_of_stream as guard_of_stream
    from everlog.programs.program import require_kind as require_kind

_HOMES = {
    "Command": "everlog.programs.command",
    "Decision": "everlog.programs.command",
    "Guard": "everlog.programs.program",
    "History": "everlog.programs.perform",
    "On": "everlog.programs.command",
    "Outcome": "everlog.programs.command",
    "Program": "everlog.programs.program",
    "Question": "everlog.programs.command",
    "guard_of_stream": "everlog.programs.program",
    "require_kind": "everlog.programs.program",
}

__all__ = [
    "Command",
    "Decision",
    "Guard",
    "History",
    "On",
    "Outcome",
    "Program",
    "Question",
    "guard_of_stream",
    "require_kind",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'everlog.programs' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


TYPES: dict[str, tuple[str, ...]] = {
    "agents": (
        "agent.command.proposed",
        "agent.command.validated",
        "agent.command.approved",
        "agent.command.rejected",
        "agent.command.executed",
        "agent.command.failed",
    ),
    "community": (
        "community.created",
        "community.member.invited",
        "community.member.joined",
        "community.member.revoked",
        "community.member.promoted",
        "community.member.demoted",
        "community.policy.updated",
        "community.branch.named",
        "node.manifest.updated",
        "market.post.created",
        "market.post.updated",
        "market.post.expired",
        "chat.message.sent",
        "chat.message.delivered",
        "chat.message.read",
        "file.cid.advertised",
        "file.cid.unpinned",
        "rag.document.ingested",
        "federation.peer.added",
        "federation.peer.removed",
    ),
    "controlplane": (
        "control.org.created",
        "control.org.closed",
        "control.app.created",
        "control.app.closed",
        "control.environment.created",
        "control.environment.closed",
        "control.deploy.requested",
        "control.deploy.started",
        "control.deploy.succeeded",
        "control.deploy.failed",
        "control.deploy.rolled_back",
        "control.route.set",
        "control.route.removed",
        "control.secret.set",
        "control.secret.removed",
        "control.volume.attached",
        "control.volume.grown",
        "control.volume.detached",
        "control.scale.set",
    ),
    "issues": (
        "issue.created",
        "issue.edited",
        "issue.commented",
        "issue.labeled",
        "issue.unlabeled",
        "issue.linked",
        "issue.unlinked",
        "issue.closed",
        "issue.reopened",
        "issue.soft_deleted",
        "issue.restored",
        "issue.purged",
        "issue.claimed",
        "issue.released",
    ),
    "workpackages": (
        "GateCreated",
        "GateResultChanged",
        "SpecCreated",
        "SubtaskCompleted",
        "WPClaimed",
        "WPCreated",
        "WPDependenciesChanged",
        "WPReleased",
        "WPStatusChanged",
        "WorkspaceCreated",
        "workpackage.annotated",
        "workpackage.status_changed",
    ),
}
"""The event types of each program, listed here so that knowing them loads nothing."""


VIEWS: dict[str, tuple[str, ...]] = {
    "agents": tuple(f"agents.{name}" for name in ("commands", "pending", "trace", "causes", "sources")),
    "community": tuple(
        f"community.{name}" for name in ("manifest", "market", "threads", "chats", "files", "documents")
    ),
    "controlplane": tuple(f"controlplane.{name}" for name in ("desired", "deploys", "audit", "places")),
    "issues": tuple(f"issues.{name}" for name in ("current", "short_ids", "backlinks", "claims")),
    "workpackages": tuple(f"workpackages.{name}" for name in ("board", "specs", "claims")),
}
"""The views of each program, listed here for the same reason."""


GROUPS = {
    "agent": "agents",
    "community": "community",
    "control": "controlplane",
    "issue": "issues",
    "wp": "workpackages",
}
"""The word of each program on the command line, in the setting `programs`, and as an entry point."""


SHOWN = {"command": "agents", "featurespec": "workpackages", "issue": "issues", "workpackage": "workpackages"}
"""The kinds of streams that a view of a program shows, and the program; listed here so that asking loads nothing."""


COMMANDS = (
    *(
        "init",
        "demo",
        "help",
        "append",
        "purge",
        "agent",
        "community",
        "issue",
        "control",
        "wp",
        "program",
        "log",
        "tail",
        "show",
    ),
    *("state", "diff", "why", "errors", "views", "snapshot", "copy", "export", "import", "git", "merge-driver"),
    *("verify", "doctor", "index", "dump", "segments", "schema", "pipeline", "consumers", "config", "completion"),
    *("bench", "upgrade", "checkpoint", "prove", "heads", "sync", "peers", "join"),
    *("keys", "forget", "conflicts", "serve", "tokens", "hooks", "mcp"),
)
"""The words after `everlog` that have a meaning. No other program can have one of them as its group."""


def load(name: str) -> Program:
    """Return the program of a name in TYPES."""
    found: Program = import_module(f"everlog.programs.{name}").PROGRAM
    return found


def built_in(word: str) -> str:
    """Return the name of the program of everlog that a word of the setting `programs` means, empty if none."""
    return word if word in TYPES else GROUPS.get(word, "")


def names(setting: str, name: str) -> bool:
    """Return whether the setting `programs` names a program of everlog."""
    return any(built_in(word.strip()) == name for word in setting.split(","))


def of_view(view: str) -> Program | None:
    """Return the program that a view's name begins with, if there is one."""
    name = view.partition(".")[0]
    return load(name) if name in TYPES else None

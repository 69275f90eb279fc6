"""Which community a command is about, and how what was done or found there is told."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import click

from everlog.cli.doing import by_of, tell
from everlog.cli.output import Answer, safe
from everlog.cli.session import Session

if TYPE_CHECKING:
    from everlog.domains.community.commands import Step
    from everlog.domains.deciding import By

scope_option = click.option("--scope", metavar="ID", default="", help="The community, if there are several.")


def meant(session: Session, given: dict[str, Any]) -> tuple[str, By]:
    """The community that a command is about, and on whose behalf it runs."""
    from everlog.domains.community import asking

    usual = session.settings().settings.scope
    community = asking.meant(session.log(), named=given["scope"], usual=usual)
    return community, by_of(session, **given)


def asked(session: Session, question: str, scope: str, *arguments: Any, **how: Any) -> Any:
    """What `asking` answers to a question about the community that is meant."""
    from everlog.domains.community import asking

    usual = session.settings().settings.scope
    community = asking.meant(session.log(), named=scope, usual=usual)
    question_of: Callable[..., Any] = getattr(asking, question)
    return question_of(session.log(), community, *arguments, **how)


def said(session: Session, step: Step, verb: str, what: str) -> None:
    """Tell what a step did."""
    facts = {what: step.name} if what == "community" else {what: step.name, "community": step.community}
    tell(session, step.done, f"{verb}  {safe(step.name)}", **facts)


def listed(
    session: Session,
    found: Sequence[dict[str, Any]],
    columns: Sequence[str],
    *,
    named: str = "",
    data: Any = None,
    empty: str = "",
) -> None:
    """A table of what was found."""
    session.out.answer(Answer.of_many(found, columns, named=named, data=data))
    if not found and empty:
        session.out.hint(empty)

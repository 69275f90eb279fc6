"""`everlog index`: the derived index of a log that keeps its events in text files."""

from __future__ import annotations

import click

from everlog.cli.output import Answer
from everlog.cli.session import Session, common_options, pass_session
from everlog.core.counted import counted


@click.group("index")
@common_options
def index_command() -> None:
    """The index of a JSONL log: rebuild.

    It is derived from the day files, and made anew by itself when it is missing, stale or damaged.

    \b
    Example:
      everlog index rebuild
    """


@index_command.command("rebuild")
@click.option(
    "--accept-missing",
    is_flag=True,
    help="Go on without events that were here and are in no file any more.",
)
@common_options
@pass_session
def rebuild_index(session: Session, accept_missing: bool) -> None:
    """Make the index from the day files, whatever it says now.

    Positions follow the order of the lines from then on, and cursors from before are reset.

    \b
    Example:
      everlog index rebuild
    """
    from everlog.errors import InvalidSettings
    from everlog.stores.contract import Indexed

    log = session.log()
    store: object = log.store
    if not isinstance(store, Indexed):
        raise InvalidSettings(
            "this log has no index of its own",
            why="only a jsonl: log keeps its events in files that are indexed beside",
            hint="there is nothing to rebuild here; everlog verify proves the log from its bytes",
        )
    events = store.rebuild_index(accept_missing=accept_missing)
    epoch = log.identity.epoch
    session.out.answer(
        Answer(
            data={"events": events, "epoch": epoch},
            ids=[epoch],
            rows=[(events, epoch)],
            lines=[f"made the index of {counted(events, 'event')}; cursors from before are reset"],
            facts={"events": events, "epoch": epoch},
        )
    )

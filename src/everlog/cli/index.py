"""`everlog index`: the derived index of a log that stores its events in text files."""

from __future__ import annotations

import click

from everlog.cli.output import Answer
from everlog.cli.session import Session, common_options, pass_session
from everlog.core.text import counted


@click.group("index")
@common_options
def index_command() -> None:
    """The index of a JSONL log: rebuild.

    It is derived from the day files, and is rebuilt automatically if it is missing, stale or damaged.

    \b
    Example:
      everlog index rebuild
    """


@index_command.command("rebuild")
@click.option(
    "--accept-missing",
    is_flag=True,
    help="Continue without events that were here before and are in no file now.",
)
@common_options
@pass_session
def rebuild_index(session: Session, accept_missing: bool) -> None:
    """Rebuild the index from the day files.

    From then on, positions follow the order of the lines, and existing cursors are reset.

    \b
    Example:
      everlog index rebuild
    """
    from everlog.errors import InvalidSettings
    from everlog.stores.contract import Indexed

    log = session.log()
    store: object = log.stored
    if not isinstance(store, Indexed):
        raise InvalidSettings(
            "this log has no index to rebuild",
            why="only a jsonl: log stores its events in text files with a separate index",
            hint="everlog verify checks this log from its bytes",
        )
    events = store.rebuild_index(accept_missing=accept_missing)
    epoch = log.identity.epoch
    session.out.answer(
        Answer(
            data={"events": events, "epoch": epoch},
            ids=[epoch],
            rows=[(events, epoch)],
            lines=[f"rebuilt the index of {counted(events, 'event')}; existing cursors are reset"],
            facts={"events": events, "epoch": epoch},
        )
    )

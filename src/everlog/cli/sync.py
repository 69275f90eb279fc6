"""`everlog sync`, `peers` and `join`: copies of one log that exchange events."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from everlog.cli.output import Answer, pairs, safe
from everlog.cli.session import Session, common_options, pass_session
from everlog.core.ids import AHEAD_MS_MAX
from everlog.core.text import counted

if TYPE_CHECKING:
    from everlog.errors import EverlogError
    from everlog.sync.exchange import Node, Synced

_COLUMNS = ("place", "sent", "received", "held", "rejected", "equal", "error")


@click.command("sync")
@click.argument("place", metavar="[URL|FILE|FOLDER]", required=False)
@click.option("--watch", is_flag=True, help="Sync with all peers again and again, until Ctrl-C.")
@click.option("--listen", "address", metavar="HOST:PORT", help="Answer peers at this address, until Ctrl-C.")
@click.option("--open", "open_to_all", is_flag=True, help="With --listen: answer everybody, also unsigned requests.")
@click.option("--again", is_flag=True, help="Record once more what peers refused because of this machine's clock.")
@common_options
@pass_session
def sync_command(
    session: Session, place: str | None, watch: bool, address: str | None, open_to_all: bool, again: bool
) -> None:
    """Exchange events with a copy of this log, until both have the same.

    The place is the URL of a peer, a file that you carry to the other side and back, a folder that several nodes
    share, or the folder of another copy. Without a place, it is every peer (see everlog peers). It can be stopped at
    any time: the next sync continues where this one ended.

    Columns when piped: place, sent, received, held, rejected, equal, error.

    \b
    Examples:
      everlog sync http://192.168.0.7:7474
      everlog sync /media/stick/notes.sync
      everlog sync --watch --listen 0.0.0.0:7474
    """
    from everlog.application.sync.node import follow_forgets, node_of
    from everlog.application.sync.places import sync_with

    if (watch or address) and (place or again):
        raise click.UsageError("--watch and --listen concern all peers; a place or --again is one sync")
    if open_to_all and not address:
        raise click.UsageError("--open belongs to --listen")
    if watch or address:
        _stay(session, watch, address, open_to_all)
        return
    node = node_of(session.log(), session.location)
    follow_forgets(node.log, session.location)  # those that an earlier sync could not
    if place is None:
        _all_peers(session, node, again)
        return
    done = sync_with(node, place, base=session.directory)
    if again and _again(session, node, [done]):
        done = sync_with(node, place, base=session.directory)
    _answer(session, {place: done})


@click.command("join")
@click.argument("url", metavar="URL")
@click.argument("directory", required=False, type=click.Path(path_type=Path, file_okay=False))
@click.option("--store", metavar="URL", default="sqlite:log.db", help="Where the events are stored, as in init.")
@click.option("--authors", metavar="KEYS", default="", help="Whose events count: the setting authors of the new log.")
@click.option(
    "--quorum", type=click.IntRange(0), default=0, help="How many of these keys must sign a snapshot (0: a majority)."
)
@common_options
@pass_session
def join_command(session: Session, url: str, directory: Path | None, store: str, authors: str, quorum: int) -> None:
    """Make a copy of the log of a peer in DIRECTORY, or in the current directory, with a new key.

    If the peer does not know the key, the command prints it: type everlog peers add KEY on the peer, and join again.

    With keys in --authors, views begin with the snapshots of the peer that a quorum of these keys has signed (see
    everlog snapshot share). Some keys of each are then derived again from the events.

    \b
    Examples:
      everlog join http://192.168.0.7:7474
      everlog join http://192.168.0.7:7474 --authors z6MkhaXg…,z6MktwuP…,z6MkqRTh…
    """
    from everlog.application.sync.join import join

    if session.url:
        raise click.UsageError("join creates a folder with a log in it; give --store URL instead of --log")
    at = (session.directory / (directory or Path())).resolve()
    created, done, used = join(url, at, store=store, authors=authors, quorum=quorum, warn=session.out.warn)
    facts = {
        "folder": str(created.folder),
        "log_id": created.log_id,
        "origin": created.origin,
        "received": done.received_count,
        "equal": done.equal,
        "snapshots": [one.view for one in used if one.ok],
    }
    line = f"joined the log {created.log_id} in {created.folder}: {counted(done.received_count, 'event')}"
    lines = [line]
    for one in used:
        signed = f"signed by {counted(len(one.signed_by), 'pinned key')}"
        checked = f"{counted(one.replayed, 'key')} derived again: {'ok' if one.ok else 'wrong, and not used'}"
        lines.append(f"began with a snapshot of {one.view}: {counted(one.keys, 'key')}, {signed}; {checked}")
    session.out.answer(Answer.of_row(created.log_id, facts, lines=[safe(line) for line in lines]))
    session.out.hint("next: everlog log   everlog sync   everlog sync --watch")


@click.group("peers")
@common_options
def peers_command() -> None:
    """The nodes that this log syncs with, or answers: add, remove, list.

    \b
    Example:
      everlog peers add http://192.168.0.7:7474
    """


@peers_command.command("add")
@click.argument("name", metavar="URL|KEY")
@click.option(
    "--node", "key", metavar="KEY", default="", help="The key of the node at this URL; else it names its key itself."
)
@common_options
@pass_session
def add_command(session: Session, name: str, key: str) -> None:
    """Add a node by its URL, to sync with it, or by its key, to answer it.

    \b
    Examples:
      everlog peers add http://192.168.0.7:7474
      everlog peers add z6MkhaXgBZDvotDkL5257faiztiGiC2QtKLGpbnnEGta2doK
    """
    from everlog.application.sync.peers import add_peer

    peer = add_peer(session.log(), name, key=key)
    session.out.answer(
        Answer.of_row(peer.name, {"url": peer.url, "key": peer.key}, lines=[f"added {safe(peer.name)}"])
    )


@peers_command.command("remove")
@click.argument("name", metavar="URL|KEY")
@common_options
@pass_session
def remove_command(session: Session, name: str) -> None:
    """Remove a node by its URL or its key. What it has sent stays.

    \b
    Example:
      everlog peers remove http://192.168.0.7:7474
    """
    from everlog.application.sync.peers import remove_peer

    peer = remove_peer(session.log(), name)
    session.out.answer(
        Answer.of_row(peer.name, {"url": peer.url, "key": peer.key}, lines=[f"removed {safe(peer.name)}"])
    )


@peers_command.command("list")
@common_options
@pass_session
def list_command(session: Session) -> None:
    """List the peers, and how the last sync with each one went.

    Columns when piped: url, key, last, at. `last` is equal, different, or the code of an error.

    \b
    Example:
      everlog peers list
    """
    from everlog.application.sync.peers import Peer, peers_of

    found = peers_of(session.log())
    data = [{name: getattr(peer, name) for name in Peer.columns} for peer in found]
    session.out.answer(Answer.of_many(found, Peer.columns, ids=[peer.name for peer in found], data=data))
    if not found:
        session.out.hint("there are no peers; everlog peers add http://HOST:PORT")


# ---- one sync, and many


def _all_peers(session: Session, node: Node, again: bool) -> None:
    from everlog.application.sync.peers import peers_of
    from everlog.application.sync.places import sync_with_url
    from everlog.application.sync.watch import sync_with_all
    from everlog.errors import EverlogError, NotFound

    peers = [peer for peer in peers_of(node.log) if peer.url]
    if not peers:
        raise NotFound("this log has no peers", hint="everlog sync URL, or everlog peers add URL")

    def sync(url: str) -> Synced:
        return sync_with_url(node, url)

    found = sync_with_all(peers, sync)
    if again and _again(session, node, [done for done in found.values() if not isinstance(done, EverlogError)]):
        found = sync_with_all(peers, sync)
    _answer(session, found)
    failed = [done for done in found.values() if isinstance(done, EverlogError)]
    if len(failed) == len(found):
        raise failed[0]


def _again(session: Session, node: Node, synced: list[Synced]) -> bool:
    """Record once more what peers refused for its time, if the clock of this machine agrees with them."""
    from everlog.application.sync.again import record_again

    done = record_again(node.log, [one for each in synced for one in each.rejected])
    if done.recorded:
        session.out.hint(f"recorded once more: {counted(done.recorded, 'event')}")
    elif done.doubted:
        session.out.warn(
            f"nothing was recorded once more: a peer refuses {counted(done.doubted, 'event')} as too far ahead, and"
            " by the clock of this machine they are not; if this clock is wrong, correct it; else the peer's is"
        )
    return bool(done.recorded)


def _answer(session: Session, found: dict[str, Any]) -> None:
    rows = [_row(place, done) for place, done in found.items()]
    lines = [_line(row) for row in rows]
    facts = {"count": len(rows), "equal": all(row["equal"] for row in rows)}
    reasons = [one for done in found.values() for one in getattr(done, "rejected", ())]
    data = [{**row, "rejected_reasons": _reasons(found[row["place"]])} for row in rows]
    session.out.answer(Answer.of_many(rows, _COLUMNS, lines=lines, facts=facts, data=data))
    for place, done in found.items():
        if getattr(done, "clock_ahead_ms", 0) > AHEAD_MS_MAX:
            session.out.warn(
                f"the clock of this machine is {done.clock_ahead_ms // 3_600_000} hours ahead of that of {place},"
                " which refuses events that are more than 24 hours ahead: correct it before you record more"
            )
    for one in reasons:
        if one.reason == "event_too_large":
            session.out.warn(f"event {one.event_id} is larger than a message of a sync, and is not exchanged")
    if any(one.reason == "clock_too_far" for one in reasons):
        session.out.hint(
            "a clock is ahead: correct it, then everlog sync --again records the refused events once more"
        )
    elif reasons:
        session.out.hint("everlog errors shows what was refused here, and why")


def _row(place: str, done: Synced | EverlogError) -> dict[str, Any]:
    from everlog.errors import EverlogError

    if isinstance(done, EverlogError):
        nothing = dict.fromkeys(("sent", "received", "held", "rejected"), 0)
        return {"place": place, **nothing, "equal": False, "error": done.code}
    return {
        "place": place,
        "sent": done.sent_count,
        "received": done.received_count,
        "held": done.held,
        "rejected": sum(not one.held for one in done.rejected),
        "equal": done.equal,
        "error": "",
    }


def _reasons(done: Any) -> list[dict[str, Any]]:
    import msgspec

    return [msgspec.to_builtins(one) for one in getattr(done, "rejected", ())]


def _line(row: dict[str, Any]) -> str:
    if row["error"]:
        return safe(f"{row['place']}: {row['error']}")
    text = f"{row['place']}: sent {row['sent']}, received {row['received']}"
    text += f", held {row['held']}" if row["held"] else ""
    text += f", rejected {row['rejected']}" if row["rejected"] else ""
    return safe(text + (", equal" if row["equal"] else ", not equal yet"))


# ---- until Ctrl-C


def _stay(session: Session, watch: bool, address: str | None, open_to_all: bool) -> None:
    """Listen and watch until the command is interrupted."""
    import threading

    from everlog.application.sync.forgets import Follower
    from everlog.application.sync.node import node_of
    from everlog.application.sync.peers import peers_of
    from everlog.application.sync.places import sync_with_url
    from everlog.application.sync.watch import Watch
    from everlog.application.trust.owned_bytes import owned_by

    location, log = session.location, session.log()
    follower = Follower(log, lambda: owned_by(location))
    node = node_of(log, location, on_forgotten=follower.wake)
    if location.settings().settings.follow_forgets:
        follower.wake()  # for those that an earlier sync could not
    listener = None
    if address:
        from everlog.application.sync.listen import listen

        listener = listen(node, address, open_to_all=open_to_all)
        session.out.note(f"listening at {listener.url}")
    lock = threading.Lock()

    def report(url: str, done: Synced | EverlogError) -> None:
        row = _row(url, done)
        with lock:
            if session.out.json:
                session.out.json_line(row)
            else:
                session.out.line(pairs(row) if session.out.agent else _line(row))
            sys.stdout.flush()

    def sync(url: str) -> Synced:
        return sync_with_url(node, url)

    def emergency() -> bool:
        return session.settings().settings.emergency

    watching = Watch(lambda: peers_of(node.log), sync, report, emergency)
    try:
        if watch:
            watching.run()
        else:
            threading.Event().wait()
    finally:
        watching.stop()
        if listener is not None:
            listener.close()
        follower.close()

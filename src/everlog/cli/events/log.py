"""`everlog log` and `everlog tail`: the newest events, a page, all events, or new events as they arrive."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from everlog.cli.session import Session, common_options, missing_ok_option, pass_session, past_damage_option, together
from everlog.cli.time_options import TIME_OR_POSITION

if TYPE_CHECKING:
    from everlog.application.events.purged_ranges import PurgedRange
    from everlog.application.folder.open import AnyLog
    from everlog.core.event import Purge, Recorded
    from everlog.core.query import Cursor, Page, Query, Reset

NEWEST = 20
NEWEST_TAIL = 10
PAGE = 500
PAGE_MAX = 10_000


filter_options = together(
    click.option(
        "--since",
        type=TIME_OR_POSITION,
        metavar="WHEN",
        help="Only events from this time or position on: 10m, 2h, 2026-11-01, #1234.",
    ),
    click.option(
        "--until",
        type=TIME_OR_POSITION,
        metavar="WHEN",
        help="Only events before this time, or up to this #position.",
    ),
    click.option("--type", "types", metavar="TYPE", multiple=True, help="Only events of this type; may be repeated."),
    click.option("-s", "--stream", metavar="KIND/ID", default="", help="Only events of this stream."),
    click.option("--kind", metavar="KIND", default="", help="Only events of streams of this kind."),
    click.option("--scope", metavar="PATH", default="", help="Only events in this scope or below it."),
    click.option("--by", metavar="ACTOR", default="", help="Only events of this actor, such as user:ada."),
    click.option("--correlation", metavar="ID", default="", help="Only events with this correlation id."),
)


@click.command("log")
@click.option(
    "-n",
    "count",
    type=click.IntRange(min=1),
    metavar="N",
    help=f"Show the newest N (default: 20, or all with --since); with --after, the next N (default: {PAGE}).",
)
@click.option("--reverse", is_flag=True, help="Show the newest first.")
@click.option("-f", "--follow", is_flag=True, help="Continue with new events, until Ctrl-C.")
@click.option(
    "--after", metavar="CURSOR", help="Show a page after this cursor: a position, or the next cursor of a page."
)
@click.option("--limit", type=click.IntRange(1, PAGE_MAX), metavar="N", help="The same as -n with --after.")
@click.option(
    "--wait",
    type=click.FloatRange(0, 3_600),
    metavar="SECONDS",
    help="Of a page: wait this long for a first event, if there is none yet.",
)
@click.option("--to-end", is_flag=True, help="Show all events up to the head, then stop.")
@click.option("--purges", is_flag=True, help="Show the records of purges instead of events.")
@filter_options
@missing_ok_option
@past_damage_option
@common_options
@pass_session
def log_command(
    session: Session,
    count: int | None,
    reverse: bool,
    follow: bool,
    after: str | None,
    limit: int | None,
    wait: float | None,
    to_end: bool,
    purges: bool,
    since: datetime | int | None,
    until: datetime | int | None,
    **filters: Any,
) -> None:
    """Show events, the newest last.

    The time shown is when the event happened; --since and --until compare when it was recorded. Times are UTC.

    On a terminal, purged positions are shown too; programs use --purges.

    Columns when piped: position, occurred_at, id, type, stream, sequence, actor, scope, payload. With --follow or
    --to-end, --json prints one event per line.

    The hashes of up to 1,000 events are computed again, and a warning names events that differ from what was recorded
    and, without a filter, events that are missing. More events, --follow and --to-end are not checked: use everlog
    verify.

    \b
    Examples:
      everlog log -n 5
      everlog log --since 2h --type workpackage.moved --by agent:builder
      everlog log --after 0 -n 100 --json
      everlog log --after 4711 --wait 30 --json
      everlog log --stream workpackage/WP03 --to-end
    """
    if reverse and (follow or to_end or after is not None):
        raise click.UsageError("--reverse is for the newest events; pages and streams go forward")
    if wait is not None and (after is None or follow or to_end):
        raise click.UsageError("--wait is for a page: give --after, without --follow or --to-end")
    if limit is not None and (after is None or count is not None):
        raise click.UsageError("--limit is the size of a page: give --after, and not -n too")
    if count is not None and after is not None and (follow or to_end or count > PAGE_MAX):
        raise click.UsageError(
            f"-n is the size of a page after a cursor: at most {PAGE_MAX}, no --follow or --to-end"
        )
    if until is not None and (follow or to_end) and not isinstance(until, datetime):
        raise click.UsageError("--until #N cannot be combined with --follow or --to-end")
    if purges:
        from everlog.cli.events.purge import show_purges

        show_purges(session, session.log())
        return
    listing = _Listing(session, session.any_log(), since, until, filters)
    if after is not None and not (follow or to_end):
        listing.page(after, count or limit or PAGE, wait or 0.0)
    elif to_end:
        listing.stream(after if after is not None else listing.after, to_end=True)
    elif follow and after is not None:
        listing.stream(after, to_end=False)
    elif follow:
        listing.newest_then_follow(count or NEWEST)
    else:
        listing.newest(count if count or since is not None or until is not None else NEWEST, reverse=reverse)


@click.command("tail")
@click.option(
    "-n",
    "count",
    type=click.IntRange(min=0),
    metavar="N",
    help=f"Start with the newest N (default: {NEWEST_TAIL}).",
)
@click.option("--after", metavar="CURSOR", help="Start after this cursor instead: with every event that came since.")
@click.option("-f", "--follow/--no-follow", default=True, help="Wait for more (the default), or stop.")
@filter_options
@missing_ok_option
@past_damage_option
@common_options
@pass_session
def tail_command(
    session: Session,
    count: int | None,
    after: str | None,
    follow: bool,
    since: datetime | int | None,
    until: datetime | int | None,
    **filters: Any,
) -> None:
    """Show the newest events and wait for more, until Ctrl-C.

    \b
    Examples:
      everlog tail
      everlog tail -n 0 --kind workpackage --json
      everlog tail --after 4711 --json
      everlog tail --no-follow
    """
    if count is not None and after is not None:
        raise click.UsageError("-n shows the newest events, --after those after a cursor: give one of them")
    listing = _Listing(session, session.any_log(), since, until, filters)
    count = NEWEST_TAIL if count is None else count
    if after is not None:
        listing.stream(after, to_end=not follow)
    elif follow:
        listing.newest_then_follow(count)
    elif count:
        listing.newest(count, reverse=False)


class _Listing:
    def __init__(
        self,
        session: Session,
        log: AnyLog,
        since: datetime | int | None,
        until: datetime | int | None,
        filters: dict[str, Any],
    ) -> None:
        from everlog.application.checks.problems import bad_lines
        from everlog.log.log import Log

        self._session = session
        self._out = session.out
        self._log = log
        # What is stored is checked, and what purges left of it is shown, where the log is.
        self._here = log if isinstance(log, Log) else None
        self.after = since - 1 if isinstance(since, int) and since > 0 else 0
        self._upto = until if isinstance(until, int) else None
        self._query = query_of(since, until, filters)
        _warn_of_unknown_types(session, log, self._query)
        if self._here is not None:
            session.out.warn(bad_lines(self._here))

    def newest(self, count: int | None, *, reverse: bool) -> None:
        from everlog.cli.events.records import answer_records

        # The head is read first, so that no event recorded from now on is missed.
        head = self._log.head()
        upto = head if self._upto is None else min(head, self._upto)
        found = self._newest(count, self._upto)
        whole = count is None or len(found) < count
        after = self.after if whole else found[-1].position - 1
        self._look_at(found, after=after, upto=upto)
        if not reverse:
            found.reverse()
        shown = self._with_purges(found, after=after, upto=upto, newest_first=reverse)
        answer_records(self._out, found, facts={"head": self._log.head()}, shown=shown)
        if not found:
            self._out.hint(self._nothing())

    def _nothing(self) -> str:
        """Return why nothing is shown; a name of a stream that is nearly right would look like an empty log."""
        if not self._log.head():
            return "the log has no events yet: everlog help append"
        if not self._query.stream:
            return "no events match"
        from everlog.application.events.time_travel import near_stream

        meant = near_stream(self._log, self._query.stream)
        return f"no events match{'; ' + meant if meant else ''}"

    def page(self, after: str, limit: int, wait_s: float) -> None:
        from everlog.cli.events.records import answer_records
        from everlog.core.query import Cursor

        cursor = Cursor.of(after)
        if self.after > cursor.position:
            cursor = Cursor.of(self.after)
        page = self._page(cursor, limit, wait_s)
        found = [item for item in page.events if self._upto is None or item.position <= self._upto]
        cut = len(found) < len(page.events)
        shown: list[Recorded | Purge | PurgedRange] = [*found]
        if page.reset is None:
            upto = min(page.next_cursor.position, self._upto or page.head)
            self._look_at(found, after=cursor.position, upto=upto)
            shown = self._with_purges(found, after=cursor.position, upto=upto)
        following = {
            "cursor": str(page.next_cursor),
            "at_head": page.at_head or cut,
            "head": page.head,
            "reset_required": None if page.reset is None else page.reset.reason,
        }
        facts = {"next": following["cursor"], **following, "cursor": None}
        answer_records(self._out, found, facts=facts, next=following, shown=shown)
        if page.reset is not None:
            self._out.warn(_reset_text(page.reset))
        if self._query.since is not None and found:
            self._out.hint(f"the first event at or after that time is #{found[0].position}")
        if page.reset is None and len(page.events) < limit and not (page.at_head or cut):
            self._raise_what_ended(page)
        state = "that is all for now" if page.at_head else "there is more"
        self._out.hint(f"{state}; next: {_again(self._session.argv, page.next_cursor, limit)}")

    def _page(self, cursor: Cursor, limit: int, wait_s: float) -> Page:
        """Return the page after a cursor. If there is nothing yet, wait that long until something is there."""
        import time

        ends = time.monotonic() + wait_s
        page = self._log.page_after(cursor, self._query, limit=limit)
        while wait_s and not page.events and page.reset is None:
            if page.at_head:
                found = self._log.subscribe(page.next_cursor, self._query, stop=lambda: time.monotonic() >= ends)
                if next(found, None) is None:
                    break
            page = self._log.page_after(page.next_cursor, self._query, limit=limit)
        return page

    def _raise_what_ended(self, page: Page) -> None:
        """Raise now what the next page would: a page that is neither full nor at the head ends before damage."""
        from contextlib import suppress

        from everlog.errors import SchemaBroken

        with suppress(SchemaBroken):
            self._log.page_after(page.next_cursor, self._query, limit=1)

    def newest_then_follow(self, count: int) -> None:
        from everlog.cli.events.records import Lines, print_record
        from everlog.core.query import Cursor

        # The head is read first: events recorded from now on belong to the stream, and none is lost in between.
        head = self._log.head()
        found = self._newest(count, head) if count else []
        after = found[-1].position - 1 if found else head
        shown = self._with_purges(found[::-1], after=after, upto=head)
        lines = Lines(self._out, shown)
        for item in shown:
            print_record(self._out, item, lines)
        epoch = "" if self._here is None else self._here.identity.epoch
        self._follow(Cursor(head, epoch=epoch), lines, to_end=False)

    def stream(self, after: str | int, *, to_end: bool) -> None:
        from everlog.cli.events.records import Lines
        from everlog.core.query import Cursor

        cursor = Cursor.of(after)
        self._follow(cursor, Lines(self._out), to_end=to_end)

    def _follow(self, cursor: Cursor, lines: Any, *, to_end: bool) -> None:
        import sys

        from everlog.cli.events.records import print_record, print_reset
        from everlog.core.event import Recorded

        purges = self._purges_after(cursor)
        sys.stdout.flush()
        for item in self._log.subscribe(cursor, self._query, to_end=to_end):
            if isinstance(item, Recorded):
                if item.position > self.after:
                    while purges and purges[0].reserved < item.position:
                        print_record(self._out, purges.pop(0), lines)
                    print_record(self._out, item, lines)
            else:
                print_reset(self._out, item, _reset_text(item))
            if not to_end:
                sys.stdout.flush()
        for purge in purges:
            print_record(self._out, purge, lines)

    def _purges_after(self, cursor: Cursor) -> list[Purge]:
        """Return the records of purges that people see between the events of a stream."""
        if not self._out.human or self._here is None:
            return []
        from everlog.application.events.purged_ranges import matching_purges

        after = max(cursor.position, self.after)
        return matching_purges(self._here, self._query, after=after, upto=self._log.head())

    def _look_at(self, found: Sequence[Recorded], *, after: int, upto: int) -> None:
        """Warn if these events differ from what was recorded. Many events are not checked: they are read in bulk."""
        if self._here is None:
            return
        from everlog.application.checks.problems import not_as_recorded
        from everlog.core.event import Position
        from everlog.core.query import EVERYTHING
        from everlog.log.verify.spot_check import PLACES_MAX, spot_check

        places = upto - after if self._query == EVERYTHING else len(found)
        if 0 < places <= PLACES_MAX:
            found_wrong = spot_check(self._here.stored, self._query, after=Position(after), upto=Position(upto))
            self._out.warn(not_as_recorded(found_wrong))

    def _with_purges(
        self, found: Sequence[Recorded], *, after: int, upto: int, newest_first: bool = False
    ) -> list[Recorded | Purge | PurgedRange]:
        """Return the events with what purges left between them, for people. Programs see only events."""
        if not self._out.human or self._here is None:
            return [*found]
        from everlog.application.events.purged_ranges import position_of, purged_ranges

        left = purged_ranges(self._here, self._query, after=after, upto=upto)
        return sorted([*found, *left], key=position_of, reverse=newest_first)

    def _newest(self, count: int | None, upto: int | None) -> list[Recorded]:
        found: Iterator[Recorded] = self._log.read(
            self._query, after=self.after, upto=upto, limit=count, newest_first=True
        )
        return list(found)


def query_of(since: datetime | int | None, until: datetime | int | None, filters: dict[str, Any]) -> Query:
    from everlog.core.fields import require_shape
    from everlog.core.query import Query

    for field, value in (("stream", filters["stream"]), ("actor", filters["by"]), ("scope", filters["scope"])):
        if value:
            require_shape(field, value)
    return Query(
        types=frozenset(filters["types"]),
        stream=filters["stream"],
        kind=filters["kind"],
        scope=filters["scope"],
        actor=filters["by"],
        correlation_id=filters["correlation"],
        since=since if isinstance(since, datetime) else None,
        until=until if isinstance(until, datetime) else None,
    )


def _warn_of_unknown_types(session: Session, log: AnyLog, query: Query) -> None:
    """Warn about a misspelt type, which would look like an empty log."""
    from everlog.core.query import Query
    from everlog.core.text import did_you_mean

    for name in sorted(query.types):
        if log.catalog.knows(name) or next(log.read(Query(types=frozenset([name])), limit=1), None) is not None:
            continue
        meant = did_you_mean(name, [info.type for info in log.catalog.types(lent=True)])
        session.out.warn(f"no event of type {name} is in the log or in its catalog; {meant or 'everlog schema list'}")


def _again(argv: list[str], cursor: Cursor, limit: int) -> str:
    """Return the command of this run with another cursor and the same filters."""
    import shlex

    kept, skip = [], False
    for word in argv:
        if skip:
            skip = False
        elif word in ("--after", "--limit", "-n"):
            skip = True
        elif not word.startswith(("--after=", "--limit=", "-n")):
            kept.append(word)
    return f"everlog {shlex.join(kept)} --after {cursor} -n {limit}"


def _reset_text(reset: Reset) -> str:
    if reset.reason == "purged":
        why = "events before this position were purged, and you may have read them"
    else:
        why = "the log ends before this cursor, or is another copy, such as an older one"
    return (
        f"reset required: {why}. Rebuild what you derived from the start (everlog log --after 0 --to-end);"
        f" then continue after {reset.cursor}"
    )

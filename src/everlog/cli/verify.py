"""`everlog verify`: read every byte again, compute every hash again, account for every number."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from everlog.cli.output import Answer, Output, safe
from everlog.cli.session import Session, common_options, missing_ok_option, pass_session
from everlog.core.counted import counted

if TYPE_CHECKING:
    from everlog.log.log import Log
    from everlog.log.verify import Report
    from everlog.stores.contract import Problem

EXIT_DAMAGED = 8
LINES_MAX = 10
"""So many lines about problems, however many there are; with what is around them, less than 20."""

RESTORE = "keep this file as it is; restore a backup, or save what is left: everlog export left.jsonl --past-damage"
MENDED = "no event is lost, and the next write puts it right"
HARMLESS = {
    "conflict_marker": "delete the conflict markers, and no other line: both sides are events and both stay;"
    " then: everlog verify",
    "crlf": "everlog git install, so that git leaves the line ends alone; then take the carriage returns out:"
    " sed -i 's/\\r$//' .everlog/events/*.jsonl",
    "mark_lost": MENDED,
    "manifest_damaged": MENDED,
}
"""Problems with which nothing is lost, and what to do about them."""


@click.command("verify")
@missing_ok_option
@common_options
@pass_session
def verify_command(session: Session) -> None:
    """Prove the log from its bytes.

    Every position is accounted for, every hash computed again, every chain followed. The digest is over all events in
    order: equal logs have equal digests. It may run beside writers: it proves the log up to the head of the moment it
    begins. Exits 8 if anything is wrong; many problems of a kind are one line, and --json lists them all.

    The role of a tenant in PostgreSQL proves the events that it may see; `unseen` counts the other positions.

    \b
    Examples:
      everlog verify
      everlog verify --json
    """
    import time

    from everlog.cli.progress import progress

    log = session.log()
    out = session.out
    started = time.monotonic()
    with not_sent_back(), progress(out, "verifying", log.head()) as tell:
        report = log.verify(progress=tell)
    more = {"unseen": report.unseen} if report.unseen else None
    answer_report(out, report, took_s=time.monotonic() - started, more=more, of=_events_of(log))


def _events_of(log: Log) -> dict[str, Any] | None:
    """Which events were verified, if git decides that."""
    from everlog.stores.contract import InGit

    found = log.store.checkout() if isinstance(log.store, InGit) else None
    return None if found is None else {**found._asdict(), "epoch": log.identity.epoch}


@contextmanager
def not_sent_back() -> Iterator[None]:
    """A log that cannot be read to its end is no reason to be sent to `verify` again."""
    from everlog.errors import Damaged

    try:
        yield
    except Damaged as error:
        hint = RESTORE if error.hint.startswith("everlog verify") else error.hint
        raise Damaged(error.what, why=error.why, hint=hint, **error.details) from error


def answer_report(
    out: Output,
    report: Report,
    *,
    took_s: float,
    more: Mapping[str, Any] | None = None,
    of: Mapping[str, Any] | None = None,
) -> None:
    """Print a report, and exit 8 if anything is wrong. `more` is what another prover knows beside it, and `of` says
    which branch of git the events are those of."""
    import msgspec

    checked_out = ""
    if of is not None:
        checked_out = f"{of['branch'] or 'no branch'} at {of['commit'][:12] or 'no commit'}, epoch {of['epoch']}"

    facts = {
        "ok": report.ok,
        "events": report.events,
        **({"events_of": checked_out} if checked_out else {}),
        "purged": report.purged,
        "head": report.head,
        "digest": report.digest,
        "problems": len(report.problems) + report.unlisted,
        **(more or {}),
    }
    lines = [
        f"events    {report.events:,}",
        *([f"events of {checked_out}"] if checked_out else []),
        f"purged    {report.purged:,}",
        f"head      #{report.head}",
        f"digest    {report.digest}",
        *(f"{name:<9} {value}" for name, value in (more or {}).items()),
        f"problems  {facts['problems'] or 'none'}",
    ]
    summary = summarised(report)
    lines += [
        f"  {out.paint(item.place, 'red')}{' ' if item.place else ''}{out.paint(item.code, 'red')}{safe(item.words)}"
        for item in summary
    ]
    lines.append(out.paint("ok", "green") if report.ok else out.paint("NOT OK", "red"))
    problems = [msgspec.to_builtins(problem) for problem in report.problems]
    out.answer(
        Answer(
            data={
                **facts,
                **({"events_of": dict(of)} if of else {}),
                "problems": problems,
                "took_s": round(took_s, 3),
            },
            ids=[report.digest],
            columns=("position", "code", "reason") if out.agent else (),
            rows=[(item.position, item.code, item.place_and_reason) for item in summary]
            if out.agent
            else [*facts.items(), *(("problem", item.line) for item in summary)],
            lines=lines,
            facts=facts,
        )
    )
    if not report.ok:
        out.hint(way_on(report.problems))
        raise click.exceptions.Exit(EXIT_DAMAGED)


class Item(NamedTuple):
    """A line about one problem, or about many of a kind."""

    position: int
    place: str
    code: str
    words: str

    @property
    def line(self) -> str:
        return f"{self.place}{' ' if self.place else ''}{self.code}{self.words}"

    @property
    def place_and_reason(self) -> str:
        reason = self.words.removeprefix(": ")
        return f"{self.place} {reason}" if " " in self.place else reason


def summarised(report: Report) -> list[Item]:
    """Every problem on a line; or if that would be too many, every kind of problem, with the positions and files."""
    problems = report.problems
    if len(problems) + bool(report.unlisted) <= LINES_MAX:
        items = [_item(problem) for problem in problems]
    else:
        groups: dict[tuple[str, str], list[Problem]] = {}
        for by_file in (True, False):
            groups.clear()
            for problem in problems:
                groups.setdefault((problem.code, problem.file if by_file else ""), []).append(problem)
            if len(groups) < LINES_MAX:
                break
        items = [_items(group) for group in groups.values()][: LINES_MAX - 1]
        left = len(problems) - sum(len(group) for group in list(groups.values())[: LINES_MAX - 1])
        if left:
            items.append(
                Item(0, "", "more", f": {counted(left, 'problem')} of other kinds; see everlog verify --json")
            )
    if report.unlisted:
        items.append(Item(0, "", "more", f": {counted(report.unlisted, 'problem')} beyond those that are listed"))
    return items


def told(problem: Problem) -> str:
    """A problem on a line. One without a position is of a file or of the store, and its reason says which."""
    return _item(problem).line


def _item(problem: Problem) -> Item:
    inside = f" in {problem.file}" if problem.file and problem.file not in problem.reason else ""
    return Item(problem.position, _range(problem), problem.code, f"{inside}: {problem.reason}")


def _items(group: list[Problem]) -> Item:
    """Many problems of one kind: how many, where, and what is wrong with the first."""
    first = group[0]
    if len(group) == 1:
        return _item(first)
    import msgspec

    from everlog.log.verify import in_ranges

    places = list(in_ranges(msgspec.structs.replace(each, reason="", file="") for each in group if each.position))
    positions = sum(each.last - each.position + 1 for each in places)
    where = f"{_range(places[0])} … #{places[-1].last}" if len(places) > 1 else _range(places[0]) if places else ""
    files = list(dict.fromkeys(each.file for each in group if each.file))
    inside = f" in {files[0]}" if files else ""
    if len(files) > 1:
        inside += f" and {counted(len(files) - 1, 'more file', 'more files')}"
    many = counted(positions, "position") if positions else counted(len(group), "problem")
    return Item(first.position, where, first.code, f"{inside}, {many}; the first: {first.reason}")


def _range(problem: Problem) -> str:
    if not problem.position:
        return ""
    return f"#{problem.position}" + (f" to #{problem.last}" if problem.last > problem.position else "")


def way_on(problems: Iterable[Problem]) -> str:
    """What to do about damage: for some of it nothing is lost, and no backup needed."""
    codes = {problem.code for problem in problems}
    ways = [way for code, way in HARMLESS.items() if code in codes]
    if codes - HARMLESS.keys():
        ways.append(f"for the rest: {RESTORE}" if ways else RESTORE)
    return "; ".join(dict.fromkeys(ways))

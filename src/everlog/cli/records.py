"""Events as rows, lines and facts: one look for `log`, `tail`, `append`, `show` and the demo."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from everlog.cli.output import Answer, Output, json_text, safe, tsv
from everlog.cli.purged_places import Hole
from everlog.core.codec import recorded_object
from everlog.core.counted import counted
from everlog.core.event import Purge, Recorded
from everlog.stores.contract import Problem

TSV_COLUMNS = ("position", "occurred_at", "id", "type", "stream", "sequence", "actor", "scope", "payload")
PAYLOAD_CELLS_MIN = 48
"""On a narrow terminal a line rather wraps than hide what the event says."""
PROBLEMS_TOLD = 3


def moment(value: datetime) -> str:
    """A time for people: UTC, to the second."""
    return value.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%SZ")


def row(recorded: Recorded) -> tuple[Any, ...]:
    event = recorded.event
    when = event.occurred_at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return (
        recorded.position,
        when,
        event.id,
        event.type,
        event.stream,
        recorded.sequence,
        event.actor,
        event.scope,
        event.payload,
    )


class Lines:
    """Events as aligned lines. Widths are taken from the first ones and only grow, so that a tail stays readable."""

    def __init__(self, out: Output, first: Iterable[Recorded | Purge | Hole] = ()) -> None:
        self._out = out
        self._widths = [0] * 5
        for item in first:
            self._fit(_texts(item))

    def line(self, item: Recorded | Purge | Hole) -> str:
        texts = _texts(item)
        self._fit(texts)
        texts[0] = texts[0].rjust(self._widths[0])
        if isinstance(item, Hole):
            to = f"to #{item.last}: " if item.last > item.first else ""
            return self._out.dim(f"{texts[0]}  {to}purged, see #{item.reserved}")
        plain = self._out.aligned([*texts, _said(item)], [*self._widths, 0], last_min=PAYLOAD_CELLS_MIN)
        if isinstance(item, Purge):
            return self._out.dim(plain)
        return plain.replace(item.event.type, self._out.paint(item.event.type, "cyan"), 1)

    def _fit(self, texts: Sequence[str]) -> None:
        self._widths = [max(width, len(text)) for width, text in zip(self._widths, texts, strict=True)]


def _texts(item: Recorded | Purge | Hole) -> list[str]:
    if isinstance(item, Hole):
        return [f"#{item.first}", "", "", "", ""]
    if isinstance(item, Purge):
        return [f"#{item.reserved}", _short(item.purged_at), item.actor, "purged", item.stream]
    event = item.event
    return [
        f"#{item.position}",
        _short(event.occurred_at),
        event.actor,
        event.type,
        f"{event.stream}:{item.sequence}",
    ]


def _short(when: datetime) -> str:
    return when.astimezone(UTC).strftime("%m-%d %H:%M:%S")


def _said(item: Recorded | Purge) -> str:
    """The payload in a few words: its fields without the braces, so that the eye finds them."""
    if isinstance(item, Purge):
        return safe(f"{counted(item.count, 'event')}: {item.reason}")
    payload = item.event.payload
    return "  ".join(f"{safe(name)}={_word(value)}" for name, value in payload.items() if value not in ("", None))


def _word(value: Any) -> str:
    return safe(value) if isinstance(value, str) else json_text(value)


def print_record(out: Output, recorded: Recorded | Purge | Hole, lines: Lines) -> None:
    """One event of a stream of them, in the form of this run. What a purge left is only for people."""
    if not isinstance(recorded, Recorded):
        if out.human:
            out.line(lines.line(recorded))
    elif out.json:
        out.line(json_text(recorded_object(recorded)))
    elif out.quiet:
        out.line(recorded.event.id)
    elif out.agent:
        from everlog.cli.output import pairs

        out.line("ITEM " + pairs(dict(zip(TSV_COLUMNS, row(recorded), strict=True))))
    elif out.terminal:
        out.line(lines.line(recorded))
    else:
        out.line(tsv(row(recorded)))


def answer_records(
    out: Output,
    found: Sequence[Recorded],
    *,
    facts: Mapping[str, Any],
    next: Mapping[str, Any] | None = None,
    shown: Sequence[Recorded | Purge | Hole] | None = None,
) -> None:
    """Events as an answer of their own, counted. `shown` is what people see in their place."""
    out.answer(
        Answer(
            data=[recorded_object(recorded) for recorded in found],
            ids=[recorded.event.id for recorded in found],
            columns=TSV_COLUMNS,
            rows=[row(recorded) for recorded in found],
            lines=table_lines(out, found if shown is None else shown) if out.human else None,
            facts={"count": len(found), **facts},
            next=next,
        )
    )


def table_lines(out: Output, found: Sequence[Recorded | Purge | Hole]) -> list[str]:
    lines = Lines(out, found)
    return [lines.line(item) for item in found]


def warn_of_bad_lines(out: Output, store: object) -> None:
    """One warning about lines that are no events, such as the markers of a merge that was not finished."""
    from everlog.cli.verify import told, way_on
    from everlog.stores.contract import Indexed

    problems = store.bad_lines() if isinstance(store, Indexed) else []
    if problems:
        more = f"; and {len(problems) - 1:,} more" if len(problems) > 1 else ""
        out.warn(f"{told(problems[0])}{more}; {way_on(problems)}")


def warn_of(out: Output, problems: Sequence[Problem]) -> None:
    """One line about events that are not what was recorded, or are not there."""
    if problems:
        told = "; ".join(f"#{problem.position}: {problem.reason}" for problem in problems[:PROBLEMS_TOLD])
        more = len(problems) - PROBLEMS_TOLD
        told += f"; and {more:,} more" if more > 0 else ""
        out.warn(f"this is not what was recorded: {told}; everlog verify proves the whole log")

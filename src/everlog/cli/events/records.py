"""Events as rows, lines and facts, the same for `log`, `tail`, `append`, `show` and the demo."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from everlog.application.events.purged_ranges import PurgedRange
from everlog.cli.output import Answer, Output, json_text, pairs, safe, tsv
from everlog.core.codec import recorded_object
from everlog.core.event import Purge, Recorded
from everlog.core.query import Reset
from everlog.core.text import counted

TSV_COLUMNS = ("position", "occurred_at", "id", "type", "stream", "sequence", "actor", "scope", "payload")
PAYLOAD_CELLS_MIN = 48
"""On a narrow terminal a line wraps, so that at least this much of the payload is visible."""


def moment(value: datetime) -> str:
    """Return a time for people: UTC, to the second."""
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
    """Events as aligned lines. Widths start with the first events and only grow, so that a tail stays readable."""

    def __init__(self, out: Output, first: Iterable[Recorded | Purge | PurgedRange] = ()) -> None:
        self._out = out
        self._widths = [0] * 5
        for item in first:
            self._fit(_texts(item))

    def line(self, item: Recorded | Purge | PurgedRange) -> str:
        texts = _texts(item)
        self._fit(texts)
        texts[0] = texts[0].rjust(self._widths[0])
        if isinstance(item, PurgedRange):
            to = f"to #{item.last}: " if item.last > item.first else ""
            return self._out.dim(f"{texts[0]}  {to}purged, see #{item.reserved}")
        plain = self._out.aligned([*texts, _content(item)], [*self._widths, 0], last_min=PAYLOAD_CELLS_MIN)
        if isinstance(item, Purge):
            return self._out.dim(plain)
        return plain.replace(item.event.type, self._out.paint(item.event.type, "cyan"), 1)

    def _fit(self, texts: Sequence[str]) -> None:
        self._widths = [max(width, len(text)) for width, text in zip(self._widths, texts, strict=True)]


def _texts(item: Recorded | Purge | PurgedRange) -> list[str]:
    if isinstance(item, PurgedRange):
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


def _content(item: Recorded | Purge) -> str:
    """Return the fields of the payload without braces, or the reason of a purge."""
    if isinstance(item, Purge):
        return safe(f"{counted(item.count, 'event')}: {item.reason}")
    payload = item.event.payload
    return "  ".join(f"{safe(name)}={_word(value)}" for name, value in payload.items() if value not in ("", None))


def _word(value: Any) -> str:
    return safe(value) if isinstance(value, str) else json_text(value)


def print_record(out: Output, recorded: Recorded | Purge | PurgedRange, lines: Lines) -> None:
    """Print one event of a stream in the output form of this run. Purges are only for people."""
    if not isinstance(recorded, Recorded):
        if out.human:
            out.page([lines.line(recorded)])
    elif out.json:
        out.json_line(recorded_object(recorded))
    elif out.quiet:
        out.line(recorded.event.id)
    elif out.agent:
        out.line("ITEM " + pairs(dict(zip(TSV_COLUMNS, row(recorded), strict=True))))
    elif out.terminal:
        out.page([lines.line(recorded)])
    else:
        out.line(tsv(row(recorded)))


def print_reset(out: Output, reset: Reset, text: str) -> None:
    """Print that the history of a stream of events changed; people get this text, as a warning."""
    if out.json:
        out.line(json_text({"reset_required": reset.reason, "cursor": str(reset.cursor)}))
    elif out.agent:
        out.line("RESET " + pairs({"reason": reset.reason, "cursor": str(reset.cursor)}))
    else:
        out.warn(text)


def answer_records(
    out: Output,
    found: Sequence[Recorded],
    *,
    facts: Mapping[str, Any],
    next: Mapping[str, Any] | None = None,
    shown: Sequence[Recorded | Purge | PurgedRange] | None = None,
) -> None:
    """Print events as an answer, with their count. On a terminal, `shown` replaces them."""
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


def table_lines(out: Output, found: Sequence[Recorded | Purge | PurgedRange]) -> list[str]:
    lines = Lines(out, found)
    return [lines.line(item) for item in found]

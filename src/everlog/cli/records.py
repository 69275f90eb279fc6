"""Events as rows, lines and facts: one look for `log`, `tail`, `append`, `show` and the demo."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from everlog.cli.output import Answer, Output, json_text, safe, tsv
from everlog.core.codec import recorded_object
from everlog.core.event import Recorded
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

    def __init__(self, out: Output, first: Iterable[Recorded] = ()) -> None:
        self._out = out
        self._widths = [0] * 5
        for recorded in first:
            self._fit(recorded)

    def line(self, recorded: Recorded) -> str:
        self._fit(recorded)
        event = recorded.event
        texts = self._texts(recorded)
        texts[0] = texts[0].rjust(self._widths[0])
        plain = self._out.aligned([*texts, _said(recorded)], [*self._widths, 0], last_min=PAYLOAD_CELLS_MIN)
        return plain.replace(event.type, self._out.paint(event.type, "cyan"), 1)

    def _fit(self, recorded: Recorded) -> None:
        self._widths = [
            max(width, len(text)) for width, text in zip(self._widths, self._texts(recorded), strict=True)
        ]

    def _texts(self, recorded: Recorded) -> list[str]:
        event = recorded.event
        place = f"{event.stream}:{recorded.sequence}"
        when = event.occurred_at.astimezone(UTC).strftime("%m-%d %H:%M:%S")
        return [f"#{recorded.position}", when, event.actor, event.type, place]


def _said(recorded: Recorded) -> str:
    """The payload in a few words: its fields without the braces, so that the eye finds them."""
    payload = recorded.event.payload
    return "  ".join(f"{safe(name)}={_word(value)}" for name, value in payload.items() if value not in ("", None))


def _word(value: Any) -> str:
    return safe(value) if isinstance(value, str) else json_text(value)


def print_record(out: Output, recorded: Recorded, lines: Lines) -> None:
    """One event of a stream of them, in the form of this run."""
    if out.json:
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
    out: Output, found: Sequence[Recorded], *, facts: Mapping[str, Any], next: Mapping[str, Any] | None = None
) -> None:
    """Events as an answer of their own, counted."""
    out.answer(
        Answer(
            data=[recorded_object(recorded) for recorded in found],
            ids=[recorded.event.id for recorded in found],
            columns=TSV_COLUMNS,
            rows=[row(recorded) for recorded in found],
            lines=table_lines(out, found) if out.human else None,
            facts={"count": len(found), **facts},
            next=next,
        )
    )


def table_lines(out: Output, found: Sequence[Recorded]) -> list[str]:
    lines = Lines(out, found)
    return [lines.line(recorded) for recorded in found]


def warn_of(out: Output, problems: Sequence[Problem]) -> None:
    """One line about events that are not what was recorded, or are not there."""
    if problems:
        told = "; ".join(f"#{problem.position}: {problem.reason}" for problem in problems[:PROBLEMS_TOLD])
        more = len(problems) - PROBLEMS_TOLD
        told += f"; and {more:,} more" if more > 0 else ""
        out.warn(f"this is not what was recorded: {told}; everlog verify proves the whole log")

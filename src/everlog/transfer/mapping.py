"""Rows of a CSV file as events, by a mapping that defines each field of the event.

    type = "order.{status}"                      # {…} is a column
    stream = "order/{number}"
    actor = "user:{clerk}"                       # left out: system
    occurred_at = "{when}"                       # ISO 8601
    [payload]
    total = "amount:float"                       # a column, and what it holds: text, int, float, bool or json
    note = "remark"

Further fields are scope, id, correlation_id and causation_id. Without [payload], every column is in the payload, as
text. A cell that is empty is left out of it.
"""

from __future__ import annotations

import codecs
import csv
import io
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec

from everlog.core.canonical import parse_json
from everlog.core.fields import actor_of, moment_of, name_of, stream_of, type_of
from everlog.core.ids import parse_id
from everlog.core.text import counted
from everlog.errors import BadFile, InvalidField, NotCanonical
from everlog.transfer.foreign import Foreign, Wrong
from everlog.transfer.lines import Read, ReadValue

_COLUMN = re.compile(r"\{([^{}]+)\}")
_CHUNK = 1024 * 1024
_TEXTS = ("type", "stream", "actor", "occurred_at", "scope", "id", "correlation_id", "causation_id")


class RowMapping(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Defines the fields of an event by columns."""

    type: str
    stream: str
    actor: str = "system"
    occurred_at: str = ""
    scope: str = ""
    id: str = ""
    correlation_id: str = ""
    causation_id: str = ""
    payload: dict[str, str] = {}

    def columns(self) -> set[str]:
        """Return every column that it uses."""
        named = {name for field in _TEXTS for name in _COLUMN.findall(getattr(self, field))}
        return named | {_column_of(source)[0] for source in self.payload.values()}

    def foreign(self, row: Mapping[str, str]) -> Foreign:
        """Return the event of a row; raise Wrong with the reason if there is none."""

        def made(field: str, clean: Callable[[str], str] = str) -> str:
            return _COLUMN.sub(lambda found: clean(row[found[1]].strip()), getattr(self, field))

        for field in ("type", "stream"):
            if empty := [name for name in _COLUMN.findall(getattr(self, field)) if not row[name].strip()]:
                raise Wrong(f"the column {empty[0]} is empty, and the {field} is made of it")
        moment, id = made("occurred_at"), made("id")
        try:
            return Foreign(
                type=type_of(made("type")),
                stream=stream_of(made("stream", name_of), "row"),
                payload=self._payload(row),
                actor=actor_of(made("actor", name_of), "user"),
                id=parse_id(id) if id else None,
                occurred_at=moment_of(moment) if moment else None,
                scope="/".join(map(name_of, made("scope").split("/"))) if self.scope else "",
                correlation_id=made("correlation_id"),
                causation_id=made("causation_id"),
            )
        except InvalidField as error:
            raise Wrong(str(error)) from None
        except ValueError:
            raise Wrong(f"occurred_at is {moment!r:.60}, not a time in ISO 8601") from None

    def _payload(self, row: Mapping[str, str]) -> dict[str, Any]:
        if not self.payload:
            return {name: cell for name, cell in row.items() if cell != ""}
        found = {}
        for name, source in self.payload.items():
            column, kind = _column_of(source)
            if row[column] != "":
                found[name] = _value(column, kind, row[column])
        return found


def read_mapping(text: str, *, source: str) -> RowMapping:
    """Return the mapping of a TOML text; raise BadFile with the reason if it cannot be used."""
    try:
        mapping = msgspec.convert(tomllib.loads(text), RowMapping)
        for field in mapping.payload.values():
            _column_of(field)
        return mapping
    except (tomllib.TOMLDecodeError, msgspec.ValidationError, Wrong) as error:
        raise BadFile(
            f"{source} is not a mapping",
            why=str(error),
            hint='it is TOML such as: type = "order.{status}", stream = "order/{number}"; see docs/moving.md',
        ) from error


def rows(
    read: Read, mapping: RowMapping, *, seen: Callable[[bytes], object] = lambda chunk: None
) -> Iterator[ReadValue]:
    """Yield every row of a CSV file with the line that it ends on; the first row has the names of the columns."""
    reader = csv.reader(_text_lines(read, seen), strict=True)
    try:
        header = next(reader, [])
        if missing := sorted(mapping.columns() - set(header)):
            yield ReadValue(1, None, f"there is no column {', '.join(missing)}; the columns are {', '.join(header)}")
            return
        for cells in reader:
            if not cells:
                continue
            if len(cells) != len(header):
                yield ReadValue(
                    reader.line_num,
                    None,
                    f"it has {counted(len(cells), 'cell')}, and there are {len(header)} columns",
                    _row(cells),
                )
            else:
                yield ReadValue(reader.line_num, dict(zip(header, cells, strict=True)), "", _row(cells))
    except csv.Error as error:
        yield ReadValue(reader.line_num, None, f"it is not CSV: {error}")
    except UnicodeDecodeError as error:
        yield ReadValue(reader.line_num + 1, None, f"it is not UTF-8: byte {error.start} of the piece")


def _row(cells: list[str]) -> bytes:
    """Return the row as CSV again, for a person who corrects it."""
    text = io.StringIO()
    csv.writer(text, lineterminator="").writerow(cells)
    return text.getvalue().encode()


def _text_lines(read: Read, seen: Callable[[bytes], object]) -> Iterator[str]:
    """Yield lines with their ends: a quoted cell may contain a line break, and the reader joins it again."""
    held, at = b"", 0
    while chunk := read(_CHUNK, at):
        seen(chunk)
        text = chunk if at else chunk.removeprefix(codecs.BOM_UTF8)
        at += len(chunk)
        *whole, held = (held + text).split(b"\n")
        for line in whole:
            yield line.decode() + "\n"
    if held:
        yield held.decode()


def _column_of(source: str) -> tuple[str, str]:
    column, _, kind = source.rpartition(":")
    if not column:
        return source, "text"
    if kind not in _KINDS:
        raise Wrong(f"{source!r} ends in {kind!r}, which is none of {', '.join(_KINDS)}")
    return column, kind


def _boolean(cell: str) -> bool:
    if cell.lower() not in ("true", "false", "yes", "no", "1", "0"):
        raise ValueError(cell)
    return cell.lower() in ("true", "yes", "1")


_KINDS: dict[str, Callable[[str], Any]] = {
    "text": str,
    "int": int,
    "float": float,
    "bool": _boolean,
    "json": lambda cell: parse_json(cell.encode()),
}


def _value(column: str, kind: str, cell: str) -> Any:
    try:
        return _KINDS[kind](cell.strip() if kind != "text" else cell)
    except (ValueError, NotCanonical):
        raise Wrong(f"the column {column} holds {cell!r:.60}, which is no {kind}") from None

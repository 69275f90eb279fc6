"""Rows of a CSV file, or JSON objects, as events, by a mapping that defines each field of the event.

    type = "order.{status}"                      # {…} is a column, or a path in the object: {order.status}
    stream = "order/{number}"
    actor = "user:{clerk}"                       # left out: system
    occurred_at = "{when}"                       # ISO 8601
    [payload]
    total = "amount:float"                       # a column, and what it holds: text, int, float, bool or json
    note = "remark"

Further fields are scope, id, correlation_id and causation_id. Without [payload], the payload is the whole row. A cell
that is empty is left out of it. A value of an object keeps its kind, if none is named.
"""

from __future__ import annotations

import codecs
import csv
import io
import json
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec

from everlog.core.canonical import parse_json
from everlog.core.fields import actor_of, moment_of, name_of, stream_of, type_of
from everlog.core.text import counted
from everlog.errors import BadFile, InvalidField, NotCanonical
from everlog.transfer.foreign import Context, Fields, Foreign, Wrong
from everlog.transfer.lines import BOM, GZIP, Read, ReadValue

_COLUMN = re.compile(r"\{([^{}]+)\}")
_CHUNK = 1024 * 1024
_TEXTS = ("type", "stream", "actor", "occurred_at", "scope", "id", "correlation_id", "causation_id")


class RowMapping(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Defines the fields of an event by columns, or by paths in a JSON object."""

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

    def foreign(self, row: Mapping[str, Any], context: Context | None = None) -> Foreign:
        """Return the event of a row; raise Wrong with the reason if there is none."""

        def made(field: str, clean: Callable[[str], str] = str) -> str:
            return _COLUMN.sub(lambda found: clean(_text(row, found[1]).strip()), getattr(self, field))

        for field in ("type", "stream"):
            if empty := [name for name in _COLUMN.findall(getattr(self, field)) if not _text(row, name).strip()]:
                there = "is empty" if empty[0] in row else "is not there"
                raise Wrong(f"the column {empty[0]} {there}, and the {field} is made of it")
        moment, id = made("occurred_at"), made("id")
        fields = Fields({"id": id}, context)
        try:
            return Foreign(
                type=type_of(made("type")),
                stream=stream_of(made("stream", name_of), "row"),
                payload=self._payload(row),
                actor=actor_of(made("actor", name_of), "user"),
                id=fields.id("id") if id else None,
                id_field="id",
                old_id=fields.old_id,
                tags=fields.tags,
                occurred_at=moment_of(moment) if moment else None,
                scope="/".join(map(name_of, made("scope").split("/"))) if self.scope else "",
                correlation_id=made("correlation_id"),
                causation_id=made("causation_id"),
            )
        except InvalidField as error:
            raise Wrong(str(error)) from None
        except ValueError:
            raise Wrong(f"occurred_at is {moment!r:.60}, not a time in ISO 8601") from None

    def _payload(self, row: Mapping[str, Any]) -> dict[str, Any]:
        if not self.payload:
            return {name: cell for name, cell in row.items() if cell != ""}
        found = {}
        for name, source in self.payload.items():
            column, kind = _column_of(source)
            cell = _at(row, column)
            if cell is not None and cell != "":
                found[name] = _value(column, kind, cell) if kind else cell
        return found


def _at(row: Mapping[str, Any], path: str) -> Any:
    """Return the value of a column, or at the end of a path such as order.lines.0.sku; None if it is not there."""
    if path in row:
        return row[path]
    found: Any = row
    for part in path.split("."):
        if isinstance(found, Mapping):
            found = found.get(part)
        elif isinstance(found, list) and part.isdecimal() and int(part) < len(found):
            found = found[int(part)]
        else:
            return None
    return found


def _text(row: Mapping[str, Any], path: str) -> str:
    found = _at(row, path)
    if isinstance(found, Mapping | list):
        raise Wrong(f"{path} is {'an object' if isinstance(found, Mapping) else 'a list'}, not a text")
    return "" if found is None else found if isinstance(found, str) else json.dumps(found)


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
            hint='it is TOML such as: type = "order.{status}", stream = "order/{number}"; see docs/how-to/moving.md',
        ) from error


def is_json(read: Read) -> bool:
    """Return True if a file begins as JSON does, or as a packed file: no header of CSV begins so."""
    head = read(_CHUNK, 0).removeprefix(BOM)
    return head.startswith(GZIP) or head.lstrip().startswith((b"{", b"["))


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
        return source, ""
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


def _value(column: str, kind: str, cell: Any) -> Any:
    text = cell if isinstance(cell, str) else json.dumps(cell)
    try:
        return _KINDS[kind](text.strip() if kind != "text" else text)
    except (ValueError, NotCanonical):
        raise Wrong(f"the column {column} holds {cell!r:.60}, which is no {kind}") from None

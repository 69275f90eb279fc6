"""The event types of a log: compared with the schema lock, locked, and declared in types.toml."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from everlog.catalog.builtin import BUILT_IN
from everlog.catalog.catalog import Catalog, TypeInfo
from everlog.catalog.declared import FILE_NAME, declare, read_types
from everlog.catalog.lock import LOCK_FILE, additions, compare, lock_text, require_compatible
from everlog.catalog.schema import FieldInfo as FieldInfo
from everlog.catalog.seen import OBJECT, declaration, merged_all, shape_of
from everlog.core.query import Query
from everlog.errors import InvalidSettings, NotFound, SchemaBroken
from everlog.files import DiskFiles, replace_file
from everlog.log.log import Log


class DescribedType(msgspec.Struct, frozen=True, kw_only=True):
    """An event type, the JSON Schema of its payload, and the transitions of streams that it restricts."""

    info: TypeInfo
    schema: dict[str, Any]
    rules: Sequence[Any]


class CheckedTypes(msgspec.Struct, frozen=True, kw_only=True):
    """Types that keep what the lock promises, and what they have in addition."""

    types: int
    additions: Sequence[str]


class LockedTypes(msgspec.Struct, frozen=True, kw_only=True):
    """A lock that was written, and what the lock before it promised and this one does not."""

    lock: Path
    types: int
    no_longer: Sequence[str]


class DeclaredType(msgspec.Struct, frozen=True, kw_only=True):
    """A type in types.toml; `made` is false if it was declared there in the same way before."""

    type: str
    fields: Mapping[str, str]
    file: Path
    made: bool


def describe_type(catalog: Catalog, name: str) -> DescribedType:
    """Return what is known of one type. Raises an error if the catalog does not know it."""
    schema = catalog.json_schema(name)
    info = next(info for info in catalog.types(lent=True) if info.type == name)
    return DescribedType(info=info, schema=schema, rules=[rule for rule in catalog.rules() if rule.type == name])


def default_lock(folder: Path) -> Path:
    return folder / LOCK_FILE


def check_types(catalog: Catalog, lock: Path) -> CheckedTypes:
    """Compare the types with a lock. Raises SchemaBroken if a change would break old events."""
    files = DiskFiles()
    if not files.exists(lock):
        raise NotFound(
            f"there is no schema lock at {lock}",
            why="there is nothing to compare the types with",
            hint="everlog schema lock",
        )
    problems = catalog.check()
    if problems:
        raise SchemaBroken(
            "the event types do not fit together",
            why="; ".join(problems),
            hint="correct types.toml or the catalog's code",
            problems=problems,
        )
    text = files.read_all(lock).decode(errors="replace")
    require_compatible(text, catalog)
    return CheckedTypes(types=len(catalog.types()), additions=[str(change) for change in additions(text, catalog)])


def lock_types(catalog: Catalog, lock: Path) -> LockedTypes:
    """Write the current types to a lock, over an earlier one."""
    files, text = DiskFiles(), lock_text(catalog)
    no_longer = []
    if files.exists(lock):
        no_longer = [str(breach) for breach in compare(files.read_all(lock).decode(errors="replace"), catalog)]
    replace_file(files, lock, text.encode())
    return LockedTypes(lock=lock, types=len(catalog.types()), no_longer=no_longer)


def declare_type(catalog: Catalog, folder: Path, name: str, fields: Mapping[str, str], doc: str = "") -> DeclaredType:
    """Declare a type in the types.toml of a folder, beside those of the catalog."""
    catalog.left_out.require_none("a declaration of a type", "that program may have the type, with rules")
    if BUILT_IN.knows(name):
        raise InvalidSettings(
            f"{name} is one of everlog's own types", why="it is declared already", hint=f"everlog schema show {name}"
        )
    files, path = DiskFiles(), folder / FILE_NAME
    before = files.read_all(path).decode() if files.exists(path) else ""
    after = declare(before, name, dict(fields), doc, source=str(path))
    declared = read_types(before, source=str(path))
    if catalog.knows(name) and not catalog.lends(name) and not declared.knows(name):
        raise InvalidSettings(
            f"{name} is declared already",
            why="a program, or the setting catalog, has it",
            hint=f"everlog schema show {name}",
        )
    read_types(after, source=str(path))
    if after != before:
        replace_file(files, path, after.encode())
    return DeclaredType(type=name, fields=fields, file=path, made=after != before)


def learn_type(log: Log, folder: Path, name: str) -> DeclaredType:
    """Declare a type in the types.toml of a folder, as its events in the log are."""
    log.catalog.left_out.require_none("learning a type", "that program may have the type, with rules")
    if log.catalog.knows(name):
        raise InvalidSettings(
            f"{name} is declared already",
            why="a declaration is not guessed again",
            hint=f"everlog schema show {name}",
        )
    payloads = (
        one.event.payload for one in log.read(Query(types=frozenset({name}))) if one.event.payload is not None
    )
    shape = merged_all(map(shape_of, payloads))
    if shape is None or shape.kind != OBJECT:
        raise NotFound(
            f"{name} cannot be learned",
            why="no event of it has a payload here" if shape is None else "its payloads have too many fields",
            hint="check the name of the type: everlog log"
            if shape is None
            else f"everlog schema add {name} NAME:TYPE …",
        )
    return declare_type(log.catalog, folder, name, declaration(shape))

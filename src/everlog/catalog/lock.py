"""The schema lock: what the event types were when they were last agreed on, as text to keep in version control.

Event types evolve additively: a field that was promised stays, with its type, for as long as its version is
readable. The lock is how a program notices that it is about to break that promise, before an event is lost to it.

    {"format": 1,
     "types": {"workpackage.moved": {"version": 2, "upcasts_from": [1],
                                     "versions": {"2": {"fields": {"went_to": {"required": true, "schema": {…}}}}}}}}
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from everlog.catalog.catalog import Catalog
from everlog.catalog.narrowing import differences
from everlog.core.counted import counted
from everlog.errors import InvalidSettings, NewerFormat, SchemaBroken

FORMAT = 1


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """One difference between the lock and the catalog."""

    kind: str
    type: str
    version: int
    field: str = ""
    text: str

    def __str__(self) -> str:
        field = f", field {self.field}" if self.field else ""
        return f"{self.type} version {self.version}{field}: {self.text}"


class Breach(Change, frozen=True, kw_only=True):
    """A change that old events, or the programs that wrote them, cannot follow."""


class Addition(Change, frozen=True, kw_only=True):
    """A change that only adds."""


def lock_text(catalog: Catalog) -> str:
    """The lock of a catalog: sorted and indented, the same text for the same types."""
    locked = {"format": FORMAT, "types": _types_of(catalog)}
    return json.dumps(locked, indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def compare(locked: str, catalog: Catalog) -> list[Breach]:
    """What the catalog breaks of what was locked."""
    return [change for change in _changes(locked, catalog) if isinstance(change, Breach)]


def additions(locked: str, catalog: Catalog) -> list[Addition]:
    """What the catalog adds to what was locked."""
    return [change for change in _changes(locked, catalog) if isinstance(change, Addition)]


def require_compatible(locked: str, catalog: Catalog) -> None:
    """Refuse a catalog that breaks what was locked, and name every breach."""
    breaches = compare(locked, catalog)
    if not breaches:
        return
    raise SchemaBroken(
        f"{counted(len(breaches), 'change of the event types breaks', 'changes break')} the schema lock",
        why="; ".join(map(str, breaches)),
        hint="bump the version and add an upcaster; if no log holds such events: everlog schema lock",
        breaches=[msgspec.to_builtins(breach) for breach in breaches],
    )


def _types_of(catalog: Catalog) -> dict[str, Any]:
    return {
        info.type: {
            "version": info.version,
            "upcasts_from": list(info.upcasts_from),
            "versions": {
                str(version): _locked_version(catalog.json_schema(info.type, version=version))
                for version in info.versions
            },
        }
        for info in catalog.types()
    }


def _locked_version(schema: Mapping[str, Any]) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for name, field in schema["properties"].items():
        bare = {keyword: value for keyword, value in field.items() if keyword not in ("default", "description")}
        fields[name] = {"required": name in schema["required"], "schema": bare}
        if "default" in field:
            fields[name]["default"] = field["default"]
    found: dict[str, Any] = {"fields": fields}
    if schema["additionalProperties"] is not False:
        found["open"] = True
    if "$defs" in schema:
        found["defs"] = schema["$defs"]
    return found


def _schema_of(version: Mapping[str, Any]) -> dict[str, Any]:
    """The object's schema that a locked version stands for."""
    fields = version["fields"]
    return {
        "type": "object",
        "properties": {name: field["schema"] for name, field in fields.items()},
        "required": [name for name, field in fields.items() if field["required"]],
        "additionalProperties": bool(version.get("open")),
        "$defs": version.get("defs", {}),
    }


def _changes(locked: str, catalog: Catalog) -> Iterator[Change]:
    was, now = _read(locked), _types_of(catalog)
    for event_type in sorted(was.keys() | now.keys()):
        if event_type not in now:
            version = was[event_type]["version"]
            yield Breach(kind="removed_type", type=event_type, version=version, text="the type is gone")
        elif event_type not in was:
            version = now[event_type]["version"]
            yield Addition(kind="new_type", type=event_type, version=version, text="the type is new")
        else:
            yield from _changes_of_type(event_type, was[event_type], now[event_type])


def _changes_of_type(event_type: str, was: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[Change]:
    for version in _promised(was):
        if version > now["version"] or (version == now["version"] and str(version) not in now["versions"]):
            yield Breach(kind="removed_version", type=event_type, version=version, text="the version is gone")
        elif version < now["version"] and version not in now["upcasts_from"]:
            yield _no_upcaster(event_type, version, was)
        if str(version) in was["versions"] and str(version) in now["versions"]:
            yield from _changes_of_version(event_type, version, was, now)
    for version in range(was["version"] + 1, now["version"] + 1):
        if version < now["version"] and version not in now["upcasts_from"]:
            yield _no_upcaster(event_type, version, was)
        elif version == now["version"] and version - 1 in now["upcasts_from"]:
            yield Addition(kind="new_version", type=event_type, version=version, text="the version is new")


def _promised(was: Mapping[str, Any]) -> list[int]:
    """Every version that was readable: those with a model and those with an upcaster."""
    return sorted({int(version) for version in was["versions"]} | set(was["upcasts_from"]))


def _no_upcaster(event_type: str, version: int, was: Mapping[str, Any]) -> Breach:
    lost = version in was["upcasts_from"]
    text = f"{'the upcaster is gone' if lost else 'there is no upcaster'} that leads to version {version + 1}"
    return Breach(kind="removed_upcaster" if lost else "no_upcaster", type=event_type, version=version, text=text)


def _changes_of_version(
    event_type: str, version: int, was: Mapping[str, Any], now: Mapping[str, Any]
) -> Iterator[Change]:
    old, new = _schema_of(was["versions"][str(version)]), _schema_of(now["versions"][str(version)])
    for found in differences(old, new):
        made = Addition if found.kind == "new_field" else Breach
        yield made(kind=found.kind, type=event_type, version=version, field=found.path, text=found.text)


class _LockedField(msgspec.Struct):
    required: bool
    schema: dict[str, Any]
    default: Any = None


class _LockedVersion(msgspec.Struct, omit_defaults=True):
    fields: dict[str, _LockedField]
    open: bool = False
    defs: dict[str, dict[str, Any]] = {}


class _LockedType(msgspec.Struct):
    version: int
    upcasts_from: list[int]
    versions: dict[int, _LockedVersion]


class _Lock(msgspec.Struct):
    format: int
    types: dict[str, _LockedType]


def _read(locked: str) -> dict[str, Any]:
    """The types of a lock's text; a lock that cannot be read is never taken for an empty one."""
    try:
        stated = msgspec.json.decode(locked, type=dict[str, Any])
        if isinstance(stated.get("format"), int) and stated["format"] > FORMAT:
            raise NewerFormat(
                f"the schema lock has format {stated['format']}",
                why=f"this version of everlog reads up to format {FORMAT}",
                hint="update everlog",
            )
        found: dict[str, Any] = msgspec.to_builtins(
            msgspec.convert(stated, _Lock, str_keys=True).types, str_keys=True
        )
    except msgspec.MsgspecError as error:
        raise InvalidSettings(
            "the schema lock cannot be read",
            why=str(error),
            hint="restore it from version control, or write it anew: everlog schema lock",
        ) from error
    return found

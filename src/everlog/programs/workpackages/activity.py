"""Read the activity.yaml of 1.x into entries with their line numbers. Anything of another shape is refused, by line.

    version: 1                               # may be left out; the list may also stand alone
    activity:
      - timestamp: 2026-01-12T09:00:00Z      # ISO 8601; UTC if it names no zone
        event: WPCreated                     # one of the seed's types
        actor: builder                       # system, if left out
        work_package_id: WP03                # and the other fields of that type
        title: Index
        dependencies: [WP01]
      - {timestamp: 2026-01-13T10:00:00Z, work_package_id: WP03, lane: doing}     # short for a move

Values are taken as literal text: `title: 2026` and `title: yes` are titles. Anchors, tags and duplicate keys have no
use here and would make a file ambiguous, so they are refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from everlog.core.text import counted
from everlog.errors import BadFile, Unavailable

PROBLEMS_MAX = 100
_VERSION = "1"
_DEPTH_MAX = 32
_Node = Any  # of a library that may not be there
_TAG = "tag:yaml.org,2002:"
_TAGS = {_TAG + name for name in ("str", "null", "bool", "int", "float", "timestamp")}


class ActivityEntry(msgspec.Struct, frozen=True):
    """One entry of the file, and its line."""

    line: int
    fields: dict[str, Any]  # text, or for a list or a mapping one of them; what is empty is left out


class Wrong(Exception):
    """What is wrong at a line."""

    def __init__(self, line: int, what: str) -> None:
        super().__init__(what)
        self.line = line


def read_entries(data: bytes, name: str) -> list[ActivityEntry]:
    """Return the entries of a file, in order. BadFile names every line that does not fit."""
    problems: list[str] = []
    found: list[ActivityEntry] = []
    try:
        _refuse_traps(data)
        for node in _entry_nodes(_composed(data)):
            try:
                fields = _mapping(node, _field)
                found.append(
                    ActivityEntry(_line(node), {name: value for name, value in fields.items() if value is not None})
                )
            except Wrong as wrong:
                problems.append(f"{name}:{wrong.line}: {wrong}")
    except Wrong as wrong:
        problems.append(f"{name}:{wrong.line}: {wrong}")
    refuse(problems, name)
    return found


def refuse(problems: list[str], name: str) -> None:
    """Raise BadFile if there are any problems."""
    if problems:
        raise BadFile(
            f"{name} cannot be migrated: {counted(len(problems), 'line is', 'lines are')} wrong",
            why="; ".join(problems[:20]),
            hint="nothing was recorded and the file was not changed; correct it and run the same command again",
            problems=problems[:PROBLEMS_MAX],
        )


# ---- YAML


def _yaml() -> Any:
    try:
        import yaml
    except ImportError as error:
        raise Unavailable(
            "reading an activity.yaml needs the library PyYAML",
            why=str(error),
            hint="pip install 'everlog[yaml]', or EVERLOG_EXTRAS=yaml ./everlog …",
        ) from error
    return yaml


def _refuse_traps(data: bytes) -> None:
    """Refuse what could grow without end when it is taken apart: aliases, and nesting that nobody meant."""
    yaml = _yaml()
    depth = 0
    for event in _telling(yaml, yaml.parse(data, Loader=_loader(yaml))):
        if getattr(event, "anchor", None):
            raise Wrong(event.start_mark.line + 1, "anchors and aliases are not taken")
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > _DEPTH_MAX:
            raise Wrong(event.start_mark.line + 1, "it is too deep")


def _composed(data: bytes) -> _Node:
    yaml = _yaml()
    documents = list(_telling(yaml, yaml.compose_all(data, Loader=_loader(yaml))))
    if len(documents) > 1:
        raise Wrong(_line(documents[1]), "a second document begins here")
    return documents[0] if documents else None


def _telling(yaml: Any, found: Iterator[Any]) -> Iterator[Any]:
    try:
        yield from found
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        what = getattr(error, "problem", None) or getattr(error, "reason", None) or "it is not YAML"
        raise Wrong(1 if mark is None else mark.line + 1, str(what)) from error


def _loader(yaml: Any) -> Any:
    return getattr(yaml, "CSafeLoader", yaml.SafeLoader)


# ---- nodes


def _entry_nodes(root: _Node) -> list[_Node]:
    if root is None:
        return []
    if root.id == "mapping":
        top = _mapping(root, lambda node: node)
        for key, node in top.items():
            if key not in ("version", "activity"):
                raise Wrong(_line(node), f"{key} is not known here: a file has a version and a list, activity")
        if "version" in top and _text(top["version"]) != _VERSION:
            raise Wrong(_line(top["version"]), f"this is version {_text(top['version'])}, and only 1 can be read")
        root = top.get("activity")
        if root is None:
            raise Wrong(1, "there is no list named activity")
    if root.id != "sequence":
        raise Wrong(_line(root), "activity is not a list")
    return list(root.value)


def _mapping(node: _Node, take: Callable[[_Node], Any]) -> dict[str, Any]:
    if node.id != "mapping":
        raise Wrong(_line(node), "an entry is a mapping, such as {timestamp: …, event: WPCreated, …}")
    found: dict[str, Any] = {}
    for key_node, value_node in node.value:
        key = _text(key_node)
        if key in found:
            raise Wrong(_line(key_node), f"{key} stands twice")
        found[key] = take(value_node)
    return found


def _field(node: _Node) -> Any:
    """Return a value of an entry: its text, a list of texts, or an object, for facts about a result."""
    match node.id:
        case "scalar":
            return None if node.tag == _TAG + "null" else _text(node)
        case "sequence":
            return [_text(one) for one in node.value]
        case _:
            return _mapping(node, _plain)


def _plain(node: _Node) -> Any:
    if node.id == "sequence":
        return [_plain(one) for one in node.value]
    if node.id == "mapping":
        return _mapping(node, _plain)
    text = _text(node)
    if node.tag == _TAG + "bool":
        return text.lower() in ("true", "yes", "on")
    if node.tag == _TAG + "null":
        return None
    for kind, read in (("int", int), ("float", float)):
        if node.tag == _TAG + kind:
            try:
                return read(text)
            except ValueError:
                return text  # YAML has more ways to write a number than JSON
    return text


def _text(node: _Node) -> str:
    if node.id != "scalar":
        raise Wrong(_line(node), "there is a list or a mapping where a text belongs")
    if node.tag not in _TAGS:
        raise Wrong(_line(node), f"the tag {node.tag} is not taken")
    return str(node.value)


def _line(node: _Node) -> int:
    return int(node.start_mark.line) + 1

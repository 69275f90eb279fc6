"""How a field is typed on the command line, where that does not follow from its name and type.

    "Propose.tool_name": Argument("TOOL")                   a positional argument
    "Validate.findings": Option("--finding")                an option with another name
    "Validate.valid": Flag("--invalid", "...", opposite=True)     a flag that means false

Without a spelling, the first field is an argument if it is required, and every other field is an option of its name.
"""

from __future__ import annotations

import json
import types
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import click
import msgspec
from msgspec import Meta

from everlog.cli.time_options import MOMENT


@dataclass(frozen=True)
class Argument:
    metavar: str | None = None
    type: Any = None
    required: bool = False


class Option:
    def __init__(self, *names: str, metavar: str | None = None, type: Any = None, help: str = "") -> None:
        self.names = names
        self.metavar = metavar
        self.type = type
        self.help = help


@dataclass(frozen=True)
class Flag:
    name: str
    help: str
    opposite: bool = False


Spelling = Argument | Option | Flag

HOW_MANY = {"limit": ("-n",)}
"""The short option of a field, the same in every command."""


class Json(click.ParamType[Any]):
    """A value as JSON text; with `only_objects`, anything else is a mistake of usage."""

    name = "text"

    def __init__(self, *, only_objects: bool = False) -> None:
        self._only_objects = only_objects

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):
            return value
        try:
            found = json.loads(value)
        except ValueError as error:
            self.fail(f"it is not JSON: {error}", param, ctx)
        if self._only_objects and not isinstance(found, dict):
            self.fail("it is not an object", param, ctx)
        return found


class Field(msgspec.Struct, frozen=True, kw_only=True):
    """A field of a command or a question, as the command line needs it."""

    name: str
    base: Any  # the type without annotations and without None
    description: str
    limits: Mapping[str, Any]
    required: bool
    default: Any

    @property
    def many(self) -> bool:
        return get_origin(self.base) in (list, tuple)

    @property
    def is_flag(self) -> bool:
        return self.base is bool

    def click_type(self) -> Any:
        base = get_args(self.base)[0] if self.many else self.base
        base, _ = _without_annotations(base)
        low, high = self.limits.get("ge"), self.limits.get("le")
        if get_origin(base) is Literal:
            return click.Choice(get_args(base))
        if base is int:
            return click.IntRange(low, high) if (low, high) != (None, None) else click.INT
        if base is float:
            return click.FloatRange(low, high) if (low, high) != (None, None) else click.FLOAT
        if base is datetime:
            return MOMENT
        if base is dict or get_origin(base) is dict:
            return Json()
        return click.STRING


def fields_of(value: type[Any]) -> list[Field]:
    """Return the fields of a command or a question, in the order in which they are declared."""
    hints = get_type_hints(value, include_extras=True)
    found = []
    for info in msgspec.structs.fields(value):
        base, metas = _without_annotations(hints[info.name])
        described = [meta.description for meta in metas if meta.description]
        limits = {
            name: getattr(meta, name) for meta in metas for name in ("ge", "le") if getattr(meta, name) is not None
        }
        default = info.default if info.default is not msgspec.NODEFAULT else None
        if info.default_factory is not msgspec.NODEFAULT:
            default = info.default_factory()
        found.append(
            Field(
                name=info.name,
                base=base,
                description=described[-1] if described else "",
                limits=limits,
                required=info.required,
                default=default,
            )
        )
    # A field that all commands of a program share comes after those of the command itself.
    return sorted(found, key=lambda field: field.name in getattr(value, "shared", ()))


def parameter(field: Field, spelling: Spelling | None, *, first: bool) -> click.Parameter:
    """Return the argument or the option for a field."""
    if isinstance(spelling, Flag):
        return click.Option([spelling.name, field.name], is_flag=True, help=spelling.help)
    if isinstance(spelling, Argument) or (spelling is None and first and field.required and not field.many):
        return _argument(field, spelling if isinstance(spelling, Argument) else Argument())
    option = spelling if isinstance(spelling, Option) else Option()
    names = option.names or (*HOW_MANY.get(field.name, ()), f"--{field.name.replace('_', '-')}")
    text = option.help or field.description
    if field.is_flag:
        return click.Option([*names, field.name], is_flag=True, default=False, help=text)
    kind = option.type or field.click_type()
    metavar = option.metavar or ("TEXT" if kind is click.STRING else None)
    if field.many:
        return click.Option([*names, field.name], type=kind, multiple=True, metavar=metavar, help=text)
    if field.required:
        return click.Option([*names, field.name], type=kind, metavar=metavar, help=text, required=True)
    default = None if isinstance(field.default, dict) else field.default
    shown = default not in ("", None)
    return click.Option(
        [*names, field.name], type=kind, metavar=metavar, help=text, default=default, show_default=shown
    )


def _argument(field: Field, spelling: Argument) -> click.Argument:
    name, metavar, kind = [field.name], spelling.metavar, spelling.type or field.click_type()
    if field.many:
        return click.Argument(name, type=kind, nargs=-1, required=field.required, metavar=metavar)
    if field.required or spelling.required:
        return click.Argument(name, type=kind, metavar=metavar)
    default = "{}" if isinstance(field.default, dict) else field.default
    return click.Argument(name, type=kind, required=False, default=default, metavar=metavar)


def _without_annotations(annotation: Any) -> tuple[Any, list[Meta]]:
    """Return a type without `Annotated` and without None, and the Metas around it."""
    if get_origin(annotation) is Annotated:
        base, *rest = get_args(annotation)
        found, metas = _without_annotations(base)
        return found, [*metas, *(one for one in rest if isinstance(one, Meta))]
    if get_origin(annotation) in (Union, types.UnionType):
        others = [one for one in get_args(annotation) if one is not type(None)]
        if len(others) == 1:
            return _without_annotations(others[0])
    return annotation, []

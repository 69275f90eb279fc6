"""A payload model made ready: msgspec Structs here, pydantic behind the same three functions in its own module.

A model is made ready at its first use, not when it is registered: a program imports many event types and appends
few, and a model that refers to itself is not yet complete while its decorator runs.
"""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any, Protocol

import msgspec

from everlog.catalog.defects import strays, struct_defects
from everlog.catalog.keys import silent_changes
from everlog.catalog.schema import DEFINITIONS, object_schema, parts, resolve
from everlog.errors import InvalidPayload, SchemaBroken


class PayloadModel(Protocol):
    """What the catalog needs of a model, whatever library it was written with."""

    @property
    def runs_user_code(self) -> bool:
        """Whether checking may run code of the program that declared the model, and so take any time."""
        ...

    @property
    def check(self) -> Callable[[Any], dict[str, Any]]:
        """The payload as a JSON-ready dict with its defaults filled in; InvalidPayload names every defect."""
        ...

    def build(self, payload: Mapping[str, Any]) -> Any:
        """An instance of the model from a stored payload."""
        ...

    def schema(self) -> dict[str, Any]:
        """The JSON Schema of the payload."""
        ...

    def defaults(self) -> dict[str, Any]:
        """The fields of the payload that have the same default for every event, as JSON."""
        ...


def ready(event_type: str, model: type[Any]) -> PayloadModel:
    """The model made ready to check payloads of this event type."""
    try:
        if issubclass(model, msgspec.Struct):
            return StructModel(event_type, model)
        from everlog.catalog.pydantic_model import PydanticModel

        return PydanticModel(event_type, model)
    except (NameError, TypeError) as error:
        raise SchemaBroken(
            f"the model {model.__qualname__} of {event_type} cannot be used",
            why=str(error),
            hint="use types that have a JSON form, and import every name that its annotations use",
            type=event_type,
        ) from error


def refuse_unusable(event_type: str, model: Any) -> None:
    """Refuse, at once, to register a class that is no payload model."""
    if isinstance(model, type) and issubclass(model, msgspec.Struct):
        if not model.__struct_config__.array_like:
            return
        why = "it is array_like, and a payload is a JSON object"
    elif hasattr(model, "__pydantic_validator__") and hasattr(model, "model_json_schema"):
        return
    else:
        why = "a payload model is a msgspec.Struct or a pydantic BaseModel"
    raise SchemaBroken(
        f"{getattr(model, '__qualname__', model)!s} cannot be the model of {event_type}",
        why=why,
        hint="declare it as class Moved(msgspec.Struct): …",
        type=event_type,
    )


def doc_of(model: type[Any]) -> str:
    """The docstring that a model itself has; the one of its library says nothing about the event."""
    return inspect.cleandoc(model.__dict__.get("__doc__") or "")


def name_of(registered: Callable[..., Any]) -> str:
    """A model or an upcaster, as it is called in messages."""
    name = getattr(registered, "__qualname__", None)
    return f"{registered.__module__}.{name}" if name else repr(registered)


class StructModel:
    """A msgspec Struct as a payload model."""

    def __init__(self, event_type: str, model: type[msgspec.Struct]) -> None:
        self._model = model
        self._top, self._definitions = _components(model)
        self.runs_user_code = not _is_plain(model)
        self.check = _struct_check(event_type, model, self._top, self._definitions)

    def build(self, payload: Mapping[str, Any]) -> Any:
        return msgspec.convert(payload, self._model, str_keys=True)

    def schema(self) -> dict[str, Any]:
        return object_schema(self._top, self._definitions)

    def defaults(self) -> dict[str, Any]:
        return fixed_defaults(self._top)


def fixed_defaults(top: Mapping[str, Any]) -> dict[str, Any]:
    """The defaults that the schema of a model names; what a function of the program makes is not among them."""
    return {name: field["default"] for name, field in top.get("properties", {}).items() if "default" in field}


def _struct_check(
    event_type: str, model: type[msgspec.Struct], top: Mapping[str, Any], definitions: Mapping[str, Any]
) -> Callable[[Any], dict[str, Any]]:
    convert, to_builtins = msgspec.convert, msgspec.to_builtins
    # A subclass that refuses unknown fields lets msgspec itself find them, for nothing. It also writes every default.
    strict = types.new_class(
        model.__name__,
        (model,),
        {"forbid_unknown_fields": True, "omit_defaults": False},
        lambda body: body.update(__module__=model.__module__, __qualname__=model.__qualname__),
    )

    def check_flat(payload: Any) -> dict[str, Any]:
        given = payload if type(payload) is dict else _as_dict(event_type, model, payload)
        try:
            # The way back to builtins costs less than finding out whether it is needed, and it turns what only
            # looks like JSON (a member of an enum, a set) into what will be read back.
            return to_builtins(convert(given, strict))  # type: ignore[no-any-return]
        except (msgspec.ValidationError, TypeError, RecursionError) as error:
            raise _invalid(event_type, model, given, error) from error

    typed_keys = _has_typed_keys(model)
    has_models = _has_models(top, definitions)
    has_objects = any(part.get("type") == "object" for part in _parts(top))

    def check_nested(payload: Any) -> dict[str, Any]:
        given = payload if type(payload) is dict else _as_dict(event_type, model, payload)
        changed = list(silent_changes(given, typed_keys=typed_keys, numbers=False))
        if changed:
            raise InvalidPayload(event_type, changed)
        try:
            converted: Any = convert(given, strict, str_keys=True)
            dropped = list(strays(given, converted)) if has_models else []
            found: dict[str, Any] = to_builtins(converted, str_keys=True)
        except (msgspec.ValidationError, TypeError, RecursionError) as error:
            raise _invalid(event_type, model, given, error) from error
        if dropped:
            raise InvalidPayload(event_type, dropped)
        return found

    return check_nested if has_models or has_objects else check_flat


def _is_plain(model: type[msgspec.Struct]) -> bool:
    """Whether msgspec checks it without calling into the program: texts, numbers and such, with fixed defaults."""
    from msgspec import inspect as found  # what the schema was made with: loaded by now

    plain = (found.StrType, found.IntType, found.FloatType, found.BoolType, found.NoneType, found.LiteralType)

    def is_plain(kind: found.Type) -> bool:
        if isinstance(kind, found.UnionType):
            return all(map(is_plain, kind.types))
        if isinstance(kind, found.EnumType):
            return getattr(kind.cls._missing_, "__func__", None) is getattr(Enum._missing_, "__func__", None)
        return isinstance(kind, plain)

    struct = found.type_info(model)
    return (
        isinstance(struct, found.StructType)
        and not hasattr(model, "__post_init__")
        and all(field.default_factory is msgspec.NODEFAULT and is_plain(field.type) for field in struct.fields)
    )


def _parts(top: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return list(parts({"properties": top["properties"]}))


def _has_typed_keys(model: type[msgspec.Struct]) -> bool:
    """Whether it says itself that the keys of an object are no texts, so that they are read back as they were."""
    from msgspec import inspect as found

    waiting: list[Any] = [found.type_info(model)]
    seen: set[int] = set()
    while waiting:
        part = waiting.pop()
        if isinstance(part, tuple):
            waiting += part
        elif isinstance(part, found.Type | found.Field) and id(part) not in seen:
            seen.add(id(part))
            if isinstance(part, found.DictType) and not isinstance(part.key_type, found.StrType | found.AnyType):
                return True
            waiting += [getattr(part, name) for name in part.__struct_fields__]
    return False


def _has_models(top: Mapping[str, Any], definitions: Mapping[str, Any]) -> bool:
    """Whether it holds other models, which may have code of their own."""
    return any("$ref" in part and "enum" not in resolve(part, definitions) for part in _parts(top))


def _as_dict(event_type: str, model: type[msgspec.Struct], payload: Any) -> dict[str, Any]:
    if isinstance(payload, Mapping):
        return dict(payload)
    if not isinstance(payload, model):
        wanted = f"expected an object or a {model.__qualname__}, got a {type(payload).__qualname__}"
        raise InvalidPayload(event_type, [("$", wanted)])
    try:
        # An instance is not checked by its construction, so it takes the same way as a dict; its keys as they are,
        # because two of them may be the same as texts.
        found: dict[str, Any] = msgspec.to_builtins(payload)
    except (TypeError, RecursionError) as error:
        named = zip(model.__struct_encode_fields__, model.__struct_fields__, strict=True)
        given = {name: getattr(payload, field) for name, field in named}
        raise _invalid(event_type, model, given, error) from error
    return found


def _invalid(
    event_type: str, model: type[msgspec.Struct], given: Mapping[str, Any], error: Exception
) -> InvalidPayload:
    if isinstance(error, RecursionError):
        return InvalidPayload(event_type, [("$", "it is nested too deep, or holds itself")])
    return InvalidPayload(event_type, struct_defects(model, given) or [("$", str(error))])


def _components(model: type[msgspec.Struct]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The schema of the model itself, and those of the types that it refers to (itself too, if it does)."""
    try:
        (top,), definitions = msgspec.json.schema_components([model], ref_template=DEFINITIONS + "{name}")
    except KeyError as error:  # msgspec names definitions after their classes, and gives up on two of one name
        raise TypeError(f"it uses two classes that are both called {error}; rename one") from error
    own = definitions[top["$ref"].removeprefix(DEFINITIONS)]
    return own, definitions

"""Payload models: msgspec Structs here, and pydantic models with the same functions in their own module.

A model is prepared at its first use, not when it is registered: a program imports many event types and appends few,
and a model that refers to itself is not complete while its decorator runs.
"""

from __future__ import annotations

import inspect
import sys
import types
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any, Protocol, TypeAlias

import msgspec

from everlog.catalog.defects import silent_changes, strays, struct_defects
from everlog.catalog.personal import Personal, personal_fields, with_personal
from everlog.catalog.schema import DEFINITIONS, object_schema, parts, resolve
from everlog.errors import InvalidPayload, SchemaBroken


class PydanticPayload(Protocol):
    """An instance of a pydantic model, as far as type checkers need to know."""

    def model_dump(self) -> dict[str, Any]: ...


Payload: TypeAlias = msgspec.Struct | PydanticPayload
"""A typed payload: an instance of a registered model."""


CheckAll: TypeAlias = Callable[[list[Any]], list[dict[str, Any]]]
"""Returns payloads as `PayloadModel.check` does. Raises anything if one of them is not a valid dict."""


def is_payload(value: Any) -> bool:
    """Return whether a value is an instance of a model, registered or not."""
    return isinstance(value, msgspec.Struct) or hasattr(type(value), "__pydantic_validator__")


class PayloadModel(Protocol):
    """What the catalog needs of a model of either library."""

    @property
    def runs_user_code(self) -> bool:
        """Whether checking may run user code, and so take any time."""
        ...

    @property
    def check(self) -> Callable[[Any], dict[str, Any]]:
        """Returns the payload as a JSON-ready dict with its defaults; raises InvalidPayload with every defect."""
        ...

    @property
    def check_all(self) -> CheckAll | None:
        """Checks many payloads with one call, if each can only hold texts, whole numbers, booleans and nothing."""
        ...

    def build(self, payload: Mapping[str, Any]) -> Any:
        """Return an instance of the model from a stored payload."""
        ...

    def schema(self) -> dict[str, Any]:
        """Return the JSON Schema of the payload."""
        ...

    def defaults(self) -> dict[str, Any]:
        """Return the fields of the payload that have the same default for every event, as JSON."""
        ...

    @property
    def personal(self) -> Mapping[str, Personal]:
        """The fields whose values are sealed: see `everlog.catalog.personal`."""
        ...


def ready(event_type: str, model: type[Any]) -> PayloadModel:
    """Return the model, prepared to check payloads of this event type."""
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
    """Refuse to register a class that is not a payload model."""
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


def require_version(event_type: str, version: int) -> None:
    if type(version) is not int or version < 1:
        raise SchemaBroken(
            f"{event_type} has the version {version!r}",
            why="versions are whole numbers from 1",
            hint="start with version=1",
            type=event_type,
        )


def refuse_other_model(event_type: str, version: int, model: type[Any], models: Mapping[int, type[Any]]) -> None:
    """Refuse a second model for the same version of a type."""
    known = models.get(version)
    if known is not None and known is not model:
        raise SchemaBroken(
            f"{event_type} version {version} is registered twice",
            why=f"once as {name_of(known)}, once as {name_of(model)}",
            hint=f"give the new model version={max(models) + 1}, or another type name",
            type=event_type,
            version=version,
        )


def doc_of(model: type[Any]) -> str:
    """Return the docstring of the model itself, not one that it inherits."""
    return inspect.cleandoc(model.__dict__.get("__doc__") or "")


def name_of(registered: Callable[..., Any]) -> str:
    """Return the name of a model or an upcaster, for messages."""
    name = getattr(registered, "__qualname__", None)
    return f"{registered.__module__}.{name}" if name else repr(registered)


class StructModel:
    """A msgspec Struct as a payload model."""

    def __init__(self, event_type: str, model: type[msgspec.Struct]) -> None:
        self._model = model
        self._top, self._definitions = _components(model)
        self.runs_user_code = not _is_plain(model)
        strict = _strict(model)
        self.check = _struct_check(event_type, model, strict, self._top, self._definitions)
        self.check_all = None if self.runs_user_code or _may_hold_floats(model) else _check_all(strict)
        names = dict(zip(model.__struct_fields__, model.__struct_encode_fields__, strict=True))
        self.personal = personal_fields(model, names, _fits)

    def build(self, payload: Mapping[str, Any]) -> Any:
        return msgspec.convert(payload, self._model, str_keys=True)

    def schema(self) -> dict[str, Any]:
        return with_personal(object_schema(self._top, self._definitions), self.personal)

    def defaults(self) -> dict[str, Any]:
        return fixed_defaults(self._top)


def _fits(value: Any, hint: Any) -> bool:
    try:
        msgspec.convert(value, hint)
    except (msgspec.ValidationError, TypeError):
        return False
    return True


def fixed_defaults(top: Mapping[str, Any]) -> dict[str, Any]:
    """Return the defaults in the schema of a model; those that a function computes are not among them."""
    return {name: field["default"] for name, field in top.get("properties", {}).items() if "default" in field}


def _strict(model: type[msgspec.Struct]) -> type[msgspec.Struct]:
    """Return a subclass that refuses unknown fields, so that msgspec finds them at no cost, and writes every
    default."""
    return types.new_class(
        model.__name__,
        (model,),
        {"forbid_unknown_fields": True, "omit_defaults": False},
        lambda body: body.update(__module__=model.__module__, __qualname__=model.__qualname__),
    )


def _check_all(strict: type[msgspec.Struct]) -> CheckAll:
    convert, to_builtins, many = msgspec.convert, msgspec.to_builtins, list[strict]  # type: ignore[valid-type]

    def check_all(payloads: list[Any]) -> list[dict[str, Any]]:
        return to_builtins(convert(payloads, many))  # type: ignore[no-any-return]

    return check_all


def _struct_check(
    event_type: str,
    model: type[msgspec.Struct],
    strict: type[msgspec.Struct],
    top: Mapping[str, Any],
    definitions: Mapping[str, Any],
) -> Callable[[Any], dict[str, Any]]:
    convert, to_builtins = msgspec.convert, msgspec.to_builtins

    def check_flat(payload: Any) -> dict[str, Any]:
        given = payload if type(payload) is dict else _as_dict(event_type, model, payload)
        try:
            # Converting back to builtins costs less than finding out whether it is needed. It turns values that are
            # not JSON (a member of an enum, a set) into what will be read back.
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
    """Return whether msgspec checks the model without user code: texts, numbers and so on, with fixed defaults."""
    from msgspec import inspect as found  # already loaded, because the schema needed it

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


def _may_hold_floats(model: type[msgspec.Struct]) -> bool:
    """Return whether a field of a plain model takes a number with a fraction."""
    from msgspec import inspect as found

    def holds(kind: found.Type) -> bool:
        if isinstance(kind, found.UnionType):
            return any(map(holds, kind.types))
        if isinstance(kind, found.EnumType):
            return any(isinstance(member.value, float) for member in kind.cls)
        return isinstance(kind, found.FloatType)

    struct = found.type_info(model)
    return not isinstance(struct, found.StructType) or any(holds(field.type) for field in struct.fields)


def _parts(top: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return list(parts({"properties": top["properties"]}))


def _has_typed_keys(model: type[msgspec.Struct]) -> bool:
    """Return whether the model declares keys that are not texts, so that they are read back unchanged."""
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
    """Return whether the model contains other models, which may run user code."""
    return any("$ref" in part and "enum" not in resolve(part, definitions) for part in _parts(top))


def _as_dict(event_type: str, model: type[msgspec.Struct], payload: Any) -> dict[str, Any]:
    if isinstance(payload, Mapping):
        return dict(payload)
    if not isinstance(payload, model):
        wanted = f"expected an object or a {model.__qualname__}, got a {type(payload).__qualname__}"
        raise InvalidPayload(event_type, [("$", wanted)])
    try:
        # Constructing an instance checks nothing, so it is checked like a dict. Its keys are left as they are,
        # because two of them may be equal as texts.
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
    """Return the schema of the model, and those of the types that it refers to, which may include itself."""
    try:
        (top,), definitions = msgspec.json.schema_components([model], ref_template=DEFINITIONS + "{name}")
    except KeyError as error:  # msgspec names definitions after their classes, and fails for two of one name
        raise TypeError(f"it uses two classes that are both called {error}; rename one") from error
    own = definitions[top["$ref"].removeprefix(DEFINITIONS)]
    return own, definitions


# ---- models in another process, such as a worker of Spark


class Declaration(msgspec.Struct, frozen=True):
    """The declaration of a model, in place of the model."""

    fields: dict[str, str]
    doc: str


def packed(event_type: str, model: type[Any]) -> Any:
    """Return what is pickled in place of a model.

    A model is found by its name: the other process imports the same module. A model declared in `types.toml` has no
    module, so its declaration is sent. A msgspec class of a script or a function has neither; pickled by value it
    would arrive without its fields and refuse everything, so it is refused here.
    """
    if has_its_name(model) or not issubclass(model, msgspec.Struct):
        return model
    declared: Mapping[str, str] | None = model.__dict__.get("__declared__")
    if declared is not None:
        return Declaration(dict(declared), model.__dict__.get("__doc__") or "")
    raise SchemaBroken(
        f"the model {model.__qualname__} of {event_type} cannot go to another process",
        why=f"another process cannot import it: it is defined in {model.__module__}, not at the top of a module",
        hint="move it to the top level of a module that is on the Python path",
        type=event_type,
    )


def unpacked(event_type: str, found: Any) -> type[Any]:
    if not isinstance(found, Declaration):
        return found  # type: ignore[no-any-return]
    from everlog.catalog.declared import model_of

    return model_of(event_type, found.fields, found.doc)


def has_its_name(model: type[Any]) -> bool:
    """Return True when another process finds the same class under its name."""
    found: Any = sys.modules.get(model.__module__)
    if found is None or model.__module__ == "__main__":
        return False
    for part in model.__qualname__.split("."):
        found = getattr(found, part, None)
    return found is model

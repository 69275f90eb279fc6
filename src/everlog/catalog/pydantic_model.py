"""A pydantic v2 model as a payload model. Only this module imports pydantic, once such a model is used."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from everlog.catalog.defects import MISSING, Defect, no_such_field, silent_changes
from everlog.catalog.models import fixed_defaults
from everlog.catalog.personal import personal_fields, with_personal
from everlog.catalog.schema import DEFINITIONS, object_schema
from everlog.core.text import below
from everlog.errors import InvalidPayload

if TYPE_CHECKING:
    from pydantic import BaseModel
    from pydantic_core import ErrorDetails


class PydanticModel:
    """A pydantic model as a payload model. The model decides how values are coerced (`strict` or not)."""

    runs_user_code = True  # its validators
    check_all = None

    def __init__(self, event_type: str, model: type[BaseModel]) -> None:
        self._event_type = event_type
        self._model = model
        _refuse_two_spellings(model)
        # A model with extra="allow" wants unknown fields; every other model would drop them silently.
        self._forbids = model.model_config.get("extra") != "allow"
        names = {name: field.alias or name for name, field in model.model_fields.items()}
        self.personal = personal_fields(model, names, _fits)

    def check(self, payload: Any) -> dict[str, Any]:
        from pydantic import ValidationError
        from pydantic_core import PydanticSerializationError

        if isinstance(payload, self._model):
            # An instance may have been changed after its construction, so it is checked like a dict.
            given: Any = payload.model_dump(by_alias=True, exclude_computed_fields=True, warnings=False)
        elif isinstance(payload, Mapping):
            given = dict(payload)
        else:
            wanted = f"expected an object or a {self._model.__qualname__}, got a {type(payload).__qualname__}"
            raise InvalidPayload(self._event_type, [("$", wanted)])
        try:
            found = self._model.model_validate(given, extra="forbid" if self._forbids else None)
            # Its JSON has null in place of NaN, and one key in place of two with the same spelling.
            dumped = found.model_dump(by_alias=True, exclude_computed_fields=True, warnings=False)
            changed = [*silent_changes(given, typed_keys=True), *silent_changes(dumped, typed_keys=True)]
            if changed:
                raise InvalidPayload(self._event_type, list(dict.fromkeys(changed)))
            # A computed field is derived: if it were stored, reading it back would refuse it as unknown.
            return found.model_dump(mode="json", by_alias=True, exclude_computed_fields=True)
        except ValidationError as error:
            raise InvalidPayload(self._event_type, list(map(self._defect, error.errors()))) from error
        except (PydanticSerializationError, RecursionError, ValueError) as error:
            raise InvalidPayload(self._event_type, [("$", str(error))]) from error

    def build(self, payload: Mapping[str, Any]) -> Any:
        return self._model.model_validate(payload)

    def schema(self) -> dict[str, Any]:
        top = self._model.model_json_schema(by_alias=True, ref_template=DEFINITIONS + "{model}")
        definitions = top.pop("$defs", {})
        if "$ref" in top:  # a model that refers to itself
            top = definitions[top["$ref"].removeprefix(DEFINITIONS)]
        if not self._forbids:
            top = {**top, "additionalProperties": True}
        return with_personal(object_schema(top, definitions), self.personal)

    def defaults(self) -> dict[str, Any]:
        # The schema does not have the defaults that a function computes.
        empty: dict[Any, Any] = {list: [], set: [], tuple: [], dict: {}}
        made = {
            field.alias or name: empty[field.default_factory]
            for name, field in self._model.model_fields.items()
            if field.default_factory in empty
        }
        return {**made, **fixed_defaults(self.schema())}

    def _defect(self, found: ErrorDetails) -> Defect:
        path = "$"
        for step in found["loc"]:
            path = below(path, step)
        if found["type"] == "missing":
            return path, MISSING
        if found["type"] == "extra_forbidden":
            # Only the fields of the payload itself are known by name here.
            known = self._names() if len(found["loc"]) == 1 else []
            return path, no_such_field(str(found["loc"][-1]), known)
        return path, found["msg"][:1].lower() + found["msg"][1:]

    def _names(self) -> list[str]:
        return [field.alias or name for name, field in self._model.model_fields.items()]


def _fits(value: Any, hint: Any) -> bool:
    from pydantic import TypeAdapter, ValidationError

    try:
        TypeAdapter(hint).validate_python(value)
    except ValidationError:
        return False
    return True


def _refuse_two_spellings(model: type[BaseModel]) -> None:
    """Refuse a field that is written under one name and read under another: stored events could not be read."""
    for name, field in model.model_fields.items():
        written, read = field.serialization_alias or name, field.validation_alias or name
        if written != read:
            raise TypeError(f"the field {name} is read as {read!s} but written as {written}; give it one alias")

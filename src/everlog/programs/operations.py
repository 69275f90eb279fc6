"""The operations of all programs: name, policy, JSON Schema and call, for surfaces that are not a command line.

    for operation in operations():
        mount(operation.name, operation.schema, operation.call)       # HTTP, tools for agents, ...

`tools()` describes the same list for agents; `everlog.application.operations` adds the operations of the log itself,
and the server describes all of them as an OpenAPI document. Nothing here imports an HTTP or a tool library. What
comes with a request but is not part of it (actor, key, what the caller may see) is the `By` that the surface makes.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from typing import Any, TypeVar, get_args, get_origin

import msgspec

from everlog.core.text import did_you_mean
from everlog.errors import EverlogError, InvalidField
from everlog.log.log import Log
from everlog.programs.command import NOBODY, Action, By, Command, Question, facts_of
from everlog.programs.perform import ask, perform
from everlog.programs.policy import Policy
from everlog.programs.registry import Own, every_value

Value = Command[Any] | Question[Any] | Action[Any]


class RecordedEvent(msgspec.Struct, frozen=True, kw_only=True):
    """An event that a command recorded, in its answer."""

    position: int
    id: str
    type: str
    stream: str


class CommandAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What the answer of every command has, beside its own fields."""

    status: str
    events: list[RecordedEvent]
    next: list[str]


class Called(msgspec.Struct, frozen=True):
    """What an operation answered, as JSON can hold it. `replayed`: an earlier attempt under the same key did it."""

    answer: Any
    replayed: bool = False


class Operation:
    """A command, a question or an action that a surface can offer."""

    def __init__(self, group: str, value: type[Value]) -> None:
        self.value = value
        self.name = f"{group}.{value.verb.replace(' ', '_')}"
        self.records = not issubclass(value, Question)

    @property
    def policy(self) -> Policy:
        return self.value.policy

    @property
    def keyed(self) -> bool:
        """Whether it takes a key, under which a retry gets the first answer."""
        return issubclass(self.value, Command) or (issubclass(self.value, Action) and self.value.keyed)

    @property
    def long(self) -> bool:
        """Whether it may take minutes."""
        return issubclass(self.value, Action) and self.value.long

    @property
    def problems(self) -> tuple[str, ...]:
        """The codes of refusals, beside those that every operation may report."""
        usual: tuple[str, ...] = ("invalid_field", "not_canonical")
        if issubclass(self.value, Command):
            usual += _OF_COMMANDS
        elif issubclass(self.value, Question):
            usual += ("not_found", "no_such_subject")
        return tuple(dict.fromkeys((*usual, *self.value.problems)))

    @property
    def summary(self) -> str:
        return (inspect.getdoc(self.value) or "").partition("\n")[0]

    @cached_property
    def schema(self) -> dict[str, Any]:
        """Return the JSON Schema of the input."""
        (_, *_), components = msgspec.json.schema_components([self.value], ref_template="#/$defs/{name}")
        own = components.pop(self.value.__name__)
        own.pop("title", None)
        return {**own, "additionalProperties": False} | ({"$defs": components} if components else {})

    @cached_property
    def result_type(self) -> Any:
        """Return the type of what it answers, Any if it is not stated. A command answers with more: see `call`."""
        found = _argument(self.value)
        return Any if found is None or isinstance(found, TypeVar) else found

    def call(self, log: Log, body: Mapping[str, Any], by: By = NOBODY) -> Any:
        """Run it with the fields of a JSON object, and return what JSON can hold."""
        return self.run(log, self.read(body), by).answer

    def run(self, log: Log, value: Value, by: By, progress: Callable[[int], None] = lambda position: None) -> Called:
        """Run a value of it."""
        match value:
            case Command():
                outcome = perform(log, value, by)
                events = [
                    {"position": one.position, "id": one.event.id, "type": one.event.type, "stream": one.event.stream}
                    for one in outcome.records
                ]
                answer = {**facts_of(outcome.result), "status": outcome.status, "events": events}
                return Called({**answer, "next": list(outcome.next)}, outcome.replayed)
            case Question():
                return Called(msgspec.to_builtins(ask(log, value, within=by.within)))
            case Action():
                value.check()
                done = value.run(log, by, progress)
                return Called(msgspec.to_builtins(done.result), done.replayed)

    @cached_property
    def field_types(self) -> dict[str, Any]:
        """Its fields, as they are named in JSON; msgspec would derive them from the annotations at every call."""
        return {field.encode_name: field.type for field in msgspec.structs.fields(self.value)}

    def read(self, body: Mapping[str, Any]) -> Value:
        """Return the value with the fields of a JSON object; refuse a field that it does not have."""
        known = set(self.field_types)
        unknown = sorted(set(body) - known)
        if unknown:
            listed = f"its fields are {', '.join(sorted(known))}" if known else "it has no fields"
            shown = ", ".join(name[:60] for name in unknown[:5])
            raise _unusable(
                self.name, f"it has no field {shown}; {listed}", unknown[0], did_you_mean(unknown[0], known)
            )
        try:
            found: Value = msgspec.convert(dict(body), self.value)
            return found
        except msgspec.ValidationError as error:
            field = str(error).partition("$.")[2].rstrip("`").partition("[")[0].partition(".")[0]
            raise _unusable(self.name, str(error), field or "body") from error


_OF_COMMANDS = (
    *("no_such_subject", "not_found", "rule_refused", "invalid_payload", "event_too_large", "secret_found"),
    *("look_alike", "query_matched", "idempotency_key_reuse", "already_purged", "no_key", "storage_full"),
    *("read_only", "writer_stopped", "confirmation_needed", "transition_refused"),
)


def _unusable(name: str, why: str, field: str, hint: str = "") -> EverlogError:
    return InvalidField(
        f"the input of {name} is not valid",
        why=why,
        hint=hint or f"see the schema of {name}: everlog help operations --json",
        field=field[:60],
    )


def _argument(value: type[Any]) -> Any:
    """Return R of a class that derives from Command[R], Question[R] or Action[R], by way of other generic classes."""
    bases = vars(value).get("__orig_bases__", value.__bases__)
    for base in bases:
        origin = get_origin(base)
        if origin in (Command, Question, Action):
            return get_args(base)[0]
        inner = _argument(origin or base) if (origin or base) is not object else None
        if isinstance(inner, TypeVar) and origin is not None:
            return get_args(base)[0]
        if inner is not None:
            return inner
    return None


def operations(own: Own = "") -> list[Operation]:
    """Return every operation of the built-in programs, then every one of your own programs.

    `own` is `[PROGRAM]`, or the names of modules as in the setting `programs`. The settings of a folder are not read.
    """
    return [Operation(program.name, value) for program, value in every_value(own)]


def tools(own: Own = "", *, more: Iterable[Operation] = ()) -> list[dict[str, Any]]:
    """Return all operations as tools for agents: a name without dots, a description, the schema of the input.

    `more` are operations beside those of the programs.
    """
    return tools_of([*operations(own), *more])


def tools_of(found: Iterable[Operation]) -> list[dict[str, Any]]:
    """Return these operations as tools for agents."""
    return [
        {
            "name": one.name.replace(".", "_"),
            "description": inspect.getdoc(one.value) or "",
            "inputSchema": one.schema,
            "annotations": {
                "readOnlyHint": not one.records,
                "destructiveHint": one.policy.destructive,
                "idempotentHint": one.policy.idempotent,
            },
        }
        for one in found
    ]

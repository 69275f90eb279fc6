"""From the field of a command to an argument or an option: by its type, unless a spelling says otherwise."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

import click
import msgspec
import pytest
from msgspec import Meta

from everlog.cli.programs.spelling import Argument, Flag, Json, Option, Spelling, fields_of, parameter
from everlog.programs.command import Command


class Order(Command[Any], frozen=True, kw_only=True):
    """A command with a field of every kind."""

    shared = ("scope",)
    scope: Annotated[str, Meta(description="The scope.")] = ""
    name: Annotated[str, Meta(description="The name.")]
    size: Literal["small", "large"] = "small"
    count: Annotated[int, Meta(ge=1, le=9, description="How many.")] = 1
    weight: float | None = None
    at: datetime | None = None
    tags: list[str] = msgspec.field(default_factory=list)
    extra: dict[str, Any] = msgspec.field(default_factory=dict)
    gift: bool = False


def made(name: str, spelling: Spelling | None = None) -> click.Parameter:
    fields = fields_of(Order)
    index = [one.name for one in fields].index(name)
    return parameter(fields[index], spelling, first=index == 0)


def parsed(option: click.Parameter, *words: str) -> Any:
    command = click.Command("x", params=[option])
    with command.make_context("x", list(words)) as context:
        return context.params[option.name or ""]


def test_shared_fields_come_last_and_the_first_required_one_is_an_argument() -> None:
    names = [one.name for one in fields_of(Order)]
    assert (names[0], names[-1]) == ("name", "scope")
    assert isinstance(made("name"), click.Argument)
    option = made("scope")
    assert isinstance(option, click.Option)
    assert (option.opts, option.help) == (["--scope"], "The scope.")


@pytest.mark.parametrize(
    ("name", "words", "value"),
    [
        ("size", ("--size", "large"), "large"),
        ("count", ("--count", "9"), 9),
        ("count", (), 1),
        ("weight", ("--weight", "1.5"), 1.5),
        ("weight", (), None),
        ("tags", ("--tags", "a", "--tags", "b"), ("a", "b")),
        ("extra", ("--extra", '{"a": 1}'), {"a": 1}),
        ("gift", ("--gift",), True),
        ("gift", (), False),
    ],
)
def test_an_option_has_the_type_and_the_default_of_its_field(name: str, words: tuple[str, ...], value: Any) -> None:
    assert parsed(made(name), *words) == value


@pytest.mark.parametrize(
    ("name", "word"),
    [("size", "huge"), ("count", "0"), ("count", "10"), ("weight", "x"), ("at", "soon"), ("extra", "{")],
)
def test_a_value_outside_of_the_limits_of_its_field_is_a_mistake_of_usage(name: str, word: str) -> None:
    with pytest.raises(click.UsageError):
        parsed(made(name), f"--{name}", word)


def test_a_spelling_replaces_what_follows_from_the_field() -> None:
    assert isinstance(made("size", Argument("SIZE")), click.Argument)
    assert parsed(made("tags", Option("--tag", metavar="TAG")), "--tag", "a") == ("a",)
    assert parsed(made("gift", Flag("--no-gift", "It is none.", opposite=True)), "--no-gift") is True
    with pytest.raises(click.UsageError, match="not an object"):
        parsed(made("extra", Option("--extra", type=Json(only_objects=True))), "--extra", "[1]")

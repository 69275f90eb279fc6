"""One run: options before or after the name of a command, and commands that are loaded when they are used."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

import click
import pytest

from everlog.cli.main import COMMANDS, cli
from everlog.cli.pipeline.group import pipeline_command
from everlog.cli.session import LazyGroup, Session, actor_option, common_options, pass_session, together


@click.group()
@common_options
def group() -> None: ...


@group.command()
@actor_option
@common_options
@pass_session
def show(session: Session) -> None:
    click.echo(f"{session.work_in} {session.actor} {session.json} {session.quiet}")


def run(*words: str) -> Session:
    session = Session(argv=words)
    group.main(args=list(words), standalone_mode=False, obj=session)
    return session


@pytest.mark.parametrize("words", [("-C", "sub", "--json", "show"), ("show", "-C", "sub", "--json")])
def test_an_option_may_come_before_or_after_the_command(words: tuple[str, ...]) -> None:
    session = run(*words)
    assert (session.work_in, session.json, session.quiet) == (Path("sub"), True, False)


def test_an_option_with_an_empty_value_is_a_mistake() -> None:
    with pytest.raises(click.BadParameter, match="the value is empty"):
        run("show", "--actor", "")


def test_the_form_of_an_error_is_known_before_the_options_are_parsed() -> None:
    assert (Session(["log", "--json", "--wrong"]).json, Session(["log", "--agent"]).agent) == (True, True)


def test_options_are_added_in_their_order() -> None:
    @click.command()
    @together(click.option("--first"), click.option("--second"), click.option("--third"))
    def command(**given: str) -> None: ...

    assert [one.name for one in command.params] == ["first", "second", "third"]


class Lazy(LazyGroup):
    modules: ClassVar[Mapping[str, str]] = {"merge-driver": "transfer.git", "absent": "no_such_module"}


def test_a_command_is_imported_when_it_is_used_and_not_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "everlog.cli.transfer.git", raising=False)
    lazy = Lazy("lazy")
    context = click.Context(lazy)
    assert lazy.list_commands(context) == ["merge-driver", "absent"]
    assert "everlog.cli.transfer.git" not in sys.modules
    found = lazy.get_command(context, "merge-driver")
    assert found is not None
    assert found.name == "merge-driver"
    assert "everlog.cli.transfer.git" in sys.modules
    assert lazy.get_command(context, "unknown") is None


@pytest.mark.parametrize("lazy", [cli, pipeline_command], ids=["everlog", "pipeline"])
def test_every_command_that_is_listed_can_be_loaded_under_its_name(lazy: click.Group) -> None:
    context = click.Context(lazy, obj=Session())
    names = lazy.list_commands(context)
    assert names
    for name in names:
        found = lazy.get_command(context, name)
        assert found is not None, name
        assert found.name == name
    assert set(cli.list_commands(context)) == set(COMMANDS)

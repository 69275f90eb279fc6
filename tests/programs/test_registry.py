"""Programs of a user: opened in Python, their rules hold for every writer; names that are taken are refused."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import msgspec
import pytest
from msgspec import Meta

import everlog
from everlog.cli.main import COMMANDS
from everlog.errors import InvalidSettings, RuleRefused
from everlog.programs import COMMANDS as TAKEN
from everlog.programs.command import Command, Decision
from everlog.programs.program import Program, guard_of_stream
from everlog.programs.registry import own_programs

CATALOG = everlog.Catalog()


@CATALOG.event("parking.spot.taken")
class Taken(msgspec.Struct, frozen=True, kw_only=True):
    """A car stands on the spot."""

    plate: str


def cars(spot: str, events: Iterable[everlog.Event]) -> list[str]:
    return [event.payload["plate"] for event in events]


def one_car(state: list[str], payload: Taken, actor: str) -> None:
    if state:
        raise RuleRefused("the spot is taken", rule="one car per spot", tried=payload.plate, why=f"by {state[0]}")


class Spots(everlog.View):
    name = "parking.spots"
    types = ("parking.spot.taken",)

    def apply(self, state: dict[str, Any], event: everlog.Event) -> dict[str, Any]:
        return {"plate": event.payload["plate"]}


class Take(Command[dict[str, Any]], frozen=True, kw_only=True):
    """Park a car."""

    verb, examples = "take", ("take a1 --plate X",)
    spot: Annotated[str, Meta(description="The spot.")]
    plate: Annotated[str, Meta(description="The car.")]

    def stream(self) -> str:
        return f"spot/{self.spot}"

    def event(self) -> Taken:
        return Taken(plate=self.plate)

    def result(self, decision: Decision) -> dict[str, Any]:
        return {"spot": self.spot, "becomes": "taken"}


PROGRAM = Program(
    name="parking",
    group="parking",
    types=CATALOG,
    views=(Spots,),
    commands=(Take,),
    rules=guard_of_stream("spot", cars, one_car),
)


@pytest.mark.parametrize("store", ["memory:", "sqlite:{}/log.db", "jsonl:{}/log"])
def test_a_log_with_a_program_applies_its_rules_to_every_writer(store: str, tmp_path: Path) -> None:
    url = store.format(tmp_path)
    with everlog.open(url, programs=[PROGRAM], actor="user:ada") as one:
        two = one if url == "memory:" else everlog.open(url, programs=[PROGRAM], actor="user:bob")
        everlog.perform(one, Take(spot="a1", plate="X"))
        with pytest.raises(RuleRefused, match="the spot is taken"):
            two.append(Taken(plate="Y"), stream="spot/a1")
        with pytest.raises(RuleRefused, match="the spot is taken"):
            two.append_batch([everlog.Draft("parking.spot.taken", "spot/a2", {"plate": one}) for one in "PQ"])
        with pytest.raises(RuleRefused, match="cannot be recorded on house/1"):
            two.append(Taken(plate="Y"), stream="house/1")
        two.append(Taken(plate="Z"), stream="spot/a3")
        with pytest.raises(RuleRefused, match="the spot is taken"):
            everlog.perform(one, Take(spot="a3", plate="X"))
        assert dict(one.view("parking.spots").items()) == {"spot/a1": {"plate": "X"}, "spot/a3": {"plate": "Z"}}
        assert (one.head(), two.head()) == (2, 2)
        two.close()


def test_a_catalog_alone_brings_no_rules() -> None:
    """The page says so: who opens a log with the catalog only is judged by `perform` alone."""
    with everlog.open("memory:", catalog=CATALOG) as log:
        everlog.perform(log, Take(spot="a1", plate="X"))
        log.append(Taken(plate="Y"), stream="spot/a1")
        with pytest.raises(RuleRefused):
            everlog.perform(log, Take(spot="a1", plate="Z"))


def test_the_catalog_may_be_given_as_well_and_a_program_twice() -> None:
    with everlog.open("memory:", catalog=CATALOG, programs=[PROGRAM, PROGRAM]) as log:
        log.append(Taken(plate="Y"), stream="spot/a1")
        with pytest.raises(RuleRefused):
            log.append(Taken(plate="Y"), stream="spot/a1")


def named(name: str, group: str) -> Program:
    return Program(name=name, group=group, types=everlog.Catalog())


@pytest.mark.parametrize(
    ("program", "what", "why"),
    [
        (named("mine", "log"), "the program 'mine' cannot have the group 'log'", "`everlog log` is a command"),
        (named("mine", "wp"), "the program 'mine' cannot have the group 'wp'", "`everlog wp` is a command"),
        (named("agents", "mine"), "cannot have the name 'agents'", "a built-in program 'agents'"),
        (named("parking", "mine"), "cannot have the name 'parking'", f"the program 'parking' of {__name__} has it"),
        (named("mine", "parking"), "cannot have the group 'parking'", f"the program 'parking' of {__name__} has it"),
    ],
)
def test_a_name_that_is_taken_is_refused_and_both_are_named(program: Program, what: str, why: str) -> None:
    with pytest.raises(InvalidSettings) as refused:
        everlog.open("memory:", programs=[PROGRAM, program])
    assert what in refused.value.what
    assert why in refused.value.why


def test_every_command_is_a_word_that_is_taken() -> None:
    assert set(TAKEN) == set(COMMANDS)
    assert len(TAKEN) == len(COMMANDS)


def test_programs_without_a_group_do_not_collide() -> None:
    assert len(own_programs([named("one", ""), named("two", "")])) == 2


@pytest.mark.parametrize("wrong", ["json", "no_such_module", [pytest]])
def test_what_is_not_a_program_is_refused(wrong: Any) -> None:
    with pytest.raises(InvalidSettings):
        everlog.open("memory:", programs=wrong)

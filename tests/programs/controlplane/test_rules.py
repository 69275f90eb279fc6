from __future__ import annotations

import pytest
from tests.programs.controlplane.happened import ADA, DEPLOYER, DONE, OPEN, PROD, born, deployed, died

from everlog.errors import InvalidField, NoSuchSubject, RuleRefused
from everlog.programs.controlplane import rules
from everlog.programs.controlplane.events import (
    AppClosed,
    AppCreated,
    DeployRequested,
    DeployRolledBack,
    DeployStarted,
    DeploySucceeded,
    EnvironmentCreated,
    OrgCreated,
)
from everlog.programs.controlplane.paths import path_of
from everlog.testing.given_when_then import given

# ---- places


def test_a_place_is_created_once_inside_of_an_open_one() -> None:
    shop, acme = path_of("acme/shop"), path_of("acme")
    made = AppCreated(title="Shop")
    given(born(acme)).when(rules.create, shop, made, actor=DEPLOYER).then(made)
    given().when(rules.create, shop, made, actor=ADA).refused(NoSuchSubject, saying="no org acme")
    given(born(acme), died(acme)).when(rules.create, shop, made, actor=ADA).refused(RuleRefused, saying="is closed")
    given(born(acme), born(shop)).when(rules.create, shop, made, actor=ADA).refused(
        RuleRefused, saying="there already"
    )
    given(born(acme), born(shop), died(shop)).when(rules.create, shop, made, actor=ADA).refused(
        RuleRefused, saying="there was one, and it is closed"
    )


def test_an_org_is_made_and_closed_by_people_or_the_system() -> None:
    acme = path_of("acme")
    given().when(rules.create, acme, OrgCreated(), actor=DEPLOYER).refused(RuleRefused, saying="service:deployer")
    given().when(rules.create, acme, OrgCreated(), actor="system").then(OrgCreated())
    given(born(acme)).when(rules.close, acme, actor=DEPLOYER, reason="x").refused(RuleRefused)


def test_what_is_inside_is_closed_first() -> None:
    shop = path_of("acme/shop")
    test = path_of("acme/shop/test")
    full = given(born(shop), born(PROD), born(test), died(test))
    refused = full.when(rules.close, shop, actor=ADA, reason="over")
    refused.refused(RuleRefused, saying="acme/shop/prod is open")
    assert isinstance(refused.error, RuleRefused)
    assert refused.error.hint == 'everlog control environment close acme/shop/prod --reason "…"'
    empty = given(born(shop), born(PROD), died(PROD))
    empty.when(rules.close, shop, actor=ADA, reason="over").then(AppClosed(reason="over"))


@pytest.mark.parametrize("text", ["", "Acme", "acme/", "a b", "acme/shop/prod/more", "acme.shop", "-a", "a" * 41])
def test_a_place_is_written_in_one_way(text: str) -> None:
    with pytest.raises(InvalidField):
        path_of(text)


def test_a_place_of_another_kind_is_refused() -> None:
    assert path_of("acme/shop/prod", "environment").stream == "environment/acme.shop.prod"
    with pytest.raises(InvalidField, match="ORG/APP/ENVIRONMENT"):
        path_of("acme/shop", "environment")


# ---- deploys


def test_a_deploy_goes_to_an_open_environment_when_no_other_is_under_way() -> None:
    asked = DeployRequested(artifact="shop:2")
    given(OPEN).when(rules.request_deploy, PROD, "d2", asked, actor=ADA).then(asked)
    given(OPEN, *deployed("d1", *DONE)).when(rules.request_deploy, PROD, "d2", asked, actor=ADA).then(asked)
    for under_way in (("requested",), ("requested", "started")):
        busy = given(OPEN, *deployed("d1", *under_way))
        busy.when(rules.request_deploy, PROD, "d2", asked, actor=ADA).refused(RuleRefused, saying="under way")
        busy.when(rules.close, PROD, actor=ADA, reason="x").refused(RuleRefused, saying="under way")
    again = given(OPEN, *deployed("d1", "requested", "failed"))
    again.when(rules.request_deploy, PROD, "d1", asked, actor=ADA).refused(RuleRefused, saying="already")
    given(OPEN, died(PROD)).when(rules.request_deploy, PROD, "d2", asked, actor=ADA).refused(RuleRefused)


def test_to_a_protected_environment_only_people_and_the_system_deploy() -> None:
    asked = DeployRequested(artifact="shop:2")
    protected = given(born(PROD, protected=True))
    protected.when(rules.request_deploy, PROD, "d1", asked, actor=DEPLOYER).refused(RuleRefused, saying="protected")
    protected.when(rules.request_deploy, PROD, "d1", asked, actor=ADA).then(asked)


def test_services_report_what_becomes_of_a_deploy() -> None:
    requested = given(*deployed("d1", "requested"))
    requested.when(rules.start, "d1", actor=ADA).refused(RuleRefused, saying="user:ada may not report")
    requested.when(rules.start, "d1", actor=DEPLOYER).then(DeployStarted())
    started = given(*deployed("d1", "requested", "started"))
    started.when(rules.succeed, "d1", actor=ADA, seconds=2.0).refused(RuleRefused)
    started.when(rules.succeed, "d1", actor="system", seconds=2.0).then(
        DeploySucceeded(artifact="shop:d1", seconds=2.0)
    )


def test_a_deploy_takes_its_steps_in_order() -> None:
    requested = given(*deployed("d1", "requested"))
    refused = requested.when(rules.succeed, "d1", actor=DEPLOYER, seconds=1.0)
    refused.refused(RuleRefused, saying="it is requested")
    assert isinstance(refused.error, RuleRefused)
    assert refused.error.details["allowed"] == ["start", "fail"]
    assert refused.error.hint == "everlog control deploy start d1 --actor service:NAME"
    failed = given(*deployed("d1", "requested", "failed"))
    failed.when(rules.start, "d1", actor=DEPLOYER).refused(RuleRefused, saying="nothing follows that")
    given().when(rules.start, "d1", actor=DEPLOYER).refused(NoSuchSubject)


def test_only_what_runs_now_is_rolled_back_and_only_to_what_ran_here() -> None:
    both = [*deployed("d1", *DONE), *deployed("d2", *DONE)]
    back = DeployRolledBack(to="d1", artifact="shop:d1", reason="slow")
    given(*both).when(rules.roll_back, "d2", to="d1", reason="slow").then(back)
    nothing = DeployRolledBack(to="", artifact="", reason="slow")
    given(*both).when(rules.roll_back, "d2", to="", reason="slow").then(nothing)
    given(*both).when(rules.roll_back, "d1", to="", reason="slow").refused(RuleRefused, saying="what d2 brought")
    given(*both).when(rules.roll_back, "d2", to="d9", reason="slow").refused(RuleRefused, saying="no such one")
    elsewhere = deployed("d3", *DONE, scope="acme/shop/test")
    given(*elsewhere, *both).when(rules.roll_back, "d2", to="d3", reason="slow").refused(
        RuleRefused, saying="d3 is succeeded in acme/shop/test"
    )
    failed = deployed("d0", "requested", "failed")
    given(*failed, *both).when(rules.roll_back, "d2", to="d0", reason="slow").refused(RuleRefused, saying="is failed")


def test_nothing_is_rolled_back_while_a_deploy_is_under_way() -> None:
    busy = given(*deployed("d1", *DONE), *deployed("d2", "requested", "started"))
    busy.when(rules.roll_back, "d1", to="", reason="slow").refused(RuleRefused, saying="under way")


def test_after_a_rollback_the_earlier_one_runs_and_can_be_rolled_back_itself() -> None:
    events = [*deployed("d1", *DONE), *deployed("d2", *DONE, "rolled_back", to="d1", artifact="shop:d1")]
    given(*events).when(rules.roll_back, "d2", to="d1", reason="x").refused(RuleRefused, saying="nothing follows")
    given(*events).when(rules.roll_back, "d1", to="", reason="x").then(
        DeployRolledBack(to="", artifact="", reason="x")
    )


# ---- who


@pytest.mark.parametrize(("actor", "is_a"), [(ADA, "user"), (DEPLOYER, "service_principal"), ("system", "system")])
def test_actors_are_users_service_principals_or_the_system(actor: str, is_a: str) -> None:
    assert rules.actor_type(actor) == is_a
    rules.require_actor(actor, tried="look")


def test_nobody_else_takes_part() -> None:
    assert rules.actor_type("agent:builder") == "other"
    with pytest.raises(RuleRefused) as refusal:
        rules.require_actor("agent:builder", tried="deploy")
    assert refusal.value.details["allowed"] == ["user:NAME", "service:NAME", "system"]


def test_a_created_environment_is_what_was_asked_for() -> None:
    made = EnvironmentCreated(region="eu-1", protected=True)
    given(born(path_of("acme/shop"))).when(rules.create, PROD, made, actor=ADA).then(made)

from __future__ import annotations

from typing import Any

import pytest

from everlog.core.event import Event
from everlog.domains.controlplane import rules
from everlog.domains.controlplane.events import (
    AppClosed,
    AppCreated,
    DeployRequested,
    DeployRolledBack,
    DeployStarted,
    DeploySucceeded,
    EnvironmentCreated,
    OrgCreated,
    RouteSet,
    ScaleSet,
    SecretSet,
    VolumeAttached,
    VolumeGrown,
)
from everlog.domains.controlplane.places import Place, place_of
from everlog.errors import InvalidField, NoSuchSubject, RuleRefused, SecretFound
from everlog.testing import builders
from everlog.testing.given_when_then import given

PROD = place_of("acme/shop/prod")
ADA, DEPLOYER = "user:ada", "service:deployer"


def happened(what: str, stream: str, scope: str = "acme/shop/prod", **payload: Any) -> Event:
    return builders.event(f"control.{what}", stream=stream, scope=scope, payload=payload)


def born(place: Place, **payload: Any) -> Event:
    said = {"region": "", "protected": False, **payload} if place.kind == "environment" else {"title": ""}
    return happened(f"{place.kind}.created", place.stream, place.scope, **said)


def died(place: Place) -> Event:
    return happened(f"{place.kind}.closed", place.stream, place.scope, reason="over")


def deployed(deploy: str, *steps: str, scope: str = "acme/shop/prod", **more: Any) -> list[Event]:
    said: dict[str, dict[str, Any]] = {
        "requested": {"artifact": f"shop:{deploy}", "note": ""},
        "started": {"note": ""},
        "succeeded": {"artifact": f"shop:{deploy}", "seconds": 1.0},
        "failed": {"error": "no", "seconds": 1.0},
        "rolled_back": {"to": "", "artifact": "", "reason": "slow", **more},
    }
    return [happened(f"deploy.{step}", f"deploy/{deploy}", scope, **said[step]) for step in steps]


OPEN = born(PROD)
DONE = ("requested", "started", "succeeded")


# ---- places


def test_a_place_is_created_once_inside_of_an_open_one() -> None:
    shop, acme = place_of("acme/shop"), place_of("acme")
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
    acme = place_of("acme")
    given().when(rules.create, acme, OrgCreated(), actor=DEPLOYER).refused(RuleRefused, saying="service:deployer")
    given().when(rules.create, acme, OrgCreated(), actor="system").then(OrgCreated())
    given(born(acme)).when(rules.close, acme, actor=DEPLOYER, reason="x").refused(RuleRefused)


def test_what_is_inside_is_closed_first() -> None:
    shop = place_of("acme/shop")
    test = place_of("acme/shop/test")
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
        place_of(text)


def test_a_place_of_another_kind_is_refused() -> None:
    assert place_of("acme/shop/prod", "environment").stream == "environment/acme.shop.prod"
    with pytest.raises(InvalidField, match="ORG/APP/ENVIRONMENT"):
        place_of("acme/shop", "environment")


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


# ---- what an environment has


def routed(scope: str = "acme/shop/prod", port: int = 80) -> Event:
    return happened("route.set", "route/a.example.org", scope, process="web", port=port)


def test_a_host_leads_to_one_environment() -> None:
    wanted = RouteSet(process="web", port=80)
    given(OPEN).when(rules.set_route, PROD, "a.example.org", wanted).then(wanted)
    given(OPEN, routed()).when(rules.set_route, PROD, "a.example.org", wanted).then_nothing()
    other = RouteSet(process="web", port=81)
    given(OPEN, routed()).when(rules.set_route, PROD, "a.example.org", other).then(other)
    ours = given(OPEN, routed("acme/cart/prod")).when(rules.set_route, PROD, "a.example.org", wanted)
    ours.refused(RuleRefused, saying="it leads to acme/cart/prod")
    removed = happened("route.removed", "route/a.example.org", "umbra/x/prod", reason="")
    given(OPEN, routed("umbra/x/prod"), removed).when(rules.set_route, PROD, "a.example.org", wanted).then(wanted)


def test_whose_a_taken_host_is_is_not_told_to_another_org() -> None:
    wanted = RouteSet(process="web", port=80)
    taken = given(OPEN, routed("umbra/x/prod")).when(rules.set_route, PROD, "a.example.org", wanted)
    taken.refused(RuleRefused, saying="is taken")
    assert isinstance(taken.error, RuleRefused)
    assert "umbra" not in f"{taken.error} {taken.error.hint} {taken.error.details}"
    foreign = given(routed("umbra/x/prod")).when(rules.remove_route, PROD, "a.example.org", reason="")
    foreign.refused(NoSuchSubject, saying="no environment has this host")


@pytest.mark.parametrize(
    "version_id",
    [
        "3",
        "v12",
        "6f1b9a3e-0c7d-4e7e-9d58-2f8e3b6a7c10",
        "01M7GN6JJZF36SA2WBRZNW38C0",
        "projects/p/secrets/s/versions/4",
    ],
)
def test_a_secret_is_recorded_by_the_id_of_its_version(version_id: str) -> None:
    wanted = SecretSet(version_id=version_id)
    given(OPEN).when(rules.set_secret, PROD, "DATABASE_URL", version_id=version_id).then(wanted)


@pytest.mark.parametrize(
    "value",
    [
        "hunter2",
        "Summer@2024",
        "Pass#1",
        "postgresql://app:pw@db/shop",
        "9f86d081884c7d659a2feaa0c55ad015",
        "cGFzc3dvcmQ=",
        "1234567",
        "two words",
        "",
        "3\n",
    ],
)
def test_what_may_be_the_value_of_a_secret_is_refused_and_not_repeated(value: str) -> None:
    refused = given(OPEN).when(rules.set_secret, PROD, "DATABASE_URL", version_id=value)
    refused.refused(SecretFound)
    assert isinstance(refused.error, SecretFound)
    told = f"{refused.error} {refused.error.hint} {refused.error.details}"
    assert not value.strip() or value not in told


def test_a_secret_that_is_set_again_is_set_once() -> None:
    stream = "secret/acme.shop.prod.DATABASE_URL"
    before = happened("secret.set", stream, version_id="3")
    given(OPEN, before).when(rules.set_secret, PROD, "DATABASE_URL", version_id="3").then_nothing()
    gone = happened("secret.removed", stream, reason="")
    given(OPEN, before, gone).when(rules.remove_secret, PROD, "DATABASE_URL", reason="").refused(NoSuchSubject)


def test_a_volume_only_grows_and_is_in_one_place() -> None:
    wanted = VolumeAttached(process="db", mount="/data", size_gb=10)
    there = happened("volume.attached", "volume/acme.shop.prod.data", process="db", mount="/data", size_gb=10)
    grown = happened("volume.grown", "volume/acme.shop.prod.data", size_gb=20)
    gone = happened("volume.detached", "volume/acme.shop.prod.data", reason="")

    def attach(*past: Event, **changed: Any) -> Any:
        fields = {"process": "db", "mount": "/data", "size_gb": 10, **changed}
        return given(OPEN, *past).when(rules.attach_volume, PROD, "data", VolumeAttached(**fields))

    attach().then(wanted)
    attach(there).then_nothing()
    attach(there, size_gb=20).then(VolumeGrown(size_gb=20))
    attach(there, grown).refused(RuleRefused, saying="it has 20 GB")
    attach(there, mount="/other").refused(RuleRefused, saying="db has it at /data")
    attach(there, grown, gone).then(wanted)
    given(OPEN, there, gone).when(rules.detach_volume, PROD, "data", reason="").refused(NoSuchSubject)


def test_a_process_is_scaled_in_an_open_environment_and_only_if_that_changes_anything() -> None:
    given(OPEN).when(rules.scale, PROD, "web", count=3).then(ScaleSet(count=3))
    three = happened("scale.set", "scale/acme.shop.prod.web", count=3)
    given(OPEN, three).when(rules.scale, PROD, "web", count=3).then_nothing()
    given(OPEN, died(PROD)).when(rules.scale, PROD, "web", count=3).refused(RuleRefused, saying="is closed")
    refused = given().when(rules.scale, PROD, "web", count=3)
    refused.refused(NoSuchSubject)
    assert isinstance(refused.error, NoSuchSubject)
    assert refused.error.hint == "everlog control environment create acme/shop/prod"


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
    given(born(place_of("acme/shop"))).when(rules.create, PROD, made, actor=ADA).then(made)

"""What an environment has: one place for a host and a disk, no value of a secret, nothing twice."""

from __future__ import annotations

from typing import Any

import pytest
from tests.programs.controlplane.happened import OPEN, PROD, died, happened

from everlog.core.event import Event
from everlog.errors import NoSuchSubject, RuleRefused, SecretFound
from everlog.programs.controlplane import resources
from everlog.programs.controlplane.events import RouteSet, ScaleSet, SecretSet, VolumeAttached, VolumeGrown
from everlog.testing.given_when_then import given


def routed(scope: str = "acme/shop/prod", port: int = 80) -> Event:
    return happened("route.set", "route/a.example.org", scope, process="web", port=port)


def test_a_host_leads_to_one_environment() -> None:
    wanted = RouteSet(process="web", port=80)
    given(OPEN).when(resources.set_route, PROD, "a.example.org", wanted).then(wanted)
    given(OPEN, routed()).when(resources.set_route, PROD, "a.example.org", wanted).then_nothing()
    other = RouteSet(process="web", port=81)
    given(OPEN, routed()).when(resources.set_route, PROD, "a.example.org", other).then(other)
    ours = given(OPEN, routed("acme/cart/prod")).when(resources.set_route, PROD, "a.example.org", wanted)
    ours.refused(RuleRefused, saying="it leads to acme/cart/prod")
    removed = happened("route.removed", "route/a.example.org", "umbra/x/prod", reason="")
    given(OPEN, routed("umbra/x/prod"), removed).when(resources.set_route, PROD, "a.example.org", wanted).then(wanted)


def test_whose_a_taken_host_is_is_not_told_to_another_org() -> None:
    wanted = RouteSet(process="web", port=80)
    taken = given(OPEN, routed("umbra/x/prod")).when(resources.set_route, PROD, "a.example.org", wanted)
    taken.refused(RuleRefused, saying="is taken")
    assert isinstance(taken.error, RuleRefused)
    assert "umbra" not in f"{taken.error} {taken.error.hint} {taken.error.details}"
    foreign = given(routed("umbra/x/prod")).when(resources.remove_route, PROD, "a.example.org", reason="")
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
    given(OPEN).when(resources.set_secret, PROD, "DATABASE_URL", version_id=version_id).then(wanted)


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
    refused = given(OPEN).when(resources.set_secret, PROD, "DATABASE_URL", version_id=value)
    refused.refused(SecretFound)
    assert isinstance(refused.error, SecretFound)
    told = f"{refused.error} {refused.error.hint} {refused.error.details}"
    assert not value.strip() or value not in told


def test_a_secret_that_is_set_again_is_set_once() -> None:
    stream = "secret/acme.shop.prod.DATABASE_URL"
    before = happened("secret.set", stream, version_id="3")
    given(OPEN, before).when(resources.set_secret, PROD, "DATABASE_URL", version_id="3").then_nothing()
    gone = happened("secret.removed", stream, reason="")
    given(OPEN, before, gone).when(resources.remove_secret, PROD, "DATABASE_URL", reason="").refused(NoSuchSubject)


def test_a_volume_only_grows_and_is_in_one_place() -> None:
    wanted = VolumeAttached(process="db", mount="/data", size_gb=10)
    there = happened("volume.attached", "volume/acme.shop.prod.data", process="db", mount="/data", size_gb=10)
    grown = happened("volume.grown", "volume/acme.shop.prod.data", size_gb=20)
    gone = happened("volume.detached", "volume/acme.shop.prod.data", reason="")

    def attach(*past: Event, **changed: Any) -> Any:
        fields = {"process": "db", "mount": "/data", "size_gb": 10, **changed}
        return given(OPEN, *past).when(resources.attach_volume, PROD, "data", VolumeAttached(**fields))

    attach().then(wanted)
    attach(there).then_nothing()
    attach(there, size_gb=20).then(VolumeGrown(size_gb=20))
    attach(there, grown).refused(RuleRefused, saying="it has 20 GB")
    attach(there, mount="/other").refused(RuleRefused, saying="db has it at /data")
    attach(there, grown, gone).then(wanted)
    given(OPEN, there, gone).when(resources.detach_volume, PROD, "data", reason="").refused(NoSuchSubject)


def test_a_process_is_scaled_in_an_open_environment_and_only_if_that_changes_anything() -> None:
    given(OPEN).when(resources.scale, PROD, "web", count=3).then(ScaleSet(count=3))
    three = happened("scale.set", "scale/acme.shop.prod.web", count=3)
    given(OPEN, three).when(resources.scale, PROD, "web", count=3).then_nothing()
    given(OPEN, died(PROD)).when(resources.scale, PROD, "web", count=3).refused(RuleRefused, saying="is closed")
    refused = given().when(resources.scale, PROD, "web", count=3)
    refused.refused(NoSuchSubject)
    assert isinstance(refused.error, NoSuchSubject)
    assert refused.error.hint == "everlog control environment create acme/shop/prod"

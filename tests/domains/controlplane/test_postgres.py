"""The control plane where seed 003 has it: in PostgreSQL, with several services at once."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pytest
from tests.at_once import at_once
from tests.domains.steps import work
from tests.stores.conftest import postgres_schemas, postgres_url

import everlog
from everlog.domains.controlplane import asking, commands
from everlog.domains.controlplane.events import AppCreated, DeployRequested, EnvironmentCreated, OrgCreated, RouteSet
from everlog.domains.controlplane.views import VIEWS
from everlog.domains.deciding import By
from everlog.errors import KeyReuse, RuleRefused
from everlog.log.log import Log

__all__ = ["postgres_schemas", "postgres_url"]

PROD = "acme/shop/prod"
ONE = DeployRequested(artifact="shop:1")


@pytest.fixture
def log(postgres_url: str) -> Iterator[Log]:
    with everlog.open(postgres_url, actor="user:ada") as opened:
        for org in ("acme", "umbra"):
            commands.create(opened, org, OrgCreated())
            commands.create(opened, f"{org}/shop", AppCreated())
            commands.create(opened, f"{org}/shop/prod", EnvironmentCreated())
        yield opened


def test_of_several_services_that_deploy_at_once_one_gets_the_environment(log: Log, postgres_url: str) -> None:
    outcomes: list[str] = []

    def serve(number: int) -> None:
        with everlog.open(postgres_url, actor=f"service:ci{number}") as mine:
            try:
                commands.deploy(mine, PROD, ONE, id=f"d{number}")
                outcomes.append("got it")
            except RuleRefused:
                outcomes.append("refused")

    at_once(*(partial(serve, number) for number in range(4)))
    assert sorted(outcomes) == ["got it", "refused", "refused", "refused"]
    assert len(asking.history(log, PROD)) == 1


def test_a_host_is_had_by_one_org_and_a_key_names_one_request_in_an_org(log: Log) -> None:
    wanted = RouteSet(process="web", port=80)
    commands.set_route(log, "www.example.org", PROD, wanted, by=By(scope="acme"))
    with pytest.raises(RuleRefused):
        commands.set_route(log, "www.example.org", "umbra/shop/prod", wanted, by=By(scope="umbra"))
    first = commands.deploy(log, PROD, ONE, by=By(key="build-1"))
    assert commands.deploy(log, PROD, ONE, by=By(key="build-1")).id == first.id
    with pytest.raises(KeyReuse):
        commands.deploy(log, PROD, DeployRequested(artifact="shop:2"), by=By(key="build-1"))


def test_an_edge_in_another_process_goes_on_where_it_was(log: Log, postgres_url: str) -> None:
    seen: list[int] = []
    for count in (3, 5):
        commands.scale(log, PROD, "web", count=count)
        with (
            everlog.open(postgres_url) as mine,
            asking.consumer(mine, PROD, "edge-1", within="acme").member("edge-1") as edge,
        ):
            for delivery in edge.deliveries(to_end=True):
                seen.append(delivery.position)
                delivery.ack()
    assert seen == [entry.position for entry in asking.audit(log, PROD)]


def test_after_random_work_the_views_are_what_the_events_say(log: Log) -> None:
    for part in range(2):
        work(log, "controlplane", seed=part, steps=60)
        for view in VIEWS:
            log.view(view).catch_up()
    for view in VIEWS:
        live = log.view(view).digest()
        assert log.view(view).rebuild().digest == live
    assert log.verify().ok

"""The control plane where seed 003 has it: in PostgreSQL, with several services at once."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pytest
from msgspec.structs import replace
from tests.at_once import at_once
from tests.programs.steps import work

import everlog
from everlog.errors import KeyReuse, RuleRefused
from everlog.log.log import Log
from everlog.programs.command import By
from everlog.programs.controlplane import questions
from everlog.programs.controlplane.commands import (
    CreateApp,
    CreateEnvironment,
    CreateOrg,
    RequestDeploy,
    Scale,
    SetRoute,
)
from everlog.programs.controlplane.questions import Audit, DeployHistory
from everlog.programs.controlplane.views import VIEWS
from everlog.programs.perform import ask, perform

PROD = "acme/shop/prod"
ONE = RequestDeploy(environment="", artifact="shop:1")


@pytest.fixture
def log(postgres_url: str) -> Iterator[Log]:
    with everlog.open(postgres_url, actor="user:ada") as opened:
        for org in ("acme", "umbra"):
            perform(opened, CreateOrg(org=org))
            perform(opened, CreateApp(app=f"{org}/shop"))
            perform(opened, CreateEnvironment(environment=f"{org}/shop/prod"))
        yield opened


def test_of_several_services_that_deploy_at_once_one_gets_the_environment(log: Log, postgres_url: str) -> None:
    outcomes: list[str] = []

    def serve(number: int) -> None:
        with everlog.open(postgres_url, actor=f"service:ci{number}") as mine:
            try:
                perform(mine, replace(ONE, environment=PROD, id=f"d{number}"))
                outcomes.append("got it")
            except RuleRefused:
                outcomes.append("refused")

    at_once(*(partial(serve, number) for number in range(4)))
    assert sorted(outcomes) == ["got it", "refused", "refused", "refused"]
    assert len(ask(log, DeployHistory(environment=PROD))) == 1


def test_a_host_is_had_by_one_org_and_a_key_names_one_request_in_an_org(log: Log) -> None:
    wanted = SetRoute(host="", environment="", process="web", port=80)
    perform(log, replace(wanted, host="www.example.org", environment=PROD), By(within="acme"))
    with pytest.raises(RuleRefused):
        perform(log, replace(wanted, host="www.example.org", environment="umbra/shop/prod"), By(within="umbra"))
    first = perform(log, replace(ONE, environment=PROD), By(key="build-1"))
    assert perform(log, replace(ONE, environment=PROD), By(key="build-1")).result.id == first.result.id
    with pytest.raises(KeyReuse):
        perform(log, RequestDeploy(environment=PROD, artifact="shop:2"), By(key="build-1"))


def test_an_edge_in_another_process_goes_on_where_it_was(log: Log, postgres_url: str) -> None:
    seen: list[int] = []
    for count in (3, 5):
        perform(log, Scale(environment=PROD, process="web", count=count))
        with (
            everlog.open(postgres_url) as mine,
            questions.consumer(mine, PROD, "edge-1", within="acme").member("edge-1") as edge,
        ):
            for delivery in edge.deliveries(to_end=True):
                seen.append(delivery.position)
                delivery.ack()
    assert seen == [entry.position for entry in ask(log, Audit(place=PROD))]


def test_after_random_work_the_views_are_what_the_events_say(log: Log) -> None:
    for part in range(2):
        work(log, "controlplane", seed=part, steps=60)
        for view in VIEWS:
            log.view(view).catch_up()
    for view in VIEWS:
        live = log.view(view).digest()
        assert log.view(view).rebuild().digest == live
    assert log.verify().ok

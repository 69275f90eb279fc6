from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace
from tests.at_once import at_once

from everlog.core.event import Event
from everlog.errors import EverlogError, GroupDiffers, InvalidField, KeyReuse, NoSuchSubject, RuleRefused, SecretFound
from everlog.log.log import Log
from everlog.programs import perform as performing
from everlog.programs.command import By
from everlog.programs.controlplane import questions
from everlog.programs.controlplane.commands import (
    AttachVolume,
    CloseEnvironment,
    CloseOrg,
    CreateApp,
    CreateEnvironment,
    CreateOrg,
    DetachVolume,
    FailDeploy,
    RemoveRoute,
    RemoveSecret,
    RequestDeploy,
    RollBackDeploy,
    Scale,
    SetRoute,
    SetSecret,
    StartDeploy,
    SucceedDeploy,
)
from everlog.programs.controlplane.questions import Audit, Days, DeployHistory, Desired, List, ShowDeploy
from everlog.programs.perform import ask, decide, perform

PROD, TEST = "acme/shop/prod", "acme/shop/test"
DEPLOYER = By(actor="service:deployer")
ONE = RequestDeploy(environment="", artifact="shop:1")


@pytest.fixture
def plane(log: Log) -> Log:
    """Two orgs; the first has two environments."""
    for org in ("acme", "umbra"):
        perform(log, CreateOrg(org=org, title=org.capitalize()))
        perform(log, CreateApp(app=f"{org}/shop"))
        perform(log, CreateEnvironment(environment=f"{org}/shop/prod", region="eu"))
    perform(log, CreateEnvironment(environment=TEST))
    return log


def ship(log: Log, environment: str, artifact: str, id: str) -> None:
    perform(log, RequestDeploy(environment=environment, artifact=artifact, id=id))
    perform(log, StartDeploy(deploy=id), DEPLOYER)
    perform(log, SucceedDeploy(deploy=id, seconds=12.5), DEPLOYER)


def test_what_an_environment_should_be_follows_from_what_was_done(plane: Log) -> None:
    ship(plane, PROD, "shop:1", "d1")
    perform(plane, SetRoute(host="www.example.org", environment=PROD, process="web", port=8080))
    perform(plane, SetSecret(environment=PROD, name="DATABASE_URL", version_id="3"))
    perform(plane, AttachVolume(environment=PROD, name="data", process="db", mount="/data", size_gb=10))
    grown = perform(plane, AttachVolume(environment=PROD, name="data", process="db", mount="/data", size_gb=20))
    assert grown.result.becomes == "grown"
    perform(plane, Scale(environment=PROD, process="web", count=3))
    found = ask(plane, Desired(environment=PROD))
    assert found["release"]["artifact"] == "shop:1"
    assert found["routes"] == {"www.example.org": {"process": "web", "port": 8080}}
    assert found["secrets"] == {"DATABASE_URL": "3"}
    assert found["volumes"] == {"data": {"process": "db", "mount": "/data", "size_gb": 20}}
    assert (found["processes"], found["region"], found["status"]) == ({"web": 3}, "eu", "open")
    perform(plane, RemoveRoute(host="www.example.org"))
    perform(plane, RemoveSecret(environment=PROD, name="DATABASE_URL"))
    perform(plane, DetachVolume(environment=PROD, name="data"))
    perform(plane, CloseEnvironment(environment=PROD, reason="over"))
    found = ask(plane, Desired(environment=PROD))
    assert (found["routes"], found["secrets"], found["volumes"], found["status"]) == ({}, {}, {}, "closed")
    assert ask(plane, Desired(environment=TEST))["release"] is None


def test_an_environment_can_be_asked_as_it_was(plane: Log) -> None:
    perform(plane, Scale(environment=PROD, process="web", count=3))
    then = plane.head()
    perform(plane, Scale(environment=PROD, process="web", count=9))
    assert ask(plane, Desired(environment=PROD, as_of=int(then)))["processes"] == {"web": 3}
    with pytest.raises(NoSuchSubject):
        ask(plane, Desired(environment=PROD, as_of=1))


def test_a_rollback_goes_to_what_ran_before_unless_told_otherwise(plane: Log) -> None:
    for number in (1, 2, 3):
        ship(plane, PROD, f"shop:{number}", f"d{number}")
    perform(plane, RollBackDeploy(deploy="d3", reason="slow"))
    assert ask(plane, Desired(environment=PROD))["release"]["deploy"] == "d2"
    perform(plane, RollBackDeploy(deploy="d2", to="d1", reason="slow too"))
    assert ask(plane, Desired(environment=PROD))["release"]["artifact"] == "shop:1"
    perform(plane, RollBackDeploy(deploy="d1", reason="slow as well"))
    assert ask(plane, Desired(environment=PROD))["release"] is None
    assert [(row["id"], row["status"]) for row in ask(plane, DeployHistory(environment=PROD))] == [
        ("d1", "rolled_back"),
        ("d2", "rolled_back"),
        ("d3", "rolled_back"),
    ]


def test_the_history_of_deploys_is_that_of_one_environment_the_newest_last(plane: Log) -> None:
    ship(plane, PROD, "shop:1", "d1")
    ship(plane, TEST, "shop:2", "d2")
    perform(plane, RequestDeploy(environment=PROD, artifact="shop:3", id="d3"))
    perform(plane, FailDeploy(deploy="d3", error="called off"))
    rows = ask(plane, DeployHistory(environment=PROD))
    assert [(row["id"], row["status"]) for row in rows] == [("d1", "succeeded"), ("d3", "failed")]
    assert (rows[1]["error"], rows[0]["seconds"], rows[0]["started_by"]) == ("called off", 12.5, "service:deployer")
    assert [row["id"] for row in ask(plane, DeployHistory(environment=PROD, limit=1))] == ["d3"]
    assert ask(plane, ShowDeploy(deploy="d2"))["environment"] == TEST


# ---- tenants


def every_way_in(environment: str, deploy: str, host: str) -> dict[str, Any]:
    """Every command, as a function of a log and of who calls it, about one environment."""
    org, app = environment.split("/")[0], environment.rpartition("/")[0]
    return {
        "create an app": lambda log, by: perform(log, CreateApp(app=f"{org}/new"), by),
        "create": lambda log, by: perform(log, CreateEnvironment(environment=f"{app}/new"), by),
        "close": lambda log, by: perform(log, CloseEnvironment(environment=environment, reason="x"), by),
        "close the org": lambda log, by: perform(log, CloseOrg(org=org, reason="x"), by),
        "deploy": lambda log, by: perform(log, replace(ONE, environment=environment), by),
        "start": lambda log, by: perform(log, StartDeploy(deploy=deploy), by),
        "succeed": lambda log, by: perform(log, SucceedDeploy(deploy=deploy), by),
        "fail": lambda log, by: perform(log, FailDeploy(deploy=deploy, error="x"), by),
        "roll back": lambda log, by: perform(log, RollBackDeploy(deploy=deploy, reason="x"), by),
        "set a route": lambda log, by: perform(
            log, SetRoute(host="new.example.org", environment=environment, process="web", port=80), by
        ),
        "remove a route": lambda log, by: perform(log, RemoveRoute(host=host), by),
        "set a secret": lambda log, by: perform(
            log, SetSecret(environment=environment, name="KEY", version_id="1"), by
        ),
        "remove a secret": lambda log, by: perform(log, RemoveSecret(environment=environment, name="KEY"), by),
        "attach": lambda log, by: perform(
            log, AttachVolume(environment=environment, name="data", process="web", mount="/x", size_gb=1), by
        ),
        "detach": lambda log, by: perform(log, DetachVolume(environment=environment, name="data"), by),
        "scale": lambda log, by: perform(log, Scale(environment=environment, process="web", count=2), by),
    }


@pytest.mark.parametrize("name", every_way_in("", "", ""))
def test_no_command_reaches_beyond_the_org_of_who_calls_it(plane: Log, name: str) -> None:
    perform(plane, replace(ONE, environment="umbra/shop/prod", id="theirs"))
    perform(plane, SetRoute(host="theirs.example.org", environment="umbra/shop/prod", process="web", port=80))
    head = plane.head()
    attempt = every_way_in("umbra/shop/prod", "theirs", "theirs.example.org")[name]
    with pytest.raises(NoSuchSubject) as refusal:
        attempt(plane, By(actor="system", within="acme"))
    assert plane.head() == head
    missing = every_way_in("nowhere/shop/prod", "nothing", "nothing.example.org")[name]
    with pytest.raises(NoSuchSubject) as same:
        missing(plane, By(actor="system", within="acme"))

    def told(error: NoSuchSubject) -> str:
        details = {name: value for name, value in error.details.items() if not name.startswith("refused_")}
        text = f"{error} {error.hint} {details}"
        for one, other in (("umbra", "nowhere"), ("theirs.", "nothing."), ("theirs", "nothing")):
            text = text.replace(one, other)
        return text

    assert told(refusal.value) == told(same.value), "what another org has must look like what is not there"
    assert len(plane.refusals()) == 2


def test_every_event_has_the_place_that_it_belongs_to_as_its_scope(plane: Log) -> None:
    by = By(actor="system", within="acme")
    perform(plane, replace(ONE, environment=PROD, id="d1"), by)
    perform(plane, SetRoute(host="a.example.org", environment=TEST, process="web", port=80), by)
    scopes = [(recorded.event.stream, recorded.event.scope) for recorded in plane.read()]
    assert scopes[:3] == [("org/acme", "acme"), ("app/acme.shop", "acme/shop"), ("environment/acme.shop.prod", PROD)]
    assert scopes[-2:] == [("deploy/d1", PROD), ("route/a.example.org", TEST)]


@pytest.mark.parametrize(
    "ask",
    [
        lambda log: ask(log, Desired(environment="umbra/shop/prod"), within="acme"),
        lambda log: ask(log, DeployHistory(environment="umbra/shop/prod"), within="acme"),
        lambda log: ask(log, ShowDeploy(deploy="theirs"), within="acme"),
        lambda log: ask(log, Audit(place="umbra"), within="acme"),
        lambda log: ask(log, Days(place="umbra"), within="acme"),
        lambda log: ask(log, List(place="umbra"), within="acme"),
        lambda log: questions.consumer(log, "umbra", "edge-1", within="acme"),
    ],
)
def test_nothing_can_be_asked_about_another_org(plane: Log, ask: Any) -> None:
    perform(plane, replace(ONE, environment="umbra/shop/prod", id="theirs"))
    with pytest.raises(NoSuchSubject):
        ask(plane)


def test_a_list_has_what_lies_below_a_place_and_nothing_beside_it(plane: Log) -> None:
    perform(plane, CreateOrg(org="acme-two"))
    perform(plane, CreateOrg(org="acme2"))
    assert [row["place"] for row in ask(plane, List(place="acme"))] == ["acme", "acme/shop", PROD, TEST]
    assert [row["place"] for row in ask(plane, List(), within="acme")] == ["acme", "acme/shop", PROD, TEST]
    assert len(ask(plane, List())) == 9
    assert ask(plane, List(place="acme/shop/prod"))[0]["kind"] == "environment"


# ---- retries


def test_every_command_under_a_key_is_done_once(plane: Log) -> None:
    ways = every_way_in(PROD, "d1", "a.example.org")
    perform(plane, replace(ONE, environment=PROD, id="d1"))
    perform(plane, SetRoute(host="a.example.org", environment=PROD, process="web", port=80))
    del ways["close the org"]
    order = [
        *("create an app", "create", "start", "succeed", "roll back", "deploy", "set a route", "remove a route"),
        *("set a secret", "remove a secret", "attach", "detach", "scale"),
    ]
    for name in order:
        by = By(actor="system", within="acme", key=f"key of {name}")
        first = ways[name](plane, by)
        head = plane.head()
        again = ways[name](plane, by)
        assert (again.result.id, again.result.becomes) == (first.result.id, first.result.becomes)
        assert again.replayed
        assert again.records == first.records
        assert plane.head() == head, name
    perform(
        plane, FailDeploy(deploy=ask(plane, Desired(environment=PROD))["deploying"]["deploy"], error="x"), By(key="f")
    )
    closing = By(actor="user:ada", key="close it")
    first = perform(plane, CloseEnvironment(environment=PROD, reason="x"), closing)
    assert perform(plane, CloseEnvironment(environment=PROD, reason="x"), closing).records == first.records


def test_a_key_names_one_request_of_an_actor_in_the_whole_org(plane: Log) -> None:
    by = By(actor="user:ada", key="build-17")
    first = perform(plane, replace(ONE, environment=PROD), by)
    with pytest.raises(KeyReuse):
        perform(plane, replace(ONE, environment=TEST), by)
    with pytest.raises(KeyReuse):
        perform(plane, RequestDeploy(environment=PROD, artifact="shop:2"), by)
    assert [one.code for one in plane.refusals()] == ["idempotency_key_reuse"] * 2
    assert not perform(plane, replace(ONE, environment="umbra/shop/prod"), by).replayed
    assert not perform(plane, replace(ONE, environment=TEST), By(actor="user:bob", key="build-17")).replayed
    assert perform(plane, replace(ONE, environment=PROD), by).result.id == first.result.id


def test_asking_for_what_is_so_already_records_nothing(plane: Log) -> None:
    perform(plane, Scale(environment=PROD, process="web", count=3))
    head = plane.head()
    again = perform(plane, Scale(environment=PROD, process="web", count=3))
    assert (again.result.becomes, again.records, plane.head()) == ("unchanged", (), head)


def test_of_many_who_deploy_at_once_one_gets_the_environment(plane: Log) -> None:
    outcomes: list[str] = []

    def ask(number: int) -> None:
        try:
            perform(plane, replace(ONE, environment=PROD, id=f"d{number}"))
            outcomes.append("got it")
        except RuleRefused:
            outcomes.append("refused")

    at_once(*(partial(ask, number) for number in range(8)))
    assert sorted(outcomes) == ["got it"] + ["refused"] * 7


# ---- refusals


def test_a_refusal_is_on_record_with_what_to_do_and_nothing_is_written(plane: Log) -> None:
    head = plane.head()
    attempts: list[Any] = [
        lambda: perform(plane, Scale(environment="acme/shop", process="web", count=1)),
        lambda: perform(plane, Scale(environment=PROD, process="Web!", count=1)),
        lambda: perform(plane, Scale(environment=PROD, process="web", count=-1)),
        lambda: perform(plane, SetRoute(host="no host", environment=PROD, process="web", port=80)),
        lambda: perform(plane, RequestDeploy(environment=PROD, artifact="no image")),
        lambda: perform(plane, StartDeploy(deploy="nothing")),
        lambda: perform(plane, CloseOrg(org="acme", reason="x")),
        lambda: perform(plane, Scale(environment=PROD, process="web", count=1), By(actor="agent:builder")),
    ]
    for attempt in attempts:
        with pytest.raises(EverlogError):
            attempt()
    assert plane.head() == head
    found = plane.refusals()
    assert len(found) == len(attempts)
    assert [one.reason for one in found if not one.hint] == []


def test_the_value_of_a_secret_is_nowhere_after_it_was_refused(plane: Log, tmp_path: Any) -> None:
    value = "correct-horse-battery-staple"
    with pytest.raises(SecretFound):
        perform(plane, SetSecret(environment=PROD, name="DATABASE_URL", version_id=value), By(key="k"))
    with pytest.raises(InvalidField):
        perform(plane, SetSecret(environment=PROD, name=value, version_id="1"))
    assert {one.code for one in plane.refusals()} == {"secret_found", "invalid_field"}
    plane.close()
    for path in tmp_path.iterdir():
        assert value.encode() not in path.read_bytes()


def test_a_dry_run_records_nothing_not_even_a_refusal(plane: Log) -> None:
    head = plane.head()
    assert perform(plane, Scale(environment=PROD, process="web", count=1), By(dry_run=True)).status == "dry_run"
    with pytest.raises(InvalidField):
        perform(plane, Scale(environment="nowhere!", process="web", count=1), By(dry_run=True))
    assert (plane.head(), plane.refusals()) == (head, [])


# ---- audit


def test_an_audit_is_of_one_org_and_a_window_in_order_of_position(plane: Log) -> None:
    found = ask(plane, Audit(place="acme"))
    assert [entry.position for entry in found] == [1, 2, 3, 7]
    assert {entry.scope.split("/")[0] for entry in found} == {"acme"}
    second = found[1].received_at
    assert [entry.position for entry in ask(plane, Audit(place="acme", until=second))] == [1]
    assert [entry.position for entry in ask(plane, Audit(place="acme", since=second))] == [2, 3, 7]
    assert [entry.position for entry in ask(plane, Audit(place="acme", after=1, limit=2))] == [2, 3]
    assert [entry.position for entry in ask(plane, Audit(place=PROD))] == [3]


def test_an_audit_tells_by_whom_and_of_which_kind_they_are(plane: Log) -> None:
    perform(plane, replace(ONE, environment=PROD, id="d1"), By(actor="user:ada", key="b", request_id="r-1"))
    perform(plane, StartDeploy(deploy="d1"), DEPLOYER)
    perform(plane, FailDeploy(deploy="d1", error="x"), By(actor="system"))
    found = ask(plane, Audit(place="acme", after=7))
    assert [(entry.actor, entry.actor_type) for entry in found] == [
        ("user:ada", "user"),
        ("service:deployer", "service_principal"),
        ("system", "system"),
    ]
    assert (found[0].idempotency_key, found[0].request_id) == ("b", "r-1")
    only = ask(plane, Audit(place="acme", actor_type="service_principal"))
    assert [entry.type for entry in only] == ["control.deploy.started"]


def test_a_window_may_be_of_when_things_are_said_to_have_happened(plane: Log) -> None:
    long_ago = datetime.now(UTC) - timedelta(days=3)
    perform(plane, Scale(environment=PROD, process="web", count=3), By(at=long_ago))
    until = long_ago + timedelta(days=1)
    assert ask(plane, Audit(place="acme", until=until)) == []
    assert [entry.type for entry in ask(plane, Audit(place="acme", until=until, occurred=True))] == [
        "control.scale.set"
    ]
    days = ask(plane, Days(place="acme"))
    assert [(day["day"], day["events"]) for day in days] == [
        (f"{long_ago:%Y-%m-%d}", 1),
        (f"{plane.get(1).event.occurred_at:%Y-%m-%d}", 4),  # type: ignore[union-attr]
    ]


# ---- consumers


class Edge:
    """A machine that keeps to what its environment should be: applying an event twice is as applying it once."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}
        self.applied: list[int] = []

    def apply(self, event: Event, position: int) -> None:
        self.applied.append(position)
        self.counts[event.stream] = event.payload["count"]


def test_an_edge_goes_on_where_it_was_and_repeats_what_it_had_not_acknowledged(plane: Log) -> None:
    perform(plane, Scale(environment=PROD, process="web", count=1))
    perform(plane, Scale(environment=PROD, process="worker", count=2))
    perform(plane, Scale(environment=TEST, process="web", count=7))
    edge = Edge()
    group = questions.consumer(plane, PROD, "edge-1")
    with group.member("edge-1") as member:
        for delivery in member.deliveries(to_end=True):
            if delivery.event.type == "control.scale.set":
                edge.apply(delivery.event, delivery.position)
                if delivery.event.stream.endswith("worker"):
                    break  # the machine stops between the effect and the cursor
            delivery.ack()
    assert edge.applied == [8, 9]
    perform(plane, Scale(environment=PROD, process="web", count=5))
    with questions.consumer(plane, PROD, "edge-1").member("edge-1") as member:
        for delivery in member.deliveries(to_end=True):
            edge.apply(delivery.event, delivery.position)
            delivery.ack()
    assert edge.applied == [8, 9, 9, 11]
    assert edge.counts == {"scale/acme.shop.prod.web": 5, "scale/acme.shop.prod.worker": 2}
    with pytest.raises(GroupDiffers):
        questions.consumer(plane, TEST, "edge-1").member("edge-1")
    with questions.consumer(plane, "umbra", "edge-1").member("edge-1") as theirs:
        delivery = next(theirs.deliveries(to_end=True))
        assert delivery.event.stream == "org/umbra", "another org has names of its own"
        delivery.ack()


def test_consumers_of_the_same_place_have_cursors_of_their_own(plane: Log) -> None:
    seen: dict[str, list[int]] = {"edge-1": [], "edge-2": []}
    for name, positions in seen.items():
        with questions.consumer(plane, "acme", name).member(name) as member:
            for delivery in member.deliveries(to_end=True):
                positions.append(delivery.position)
                delivery.ack()
    assert seen == {"edge-1": [1, 2, 3, 7], "edge-2": [1, 2, 3, 7]}


# ---- old versions


def test_the_first_version_of_a_request_is_read_as_the_second(plane: Log) -> None:
    recorded = perform(plane, replace(ONE, environment=PROD)).records[0]
    before = msgspec.structs.replace(recorded.event, version=1, payload={"image": "shop", "tag": "1.4"})
    assert plane.catalog.upcast(before).payload == {"artifact": "shop:1.4", "note": ""}
    without = msgspec.structs.replace(recorded.event, version=1, payload={"image": "shop"})
    assert plane.catalog.upcast(without).payload["artifact"] == "shop:latest"


def test_a_retry_lets_go_of_a_host_once_whoever_has_it_by_then(plane: Log) -> None:
    host, route = "www.example.org", SetRoute(host="", environment="", process="web", port=8080)
    perform(plane, replace(route, host=host, environment=PROD))
    perform(plane, RemoveRoute(host=host), By(key="k1"))
    perform(plane, replace(route, host=host, environment="umbra/shop/prod"))
    for by in (By(key="k1"), By(key="k1", within="acme")):
        assert perform(plane, RemoveRoute(host=host), by).replayed
    assert ask(plane, Desired(environment="umbra/shop/prod"))["routes"] == {host: {"process": "web", "port": 8080}}
    with pytest.raises(NoSuchSubject):
        perform(plane, RemoveRoute(host=host), By(key="k1", within="umbra/other"))
    # Somebody else's key of the same name is another request.
    assert perform(plane, RemoveRoute(host=host), By(key="k1", actor="user:eve")).result.becomes == "removed"


def test_a_rollback_is_decided_from_one_moment_though_the_deploy_succeeds_meanwhile(
    plane: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    ship(plane, PROD, "shop:1", "d1")
    perform(plane, RequestDeploy(environment=PROD, artifact="shop:2", id="d2"))
    perform(plane, StartDeploy(deploy="d2"), DEPLOYER)

    def late(*given: Any, **named: Any) -> Any:
        monkeypatch.setattr(performing, "decide", decide)
        perform(plane, SucceedDeploy(deploy="d2"), DEPLOYER)
        return decide(*given, **named)

    monkeypatch.setattr(performing, "decide", late)
    perform(plane, RollBackDeploy(deploy="d2", reason="it is slow"))
    assert ask(plane, Desired(environment=PROD))["release"]["deploy"] == "d1"


def test_no_word_of_a_request_is_in_what_is_remembered_of_its_refusal(plane: Log) -> None:
    with pytest.raises(RuleRefused) as refused:
        perform(plane, CloseOrg(org="acme", reason="xylophone $(reboot)"))
    assert refused.value.hint == 'everlog control environment close acme/shop/prod --reason "…"'
    with pytest.raises(NoSuchSubject):
        perform(plane, RequestDeploy(environment="acme/shop/none", artifact="xylophone:1"))
    assert "xylophone" not in str(plane.refusals())


def test_a_retry_of_what_changed_nothing_changes_nothing_later_either(plane: Log) -> None:
    by = By(key="k1")
    perform(plane, Scale(environment=PROD, process="web", count=3))
    assert (
        perform(plane, Scale(environment=PROD, process="web", count=3), By(key="k1", dry_run=True)).result.becomes
        == "unchanged"
    )
    assert not perform(plane, Scale(environment=PROD, process="web", count=3), by).replayed
    perform(plane, Scale(environment=PROD, process="web", count=5))
    again = perform(plane, Scale(environment=PROD, process="web", count=3), by)
    assert (again.result.becomes, again.replayed) == ("unchanged", True)
    assert ask(plane, Desired(environment=PROD))["processes"] == {"web": 5}
    with pytest.raises(KeyReuse):
        perform(plane, Scale(environment=PROD, process="web", count=4), by)
    # Somebody else's key, and one of another org, are others.
    assert (
        perform(plane, Scale(environment=PROD, process="web", count=4), By(key="k1", actor="user:eve")).result.becomes
        == "set"
    )
    assert perform(plane, Scale(environment="umbra/shop/prod", process="web", count=4), by).result.becomes == "set"

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import msgspec
import pytest
from tests.at_once import at_once

from everlog.core.event import Event
from everlog.domains.controlplane import asking, commands
from everlog.domains.controlplane.events import (
    AppCreated,
    DeployRequested,
    EnvironmentCreated,
    OrgCreated,
    RouteSet,
    VolumeAttached,
)
from everlog.domains.deciding import By, decide
from everlog.errors import EverlogError, GroupDiffers, InvalidField, KeyReuse, NoSuchSubject, RuleRefused, SecretFound
from everlog.log.log import Log

PROD, TEST = "acme/shop/prod", "acme/shop/test"
DEPLOYER = By(actor="service:deployer")
ONE = DeployRequested(artifact="shop:1")


@pytest.fixture
def plane(log: Log) -> Log:
    """Two orgs; the first has two environments."""
    for org in ("acme", "umbra"):
        commands.create(log, org, OrgCreated(title=org.capitalize()))
        commands.create(log, f"{org}/shop", AppCreated())
        commands.create(log, f"{org}/shop/prod", EnvironmentCreated(region="eu"))
    commands.create(log, TEST, EnvironmentCreated())
    return log


def ship(log: Log, environment: str, artifact: str, id: str) -> None:
    commands.deploy(log, environment, DeployRequested(artifact=artifact), id=id)
    commands.start(log, id, by=DEPLOYER)
    commands.succeed(log, id, seconds=12.5, by=DEPLOYER)


def test_what_an_environment_should_be_follows_from_what_was_done(plane: Log) -> None:
    ship(plane, PROD, "shop:1", "d1")
    commands.set_route(plane, "www.example.org", PROD, RouteSet(process="web", port=8080))
    commands.set_secret(plane, PROD, "DATABASE_URL", version_id="3")
    commands.attach_volume(plane, PROD, "data", VolumeAttached(process="db", mount="/data", size_gb=10))
    grown = commands.attach_volume(plane, PROD, "data", VolumeAttached(process="db", mount="/data", size_gb=20))
    assert grown.becomes == "grown"
    commands.scale(plane, PROD, "web", count=3)
    found = asking.desired(plane, PROD)
    assert found["release"]["artifact"] == "shop:1"
    assert found["routes"] == {"www.example.org": {"process": "web", "port": 8080}}
    assert found["secrets"] == {"DATABASE_URL": "3"}
    assert found["volumes"] == {"data": {"process": "db", "mount": "/data", "size_gb": 20}}
    assert (found["processes"], found["region"], found["status"]) == ({"web": 3}, "eu", "open")
    commands.remove_route(plane, "www.example.org")
    commands.remove_secret(plane, PROD, "DATABASE_URL")
    commands.detach_volume(plane, PROD, "data")
    commands.close(plane, PROD, reason="over")
    found = asking.desired(plane, PROD)
    assert (found["routes"], found["secrets"], found["volumes"], found["status"]) == ({}, {}, {}, "closed")
    assert asking.desired(plane, TEST)["release"] is None


def test_an_environment_can_be_asked_as_it_was(plane: Log) -> None:
    commands.scale(plane, PROD, "web", count=3)
    then = plane.head()
    commands.scale(plane, PROD, "web", count=9)
    assert asking.desired(plane, PROD, as_of=int(then))["processes"] == {"web": 3}
    with pytest.raises(NoSuchSubject):
        asking.desired(plane, PROD, as_of=1)


def test_a_rollback_goes_to_what_ran_before_unless_told_otherwise(plane: Log) -> None:
    for number in (1, 2, 3):
        ship(plane, PROD, f"shop:{number}", f"d{number}")
    commands.roll_back(plane, "d3", reason="slow")
    assert asking.desired(plane, PROD)["release"]["deploy"] == "d2"
    commands.roll_back(plane, "d2", to="d1", reason="slow too")
    assert asking.desired(plane, PROD)["release"]["artifact"] == "shop:1"
    commands.roll_back(plane, "d1", reason="slow as well")
    assert asking.desired(plane, PROD)["release"] is None
    assert [(row["id"], row["status"]) for row in asking.history(plane, PROD)] == [
        ("d3", "rolled_back"),
        ("d2", "rolled_back"),
        ("d1", "rolled_back"),
    ]


def test_the_history_of_deploys_is_that_of_one_environment_the_newest_first(plane: Log) -> None:
    ship(plane, PROD, "shop:1", "d1")
    ship(plane, TEST, "shop:2", "d2")
    commands.deploy(plane, PROD, DeployRequested(artifact="shop:3"), id="d3")
    commands.fail(plane, "d3", error="called off")
    rows = asking.history(plane, PROD)
    assert [(row["id"], row["status"]) for row in rows] == [("d3", "failed"), ("d1", "succeeded")]
    assert (rows[0]["error"], rows[1]["seconds"], rows[1]["started_by"]) == ("called off", 12.5, "service:deployer")
    assert len(asking.history(plane, PROD, limit=1)) == 1
    assert asking.show(plane, "d2")["environment"] == TEST


# ---- tenants


def every_way_in(environment: str, deploy: str, host: str) -> dict[str, Any]:
    """Every command, as a function of a log and of who calls it, about one environment."""
    org, app = environment.split("/")[0], environment.rpartition("/")[0]
    return {
        "create an app": lambda log, by: commands.create(log, f"{org}/new", AppCreated(), by=by),
        "create": lambda log, by: commands.create(log, f"{app}/new", EnvironmentCreated(), by=by),
        "close": lambda log, by: commands.close(log, environment, reason="x", by=by),
        "close the org": lambda log, by: commands.close(log, org, reason="x", by=by),
        "deploy": lambda log, by: commands.deploy(log, environment, ONE, by=by),
        "start": lambda log, by: commands.start(log, deploy, by=by),
        "succeed": lambda log, by: commands.succeed(log, deploy, by=by),
        "fail": lambda log, by: commands.fail(log, deploy, error="x", by=by),
        "roll back": lambda log, by: commands.roll_back(log, deploy, reason="x", by=by),
        "set a route": lambda log, by: commands.set_route(
            log, "new.example.org", environment, RouteSet(process="web", port=80), by=by
        ),
        "remove a route": lambda log, by: commands.remove_route(log, host, by=by),
        "set a secret": lambda log, by: commands.set_secret(log, environment, "KEY", version_id="1", by=by),
        "remove a secret": lambda log, by: commands.remove_secret(log, environment, "KEY", by=by),
        "attach": lambda log, by: commands.attach_volume(
            log, environment, "data", VolumeAttached(process="web", mount="/x", size_gb=1), by=by
        ),
        "detach": lambda log, by: commands.detach_volume(log, environment, "data", by=by),
        "scale": lambda log, by: commands.scale(log, environment, "web", count=2, by=by),
    }


@pytest.mark.parametrize("name", every_way_in("", "", ""))
def test_no_command_reaches_beyond_the_org_of_who_calls_it(plane: Log, name: str) -> None:
    commands.deploy(plane, "umbra/shop/prod", ONE, id="theirs")
    commands.set_route(plane, "theirs.example.org", "umbra/shop/prod", RouteSet(process="web", port=80))
    head = plane.head()
    attempt = every_way_in("umbra/shop/prod", "theirs", "theirs.example.org")[name]
    with pytest.raises(NoSuchSubject) as refusal:
        attempt(plane, By(actor="system", scope="acme"))
    assert plane.head() == head
    missing = every_way_in("nowhere/shop/prod", "nothing", "nothing.example.org")[name]
    with pytest.raises(NoSuchSubject) as same:
        missing(plane, By(actor="system", scope="acme"))

    def told(error: NoSuchSubject) -> str:
        details = {name: value for name, value in error.details.items() if not name.startswith("refused_")}
        text = f"{error} {error.hint} {details}"
        for one, other in (("umbra", "nowhere"), ("theirs.", "nothing."), ("theirs", "nothing")):
            text = text.replace(one, other)
        return text

    assert told(refusal.value) == told(same.value), "what another org has must look like what is not there"
    assert len(plane.refusals()) == 2


def test_every_event_has_the_place_that_it_belongs_to_as_its_scope(plane: Log) -> None:
    by = By(actor="system", scope="acme")
    commands.deploy(plane, PROD, ONE, id="d1", by=by)
    commands.set_route(plane, "a.example.org", TEST, RouteSet(process="web", port=80), by=by)
    scopes = [(recorded.event.stream, recorded.event.scope) for recorded in plane.read()]
    assert scopes[:3] == [("org/acme", "acme"), ("app/acme.shop", "acme/shop"), ("environment/acme.shop.prod", PROD)]
    assert scopes[-2:] == [("deploy/d1", PROD), ("route/a.example.org", TEST)]


@pytest.mark.parametrize(
    "ask",
    [
        lambda log: asking.desired(log, "umbra/shop/prod", within="acme"),
        lambda log: asking.history(log, "umbra/shop/prod", within="acme"),
        lambda log: asking.show(log, "theirs", within="acme"),
        lambda log: asking.audit(log, "umbra", within="acme"),
        lambda log: asking.days(log, "umbra", within="acme"),
        lambda log: asking.listed(log, "umbra", within="acme"),
        lambda log: asking.consumer(log, "umbra", "edge-1", within="acme"),
    ],
)
def test_nothing_can_be_asked_about_another_org(plane: Log, ask: Any) -> None:
    commands.deploy(plane, "umbra/shop/prod", ONE, id="theirs")
    with pytest.raises(NoSuchSubject):
        ask(plane)


def test_a_list_has_what_lies_below_a_place_and_nothing_beside_it(plane: Log) -> None:
    commands.create(plane, "acme-two", OrgCreated())
    commands.create(plane, "acme2", OrgCreated())
    assert [row["place"] for row in asking.listed(plane, "acme")] == ["acme", "acme/shop", PROD, TEST]
    assert [row["place"] for row in asking.listed(plane, within="acme")] == ["acme", "acme/shop", PROD, TEST]
    assert len(asking.listed(plane)) == 9
    assert asking.listed(plane, "acme/shop/prod")[0]["kind"] == "environment"


# ---- retries


def test_every_command_under_a_key_is_done_once(plane: Log) -> None:
    ways = every_way_in(PROD, "d1", "a.example.org")
    commands.deploy(plane, PROD, ONE, id="d1")
    commands.set_route(plane, "a.example.org", PROD, RouteSet(process="web", port=80))
    del ways["close the org"]
    order = [
        *("create an app", "create", "start", "succeed", "roll back", "deploy", "set a route", "remove a route"),
        *("set a secret", "remove a secret", "attach", "detach", "scale"),
    ]
    for name in order:
        by = By(actor="system", scope="acme", key=f"key of {name}")
        first = ways[name](plane, by)
        head = plane.head()
        again = ways[name](plane, by)
        assert (again.id, again.becomes) == (first.id, first.becomes)
        assert again.done.replayed
        assert again.done.records == first.done.records
        assert plane.head() == head, name
    commands.fail(plane, asking.desired(plane, PROD)["deploying"]["deploy"], error="x", by=By(key="f"))
    closing = By(actor="user:ada", key="close it")
    first = commands.close(plane, PROD, reason="x", by=closing)
    assert commands.close(plane, PROD, reason="x", by=closing).done.records == first.done.records


def test_a_key_names_one_request_of_an_actor_in_the_whole_org(plane: Log) -> None:
    by = By(actor="user:ada", key="build-17")
    first = commands.deploy(plane, PROD, ONE, by=by)
    with pytest.raises(KeyReuse):
        commands.deploy(plane, TEST, ONE, by=by)
    with pytest.raises(KeyReuse):
        commands.deploy(plane, PROD, DeployRequested(artifact="shop:2"), by=by)
    assert [one.code for one in plane.refusals()] == ["idempotency_key_reuse"] * 2
    assert not commands.deploy(plane, "umbra/shop/prod", ONE, by=by).done.replayed
    assert not commands.deploy(plane, TEST, ONE, by=By(actor="user:bob", key="build-17")).done.replayed
    assert commands.deploy(plane, PROD, ONE, by=by).id == first.id


def test_asking_for_what_is_so_already_records_nothing(plane: Log) -> None:
    commands.scale(plane, PROD, "web", count=3)
    head = plane.head()
    again = commands.scale(plane, PROD, "web", count=3)
    assert (again.becomes, again.done.records, plane.head()) == ("unchanged", (), head)


def test_of_many_who_deploy_at_once_one_gets_the_environment(plane: Log) -> None:
    outcomes: list[str] = []

    def ask(number: int) -> None:
        try:
            commands.deploy(plane, PROD, ONE, id=f"d{number}")
            outcomes.append("got it")
        except RuleRefused:
            outcomes.append("refused")

    at_once(*(partial(ask, number) for number in range(8)))
    assert sorted(outcomes) == ["got it"] + ["refused"] * 7


# ---- refusals


def test_a_refusal_is_on_record_with_what_to_do_and_nothing_is_written(plane: Log) -> None:
    head = plane.head()
    attempts: list[Any] = [
        lambda: commands.scale(plane, "acme/shop", "web", count=1),
        lambda: commands.scale(plane, PROD, "Web!", count=1),
        lambda: commands.scale(plane, PROD, "web", count=-1),
        lambda: commands.set_route(plane, "no host", PROD, RouteSet(process="web", port=80)),
        lambda: commands.deploy(plane, PROD, DeployRequested(artifact="no image")),
        lambda: commands.start(plane, "nothing"),
        lambda: commands.close(plane, "acme", reason="x"),
        lambda: commands.scale(plane, PROD, "web", count=1, by=By(actor="agent:builder")),
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
        commands.set_secret(plane, PROD, "DATABASE_URL", version_id=value, by=By(key="k"))
    with pytest.raises(InvalidField):
        commands.set_secret(plane, PROD, value, version_id="1")
    assert {one.code for one in plane.refusals()} == {"secret_found", "invalid_field"}
    plane.close()
    for path in tmp_path.iterdir():
        assert value.encode() not in path.read_bytes()


def test_a_dry_run_records_nothing_not_even_a_refusal(plane: Log) -> None:
    head = plane.head()
    assert commands.scale(plane, PROD, "web", count=1, by=By(dry_run=True)).done.dry_run
    with pytest.raises(InvalidField):
        commands.scale(plane, "nowhere!", "web", count=1, by=By(dry_run=True))
    assert (plane.head(), plane.refusals()) == (head, [])


# ---- audit


def test_an_audit_is_of_one_org_and_a_window_in_order_of_position(plane: Log) -> None:
    found = asking.audit(plane, "acme")
    assert [entry.position for entry in found] == [1, 2, 3, 7]
    assert {entry.scope.split("/")[0] for entry in found} == {"acme"}
    second = found[1].received_at
    assert [entry.position for entry in asking.audit(plane, "acme", until=second)] == [1]
    assert [entry.position for entry in asking.audit(plane, "acme", since=second)] == [2, 3, 7]
    assert [entry.position for entry in asking.audit(plane, "acme", after=1, limit=2)] == [2, 3]
    assert [entry.position for entry in asking.audit(plane, PROD)] == [3]


def test_an_audit_tells_by_whom_and_of_which_kind_they_are(plane: Log) -> None:
    commands.deploy(plane, PROD, ONE, id="d1", by=By(actor="user:ada", key="b", request_id="r-1"))
    commands.start(plane, "d1", by=DEPLOYER)
    commands.fail(plane, "d1", error="x", by=By(actor="system"))
    found = asking.audit(plane, "acme", after=7)
    assert [(entry.actor, entry.actor_type) for entry in found] == [
        ("user:ada", "user"),
        ("service:deployer", "service_principal"),
        ("system", "system"),
    ]
    assert (found[0].idempotency_key, found[0].request_id) == ("b", "r-1")
    only = asking.audit(plane, "acme", actor_type="service_principal")
    assert [entry.type for entry in only] == ["control.deploy.started"]


def test_a_window_may_be_of_when_things_are_said_to_have_happened(plane: Log) -> None:
    long_ago = datetime.now(UTC) - timedelta(days=3)
    commands.scale(plane, PROD, "web", count=3, by=By(at=long_ago))
    until = long_ago + timedelta(days=1)
    assert asking.audit(plane, "acme", until=until) == []
    assert [entry.type for entry in asking.audit(plane, "acme", until=until, occurred=True)] == ["control.scale.set"]
    days = asking.days(plane, "acme")
    assert [(day["day"], day["events"]) for day in days] == [
        (f"{long_ago:%Y-%m-%d}", 1),
        (f"{plane.at(1).event.occurred_at:%Y-%m-%d}", 4),  # type: ignore[union-attr]
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
    commands.scale(plane, PROD, "web", count=1)
    commands.scale(plane, PROD, "worker", count=2)
    commands.scale(plane, TEST, "web", count=7)
    edge = Edge()
    group = asking.consumer(plane, PROD, "edge-1")
    with group.member("edge-1") as member:
        for delivery in member.deliveries(to_end=True):
            if delivery.event.type == "control.scale.set":
                edge.apply(delivery.event, delivery.position)
                if delivery.event.stream.endswith("worker"):
                    break  # the machine stops between the effect and the cursor
            delivery.ack()
    assert edge.applied == [8, 9]
    commands.scale(plane, PROD, "web", count=5)
    with asking.consumer(plane, PROD, "edge-1").member("edge-1") as member:
        for delivery in member.deliveries(to_end=True):
            edge.apply(delivery.event, delivery.position)
            delivery.ack()
    assert edge.applied == [8, 9, 9, 11]
    assert edge.counts == {"scale/acme.shop.prod.web": 5, "scale/acme.shop.prod.worker": 2}
    with pytest.raises(GroupDiffers):
        asking.consumer(plane, TEST, "edge-1").member("edge-1")
    with asking.consumer(plane, "umbra", "edge-1").member("edge-1") as theirs:
        delivery = next(theirs.deliveries(to_end=True))
        assert delivery.event.stream == "org/umbra", "another org has names of its own"
        delivery.ack()


def test_consumers_of_the_same_place_have_cursors_of_their_own(plane: Log) -> None:
    seen: dict[str, list[int]] = {"edge-1": [], "edge-2": []}
    for name, positions in seen.items():
        with asking.consumer(plane, "acme", name).member(name) as member:
            for delivery in member.deliveries(to_end=True):
                positions.append(delivery.position)
                delivery.ack()
    assert seen == {"edge-1": [1, 2, 3, 7], "edge-2": [1, 2, 3, 7]}


# ---- old versions


def test_the_first_version_of_a_request_is_read_as_the_second(plane: Log) -> None:
    recorded = commands.deploy(plane, PROD, ONE).done.records[0]
    before = msgspec.structs.replace(recorded.event, version=1, payload={"image": "shop", "tag": "1.4"})
    assert plane.catalog.upcast(before).payload == {"artifact": "shop:1.4", "note": ""}
    without = msgspec.structs.replace(recorded.event, version=1, payload={"image": "shop"})
    assert plane.catalog.upcast(without).payload["artifact"] == "shop:latest"


def test_a_retry_lets_go_of_a_host_once_whoever_has_it_by_then(plane: Log) -> None:
    host, route = "www.example.org", RouteSet(process="web", port=8080)
    commands.set_route(plane, host, PROD, route)
    commands.remove_route(plane, host, by=By(key="k1"))
    commands.set_route(plane, host, "umbra/shop/prod", route)
    for by in (By(key="k1"), By(key="k1", scope="acme")):
        assert commands.remove_route(plane, host, by=by).done.replayed
    assert asking.desired(plane, "umbra/shop/prod")["routes"] == {host: {"process": "web", "port": 8080}}
    with pytest.raises(NoSuchSubject):
        commands.remove_route(plane, host, by=By(key="k1", scope="umbra/other"))
    # Somebody else's key of the same name is another request.
    assert commands.remove_route(plane, host, by=By(key="k1", actor="user:eve")).becomes == "removed"


def test_a_rollback_is_decided_from_one_moment_though_the_deploy_succeeds_meanwhile(
    plane: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    ship(plane, PROD, "shop:1", "d1")
    commands.deploy(plane, PROD, DeployRequested(artifact="shop:2"), id="d2")
    commands.start(plane, "d2", by=DEPLOYER)

    def late(*given: Any, **named: Any) -> Any:
        monkeypatch.setattr(commands, "decide", decide)
        commands.succeed(plane, "d2", by=DEPLOYER)
        return decide(*given, **named)

    monkeypatch.setattr(commands, "decide", late)
    commands.roll_back(plane, "d2", reason="it is slow")
    assert asking.desired(plane, PROD)["release"]["deploy"] == "d1"


def test_no_word_of_a_request_is_in_what_is_remembered_of_its_refusal(plane: Log) -> None:
    with pytest.raises(RuleRefused) as refused:
        commands.close(plane, "acme", reason="xylophone $(reboot)")
    assert refused.value.hint == 'everlog control environment close acme/shop/prod --reason "…"'
    with pytest.raises(NoSuchSubject):
        commands.deploy(plane, "acme/shop/none", DeployRequested(artifact="xylophone:1"))
    assert "xylophone" not in str(plane.refusals())


def test_a_retry_of_what_changed_nothing_changes_nothing_later_either(plane: Log) -> None:
    by = By(key="k1")
    commands.scale(plane, PROD, "web", count=3)
    assert commands.scale(plane, PROD, "web", count=3, by=By(key="k1", dry_run=True)).becomes == "unchanged"
    assert not commands.scale(plane, PROD, "web", count=3, by=by).done.replayed
    commands.scale(plane, PROD, "web", count=5)
    again = commands.scale(plane, PROD, "web", count=3, by=by)
    assert (again.becomes, again.done.replayed) == ("unchanged", True)
    assert asking.desired(plane, PROD)["processes"] == {"web": 5}
    with pytest.raises(KeyReuse):
        commands.scale(plane, PROD, "web", count=4, by=by)
    # Somebody else's key, and one of another org, are others.
    assert commands.scale(plane, PROD, "web", count=4, by=By(key="k1", actor="user:eve")).becomes == "set"
    assert commands.scale(plane, "umbra/shop/prod", "web", count=4, by=by).becomes == "set"

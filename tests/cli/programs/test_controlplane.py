"""`everlog control`: what a person sees of it; the rules are tested in tests/programs."""

from __future__ import annotations

import json
import shlex

import pytest
from tests.cli.conftest import Run

PROD = "acme/shop/prod"
SERVICE = ("--actor", "service:deployer")


@pytest.fixture
def plane(log: Run) -> Run:
    """The command line beside a log with an environment of two orgs each."""
    for org in ("acme", "umbra"):
        assert log("control", "org", "create", org, "--title", org.capitalize()).code == 0
        assert log("control", "app", "create", f"{org}/shop").code == 0
        assert log("control", "environment", "create", f"{org}/shop/prod", "--region", "eu-1").code == 0
    return log


def test_an_image_is_deployed_and_rolled_back(plane: Run) -> None:
    asked = plane("control", "deploy", "request", PROD, "shop:1", "--key", "b1")
    (name, becomes, status) = asked.rows[0]
    assert (asked.code, becomes, status) == (0, "requested", "recorded")
    again = plane("control", "deploy", "request", PROD, "shop:1", "--key", "b1")
    assert (again.out, again.err) == (asked.out, "already done under this key; nothing new was recorded\n")
    assert plane("control", "deploy", "start", name, *SERVICE).code == 0
    assert plane("control", "deploy", "succeed", name, "--seconds", "4.5", *SERVICE).code == 0
    assert plane("control", "desired", PROD, "--json").data["release"]["artifact"] == "shop:1"
    back = plane("control", "deploy", "rollback", name, "--reason", "slow", "--json").data
    assert (back["id"], back["becomes"]) == (name, "rolled_back")
    assert plane("control", "desired", PROD, "--json").data["release"] is None
    assert plane("control", "desired", PROD, "--as-of", "#9", "--json").data["release"]["deploy"] == name
    assert plane("control", "deploy", "history", PROD).rows[0][:3] == [name, "rolled_back", "shop:1"]
    assert plane("control", "deploy", "show", name, "--json").data["seconds"] == 4.5


def test_every_event_of_a_control_plane_names_its_request(plane: Run) -> None:
    request = ("control", "deploy", "request", PROD, "shop:1", "--id")
    assert plane(*request, "d1", "--request-id", "r-17").code == 0
    assert plane("control", "deploy", "fail", "d1", "--error", "no").code == 0
    found = [entry["request_id"] for entry in plane("control", "audit", PROD, "--json").data]
    assert "r-17" in found
    assert all(found)
    assert len(set(found)) == len(found)
    refused = plane("control", "deploy", "start", "nobody", "--request-id", "r-18", "--json")
    assert refused.error["request_id"] == "r-18"
    assert plane("control", "deploy", "start", "nobody", "--json").error["request_id"]


def test_a_deploy_can_be_called_off(plane: Run) -> None:
    plane("control", "deploy", "request", PROD, "shop:1", "--id", "d1")
    assert plane("control", "deploy", "fail", "d1", "--error", "called off").rows[0][1] == "failed"


def test_an_environment_has_routes_secrets_volumes_and_processes(plane: Run) -> None:
    assert plane("control", "route", "set", "shop.example.org", PROD).rows[0][:2] == ["shop.example.org", "set"]
    assert plane("control", "secret", "set", PROD, "DATABASE_URL", "--version", "3").code == 0
    disk = ("control", "volume", "attach", PROD, "data", "--mount", "/data", "--size-gb")
    assert plane(*disk, "10").rows[0][1] == "attached"
    assert plane(*disk, "20").rows[0][1] == "grown"
    assert plane("control", "scale", PROD, "web", "3").code == 0
    assert plane("control", "scale", PROD, "web", "3").rows[0][1:] == ["unchanged", "unchanged"]
    found = plane("control", "desired", PROD, "--json").data
    assert found["routes"] == {"shop.example.org": {"process": "web", "port": 8080}}
    assert (found["secrets"], found["processes"]) == ({"DATABASE_URL": "3"}, {"web": 3})
    assert found["volumes"]["data"]["size_gb"] == 20
    assert plane("control", "route", "remove", "shop.example.org").code == 0
    assert plane("control", "secret", "remove", PROD, "DATABASE_URL").code == 0
    assert plane("control", "volume", "detach", PROD, "data").code == 0
    found = plane("control", "desired", PROD, "--json").data
    assert (found["routes"], found["secrets"], found["volumes"]) == ({}, {}, {})


def test_places_are_closed_from_the_inside(plane: Run) -> None:
    refused = plane("control", "org", "close", "acme", "--reason", "over")
    assert refused.code == 3
    assert 'fix: everlog control environment close acme/shop/prod --reason "…"' in refused.err
    for kind, place in (("environment", PROD), ("app", "acme/shop"), ("org", "acme")):
        assert plane("control", kind, "close", place, "--reason", "over").rows[0][1] == "closed"
    assert [row[2] for row in plane("control", "list", "acme").rows] == ["closed"] * 3
    assert plane("control", "app", "close", "umbra", "--reason", "over").code == 3, "umbra is no app"


def test_what_may_be_the_value_of_a_secret_is_refused_without_being_repeated(plane: Run) -> None:
    refused = plane("control", "secret", "set", PROD, "DATABASE_URL", "--version", "hunter2")
    assert refused.code == 3
    assert "hunter2" not in refused.err + refused.out
    assert "hunter2" not in plane("errors", "--json").out


def test_what_is_not_there_is_told_with_where_to_look(plane: Run) -> None:
    def hint(*typed: str) -> str:
        found = plane("control", *typed, "--json").error["hint"]
        assert isinstance(found, str)
        return found

    look = "everlog control list for the environments; everlog control deploy history ENVIRONMENT for its deploys"
    assert hint("deploy", "show", "01m7") == look
    assert hint("deploy", "rollback", "a/b", "--reason", "x") == look
    assert hint("deploy", "rollback", PROD, "--reason", "x") == f"everlog control deploy history {PROD}"
    assert hint("secret", "remove", PROD, "MAIL_KEI") == f"everlog control desired {PROD}"
    assert hint("volume", "detach", PROD, "data") == f"everlog control desired {PROD}"
    assert hint("route", "remove", "shop.exmple").startswith("everlog control list for the environments; ")
    assert hint("route", "set", PROD, "shop.example") == f"everlog control route set shop.example {PROD}"
    assert plane("control", "route", "set", "shop.example", PROD).code == 0
    assert plane("control", "list", "acme/shopp").err == "there is no acme/shopp: everlog control list\n"
    assert plane("control", "audit", "acmee").err == "nothing was done in acmee: everlog control list\n"


def test_who_closes_an_environment_is_told_to_call_its_deploy_off(plane: Run) -> None:
    deploy = plane("control", "deploy", "request", PROD, "shop:1", "-q").out.strip()
    refused = plane("control", "environment", "close", PROD, "--reason", "x", "--json").error
    assert refused["hint"] == f'everlog control deploy fail {deploy} --error "…"'
    assert plane(*shlex.split(refused["hint"])[1:]).code == 0
    assert plane("control", "environment", "close", PROD, "--reason", "x").code == 0


def test_a_scope_is_a_fence(plane: Run) -> None:
    assert plane("control", "scale", "umbra/shop/prod", "web", "3", "--scope", "acme").code == 4
    assert plane("control", "desired", "umbra/shop/prod", "--scope", "acme").code == 4
    assert [row[0] for row in plane("control", "list", "--scope", "acme").rows] == ["acme", "acme/shop", PROD]
    assert plane("config", "set", "scope", "acme").code == 0
    assert plane("control", "audit", "umbra").code == 4
    assert plane("control", "audit", "acme").code == 0


def test_an_audit_is_in_order_and_in_pages(plane: Run) -> None:
    first = plane("control", "audit", "acme", "--limit", "2", "--json")
    assert [entry["position"] for entry in first.data] == [1, 2]
    rest = plane("control", "audit", "acme", "--after", str(first.next), "--json")
    assert ([entry["position"] for entry in rest.data], rest.next) == ([3], None)
    assert plane("control", "audit", "acme", "--until", "1h").rows == []
    assert plane("control", "audit", "acme", "--occurred", "--since", "1h", "--actor-type", "user").rows != []
    assert plane("control", "audit", "acme", "--actor-type", "system").rows == []
    (day,) = plane("control", "audit", "acme", "--by-day", "--json").data
    assert day["events"] == 3


def test_a_consumer_goes_on_where_it_was(plane: Run) -> None:
    follow = ("control", "follow", "acme", "--consumer", "edge-1", "--to-end")
    assert [row[0] for row in plane(*follow).rows] == ["1", "2", "3"]
    assert plane(*follow).rows == []
    plane("control", "scale", PROD, "web", "3")
    plane("control", "scale", "umbra/shop/prod", "web", "3")
    (line,) = plane(*follow, "--json").out.splitlines()
    assert json.loads(line)["payload"] == {"count": 3}
    assert plane("consumers", "lag", "control.acme.edge-1").rows[0][2:4] == ["0", "0"]


def test_a_consumer_is_told_of_a_purge(plane: Run) -> None:
    follow = ("control", "follow", "acme", "--consumer", "edge-1", "--to-end")
    plane("control", "secret", "set", PROD, "DATABASE_URL", "--version", "3")
    plane(*follow)
    stream = "secret/acme.shop.prod.DATABASE_URL"
    assert plane("purge", stream, "--reason", "a test", "--confirm", f"purge {stream}").code == 0
    assert "reset required" in plane(*follow).err
    assert plane("control", "desired", PROD, "--json").data["secrets"] == {}

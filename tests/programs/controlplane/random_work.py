"""Something that people and services of two orgs might do next."""

from __future__ import annotations

import random

from msgspec.structs import replace

from everlog.core.query import Query
from everlog.log.log import Log
from everlog.programs.command import By
from everlog.programs.controlplane.commands import (
    AttachVolume,
    CloseApp,
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
from everlog.programs.controlplane.events import (
    DEPLOYS,
)
from everlog.programs.perform import perform

ORGS = ("acme", "acme", "acme", "umbra")


def step(log: Log, chance: random.Random) -> None:
    if log.head() == 0:
        perform(log, CreateOrg(org="acme"), By(actor="system"))
        perform(log, CreateApp(app="acme/shop"), By(actor="system"))
        perform(log, CreateEnvironment(environment="acme/shop/prod"), By(actor="system"))
    org = chance.choice(ORGS)
    app = f"{org}/{chance.choice(['shop', 'shop', 'cart'])}"
    environment = f"{app}/{chance.choice(['prod', 'prod', 'test'])}"
    deploy = f"d{chance.randrange(12)}" if chance.random() < 0.3 else _newest_deploy(log)
    by = By(
        actor=chance.choice(["user:ada", "service:deployer", *["system"] * 8, "agent:builder"]),
        within=chance.choice([*[""] * 9, *ORGS]),
        key=chance.choice(["", "", "", "", f"k{chance.randrange(4)}"]),
    )
    match chance.randrange(20):
        case 0:
            perform(log, CreateOrg(org=org), by)
        case 1:
            perform(log, CreateApp(app=app, title="A shop"), by)
        case 2 | 3:
            perform(log, CreateEnvironment(environment=environment, protected=chance.random() < 0.5), by)
        case 4 | 5 | 6 | 7:
            artifact = chance.choice(["shop:1", "shop:2", "shop:3", "not an image"])
            perform(log, RequestDeploy(environment=environment, artifact=artifact, id=f"d{chance.randrange(99)}"), by)
        case 8 | 9:
            perform(log, StartDeploy(deploy=deploy), by)
        case 10 | 11:
            perform(log, SucceedDeploy(deploy=deploy, seconds=2.5), by)
        case 12:
            perform(log, FailDeploy(deploy=deploy, error="it did not answer"), by)
        case 13:
            to = chance.choice([None, None, f"d{chance.randrange(12)}", ""])
            perform(log, RollBackDeploy(deploy=deploy, to=to, reason="too slow"), by)
        case 14:
            host = f"{chance.choice(['www', 'api'])}.example.org"
            perform(
                log, SetRoute(host=host, environment=environment, process="web", port=chance.choice([80, 81])), by
            )
        case 15:
            perform(log, RemoveRoute(host=f"{chance.choice(['www', 'api'])}.example.org"), by)
        case 16:
            version = chance.choice(["1", "v2", "hunter2", ""])
            perform(log, SetSecret(environment=environment, name="DATABASE_URL", version_id=version), by)
        case 17:
            wanted = AttachVolume(environment="", name="", process="web", mount="/data", size_gb=chance.randint(1, 4))
            perform(log, replace(wanted, environment=environment, name="data"), by)
        case 18:
            perform(log, Scale(environment=environment, process="web", count=chance.randrange(4)), by)
        case _:
            _last_things(log, chance, org, app, environment, by)


def _newest_deploy(log: Log) -> str:
    query = Query(types=frozenset(DEPLOYS))
    newest = next(log.read(query, limit=1, newest_first=True), None)
    return "d0" if newest is None else newest.event.stream.partition("/")[2]


def _last_things(log: Log, chance: random.Random, org: str, app: str, environment: str, by: By) -> None:
    match chance.randrange(5):
        case 0:
            perform(log, DetachVolume(environment=environment, name="data"), by)
        case 1:
            perform(log, RemoveSecret(environment=environment, name="DATABASE_URL"), by)
        case 2:
            perform(log, CloseEnvironment(environment=environment, reason="not needed"), by)
        case 3:
            perform(log, CloseApp(app=app, reason="not needed"), by)
        case _:
            perform(log, CloseOrg(org=org, reason="moved away"), by)

"""Something that people and services of two orgs might do next."""

from __future__ import annotations

import random

from everlog.core.query import Query
from everlog.domains.controlplane import commands
from everlog.domains.controlplane.events import (
    DEPLOYS,
    AppCreated,
    DeployRequested,
    EnvironmentCreated,
    OrgCreated,
    RouteSet,
    VolumeAttached,
)
from everlog.domains.deciding import By
from everlog.log.log import Log

ORGS = ("acme", "acme", "acme", "umbra")


def step(log: Log, chance: random.Random) -> None:
    if log.head() == 0:
        commands.create(log, "acme", OrgCreated(), by=By(actor="system"))
        commands.create(log, "acme/shop", AppCreated(), by=By(actor="system"))
        commands.create(log, "acme/shop/prod", EnvironmentCreated(), by=By(actor="system"))
    org = chance.choice(ORGS)
    app = f"{org}/{chance.choice(['shop', 'shop', 'cart'])}"
    environment = f"{app}/{chance.choice(['prod', 'prod', 'test'])}"
    deploy = f"d{chance.randrange(12)}" if chance.random() < 0.3 else _newest_deploy(log)
    by = By(
        actor=chance.choice(["user:ada", "service:deployer", *["system"] * 8, "agent:builder"]),
        scope=chance.choice([*[""] * 9, *ORGS]),
        key=chance.choice(["", "", "", "", f"k{chance.randrange(4)}"]),
    )
    match chance.randrange(20):
        case 0:
            commands.create(log, org, OrgCreated(), by=by)
        case 1:
            commands.create(log, app, AppCreated(title="A shop"), by=by)
        case 2 | 3:
            commands.create(log, environment, EnvironmentCreated(protected=chance.random() < 0.5), by=by)
        case 4 | 5 | 6 | 7:
            artifact = chance.choice(["shop:1", "shop:2", "shop:3", "not an image"])
            commands.deploy(
                log, environment, DeployRequested(artifact=artifact), id=f"d{chance.randrange(99)}", by=by
            )
        case 8 | 9:
            commands.start(log, deploy, by=by)
        case 10 | 11:
            commands.succeed(log, deploy, seconds=2.5, by=by)
        case 12:
            commands.fail(log, deploy, error="it did not answer", by=by)
        case 13:
            to = chance.choice([None, None, f"d{chance.randrange(12)}", ""])
            commands.roll_back(log, deploy, to=to, reason="too slow", by=by)
        case 14:
            host = f"{chance.choice(['www', 'api'])}.example.org"
            commands.set_route(log, host, environment, RouteSet(process="web", port=chance.choice([80, 81])), by=by)
        case 15:
            commands.remove_route(log, f"{chance.choice(['www', 'api'])}.example.org", by=by)
        case 16:
            version = chance.choice(["1", "v2", "hunter2", ""])
            commands.set_secret(log, environment, "DATABASE_URL", version_id=version, by=by)
        case 17:
            wanted = VolumeAttached(process="web", mount="/data", size_gb=chance.randint(1, 4))
            commands.attach_volume(log, environment, "data", wanted, by=by)
        case 18:
            commands.scale(log, environment, "web", count=chance.randrange(4), by=by)
        case _:
            _last_things(log, chance, org, app, environment, by)


def _newest_deploy(log: Log) -> str:
    query = Query(types=frozenset(DEPLOYS))
    newest = next(log.read(query, limit=1, newest_first=True), None)
    return "d0" if newest is None else newest.event.stream.partition("/")[2]


def _last_things(log: Log, chance: random.Random, org: str, app: str, environment: str, by: By) -> None:
    match chance.randrange(5):
        case 0:
            commands.detach_volume(log, environment, "data", by=by)
        case 1:
            commands.remove_secret(log, environment, "DATABASE_URL", by=by)
        case 2:
            commands.close(log, environment, reason="not needed", by=by)
        case 3:
            commands.close(log, app, reason="not needed", by=by)
        case _:
            commands.close(log, org, reason="moved away", by=by)

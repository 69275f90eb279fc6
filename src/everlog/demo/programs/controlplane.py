"""Two tenants on one control plane: apps are deployed, rolled back, scaled, and given hosts, secrets and disks."""

from __future__ import annotations

from everlog.demo.week import PEOPLE, Thread, Week, chance_of
from everlog.log.log import Log
from everlog.programs.controlplane.commands import (
    AttachVolume,
    CreateApp,
    CreateEnvironment,
    CreateOrg,
    FailDeploy,
    RequestDeploy,
    RollBackDeploy,
    Scale,
    SetRoute,
    SetSecret,
    StartDeploy,
    SucceedDeploy,
)
from everlog.programs.perform import perform

TENANTS = {"acme": ("shop", "billing"), "umbra": ("forum",)}
DEPLOYER, SCALER, CI = "service:deployer", "service:autoscaler", "service:ci"


def threads(log: Log, week: Week) -> list[Thread]:
    found = [_tenants(log, week)]
    for org, apps in TENANTS.items():
        for app in apps:
            found += [_releases(log, week, f"{org}/{app}", stage) for stage in ("test", "prod")]
            found += [_load(log, week, f"{org}/{app}/prod", process) for process in ("web", "worker")]
            found.append(_secrets(log, week, f"{org}/{app}/prod"))
    return found


def _tenants(log: Log, week: Week) -> Thread:
    """Create, in the first hour, everything that the others need."""
    yield week.on(0, 7)
    for org, apps in TENANTS.items():
        perform(log, CreateOrg(org=org, title=f"{org.capitalize()} Ltd"), week.by("system"))
        for app in apps:
            by = week.by(PEOPLE[0] if org == "acme" else "user:otto", org)
            perform(log, CreateApp(app=f"{org}/{app}", title=f"The {app}"), by)
            for stage in ("test", "prod"):
                place, protected = f"{org}/{app}/{stage}", stage == "prod"
                perform(log, CreateEnvironment(environment=place, region="eu-1", protected=protected), by)
            yield week.after(3)
            prod = f"{org}/{app}/prod"
            host = f"{app}.{org}.example"
            perform(log, SetRoute(host=host, environment=prod, process="web", port=8080), week.by(by.actor, org))
            disk = AttachVolume(environment=prod, name="data", process="db", mount="/data", size_gb=20)
            perform(log, disk, week.by(by.actor, org))


def _releases(log: Log, week: Week, app: str, stage: str) -> Thread:
    """To the test environment often and by a service, to the protected one once or twice a day and by people."""
    chance = chance_of("releases", app, stage)
    org, name = app.split("/")
    environment = f"{app}/{stage}"
    people = PEOPLE if org == "acme" else ("user:otto", "user:vera")
    number = 0
    yield week.on(0, 9 if stage == "test" else 11)
    while True:
        number += 1
        actor = CI if stage == "test" else people[number % len(people)]
        artifact = f"registry.{org}.example/{name}:1.{number if stage == 'prod' else number + 40}.0"
        note = "" if stage == "test" else "after the review"
        asked = RequestDeploy(environment=environment, artifact=artifact, note=note)
        deploy = perform(log, asked, week.by(actor, org, key=f"{name}-{stage}-{number}")).result.id
        yield week.after(chance.uniform(0.5, 3))
        perform(log, StartDeploy(deploy=deploy), week.by(DEPLOYER, org))
        seconds = round(chance.uniform(20, 240), 1)
        yield week.after(seconds / 60)
        if chance.random() < 0.15:
            perform(
                log,
                FailDeploy(deploy=deploy, error="the health check timed out", seconds=seconds),
                week.by(DEPLOYER, org),
            )
        else:
            perform(log, SucceedDeploy(deploy=deploy, seconds=seconds), week.by(DEPLOYER, org))
            if stage == "prod" and number > 1 and chance.random() < 0.2:
                yield week.after(chance.uniform(4, 40))
                perform(log, RollBackDeploy(deploy=deploy, reason="orders fail since then"), week.by(actor, org))
        yield week.at_work(chance.uniform(150, 420) if stage == "test" else chance.uniform(300, 900))


def _load(log: Log, week: Week, environment: str, process: str) -> Thread:
    """Run more of a process by day than at night."""
    chance, org = chance_of("load", environment, process), environment.partition("/")[0]
    yield week.on(0, 7.5)
    while True:
        busy = 8 <= week.now.hour < 20
        count = chance.randint(3, 9) if busy else chance.randint(1, 2)
        perform(log, Scale(environment=environment, process=process, count=count), week.by(SCALER, org))
        yield week.after(chance.uniform(180, 420))


def _secrets(log: Log, week: Week, environment: str) -> Thread:
    """Give a secret a new version now and then. The value is nobody's business here."""
    chance, org = chance_of("secrets", environment), environment.partition("/")[0]
    yield week.on(0, 8)
    version = 0
    while True:
        version += 1
        for name in ("DATABASE_URL", "MAIL_KEY"):
            by = week.by("service:rotation", org)
            perform(log, SetSecret(environment=environment, name=name, version_id=str(version)), by)
        yield week.after(chance.uniform(1800, 3000))

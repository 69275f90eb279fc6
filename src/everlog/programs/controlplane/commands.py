"""The commands of the controlplane program: places, deploys, and what an environment has.

perform(log, CreateEnvironment(environment="acme/shop/prod", region="eu"), By(actor="user:ada", within="acme"))
asked = perform(log, RequestDeploy(environment="acme/shop/prod", artifact="shop:1.4.2"), By(key="build-17")).result
perform(log, StartDeploy(deploy=asked.id), By(actor="service:deployer"))

The scope of an event is the place that it belongs to. What is outside of `By.within` does not exist for the caller. A
key names one request of an actor in the whole org.
"""

from __future__ import annotations

from everlog.programs.controlplane.deploy_commands import (
    FailDeploy,
    RequestDeploy,
    RollBackDeploy,
    StartDeploy,
    SucceedDeploy,
)
from everlog.programs.controlplane.place_commands import (
    CloseApp,
    CloseEnvironment,
    CloseOrg,
    CreateApp,
    CreateEnvironment,
    CreateOrg,
)
from everlog.programs.controlplane.resource_commands import (
    AttachVolume,
    DetachVolume,
    RemoveRoute,
    RemoveSecret,
    Scale,
    SetRoute,
    SetSecret,
)

COMMANDS = (
    CreateOrg,
    CloseOrg,
    CreateApp,
    CloseApp,
    CreateEnvironment,
    CloseEnvironment,
    RequestDeploy,
    StartDeploy,
    SucceedDeploy,
    FailDeploy,
    RollBackDeploy,
    SetRoute,
    RemoveRoute,
    SetSecret,
    RemoveSecret,
    AttachVolume,
    DetachVolume,
    Scale,
)

__all__ = [
    "COMMANDS",
    "AttachVolume",
    "CloseApp",
    "CloseEnvironment",
    "CloseOrg",
    "CreateApp",
    "CreateEnvironment",
    "CreateOrg",
    "DetachVolume",
    "FailDeploy",
    "RemoveRoute",
    "RemoveSecret",
    "RequestDeploy",
    "RollBackDeploy",
    "Scale",
    "SetRoute",
    "SetSecret",
    "StartDeploy",
    "SucceedDeploy",
]

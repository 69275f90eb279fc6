"""What has happened in a control plane, for rules to decide on."""

from __future__ import annotations

from typing import Any

from everlog.core.event import Event
from everlog.programs.controlplane.paths import ResourcePath, path_of
from everlog.testing import builders

PROD = path_of("acme/shop/prod")
ADA, DEPLOYER = "user:ada", "service:deployer"


def happened(what: str, stream: str, scope: str = "acme/shop/prod", **payload: Any) -> Event:
    return builders.event(f"control.{what}", stream=stream, scope=scope, payload=payload)


def born(place: ResourcePath, **payload: Any) -> Event:
    said = {"region": "", "protected": False, **payload} if place.kind == "environment" else {"title": ""}
    return happened(f"{place.kind}.created", place.stream, place.scope, **said)


def died(place: ResourcePath) -> Event:
    return happened(f"{place.kind}.closed", place.stream, place.scope, reason="over")


def deployed(deploy: str, *steps: str, scope: str = "acme/shop/prod", **more: Any) -> list[Event]:
    said: dict[str, dict[str, Any]] = {
        "requested": {"artifact": f"shop:{deploy}", "note": ""},
        "started": {"note": ""},
        "succeeded": {"artifact": f"shop:{deploy}", "seconds": 1.0},
        "failed": {"error": "no", "seconds": 1.0},
        "rolled_back": {"to": "", "artifact": "", "reason": "slow", **more},
    }
    return [happened(f"deploy.{step}", f"deploy/{deploy}", scope, **said[step]) for step in steps]


OPEN = born(PROD)
DONE = ("requested", "started", "succeeded")

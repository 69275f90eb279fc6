"""Payloads of agents: an old proposal is read in the present form, and shapes that nobody can act on are refused."""

from __future__ import annotations

from typing import Any

import pytest

from everlog.errors import InvalidPayload
from everlog.programs.agents.events import CATALOG
from everlog.testing.builders import event


def test_a_proposal_of_version_1_has_no_reason_and_a_medium_risk() -> None:
    old = {"agent_id": "builder", "tool_name": "git_push", "tool_input": {"to": "main"}}
    found = CATALOG.upcast(event("agent.command.proposed", payload=old)).payload
    assert found == {**old, "why": "", "risk": "medium", "validation_status": "pending"}


@pytest.mark.parametrize(
    ("event_type", "payload"),
    [
        ("agent.command.proposed", {"agent_id": "builder", "tool_name": "rm -rf"}),
        ("agent.command.proposed", {"agent_id": "", "tool_name": "git_push"}),
        ("agent.command.proposed", {"agent_id": "builder", "tool_name": "git_push", "risk": "none"}),
        ("agent.command.rejected", {"reason": ""}),
        ("agent.command.executed", {"seconds": -1}),
    ],
)
def test_a_payload_of_another_shape_is_refused(event_type: str, payload: dict[str, Any]) -> None:
    with pytest.raises(InvalidPayload):
        CATALOG.validate(event_type, payload)

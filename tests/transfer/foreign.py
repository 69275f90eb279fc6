"""A line of every program whose files can be imported."""

from __future__ import annotations

import json
from typing import Any

STATUS = {
    "event_id": "01HN3R5K8D1234567890ABCDEG",
    "mission_slug": "034-log in",
    "wp_id": "WP01",
    "from_lane": "planned",
    "to_lane": "claimed",
    "at": "2026-02-08T10:30:00+00:00",
    "actor": "claude",
    "force": False,
    "execution_mode": "worktree",
    "reason": None,
    "evidence": {"review": {"reviewer": "ada", "verdict": "approved", "reference": "#7"}},
}
LIFECYCLE = {
    "event_id": "01HN3R5K8D1234567890ABCDEH",
    "event_type": "MissionCreated",
    "aggregate_id": "034-log in",
    "aggregate_type": "Mission",
    "schema_version": "5.0.0",
    "timestamp": "2026-02-08T10:29:00.123456+00:00",
    "payload": {"mission_slug": "034-log in"},
    "project_uuid": None,
    "project_slug": "shop",
}
CLI = {
    "event_id": "01HN3R5K8D1234567890ABCDEF",
    "event_type": "WPStatusChanged",
    "event_version": 2,
    "lamport_clock": 42,
    "entity_id": "WP03",
    "entity_type": "WorkPackage",
    "timestamp": "2026-01-27T10:30:00Z",
    "actor": "claude-implementer",
    "causation_id": "cmd-abc123",
    "correlation_id": None,
    "payload": {"old_status": "doing", "new_status": "for_review"},
}
AGENTS = {
    "schema_version": 1,
    "event_type": "CommandReceived",
    "event_id": "0194a7f0-1234-7abc-8def-0123456789ab",
    "timestamp": 1737730000123456789,
    "payload": {"tool_name": "Bash"},
    "metadata": {
        "timestamp": 1737730000123456789,
        "source": "agent 7",
        "correlation_id": "r-1",
        "causation_id": None,
        "sequence": 12,
        "checksum": "ab" * 32,
        "tags": {"team": "core"},
    },
}
COMMUNITY = {
    "schema_version": 1,
    "event_id": "01HN3R5K8D1234567890ABCDEJ",
    "lamport": 17,
    "wall_clock": "2026-01-27T10:30:00.123456789Z",
    "community_id": "ed25519:abc/def",
    "author": "ed25519:node",
    "event_type": "market.post.created",
    "data": {"title": "bread"},
    "signature": "ed25519:" + "A" * 86,
}
CONTROL = {
    "event_id": 4711,
    "occurred_at": "2025-12-16T08:00:00+01:00",
    "aggregate_type": "deploy",
    "aggregate_id": "d-1",
    "aggregate_seq": 3,
    "event_type": "deploy.finished",
    "event_version": 1,
    "actor_type": "service_principal",
    "actor_id": "ci",
    "org_id": "acme",
    "app_id": "shop",
    "request_id": "r-9",
    "idempotency_key": "k-9",
    "payload": {"result": "ok"},
}
KATA = {
    "kind": "event",
    "data": {
        "id": 7,
        "uid": "01HN3R5K8D1234567890ABCDEK",
        "origin_instance_uid": "01HN3R5K8D1234567890ABCDEM",
        "project_uid": "01HN3R5K8D1234567890ABCDEN",
        "project_name": "kata",
        "issue_uid": "01HN3R5K8D1234567890ABCDEP",
        "type": "issue.soft_deleted",
        "actor": "ada",
        "payload": '{"title":"x"}',
        "created_at": "2026-03-01 10:00:00",
    },
}
EVERY: list[dict[str, Any]] = [STATUS, LIFECYCLE, CLI, AGENTS, COMMUNITY, CONTROL, KATA]


def text(*objects: Any) -> bytes:
    return b"".join(json.dumps(item).encode() + b"\n" for item in objects)

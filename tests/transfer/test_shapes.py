"""The shapes of other programs' events: where each of their fields goes, and that nothing is dropped."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from tests.transfer.foreign import AGENTS, CLI, COMMUNITY, CONTROL, EVERY, KATA, LIFECYCLE, STATUS, text
from tests.transfer.test_exporting import a_log, imported

from everlog.core.ids import id_time_ms, id_uuid


def one(item: Any) -> Any:
    log = a_log()
    imported(log, text(item))
    (recorded,) = log.read()
    return recorded.event


def test_spec_kitty_status_events() -> None:
    event = one(STATUS)
    assert (event.id, event.type) == (STATUS["event_id"], "workpackage.status_changed")
    assert (event.stream, event.scope, event.actor) == (
        "workpackage/034-log~20in:WP01",
        "034-log~20in",
        "agent:claude",
    )
    assert event.occurred_at == datetime(2026, 2, 8, 10, 30, tzinfo=UTC)
    assert event.payload == {
        name: STATUS[name] for name in ("from_lane", "to_lane", "force", "execution_mode", "evidence")
    }


def test_spec_kitty_lifecycle_events() -> None:
    event = one(LIFECYCLE)
    assert (event.type, event.stream, event.scope, event.actor) == (
        "MissionCreated",
        "mission/034-log~20in",
        "shop",
        "system",
    )
    assert (event.payload, event.tags) == (LIFECYCLE["payload"], {"was.schema_version": "5.0.0"})


def test_events_of_the_cli_log() -> None:
    event = one(CLI)
    assert (event.id, event.type, event.version, event.lamport) == (CLI["event_id"], "WPStatusChanged", 2, 42)
    assert (event.stream, event.actor) == ("workpackage/WP03", "agent:claude-implementer")
    assert (event.causation_id, event.correlation_id, event.tags) == ("cmd-abc123", "", {})
    assert event.payload == CLI["payload"]


def test_events_of_the_agents_store() -> None:
    event = one(AGENTS)
    assert str(id_uuid(event.id)) == AGENTS["event_id"]
    assert (event.stream, event.actor, event.correlation_id) == ("source/agent~207", "agent:agent~207", "r-1")
    assert event.occurred_at == datetime(2025, 1, 24, 14, 46, 40, 123456, tzinfo=UTC)
    assert event.tags == {
        "team": "core",
        "was.timestamp": "1737730000123456789",
        "was.sequence": "12",
        "was.checksum": "ab" * 32,
    }


def test_events_of_the_community_log() -> None:
    event = one(COMMUNITY)
    assert (event.stream, event.scope) == ("community/ed25519:abc~2fdef", "ed25519:abc~2fdef")
    assert (event.actor, event.lamport, event.payload) == ("node:ed25519:node", 17, {"title": "bread"})
    assert event.tags == {"was.signature": COMMUNITY["signature"], "was.wall_clock": COMMUNITY["wall_clock"]}


def test_events_of_the_control_plane() -> None:
    event = one(CONTROL)
    assert (event.stream, event.scope, event.actor) == ("deploy/d-1", "acme/shop", "service:ci")
    assert event.occurred_at == datetime(2025, 12, 16, 7, 0, tzinfo=UTC)
    assert (event.request_id, event.idempotency_key, event.payload) == ("r-9", "k-9", {"result": "ok"})
    assert event.tags == {"was.event_id": "4711", "was.aggregate_seq": "3"}
    assert id_time_ms(event.id) == int(event.occurred_at.timestamp() * 1000)
    assert (id_uuid(event.id).version, id_uuid(event.id).variant) == (7, "specified in RFC 4122")


def test_events_of_kata_and_what_else_its_exports_hold() -> None:
    log = a_log()
    result = imported(
        log, text({"kind": "meta", "data": {"export_version": 30}}, {"kind": "issue", "data": {}}, KATA)
    )
    (recorded,) = log.read()
    event = recorded.event

    assert result.not_events == {"kata meta": 1, "kata issue": 1}
    assert (event.stream, event.scope, event.actor) == ("issue/01HN3R5K8D1234567890ABCDEP", "kata", "user:ada")
    assert (event.payload, event.tags["was.origin_instance_uid"]) == ({"title": "x"}, "01HN3R5K8D1234567890ABCDEM")


def test_what_has_no_place_in_an_event_is_kept() -> None:
    event = one({**CLI, "Colour": "blue", "long": "x" * 300, "more": {"a": [1]}, "nothing": None})
    assert event.tags == {"was.colour": "blue"}
    assert event.payload == {**CLI["payload"], "_imported": {"long": "x" * 300, "more": {"a": [1]}}}  # type: ignore[dict-item]


def test_shapes_may_be_mixed_and_the_whole_verifies() -> None:
    log = a_log()
    result = imported(log, text(*EVERY))
    assert result.shapes == dict.fromkeys(
        ("spec-kitty", "envelope", "cli", "agents", "community", "control-plane", "kata"), 1
    )
    assert log.verify().ok
    assert [recorded.event.origin_seq for recorded in log.read()] == [1, 2, 3, 4, 5, 6, 7]

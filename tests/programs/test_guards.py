"""The rules of a program hold for every local writer: for each event type, a direct append that the program would
refuse is refused, and one that it would accept is recorded."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import everlog
from everlog import aio, programs
from everlog.core.ids import new_id
from everlog.errors import RejectedEvent, RuleRefused
from everlog.log.log import Log
from everlog.log.write.draft import Draft


class Try(NamedTuple):
    """A direct append. `scope` is the label on the event."""

    type: str
    stream: str
    payload: dict[str, Any]
    actor: str = "user:ada"
    scope: str = ""

    @property
    def draft(self) -> Draft:
        return Draft(self.type, self.stream, self.payload, self.actor, self.scope)


ONE, TWO = "01M7Q2X4T9ZK3V5B8N6W1YHRAC", "01M7Q2X4T9ZK3V5B8N6W2YHRAD"
ENDS = {"source": {"uid": ONE, "short_id": "hrac"}, "target": {"uid": TWO, "short_id": "hrad"}}
LOOP = {"source": ENDS["source"], "target": ENDS["source"]}
CID = "bafybeigdyrzt5sfp7udm7hu76uh7y26nf3efuylqabf3oclgtqy55fbzdi"
PROD = "acme/shop/prod"
TOMORROW = (datetime.now(UTC) + timedelta(days=1)).strftime("%Y-%m-%dT%H:%M:%SZ")


def agent(what: str, payload: dict[str, Any] | None = None, actor: str = "user:ada", name: str = "c1") -> Try:
    return Try(f"agent.command.{what}", f"command/{name}", payload or {}, actor)


def issue(what: str, payload: dict[str, Any] | None = None, uid: str = ONE, kind: str = "issue") -> Try:
    return Try(f"issue.{what}", f"{kind}/{uid}", payload or {})


def package(type: str, payload: dict[str, Any], name: str = "WP01") -> Try:
    return Try(type, f"workpackage/{name}", payload)


def plane(what: str, stream: str, payload: dict[str, Any], scope: str, actor: str = "system") -> Try:
    return Try(f"control.{what}", stream, payload, actor, scope)


def street(type: str, payload: dict[str, Any], actor: str = "user:ada", stream: str = "community/hearth") -> Try:
    return Try(type, stream, payload, actor, "hearth")


PROPOSAL = {"agent_id": "builder", "tool_name": "pytest"}
BORN = {"work_package_id": "WP01", "title": "Index"}
SCALE = "scale/acme.shop.prod.web"
ROUTE, SECRET, DISK = "route/www.example.org", "secret/acme.shop.prod.KEY", "volume/acme.shop.prod.data"
ATTACHED = {"process": "web", "mount": "/data", "size_gb": 10}
CHAT, POSTED, FILED = "thread/hearth:general", "post/hearth:lamp", f"file/hearth:{CID}"

# (what is refused, what is recorded), in an order in which each follows from those before it
HASH = "A" * 43 + "="
HISTORIES: dict[str, list[tuple[Try, Try]]] = {
    "agents": [
        (
            agent("proposed", {**PROPOSAL, "validation_status": "approved"}, "agent:builder"),
            agent("proposed", PROPOSAL, "agent:builder"),
        ),
        (agent("executed"), agent("validated", {"valid": True})),
        (agent("validated", {"valid": True}), agent("proposed", PROPOSAL, "agent:builder", "c2")),
        (agent("approved", {}, "agent:builder"), agent("approved")),
        (agent("rejected", {"reason": "no"}), agent("rejected", {"reason": "no"}, name="c2")),
        (agent("failed", {"error": "x"}, name="c2"), agent("executed")),
        (agent("failed", {"error": "x"}), agent("proposed", PROPOSAL, "agent:builder", "c3")),
        (agent("executed", name="c3"), agent("approved", name="c3")),
        (agent("approved", name="c3"), agent("failed", {"error": "x"}, name="c3")),
    ],
    "issues": [
        (issue("created", {"short_id": "zzzz", "title": "x"}), issue("created", {"short_id": "hrac", "title": "x"})),
        (
            issue("created", {"short_id": "hrac", "title": "x"}),
            issue("created", {"short_id": "hrad", "title": "y"}, TWO),
        ),
        (
            issue("edited", {"changes": {"title": {"from": "other", "to": "z"}}}),
            issue("edited", {"changes": {"title": {"from": "x", "to": "z"}}}),
        ),
        (issue("commented", {"body": "x"}, new_id()), issue("commented", {"body": "x"})),
        (issue("labeled", {"label": "bug"}, new_id()), issue("labeled", {"label": "bug"})),
        (issue("unlabeled", {"label": "bug"}, new_id()), issue("unlabeled", {"label": "bug"})),
        (issue("linked", {"kind": "blocks", **LOOP}), issue("linked", {"kind": "blocks", **ENDS})),
        (issue("unlinked", {"kind": "blocks", **ENDS}, TWO), issue("unlinked", {"kind": "blocks", **ENDS})),
        (issue("closed", {}, new_id()), issue("closed")),
        (issue("reopened", {}, new_id()), issue("reopened")),
        (issue("soft_deleted", {}, new_id()), issue("soft_deleted")),
        (issue("restored", {}, new_id()), issue("restored")),
        (issue("claimed", {"until": "2020-01-01T00:00:00Z"}), issue("claimed", {"until": TOMORROW})),
        (issue("released", {"holder": "user:bob"}), issue("released", {"holder": "user:ada"})),
        (
            issue("purged", {"uid": ONE, "short_id": "hrac"}, kind="issue-tombstone"),
            issue("commented", {"body": "still here"}),
        ),
    ],
    "workpackages": [
        (
            Try("SpecCreated", "featurespec/other", {"feature_slug": "025", "title": "x"}),
            Try("SpecCreated", "featurespec/025", {"feature_slug": "025", "title": "x"}),
        ),
        (package("WPCreated", {**BORN, "dependencies": ["WP01"]}), package("WPCreated", BORN)),
        (
            package("WPDependenciesChanged", {"work_package_id": "WP01", "new_dependencies": ["WP01"]}),
            package("WPDependenciesChanged", {"work_package_id": "WP01", "new_dependencies": []}),
        ),
        (
            package("GateCreated", {"work_package_id": "WP02", "gate_type": "ci", "gate_id": "ci"}),
            package("GateCreated", {"work_package_id": "WP01", "gate_type": "ci", "gate_id": "ci"}),
        ),
        (
            package("GateResultChanged", {"gate_id": "lint", "new_status": "passed"}),
            package("GateResultChanged", {"gate_id": "ci", "new_status": "failed"}),
        ),
        (package("WPClaimed", {"until": "2020-01-01T00:00:00Z"}), package("WPClaimed", {"until": TOMORROW})),
        (package("WPReleased", {"holder": "user:bob"}), package("WPReleased", {"holder": "user:ada"})),
        (package("WPStatusChanged", {"new_status": "done"}), package("WPStatusChanged", {"new_status": "doing"})),
        (
            package("WPStatusChanged", {"old_status": "done", "new_status": "for_review"}),
            package("WPStatusChanged", {"new_status": "for_review"}),
        ),
        (
            package("WPStatusChanged", {"new_status": "done"}),
            package("SubtaskCompleted", {"work_package_id": "WP01", "subtask_index": 1}),
        ),
        (
            package("SubtaskCompleted", {"work_package_id": "WP01", "subtask_index": 0}),
            package("WorkspaceCreated", {"work_package_id": "WP01", "worktree_path": "trees/x"}),
        ),
        (
            package("WorkspaceCreated", {"work_package_id": "WP09", "worktree_path": "x"}, "WP09"),
            package("workpackage.annotated", {"delta": {}}),
        ),
        (
            package("workpackage.annotated", {"delta": {}}, "WP09"),
            package("workpackage.status_changed", {"to_lane": "claimed"}, "WP08"),
        ),
        (
            package("workpackage.status_changed", {"to_lane": "done"}),
            package("workpackage.status_changed", {"to_lane": "done"}, "WP08"),
        ),
    ],
    "controlplane": [
        (plane("org.created", "org/acme", {}, "acme", "agent:x"), plane("org.created", "org/acme", {}, "acme")),
        (
            plane("app.created", "app/umbra.shop", {}, "umbra/shop"),
            plane("app.created", "app/acme.shop", {}, "acme/shop"),
        ),
        (
            plane("environment.created", "environment/acme.cart.prod", {}, "acme/cart/prod"),
            plane("environment.created", "environment/acme.shop.prod", {}, PROD),
        ),
        (
            plane("deploy.requested", "deploy/d1", {"artifact": "shop:1"}, "acme/shop/test"),
            plane("deploy.requested", "deploy/d1", {"artifact": "shop:1"}, PROD),
        ),
        (plane("deploy.started", "deploy/d1", {}, PROD, "user:ada"), plane("deploy.started", "deploy/d1", {}, PROD)),
        (
            plane("deploy.succeeded", "deploy/d1", {"artifact": "other:2"}, PROD),
            plane("deploy.succeeded", "deploy/d1", {"artifact": "shop:1"}, PROD),
        ),
        (
            plane("deploy.rolled_back", "deploy/d1", {"to": "d0", "artifact": "x", "reason": "slow"}, PROD),
            plane("deploy.rolled_back", "deploy/d1", {"to": "", "artifact": "", "reason": "slow"}, PROD),
        ),
        (
            plane("deploy.failed", "deploy/d1", {"error": "x"}, PROD),
            plane("deploy.requested", "deploy/d2", {"artifact": "shop:2"}, PROD),
        ),
        (
            plane("deploy.requested", "deploy/d3", {"artifact": "shop:3"}, PROD),
            plane("deploy.failed", "deploy/d2", {"error": "x"}, PROD),
        ),
        (
            plane("route.set", ROUTE, {"process": "web", "port": 80}, "acme/shop/test"),
            plane("route.set", ROUTE, {"process": "web", "port": 80}, PROD),
        ),
        (plane("route.removed", "route/api.example.org", {}, PROD), plane("route.removed", ROUTE, {}, PROD)),
        (
            plane("secret.set", "secret/umbra.shop.prod.KEY", {"version_id": "1"}, PROD),
            plane("secret.set", SECRET, {"version_id": "1"}, PROD),
        ),
        (
            plane("secret.removed", "secret/acme.shop.prod.OTHER", {}, PROD),
            plane("secret.removed", SECRET, {}, PROD),
        ),
        (plane("volume.grown", DISK, {"size_gb": 20}, PROD), plane("volume.attached", DISK, ATTACHED, PROD)),
        (plane("volume.attached", DISK, ATTACHED, PROD), plane("volume.grown", DISK, {"size_gb": 20}, PROD)),
        (plane("volume.detached", "volume/acme.shop.prod.x", {}, PROD), plane("volume.detached", DISK, {}, PROD)),
        (
            plane("scale.set", "scale/acme.shop.test.web", {"count": 1}, "acme/shop/test"),
            plane("scale.set", SCALE, {"count": 1}, PROD),
        ),
        (
            plane("environment.closed", "environment/acme.shop.test", {"reason": "x"}, "acme/shop/test"),
            plane("environment.closed", "environment/acme.shop.prod", {"reason": "x"}, PROD),
        ),
        (
            plane("org.closed", "org/acme", {"reason": "x"}, "acme"),
            plane("app.closed", "app/acme.shop", {"reason": "x"}, "acme/shop"),
        ),
        (
            plane("app.closed", "app/acme.shop", {"reason": "x"}, "acme/shop"),
            plane("org.closed", "org/acme", {"reason": "x"}, "acme"),
        ),
    ],
    "community": [
        (
            Try("community.created", "community/hearth", {"name": "x"}, "user:ada", "other"),
            street("community.created", {"name": "x"}),
        ),
        (
            street("community.member.invited", {"member": "user:cyd"}, "user:bob"),
            street("community.member.invited", {"member": "user:bob"}),
        ),
        (street("community.member.joined", {}, "user:eve"), street("community.member.joined", {}, "user:bob")),
        (
            street("community.member.promoted", {"member": "user:bob", "role": "admin"}, "user:bob"),
            street("community.member.promoted", {"member": "user:bob", "role": "moderator"}),
        ),
        (
            street("community.member.demoted", {"member": "user:ada", "role": "member"}),
            street("community.member.demoted", {"member": "user:bob", "role": "member"}),
        ),
        (
            street("community.policy.updated", {"post_days": 30}, "user:bob"),
            street("community.policy.updated", {"post_days": 30}),
        ),
        (
            street("community.branch.named", {"node": "attic", "first": 1, "hashes": [HASH]}, "user:bob"),
            street("community.branch.named", {"node": "attic", "first": 1, "hashes": [HASH]}),
        ),
        (
            street("node.manifest.updated", {"node": "attic"}, "user:eve"),
            street("node.manifest.updated", {"node": "attic"}),
        ),
        (
            street("market.post.created", {"title": "A lamp"}, "user:eve", POSTED),
            street("market.post.created", {"title": "A lamp"}, "user:bob", POSTED),
        ),
        (
            street("market.post.updated", {"price": "5"}, "user:ada", POSTED),
            street("market.post.updated", {"price": "5"}, "user:bob", POSTED),
        ),
        (
            street("market.post.expired", {}, "user:eve", POSTED),
            street("market.post.expired", {}, "user:bob", POSTED),
        ),
        (
            street("chat.message.sent", {"text": "x"}, "user:eve", CHAT),
            street("chat.message.sent", {"text": "x"}, "user:bob", CHAT),
        ),
        (
            street("chat.message.delivered", {"message": ONE}, "user:ada", CHAT),
            street("chat.message.delivered", {"message": "LAST"}, "user:ada", CHAT),
        ),
        (
            street("chat.message.read", {"message": "LAST"}, "user:bob", CHAT),
            street("chat.message.read", {"message": "LAST"}, "user:ada", CHAT),
        ),
        (
            street("file.cid.advertised", {"cid": CID}, "user:eve", FILED),
            street("file.cid.advertised", {"cid": CID}, "user:bob", FILED),
        ),
        (
            street("file.cid.unpinned", {"cid": CID}, "user:ada", FILED),
            street("file.cid.unpinned", {"cid": CID}, "user:bob", FILED),
        ),
        (
            street("rag.document.ingested", {"title": "x"}, "user:eve", "document/hearth:manual"),
            street("rag.document.ingested", {"title": "x"}, "user:bob", "document/hearth:manual"),
        ),
        (
            street("community.member.revoked", {"member": "user:ada"}, "user:bob"),
            street("community.member.revoked", {"member": "user:bob"}),
        ),
    ],
}
NEVER_RECORDED_HERE = {"federation.peer.added", "federation.peer.removed"}  # reserved: every local append is refused
ONLY_AFTER_A_PURGE = {"issue.purged"}  # tested below: what is accepted follows a purge of the stream


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def log(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Log]:
    if request.param == "postgres":
        url = str(request.getfixturevalue("postgres_url"))
    else:
        url = "memory:" if request.param == "memory" else f"sqlite:{tmp_path / 'log.db'}"
    with everlog.open(url, actor="user:ada") as opened:
        yield opened


def append(log: Log, one: Try, last: str) -> str:
    payload = {name: last if value == "LAST" else value for name, value in one.payload.items()}
    made = log.append(one.type, stream=one.stream, payload=payload, actor=one.actor, scope=one.scope)
    return made.event.id


@pytest.mark.parametrize("name", sorted(HISTORIES))
def test_what_a_program_refuses_is_refused_for_a_direct_append_and_what_it_accepts_is_recorded(
    log: Log, name: str
) -> None:
    last = ""
    for bad, good in HISTORIES[name]:
        head = log.head()
        with pytest.raises(RejectedEvent) as refused:
            append(log, bad, last)
        assert refused.value.exit_code == 3
        assert refused.value.hint, bad
        assert "--actor" not in refused.value.hint, bad
        assert log.head() == head, bad
        (recorded, *_) = log.refusals(limit=1)
        assert (recorded.stream, recorded.type) == (bad.stream, bad.type)
        made = append(log, good, last)
        assert log.head() == head + 1, good
        last = made if good.type == "chat.message.sent" else last
    for view in programs.load(name).views:
        assert log.view(view).rebuild().digest == log.view(view).digest()


def test_every_type_of_every_program_is_tried_in_both_ways() -> None:
    for name, types in programs.TYPES.items():
        refused = {bad.type for bad, _ in HISTORIES[name]} | NEVER_RECORDED_HERE
        accepted = {good.type for _, good in HISTORIES[name]} | NEVER_RECORDED_HERE | ONLY_AFTER_A_PURGE
        assert set(types) - refused == set(), name
        assert set(types) - accepted == set(), name


@pytest.mark.parametrize("type", sorted(NEVER_RECORDED_HERE))
def test_a_reserved_type_is_refused_on_every_store(log: Log, type: str) -> None:
    append(log, HISTORIES["community"][0][1], "")
    head = log.head()
    with pytest.raises(RejectedEvent, match="reserved"):
        append(log, street(type, {}), "")
    assert log.head() == head


def test_the_record_of_a_purge_is_accepted_for_a_stream_that_was_purged_past_the_program(log: Log) -> None:
    append(log, issue("created", {"short_id": "hrac", "title": "x"}), "")
    log.purge(f"issue/{ONE}", reason="by hand")
    append(log, issue("purged", {"uid": ONE, "short_id": "hrac"}, kind="issue-tombstone"), "")
    with pytest.raises(RuleRefused):
        append(log, issue("purged", {"uid": ONE, "short_id": "hrac"}, kind="issue-tombstone"), "")


@pytest.mark.parametrize("name", sorted(HISTORIES))
def test_a_batch_is_judged_as_if_its_events_were_appended_one_by_one(name: str) -> None:
    steps = [pair for pair in HISTORIES[name] if "LAST" not in (*pair[0].payload.values(), *pair[1].payload.values())]
    with everlog.open("memory:", actor="user:ada") as log:
        for length in range(1, len(steps) + 1):
            drafts = [good.draft for _, good in steps[: length - 1]]
            with pytest.raises(RejectedEvent):
                log.append_batch([*drafts, steps[length - 1][0].draft])
            assert log.head() == 0
        assert len(log.append_batch([good.draft for _, good in steps])) == len(steps)


def test_a_task_meets_the_same_rules_and_a_retry_gets_its_first_answer() -> None:
    async def run(log: Log) -> None:
        await aio.append_batch(log, [agent("proposed", PROPOSAL, "agent:builder").draft])
        with pytest.raises(RuleRefused):
            await aio.append_batch(log, [agent("approved", {}, "agent:builder").draft])
        first = await aio.append_batch(log, [agent("approved").draft], key="k")
        assert await aio.append_batch(log, [agent("approved").draft], key="k") == first

    with everlog.open("memory:") as log:
        asyncio.run(run(log))
        assert log.head() == 2


def test_events_from_elsewhere_are_not_refused() -> None:
    from tests.programs.elsewhere import lawless

    with lawless("agents", actor="agent:builder") as elsewhere, everlog.open("memory:") as log:
        made = append(elsewhere, agent("approved", {}, "agent:builder"), "")
        log.admit([recorded.event for recorded in elsewhere.read()])
        assert log.get(made) is not None

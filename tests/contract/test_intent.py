"""What was asked, who decides over it, and how it ends: kept apart in the record."""

from __future__ import annotations

from datetime import timedelta

from support.desk import Desk
from support.desk import at as instant

T = instant("2031-06-01 12:00")


def test_a1_025_the_operation_names_the_effect_not_the_handler(desk: Desk) -> None:
    desk.define(replay_class="safe", backoff_base="0 s")
    item = desk.item(operation_identity="export snapshot 31")
    for worker in ("exporter 1", "exporter 2"):
        lease = desk.lease(worker=worker)
        desk.hold("eve_fail", lease, error="broken")
    intent = desk.call("t_auditor", "eve_item", item=item).intent
    assert intent["operation_identity"] == "export snapshot 31"
    assert [e.worker for e in desk.events(item) if e.kind == "acquired"] == [
        "exporter 1", "exporter 2",
    ]  # fmt: skip


def test_a1_026_what_cannot_finish_inside_its_margin_is_not_started(desk: Desk) -> None:
    desk.clock.set(T)
    item = desk.item(deadline=T + timedelta(minutes=20), minimum_completion_margin="6 min")
    desk.clock.set(T + timedelta(minutes=14))
    assert not desk.acquire().granted
    assert desk.kinds(item) == ["admitted", "expired"]


def test_a1_028_messages_attempts_and_effects_are_told_apart(desk: Desk) -> None:
    desk.define(replay_class="reconcilable", backoff_base="0 s", effect_starts=True)
    first = desk.item(work_id="m1", effect_identity="PACKAGE-31")
    second = desk.item(work_id="m2", effect_identity="PACKAGE-31")
    lease = desk.lease(item=first)
    desk.hold("eve_start_effect", lease)
    desk.hold("eve_fail", lease, disposition="uncertain")
    desk.call("t_verifier", "eve_reconcile", item=first, finding="absent",
              evidence={"kind": "lookup"})  # fmt: skip
    desk.hold("eve_start_effect", desk.lease(item=first))
    rows = desk.db.rows(
        "select e.item, e.kind, e.effect_identity, i.work_id from eve.effect as e"
        " join eve.intent as i using (queue_id, item) where e.queue_id = %s order by e.version",
        [desk.id],
    )
    assert [(r.item, r.kind) for r in rows] == [
        (first, "started"), (first, "absent"), (first, "started"),
    ]  # fmt: skip
    assert {r.effect_identity for r in rows} == {"PACKAGE-31"}
    shared = desk.db.rows(
        "select item from eve.intent where queue_id = %s and effect_identity = 'PACKAGE-31'"
        " order by 1",
        [desk.id],
    )
    assert [r.item for r in shared] == [first, second]


def test_a1_053_to_a1_056_owners_are_distinguishable_in_the_evidence(desk: Desk) -> None:
    desk.define(replay_class="reconcilable", retry_owner="payments team", effect_starts=True)
    answer = desk.submit()
    (owners,) = [s for s in answer.evidence["steps"] if s["step"] == 5]
    assert (owners["admission"], owners["retry"]) == ("eve_submit", "payments team")
    lease = desk.lease(item=answer.item)
    desk.hold("eve_start_effect", lease)
    desk.lapse(lease)
    desk.call("t_operator", "eve_recover")
    desk.call("t_verifier", "eve_reconcile", item=answer.item, finding="absent",
              evidence={"kind": "lookup"})  # fmt: skip
    by = {e.kind: (e.actor, e.token) for e in desk.events(answer.item)}
    assert by["admitted"] == ("t_producer", None)
    assert by["acquired"] == ("t_worker", lease.token)
    assert by["reconciled"][0] == "t_verifier"
    lost = next(e for e in desk.events(answer.item) if e.kind == "lease_expired")
    assert lost.data["owner"] == "payments team"


def test_a2_019_each_outcome_has_a_record_of_its_own(desk: Desk) -> None:
    desk.define("merge", replay_class="safe", coalesce="absorb")
    merged = desk.item(coalescing_key="k", **{"class": "merge"})
    found = {
        "reject": desk.submit(payload={"x": "x" * 2_000_000}),
        "admit": desk.submit(),
        "coalesce": desk.submit(coalescing_key="k", **{"class": "merge"}),
        "defer": desk.submit(not_before="2099-01-01Z"),
        "expire": desk.submit(deadline="2001-01-01Z"),
    }
    assert {name: a.decision for name, a in found.items()} == {
        "reject": "REJECT", "admit": "ADMIT", "coalesce": "COALESCE", "defer": "HOLD",
        "expire": "EXPIRE",
    }  # fmt: skip
    assert found["coalesce"].survivor == merged
    cancelled = desk.item()
    desk.call("t_operator", "eve_cancel", item=cancelled)
    desk.complete(desk.lease(item=merged))
    ends = {
        "cancel": cancelled, "reconcile": desk.uncertain(), "dead-letter": desk.quarantined(),
        "complete": merged,
    }  # fmt: skip
    assert {name: desk.phase(item) for name, item in ends.items()} == {
        "cancel": "cancelled", "reconcile": "uncertain", "dead-letter": "quarantined",
        "complete": "verified",
    }  # fmt: skip

"""Capacity evidence: what is measured, what is told, what missing and stale evidence decides."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from support.desk import Desk
from support.desk import at as instant

T = instant("2031-06-01 12:00")
FIELDS = {
    "A1-029": "observed_at", "A1-030": "freshness_limit", "A1-031": "queued_items",
    "A1-032": "queued_bytes", "A1-033": "oldest_eligible_age", "A1-034": "arrivals",
    "A1-035": "completions", "A1-036": "in_flight", "A1-037": "dependency_health",
    "A1-038": "worker_limit", "A1-039": "reserved_capacity",
}  # fmt: skip

BUSY: dict[str, Any] = {"class": "busy"}


def seconds(count: float) -> timedelta:
    return timedelta(seconds=count)


def measure(desk: Desk, name: str = "default") -> Any:
    (seen,) = desk.calls("t_operator", "eve_measure", **{"class": name})
    return seen


def a_busy_queue(desk: Desk) -> None:
    desk.clock.set(T)
    desk.approve("cloud", 4)
    desk.define("busy", replay_class="safe", evidence="limit", evidence_limit=100,
                dependencies=["mail"], freshness="90 s", measure_window="60 s")  # fmt: skip
    desk.call("t_operator", "eve_define_pool", pool="kept", classes=["busy"])
    desk.approve("kept", 2)
    desk.call("t_operator", "eve_set_health", dependency="mail", health="healthy")
    desk.clock.set(T + seconds(1))
    for _ in range(5):
        desk.item(payload={"n": 1}, **BUSY)
    desk.complete(desk.lease(pool="cloud"))
    desk.lease(pool="cloud")
    desk.clock.set(T + seconds(60))


WORTH = {
    "observed_at": T + seconds(60), "freshness_limit": seconds(90), "queued_items": 3,
    "queued_bytes": 24, "oldest_eligible_age": seconds(59), "arrivals": 5, "completions": 1,
    "in_flight": 1, "dependency_health": {"mail": "healthy"}, "worker_limit": 7,
    "reserved_capacity": 2,
}  # fmt: skip


@pytest.mark.parametrize(("line", "field"), FIELDS.items(), ids=str)
def test_a1_029_to_a1_039_an_observation_records_its_field(
    desk: Desk, line: str, field: str
) -> None:
    a_busy_queue(desk)
    seen = measure(desk, "busy")
    assert getattr(seen, field) == WORTH[field], line
    kept = desk.db.row(
        "select * from eve.observation where queue_id = %s order by observed_at desc limit 1",
        [desk.id],
    )
    assert getattr(kept, field) == WORTH[field]
    assert seen.measured == seconds(60)  # one window for all


def test_a1_040_no_single_field_decides(desk: Desk) -> None:
    """Few items, few bytes, young, idle workers: each alone would admit, the drain says no."""
    a_busy_queue(desk)
    desk.define("busy", replay_class="safe", evidence="required", measure_window="60 s",
                freshness="90 s", item_limit=1000, byte_limit=1_000_000)  # fmt: skip
    seen = measure(desk, "busy")
    assert (seen.queued_items, seen.queued_bytes) == (3, 24)
    assert (seen.start_delay, seen.worker_limit - seen.in_flight) == (seconds(180), 6)
    answer = desk.submit(deadline=T + seconds(60 + 100), **BUSY)
    assert (answer.decision, answer.reason) == ("EXPIRE", "deadline_infeasible")
    assert desk.submit(deadline=T + seconds(60 + 200), **BUSY).decision == "ADMIT"


def test_a1_041_a1_094_a2_018_missing_evidence_is_never_capacity(desk: Desk) -> None:
    desk.clock.set(T)
    desk.define("strict", replay_class="safe", evidence="required")
    desk.define("careful", replay_class="safe", evidence="limit", evidence_limit=2)
    answer = desk.submit(**{"class": "strict"})
    assert (answer.decision, answer.reason) == ("HOLD", "capacity_evidence_missing")
    assert answer.evidence["capacity_evidence"] == "missing"
    decisions = [desk.submit(**{"class": "careful"}) for _ in range(3)]
    assert [d.decision for d in decisions] == ["ADMIT", "ADMIT", "HOLD"]
    assert decisions[2].reason == "capacity_evidence_missing"
    plain = desk.submit()
    assert (plain.decision, plain.evidence["capacity_evidence"]) == ("ADMIT", "not consulted")


def test_a1_042_a_rate_without_completions_is_unavailable_not_zero(desk: Desk) -> None:
    desk.clock.set(T)
    desk.define(replay_class="safe", evidence="required", measure_window="60 s")
    measure(desk)
    desk.item()
    desk.clock.set(T + seconds(60))
    seen = measure(desk)
    assert (seen.start_delay, seen.drain, seen.eligible_items) == (None, "negative", 1)
    answer = desk.submit(deadline=T + seconds(3600))
    assert (answer.decision, answer.reason) == ("HOLD", "capacity_evidence_missing")
    assert desk.submit().decision == "ADMIT"  # nothing to reckon against


def test_an_observation_stays_as_it_was_measured(desk: Desk) -> None:
    measure(desk)
    for statement in ("update eve.observation set arrivals = 1", "delete from eve.observation"):
        with desk.refused("55000"):
            desk.db.rows(statement)


def test_workers_refresh_what_is_half_stale(desk: Desk) -> None:
    desk.clock.set(T)
    desk.define(replay_class="safe", evidence="required", freshness="60 s")
    answer = desk.submit()
    assert answer.decision == "HOLD"
    desk.clock.set(T + seconds(2))
    desk.acquire()  # whoever comes for work keeps house
    assert desk.phase(answer.item) in ("ready", "leased")
    count = "select count(*) from eve.observation where queue_id = %s"
    assert desk.db.value(count, [desk.id]) == 1
    desk.clock.set(T + seconds(20))
    desk.acquire()
    assert desk.db.value(count, [desk.id]) == 1
    desk.clock.set(T + seconds(32))
    desk.acquire()
    assert desk.db.value(count, [desk.id]) == 2


def test_health_holds_at_the_door_and_its_recovery_releases(desk: Desk) -> None:
    desk.clock.set(T)
    desk.define(replay_class="safe", dependencies=["mail", "store"])
    desk.call("t_operator", "eve_set_health", dependency="mail", health="unhealthy")
    desk.call("t_operator", "eve_set_health", dependency="store", health="saturated")
    answer = desk.submit()
    assert (answer.decision, answer.reason) == ("HOLD", "dependency_unhealthy")
    assert desk.holds(answer.item) == ["dependency_saturated", "dependency_unhealthy"]
    told = desk.call("t_operator", "eve_set_health", dependency="mail", health="healthy")
    assert told.detail["released"] == 1
    assert desk.holds(answer.item) == ["dependency_saturated"]
    desk.call("t_operator", "eve_set_health", dependency="store", health="healthy")
    assert desk.phase(answer.item) == "ready"


def test_health_is_believed_no_longer_than_it_was_said(desk: Desk) -> None:
    desk.clock.set(T)
    desk.define(replay_class="safe", evidence="required", dependencies=["mail"], freshness="1 h")
    measure(desk)
    desk.call("t_operator", "eve_set_health", dependency="mail", health="healthy", valid_for="60 s")
    assert desk.submit().decision == "ADMIT"
    desk.clock.set(T + seconds(60))
    answer = desk.submit()
    assert (answer.decision, answer.reason) == ("HOLD", "capacity_evidence_stale")
    assert not desk.acquire().granted  # nor is what was admitted leased on old news
    desk.call("t_operator", "eve_set_health", dependency="mail", health="healthy")
    assert desk.lease().granted


def test_what_waits_for_its_time_and_became_useless_expires_at_its_release(desk: Desk) -> None:
    desk.clock.set(T)
    item = desk.item(not_before=T + seconds(60), value_until=T + seconds(90))
    desk.clock.set(T + seconds(100))
    desk.sweep()
    assert desk.phase(item) == "expired"
    assert desk.events(item)[-1].reason == "value_window_ended"


def test_a_pool_reserved_for_a_class_takes_no_other(desk: Desk) -> None:
    desk.define("critical", replay_class="safe")
    desk.call("t_operator", "eve_define_pool", pool="kept", classes=["critical"])
    desk.approve("kept", 2, default_pool=False)
    bulk = desk.item()
    assert desk.acquire(pool="kept").refusal is None
    refused = desk.acquire(pool="kept", item=bulk)
    assert (refused.refusal, refused.detail["blocked"]) == (
        "not_acquirable", "pool is reserved for other classes"
    )  # fmt: skip
    urgent = desk.item(**{"class": "critical"})
    assert desk.lease(pool="kept").item == urgent


def test_a_dependency_with_a_capacity_is_leased_no_further(desk: Desk) -> None:
    desk.approve("cloud", 5)
    desk.define(replay_class="safe", dependencies=["mail"])
    desk.call("t_operator", "eve_set_health", dependency="mail", health="healthy", capacity=2)
    items = [desk.item() for _ in range(3)]
    first, _ = desk.lease(pool="cloud"), desk.lease(pool="cloud")
    each: tuple[dict[str, Any], ...] = ({}, {"item": items[2]})
    for named in each:
        refused = desk.acquire(pool="cloud", **named)
        assert refused.refusal == "concurrency_exhausted"
        assert refused.detail["saturated"] == "dependency mail is saturated"
    desk.complete(first)
    assert desk.lease(pool="cloud").item == items[2]


@pytest.mark.parametrize("mode", ["strict", "striped"])
def test_budgets_count_what_is_stored_and_not_done(desk: Desk, mode: str) -> None:
    desk.define(replay_class="safe", item_limit=2, byte_limit=100, budget_mode=mode,
                wait_hint="30 s")  # fmt: skip
    items = [desk.item(payload={"n": n}) for n in range(2)]
    answer = desk.submit()
    assert (answer.decision, answer.reason) == ("REJECT", "item_budget_exhausted")
    assert answer.wait_hint == seconds(30)
    desk.complete(desk.lease(item=items[0]))
    big = desk.submit(payload={"n": "x" * 100})
    assert (big.decision, big.reason) == ("REJECT", "byte_budget_exhausted")
    desk.quarantined()
    assert desk.submit().reason == "item_budget_exhausted"  # what is parked takes room, too


def test_the_shared_budget_keeps_room_for_who_may_fill_it_further(desk: Desk) -> None:
    desk.define("bulk", replay_class="safe", shared_item_limit=2)
    desk.define("high", replay_class="safe", shared_item_limit=3)
    for _ in range(2):
        desk.item(**{"class": "bulk"})
    refused = desk.submit(**{"class": "bulk"})
    admitted = desk.submit(**{"class": "high"})
    assert (refused.reason, admitted.decision) == ("item_budget_exhausted", "ADMIT")
    for answer, limit in ((refused, 2), (admitted, 3)):
        (step,) = [s for s in answer.evidence["steps"] if s["step"] == 9]
        assert (step["shared_items"], step["shared_item_limit"]) == (2, limit)


def test_an_age_budget_holds_or_rejects_as_the_class_says(desk: Desk) -> None:
    desk.clock.set(T)
    desk.define("held", replay_class="safe", age_limit="60 s")
    desk.define("shed", replay_class="safe", age_limit="60 s", age_action="reject")
    first = {name: desk.item(**{"class": name}) for name in ("held", "shed")}
    desk.clock.set(T + seconds(61))
    held, shed = (desk.submit(**{"class": name}) for name in ("held", "shed"))
    assert (held.decision, held.reason) == ("HOLD", "age_budget_exceeded")
    assert (shed.decision, shed.reason) == ("REJECT", "age_budget_exceeded")
    desk.complete(desk.lease(item=first["held"]))
    desk.calls("t_operator", "eve_measure", **{"class": "held"})
    assert desk.phase(held.item) == "ready"

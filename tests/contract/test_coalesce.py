"""Merging equivalent requests: only under the class's rule and key, never a silent deletion."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from support.database import Row
from support.desk import Desk
from support.desk import at as instant

T = instant("2031-06-01 12:00")


def keyed(desk: Desk, rule: str, **policy: Any) -> dict[str, Any]:
    desk.define("fresh", replay_class="safe", coalesce=rule, **policy)
    return {"class": "fresh", "coalescing_key": "page-1"}


def represented(desk: Desk, item: int) -> Any:
    return desk.call("t_auditor", "eve_item", item=item).intent.get("represents")


def test_a1_062_a1_064_the_waiting_one_absorbs_and_the_request_stays_on_record(desk: Desk) -> None:
    ask = keyed(desk, "absorb", item_limit=1)
    first = desk.item(**ask)
    answer = desk.submit(work_id="b", payload={"n": 2}, idempotency_key="k", **ask)
    assert (answer.decision, answer.reason, answer.survivor, answer.item) == (
        "COALESCE", "equivalent_waiting", first, None
    )  # fmt: skip
    (merge,) = represented(desk, first)
    assert (merge["submission"], merge["work_id"]) == (answer.submission, "b")
    assert (merge["rule"], merge["key"]) == ("absorb", "page-1")
    assert desk.events(first)[-1].data["represents"] == merge
    record = desk.db.row(
        "select * from eve.submission where queue_id = %s and submission = %s",
        [desk.id, answer.submission],
    )
    assert (record.decision, record.payload_size) == ("COALESCE", 8)
    again = desk.submit(work_id="b", payload={"n": 2}, idempotency_key="k", **ask)
    assert (again.replayed, again.submission) == (True, answer.submission)
    assert desk.kinds(first) == ["admitted", "absorbed"]


def test_a2_092_a_merged_request_takes_no_budget(desk: Desk) -> None:
    for rule in ("absorb", "replace"):
        ask = keyed(desk, rule, item_limit=1, byte_limit=20)
        first = desk.item(payload={"n": 1}, **ask)
        answer = desk.submit(payload={"n": 2}, **ask)
        assert answer.decision == ("COALESCE" if rule == "absorb" else "ADMIT")
        other = desk.submit(coalescing_key="page-2", **{"class": "fresh"})
        assert other.reason == "item_budget_exhausted"
        for item in (first, answer.item):
            if item is not None and desk.phase(item) == "ready":
                desk.complete(desk.lease(item=item))


def test_a_replacement_names_what_it_stands_for_through_any_chain(desk: Desk) -> None:
    ask = keyed(desk, "replace")
    items = [desk.item(payload={"n": n}, work_id=f"w{n}", **ask) for n in range(4)]
    assert [desk.phase(i) for i in items] == ["coalesced"] * 3 + ["ready"]
    assert [r["work_id"] for r in represented(desk, items[3])] == ["w0", "w1", "w2"]
    for place, item in enumerate(items[:3]):
        last = desk.events(item)[-1]
        assert (last.kind, last.data["survivor"]) == ("coalesced", items[place + 1])
        assert (last.data["rule"], last.data["key"]) == ("replace", "page-1")
    lease = desk.lease()
    assert (lease.item, lease.payload) == (items[3], {"n": 3})


def test_a2_071_a_merged_end_is_a_phase_of_its_own(desk: Desk) -> None:
    ask = keyed(desk, "replace")
    item = desk.item(**ask)
    desk.item(**ask)
    (why,) = desk.calls("t_auditor", "eve_explain", item=item)
    assert (why.status, why.phase) == ("ended", "coalesced")
    assert not desk.acquire(item=item).granted


@pytest.mark.parametrize("rule", ["absorb", "replace"])
@pytest.mark.parametrize(
    "change",
    [
        {"operation_identity": "another"}, {"effect_identity": "another"},
        {"expected_effects": ["another"]}, {"replay_class": "reconcilable"},
        {"completion_test": "effects"}, {"after": ["parent"]}, {"coalescing_key": "page-2"},
        {"coalescing_key": None},
    ],
    ids=lambda change: next(iter(change)) + str(next(iter(change.values()))),
)  # fmt: skip
def test_a1_065_a2_153_what_differs_in_its_effects_is_not_merged(
    desk: Desk, rule: str, change: dict[str, Any]
) -> None:
    ask = keyed(desk, rule)
    first = desk.item(**ask)
    answer = desk.submit(**{**ask, **change})
    assert answer.decision in ("ADMIT", "HOLD")
    assert (answer.survivor, desk.phase(first)) == (None, "ready")


def test_a1_065_a_class_of_events_merges_nothing(desk: Desk) -> None:
    ask = keyed(desk, "none")
    assert [desk.submit(**ask).decision for _ in range(2)] == ["ADMIT", "ADMIT"]


def test_nobody_is_made_later_or_less_urgent_by_being_absorbed(desk: Desk) -> None:
    desk.clock.set(T)
    ask = keyed(desk, "absorb")
    desk.item(deadline=T + timedelta(hours=2), not_before=T + timedelta(minutes=5), **ask)
    for change in (
        {"deadline": T + timedelta(hours=1)},
        {"deadline": T + timedelta(hours=3), "priority_class": 1},
        {"deadline": T + timedelta(hours=3), "not_before": T + timedelta(minutes=1)},
    ):
        assert desk.submit(**ask, **change).decision != "COALESCE"
    later = desk.submit(deadline=T + timedelta(hours=3), not_before=T + timedelta(minutes=5), **ask)
    assert later.decision == "COALESCE"


def test_what_somebody_waits_for_is_not_replaced(desk: Desk) -> None:
    ask = keyed(desk, "replace")
    parent = desk.item(work_id="parent", **ask)
    child = desk.item(after=["parent"])
    assert desk.submit(**ask).decision == "ADMIT"
    assert desk.phase(parent) == "ready"
    desk.complete(desk.lease(item=parent))
    assert desk.phase(child) == "ready"


def test_only_what_still_waits_and_never_ran_stands_for_a_key(desk: Desk) -> None:
    ask = keyed(desk, "absorb", backoff_base="0 s")
    first = desk.item(**ask)
    lease = desk.lease(item=first)
    second = desk.submit(**ask)
    assert second.decision == "ADMIT"
    desk.hold("eve_fail", lease, error="broken")
    third = desk.submit(**ask)
    assert (third.decision, third.survivor) == ("COALESCE", second.item)
    desk.call("t_operator", "eve_cancel", item=second.item)
    assert desk.submit(**ask).decision == "ADMIT"


def test_a_refused_replacement_leaves_the_waiting_one(desk: Desk) -> None:
    ask = keyed(desk, "replace", byte_limit=20)
    first = desk.item(work_id="a", **ask)
    taken = desk.submit(work_id="a", **ask)
    assert (taken.decision, taken.reason) == ("REJECT", "work_id_taken")
    big = desk.submit(payload={"n": "x" * 50}, **ask)
    assert (big.decision, big.reason) == ("REJECT", "byte_budget_exhausted")
    assert desk.phase(first) == "ready"
    second = desk.submit(**ask)
    assert (second.decision, desk.phase(first)) == ("ADMIT", "coalesced")


def test_must_admit_takes_a_merge_for_a_yes(desk: Desk) -> None:
    ask = keyed(desk, "absorb")
    desk.item(**ask)
    assert desk.submit(must_admit=True, **ask).decision == "COALESCE"


def test_cancelling_the_survivor_cancels_the_demand(desk: Desk) -> None:
    ask = keyed(desk, "absorb")
    first = desk.item(**ask)
    desk.submit(**ask)
    desk.call("t_operator", "eve_cancel", item=first)
    assert not desk.acquire().granted


@pytest.mark.parametrize("rule", ["absorb", "replace"])
def test_keys_are_rebuilt_and_audited(desk: Desk, rule: str) -> None:
    ask = keyed(desk, rule)
    desk.item(**ask)
    desk.submit(**ask)
    desk.item(coalescing_key="page-2", **{"class": "fresh"})
    before = keys(desk)
    assert [row.key for row in before] == ["page-1", "page-2"]
    assert desk.call("t_operator", "eve_rebuild").clean
    assert keys(desk) == before
    desk.db.rows("delete from eve.waiting_key where queue_id = " + str(desk.id))
    assert "waiting key" in str(desk.audit().faults)
    assert desk.call("t_operator", "eve_rebuild").clean


def keys(desk: Desk) -> list[Row]:
    return desk.db.rows(
        "select class_id, key, item from eve.waiting_key where queue_id = %s order by key",
        [desk.id],
    )


def test_a_refresh_is_never_put_off_by_the_next_one(desk: Desk) -> None:
    """The survivor has the more urgent rank of both, and the place of whose rank that is."""
    desk.clock.set(T)
    ask = keyed(desk, "replace")
    desk.item(**ask)
    desk.clock.advance(60)
    neighbour = desk.item()
    desk.clock.advance(60)
    second = desk.item(priority_class=3, **ask)
    assert (desk.state(second).rank, desk.state(second).ready_since) == (2, T)
    third = desk.item(**ask)
    assert desk.lease().item == third
    urgent = desk.item(priority_class=0, coalescing_key="page-2", **{"class": "fresh"})
    desk.item(priority_class=3, coalescing_key="page-3", **{"class": "fresh"})
    desk.clock.advance(60)
    jumped = desk.item(priority_class=0, coalescing_key="page-3", **{"class": "fresh"})
    assert desk.state(jumped).ready_since == T + timedelta(seconds=180)  # it gains no age
    assert urgent != jumped
    assert desk.phase(neighbour) == "ready"


def test_a_replacement_does_not_wait_for_the_effect_of_what_it_replaces(desk: Desk) -> None:
    ask = keyed(desk, "replace", effect_unique=True) | {"effect_identity": "page"}
    first = desk.item(work_id="a", **ask)
    assert desk.submit(work_id="a", **ask).reason == "work_id_taken"
    answer = desk.submit(work_id="b", **ask)
    assert (answer.decision, desk.phase(first)) == ("ADMIT", "coalesced")
    held = desk.submit(effect_identity="page")
    assert held.decision == "ADMIT"  # of a class that says nothing of effects
    desk.complete(desk.lease(item=answer.item))


def test_a_request_that_somebody_waits_for_is_not_absorbed(desk: Desk) -> None:
    ask = keyed(desk, "absorb")
    desk.item(**ask)
    child = desk.item(after=["awaited"])
    assert desk.holds(child) == ["unknown_dependency"]
    answer = desk.submit(work_id="awaited", **ask)
    assert answer.decision == "ADMIT"
    desk.complete(desk.lease(item=answer.item))
    assert desk.phase(child) == "ready"
    assert desk.submit(work_id="awaited", **ask).reason == "work_id_taken"


def test_requests_of_different_limit_keys_are_not_merged(desk: Desk) -> None:
    ask = keyed(desk, "absorb")
    desk.item(limit_key="a", **ask)
    assert desk.submit(limit_key="b", **ask).decision == "ADMIT"
    assert desk.submit(limit_key="a", **ask).decision == "COALESCE"
